"""Charts of cycles per instruction over a run, coloured by what its elements were found to be alike in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from manyscale.runner.writers.report_page import LINE_COLOURS, Page, axis

_MOST_SHOWN: Final = 4000


def phases_over_time(
    page: Page, element: str, cpi: np.ndarray, label: np.ndarray, chosen: np.ndarray, names: Sequence[str], *,
    one: str, caption: str,
) -> str:  # fmt: skip
    """Markup of a chart of ``cpi`` float64[n] in the order of elements. ``label`` int[n]: which of ``names`` each is;
    ``chosen`` int64[]: those that were simulated; ``one``: what an element is."""
    step = max(1, -(-len(cpi) // _MOST_SHOWN))
    data: list[dict[str, Any]] = []
    for number in np.unique(label).tolist():
        mine = np.flatnonzero(label == number)[::step]
        data.append(_markers(names[number], mine, cpi, LINE_COLOURS[number % len(LINE_COLOURS)], 4, "circle"))
    marked = chosen[:: max(1, -(-len(chosen) // _MOST_SHOWN))]
    data.append(_markers("simulated", marked, cpi, "#000000", 10, "x-thin-open"))
    layout = {"xaxis": axis(one), "yaxis": axis("cycles per instruction", rangemode="tozero")}
    content = {"data": data, "layout": {**layout, "showlegend": True, "hovermode": "closest"}}
    return page.chart(element, "figure", 360, content, caption)


def _markers(name: str, at: np.ndarray, cpi: np.ndarray, colour: str, size: int, symbol: str) -> dict[str, Any]:
    return {
        "type": "scattergl" if len(cpi) > 2_000 else "scatter",
        "mode": "markers",
        "name": name,
        "x": at.tolist(),
        "y": [float(f"{value:.6g}") for value in cpi[at]],
        "marker": {"size": size, "color": colour, "symbol": symbol},
    }
