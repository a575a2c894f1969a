"""Which ranks are simulated by a model of the cores; the others follow from them.

Source: MUSA (Grass, UPC 2017, section 6.3.4): one out of every N ranks. Beyond it, clusters of ranks: ranks are alike
if their compute time in each iteration is, and their task instances by type are as many and take as long; k-means on
these features, each divided by its largest value, for the number of clusters with the best silhouette (Rousseeuw,
1987); the rank nearest to a cluster's centre stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.parameters import Count, Strict
from manyscale.sampling.plan import Plan
from manyscale.sampling.sampler import Sampler

MOST_CLUSTERS = 16
ALIKE = 1e-3  # ranks whose features differ less are one cluster


@dataclass(frozen=True)
class RankPopulation:
    """The ranks of ``workload``, numbered from 0; ``traced`` int64[]: those that have a detailed level, ascending."""

    workload: Workload
    traced: np.ndarray


class OneInRules(Strict):
    """One of ``number`` elements."""

    number: Count


def every_rank(population: RankPopulation, rules: Strict, seed: int) -> Plan:
    """A census, each rank a stratum of its own."""
    every = np.arange(population.workload.num_ranks)
    return Plan.of_strata("rank", every, every)


def traced_ranks(population: RankPopulation, rules: Strict, seed: int) -> Plan:
    """Those that have a detailed level. Raises ValueError if there are none."""
    if not len(population.traced):
        raise ValueError("no rank has a detailed level; trace at least one with `manyscale trace --level detailed`")
    return given_ranks(population, population.traced)


def one_in(population: RankPopulation, rules: OneInRules, seed: int) -> Plan:
    """The first of each ``number`` ranks stands for them."""
    every = np.arange(population.workload.num_ranks)
    return Plan.of_strata("rank", every[:: rules.number], every // rules.number)


def clusters(population: RankPopulation, rules: Strict, seed: int) -> Plan:
    """One of each cluster of alike ranks."""
    return Plan.of_strata("rank", *_clusters(_features(population.workload)))


def given_ranks(population: RankPopulation, numbers: Sequence[int] | np.ndarray) -> Plan:
    """These; each other rank is of the stratum of the one whose features are nearest. Raises ValueError for a rank that
    there is not."""
    chosen = np.unique(np.asarray(numbers, np.int64))
    if len(chosen) and chosen[-1] >= population.workload.num_ranks:
        raise ValueError(f"rank {chosen[-1]} is not one of the trace's {population.workload.num_ranks}")
    return Plan.of_strata("rank", chosen, _nearest(_features(population.workload), chosen))


TRACED: Final = Sampler(traced_ranks)
CLUSTERS: Final = Sampler(clusters)
FULL: Final = Sampler(every_rank)
ONE_IN: Final = Sampler(one_in, OneInRules)


def _features(workload: Workload) -> np.ndarray:
    """float64[ranks, features]: compute time, operations, instances of each type and their time; each at most 1."""
    count = workload.num_ranks
    computing = workload.column("phases", "kind") == PhaseKind.compute
    rank = workload.column("phases", "rank")[computing]
    columns = [np.bincount(rank, workload.column("phases", "duration_ps")[computing], minlength=count)]
    columns.append(np.diff(workload.rank_offsets).astype(float))
    types = workload.tables["task_types"].num_rows
    if types:
        kind = workload.column("tasks", "task_type_id")
        known = kind >= 0
        place = workload.column("tasks", "rank")[known].astype(np.int64) * types + kind[known]
        instances = np.bincount(place, minlength=count * types).reshape(count, types)
        time = np.bincount(place, workload.column("tasks", "cpu_ps")[known], minlength=count * types)
        columns += [*instances.T.astype(float), *time.reshape(count, types).T]
    features = np.stack(columns, axis=1)
    most = features.max(axis=0)
    return features[:, most > 0] / most[most > 0]


def _nearest(features: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """int64[ranks]: index in ``chosen`` of the rank with the nearest features, the first of equals."""
    nearest = np.empty(len(features), np.int64)
    for first in range(0, len(features), 1024):
        block = features[first : first + 1024]
        distance = ((block[:, None, :] - features[chosen][None, :, :]) ** 2).sum(axis=2)
        nearest[first : first + 1024] = distance.argmin(axis=1)
    nearest[chosen] = np.arange(len(chosen))
    return nearest


def _clusters(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ranks that stand for their clusters, ascending; index among them of each rank's)."""
    label = _labels(features)
    centres = np.stack([features[label == each].mean(axis=0) for each in range(label.max() + 1)])
    distance = ((features - centres[label]) ** 2).sum(axis=1)
    chosen = np.array(
        [np.flatnonzero(label == each)[distance[label == each].argmin()] for each in range(label.max() + 1)]
    )
    order = np.argsort(chosen)
    return chosen[order], np.argsort(order)[label]


def _labels(features: np.ndarray) -> np.ndarray:
    distinct = len(np.unique(np.round(features / ALIKE), axis=0))
    if distinct == 1:
        return np.zeros(len(features), np.int64)
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    best, found = -1.0, np.zeros(len(features), np.int64)
    for k in range(2, min(MOST_CLUSTERS, distinct, len(features) - 1) + 1):
        label = KMeans(k, n_init=4, random_state=0).fit_predict(features)
        score = float(silhouette_score(features, label)) if len(np.unique(label)) > 1 else -1.0
        if score > best + 1e-9:
            best, found = score, np.unique(label, return_inverse=True)[1]
    return found.astype(np.int64)
