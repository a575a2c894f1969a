"""What a rank did, or a part of it, as arrays: read from the workload's tables and checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from manyscale.models.node.program import draft, kernel
from manyscale.models.node.program.loops import Loops
from manyscale.models.node.program.task_graph import dependence_edges
from manyscale.models.workload import PhaseKind, Workload, WorkloadError
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

_INSIDE: Final = int(TaskFlag.implicit) | int(TaskFlag.initial)


def rows_of_rank(workload: Workload, level: str, rank: int) -> pa.Table:
    """A table's rows of one rank, for tables in which ranks are contiguous and ascending."""
    first, end = (int(row) for row in np.searchsorted(workload.column(level, "rank"), [rank, rank + 1]))
    return workload.tables[level].slice(first, end - first)


@dataclass
class TracedRank:
    """The part of a rank, as arrays of its own: numbers of events and tasks count from the part's first one."""

    workload: Workload
    rank: int
    first_operation: int
    asked_end: int | None

    def __post_init__(self) -> None:
        workload, rank = self.workload, self.rank
        offsets = workload.rank_offsets
        self.num_operations = int(offsets[rank + 1] - offsets[rank])
        self.end_operation = self.num_operations if self.asked_end is None else self.asked_end
        if not 0 <= self.first_operation <= self.end_operation <= self.num_operations:
            raise WorkloadError(
                f"rank {rank}: has operations 0 to {self.num_operations - 1}; "
                f"{self.first_operation} to {self.end_operation} cannot be selected"
            )
        self.first_event_row = int(np.searchsorted(workload.column("events", "rank"), rank))
        self._table = rows_of_rank(workload, "events", rank)
        operation = self._events("operation_id", 0, self._table.num_rows)
        if len(operation) and (operation[0] < 0 or operation[-1] > self.num_operations or _falls(operation)):
            raise WorkloadError(
                f"rank {rank}: its events do not stand in the order of its {self.num_operations} operations; "
                "trace the program again"
            )
        bounds = [self.first_operation, self.num_operations + 1 if self.asked_end is None else self.end_operation]
        self.first_event, self.end_event = (int(each) for each in np.searchsorted(operation, bounds))
        self.operation = operation[self.first_event : self.end_event]
        self.kind, traced_task, self.task_type, self.value, self.cpu_ps = (
            self._events(name, self.first_event, self.end_event)
            for name in ("kind", "task_instance_id", "task_type_id", "value", "cpu_ps")
        )
        self._read_tasks(bounds)
        self.task = self._numbers(traced_task)
        self._check_events(traced_task)
        self._read_segments(bounds)

    def _events(self, name: str, first: int, end: int) -> np.ndarray:
        return to_numpy(self._table.slice(first, end - first).column(name))

    def _read_tasks(self, bounds: list[int]) -> None:
        tasks = rows_of_rank(self.workload, "tasks", self.rank)
        ids, created, flags, parent, task_type = (
            to_numpy(tasks.column(name))
            for name in ("task_instance_id", "operation_id", "flags", "parent_id", "task_type_id")
        )
        if len(ids) and (ids[0] != 0 or ids[-1] != len(ids) - 1 or np.any(np.diff(ids) != 1)):
            raise WorkloadError(
                f"rank {self.rank}: its task instances are not numbered from 0; trace the program again"
            )
        if _falls(created):
            raise WorkloadError(f"rank {self.rank}: its task instances do not count in order of creation; trace again")
        wrong = np.flatnonzero((parent >= ids) | (parent < np.where(ids > 0, 0, -1)))
        if len(wrong):
            raise WorkloadError(
                f"rank {self.rank}, task instance {wrong[0]}: its parent {parent[wrong[0]]} is none created before it "
                "(a cycle); trace the program again"
            )
        self.all_flags = flags
        low, self.end_task = (int(each) for each in np.searchsorted(created, bounds))
        self.first_task = max(low, 1)
        self.end_task = max(self.end_task, self.first_task)
        own = slice(self.first_task, self.end_task)
        self.parent = self._numbers(np.append(np.int32(-1), parent[own]))
        self.flags = np.append(np.int32(0), flags[own])
        self.type_of_task = np.append(np.int32(-1), task_type[own])
        wrong = np.flatnonzero(self.type_of_task >= self.workload.tables["task_types"].num_rows)
        if len(wrong):
            raise WorkloadError(
                f"rank {self.rank}, task instance {wrong[0] + self.first_task - 1}: is of task type "
                f"{self.type_of_task[wrong[0]]}, which the workload does not have; trace the program again"
            )
        self.num_tasks = len(self.parent)

    def _numbers(self, task: np.ndarray) -> np.ndarray:
        """Numbers of tasks, 0 for those from before the part."""
        return np.maximum(task - np.int32(self.first_task - 1), np.int32(0))

    def _check_events(self, traced_task: np.ndarray) -> None:
        """Refuse events of unknown kinds, and of tasks that are not there."""
        if not len(self.kind):
            return
        if self.kind.min() < 0 or self.kind.max() >= len(EventKind):
            self.fail(int(np.argmax((self.kind < 0) | (self.kind >= len(EventKind)))), "is of an unknown kind")
        if traced_task.min() < 0 or traced_task.max() >= self.end_task:
            self.fail(
                int(np.argmax((traced_task < 0) | (traced_task >= self.end_task))),
                "is of a task instance that was not created",
            )
        if self.cpu_ps.min() < 0:
            self.fail(int(np.argmax(self.cpu_ps < 0)), "took less than no time")
        if self.first_event:
            outside = traced_task < self.first_task
            early = np.flatnonzero(outside)[(self.all_flags[traced_task[outside]] & _INSIDE) == 0]
            if len(early):
                self.fail(int(early[0]), "is of a task instance created before", "select whole iterations")

    def _read_segments(self, bounds: list[int]) -> None:
        rank = self.workload.column("segments", "rank")
        rows = np.flatnonzero(rank == self.rank)
        operation = self.workload.column("segments", "operation_id")[rows]
        if _falls(operation):
            raise WorkloadError(f"rank {self.rank}: its segments do not stand in the order of operations; trace again")
        first, end = (int(each) for each in np.searchsorted(operation, bounds))
        self.segment_row, self.segment_operation = rows[first:end], operation[first:end]
        event = self.workload.column("segments", "event_id")[self.segment_row]
        self.segment_event = np.where(event < 0, -1, event - self.first_event)

    def fail(self, event: int, what: str, remedy: str = "trace the program again") -> NoReturn:
        kind = int(self.kind[event])
        name = EventKind(kind).name if 0 <= kind < len(EventKind) else f"kind {kind}"
        task = self.first_task - 1 + int(self.task[event])
        raise WorkloadError(
            f"rank {self.rank}, event {self.first_event + event} ({name} of task instance {task}, "
            f"value {self.value[event]}) {what}; {remedy}"
        )

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Dependences between tasks, by their numbers."""
        table = rows_of_rank(self.workload, "task_dependences", self.rank)
        task, kind, address = (to_numpy(table.column(name)) for name in ("task_instance_id", "kind", "address"))
        if _falls(task):
            raise WorkloadError(f"rank {self.rank}: its dependences are not sorted by task instance; trace again")
        if len(task) and (task[0] < 0 or task[-1] >= len(self.all_flags)):
            unknown = task[0] if task[0] < 0 else task[-1]
            raise WorkloadError(
                f"rank {self.rank}: a dependence names task instance {unknown}, of {len(self.all_flags)}; trace again"
            )
        own = slice(*(int(each) for each in np.searchsorted(task, [self.first_task, self.end_task])))
        said = kind[own]
        self.num_exclusive = int(np.count_nonzero(said == DependenceKind.depend_mutexinoutset))
        if self.num_exclusive:
            said = np.where(said == DependenceKind.depend_mutexinoutset, np.int8(DependenceKind.depend_inout), said)
        parent = self.parent.copy()
        parent[0] = -1
        try:
            return dependence_edges(parent, self._numbers(task[own]), said, address[own])
        except ValueError as error:
            raise WorkloadError(f"rank {self.rank}: {error}; trace the program again") from None

    def loops(self, constructs: np.ndarray) -> Loops:
        """The loops of the rank. Raises WorkloadError where events and tables differ."""
        table = rows_of_rank(self.workload, "loops", self.rank)
        schedule = table.column("schedule").to_pylist()
        iterations, chunk = (to_numpy(table.column(name)) for name in ("num_iterations", "chunk_iterations"))
        chunks = rows_of_rank(self.workload, "loop_chunks", self.rank)
        of_chunk, first_iteration, length = (
            to_numpy(chunks.column(name)) for name in ("loop_id", "first_iteration", "num_iterations")
        )
        label = f"rank {self.rank}, loop"
        used = constructs["loop"][constructs["loop"] != -1]
        if len(used) and (used.min() < 0 or used.max() >= len(schedule)):
            wrong = used.min() if used.min() < 0 else used.max()
            raise WorkloadError(f"{label} {wrong}: begins, but the table 'loops' does not have it; trace again")
        if len(of_chunk) and (of_chunk.min() < 0 or of_chunk.max() >= len(schedule) or _falls(of_chunk)):
            raise WorkloadError(f"{label} {of_chunk.max()}: a chunk names it, of {len(schedule)}; trace again")
        bounds = np.searchsorted(of_chunk, np.arange(len(schedule) + 1))
        known = iterations[of_chunk]
        wrong = np.flatnonzero(
            (first_iteration < 0) | (length < 0) | ((known >= 0) & (first_iteration + length > known))
        )
        if len(wrong):
            row = int(wrong[0])
            raise WorkloadError(
                f"{label} {of_chunk[row]}: has {known[row]} iterations, but a chunk of {length[row]} from iteration "
                f"{first_iteration[row]} on; trace the program again"
            )
        own = constructs[constructs["loop"] >= 0]
        differ = np.flatnonzero(own["num_chunks"] != np.diff(bounds)[own["loop"]])
        if len(differ):
            loop = int(own["loop"][differ[0]])
            raise WorkloadError(
                f"{label} {loop}: {own['num_chunks'][differ[0]]} chunks begin in its events, the table 'loop_chunks' "
                f"has {bounds[loop + 1] - bounds[loop]}; trace the program again"
            )
        return Loops(schedule, iterations, chunk, bounds, length)

    def events(self, constructs: np.ndarray, chunk_row: np.ndarray) -> draft.Events:
        compute_ps, sleep_ps = self._phases()
        return draft.Events(
            self.kind, self.operation, self.task, self.value, self.cpu_ps, compute_ps, sleep_ps, self.locks[0],
            self.parent, self.type_of_task, self.flags, constructs, chunk_row, self._bounds(),
            self.segment_operation, self.segment_event, self.segment_row,
        )  # fmt: skip

    @cached_property
    def locks(self) -> tuple[np.ndarray, int]:
        """(lock of each event that takes or gives back one; number of locks)."""
        at = np.flatnonzero((self.kind == EventKind.critical_begin) | (self.kind == EventKind.critical_end))
        if not len(at):
            return np.zeros(0, np.int64), 0
        address, lock = np.unique(self.value[at], return_inverse=True)
        held = np.bincount(lock, np.where(self.kind[at] == EventKind.critical_begin, 1, -1), len(address))
        if np.any(held):
            which = int(np.flatnonzero(held)[0])
            event = int(at[np.flatnonzero(lock == which)[-1]])
            self.fail(event, "is the last of a lock that is not taken as often as it is given back")
        return lock.astype(np.int64), len(address)

    def _phases(self) -> tuple[np.ndarray, np.ndarray]:
        """CPU time and sleep before each operation; one more for what follows the last one, if it belongs here."""
        first, end = (int(each) for each in self.workload.phase_offsets[self.rank : self.rank + 2])
        table = self.workload.tables["phases"].slice(first, end - first)
        kind, operation, duration = (to_numpy(table.column(name)) for name in ("kind", "operation_id", "duration_ps"))
        count = self.end_operation - self.first_operation + (self.asked_end is None)
        sums = np.zeros((2, count), np.int64)
        own = (operation >= self.first_operation) & (operation < self.first_operation + count)
        np.add.at(
            sums,
            ((kind[own] == PhaseKind.sleep).astype(np.int64), operation[own] - self.first_operation),
            duration[own],
        )
        return sums[0], sums[1]

    def _bounds(self) -> np.ndarray:
        """Where the iteration of the main loop changes within the part, in order."""
        table = rows_of_rank(self.workload, "iterations", self.rank)
        number, from_operation, to_operation, from_event, to_event = (
            to_numpy(table.column(name)).astype(np.int64)
            for name in ("iteration", "first_operation_id", "end_operation_id", "first_event_id", "end_event_id")
        )
        marks = np.flatnonzero(self.kind == EventKind.iteration)
        if not len(number):
            rows = np.zeros(len(marks), draft.BOUND)
            rows["operation"], rows["event"], rows["iteration"] = self.operation[marks], marks, self.value[marks]
            return rows
        goes_on = np.append((from_operation[1:] == to_operation[:-1]) & (from_event[1:] == to_event[:-1]), False)
        operation = np.concatenate((from_operation, to_operation[~goes_on]))
        event = np.concatenate((from_event, to_event[~goes_on])) - self.first_event
        iteration = np.concatenate((number, np.full(np.count_nonzero(~goes_on), -1)))
        order = np.lexsort((iteration, event, operation))
        operation, event, iteration = operation[order], event[order], iteration[order]
        is_there = (event >= 0) & (event < len(self.kind))
        at = np.where(is_there, event, 0)
        if len(self.kind):
            # it changes at an event, unless that is just the first one after the operation before
            earlier = np.where(at > 0, self.operation[at - 1], -1)
            is_there &= (self.kind[at] == EventKind.iteration) | (earlier >= operation)
        rows = np.zeros(len(operation), draft.BOUND)
        # one behind the last event comes after it, even where the operation is that event's
        behind = (event == len(self.kind)) & (self.operation[-1:].max(initial=-1) >= operation)
        rows["operation"], rows["iteration"] = operation, iteration
        rows["event"] = np.where(is_there | behind, event, -1)
        return rows[operation <= self.end_operation]

    def check(self, code: int, place: int) -> None:
        if code == kernel.DONE:
            return
        if place < 0:
            what = "its events take longer than its phases" if code == kernel.NEGATIVE else "a segment stands nowhere"
            raise WorkloadError(f"rank {self.rank}, operation {-1 - place}: {what} before it; trace the program again")
        self.fail(
            place,
            {
                kernel.BAD_ORDER: "creates a task instance out of turn",
                kernel.NO_TASK: "names a task instance that does not exist",
                kernel.BEGINS_TWICE: "begins a task instance for the second time",
                kernel.NOT_BEGUN: "is about a task instance that was not created before",
                kernel.NO_GROUP: "ends a taskgroup that did not begin",
                kernel.BAD_SEGMENT: "follows a segment of instructions that stands nowhere",
            }[code],
        )

    def check_ends(self, made: draft.Draft) -> int:
        """How many instances never began (cancelled ones). Raises WorkloadError for one that began and did not end."""
        is_explicit = (self.flags & (_INSIDE | int(TaskFlag.taskwait))) == 0
        open_ = np.flatnonzero(is_explicit[1:] & (made.task["state"][1:] == draft.BEGUN)) + self.first_task
        if len(open_):
            remedy = "trace the program again" if self.asked_end is None else "select whole iterations"
            raise WorkloadError(f"rank {self.rank}, task instance {open_[0]}: begins and never ends; {remedy}")
        num_created = int(made.control["num_created"][0])
        if num_created != self.num_tasks - 1:
            raise WorkloadError(
                f"rank {self.rank}, task instance {self.first_task + num_created}: no event creates it; trace again"
            )
        return int(np.count_nonzero(is_explicit[1:] & (made.task["state"][1:] == draft.CREATED)))


def _falls(values: np.ndarray) -> bool:
    return bool(np.any(values[1:] < values[:-1]))
