"""Stream prefetchers of a node's caches: the rules of ``memory.stream_prefetcher``, the streams of an instance in order
of use, the latest first."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner_inlined, separate


@inner_inlined
def _take_up(stream, first, num_streams, page):  # type: ignore[no-untyped-def]
    """The stream of a page, or else the one that was used least lately, becomes the first. O(streams)."""
    here = first
    while here < first + num_streams - 1 and stream[here].page != page:
        here += 1
    found, line, step, ahead = stream[here].page, stream[here].line, stream[here].step, stream[here].ahead
    while here > first:
        before = stream[here - 1]
        stream[here].page, stream[here].line = before.page, before.line
        stream[here].step, stream[here].ahead = before.step, before.ahead
        here -= 1
    stream[first].page, stream[first].line, stream[first].step, stream[first].ahead = found, line, step, ahead


@separate
def follow(streams, each, first_slot, line):  # type: ignore[no-untyped-def]
    """A load or store has reached a level: how many lines to fetch, after which, in which direction (1 or -1).
    O(streams)."""
    first = each.first_stream + (first_slot - each.first) // each.slots * each.streams
    page = line >> each.page_shift
    _take_up(streams, first, each.streams, page)
    stream = streams[first]
    step = line - stream.line
    if stream.page == page and step == 0:
        return np.int64(0), line, step
    if stream.page != page or (step != 1 and step != -1):
        stream.page = page
        stream.line = line
        stream.step = 0
        stream.ahead = line
        return np.int64(0), line, step
    if stream.step * step < 0:
        stream.step = 0
        stream.ahead = line
    stream.step += step
    stream.line = line
    if stream.step * step < each.confirm:
        return np.int64(0), line, step
    if (stream.ahead - line) * step < 0:
        stream.ahead = line
    ahead = stream.ahead
    room = min((line + step * each.distance - ahead) * step, each.degree)
    while room > 0 and (ahead + step * room) >> each.page_shift != page:
        room -= 1
    stream.ahead += step * max(room, 0)
    return max(room, 0), ahead, step
