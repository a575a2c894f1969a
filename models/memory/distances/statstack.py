"""StatStack: stack distances from sampled reuse distances.

Source: Eklov and Hagersten, "StatStack: efficient modeling of LRU caches", ISPASS 2010.

The *reuse distance* of a use is the number of all accesses since the last use of its unit; it is cheap to measure for
sampled accesses alone (``reuse_watch``). The *stack distance* counts the distinct units among them: of the R
intermediate accesses, those that are the last to their unit in the window, that is, whose own next use lies past its
end. For the intermediate access with k accesses after it in the window this means a reuse distance of at least k, so

    expected stack distance(R) = sum over k = 0 .. R - 1 of P(reuse distance >= k),

where a unit that is never used again reuses at infinity (StatStack's *dangling* samples). Assumption: the reuse
distances inside each window are distributed as in the whole stream. Distances are exact for a stream in which every
access has one reuse distance; they are off where phases differ (STREAM's kernels on two and on three arrays), and some
per cent too long on short streams, where the last use of every unit is a large part of all. (To treat those as cut off,
as survival analysis does, mends random accesses and worsens STREAM.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.reuse_watch import ReuseWatch
from manyscale.models.memory.draws import chosen_between, mixed
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, added_up

_KEPT: Final = 1 << 20  # measured reuses after which equal ones are added up


@dataclass(frozen=True)
class ExpectedStackDistance:
    """A function of the reuse distance: linear between ``reuse_distance`` int64[n], ascending from 0, where it has the
    values ``stack_distance`` float64[n]; beyond the last it rises by ``last_slope`` (the share never used again)."""

    reuse_distance: np.ndarray
    stack_distance: np.ndarray
    last_slope: float

    def __call__(self, reuse_distance: np.ndarray) -> np.ndarray:
        """float64[m]: expected stack distances; reuse distances may be fractions, COLD stays COLD. O(m log n)."""
        result = np.interp(reuse_distance, self.reuse_distance, self.stack_distance)
        beyond = np.maximum(reuse_distance - self.reuse_distance[-1], 0)
        return np.where(np.asarray(reuse_distance) == COLD, float(COLD), result + self.last_slope * beyond)


def expected_stack_distance(reuse_distance: np.ndarray, count: np.ndarray) -> ExpectedStackDistance:
    """From a histogram of reuse distances, in any order; COLD rows are of units never used again.

    ``reuse_distance`` int64[n], ``count`` float64[n] (any scale). Raises ValueError if nothing is counted.
    O(n log n).
    """
    total = float(count.sum())
    if not total > 0:
        raise ValueError("a histogram that counts nothing has no expected stack distances")
    is_reuse = reuse_distance != COLD
    distance, place = np.unique(reuse_distance[is_reuse], return_inverse=True)
    share = np.bincount(place, count[is_reuse], len(distance)) / total
    # P(reuse distance >= k) is 1 up to the smallest distance, and falls after each
    last_slope = float(count[~is_reuse].sum()) / total
    at_least = last_slope + np.append(np.cumsum(share[::-1])[::-1], 0.0)
    knots = np.concatenate(([0], distance + 1))
    return ExpectedStackDistance(
        knots, np.concatenate(([0.0], np.cumsum(np.diff(knots) * at_least[: len(distance)]))), last_slope
    )


class ReuseCounts:
    """How often each pair of a label and a reuse distance was measured."""

    def __init__(self) -> None:
        self._pieces = [np.empty((3, 0), np.int64)]
        self._num_new = 0

    def add(self, label: np.ndarray, distance: np.ndarray) -> None:
        """Measured pairs, int64[n] each."""
        self._pieces.append(np.stack((label, distance, np.ones_like(label))))
        self._num_new += len(label)
        if self._num_new > max(_KEPT, self._pieces[0].shape[1]):
            self.rows()

    def rows(self) -> np.ndarray:
        """int64[3, n]: label, reuse distance, count; each pair once. O(n log n)."""
        self._pieces = [np.stack(added_up(*np.concatenate(self._pieces, axis=1)))]
        self._num_new = 0
        return self._pieces[0]


class StatStack:
    """Samples one of every ``period`` accesses of a stream that is fed in pieces, however it is cut.

    ``period``: 100 for 1 %. Memory grows with the samples whose units are not used again, and with the number of
    different (site, reuse distance).
    """

    def __init__(self, period: int = 100, seed: int = 0) -> None:
        if period < 1:
            raise ValueError(f"one of every {period} accesses cannot be sampled")
        self._period = period
        self._start = np.uint64(mixed(seed, 0, 0))
        self._now = 0
        self._watch = ReuseWatch()
        self._site_counts = np.zeros(0, np.int64)
        self._reuses = ReuseCounts()

    def feed(self, accesses: Accesses) -> None:
        """Consecutive accesses. O(accesses) expected."""
        end = self._now + len(accesses.unit)
        position = chosen_between(self._start, self._period, self._now, end) - self._now
        _, place, distance = self._watch.feed(accesses.unit, position, np.zeros_like(position))
        self._reuses.add(accesses.site[place].astype(np.int64), distance)
        self._site_counts = counted_sites(accesses.site, self._site_counts)
        self._now = end

    def reuse_distances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(site, reuse distance, count), each int64[n], of the sampled reuses by the site that reused. Samples that
        have not been reused stand as one row of site -1 and distance COLD."""
        site, distance, count = self._reuses.rows()
        num_dangling = len(self._watch.pending())
        rows = ((site, -1), (distance, COLD), (count, num_dangling))
        site, distance, count = (np.append(column, last) for column, last in rows)
        return site, distance, count

    def profile(self, granularity_bytes: int) -> ReuseProfile:
        """Estimated counts of stack distances, rounded to whole distances; each site's add up to its accesses.

        A sample that is never reused stands for a unit, and so for a first use, but not for the site of it: first uses
        are shared out in proportion to the accesses of each site that sampled reuses do not explain. Raises ValueError
        where no access was sampled.
        """
        if not self._now:
            return ReuseProfile.of(granularity_bytes, *np.zeros((3, 0)))
        site, distance, count = self.reuse_distances()
        if not count.any():
            raise ValueError(f"of {self._now} accesses, one of every {self._period}, none was sampled")
        convert = expected_stack_distance(distance, count.astype(np.float64))
        site, distance, count = site[:-1], distance[:-1], count[:-1].astype(np.float64)
        num_sites = len(self._site_counts)
        reuses = np.bincount(site, count, num_sites)
        cold = np.maximum(self._site_counts / self._period - reuses, 0.0)
        num_dangling = len(self._watch.pending())
        cold *= num_dangling / max(cold.sum(), 1e-300)
        # a site that no sample met is taken to hit like nothing: all its accesses as first uses
        scale = self._site_counts / np.maximum(reuses + cold, 1e-300)
        cold_count = np.where(reuses + cold > 0, cold * scale, self._site_counts)
        return ReuseProfile.of(
            granularity_bytes,
            np.append(site, np.arange(num_sites)),
            np.append(np.rint(convert(distance)).astype(np.int64), np.full(num_sites, COLD)),
            np.append(count * scale[site], cold_count),
        )


def counted_sites(site: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``counts`` int64[sites] with the accesses of each ``site`` int32[n] added, longer where sites are new. O(n)."""
    num_sites = int(site.max()) + 1 if len(site) else 0
    result = np.zeros(max(num_sites, len(counts)), np.int64)
    result[: len(counts)] = counts
    _count(site, result)
    return result


@njit(cache=True, nogil=True)
def _count(site, counts):  # type: ignore[no-untyped-def]
    """O(accesses)."""
    for i in range(site.shape[0]):
        counts[site[i]] += 1
