"""L2 and DRAM of a group of channels, in order of time.

A request that leaves an SM at cycle q reaches its slice through the crossbar, which takes one of each SM and gives each
slice one a cycle; those of an SM pass in their order, so one that waits for its slice holds up those behind it. It is
looked up ``latency`` later, one a cycle. A hit is answered a cycle later (one reply of a slice a cycle). A miss
takes an entry of outstanding misses, to which others of the same sector are added, and goes to DRAM, where of the
requests that have arrived the one whose column command can be earliest is served (first ready, first come first
served); rows stay open. A write is answered when it is looked up: L2 writes back what it evicts.

Facts of the path (which queue takes how many cycles, slices by hashed address bits) are Accel-Sim's.

Cost: O(ways) for each lookup, O(requests that wait) for each of DRAM's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.memory_state import (
    DRAM_READS,
    DRAM_WRITES,
    L2_PENDING_HITS,
    L2_READ_MISSES,
    L2_READS,
    L2_WRITE_MISSES,
    L2_WRITES,
    ROW_HITS,
)  # fmt: skip
from manyscale.models.gpu.sm_state import FROM_DRAM, FROM_L2, NEVER, STORES
from manyscale.models.kernels import allocation_free, inlined, read_soon

_CROSSBAR: Final = 2  # from an SM to a slice's port
_LOOKUP: Final = 1  # from the end of the latency to the lookup
_TO_DRAM: Final = 4  # queues from L2 to DRAM and back, beside DRAM's latency


@inlined
def _parity(value):  # type: ignore[no-untyped-def]
    value ^= value >> 32
    value ^= value >> 16
    value ^= value >> 8
    value ^= value >> 4
    value ^= value >> 2
    value ^= value >> 1
    return value & 1


@inlined
def _hashed(index, high, masks, size):  # type: ignore[no-untyped-def]
    if len(masks) == 0:
        return (index ^ high) & (size - 1)
    for bit in range(len(masks)):
        index ^= _parity(high & masks[bit]) << bit
    return index


@inlined
def slice_of(request, limits):  # type: ignore[no-untyped-def]
    """The slice of a request among all of the GPU."""
    address = request << limits.request_shift
    slices = limits.channels * limits.channel_slices
    if limits.slice_shift < 0:
        line = address >> limits.index_shift
        return (line ^ (line >> 7) ^ (line >> 13)) % slices
    index = (address >> limits.index_shift) & (slices - 1)
    return _hashed(index, address >> limits.hash_shift, limits.hash_masks, slices)


@inlined
def _set_of(line, limits):  # type: ignore[no-untyped-def]
    slices = limits.channels * limits.channel_slices
    rest = line // slices if limits.slice_shift < 0 else line >> limits.slice_shift
    return _hashed(rest & limits.set_mask, rest >> limits.set_shift, limits.set_masks, limits.set_mask + 1)


@allocation_free
def enter(mem, limits, time, request, written, tag, sm):  # type: ignore[no-untyped-def]
    """A request that left an SM at ``time`` waits at its port of the crossbar. Those of an SM come in their order."""
    mem.free[0] -= 1
    node = mem.node_free[mem.free[0]]
    mem.node_time[node] = time + _CROSSBAR
    mem.node_request[node] = request
    mem.node_written[node] = written
    mem.node_tag[node] = tag
    mem.node_sm[node] = sm
    mem.node_next[node] = -1
    if mem.port_head[sm] < 0:
        mem.port_head[sm] = node
        mem.port_time[sm] = mem.node_time[node]
        mem.port_slice[sm] = slice_of(request, limits)
    else:
        mem.node_next[mem.port_tail[sm]] = node
    mem.port_tail[sm] = node


@allocation_free
def pass_crossbar(mem, limits, until):  # type: ignore[no-untyped-def]
    """Requests pass the crossbar whose turn is before those that leave an SM at ``until``.

    The slices choose one after the other: of the SMs whose first request is for it, the one whose turn it is, or the
    next one; the turn then is that of the one behind it (Accel-Sim's iSLIP, in which an SM may pass several requests in
    a cycle, to slices of rising numbers). O(SMs + slices) for each cycle in which one passes or waits.
    """
    num_sms = mem.port_head.shape[0]
    time = NEVER
    for sm in range(num_sms):
        time = min(time, mem.port_time[sm])
    time = max(time, mem.passed_until[0])
    mem.passed_until[0] = until + _CROSSBAR
    while time < until + _CROSSBAR:
        first = mem.chosen.shape[0]
        for sm in range(num_sms):
            if mem.port_time[sm] <= time:
                _choose(mem, sm, mem.port_slice[sm])
                first = min(first, mem.port_slice[sm])
        for number in range(first, mem.chosen.shape[0]):
            sm = mem.chosen[number]
            if sm >= 0:
                mem.chosen[number] = -1
                mem.turn[number] = sm + 1
                _pass(mem, limits, sm, number, time)
                if mem.port_time[sm] <= time and mem.port_slice[sm] > number:
                    _choose(mem, sm, mem.port_slice[sm])
        following = NEVER
        for sm in range(num_sms):
            following = min(following, mem.port_time[sm])
        time = max(time + 1, following)


@inlined
def _choose(mem, sm, number):  # type: ignore[no-untyped-def]
    """An SM wants to pass to a slice: it will if its turn is before that of the one chosen so far."""
    other = mem.chosen[number]
    turn = mem.turn[number]
    if other < 0 or ((sm < other) if (sm < turn) == (other < turn) else sm >= turn):
        mem.chosen[number] = sm


@allocation_free
def _pass(mem, limits, sm, number, time):  # type: ignore[no-untyped-def]
    """The first request of an SM passes to a slice."""
    node = mem.port_head[sm]
    following = mem.node_next[node]
    mem.port_head[sm] = following
    if following >= 0:
        mem.port_time[sm] = mem.node_time[following]
        mem.port_slice[sm] = slice_of(mem.node_request[following], limits)
    else:
        mem.port_time[sm] = NEVER
    c = number // limits.channel_slices - limits.first_channel
    if c < 0 or c >= mem.head.shape[0]:
        mem.node_free[mem.free[0]] = node
        mem.free[0] += 1
    else:
        _arrive(mem, limits, c, number % limits.channel_slices, node, time)


@inlined
def _arrive(mem, limits, c, p, node, time):  # type: ignore[no-untyped-def]
    """A request at its slice."""
    mem.node_time[node] = time + limits.latency + _LOOKUP
    mem.node_next[node] = -1
    if mem.head[c, p] < 0:
        mem.head[c, p] = node
    else:
        mem.node_next[mem.tail[c, p]] = node
    mem.tail[c, p] = node
    tags = mem.tag[c, p, _set_of(mem.node_request[node] >> limits.sector_shift, limits)]
    read_soon(tags, 0)
    read_soon(tags, 8)


@inlined
def _reply(mem, c, p, node, time, level):  # type: ignore[no-untyped-def]
    at = max(time + 1, mem.last_reply[c, p] + 1)
    mem.last_reply[c, p] = at
    row = mem.replies[0]
    mem.reply_time[row] = at
    mem.reply_sm[row] = mem.node_sm[node]
    mem.reply_tag[row] = mem.node_tag[node]
    mem.reply_level[row] = level
    mem.replies[0] = row + 1
    mem.node_free[mem.free[0]] = node
    mem.free[0] += 1


@inlined
def _bank_row(request, limits):  # type: ignore[no-untyped-def]
    """Bank and row of a request inside its channel. As in Accel-Sim's mapping, the lowest bit of the bank stands above
    the line, the others above the row's columns."""
    address = request << limits.request_shift
    low = (address >> limits.index_shift) & 1
    inside = address // (limits.channels << (limits.index_shift + 1))
    columns = limits.row_shift - limits.index_shift
    bank = ((inside >> columns) << 1 | low) & (limits.banks - 1)
    return bank, inside // (max(1, limits.banks >> 1) << columns)


