"""Programs of steps from traces: where phases are cut, and which segments pieces hold."""

from __future__ import annotations

import numpy as np
import pytest
from rank_events import Recorder, asked, compute_ps, edges, steps

from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import Action
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import WorkloadError
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

_IN, _OUT, _MUTEX = DependenceKind.depend_in, DependenceKind.depend_out, DependenceKind.depend_mutexinoutset


@pytest.mark.theory
def test_phases_are_cut_where_nothing_is_left() -> None:
    record = Recorder()
    with record.parallel():
        record.operation()
        with record.task(dependences=[(_OUT, 1)]):
            pass
        record.operation()  # the task may be at work
        record.wait()
        record.operation(sleep_ps=7)
        with record.task(dependences=[(_OUT, 1)]):
            record.operation()
    workload = record.workload()
    program = build_program(workload, 0, 4)
    assert program.phase_operation.tolist() == [0, 2, 4]
    assert program.phase_first_instance.tolist() == [1, 1, 2, 3]
    assert asked(program, 0) == ["create", "operation", "wait_children", "create", "barrier"]
    assert steps(program, 2)[1] == ("operation", 3)
    assert program.is_coupled
    assert edges(program) == []  # the first task is complete when the second one's phase begins
    sleeps = program.piece_event == -2
    assert program.piece_ps[sleeps].tolist() == [7]
    assert program.piece_ps[~sleeps].sum() == compute_ps(workload, 0)


@pytest.mark.theory
def test_taskwait_leaves_grandchildren_but_a_group_does_not() -> None:
    record = Recorder()
    with record.parallel():
        with record.task(), record.task():
            pass
        record.wait()
        record.operation()
        record.wait("barrier")
        record.operation()
        with record.between("taskgroup"), record.task(), record.task():
            pass
        record.operation()
    program = build_program(record.workload(), 0, 4)
    assert program.phase_operation.tolist() == [1, 2, 3]


@pytest.mark.theory
def test_group_that_is_open_at_a_cut_goes_on_in_the_next_phase() -> None:
    record = Recorder()
    with record.parallel(), record.between("taskgroup"):
        record.operation()
        with record.task():
            pass
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["begin_group", "end_group", "begin_group", "create", "end_group"]
    assert program.phase_operation.tolist() == [0, 1]
    assert program.step_action[program.phase_first_step[1]] == Action.begin_group


@pytest.mark.theory
def test_task_that_begins_at_a_later_scheduling_point() -> None:
    record = Recorder()
    with record.parallel():
        first, second = record.create(), record.create()
        record.event(EventKind.taskwait_begin, -1)
        for task in (second, first):
            with record.execute(task):
                pass
        record.event(EventKind.taskwait_end)
        record.operation()
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["create", "create", "wait_children"]
    assert program.phase_operation.tolist()[0] == 0


@pytest.mark.theory
def test_untied_task_that_is_switched_from_and_to() -> None:
    record = Recorder()
    with record.parallel():
        task = record.create(TaskFlag.untied)
        record.event(EventKind.task_begin, task)
        for goes_on in (1, task):
            record.running = task if goes_on == 1 else 1
            record.event(EventKind.task_switch, goes_on)
        record.running = task
        record.event(EventKind.task_end, 1)
        record.running = 1
    assert steps(build_program(record.workload(), 0, 4), 1) == [("compute", 20)]


@pytest.mark.theory
def test_iterations_cut_phases_of_a_process_without_communication() -> None:
    record = Recorder()
    for number in range(3):
        record.event(EventKind.iteration, number)
        with record.parallel(), record.task():
            pass
    program = build_program(record.workload(), 0, 4)
    assert program.phase_operation.tolist() == [-1, -1, -1, 0]
    assert program.phase_iteration.tolist() == [-1, 0, 1, 2]
    assert program.phase_first_instance.tolist() == [1, 1, 2, 3, 4]


@pytest.mark.theory
def test_part_of_whole_operations() -> None:
    record = Recorder()
    for number in range(4):
        record.event(EventKind.iteration, number)
        with record.parallel():
            for _ in range(2):
                with record.task(dependences=[(_OUT, 5)]):
                    record.event(EventKind.mark_begin, segment=True)
        record.operation(segment=True)
    workload = record.workload(rank=2)
    whole, part = build_program(workload, 2, 4), build_program(workload, 2, 4, first_operation=1, end_operation=3)
    assert part.phase_operation.tolist() == [-1, 1, -1, 2]
    assert part.phase_iteration.tolist() == [-1, 1, 1, 2]
    assert part.instance_id.tolist() == [-1, 5, 6, 8, 9]
    assert edges(part) == [(1, 2), (3, 4)]
    inside = np.isin(whole.instance_id[whole.piece_instance], part.instance_id[1:])
    for name in ("piece_ps", "piece_event", "first_segment", "end_segment"):
        assert np.array_equal(getattr(whole, name)[inside], getattr(part, name)[part.piece_instance > 0])
    assert part.piece_ps.sum() == compute_ps(workload, 2) // 2


@pytest.mark.theory
def test_segments_belong_to_the_pieces_around_them() -> None:
    record = Recorder()
    with record.parallel():
        record.event(EventKind.mark_begin, segment=True)  # row 0
        record.event(EventKind.mark_end, segment=True)  # row 1: one piece with row 0
        with record.task():
            record.event(EventKind.mark_begin, segment=True)  # row 2
        record.event(EventKind.mark_begin, segment=True)  # row 3
        record.wait()
        record.operation(segment=True)  # row 4
        record.event(EventKind.mark_end, segment=True)  # row 5
    program = build_program(record.workload(), 0, 4)
    pieces = zip(
        *(getattr(program, name).tolist() for name in ("piece_instance", "first_segment", "end_segment")), strict=True
    )
    assert sorted(piece for piece in pieces if piece[1] < piece[2]) == [
        (0, 0, 2), (0, 3, 4), (0, 4, 5), (0, 5, 6), (1, 2, 3),
    ]  # fmt: skip


@pytest.mark.theory
def test_segments_apart_are_pieces_apart() -> None:
    record = Recorder()
    with record.parallel():
        task = record.create()
        record.event(EventKind.mark_begin, segment=True)  # row 0
        with record.execute(task):
            record.event(EventKind.mark_begin, segment=True)  # row 1
        record.event(EventKind.mark_begin, segment=True)  # row 2, with no step since row 0
    program = build_program(record.workload(), 0, 4)
    assert [name for name, _ in steps(program, 0)] == ["compute", "create", "compute", "compute", "barrier", "compute"]
    found = sorted(zip(program.first_segment.tolist(), program.end_segment.tolist(), strict=True))
    assert [pair for pair in found if pair[0] < pair[1]] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.theory
def test_priorities_by_function_and_place() -> None:
    record = Recorder()
    with record.parallel():
        for task_type in range(3):
            with record.task(task_type=task_type):
                pass
    runtime = RuntimeSystem(priorities={"one": 4, "two.c:7": -1})
    assert build_program(record.workload(), 0, 2, runtime).priority.tolist() == [0, 0, 4, -1]
    with pytest.raises(
        WorkloadError, match=r"priorities name three; the task types are one, one.c:7, two, two.c:7, zero"
    ):
        build_program(record.workload(), 0, 2, RuntimeSystem(priorities={"three": 1}))


def test_rank_that_shares_no_work() -> None:
    record = Recorder()
    record.operation()
    record.event(EventKind.mark_begin)
    workload = record.workload()
    program = build_program(workload, 0, 8)
    assert [steps(program, 0), program.num_instances, program.num_phases] == [[("compute", 10), ("compute", 20)], 1, 2]
