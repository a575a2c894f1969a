"""What of a site's reuse profile stays and what grows with the input, told from a few runs.

Source: AMM, section 5.2: the first distances of a profile are the same for all inputs (eq. 9); the others grow, and are
put in a fixed number of bins, since their number differs between inputs. The source does not say what bins have in
common; here they hold equal shares of a group's accesses, and their distance is the mean over these (an entry at a
bin's edge is divided between both).

First uses are a part of their own. "The first distances" are those in all runs, up to where NEGLIGIBLE of the accesses
of some run lie at distances that not all have: beyond, two runs' growing distances may overlap by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

GAP: Final = 1.4  # ratio of neighbouring distances that are of two groups
NEGLIGIBLE: Final = 1e-3  # share of a site's accesses that makes no entry and no group of its own
FEWEST_ALIKE: Final = 4  # runs that must show the same groups: a parabola and one more


@dataclass(frozen=True)
class Part:
    """Entries of a site's profile that go together.

    ``runs`` int64[runs]: indices of the runs that show it. ``counts`` float64[runs]: its accesses in each.
    ``distances`` float64[runs, bins]: mean distances of its bins, ascending; one bin that is equal in all runs for a
    distance that stays and for first uses (COLD).
    """

    site: int
    runs: np.ndarray
    counts: np.ndarray
    distances: np.ndarray

    @property
    def is_cold(self) -> bool:
        return bool(self.distances[0, 0] == COLD)


def parts_of_site(
    site: int, profiles: Sequence[ReuseProfile], runs: np.ndarray, nearest: int, num_bins: int, splits_groups: bool
) -> list[Part]:
    """The parts of a site's ``profiles``, one of each of ``runs``. ``nearest``: the place in ``runs`` of that whose
    number of groups counts. O(entries log entries)."""
    kept = _kept_distances(profiles)
    parts = []
    for distance in kept.tolist():
        counts = np.array([each.count[each.distance == distance].sum() for each in profiles])
        parts.append(Part(site, runs, counts, np.full((len(runs), 1), float(distance))))
    growing = [_rows_outside(each, kept) for each in profiles]
    groups = [_groups(*rows, each.num_accesses) for rows, each in zip(growing, profiles, strict=True)]
    num_groups = np.array([len(each) for each in groups])
    is_alike = num_groups == num_groups[nearest]
    if not splits_groups or is_alike.sum() < min(FEWEST_ALIKE, len(runs)):
        groups = [[slice(0, len(distance))] if len(distance) else [] for distance, _ in growing]
        is_alike = np.array([len(each) for each in groups]) == len(groups[nearest])
    alike = np.flatnonzero(is_alike)
    for group in range(len(groups[nearest])):
        rows = [(growing[i][0][groups[i][group]], growing[i][1][groups[i][group]]) for i in alike]
        counts = np.array([count.sum() for _, count in rows])
        means = np.array([_bin_means(distance, count, num_bins) for distance, count in rows])
        parts.append(Part(site, runs[alike], counts, means))
    return parts


def _kept_distances(profiles: Sequence[ReuseProfile]) -> np.ndarray:
    """int64[]: the distances that stay, COLD among them if there is a first use in any run."""
    common = reduce(np.intersect1d, [each.distance for each in profiles])
    end = np.inf
    for each in profiles:
        is_other = ~np.isin(each.distance, common) & (each.distance != COLD)
        share = np.cumsum(each.count * is_other) / each.num_accesses
        beyond = np.searchsorted(share, NEGLIGIBLE)
        if beyond < len(share):
            end = min(end, each.distance[beyond])
    cold = [COLD] if any(COLD in each.distance for each in profiles) else []
    return np.concatenate((np.array(cold, np.int64), common[(common != COLD) & (common < end)]))


def _rows_outside(profile: ReuseProfile, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distances ascending, counts) of the rows that are none of the ``kept`` distances."""
    is_outside = ~np.isin(profile.distance, kept)
    return profile.distance[is_outside], profile.count[is_outside]


def _groups(distance: np.ndarray, count: np.ndarray, num_accesses: float) -> list[slice]:
    """Rows of each group: between leaps of the distance, each of more than NEGLIGIBLE accesses (fewer join the rows
    before them, or those after if they are the first)."""
    if not len(distance):
        return []
    leaps = np.flatnonzero((distance[1:] + 1) > GAP * (distance[:-1] + 1)) + 1
    bounds = [0]
    total = np.concatenate(([0.0], np.cumsum(count)))
    for leap in leaps.tolist():
        is_much_before = total[leap] - total[bounds[-1]] > NEGLIGIBLE * num_accesses
        if is_much_before and total[-1] - total[leap] > NEGLIGIBLE * num_accesses:
            bounds.append(leap)
    return [slice(*pair) for pair in zip(bounds, [*bounds[1:], len(distance)], strict=True)]


def _bin_means(distance: np.ndarray, count: np.ndarray, num_bins: int) -> np.ndarray:
    """float64[bins]: mean distance of each of ``num_bins`` equal shares of the accesses, nearest first."""
    reached = np.concatenate(([0.0], np.cumsum(count)))
    weighed = np.concatenate(([0.0], np.cumsum(count * distance)))
    edges = np.linspace(0, reached[-1], num_bins + 1)
    return np.diff(np.interp(edges, reached, weighed)) * (num_bins / reached[-1])
