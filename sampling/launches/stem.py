"""STEM with ROOT: how many launches of each cluster are drawn, from times that were profiled.

Method: Chung, Na, Kim, Kim, "Swift and Trustworthy Large-Scale GPU Simulation with Fine-Grained Error Modeling and
Hierarchical Clustering" (MICRO 2025). By the central limit theorem a cluster of mean time m and deviation s needs
(z s / error m)^2 launches for its mean to be within ``error`` (STEM). Launches of a kernel and size of grid and block
are a cluster, which is parted in two by their times (k-means) as long as what its parts need together takes less time
than what it needs itself (ROOT); the numbers of the parts are those that take the least time for the same error,
n_i = N_i s_i / sqrt(m_i) sum_j N_j s_j sqrt(m_j) / (error / z sum_j N_j m_j)^2. Launches are drawn at random.

The times come from outside: measured, or predicted by another model (`LaunchPopulation.profile`). Where they are those
of the machine itself, as in ``evaluate``, STEM is at its best.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.sampling.launches.options import StemRules
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation, by_launches

NORMAL_95: Final = 1.96


def drawn(population: LaunchPopulation, rules: StemRules, seed: int) -> Choice:
    """O(launches log launches). Raises ValueError without profiled times."""
    if population.profile is None:
        raise ValueError("stem draws launches by their times, which are not known (stem: {times: FILE})")
    time = population.profile
    shape = [np.asarray(population.counts.kernel)]
    shape += [one for one in (population.blocks, population.threads) if one is not None]
    kind = np.unique(np.stack(shape, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    random = np.random.default_rng(seed)
    label = np.empty(len(population), np.int64)
    chosen: list[np.ndarray] = []
    for one in range(int(kind.max()) + 1):
        rows = np.flatnonzero(kind == one)
        for part, number in clusters(rows, time, NORMAL_95 / rules.error):
            label[part] = len(chosen)
            chosen.append(random.choice(part, min(max(number, 1), len(part)), replace=False))
    return by_launches(population, np.sort(np.concatenate(chosen)), label, is_random=True)


def clusters(
    rows: np.ndarray, time: np.ndarray, factor: float, needed: int | None = None
) -> list[tuple[np.ndarray, int]]:
    """(launches, how many are drawn) of each cluster; ``needed``: of all ``rows``, as their parent has it."""
    own = time[rows]
    if needed is None:
        needed = int(np.ceil((factor * own.std() / own.mean()) ** 2))
    if len(rows) < 2 or needed * own.mean() == 0 or own.min() == own.max():
        return [(rows, needed)]
    high = own > _threshold(own)
    parts = [rows[~high], rows[high]]
    size = np.array([len(part) for part in parts])
    mean, deviation = (np.array([f(time[part]) for part in parts]) for f in (np.mean, np.std))
    total = float(size @ mean)
    number = size * deviation / np.sqrt(mean) * float(size @ (deviation * np.sqrt(mean))) * (factor / total) ** 2
    number = np.ceil(number).astype(np.int64)
    if float(number @ mean) > needed * own.mean():
        return [(rows, needed)]
    return [each for part, n in zip(parts, number.tolist(), strict=True) for each in clusters(part, time, factor, n)]


def _threshold(values: np.ndarray) -> float:
    """The largest of the lower of two clusters of least squares (k-means in one dimension, exact)."""
    ordered = np.sort(values)
    count = np.arange(1, len(ordered))
    total, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    low = squares[:-1] - total[:-1] ** 2 / count
    high = squares[-1] - squares[:-1] - (total[-1] - total[:-1]) ** 2 / (len(ordered) - count)
    between = ordered[1:] > ordered[:-1]
    return float(ordered[int(np.argmin(np.where(between, low + high, np.inf)))])


STEM: Final = Sampler(drawn, StemRules, options="stem")
