"""L1 of an SM: lines with sectors, LRU, outstanding misses with those who wait for them.

What it does in which case is Accel-Sim's sector cache with allocation on a miss and lazy fetch on a read: a write of
part of a sector leaves it unreadable until it is fetched or written whole. Cost: O(1) for each request, but for the
search of a frame to replace, which skips lines on their way.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm_limits import EVICT, SEND_QUEUE
from manyscale.models.gpu.sm_state import STORES
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
    """The frame of a line, -1: none."""
    frames = sm.frame[s]
    at = sm.bucket[s, _bucket(sm, line)]
    while at >= 0 and frames[at].tag != line:
        at = frames[at].chain
    return at


@inlined
def touch(sm, s, at, index):  # type: ignore[no-untyped-def]
    """Make a frame the newest of its set."""
    first = sm.newest[s, index]
    if first == at:
        return
    frames = sm.frame[s]
    frame = frames[at]
    frames[frame.newer].older = frame.older
    if frame.older >= 0:
        frames[frame.older].newer = frame.newer
    else:
        sm.oldest[s, index] = frame.newer
    frames[first].newer = at
    frame.older = first
    frame.newer = -1
    sm.newest[s, index] = at


@allocation_free
def replace(sm, s, line, index, dirty_limit):  # type: ignore[no-untyped-def]
    """The frame that ``line`` gets, emptied; -1 if all are on their way."""
    core = sm.core[s]
    frames = sm.frame[s]
    at = sm.oldest[s, index]
    while at >= 0:
        if frames[at].pending == 0 and (frames[at].dirty == 0 or core.dirty_lines >= dirty_limit):
            break
        at = frames[at].newer
    if at < 0:
        return at
    frame = frames[at]
    if frame.tag >= 0:
        place = _bucket(sm, frame.tag)
        before = sm.bucket[s, place]
        if before == at:
            sm.bucket[s, place] = frame.chain
        else:
            while frames[before].chain != at:
                before = frames[before].chain
            frames[before].chain = frame.chain
        if frame.dirty:
            core.dirty_lines -= 1
    place = _bucket(sm, line)
    frame.tag = line
    frame.valid = 0
    frame.dirty = 0
    frame.chain = sm.bucket[s, place]
    sm.bucket[s, place] = at
    touch(sm, s, at, index)
    return at


@inlined
def send(sm, s, time, request, written, tag):  # type: ignore[no-untyped-def]
    """One request a cycle leaves an SM; this one at ``time`` or when those before it have left."""
    core = sm.core[s]
    core.last_sent = max(time, core.last_sent + 1)
    sent = sm.sent[s, core.out]
    sent.time = core.last_sent
    sent.request = request
    sent.written = written
    sent.tag = tag
    core.out += 1


@inlined
def _wait(sm, s, at, sector, load):  # type: ignore[no-untyped-def]
    core = sm.core[s]
    core.free_nodes -= 1
    number = sm.node_free[s, core.free_nodes]
    node = sm.node[s, number]
    node.load = load
    node.next = -1
    miss = sm.miss[s, at, sector]
    if miss.first < 0:
        miss.first = number
        miss.count = 1
    else:
        sm.node[s, miss.last].next = number
        miss.count += 1
    miss.last = number


@allocation_free
def read(sm, s, limits, request, load, time):  # type: ignore[no-untyped-def]
    """A load's request is looked up at ``time``: the outcome."""
    core = sm.core[s]
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    bit = 1 << sector
    index = line & limits.set_mask
    at = find(sm, s, line)
    if at >= 0:
        frame = sm.frame[s, at]
        if frame.valid & bit:
            touch(sm, s, at, index)
            core.l1_reads += 1
            return HIT
        if frame.pending & bit:
            if sm.miss[s, at, sector].count >= limits.merges or core.free_nodes == 0:
                return BLOCKED
            if core.last_sent - time >= SEND_QUEUE:  # also asked of those that send nothing (Accel-Sim)
                return FULL
            touch(sm, s, at, index)
            core.l1_reads += 1
            core.l1_pending_hits += 1
            _wait(sm, s, at, sector, load)
            return SENT
    if core.last_sent - time >= SEND_QUEUE:
        return FULL
    if core.misses >= limits.mshrs or core.free_nodes == 0:
        return BLOCKED
    if at < 0:
        at = replace(sm, s, line, index, limits.dirty_limit)
        if at < 0:
            return BLOCKED
    else:
        touch(sm, s, at, index)
    core.l1_reads += 1
    core.l1_read_misses += 1
    core.misses += 1
    sm.miss[s, at, sector].written = 0
    sm.frame[s, at].pending |= bit
    _wait(sm, s, at, sector, load)
    send(sm, s, time + 1, request, 0, (at << limits.sector_shift) + sector)
    return SENT


@allocation_free
def write(sm, s, limits, request, written, warp, time):  # type: ignore[no-untyped-def]
    """A store's request is looked up at ``time``, and sent on: the outcome."""
    core = sm.core[s]
    if core.last_sent - time >= SEND_QUEUE:
        return FULL
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    bit = 1 << sector
    index = line & limits.set_mask
    at = find(sm, s, line)
    hit = at >= 0 and ((sm.frame[s, at].valid | sm.frame[s, at].dirty) & bit) != 0
    if limits.write == EVICT:
        if hit and not sm.frame[s, at].pending & bit:
            sm.frame[s, at].valid &= ~bit
    elif at >= 0 or limits.write_allocate:
        if at < 0:
            at = replace(sm, s, line, index, limits.dirty_limit)
            if at < 0:
                return BLOCKED
        else:
            touch(sm, s, at, index)
        frame = sm.frame[s, at]
        miss = sm.miss[s, at, sector]
        if frame.dirty == 0:
            core.dirty_lines += 1
        if frame.dirty & bit == 0:
            miss.written = 0
        frame.dirty |= bit
        miss.written |= written
        if miss.written == limits.full:
            frame.valid |= bit
    core.l1_writes += 1
    if not hit:
        core.l1_write_misses += 1
    send(sm, s, time + 1, request, written, STORES + warp)
    return SENT


@allocation_free
def forget_all(sm, s):  # type: ignore[no-untyped-def]
    """Empty L1 (nothing is on its way). O(frames)."""
    for at in range(sm.frame.shape[1]):
        frame = sm.frame[s, at]
        frame.tag = -1
        frame.valid = 0
        frame.dirty = 0
    for place in range(sm.bucket.shape[1]):
        sm.bucket[s, place] = -1
    sm.core[s].dirty_lines = 0