@allocation_free
def _to_dram(mem, limits, c, time, request, place):  # type: ignore[no-untyped-def]
    mem.free[1] -= 1
    node = mem.dram_free[mem.free[1]]
    at = max(time, mem.last_way[c])
    mem.last_way[c] = at
    mem.dram_time[node] = at + limits.dram_latency + _TO_DRAM
    mem.dram_request[node] = request
    mem.dram_place[node] = place
    if limits.simple == 0:
        mem.dram_bank[node], mem.dram_row[node] = _bank_row(request, limits)
    mem.dram_next[node] = -1
    if mem.way_head[c] < 0:
        mem.way_head[c] = node
    else:
        mem.dram_next[mem.way_tail[c]] = node
    mem.way_tail[c] = node


@allocation_free
def is_room_short(mem, limits, more, cycles):  # type: ignore[no-untyped-def]
    """Whether ``more`` requests can be too many, with those in flight, for the next ``cycles``: each that is looked up
    may read a sector, and have a whole line written back."""
    looked_up = min(mem.node_time.shape[0] - mem.free[0] + more, mem.head.shape[0] * mem.head.shape[1] * (cycles + 1))
    return mem.free[0] < more or mem.free[1] < looked_up * (1 + (1 << limits.sector_shift))


@allocation_free
def _frame(mem, limits, c, p, index, line, time):  # type: ignore[no-untyped-def]
    """The way of a set that a new line gets; what was written is written back. -1: it must wait for one on its way."""
    ways = mem.line[c, p, index]
    tags = mem.tag[c, p, index]
    best = -1
    oldest = -1
    waits = False
    for way in range(limits.ways):
        frame = ways[way]
        if frame.pending:
            waits = True
            continue
        if frame.dirty and mem.dirty_lines[c, p] < limits.dirty_limit:
            if oldest < 0 or frame.used < ways[oldest].used:
                oldest = way
            continue
        if tags[way] < 0:
            best = way
            break
        if best < 0 or frame.used < ways[best].used:
            best = way
    if best < 0 and not waits:  # all were written, and none will ever be filled
        best = oldest
    if best < 0:
        return best
    frame = ways[best]
    if frame.dirty:
        mem.dirty_lines[c, p] -= 1
        written = 0
        for sector in range(1 << limits.sector_shift):
            if frame.dirty >> sector & 1:
                _to_dram(mem, limits, c, time, (tags[best] << limits.sector_shift) + sector, -1)
                written += 1
        mem.last_access[c, p] = time + written  # the line is read out, a sector a cycle
    tags[best] = line
    frame.valid = 0
    frame.dirty = 0
    return best


