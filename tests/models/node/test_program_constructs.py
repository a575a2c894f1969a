"""Programs of steps from traces: tasks, waits, groups, locks and dependences by hand."""

from __future__ import annotations

import pytest
from rank_events import Recorder, asked, edges, steps
from told import told

from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import InstanceFlag
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

_IN, _OUT, _MUTEX = DependenceKind.depend_in, DependenceKind.depend_out, DependenceKind.depend_mutexinoutset


@pytest.mark.theory
def test_task_runs_apart_from_its_creator() -> None:
    record = Recorder()
    with record.parallel():
        with record.task(task_type=1):
            pass
        record.wait()
    program = build_program(record.workload(), 0, 4)
    # laps of the initial task: 2 at the region's begin and 1 up to the creation; up to task_begin, and taskwait_begin;
    # taskwait_end, the ends of the implicit task and the region, and the operation
    assert steps(program, 0) == [("compute", 30), ("create", 1), ("compute", 20), ("wait_children", 0), ("compute", 40)]
    assert steps(program, 1) == [("compute", 10)]
    assert program.parent.tolist() == [-1, 0]
    assert program.task_type.tolist() == [-1, 1]
    assert program.instance_id.tolist() == [-1, 2]  # 1 is the implicit task
    assert program.phase_operation.tolist() == [0]
    assert not program.is_coupled


@pytest.mark.theory
def test_region_ends_with_a_barrier_where_something_is_left() -> None:
    record = Recorder()
    with record.parallel(), record.task():
        pass
    with record.parallel():
        pass
    assert asked(build_program(record.workload(), 0, 4), 0) == ["create", "barrier"]


@pytest.mark.theory
@pytest.mark.parametrize("flags", [TaskFlag.undeferred, TaskFlag.merged])
def test_undeferred_task_is_called(flags: TaskFlag) -> None:
    record = Recorder()
    with record.parallel(), record.task(flags):
        pass
    assert asked(build_program(record.workload(), 0, 4), 0) == ["call"]


@pytest.mark.theory
def test_children_of_a_final_task_are_called() -> None:
    record = Recorder()
    with record.parallel(), record.task(TaskFlag.final), record.task(), record.task():
        pass
    program = build_program(record.workload(), 0, 4)
    assert [asked(program, instance) for instance in range(4)] == [["create", "barrier"], ["call"], ["call"], []]


@pytest.mark.theory
def test_taskwait_with_dependences_waits_for_its_pseudo_task() -> None:
    record = Recorder()
    with record.parallel():
        with record.task(dependences=[(_OUT, 8)]):
            pass
        pseudo = record.create(TaskFlag.taskwait, [(_IN, 8)])
        record.event(EventKind.taskwait_begin, pseudo)
        record.event(EventKind.taskwait_end, 1)
    program = build_program(record.workload(), 0, 4)
    assert [step for step in steps(program, 0) if step[0] != "compute"] == [
        ("create", 1), ("create", 2), ("wait_instance", 2), ("barrier", 0),
    ]  # fmt: skip
    assert program.instance_flags.tolist() == [0, 0, InstanceFlag.pseudo]
    assert edges(program) == [(1, 2)]
    assert program.num_predecessors.tolist() == [0, 0, 1]


@pytest.mark.theory
def test_regions_inside_others_and_inside_tasks_are_groups() -> None:
    record = Recorder()
    with record.parallel():
        with record.parallel(), record.task():
            pass
        with record.task(TaskFlag.untied), record.parallel():
            with record.task():
                pass
            record.wait("barrier")
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["begin_group", "create", "end_group", "create", "barrier"]
    assert asked(program, 2) == ["begin_group", "create", "end_group", "begin_group", "end_group"]
    assert program.instance_flags[2] == InstanceFlag.untied


@pytest.mark.theory
def test_locks_are_numbered() -> None:
    record = Recorder()
    with record.parallel():
        for address in (4096, 64, 4096):
            with record.between("critical", address):
                pass
    program = build_program(record.workload(), 0, 4)
    locks = [step for step in steps(program, 0) if step[0] != "compute"]
    assert locks == [(name, lock) for lock in (1, 0, 1) for name in ("acquire", "release")]
    assert program.num_locks == 2


@pytest.mark.theory
def test_operation_under_a_lock_is_a_step() -> None:
    record = Recorder()
    with record.parallel(), record.between("critical", 64):
        record.operation()
    program = build_program(record.workload(), 0, 4)
    assert asked(program, 0) == ["acquire", "operation", "release"]
    assert program.phase_operation.tolist() == [1]


@pytest.mark.theory
def test_instances_that_exclude_each_other_run_in_order() -> None:
    record = Recorder()
    with record.parallel():
        for kinds in ([(_IN, 1)], [(_MUTEX, 1), (_MUTEX, 2)], [(_MUTEX, 2), (_MUTEX, 1)], [(_OUT, 1)]):
            with record.task(dependences=kinds):
                pass
    program = build_program(record.workload(), 0, 4)
    assert edges(program) == [(1, 2), (2, 3), (3, 4)]
    assert "run in order of creation" in told(program.notes)[0]
