"""Figure of what a method chose: the weight of each chosen element over the run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.palette import LINE_COLOURS, axis

MOST_POINTS: Final = 4000


def of_kind(table: pa.Table, kind: str) -> pa.Table:
    """The rows whose ``element_kind`` is that."""
    return table.filter(pa.array([each == kind for each in table.column("element_kind").to_pylist()], pa.bool_()))


def plan(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of a table of ``plan.parquet``: the weight of each chosen element against its number in the order
    of the run, a trace for each stratum; of several kinds of elements those of the first row."""
    if not table.num_rows:
        return {"data": [], "layout": {}}
    kind = str(table.column("element_kind")[0].as_py())
    own = of_kind(table, kind)
    ids, weight = (to_numpy(own.column(name)).astype(float) for name in ("element_id", "weight"))
    stratum = [("all" if each is None else str(each)) for each in own.column("stratum").to_pylist()]
    names = list(dict.fromkeys(stratum))
    step = max(1, -(-len(ids) // MOST_POINTS))
    symbols = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
    data: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        mine = np.flatnonzero(np.array([each == name for each in stratum]))[::step]
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": f"group {name}", "x": ids[mine].tolist(),
                "y": [float(f"{each:.6g}") for each in weight[mine]],
                "marker": {
                    "size": 8, "color": LINE_COLOURS[index % len(LINE_COLOURS)],
                    "symbol": symbols[index // len(LINE_COLOURS) % len(symbols)],
                },
                "hovertemplate": f"{kind} %{{x:,}}: weight %{{y:.4~g}}<extra>%{{fullData.name}}</extra>",
            }
        )  # fmt: skip
    shares = float(weight.max(initial=0.0)) <= 1.0
    layout = {
        "xaxis": axis(f"number of the {kind}".replace("_", " "), exponentformat="none"),
        "yaxis": axis("weight (share of the whole)" if shares else "weight (elements stood for)", rangemode="tozero"),
        "showlegend": 1 < len(names) <= 30, "hovermode": "closest",
    }  # fmt: skip
    return {"data": data, "layout": layout}
