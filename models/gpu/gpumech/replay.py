"""The extended form of GPUMech: segments of all warps on a time axis, which wait for each other in queues.

Where the printed form takes one warp for all and adds expected delays, this one goes through the segments of every warp
(gpu/gpumech/segments.py) in the order of time. A segment is issued in pieces of a few instructions. Of those that want
to be issued, the first to come is the first to go, which is round robin by pieces, or (greedy or oldest first) the
oldest warp. A piece takes issue slots of its scheduler, cycles of the unit that limits the launch, and its accesses
cycles of the load/store unit; what L1 does not answer goes on in gpu/gpumech/l1_queue.py. A warp goes on when its
segment is issued and the loads that it waits for are there; those find their data where the caches said
(gpu/gpumech/collector.py). A block ends when its warps' stores are acknowledged, too, and the next one begins in its
place: blocks are list-scheduled over the SMs.

Not in the source (Huang, dissertation, Georgia Institute of Technology, 2015, ch. 4), whose formulas for one
representative warp miss kernels with few long warps. Against the detailed model what is left out: the order of
instructions inside a piece, units other than the one that limits the launch, banks and rows of DRAM, entries for misses
of L2.

Cost: O(instructions / PIECE + segments + accesses), and O(1) for each cycle of the launch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.l1_queue import is_full, pass_crossbar, stall, take_access, work_off
from manyscale.models.gpu.gpumech.queues import (
    DRAM_PERIODS,
    PERIOD,
    PERIODS,
    SLICE_PERIODS,
    TRANSFER,
    Taken,
)
from manyscale.models.gpu.gpumech.replay_state import (
    ARRIVAL,
    BASE,
    DEP,
    FLIGHT,
    HORIZON,
    ISSUE,
    QUEUE,
    QUEUED,
    SM,
    UNIT,
    WARP,
    State,
    push,
)
from manyscale.models.gpu.gpumech.residents import begin_block, finish_segment
from manyscale.models.gpu.gpumech.waves import LAST_WAVES, skipped_blocks
from manyscale.models.kernels import allocation_free, by_reference, inlined, inner, njit

PIECE: Final = 8  # instructions of a warp that are issued together,
_LONG_PIECE: Final = 32  # and where no accesses are left in the segment


@inlined
def _issue(issued, cycles, busy, interval, now, k, state):  # type: ignore[no-untyped-def]
    """A piece of a segment is issued from ``now`` on: when the next one could begin."""
    scheduler, unit, stack = state.scheduler, state.unit, state.stack
    scheduler[k] = max(scheduler[k], now) + issued
    free = now + cycles
    at = done = max(free, scheduler[k])
    if busy:  # its last instruction enters the unit when that is free, and goes on
        unit[k] = max(unit[k], now) + busy
        done = max(done, unit[k] - interval + 1)
    stack[BASE] += issued
    stack[DEP] += cycles - issued
    stack[ISSUE] += at - free
    stack[UNIT] += done - at
    return done


@inlined
def _wait_for_turn(state, number, k, place, now):  # type: ignore[no-untyped-def]
    """A warp waits for its scheduler, which will choose the oldest."""
    first = state.ready[k]
    mine = state.warp[number]
    mine.next = first
    mine.time = now
    state.ready[k] = number
    if first < 0:
        state.warp[place].time = state.scheduler[k]
        push(state, place, now)


@inlined
def _oldest(state, k):  # type: ignore[no-untyped-def]
    """Take the oldest of the warps that wait for a scheduler out of its list."""
    warp = state.warp
    best, before_best, before = state.ready[k], -1, state.ready[k]
    number = warp[best].next
    while number >= 0:
        if warp[number].age < warp[best].age:
            best, before_best = number, before
        before = number
        number = warp[number].next
    if before_best < 0:
        state.ready[k] = warp[best].next
    else:
        warp[before_best].next = warp[best].next
    return best


@inner
def _advance(state, launch, limits, taken, number, now):  # type: ignore[no-untyped-def]
    """The next piece of a warp's segment."""
    mine = state.warp[number]
    own = launch.segment[mine.segment]
    s = state.block[mine.block].sm
    k = mine.scheduler
    issued, begin, end, busy = np.int64(own.issued), np.int64(0), np.int64(own.cycles), np.int64(own.busy)
    last = True
    accesses = np.int64(own.accesses)
    length = PIECE if accesses else _LONG_PIECE
    if issued > length:
        pieces = (issued + length - 1) // length
        piece = min(np.int64(mine.piece), pieces)
        then = min(piece + 1, pieces)
        last = then == pieces
        begin, end = end * piece // pieces, end * then // pieces
        issued = issued * then // pieces - issued * piece // pieces
        busy = busy * then // pieces - busy * piece // pieces
    more = mine.made < accesses and (last or launch.access[mine.access].offset < end)
    if more and is_full(state, launch, limits, s, now):
        mine.time = now
        stall(state, s, number)
        return
    done = _issue(issued, end - begin, busy, launch.unit_interval, now, k, state)
    delay = done - (end - begin)
    left = PIECE
    while more and left > 0:
        reached = launch.access[mine.access]
        offset = np.int64(reached.offset) - begin
        unit_begins = take_access(state, launch, limits, taken, number, s, delay + offset, now)
        # instructions behind it wait for room in the unit's queue
        held = unit_begins - limits.queued * np.int64(reached.passes) - limits.front + (end - begin) - offset
        if held > done:
            state.stack[QUEUE] += held - done
            done = held
        mine.access += 1
        mine.line += reached.lines
        mine.made += 1
        left -= 1
        more = mine.made < accesses and (last or launch.access[mine.access].offset < end)
    if more or not last:  # (accesses that are left go with the next piece, or one without instructions)
        mine.piece += 1
        mine.time = done
        push(state, number, now)
        return
    pending = state.pending[mine.segment]
    if pending.open > 0:
        mine.time = done
        mine.asleep = 1
    else:
        finish_segment(state, launch, number, done, max(done, pending.time), now)


