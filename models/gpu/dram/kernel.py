"""A channel of DRAM: of the requests that have arrived the one whose column command can be earliest is served (first
ready, first come first served); rows stay open.

Cost: O(requests that wait) for each that is served.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.memory_state import DRAM_READS, DRAM_WRITES, ROW_HITS
from manyscale.models.kernels import inner, inner_inlined, merged

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
def free_dram_node(mem, number):  # type: ignore[no-untyped-def]
    mem.dram[number].next = mem.freed[1]
    mem.freed[1] = number
    mem.free[1] += 1


@inner
def to_dram(mem, limits, c, time, request, place):  # type: ignore[no-untyped-def]
    """A request sets out at ``time``. ``place``: as in DRAM."""
    mem.free[1] -= 1
    number = mem.freed[1]
    if number >= 0:
        mem.freed[1] = mem.dram[number].next
    else:
        number = mem.used[1]
        mem.used[1] += 1
    node = mem.dram[number]
    channel = mem.channel[c]
    at = max(time, channel.last_way)
    channel.last_way = at
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
def wait_for_dram(mem, c):  # type: ignore[no-untyped-def]
    """The first request that is on its way arrives."""
    channel = mem.channel[c]
    number = channel.way_head
    channel.way_head = mem.dram[number].next
    mem.queue[c, channel.queued] = number
    channel.queued += 1


@merged
def _earliest_column(mem, limits, c, number):  # type: ignore[no-untyped-def]
    """When the column command of a request can be given."""
    channel = mem.channel[c]
    node = mem.dram[number]
    earliest = max(float(node.time), channel.bus_free)
    if limits.simple == 0:
        bank = mem.bank[c, node.bank]
        earliest = max(earliest, mem.group_from[c, node.bank & (limits.bank_groups - 1)])
        if node.place >= 0:
            earliest = max(earliest, channel.write_end + limits.cdlr)
        if bank.row == node.row:
            earliest = max(earliest, bank.column_from)
        else:
            earliest = max(earliest, _activation(limits, channel, bank, node.time) + limits.rcd)
    return earliest


@inner_inlined
def _activation(limits, channel, bank, arrival):  # type: ignore[no-untyped-def]
    """When a bank can be activated for a request."""
    earliest = max(float(arrival), channel.last_activate + limits.rrd, bank.activated + limits.rc)
    if bank.row >= 0:
        earliest = max(earliest, max(bank.precharge_from, float(arrival)) + limits.rp)
    return earliest


@merged
def serve_dram(mem, limits, c, time):  # type: ignore[no-untyped-def]
    """Choose and serve a request of those that have arrived at ``time``."""
    channel = mem.channel[c]
    best = 0
    column = np.inf
    for i in range(channel.queued):
        earliest = _earliest_column(mem, limits, c, mem.queue[c, i])
        if earliest < column:
            best, column = i, earliest
            if earliest <= channel.bus_free or limits.simple:
                break
    number = mem.queue[c, best]
    node = mem.dram[number]
    write = node.place < 0
    if limits.simple == 0:
        bank = mem.bank[c, node.bank]
        if bank.row != node.row:
            activate = _activation(limits, channel, bank, node.time)
            bank.activated = activate
            channel.last_activate = max(channel.last_activate, activate)
            bank.row = node.row
            bank.column_from = activate + limits.rcd
            bank.precharge_from = activate + limits.ras
        else:
            mem.counts[c, ROW_HITS] += 1
        mem.group_from[c, node.bank & (limits.bank_groups - 1)] = column + limits.ccdl
        end = column + limits.burst + (limits.wl + limits.wr if write else 0.0)
        bank.precharge_from = max(bank.precharge_from, end)
        if write:
            channel.write_end = column + limits.wl + limits.burst
    channel.bus_free = column + limits.burst
    for i in range(best, channel.queued - 1):
        mem.queue[c, i] = mem.queue[c, i + 1]
    channel.queued -= 1
    if write:
        mem.counts[c, DRAM_WRITES] += 1
        free_dram_node(mem, number)
        return
    mem.counts[c, DRAM_READS] += 1
    node.time = np.int64(column + limits.cl)
    node.next = -1
    if channel.fill_head < 0:
        channel.fill_head = number
    else:
        node.time = max(node.time, mem.dram[channel.fill_tail].time)
        mem.dram[channel.fill_tail].next = number
    channel.fill_tail = number
