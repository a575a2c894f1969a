"""Waits of hosts and streams: synchronisations, and events between streams.

Newer traces say of each (category ``cuda_sync``) for which stream it waited, and which call recorded its event (or the
stream alone: then it is all that the stream was given by then and that was done when the wait ended). Older ones do
not, and the order of the calls has to tell:

- a wait inside ``record_param_comms`` before NCCL's kernel lets NCCL's stream wait for the stream on which the thread
  works; one behind the kernel is NCCL's own bookkeeping and orders nothing;
- one inside a ``record_param_comms`` without a kernel (``wait``), or of a thread whose own collectives nobody awaited
  yet, lets the stream of the thread's next work wait for a collective: the one that the host execution trace tells,
  else the last one that had ended when that work began;
- any other lets it wait for the stream on which the thread worked before;
- a thread synchronises with the stream on which it worked last, and with the event of what ended last before it went
  on; so does a launch that waits for room in the GPU's queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import numpy as np

from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.runner.readers.kineto.events import Args, number
from manyscale.runner.readers.kineto.given import FAR, NOTHING, SLACK_PS, Made, Rows, call_kinds, rows
from manyscale.runner.readers.kineto.nesting import innermost
from manyscale.runner.readers.kineto.trace import Spans, Trace

_G: Final = GpuOperationKind
_NOTHING: Final = np.zeros(0, np.int64)
_OF_COLLECTIVES: Final = re.compile(r"record_param_comms$|(nccl|gloo|mpi|ucc):")


@dataclass
class Found:
    """Rows of waits and records; how many waits are ``inferred``, as the trace does not tell them."""

    parts: list[dict[str, int]] = field(default_factory=list)
    inferred: int = 0
    events: dict[int, int] = field(default_factory=dict)  # what was given last before the record, to its number

    def add(self, **columns: int) -> None:
        """A row."""
        self.parts.append({"until": columns["at"], **columns})

    def rows(self) -> Rows:
        names = ("at", "until", "kind", "thread", "stream", "event", "device", "second")
        columns = {name: np.array([each.get(name, 0) for each in self.parts], np.int64) for name in names}
        return rows(len(self.parts), flags=int(GpuFlag.non_blocking), **columns)


@dataclass(frozen=True)
class _Stream:
    """What a stream was given, in order: ``own``, when (``at``), and when all up to each was done."""

    own: np.ndarray
    at: np.ndarray
    done: np.ndarray
    is_communication: bool

    def last(self, time: int) -> int:
        """Index of the last that was given by then, or -1."""
        return int(np.searchsorted(self.at, time, "right")) - 1

    def done_at(self, time: int) -> int:
        """When all that was given by then was done."""
        index = self.last(time)
        return int(self.done[index]) if index >= 0 else -FAR


def waits_of(trace: Trace, given: Made, thread_of: np.ndarray, awaited: Mapping[int, int]) -> Found:
    """Rows of the calls that wait. ``thread_of`` int64[things given]: the thread whose row each is; ``awaited``: by
    operators that wait for a collective, which of the things given it is, -1 for one that is not there."""
    return _Finder(trace, given, thread_of, awaited).find()


class _Finder:
    def __init__(self, trace: Trace, given: Made, thread_of: np.ndarray, told: Mapping[int, int]) -> None:
        self.told = told
        self.trace, self.given, self.thread_of = trace, given, thread_of
        pairs = np.stack((trace.device, trace.stream))
        every, index = np.unique(pairs, axis=1, return_inverse=True)
        self.stream_of = np.asarray(index).ravel()  # of what is given: streams are numbered over all devices
        self.known = {(device, stream): at for at, (device, stream) in enumerate(every.T.tolist())}
        self.streams = _streams(trace, given, self.stream_of)
        self.found = Found()
        self.is_communication = trace.kind == _G.communication
        self.marks, self.mark_of = _marks(trace)
        has = given.call >= 0
        order = np.flatnonzero(has)
        order = order[np.argsort(given.at[order], kind="stable")]
        work = order[~self.is_communication[order]]
        self.by_thread, self.work_by_thread = _by_thread(given, thread_of, order), _by_thread(given, thread_of, work)
        self.awaited: dict[int, int] = {}  # stream of collectives to the index of the last that somebody awaited
        self.threads: dict[tuple[int, int], np.ndarray] = {}
        self.nccl_at = np.sort(trace.calls.begin[given.call[has & self.is_communication]]) if len(trace.calls) else (
            np.zeros(0, np.int64)
        )  # fmt: skip

    def find(self) -> Found:
        kinds = call_kinds(self.trace)
        calls = self.trace.calls
        at = np.flatnonzero(np.isin(kinds, (_G.synchronize_stream, _G.synchronize_event, _G.synchronize_device,
                                            _G.wait_event)))  # fmt: skip
        mark = innermost(self.marks, calls.thread[at], calls.begin[at]) if len(at) else at
        correlation = self.trace.call_correlation
        known = enumerate(correlation.tolist()) if self.trace.awaited else ()
        self.call_of = {of: row for row, of in known if of > 0}
        for call, kind, inside in zip(at.tolist(), kinds[at].tolist(), mark.tolist(), strict=True):
            told = self.trace.awaited.get(int(correlation[call]))
            if kind == _G.synchronize_device:
                self.synchronise(
                    call,
                    kind,
                    NOTHING,
                    max((each.done_at(int(calls.begin[call])) for each in self.streams.values()), default=-FAR),
                )
            elif kind == _G.wait_event:
                self.wait_told(call, told) if _is_told(told) else self.wait(call, inside)
            elif kind == _G.synchronize_event:
                self.event_told(call, told) if _is_told(told) else self.event(call)
            else:
                self.stream(call, told)
        for call in self.given.queued.tolist():
            self.event(call)
        self.found.inferred -= len(self.given.queued)  # which have a note of their own
        return self.found

    def synchronise(self, call: int, kind: int, stream: int, done: int, event: int = 0) -> None:
        calls = self.trace.calls
        begin, end = int(calls.begin[call]), int(calls.end[call])
        self.found.add(
            at=begin, until=min(max(done, begin), end), kind=kind, thread=int(calls.thread[call]), event=event,
            second=1, **self.columns_of(stream),
        )  # fmt: skip

    def stream(self, call: int, told: Args | None) -> None:
        calls = self.trace.calls
        begin, end = int(calls.begin[call]), int(calls.end[call])
        if told is not None and _known(told.stream) >= 0:
            stream = self.told_stream(told, told.stream)  # NOTHING of one that was given nothing
        else:
            stream = self.current(int(calls.thread[call]), begin, end)
            self.found.inferred += 1
        if stream in self.streams:
            self.synchronise(call, int(_G.synchronize_stream), stream, self.streams[stream].done_at(begin))

    def current(self, thread: int, time: int, end: int) -> int:
        """The stream on which a thread works that waits until ``end``, so that all of it was done by then."""
        mine, at = self.by_thread.get(thread, (_NOTHING, _NOTHING))
        count = int(np.searchsorted(at, time, "right"))
        tried: set[int] = set()
        for index in mine[max(count - 1000, 0) : count][::-1].tolist():
            stream = int(self.stream_of[index])
            if stream not in tried:
                tried.add(stream)
                if self.streams[stream].done_at(time) <= end + SLACK_PS:
                    return stream
        return NOTHING

    def event_told(self, call: int, told: Args) -> None:
        stream = self.told_stream(told, told.awaited_stream)
        index = self.told_index(call, told, stream, int(self.trace.calls.end[call]))
        if index >= 0:
            done = int(self.streams[stream].done[index])
            self.synchronise(call, int(_G.synchronize_event), NOTHING, done, self.recorded(stream, index))

    def told_index(self, call: int, told: Args, stream: int, limit: int) -> int:
        """The last of what a stream that is told was given when the event of a wait was recorded, NOTHING if that
        orders nothing. Where the record is not known, the last that it was given before the wait, done by ``limit``."""
        calls, known = self.trace.calls, self.streams.get(stream)
        record = self.call_of.get(_known(told.recorded_by), NOTHING)
        index = NOTHING
        if known is not None and record >= 0:
            index = known.last(int(calls.end[record]))
        elif known is not None and not _is_recorded(told):
            done = int(np.searchsorted(known.done, min(limit + SLACK_PS, FAR), "right")) - 1
            index = min(known.last(int(calls.begin[call])), done)
        self.found.inferred += index >= 0 and record < 0
        return max(index, NOTHING)

    def event(self, call: int) -> None:
        """Of an event that is not told: that of what ended last before the thread went on."""
        begin, end = int(self.trace.calls.begin[call]), int(self.trace.calls.end[call])
        best = max(
            (
                (int(each.done[index]), stream, index)
                for stream, each in self.streams.items()
                if (index := min(each.last(begin), int(np.searchsorted(each.done, end, "right")) - 1)) >= 0
            ),
            default=None,
        )
        self.found.inferred += 1
        if best is not None:
            self.synchronise(call, int(_G.synchronize_event), NOTHING, best[0], self.recorded(best[1], best[2]))

    def wait_told(self, call: int, told: Args) -> None:
        stream, other = (self.told_stream(told, each) for each in (told.stream, told.awaited_stream))
        if stream not in self.streams or stream == other:
            return
        index = self.told_index(call, told, other, self.goes_on(stream, int(self.trace.calls.begin[call])))
        if index >= 0:
            self.let_wait(call, stream, other, index)

    def goes_on(self, stream: int, time: int) -> int:
        """When in the trace the first thing begins that a stream is given behind a time."""
        mine = self.streams[stream]
        following = mine.last(time) + 1
        return int(self.trace.given.begin[mine.own[following]]) if following < len(mine.own) else FAR

    def let_wait(self, call: int, stream: int, other: int, index: int) -> None:
        calls = self.trace.calls
        event = self.recorded(other, index)
        self.found.add(
            at=int(calls.end[call]), kind=int(_G.wait_event), thread=int(calls.thread[call]), event=event, second=2,
            **self.columns_of(stream),
        )  # fmt: skip

    def recorded(self, stream: int, index: int) -> int:
        """The number of the event that is recorded behind what a stream was given."""
        own = int(self.streams[stream].own[index])
        if own not in self.found.events:
            self.found.events[own] = len(self.found.events) + 1
            self.found.add(
                at=int(self.given.at[own]), until=-FAR, kind=int(_G.record_event), thread=int(self.thread_of[own]),
                event=self.found.events[own], second=0, **self.columns_of(stream),
            )  # fmt: skip
        return self.found.events[own]

    def columns_of(self, stream: int) -> dict[str, int]:
        """Its number and device; of what is for no stream the first device."""
        known = self.streams.get(stream)
        if known is None:
            return {"stream": 0, "device": int(self.trace.device[:1].max(initial=0))}
        first = int(known.own[0])
        return {"stream": int(self.trace.stream[first]), "device": int(self.trace.device[first])}

    def told_stream(self, told: Args, stream: Any) -> int:
        """The stream of a number that a wait tells, on the wait's device, or else on the only one that has it."""
        device, number_of = _known(told.device), _known(stream)
        if device >= 0:
            return self.known.get((device, number_of), NOTHING)
        found = [at for (_, each), at in self.known.items() if each == number_of]
        return found[0] if len(found) == 1 else NOTHING

    def wait(self, call: int, inside: int) -> None:
        """Of an event that is not told; see the module's docstring."""
        calls = self.trace.calls
        begin, thread = int(calls.begin[call]), int(calls.thread[call])
        mine, at = self.by_thread.get(thread, (_NOTHING, _NOTHING))
        place = int(np.searchsorted(at, begin, "right"))
        following = int(mine[place]) if place < len(mine) else NOTHING
        worked, at = self.work_by_thread.get(thread, (_NOTHING, _NOTHING))
        worked = worked[: int(np.searchsorted(at, begin, "right"))]
        if inside >= 0:
            first, last = int(self.marks.begin[inside]), int(self.marks.end[inside])
            launched = int(np.searchsorted(self.nccl_at, first)), int(np.searchsorted(self.nccl_at, last, "right"))
            if launched[1] > launched[0]:
                if following >= 0 and self.is_communication[following] and int(self.nccl_at[launched[1] - 1]) >= begin:
                    self.before_collective(call, int(self.stream_of[following]), worked)
                return
        if following >= 0 and self.is_communication[following] and not len(self.marks):
            self.before_collective(call, int(self.stream_of[following]), worked)
            return
        if following >= 0 and not self.is_communication[following]:
            stream = int(self.stream_of[following])
        elif len(worked):
            stream = int(self.stream_of[worked[-1]])
        else:
            return
        operator = int(self.mark_of[inside]) if inside >= 0 else NOTHING
        if operator in self.told:
            self.after_told(call, stream, self.told[operator])
            return
        own = None if inside >= 0 else thread
        if not self.after_collective(call, stream, own) and inside < 0:
            self.after_work(call, stream, worked)

    def after_told(self, call: int, stream: int, own: int) -> None:
        """A wait for a collective that is known."""
        if own < 0:
            return
        other = int(self.stream_of[own])
        index = int(np.flatnonzero(self.streams[other].own == own)[0])
        self.awaited[other] = max(self.awaited.get(other, -1), index)
        self.let_wait(call, stream, other, index)

    def before_collective(self, call: int, stream: int, worked: np.ndarray) -> None:
        if not len(worked):
            return
        other = int(self.stream_of[worked[-1]])
        index = self.streams[other].last(int(self.trace.calls.begin[call]))
        self.found.inferred += 1
        if other != stream and index >= 0:
            self.let_wait(call, stream, other, index)

    def after_collective(self, call: int, stream: int, thread: int | None) -> bool:
        """A wait for the last collective (of a thread's own) that nobody awaited and that had ended when the stream
        went on; whether there is one."""
        begin = int(self.trace.calls.begin[call])
        limit = self.goes_on(stream, begin)
        best = (-FAR, NOTHING, NOTHING)
        for number_of, each in self.streams.items():
            if not each.is_communication or number_of == stream:
                continue
            index = min(each.last(begin), int(np.searchsorted(each.done, min(limit + SLACK_PS, FAR), "right")) - 1)
            first = self.awaited.get(number_of, -1)
            if thread is not None:
                mine_of = self.of_thread(number_of, thread)
                place = int(np.searchsorted(mine_of, index, "right")) - 1
                index = int(mine_of[place]) if place >= 0 else NOTHING
            if index > first:
                best = max(best, (int(each.at[index]), number_of, index))
        if best[1] < 0:
            return False
        self.awaited[best[1]] = best[2]
        self.found.inferred += 1
        self.let_wait(call, stream, best[1], best[2])
        return True

    def of_thread(self, stream: int, thread: int) -> np.ndarray:
        """int64[]: which of what a stream was given a thread gave it."""
        if (stream, thread) not in self.threads:
            self.threads[stream, thread] = np.flatnonzero(self.thread_of[self.streams[stream].own] == thread)
        return self.threads[stream, thread]

    def after_work(self, call: int, stream: int, worked: np.ndarray) -> None:
        """A wait for the stream on which the thread worked before."""
        for own in worked[-1000:][::-1].tolist():
            other = int(self.stream_of[own])
            if other != stream:
                self.found.inferred += 1
                self.let_wait(call, stream, other, self.streams[other].last(int(self.trace.calls.begin[call])))
                return


