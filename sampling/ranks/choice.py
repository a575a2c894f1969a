"""Which ranks and which iterations of the main loop are simulated by a model of the cores; the others follow from them.

Source: MUSA (Grass, UPC 2017, section 6.3.4): one out of every N ranks, chosen iterations, of which the second is
usual, since the first finds cold hardware. Beyond it, clusters of ranks: ranks are alike if their compute time in each
iteration is, and their task instances by type are as many and take as long; k-means on these features, each divided by
its largest value, for the number of clusters with the best silhouette (Rousseeuw, 1987); the rank nearest to a
cluster's centre stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyscale.models.workload import PhaseKind, Workload
from manyscale.sampling.plan import Plan

MOST_CLUSTERS = 16
ALIKE = 1e-3  # ranks whose features differ less are one cluster


def one_in(method: object) -> int:
    """N of ``one-in-N``, 0 if it is another method."""
    text = method.removeprefix("one-in-") if isinstance(method, str) and method.startswith("one-in-") else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def choose_ranks(workload: Workload, method: str | Sequence[int], traced: np.ndarray, model: str) -> Plan:
    """The ranks that ``model`` simulates and what each stands for. ``traced`` int[]: ranks that have a detailed level.

    ``stratum`` is the sampled rank's index; which stratum each rank of the workload belongs to says ``strata``. Raises
    ValueError for a rank that there is not, and for a method that leaves none.
    """
    chosen, stratum = _chosen(workload, method, traced)
    if not len(chosen):
        raise ValueError("no rank has a detailed level; trace at least one with `manyscale trace --level detailed`")
    weight = np.bincount(stratum, minlength=len(chosen)).astype(float)
    return Plan("rank", chosen, np.arange(len(chosen), dtype=np.int32), weight, model, workload.num_ranks)


def strata(workload: Workload, method: str | Sequence[int], traced: np.ndarray) -> np.ndarray:
    """int64[num_ranks]: index, among the chosen ranks, of the one that stands for each rank."""
    return _chosen(workload, method, traced)[1]


def _chosen(workload: Workload, method: str | Sequence[int], traced: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(workload.num_ranks)
    if method == "full":
        return every, every
    if method == "clusters":
        return _clusters(_features(workload))
    if step := one_in(method):
        return every[::step], every // step
    given = np.asarray(traced if isinstance(method, str) else method, np.int64)
    chosen = np.unique(given)
    if len(chosen) and chosen[-1] >= workload.num_ranks:
        raise ValueError(f"rank {chosen[-1]} is not one of the trace's {workload.num_ranks}")
    return chosen, _nearest(_features(workload), chosen)


def choose_iterations(num_iterations: int, method: str | Sequence[int], traced: np.ndarray) -> np.ndarray:
    """int64[]: the iterations that are simulated, ascending. ``traced`` int[]: those that have a detailed level.

    Raises ValueError for an iteration that there is not.
    """
    if method == "full":
        return np.arange(num_iterations)
    if method == "second":
        return np.array([min(1, num_iterations - 1)])
    if step := one_in(method):
        return np.arange(min(1, num_iterations - 1), num_iterations, step)  # the first is not representative
    chosen = np.unique(np.asarray(traced if isinstance(method, str) else method, np.int64))
    if len(chosen) and chosen[-1] >= num_iterations:
        raise ValueError(f"iteration {chosen[-1]} is not one of the trace's {num_iterations}")
    return chosen


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
    if not len(chosen):
        return np.zeros(len(features), np.int64)
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
