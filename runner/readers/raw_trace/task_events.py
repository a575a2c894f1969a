"""The runtime-system events of one process of a native trace, as columns of numbers: what each event is about, the
loops and their chunks, and whose time is whose. Records are those of ``runner/tracers/native/openmp.c``.

A process has one sequence of records and one CPU clock: the laps of its events and, between them, what its operations'
phases hold beyond. All time belongs to the task instance that was running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.calls import Calls
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.phases import rest_ns

# records that are no events: openmp.c
DEPENDENCE, PARENT, LOOP, FRAMES, PAGE_FAULTS = 64, 65, 66, 67, 68
UNKNOWN_DEPENDENCE: Final = 255
SCHEDULES: Final = ("unknown", "static", "dynamic", "guided", "runtime", "auto")
_WHOLE: Final = 2**32 - 1  # iterations of a chunk that has too many to be written

_E = EventKind
_SITED: Final = (
    _E.parallel_begin, _E.parallel_end, _E.task_create, _E.taskwait_begin, _E.taskwait_end, _E.taskgroup_begin,
    _E.barrier_begin, _E.barrier_end, _E.loop_begin, _E.single_begin, _E.masked_begin, _E.sections_begin,
    _E.critical_begin, _E.taskyield, _E.cancel, _E.implicit_begin, _E.taskloop_begin,
)  # fmt: skip
_PAIRS: Final = {
    _E.taskgroup_end: _E.taskgroup_begin, _E.loop_end: _E.loop_begin, _E.single_end: _E.single_begin,
    _E.masked_end: _E.masked_begin, _E.sections_end: _E.sections_begin, _E.critical_end: _E.critical_begin,
    _E.taskloop_end: _E.taskloop_begin,
}  # fmt: skip
# per kind of event the kind that it ends, -1 for one that begins such a pair, else -2
_ENDS = np.full(256, -2, np.int64)
_ENDS[list(_PAIRS)] = list(_PAIRS.values())
_ENDS[list(_PAIRS.values())] = -1
_CONTINUES: Final = (_E.task_begin, _E.task_end, _E.task_switch, _E.implicit_begin)
_LOOP_BEGIN, _LOOP_END, _CHUNK, _SECTION = (
    int(each) for each in (_E.loop_begin, _E.loop_end, _E.loop_chunk, _E.section)
)
_SECTIONS_BEGIN, _SECTIONS_END = int(_E.sections_begin), int(_E.sections_end)
_DEEPEST: Final = 257  # open loops: openmp.h


@dataclass(frozen=True)
class RankEvents:
    """Columns, times in ns. ``type`` and ``task_type`` are numbers of the process's sites, 0 for none.

    Events: ``kind``, ``operation``, ``task``, ``type``, ``value``, ``cpu_ns``. Task instances, by number: ``parent``,
    ``task_type``, ``task_operation``, ``flags``, ``task_cpu_ns``. Dependences: ``dependent``, ``dependence_kind``,
    ``address``. Loops, by number: ``loop_type``, ``schedule``, ``loop_iterations``, ``chunk_iterations``. Chunks, by
    loop: ``chunk_loop``, ``first_iteration``, ``num_iterations``, ``chunk_cpu_ns``. ``num_unknown``: dependences of
    kinds that are not known, taken for inout. Of ``counter_names``, where they were read at events: ``task_counts``
    int64[task instances, counters] and ``chunk_counts`` int64[chunks, counters], -1 where not all was counted. Page
    faults: ``fault_operation``, ``fault_event`` (row of the event that ends where they were, -1 where an operation
    does), ``num_faults``.
    """

    kind: np.ndarray
    operation: np.ndarray
    task: np.ndarray
    type: np.ndarray
    value: np.ndarray
    cpu_ns: np.ndarray
    parent: np.ndarray
    task_type: np.ndarray
    task_operation: np.ndarray
    flags: np.ndarray
    task_cpu_ns: np.ndarray
    dependent: np.ndarray
    dependence_kind: np.ndarray
    address: np.ndarray
    loop_type: np.ndarray
    schedule: np.ndarray
    loop_iterations: np.ndarray
    chunk_iterations: np.ndarray
    chunk_loop: np.ndarray
    first_iteration: np.ndarray
    num_iterations: np.ndarray
    chunk_cpu_ns: np.ndarray
    num_unknown: int
    counter_names: tuple[str, ...]
    task_counts: np.ndarray
    chunk_counts: np.ndarray
    fault_operation: np.ndarray
    fault_event: np.ndarray
    num_faults: np.ndarray


def event_ids(process: Process) -> np.ndarray:
    """int64[records + 1]: the event (row within the rank) that each record is or that follows it, -1 if none does."""
    is_event = process.events["kind"] < DEPENDENCE
    rows = np.append(np.cumsum(is_event) - is_event, -1)
    rows[rows == np.count_nonzero(is_event)] = -1
    return rows


def rank_events(process: Process) -> RankEvents:
    """Columns of one process. Raises UserError for records that do not fit together. O(records + operations)."""
    return _Records(process).columns()


class _Records:
    def __init__(self, process: Process) -> None:
        self.process = process
        records = process.events
        self.kind = records["kind"].astype(np.int64)
        self.flags, self.extra, self.value, self.task, self.lap_ns = (
            records[name].astype(np.int64) for name in ("flags", "extra", "value", "task", "cpu_ns")
        )
        self.calls = Calls(process)
        known = self.calls.records
        self.before = np.minimum(records["num_operations"].astype(np.int64), len(known))
        self.compute_ns = np.append(known["cpu_ns"], rest_ns(process, known)).astype(np.int64)
        self.num_records_before = np.append(known["num_events"], len(records)).astype(np.int64)
        self.is_event = self.kind < DEPENDENCE

    def columns(self) -> RankEvents:
        parent, task_type, flags, created_at = self._tasks()
        operation = self.calls.operation_ids()[self.before]
        types, loop, end = self._types_and_chunks(task_type)
        is_event = self.is_event
        dependence = np.flatnonzero(self.kind == DEPENDENCE)
        dependence = dependence[np.argsort(self.extra[dependence], kind="stable")]
        said = self.flags[dependence]
        is_unknown = said == UNKNOWN_DEPENDENCE
        begins, schedule, iterations, chunk_iterations = self._loops()
        chunks = self._chunks(loop, end, iterations)
        return RankEvents(
            kind=self.kind[is_event],
            operation=operation[is_event],
            task=self.task[is_event],
            type=types[is_event],
            value=self.value[is_event],
            cpu_ns=self.lap_ns[is_event],
            parent=parent,
            task_type=task_type,
            task_operation=np.append(0, operation[created_at]),
            flags=flags,
            task_cpu_ns=self._of_tasks(self.lap_ns, self.compute_ns, len(parent)),
            dependent=self.extra[dependence],
            dependence_kind=np.where(is_unknown, int(DependenceKind.depend_inout), said),
            address=self.value[dependence],
            loop_type=types[begins],
            schedule=schedule,
            loop_iterations=iterations,
            chunk_iterations=chunk_iterations,
            chunk_loop=chunks[0],
            first_iteration=chunks[1],
            num_iterations=chunks[2],
            chunk_cpu_ns=chunks[3],
            num_unknown=int(np.count_nonzero(is_unknown)),
            counter_names=self.process.counter_names if len(self.process.event_counts) else (),
            task_counts=self._counts(lambda laps, totals: self._of_tasks(laps, totals, len(parent)), len(parent)),
            chunk_counts=self._counts(lambda laps, totals: self._between(laps, totals, *chunks[4:]), len(chunks[0])),
            **self._page_faults(operation),
        )

    def _counts(self, add_up: Callable[[np.ndarray, np.ndarray], np.ndarray], size: int) -> np.ndarray:
        """int64[size, counters]: what ``add_up`` makes of a counter's increase before each record and each call, and at
        the end; -1 where one of them is not known. Those of records come in front of those of calls."""
        names, given = self.process.counter_names, self.process.event_counts
        if not len(given):
            return np.empty((size, 0), np.int64)
        increase = np.full((len(self.kind), len(names)), -1, np.int64)
        rows = np.flatnonzero(self.is_event)[: len(given)]  # a process that was killed has one row fewer
        increase[rows] = given[: len(rows)]
        increase[~self.is_event] = 0
        rest = [int(each["rest_count"]) for each in self.process.definitions if "rest_count" in each]
        total = np.vstack((self.calls.counters(), rest if len(rest) == len(names) else np.full(len(names), -1)))
        lost = increase[:, 0] < 0  # all counters of a group at once
        # what a call's counters tell is that of its events, too; where only one of the two is known, neither is
        for_events = np.zeros(total.shape, np.int64)
        np.add.at(for_events, self.before, np.maximum(increase, 0))
        total = np.where(total < 0, -1, np.maximum(total, for_events))
        is_unknown = add_up(
            lost.astype(np.int64), (total[:, 0] < 0) + np.bincount(self.before[lost], minlength=len(total))
        )
        columns = [
            add_up(np.maximum(increase[:, at], 0), np.where(total[:, at] < 0, for_events[:, at], total[:, at]))
            for at in range(len(names))
        ]
        return np.where((is_unknown > 0)[:, None], -1, np.stack(columns, axis=1))

    def _error(self, message: str, record: int) -> UserError:
        return UserError(
            f"{self.process.path}: rank {self.process.rank}, event record {record}: {message}; trace again"
        )

    def _tasks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(parent, type, flags) of all task instances, and the records that create them; the first one is initial."""
        created = np.flatnonzero((self.kind == _E.task_create) | (self.kind == _E.implicit_begin))
        wrong = np.flatnonzero(self.value[created] != np.arange(1, len(created) + 1))
        if len(wrong):
            at = int(created[wrong[0]])
            raise self._error(f"task instance {self.value[at]} is created where {wrong[0] + 1} is expected", at)
        parent = np.append(-1, self.task[created])
        told = np.flatnonzero(self.kind == PARENT)
        told = told[np.isin(told - 1, created)]
        parent[self.value[told - 1]] = self.value[told]
        bad = np.flatnonzero(parent >= np.arange(len(parent)))
        if len(bad):
            raise self._error(f"task instance {bad[0]} has the parent {parent[bad[0]]}", int(created[bad[0] - 1]))
        beyond = np.flatnonzero(self.task >= len(parent))
        if len(beyond):
            raise self._error(f"task instance {self.task[beyond[0]]} was never created", int(beyond[0]))
        flags = np.append(int(TaskFlag.initial), self.flags[created])
        return parent, np.append(0, self.extra[created]), flags, created

    def _page_faults(self, operation: np.ndarray) -> dict[str, np.ndarray]:
        """Counts of page faults: each is of what the event after it ends, or the operation, if that comes first."""
        at = np.flatnonzero(self.kind == PAGE_FAULTS)
        event = event_ids(self.process)[at]
        of_event = np.append(operation[np.flatnonzero(self.is_event)], -1)  # the last one: of none
        is_before = (event >= 0) & (of_event[event] == operation[at])
        return {
            "fault_operation": operation[at],
            "fault_event": np.where(is_before, event, -1),
            "num_faults": self.value[at],
        }

    def _of_tasks(self, laps: np.ndarray, totals: np.ndarray, num_tasks: int) -> np.ndarray:
        """Of each instance, of time or what is counted like it (int64; ``laps`` of each record, ``totals`` before each
        call): its events' laps, and what passed between its last event and an operation."""
        found = np.zeros(num_tasks, np.int64)
        np.add.at(found, self.task, laps)
        of_events = np.zeros(len(totals), np.int64)
        np.add.at(of_events, self.before, laps)
        # the task that runs after each record, and first of all the initial one
        goes_on = np.isin(self.kind, _CONTINUES)
        running = np.append(0, np.where(goes_on, np.minimum(self.value, num_tasks - 1), self.task))
        np.add.at(found, running[self.num_records_before], totals - of_events)
        return found

    def _between(self, laps: np.ndarray, totals: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """What passed between records ``begin`` and ``end``, as in ``_of_tasks``: by the process's clock when each
        record was taken, and at the end."""
        sums = np.cumsum(laps)
        first = np.searchsorted(self.before, np.arange(len(totals) + 1))
        earlier = np.append(0, sums)[first[:-1]]
        clock = np.append((np.cumsum(totals) - totals)[self.before] + sums - earlier[self.before], totals.sum())
        found: np.ndarray = clock[end] - clock[begin]
        return found

    def _types_and_chunks(self, task_type: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per record: its type; of a chunk its loop (else -1) and the record where it ends."""
        kind = self.kind
        types = np.where(np.isin(kind, _SITED), self.extra, 0)
        starts = (kind == _E.task_begin) | (kind == _E.task_switch)
        types[starts] = task_type[np.minimum(self.value[starts], len(task_type) - 1)]
        ends = (kind == _E.task_end) | (kind == _E.implicit_end)
        types[ends] = task_type[self.task[ends]]
        loop = np.full(len(kind), -1, np.int64)
        end = np.full(len(kind), len(kind), np.int64)
        _match_ends(kind, _ENDS, types)
        _loops_of_chunks(kind, self.task, self.value, types, loop, end)
        return types, loop, end

    def _loops(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Per loop: the record where it begins, schedule, iterations, chunk of the source."""
        begins = np.flatnonzero(self.kind == _E.loop_begin)
        wrong = np.flatnonzero(self.value[begins] != np.arange(len(begins)))
        if len(wrong):
            raise self._error(f"loop {self.value[begins[wrong[0]]]} begins too early", int(begins[wrong[0]]))
        details = np.minimum(begins + 1, len(self.kind) - 1)
        is_told = self.kind[details] == LOOP  # not where the process was killed in between
        schedule = np.where(is_told & (self.flags[details] < len(SCHEDULES)), self.flags[details], 0)
        return (
            begins,
            schedule,
            np.where(is_told, self.value[details], -1),
            np.where(is_told, self.extra[details], 0),
        )

    def _chunks(self, loop: np.ndarray, end: np.ndarray, iterations: np.ndarray) -> tuple[np.ndarray, ...]:
        """(loop, first iteration, number of iterations, CPU time, records of its begin and end) per chunk, by loop."""
        at = np.flatnonzero((self.kind == _E.loop_chunk) & (loop >= 0))
        at = at[np.argsort(loop[at], kind="stable")]
        count = np.where(self.extra[at] == _WHOLE, iterations[loop[at]] - self.value[at], self.extra[at])
        return loop[at], self.value[at], count, self._between(self.lap_ns, self.compute_ns, at, end[at]), at, end[at]


@njit(cache=True, nogil=True)
def _match_ends(kind, ends, types):  # type: ignore[no-untyped-def]
    """Give ends of constructs the type of what they end: the innermost open one of their kind. O(records), a begin that
    never ends counting once for each end around it."""
    open_at = np.empty(kind.shape[0], np.int64)
    depth = 0
    for i in range(kind.shape[0]):
        if kind[i] >= ends.shape[0]:
            continue
        what = ends[kind[i]]
        if what == -1:
            open_at[depth] = i
            depth += 1
        elif what >= 0:
            place = depth - 1
            while place >= 0 and kind[open_at[place]] != what:
                place -= 1
            if place >= 0:
                types[i] = types[open_at[place]]
                depth = place


@njit(cache=True, nogil=True)
def _loops_of_chunks(kind, task, value, types, loop, end):  # type: ignore[no-untyped-def]
    """Of each chunk its loop and the record where it ends, and of each chunk and section the type of the construct that
    it is a part of. O(records)."""
    open_loop = np.empty(_DEEPEST, np.int64)  # -1 for sections
    open_task = np.empty(_DEEPEST, np.int64)
    open_type = np.empty(_DEEPEST, np.int64)
    open_chunk = np.empty(_DEEPEST, np.int64)
    depth = 0
    for i in range(kind.shape[0]):
        is_begin = kind[i] == _LOOP_BEGIN or kind[i] == _SECTIONS_BEGIN
        is_part = kind[i] == _CHUNK or kind[i] == _SECTION
        is_end = kind[i] == _LOOP_END or kind[i] == _SECTIONS_END
        if not (is_begin or is_part or is_end):
            continue
        if is_begin:
            while depth > 0 and open_task[depth - 1] == task[i]:  # cancelled: its end was not reported
                depth -= 1
                if open_chunk[depth] >= 0:
                    end[open_chunk[depth]] = i
            if depth == _DEEPEST:
                continue
            open_loop[depth] = value[i] if kind[i] == _LOOP_BEGIN else -1
            open_task[depth] = task[i]
            open_type[depth] = types[i]
            open_chunk[depth] = -1
            depth += 1
        elif depth > 0 and open_task[depth - 1] == task[i]:
            if open_chunk[depth - 1] >= 0:
                end[open_chunk[depth - 1]] = i
            if is_end:
                depth -= 1
            else:
                types[i] = open_type[depth - 1]
                loop[i] = open_loop[depth - 1]
                open_chunk[depth - 1] = i
