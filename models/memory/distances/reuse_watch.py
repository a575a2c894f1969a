"""Finds the next use of sampled accesses, at next to no cost for the others.

A sampled access puts a watch on its unit; the next access to the unit ends the watch and tells the *reuse distance*:
all accesses between the two. Watched units stand in a hash table with linear probing; whether a place is taken also
stands in an array of bytes, small enough for a core's first level of cache. A unit whose own place is free is not
watched: that one load is all that nearly every access costs. (StatStack uses hardware watchpoints here.)
``unit_table`` has neither that array nor a way to remove keys.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.draws import GOLDEN

PIECE: Final = 1 << 16  # accesses between two looks at the table's size
_SMALLEST: Final = 1 << 14  # places: their bytes fill half of a 32 KiB cache
_SPARE: Final = 16  # places per watch, at least: few accesses then find a place taken by another unit
_LARGE: Final = 1 << 20  # places that no near cache holds: memory (25 B a place) counts then
_SPARE_IF_LARGE: Final = 4


class Watched(NamedTuple):
    """The table of watched units: whether a place is ``taken``, its ``unit``, when the watch was ``begun``, its
    ``label``; uint8, int64, int64, int64[places]."""

    taken: np.ndarray
    unit: np.ndarray
    begun: np.ndarray
    label: np.ndarray


class ReuseWatch:
    """Watches over a stream that is fed in pieces, forwards or (then all in reverse order) backwards."""

    def __init__(self) -> None:
        self._now = 0
        self._num_watched = 0
        self._new_tables(_SMALLEST)

    def _new_tables(self, size: int) -> None:
        self._table = Watched(np.zeros(size, np.uint8), *np.zeros((3, size), np.int64))
        self._shift = np.uint64(64 - size.bit_length() + 1)

    def feed(
        self, unit: np.ndarray, position: np.ndarray, label: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Go on with ``unit`` int64[n]; put a watch on those at ``position`` int64[k], ascending.

        Returns, of every watch that ended: its ``label`` int64[], the position in ``unit`` of the access that ended it,
        and the reuse distance int64[]. O(n + k) expected.
        """
        ended: list[tuple[np.ndarray, ...]] = [(np.empty(0, np.int64),) * 3]
        for first in range(0, len(unit), PIECE):
            end = min(first + PIECE, len(unit))
            low, high = np.searchsorted(position, [first, end]).tolist()
            self._make_room(high - low)
            found = np.empty((3, min(self._num_watched + high - low, end - first)), np.int64)
            self._num_watched, num_found = _watch(
                unit[first:end], position[low:high] - first, label[low:high], self._now,
                self._table, self._shift, self._num_watched, found,
            )  # fmt: skip
            self._now += end - first
            if num_found:
                ended.append((found[0, :num_found], found[1, :num_found] + first, found[2, :num_found]))
        label_of, place, distance = (np.concatenate(column) for column in zip(*ended, strict=True))
        return label_of, place, distance

    def pending(self) -> np.ndarray:
        """int64[]: labels of the watches that have not ended, ascending: their units were not used again."""
        return np.sort(self._table.label[self._table.taken > 0])

    def _make_room(self, num_more: int) -> None:
        size = len(self._table.begun)
        spare = _SPARE if size < _LARGE else _SPARE_IF_LARGE
        while self._num_watched * spare > size or 2 * (self._num_watched + num_more) > size:
            size *= 2
        if size == len(self._table.begun):
            return
        held = self._table.taken > 0
        unit, begun, label = (column[held] for column in self._table[1:])
        self._new_tables(size)
        _refill(unit, begun, label, self._table, self._shift)


@njit(cache=True, nogil=True)
def _refill(unit, begun, label, table, shift):  # type: ignore[no-untyped-def]
    """O(watches) expected."""
    for i in range(unit.shape[0]):
        _insert(unit[i], begun[i], label[i], table, shift)


@njit(cache=True, nogil=True)
def _home(unit, shift):  # type: ignore[no-untyped-def]
    """A unit's own place: the high bits of a multiplicative hash."""
    return (np.uint64(unit) * np.uint64(GOLDEN)) >> shift


@njit(cache=True, nogil=True)
def _insert(unit, begun, label, table, shift):  # type: ignore[no-untyped-def]
    """Of a unit that is not there. O(1) expected."""
    place = np.int64(_home(unit, shift))
    while table.taken[place]:
        place = (place + 1) & (table.taken.shape[0] - 1)
    table.taken[place] = 1
    table.unit[place] = unit
    table.begun[place] = begun
    table.label[place] = label


@njit(cache=True, nogil=True)
def _remove(place, table, shift):  # type: ignore[no-untyped-def]
    """Later entries move up to where they are still found (Knuth, TAOCP 3, section 6.4, algorithm R). O(1) expected."""
    mask = table.taken.shape[0] - 1
    hole, after = place, (place + 1) & mask
    while table.taken[after]:
        home = np.int64(_home(table.unit[after], shift))
        if ((after - home) & mask) >= ((after - hole) & mask):
            table.unit[hole] = table.unit[after]
            table.begun[hole] = table.begun[after]
            table.label[hole] = table.label[after]
            hole = after
        after = (after + 1) & mask
    table.taken[hole] = 0


@njit(cache=True, nogil=True)
def _watch(unit, position, label, now, table, shift, num_watched, found):  # type: ignore[no-untyped-def]
    """(watches, ended watches); ``found`` int64[3, ...]: label, position, reuse distance. O(accesses) expected."""
    mask = table.taken.shape[0] - 1
    num_found = 0
    at = 0
    for k in range(position.shape[0] + 1):
        is_sample = k < position.shape[0]
        stop = position[k] + 1 if is_sample else unit.shape[0]
        for i in range(at, stop):
            home = _home(unit[i], shift)
            if table.taken[home]:
                place = np.int64(home)
                while table.taken[place] and table.unit[place] != unit[i]:
                    place = (place + 1) & mask
                if table.taken[place]:
                    found[0, num_found] = table.label[place]
                    found[1, num_found] = i
                    found[2, num_found] = now + i - table.begun[place] - 1
                    num_found += 1
                    num_watched -= 1
                    _remove(place, table, shift)
        if is_sample:
            _insert(unit[stop - 1], now + stop - 1, label[k], table, shift)
            num_watched += 1
        at = stop
    return num_watched, num_found
