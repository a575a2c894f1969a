"""L1 of an SM: lines with sectors, LRU, outstanding misses with those who wait for them.

What it does in which case is Accel-Sim's sector cache with allocation on a miss and lazy fetch on a read: a write of
part of a sector leaves it unreadable until it is fetched or written whole. Cost: O(1) for each request, but for the
search of a frame to replace, which skips lines on their way.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm_limits import EVICT, SEND_QUEUE
from manyscale.models.gpu.sm_state import (
    DIRTY_LINES, FREE_NODES, L1_PENDING_HITS, L1_READ_MISSES, L1_READS, L1_WRITE_MISSES, L1_WRITES, LAST_SENT,
    MISSES, OUT, STORES,
)  # fmt: skip
from manyscale.models.kernels import allocation_free, inlined

HIT: Final = 0  # outcomes of a lookup
SENT: Final = 1  # a miss that is on its way, or a write
BLOCKED: Final = 2  # no room until something is filled
FULL: Final = 3  # no room in the queue of what is sent: next cycle


@inlined
def _bucket(sm, line):  # type: ignore[no-untyped-def]
    return (line ^ (line >> 9)) & (sm.bucket.shape[1] - 1)


@inlined
def find(sm, s, line):  # type: ignore[no-untyped-def]
    frame = sm.bucket[s, _bucket(sm, line)]
    while frame >= 0 and sm.tag[s, frame] != line:
        frame = sm.chain[s, frame]
    return frame


@inlined
def touch(sm, s, frame, index):  # type: ignore[no-untyped-def]
    """Make a frame the newest of its set."""
    first = sm.newest[s, index]
    if first == frame:
        return
    newer, older = sm.newer[s, frame], sm.older[s, frame]
    sm.older[s, newer] = older
    if older >= 0:
        sm.newer[s, older] = newer
    else:
        sm.oldest[s, index] = newer
    sm.newer[s, first] = frame
    sm.older[s, frame] = first
    sm.newer[s, frame] = -1
    sm.newest[s, index] = frame


@allocation_free
def replace(sm, s, line, index, dirty_limit):  # type: ignore[no-untyped-def]
    """The frame that ``line`` gets, emptied; -1 if all are on their way."""
    number = sm.number[s]
    frame = sm.oldest[s, index]
    while frame >= 0:
        if sm.pending[s, frame] == 0 and (sm.dirty[s, frame] == 0 or number[DIRTY_LINES] >= dirty_limit):
            break
        frame = sm.newer[s, frame]
    if frame < 0:
        return frame
    old = sm.tag[s, frame]
    if old >= 0:
        place = _bucket(sm, old)
        at = sm.bucket[s, place]
        if at == frame:
            sm.bucket[s, place] = sm.chain[s, frame]
        else:
            while sm.chain[s, at] != frame:
                at = sm.chain[s, at]
            sm.chain[s, at] = sm.chain[s, frame]
        if sm.dirty[s, frame]:
            number[DIRTY_LINES] -= 1
    sm.tag[s, frame] = line
    sm.valid[s, frame] = 0
    sm.dirty[s, frame] = 0
    place = _bucket(sm, line)
    sm.chain[s, frame] = sm.bucket[s, place]
    sm.bucket[s, place] = frame
    touch(sm, s, frame, index)
    return frame


@inlined
def send(sm, s, time, request, written, tag):  # type: ignore[no-untyped-def]
    """One request a cycle leaves an SM; this one at ``time`` or when those before it have left."""
    number = sm.number[s]
    at = max(time, number[LAST_SENT] + 1)
    number[LAST_SENT] = at
    row = number[OUT]
    sm.out_time[s, row] = at
    sm.out_request[s, row] = request
    sm.out_written[s, row] = written
    sm.out_tag[s, row] = tag
    number[OUT] = row + 1


@allocation_free
def read(sm, s, limits, request, load, time):  # type: ignore[no-untyped-def]
    """A load's request is looked up at ``time``: the outcome."""
    number = sm.number[s]
    line = request // limits.sectors
    sector = request - line * limits.sectors
    bit = 1 << sector
    index = line % limits.sets
    frame = find(sm, s, line)
    if frame >= 0:
        if sm.valid[s, frame] & bit:
            touch(sm, s, frame, index)
            number[L1_READS] += 1
            return HIT
        if sm.pending[s, frame] & bit:
            if sm.waiting_count[s, frame, sector] >= limits.merges or number[FREE_NODES] == 0:
                return BLOCKED
            if number[LAST_SENT] - time >= SEND_QUEUE:  # also asked of those that send nothing (Accel-Sim)
                return FULL
            touch(sm, s, frame, index)
            number[L1_READS] += 1
            number[L1_PENDING_HITS] += 1
            _wait(sm, s, frame, sector, load)
            return SENT
    if number[LAST_SENT] - time >= SEND_QUEUE:
        return FULL
    if number[MISSES] >= limits.mshrs or number[FREE_NODES] == 0:
        return BLOCKED
    if frame < 0:
        frame = replace(sm, s, line, index, limits.dirty_limit)
        if frame < 0:
            return BLOCKED
    else:
        touch(sm, s, frame, index)
    sm.bytes_written[s, frame, sector] = 0
    number[L1_READS] += 1
    number[L1_READ_MISSES] += 1
    number[MISSES] += 1
    sm.pending[s, frame] |= bit
    _wait(sm, s, frame, sector, load)
    send(sm, s, time + 1, request, 0, frame * limits.sectors + sector)
    return SENT


