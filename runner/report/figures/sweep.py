"""Figure of a sweep: a statistic of its points along one axis, lines by the values of the others.

Along numbers points are joined by lines, along names they are groups of bars (as in figure 6.10 of Grass, UPC 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.quantities import parse_quantity
from manyscale.runner.report.figures.choices import View, with_views
from manyscale.runner.report.figures.labels import end_labels
from manyscale.runner.report.palette import axis, bar_marker, is_wide, line_style, line_symbol
from manyscale.runner.report.text import time_unit

MAKESPAN: Final = "application.makespan"
_OCTAVE: Final = 0.30102999566398119521  # between ticks of a logarithmic axis
_DECADES: Final = 1000.0  # of which there are ticks at powers of ten alone
_DIMENSIONS: Final = ("time in s", "size in B", "rate in B/s", "frequency in Hz", "rate in flop/s")

Points = Mapping[str, list[Any]]  # columns of a sweep's table by name
Lines = dict[str, list[int]]  # points of each line, by its name


def sweep(table: pa.Table, axes: Sequence[str], along: int = 0) -> dict[str, Any]:
    """Plotly's figure of the predicted time along the axis of that number. ``table``: a row per point with the axes and
    the statistics, as in ``sweep.parquet``. Buttons change between the time on an axis that fits it, the time from
    zero, and the change against the first point in per cent."""
    points = columns_of(table)
    lines = lines_of(points, axes, along)
    return time_figure(points, axes[along], lines) if axes and lines else {"data": [], "layout": {}}


def columns_of(table: pa.Table) -> dict[str, list[Any]]:
    """Columns by name."""
    return {name: table.column(name).to_pylist() for name in table.column_names}


@dataclass(frozen=True)
class Axis:
    """Where each point lies on an axis and how plotly is to draw that axis."""

    positions: list[Any]
    settings: dict[str, Any]

    @property
    def is_category(self) -> bool:
        """Whether it has names, not numbers."""
        return bool(self.settings["type"] == "category")


def axis_of(name: str, values: list[Any]) -> Axis:
    """Numbers and quantities of one dimension at their value (logarithmic over a wide range), all else by name."""
    numbers = _numbers(values)
    if numbers is None:
        texts = [str(value) for value in values]
        order = list(dict.fromkeys(texts))
        return Axis(texts, axis(name, type="category", categoryorder="array", categoryarray=order))
    texts_at = dict(sorted(zip(numbers, map(str, values), strict=True)))
    ticks = {"tickmode": "array", "tickvals": list(texts_at), "ticktext": list(texts_at.values())}
    return Axis(numbers, axis(name, type="log" if is_wide(numbers) else "linear", **ticks))


def _numbers(values: list[Any]) -> list[float] | None:
    """Values as numbers of one unit, or None."""
    if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values]
    for dimension in _DIMENSIONS:
        try:
            exact = [parse_quantity(value, dimension) for value in values]
        except ValueError:
            continue
        if all(value is not None for value in exact):
            return [float(value) for value in exact if value is not None]
    return None


def lines_of(points: Points, axes: Sequence[str], number: int) -> Lines:
    """Points of each line, in order along the axis of that number, by the values of the other axes."""
    if not axes:
        return {}
    others = [name for i, name in enumerate(axes) if i != number]
    positions = axis_of(axes[number], points[axes[number]]).positions
    lines: Lines = {}
    for index in range(len(positions)):
        label = ", ".join(f"{name.rsplit('.', 1)[-1]} = {points[name][index]}" for name in others)
        lines.setdefault(label, []).append(index)
    if all(isinstance(position, float) for position in positions):
        return {label: sorted(line, key=lambda i: positions[i]) for label, line in lines.items()}
    return lines


def time_figure(points: Points, along: str, lines: Lines) -> dict[str, Any]:
    """The predicted time of each line: fitted, from zero, and against the first point."""
    times = points[MAKESPAN]
    length, unit = time_unit(max(times, default=1.0))
    title = f"predicted time ({unit})"
    seconds = [[times[k] / length for k in line] for line in lines.values()]
    position = axis_of(along, points[along])
    names = [name or MAKESPAN for name in lines]
    hover = f"%{{y:.4~g}} {unit}"
    own = values_view("Time", names, lines, position, seconds, title, hover)
    views = [values_view("Time from zero", names, lines, position, seconds, title, hover, from_zero=True)]
    base = times[0] if times else 0.0
    if base and len(times) > 1:
        change = [[100 * (times[k] / base - 1) for k in line] for line in lines.values()]
        of_base = "change against the first point (%)"
        relative = values_view("Change", names, lines, position, change, of_base, "%{y:+.3~g} %", is_change=True)
        # bars stand on zero, so that what differs little shows only as a change
        views = [relative, *views] if position.is_category else [own, views[0], relative]
    elif not position.is_category:
        views = [own, *views]
    return figure(points, along, names, list(lines.values()), views)


def values_view(
    label: str, names: Sequence[str], lines: Lines, position: Axis, values: Sequence[Sequence[float | None]],
    title: str,
    hover: str, *, from_zero: bool = False, is_change: bool = False, logarithmic: bool | None = None,
) -> View:  # fmt: skip
    """A view of values of each line's points on an axis with that title: it spans the values, or is
    ``from_zero``; it is ``logarithmic`` if that is said, else over decades; of changes it shows the zero line."""
    flat = [value for line in values for value in line if value is not None]
    if logarithmic is None:
        logarithmic = not from_zero and not is_change and not position.is_category and is_wide(flat)
    layout: dict[str, Any] = {
        "yaxis.title.text": title,
        "yaxis.type": "log" if logarithmic else "linear",
        "yaxis.rangemode": "tozero" if from_zero or position.is_category else "normal",
        "yaxis.zeroline": is_change,
        "yaxis.autorange": True,
        "yaxis.dtick": _OCTAVE if logarithmic and flat and max(flat) < _DECADES * min(flat) else None,
    }
    if not position.is_category and flat:
        ends = [
            (position.positions[line[-1]], own[-1] if own else None)
            for line, own in zip(lines.values(), values, strict=True)
        ]
        if position.settings["type"] == "log":
            ends = [(math.log10(x), y) for x, y in ends]
        span = [*flat, 0.0] if from_zero else flat
        layout["annotations"] = end_labels(names, ends, span, logarithmic=logarithmic)
    template = f"%{{x}}: {hover}" if position.is_category else f"%{{text}}: {hover}"
    template += "<extra>%{fullData.name}</extra>"
    return View(label, {"y": [list(line) for line in values], "hovertemplate": [template] * len(values)}, layout)


def figure(
    points: Points, along: str, names: Sequence[str], lines: Sequence[list[int]], views: Sequence[View]
) -> dict[str, Any]:
    """Lines or bars along an axis, in all views."""
    position = axis_of(along, points[along])
    data: list[dict[str, Any]] = []
    for i, (name, line) in enumerate(zip(names, lines, strict=True)):
        trace: dict[str, Any] = {"name": name, "x": [position.positions[k] for k in line]}
        if position.is_category:
            trace |= {"type": "bar", "marker": bar_marker(i)}
        else:
            trace |= line_look(i) | {"text": [str(points[along][k]) for k in line]}
        data.append(trace)
    has_labels = bool(views[0].layout.get("annotations"))
    layout: dict[str, Any] = {
        "xaxis": position.settings, "yaxis": axis(""), "showlegend": len(data) > 1 and not has_labels,
    }  # fmt: skip
    if position.is_category:
        layout["barmode"] = "group"
        layout["legend"] = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"}
    return with_views(data, layout, views)


def line_look(index: int) -> dict[str, Any]:
    """Plotly's trace of the index-th line: colour, dash and marker."""
    colour, dash = line_style(index)
    return {
        "type": "scatter", "mode": "lines+markers", "marker": {"size": 7, "symbol": line_symbol(index)},
        "line": {"color": colour, "dash": dash, "width": 2},
    }  # fmt: skip
