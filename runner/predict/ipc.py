"""By how much each compute phase is corrected: a study's ``ipc_correction`` as one factor per phase."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from manyscale.models.spelling import unknown
from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.errors import UserError, WrongKeyError
from manyscale.runner.predict.phase_source import Case

if TYPE_CHECKING:
    from manyscale.sampling.phases.burst_clusters import BurstClusters


def ipc_factors(case: Case, duration_ps: np.ndarray | None = None) -> np.ndarray:
    """float64 per phase: product of all corrections that apply to it. ``duration_ps``: times to be corrected, of all
    phases (None: the traced ones). Raises UserError for what the trace has not."""
    workload, correction = case.workload, case.study.ipc_correction
    offsets = workload.phase_offsets
    factor = np.full(int(offsets[-1]), correction.default)
    for rank, value in correction.ranks.items():
        if not 0 <= rank < workload.num_ranks:
            raise UserError(f"ipc_correction.ranks: rank {rank} is not one of the trace's {workload.num_ranks}")
        factor[offsets[rank] : offsets[rank + 1]] *= value
    names = workload.tables["regions"].column("name").to_pylist() if correction.regions else []
    for name, value in correction.regions.items():
        if name not in names:
            what = unknown("region", name, names) if names else f"unknown region {name!r}; the trace names none"
            raise WrongKeyError("", "ipc_correction.regions", what)
        factor[workload.column("phases", "region_id") == names.index(name)] *= value
    for key, value in correction.phases.items():
        factor[_phase_rows(workload, key)] *= value
    for cluster, value in correction.clusters.items():
        found = case.shared.once("phase clusters", partial(_phase_clusters, workload))
        if not 0 <= cluster <= found.num_clusters:
            raise UserError(
                f"ipc_correction.clusters: there is no phase cluster {cluster}; there are {found.num_clusters} "
                "(manyscale clusters shows them)"
            )
        factor[found.cluster == cluster] *= value
    if correction.balance:
        duration = workload.column("phases", "duration_ps") if duration_ps is None else duration_ps
        factor *= _balancing_factors(workload, factor, duration)
    return factor


def _phase_rows(workload: Workload, key: str) -> np.ndarray:
    """Rows of the phase RANK/INDEX, or of that index in every rank that has one."""
    offsets = workload.phase_offsets
    rank_text, _, index_text = key.partition("/")
    everywhere = rank_text == "*"
    if not (index_text.isdigit() and (everywhere or (rank_text.isdigit() and int(rank_text) < workload.num_ranks))):
        raise UserError(f"ipc_correction.phases: {key!r} is neither RANK/INDEX of a phase nor */INDEX")
    ranks = np.arange(workload.num_ranks) if everywhere else np.array([int(rank_text)])
    rows = offsets[ranks] + int(index_text)
    rows = rows[rows < offsets[ranks + 1]]
    if not len(rows):
        who = "no rank has a phase" if everywhere else f"rank {rank_text} has no phase"
        raise UserError(f"ipc_correction.phases: {who} {index_text}")
    return rows


def _phase_clusters(workload: Workload) -> BurstClusters:
    from manyscale.sampling.phases.burst_clusters import cluster_bursts  # costs more than a small run

    return cluster_bursts(workload)


def _balancing_factors(workload: Workload, factor: np.ndarray, duration_ps: np.ndarray) -> np.ndarray:
    """Per phase: what makes all ranks that compute do so for as long, the mean over all ranks."""
    rank = workload.column("phases", "rank")
    computing = workload.column("phases", "kind") == PhaseKind.compute
    time = np.where(computing, duration_ps / factor, 0.0)
    total = np.bincount(rank, time, minlength=workload.num_ranks)
    mean = total.mean()
    return np.where(total > 0, total / mean, 1.0)[rank] if mean > 0 else np.ones(len(rank))
