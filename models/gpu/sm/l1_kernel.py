"""L1 of an SM: lines with sectors, LRU, outstanding misses with those who wait for them.

What it does in which case is Accel-Sim's sector cache with allocation on a miss and lazy fetch on a read: a write of
part of a sector leaves it unreadable until it is fetched or written whole. Cost: O(1) for each request, but for the
search of a frame to replace, which skips lines on their way.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm.limits import EVICT, SEND_QUEUE
from manyscale.models.gpu.sm.state import STORES, USES_PER_WAY
from manyscale.models.kernels import inner, inner_inlined, merged, separate

HIT: Final = 0  # outcomes of a lookup
SENT: Final = 1  # a miss that is on its way, or a write
BLOCKED: Final = 2  # no room until something is filled
FULL: Final = 3  # no room in the queue of what is sent: next cycle


@merged
def bucket_of(sm, line):  # type: ignore[no-untyped-def]
    return (line ^ (line >> 9)) & (sm.bucket.shape[0] - 1)


@inner_inlined
def find(sm, line):  # type: ignore[no-untyped-def]
    """The frame of a line, -1: none. Often it is the one that was found or taken last."""
    frames = sm.frame
    core = sm.core[0]
    at = core.last_frame
    if at >= 0 and frames[at].tag == line:
        return at
    at = sm.bucket[bucket_of(sm, line)] - 1
    while at >= 0 and frames[at].tag != line:
        at = frames[at].chain - 1
    if at >= 0:
        core.last_frame = at
    return at


@inner_inlined
def touch(sm, at, index):  # type: ignore[no-untyped-def]
    """Make a frame the newest of its set."""
    end = sm.use_end[index]
    if end > 0 and sm.use[index, end - 1] == at:
        return  # it is
    if end == sm.use.shape[1]:
        end = _forget_uses(sm, index)
    sm.use[index, end] = at
    sm.frame[at].last_use = end
    sm.use_end[index] = end + 1


@inner
def _forget_uses(sm, index):  # type: ignore[no-untyped-def]
    """Keep the last use of each frame: how many there are, as many as ways."""
    uses = sm.use[index]
    kept = 0
    for i in range(sm.use_begin[index], sm.use_end[index]):
        at = uses[i]
        if sm.frame[at].last_use == i:
            uses[kept] = at
            sm.frame[at].last_use = kept
            kept += 1
    sm.use_begin[index] = 0
    return kept


@inner_inlined
def _take(sm, at, line, index):  # type: ignore[no-untyped-def]
    frame = sm.frame[at]
    place = bucket_of(sm, line)
    frame.tag = line
    frame.valid = 0
    frame.dirty = 0
    frame.chain = sm.bucket[place]
    sm.bucket[place] = at + 1
    sm.core[0].last_frame = at
    touch(sm, at, index)


@separate
def replace(sm, line, index, dirty_limit):  # type: ignore[no-untyped-def]
    """The frame that ``line`` gets, emptied: the one that was not used for longest; -1 if it must wait for one on its
    way."""
    core = sm.core[0]
    frames = sm.frame
    uses = sm.use[index]
    at = -1
    if sm.filled[index] < sm.use.shape[1] // USES_PER_WAY:  # one that was never used
        at = index * (sm.use.shape[1] // USES_PER_WAY) + sm.filled[index]
        sm.filled[index] += 1
        frames[at].pending = 0
        _take(sm, at, line, index)
        return at
    oldest = -1
    waits = False
    for i in range(sm.use_begin[index], sm.use_end[index]):
        number = uses[i]
        if frames[number].last_use != i:
            if i == sm.use_begin[index]:
                sm.use_begin[index] += 1
            continue
        if frames[number].pending:
            waits = True
        elif frames[number].dirty == 0 or core.dirty_lines >= dirty_limit:
            at = number
            break
        elif oldest < 0:
            oldest = number
    if at < 0 and not waits:  # all were written, and none will ever be filled
        at = oldest
    if at < 0:
        return at
    frame = frames[at]
    place = bucket_of(sm, frame.tag)
    before = sm.bucket[place] - 1
    if before == at:
        sm.bucket[place] = frame.chain
    else:
        while frames[before].chain - 1 != at:
            before = frames[before].chain - 1
        frames[before].chain = frame.chain
    if frame.dirty:
        core.dirty_lines -= 1
    _take(sm, at, line, index)
    return at


@inner_inlined
def send(sm, limits, time, request, written, tag):  # type: ignore[no-untyped-def]
    """As many requests a cycle leave an SM as its port is wide; this one at ``time`` or when those before it have
    left."""
    core = sm.core[0]
    core.last_sent = max(time << limits.port_shift, core.last_sent + 1)
    sent = sm.sent[core.out]
    sent.time = core.last_sent >> limits.port_shift
    sent.request = request
    sent.written = written
    sent.tag = tag
    core.out += 1


@inner_inlined
def _wait_too(sm, at, sector, load):  # type: ignore[no-untyped-def]
    """One more load waits for a sector."""
    core = sm.core[0]
    core.free_nodes -= 1
    number = core.freed_node
    if number:
        core.freed_node = sm.node[number].next
    else:
        core.used_nodes += 1
        number = core.used_nodes
    node = sm.node[number]
    node.load = load
    node.next = 0
    miss = sm.miss[at, sector]
    if miss.count > 1:
        sm.node[miss.last].next = number
    else:
        miss.first = number
    miss.count += 1
    miss.last = number


@merged
def read(sm, limits, request, load, time):  # type: ignore[no-untyped-def]
    """A load's request is looked up at ``time``: the outcome."""
    core = sm.core[0]
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    bit = 1 << sector
    index = line & limits.set_mask
    at = find(sm, line)
    if at >= 0:
        frame = sm.frame[at]
        if frame.valid & bit:
            touch(sm, at, index)
            core.l1_reads += 1
            return HIT
        if frame.pending & bit:
            if sm.miss[at, sector].count >= limits.merges or core.free_nodes == 0:
                return BLOCKED
            # also asked of those that send nothing (Accel-Sim)
            if core.last_sent - (time << limits.port_shift) >= SEND_QUEUE:
                return FULL
            touch(sm, at, index)
            core.l1_reads += 1
            core.l1_pending_hits += 1
            _wait_too(sm, at, sector, load)
            return SENT
    if core.last_sent - (time << limits.port_shift) >= SEND_QUEUE:
        return FULL
    if core.misses >= limits.mshrs or core.free_nodes == 0:
        return BLOCKED
    if at < 0:
        at = replace(sm, line, index, limits.dirty_limit)
        if at < 0:
            return BLOCKED
    else:
        touch(sm, at, index)
    core.l1_reads += 1
    core.l1_read_misses += 1
    core.misses += 1
    frame = sm.frame[at]
    if frame.dirty & bit:
        sm.written[at, sector] = 0
    frame.pending |= bit
    core.free_nodes -= 1
    miss = sm.miss[at, sector]
    miss.load = load
    miss.count = 1
    send(sm, limits, time + 1, request, 0, (at << limits.sector_shift) + sector)
    return SENT


