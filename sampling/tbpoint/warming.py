"""Which of the skipped blocks of a launch L2 is shown, so that those that follow find what they would have found.

L2 keeps what was used last. If it were shown all that was skipped, it would forget what the resident blocks had used,
which run on behind the skip as if nothing had been between: they would miss what they never miss (b+tree: a miss
ratio of 0.155 instead of 0.125). So it is shown only the last of the skipped blocks, as many as fill SHARE of it; the
rest is left to what was there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free

SHARE: Final = 0.5
_NONE: Final = np.iinfo(np.int64).min
_SPREAD: Final = 0x9E3779B97F4A7C1  # of a sector's number over the table: Knuth's multiplicative hashing


def first_shown(sector: np.ndarray, block_accesses: np.ndarray, first: int, end: int, capacity: int) -> int:
    """The first of blocks [first, end) from which on they use at most SHARE of ``capacity`` sectors; ``end`` if none is
    shown. ``sector`` int64[accesses] of the launch; ``block_accesses`` int64[blocks + 1]: the first of each block.
    O(accesses of the blocks that are shown)."""
    most = int(SHARE * capacity)
    table = np.full(1 << (2 * most + 1).bit_length(), _NONE)
    return int(_first_shown(sector, block_accesses, first, end, most, table))


@allocation_free
def _first_shown(sector, block_accesses, first, end, most, table):  # type: ignore[no-untyped-def]
    count = 0
    mask = table.shape[0] - 1
    for block in range(end - 1, first - 1, -1):
        for i in range(block_accesses[block], block_accesses[block + 1]):
            number = sector[i]
            at = ((number * _SPREAD) >> 20) & mask
            while table[at] != _NONE and table[at] != number:
                at = (at + 1) & mask
            if table[at] == number:
                continue
            if count == most:
                return block + 1
            table[at] = number
            count += 1
    return first
