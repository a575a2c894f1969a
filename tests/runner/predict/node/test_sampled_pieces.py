"""TaskPoint on simulated cores: its unit is the piece of an instance, and what is created takes its time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "models" / "node"))
from block_programs import LINE, alu, blocks, load, node, stream_of, tasks_program
from node_programs import Steps, node_program

from manyscale.models.node.detailed import DetailedPhases, NodeSimulation
from manyscale.models.node.instruction_stream import PieceStream
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.cells.sampled_kernel import new_sampled, no_lines
from manyscale.runner.predict.node.cells.taskpoint_sampling import _classes_of_pieces
from manyscale.sampling.taskpoint.decisions import TaskPoint, new_taskpoint
from manyscale.sampling.taskpoint.state import FORWARDED, VALID, TaskPointParameters

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

BLOCKS = blocks([load(1), *alu(7)])
COUNT = 100  # executions of the block in a piece
INSTRUCTIONS = 8 * COUNT
CREATE, COMPUTE, WAIT = Action.create, Action.compute, Action.wait_children


def sampled(
    program: NodeProgram, cores: int, *, empty_ps: int = 0, empty: tuple[int, ...] = (), **given: object
) -> tuple[TaskPoint, DetailedPhases]:
    """Every piece executes the block on a line of its own, but for the ``empty`` ones; all instances are one class."""
    stream, pieces = stream_of(BLOCKS, [([0] * COUNT, [LINE * k] * COUNT) for k in range(program.num_pieces)])
    is_empty = np.isin(np.arange(program.num_pieces), empty)
    pieces = PieceStream(
        pieces.first_execution,
        np.where(is_empty, pieces.first_execution, pieces.end_execution),
        pieces.first_access,
        np.where(is_empty, 0, pieces.num_instructions),
    )
    simulation = NodeSimulation(
        program, BLOCKS, node(cores), cores, RuntimeSystem(), stream, pieces, empty_ps=np.where(is_empty, empty_ps, 0)
    )
    rules = {"warm_up": 0, "history": 2, "period": "lazy", "busy_change": "never", **given}
    owner = program.piece_instance
    classes = _classes_of_pieces(owner, pieces.num_instructions, np.zeros(program.num_instances, np.int64))
    parameters = TaskPointParameters.model_validate(rules)
    point = new_taskpoint(classes, pieces.num_instructions, None, cores, parameters)
    lines = no_lines(cores)
    simulation.run(new_sampled(point, pieces.num_instructions, program.num_instances, cores, lines))
    return point, simulation.result()


def recursion(depth: int) -> NodeProgram:
    """A binary tree of instances in the order of their depth: each but the leaves works, creates two, waits for them,
    and works once more."""
    inner, count = 1 << depth, 2 << depth  # instances 1 to 2 ** (depth + 1) - 1
    steps: list[Steps] = [[(CREATE, 1), (WAIT, 0)]]
    for k in range(1, count):
        if k < inner:
            steps.append([(COMPUTE, 1), (CREATE, 2 * k), (CREATE, 2 * k + 1), (WAIT, 0), (COMPUTE, 1)])
        else:
            steps.append([(COMPUTE, 1)])
    return node_program(steps)


@pytest.mark.theory
def test_an_instance_that_waits_for_children_is_not_kept_in_detail() -> None:
    """One core, breadth first. The root's first piece and the next one to begin fill the history, before any instance
    is over, and the others are fast-forwarded. The first second piece, behind the first two leaves, is of a new
    class: it, the next two leaves and the second piece behind them are samples, and the rest is fast-forwarded."""
    program = recursion(6)
    point, found = sampled(program, 1, complete="current", resample_warm_up=0)
    assert point.resamples.tolist() == [0, 0, 1, 0]
    first = np.flatnonzero(np.diff(program.piece_instance, prepend=-1))
    second = np.setdiff1d(np.arange(program.num_pieces), first)
    assert (len(first), len(second)) == (127, 63)
    for pieces, samples in ((first, 4), (second, 2)):
        assert np.count_nonzero(point.role[pieces] == VALID) == samples
        assert np.count_nonzero(point.role[pieces] == FORWARDED) == len(pieces) - samples
    assert point.role[0] == VALID  # the root has ended last of all
    assert found.instances["end_ps"][1] == found.instances["end_ps"].max() > 0
    forwarded = point.role == FORWARDED
    assert found.piece_ps[forwarded] == pytest.approx(INSTRUCTIONS * point.cpi[forwarded] * 1000, abs=1)


@pytest.mark.theory
def test_whole_instances_would_all_be_in_detail() -> None:
    """The tester's test: were no history full before the root is over, nothing would be fast-forwarded."""
    point, _ = sampled(recursion(6), 1, history=1000)
    assert not np.any(point.role == FORWARDED)


@pytest.mark.theory
def test_creation_takes_its_time_though_the_rest_is_fast_forwarded() -> None:
    """Each instance works, then creates for 5 us without instructions in the stream, then works."""
    steps: list[Steps] = [[(CREATE, k) for k in range(1, 13)]]
    steps += [[(COMPUTE, 1), (COMPUTE, 1), (COMPUTE, 1)] for _ in range(12)]
    program = node_program(steps)
    empty = tuple(range(1, 36, 3))
    point, found = sampled(program, 1, empty_ps=5_000_000, empty=empty, history=2)
    forwarded = point.role == FORWARDED
    assert forwarded[[33, 35]].all()
    assert found.piece_ps[list(empty)].tolist() == [5_000_000] * 12
    works = np.setdiff1d(np.arange(36), empty)
    assert found.piece_ps[works].max() < 5_000_000
    assert found.makespan_ps.sum() == pytest.approx(found.piece_ps.sum(), abs=1000 * 36)  # ends are rounded to cycles


@pytest.mark.theory
def test_what_is_fast_forwarded_takes_the_mean_of_the_samples() -> None:
    """Independent instances that all miss once: 24 on two cores take 12 times what one takes."""
    point, found = sampled(tasks_program(24), 2, history=4, count="total")
    assert 4 <= np.count_nonzero(point.role >= VALID - 1) <= 6
    assert np.count_nonzero(point.role == FORWARDED) >= 18
    full, in_detail = sampled(tasks_program(24), 2, history=1000)
    assert not np.any(full.role == FORWARDED)
    assert found.makespan_ps.sum() == pytest.approx(in_detail.makespan_ps.sum(), rel=0.01)