def _known(value: Any) -> int:
    """A number that a wait tells, or NOTHING: -1, which some versions write as one of 32 bits without a sign."""
    found = number(value, -1)
    return found if 0 <= found < 2**32 - 1 else NOTHING


def _is_recorded(told: Args) -> bool:
    """Whether the trace tells the call that recorded the event of a wait: Kineto writes none, -1 or 0 where it knows
    none."""
    return _known(told.recorded_by) > 0


def _is_told(told: Args | None) -> TypeGuard[Args]:
    """Whether the trace tells the stream, or the record at least, of the event of a wait."""
    return told is not None and (_is_recorded(told) or _known(told.awaited_stream) >= 0)


def _by_thread(given: Made, thread_of: np.ndarray, order: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By thread: which of the things in ``order`` it gave, and when."""
    found = {}
    for thread in np.unique(thread_of[order]).tolist():
        mine = order[thread_of[order] == thread]
        found[thread] = mine, given.at[mine]
    return found


def _streams(trace: Trace, given: Made, stream_of: np.ndarray) -> dict[int, _Stream]:
    found = {}
    for stream in np.unique(stream_of).tolist():
        own = np.flatnonzero(stream_of == stream)
        own = own[np.lexsort((trace.given.begin[own], given.at[own]))]
        done = np.maximum.accumulate(trace.given.end[own])
        communicates = bool((trace.kind[own] == _G.communication).all())
        found[stream] = _Stream(own, given.at[own], done, communicates)
    return found


def _marks(trace: Trace) -> tuple[Spans, np.ndarray]:
    """Spans of operators or annotations that are of collectives, and which they are: operators where there are any."""
    for spans in (trace.operators, trace.annotations):
        names = {at for at, name in enumerate(trace.names) if _OF_COLLECTIVES.match(name)}
        mine = np.flatnonzero(np.isin(spans.name, np.array(sorted(names), np.int64)))
        if len(mine):
            args = [spans.args[each] for each in mine.tolist()]
            found = Spans(spans.name[mine], spans.thread[mine], spans.begin[mine], spans.end[mine], args)
            return found, mine if spans is trace.operators else np.full(len(mine), NOTHING)
    return Spans(_NOTHING, _NOTHING, _NOTHING, _NOTHING, []), _NOTHING
