"""Compute phases of a native trace: the time between MPI calls, cut where regions marked in the source begin and end.
What follows a process's last call belongs to an operation that is added at its end.

Where tasks are recorded, a phase takes what these take, the CPU time of the thread. By default it takes what its
longest thread takes: CPU time where a thread computed, and where the first one waited (for a thread that slept, for
files, for a device) the wall clock's, less what the threads were ready and waited for a CPU, so that a machine shared
by more threads than it has CPUs does not show. The three clocks that a user may choose
(``models/workload/phase_times.py``) stand beside it. A phase that marks cut has each part's share of the first
thread's CPU time; where it has none, all goes to the last part.

Hardware counters are read at the calls only: what they counted before a call belongs to its phase, if there is but one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.readers.raw_trace.calls import UNFINISHED, Calls
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.mpi_calls import CALLS

_BEGIN, _END = int(EventKind.mark_begin), int(EventKind.mark_end)
DEEPEST: Final = 256  # nested regions: trace.c


@dataclass(frozen=True)
class Phases:
    """Per phase: the ``operation`` that it precedes, ``region`` (row of the table, -1) and ``duration_ns``; ``clocks``
    int64[phases, 3]: the CPU time of the first thread and of the process, and wall time, ns;
    ``counters`` int64[phases, k]: what the counters of ``counter_names`` counted in it, -1 where that is not known;
    ``waited_ns``: what they lack of what the longest thread takes, where tasks are recorded."""

    operation: np.ndarray
    region: np.ndarray
    duration_ns: np.ndarray
    clocks: np.ndarray
    counter_names: tuple[str, ...]
    counters: np.ndarray
    waited_ns: int


def region_numbers(processes: list[Process]) -> tuple[list[str], list[np.ndarray]]:
    """Names of all regions, in order of appearance, and per process which of them each of its numbers is; the last
    entry is -1, for no region."""
    names: dict[str, int] = {}
    of_process = []
    for process in processes:
        own = {
            int(each["region"]): names.setdefault(str(each["name"]), len(names))
            for each in process.definitions
            if "region" in each and "name" in each
        }
        table = np.full(max(own, default=-1) + 2, -1, np.int64)
        table[list(own)] = list(own.values())
        of_process.append(table)
    return list(names), of_process


def phases(calls: Calls, region_of: np.ndarray) -> Phases:
    """Phases of a process; ``region_of``: its regions' rows in the table."""
    process, records, events = calls.process, calls.records, calls.process.events
    operation = calls.operation_ids()
    cpu_ns = np.append(records["cpu_ns"], rest_ns(process, records)).astype(np.int64)
    # what of the phase before each call each clock shows more than the first thread's CPU clock
    has_gpu = bool(np.any(calls.call >= len(CALLS)))
    more = _by_clock(process, records, cpu_ns, has_gpu) - cpu_ns[:, None]
    waited_ns = 0
    if has_tasks(process):
        waited_ns = int(more[:, 2].sum())
        more[:, 2] = 0
    num_events = np.append(records["num_events"], len(events)).astype(np.int64)
    size = len(cpu_ns) + int(np.count_nonzero((events["kind"] == _BEGIN) | (events["kind"] == _END)))
    columns = np.empty((size, 4), np.int64)
    count = _cut(
        *(np.ascontiguousarray(events[name]) for name in ("kind", "value", "cpu_ns")),
        *(cpu_ns, num_events, operation, more.any(axis=1), columns),
    )
    columns = columns[:count]
    duration_ns = columns[:, 2]
    shares = np.where(cpu_ns > 0, more.T / np.maximum(cpu_ns, 1), 0).T[columns[:, 3]]
    clocks = np.column_stack((np.zeros(count, np.int64), np.rint(duration_ns[:, None] * shares).astype(np.int64)))
    is_last = np.append(columns[1:, 3] != columns[:-1, 3], True)[:count]
    idle = is_last & (cpu_ns[columns[:, 3]] == 0)
    clocks[idle, 1:] = more[columns[idle, 3]]
    clocks += duration_ns[:, None]
    region = np.where(columns[:, 1] < len(region_of) - 1, columns[:, 1], -1)
    counted = np.vstack((calls.counters(), np.full((1, len(calls.counter_names)), -1)))  # of the end: nothing
    counters = counted[columns[:, 3]]
    counters[np.bincount(columns[:, 3], minlength=len(cpu_ns))[columns[:, 3]] > 1] = -1
    return Phases(
        columns[:, 0], region_of[region], clocks[:, 3], clocks[:, :3], calls.counter_names, counters, waited_ns
    )


