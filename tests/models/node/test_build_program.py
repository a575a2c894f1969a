"""Programs of steps from traces: what holds for any, traced examples, refusals."""

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

from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import Action
from manyscale.models.workload import WorkloadError
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag
from manyscale.runner.readers import omt, workload_folder

_IN, _OUT, _MUTEX = DependenceKind.depend_in, DependenceKind.depend_out, DependenceKind.depend_mutexinoutset
EXAMPLES = Path(__file__).parents[3] / "runner" / "examples"
_DATA = os.environ.get("MANYSCALE_DATA")


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
        build_program(record.workload(is_checked=True), 0, 2)
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
