"""Phase clusters of bursts: compute phases that are the same piece of code doing the same amount of work.

Method: Gonzalez, Gimenez, Labarta, "Automatic detection of parallel applications computation phases" (IPDPS 2009), and
Gonzalez, Huck, Gimenez, Labarta, "Automatic refinement of parallel applications structure detection" (IPDPSW 2012):
bursts too short to matter are left out, the others are points of (log duration, log instructions), scaled to 0..1 per
axis, and DBSCAN finds the dense groups: clusters may have any shape, and what lies in none is noise. Choices made here:

* Left out (NOT_CLUSTERED): the shortest bursts, that together take 1 - ``coverage`` of the time.
* The radius ``eps``, unless given, is the knee of the sorted distances to the ``min_points``-th neighbour (Ester,
  Kriegel, Sander, Xu, KDD 1996, section 4.2), the point farthest from the chord; between EPS_BOUNDS.
* An axis spans at least a factor of two (IPC: 0.5), so that bursts that are all alike stay together.
* Without counters: log duration alone, and only bursts of one region between calls of the same kinds can be neighbours.
* Clusters are numbered from 1 by their total time, longest first; noise is 0.
* More than ``most_fitted`` bursts: DBSCAN sees that many, evenly spread over the sorted bursts; each of the others gets
  the cluster of the nearest one that has one, if it is within the radius. So memory stays bounded (DBSCAN may hold
  ``most_fitted`` squared neighbours) and the result depends on no random number.

Cost: O(n log n) beside DBSCAN's O(m^2) for m = min(n, most_fitted).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow.compute as pc

from manyscale.models.workload import PhaseKind, Workload

NOISE: Final = 0
NOT_CLUSTERED: Final = -1
EPS_BOUNDS: Final = (0.005, 0.1)
INSTRUCTIONS: Final = "PAPI_TOT_INS"
CYCLES: Final = "PAPI_TOT_CYC"
_LEAST_LOG_SPAN: Final = float(np.log(2.0))
_LEAST_IPC_SPAN: Final = 0.5
_APART: Final = 1e3  # between bursts that cannot be neighbours; the axes are 0..1


@dataclass(frozen=True)
class ClusterParameters:
    """``axes``: "instructions" for (log duration, log instructions), "ipc" for (log duration, IPC), "duration"; "auto"
    is instructions where every phase has them, else duration. ``eps`` None: found. Raises ValueError if one is
    out of range."""

    axes: Literal["auto", "instructions", "ipc", "duration"] = "auto"
    eps: float | None = None
    min_points: int = 10
    coverage: float = 0.99
    most_fitted: int = 5_000

    def __post_init__(self) -> None:
        if self.eps is not None and not 0 < self.eps < 10:
            raise ValueError(f"eps is {self.eps}; it must lie between 0 and 10 (the axes are scaled to 0..1)")
        if self.min_points < 1:
            raise ValueError(f"min_points is {self.min_points}; at least 1 is needed")
        if not 0 < self.coverage <= 1:
            raise ValueError(f"coverage is {self.coverage}; it must lie between 0 and 1")
        if self.most_fitted < self.min_points:
            raise ValueError(f"most_fitted is {self.most_fitted}; at least min_points is needed")


@dataclass(frozen=True)
class BurstClusters:
    """``cluster``: int32 per phase of the workload. ``eps`` and ``axes``: what was used."""

    cluster: np.ndarray
    eps: float
    axes: str

    @property
    def num_clusters(self) -> int:
        return int(self.cluster.max(initial=0))


def cluster_bursts(workload: Workload, parameters: ClusterParameters = ClusterParameters()) -> BurstClusters:
    """Cluster of every compute phase. Raises ValueError if the axes need counters that a phase lacks."""
    duration = workload.column("phases", "duration_ps")
    result = np.full(len(duration), NOT_CLUSTERED, np.int32)
    chosen = _long_enough(duration, workload.column("phases", "kind"), parameters.coverage)
    axes, points = _points(workload, chosen, parameters.axes)
    if not len(chosen):
        return BurstClusters(result, parameters.eps or EPS_BOUNDS[0], axes)
    fitted = _evenly(points, parameters.most_fitted)
    eps = parameters.eps or _knee(points[fitted], parameters.min_points)
    labels = _dbscan(points[fitted], eps, parameters.min_points)
    result[chosen] = _by_time(_spread(points, fitted, labels, eps), duration[chosen])
    return BurstClusters(result, eps, axes)


def counter_values(workload: Workload, name: str) -> np.ndarray:
    """float64 per phase: what a hardware counter counted there; NaN where it was not measured."""
    values = np.full(workload.tables["phases"].num_rows, np.nan)
    table = workload.tables["counters"]
    table = table.filter(pc.equal(table.column("counter").cast("string"), name))
    values[table.column("phase_id").to_numpy()] = table.column("value").to_numpy()
    return values


def _long_enough(duration: np.ndarray, kind: np.ndarray, coverage: float) -> np.ndarray:
    """Rows, ascending, of the longest computing phases that together take ``coverage`` of all their time."""
    rows = np.flatnonzero((kind == PhaseKind.compute) & (duration > 0))
    order = rows[np.argsort(-duration[rows], kind="stable")]
    reached = np.cumsum(duration[order])
    if not len(reached):
        return rows
    needed = int(np.searchsorted(reached, coverage * reached[-1])) + 1
    shortest = duration[order[min(needed, len(order)) - 1]]
    return rows[duration[rows] >= shortest]  # all of one duration, or none


def _points(workload: Workload, rows: np.ndarray, axes: str) -> tuple[str, np.ndarray]:
    """Axes used, and float64[n, 2]: log duration beside the second axis, each scaled to 0..1."""
    log_duration = _scaled(np.log(workload.column("phases", "duration_ps")[rows]), _LEAST_LOG_SPAN)
    if axes in ("auto", "instructions", "ipc"):
        instructions = counter_values(workload, INSTRUCTIONS)[rows]
        cycles = counter_values(workload, CYCLES)[rows] if axes == "ipc" else instructions
        if len(rows) and np.all(instructions > 0) and np.all(cycles > 0):
            if axes == "ipc":
                return axes, np.column_stack((log_duration, _scaled(instructions / cycles, _LEAST_IPC_SPAN)))
            return "instructions", np.column_stack((log_duration, _scaled(np.log(instructions), _LEAST_LOG_SPAN)))
        if axes != "auto":
            needed = INSTRUCTIONS if axes == "instructions" else f"{INSTRUCTIONS} and {CYCLES}"
            raise ValueError(
                f"{workload.name}: the trace does not have {needed} for every phase; cluster by duration alone"
            )
    return "duration", np.column_stack((log_duration, _APART * _callers(workload, rows)))


def _scaled(values: np.ndarray, least_span: float) -> np.ndarray:
    """From 0 for the least to 1 for the most, or for ``least_span`` more than the least if that is more."""
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    return (values - low) / max(high - low, least_span)


def _callers(workload: Workload, rows: np.ndarray) -> np.ndarray:
    """float64: a number for each combination of region, call before and call after."""
    kind = workload.column("operations", "kind").astype(np.int64)
    rank, operation = (workload.column("phases", name)[rows] for name in ("rank", "operation_id"))
    after = workload.rank_offsets[rank] + operation
    before = np.where(operation > 0, kind[after - 1], -1)
    region = workload.column("phases", "region_id")[rows].astype(np.int64)
    code = ((region + 1) << 16) | ((before + 1) << 8) | kind[after]
    return np.unique(code, return_inverse=True)[1].astype(np.float64)


def _evenly(points: np.ndarray, most: int) -> np.ndarray:
    """Indices, ascending, of at most ``most`` points, evenly spread over the points in sorted order."""
    if len(points) <= most:
        return np.arange(len(points))
    order = np.lexsort((points[:, 0], points[:, 1]))
    return np.sort(order[np.linspace(0, len(points) - 1, most).round().astype(np.int64)])


def _knee(points: np.ndarray, min_points: int) -> float:
    """Radius at the knee of the sorted distances to the ``min_points``-th nearest point, itself counted."""
    from scipy.spatial import cKDTree

    low, high = EPS_BOUNDS
    if len(points) < min_points:
        return low
    found, _ = cKDTree(points).query(points, k=[min_points])
    distance = np.sort(found[found < _APART / 2])
    if len(distance) < 3 or distance[-1] <= distance[0]:
        return low
    share = np.linspace(0.0, 1.0, len(distance))
    rise = (distance - distance[0]) / (distance[-1] - distance[0])
    return float(np.clip(distance[int(np.argmax(share - rise))], low, high))


def _dbscan(points: np.ndarray, eps: float, min_points: int) -> np.ndarray:
    """Label of each point; -1 for noise."""
    from sklearn.cluster import DBSCAN

    labels: np.ndarray = DBSCAN(eps=eps, min_samples=min_points).fit(points).labels_
    return labels


def _spread(points: np.ndarray, fitted: np.ndarray, labels: np.ndarray, eps: float) -> np.ndarray:
    """Labels of all points from those of the fitted ones."""
    from scipy.spatial import cKDTree

    result = np.full(len(points), -1, np.int64)
    result[fitted] = labels
    rest = np.setdiff1d(np.arange(len(points)), fitted, assume_unique=True)
    known = np.flatnonzero(labels >= 0)
    if len(rest) and len(known):
        distance, nearest = cKDTree(points[fitted[known]]).query(points[rest], distance_upper_bound=eps)
        near = np.isfinite(distance)
        result[rest[near]] = labels[known[nearest[near]]]
    return result


def _by_time(labels: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Labels renumbered: noise is NOISE, clusters are numbered from 1 by their total time."""
    total = np.bincount(labels + 1, duration, minlength=1)[1:]
    number = np.zeros(len(total) + 1, np.int32)
    number[1 + np.argsort(-total, kind="stable")] = np.arange(1, len(total) + 1)
    return number[labels + 1]
