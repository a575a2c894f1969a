"""Phase clusters of a trace's bursts: tables of them, and figures per cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.runner.errors import UserError
from manyscale.runner.run.places import places
from manyscale.sampling.phases.burst_clusters import (
    CYCLES,
    INSTRUCTIONS,
    NOISE,
    NOT_CLUSTERED,
    BurstClusters,
    ClusterParameters,
    cluster_bursts,
    counter_values,
)


@dataclass(frozen=True)
class ClusterRow:
    """One cluster: number (NOISE, or NOT_CLUSTERED for bursts that are too short), bursts, share of all bursts' time,
    mean duration, IPC (None without counters), share of the ranks that have it, and the place of most of its time."""

    cluster: int
    bursts: int
    time_share: float
    mean_ps: float
    ipc: float | None
    rank_share: float
    place: str

    @property
    def name(self) -> str:
        return {NOISE: "noise", NOT_CLUSTERED: "too short"}.get(self.cluster, str(self.cluster))


def clusters_of(workload: Workload, **parameters: Any) -> BurstClusters:
    """``parameters``: fields of ClusterParameters. Raises UserError for values that make no sense, and for a trace
    without what the axes need."""
    try:
        return cluster_bursts(workload, ClusterParameters(**parameters))
    except ValueError as error:
        raise UserError(str(error)) from None


def clusters_table(found: BurstClusters) -> pa.Table:
    """``phase_id`` (row of the workload's phases) and ``cluster``."""
    columns = [to_arrow(np.arange(len(found.cluster), dtype=np.int64)), to_arrow(found.cluster)]
    return pa.Table.from_arrays(columns, names=["phase_id", "cluster"])


def cluster_rows(workload: Workload, found: BurstClusters) -> list[ClusterRow]:
    """A row per cluster, longest total time first, then noise and what is too short. O(phases log phases)."""
    time = workload.column("phases", "duration_ps").astype(np.float64)
    rank = workload.column("phases", "rank")
    where = places(workload)
    place = where.compute[workload.rank_offsets[rank] + workload.column("phases", "operation_id")]
    instructions, cycles = counter_values(workload, INSTRUCTIONS), counter_values(workload, CYCLES)
    whole = max(float(time.sum()), 1.0)
    rows = []
    for cluster in (*range(1, found.num_clusters + 1), NOISE, NOT_CLUSTERED):
        mine = np.flatnonzero(found.cluster == cluster)
        if not len(mine):
            continue
        counted = mine[~np.isnan(instructions[mine]) & (cycles[mine] > 0)]
        most = int(np.argmax(np.bincount(place[mine], time[mine])))
        rows.append(
            ClusterRow(
                cluster=cluster,
                bursts=len(mine),
                time_share=float(time[mine].sum()) / whole,
                mean_ps=float(time[mine].mean()),
                ipc=float(instructions[counted].sum() / cycles[counted].sum()) if len(counted) else None,
                rank_share=len(np.unique(rank[mine])) / workload.num_ranks,
                place=where.names[most],
            )
        )
    return rows
