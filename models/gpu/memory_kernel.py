"""L2 and DRAM of a group of channels, in order of time.

A request that leaves an SM at cycle q reaches its slice through the crossbar (gpu/l2/crossbar_kernel.py), is looked up
``latency`` later (gpu/l2/kernel.py) and goes, if it must, to DRAM (gpu/dram/kernel.py). Facts of the path (which queue
takes how many cycles) are Accel-Sim's.

Cost: O(slices of a channel) for each event of it, beside the event's own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.dram.kernel import serve_dram, wait_for_dram
from manyscale.models.gpu.l2.crossbar_kernel import CROSSBAR
from manyscale.models.gpu.l2.kernel import fill, look_up
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import merged, separate

_SPARE: Final = 4  # cycles between those that pass the crossbar and those that are looked up


@merged
def is_room_short(mem, limits, more, cycles):  # type: ignore[no-untyped-def]
    """Whether ``more`` requests can be too many, with those in flight, for the next ``cycles``: each that is looked up
    may read a sector, and have a whole line written back. A cycle adds as many to each queue as its port is wide."""
    cycles *= limits.port
    looked_up = min(mem.in_flight[0] + more, mem.slice.shape[0] * (cycles + limits.port))
    if mem.free[0] < looked_up or mem.free[1] < looked_up * (1 + (1 << limits.sector_shift)):
        return True
    longest = 0
    for sm in range(mem.port_head.shape[0]):
        longest = max(longest, mem.port_tail[sm] - mem.port_head[sm])
    if longest + cycles + _SPARE * limits.port > mem.port.shape[1]:
        return True
    longest = 0
    for s in range(mem.slice.shape[0]):
        longest = max(longest, mem.slice[s].tail - mem.slice[s].head)
    return longest + cycles + _SPARE * limits.port > mem.arrived.shape[1]


@separate
def serve(mem, limits, until):  # type: ignore[no-untyped-def]
    """All that happens before cycle ``until``; replies are added to those of this exchange."""
    for c in range(mem.channel.shape[0]):
        channel = mem.channel[c]
        first = c * limits.channel_slices
        while True:
            kind = -1
            time = until
            if channel.fill_head >= 0 and mem.dram[channel.fill_head].time < time:
                kind = 0
                time = mem.dram[channel.fill_head].time
            for s in range(first, first + limits.channel_slices):
                own = mem.slice[s]
                if own.head < own.tail and not own.blocked:
                    arrival = mem.arrived[s, own.head & (mem.arrived.shape[1] - 1)].time
                    at = max(arrival, own.next_access >> limits.port_shift)
                    if at < time:
                        kind = 3 + s
                        time = at
            if channel.way_head >= 0 and channel.queued < limits.queue and mem.dram[channel.way_head].time < time:
                kind = 1
                time = mem.dram[channel.way_head].time
            if channel.queued > 0:
                at = max(mem.waiting[c, channel.oldest].time, np.int64(max(channel.bus_free, 0.0)))
                if at < time:
                    kind = 2
                    time = at
            if kind < 0:
                break
            if kind == 0:
                fill(mem, limits, c)
            elif kind == 1:
                wait_for_dram(mem, c)
            elif kind == 2:
                serve_dram(mem, limits, c)
            else:
                look_up(mem, limits, c, kind - 3, time)


@separate
def next_event(mem, limits):  # type: ignore[no-untyped-def]
    """The earliest time at which something may happen; NEVER: nothing is in flight."""
    earliest = np.int64(NEVER)
    for sm in range(mem.port_time.shape[0]):
        if mem.port_time[sm] < NEVER:
            earliest = mem.passed_until[0] - CROSSBAR
    for c in range(mem.channel.shape[0]):
        channel = mem.channel[c]
        if channel.fill_head >= 0:
            earliest = min(earliest, mem.dram[channel.fill_head].time)
        if channel.way_head >= 0:
            earliest = min(earliest, mem.dram[channel.way_head].time)
        if channel.queued > 0:
            earliest = min(earliest, np.int64(max(channel.bus_free, 0.0)))
    for s in range(mem.slice.shape[0]):
        own = mem.slice[s]
        if own.head < own.tail and not own.blocked:
            earliest = min(earliest, mem.arrived[s, own.head & (mem.arrived.shape[1] - 1)].time)
    return earliest
