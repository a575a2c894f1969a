"""A channel of DRAM: of the requests that have arrived the one whose column command can be earliest is served (first
ready, first come first served); rows stay open. Banks are refreshed one after the other, each when that is due or once
what it does is over.

When a request is chosen, all that wait have arrived: those of a bank that are of one kind (reads or writes, of the row
that is open or of others) differ only in that, so that the first of them is the one to look at.

Cost: O(banks + requests that wait for one of them) for each that is served.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.memory_state import (
    ACTIVATED,
    ARRIVAL,
    BANK_LANES,
    COLUMN_FROM,
    DRAM_READS,
    DRAM_WRITES,
    GROUP_FROM,
    HITS,
    ORDER,
    PAST,
    PRECHARGE_FROM,
    ROW_HITS,
    TO_PRECHARGE,
)
from manyscale.models.kernels import inner, merged, read_soon, seldom, separate

_FEW: Final = 4
_TO_DRAM: Final = 4  # queues from L2 to DRAM and back, beside DRAM's latency


@merged
def _bank_row(request, limits):  # type: ignore[no-untyped-def]
    """Bank and row of a request inside its channel. As in Accel-Sim's mapping, the lowest bit of the bank stands above
    the line, the others above the row's columns."""
    address = request << limits.request_shift
    low = (address >> limits.index_shift) & 1
    inside = address // (limits.channels << (limits.index_shift + 1))
    columns = limits.row_shift - limits.index_shift
    bank = ((inside >> columns) << 1 | low) & (limits.banks - 1)
    return bank, inside // (max(1, limits.banks >> 1) << columns)


@merged
def taken(mem, which, nodes):  # type: ignore[no-untyped-def]
    """A free one of ``nodes``: L2's (``which`` 0), or DRAM's (1)."""
    mem.free[which] -= 1
    number = mem.freed[which]
    if number >= 0:
        mem.freed[which] = nodes[number].next
    else:
        number = mem.used[which]
        mem.used[which] += 1
    return number


@merged
def give_back(mem, which, nodes, number):  # type: ignore[no-untyped-def]
    """What `taken` gave."""
    nodes[number].next = mem.freed[which]
    mem.freed[which] = number
    mem.free[which] += 1


@separate
def to_dram(mem, limits, c, time, request, place):  # type: ignore[no-untyped-def]
    """A request sets out at ``time``. ``place``: as in DRAM."""
    number = taken(mem, 1, mem.dram)
    node = mem.dram[number]
    channel = mem.channel[c]
    at = max(time, channel.last_way)
    channel.last_way = at
    channel.writes += place < 0
    node.time = at + limits.dram_latency + _TO_DRAM
    node.place = place
    node.next = -1
    node.bank = node.row = 0
    if limits.simple == 0:
        node.bank, node.row = _bank_row(request, limits)
    if channel.way_head < 0:
        channel.way_head = number
    else:
        mem.dram[channel.way_tail].next = number
    channel.way_tail = number


@merged
def _stand_first(mem, c, place, kind):  # type: ignore[no-untyped-def]
    """A request is the first of its kind that waits for its bank."""
    own = mem.waiting[c, place]
    mem.first[c, kind, own.bank] = place
    mem.bank_from[c, ARRIVAL + kind, own.bank] = own.time
    mem.bank_from[c, ORDER + kind, own.bank] = own.order


@separate
def wait_for_dram(mem, c):  # type: ignore[no-untyped-def]
    """The first request that is on its way arrives."""
    channel = mem.channel[c]
    number = channel.way_head
    node = mem.dram[number]
    channel.way_head = node.next
    if node.next >= 0:
        read_soon(mem.dram, np.int64(mem.dram[node.next].next))
    place = channel.free_place
    own = mem.waiting[c, place]
    channel.free_place = own.next
    own.time = node.time
    own.order = channel.arrived
    own.row = node.row
    own.node = number
    own.bank = node.bank
    own.is_write = 1 if node.place < 0 else 0
    own.newer = -1
    channel.arrived += 1
    if channel.queued == 0:
        channel.oldest = place
    else:
        mem.waiting[c, channel.newest].newer = place
    own.older = channel.newest
    channel.newest = place
    channel.queued += 1
    bank = mem.bank[c, own.bank]
    if bank.head < 0:
        bank.head = place
    else:
        mem.waiting[c, bank.tail].next = place
    own.before = bank.tail
    own.next = -1
    bank.tail = place
    kind = own.is_write if own.row == bank.row else HITS + own.is_write
    if mem.bank_from[c, ARRIVAL + kind, own.bank] == np.inf:
        _stand_first(mem, c, place, kind)


@merged
def _activation(limits, channel, times, b, arrival):  # type: ignore[no-untyped-def]
    """When bank ``b`` can be activated for a request."""
    from_bank = max(times[ACTIVATED, b] + limits.rc, max(times[PRECHARGE_FROM, b], arrival) + times[TO_PRECHARGE, b])
    return max(max(arrival, channel.activate_from), from_bank)


