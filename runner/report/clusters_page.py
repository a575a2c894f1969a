"""Phase clusters of a trace's bursts as a table, as figures per cluster, and as a page with a scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.runner.report.page import LINE_COLOURS, Page, axis
from manyscale.runner.report.text import duration, percent, table
from manyscale.runner.run.places import places
from manyscale.sampling.phases.burst_clusters import (
    CYCLES,
    INSTRUCTIONS,
    NOISE,
    NOT_CLUSTERED,
    BurstClusters,
    counter_values,
)

MOST_POINTS: Final = 10_000  # of the scatter plot
_GREY: Final = "#b9c2cc"


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

    def text(self) -> tuple[str, ...]:
        """The row to read."""
        ipc = "-" if self.ipc is None else f"{self.ipc:.3f}"
        return (
            self.name, f"{self.bursts:,}", percent(self.time_share), duration(self.mean_ps * 1e-12), ipc,
            percent(self.rank_share),
        )  # fmt: skip


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


def write_page(workload: Workload, found: BurstClusters, rows: Sequence[ClusterRow], path: Path) -> None:
    """Scatter plot and table on one self-contained page; equal clusters give equal bytes."""
    page = Page(f"Phase clusters of {workload.name}", f"{workload.num_ranks:,} ranks, {len(found.cluster):,} bursts.")
    columns = ("cluster", "bursts", "time", "mean duration", "IPC", "ranks", "mostly in")
    page.add("Clusters", table(columns, [(*row.text(), row.place) for row in rows]))
    clustered = np.flatnonzero(found.cluster != NOT_CLUSTERED)
    step = max(1, -(-len(clustered) // MOST_POINTS))
    note = f"Radius {found.eps:.4g} of axes scaled to 0..1. Bursts too short to matter are not drawn."
    if step > 1:
        note += f" One burst in {step} is drawn."
    page.add("Bursts", _scatter(page, workload, found, clustered[::step]), note=note)
    path.write_text(page.html(), encoding="utf-8")


def _scatter(page: Page, workload: Workload, found: BurstClusters, chosen: np.ndarray) -> str:
    seconds = workload.column("phases", "duration_ps") * 1e-12
    if found.axes == "instructions":
        height, title, scale = counter_values(workload, INSTRUCTIONS), "instructions", "log"
    elif found.axes == "ipc":
        ratio = counter_values(workload, INSTRUCTIONS) / counter_values(workload, CYCLES)
        height, title, scale = ratio, "IPC", "linear"
    else:
        height, title, scale = workload.column("phases", "rank").astype(np.float64), "rank", "linear"
    data: list[dict[str, Any]] = []
    for cluster in np.unique(found.cluster[chosen]).tolist():
        mine = chosen[found.cluster[chosen] == cluster]
        colour = _GREY if cluster == NOISE else LINE_COLOURS[(cluster - 1) % len(LINE_COLOURS)]
        data.append(
            {
                "type": "scattergl" if len(chosen) > 2_000 else "scatter",
                "mode": "markers",
                "name": "noise" if cluster == NOISE else f"cluster {cluster}",
                "x": [float(f"{value:.6g}") for value in seconds[mine]],
                "y": [float(f"{value:.6g}") for value in height[mine]],
                "marker": {"size": 5, "color": colour, "symbol": cluster // len(LINE_COLOURS)},
            }
        )
    content = {
        "data": data,
        "layout": {
            "xaxis": axis("duration (s)", type="log"),
            "yaxis": axis(title, type=scale),
            "hovermode": "closest",
            "showlegend": True,
        },
    }
    return page.chart("bursts", "figure", 560, content, "duration of every burst, by cluster")
