"""Which threads of a rank do what it gives its GPU, and where one hands over to another.

PyTorch runs backward passes in threads of their own, one per GPU: the thread that asks for one waits until it is done,
and meanwhile runs what of it is for no GPU (``autograd::engine::evaluate_function``). Traces do not say so. A run of
rows of one thread between two rows of the first thread is such a hand-over if nothing else of the first thread (no
operator, no call) begins in it: the first thread then signals where the other begins, and waits until the other ended.
Threads that overlap with the first one are independent of it: each begins when it began in the trace.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers.kineto.given import FAR, Rows, joined, rows
from manyscale.runner.readers.kineto.trace import Trace

_G: Final = GpuOperationKind
_OF_ENGINE: Final = "autograd::engine::evaluate_function"


def first_thread(trace: Trace, found: np.ndarray) -> int:
    """The thread of the steps; else of those that made rows (``found``: the thread of each) the process's first one,
    or one that runs least for backward passes."""
    if trace.steps:
        threads = [thread for _, thread, _, _ in trace.steps]
        return max(set(threads), key=threads.count)
    spans = next((each for each in (trace.operators, trace.annotations, trace.calls) if len(each)), None)
    tried = np.unique(found if len(found) or spans is None else spans.thread).tolist()
    if not tried:
        return 0
    of_engine = trace.operators.thread[_is_of_engine(trace)]

    def rank(thread: int) -> tuple[bool, int, int]:
        process, _, own = trace.threads[thread].partition("/")
        return process == own, -int((of_engine == thread).sum()), int((found == thread).sum())

    return max(tried, key=rank)


def _is_of_engine(trace: Trace) -> np.ndarray:
    """bool[operators]: what an engine of backward passes runs."""
    named = np.array([name.startswith(_OF_ENGINE) for name in trace.names], np.bool_)
    return named[trace.operators.name] if len(named) else np.zeros(0, np.bool_)


def hand_overs(trace: Trace, found: Rows, first: int, event: int) -> tuple[Rows, int]:
    """Rows of signals and waits for them, numbered above ``event``; and how many runs of other threads overlap with the
    first one. ``found``: sorted."""
    parts, overlapping = [], 0
    activity = _activity(trace)
    begins = _of_its_own(trace, first, activity.get(first, _NONE)[0])
    for other in np.unique(found.thread).tolist():
        if other == first:
            continue
        mine = np.flatnonzero((found.thread == first) | (found.thread == other))
        is_other = found.thread[mine] == other
        edges = np.flatnonzero(np.diff(np.concatenate(([0], is_other.astype(np.int8), [0]))))
        own_begins, own_ends = activity.get(other, _NONE)
        latest = np.maximum.accumulate(own_ends)
        free = -FAR  # until when the other thread did what it did before
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            run = found[mine[begin:end]]
            ready = int(found.until[mine[begin - 1]]) if begin else -FAR
            # the first thing that the other thread does behind the last row of the first one
            at = int(np.searchsorted(own_begins, max(ready, free)))
            start = min(int(own_begins[at]), int(run.at[0])) if at < len(own_begins) else int(run.at[0])
            last = int(run.at[-1])
            inside = int(np.searchsorted(begins, last, "left") - np.searchsorted(begins, start, "right"))
            if inside or start < ready:
                overlapping += 1
                continue
            behind = int(np.searchsorted(begins, last))
            again = int(begins[behind]) if behind < len(begins) else FAR
            until = int(np.searchsorted(own_begins, again))
            stop = min(max(last, int(run.until[-1]), int(latest[until - 1]) if until else last), again)
            free = stop
            if begin:
                event += 1
                parts.append(_pair(first, other, start, event, at=-FAR))
            if again < FAR:
                event += 1
                parts.append(_pair(other, first, stop, event, at=start if begin else None))
    return joined(*parts) if parts else rows(0, at=0, kind=0, thread=0), overlapping


def _pair(giver: int, taker: int, time: int, event: int, at: int | None) -> Rows:
    """A signal of one thread at ``time``, and the wait of another that goes on then; its own time before ends ``at``
    (None: then, too)."""
    return joined(
        rows(1, at=time, kind=int(_G.signal_thread), thread=giver, event=event, second=3),
        rows(1, order=time, at=time if at is None else at, until=time, kind=int(_G.await_thread), thread=taker,
             event=event, second=4),
    )  # fmt: skip


_NONE: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _of_its_own(trace: Trace, thread: int, begins: np.ndarray) -> np.ndarray:
    """Without what a thread does for a backward pass for which it waits."""
    mine = np.flatnonzero(_is_of_engine(trace) & (trace.operators.thread == thread))
    if not len(mine):
        return begins
    begin, end = trace.operators.begin[mine], np.maximum.accumulate(trace.operators.end[mine])
    at = np.searchsorted(begin, begins, "right") - 1
    return begins[~((at >= 0) & (begins <= end[np.maximum(at, 0)]))]


def _activity(trace: Trace) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Begin and end of all that each thread did, by begin."""
    spans = (trace.calls, trace.operators, trace.annotations)
    thread, begin, end = (np.concatenate([getattr(each, name) for each in spans]) for name in
                          ("thread", "begin", "end"))  # fmt: skip
    order = np.argsort(begin, kind="stable")
    thread, begin, end = thread[order], begin[order], end[order]
    return {each: (begin[thread == each], end[thread == each]) for each in np.unique(thread).tolist()}