@merged
def _activate(limits, channel, time):  # type: ignore[no-untyped-def]
    """A bank is activated: when the next one can be."""
    channel.activate_from = max(channel.activate_from, time + limits.rrd)
    if limits.faw > 0:
        channel.activate_from = max(channel.activate_from, channel.activated_2 + limits.faw)
        channel.activated_2 = channel.activated_1
        channel.activated_1 = channel.activated_0
        channel.activated_0 = time


@merged
def _at_once(mem, limits, c, now):  # type: ignore[no-untyped-def]
    """The place of the first request, of the few that wait for longest, whose column command can be given ``now``; -1:
    of none of them."""
    channel = mem.channel[c]
    times = mem.bank_from[c]
    of_reads, of_writes = channel.write_end + limits.cdlr, channel.last_read + limits.rtw
    at = np.int64(channel.oldest)
    for _ in range(_FEW):
        if at < 0:
            break
        own = mem.waiting[c, at]
        b = own.bank
        if times[GROUP_FROM, b] <= now and (of_writes if own.is_write else of_reads) <= now:
            if mem.bank[c, b].row == own.row:
                if times[COLUMN_FROM, b] <= now:
                    break
            elif _activation(limits, channel, times, b, float(own.time)) + limits.rcd <= now:
                break
        at = np.int64(own.newer)
    else:
        at = np.int64(-1)
    return at


@merged
def _first_of(one, other):  # type: ignore[no-untyped-def]
    """Of two requests (when, order, kind) the one whose column command can be given first, or that arrived first."""
    is_other = (other[0] < one[0]) | ((other[0] == one[0]) & (other[1] < one[1]))
    return (
        other[0] if is_other else one[0],
        other[1] if is_other else one[1],
        other[2] if is_other else one[2],
    )


@separate
def _choose(mem, limits, c, now):  # type: ignore[no-untyped-def]
    """The place of the request whose column command can be given first, of several that of the one that arrived first;
    and when that is. (The loop over lanes has no branches and a fixed length, so that the compiler makes vector
    instructions of it.)"""
    channel = mem.channel[c]
    times, earliest = mem.bank_from[c], mem.earliest
    of_reads, of_writes = max(now, channel.write_end + limits.cdlr), max(now, channel.last_read + limits.rtw)
    activate, rc, rcd = channel.activate_from, limits.rc, limits.rcd
    best = (np.inf, np.inf, 0.0)
    chosen = 0
    for begin in range(0, times.shape[1], BANK_LANES):
        for i in range(BANK_LANES):
            b = begin + i
            from_group, column_from = times[GROUP_FROM, b], times[COLUMN_FROM, b]
            precharge_from, to_precharge = times[PRECHARGE_FROM, b], times[TO_PRECHARGE, b]
            write_from, read_from = max(of_writes, from_group), max(of_reads, from_group)
            activated = max(activate, times[ACTIVATED, b] + rc)
            read, write = times[ARRIVAL + HITS, b], times[ARRIVAL + HITS + 1, b]
            read_at = max(max(activated, read), max(precharge_from, read) + to_precharge) + rcd
            write_at = max(max(activated, write), max(precharge_from, write) + to_precharge) + rcd
            hits = _first_of(
                (max(max(read_from, column_from), times[ARRIVAL, b]), times[ORDER, b], 0.0),
                (max(max(write_from, column_from), times[ARRIVAL + 1, b]), times[ORDER + 1, b], 1.0),
            )
            others = _first_of(
                (max(read_from, read_at), times[ORDER + 2, b], 2.0),
                (max(write_from, write_at), times[ORDER + 3, b], 3.0),
            )
            earliest[0, i], earliest[1, i], earliest[2, i] = _first_of(hits, others)
        for i in range(BANK_LANES):
            if earliest[0, i] < best[0] or (earliest[0, i] == best[0] and earliest[1, i] < best[1]):
                best = (earliest[0, i], earliest[1, i], earliest[2, i])
                chosen = begin + i
    return mem.first[c, np.int64(best[2]), chosen], best[0]


@separate
def _leave(mem, limits, c, place, row):  # type: ignore[no-untyped-def]
    """A request does not wait any more; its bank's ``row`` is open from now on."""
    channel = mem.channel[c]
    waiting = mem.waiting[c]
    own = waiting[place]
    b = own.bank
    bank = mem.bank[c, b]
    at = np.int64(own.next)
    if bank.head == place:
        bank.head = own.next
    else:
        waiting[own.before].next = own.next
    if bank.tail == place:
        bank.tail = own.before
    else:
        waiting[own.next].before = own.before
    if channel.oldest == place:
        channel.oldest = own.newer
    else:
        waiting[own.older].newer = own.newer
    if channel.newest == place:
        channel.newest = own.older
    else:
        waiting[own.newer].older = own.older
    if row == bank.row:
        kind = own.is_write
        mem.bank_from[c, ARRIVAL + kind, b] = np.inf
        while at >= 0 and (waiting[at].row != row or waiting[at].is_write != kind):
            at = np.int64(waiting[at].next)
        if at >= 0:
            _stand_first(mem, c, at, kind)
    else:
        _open(mem, c, b, row)
    own.next = channel.free_place
    channel.free_place = place
    channel.queued -= 1


