"""Complete linkage cut at a distance: clusters no two of whose members are farther apart than a threshold.

Method: agglomerative clustering, where the distance of two clusters is that of their farthest members (Sorensen, 1948),
stopped once the nearest two clusters are farther apart than the threshold: what TBPoint (IPDPS'14, sections III and
IV-B) calls hierarchical clustering with a distance threshold. Distances are Euclidean; equal vectors are one point.

* In one dimension clusters are intervals of the sorted values, only neighbours ever merge, and merging any two that are
  each other's nearest gives the same tree in any order (Bruynooghe, 1978: complete linkage is reducible). One sweep
  with steps back does it in O(n) after sorting: `line_cut`.
* In several dimensions points on the two sides of a gap that is wider than the threshold, along any axis, never meet in
  a cluster, so each side is clustered by itself. Pieces of at most MOST_POINTS distinct vectors are clustered exactly
  (scipy's nearest-neighbour chain).
* Larger pieces go through cells first: a grid whose cells have a diagonal of 1/16 of the threshold, 1/8, 1/4 or 1/2,
  the finest that leaves at most MOST_CELLS cells in each piece. Cells are clustered by the farthest distance of the
  boxes around their points, which is never less than that of the points. If pieces are too large with the coarsest
  cells, they are halved across their longest axis.

What holds always: no two members of a cluster are farther apart than the threshold. With cells of diagonal d, two
clusters that are left apart may have a union as narrow as the threshold less 2 d; where pieces were halved, clusters on
the two sides of a cut may be narrower still: there are more clusters than there need be, never wider ones.

Cost: O(n log n) for the distinct vectors and the cells, O(m x MOST_CELLS) time for m cells, O(MOST_POINTS^2) memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit

MOST_POINTS: Final = 4096  # clustered exactly: a matrix of 64 MiB
MOST_CELLS: Final = 1024
_CELL_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the threshold
_FEW: Final = 256  # values, which are cut before a kernel for them would be loaded, let alone compiled
_ROUNDING: Final = 1 + 1e-12  # a distance that is the threshold but for rounding is within it


@dataclass(frozen=True)
class Clusters:
    """``label`` int64[points], numbered in the order in which clusters first occur. ``cell_diagonal``: 0 where the cut
    is exact; ``num_halvings`` of pieces that cells left too large; ``num_distinct`` vectors."""

    label: np.ndarray
    cell_diagonal: float
    num_halvings: int
    num_distinct: int

    @property
    def num_clusters(self) -> int:
        return int(self.label.max(initial=-1)) + 1


def cluster(points: np.ndarray, threshold: float) -> Clusters:
    """Clusters of ``points`` float64[n, dimensions], at most ``threshold`` wide. Raises ValueError for a threshold that
    is negative or not finite, and for points that are not finite."""
    points = np.ascontiguousarray(points, np.float64)
    if not 0 <= threshold < np.inf:
        raise ValueError(f"the threshold is {threshold}; it must be a distance, 0 or more")
    if not np.all(np.isfinite(points)):
        raise ValueError(f"point {int(np.argmin(np.isfinite(points).all(axis=1)))} is not finite")
    if not len(points):
        return Clusters(np.zeros(0, np.int64), 0.0, 0, 0)
    limit = threshold * _ROUNDING
    points = points[:, np.ptp(points, axis=0) > 0]
    order, group = _distinct(points)
    distinct = points[order]
    if distinct.shape[1] <= 1:
        label = line_cut(distinct.reshape(len(distinct), -1)[:, 0], limit) if distinct.shape[1] else np.zeros(1, int)
        return Clusters(by_occurrence(label[group]), 0.0, 0, len(distinct))
    label, diagonal, halvings = _clusters(distinct, limit)
    return Clusters(by_occurrence(label[group]), diagonal, halvings, len(distinct))


def line_cut(values: np.ndarray, threshold: float) -> np.ndarray:
    """int64[n]: cluster of each of ``values`` float64[n], in one dimension, from 0 in ascending order of values."""
    order = np.argsort(values, kind="stable")
    ascending = np.ascontiguousarray(values[order], np.float64)
    starts = np.flatnonzero(np.append(True, ascending[1:] > ascending[:-1])) if len(values) else np.zeros(0, np.int64)
    cut = _cut_ascending if len(starts) <= _FEW else _cut_many_ascending
    of_distinct = cut(ascending[starts], threshold)
    label = np.empty(len(values), np.int64)
    label[order] = np.repeat(of_distinct, np.diff(np.append(starts, len(values))))
    return label


def _cut_ascending(values: np.ndarray, threshold: float) -> np.ndarray:
    """Clusters of distinct ascending values.

    Invariant: each cluster on the left of ``at`` is nearer to its right neighbour than to its left one, or farther than
    the threshold from both. So if ``at`` is nearer to its left neighbour they are each other's nearest; after they
    merge, the invariant may no longer hold of the one before them, which is looked at next.
    """
    count = values.shape[0]
    high = values.copy()  # of the cluster that begins at a value; values[] are the low ends
    before = np.arange(count) - 1
    after = np.arange(count) + 1
    at = 0
    while at < count:
        left = before[at]
        to_left = high[at] - values[left] if left >= 0 else np.inf
        to_right = high[after[at]] - values[at] if after[at] < count else np.inf
        if to_left <= threshold and to_left <= to_right:
            high[left] = high[at]
            after[left] = after[at]
            if after[at] < count:
                before[after[at]] = left
            before[at] = -2  # gone
            at = left if before[left] < 0 else before[left]
        else:
            at = after[at]
    label = np.empty(count, np.int64)
    last = -1
    for i in range(count):
        if before[i] != -2:
            last += 1
        label[i] = last
    return label


_cut_many_ascending: Final = njit(cache=True)(_cut_ascending)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[distinct]: a row of each value, in ascending order; int64[rows]: which distinct one each is)."""
    if not rows.shape[1]:
        return np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    is_first = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    group = np.empty(len(rows), np.int64)
    group[order] = np.cumsum(is_first) - 1
    return order[is_first], group


