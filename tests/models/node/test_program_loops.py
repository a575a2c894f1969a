"""Programs of steps from traces: loops and sections, and how they are handed out."""

from __future__ import annotations

import numpy as np
import pytest
from rank_events import Recorder, asked, compute_ps, steps
from told import told

from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import InstanceFlag, NodeProgram
from manyscale.models.workload.task_tables import EventKind


def loop_program(
    schedule: str, chunks: list[int], num_cores: int, *, chunk: int = 0, barrier: bool = True
) -> NodeProgram:
    record = Recorder(lap_ps=101)
    with record.parallel():
        with record.loop(schedule, sum(chunks), chunk) as loop:
            for first, iterations in zip(np.cumsum([0, *chunks]).tolist(), chunks, strict=False):
                record.chunk(loop, first, iterations)
        if not barrier:
            record.event(EventKind.masked_begin)
        record.wait("barrier")
    workload = record.workload()
    program = build_program(workload, 0, num_cores)
    assert program.piece_ps.sum() == compute_ps(workload, 0)
    return program


@pytest.mark.theory
@pytest.mark.parametrize(("iterations", "chunk", "parts"), [(100, 0, 4), (3, 0, 3), (100, 40, 3), (-1, 0, 4)])
def test_static_loop_is_cut_into_equal_parts(iterations: int, chunk: int, parts: int) -> None:
    record = Recorder(lap_ps=101)
    with record.parallel():
        with record.loop("static", iterations, chunk) as loop:
            record.chunk(loop, 0, max(iterations, 1))
        record.wait("barrier")
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["loop"]
    assert program.first_chunk[:2].tolist() == [1, 1 + parts]
    expected = [(101 + parts - 1 - part) // parts for part in range(parts)]  # the first ones take what does not divide
    assert [steps(program, row) for row in range(1, 1 + parts)] == [[("compute", each)] for each in expected]
    chunks = program.piece_instance > 0
    assert program.part[chunks].tolist() == list(range(parts))
    assert np.all(program.num_parts[chunks] == parts)
    assert np.all(program.instance_flags[1:] == InstanceFlag.chunk)
    assert np.all(program.instance_id == -1)
    assert np.all(program.task_type[1:] == 1)


@pytest.mark.theory
def test_dynamic_loop_is_handed_out_in_traced_chunks() -> None:
    program = loop_program("dynamic", [3, 3, 2], 64)
    assert asked(program, 0) == ["loop"]
    assert [steps(program, row) for row in range(1, 4)] == [[("compute", 101)]] * 3


@pytest.mark.theory
def test_loop_that_no_barrier_follows_is_not_waited_for() -> None:
    program = loop_program("dynamic", [3, 3], 4, barrier=False)
    assert asked(program, 0) == ["loop_nowait", "barrier"]


@pytest.mark.theory
def test_loop_with_an_operation_before_the_barrier_is_not_waited_for() -> None:
    record = Recorder()
    with record.parallel():
        with record.loop("dynamic", 4) as loop:
            record.chunk(loop, 0, 4)
        record.operation()
        record.wait("barrier")
    assert asked(build_program(record.workload(), 0, 4), 0) == ["loop_nowait", "operation", "barrier"]


@pytest.mark.theory
def test_guided_loop_is_handed_out_in_shrinking_groups() -> None:
    # 256 chunks of 1 for 4 cores: each group is an eighth of what remains, and 1 at least
    sizes, remaining = [], 256
    while remaining:
        sizes.append(max(remaining // 8, 1))
        remaining -= sizes[-1]
    program = loop_program("guided", [1] * 256, 4)
    assert [steps(program, 1 + row) for row in range(len(sizes))] == [[("compute", 101 * size)] for size in sizes]
    least = loop_program("guided", [1] * 256, 4, chunk=20)
    assert [steps(least, 1 + row)[0][1] // 101 for row in range(3)] == [32, 28, 24]
    assert steps(least, least.num_instances - 2) == [("compute", 101 * 20)]


@pytest.mark.theory
def test_sections_are_chunks() -> None:
    record = Recorder()
    with record.parallel():
        with record.between("sections", 3):
            for number in range(3):
                record.event(EventKind.section, number)
        record.wait("barrier")
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["loop"]
    assert program.num_instances == 4


@pytest.mark.theory
def test_static_chunk_that_creates_tasks_is_not_cut() -> None:
    record = Recorder()
    with record.parallel():
        with record.loop("static", 10) as loop:
            record.chunk(loop, 0, 10)
            with record.task():
                pass
        record.wait("barrier")
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["loop", "barrier"]
    assert program.parent.tolist() == [-1, 0, 1]
    assert "not cut" in told(program.notes)[0]


@pytest.mark.theory
def test_cancelled_loop_ends_where_it_is_cancelled() -> None:
    record = Recorder()
    with record.parallel():
        number = len(record.rows["loops"])
        loop = record.loop("dynamic", 10)
        loop.__enter__()
        record.chunk(number, 0, 5)
        record.event(EventKind.cancel)
        record.wait("barrier")
        with record.loop("dynamic", 5) as second:
            record.chunk(second, 0, 5)
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["loop", "loop"]
    assert [step for step in steps(program, 0) if step[0] == "loop"] == [("loop", 0), ("loop", 2)]
    assert program.first_chunk.tolist() == [1, 2, 2, 3, 3]
