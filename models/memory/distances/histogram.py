"""Exact reuse profiles of streams: stack distances counted by site while the stream passes.

Memory follows the distinct units and the distinct pairs of site and distance. For huge traces the latter may be
bounded, too: with ``max_relative_error`` e distances are counted in bins, all of one width up to each next power of two
(log-linear, as in HdrHistogram), each told as the distance in its middle, at most e off. Distances below 1 / e stay
exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.stack_kernel import AHEAD
from manyscale.models.memory.distances.unit_table import (
    doubled,
    empty_table,
    find,
    group_shift,
    home,
    max_keys,
)
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

MAX_DISTANCE: Final = (1 << 32) - 2
PIECE: Final = 1 << 16  # accesses at a time: their distances stay in the cache until they are counted
_DISTANCE_BITS: Final = 32  # of a key: (site + 1) 2^32 + distance + 1


class DistanceHistogram:
    """Counts of (site, distance).

    Raises ValueError for a ``max_relative_error`` below 0 or above 0.5; 0 counts exactly.
    """

    def __init__(self, max_relative_error: float = 0.0, initial_capacity: int = 1 << 10) -> None:
        if not 0 <= max_relative_error <= 0.5:
            raise ValueError(f"a relative error of {max_relative_error} is not in [0, 0.5]")
        self._table = empty_table(initial_capacity)
        self._num_pairs = 0
        # a bin of width w begins at 2^bits w at least, its middle is w / 2 off at most
        self._bits = 63 if max_relative_error == 0 else max(0, int(np.ceil(-np.log2(max_relative_error))) - 1)

    def add(self, site: np.ndarray, distance: np.ndarray) -> None:
        """Counts accesses: ``site`` int32[n] (-1: of no known site), ``distance`` int64[n] (COLD, or up to
        MAX_DISTANCE; ValueError beyond). Expected O(n)."""
        if len(distance) and (distance.max() > MAX_DISTANCE or distance.min() < COLD):
            raise ValueError(f"distances of {distance.min()} to {distance.max()} are not in -1 to {MAX_DISTANCE}")
        done = 0
        while True:
            num_done, self._num_pairs = _count(
                site[done:], distance[done:], self._bits, self._table, self._num_pairs, max_keys(self._table)
            )
            done += num_done
            if done == len(site):
                return
            self._table = doubled(self._table)

    def profile(self, granularity_bytes: int) -> ReuseProfile:
        """What was counted so far, of units of ``granularity_bytes``. O(pairs log(pairs))."""
        key, count = self._table[self._table[:, 1] >= 0].T
        order = np.argsort(key)  # by site, then by distance
        key = key[order]
        site, distance = (key >> _DISTANCE_BITS) - 1, (key & ((1 << _DISTANCE_BITS) - 1)) - 1
        return ReuseProfile(granularity_bytes, site.astype(np.int32), distance, count[order].astype(np.float64))


def count_reuses(accesses: Accesses, stack: StackDistances, histogram: DistanceHistogram) -> Accesses:
    """Counts the distances of consecutive accesses, but of first uses: those are returned, in order, and not counted.

    O(accesses log(distinct)).
    """
    first_unit, first_site = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for begin in range(0, len(accesses.unit), PIECE):
        unit, site = accesses.unit[begin : begin + PIECE], accesses.site[begin : begin + PIECE]
        distance = stack.feed(unit)
        is_first = distance == COLD
        if is_first.any():
            first_unit.append(unit[is_first])
            first_site.append(site[is_first])
            site, distance = site[~is_first], distance[~is_first]
        histogram.add(site, distance)
    return Accesses(np.concatenate(first_unit), np.concatenate(first_site))


def reuse_profile(
    batches: Iterable[Accesses], granularity_bytes: int, *, steady: bool = False, max_relative_error: float = 0.0
) -> ReuseProfile:
    """The profile of a stream of accesses that comes in batches, of units of ``granularity_bytes``.

    ``steady``: as if the same stream had just passed before, which is not counted; nothing is then COLD. Only the first
    uses of units differ. Before each lie the units used after it in the earlier pass and those used so far in this one:
    its distance is what the stack that the stream leaves tells when the first uses are fed to it, in their order.

    O(accesses log(distinct)). Raises ValueError as ``DistanceHistogram`` does.
    """
    stack, histogram = StackDistances(), DistanceHistogram(max_relative_error)
    first_uses = []
    for batch in batches:
        first = count_reuses(batch, stack, histogram)
        if steady:
            first_uses.append(first)
        else:
            histogram.add(first.site, np.full(len(first.site), COLD))
    for first in first_uses:
        histogram.add(first.site, stack.feed(first.unit))
    return histogram.profile(granularity_bytes)


@njit(cache=True, nogil=True)
def _count(site, distance, bits, table, num_pairs, max_pairs):  # type: ignore[no-untyped-def]
    """Counts pairs until the table is full. Returns (accesses done, pairs). Expected O(accesses)."""
    shift = group_shift(table)
    keys, homes = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.int64)
    is_home = np.empty(AHEAD, np.bool_)  # not used: what counts is that the table was read
    done = 0
    while done < site.shape[0]:
        num_ahead = min(AHEAD, site.shape[0] - done)
        for k in range(num_ahead):
            told = distance[done + k]
            if told >> bits > 1:
                width_bits = 0
                while told >> (bits + width_bits) > 1:
                    width_bits += 1
                told = ((told >> width_bits) << width_bits) + ((1 << width_bits) >> 1)
            keys[k] = ((np.int64(site[done + k]) + 1) << _DISTANCE_BITS) + (told + 1)
            homes[k] = home(keys[k], shift)
        for k in range(num_ahead):
            is_home[k] = table[homes[k], 0] == keys[k]
        for k in range(num_ahead):
            place = find(table, keys[k], homes[k])
            if table[place, 1] < 0:
                if num_pairs == max_pairs:
                    return done + k, num_pairs
                num_pairs += 1
                table[place, 0] = keys[k]
                table[place, 1] = 0
            table[place, 1] += 1
        done += num_ahead
    return done, num_pairs
