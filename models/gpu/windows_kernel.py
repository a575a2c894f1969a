"""Blocks to SMs, and a window of them.

In strict order a block goes to the SM that has room first (of several at the same cycle, in turn), at the cycle in
which a block there ended; each SM takes one block a cycle. An SM runs until a block ends in it, or to the window's end:
since nothing but the choice of the next block joins SMs inside a window, going on with the one that has room first is
exact. (With reserves, as gpu/groups_kernel.py has them, SMs need not wait for each other's ends.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

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
    """``word`` int64[7], as above. ``room_at`` int64[SM]: cycle from which it can take a block; NEVER: no room."""

    word: np.ndarray
    room_at: np.ndarray


def dispatch_for(num_sms: int, num_blocks: int) -> Dispatch:
    """Nothing is given out yet."""
    return Dispatch(np.array([0, num_blocks, 0, 0, 0, 0, num_blocks]), np.zeros(num_sms, np.int64))


@merged
def _give(sm, s, program, limits, dispatch, time):  # type: ignore[no-untyped-def]
    start_block(sm, s, program, limits, dispatch.word[NEXT], time)
    dispatch.word[NEXT] += 1
    dispatch.room_at[s] = time + 1 if sm.core[s].blocks < limits.slots else NEVER


@merged
def strict_window(sm, program, limits, dispatch, until):  # type: ignore[no-untyped-def]
    """True once all SMs are at ``until``; False if whoever chooses blocks must be asked first, or brings them."""
    num_sms = sm.core.shape[0]
    word = dispatch.word
    while word[NEXT] < word[END]:
        best = -1
        for i in range(num_sms):
            s = (word[TURN] + i) % num_sms
            runs = dispatch.room_at[s] == NEVER and sm.core[s].time < until
            if runs and advance(sm, s, program, limits, until) == BLOCK_ENDED:
                dispatch.room_at[s] = sm.core[s].time - 1
            if dispatch.room_at[s] < until and (best < 0 or dispatch.room_at[s] < dispatch.room_at[best]):
                best = s
        if best < 0:
            break
        if (word[ASKS] and not word[CHOSEN]) or word[NEXT] >= word[HELD]:
            word[ROOM] = best
            return False
        word[CHOSEN] = 0
        _give(sm, best, program, limits, dispatch, dispatch.room_at[best])
        word[TURN] = (best + 1) % num_sms
    for s in range(num_sms):
        while advance(sm, s, program, limits, until) == BLOCK_ENDED:
            dispatch.room_at[s] = min(dispatch.room_at[s], sm.core[s].time - 1)
    return True
