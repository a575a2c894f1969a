"""Charts of a run: timeline, time of each rank, message matrix and sizes, as data for plotly and the page's script."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.runner.report.data import CATEGORIES, Matrix, Runs, makespan_ps, message_sizes
from manyscale.runner.report.figures.timeline import heat_map, rank_axis
from manyscale.runner.report.figures.timeline import layout as timeline_layout
from manyscale.runner.report.operation_times import column
from manyscale.runner.report.page import Page, legend
from manyscale.runner.report.palette import COLORSCALE, COLOURS, axis
from manyscale.runner.report.text import binary_size, duration, packed, time_unit
from manyscale.runner.run.results import Result

_TICKS: Final = 2**32 - 1  # the makespan in the timeline's own unit of time
_MAX_BARS: Final = 512


def timeline_chart(page: Page, result: Result, runs: Runs, name: str = "timeline") -> str:
    """Rank against time, coloured by state. ``name``: of the chart, another for each of a page."""
    span = makespan_ps(result)
    length, unit = time_unit(span * 1e-12)
    num_rows = len(runs.offsets) - 1
    content = {
        "offsets": packed(runs.offsets, "u4"),
        "ends": packed(np.rint(runs.end_ps * (_TICKS / max(span, 1))), "u4"),
        "categories": packed(runs.category, "u1"),
        "names": CATEGORIES,
        "span": span * 1e-12 / length,
        "unit": unit,
        "trace": heat_map(runs, unit),
        "layout": timeline_layout(result, runs),
    }
    height = int(np.clip(num_rows * 16 + 90, 220, 640))
    key = legend([(CATEGORIES[i], CATEGORIES[i]) for i in np.unique(runs.category).tolist()])
    return key + page.chart(name, "timeline", height, content, "state of every rank over time")


def timeline_note(result: Result, runs: Runs) -> str:
    """How to read the timeline, and what it leaves out."""
    text = "Each column of pixels has the state that takes most of its time. Drag to zoom, double-click to reset."
    if runs.ranks_per_row > 1:
        text += (
            f" Each row is {runs.ranks_per_row} of {result.workload.num_ranks:,} ranks, which together are in this "
            "state most of the time; manyscale view shows each rank."
        )
    if runs.bin_ps:
        text += f" The page resolves {duration(runs.bin_ps * 1e-12)}; timeline/ranks.parquet holds every state."
    return text


def ranks_chart(page: Page, result: Result, spent: np.ndarray) -> str:
    """Stacked bars of the time in each category."""
    num_ranks = len(spent)
    group = -(-num_ranks // _MAX_BARS)
    first = np.arange(0, num_ranks, group)
    mean = np.add.reduceat(spent, first, axis=0) / np.diff(np.append(first, num_ranks))[:, None]
    length, unit = time_unit(makespan_ps(result) * 1e-12)
    seconds = mean * 1e-12 / length
    present = [i for i in range(len(CATEGORIES)) if spent[:, i].any()]
    who = "rank %{x}" if group == 1 else f"mean of up to {group} ranks from %{{x}} on"
    bars = [
        {
            "type": "bar",
            "name": CATEGORIES[i],
            "x": first.tolist(),
            "y": [float(f"{value:.6g}") for value in seconds[:, i]],
            "marker": {"color": COLOURS[CATEGORIES[i]], "line": {"width": 0}},
            "hovertemplate": f"{who}: %{{y:.4~g}} {unit} {CATEGORIES[i]}<extra></extra>",
        }
        for i in present
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.15 if len(first) <= 64 else 0,
        "showlegend": False,
        "xaxis": rank_axis(num_ranks) | {"range": [-0.5 * group, num_ranks - 0.5]},
        "yaxis": axis(f"time ({unit})"),
    }
    key = legend([(CATEGORIES[i], CATEGORIES[i]) for i in present])
    return key + page.chart("ranks", "figure", 320, {"data": bars, "layout": layout}, "time of each rank by state")


def ranks_note(result: Result) -> str:
    """What a bar is where it is not one rank."""
    group = -(-result.workload.num_ranks // _MAX_BARS)
    return f"Each bar is the mean of {group} neighbouring ranks." if group > 1 else ""


def matrix_chart(page: Page, result: Result, matrix: Matrix) -> str:
    """Bytes and number of messages by source and destination, on a logarithmic scale of colour."""
    num_ranks = result.workload.num_ranks
    content = {
        "num_cells": matrix.num_cells,
        "ranks_per_cell": matrix.ranks_per_cell,
        "num_ranks": num_ranks,
        "source": packed(matrix.source, "u1"),
        "destination": packed(matrix.destination, "u1"),
        "bytes": packed(matrix.bytes, "f8"),
        "count": packed(matrix.count, "f8"),
        "colorscale": COLORSCALE,
        "layout": {
            "xaxis": rank_axis(num_ranks, max_ticks=8) | axis("destination rank", constrain="domain"),
            "yaxis": rank_axis(num_ranks, reverse=True) | axis("source rank", scaleanchor="x", constrain="domain"),
        },
    }
    return page.chart("matrix", "matrix", 440, content, "messages by source and destination")


def sizes_chart(page: Page, result: Result) -> str:
    """Share of the messages and of their bytes by size."""
    sizes = message_sizes(result)
    label = ["0 B" if upper == 0 else f"≤ {binary_size(upper)}" for upper in sizes.upper_bytes]
    data = []
    for name, values, colour in (("messages", sizes.count, "#0072b2"), ("bytes", sizes.bytes, "#e69f00")):
        whole = max(int(values.sum()), 1)
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": label,
                "y": [float(f"{100 * value / whole:.6g}") for value in values.tolist()],
                "customdata": [f"{value:,}" for value in values.tolist()],
                "marker": {"color": colour},
                "hovertemplate": f"%{{x}}: %{{y:.3~g}} % (%{{customdata}} {name})<extra></extra>",
            }
        )
    layout = {
        "barmode": "group",
        "bargap": 0.25,
        "xaxis": axis("size of the message", type="category", tickangle=-45 if len(label) > 6 else 0),
        "yaxis": axis("share (%)", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 16, "t": 40, "b": 46},
    }
    return page.chart("sizes", "figure", 440, {"data": data, "layout": layout}, "distribution of message sizes")


def messages_note(result: Result, matrix: Matrix) -> str:
    """What the charts of messages hold."""
    threshold = result.machine.network.eager_threshold_bytes
    size = column(result.messages, "bytes")
    text = (
        f"Messages inside collectives are not counted. {np.count_nonzero(size >= threshold):,} of {len(size):,} "
        f"messages reach the eager threshold of {binary_size(threshold)}: their sends wait for the receiver."
    )
    if matrix.ranks_per_cell > 1:
        text += f" A cell of the matrix stands for {matrix.ranks_per_cell} ranks each way."
    return text
