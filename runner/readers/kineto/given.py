"""What a rank's host gives its GPU, and where it waits, as rows of its threads.

A row stands where its call has its effect: what is given at the end of its call, or when it begins if it did so
before; a wait where its call begins. All CPU time before, that of calls in it, is the thread's own, and goes on where
a wait ended in the trace: when what it waited for was done. So what waits takes is never in a row: whoever replays the
rows computes it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.runner.readers.kineto.calls import OTHER, by_name, is_pageable, kind_of_call, waits_by_itself
from manyscale.runner.readers.kineto.trace import Trace

_G: Final = GpuOperationKind
MARKER, COMPLETES = -1, -2  # kinds of rows that give no GPU anything; the second completes the message before it
NOTHING: Final = -1
SLACK_PS: Final = 2_000_000  # by which clocks of host and GPU may differ in a trace
_FULL_QUEUE: Final = 1000  # of a GPU, about: behind some 1,024 launches the next one waits
_LONG_CALL_PS: Final = 100_000_000  # that a launch takes when it waits
FAR: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Rows:
    """int64 columns. ``order``, then ``second``: of the rows of a rank; ``thread``: number in the trace; ``at``: where
    the CPU time before the row ends; ``until``: from where the thread goes on behind it; ``kind``: GpuOperationKind,
    MARKER or COMPLETES; ``given``: what of the trace it is, or NOTHING; ``stream``, ``device``, ``bytes``, ``event``,
    ``flags``, and the ``duration`` in the trace, -1 for none."""

    order: np.ndarray
    second: np.ndarray
    thread: np.ndarray
    at: np.ndarray
    until: np.ndarray
    kind: np.ndarray
    given: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    bytes: np.ndarray
    event: np.ndarray
    flags: np.ndarray
    duration: np.ndarray

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, chosen: np.ndarray) -> Rows:
        return Rows(**{name: values[chosen] for name, values in vars(self).items()})

    def sorted(self) -> Rows:
        return self[np.lexsort((self.second, self.order))]


def rows(count: int, **columns: np.ndarray | int) -> Rows:
    """``order`` is ``at`` and ``until`` is ``at`` unless given."""
    known: dict[str, np.ndarray] = {
        name: np.broadcast_to(np.asarray(values, np.int64), count) for name, values in columns.items()
    }
    nothing = np.zeros(count, np.int64)
    known.setdefault("order", known["at"])
    known.setdefault("until", known["at"])
    for name in ("given", "duration"):
        known.setdefault(name, nothing - 1)
    return Rows(**{name: known.get(name, nothing).astype(np.int64) for name in Rows.__annotations__})


def joined(*parts: Rows) -> Rows:
    return Rows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__annotations__})


@dataclass(frozen=True)
class Made:
    """``rows`` of what has a call; ``call`` int64[things given]: the call of each, NOTHING where the trace has none;
    ``at`` int64[things given]: where it was given; ``queued``: calls that waited for room in the GPU's
    queue; ``ambiguous``: things whose correlation several calls have, one after the other."""

    rows: Rows
    call: np.ndarray
    at: np.ndarray
    queued: np.ndarray
    ambiguous: int


def made(trace: Trace) -> Made:
    """What calls gave."""
    call, ambiguous = _calls(trace)
    has = call >= 0
    begin, end = trace.given.begin, trace.given.end
    calls = trace.calls
    called = np.where(has, calls.begin[call], begin) if len(calls) else begin
    returned = np.where(has, calls.end[call], begin) if len(calls) else begin
    waits = _waits(trace, call)
    at = np.minimum(returned, np.maximum(begin, called))
    # a call that waits gives its copy as late as one that found nothing to wait for
    lead = np.where(waits, begin - called, FAR)
    others = (returned - called)[has & ~waits]
    most = int(lead.min(initial=FAR))
    most = min(most, int(np.median(others))) if len(others) else most
    at = np.where(waits, np.minimum(called + np.clip(lead, 0, max(most, 0)), returned), at)
    until = np.where(waits, np.clip(end, at, returned), at)
    mine = np.flatnonzero(has)
    is_copy = np.isin(trace.kind, (_G.copy_to_device, _G.copy_to_host))
    pageable = is_copy & (by_name(trace.names, trace.given.name, is_pageable) > 0)
    flags = np.where(waits, int(GpuFlag.waits), 0) + np.where(pageable, int(GpuFlag.pageable), 0)
    flags += int(GpuFlag.non_blocking)
    found = rows(
        len(mine),
        at=at[mine],
        until=until[mine],
        thread=calls.thread[call[mine]] if len(calls) else 0,
        kind=trace.kind[mine],
        given=mine,
        stream=trace.stream[mine],
        device=trace.device[mine],
        bytes=trace.bytes[mine],
        flags=flags[mine],
        duration=(end - begin)[mine],
        second=0,
    )
    open_then = np.searchsorted(np.sort(at), called) - np.searchsorted(np.sort(end), called)
    queued = has & ~waits & (open_then >= _FULL_QUEUE) & (returned - called > _LONG_CALL_PS)
    return Made(found, call, at, np.unique(call[queued]), ambiguous)


def _calls(trace: Trace) -> tuple[np.ndarray, int]:
    """int64[things given]: the call that gave each, the outermost of nested ones with its correlation; of several one
    after the other the last that began before it (all but for the clocks' noise). And how many have several."""
    if not len(trace.calls):
        return np.full(len(trace.given), NOTHING), 0
    begin, end = trace.calls.begin, trace.calls.end
    order = np.lexsort((-end, begin, trace.call_correlation))
    _, group = np.unique(trace.call_correlation[order], return_inverse=True)
    # of each group the latest end before a call, as its place among all ends: times and groups fill no one number
    ends = np.sort(end)
    latest = np.maximum.accumulate(group * (len(ends) + 1) + np.searchsorted(ends, end[order]))
    closed = group * (len(ends) + 1) + np.searchsorted(ends, begin[order], "right")
    is_outer = np.concatenate(([True], (group[1:] != group[:-1]) | (latest[:-1] < closed[1:])))
    order = order[is_outer]
    known = trace.call_correlation[order]
    last = np.searchsorted(known, trace.correlation, "right") - 1
    found = (last >= 0) & (known[np.maximum(last, 0)] == trace.correlation) & (trace.correlation > 0)
    first = np.searchsorted(known, trace.correlation, "left")
    several = np.flatnonzero(found & (first < last))
    for each in several.tolist():
        own = order[first[each] : last[each] + 1]
        before = int(np.searchsorted(begin[own], trace.given.begin[each] + SLACK_PS, "right"))
        last[each] = first[each] + max(before - 1, 0)
    return np.where(found, order[np.maximum(last, 0)], NOTHING), len(several)


def _waits(trace: Trace, call: np.ndarray) -> np.ndarray:
    """bool[things given]: copies whose calls return when they are done. Of asynchronous ones it is those to memory of
    the host that is not page-locked; of synchronous ones those on a device need not wait, and did if they returned
    behind its end (CUDA Runtime API, "API synchronization behavior")."""
    is_copy = np.isin(trace.kind, (_G.copy_to_device, _G.copy_to_host, _G.copy_on_device, _G.copy_on_host))
    is_copy &= call >= 0
    found = np.zeros(len(call), np.bool_)
    if is_copy.any():
        by_call = by_name(trace.names, trace.calls.name[call[is_copy]], waits_by_itself) > 0
        to_host = (trace.kind[is_copy] == _G.copy_to_host) & (
            by_name(trace.names, trace.given.name[is_copy], is_pageable) > 0
        )
        by_call &= (trace.kind[is_copy] != _G.copy_on_device) | (
            trace.calls.end[call[is_copy]] >= trace.given.end[is_copy]
        )
        found[is_copy] = by_call | to_host
    return found


def before_window(trace: Trace, found: Made, thread: int) -> tuple[Rows, int, int]:
    """Rows of what has no call: given before the trace began (nothing before it in its stream has a call either), or by
    a call that was not recorded; and how many of each. Before the first of a stream stands what the stream still had to
    do when the trace began, which is not known."""
    alone = np.flatnonzero(found.call < 0)
    if not len(alone):
        return rows(0, at=0, kind=0, thread=0), 0, 0
    begin = trace.given.begin
    _, of = np.unique(np.stack((trace.device, trace.stream)), axis=1, return_inverse=True)
    stream = np.asarray(of).ravel()  # streams are numbered over all devices
    first_called = np.full(int(stream.max()) + 1, FAR)
    with_call = found.call >= 0
    np.minimum.at(first_called, stream[with_call], begin[with_call])
    early = begin[alone] < first_called[stream[alone]]
    start = trace.begin
    parts = [
        rows(
            len(alone),
            at=np.where(early, start, begin[alone]),
            thread=thread,
            kind=trace.kind[alone],
            given=alone,
            stream=trace.stream[alone],
            device=trace.device[alone],
            bytes=trace.bytes[alone],
            flags=int(GpuFlag.non_blocking),
            duration=(trace.given.end - begin)[alone],
            second=-1,
        )
    ]
    for each in np.unique(stream[alone[early]]).tolist():
        ahead = alone[early & (stream[alone] == each)]
        wait = int(begin[ahead].min()) - start
        if wait > 0:
            device, number = trace.device[ahead[:1]], trace.stream[ahead[:1]]
            parts.append(rows(1, at=start, thread=thread, kind=int(_G.launch), stream=number, device=device, second=-2,
                              duration=wait, flags=int(GpuFlag.non_blocking)))  # fmt: skip
    return joined(*parts), int(early.sum()), int((~early).sum())


def call_kinds(trace: Trace) -> np.ndarray:
    """int64[calls]: GpuOperationKind of those that wait or record, else OTHER."""
    return by_name(trace.names, trace.calls.name, kind_of_call) if len(trace.calls) else np.zeros(0, np.int64) + OTHER
