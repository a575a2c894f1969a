"""Intervals of made programs on simulated cores: what is looked at changes nothing, and all is counted once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from block_programs import LINE, alu, blocks, load, node, store, stream_of, tasks_program

from manyscale.models.node.detailed import NodeSimulation
from manyscale.models.node.interval_watch import (
    IntervalWatch,
    NodeIntervals,
    finish,
    intervals_of,
    new_interval_watch,
)
from manyscale.models.node.memory.system import INVALIDATED, SERVED
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

Task = tuple[Sequence[int], Sequence[int]]
CODE = blocks([load(1), *alu(7)], [store(1), *alu(3)])
INSTRUCTIONS = np.array([8, 4])
COUNT = 500


def simulated(tasks: list[Task], cores: int, every: int, edges: Sequence[tuple[int, int]] = ()) -> tuple[
    IntervalWatch, NodeIntervals, NodeSimulation, NodeSimulation
]:  # fmt: skip
    """Looked at, and the same without."""
    program = tasks_program(len(tasks), edges=edges)
    stream, pieces = stream_of(CODE, tasks)
    given = program, CODE, node(cores), cores, RuntimeSystem(), stream, pieces
    looked, plain = (NodeSimulation(*given) for _ in range(2))
    total = int(pieces.num_instructions.sum())
    looks = new_interval_watch(every, total, program.num_pieces, looked.memory.counts)
    looked.run(looks)
    finish(looks, looked.memory.counts, looked.cycle)
    plain.run()
    memory = looked.memory.memory[0]
    intervals = intervals_of(looks, stream.block_ids, INSTRUCTIONS, int(memory["levels"]), int(memory["private"]))
    return looks, intervals, looked, plain


def reading(first: int, count: int = COUNT) -> Task:
    """Over 50 lines again and again."""
    return [0] * count, [first + LINE * (k % 50) for k in range(count)]


def writing(first: int, count: int = COUNT) -> Task:
    return [1] * count, [first + LINE * (k % 50) for k in range(count)]


def of_blocks(intervals: NodeIntervals) -> np.ndarray:
    """Instructions of each interval, by its blocks."""
    return np.add.reduceat(intervals.block_instructions, intervals.first_block[:-1])


MIXED = [reading(1 << 20), writing(2 << 20), reading(3 << 20, 900), writing(4 << 20, 300), reading(5 << 20)]


@pytest.mark.contract
@pytest.mark.parametrize("cores", [1, 2])
def test_looking_changes_nothing(cores: int) -> None:
    _, _, looked, plain = simulated(MIXED, cores, 1000)
    one, other = looked.result(), plain.result()
    assert one.makespan_ps.tolist() == other.makespan_ps.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert one.piece_ps.tolist() == other.piece_ps.tolist()


@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 2])
def test_all_is_counted_once(cores: int) -> None:
    """8 * 1900 + 4 * 800 = 18,400 instructions are 18 intervals of a thousand, and one that is too short."""
    looks, intervals, looked, _ = simulated(MIXED, cores, 1000)
    result = looked.result()
    assert int(looks.state[1]) == 19
    assert len(intervals) == 18
    assert looks.instructions[18].sum() == 18_400 == result.num_instructions
    assert looks.counts[18].tolist() == result.counts.tolist()
    assert looks.cycle[18] == pytest.approx(result.makespan_ps.sum() / 1000, abs=1)
    assert intervals.instructions.sum(axis=1) == pytest.approx(1000, abs=8 * cores)
    assert of_blocks(intervals) == pytest.approx(intervals.instructions.sum(axis=1))
    assert np.all(intervals.cycles > 0)


@pytest.mark.theory
def test_blocks_are_those_of_the_core_that_executes_them() -> None:
    """One core reads and the other one writes: columns 0 (core 0, block 0) and 3, or 1 and 2."""
    _, intervals, _, _ = simulated([reading(1 << 20, 1000), writing(2 << 20, 2000)], 2, 1000)
    columns = set(intervals.core_block.tolist())
    assert columns in ({0, 3}, {1, 2})
    assert of_blocks(intervals) == pytest.approx(intervals.instructions.sum(axis=1))


@pytest.mark.theory
def test_who_holds_a_line_answers_who_reads_it() -> None:
    """50 lines are written in one task; then four tasks read them, on both cores. The core that did not write gets 50
    lines from the other one, which answers 50 times; nothing is taken from anybody."""
    tasks = [writing(1 << 20, 50), *[reading(1 << 20)] * 4]
    looks, _, looked, _ = simulated(tasks, 2, 1000, [(1, 2), (1, 3), (1, 4), (1, 5)])
    last = int(looks.state[1]) - 1
    counts = looked.memory.counts
    assert counts[:2, -1, SERVED].sum() == 50
    assert sorted(looks.answers[last].tolist()) == [0, 50]
    asked = int(np.argmax(counts[:2, -1, SERVED]))
    assert looks.answers[last, 1 - asked] == 50
    assert counts[:2, :, INVALIDATED].sum() == 0


@pytest.mark.theory
def test_who_loses_a_line_answers() -> None:
    """Both cores have read 50 lines when a task writes them: one core loses 50."""
    tasks = [reading(1 << 20), reading(1 << 20), writing(1 << 20, 50), reading(9 << 20, 4000)]
    _, intervals, _, _ = simulated(tasks, 2, 500, [(1, 3), (2, 3)])
    answers = intervals.coherence_answers.sum(axis=0)
    assert sorted(answers.tolist()) == [0, 50]
