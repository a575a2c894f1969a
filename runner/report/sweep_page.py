"""Report of a sweep: makespan and efficiencies along each axis, and a table of the points with links to reports.

Along numbers points are joined by lines, along names they are groups of bars (as in figure 6.10 of Grass, UPC 2017).
Along the number of cores of a rank there are speed-up and efficiency too (figures 6.3 to 6.6), and misses per 1000
instructions (figure 4.5) where cores were simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from manyscale.models.workload.quantities import parse_quantity
from manyscale.runner.report.page import LINE_COLOURS, Page, axis, line_legend, line_style
from manyscale.runner.report.sections.node import part_markers, stack_chart
from manyscale.runner.report.text import cards_html, duration, escape, percent, side_by_side, table, time_unit

MAKESPAN: Final = "application.makespan"
EFFICIENCIES: Final = {
    "application.parallel_efficiency": "parallel",
    "application.load_balance": "load balance",
    "application.communication_efficiency": "communication",
    "application.serialisation_efficiency": "serialisation",
    "application.transfer_efficiency": "transfer",
}
CORES: Final = "mapping.cores_per_rank"
_MISSES: Final = {"node.mpki.first_cache": "first cache", "node.mpki.last_cache": "last cache"}
_DIMENSIONS: Final = ("time in s", "size in B", "rate in B/s", "frequency in Hz", "rate in flop/s")
_PATTERNS: Final = ("", "/", ".", "x")  # of bars, where lines have dashes
_LOGARITHMIC_FROM: Final = 20.0  # ratio of an axis's largest value to its smallest


def write_sweep(sweep_table: pa.Table, axes: list[str], directory: Path, title: str) -> None:
    """Write ``report.html`` of a sweep: a row per point with ``point_id``, the axes and the statistics.

    Statistics that the table does not have are left out. Equal tables give equal bytes.
    """
    points = {name: sweep_table.column(name).to_pylist() for name in sweep_table.column_names}
    count = sweep_table.num_rows
    page = Page(title, f"Sweep of {count:,} point{'s' if count != 1 else ''} over {', '.join(axes) or 'no axis'}")
    page.add("", _headline(points, axes))
    for number, name in enumerate(axes):
        lines = _lines(points, axes, number)
        left = _makespan_chart(page, points, axes, number, lines)
        right = _efficiency_chart(page, points, axes, number, lines)
        key = line_legend(list(lines)) if len(lines) > 1 and not axis_of(name, points[name]).is_category else ""
        page.add(f"Along {name}", key + side_by_side(left, right))
        if name == CORES and lines and not axis_of(name, points[name]).is_category:
            page.add("Scaling over cores", *_scaling(page, points, axes, number, lines), note=_SCALING_NOTE)
    for prefix, each in _STACKS.items():
        if any(name.startswith(prefix) for name in points):
            page.add(each.title, _stacks(page, points, axes, prefix, each.unit), note=each.note)
    page.add("Points", _points_table(points, axes))
    (directory / "report.html").write_text(page.html(), encoding="utf-8", errors="backslashreplace")


_Points = dict[str, list[Any]]


def _headline(points: _Points, axes: list[str]) -> str:
    times = points[MAKESPAN]
    if not times:
        return "<p>No point has been run.</p>"
    cards = []
    for label, index in (("Fastest", times.index(min(times))), ("Slowest", times.index(max(times)))):
        where = ", ".join(f"{name} = {points[name][index]}" for name in axes)
        cards.append((label, duration(times[index]), where))
    cards.append(("Slowest / fastest", f"{max(times) / min(times):.3g}" if min(times) else "-", f"{len(times)} points"))
    return cards_html(cards, first="")


@dataclass(frozen=True)
class _Axis:
    """Where each point lies on an axis and how plotly is to draw that axis."""

    positions: list[Any]
    settings: dict[str, Any]

    @property
    def is_category(self) -> bool:
        return bool(self.settings["type"] == "category")


def axis_of(name: str, values: list[Any]) -> _Axis:
    """Numbers and quantities of one dimension at their value (logarithmic over a wide range), all else by name."""
    numbers = _numbers(values)
    if numbers is None:
        texts = [str(value) for value in values]
        order = list(dict.fromkeys(texts))
        return _Axis(texts, axis(name, type="category", categoryorder="array", categoryarray=order))
    texts_at = dict(sorted(zip(numbers, map(str, values), strict=True)))
    wide = min(numbers) > 0 and max(numbers) / min(numbers) >= _LOGARITHMIC_FROM
    ticks = {"tickmode": "array", "tickvals": list(texts_at), "ticktext": list(texts_at.values())}
    return _Axis(numbers, axis(name, type="log" if wide else "linear", **ticks))


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


_Lines = dict[str, list[int]]


def _lines(points: _Points, axes: list[str], number: int) -> _Lines:
    """Points of each line, in order along the axis, by the values of the other axes."""
    others = [name for i, name in enumerate(axes) if i != number]
    positions = axis_of(axes[number], points[axes[number]]).positions
    lines: _Lines = {}
    for index in range(len(positions)):
        label = ", ".join(f"{name.rsplit('.', 1)[-1]} = {points[name][index]}" for name in others)
        lines.setdefault(label, []).append(index)
    if all(isinstance(position, float) for position in positions):
        return {label: sorted(line, key=lambda i: positions[i]) for label, line in lines.items()}
    return lines


def _figure(
    points: _Points, along: str, series: Mapping[str, tuple[list[int], list[float]]], y: dict[str, Any], hover: str
) -> dict[str, Any]:
    """Lines along an axis: by name, their points and the values at these."""
    position = axis_of(along, points[along])
    data: list[dict[str, Any]] = []
    for i, (name, (line, values)) in enumerate(series.items()):
        trace = {"name": name, "x": [position.positions[k] for k in line], "y": values}
        trace |= _bar(i, hover) if position.is_category else _line(i, hover, [str(points[along][k]) for k in line])
        data.append(trace)
    layout = {"xaxis": position.settings, "yaxis": y, "showlegend": position.is_category and len(data) > 1}
    return {"data": data, "layout": layout | ({"barmode": "group"} if position.is_category else {})}


def _line(index: int, hover: str, texts: list[str]) -> dict[str, Any]:
    colour, dash = line_style(index)
    return {
        "type": "scatter", "mode": "lines+markers", "text": texts, "marker": {"size": 7},
        "line": {"color": colour, "dash": dash, "width": 2},
        "hovertemplate": f"%{{text}}: {hover}<extra>%{{fullData.name}}</extra>",
    }  # fmt: skip


def _bar(index: int, hover: str) -> dict[str, Any]:
    """The colour of the line of that index, and a pattern where that has a dash."""
    pattern = _PATTERNS[index // len(LINE_COLOURS) % len(_PATTERNS)]
    marker = {"color": line_style(index)[0], **({"pattern": {"shape": pattern}} if pattern else {})}
    return {
        "type": "bar", "marker": marker, "hovertemplate": f"%{{x}}: {hover}<extra>%{{fullData.name}}</extra>",
    }  # fmt: skip


def _makespan_chart(page: Page, points: _Points, axes: list[str], number: int, lines: _Lines) -> str:
    length, unit = time_unit(max(points[MAKESPAN], default=1.0))
    series = {name or MAKESPAN: (line, [points[MAKESPAN][k] / length for k in line]) for name, line in lines.items()}
    y = axis(f"predicted time ({unit})", rangemode="tozero")
    figure = _figure(points, axes[number], series, y, f"%{{y:.4~g}} {unit}")
    return page.chart(f"makespan-{number}", "figure", 400, figure, f"predicted time along {axes[number]}")


def _efficiency_chart(page: Page, points: _Points, axes: list[str], number: int, lines: _Lines) -> str:
    """All efficiencies of a single line; with several lines one efficiency at a time."""
    known = {label: points[name] for name, label in EFFICIENCIES.items() if name in points}
    if not known or not lines:
        return ""
    y = axis("efficiency", range=[0, 1.03], tickformat=".0%")
    if len(lines) == 1:
        (line,) = lines.values()
        series = {label: (line, [values[k] for k in line]) for label, values in known.items()}
        is_category = axis_of(axes[number], points[axes[number]]).is_category
        choices, key = [], "" if is_category else line_legend(list(known))
    else:
        choices = [
            {"label": label, "y": [[values[k] for k in line] for line in lines.values()]}
            for label, values in known.items()
        ]
        first: Any = choices[0]["y"]
        series = {name: (line, ys) for (name, line), ys in zip(lines.items(), first, strict=True)}
        key = ""
    figure = _figure(points, axes[number], series, y, "%{y:.1%}")
    if choices:
        figure["choices"] = choices
    return key + page.chart(f"efficiency-{number}", "figure", 400, figure, f"efficiencies along {axes[number]}")


_SCALING_NOTE: Final = (
    "Speed-up: predicted time with the fewest cores of a rank over that with more, in each line; dotted: as many times "
    "faster as there are times more cores. Its efficiency: speed-up over that number. MPKI: misses per 1000 "
    "instructions of task instances that were simulated in detail."
)


def _scaling(page: Page, points: _Points, axes: list[str], number: int, lines: _Lines) -> Iterator[str]:
    """Speed-up and its efficiency along the number of cores, and misses where there are figures of them."""
    cores, times = points[axes[number]], points[MAKESPAN]
    speed_ups, efficiencies = {}, {}
    for name, line in lines.items():
        fewest = line[0]  # lines are in the order of cores
        gains = [times[fewest] / times[k] if times[k] else 1.0 for k in line]
        speed_ups[name or "speed-up"] = (line, gains)
        more = [cores[k] / cores[fewest] for k in line]
        efficiencies[name or "efficiency"] = line, [gain / each for gain, each in zip(gains, more, strict=True)]
    figure = _figure(points, axes[number], speed_ups, axis("speed-up", rangemode="tozero"), "%{y:.4~g}")
    figure["data"].append(_linear(cores))
    left = page.chart("speed-up", "figure", 400, figure, "speed-up over the fewest cores")
    most = max(1.0, *(each for _, values in efficiencies.values() for each in values))
    y = axis("efficiency of the speed-up", range=[0, 1.03 * most], tickformat=".0%")
    figure = _figure(points, axes[number], efficiencies, y, "%{y:.1%}")
    right = page.chart("speed-up-efficiency", "figure", 400, figure, "speed-up over the number of times more cores")
    yield line_legend(list(lines)) if len(lines) > 1 else ""
    yield side_by_side(left, right)
    charts = []
    for place, (statistic, label) in enumerate(_MISSES.items()):
        if statistic not in points:
            continue
        series = {name or label: (line, [points[statistic][k] for k in line]) for name, line in lines.items()}
        figure = _figure(points, axes[number], series, axis(f"MPKI of the {label}", rangemode="tozero"), "%{y:.4~g}")
        charts.append(page.chart(f"misses-{place}", "figure", 360, figure, f"misses of the {label} over cores"))
    if charts:
        yield side_by_side(*charts)


_MAX_STACKS: Final = 96


class _Stack(NamedTuple):
    title: str
    unit: str
    note: str


_CORES_CPI: Final = "node.cpi."
_STACKS: Final = {
    _CORES_CPI: _Stack(
        "Where the cores' cycles go",
        "cycles per instruction",
        "Cycles per instruction of all that was simulated in each point, by what the core waited for: a wider core "
        "shortens the base alone, which is what its width and its units take.",
    ),
    "gpu.cpi.": _Stack(
        "Where the GPU's cycles go",
        "cycles per warp instruction",
        "Cycles without launch latency per warp instruction of the whole GPU, by what the schedulers of the SMs do or "
        "wait for, of each point (as in figure 33 of Huang, Georgia Tech, 2015).",
    ),
}


def _stacks(page: Page, points: _Points, axes: list[str], prefix: str, unit: str) -> str:
    """CPI stack of each point, in the order of points; the first _MAX_STACKS."""
    parts = [name.removeprefix(prefix) for name in points if name.startswith(prefix)]
    count = min(len(points["point_id"]), _MAX_STACKS)
    labels = [
        "<br>".join(f"{name.rsplit('.', 1)[-1]} {points[name][index]}" for name in axes) for index in range(count)
    ]
    # a machine without the level waits for none
    values = np.array([[float(points[prefix + part][index] or 0.0) for part in parts] for index in range(count)])
    looks = part_markers(parts, np.any(values, axis=0))
    return stack_chart(page, f"{prefix.split('.')[0]}-stacks", (unit, "point"), labels, looks, values)


def bound_by(parts: Mapping[str, float | None]) -> str:
    """The largest part of a CPI stack with its share, "" where it has no cycles."""
    known = {name: value for name, value in parts.items() if value}
    if not known:
        return ""
    largest = max(known, key=lambda name: known[name] or 0.0)
    return f"{largest} {percent((known[largest] or 0.0) / sum(value or 0.0 for value in known.values()))}"


def _linear(cores: list[Any]) -> dict[str, Any]:
    known = sorted(set(map(float, cores)))
    return {
        "type": "scatter", "mode": "lines", "name": "linear", "x": known, "y": [each / known[0] for each in known],
        "line": {"color": "#9aa4ae", "dash": "dot", "width": 1.5}, "hoverinfo": "skip",
    }  # fmt: skip


def _points_table(points: _Points, axes: list[str]) -> str:
    known = [name for name in EFFICIENCIES if name in points]
    times = points[MAKESPAN]
    best = min(times, default=0.0)
    parts = [name for name in points if name.startswith(_CORES_CPI)]
    rows = []
    for index, point in enumerate(points["point_id"]):
        link = f'<a href="points/{int(point):04d}/report.html">{int(point):04d}</a>'
        time = escape(duration(times[index])) + (" (fastest)" if times[index] == best and len(times) > 1 else "")
        values = [escape(points[name][index]) for name in axes]
        stack = {name.removeprefix(_CORES_CPI): points[name][index] for name in parts}
        bound = (escape(bound_by(stack)),) if parts else ()
        rows.append((link, *values, time, *bound, *(percent(points[name][index]) for name in known)))
    header = (
        "point", *map(escape, axes), "predicted time", *(("cores mostly wait for",) if parts else ()),
        *(EFFICIENCIES[name] for name in known),
    )  # fmt: skip
    columns = f"; {', '.join(EFFICIENCIES[name] for name in known)}: efficiencies" if known else ""
    return f'<p class="note">Each point links to its own report{escape(columns)}.</p>{table(header, rows)}'
