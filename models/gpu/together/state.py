"""Launches that share a GPU, as the kernel that gives out their blocks knows them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.sm.state import NEVER

NOW, ARRIVES, TURN, TOLD = range(4)  # of Sharing.word
BLOCKS, WARPS, REGISTERS, SHARED_BYTES = range(4)  # what blocks take of an SM

LAUNCH: Final = np.dtype(
    [
        ("next", "i8"), ("end_block", "i8"),  # of all launches' blocks, those of this one that are not given out
        ("left", "i8"),  # blocks that have not ended
        ("arrival", "i8"),  # NEVER: not known yet
        ("end", "i8"),  # the latest so far
        ("priority", "i8"),  # the lower the sooner
        ("after", "i8"), ("gap", "i8"),  # it arrives so long after another one's end; -1: after none
    ]
)  # fmt: skip


class Sharing(NamedTuple):
    """``launch`` LAUNCH[L]; ``need`` int64[L, 4] of a block; of SMs ``used`` int64[SM, 4], what ``limit`` int64[4] is
    at most. ``of_block`` int32[blocks]: its launch. ``first_at`` int64[SM]: from a launch's arrival until an SM can
    take one of its blocks; ``free_at`` int64[SM]: the cycle from which an SM can take any, and ``room_at``, for one of
    the launch whose turn it is (NEVER: no room). ``word`` int64[4]: NOW, up to which
    launches have arrived; ARRIVES, when the next one does; TURN, the SM after the one that took the last block; TOLD,
    blocks that are known to have ended."""

    launch: np.ndarray
    need: np.ndarray
    used: np.ndarray
    limit: np.ndarray
    of_block: np.ndarray
    first_at: np.ndarray
    free_at: np.ndarray
    room_at: np.ndarray
    word: np.ndarray


def sharing(launch: np.ndarray, need: np.ndarray, limit: np.ndarray, first_at: np.ndarray) -> Sharing:
    """Nothing has arrived yet."""
    count, num_sms = launch["end_block"] - launch["next"], len(first_at)
    return Sharing(
        launch, need, np.zeros((num_sms, 4), np.int64), limit, np.repeat(np.arange(len(launch), dtype=np.int32), count),
        first_at, np.zeros(num_sms, np.int64), np.full(num_sms, NEVER), np.array([0, 0, 0, 0]),
    )  # fmt: skip
