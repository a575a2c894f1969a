"""Principal Kernel Selection, the part between launches of Principal Kernel Analysis.

Method: Baddouh, Khairy, Green, Payer, Rogers, "Principal Kernel Analysis: A Tractable Methodology to Simulate Scaled
GPU Workloads" (MICRO 2021). Counters of each launch, reduced by principal components; k-means for 1 to MOST_CLUSTERS
clusters; the fewest whose projection is within ``error`` of the profiled time; the first launch of each cluster in time
stands for as many launches as it has.

Choices where the source needs what a table of launches does not have:

* Its counters are 12 of Nsight Compute. Here they are those that a table of launches has: warp and thread instructions,
  requests to global and local memory, threads per warp instruction, blocks, and the variation of block sizes. They are
  divided by their standard deviations, so that the largest is not all there is.
* Components hold VARIANCE of the variance, as in the published comparison of Chung et al. (MICRO 2025).
* The number of clusters is chosen by profiled times where these are known (`LaunchPopulation.profile`), else by how far
  warp instructions are projected.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.sampling.launches.options import PkaRules
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation, by_launches

MOST_CLUSTERS: Final = 20
VARIANCE: Final = 0.9995
_STARTS: Final = 5


def first_of_clusters(population: LaunchPopulation, rules: PkaRules, seed: int) -> Choice:
    """The first launch of each cluster. O(launches x clusters)."""
    from sklearn.cluster import KMeans

    points = components(population)
    known = population.instructions if population.profile is None else population.profile
    distinct = len(np.unique(points.round(9), axis=0))
    best, least = np.zeros(len(points), np.int64), np.inf
    for count in range(1, min(MOST_CLUSTERS, distinct) + 1):
        label = KMeans(count, n_init=_STARTS, random_state=seed % (1 << 32)).fit(points).labels_
        element = _firsts(label)
        projected = float(np.bincount(label)[label[element]] @ known[element])
        error = abs(projected / float(known.sum()) - 1)
        if error < least:
            best, least = label, error
        if error <= rules.error:
            break
    return by_launches(population, _firsts(best), best)


def components(population: LaunchPopulation) -> np.ndarray:
    """float64[launches, components]."""
    counts = population.counts
    warp, thread = population.instructions, np.asarray(counts.thread_instructions, np.float64)
    columns = [warp, thread, np.asarray(counts.memory_requests, np.float64), thread / warp]
    if population.blocks is not None:
        columns.append(np.asarray(population.blocks, np.float64))
    if counts.block_size_cov is not None:
        columns.append(np.nan_to_num(np.asarray(counts.block_size_cov, np.float64)))
    table = np.stack(columns, axis=1)
    table = table - table.mean(axis=0)
    deviation = table.std(axis=0)
    table = table[:, deviation > 0] / deviation[deviation > 0]
    if not table.shape[1]:
        return np.zeros((len(table), 1))
    vectors, values, _ = np.linalg.svd(table, full_matrices=False)
    share = np.cumsum(values**2) / float((values**2).sum())
    kept = int(np.searchsorted(share, VARIANCE)) + 1
    return np.asarray(vectors[:, :kept] * values[:kept])


def _firsts(label: np.ndarray) -> np.ndarray:
    """int64[clusters], ascending: the first launch of each."""
    return np.sort(np.unique(label, return_index=True)[1])


PKA: Final = Sampler(first_of_clusters, PkaRules, options="pka")
