"""The distances of a traced stream as another input would have them.

The accesses of a site keep their order by distance: what is at a quantile of the site's distances in the traced run is
at the same quantile of its extrapolated ones (profile_extrapolation.py). Accesses of equal distance spread evenly over
what their part of the quantiles becomes, in no order. First uses are the farthest. Source of the profiles: AMM, section
5.2; that its distances say what a stream meets is this project's use of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.memory.draws import GOLDEN
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

_FARTHEST: Final = np.int64(1) << 40  # beyond any distance
_EVENLY: Final = GOLDEN / 2**64  # its multiples modulo 1 spread evenly (draws.py)


class MovedDistances:
    """From the profile ``traced`` to the profile ``grown`` of another input, both by the same labels (sites or blocks).

    O(rows log rows) to build.
    """

    def __init__(self, traced: ReuseProfile, grown: ReuseProfile) -> None:
        self._label, self._distance, self._before, self._count, self._total = _cumulated(traced)
        label, self._to, before, count, total = _cumulated(grown)
        self._until = before + count + _starts(total)[label]
        self._to_total, self._to_start = total, _starts(total)
        self._key = self._label * (2 * _FARTHEST) + self._distance

    def at(self, label: np.ndarray, distance: np.ndarray, first: int = 0) -> np.ndarray:
        """int64[n]: the distances that accesses of the traced run, by ``label`` int32[n] at ``distance`` int64[n], have
        at the other input; ``first``: accesses before these. A label that the other input has no accesses of keeps its
        distances. O(n log rows)."""
        moving = np.flatnonzero(label < len(self._to_total))
        moving = moving[self._to_total[label[moving]] > 0]
        if not len(self._key) or not len(moving):
            return distance
        mine, own = label[moving].astype(np.int64), distance[moving]
        key = mine * (2 * _FARTHEST) + np.where(own == COLD, _FARTHEST, own)
        row = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        drawn = ((first + moving) * _EVENLY) % 1.0
        quantile = (self._before[row] + drawn * self._count[row]) / self._total[self._label[row]]
        wanted = self._to_start[mine] + np.minimum(quantile, 1 - 1e-12) * self._to_total[mine]
        found = self._to[np.minimum(np.searchsorted(self._until, wanted, "right"), len(self._to) - 1)]
        moved = distance.copy()
        moved[moving] = np.where(found == _FARTHEST, COLD, found)
        return moved


def _cumulated(profile: ReuseProfile) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the rows by label and distance, first uses last: (label, distance, accesses of the label before, accesses),
    and float64[labels]: all accesses of each label."""
    label = profile.site.astype(np.int64)
    distance = np.where(profile.distance == COLD, _FARTHEST, profile.distance)
    kept = label >= 0
    order = np.lexsort((distance[kept], label[kept]))
    label, distance, count = label[kept][order], distance[kept][order], profile.count[kept][order]
    total = np.bincount(label, count) if len(label) else np.zeros(1)
    before = np.cumsum(count) - count - _starts(total)[label]
    return label, distance, before, count, total


def _starts(total: np.ndarray) -> np.ndarray:
    """float64[labels]: accesses of the labels before each."""
    return np.cumsum(total) - total
