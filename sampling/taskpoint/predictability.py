"""How well the execution times of task instances are predicted by those of a few of them.

Source: Grass, UPC 2017, chapter 4. Instances are given in the order in which they were executed, with their instruction
counts, known beforehand, and cycles. Each predictor measures some instances and predicts the cycles of the others of
their task type:

``first``, ``second``: the first (second) instance stands for all of its type (section 4.2; the only one of a type
stands for itself).
``interpolation``: an instance with less than 90 % of the smallest or more than 110 % of the largest instruction count
measured is measured; the others follow by linear interpolation of cycles over instructions between the measured ones
next to them, or by the outermost one (section 4.3.2).
``clusters``: k-means on the instruction counts (the best division, not one that depends on where a search began); the
instance nearest to the centre of a cluster stands for all of it (section 4.3.2), and where many are equally near, the
middle one of them in the order of execution (the source leaves that open; the first one fills the caches for the
others). The source has k = 2; without a given k, that of the greatest mean silhouette (Rousseeuw, J. Comput. Appl.
Math. 20, 1987) is taken, up to MOST_CLUSTERS, and one cluster if none reaches LEAST_SILHOUETTE ("reasonable structure";
Kaufman and Rousseeuw, "Finding Groups in Data", 1990, ch. 2).

Errors are |predicted - actual| / actual of sums of cycles; equation 4.1 as printed is not symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, inner, inner_inlined

PERCENTILES: Final = (5, 25, 50, 75, 95)
MOST_CLUSTERS: Final = 8
LEAST_SILHOUETTE: Final = 0.5
MOST_COMPARED: Final = 1_000  # distinct instruction counts that a silhouette is computed of


@dataclass(frozen=True)
class Instances:
    """Of a run, in the order of execution: ``task_type`` int[n], ``instructions`` int64[n], ``cycles`` float64[n].
    Raises ValueError if they do not fit or are negative or not finite."""

    task_type: np.ndarray
    instructions: np.ndarray
    cycles: np.ndarray

    def __post_init__(self) -> None:
        for name, dtype in (("task_type", np.int64), ("instructions", np.int64), ("cycles", np.float64)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        sizes = {len(self.task_type), len(self.instructions), len(self.cycles)}
        if len(sizes) > 1:
            raise ValueError("task types, instruction counts and cycles are not of the same number of instances")
        wrong = (self.task_type < 0) | (self.instructions < 0) | ~(np.isfinite(self.cycles) & (self.cycles >= 0))
        if np.any(wrong):
            row = int(np.argmax(wrong))
            values = f"type {self.task_type[row]}, {self.instructions[row]} instructions, {self.cycles[row]} cycles"
            raise ValueError(f"task instance {row}: {values}; none may be negative")

    @property
    def num_types(self) -> int:
        return int(self.task_type.max(initial=-1)) + 1


@dataclass(frozen=True)
class Prediction:
    """``cycles`` float64[n], of measured instances their own; ``is_measured`` bool[n]."""

    cycles: np.ndarray
    is_measured: np.ndarray


@dataclass(frozen=True)
class ErrorRow:
    """``task_type`` -1: all together. ``error`` is NaN where nothing takes any time."""

    predictor: str
    task_type: int
    num_instances: int
    num_measured: int
    actual_cycles: float
    predicted_cycles: float

    @property
    def error(self) -> float:
        if not self.actual_cycles:
            return np.nan
        return abs(self.predicted_cycles - self.actual_cycles) / self.actual_cycles


def standing_for_all(instances: Instances, which: int) -> Prediction:
    """The ``which``-th instance, from 0, of each type stands for all; the last one of a type with fewer. O(n log n)."""
    order, begin = _by_type(instances.task_type)
    sizes = np.diff(begin)
    chosen = order[begin[:-1] + np.minimum(which, sizes - 1)]
    cycles = np.empty(len(order))
    cycles[order] = np.repeat(instances.cycles[chosen], sizes)
    return _prediction(instances, cycles, chosen)


def interpolation(instances: Instances) -> Prediction:
    """By support points of each type. O(n log n)."""
    order, begin = _by_type(instances.task_type)
    most = int(np.diff(begin).max(initial=0))
    # Each support point lies 10 % outside of the others: of 63-bit counts there are fewer than 2 x 460.
    points = np.empty((2 * min(most, 1000) + 1, 2))
    cycles, is_measured = np.empty(len(order)), np.zeros(len(order), np.bool_)
    _interpolate((instances.instructions, instances.cycles), order, begin, points, cycles, is_measured)
    return Prediction(cycles, is_measured)


def clusters(instances: Instances, num_clusters: int | None = None) -> Prediction:
    """By clusters of each type, ``num_clusters`` or as many as the silhouette says. O(n log n) for
    each cluster. Raises ValueError for less than one cluster."""
    if num_clusters is not None and num_clusters < 1:
        raise ValueError(f"{num_clusters} clusters; at least one is needed")
    order, begin = _by_type(instances.task_type)
    cycles = np.empty(len(order))
    chosen: list[int] = []
    for first, end in pairwise(begin):
        mine = order[first:end]
        label, centres = _clusters(instances.instructions[mine], num_clusters)
        for cluster, centre in enumerate(centres):
            members = mine[label == cluster]
            distance = np.abs(instances.instructions[members] - centre)
            nearest = members[distance == distance.min()]
            representative = nearest[(len(nearest) - 1) // 2]
            cycles[members] = instances.cycles[representative]
            chosen.append(int(representative))
    return _prediction(instances, cycles, np.array(chosen, np.int64))


PREDICTORS: Final[dict[str, Callable[[Instances], Prediction]]] = {
    "first": partial(standing_for_all, which=0),
    "second": partial(standing_for_all, which=1),
    "interpolation": interpolation,
    "clusters": clusters,
    "two clusters": partial(clusters, num_clusters=2),
}


def error_rows(name: str, instances: Instances, prediction: Prediction) -> list[ErrorRow]:
    """A row per type that has instances, and one of all together."""
    columns = (np.ones(len(instances.cycles)), prediction.is_measured, instances.cycles, prediction.cycles)
    sums = np.stack([np.bincount(instances.task_type, column, instances.num_types) for column in columns], axis=1)
    rows = [(-1, sums.sum(axis=0))] + [(one, sums[one]) for one in range(instances.num_types) if sums[one, 0]]
    return [ErrorRow(name, one, int(row[0]), int(row[1]), float(row[2]), float(row[3])) for one, row in rows]


def ipc_percentiles(instances: Instances) -> np.ndarray:
    """float64[types, 5]: IPC that PERCENTILES of a type's instances stay below, linear between instances; NaN for a
    type without any. Instances without instructions or cycles have no IPC. O(n log n)."""
    result = np.full((instances.num_types, len(PERCENTILES)), np.nan)
    has_ipc = (instances.instructions > 0) & (instances.cycles > 0)
    ipc = instances.instructions[has_ipc] / instances.cycles[has_ipc]
    task_type = instances.task_type[has_ipc]
    order, begin = _by_type(task_type)
    for first, end in pairwise(begin):
        mine = order[first:end]
        result[task_type[mine[0]]] = np.percentile(ipc[mine], PERCENTILES)
    return result


def instructions_ipc_histogram(
    instances: Instances, task_type: int, num_bins: tuple[int, int] = (32, 32), *, is_logarithmic: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(number of instances int64[bins, bins], edges of instruction counts, edges of IPC) of a type, figure 4.3;
    ``is_logarithmic``: bins of instruction counts have equal ratios. Instances as in `ipc_percentiles`."""
    chosen = (instances.task_type == task_type) & (instances.instructions > 0) & (instances.cycles > 0)
    instructions = instances.instructions[chosen].astype(np.float64)
    ipc = instructions / instances.cycles[chosen]
    values = np.log2(instructions) if is_logarithmic else instructions
    counts, edges, ipc_edges = np.histogram2d(values, ipc, bins=num_bins)
    return counts.astype(np.int64), np.exp2(edges) if is_logarithmic else edges, ipc_edges


