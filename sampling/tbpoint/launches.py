"""TBPoint between launches: which launches of each kernel are simulated, and what each stands for.

Method: Huang et al., "TBPoint: Reducing Simulation Time for Large-Scale GPGPU Kernels" (IPDPS 2014), section III, eq.
2; Huang's thesis (Georgia Tech, 2015), section 3.3, eq. 6. The features of a launch are its thread instructions, warp
instructions and memory requests, each divided by its mean over all launches of the kernel, and the coefficient of
variation of its blocks' thread instructions as it is. Launches at most ``threshold`` apart from all others of their
cluster are taken to have one CPI (complete linkage, tbpoint/linkage.py); the one nearest to the centre stands for them.

Choices where the source is silent:

* Each kernel is clustered by itself. A feature that no launch of the kernel has (mean 0) is 0; one that was not
  measured is left out (profilers do not count by block).
* Of launches equally near to the centre, the middle one in the order of launches is taken: the first one often finds
  cold caches.
* The basic-block vector, the source's proposal for a fifth feature, is made to sum to one and multiplied by
  ``bbv_scale``. With 1, launches of which 7 % of the instructions are in one block instead of another are as far apart
  as the source's threshold of 0.1; where several blocks share the difference it takes more.
* Launches with the same features may perform differently, and no feature can say so. With ``representatives`` of n,
  each cluster has n of its launches drawn at random (all, if it has no more), spread over its launches in the order of
  their instructions and, where these are the same, of time: what changes with either is met in all its parts. "auto"
  draws one in each cluster; a second one where launches repeat each other's features exactly; then one more after the
  other where one launch stands for the most instructions, until there are AUTO_FREEDOM degrees of freedom to estimate
  the spread within clusters from. The draws are nested: more of them, with the same seed, only add. tbpoint/estimate.py
  has the interval, and says how many more it takes to make it as narrow as one likes.

Cost: clustering as in tbpoint/linkage.py, the rest O(launches log launches).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace
from typing import Final

import numpy as np

from manyscale.sampling.plan import Plan
from manyscale.sampling.tbpoint.linkage import by_occurrence, cluster
from manyscale.sampling.tbpoint.rules import LaunchSampling

__all__ = [
    "AUTO_FREEDOM", "DEFAULT_SAMPLING", "LaunchCounts", "LaunchSample", "LaunchSampling", "choose", "draw", "features",
]  # fmt: skip

AUTO_FREEDOM: Final = 8  # 95 % of Student's t then is 2.31, against 1.96
_GOLDEN: Final = 0.6180339887498949
_EQUALLY_NEAR: Final = 1e-9  # times the threshold

DEFAULT_SAMPLING: Final = LaunchSampling()


@dataclass(frozen=True)
class LaunchCounts:
    """What a profile says of each launch: ``kernel`` int[launches], a number for each kernel; ``thread_instructions``,
    ``warp_instructions``, ``memory_requests`` (to global and local memory), ``block_size_cov`` (None or NaN: not
    measured) float[launches]; ``block_counts`` float[launches, blocks] instructions by basic block, or None.

    Raises ValueError for columns that differ in length, and for counts that are negative or not finite."""

    kernel: np.ndarray
    thread_instructions: np.ndarray
    warp_instructions: np.ndarray
    memory_requests: np.ndarray
    block_size_cov: np.ndarray | None = None
    block_counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        columns = {
            "thread_instructions": self.thread_instructions,
            "warp_instructions": self.warp_instructions,
            "memory_requests": self.memory_requests,
        }
        optional = {"block_size_cov": self.block_size_cov, "block_counts": self.block_counts}
        for name, column in (columns | optional).items():
            if column is not None and len(column) != len(self.kernel):
                raise ValueError(f"{name} has {len(column)} launches, kernel has {len(self.kernel)}")
        for name, column in columns.items():
            wrong = ~(np.isfinite(column) & (np.asarray(column) >= 0))
            if np.any(wrong):
                row = int(np.argmax(wrong))
                raise ValueError(f"{name} of launch {row} is {column[row]}; it must be a count, 0 or more")

    @property
    def num_launches(self) -> int:
        return len(self.kernel)


@dataclass(frozen=True)
class LaunchSample:
    """``kernel`` as in LaunchCounts; ``cluster`` int64[launches], numbered over all kernels in the order in which
    clusters first occur; ``chosen`` int64[]: launches that are simulated, ascending; ``is_drawn``: at random, so that
    an interval can be had of them. ``features`` float64[launches, features] that were clustered, ``cell_diagonal`` as
    in tbpoint_linkage.Clusters (0: the clustering is exact), ``seed`` of the draws."""

    kernel: np.ndarray
    cluster: np.ndarray
    chosen: np.ndarray
    is_drawn: bool
    features: np.ndarray
    cell_diagonal: float
    seed: int

    @property
    def num_clusters(self) -> int:
        return int(self.cluster.max(initial=-1)) + 1

    @cached_property
    def cluster_sizes(self) -> np.ndarray:
        """int64[clusters]: launches."""
        return np.bincount(self.cluster, minlength=self.num_clusters)

    @cached_property
    def num_chosen(self) -> np.ndarray:
        """int64[clusters]"""
        return np.bincount(self.cluster[self.chosen], minlength=self.num_clusters)

    @property
    def order(self) -> np.ndarray:
        """float64[launches], along which draws are spread: warp instructions (the last feature, if there are fewer)."""
        return self.features[:, min(1, self.features.shape[1] - 1)]

    @cached_property
    def representative(self) -> np.ndarray:
        """int64[launches]: the launch that stands for each in a timeline: itself, if it is simulated, else one of its
        cluster's, these in turn."""
        ordered = self.chosen[np.argsort(self.cluster[self.chosen], kind="stable")]
        first = np.concatenate(([0], np.cumsum(self.num_chosen)[:-1]))
        by_cluster = np.argsort(self.cluster, kind="stable")
        begins = np.concatenate(([0], np.cumsum(self.cluster_sizes)[:-1]))
        turn = np.empty(len(self.cluster), np.int64)
        turn[by_cluster] = np.arange(len(self.cluster)) - begins[self.cluster[by_cluster]]
        result = ordered[first[self.cluster] + turn % self.num_chosen[self.cluster]]
        result[self.chosen] = self.chosen
        return result

    def plan(self, model: str) -> Plan:
        """The launches that ``model`` simulates; each stands for as many as its cluster has for each one chosen."""
        of_chosen = self.cluster[self.chosen]
        weight = (self.cluster_sizes / self.num_chosen)[of_chosen]
        return Plan("launch", self.chosen, of_chosen.astype(np.int32), weight, model, len(self.cluster))


