"""Charts of cycles per instruction over a run, coloured by what its elements were found to be alike in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import LINE_COLOURS, axis

MOST_SHOWN: Final = 4000  # elements


def phases_over_time(
    page: Page, element: str, cpi: np.ndarray, label: np.ndarray, chosen: np.ndarray, names: Sequence[str], *,
    one: str, caption: str,
) -> str:  # fmt: skip
    """Markup of a chart of ``cpi`` float64[n] in the order of elements. ``label`` int[n]: which of ``names`` each is;
    ``chosen`` int64[]: those that were simulated; ``one``: what an element is."""
    step = max(1, -(-len(cpi) // MOST_SHOWN))
    data: list[dict[str, Any]] = []
    for number in np.unique(label).tolist():
        mine = np.flatnonzero(label == number)[::step]
        data.append(markers(names[number], mine, cpi[mine], LINE_COLOURS[number % len(LINE_COLOURS)], 4, "circle"))
    marked = chosen[:: max(1, -(-len(chosen) // MOST_SHOWN))]
    data.append(markers("simulated", marked, cpi[marked], "#000000", 10, "x-thin-open"))
    return cpi_chart(page, element, data, one, caption)


def cpi_chart(page: Page, element: str, data: list[dict[str, Any]], along: str, caption: str) -> str:
    """Markup of ``data`` (``markers``): cycles per instruction ``along`` something."""
    layout = {"xaxis": axis(along), "yaxis": axis("cycles per instruction", rangemode="tozero")}
    content = {"data": data, "layout": {**layout, "showlegend": True, "hovermode": "closest"}}
    return page.chart(element, "figure", 360, content, caption)


def markers(name: str, x: np.ndarray, y: np.ndarray, colour: str, size: int, symbol: str) -> dict[str, Any]:
    """Plotly's trace of points."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x.tolist(),
        "y": [float(f"{value:.6g}") for value in y],
        "marker": {"size": size, "color": colour, "symbol": symbol, "line": {"color": colour, "width": 1.5}},
    }