def _by_type(task_type: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Instances by type, in order of execution within one; and where each type that occurs begins, and the end."""
    order = np.argsort(task_type, kind="stable")
    begin = np.flatnonzero(np.diff(task_type[order], prepend=-1))
    return order, np.append(begin, len(order))


def _prediction(instances: Instances, cycles: np.ndarray, measured: np.ndarray) -> Prediction:
    is_measured = np.zeros(len(cycles), np.bool_)
    is_measured[measured] = True
    return Prediction(np.where(is_measured, instances.cycles, cycles), is_measured)


def _clusters(instructions: np.ndarray, num_clusters: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Cluster of each instance and instruction counts of the centres."""
    counts, value, weight = np.unique(instructions, return_inverse=True, return_counts=True)
    most = min(MOST_CLUSTERS if num_clusters is None else num_clusters, len(counts))
    scaled = (counts - counts.mean()) / max(float(np.ptp(counts)), 1.0)
    split = _optimal_splits(scaled, weight.astype(np.float64), most)
    if num_clusters is not None:
        label = _labels(split, most)
    else:
        label, best_score = _labels(split, 1), LEAST_SILHOUETTE
        for k in range(2, most + 1):
            found = _labels(split, k)
            score = _silhouette(counts, weight, found)
            if score > best_score:
                label, best_score = found, score
    centres = np.bincount(label, weight * counts) / np.bincount(label, weight)
    return label[value], centres


def _labels(split: np.ndarray, num_clusters: int) -> np.ndarray:
    """Cluster of each point, ascending."""
    label = np.empty(split.shape[1] - 1, np.int64)
    end = len(label)
    for k in range(num_clusters - 1, -1, -1):
        first = int(split[k, end])
        label[first:end] = k
        end = first
    return label


def _silhouette(counts: np.ndarray, weight: np.ndarray, label: np.ndarray) -> float:
    """Mean over instances, of at most MOST_COMPARED distinct counts, evenly spread, 0 for one alone in its cluster."""
    at = np.unique(np.linspace(0, len(counts) - 1, MOST_COMPARED).round().astype(np.int64))
    value, weight, label = counts[at].astype(np.float64), weight[at].astype(np.float64), label[at]
    num_clusters = int(label.max()) + 1
    member = np.zeros((len(at), num_clusters))
    member[np.arange(len(at)), label] = weight
    size = member.sum(axis=0)
    away = np.abs(value[:, None] - value) @ member  # sum of distances to the instances of each cluster
    mine = np.arange(len(at)), label
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = away[mine] / (size[label] - 1)
        mean = away / size
    mean[mine] = np.inf
    outside = np.nanmin(mean, axis=1)
    score = np.where(size[label] > 1, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-300), 0.0)
    return float(np.average(score, weights=weight))