@inlined
def _choose(state, launch, limits, taken, k, place, now):  # type: ignore[no-untyped-def]
    """A scheduler that is free issues of the oldest warp that waits for it."""
    if state.scheduler[k] <= now:
        number = _oldest(state, k)
        state.stack[ISSUE] += now - state.warp[number].time
        _advance(state, launch, limits, taken, number, now)
    if state.ready[k] >= 0:
        state.warp[place].time = state.scheduler[k]
        push(state, place, now)


@inlined
def _happen(state, launch, limits, taken, number, now):  # type: ignore[no-untyped-def]
    """What happens at a warp, an SM's L1, a scheduler or the crossbar; True: a block has ended."""
    num_warps = len(launch.first_segment) - 1
    if number < num_warps:
        k = state.warp[number].scheduler
        if limits.oldest and state.scheduler[k] > now:
            _wait_for_turn(state, number, k, num_warps + len(state.block) + len(state.sm) + k, now)
        else:
            _advance(state, launch, limits, taken, number, now)
        return False
    place = number - num_warps
    if place < len(state.block):
        return True
    place -= len(state.block)
    if place < len(state.sm):
        work_off(state, launch, limits, taken, place, now)
    elif place < len(state.sm) + len(state.scheduler):
        _choose(state, launch, limits, taken, place - len(state.sm), number, now)
    else:
        pass_crossbar(state, launch, limits, taken, number, now)
    return False


@inlined
def _leave_out(state, launch, limits, first, end):  # type: ignore[no-untyped-def]
    """Blocks [first, end) are skipped: what others wait for that these miss is there."""
    begin, last = launch.first_line[launch.block_warps[first]], launch.first_line[launch.block_warps[end]]
    i = 0
    while i < len(launch.found):
        if i == begin:
            i = last
            continue
        leader = launch.found[i].leader
        if begin <= leader < last:
            state.there[leader] = 1
            state.fetched[leader] = 1
            if limits.in_part:
                state.asked[leader] = 1
        i += 1


