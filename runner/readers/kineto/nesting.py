"""Which span of a thread encloses what: spans of a thread are nested, as calls are."""

from __future__ import annotations

import numpy as np

from manyscale.runner.readers.kineto.trace import Spans


def innermost(spans: Spans, thread: np.ndarray, time: np.ndarray) -> np.ndarray:
    """int64[n]: the span in which each time of a thread lies, the innermost; -1 where none. O(n log n)."""
    found = np.full(len(time), -1, np.int64)
    for each in np.unique(thread).tolist():
        mine, at = np.flatnonzero(spans.thread == each), np.flatnonzero(thread == each)
        if len(mine):
            found[at] = _innermost(mine, spans.begin[mine], spans.end[mine], time[at])
    return found


def _innermost(number: np.ndarray, begin: np.ndarray, end: np.ndarray, time: np.ndarray) -> np.ndarray:
    """``begin`` ascends. The level of a span is the number of spans that are open when it begins, with it; at any time
    the innermost is the last of its level that has begun."""
    count = len(begin)
    ends = np.sort(end)
    level = np.arange(1, count + 1) - np.searchsorted(ends, begin, "right")
    begun = np.searchsorted(begin, time, "right")
    depth = begun - np.searchsorted(ends, time, "right")
    order = np.argsort(level, kind="stable")
    keys = level[order] * (count + 1) + order
    place = order[np.maximum(np.searchsorted(keys, depth * (count + 1) + begun, "left") - 1, 0)]
    is_in = (begin[place] <= time) & (time < end[place])
    return np.where(is_in, number[place], -1)
