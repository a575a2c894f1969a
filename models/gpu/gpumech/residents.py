"""Blocks and warps of GPUMech's extended form as they begin, meet at barriers and end (see gpu/gpumech/replay.py).

Cost: O(warps) for each block and barrier, O(1) for each segment.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.replay_state import BARRIER, DRAIN, MSHR, QUEUE, push
from manyscale.models.gpu.gpumech.segments import EXITS, MEETS
from manyscale.models.kernels import inlined, inner

_START: Final = 2  # cycles from a block's begin to its first instruction


@inlined
def _end_block(state, launch, number, now):  # type: ignore[no-untyped-def]
    place = number + len(launch.first_segment) - 1
    state.warp[place].time = state.block[number].end
    push(state, place, now)


@inner
def begin_block(state, launch, number, s, slot, schedulers, time, now):  # type: ignore[no-untyped-def]
    """A block begins in a slot of SM ``s`` at ``time``."""
    own = state.block[number]
    own.begin = time
    own.end = time + 1
    own.met = 0
    own.arrived = 0
    own.sm = s
    own.slot = slot
    own.waiting = -1
    own.running = 0
    first = launch.block_warps[number]
    for i in range(first, launch.block_warps[number + 1]):
        mine = state.warp[i]
        mine.segment = launch.first_segment[i]
        mine.end = launch.first_segment[i + 1]
        mine.access = launch.first_access[i]
        mine.line = launch.first_line[i]
        mine.block = number
        mine.piece = 0
        mine.made = 0
        mine.asleep = 0
        mine.time = time + _START
        mine.age = state.ages[0]
        state.ages[0] += 1
        mine.scheduler = s * schedulers + (slot * launch.most_warps + i - first) % schedulers
        if mine.segment < mine.end:
            own.running += 1
            push(state, i, now)
    if own.running == 0:
        _end_block(state, launch, number, now)


@inlined
def _release(state, room, now):  # type: ignore[no-untyped-def]
    """All warps of a block that run have met."""
    number = room.waiting
    room.waiting = -1
    room.arrived = 0
    while number >= 0:
        mine = state.warp[number]
        following = mine.next
        state.stack[BARRIER] += room.met - mine.time
        mine.time = room.met
        push(state, number, now)
        number = following
    room.met = 0


@inlined
def _blame(stack, arrival, stall):  # type: ignore[no-untyped-def]
    """What a warp waited for: queues first, then the level that answers."""
    misses = min(stall, np.int64(arrival.misses))
    queue = min(stall - misses, np.int64(arrival.queue))
    stack[MSHR] += misses
    stack[QUEUE] += queue
    stack[arrival.cause] += stall - misses - queue


@inner
def finish_segment(state, launch, number, done, goes_on, now):  # type: ignore[no-untyped-def]
    """A warp's segment is issued by ``done``, and what it waits for is there when it ``goes_on``."""
    mine = state.warp[number]
    own = launch.segment[mine.segment]
    room = state.block[mine.block]
    if own.end == EXITS:
        state.stack[DRAIN] += goes_on - done
        room.end = max(room.end, goes_on)
        room.running -= 1
        if room.running == 0:
            _end_block(state, launch, mine.block, now)
    else:
        if goes_on > done:
            _blame(state.stack, state.pending[mine.segment], goes_on - done)
        mine.segment += 1
        mine.piece = 0
        mine.made = 0
        mine.time = goes_on
        if own.end == MEETS:
            room.met = max(room.met, goes_on)
            room.arrived += 1
            mine.next = room.waiting
            room.waiting = number
        else:
            push(state, number, now)
    if room.arrived > 0 and room.arrived >= room.running:
        _release(state, room, now)