@inlined
def _find(mem, limits, c, p, index, line):  # type: ignore[no-untyped-def]
    tags = mem.tag[c, p, index]
    for way in range(limits.ways):
        if tags[way] == line:
            return way
    return -1


@inlined
def _use(mem, c, frame):  # type: ignore[no-untyped-def]
    mem.clock[c] += 1
    frame.used = mem.clock[c]


@inlined
def _mark_written(mem, limits, c, p, frame, miss, bit, written):  # type: ignore[no-untyped-def]
    if frame.dirty == 0:
        mem.dirty_lines[c, p] += 1
    if frame.dirty & bit == 0:
        miss.written = 0
    frame.dirty |= bit
    miss.written |= written
    if miss.written == limits.full:
        frame.valid |= bit


@inlined
def _write(mem, limits, c, p, node, index, way, sector, time):  # type: ignore[no-untyped-def]
    """A store is looked up; False if it must wait for a fill."""
    request = mem.node_request[node]
    bit = 1 << sector
    hit = False  # (a sector on its way counts as one, as in Accel-Sim)
    if way >= 0:
        frame = mem.line[c, p, index, way]
        hit = ((frame.valid | frame.dirty | frame.pending) & bit) != 0
    if way < 0 and limits.write_allocate:
        way = _frame(mem, limits, c, p, index, request >> limits.sector_shift, time)
        if way < 0:
            return False
    if way >= 0:
        frame = mem.line[c, p, index, way]
        _use(mem, c, frame)
        _mark_written(mem, limits, c, p, frame, mem.miss[c, p, index, way, sector], bit, mem.node_written[node])
    else:
        _to_dram(mem, limits, c, time, request, -1)
    mem.counts[c, L2_WRITES] += 1
    if not hit:
        mem.counts[c, L2_WRITE_MISSES] += 1
    _reply(mem, c, p, node, time, FROM_L2)
    return True


@inlined
def _read(mem, limits, c, p, node, index, way, sector, time):  # type: ignore[no-untyped-def]
    """A load or an atomic is looked up; False if it must wait for a fill."""
    request = mem.node_request[node]
    bit = 1 << sector
    counts = mem.counts[c]
    if way >= 0:
        frame = mem.line[c, p, index, way]
        miss = mem.miss[c, p, index, way, sector]
        if frame.valid & bit:
            counts[L2_READS] += 1
            _use(mem, c, frame)
            if mem.node_written[node]:
                _mark_written(mem, limits, c, p, frame, miss, bit, mem.node_written[node])
            _reply(mem, c, p, node, time, FROM_L2)
            return True
        if frame.pending & bit:
            if miss.count >= limits.merges:
                return False
            counts[L2_READS] += 1
            counts[L2_PENDING_HITS] += 1
            _use(mem, c, frame)
            mem.node_next[node] = -1
            mem.node_next[miss.last] = node
            miss.last = node
            miss.count += 1
            return True
    if mem.misses[c, p] >= limits.mshrs:
        return False
    if way < 0:
        way = _frame(mem, limits, c, p, index, request >> limits.sector_shift, time)
        if way < 0:
            return False
    frame = mem.line[c, p, index, way]
    miss = mem.miss[c, p, index, way, sector]
    counts[L2_READS] += 1
    counts[L2_READ_MISSES] += 1
    _use(mem, c, frame)
    mem.misses[c, p] += 1
    frame.pending |= bit
    mem.node_next[node] = -1
    miss.first = node + 1
    miss.last = node
    miss.count = 1
    _to_dram(mem, limits, c, time, request, ((p << 16 | index) << 16 | way) << 16 | sector)
    return True


