"""Sampling units of a profile of call stacks.

Method: Huang (Georgia Tech 2015), section 5.3.1 (SimProf). A unit is a length of one thread's execution, there 100 M
instructions with a snapshot every 10 M; where a profile counts no instructions, a length of CPU time, or else a number
of snapshots. Short-lived threads that ran on one core one after another are merged into one long-lived thread, as
SimProf does for Hadoop, whose executor threads die with their task.

Assumptions: a thread belongs to the core on which most of its samples fell. Threads are merged only if their names
differ in numbers alone and their lifetimes, from first to last sample, do not overlap; so long-lived threads that take
turns on a core stay apart. Where a profile names no cores, any threads of a process that fit so are merged: that gives
as many threads as ran at once. A sample belongs to the unit in which the stretch that it stands for began.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.runner.readers.options import ReadOptions

NO_CPU: Final = -1


@dataclass(frozen=True)
class UnitRules:
    """How samples become units.

    ``snapshots`` in a unit, where no size is given: its size is then that many times the median sample's.
    ``instructions``, ``cpu_ps``: size of a unit in what the profile counts. ``merge``: whether threads that ran one
    after another on a core become one. ``threads``: regular expression of the names of threads that are kept; without,
    the executors of a framework that is known, else all. ``idle``: one that finds further methods in which threads wait
    (readers/stacks/idle.py says which are known).
    ``period_ps``: CPU time behind one sample of a format that does not say it. Raises ValueError.
    """

    snapshots: int = 10
    instructions: int | None = None
    cpu_ps: int | None = None
    merge: bool = True
    threads: str = ""
    idle: str = ""
    period_ps: int | None = None

    def __post_init__(self) -> None:
        for name in ("snapshots", "instructions", "cpu_ps", "period_ps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        for name in ("threads", "idle"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name} {getattr(self, name)!r} is no regular expression ({error})") from None

    def chosen(self, options: ReadOptions) -> UnitRules:
        """These, with what a user chose of threads and methods."""
        return replace(self, threads=options.threads or self.threads, idle=options.idle or self.idle)


DEFAULT_RULES: Final = UnitRules()


@dataclass(frozen=True)
class Lives:
    """The threads of a profile, one element each, sorted by (rank, thread)."""

    rank: np.ndarray  # int32
    thread: np.ndarray  # int64, the system's id
    core: np.ndarray  # int32, NO_CPU where not known
    first_ns: np.ndarray  # int64
    last_ns: np.ndarray  # int64
    row: np.ndarray  # int64[num_samples]: the element of each sample


def lives(rank: np.ndarray, thread: np.ndarray, core: np.ndarray, time_ns: np.ndarray) -> Lives:
    """When and where the threads of samples lived. O(n log n) for n samples, without a loop over them.

    All arrays have one element per sample: ``rank``, ``thread`` (integers), ``core`` (NO_CPU where not known) and
    ``time_ns`` (int64).
    """
    keys, row = np.unique(np.stack((rank.astype(np.int64), thread.astype(np.int64))), axis=1, return_inverse=True)
    row = row.reshape(-1)
    num_threads = keys.shape[1]
    first = np.full(num_threads, np.iinfo(np.int64).max)
    last = np.full(num_threads, np.iinfo(np.int64).min)
    np.minimum.at(first, row, time_ns)
    np.maximum.at(last, row, time_ns)
    # most frequent core of each thread; of equally frequent ones the lowest
    pairs, count = np.unique(np.stack((row, core.astype(np.int64))), axis=1, return_counts=True)
    order = np.lexsort((-pairs[1], count, pairs[0]))
    is_last = np.append(np.diff(pairs[0][order]) != 0, True) if len(order) else np.zeros(0, np.bool_)
    home = pairs[1][order[is_last]]
    return Lives(keys[0].astype(np.int32), keys[1], home.astype(np.int32), first, last, row)


def merge(found: Lives, names: Mapping[tuple[int, int], str]) -> np.ndarray:
    """int64[num_threads]: the thread, an index into ``found``, that each thread becomes part of (the earliest of them).

    ``names`` are by (rank, thread). O(t log t) for t threads.
    """
    kinds = [
        re.sub(r"\d+", "#", names.get((rank, thread), ""))
        for rank, thread in zip(found.rank.tolist(), found.thread.tolist(), strict=True)
    ]
    order = sorted(range(len(kinds)), key=lambda one: (found.first_ns[one], found.last_ns[one], one))
    ended: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
    into = np.arange(len(kinds))
    for one in order:
        waiting = ended.setdefault((int(found.rank[one]), int(found.core[one]), kinds[one]), [])
        if waiting and waiting[0][0] < found.first_ns[one]:
            into[one] = heapq.heappop(waiting)[1]
        heapq.heappush(waiting, (int(found.last_ns[one]), int(into[one])))
    return into


def number_threads(found: Lives, into: np.ndarray) -> np.ndarray:
    """int32[num_threads]: number of each (merged) thread within its rank, from 0, in the order of first samples."""
    order = np.lexsort((np.arange(len(into)), found.first_ns, found.rank))
    heads = order[into[order] == order]
    numbers = np.zeros(len(into), np.int32)
    starts = np.searchsorted(found.rank[heads], found.rank[heads])
    numbers[heads] = np.arange(len(heads)) - starts
    return numbers[into]


def cut(strand: np.ndarray, cost: np.ndarray, size: int) -> np.ndarray:
    """int32[num_samples]: the unit of each sample, from 0 in each strand.

    ``strand``: non-decreasing, a different value for each thread. ``cost``: what the sample stands for (int64), in the
    unit of ``size``. Units in which no sample's stretch began are not counted. O(n).
    """
    if not len(strand):
        return np.empty(0, np.int32)
    begins = np.flatnonzero(np.append(True, strand[1:] != strand[:-1]))
    lengths = np.diff(np.append(begins, len(strand)))
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(cost)))[:-1]
    raw = (before - np.repeat(before[begins], lengths)) // size
    steps = np.append(0, (raw[1:] != raw[:-1]) & (strand[1:] == strand[:-1])).astype(np.int64)
    dense = np.cumsum(steps)
    return (dense - np.repeat(dense[begins], lengths)).astype(np.int32)


def spread(
    start_ns: np.ndarray, end_ns: np.ndarray, value: np.ndarray, unit_start_ns: np.ndarray, unit_end_ns: np.ndarray
) -> np.ndarray:
    """float64[num_units]: values measured over intervals, each shared among the units in proportion to their overlap.

    The units of one thread follow one another. What lies outside of all units is lost. O(intervals * log units).
    """
    edges = np.concatenate((unit_start_ns[:1], unit_end_ns)).astype(np.float64)
    length = np.maximum(end_ns - start_ns, 1).astype(np.float64)
    # an interval's value as a function of time rises linearly from start to end: its increase over each unit is summed
    total = np.zeros(len(unit_end_ns))
    for begin, duration, amount in zip(start_ns.tolist(), length.tolist(), value.tolist(), strict=True):
        first, last = np.searchsorted(edges, (begin, begin + duration), side="right")
        low, high = max(int(first) - 1, 0), min(int(last), len(edges) - 1)
        share = np.clip((edges[low : high + 1] - begin) / duration, 0.0, 1.0)
        total[low:high] += amount * np.diff(share)
    return total
