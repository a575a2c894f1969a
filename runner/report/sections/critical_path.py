"""Section of the report on the critical path: what the end of the run waited for, and where to work."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import duration, percent, table, time_unit
from manyscale.runner.run import critical_path
from manyscale.runner.run.places import places
from manyscale.runner.run.results import Result

_BINS: Final = 2_000  # of time in the chart
_MOST_ROWS: Final = 12
_LABELS: Final = {
    "compute": "computing",
    "transfer": "transfers of point-to-point messages",
    "collective": "transfers of collectives",
    "overhead": "in calls, but in no transfer",
}
NOTE: Final = (
    "The chain of compute and messages that the end of the run waited for: shorter compute or transfers elsewhere "
    "change nothing, shorter ones here help until another chain is the longest. timeline/critical_path.parquet holds "
    "every part."
)


def add_section(page: Page, result: Result) -> None:
    """The section, if the result has a critical path of any length. O(segments)."""
    path = result.critical_path
    if path is None or not path.num_rows:
        return
    whole = int(to_numpy(path.column("end_ps"))[-1])
    by_kind = [(_LABELS[kind], time) for kind, time in critical_path.time_by_kind(path).items() if time]
    by_rank = critical_path.time_by_rank(path, result.workload.num_ranks)
    order = np.argsort(-by_rank, kind="stable")
    ranks = [(f"rank {rank}", int(by_rank[rank])) for rank in order.tolist() if by_rank[rank]]
    by_place = list(critical_path.time_by_place(result.workload, places(result.workload), path).items())
    left, right = [("kind", by_kind), ("rank", ranks)], [("region or call", by_place)]
    links = result.critical_path_links
    if links is not None and links.num_rows:
        right.append(("link of a transfer", [(row["link"], row["time_ps"]) for row in links.to_pylist()]))
    tables = "".join(
        f"<div>{'<br>'.join(_shares(title, rows, whole) for title, rows in each)}</div>" for each in (left, right)
    )
    page.add("Critical path", f'<div class="pair">{tables}</div>', _chart(page, path, whole), note=NOTE)


def _shares(title: str, rows: list[tuple[str, int]], whole: int) -> str:
    shown = rows[:_MOST_ROWS]
    if len(rows) > len(shown):
        shown = [*shown, (f"{len(rows) - len(shown)} others", sum(time for _, time in rows[_MOST_ROWS:]))]
    cells = [(name, duration(time * 1e-12), percent(time / whole)) for name, time in shown]
    return table((title, "time", "share"), cells)


def _chart(page: Page, path: pa.Table, whole: int) -> str:
    """Rank on the path against time, at the middle of each of equal bins of time."""
    middle = ((np.arange(_BINS) + 0.5) * (whole / _BINS)).astype(np.int64)
    rank = to_numpy(path.column("rank"))[np.searchsorted(to_numpy(path.column("end_ps")), middle, side="right")]
    change = np.flatnonzero(np.diff(rank, prepend=rank[0] - 1) != 0)
    length, unit = time_unit(whole * 1e-12)
    times = [float(f"{value:.6g}") for value in (change * (whole / _BINS * 1e-12 / length)).tolist()]
    content = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [*times, whole * 1e-12 / length],
                "y": [*rank[change].tolist(), int(rank[-1])],
                "line": {"shape": "hv", "width": 1.5, "color": LINE_COLOURS[1]},
                "hovertemplate": f"%{{x:.4~g}} {unit}: rank %{{y}}<extra></extra>",
            }
        ],
        "layout": {"xaxis": axis(f"time ({unit})"), "yaxis": axis("rank"), "showlegend": False},
    }
    return page.chart("critical-path", "figure", 320, content, "rank that the critical path is on, over time")
