"""Task constructs that LLVM's runtime with one thread reports oddly, in programs of both compilers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_traces import CANCELLATION, FLAGS, SOURCES, TaskTrace, check_invariants, compiler, labels, trace_of

from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

__all__ = ["compiler"]
pytestmark = pytest.mark.theory
_RUNNING = (EventKind.task_begin, EventKind.task_end, EventKind.task_switch)


@pytest.fixture
def run(compiler: str, compiled: Callable[..., Path], traced: Callable[..., Any]) -> Callable[[str], TaskTrace]:
    """``run(name)``: the trace of one construct."""
    program = compiled(SOURCES / "tasks.c", compiler, *FLAGS)
    return lambda name: trace_of(traced, program, "tasks.c", *CANCELLATION, name)


def test_if0_is_told_from_ordinary_tasks(run: Callable[[str], TaskTrace], compiler: str) -> None:
    trace = run("if0")
    explicit = [row for row in trace.rows("tasks") if not row["flags"] & (TaskFlag.implicit | TaskFlag.initial)]
    flags = [row["flags"] for row in explicit]
    undeferred, taskwait = int(TaskFlag.undeferred), int(TaskFlag.taskwait)
    # compilers wait for an undeferred task's dependences before they begin it
    assert flags == [0, undeferred, 0, taskwait, undeferred]
    assert trace.edges() == {(explicit[2]["task_instance_id"], explicit[3]["task_instance_id"])}
    if compiler == "clang":
        assert [len(trace.tasks(each)) for each in ("ordinary", "undeferred", "undeferred-reader")] == [1, 1, 1]


def test_out_comes_as_inout_and_orders_alike(run: Callable[[str], TaskTrace]) -> None:
    trace = run("kinds")
    kinds = Counter(DependenceKind(row["kind"]).name for row in trace.rows("task_dependences"))
    assert kinds == {"depend_in": 5, "depend_inout": 3, "depend_mutexinoutset": 2}
    first = trace.rows("task_dependences")[0]["task_instance_id"]
    edges = {(before - first, after - first) for before, after in trace.edges()}
    # 0 writes a; 1 and 2 read it; 3 reads what they write; 3 and 4 exclude each other without order; 5 waits for both
    assert edges == {(0, 1), (0, 2), (1, 3), (2, 3), (3, 5), (4, 5)}


def test_taskwait_with_dependences_is_a_task_that_never_runs(run: Callable[[str], TaskTrace]) -> None:
    trace = run("taskwait")
    (waits,) = [row for row in trace.rows("tasks") if row["flags"] & TaskFlag.taskwait]
    pseudo = waits["task_instance_id"]
    assert waits["cpu_ps"] == 0
    assert trace.edges() == {(pseudo - 2, pseudo)}
    ends = [(row["kind"], row["value"]) for row in trace.events(EventKind.taskwait_begin, EventKind.taskwait_end)]
    begin, end = int(EventKind.taskwait_begin), int(EventKind.taskwait_end)
    assert ends == [(begin, pseudo), (end, pseudo), (begin, -1), (end, -1)]
    assert pseudo not in {row["value"] for row in trace.events(*_RUNNING)}


def test_untied_task_keeps_its_time_and_children(run: Callable[[str], TaskTrace]) -> None:
    trace = run("untied")
    (untied,) = [row for row in trace.rows("tasks") if row["flags"] & TaskFlag.untied]
    number = untied["task_instance_id"]
    (child,) = [row for row in trace.rows("tasks") if row["parent_id"] == number]
    for switch in trace.events(EventKind.task_switch):
        assert switch["value"] != switch["task_instance_id"]
    running = {
        row["task_instance_id"]
        for row in trace.events(EventKind.task_create)
        if row["value"] == child["task_instance_id"]
    }
    assert running == {number}
    yields = [row["task_instance_id"] for row in trace.events(EventKind.taskyield)]
    assert yields == [number, child["task_instance_id"] + 1]


def test_taskloop_stands_where_it_is_written(run: Callable[[str], TaskTrace], compiler: str) -> None:
    trace = run("taskloop")
    loops = trace.events(EventKind.taskloop_begin)
    assert [row["value"] for row in loops] == [60, 12]
    by_type = Counter(row["task_type_id"] for row in trace.rows("tasks") if row["flags"] & TaskFlag.taskloop)
    assert by_type == {loops[0]["task_type_id"]: 30, loops[1]["task_type_id"]: 2}  # no more: none of the runtime's own
    assert {row["parent_id"] for row in trace.rows("tasks") if row["flags"] & TaskFlag.taskloop} == {1}
    inner = [row for row in trace.rows("tasks") if row["parent_id"] > 1]
    assert len(inner) == 60
    assert len({row["task_type_id"] for row in inner}) == 1
    if compiler == "clang":
        assert [len(trace.tasks(each, "taskloop")) for each in ("taskloop", "nogroup")] == [30, 2]
        assert len(trace.tasks("inside")) == 60


def test_children_run_at_creation_inside_their_parent(run: Callable[[str], TaskTrace]) -> None:
    trace = run("nested")
    tasks = {row["task_instance_id"]: row for row in trace.rows("tasks")}
    assert len(tasks) == 2 + 2 + 4 + 8
    running, created = 0, None
    for event in trace.events(*_RUNNING, EventKind.task_create, EventKind.implicit_begin):
        assert event["task_instance_id"] == running
        if event["kind"] == EventKind.task_create:
            created = event["value"]
            assert tasks[created]["parent_id"] == running
            continue
        if event["kind"] == EventKind.task_begin:
            assert event["value"] == created
        if event["kind"] == EventKind.task_end:
            assert event["value"] == tasks[running]["parent_id"]
        running = event["value"]


def test_task_type_is_a_place_of_creation(run: Callable[[str], TaskTrace], compiler: str) -> None:
    trace = run("sites")
    types = Counter(row["task_type_id"] for row in trace.rows("tasks") if row["parent_id"] == 1)
    assert sorted(types.values()) == [1, 1, 1, 3]
    explicit = [row for row in trace.rows("tasks") if row["parent_id"] == 1]
    assert [bool(row["flags"] & TaskFlag.final) for row in explicit] == [False, False, False, False, True, False]
    for number in types:
        row = trace.rows("task_types")[number]
        assert row["construct"] == "task"
        assert row["file"].endswith("tasks.c")
        assert row["function"] == "sites"
        assert row["module"].startswith("tasks-")
    if compiler == "clang":
        assert [len(trace.tasks(each)) for each in ("first", "second", "final", "mergeable")] == [3, 1, 1, 1]


def test_cancelled_taskgroup(run: Callable[[str], TaskTrace]) -> None:
    trace = run("cancelled")
    cancels, discarded, after = (row["task_instance_id"] for row in trace.rows("tasks") if row["parent_id"] == 1)
    begun = [row["value"] for row in trace.events(EventKind.task_begin)]
    ended = [row["task_instance_id"] for row in trace.events(EventKind.task_end)]
    assert begun == ended == [cancels, after]
    assert trace.rows("tasks")[discarded]["cpu_ps"] == 0
    assert trace.events(EventKind.cancel)[0]["task_instance_id"] == cancels


def test_program_that_dies_in_a_task(compiler: str, compiled: Callable[..., Path], traced: Callable[..., Any]) -> None:
    trace = traced([compiled(SOURCES / "tasks.c", compiler, *FLAGS), "dies"], "--level", "tasks")
    assert trace.status == 1
    check_invariants(trace.workload)
    found = TaskTrace(trace.workload, labels("tasks.c"))
    last = found.events()[-1]
    assert (last["kind"], last["value"]) == (EventKind.task_begin, 3)
    assert [row["parent_id"] for row in found.rows("tasks")] == [-1, 0, 1, 2]


def test_without_debug_information(compiler: str, compiled: Callable[..., Path], traced: Callable[..., Any]) -> None:
    bare = traced([compiled(SOURCES / "tasks.c", compiler, "-O1", "-fopenmp"), "sites"], "--level", "tasks")
    assert "compile it with -g" in bare.out
    types = bare.workload.tables["task_types"].to_pylist()
    assert {row["function"] for row in types if row["construct"] == "task"} == {"sites"}
    assert {(row["file"], row["line"]) for row in types} == {("", 0)}
    stripped = traced([compiled(SOURCES / "tasks.c", compiler, "-O1", "-fopenmp", "-s"), "sites"], "--level", "tasks")
    types = stripped.workload.tables["task_types"].to_pylist()
    assert {row["function"] for row in types} == {hex(row["offset"]) for row in types}
