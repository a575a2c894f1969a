"""A rank's trace as rows, and what the trace itself tells of its collectives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers.kineto.collectives import Told, of_args, of_kernel, of_mark
from manyscale.runner.readers.kineto.events import number as number_in
from manyscale.runner.readers.kineto.execution_trace import HostTrace
from manyscale.runner.readers.kineto.given import MARKER, Made, Rows, before_window, joined, made, rows
from manyscale.runner.readers.kineto.nesting import innermost
from manyscale.runner.readers.kineto.threads import first_thread, hand_overs
from manyscale.runner.readers.kineto.trace import Trace
from manyscale.runner.readers.kineto.waits import waits_of

_G: Final = GpuOperationKind
_HOST_COLLECTIVES: Final = ("gloo:", "mpi:", "ucc:")
STEP_BEGINS, STEP_ENDS, WINDOW_ENDS, ENDS = 5, -3, 8, 9  # ``second`` of markers


@dataclass
class Rank:
    """``number`` in its job; its ``rows`` in order; ``first``: its first thread; ``told`` of each collective, and
    ``told_of`` int64[collectives], which thing given it is; ``operator`` int64[things given]: that gave it, -1 unknown.
    Counts of what is to be said: given ``before`` the trace, with ``lost`` calls, ``inferred`` waits, runs of threads
    that are ``overlapping``, kernels ``of_graphs``, those among them of graphs on several streams (``branched``), and
    collectives ``on_hosts``."""

    trace: Trace
    number: int
    given: Made
    rows: Rows
    first: int
    told: list[Told]
    told_of: np.ndarray
    operator: np.ndarray
    before: int
    lost: int
    inferred: int
    overlapping: int
    of_graphs: int
    branched: int
    on_hosts: int

    def row_of_told(self) -> np.ndarray:
        """int64[collectives]: the row of each."""
        place = np.full(len(self.trace.given), -1, np.int64)
        has = self.rows.given >= 0
        place[self.rows.given[has]] = np.flatnonzero(has)
        return place[self.told_of]


def rank_of(trace: Trace, number: int, host: HostTrace | None = None, *, is_one_step: bool = False) -> Rank:
    """The rows of a rank, but for what its collectives are. ``host``: its host execution trace; ``is_one_step``: its
    window is a step, number 0, to the end of its first thread."""
    given = made(trace)
    told_of = np.flatnonzero(trace.kind == _G.communication)
    told_of = told_of[np.lexsort((trace.given.begin[told_of], given.at[told_of]))]
    first = first_thread(trace, given.rows.thread)
    if is_one_step and (end := _end_of(trace, first)) > trace.begin:
        trace = replace(trace, steps=((0, first, trace.begin, end),))
    early, before, lost = before_window(trace, given, first)
    thread_of = np.full(len(trace.given), first, np.int64)
    thread_of[given.rows.given] = given.rows.thread
    waits = waits_of(trace, given, thread_of, _awaited(trace, told_of, host))
    found = joined(given.rows, early, waits.rows()).sorted()
    over, overlapping = hand_overs(trace, found, first, len(waits.events))
    found = joined(found, over, _markers(trace, first, WINDOW_ENDS if is_one_step else STEP_ENDS)).sorted()
    has = given.call >= 0
    operator = np.full(len(trace.given), -1, np.int64)
    if has.any():
        calls = given.call[has]
        operator[has] = innermost(trace.operators, trace.calls.thread[calls], trace.calls.begin[calls])
    _, of_call, times = np.unique(given.call[has], return_inverse=True, return_counts=True)
    streams = np.unique(np.stack((of_call, trace.device[has], trace.stream[has])), axis=1)
    branched = times[np.bincount(streams[0], minlength=len(times)) > 1]
    rank = Rank(
        trace, number, given, found, first, [], told_of, operator, before, lost, waits.inferred, overlapping,
        int(times[times > 1].sum()), int(branched.sum()), int(np.isin(trace.annotations.name, _on_hosts(trace)).sum()),
    )  # fmt: skip
    rank.told = _told(rank)
    return rank


def _awaited(trace: Trace, told_of: np.ndarray, host: HostTrace | None) -> dict[int, int]:
    """By operator: the collective (what was given) for which it waits, -1 for one that is not in the trace; as the host
    execution trace tells, call by call, if it has as many."""
    if host is None or len(host.collectives) != len(told_of):
        return {}
    named = np.array([name == "record_param_comms" for name in trace.names], np.bool_)
    mine = np.flatnonzero(named[trace.operators.name]).tolist()
    args = [trace.operators.args[each] for each in mine]
    order = [number_in(each.external, -1) if each is not None else -1 for each in args]
    numbers = [of for waits, of in host.records if not waits]
    if len(mine) != len(host.records) or -1 in order or len(numbers) != len(told_of):
        return {}
    given = dict(zip(numbers, told_of.tolist(), strict=True))
    calls = [operator for _, operator in sorted(zip(order, mine, strict=True))]
    return {operator: given.get(of, -1) for operator, (waits, of) in zip(calls, host.records, strict=True) if waits}


def _on_hosts(trace: Trace) -> list[int]:
    """Numbers of the names of collectives between hosts."""
    return [at for at, name in enumerate(trace.names) if name.startswith(_HOST_COLLECTIVES)]


def _markers(trace: Trace, first: int, end: int) -> Rows:
    """Begins and ends of steps (``second`` is ``end``), and the end of the first thread."""
    times = [time for _, _, begin, end in trace.steps for time in (begin, end)]
    times.append(max([*times, _end_of(trace, first)]))
    seconds = [STEP_BEGINS, end] * len(trace.steps) + [ENDS]
    return rows(len(times), at=np.array(times, np.int64), kind=MARKER, thread=first, second=np.array(seconds))


def _end_of(trace: Trace, thread: int) -> int:
    """When a thread ends what it did."""
    spans = (trace.calls, trace.operators, trace.annotations)
    return max([trace.begin, *(int(each.end[each.thread == thread].max(initial=trace.begin)) for each in spans)])


def _told(rank: Rank) -> list[Told]:
    """What the trace itself tells of each collective."""
    trace, found = rank.trace, []
    marks = trace.annotations
    calls = rank.given.call[rank.told_of]
    has_calls = len(calls) > 0 and len(trace.calls) > 0
    inside = innermost(marks, trace.calls.thread[calls], trace.calls.begin[calls]) if has_calls else calls
    for own, call, mark in zip(rank.told_of.tolist(), calls.tolist(), inside.tolist(), strict=True):
        args = trace.given.args[own]
        told = of_args(args) if args is not None else None
        operator = int(rank.operator[own])
        if told is None and operator >= 0:
            of_operator = trace.operators.args[operator]
            told = of_args(of_operator) if of_operator is not None else None
        if told is None and call >= 0 and mark >= 0:
            told = of_mark(trace.names[int(marks.name[mark])], marks.args[mark])
        found.append(told or of_kernel(trace.names[int(trace.given.name[own])]))
    return found