def _by_clock(process: Process, records: np.ndarray, cpu_ns: np.ndarray, has_gpu: bool) -> np.ndarray:
    """int64[calls + 1, 3]: the time before each call, and at the end, by the CPU clock of the process, by the wall
    clock, and of the longest thread (see the module's docstring); of what knows no other threads the first one's."""
    times = np.repeat(cpu_ns[:, None], 3, axis=1)
    if not process.has_times or process.is_merged:
        return times
    end = {key: value for each in process.definitions if "rest_elapsed_ns" in each for key, value in each.items()}
    start_ns, end_ns = records["start_ns"].astype(np.int64), records["end_ns"].astype(np.int64)
    times[:-1, 0] = records["process_ns"]
    times[1:-1, 1] = start_ns[1:] - end_ns[:-1]
    times[:-1, 2] = records["elapsed_ns"]
    if end:
        times[-1, 0], times[-1, 2] = end["rest_process_ns"], end["rest_elapsed_ns"]
        times[-1, 1] = int(process.end["end_ns"]) - end_ns[-1] if len(records) else end["rest_elapsed_ns"]
    if len(records):
        times[0, 1] = times[0, 2]  # when the process began is not known
    if has_gpu:
        times[:, 1] = times[:, 2]  # what stand-ins for a GPU's libraries took is not the program's
    return np.maximum(times, cpu_ns[:, None])


def has_tasks(process: Process) -> bool:
    """Whether tasks were recorded, whose CPU times its phases hold."""
    return int(process.start.get("level", 1)) > 1


def rest_ns(process: Process, records: np.ndarray) -> int:
    """CPU time after the last complete call, as far as it is known."""
    if process.end:
        return int(process.end["rest_cpu_ns"])
    last = process.operations[-1:]
    if len(last) and last["flags"][0] & UNFINISHED:
        return int(last["cpu_ns"][0])
    first = int(records["num_events"][-1]) if len(records) else 0
    return int(process.events["cpu_ns"][first:].sum(dtype=np.uint64))


@njit(cache=True, nogil=True)
def _cut(kind, value, lap_ns, cpu_ns, num_events, operation, is_kept, columns):  # type: ignore[no-untyped-def]
    """Columns (operation, region, ns, call) of all phases; returns their number. A phase of no time ``is_kept`` where
    another clock shows some. O(calls + events)."""
    stack = np.full(DEEPEST, -1, np.int64)
    depth = 0
    region = np.int64(-1)
    count = 0
    at = 0
    for i in range(cpu_ns.shape[0]):
        left = np.int64(cpu_ns[i])
        since = np.int64(0)
        while at < num_events[i]:
            since += np.int64(lap_ns[at])
            if kind[at] == _BEGIN or kind[at] == _END:
                part = min(since, left)
                if part > 0:
                    columns[count, 0] = operation[i]
                    columns[count, 1] = region
                    columns[count, 2] = part
                    columns[count, 3] = i
                    count += 1
                left -= part
                since = np.int64(0)
                if kind[at] == _BEGIN:
                    if depth < DEEPEST:
                        stack[depth] = region
                        depth += 1
                    region = value[at]
                else:
                    depth -= depth > 0
                    region = stack[depth]
            at += 1
        if left > 0 or (is_kept[i] and cpu_ns[i] == 0):
            columns[count, 0] = operation[i]
            columns[count, 1] = region
            columns[count, 2] = left
            columns[count, 3] = i
            count += 1
    return count
