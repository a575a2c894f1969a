"""Which lines a stream used last before a place: what fills LRU caches of any size as the stream would have.

Method: a table of the last use of every line, made in one pass whatever the caches are (Barr, Pan, Zhang, Asanovic,
"Accelerating multiprocessor simulation with a memory timestamp record", ISPASS 2005): an LRU cache of L lines holds, of
each of its sets, those used last. A line counts as written if it ever was.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.distances.unit_table import (
    doubled,
    empty_table,
    find,
    group_shift,
    home,
    max_keys,
)

_NOW, _LINES, _BLOCKS, _ACCESSES = range(4)  # of the state: time, lines so far; blocks and accesses of the batch done


class LastUses:
    """Last uses of lines of ``line_bytes`` (a power of two), of a stream that is fed in pieces."""

    def __init__(self, sites: Sites, line_bytes: int) -> None:
        self._sites, self._shift = sites, line_bytes.bit_length() - 1
        self._table = empty_table(1 << 14)
        self._state = np.zeros(4, np.int64)

    def feed(self, block_ids: np.ndarray, addresses: np.ndarray) -> None:
        """What the stream executes next: int32[executions], uint64[accesses]. O(executions + accesses)."""
        self._state[_BLOCKS] = self._state[_ACCESSES] = 0
        sites = (self._sites.offsets, self._sites.bytes, self._sites.is_store)
        while True:
            _feed(block_ids, addresses, sites, self._shift, self._table, max_keys(self._table), self._state)
            if self._state[_BLOCKS] == len(block_ids):
                return
            self._table = doubled(self._table)

    def latest(self, most: int) -> np.ndarray:
        """int64[]: the ``most`` lines that were used last, the latest last, as 2 x line + (1 where it was written).
        O(lines log lines)."""
        used = self._table[self._table[:, 1] >= 0]
        order = np.argsort(used[:, 1])[max(0, len(used) - most) :]
        latest = used[order]
        return np.asarray(latest[:, 0] << 1 | latest[:, 1] & 1)


@njit(cache=True, nogil=True)
def _feed(block_ids, addresses, sites, shift, table, most, state):  # type: ignore[no-untyped-def]
    """Goes on until all is done or the table may become too full. Values of the table: 2 x time + written. ``sites``:
    their offsets by block, bytes, and whether they store."""
    offsets, num_bytes, is_store = sites
    to_home = group_shift(table)
    now, lines, at = state[_NOW], state[_LINES], state[_ACCESSES]
    for i in range(state[_BLOCKS], block_ids.shape[0]):
        block = block_ids[i]
        if lines + 4 * (offsets[block + 1] - offsets[block]) > most:
            state[_NOW], state[_LINES], state[_BLOCKS], state[_ACCESSES] = now, lines, i, at
            return
        for site in range(offsets[block], offsets[block + 1]):
            line = np.int64(addresses[at] >> np.uint64(shift))
            last = np.int64((addresses[at] + np.uint64(max(num_bytes[site], 1) - 1)) >> np.uint64(shift))
            at += 1
            while line <= last:
                place = find(table, line, home(line, to_home))
                written = 1 if is_store[site] else 0
                if table[place, 1] < 0:
                    table[place, 0] = line
                    lines += 1
                else:
                    written |= table[place, 1] & 1
                table[place, 1] = now << 1 | written
                now += 1
                line += 1
    state[_NOW], state[_LINES], state[_BLOCKS], state[_ACCESSES] = now, lines, block_ids.shape[0], at