@allocation_free
def _look_up(mem, limits, c, p, time):  # type: ignore[no-untyped-def]
    """The first request of a slice is looked up; False if it must wait for a fill."""
    node = mem.head[c, p]
    request = mem.node_request[node]
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    index = _set_of(line, limits)
    way = _find(mem, limits, c, p, index, line)
    following = mem.node_next[node]
    if mem.node_tag[node] >= STORES:
        done = _write(mem, limits, c, p, node, index, way, sector, time)
    else:
        done = _read(mem, limits, c, p, node, index, way, sector, time)
    if done:
        mem.head[c, p] = following
        if following < 0:
            mem.tail[c, p] = -1
    return done


@allocation_free
def _fill(mem, limits, c):  # type: ignore[no-untyped-def]
    """Data of DRAM arrive: those who wait are answered, one a cycle."""
    node = mem.fill_head[c]
    mem.fill_head[c] = mem.dram_next[node]
    if mem.fill_head[c] < 0:
        mem.fill_tail[c] = -1
    time = mem.dram_time[node]
    place = mem.dram_place[node]
    mem.dram_free[mem.free[1]] = node
    mem.free[1] += 1
    sector, way = place & 0xFFFF, place >> 16 & 0xFFFF
    index, p = place >> 32 & 0xFFFF, place >> 48
    frame = mem.line[c, p, index, way]
    miss = mem.miss[c, p, index, way, sector]
    bit = 1 << sector
    frame.pending &= ~bit
    frame.valid |= bit
    mem.misses[c, p] -= 1
    waiting = miss.first - 1
    miss.first = 0
    while waiting >= 0:
        following = mem.node_next[waiting]
        if mem.node_written[waiting]:
            _mark_written(mem, limits, c, p, frame, miss, bit, mem.node_written[waiting])
        _reply(mem, c, p, waiting, time, FROM_DRAM)
        waiting = following
    if mem.blocked[c, p]:
        mem.blocked[c, p] = False
        mem.last_access[c, p] = max(mem.last_access[c, p], time)


@allocation_free
def _serve_dram(mem, limits, c, time):  # type: ignore[no-untyped-def]
    """Choose and serve a request of those that have arrived at ``time``."""
    best = 0
    best_column = np.inf
    for i in range(mem.queued[c]):
        node = mem.queue[c, i]
        write = mem.dram_place[node] < 0
        earliest = max(float(mem.dram_time[node]), mem.bus_free[c])
        bank = mem.dram_bank[node]
        row = mem.dram_row[node]
        if limits.simple == 0:
            earliest = max(earliest, mem.group_from[c, bank & (limits.bank_groups - 1)])
            if not write:
                earliest = max(earliest, mem.write_end[c] + limits.cdlr)
            if mem.row[c, bank] == row:
                earliest = max(earliest, mem.column_from[c, bank])
            else:
                earliest = max(earliest, _activation(mem, limits, c, bank, mem.dram_time[node]) + limits.rcd)
        if earliest < best_column:
            best, best_column = i, earliest
            if earliest <= mem.bus_free[c] or limits.simple:
                break
    node = mem.queue[c, best]
    write = mem.dram_place[node] < 0
    bank = mem.dram_bank[node]
    if limits.simple == 0:
        if mem.row[c, bank] != mem.dram_row[node]:
            activate = _activation(mem, limits, c, bank, mem.dram_time[node])
            mem.activated[c, bank] = activate
            mem.last_activate[c] = max(mem.last_activate[c], activate)
            mem.row[c, bank] = mem.dram_row[node]
            mem.column_from[c, bank] = activate + limits.rcd
            mem.precharge_from[c, bank] = activate + limits.ras
        else:
            mem.counts[c, ROW_HITS] += 1
        mem.group_from[c, bank & (limits.bank_groups - 1)] = best_column + limits.ccdl
        end = best_column + limits.burst + (limits.wl + limits.wr if write else 0.0)
        mem.precharge_from[c, bank] = max(mem.precharge_from[c, bank], end)
        if write:
            mem.write_end[c] = best_column + limits.wl + limits.burst
    mem.bus_free[c] = best_column + limits.burst
    for i in range(best, mem.queued[c] - 1):
        mem.queue[c, i] = mem.queue[c, i + 1]
    mem.queued[c] -= 1
    if write:
        mem.counts[c, DRAM_WRITES] += 1
        mem.dram_free[mem.free[1]] = node
        mem.free[1] += 1
        return
    mem.counts[c, DRAM_READS] += 1
    mem.dram_time[node] = np.int64(best_column + limits.cl)
    mem.dram_next[node] = -1
    if mem.fill_head[c] < 0:
        mem.fill_head[c] = node
    else:
        mem.dram_time[node] = max(mem.dram_time[node], mem.dram_time[mem.fill_tail[c]])
        mem.dram_next[mem.fill_tail[c]] = node
    mem.fill_tail[c] = node


