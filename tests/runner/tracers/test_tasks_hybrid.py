"""MPI and OpenMP tasks together: one sequence of operations and events in each rank; and what an event costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_traces import FLAGS, SOURCES, TaskTrace, check_invariants, labels
from tracer_programs import Mpi, need_libomp

from manyscale.models.workload.task_tables import EventKind, TaskFlag

_RUNNING = (EventKind.task_begin, EventKind.task_end)


def traced_ranks(
    mpi: Mpi, ranks: int, arguments: tuple[int, int], compiled: Callable[..., Path], traced: Callable[..., Any]
) -> TaskTrace:
    need_libomp()
    program = compiled(SOURCES / "hybrid.c", mpi.compiler, *FLAGS)
    trace = traced([*mpi.start(ranks), program, *arguments], "--level", "tasks")
    assert trace.status == 0, trace.err
    check_invariants(trace.workload)
    return TaskTrace(trace.workload, labels("hybrid.c"))


@pytest.mark.theory
def test_calls_stand_between_the_events_of_their_task(
    mpi: Mpi, compiled: Callable[..., Path], traced: Callable[..., Any]
) -> None:
    trace = traced_ranks(mpi, 3, (2, 5), compiled, traced)
    tasks = trace.rows("tasks")
    for rank in range(3):
        operations = [row["kind"] for row in trace.rows("operations") if row["rank"] == rank]
        own = [row for row in tasks if row["rank"] == rank]
        explicit = [row for row in own if not row["flags"] & (TaskFlag.initial | TaskFlag.implicit)]
        assert len(explicit) == 2 * 6
        exchanges = {row["task_instance_id"] for row in (explicit[5], explicit[11])}
        events = [row for row in trace.events(*_RUNNING) if row["rank"] == rank]
        inside = []
        for begin, end in zip(events[::2], events[1::2], strict=True):
            assert begin["value"] == end["task_instance_id"]
            kinds = operations[begin["operation_id"] : end["operation_id"]]
            inside += kinds
            assert kinds == (["sendrecv"] if begin["value"] in exchanges else [])
        assert inside == ["sendrecv"] * 2
        assert operations.count("allreduce") == 2


@pytest.mark.slow
@pytest.mark.theory
def test_many_ranks(mpi: Mpi, compiled: Callable[..., Path], traced: Callable[..., Any]) -> None:
    trace = traced_ranks(mpi, 64, (2, 1000), compiled, traced)
    number = trace.workload.column("tasks", "rank")
    assert np.bincount(number).tolist() == [1 + 2 * (1 + 1000 + 1)] * 64
    assert len(trace.workload.column("task_dependences", "rank")) == 64 * 2 * 1000