@inner
def _open(mem, c, b, row):  # type: ignore[no-untyped-def]
    """Another row of a bank is open (-1: none): which of those that wait are of it."""
    bank = mem.bank[c, b]
    bank.row = row
    for kind in range(2 * HITS):
        mem.bank_from[c, ARRIVAL + kind, b] = np.inf
    at = np.int64(bank.head)
    while at >= 0:
        other = mem.waiting[c, at]
        kind = other.is_write if other.row == row else HITS + other.is_write
        if mem.bank_from[c, ARRIVAL + kind, b] == np.inf:
            _stand_first(mem, c, at, kind)
        at = np.int64(other.next)


@seldom(gives="nothing")
def refresh(mem, limits, c, now):  # type: ignore[no-untyped-def]
    """Banks whose refresh is due at ``now`` are closed and refreshed, each when it has done what it was given."""
    channel = mem.channel[c]
    times = mem.bank_from[c]
    rounds = np.floor((now - channel.refresh_at) / (limits.refi * limits.banks)) - 1.0
    if rounds > 0:  # of an idle channel, only the last one may matter
        channel.refresh_at += rounds * limits.refi * limits.banks
    while channel.refresh_at <= now:
        b = channel.refresh_bank
        begin = max(channel.refresh_at, max(channel.refresh_at, times[PRECHARGE_FROM, b]) + times[TO_PRECHARGE, b])
        times[ACTIVATED, b] = begin + limits.rfc - limits.rc
        times[PRECHARGE_FROM, b] = times[TO_PRECHARGE, b] = PAST
        if mem.bank[c, b].row >= 0:
            _open(mem, c, b, -1)
        channel.refresh_bank = (b + 1) & (limits.banks - 1)
        channel.refresh_at += limits.refi


@merged
def _let_go(mem, limits, c, time):  # type: ignore[no-untyped-def]
    """There is room for lines that are written back: slices that are blocked look again."""
    for s in range(c * limits.channel_slices, (c + 1) * limits.channel_slices):
        own = mem.slice[s]
        if own.blocked:
            own.blocked = 0
            own.next_access = max(own.next_access, time << limits.port_shift)


@merged
def serve_dram(mem, limits, c):  # type: ignore[no-untyped-def]
    """Choose and serve a request of those that have arrived."""
    channel = mem.channel[c]
    column = max(float(mem.waiting[c, channel.oldest].time), channel.bus_free)
    place = np.int64(channel.oldest)
    if limits.simple == 0:
        if limits.refi > 0:
            refresh(mem, limits, c, column)
        place = _at_once(mem, limits, c, column)
        if place < 0:
            place, column = _choose(mem, limits, c, column)
    own = mem.waiting[c, place]
    number = own.node
    row = own.row
    node = mem.dram[number]
    if limits.simple == 0:
        b = own.bank
        times = mem.bank_from[c]
        if mem.bank[c, b].row != row:
            activate = _activation(limits, channel, times, b, float(own.time))
            times[ACTIVATED, b] = activate
            _activate(limits, channel, activate)
            times[COLUMN_FROM, b] = activate + limits.rcd
            times[PRECHARGE_FROM, b] = activate + limits.ras
            times[TO_PRECHARGE, b] = limits.rp
        else:
            mem.counts[c, ROW_HITS] += 1
        for other in range(b & (limits.bank_groups - 1), limits.banks, limits.bank_groups):
            times[GROUP_FROM, other] = column + limits.ccdl
        end = column + limits.burst + (limits.wl + limits.wr if own.is_write else 0.0)
        times[PRECHARGE_FROM, b] = max(times[PRECHARGE_FROM, b], end)
        if own.is_write:
            channel.write_end = column + limits.wl + limits.burst
        else:
            channel.last_read = column
    channel.bus_free = column + limits.burst
    _leave(mem, limits, c, place, row)
    if node.place < 0:
        mem.counts[c, DRAM_WRITES] += 1
        give_back(mem, 1, mem.dram, number)
        channel.writes -= 1
        if channel.writes == limits.writes - 1:
            _let_go(mem, limits, c, np.int64(column) + 1)
        return
    mem.counts[c, DRAM_READS] += 1
    read_soon(mem.miss[node.place >> 48, node.place >> 32 & 0xFFFF, node.place >> 16 & 0xFFFF], 0)
    node.time = np.int64(column + limits.cl)
    node.next = -1
    if channel.fill_head < 0:
        channel.fill_head = number
    else:
        node.time = max(node.time, mem.dram[channel.fill_tail].time)
        mem.dram[channel.fill_tail].next = number
    channel.fill_tail = number
