"""Exact LRU stack distances (provisional)."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.typed import Dict

from manyscale.models.kernels import njit


class StackDistances:
    """Exact LRU stack distances of a stream of units, fed in pieces."""

    def __init__(self) -> None:
        self._last = Dict.empty(types.int64, types.int64)
        self._now = 0
        self._tree = np.zeros(1 << 16, np.int64)

    def feed(self, unit: np.ndarray) -> np.ndarray:
        """int64[n]: COLD (-1) for a first use, else the number of distinct units since the last use."""
        while self._now + len(unit) + 1 >= len(self._tree):
            self._grow()
        result = np.empty(len(unit), np.int64)
        self._now = _feed(unit, self._last, self._tree, self._now, result)
        return result

    @property
    def num_distinct(self) -> int:
        return len(self._last)

    def stack(self) -> np.ndarray:
        """int64[distinct]: units by last use, the latest last."""
        pairs = sorted((time, unit) for unit, time in self._last.items())
        return np.array([unit for _, unit in pairs], np.int64)

    def _grow(self) -> None:
        tree = np.zeros(2 * len(self._tree), np.int64)
        for time in self._last.values():
            _add(tree, time, 1)
        self._tree = tree


@njit(cache=True, nogil=True)
def _add(tree, place, value):  # type: ignore[no-untyped-def]
    place += 1
    while place < tree.shape[0]:
        tree[place] += value
        place += place & -place


@njit(cache=True, nogil=True)
def _sum(tree, place):  # type: ignore[no-untyped-def]
    total = 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(cache=True, nogil=True)
def _feed(unit, last, tree, now, result):  # type: ignore[no-untyped-def]
    for i in range(unit.shape[0]):
        if unit[i] in last:
            before = last[unit[i]]
            result[i] = _sum(tree, now) - _sum(tree, before + 1)
            _add(tree, before, -1)
        else:
            result[i] = -1
        last[unit[i]] = now
        _add(tree, now, 1)
        now += 1
    return now
