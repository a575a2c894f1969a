"""Figure of predicted launches against measured ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.palette import GREY, axis, line_style, line_symbol

MAX_POINTS: Final = 4000  # of all kernels together
MAX_KERNELS: Final = 28  # that have a colour of their own


def hardware(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of the launches of ``evaluate --cycles``: predicted against measured on logarithmic axes, a mark
    for each launch, the diagonal where both are equal; a colour for each kernel, marks by run."""
    rows = table.to_pylist()
    if not rows:
        return {"data": [], "layout": {}}
    step = -(-len(rows) // MAX_POINTS)
    unit = rows[0]["unit"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    runs = list(dict.fromkeys(row["workload"] for row in rows))
    for row in rows[::step]:
        groups.setdefault((row["kernel"], row["workload"]), []).append(row)
    both = np.concatenate([to_numpy(table.column(name)) for name in ("predicted", "measured")])
    low, high = float(both[both > 0].min()) / 1.5, float(both.max()) * 1.5
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": "equal", "x": [low, high], "y": [low, high],
            "line": {"color": GREY, "width": 2, "dash": "dash"}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    for (kernel, run), mine in groups.items():
        name = kernel if len(kernel) <= 40 else f"{kernel[:39]}…"
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": f"{name}, {run}" if len(runs) > 1 else name,
                "x": [float(f"{row['measured']:.6g}") for row in mine],
                "y": [float(f"{row['predicted']:.6g}") for row in mine],
                "customdata": [[row["launch_id"], 100 * row["error"]] for row in mine],
                "marker": {"color": line_style(min(kernels.index(kernel), MAX_KERNELS - 1))[0],
                           "symbol": line_symbol(runs.index(run)), "size": 8},
                "hovertemplate": f"launch %{{customdata[0]}}: %{{y:,.4s}} for %{{x:,.4s}} {unit}, "
                "%{customdata[1]:+.1f} %<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
    layout = {
        "xaxis": axis(f"measured ({unit})", type="log"), "yaxis": axis(f"predicted ({unit})", type="log"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}, "showlegend": len(data) <= 13,
    }  # fmt: skip
    return {"data": data, "layout": layout}