@allocation_free
def _run(state, launch, limits, taken, num_sms, slots, waves, skip):  # type: ignore[no-untyped-def]
    """Blocks begin in turn on the SMs, and then where one ends: the cycle in which the last one does."""
    state, launch, taken = by_reference(state), by_reference(launch), by_reference(taken)
    num_blocks = len(state.block)
    num_warps = len(launch.first_segment) - 1
    given = 0
    now = -1
    while given < min(num_blocks, num_sms * slots):
        turn = given // num_sms
        s = given % num_sms
        time = limits.first_block + np.int64(s * limits.block_interval) + turn * limits.block_pace
        begin_block(state, launch, given, s, turn, limits.schedulers, time, now)
        given += 1
    left = num_blocks
    while left > 0:
        now += 1
        at = now & (HORIZON - 1)
        number = state.head[at]
        state.head[at] = -1
        while number >= 0:
            following = state.warp[number].next
            if state.warp[number].time > now:
                push(state, number, now)
            elif _happen(state, launch, limits, taken, number, now):
                left -= 1
                if given < num_blocks:
                    skipped = skipped_blocks(state.block, given, num_sms * slots, waves, LAST_WAVES)
                    if skipped > 0:
                        skip[0], skip[1] = given, given + skipped
                        _leave_out(state, launch, limits, given, given + skipped)
                        given += skipped
                        left -= skipped
                    ended = state.block[number - num_warps]
                    time = now + limits.block_turnaround
                    begin_block(state, launch, given, ended.sm, ended.slot, limits.schedulers, time, now)
                    given += 1
            number = following
    return now


@inlined
def _ring(size):  # type: ignore[no-untyped-def]
    """The power of two that holds ``size``."""
    ring = 1
    while ring <= size:
        ring *= 2
    return ring


@njit(cache=True, nogil=True)
def replay(launch, limits, num_sms, slots, stack, block, waves, skip):  # type: ignore[no-untyped-def]
    """Cycles of a launch, but for blocks [skip[0], skip[1]), int64[2], which are filled in. ``stack`` float64[causes]:
    cycles of warps by what they were spent on; ``block`` BLOCK[blocks] is filled. ``waves`` uint8[waves], at which
    blocks may be skipped (gpu/gpumech/waves.py)."""
    num_blocks = len(launch.block_warps) - 1
    schedulers = num_sms * limits.schedulers
    # an access at least a request, and each warp may bring those of a piece when there still is room
    waiting = _ring(2 * limits.room + slots * launch.most_warps * (PIECE + 1))
    sm = np.zeros(num_sms, SM)
    for s in range(num_sms):
        sm[s].stalled = sm[s].asks = sm[s].next = sm[s].granted = sm[s].clock = -1
    state = State(
        np.zeros(len(launch.first_segment) - 1 + num_blocks + num_sms + schedulers + 1, WARP), block, sm,
        np.zeros(limits.slices, np.int64), np.zeros(limits.slices, np.int64), np.zeros(limits.slices, np.int32),
        np.full(limits.slices, -1, np.int32), np.zeros(2, np.int64), np.empty((num_sms, waiting), QUEUED),
        np.empty((num_sms, limits.mshrs + 1), FLIGHT),
        np.zeros((num_sms, 1), np.int64), np.zeros(len(launch.found), np.int64),
        np.zeros(len(launch.found), np.int64), np.zeros(len(launch.found), np.int32),
        np.zeros(len(launch.found) if limits.in_part else 0, np.int64),
        np.zeros(len(launch.segment), ARRIVAL), np.zeros(schedulers, np.int64),
        np.zeros(schedulers, np.int64), np.full(schedulers, -1, np.int32), np.full(HORIZON, -1, np.int32),
        np.empty(HORIZON, np.int32), np.zeros(1, np.int64), stack,
    )  # fmt: skip
    taken = Taken(
        np.zeros((num_sms, PERIODS), PERIOD), np.full((num_sms, 2), -1),
        np.zeros((limits.slices, SLICE_PERIODS), PERIOD), np.full((limits.slices, 2), -1),
        np.zeros((limits.channels, DRAM_PERIODS), TRANSFER), np.full((limits.channels, 2), -1),
    )  # fmt: skip
    return _run(state, launch, limits, taken, num_sms, slots, waves, skip) + 1