@inlined
def _wait(sm, s, frame, sector, load):  # type: ignore[no-untyped-def]
    number = sm.number[s]
    number[FREE_NODES] -= 1
    node = sm.node_free[s, number[FREE_NODES]]
    sm.node_load[s, node] = load
    sm.node_next[s, node] = -1
    if sm.waiting[s, frame, sector] < 0:
        sm.waiting[s, frame, sector] = node
        sm.waiting_count[s, frame, sector] = 1
    else:
        sm.node_next[s, sm.waiting_last[s, frame, sector]] = node
        sm.waiting_count[s, frame, sector] += 1
    sm.waiting_last[s, frame, sector] = node


@allocation_free
def write(sm, s, limits, request, written, warp, time):  # type: ignore[no-untyped-def]
    """A store's request is looked up at ``time``, and sent on: the outcome."""
    number = sm.number[s]
    if number[LAST_SENT] - time >= SEND_QUEUE:
        return FULL
    line = request // limits.sectors
    sector = request - line * limits.sectors
    bit = 1 << sector
    index = line % limits.sets
    frame = find(sm, s, line)
    hit = frame >= 0 and ((sm.valid[s, frame] | sm.dirty[s, frame]) & bit) != 0
    if limits.write == EVICT:
        if hit and not sm.pending[s, frame] & bit:
            sm.valid[s, frame] &= ~bit
    elif frame >= 0 or limits.write_allocate:
        if frame < 0:
            frame = replace(sm, s, line, index, limits.dirty_limit)
            if frame < 0:
                return BLOCKED
        else:
            touch(sm, s, frame, index)
        if sm.dirty[s, frame] == 0:
            number[DIRTY_LINES] += 1
        if sm.dirty[s, frame] & bit == 0:
            sm.bytes_written[s, frame, sector] = 0
        sm.dirty[s, frame] |= bit
        sm.bytes_written[s, frame, sector] |= written
        if sm.bytes_written[s, frame, sector] == limits.full:
            sm.valid[s, frame] |= bit
    number[L1_WRITES] += 1
    if not hit:
        number[L1_WRITE_MISSES] += 1
    send(sm, s, time + 1, request, written, STORES + warp)
    return SENT


@allocation_free
def forget_all(sm, s):  # type: ignore[no-untyped-def]
    """Empty L1 (nothing is on its way). O(frames)."""
    sm.tag[s, :] = -1
    sm.valid[s, :] = 0
    sm.dirty[s, :] = 0
    sm.bucket[s, :] = -1
    sm.number[s, DIRTY_LINES] = 0


