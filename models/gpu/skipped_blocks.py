"""What caches hold behind blocks of a launch that are skipped while others are simulated."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.launch_program import LaunchProgram
from manyscale.models.gpu.sm.state import Sm
from manyscale.models.kernels import allocation_free

_NONE: Final = np.iinfo(np.int64).min
_SPREAD: Final = 0x9E3779B97F4A7C1  # of a sector's number over the table: Knuth's multiplicative hashing


def forget_passed(sm: Sm, program: LaunchProgram, first: int, end: int) -> None:
    """Blocks [first, end) of ``program`` are skipped. If they do not fit into all L1s, they would have driven out what
    ended blocks have left there, but for what they use themselves: what neither running blocks use nor the last of the
    skipped ones, as many as fit, is forgotten. Blocks behind would hit it, if they use the data of a round long before
    (vectorAdd in 300 rounds: 4 % of its misses were missing). What is on its way stays. O(blocks + requests of those
    that are told + frames)."""
    num_sms, frames, sectors = sm.miss.shape
    room = num_sms * frames * sectors
    requests = program.warp_requests[program.block_warps]
    if requests[end] - requests[first] <= room:
        return
    shown = first_shown(program.request, requests, first, end, room)
    if shown == first:
        return
    running = sm.block["number"][sm.block["number"] >= 0].tolist()
    kept = [program.request[requests[block] : requests[block + 1]] for block in running]
    kept.append(program.request[requests[shown] : requests[end]])
    frame, ways = sm.frame, frames // sm.filled.shape[1]
    is_used = (np.arange(ways) < sm.filled[:, :, None]).reshape(num_sms, frames)
    at = np.nonzero(is_used & (frame["pending"] == 0))
    number = frame["tag"][at][:, None] * sectors + np.arange(sectors)
    keeps = (np.isin(number, np.unique(np.concatenate(kept))) << np.arange(sectors)).sum(axis=1).astype(np.uint8)
    dirty = frame["dirty"][at]
    frame["valid"][at] &= keeps
    frame["dirty"][at] &= keeps
    sm.core["dirty_lines"] -= np.bincount(at[0], (dirty != 0) & (dirty & keeps == 0), num_sms).astype(np.int64)


def first_shown(sector: np.ndarray, block_accesses: np.ndarray, first: int, end: int, most: int) -> int:
    """The first of blocks [first, end) from which on they use at most ``most`` sectors; ``end`` if none is shown.
    ``sector`` int64[accesses] of the launch; ``block_accesses`` int64[blocks + 1]: the first of each block. O(accesses
    of the blocks that are shown)."""
    return int(_reached(sector, block_accesses, end - 1, first - 1, -1, most, _table(most))) + 1


def first_full(sector: np.ndarray, block_accesses: np.ndarray, first: int, end: int, most: int) -> int:
    """The first of blocks [first, end) that no longer fits into ``most`` sectors with those before it, else ``end``."""
    return int(_reached(sector, block_accesses, first, end, 1, most, _table(most)))


def _table(most: int) -> np.ndarray:
    return np.full(1 << (2 * most + 1).bit_length(), _NONE)


@allocation_free
def _reached(sector, block_accesses, begin, end, step, most, table):  # type: ignore[no-untyped-def]
    """The first block, from ``begin`` in steps, which uses more sectors with those before it than ``most``, else
    ``end``."""
    count = 0
    mask = table.shape[0] - 1
    for block in range(begin, end, step):
        for i in range(block_accesses[block], block_accesses[block + 1]):
            number = sector[i]
            at = ((number * _SPREAD) >> 20) & mask
            while table[at] != _NONE and table[at] != number:
                at = (at + 1) & mask
            if table[at] == number:
                continue
            if count == most:
                return block
            table[at] = number
            count += 1
    return end