@merged
def write(sm, limits, request, written, warp, time):  # type: ignore[no-untyped-def]
    """A store's request is looked up at ``time``, and sent on: the outcome."""
    core = sm.core[0]
    if core.last_sent - (time << limits.port_shift) >= SEND_QUEUE:
        return FULL
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    bit = 1 << sector
    index = line & limits.set_mask
    at = find(sm, line)
    hit = at >= 0 and ((sm.frame[at].valid | sm.frame[at].dirty | sm.frame[at].pending) & bit) != 0
    if limits.write == EVICT:
        if hit and not sm.frame[at].pending & bit:
            sm.frame[at].valid &= ~bit
    elif at >= 0 or limits.write_allocate:
        if at < 0:
            at = replace(sm, line, index, limits.dirty_limit)
            if at < 0:
                return BLOCKED
        else:
            touch(sm, at, index)
        frame = sm.frame[at]
        if frame.dirty == 0:
            core.dirty_lines += 1
        if frame.valid & bit == 0:  # which bytes were written matters until it can be read
            if written == limits.full:
                frame.valid |= bit
            else:
                so_far = written | (sm.written[at, sector] if frame.dirty & bit else 0)
                sm.written[at, sector] = so_far
                if so_far == limits.full:
                    frame.valid |= bit
        frame.dirty |= bit
    core.l1_writes += 1
    if not hit:
        core.l1_write_misses += 1
    send(sm, limits, time + 1, request, written, STORES + warp)
    return SENT


@separate
def forget_all(sm):  # type: ignore[no-untyped-def]
    """Empty L1 (nothing is on its way). O(frames)."""
    if sm.core[0].last_frame < 0:
        return
    for place in range(sm.bucket.shape[0]):
        sm.bucket[place] = 0
    for index in range(sm.filled.shape[0]):
        sm.filled[index] = sm.use_begin[index] = sm.use_end[index] = 0
    sm.core[0].dirty_lines = 0
    sm.core[0].last_frame = -1