def _optimal_splits(values: np.ndarray, weight: np.ndarray, most: int) -> np.ndarray:
    """int32[most, points + 1]: first point of the last of k + 1 clusters in the best division of the first j points.

    K-means of one dimension has an exact solution: clusters are runs of the ascending values (Fisher, J. Am. Stat.
    Assoc. 53, 1958), and the split for j points never lies before that for fewer, so each row is found by halves.
    O(most x points x log points).
    """
    of_points = np.stack([weight, weight * values, weight * values * values], axis=1)
    sums = np.concatenate((np.zeros((1, 3)), np.cumsum(of_points, axis=0)))  # of the points before
    split = np.zeros((most, len(sums)), np.int32)
    _split(sums, np.empty((2, len(sums))), np.empty((128, 4), np.int64), split)
    return split


@allocation_free
def _split(sums, squares, todo, split):  # type: ignore[no-untyped-def]
    """``squares`` float64[2, points + 1]: least sums with one cluster fewer, and with as many; ``todo``: ranges of j,
    and of the splits that come into question."""
    count = sums.shape[0] - 1
    for j in range(count + 1):
        squares[1, j] = _squares(sums, 0, j)
    for k in range(1, split.shape[0]):
        for j in range(count + 1):
            squares[0, j] = squares[1, j]
        _put(todo, 0, k + 1, count, k, count - 1)
        num_todo = 1
        while num_todo > 0:
            num_todo -= 1
            first, last, low, high = todo[num_todo, 0], todo[num_todo, 1], todo[num_todo, 2], todo[num_todo, 3]
            if first > last:
                continue
            j = (first + last) // 2
            squares[1, j] = np.inf
            for i in range(low, min(high, j - 1) + 1):
                both = squares[0, i] + _squares(sums, i, j)
                if both < squares[1, j]:
                    squares[1, j] = both
                    split[k, j] = i
            _put(todo, num_todo, first, j - 1, low, split[k, j])
            _put(todo, num_todo + 1, j + 1, last, split[k, j], high)
            num_todo += 2


@inner_inlined
def _put(todo, place, first, last, low, high):  # type: ignore[no-untyped-def]
    todo[place, 0] = first
    todo[place, 1] = last
    todo[place, 2] = low
    todo[place, 3] = high


@inner_inlined
def _squares(sums, first, end):  # type: ignore[no-untyped-def]
    """Sum of squared distances of the points [first, end) to their mean."""
    weight = sums[end, 0] - sums[first, 0]
    if weight == 0.0:
        return 0.0
    total = sums[end, 1] - sums[first, 1]
    return max(sums[end, 2] - sums[first, 2] - total * total / weight, 0.0)


@allocation_free
def _interpolate(instances, order, begin, points, predicted, is_measured):  # type: ignore[no-untyped-def]
    """Predicted cycles and which of ``instances`` (their instructions and cycles) are support points. O(n log(support
    points)).

    The support points of a type are rows [low, high] of ``points`` (instructions, cycles), ascending: a new one always
    lies outside of the others.
    """
    instructions, cycles = instances
    for group in range(begin.shape[0] - 1):
        low = points.shape[0] // 2
        high = low - 1
        for place in range(begin[group], begin[group + 1]):
            i = order[place]
            count = np.float64(instructions[i])
            if low > high:
                high += 1
                at = high
            elif 10 * count < 9 * points[low, 0]:
                low -= 1
                at = low
            elif 10 * count > 11 * points[high, 0]:
                high += 1
                at = high
            else:
                predicted[i] = _between(points, low, high, count)
                continue
            points[at, 0] = count
            points[at, 1] = cycles[i]
            predicted[i] = cycles[i]
            is_measured[i] = True


@inner
def _between(points, low, high, count):  # type: ignore[no-untyped-def]
    """Linear between rows of ``points``, constant outside. O(log(high - low))."""
    if count <= points[low, 0]:
        return points[low, 1]
    if count >= points[high, 0]:
        return points[high, 1]
    while high - low > 1:
        middle = (low + high) // 2
        if points[middle, 0] <= count:
            low = middle
        else:
            high = middle
    share = (count - points[low, 0]) / (points[high, 0] - points[low, 0])
    return points[low, 1] + share * (points[high, 1] - points[low, 1])
