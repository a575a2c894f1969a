"""The page of ``manyscale clusters``: phase clusters of a trace's bursts as a table and a scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import GREY, LINE_COLOURS, axis
from manyscale.runner.report.text import duration, percent, table
from manyscale.runner.run.questions.clusters import ClusterRow
from manyscale.sampling.phases.burst_clusters import (
    CYCLES,
    INSTRUCTIONS,
    NOISE,
    NOT_CLUSTERED,
    BurstClusters,
    counter_values,
)

MOST_POINTS: Final = 5_000  # of the scatter plot
_GREY: Final = GREY


def row_text(row: ClusterRow) -> tuple[str, ...]:
    """A cluster to read: name, bursts, share of the time, mean duration, IPC, share of the ranks."""
    ipc = "-" if row.ipc is None else f"{row.ipc:.3f}"
    mean = duration(row.mean_ps * 1e-12)
    return row.name, f"{row.bursts:,}", percent(row.time_share), mean, ipc, percent(row.rank_share)


def write(workload: Workload, found: BurstClusters, rows: Sequence[ClusterRow], path: Path) -> None:
    """Scatter plot and table on one self-contained page; equal clusters give equal bytes."""
    page = Page(f"Phase clusters of {workload.name}", f"{workload.num_ranks:,} ranks, {len(found.cluster):,} bursts.")
    columns = ("cluster", "bursts", "time", "mean duration", "IPC", "ranks", "mostly in")
    page.add("Clusters", table(columns, [(*row_text(row), row.place) for row in rows], text_from=6))
    clustered = np.flatnonzero(found.cluster != NOT_CLUSTERED)
    step = max(1, -(-len(clustered) // MOST_POINTS))
    note = f"Radius {found.eps:.4g} of axes scaled to 0..1. Bursts too short to matter are not drawn."
    if step > 1:
        note += f" One burst in {step} is drawn."
    page.add("Bursts", _scatter(page, workload, found, clustered[::step]), note=note)
    path.write_text(page.html(), encoding="utf-8", errors="backslashreplace")


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
                "type": "scatter",
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
