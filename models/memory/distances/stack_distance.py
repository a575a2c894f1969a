"""Exact LRU stack distances of a stream that is fed in pieces.

The stack distance of an access is the number of distinct units used since the last use of its unit (Mattson et al., IBM
Systems Journal 9(2), 1970): what AMM's algorithm 2 finds by walking back. A fully associative LRU cache of L units hits
exactly the accesses with 0 <= distance < L. What a unit is (byte, word, line), the caller says.

How distances are counted: ``stack_kernel``. The state follows the number of distinct units, not the stream's length.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.memory.distances import stack_kernel
from manyscale.models.memory.distances.stack_kernel import COARSE, DISTINCT, FINE, MIDDLE, NOW
from manyscale.models.memory.distances.unit_table import doubled, empty_table, max_keys

SLOTS_PER_PLACE: Final = 4  # slots of time per place of the table: a bit each, and the more, the less renumbering


class StackDistances:
    """Exact LRU stack distances of a stream of units, fed in pieces.

    ``initial_capacity``: places of the first table of units, a power of two, 8 at least; it grows as needed.
    """

    def __init__(self, initial_capacity: int = 1 << 14) -> None:
        self._table = empty_table(initial_capacity)
        self._position = np.zeros(3, np.int64)
        self._set_slots()

    def feed(self, unit: np.ndarray) -> np.ndarray:
        """int64[n]: COLD (-1) for a first use, else the number of distinct units since the last use.

        ``unit`` int64[n], of any values. O(n log(distinct)).
        """
        unit = np.require(unit, np.int64, ["C", "W"])  # the kernel is compiled once more for what is read-only
        distance = np.empty(len(unit), np.int64)
        done = 0
        while True:
            state = (self._table, self._slots, self._position)
            done += stack_kernel.feed(unit[done:], *state, max_keys(self._table), distance[done:])
            if done == len(unit):
                return distance
            if self.num_distinct == max_keys(self._table):
                self._table = doubled(self._table)
            self._renumber()

    @property
    def num_distinct(self) -> int:
        return int(self._position[DISTINCT])

    @property
    def num_bytes(self) -> int:
        """Size of the state."""
        return int(sum(array.nbytes for array in (self._table, *self._slots)))

    def stack(self) -> np.ndarray:
        """int64[distinct]: units by last use, the latest last. O(distinct)."""
        self._renumber()
        used = self._table[self._table[:, 1] >= 0]
        units = np.empty(len(used), np.int64)
        units[used[:, 1]] = used[:, 0]
        return units

    def _renumber(self) -> None:
        stack_kernel.renumber(self._table, self._slots.words)
        self._set_slots()

    def _set_slots(self) -> None:
        """New slots, as many as go with the table, of which the first ``num_distinct`` are live."""
        num_slots = max(64, SLOTS_PER_PLACE * len(self._table))
        num_live = self.num_distinct
        words = np.zeros(num_slots >> 6, np.uint64)
        words[: num_live >> 6] = ~np.uint64(0)
        words[num_live >> 6] = (1 << (num_live & 63)) - 1
        counts = (
            np.clip(num_live - (np.arange((num_slots >> bits) + 1) << bits), 0, 1 << bits).astype(np.int32)
            for bits in (FINE, MIDDLE, COARSE)
        )
        self._slots = stack_kernel.Slots(words, *counts)
        self._position[NOW] = num_live
