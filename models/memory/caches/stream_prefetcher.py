"""Stream prefetchers: sequences of neighbouring lines, up or down, inside a page (as in Palacharla, Kessler,
"Evaluating stream buffers as a secondary cache replacement", ISCA 1994, with detection of both directions and
fetching into the cache, as processors do today).

It sees the loads and stores that reach its level, hits too, but no prefetches of a nearer level. A stream is the page
of its last line. The line after or before the last confirms it, another one in the page begins it anew. Prefetches
are done when all else that the access asked for is done: how late they come is a matter of time, which this model
does not know.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.kernels import allocation_free
from manyscale.models.memory.caches.state import (
    CLOCK,
    CONFIRM,
    CORES,
    DEGREE,
    DISTANCE,
    LINE_SHIFT,
    NUM_STREAMS,
    PAGE_SHIFT,
    QUEUED,
    STREAMS,
    hint_of,
)

# columns of ``stream``
PAGE: Final = 0  # -1: none
LINE: Final = 1  # the last
STEP: Final = 2  # direction times how often confirmed
AHEAD: Final = 3  # the furthest line fetched
TIME: Final = 4


@allocation_free
def observe(state, level, core, line):  # type: ignore[no-untyped-def]
    """Follow the streams, and ask for lines. O(streams + degree), O(1) for a line as before it."""
    page_shift, num_streams = state.geometry[level, PAGE_SHIFT], state.geometry[level, NUM_STREAMS]
    page = line >> page_shift
    first = state.geometry[level, STREAMS] + core // state.geometry[level, CORES] * num_streams
    which = first
    hint = hint_of(page)  # no two streams are of one page
    if first <= state.now[hint] < first + num_streams and state.stream[state.now[hint], PAGE] == page:
        which = state.now[hint]
    else:
        for i in range(first, first + num_streams):
            if state.stream[i, PAGE] == page:
                which = i
                break
            if state.stream[i, TIME] < state.stream[which, TIME]:
                which = i
        state.now[hint] = which
    state.now[CLOCK] += 1
    state.stream[which, TIME] = state.now[CLOCK]
    if state.stream[which, PAGE] == page and state.stream[which, LINE] == line:
        return
    step = line - state.stream[which, LINE]
    if state.stream[which, PAGE] != page or (step != 1 and step != -1):
        state.stream[which, PAGE] = page
        state.stream[which, LINE] = line
        state.stream[which, STEP] = 0
        state.stream[which, AHEAD] = line
        return
    if state.stream[which, STEP] * step < 0:
        state.stream[which, STEP] = 0
        state.stream[which, AHEAD] = line
    state.stream[which, STEP] += step
    state.stream[which, LINE] = line
    if state.stream[which, STEP] * step < state.geometry[level, CONFIRM]:
        return
    if (state.stream[which, AHEAD] - line) * step < 0:
        state.stream[which, AHEAD] = line
    room = min(
        (line + step * state.geometry[level, DISTANCE] - state.stream[which, AHEAD]) * step,
        state.geometry[level, DEGREE],
    )
    while room > 0 and (state.stream[which, AHEAD] + step * room) >> page_shift != page:
        room -= 1
    for _ in range(room):
        state.stream[which, AHEAD] += step
        state.now[QUEUED] += 1
        state.stack[-state.now[QUEUED], 0] = level
        state.stack[-state.now[QUEUED], 1] = state.stream[which, AHEAD] << state.geometry[level, LINE_SHIFT]
