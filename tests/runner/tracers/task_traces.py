"""What tests of the runtime-system level share: the programs of ``tests/programs/openmp``, and traces as plain rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracer_programs import PROGRAMS, need_libomp

from manyscale.models.node.program.task_graph import dependence_edges
from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind

SOURCES = PROGRAMS / "openmp"
FLAGS = ("-O1", "-g", "-fopenmp")
# how a runtime system is told that cancel constructs count
CANCELLATION = ("env", "OMP_CANCELLATION=true")


def labels(source: str) -> dict[str, int]:
    """The lines of a program's source that carry a label."""
    found = {}
    for number, line in enumerate((SOURCES / source).read_text().splitlines(), start=1):
        label = re.search(r"// at: (\S+)", line)
        if label:
            found[label[1]] = number
    return found


@dataclass(frozen=True)
class TaskTrace:
    """A trace of one process; each row of a table is a dictionary."""

    workload: Workload
    lines: dict[str, int]

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.workload.tables[table].to_pylist()
        return found

    def type_ids(self, label: str, construct: str) -> set[int]:
        """Task types that stand on a labelled line."""
        return {
            number
            for number, row in enumerate(self.rows("task_types"))
            if row["line"] == self.lines[label] and row["construct"] == construct
        }

    def tasks(self, label: str, construct: str = "task") -> list[dict[str, Any]]:
        """Task instances that a labelled line created."""
        types = self.type_ids(label, construct)
        return [row for row in self.rows("tasks") if row["task_type_id"] in types]

    def events(self, *kinds: EventKind) -> list[dict[str, Any]]:
        return [row for row in self.rows("events") if not kinds or row["kind"] in kinds]

    def loop(self, label: str) -> tuple[dict[str, Any], list[tuple[int, int]]]:
        """The loop on a labelled line, and the chunks (first iteration, number) in which it ran."""
        types = self.type_ids(label, "loop")
        (loop,) = [row for row in self.rows("loops") if row["task_type_id"] in types]
        chunks = [row for row in self.rows("loop_chunks") if row["loop_id"] == loop["loop_id"]]
        return loop, [(row["first_iteration"], row["num_iterations"]) for row in chunks]

    def edges(self) -> set[tuple[int, int]]:
        column = self.workload.column
        names = ("task_instance_id", "kind", "address")
        found = dependence_edges(column("tasks", "parent_id"), *(column("task_dependences", name) for name in names))
        return set(zip(*(side.tolist() for side in found), strict=True))


def check_invariants(workload: Workload) -> None:
    """What holds for every trace: ids, parents, and that all CPU time is somebody's, once."""
    rank = workload.column("tasks", "rank")
    task, parent = workload.column("tasks", "task_instance_id"), workload.column("tasks", "parent_id")
    for number in range(workload.num_ranks):
        assert task[rank == number].tolist() == list(range(np.count_nonzero(rank == number)))
    assert np.all(parent < task)
    assert np.array_equal(parent == -1, task == 0)
    first = workload.rank_offsets
    compute, laps = np.zeros(workload.num_operations, np.int64), np.zeros(workload.num_operations, np.int64)
    for table, times, duration in (("phases", compute, "duration_ps"), ("events", laps, "cpu_ps")):
        rows = first[workload.column(table, "rank")] + workload.column(table, "operation_id")
        np.add.at(times, rows, workload.column(table, duration))
    assert np.all(laps <= compute)
    own = workload.column("tasks", "cpu_ps")
    assert own.min() >= 0
    for number in range(workload.num_ranks):
        assert own[rank == number].sum() == compute[first[number] : first[number + 1]].sum()


def trace_of(traced: Callable[..., Any], program: Path, source: str, *arguments: str) -> TaskTrace:
    """The trace of a program that ends well."""
    trace = traced([*arguments[:-1], program, arguments[-1]], "--level", "tasks")
    assert trace.status == 0, trace.err
    check_invariants(trace.workload)
    return TaskTrace(trace.workload, labels(source))


@pytest.fixture(params=["clang", "gcc"])
def compiler(request: pytest.FixtureRequest) -> str:
    """Each compiler in turn; programs of both run on LLVM's OpenMP runtime."""
    need_libomp()
    return str(request.param)
