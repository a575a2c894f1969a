"""A slice of L2: lines with sectors, LRU, outstanding misses with those who wait for them.

One request a cycle is looked up, or as many as a slice's port is wide. A hit is answered a cycle later (as many replies
of a slice in a cycle). A miss takes an entry
of outstanding misses, to which others of the same sector are added, and goes to DRAM. Those for which an entry has no
room wait in the slice's side pool; where that has none either, the slice takes nothing until something is filled. A
write is answered when it is looked up: L2 writes back what it evicts.

Cost: O(ways) for each lookup.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.dram.kernel import give_back, taken, to_dram
from manyscale.models.gpu.memory_state import (
    L2_PENDING_HITS,
    L2_READ_MISSES,
    L2_READS,
    L2_WRITE_MISSES,
    L2_WRITES,
)
from manyscale.models.gpu.sm.state import FROM_DRAM, FROM_L2, STORES
from manyscale.models.kernels import inner_inlined, merged, read_soon, separate

_AHEAD: Final = 3  # requests of a slice: the one whose tags are brought into the host's caches


@inner_inlined
def _reply(mem, limits, s, sm, tag, time, level):  # type: ignore[no-untyped-def]
    own = mem.slice[s]
    own.last_reply = max((time + 1) << limits.port_shift, own.last_reply + 1)
    reply = mem.reply[mem.replies[0]]
    mem.replies[0] += 1
    reply.time = own.last_reply >> limits.port_shift
    reply.sm = sm
    reply.tag = tag
    reply.level = level


@inner_inlined
def _wait(mem, entry):  # type: ignore[no-untyped-def]
    """A request waits for its sector: the number of its node."""
    number = taken(mem, 0, mem.node)
    node = mem.node[number]
    node.written = entry.written
    node.tag = entry.tag
    node.sm = entry.sm
    node.next = -1
    return number


@separate
def _frame(mem, limits, c, s, index, line, time):  # type: ignore[no-untyped-def]
    """The way of a set that a new line gets; what was written is written back. -1: it must wait for one on its way."""
    ways = mem.line[s, index]
    tags = mem.tag[s, index]
    last_use = mem.last_use[s, index]
    own = mem.slice[s]
    best = -1
    oldest = -1
    waits = False
    for way in range(limits.ways):
        frame = ways[way]
        if frame.pending:
            waits = True
            continue
        if frame.dirty and own.dirty_lines < limits.dirty_limit:
            if oldest < 0 or last_use[way] < last_use[oldest]:
                oldest = way
            continue
        if tags[way] < 0:
            best = way
            break
        if best < 0 or last_use[way] < last_use[best]:
            best = way
    if best < 0 and not waits:  # all were written, and none will ever be filled
        best = oldest
    if best < 0:
        return best
    frame = ways[best]
    if frame.dirty:
        own.dirty_lines -= 1
        written = 0
        for sector in range(1 << limits.sector_shift):
            if frame.dirty >> sector & 1:
                to_dram(mem, limits, c, time, (tags[best] << limits.sector_shift) + sector, -1)
                written += 1
        own.next_access += written  # the line is read out
    tags[best] = line
    frame.valid = 0
    frame.dirty = 0
    return best


@merged
def sector_of(request, limits):  # type: ignore[no-untyped-def]
    """The sector of a request inside its line."""
    return request & ((1 << limits.sector_shift) - 1)


@inner_inlined
def find(mem, limits, s, index, line):  # type: ignore[no-untyped-def]
    """The way of a line, -1: none."""
    tags = mem.tag[s, index]
    for way in range(limits.ways):
        if tags[way] == line:
            return way
    return -1


@merged
def use(mem, c, s, index, way):  # type: ignore[no-untyped-def]
    """Make a line the newest."""
    mem.channel[c].uses += 1
    mem.last_use[s, index, way] = mem.channel[c].uses


@inner_inlined
def mark_written(mem, limits, s, frame, miss, bit, written):  # type: ignore[no-untyped-def]
    """Bytes of a sector were written to. (Which they were matters until it can be read.)"""
    if frame.dirty == 0:
        mem.slice[s].dirty_lines += 1
    if frame.valid & bit == 0:
        if written == limits.full:
            frame.valid |= bit
        else:
            miss.written = written | (miss.written if frame.dirty & bit else 0)
            if miss.written == limits.full:
                frame.valid |= bit
    frame.dirty |= bit


@merged
def _write(mem, limits, c, s, entry, index, way, time):  # type: ignore[no-untyped-def]
    """A store is looked up; False if it must wait for a fill."""
    sector = sector_of(entry.request, limits)
    bit = 1 << sector
    hit = False  # (a sector on its way counts as one, as in Accel-Sim)
    if way >= 0:
        frame = mem.line[s, index, way]
        hit = ((frame.valid | frame.dirty | frame.pending) & bit) != 0
    if way < 0 and mem.channel[c].writes >= limits.writes:
        return False
    if way < 0 and limits.write_allocate:
        way = _frame(mem, limits, c, s, index, entry.request >> limits.sector_shift, time)
        if way < 0:
            return False
    if way >= 0:
        frame = mem.line[s, index, way]
        use(mem, c, s, index, way)
        mark_written(mem, limits, s, frame, mem.miss[s, index, way, sector], bit, entry.written)
    else:
        to_dram(mem, limits, c, time, entry.request, -1)
    mem.counts[c, L2_WRITES] += 1
    if not hit:
        mem.counts[c, L2_WRITE_MISSES] += 1
    _reply(mem, limits, s, entry.sm, entry.tag, time, FROM_L2)
    return True


@merged
def _read(mem, limits, c, s, entry, index, way, time):  # type: ignore[no-untyped-def]
    """A load or an atomic is looked up; False if it must wait for a fill."""
    sector = sector_of(entry.request, limits)
    bit = 1 << sector
    counts = mem.counts[c]
    if way >= 0:
        frame = mem.line[s, index, way]
        miss = mem.miss[s, index, way, sector]
        if frame.valid & bit:
            counts[L2_READS] += 1
            use(mem, c, s, index, way)
            if entry.written:
                mark_written(mem, limits, s, frame, miss, bit, entry.written)
            _reply(mem, limits, s, entry.sm, entry.tag, time, FROM_L2)
            return True
        if frame.pending & bit:
            if miss.count >= limits.merges:
                if mem.slice[s].aside >= limits.side_pool:
                    return False
                mem.slice[s].aside += 1
            counts[L2_READS] += 1
            counts[L2_PENDING_HITS] += 1
            use(mem, c, s, index, way)
            number = _wait(mem, entry)
            mem.node[miss.last].next = number
            miss.last = number
            miss.count += 1
            return True
    if mem.slice[s].misses >= limits.mshrs:
        return False
    if way < 0 and mem.channel[c].writes >= limits.writes:
        return False
    if way < 0:
        way = _frame(mem, limits, c, s, index, entry.request >> limits.sector_shift, time)
        if way < 0:
            return False
    frame = mem.line[s, index, way]
    miss = mem.miss[s, index, way, sector]
    counts[L2_READS] += 1
    counts[L2_READ_MISSES] += 1
    use(mem, c, s, index, way)
    mem.slice[s].misses += 1
    frame.pending |= bit
    number = _wait(mem, entry)
    miss.first = number + 1
    miss.last = number
    miss.count = 1
    to_dram(mem, limits, c, time, entry.request, ((s << 16 | index) << 16 | way) << 16 | sector)
    return True


@merged
def look_up(mem, limits, c, s, time):  # type: ignore[no-untyped-def]
    """The first request of a slice is looked up; if it must wait for a fill, or for lines to be written back, the slice
    is blocked."""
    own = mem.slice[s]
    own.next_access = max(own.next_access, time << limits.port_shift) + 1
    mask = mem.arrived.shape[1] - 1
    entry = mem.arrived[s, own.head & mask]
    ahead = mem.arrived[s, (own.head + _AHEAD) & mask].index & limits.set_mask
    tags = mem.tag[s, ahead]
    read_soon(tags, 0)
    read_soon(tags, 8)
    read_soon(mem.line[s, ahead], 0)
    index = entry.index
    way = find(mem, limits, s, index, entry.request >> limits.sector_shift)
    if entry.tag >= STORES:
        done = _write(mem, limits, c, s, entry, index, way, time)
    else:
        done = _read(mem, limits, c, s, entry, index, way, time)
    if done:
        mem.in_flight[0] -= 1
        own.head += 1
        if own.head == own.tail:
            own.head = own.tail = 0
    else:
        own.blocked = 1


@merged
def _of_place(place):  # type: ignore[no-untyped-def]
    """Set, slice, sector and way of a sector that is read."""
    return place >> 32 & 0xFFFF, place >> 48, place & 0xFFFF, place >> 16 & 0xFFFF


@merged
def fill(mem, limits, c):  # type: ignore[no-untyped-def]
    """Data of DRAM arrive: those who wait are answered, one a cycle."""
    channel = mem.channel[c]
    number = channel.fill_head
    node = mem.dram[number]
    channel.fill_head = node.next
    time = node.time
    place = node.place
    give_back(mem, 1, mem.dram, number)
    if channel.fill_head >= 0:
        index, s, sector, way = _of_place(mem.dram[channel.fill_head].place)
        read_soon(mem.node, np.int64(mem.miss[s, index, way, sector].first) - 1)
    index, s, sector, way = _of_place(place)
    own = mem.slice[s]
    frame = mem.line[s, index, way]
    miss = mem.miss[s, index, way, sector]
    bit = 1 << sector
    frame.pending &= ~bit
    frame.valid |= bit
    own.misses -= 1
    own.aside -= max(0, miss.count - limits.merges)
    waiting = miss.first - 1
    miss.first = 0
    while waiting >= 0:
        node = mem.node[waiting]
        following = node.next
        if node.written:
            mark_written(mem, limits, s, frame, miss, bit, node.written)
        _reply(mem, limits, s, node.sm, node.tag, time, FROM_DRAM)
        give_back(mem, 0, mem.node, waiting)
        waiting = following
    if own.blocked:
        own.blocked = 0
        own.next_access = max(own.next_access, (time + 1) << limits.port_shift)
