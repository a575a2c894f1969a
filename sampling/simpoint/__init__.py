"""SimPoint: intervals that execute alike, and one of each kind to simulate.

Sherwood, Perelman, Hamerly, Calder, "Automatically characterizing large scale program behavior" (ASPLOS 2002);
Hamerly, Perelman, Lau, Calder, "SimPoint 3.0" (JILP 2005); several units of a cluster and early points: Perelman,
Hamerly, Calder, "Picking statistically valid and early simulation points" (PACT 2003).

Vectors are normalised to sum 1 and projected to few dimensions; k-means runs for every number of clusters (or for
those of a binary search) from several beginnings, of which that of the highest BIC is kept; the smallest number of
clusters is taken whose BIC reaches a share of the way from the lowest to the highest.

Two things are done otherwise. Beginnings are k-means++'s, so that fewer clusters reach the same distortion. And the
representative of a cluster is not the interval nearest to its centre, which among equal vectors is the earliest, when
caches were cold: of the nearest quarter it is the one in the middle of the run (``representative: nearest`` takes
SimPoint's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from manyscale.models.workload.parameters import Count, Strict
from manyscale.sampling.simpoint import kmeans
from manyscale.sampling.simpoint.kmeans import Clusters

ENOUGH: Final = 10_000  # points that clusters are found among; of more, as many are drawn


class SimPointRules(Strict):
    """``dimensions`` of the projection; ``max_k`` clusters at most, tried ``seeds`` times each, all numbers up to it
    (``exhaustive``) or those of a binary search; ``threshold``: share of the range of BICs that suffices. ``near``:
    share of a cluster's intervals among which the one in the middle is its representative; ``representative`` also
    ``nearest`` (to the centre) or ``early`` (the first that is at most ``early_slack`` farther than the nearest).
    ``per_cluster``: more than one: so many intervals of each cluster, drawn at random (PACT 2003), all of a smaller
    one; ``representative`` then decides nothing. ``coverage``: clusters are left out, the smallest first, as long as
    the others hold this share of the instructions. ``weights``: what an interval weighs in its cluster,
    ``instructions`` or ``equal``."""

    dimensions: Annotated[int, Field(ge=1, le=256)] = 15
    max_k: Count = 15
    seeds: Count = 5
    search: Literal["exhaustive", "binary"] = "exhaustive"
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.9
    representative: Literal["middle", "nearest", "early"] = "middle"
    near: Annotated[float, Field(ge=0, le=1)] = 0.25
    early_slack: Annotated[float, Field(ge=0)] = 0.3
    per_cluster: Count = 1
    coverage: Annotated[float, Field(gt=0, le=1)] = 1.0
    weights: Literal["instructions", "equal"] = "instructions"


@dataclass(frozen=True)
class Trial:
    """What a number of clusters reached: the best of its beginnings."""

    k: int
    bic: float
    distortion: float


@dataclass(frozen=True)
class SimulationPoints:
    """``point`` int64[], intervals that are simulated, ascending; ``cluster`` int32[], of each; ``weight`` float64[],
    the share of the instructions that each stands for (sum 1); ``label`` int32[intervals], the cluster of each
    interval; ``trials`` of all numbers of clusters that were tried."""

    point: np.ndarray
    cluster: np.ndarray
    weight: np.ndarray
    label: np.ndarray
    trials: tuple[Trial, ...]


def bic(sizes: np.ndarray, distortion: float, dimensions: int) -> float:
    """Bayesian information criterion of a clustering as SimPoint 3.2 computes it: Pelleg and Moore's ("X-means", ICML
    2000) for spherical Gaussians of one variance, which is the maximum-likelihood one, distortion / (points x
    dimensions). ``sizes`` float64[k]: points (or their weight) in each cluster."""
    k, total = len(sizes), float(sizes.sum())
    used = sizes[sizes > 0]
    variance = max(distortion, np.finfo(np.float64).tiny) / (dimensions * total)
    likelihood = float(used @ np.log(used)) - total * np.log(total)
    likelihood -= total * dimensions / 2 * (np.log(2 * np.pi * variance) + 1)
    return float(likelihood - k * (dimensions + 1) / 2 * np.log(total))


def find_clusters(
    points: np.ndarray, weight: np.ndarray, rules: SimPointRules, seed: int
) -> tuple[Clusters, tuple[Trial, ...]]:
    """Clusters of ``points`` float64[n, dimensions] that weigh ``weight`` float64[n] (mean 1). Of more than ENOUGH
    points a sample decides on the number of clusters and where they begin."""
    sample = np.arange(len(points))
    if len(points) > ENOUGH:
        sample = np.sort(np.random.default_rng(seed).choice(len(points), ENOUGH, replace=False))
    some, some_weight = np.ascontiguousarray(points[sample]), weight[sample]
    found: dict[int, tuple[float, Clusters]] = {}

    def attempt(k: int) -> float:
        if k not in found:
            best = None
            for number in range(rules.seeds):
                clusters = kmeans.cluster(some, some_weight, k, hash_of(seed, k, number))
                value = bic(clusters.weight(some_weight), clusters.distortion(some_weight), points.shape[1])
                if best is None or value > best[0]:
                    best = value, clusters
            assert best is not None
            found[k] = best
        return found[k][0]

    most = min(rules.max_k, len(some))
    k = _smallest(most, rules.threshold, attempt) if rules.search == "exhaustive" else _search(most, rules, attempt)
    trials = tuple(Trial(each, value, c.distortion(some_weight)) for each, (value, c) in sorted(found.items()))
    clusters = found[k][1]
    if len(sample) < len(points):
        clusters = kmeans.from_centres(points, weight, clusters.centre)
    return clusters, trials


def hash_of(*numbers: int) -> int:
    """A seed for each combination of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def _smallest(most: int, threshold: float, attempt: Callable[[int], float]) -> int:
    values = np.array([attempt(k) for k in range(1, most + 1)])
    enough = values.min() + threshold * (values.max() - values.min())
    return 1 + int(np.argmax(values >= enough))


