"""Programs of steps from traces: each construct by hand, what holds for any, traced examples, refusals."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_events import Recorder, compute_ps

from manyscale.models.node.build_program import build_program, rank_has_tasks
from manyscale.models.node.node_program import Action, InstanceFlag, NodeProgram
from manyscale.models.node.runtime_system import RuntimeSystem
from manyscale.models.task_tables import DependenceKind, EventKind, TaskFlag
from manyscale.models.workload import WorkloadError
from manyscale.runner.readers import omt, workload_folder

_IN, _OUT, _MUTEX = DependenceKind.depend_in, DependenceKind.depend_out, DependenceKind.depend_mutexinoutset
EXAMPLES = Path(__file__).parents[3] / "runner" / "examples"
_DATA = os.environ.get("MANYSCALE_DATA")


def steps(program: NodeProgram, instance: int) -> list[tuple[str, int]]:
    """What an instance asks for; of a piece its time."""
    rows = slice(int(program.first_step[instance]), int(program.first_step[instance + 1]))
    pairs = zip(program.step_action[rows].tolist(), program.step_target[rows].tolist(), strict=True)
    return [
        (Action(action).name, int(program.piece_ps[target]) if action == Action.compute else target)
        for action, target in pairs
    ]


def asked(program: NodeProgram, instance: int) -> list[str]:
    return [name for name, _ in steps(program, instance) if name != "compute"]


def edges(program: NodeProgram) -> list[tuple[int, int]]:
    before = np.repeat(np.arange(program.num_instances), np.diff(program.first_successor))
    return sorted(zip(before.tolist(), program.successor.tolist(), strict=True))


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
    assert "run in order of creation" in program.notes[0]


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
    assert "not cut" in program.notes[0]


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
    assert not rank_has_tasks(workload, 0)
    program = build_program(workload, 0, 8)
    assert [steps(program, 0), program.num_instances, program.num_phases] == [[("compute", 10), ("compute", 20)], 1, 2]


# Random programs: lists of what an instance does; a task, a group and a region hold what is done inside.
_Body = list[Any]
_leaves = st.sampled_from(["work", "taskwait", "operation"])
_bodies = st.recursive(
    st.lists(_leaves, max_size=3),
    lambda inner: st.lists(
        st.one_of(
            _leaves,
            st.tuples(st.sampled_from(["task", "group", "region"]), inner, st.just(0)),
            st.tuples(st.just("task"), inner, st.sampled_from([int(TaskFlag.undeferred), int(TaskFlag.untied)])),
        ),
        max_size=4,
    ),
    max_leaves=14,
)


class _Oracle:
    """Records a body, and by sets which instances may be at work at each operation of the initial task."""

    def __init__(self) -> None:
        self.record = Recorder()
        self.left: set[tuple[int, ...]] = set()  # instances by their paths of creation
        self.cuts: list[int] = []
        self.num_created = 0

    def run(self, body: _Body, path: tuple[int, ...], in_region: bool) -> None:
        """``path``: numbers of the instance's ancestors and its own."""
        record = self.record
        for each in body:
            if each == "work":
                record.event(EventKind.mark_begin)
            elif each == "taskwait":
                record.wait()
                self.left = {other for other in self.left if other[:-1] != path}
            elif each == "operation":
                if len(path) == 1 and not self.left:
                    self.cuts.append(record.operation_id)
                record.operation()
            else:
                what, inner, flags = each
                if what == "task":
                    self.num_created += 1
                    child = (*path, self.num_created)
                    with record.task(flags):
                        if not flags & TaskFlag.undeferred:
                            self.left.add(child)
                        self.run(inner, child, in_region)
                    continue
                before = self.num_created
                with record.between("taskgroup") if what == "group" else record.parallel():
                    self.run(inner, path, in_region or what == "region")
                if what == "region" and not in_region and len(path) == 1:
                    self.left = set()
                # all that it or its descendants created since
                self.left = {other for other in self.left if other[: len(path)] != path or other[-1] <= before}


@pytest.mark.property
@given(_bodies)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program(body: _Body) -> None:
    oracle = _Oracle()
    oracle.run(body, (0,), False)
    num_operations = oracle.record.operation_id
    workload = oracle.record.workload()
    program = build_program(workload, 0, 4)
    assert program.piece_ps.sum() == compute_ps(workload, 0)
    assert [each for each in program.phase_operation.tolist() if each < num_operations] == oracle.cuts
    made = np.isin(program.step_action, [Action.create, Action.call])
    creator = np.repeat(np.arange(program.num_instances), np.diff(program.first_step))
    assert sorted(program.step_target[made].tolist()) == list(range(1, program.num_instances))
    assert np.array_equal(program.parent[program.step_target[made]], creator[made])
    called = program.step_target[program.step_action == Action.operation]
    cuts = program.phase_operation[program.phase_operation < workload.num_operations]
    assert sorted([*called.tolist(), *cuts.tolist()]) == list(range(workload.num_operations))
    for phase in range(program.num_phases):
        rows = slice(int(program.phase_first_step[phase]), int(program.phase_first_step[phase + 1]))
        opened = np.count_nonzero(program.step_action[rows] == Action.begin_group)
        assert opened == np.count_nonzero(program.step_action[rows] == Action.end_group)
    assert program.phase_first_step[-1] == program.first_step[1]
    assert program.phase_first_instance[-1] == program.num_instances
    pieces = program.step_action == Action.compute
    assert np.array_equal(np.sort(program.step_target[pieces]), np.arange(program.num_pieces))
    assert np.array_equal(program.piece_instance[program.step_target[pieces]], creator[pieces])


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "arguments", "is_coupled"),
    [("cholesky", (14, 48, 3), False), ("sparselu", (16, 32, 3), False), ("jacobi", (6, 96, 10), True)],
)
def test_traced_examples(name: str, arguments: tuple[int, ...], is_coupled: bool) -> None:
    """All task instances that the source creates (tests/programs/counts.py); all compute time."""
    counts = runpy.run_path(str(Path(__file__).parents[2] / "programs" / "counts.py"))
    workload = workload_folder.read(EXAMPLES / f"{name}-8.tar.zst")
    for rank, expected in enumerate(counts["expected"](name, arguments, 8)):
        program = build_program(workload, rank, 4)
        assert rank_has_tasks(workload, rank)
        assert program.num_instances == 1 + sum(expected.tasks.values())
        assert program.piece_ps.sum() == compute_ps(workload, rank)
        assert program.is_coupled == is_coupled


