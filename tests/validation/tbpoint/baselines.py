"""What TBPoint is compared with: samples of units of a fixed size, taken from a full simulation.

Source: Huang et al., TBPoint (IPDPS 2014), section V-A: a full simulation is cut into units of a million instructions.
*Random* takes 10 % of them. *Ideal-SimPoint* clusters basic-block vectors of whatever warps ran in a unit, as SimPoint
does (Sherwood et al., ASPLOS 2002): vectors made to sum to one, projected to PROJECTED dimensions, k-means for every
number of clusters up to ``most_clusters``, the smallest of these whose Bayesian information criterion (Pelleg and
Moore, 2000) reaches BIC_SHARE of the range of all; the unit nearest to a cluster's centre stands for it (eq. 1).
*Systematic* takes every k-th unit from a random one on, as SMARTS does (Wunderlich et al., ISCA 2003).

`projected` is Principal Kernel Projection, the part inside launches of Principal Kernel Analysis (Baddouh et al., MICRO
2021): a simulation ends once IPC is stable, by its deviation in a rolling window, and a whole wave of blocks has ended,
if there are more than one. This rule, STABLE and WINDOW_CYCLES are from memory: the paper was not at hand, and no code
of its authors to run beside it.

The others take arrays of one entry per unit (instructions, cycles), and estimate cycles of all by the instructions of
all: total instructions times the sample's cycles per instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

RANDOM_SHARE: Final = 0.1
PROJECTED: Final = 15
BIC_SHARE: Final = 0.9
STABLE: Final = 0.25  # deviation of the IPC in a window, of its mean
WINDOW_CYCLES: Final = 3000
_STARTS: Final = 5
_DIGITS: Final = 6  # points closer than that are one


@dataclass(frozen=True)
class Baseline:
    """``chosen`` int64[] units, ascending; ``total_cycles`` estimated for all; ``instruction_share`` of the chosen."""

    chosen: np.ndarray
    total_cycles: float
    instruction_share: float


def random_units(instructions: np.ndarray, cycles: np.ndarray, count: int, seed: int) -> Baseline:
    """``count`` units drawn at random, without one twice. Raises ValueError if there are not as many."""
    _check(instructions, cycles, count)
    chosen = np.sort(np.random.default_rng(seed).choice(len(cycles), count, replace=False))
    return _by_instructions(instructions, cycles, chosen)


def systematic_units(instructions: np.ndarray, cycles: np.ndarray, count: int, seed: int) -> Baseline:
    """``count`` units at equal distances, the first one at random. Raises ValueError as `random_units`."""
    _check(instructions, cycles, count)
    distance = len(cycles) / count
    first = np.random.default_rng(seed).random() * distance
    return _by_instructions(instructions, cycles, (first + distance * np.arange(count)).astype(np.int64))


def simpoint_units(
    instructions: np.ndarray, cycles: np.ndarray, vectors: np.ndarray, most_clusters: int = 30, seed: int = 0
) -> Baseline:
    """Ideal-SimPoint; ``vectors`` [units, basic blocks]: instructions of each block that a unit executed. Raises
    ValueError if there is not a vector for each unit."""
    _check(instructions, cycles, 1)
    if len(vectors) != len(cycles):
        raise ValueError(f"{len(vectors)} vectors for {len(cycles)} units")
    total = vectors.sum(axis=1, keepdims=True)
    points = np.divide(vectors, total, out=np.zeros(vectors.shape), where=total > 0)
    if points.shape[1] > PROJECTED:
        points = points @ np.random.default_rng(seed).uniform(-1, 1, (points.shape[1], PROJECTED))
    label, centres = _k_means(points, most_clusters, seed)
    distance = ((points - centres[label]) ** 2).sum(axis=1)
    chosen = np.array([rows[np.argmin(distance[rows])] for rows in map(np.flatnonzero, _masks(label, len(centres)))])
    weight = np.bincount(label, np.asarray(instructions, np.float64))
    total_cycles = float(weight @ (cycles[chosen] / instructions[chosen]))
    return Baseline(np.sort(chosen), total_cycles, float(instructions[chosen].sum() / instructions.sum()))


def projected(
    issued: np.ndarray, bucket_cycles: int, cycles: float, block_end: np.ndarray, resident: int
) -> tuple[float, float]:
    """(cycles of a launch, share of its instructions) by Principal Kernel Projection. ``issued`` [buckets]: warp
    instructions of each ``bucket_cycles`` of the full simulation, which took ``cycles``; ``block_end`` [blocks]: when
    each ended; ``resident``: blocks that the GPU holds. The window has two buckets at least. What is left takes the
    IPC of the window: the source projects by blocks that are left, which those that run when it stops are not yet."""
    width = max(2, -(-WINDOW_CYCLES // bucket_cycles))
    total = float(issued.sum())
    if len(block_end) > resident:
        wave = float(np.sort(block_end)[resident - 1])
        for end in range(max(width, int(wave // bucket_cycles) + 1), len(issued)):
            window = issued[end - width : end]
            mean = float(window.mean())
            if mean > 0 and float(window.std()) < STABLE * mean:
                done = float(issued[:end].sum())
                return end * bucket_cycles + (total - done) * bucket_cycles / mean, done / total
    return float(cycles), 1.0


def _masks(label: np.ndarray, count: int) -> list[np.ndarray]:
    return [label == one for one in range(count)]


def _k_means(points: np.ndarray, most_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(label of each point, centres)."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(points.round(_DIGITS), axis=0))
    found, scores = [], []
    for k in range(1, min(most_clusters, distinct) + 1):
        model = KMeans(k, n_init=_STARTS, random_state=seed).fit(points.round(_DIGITS))
        found.append((model.labels_, model.cluster_centers_))
        scores.append(_criterion(points, model.labels_, model.inertia_))
    score = np.array(scores)
    wanted = score.min() + BIC_SHARE * (score.max() - score.min())
    return found[int(np.argmax(score >= wanted))]


def _criterion(points: np.ndarray, label: np.ndarray, squares: float) -> float:
    """Bayesian information criterion of spherical clusters of one variance (Pelleg and Moore, 2000)."""
    count, dimensions = points.shape
    size = np.unique(label, return_counts=True)[1]
    k = len(size)
    variance = max(squares / max(dimensions * (count - k), 1), 1e-12)
    likelihood = float(size @ np.log(size)) - count * np.log(count)
    likelihood -= count * dimensions / 2 * np.log(2 * np.pi * variance) + dimensions * (count - k) / 2
    return likelihood - k * (dimensions + 1) / 2 * np.log(count)


def _check(instructions: np.ndarray, cycles: np.ndarray, count: int) -> None:
    if len(instructions) != len(cycles):
        raise ValueError(f"{len(instructions)} numbers of instructions and {len(cycles)} of cycles; one each per unit")
    if not 1 <= count <= len(cycles):
        raise ValueError(f"{count} of {len(cycles)} units cannot be chosen")


def _by_instructions(instructions: np.ndarray, cycles: np.ndarray, chosen: np.ndarray) -> Baseline:
    sampled, total = float(instructions[chosen].sum()), float(instructions.sum())
    return Baseline(chosen, float(cycles[chosen].sum()) * total / sampled, sampled / total)
