"""Phases cut into regions: where, which instances fall into each, and that simulated times stay what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_programs import Steps, node_program
from rank_events import Recorder

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import Action, LoopFlag, NodeProgram
from manyscale.models.node.program.regions import cut_at_waits, program_of_phases
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.task_tables import DependenceKind

COMPUTE, CREATE, WAIT, LOOP = Action.compute, Action.create, Action.wait_children, Action.loop


def cut(program: NodeProgram, at_least: int = 1) -> NodeProgram:
    """Every piece of one instruction."""
    return cut_at_waits(program, np.ones(program.num_pieces, np.int64), at_least)


def loops(count: int) -> NodeProgram:
    """Each of two chunks, with two pieces of the initial task before it."""
    steps = [step for number in range(count) for step in ((COMPUTE, 1), (COMPUTE, 1), (LOOP, number))]
    chunks = [[(COMPUTE, 5)]] * (2 * count)
    return node_program([[*steps, (COMPUTE, 9)], *chunks], loops=[(1 + 2 * k, 3 + 2 * k) for k in range(count)])


@pytest.mark.theory
@pytest.mark.parametrize(
    ("at_least", "first_instance"),
    [(1, [1, 3, 5, 7, 7]), (4, [1, 3, 5, 7, 7]), (5, [1, 5, 7]), (12, [1, 7, 7]), (13, [1, 7])],
)  # fmt: skip
def test_loops_end_regions_of_so_many_instructions(at_least: int, first_instance: list[int]) -> None:
    program = loops(3)
    found = cut(program, at_least)
    assert found.phase_first_instance.tolist() == first_instance
    assert found.phase_operation.tolist() == [-1] * (len(first_instance) - 2) + [0]
    assert found.phase_first_step[[0, -1]].tolist() == program.phase_first_step.tolist()


@pytest.mark.theory
@pytest.mark.parametrize(
    ("steps", "others", "chunks", "ends"),
    [
        ([(CREATE, 1), (WAIT, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]], [], [2]),
        ([(CREATE, 1), (Action.barrier, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]], [], [2]),
        # children of children may be left
        ([(CREATE, 1), (WAIT, 0), (COMPUTE, 1)], [[(CREATE, 2)], [(COMPUTE, 5)]], [], []),
        # one instance alone is waited for, or the loop is not
        ([(CREATE, 1), (Action.wait_instance, 1), (COMPUTE, 1)], [[(COMPUTE, 5)]], [], []),
        ([(Action.loop_nowait, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]], [(1, 2)], []),
        # another instance is left beside the loop
        ([(CREATE, 1), (LOOP, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]] * 2, [(2, 3)], []),
        # inside a group, and behind it
        (
            [(Action.begin_group, 0), (LOOP, 0), (LOOP, 1), (Action.end_group, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]] * 2,
            [(1, 2), (2, 3)], [4],
        ),
        # with a lock
        ([(Action.acquire, 0), (LOOP, 0), (Action.release, 0), (COMPUTE, 1)], [[(COMPUTE, 5)]], [(1, 2)], []),
        # where the phase ends anyway
        ([(COMPUTE, 1), (LOOP, 0)], [[(COMPUTE, 5)]], [(1, 2)], []),
    ],
)  # fmt: skip
def test_regions_end_where_nothing_is_left(
    steps: Steps, others: list[Steps], chunks: list[tuple[int, int]], ends: list[int]
) -> None:
    found = cut(node_program([steps, *others], loops=chunks, num_locks=1))
    assert found.phase_first_step.tolist() == [0, *ends, len(steps)]


@pytest.mark.theory
def test_dependences_on_what_has_completed_are_gone() -> None:
    record = Recorder()
    out = [(DependenceKind.depend_out, 1)]
    with record.parallel():
        for _ in range(2):
            with record.task(dependences=out):
                pass
            with record.task(dependences=out):
                pass
            record.wait()
    program = build_program(record.workload(), 0, 2)
    assert program.num_predecessors.tolist() == [0, 0, 1, 1, 1]
    found = cut(program)
    assert found.phase_first_instance.tolist() == [1, 3, 5, 5]  # the last one: what leaves the parallel region
    assert found.num_predecessors.tolist() == [0, 0, 1, 0, 1]
    assert found.first_successor.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.successor.tolist() == [2, 4]


@pytest.mark.theory
def test_phases_keep_iterations_and_operations() -> None:
    record = Recorder()
    for _ in range(2):
        with record.parallel():
            for _ in range(2):
                with record.task():
                    pass
                record.wait()
        record.operation()
    program = build_program(record.workload(), 0, 2)
    assert program.phase_operation.tolist() == [0, 1]
    found = cut(program)
    assert found.phase_operation.tolist() == [-1, -1, 0, -1, -1, 1]
    assert found.phase_first_instance.tolist() == [1, 2, 3, 3, 4, 5, 5]


@pytest.mark.theory
@pytest.mark.parametrize("policy", ["fifo", "work-stealing"])
def test_some_phases_alone_take_what_they_take_among_all(policy: str) -> None:
    record = Recorder()
    out = [(DependenceKind.depend_out, 1)]
    for turn in range(4):
        with record.parallel():
            for number in range(2 + turn):
                with record.task(dependences=out if number % 2 else []):
                    pass
            record.wait()
    whole = cut(build_program(record.workload(), 0, 2))
    piece_ps = np.arange(whole.num_pieces, dtype=np.int64) * 37 + 11
    runtime = RuntimeSystem.model_validate({"policy": policy, "create": "3 ns"})
    expected = run_phases(whole, 2, runtime, piece_ps).makespan_ps[0]
    for first, end in [(0, whole.num_phases), (1, 3), (2, 3), (3, whole.num_phases)]:
        part, piece, row = program_of_phases(whole, first, end)
        found = run_phases(part, 2, runtime, piece_ps[piece]).makespan_ps[0]
        assert found.tolist() == expected[first:end].tolist()
        assert part.instance_id.tolist() == whole.instance_id[row].tolist()
        assert np.array_equal(row[part.piece_instance], whole.piece_instance[piece])


@pytest.mark.theory
def test_loops_of_some_phases_are_their_own() -> None:
    whole = cut(replace(loops(3), loop_flags=np.array([0, 0, LoopFlag.forks, 0, LoopFlag.asked, 0], np.uint8)))
    piece_ps = np.arange(whole.num_pieces, dtype=np.int64) * 100 + 7
    runtime = RuntimeSystem.model_validate({"fork": "3 ns", "chunk": "5 ns"})
    expected = run_phases(whole, 2, runtime, piece_ps).makespan_ps[0]
    part, piece, _ = program_of_phases(whole, 1, 3)
    assert run_phases(part, 2, runtime, piece_ps[piece]).makespan_ps[0].tolist() == expected[1:3].tolist()
    assert part.first_chunk[0] == 1