@pytest.mark.golden
@pytest.mark.skipif(_DATA is None, reason="needs MANYSCALE_DATA")
def test_traced_cholesky() -> None:
    workload = omt.read(Path(str(_DATA)) / "tasks" / "cholesky-4.omt.xz")
    program = build_program(workload, 0, 8)
    assert (program.num_instances, len(program.successor), program.num_phases) == (21, 30, 1)
    covered = sorted(zip(program.first_segment.tolist(), program.end_segment.tolist(), strict=True))
    assert [pair for pair in covered if pair[0] < pair[1]] == [
        (row, row + 1) for row in range(workload.tables["segments"].num_rows)
    ]


def _without_ends(record: Recorder) -> None:
    record.rows["events"] = [row for row in record.rows["events"] if row["kind"] != EventKind.task_end]
    for row in record.rows["events"][4:]:
        row["task_instance_id"] = 2


def _change(table: str, row: int, **values: Any) -> Callable[[Recorder], None]:
    def change(record: Recorder) -> None:
        record.rows[table][row].update(values)

    return change


def _repeat(event: int) -> Callable[[Recorder], None]:
    return lambda record: record.rows["events"].insert(event + 1, dict(record.rows["events"][event]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_change("task_dependences", 0, task_instance_id=9), "a dependence names task instance 9, of 3"),
        (_change("task_dependences", 0, kind=9), "task instance 2: there is no dependence kind 9"),
        (_change("tasks", 1, parent_id=2), "task instance 1: its parent 2 is none created before it"),
        (_change("tasks", 2, task_type_id=5), "task instance 2: is of task type 5"),
        (_change("events", 3, task_instance_id=7), r"event 3 \(task_begin of .*created"),
        (_change("events", 3, value=7), r"event 3 \(task_begin of task instance 1, value 7\) names a task instance"),
        (_change("events", 2, value=1), "event 2 .* out of turn"),
        (_change("events", 3, kind=77), "event 3 .* of an unknown kind"),
        (_change("events", 3, cpu_ps=-1), "event 3 .* less than no time"),
        (_change("events", 3, cpu_ps=10**6), "operation 0: its events take longer than its phases"),
        (_change("events", 6, kind=int(EventKind.taskgroup_end)), "event 6 .* ends a taskgroup that did not begin"),
        (_change("events", 5, kind=int(EventKind.loop_chunk)), "event 5 .* is a chunk outside of any loop"),
        (_change("events", 5, kind=int(EventKind.critical_begin)), "event 5 .* not taken as often as"),
        (
            _change("loop_chunks", 0, first_iteration=3),
            "loop 0: has 4 iterations, but a chunk of 4 from iteration 3 on",
        ),
        (_change("loop_chunks", 0, loop_id=3), "loop 3: a chunk names it, of 1"),
        (_change("events", 7, value=2), "loop 2: begins, but the table 'loops' does not have it"),
        (lambda record: record.rows["loop_chunks"].clear(), "loop 0: 1 chunks begin in its events, the table"),
        (_repeat(3), "event 4 .* begins a task instance for the second time"),
        (_without_ends, "task instance 2: begins and never ends"),
    ],
)
def test_refuses_in_one_line(damage: Callable[[Recorder], None], message: str) -> None:
    record = Recorder()
    with record.parallel():  # events 0 and 1
        with record.task(dependences=[(_OUT, 1)]):  # 2, 3 and 4
            pass
        record.wait()  # 5 and 6
        with record.loop("dynamic", 4) as loop:  # 7 and 9
            record.chunk(loop, 0, 4)
    damage(record)
    with pytest.raises(WorkloadError, match=message) as raised:
        build_program(record.workload(), 0, 2)
    assert "\n" not in str(raised.value)


def test_refuses_what_cannot_be_selected() -> None:
    record = Recorder()
    with record.parallel(), record.task():
        record.operation()
    workload = record.workload()
    for arguments, message in (
        ((0, 0), "rank 0: 0 cores"),
        ((1, 2), "rank 1: the workload has 1 ranks"),
    ):
        with pytest.raises(WorkloadError, match=message):
            build_program(workload, *arguments)
    for first, end, message in ((0, 3, "0 to 3 cannot"), (1, None, "select whole"), (0, 1, "select whole")):
        with pytest.raises(WorkloadError, match=message):
            build_program(workload, 0, 2, first_operation=first, end_operation=end)
