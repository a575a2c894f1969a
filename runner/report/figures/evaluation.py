"""Figure of how far samples are from what they stand for, by method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.runner.report.palette import axis, bar_marker
from manyscale.runner.run.evaluation.tasks import FULL


def evaluation(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of a table of ``evaluation.parquet``: of each method the mean size of its errors in per cent as a
    bar, from the least to the largest as a line, over seeds or numbers of cores; workloads side by side. Full detail,
    which the errors are against, is left out."""
    rows_of: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in table.to_pylist():
        if row["method"] != FULL:
            rows_of.setdefault(row["workload"], {}).setdefault(row["method"], []).append(row)
    if not rows_of:
        return {"data": [], "layout": {}}
    data: list[dict[str, Any]] = []
    for index, (workload, by_method) in enumerate(rows_of.items()):
        errors = [100 * np.abs([row["error"] for row in rows]) for rows in by_method.values()]
        data.append(
            {
                "type": "bar", "name": workload, "x": list(by_method), "y": [float(each.mean()) for each in errors],
                "marker": bar_marker(index),
                "error_y": {
                    "type": "data", "symmetric": False, "thickness": 1.5, "color": "#1c2530",
                    "array": [float(each.max() - each.mean()) for each in errors],
                    "arrayminus": [float(each.mean() - each.min()) for each in errors],
                },
                "customdata": [_told(rows) for rows in by_method.values()],
                "hovertemplate": "%{x}: %{customdata}<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
    layout = {
        "xaxis": axis("", type="category", automargin=True), "yaxis": axis("error (%)", rangemode="tozero"),
        "barmode": "group", "showlegend": len(data) > 1,
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _told(rows: list[dict[str, Any]]) -> str:
    errors = np.abs([row["error"] for row in rows])
    text = f"{errors.mean():.2%} in the mean of {len(rows)}, {errors.max():.2%} at most"
    half = [row["half_width"] for row in rows if row["half_width"] is not None]
    if not half:
        return text
    holds = sum(row["holds"] for row in rows if row["holds"] is not None)
    return f"{text}<br>own interval: ±{np.median(half):.2%}, holds {holds} of {len(half)} times"