@inlined
def _activation(mem, limits, c, bank, arrival):  # type: ignore[no-untyped-def]
    """When a bank can be activated for a request."""
    earliest = max(float(arrival), mem.last_activate[c] + limits.rrd, mem.activated[c, bank] + limits.rc)
    if mem.row[c, bank] >= 0:
        earliest = max(earliest, max(mem.precharge_from[c, bank], float(arrival)) + limits.rp)
    return earliest


@allocation_free
def serve(mem, limits, until):  # type: ignore[no-untyped-def]
    """All that happens before cycle ``until``; replies are added to those of this exchange."""
    for c in range(mem.head.shape[0]):
        while True:
            kind = -1
            time = until
            if mem.fill_head[c] >= 0 and mem.dram_time[mem.fill_head[c]] < time:
                kind = 0
                time = mem.dram_time[mem.fill_head[c]]
            for p in range(limits.channel_slices):
                if mem.head[c, p] >= 0 and not mem.blocked[c, p]:
                    at = max(mem.node_time[mem.head[c, p]], mem.last_access[c, p] + 1)
                    if at < time:
                        kind = 3 + p
                        time = at
            if mem.way_head[c] >= 0 and mem.queued[c] < limits.queue and mem.dram_time[mem.way_head[c]] < time:
                kind = 1
                time = mem.dram_time[mem.way_head[c]]
            if mem.queued[c] > 0:
                at = max(mem.dram_time[mem.queue[c, 0]], np.int64(max(mem.bus_free[c], 0.0)))
                if at < time:
                    kind = 2
                    time = at
            if kind < 0:
                break
            if kind == 0:
                _fill(mem, limits, c)
            elif kind == 1:
                node = mem.way_head[c]
                mem.way_head[c] = mem.dram_next[node]
                if mem.way_head[c] < 0:
                    mem.way_tail[c] = -1
                mem.queue[c, mem.queued[c]] = node
                mem.queued[c] += 1
            elif kind == 2:
                _serve_dram(mem, limits, c, time)
            else:
                p = kind - 3
                mem.last_access[c, p] = time
                if not _look_up(mem, limits, c, p, time):
                    mem.blocked[c, p] = True


@allocation_free
def next_event(mem, limits):  # type: ignore[no-untyped-def]
    """The earliest time at which something may happen; NEVER: nothing is in flight."""
    earliest = np.int64(NEVER)
    for sm in range(mem.port_time.shape[0]):
        if mem.port_time[sm] < NEVER:
            earliest = mem.passed_until[0] - _CROSSBAR
    for c in range(mem.head.shape[0]):
        if mem.fill_head[c] >= 0:
            earliest = min(earliest, mem.dram_time[mem.fill_head[c]])
        if mem.way_head[c] >= 0:
            earliest = min(earliest, mem.dram_time[mem.way_head[c]])
        if mem.queued[c] > 0:
            earliest = min(earliest, np.int64(max(mem.bus_free[c], 0.0)))
        for p in range(limits.channel_slices):
            if mem.head[c, p] >= 0 and not mem.blocked[c, p]:
                earliest = min(earliest, mem.node_time[mem.head[c, p]])
    return earliest
