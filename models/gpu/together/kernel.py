"""Several launches on one GPU: whose blocks go to which SM, and windows of them until all have ended.

Blocks of the launch of the highest priority that has arrived go first, of equal ones those of the one that came first,
as far as any SM has room for one; those of the next when all of it have been given out (the rules that Amert et al.
found, "GPU scheduling on the NVIDIA TX2: hidden details revealed", RTSS 2017). A block goes to the SM that has room
first (of several at the same cycle, in turn), as fast as the target gives blocks out: both as gpu/windows_kernel.py has
it for one launch. Room is what blocks take together: blocks, warps, registers and shared memory. An SM waits the
turnaround of a block's end where it had no room before it.

An SM runs by itself to the next end of a block, or of the window. So the first blocks of a launch for which it has
room, and had none for the launch before, may come up to a window (some 200 cycles) late.

Cost, beside the SMs': O(SMs) for each block, O(launches) when a launch arrives, ends or has no block left.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu import memory_kernel
from manyscale.models.gpu.l2.exchange_kernel import deliver, is_ring_short, send_all
from manyscale.models.gpu.launch_kernel import FINISHED, GOES_ON, NEEDS_ROOM, STUCK, next_begin
from manyscale.models.gpu.sm.kernel import BLOCK_ENDED, advance, start_block
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.gpu.together.state import ARRIVES, NOW, TOLD, TURN, WARPS
from manyscale.models.kernels import allocation_free, by_reference, inner, merged

_serve = memory_kernel.serve
_is_room_short = memory_kernel.is_room_short


@inner
def _first(own):  # type: ignore[no-untyped-def]
    """The launch whose turn it is; -1: none that has arrived has more blocks."""
    best = -1
    for k in range(own.launch.shape[0]):
        each = own.launch[k]
        if each.next == each.end_block or each.arrival > own.word[NOW]:
            continue
        if best >= 0:
            other = own.launch[best]
            if each.priority > other.priority:
                continue
            if each.priority == other.priority and each.arrival >= other.arrival:
                continue
        best = k
    return best


@inner
def _await_next(own):  # type: ignore[no-untyped-def]
    """When the next launch arrives."""
    own.word[ARRIVES] = NEVER
    for k in range(own.launch.shape[0]):
        if own.launch[k].arrival > own.word[NOW]:
            own.word[ARRIVES] = min(own.word[ARRIVES], own.launch[k].arrival)


@inner
def _slots(sm, s, limits, warps):  # type: ignore[no-untyped-def]
    """The first of so many free warps' slots in a row; -1: there are not so many."""
    at = np.int64(0)
    slot = 0
    while slot < limits.slots:
        block = sm.block[s, slot]
        if block.number >= 0 and block.first_warp < at + warps and at < block.end_warp:
            at = np.int64(block.end_warp)
            slot = 0
        else:
            slot += 1
    return at if at + warps <= limits.warps else -1


@inner
def _fits(sm, s, limits, own, k):  # type: ignore[no-untyped-def]
    for what in range(4):
        if own.used[s, what] + own.need[k, what] > own.limit[what]:
            return False
    return _slots(sm, s, limits, own.need[k, WARPS]) >= 0


@inner
def _look_for_room(sm, limits, own, k, time):  # type: ignore[no-untyped-def]
    """When each SM has room for a block of a launch whose turn begins at ``time``."""
    for s in range(sm.core.shape[0]):
        own.room_at[s] = NEVER
        if k >= 0 and _fits(sm, s, limits, own, k):
            own.room_at[s] = max(time, own.launch[k].arrival + own.first_at[s], own.free_at[s], sm.core[s].time - 1)


@inner
def _give(sm, s, program, limits, own, k):  # type: ignore[no-untyped-def]
    time = own.room_at[s]
    launch = own.launch[k]
    core = sm.core[s]
    core.first_warp = _slots(sm, s, limits, own.need[k, WARPS])
    core.end_warp = core.first_warp + own.need[k, WARPS]
    for what in range(4):
        own.used[s, what] += own.need[k, what]
    start_block(sm, s, program, limits, launch.next, time)
    launch.next += 1
    own.free_at[s] = time + limits.block_pace
    own.room_at[s] = own.free_at[s] if _fits(sm, s, limits, own, k) else NEVER
    own.word[TURN] = (s + 1) % sm.core.shape[0]


@inner
def _take_leave(sm, s, limits, own):  # type: ignore[no-untyped-def]
    """Blocks of an SM have ended, and with them perhaps launches, behind which others arrive."""
    if own.room_at[s] == NEVER:
        own.free_at[s] = max(own.free_at[s], sm.core[s].time - 1 + limits.block_turnaround)
    while own.word[TOLD] < sm.ended[0]:
        own.word[TOLD] += 1
        block = sm.ended[own.word[TOLD]]
        k = np.int64(own.of_block[block])
        launch = own.launch[k]
        launch.left -= 1
        launch.end = max(launch.end, sm.record_end[block])
        for what in range(4):
            own.used[s, what] -= own.need[k, what]
        if launch.left > 0:
            continue
        for other in range(own.launch.shape[0]):
            if own.launch[other].after == k:
                arrival = max(own.word[NOW] + 1, launch.end + own.launch[other].gap)
                own.launch[other].arrival = arrival
                own.word[ARRIVES] = min(own.word[ARRIVES], arrival)


