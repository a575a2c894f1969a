"""Loops with their chunks, sections, and what synchronises a team of one thread, in programs of both compilers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_traces import CANCELLATION, FLAGS, SOURCES, TaskTrace, compiler, trace_of
from told import told

from manyscale.models.workload.task_tables import EventKind

__all__ = ["compiler"]
pytestmark = pytest.mark.theory


@pytest.fixture
def program(compiler: str, compiled: Callable[..., Path]) -> Path:
    return compiled(SOURCES / "worksharing.c", compiler, *FLAGS)


@pytest.fixture
def run(program: Path, traced: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> Callable[[str], TaskTrace]:
    """``run(name)``: the trace of one construct, which computes what it does without a tracer."""

    def call(name: str, *environment: str) -> TaskTrace:
        words = [*CANCELLATION, *environment]
        plain = subprocess.run(
            [*words, "OMP_NUM_THREADS=1", program, name], capture_output=True, text=True, check=True, env=os.environ
        )
        trace = traced([*words, program, name], "--level", "tasks")
        assert trace.status == 0, trace.err
        assert plain.stdout.splitlines()[0] in trace.out.splitlines()
        return trace_of(traced, program, "worksharing.c", *words, name)

    return call


def shapes(trace: TaskTrace) -> list[tuple[str, int, int, list[tuple[int, int]]]]:
    """(schedule, iterations, chunk of the source, chunks) of each loop."""
    return [
        (
            loop["schedule"],
            loop["num_iterations"],
            loop["chunk_iterations"],
            [
                (row["first_iteration"], row["num_iterations"])
                for row in trace.rows("loop_chunks")
                if row["loop_id"] == loop["loop_id"]
            ],
        )
        for loop in trace.rows("loops")
    ]


def test_static_loops_are_one_chunk(run: Callable[..., TaskTrace], compiler: str) -> None:
    trace = run("static")
    if compiler == "gcc":  # it computes them without a call
        assert trace.rows("loops") == []
        return
    assert shapes(trace) == [("static", 49, 0, [(0, 49)]), ("static", 49, 10, [(0, 49)])]
    assert trace.loop("static")[0]["loop_id"] == 0
    assert trace.loop("static-10")[0]["loop_id"] == 1


def test_dynamic_loops_run_in_the_chunks_of_their_source(run: Callable[..., TaskTrace], compiler: str) -> None:
    trace = run("dynamic")
    assert shapes(trace) == [
        ("dynamic", 49, 20, [(0, 20), (20, 20), (40, 9)]),
        ("dynamic", 3, 1, [(0, 1), (1, 1), (2, 1)]),
        ("dynamic", 8, 3, [(0, 3), (3, 3), (6, 2)]),
    ]
    if compiler == "clang":
        assert [trace.loop(each)[0]["loop_id"] for each in ("dynamic-20", "dynamic", "collapse")] == [0, 1, 2]
    begins = trace.events(EventKind.loop_begin)
    chunks = [row for row in trace.events(EventKind.loop_chunk) if row["task_type_id"] == begins[0]["task_type_id"]]
    assert [row["value"] for row in chunks] == [0, 20, 40]
    ends = trace.events(EventKind.loop_end)
    assert [row["task_type_id"] for row in ends] == [row["task_type_id"] for row in begins]
    assert [row["value"] for row in ends] == [0, 1, 2]


def test_chunks_hold_the_time_until_the_next_one(run: Callable[..., TaskTrace]) -> None:
    trace = run("dynamic")
    rows = trace.rows("events")
    of_loop = [row["cpu_ps"] for row in trace.rows("loop_chunks") if row["loop_id"] == 0]
    at = [number for number, row in enumerate(rows) if row["kind"] == EventKind.loop_chunk][:3]
    end = next(number for number, row in enumerate(rows) if row["kind"] == EventKind.loop_end)
    assert of_loop == [
        sum(row["cpu_ps"] for row in rows[first + 1 : last + 1]) for first, last in zip(at, [*at[1:], end], strict=True)
    ]


def test_guided_loop_is_cut_evenly(run: Callable[..., TaskTrace]) -> None:
    ((schedule, iterations, chunk, chunks),) = shapes(run("guided"))
    assert (schedule, iterations, chunk) == ("guided", 5000, 4)
    assert chunks == [(first, 20) for first in range(0, 5000, 20)]


def test_other_schedules(run: Callable[..., TaskTrace]) -> None:
    runtime, ordered, *rest = shapes(run("other"))
    assert runtime[:2] in (("runtime", 6), ("unknown", 6))
    assert runtime[3] == [(0, 6)]
    assert ordered[1] == 5
    assert sum(count for _, count in ordered[3]) == 5
    assert rest == []  # an empty loop asks for nothing


def test_cancelled_loop_ends_where_the_next_begins(run: Callable[..., TaskTrace], compiler: str) -> None:
    if compiler == "gcc":
        pytest.skip("LLVM's runtime runs no further loops once a program built by GCC has cancelled one")
    *cancelled, following = shapes(run("cancelled"))
    assert cancelled == [("dynamic", 10, 2, [(0, 2), (2, 2), (4, 2)])] * 300
    assert following == ("dynamic", 8, 4, [(0, 4), (4, 4)])


def test_first_construct_of_a_program(run: Callable[..., TaskTrace]) -> None:
    trace = run("combined")
    assert shapes(trace) == [("dynamic", 10, 6, [(0, 6), (6, 4)])]
    assert [row["value"] for row in trace.events(EventKind.sections_begin)] == [2]


def test_loop_of_an_inner_region(run: Callable[..., TaskTrace]) -> None:
    trace = run("nested")
    assert shapes(trace) == [("dynamic", 10, 5, [(0, 5), (5, 5)])]
    kinds = [EventKind(row["kind"]) for row in trace.events(EventKind.parallel_begin, EventKind.implicit_begin)]
    assert kinds == [EventKind.parallel_begin, EventKind.implicit_begin] * 2
    assert [row["parent_id"] for row in trace.rows("tasks")] == [-1, 0, 1]
    assert trace.events(EventKind.loop_begin)[0]["task_instance_id"] == 2


def test_sections_single_critical_and_locks(run: Callable[..., TaskTrace], compiler: str) -> None:
    trace = run("others")
    assert [row["value"] for row in trace.events(EventKind.sections_begin)] == [3]
    assert len(trace.events(EventKind.sections_end)) == 1
    if compiler == "gcc":
        assert [row["value"] for row in trace.events(EventKind.section)] == [0, 1, 2]
    assert [row["value"] for row in trace.events(EventKind.single_begin)] == [1]
    begins, ends = trace.events(EventKind.critical_begin), trace.events(EventKind.critical_end)
    one, two, again, lock = (row["value"] for row in begins)
    assert one == again
    assert len({one, two, lock}) == 3
    assert [(row["value"], row["task_type_id"]) for row in begins] == [
        (row["value"], row["task_type_id"]) for row in ends
    ]
    constructs = [trace.rows("task_types")[row["task_type_id"]]["construct"] for row in begins]
    assert constructs == ["critical", "critical", "critical", "lock"]
    if compiler == "clang":
        assert len(trace.events(EventKind.masked_begin)) == len(trace.events(EventKind.masked_end)) == 1
        asked = [row["value"] for row in trace.events(EventKind.barrier_begin)]
        assert asked.count(1) == 1
        (barrier,) = trace.type_ids("barrier", "barrier")
        assert [row["value"] for row in trace.events(EventKind.barrier_begin) if row["task_type_id"] == barrier] == [1]


def test_program_that_insists_on_threads(program: Path, traced: Callable[..., Any]) -> None:
    trace = traced(["env", "INSISTS=1", program, "insists"], "--level", "tasks")
    assert trace.status == 0, trace.err
    assert str(300 * 299 // 2 + 300) in trace.out
    assert any("insists on 3 threads" in note for note in told(trace.workload.notes))
    assert any("OpenMP events of other threads" in note for note in told(trace.workload.notes))


@pytest.mark.parametrize("level", ["mpi", "tasks"])
def test_runtime_that_a_plugin_loads_for_itself(
    compiler: str, level: str, compiled: Callable[..., Path], traced: Callable[..., Any]
) -> None:
    plugin = compiled(SOURCES / "worksharing.c", compiler, *FLAGS, "-shared", "-fPIC")
    loader = compiled(SOURCES / "load.c", "gcc", "-ldl")
    trace = traced([loader, plugin, "dynamic"], "--level", level)
    assert trace.status == 0, trace.err
    # (with several threads, which the level of MPI leaves it, LLVM's runtime may keep the first loop's last value, 99)
    total = sum(range(3, 100, 2)) + 12 + 52
    assert {f"{total} 1", f"{total} 99" if level == "mpi" else ""} & set(trace.out.splitlines())
    found = [each[3] for each in shapes(TaskTrace(trace.workload, {}))]
    # GCC's own runtime tells nothing, and that it will be needed is not seen in the program
    expected = [[(0, 20), (20, 20), (40, 9)], [(0, 1), (1, 1), (2, 1)], [(0, 3), (3, 3), (6, 2)]]
    assert found == (expected if (compiler, level) == ("clang", "tasks") else [])
