"""What the tracer records of programs whose counts their source tells: tasks, dependences, messages, iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program_builds import KERNEL_CALLS, SMALL, build
from programs import counts
from tracer_programs import LIBRARIES, MPI, need_libomp

from manyscale.models.node.program.task_graph import dependence_edges
from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.task_tables import EventKind, TaskFlag

_SENDING = {"send", "isend", "ssend", "issend", "sendrecv"}
_NOT_OF_A_TASK_CONSTRUCT = TaskFlag.initial | TaskFlag.implicit | TaskFlag.taskwait
_RUNNING = (EventKind.task_begin, EventKind.task_end, EventKind.task_switch)


@pytest.fixture(scope="session", params=LIBRARIES)
def apps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The distributed programs, and the words that start so many ranks of one."""
    need_libomp()
    folder = build(tmp_path_factory.mktemp("traced"), "clang", request.param, "--marks", *counts.APPS)
    return folder, list(MPI[request.param][1])


@pytest.fixture(scope="session", params=["clang", "gcc"])
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The kernels, and their compiler."""
    need_libomp()
    folder = build(tmp_path_factory.mktemp("traced"), request.param, None, "--marks", *counts.KERNELS)
    return folder, request.param


def rows(workload: Workload, level: str, rank: int) -> list[dict[str, Any]]:
    table = workload.tables[level]
    return table.filter(np.asarray(table.column("rank")) == rank).to_pylist()


def explicit_tasks(workload: Workload, rank: int) -> list[dict[str, Any]]:
    return [task for task in rows(workload, "tasks", rank) if not task["flags"] & _NOT_OF_A_TASK_CONSTRUCT]


def instances(workload: Workload, program: str, rank: int) -> dict[int, str]:
    """The name of each explicit task instance of a rank: what the construct on its type's line calls.

    For programs by Clang: GCC gives the call that creates a task another line, of the loop around or of an argument.
    """
    names, types = counts.task_names(program), workload.tables["task_types"].to_pylist()
    explicit = explicit_tasks(workload, rank)
    return {task["task_instance_id"]: names[types[task["task_type_id"]]["line"]] for task in explicit}


def num_edges(workload: Workload, rank: int) -> int:
    parents = [task["parent_id"] for task in rows(workload, "tasks", rank)]
    declared = rows(workload, "task_dependences", rank)
    columns = [np.array([row[name] for row in declared], np.int64) for name in ("task_instance_id", "kind", "address")]
    return len(dependence_edges(np.array(parents, np.int64), *columns)[0])


def messages(workload: Workload, rank: int) -> tuple[int, int, int, int]:
    """Messages sent, their bytes, messages received, their bytes."""
    operations = rows(workload, "operations", rank)
    sent = [row["bytes"] for row in operations if row["kind"] in _SENDING and row["peer"] >= 0]
    received = [row["receive_bytes"] for row in operations if row["kind"] in ("recv", "irecv") and row["peer"] >= 0]
    received += [row["receive_bytes"] for row in operations if row["kind"] == "sendrecv" and row["source"] >= 0]
    return len(sent), sum(sent), len(received), sum(received)


@pytest.mark.theory
@pytest.mark.parametrize(("program", "num_ranks"), [("cholesky", 8), ("sparselu", 4), ("jacobi", 6), ("multizone", 3)])
def test_counts_are_those_of_the_source(
    apps: tuple[Path, list[str]], program: str, num_ranks: int, traced: Callable[..., Any]
) -> None:
    folder, start = apps
    trace = traced([*start, num_ranks, folder / program, *SMALL[program]], "--level", "tasks")
    assert trace.status == 0, trace.err
    for rank, expected in enumerate(counts.expected(program, SMALL[program], num_ranks)):
        assert Counter(instances(trace.workload, program, rank).values()) == expected.tasks
        assert num_edges(trace.workload, rank) == expected.num_edges
        assert messages(trace.workload, rank) == (
            expected.num_sent,
            expected.sent_bytes,
            expected.num_received,
            expected.received_bytes,
        )
        iterations = rows(trace.workload, "iterations", rank)
        assert [row["iteration"] for row in iterations] == list(range(SMALL[program][-1]))
        assert all(row["annotated"] for row in iterations)


@pytest.mark.theory
def test_cholesky_of_four_blocks_alone(apps: tuple[Path, list[str]], traced: Callable[..., Any]) -> None:
    folder, _ = apps
    workload = traced([folder / "cholesky", 4, 8, 1], "--level", "tasks").workload
    assert Counter(instances(workload, "cholesky", 0).values()) == {"potrf": 4, "trsm": 6, "syrk": 6, "gemm": 4}
    assert num_edges(workload, 0) == 30


@pytest.mark.theory
def test_halos_are_exchanged_inside_tasks(apps: tuple[Path, list[str]], traced: Callable[..., Any]) -> None:
    folder, start = apps
    workload = traced([*start, 4, folder / "jacobi", *SMALL["jacobi"]], "--level", "tasks").workload
    for rank in range(4):
        names, events = instances(workload, "jacobi", rank), rows(workload, "events", rank)
        running = [event for event in events if event["kind"] in _RUNNING]
        before = np.array([event["operation_id"] for event in running])
        for number, operation in enumerate(rows(workload, "operations", rank)):
            position = int(np.searchsorted(before, number, side="right")) - 1
            task = running[position]["value"] if position >= 0 else 0
            assert (operation["kind"] in ("sendrecv", "send", "recv")) <= (names.get(task) == "exchange")
            if operation["kind"] == OperationKind.allreduce.name:
                assert task not in names


@pytest.mark.theory
@pytest.mark.parametrize(("program", "arguments"), KERNEL_CALLS)
def test_kernels_are_those_of_the_source(
    kernels: tuple[Path, str], program: str, arguments: tuple[int, ...], traced: Callable[..., Any]
) -> None:
    folder, compiler = kernels
    trace = traced([folder / program, *arguments], "--level", "tasks")
    assert trace.status == 0, trace.err
    (expected,) = counts.expected(program, arguments)
    if compiler == "clang":
        assert Counter(instances(trace.workload, program, 0).values()) == expected.tasks
    assert len(explicit_tasks(trace.workload, 0)) == expected.tasks.total()
    assert num_edges(trace.workload, 0) == expected.num_edges
    assert len(rows(trace.workload, "iterations", 0)) == SMALL[program][-1]