def by_occurrence(label: np.ndarray) -> np.ndarray:
    """The same clusters, numbered in the order in which they occur."""
    values, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    number = np.empty(len(values), np.int64)
    number[np.argsort(first)] = np.arange(len(values))
    return number[inverse]


def _clusters(points: np.ndarray, limit: float) -> tuple[np.ndarray, float, int]:
    """(label, largest diagonal of a cell, number of halvings) of distinct points."""
    label = np.empty(len(points), np.int64)
    diagonal, halvings, num_labels = 0.0, 0, 0
    for piece in _pieces(points, points, np.arange(len(points)), limit):
        if len(piece) <= MOST_POINTS:
            found = _complete_linkage(points[piece], points[piece], limit)
        else:
            found, one_diagonal, one_halvings = _by_cells(points[piece], limit)
            diagonal, halvings = max(diagonal, one_diagonal), halvings + one_halvings
        label[piece] = num_labels + found
        num_labels += int(found.max()) + 1
    return label, diagonal, halvings


def _pieces(low: np.ndarray, high: np.ndarray, rows: np.ndarray, limit: float) -> list[np.ndarray]:
    """``rows`` of boxes cut apart at all gaps wider than the limit along an axis, until there is none."""
    left, done = [rows], []
    while left:
        piece = left.pop()
        for axis in range(low.shape[1] if len(piece) > 1 else 0):
            order = piece[np.argsort(low[piece, axis], kind="stable")]
            reach = np.maximum.accumulate(high[order, axis])
            cuts = np.flatnonzero(low[order[1:], axis] - reach[:-1] > limit) + 1
            if len(cuts):
                left.extend(np.split(order, cuts))
                break
        else:
            done.append(np.sort(piece))
    return sorted(done, key=lambda piece: int(piece[0]))


def _by_cells(points: np.ndarray, limit: float) -> tuple[np.ndarray, float, int]:
    """(label, diagonal of a cell, number of halvings)."""
    for share in _CELL_SHARES:
        side = share * limit / np.sqrt(points.shape[1])
        order, cell = _distinct(np.floor((points - points.min(axis=0)) / side))
        low, high = _boxes(points, cell, len(order))
        pieces = _pieces(low, high, np.arange(len(order)), limit)
        if max(map(len, pieces)) <= MOST_CELLS:
            break
    halvings = 0
    label, num_labels = np.empty(len(order), np.int64), 0
    while pieces:
        piece = pieces.pop(0)
        if len(piece) > MOST_CELLS:
            pieces[:0] = _halves(low, high, piece)
            halvings += 1
            continue
        found = _complete_linkage(low[piece], high[piece], limit)
        label[piece] = num_labels + found
        num_labels += int(found.max()) + 1
    return label[cell], share * limit, halvings


def _boxes(points: np.ndarray, cell: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest coordinates of the points of each cell."""
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(count))
    return np.minimum.reduceat(points[order], starts), np.maximum.reduceat(points[order], starts)


def _halves(low: np.ndarray, high: np.ndarray, piece: np.ndarray) -> list[np.ndarray]:
    axis = int(np.argmax(high[piece].max(axis=0) - low[piece].min(axis=0)))
    order = piece[np.argsort(low[piece, axis], kind="stable")]
    return [np.sort(half) for half in np.array_split(order, 2)]


def _complete_linkage(low: np.ndarray, high: np.ndarray, limit: float) -> np.ndarray:
    """int64[n]: clusters of boxes [low, high], by the farthest distance of any two points in them."""
    count = len(low)
    if count == 1:
        return np.zeros(1, np.int64)
    from scipy.cluster.hierarchy import fcluster, linkage

    first, second = np.triu_indices(count, 1)
    squares = np.zeros(len(first))
    for axis in range(low.shape[1]):
        squares += np.maximum(high[first, axis] - low[second, axis], high[second, axis] - low[first, axis]) ** 2
    tree = linkage(np.sqrt(squares), "complete")
    return np.unique(fcluster(tree, limit, "distance"), return_inverse=True)[1].astype(np.int64)
