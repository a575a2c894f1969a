"""Blocks to SMs, and a window of them.

In strict order a block goes to the SM that has room first (of several at the same cycle, in turn), at the cycle in
which a block there ended; each SM takes one block a cycle. Where the target says how fast blocks are given out
(``node.gpu.dispatch``), an SM takes one each time that all SMs could have had theirs, which is as fast as the GPU gives
them out while all SMs take some, and a place is taken again only its ``turnaround`` after a block's end. An SM runs
until a block ends in it, or to the window's end: since nothing but the choice of the next block joins SMs inside a
window, going on with the one that has room first is exact. (With reserves, as gpu/groups_kernel.py has them, SMs need
not wait for each other's ends.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.kernel import BLOCK_ENDED, advance, start_block
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import merged

# columns of Dispatch.word
NEXT: Final = 0  # block to be given out
END: Final = 1  # blocks of the launch
TURN: Final = 2  # SM after the one that took the last block
ASKS: Final = 3  # 1: whoever chooses blocks is asked before each is given out
CHOSEN: Final = 4  # 1: it has been asked, and NEXT is its choice
ROOM: Final = 5  # SM that has room, when it is asked
HELD: Final = 6  # the block behind those that are in memory


class Dispatch(NamedTuple):
    """``word`` int64[7], as above. ``room_at`` int64[SM]: cycle from which it can take a block; NEVER: no room.
    ``given_at`` int64[SM]: when it took the last one."""

    word: np.ndarray
    room_at: np.ndarray
    given_at: np.ndarray


def dispatch_for(num_blocks: int, room_at: np.ndarray) -> Dispatch:
    """Nothing is given out yet; ``room_at`` as from ``first_room``."""
    word = np.array([0, num_blocks, 0, 0, 0, 0, num_blocks])
    return Dispatch(word, room_at, np.full(len(room_at), -NEVER, np.int64))


def first_room(num_sms: int, gpu: Gpu, controlled: bool) -> np.ndarray:
    """int64[SM]: when each takes its first block of a launch; ``controlled`` by control bits."""
    late = gpu.core.cold_start_cycles if gpu.core is not None and not controlled else 0.0
    return np.floor(late + np.arange(num_sms) * gpu.dispatch.interval_cycles).astype(np.int64)


@merged
def _give(sm, s, program, limits, dispatch, time):  # type: ignore[no-untyped-def]
    start_block(sm, s, program, limits, dispatch.word[NEXT], time)
    dispatch.word[NEXT] += 1
    dispatch.room_at[s] = time + limits.block_pace if sm.core[s].blocks < limits.slots else NEVER
    dispatch.given_at[s] = time


@merged
def room_after(limits, given_at, end):  # type: ignore[no-untyped-def]
    """When the place of a block that ended can be taken, by an SM that took its last one at ``given_at``."""
    return max(end + limits.block_turnaround, given_at + limits.block_pace)


@merged
def next_room(limits, dispatch):  # type: ignore[no-untyped-def]
    """When an SM next takes a block, where it waits for more than its SMs; NEVER: it does not."""
    earliest = NEVER
    if limits.paced and dispatch.word[NEXT] < dispatch.word[END]:
        for s in range(dispatch.room_at.shape[0]):
            earliest = min(earliest, dispatch.room_at[s])
    return earliest


@merged
def _block_ended(sm, s, limits, dispatch):  # type: ignore[no-untyped-def]
    dispatch.room_at[s] = min(dispatch.room_at[s], room_after(limits, dispatch.given_at[s], sm.core[s].time - 1))


@merged
def _waits_for_room(limits, dispatch, s, until):  # type: ignore[no-untyped-def]
    room_at = dispatch.room_at[s]
    return room_at == NEVER or (limits.paced and room_at >= until)


@merged
def strict_window(sm, program, limits, dispatch, until):  # type: ignore[no-untyped-def]
    """True once all SMs are at ``until``; False if whoever chooses blocks must be asked first, or brings them."""
    num_sms = sm.core.shape[0]
    word = dispatch.word
    while word[NEXT] < word[END]:
        best = -1
        for i in range(num_sms):
            s = (word[TURN] + i) % num_sms
            while _waits_for_room(limits, dispatch, s, until) and sm.core[s].time < until:
                if advance(sm, s, program, limits, until) == BLOCK_ENDED:
                    _block_ended(sm, s, limits, dispatch)
            if dispatch.room_at[s] < until and (best < 0 or dispatch.room_at[s] < dispatch.room_at[best]):
                best = s
        if best < 0:
            break
        if (word[ASKS] and not word[CHOSEN]) or word[NEXT] >= word[HELD]:
            word[ROOM] = best
            return False
        word[CHOSEN] = 0
        while limits.paced and sm.core[best].time <= dispatch.room_at[best]:  # its other blocks go on until then
            if advance(sm, best, program, limits, dispatch.room_at[best] + 1) == BLOCK_ENDED:
                _block_ended(sm, best, limits, dispatch)
        _give(sm, best, program, limits, dispatch, dispatch.room_at[best])
        word[TURN] = (best + 1) % num_sms
    for s in range(num_sms):
        while advance(sm, s, program, limits, until) == BLOCK_ENDED:
            _block_ended(sm, s, limits, dispatch)
    return True