def features(counts: LaunchCounts, bbv_scale: float = 0.0) -> np.ndarray:
    """float64[launches, features]: eq. 2 (6 in the thesis), and the basic-block vector if it is scaled by more than 0.
    Raises ValueError where that is asked for without block counts."""
    parts = [
        _over_mean(counts.kernel, np.asarray(column, np.float64))
        for column in (counts.thread_instructions, counts.warp_instructions, counts.memory_requests)
    ]
    if counts.block_size_cov is not None and not np.all(np.isnan(counts.block_size_cov)):
        parts.append(np.asarray(counts.block_size_cov, np.float64))
    columns = np.stack(parts, axis=1)
    if bbv_scale > 0:
        if counts.block_counts is None:
            raise ValueError("bbv_scale is more than 0, but the launches have no basic-block vectors")
        total = counts.block_counts.sum(axis=1, keepdims=True)
        shares = np.divide(counts.block_counts, total, out=np.zeros(counts.block_counts.shape), where=total > 0)
        columns = np.concatenate((columns, bbv_scale * shares), axis=1)
    return columns


def _over_mean(kernel: np.ndarray, values: np.ndarray) -> np.ndarray:
    number = np.unique(kernel, return_inverse=True)[1]
    mean = (np.bincount(number, values) / np.bincount(number))[number] if len(number) else values
    return np.divide(values, mean, out=np.zeros(len(values)), where=mean > 0)


