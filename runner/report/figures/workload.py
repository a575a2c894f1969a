"""Figures of what a workload holds: one for each of its tables that says more as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.palette import GREY, axis, bar_marker, line_style

MOST_BARS: Final = 200
MOST_POINTS: Final = 2000


class _Look(NamedTuple):
    """``values``: columns by the names that their lines or bars have."""

    kind: str  # bar, line or box
    x: str
    x_title: str
    y_title: str
    values: Mapping[str, str]
    scale: float = 1.0
    y_type: str = "linear"


_LOOKS: Final = {
    "ranks": _Look("line", "rank", "rank", "compute (s)", {"compute": "compute_ps"}, 1e-12),
    "message_sizes": _Look("bar", "from_bytes", "bytes of a message, from", "messages", {"messages": "messages"}),
    "iterations": _Look("line", "iteration", "iteration", "compute of a rank (s)", {"compute": "compute_ps"}, 1e-12),
    "task_types": _Look("box", "task_type", "", "time of an instance (s)", {}, 1e-12, "log"),
    "speed_up": _Look(
        "line", "cores", "cores", "speed-up of the traced work",
        {"at most": "speed_up_at_most", "at least (Graham)": "speed_up_at_least"}, 1.0, "log",
    ),
    "kernels": _Look("bar", "kernel", "", "warp instructions", {"warp instructions": "warp_instructions"}),
    "grid_sizes": _Look("bar", "blocks_from", "thread blocks of a launch, from", "launches", {"launches": "launches"}),
}  # fmt: skip


def workload(name: str, table: pa.Table) -> dict[str, Any] | None:
    """Plotly's figure of a table of ``manyscale show`` by its name; None where it has none, or a single row. What is
    left out of a long table its axis says."""
    look = _LOOKS.get(name)
    if look is None or table.num_rows < 2:
        return None
    if look.kind == "box":
        return _boxes(look, table.slice(0, MOST_BARS))
    is_bar = look.kind == "bar"
    step = 1 if is_bar else max(1, -(-table.num_rows // MOST_POINTS))
    shown = table.slice(0, MOST_BARS) if is_bar else table.take(pa.array(range(0, table.num_rows, step)))
    x = shown.column(look.x).to_pylist()
    if is_bar:
        x = [f"{each:,}" if isinstance(each, int) else _short(each) for each in x]
    data: list[dict[str, Any]] = []
    for index, (label, column) in enumerate(look.values.items()):
        y = [float(f"{value * look.scale:.6g}") for value in to_numpy(shown.column(column)).astype(np.float64)]
        if is_bar:
            data.append({"type": "bar", "name": label, "x": x, "y": y, "marker": bar_marker(index)})
        else:
            colour, dash = line_style(index)
            line = {"color": colour, "dash": dash, "width": 2}
            data.append({"type": "scatter", "mode": "lines", "name": label, "x": x, "y": y, "line": line})
    if name == "speed_up":
        ideal = {"type": "scatter", "mode": "lines", "name": "ideal", "x": x, "y": x, "hoverinfo": "skip"}
        data.append(ideal | {"line": {"color": GREY, "dash": "dot", "width": 1.5}})
    left_out = f" (the first {MOST_BARS} of {table.num_rows:,})" if is_bar and shown.num_rows < table.num_rows else ""
    left_out = f" (one in {step})" if step > 1 else left_out
    x_axis = axis(f"{look.x_title}{left_out}".strip(), **({"type": "category"} if is_bar else {}))
    if name == "speed_up":
        x_axis |= {"type": "log", "tickmode": "array", "tickvals": x, "ticktext": [f"{each:,}" for each in x]}
    y_axis = axis(look.y_title, type=look.y_type, **({"rangemode": "tozero"} if look.y_type == "linear" else {}))
    return {"data": data, "layout": {"xaxis": x_axis, "yaxis": y_axis, "showlegend": len(data) > 1}}


def _boxes(look: _Look, table: pa.Table) -> dict[str, Any]:
    low, middle, high = (
        [max(float(f"{value * look.scale:.6g}"), 1e-12) for value in table.column(name).to_pylist()]
        for name in ("percentile_5_ps", "median_ps", "percentile_95_ps")
    )
    names = [_short(each) for each in table.column("task_type").to_pylist()]
    box = {
        "type": "scatter", "mode": "markers", "name": "median", "x": names, "y": middle, "marker": {"size": 9},
        "error_y": {
            "type": "data", "symmetric": False, "array": [top - mid for top, mid in zip(high, middle, strict=True)],
            "arrayminus": [mid - bottom for bottom, mid in zip(low, middle, strict=True)],
        },
    }  # fmt: skip
    layout = {"xaxis": {"type": "category"}, "yaxis": axis(look.y_title, type=look.y_type), "showlegend": False}
    return {"data": [box], "layout": layout}


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:36]} ..."
