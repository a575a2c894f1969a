"""A rank's runtime-system level written by hand, as a run with one thread records it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.workload import SCHEMAS, OperationKind, PhaseKind, Workload
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

Dependences = Sequence[tuple[DependenceKind, int]]


class Recorder:
    """Each event, and each operation, ends a lap of ``lap_ps`` CPU time."""

    def __init__(self, lap_ps: int = 10) -> None:
        self.lap_ps = lap_ps
        self.running = 0
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: []
            for name in ("events", "task_dependences", "loops", "loop_chunks", "operations", "phases", "segments")
        }
        self.rows["tasks"] = [self._task(-1, -1, TaskFlag.initial)]
        self.rows["task_types"] = [
            {"construct": "task", "function": name, "file": f"src/{name}.c", "line": 7, "module": "a", "offset": row}
            for row, name in enumerate(("zero", "one", "two"))
        ]
        self.rows["iterations"] = []
        self.since_operation = 0

    @property
    def operation_id(self) -> int:
        return len(self.rows["operations"])

    def _task(self, parent: int, kind: int, flags: int) -> dict[str, Any]:
        number = len(self.rows["tasks"]) if "tasks" in self.rows else 0
        operation = self.operation_id if number else 0
        return {
            "task_instance_id": number, "parent_id": parent, "task_type_id": kind, "operation_id": operation,
            "flags": int(flags), "cpu_ps": 0,
        }  # fmt: skip

    def event(self, kind: EventKind, value: int = 0, *, task_type: int = -1, segment: bool = False) -> None:
        number = len(self.rows["events"])
        if segment:
            self.segment(number)
        self.rows["events"].append(
            {
                "operation_id": self.operation_id, "kind": int(kind), "task_instance_id": self.running,
                "task_type_id": task_type, "value": value, "cpu_ps": self.lap_ps,
            }
        )  # fmt: skip
        self.since_operation += self.lap_ps

    def segment(self, event: int) -> None:
        row = {"thread": 0, "operation_id": self.operation_id, "event_id": event, "task_instance_id": self.running}
        self.rows["segments"].append({**row, "num_blocks": 1, "num_accesses": 0, "num_instructions": 1})

    def create(self, flags: int = 0, dependences: Dependences = (), *, task_type: int = 0) -> int:
        """Create a task, which does not begin yet."""
        number = len(self.rows["tasks"])
        self.rows["tasks"].append(self._task(self.running, task_type, flags))
        self.event(EventKind.task_create, number, task_type=task_type)
        for kind, address in dependences:
            self.rows["task_dependences"].append({"task_instance_id": number, "kind": int(kind), "address": address})
        return number

    @contextmanager
    def execute(self, task: int) -> Iterator[None]:
        outer = self.running
        self.event(EventKind.task_begin, task)
        self.running = task
        yield
        self.event(EventKind.task_end, outer)
        self.running = outer

    @contextmanager
    def task(self, flags: int = 0, dependences: Dependences = (), *, task_type: int = 0) -> Iterator[int]:
        number = self.create(flags, dependences, task_type=task_type)
        with self.execute(number):
            yield number

    @contextmanager
    def parallel(self) -> Iterator[None]:
        outer = self.running
        self.event(EventKind.parallel_begin)
        self.rows["tasks"].append(self._task(outer, 0, TaskFlag.implicit))
        number = len(self.rows["tasks"]) - 1
        self.event(EventKind.implicit_begin, number)
        self.running = number
        yield
        self.event(EventKind.implicit_end, number)
        self.running = outer
        self.event(EventKind.parallel_end)

    @contextmanager
    def between(self, construct: str, value: int = 0) -> Iterator[None]:
        self.event(EventKind[f"{construct}_begin"], value)
        yield
        self.event(EventKind[f"{construct}_end"], value)

    def wait(self, construct: str = "taskwait") -> None:
        value = -1 if construct == "taskwait" else 1
        with self.between(construct, value):
            pass

    @contextmanager
    def loop(self, schedule: str, iterations: int, chunk: int = 0, *, task_type: int = 1) -> Iterator[int]:
        number = len(self.rows["loops"])
        self.rows["loops"].append(
            {
                "loop_id": number, "task_type_id": task_type, "schedule": schedule, "num_iterations": iterations,
                "chunk_iterations": chunk,
            }
        )  # fmt: skip
        self.event(EventKind.loop_begin, number, task_type=task_type)
        yield number
        self.event(EventKind.loop_end, number, task_type=task_type)

    def chunk(self, loop: int, first: int, iterations: int) -> None:
        self.event(EventKind.loop_chunk, first)
        self.rows["loop_chunks"].append(
            {"loop_id": loop, "first_iteration": first, "num_iterations": iterations, "cpu_ps": 0}
        )

    def operation(self, sleep_ps: int = 0, *, segment: bool = False) -> None:
        if segment:
            self.segment(-1)
        phase = {"operation_id": self.operation_id, "region_id": -1}
        compute_ps = self.since_operation + self.lap_ps
        self.rows["phases"].append({**phase, "kind": int(PhaseKind.compute), "duration_ps": compute_ps})
        if sleep_ps:
            self.rows["phases"].append({**phase, "kind": int(PhaseKind.sleep), "duration_ps": sleep_ps})
        self.since_operation = 0
        self.rows["operations"].append(
            {
                "kind": OperationKind.other.name, "peer": -2, "source": -2, "tag": 0, "bytes": 0, "receive_bytes": 0,
                "communicator_id": 0, "request": -1,
            }
        )  # fmt: skip

    def workload(self, rank: int = 0, *, is_checked: bool = False) -> Workload:
        """The workload in which ``rank`` did this, and lower ranks nothing. A last operation ends it. With
        ``is_checked`` it may hold what no workload does."""
        if self.since_operation:
            self.operation()
        tables = {
            level: pa.Table.from_pylist([{"rank": rank, **row} for row in rows], schema=SCHEMAS[level])
            for level, rows in self.rows.items()
            if level != "task_types"
        }
        tables["task_types"] = pa.Table.from_pylist(self.rows["task_types"], schema=SCHEMAS["task_types"])
        tables["regions"] = SCHEMAS["regions"].empty_table()
        members = [{"members": list(range(rank + 1))}]
        tables["communicators"] = pa.Table.from_pylist(members, schema=SCHEMAS["communicators"])
        return Workload("hand-written", rank + 1, tables, is_checked=is_checked)


def compute_ps(workload: Workload, rank: int) -> int:
    own = (workload.column("phases", "rank") == rank) & (workload.column("phases", "kind") == PhaseKind.compute)
    return int(np.sum(workload.column("phases", "duration_ps")[own]))


def steps(program: NodeProgram, instance: int) -> list[tuple[str, int]]:
    """What an instance asks for; of a piece its time."""
    rows = slice(int(program.first_step[instance]), int(program.first_step[instance + 1]))
    pairs = zip(program.step_action[rows].tolist(), program.step_target[rows].tolist(), strict=True)
    return [
        (Action(action).name, int(program.piece_ps[target]) if action == Action.compute else target)
        for action, target in pairs
    ]


def asked(program: NodeProgram, instance: int) -> list[str]:
    """The same without pieces and targets."""
    return [name for name, _ in steps(program, instance) if name != "compute"]


def edges(program: NodeProgram) -> list[tuple[int, int]]:
    """(predecessor, successor), sorted."""
    before = np.repeat(np.arange(program.num_instances), np.diff(program.first_successor))
    return sorted(zip(before.tolist(), program.successor.tolist(), strict=True))
