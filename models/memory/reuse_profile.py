"""Reuse profiles: how often each stack distance occurs, by the site that accessed.

Source: AMM (section 3.2). Its "reuse distance" is the number of distinct units between two uses of a unit: our stack
distance. P(D | block) is a block's profile over its number of accesses; P(D) of the program, eq. 1, is their sum
weighed by *accesses* (weighed by executions, as eq. 3 prints it, conditional profiles do not add up to the whole).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

COLD: Final = -1  # distance of a first use: no cache holds the unit


@dataclass(frozen=True)
class ReuseProfile:
    """A histogram. Rows are sorted by (``site``, ``distance``) and each pair stands once; ``count`` > 0.

    ``site`` int32[n] (-1: unknown), ``distance`` int64[n] (COLD, or distinct units between), ``count`` float64[n]
    (whole numbers where all was measured, estimates where a sample was). ``granularity_bytes``: size of a unit.
    """

    granularity_bytes: int
    site: np.ndarray
    distance: np.ndarray
    count: np.ndarray

    @staticmethod
    def of(granularity_bytes: int, site: np.ndarray, distance: np.ndarray, count: np.ndarray) -> ReuseProfile:
        """A profile of rows in any order, equal pairs added up. O(n log n)."""
        site, distance, total = added_up(site, distance, np.asarray(count, np.float64))
        kept = total > 0
        return ReuseProfile(granularity_bytes, site[kept].astype(np.int32), distance[kept], total[kept])

    @cached_property
    def num_accesses(self) -> float:
        return float(self.count.sum())

    def relabelled(self, label: np.ndarray) -> ReuseProfile:
        """The profile by ``label[site]`` instead of by site; ``sites.block`` gives the profile by block. What is of no
        known site stays so."""
        return ReuseProfile.of(self.granularity_bytes, np.append(label, -1)[self.site], self.distance, self.count)

    def whole(self) -> ReuseProfile:
        """The profile of the program: all sites as one, 0."""
        return ReuseProfile.of(self.granularity_bytes, np.zeros_like(self.site), self.distance, self.count)

    def of_site(self, site: int) -> ReuseProfile:
        """The rows of one site."""
        rows = slice(*np.searchsorted(self.site, [site, site + 1]).tolist())
        return ReuseProfile(self.granularity_bytes, self.site[rows], self.distance[rows], self.count[rows])

    def distribution(self) -> tuple[np.ndarray, np.ndarray]:
        """(distances int64[] ascending, COLD last, their probabilities float64[]) of the program."""
        whole = self.whole()
        is_cold = whole.distance == COLD
        order = np.concatenate((np.flatnonzero(~is_cold), np.flatnonzero(is_cold)))
        return whole.distance[order], whole.count[order] / max(whole.num_accesses, 1e-300)


def added_up(label: np.ndarray, distance: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different pairs of ``label`` and ``distance`` (whole numbers from -1 on), sorted, int64[] each, and the sum
    of their counts, in the order in which they are given. O(n log n)."""
    label, distance = label.astype(np.int64), distance.astype(np.int64)
    num_bits = (int(distance.max(initial=0)) + 1).bit_length()
    if (int(label.max(initial=0)) + 1).bit_length() + num_bits < 64:  # one key sorts twice as fast as two
        order = np.argsort(((label + 1) << num_bits) | (distance + 1), kind="stable")
    else:
        order = np.lexsort((distance, label))
    label, distance = label[order], distance[order]
    is_new = np.ones(len(label), bool)
    is_new[1:] = (np.diff(label) != 0) | (np.diff(distance) != 0)
    first = np.flatnonzero(is_new)
    total = np.add.reduceat(count[order], first) if len(first) else count
    return label[first], distance[first], total


def merged(profiles: list[ReuseProfile]) -> ReuseProfile:
    """Counts added up. Raises ValueError unless all have one granularity."""
    granularities = {profile.granularity_bytes for profile in profiles}
    if len(granularities) != 1:
        raise ValueError(f"profiles of granularities {sorted(granularities)} B cannot be added up")
    columns = [np.concatenate([getattr(p, name) for p in profiles]) for name in ("site", "distance", "count")]
    return ReuseProfile.of(granularities.pop(), *columns)
