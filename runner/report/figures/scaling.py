"""Figure of how an application scales: speed-up, efficiency and time over the number of cores or ranks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from manyscale.runner.report.figures.choices import View, with_views
from manyscale.runner.report.figures.sweep import Axis, Lines, line_look, values_view
from manyscale.runner.report.palette import GREY, axis
from manyscale.runner.report.text import time_unit
from manyscale.runner.run.questions.factors import pop_factors


def scaling(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of a table with the columns label, num_ranks, num_cores, makespan_s, speed_up, efficiency: over
    the cores where their number differs, else over the ranks. Rows of one label make a line; where no label comes
    twice, all rows make one. Dotted: as many times faster as there are times more cores."""
    size = size_column(table)
    known = [row for row in table.to_pylist() if row[size] and row["makespan_s"] is not None]
    rows = sorted(known, key=lambda row: row[size])
    if not rows:
        return {"data": [], "layout": {}}
    labels = [str(row["label"]) for row in rows]
    is_one = len(set(labels)) == len(labels)
    lines: Lines = {}
    for index, label in enumerate(labels):
        lines.setdefault("" if is_one else label, []).append(index)
    sizes = [float(row[size]) for row in rows]
    position = _positions(sizes, size)
    names = [name or "predicted" for name in lines]
    data = [
        line_look(i)
        | {"name": name, "x": [sizes[k] for k in line], "text": [f"{labels[k]}, {sizes[k]:,.0f}" for k in line]}
        for i, (name, line) in enumerate(zip(names, lines.values(), strict=True))
    ]
    views = _views(rows, names, lines, position)
    unique = sorted(set(sizes))
    data.append(
        {
            "type": "scatter", "mode": "lines", "name": "ideal", "x": unique, "hoverinfo": "skip",
            "line": {"color": GREY, "dash": "dot", "width": 1.5},
        }
    )  # fmt: skip
    layout: dict[str, Any] = {"xaxis": position.settings, "yaxis": axis(""), "showlegend": False}
    return with_views(data, layout, views)


def scaling_factors(table: pa.Table) -> dict[str, Any]:
    """Plotly's figure of parallel efficiency and its factors, a line each, over the cores or ranks of such a table;
    none where no row tells any, or several rows are of one size."""
    size = size_column(table)
    rows = sorted((row for row in table.to_pylist() if row[size]), key=lambda row: row[size])
    sizes = [float(row[size]) for row in rows]
    chosen = [each for each in pop_factors(rows) if each.name != "communication_efficiency"]
    if len(set(sizes)) < len(sizes) or len(sizes) < 2:
        return {"data": [], "layout": {}}
    data = [
        line_look(i)
        | {
            "name": each.alone, "x": sizes,
            "y": [None if row[each.name] is None else 100 * row[each.name] for row in rows],
            "hovertemplate": f"{each.label} %{{y:.1f}} %<extra>%{{x:,.0f}}</extra>",
        }
        for i, each in enumerate(chosen)
    ]  # fmt: skip
    position = _positions(sizes, size)
    return {"data": data, "layout": {"xaxis": position.settings, "yaxis": axis("efficiency (%)", rangemode="tozero")}}


def _positions(sizes: list[float], size: str) -> Axis:
    """The axis of numbers of cores, or ranks."""
    ticks = {"tickmode": "array", "tickvals": sorted(set(sizes)), "ticktext": [f"{n:,.0f}" for n in sorted(set(sizes))]}
    kind = "log" if max(sizes) / min(sizes) >= 4 else "linear"  # numbers of cores are mostly doubled
    return Axis(sizes, axis(f"number of {'cores' if size == 'num_cores' else 'ranks'}", type=kind, **ticks))


def size_column(table: pa.Table) -> str:
    """``num_cores`` where all rows have it and it differs, else ``num_ranks``."""
    cores = table.column("num_cores").to_pylist()
    return "num_cores" if None not in cores and len(set(cores)) > 1 else "num_ranks"


def _views(rows: list[dict[str, Any]], names: list[str], lines: Lines, position: Axis) -> list[View]:
    """Each with a last entry for the ideal line."""
    sizes = position.positions
    unique = sorted(set(sizes))
    first = unique[0]
    times = [row["makespan_s"] for row in rows]
    length, unit = time_unit(max(times))
    slowest = max(row["makespan_s"] for row, size in zip(rows, sizes, strict=True) if size == first)
    ideals = {
        "Speed-up": [size / first for size in unique],
        "Efficiency": [100.0 for _ in unique],
        "Time": [slowest / length * first / size for size in unique],
    }
    columns = {
        "Speed-up": ([row["speed_up"] for row in rows], "speed-up over the fewest", "%{y:.4~g} times"),
        "Efficiency": (
            [None if row["efficiency"] is None else 100 * row["efficiency"] for row in rows],
            "efficiency of the speed-up (%)", "%{y:.1f} %",
        ),
        "Time": ([time / length for time in times], f"predicted time ({unit})", f"%{{y:.4~g}} {unit}"),
    }  # fmt: skip
    is_doubled = position.settings["type"] == "log"  # then the ideal is a straight line on two logarithmic axes
    found = []
    for label, (values, title, hover) in columns.items():
        own = [[values[k] for k in line] for line in lines.values()]
        is_share = label == "Efficiency"
        view = values_view(
            label, names, lines, position, own, title, hover, from_zero=is_share,
            logarithmic=is_doubled and not is_share,
        )  # fmt: skip
        data = {"y": [*own, ideals[label]], "hovertemplate": [*view.data["hovertemplate"], ""]}
        found.append(View(label, data, view.layout))
    return found
