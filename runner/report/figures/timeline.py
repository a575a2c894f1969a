"""Figure of a run's timeline: rank against time, coloured by state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from manyscale.runner.report.data import CATEGORIES, Runs, makespan_ps
from manyscale.runner.report.data import timeline as runs_of
from manyscale.runner.report.palette import COLOURS, axis
from manyscale.runner.report.text import time_unit
from manyscale.runner.run.results import Result

MAX_COLUMNS: Final = 1000


def timeline(result: Result) -> dict[str, Any]:
    """Plotly's figure: a heat map of at most MAX_ROWS ranks (report/data.py) and MAX_COLUMNS columns of equal time,
    each with the state that takes most of it, and a legend of the states.

    The report draws the same heat map; its script makes the columns anew for the times in view.
    """
    runs = runs_of(result)
    span = makespan_ps(result)
    columns = min(MAX_COLUMNS, max(span, 1))
    z = _columns(runs, span, columns)
    length, unit = time_unit(span * 1e-12)
    step = span * 1e-12 / length / columns
    trace = heat_map(runs, unit) | {
        "z": z.tolist(), "text": [[CATEGORIES[i] for i in row] for row in z.tolist()],
        "x0": step / 2, "dx": step,
    }  # fmt: skip
    present = np.unique(z).tolist()
    key = [
        {
            "type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": CATEGORIES[i],
            "marker": {"color": COLOURS[CATEGORIES[i]], "symbol": "square", "size": 11},
        }
        for i in present
    ]  # fmt: skip
    more = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}}
    return {"data": [trace, *key], "layout": layout(result, runs) | more}


def heat_map(runs: Runs, unit: str) -> dict[str, Any]:
    """Plotly's trace without the columns."""
    rows, step = len(runs.offsets) - 1, runs.ranks_per_row
    edges = [(i / len(CATEGORIES), (i + 1) / len(CATEGORIES)) for i in range(len(CATEGORIES))]
    colours = [COLOURS[name] for name in CATEGORIES]
    place: dict[str, Any] = {"y0": (step - 1) / 2 if step > 1 else 0, "dy": step}
    if runs.ranks is not None:
        place = {"y": [str(rank) for rank in runs.ranks.tolist()]}
    who = "rank %{y}" if step == 1 else f"{step} ranks around %{{y:.0f}}"
    return {
        "type": "heatmap", **place, "zmin": -0.5, "zmax": len(CATEGORIES) - 0.5,
        "colorscale": [[edge, colour] for pair, colour in zip(edges, colours, strict=True) for edge in pair],
        "showscale": False, "ygap": 1 if rows <= 64 else 0,
        "hovertemplate": f"{who}, %{{x:.6~g}} {unit}<br>%{{text}}<extra></extra>",
    }  # fmt: skip


def layout(result: Result, runs: Runs) -> dict[str, Any]:
    """Axes of the timeline, and that dragging zooms."""
    span = makespan_ps(result) * 1e-12
    length, unit = time_unit(span)
    ranks = rank_axis(result.workload.num_ranks, reverse=True)
    if runs.ranks is not None:  # one below the other, whatever lies between
        last = len(runs.ranks) - 0.5
        ranks = axis("rank", type="category", range=[last, -0.5], nticks=16, showgrid=False, zeroline=False)
    return {
        "xaxis": axis(f"time ({unit})", range=[0, span / length], showgrid=False, ticks="outside"),
        "yaxis": ranks,
        "dragmode": "zoom",
    }


def rank_axis(num_ranks: int, *, reverse: bool = False, max_ticks: int = 16) -> dict[str, Any]:
    """Ranks, with at most ``max_ticks`` ticks at powers of two."""
    step = 1
    while num_ranks > max_ticks * step:
        step *= 2
    given: dict[str, Any] = {"dtick": step, "tick0": 0, "showgrid": False, "zeroline": False}
    if reverse:
        given["range"] = [num_ranks - 0.5, -0.5]
    return axis("rank", **given)


def _columns(runs: Runs, span: int, columns: int) -> np.ndarray:
    """uint8[rows, columns]: the category that takes most of each of ``columns`` equal parts of ``span`` ps."""
    rows = len(runs.offsets) - 1
    found = np.zeros((rows, columns), np.uint8)
    edges = np.linspace(0.0, span, columns + 1)
    for row in range(rows):
        mine = slice(int(runs.offsets[row]), int(runs.offsets[row + 1]))
        end, category = runs.end_ps[mine], runs.category[mine]
        if not len(end):
            continue
        length = np.diff(end, prepend=0)
        most = np.full(columns, -1.0)
        for code in np.unique(category).tolist():
            spent = np.concatenate(([0], np.cumsum(np.where(category == code, length, 0))))
            covered = np.diff(np.interp(edges, np.concatenate(([0], end)), spent))
            better = covered > most
            most[better], found[row, better] = covered[better], code
    return found
