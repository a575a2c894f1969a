"""Main memory of a node: a plain latency and bandwidths, or DRAM with channels, banks and open rows.

A bank keeps the row open that was used last, until another is asked for. ``MainMemory.latency`` is that of a line
whose bank has no row open; less ``activate`` if the row is open, ``precharge`` more if another is. Activations of one
bank are ``row_cycle`` apart, and a channel carries ``channel_bandwidth``; both are reserved (``reservations``).
Requests of a bank are served as they come, not rows first (first ready, first come, first served), so many streams that
meet in few banks close each other's rows more often than on a real controller.

A line that was written back takes its channel; rows stay as they are, since controllers write in batches, row by row.
A row that is about to be opened for a later request serves an earlier one at the cost of a conflict at most.

With ``Numa`` a line comes from the memory of the socket that its page belongs to. Without it, pages of 4 KiB lie in the
sockets' memories in turn, which are all equally near. ``node_bandwidth`` is divided among sockets.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner_inlined
from manyscale.models.node.memory.reservations import reserve

BANK: Final = np.dtype([("row", "i8"), ("opens", "f8")])  # the open row, -1 if none; from when on it serves
CLOSED: Final = -1
HOMES: Final = 1 << 22  # pages whose home is kept; pages that far apart share one
UNTOUCHED: Final = -1


@inner_inlined
def home_of(mem, core, line):  # type: ignore[no-untyped-def]
    """The socket in whose memory the line lies; the first that asks for its page becomes it. O(1)."""
    memory = mem.memory[0]
    if memory.sockets == 1:
        return np.int64(0)
    page = line >> memory.page_shift
    if not memory.first_touch:
        return page % memory.sockets
    place = page & (HOMES - 1)
    if mem.home[place] == UNTOUCHED:
        mem.home[place] = mem.core[core].socket
    return np.int64(mem.home[place])


@inner_inlined
def _divided(number, divisor, shift):  # type: ignore[no-untyped-def]
    """Quotient and remainder; ``shift``: log2 of a divisor that is a power of two, else -1. O(1)."""
    if shift >= 0:
        return number >> shift, number & (divisor - 1)
    return number // divisor, number % divisor


@inner_inlined
def _read_dram(mem, home, line, start):  # type: ignore[no-untyped-def]
    """When a request that leaves the core at ``start`` has its data. O(1)."""
    memory = mem.memory[0]
    rest, channel = _divided(line, memory.channels, memory.channel_shift)
    row, bank_number = _divided(rest >> memory.row_shift, memory.banks, memory.bank_shift)
    bank_number += (home * memory.channels + channel) * memory.banks
    bank = mem.bank[np.uint64(bank_number)]
    cycle = start + memory.reach
    if bank.row == row:
        cycle = max(cycle, min(bank.opens, cycle + memory.precharge + memory.activate))
    else:
        cycle = reserve(mem.taken, memory.bank_resource + bank_number, cycle, memory.row_cycle) + memory.activate
        if bank.row != CLOSED:
            cycle += memory.precharge
        bank.row = row
        bank.opens = cycle
    channel += memory.channel_resource + home * memory.channels
    return reserve(mem.taken, channel, cycle, memory.channel_cycles) + memory.after_activate


@inner_inlined
def read_memory(mem, core, line, start):  # type: ignore[no-untyped-def]
    """When a line that no cache holds, asked for at ``start``, is at the core; ``start`` < 0: no time passes. Whether
    it comes from another socket. O(1)."""
    home = home_of(mem, core, line)
    memory = mem.memory[0]
    is_remote = memory.has_numa and home != mem.core[core].socket
    if start < 0.0:
        return start, is_remote
    if memory.channels:
        done = _read_dram(mem, home, line, start)
    else:
        done = start + memory.latency
        if memory.channel_cycles > 0.0:
            done = reserve(mem.taken, memory.channel_resource + home, done, memory.channel_cycles)
    if is_remote:
        done = cross(mem, home, done)
    return done, is_remote


@inner_inlined
def cross(mem, socket, cycle):  # type: ignore[no-untyped-def]
    """When a line that is sent from a socket to another arrives. O(1)."""
    memory = mem.memory[0]
    cycle += memory.numa_latency
    if memory.link_cycles > 0.0:
        cycle = reserve(mem.taken, memory.link_resource + socket, cycle, memory.link_cycles)
    return cycle


@inner_inlined
def write_memory(mem, core, line, cycle):  # type: ignore[no-untyped-def]
    """A line written back takes its share of bandwidth, from ``cycle`` >= 0 on. O(1)."""
    home = home_of(mem, core, line)
    memory = mem.memory[0]
    resource = memory.channel_resource + home
    if memory.channels:
        resource = memory.channel_resource + home * memory.channels + line % memory.channels
    elif memory.writes_aside:
        return
    if memory.channel_cycles > 0.0:
        reserve(mem.taken, resource, cycle, memory.channel_cycles)
    if memory.has_numa and home != mem.core[core].socket and memory.link_cycles > 0.0:
        reserve(mem.taken, memory.link_resource + mem.core[core].socket, cycle, memory.link_cycles)
