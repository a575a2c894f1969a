"""A launch in strict order: windows of all SMs, and what lies between them, until its last block has ended."""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu import memory_kernel
from manyscale.models.gpu.clusters_kernel import can_start, cluster_window
from manyscale.models.gpu.l2.exchange_kernel import deliver, is_ring_short, send_all
from manyscale.models.gpu.sm import kernel as sm_kernel
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.gpu.windows_kernel import END, NEXT, next_room, strict_window
from manyscale.models.kernels import entry, merged

FINISHED: Final = 0
GOES_ON: Final = 1
NEEDS_ROOM: Final = 2  # for requests in flight
ASKS: Final = 4  # which block is next, or for more of them; ``run`` goes on in the same window
STUCK: Final = 3  # blocks wait for what never comes: a defect of the trace (a barrier that a warp does not reach)
_sm_next: Final = sm_kernel.next_event
_memory_next: Final = memory_kernel.next_event
_serve: Final = memory_kernel.serve
_is_room_short: Final = memory_kernel.is_room_short


@merged
def next_begin(sm, mem, mem_limits, replies, until):  # type: ignore[no-untyped-def]
    """When the next window begins: ``until``, or later if nothing can happen before (what left SMs has entered the
    channels); NEVER: nothing at all."""
    earliest = _memory_next(mem, mem_limits)
    for i in range(replies.rows[0]):
        earliest = min(earliest, replies.reply[i].time)
    for s in range(sm.core.shape[0]):
        earliest = min(earliest, _sm_next(sm, s))
    return earliest if earliest == NEVER else max(until, earliest)


@merged
def is_over(sm, word):  # type: ignore[no-untyped-def]
    """Whether all blocks have ended."""
    if word[NEXT] < word[END]:
        return False
    resident = 0
    for s in range(sm.core.shape[0]):
        resident += sm.core[s].blocks
    return resident == 0


@entry
def run(sm, program, limits, dispatch, mem, mem_limits, replies, clock):  # type: ignore[no-untyped-def]
    """Up to ``clock[2]`` windows from cycle ``clock[0]`` on, each of ``clock[1]`` cycles, before the next of which an
    SM is given ``clock[3]`` replies at most. Returns why it stopped."""
    window = clock[1]
    for _ in range(clock[2]):
        begin = clock[0]
        until = begin + window
        most = sm.core.shape[0] * window * limits.port
        if _is_room_short(mem, mem_limits, most, window) or is_ring_short(sm, clock[3]):
            return NEEDS_ROOM
        if replies.reply.shape[0] < replies.rows[0] + mem.reply.shape[0] + (most if limits.cluster > 1 else 0):
            return NEEDS_ROOM
        if limits.cluster > 1:
            if not cluster_window(sm, program, limits, dispatch, begin, until):
                return ASKS
        elif not strict_window(sm, program, limits, dispatch, until):
            return ASKS
        if is_over(sm, dispatch.word):
            return FINISHED
        send_all(sm, limits, mem, mem_limits, replies, until)
        begin = min(next_begin(sm, mem, mem_limits, replies, until), max(until, next_room(limits, dispatch)))
        if can_start(sm, limits, dispatch.word):
            begin = until
        if begin == NEVER:
            return STUCK
        clock[0] = begin
        mem.replies[0] = 0
        _serve(mem, mem_limits, begin + window - 3)
        deliver(sm, limits, replies, mem.reply, mem.replies[0], begin, begin + window - 2)
    return GOES_ON