def _search(most: int, rules: SimPointRules, attempt: Callable[[int], float]) -> int:
    """SimPoint 3.0's: the range is that of 1 and ``most`` clusters and of what is tried between; BIC is taken to
    rise."""
    low, high = 1, most
    seen = [attempt(low), attempt(high)]
    while high - low > 1:
        middle = (low + high) // 2
        seen.append(attempt(middle))
        if attempt(middle) >= min(seen) + rules.threshold * (max(seen) - min(seen)):
            high = middle
        else:
            low = middle
    return low if attempt(low) >= min(seen) + rules.threshold * (max(seen) - min(seen)) else high


def choose(points: np.ndarray, instructions: np.ndarray, rules: SimPointRules, seed: int) -> SimulationPoints:
    """Simulation points of intervals with projected vectors ``points`` float64[n, dimensions] and ``instructions``
    float64[n] (all equal, or of variable length). Raises ValueError if there are no intervals, or none executes
    anything."""
    if not len(points) or not instructions.sum() > 0:
        raise ValueError("there are no intervals that execute anything")
    weight = instructions / instructions.mean() if rules.weights == "instructions" else np.ones(len(points))
    clusters, trials = find_clusters(points, weight, rules, seed)
    share = clusters.weight(instructions) / instructions.sum()
    kept = _covering(share, rules.coverage)
    total = share[kept].sum()
    if rules.per_cluster > 1:
        point, cluster, part = _drawn(clusters, kept, instructions, rules.per_cluster, seed)
    else:
        point = np.array([_representative(clusters, c, rules) for c in kept], np.int64)
        cluster, part = kept, np.ones(len(kept))
    order = np.argsort(point, kind="stable")
    point, cluster, part = point[order], cluster[order], part[order]
    return SimulationPoints(point, cluster.astype(np.int32), share[cluster] * part / total, clusters.label, trials)


def _drawn(
    clusters: Clusters, kept: np.ndarray, instructions: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(intervals drawn of each of the clusters ``kept``, their clusters, their shares of what was drawn of these)."""
    random = np.random.default_rng(hash_of(seed, count))
    drawn = []
    for cluster in kept:
        members = np.flatnonzero((clusters.label == cluster) & (instructions > 0))
        drawn.append(random.choice(members, min(count, len(members)), replace=False))
    point, cluster = np.concatenate(drawn), np.repeat(kept, [len(each) for each in drawn])
    executed = np.bincount(cluster, instructions[point])
    return point, cluster, instructions[point] / executed[cluster]


def _covering(share: np.ndarray, coverage: float) -> np.ndarray:
    """Clusters, the largest first, up to the share that is asked for."""
    order = np.argsort(-share, kind="stable")
    count = int(np.searchsorted(np.cumsum(share[order]), coverage - 1e-12)) + 1
    return np.sort(order[: min(count, int((share > 0).sum()))])


def _representative(clusters: Clusters, cluster: int, rules: SimPointRules) -> int:
    members = np.flatnonzero(clusters.label == cluster)
    distance = clusters.distance[members]
    if rules.representative == "nearest":
        return int(members[np.argmin(distance)])
    if rules.representative == "early":
        return int(members[np.argmax(distance <= (1 + rules.early_slack) ** 2 * distance.min() + 1e-18)])
    near = members[distance <= np.quantile(distance, rules.near)]
    return int(near[len(near) // 2])