@inner
def _goes_on(sm, s, program, limits, own, head, until):  # type: ignore[no-untyped-def]
    """Run an SM up to ``until``, or to an end of blocks, behind which it may have room: whether that came."""
    if advance(sm, s, program, limits, until) != BLOCK_ENDED:
        return False
    _take_leave(sm, s, limits, own)
    if head >= 0 and own.room_at[s] == NEVER and _fits(sm, s, limits, own, head):
        own.room_at[s] = own.free_at[s]
    return True


@inner
def _waits_for_room(limits, own, s, until):  # type: ignore[no-untyped-def]
    return own.room_at[s] == NEVER or (limits.paced and own.room_at[s] >= until)


@inner
def _run_to(sm, program, limits, own, until):  # type: ignore[no-untyped-def]
    """From NOW on up to ``until``, or to when a launch arrives: up to where."""
    num_sms = sm.core.shape[0]
    head = _first(own)
    _look_for_room(sm, limits, own, head, own.word[NOW])
    while head >= 0:
        best = -1
        for i in range(num_sms):
            s = (own.word[TURN] + i) % num_sms
            stop = min(until, own.word[ARRIVES])
            while _waits_for_room(limits, own, s, stop) and sm.core[s].time < stop:
                _goes_on(sm, s, program, limits, own, head, stop)
                stop = min(until, own.word[ARRIVES])
            if own.room_at[s] < until and (best < 0 or own.room_at[s] < own.room_at[best]):
                best = s
        if best < 0:
            break
        time = own.room_at[best]
        while limits.paced and sm.core[best].time < min(time + 1, own.word[ARRIVES]):  # its other blocks go on
            _goes_on(sm, best, program, limits, own, head, min(time + 1, own.word[ARRIVES]))
        if time >= own.word[ARRIVES]:
            break
        _give(sm, best, program, limits, own, head)
        if own.launch[head].next == own.launch[head].end_block:
            head = _first(own)
            _look_for_room(sm, limits, own, head, time)
    for s in range(num_sms):
        while _goes_on(sm, s, program, limits, own, head, min(until, own.word[ARRIVES])):
            pass
    return min(until, own.word[ARRIVES])


@inner
def _window(sm, program, limits, own, begin, until):  # type: ignore[no-untyped-def]
    own.word[NOW] = begin
    while own.word[NOW] < until:
        _await_next(own)
        own.word[NOW] = _run_to(sm, program, limits, own, until)
    _await_next(own)


@merged
def _are_over(own):  # type: ignore[no-untyped-def]
    left = 0
    for k in range(own.launch.shape[0]):
        left += own.launch[k].left
    return left == 0


@inner
def _next_room(sm, limits, own):  # type: ignore[no-untyped-def]
    """When an SM next takes a block, of what has arrived; NEVER: when one has ended."""
    _look_for_room(sm, limits, own, _first(own), own.word[NOW])
    earliest = NEVER
    for s in range(sm.core.shape[0]):
        earliest = min(earliest, own.room_at[s])
    return earliest


@allocation_free
def run_together(sm, program, limits, own, mem, mem_limits, replies, clock):  # type: ignore[no-untyped-def]
    """As gpu/launch_kernel.py has it for one launch: up to ``clock[2]`` windows of ``clock[1]`` cycles, the first from
    cycle ``clock[0]`` on. Returns why it stopped."""
    sm, program, limits, own = by_reference(sm), by_reference(program), by_reference(limits), by_reference(own)
    mem, mem_limits, replies = by_reference(mem), by_reference(mem_limits), by_reference(replies)
    window = clock[1]
    for _ in range(clock[2]):
        begin = clock[0]
        until = begin + window
        if _is_room_short(mem, mem_limits, sm.core.shape[0] * window * limits.port, window):
            return NEEDS_ROOM
        if is_ring_short(sm, clock[3]):
            return NEEDS_ROOM
        if replies.reply.shape[0] < replies.rows[0] + mem.reply.shape[0]:
            return NEEDS_ROOM
        _window(sm, program, limits, own, begin, until)
        if _are_over(own):
            return FINISHED
        send_all(sm, limits, mem, mem_limits, replies, until)
        begin = next_begin(sm, mem, mem_limits, replies, until)
        begin = min(begin, own.word[ARRIVES], _next_room(sm, limits, own))
        if begin == NEVER:
            return STUCK
        begin = max(begin, until)
        clock[0] = begin
        mem.replies[0] = 0
        _serve(mem, mem_limits, begin + window - 3)
        deliver(sm, limits, replies, mem.reply, mem.replies[0], begin, begin + window - 2)
    return GOES_ON
