"""k-means with weights: Lloyd's iterations from k-means++ beginnings, with Hamerly's bounds.

Own code, since the libraries' run threads of their own, which must not change bytes, and give neither bounds nor
weighted sums in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit

ITERATIONS: Final = 100  # at most, as SimPoint's


@dataclass(frozen=True)
class Clusters:
    """``centre`` float64[k, dimensions]; ``label`` int32[points], the nearest centre of each; ``distance`` float64
    [points], squared, to that centre. Every cluster has a point."""

    centre: np.ndarray
    label: np.ndarray
    distance: np.ndarray

    @property
    def num_clusters(self) -> int:
        return len(self.centre)

    def weight(self, weight: np.ndarray) -> np.ndarray:
        """float64[k]: the points' ``weight`` in each cluster."""
        return np.bincount(self.label, weight, len(self.centre))

    def distortion(self, weight: np.ndarray) -> float:
        """Weighted sum of squared distances."""
        return float(self.distance @ weight)


def cluster(points: np.ndarray, weight: np.ndarray, k: int, seed: int) -> Clusters:
    """``k`` clusters (fewer if there are fewer different points) of ``points`` float64[n, d], which weigh ``weight``
    float64[n]. The same seed gives the same clusters. O(n k d) an iteration, less once few points move."""
    random = np.random.default_rng(seed)
    begin = _plus_plus(points, weight, k, random.random((k, _TRIALS)))
    return from_centres(points, weight, begin)


def from_centres(points: np.ndarray, weight: np.ndarray, centres: np.ndarray, iterations: int = ITERATIONS) -> Clusters:
    """The clusters that Lloyd's iterations reach from ``centres``; one that loses all its points is left out."""
    centre, label, distance = _lloyd(points, weight, centres.copy(), iterations)
    used = np.bincount(label, minlength=len(centre)) > 0
    if not used.all():
        number = np.cumsum(used, dtype=np.int32) - 1
        centre, label = centre[used], number[label].astype(np.int32)
    return Clusters(centre, label, distance)


def nearest(points: np.ndarray, centres: np.ndarray) -> Clusters:
    """Points by their nearest centre, the first of several. O(n k d)."""
    label, distance = _nearest(points, centres)
    return Clusters(centres, label, distance)


_TRIALS: Final = 4  # candidates for each centre, of which the best is kept


@njit(cache=True, nogil=True)
def _plus_plus(points, weight, k, random):  # type: ignore[no-untyped-def]
    """Beginnings far from each other (Arthur, Vassilvitskii, "k-means++", SODA 2007; the best of some candidates)."""
    n, dimensions = points.shape
    centres = np.empty((k, dimensions))
    nearest = np.full(n, np.inf)
    trial = np.empty(n)
    best = np.empty(n)
    share = weight.copy()
    for number in range(k):
        total = 0.0
        for i in range(n):
            total += share[i]
        if total <= 0.0:  # all points are centres
            return centres[:number]
        least = np.inf
        for t in range(random.shape[1] if number else 1):
            wanted = random[number, t] * total
            chosen = 0
            run = 0.0
            for i in range(n):
                if share[i] > 0.0:
                    chosen = i
                    run += share[i]
                    if run > wanted:
                        break
            sum_left = 0.0
            for i in range(n):
                d = 0.0
                for j in range(dimensions):
                    d += (points[i, j] - points[chosen, j]) ** 2
                trial[i] = min(nearest[i], d)
                sum_left += trial[i] * weight[i]
            if sum_left < least:
                least = sum_left
                best[:] = trial
                centres[number] = points[chosen]
        for i in range(n):
            nearest[i] = best[i]
            share[i] = nearest[i] * weight[i]
    return centres


@njit(cache=True, nogil=True)
def _nearest(points, centres):  # type: ignore[no-untyped-def]
    n, dimensions = points.shape
    label = np.zeros(n, np.int32)
    distance = np.empty(n)
    for i in range(n):
        least = np.inf
        for c in range(centres.shape[0]):
            d = 0.0
            for j in range(dimensions):
                d += (points[i, j] - centres[c, j]) ** 2
            if d < least:
                least = d
                label[i] = c
        distance[i] = least
    return label, distance


@njit(cache=True, nogil=True)
def _move(points, weight, label, centres, moved):  # type: ignore[no-untyped-def]
    """Centres go to the means of their points; how far each went (``moved``), and the farthest. O(n d)."""
    k, dimensions = centres.shape
    sums = np.zeros((k, dimensions))
    mass = np.zeros(k)
    for i in range(points.shape[0]):
        mass[label[i]] += weight[i]
        for j in range(dimensions):
            sums[label[i], j] += weight[i] * points[i, j]
    farthest = 0.0
    for c in range(k):
        d = 0.0
        if mass[c] > 0.0:
            for j in range(dimensions):
                new = sums[c, j] / mass[c]
                d += (new - centres[c, j]) ** 2
                centres[c, j] = new
        moved[c] = np.sqrt(d)
        farthest = max(farthest, moved[c])
    return farthest


@njit(cache=True, nogil=True)
def _lloyd(points, weight, centres, iterations):  # type: ignore[no-untyped-def]
    """Hamerly, "Making k-means even faster" (SDM 2010): a point whose distance to its centre is below both half the way
    to the next centre and a lower bound of the distance to any other one need not be looked at."""
    n, dimensions = points.shape
    k = centres.shape[0]
    label = np.zeros(n, np.int32)
    upper = np.full(n, np.inf)
    lower = np.zeros(n)
    half = np.zeros(k)
    moved = np.zeros(k)
    for iteration in range(iterations):
        for c in range(k):
            least = np.inf
            for other in range(k):
                if other != c:
                    d = 0.0
                    for j in range(dimensions):
                        d += (centres[c, j] - centres[other, j]) ** 2
                    least = min(least, d)
            half[c] = 0.5 * np.sqrt(least)
        changed = 0
        for i in range(n):
            bound = max(half[label[i]], lower[i])
            if upper[i] <= bound and iteration > 0:
                continue
            d = 0.0
            for j in range(dimensions):
                d += (points[i, j] - centres[label[i], j]) ** 2
            upper[i] = np.sqrt(d)
            if upper[i] <= bound and iteration > 0:
                continue
            first = np.inf
            second = np.inf
            chosen = 0
            for c in range(k):
                d = 0.0
                for j in range(dimensions):
                    d += (points[i, j] - centres[c, j]) ** 2
                if d < first:
                    second = first
                    first = d
                    chosen = c
                elif d < second:
                    second = d
            if chosen != label[i] or iteration == 0:
                changed += 1
            label[i] = chosen
            upper[i] = np.sqrt(first)
            lower[i] = np.sqrt(second)
        if changed == 0:
            break
        farthest = _move(points, weight, label, centres, moved)
        if farthest == 0.0:
            break
        for i in range(n):
            upper[i] += moved[label[i]]
            lower[i] -= farthest
    label, distance = _nearest(points, centres)
    return centres, label, distance