def choose(counts: LaunchCounts, sampling: LaunchSampling = DEFAULT_SAMPLING) -> LaunchSample:
    """Clusters of the launches, and those that are simulated. Raises ValueError for no launches."""
    if not counts.num_launches:
        raise ValueError("there are no launches to choose from")
    columns = features(counts, sampling.bbv_scale)
    label = np.empty(counts.num_launches, np.int64)
    diagonal, num_labels = 0.0, 0
    for kernel in np.unique(counts.kernel):
        rows = np.flatnonzero(counts.kernel == kernel)
        found = cluster(columns[rows], sampling.threshold)
        label[rows] = num_labels + found.label
        num_labels += found.num_clusters
        diagonal = max(diagonal, found.cell_diagonal)
    label = by_occurrence(label)
    if sampling.representatives == 1:
        chosen = _nearest_to_centre(columns, label, sampling.threshold)
    else:
        how_many = _how_many(sampling.representatives, label, columns, counts)
        chosen = draw(label, how_many, sampling.seed, columns[:, 1])
    return LaunchSample(counts.kernel, label, chosen, sampling.representatives != 1, columns, diagonal, sampling.seed)


def draw(label: np.ndarray, how_many: np.ndarray, seed: int, size: np.ndarray | None = None) -> np.ndarray:
    """int64[], ascending: of each cluster ``how_many`` int[clusters] of its launches, each as likely as any other. With
    more of them and the same seed the same ones and others.

    They lie all over the cluster in the order of ``size`` (None: all alike), of those of a size in the order of
    launches: the first at random, the i-th one i times the golden ratio behind it, modulo all."""
    order = np.lexsort((label,) if size is None else (np.arange(len(label)), size, label))
    begins = np.searchsorted(label[order], np.arange(len(how_many)))
    count = np.diff(np.append(begins, len(label)))
    wanted = np.minimum(how_many, count)
    first = np.random.default_rng(seed).random(len(count))
    taken = np.zeros(len(label), bool)
    turn = np.zeros(len(count), np.int64)
    missing = wanted.copy()
    while np.any(missing > 0):
        cluster = np.repeat(np.arange(len(count)), missing)
        nth = turn[cluster] + np.arange(len(cluster)) - np.repeat(np.cumsum(missing) - missing, missing)
        place = ((first[cluster] + nth * _GOLDEN) % 1.0 * count[cluster]).astype(np.int64)
        taken[begins[cluster] + np.minimum(place, count[cluster] - 1)] = True
        turn += missing
        missing = wanted - np.add.reduceat(taken, begins, dtype=np.int64) if len(begins) else missing
    return np.sort(order[taken])


def _nearest_to_centre(columns: np.ndarray, label: np.ndarray, threshold: float) -> np.ndarray:
    """int64[clusters], ascending: the launch nearest to each centre, the middle one of those equally near."""
    size = np.bincount(label)
    squares = np.zeros(len(label))
    for column in columns.T:
        squares += (column - (np.bincount(label, column) / size)[label]) ** 2
    distance = np.sqrt(squares)
    least = np.full(len(size), np.inf)
    np.minimum.at(least, label, distance)
    near = np.flatnonzero(distance <= least[label] + _EQUALLY_NEAR * max(threshold, 1e-3))
    near = near[np.argsort(label[near], kind="stable")]
    begins = np.searchsorted(label[near], np.arange(len(size) + 1))
    return np.sort(near[(begins[:-1] + begins[1:]) // 2])


def _how_many(wanted: int | str, label: np.ndarray, columns: np.ndarray, counts: LaunchCounts) -> np.ndarray:
    """int64[clusters]: how many launches are drawn from each."""
    size = np.bincount(label)
    if isinstance(wanted, int):
        return np.minimum(size, wanted)
    number = np.minimum(size, 1 + (_num_distinct(label, columns) < size))
    instructions = np.bincount(label, np.asarray(counts.warp_instructions, np.float64))
    missing = min(AUTO_FREEDOM - int((number - 1).sum()), int((size - number).sum()))
    queue = [(-instructions[one] / number[one], int(one)) for one in np.flatnonzero(number < size)]
    heapify(queue)
    for _ in range(missing):
        one = queue[0][1]
        number[one] += 1
        share = -instructions[one] / number[one] if number[one] < size[one] else np.inf
        heapreplace(queue, (share, one))
    return number


def _num_distinct(label: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64[clusters]: different feature vectors."""
    keys: Sequence[np.ndarray] = (*columns.T, label)
    order = np.lexsort(keys)
    is_new = np.append(True, np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0))
    return np.bincount(label[order][is_new])
