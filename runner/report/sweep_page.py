"""Report of a sweep: makespan and efficiencies along each axis, and a table of the points with links to reports.

Along numbers points are joined by lines, along names they are groups of bars (as in figure 6.10 of Grass, UPC 2017).
Along the number of cores of a rank there are speed-up and efficiency too (figures 6.3 to 6.6), and misses per 1000
instructions (figure 4.5) where cores were simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report.figures.drawn_points import drawn, listed
from manyscale.runner.report.figures.sweep import (
    MAKESPAN,
    Lines,
    Points,
    axis_of,
    columns_of,
    lines_of,
    time_figure,
    values_view,
)
from manyscale.runner.report.figures.sweep import figure as axis_figure
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import GREY
from manyscale.runner.report.sections import shapes
from manyscale.runner.report.sections.node import part_markers, stack_chart
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, percent, side_by_side, table
from manyscale.runner.run import script
from manyscale.runner.run.questions.factors import ALL, with_threads
from manyscale.runner.study.shapes import is_shape

EFFICIENCIES: Final = {f"application.{each.name}": each.alone for each in ALL}
_RATES: Final = {
    "gpu.ipc": "warp instructions per cycle",
    "intervals.cpi": "cycles per instruction",
    "node.ipc": "instructions per cycle",
    "step.model_flops_utilisation": "model FLOPs utilisation",
}
CORES: Final = "mapping.cores_per_rank"
_COUNTED: Final = {"gpu.cycles": "cycles", "gpu.ipc": "IPC", "intervals.cpi": "CPI"}  # of points' tables
_OF_RANKS: Final = ("application.ranks", "node.cores_per_rank")
ROWS_AT_ONCE: Final = 100  # of a table, which report.js shows by pages (there it says so, too)
_MISSES: Final = {"node.mpki.first_cache": "first cache", "node.mpki.last_cache": "last cache"}


def write_sweep(
    sweep_table: pa.Table, axes: list[str], directory: Path, title: str, notes: Sequence[Note] = ()
) -> None:
    """Write ``report.html`` of a sweep: a row per point with ``point_id``, the axes and the statistics. The
    page draws with the script that the sweep's pages share, where that is in ``directory``.

    Statistics that the table does not have are left out. Equal tables give equal bytes.
    """
    points = _with_threads(
        columns_of(sweep_table.select([name for name in sweep_table.column_names if _is_used(name, axes)]))
    )
    count = sweep_table.num_rows
    page = Page(title, f"Sweep of {count:,} point{'s' if count != 1 else ''} over {', '.join(axes) or 'no axis'}")
    page.add("", _headline(points, axes), notes_html(notes))
    if any(map(is_shape, axes)):
        page.add("Shapes, the best first", shapes.best_table(points, axes, directory), note=shapes.note(points))
    for number, name in enumerate(axes):
        some, left_out = drawn(points, axes, number)
        lines = lines_of(some, axes, number)
        left = _makespan_chart(page, some, axes, number, lines)
        right = _efficiency_chart(page, some, axes, number, lines)
        is_category = axis_of(name, some[name]).is_category
        # names beside the ends of several lines need the page's width
        both = side_by_side(left, right) if len(lines) == 1 or is_category else left + right
        note = "" if is_category else "The axis spans the values; buttons show the change, and the axis from zero."
        page.add(f"Along {name}", both, note=f"{note} {left_out}".strip())
        if name == CORES and lines and not is_category:
            page.add("Scaling over cores", *_scaling(page, some, axes, number, lines), note=_SCALING_NOTE)
    for prefix, each in _STACKS.items():
        if any(name.startswith(prefix) for name in points):
            page.add(each.title, _stacks(page, points, axes, prefix, each.unit), note=each.note)
    if not any(map(is_shape, axes)):
        page.add("Points", _points_table(points, axes, directory))
    drawing = script.NAME if script.is_shared(directory) else ""
    page.write(directory / "report.html", drawing)


def _is_used(name: str, axes: Sequence[str]) -> bool:
    """Whether the page shows anything of a column."""
    of_page = {"point_id", MAKESPAN, *axes, *EFFICIENCIES, *_RATES, *_COUNTED, *_MISSES, *_OF_RANKS, *shapes.COLUMNS}
    return name in of_page or name.startswith(tuple(_STACKS))


def _headline(points: Points, axes: list[str]) -> str:
    times = points[MAKESPAN]
    if not times:
        return "<p>No point has been run.</p>"
    cards = []
    run = shapes.that_fit(points) or range(len(times))
    fastest, slowest = (each(run, key=times.__getitem__) for each in (min, max))
    for label, index in (("Fastest", fastest), ("Slowest", slowest)):
        where = ", ".join(f"{name} = {points[name][index]}" for name in axes)
        cards.append((label, duration(times[index]), where))
    of = f"{len(times)} points" + (f", {len(run)} of which fit into memory" if len(run) < len(times) else "")
    cards.append(("Slowest / fastest", f"{times[slowest] / times[fastest]:.3g}" if times[fastest] else "-", of))
    return cards_html(cards, first="")


def _makespan_chart(page: Page, points: Points, axes: list[str], number: int, lines: Lines) -> str:
    figure = time_figure(points, axes[number], lines)
    return page.chart(f"makespan-{number}", "figure", 400, figure, f"predicted time along {axes[number]}")


def _efficiency_chart(page: Page, points: Points, axes: list[str], number: int, lines: Lines) -> str:
    """All efficiencies of a single line; with several lines one efficiency at a time."""
    known = {label: points[name] for name, label in efficiencies(points).items()}
    position = axis_of(axes[number], points[axes[number]])
    if not known and lines:
        return _ratio_chart(page, points, axes, number, lines)
    if not lines:
        return ""
    if len(lines) == 1:
        (line,) = lines.values()
        own = dict.fromkeys(known, line)
        series = [[_per_cent(values[k]) for k in line] for values in known.values()]
        chosen = {"": series}
    else:
        own = lines
        chosen = {
            label: [[_per_cent(values[k]) for k in line] for line in lines.values()] for label, values in known.items()
        }
    views = [
        values_view(
            label.capitalize() or "Fitted", list(own), own, position, values,
            f"{label} efficiency (%)".strip(), "%{y:.1f} %", logarithmic=False,
        )
        for label, values in chosen.items()
    ]  # fmt: skip
    if len(lines) == 1:
        views.append(
            values_view(
                "From zero", list(own), own, position, chosen[""], "efficiency (%)", "%{y:.1f} %", from_zero=True
            )
        )
    figure = axis_figure(points, axes[number], list(own), list(own.values()), views)
    return page.chart(f"efficiency-{number}", "figure", 400, figure, f"efficiencies along {axes[number]}")


def efficiencies(points: Points) -> dict[str, str]:
    """Statistics of efficiencies and what they are called; none where each point is one rank, of which all are 100 % by
    definition."""
    if set(points.get("application.ranks", ())) == {1}:
        if max((each or 1 for each in points.get("node.cores_per_rank", ())), default=1) == 1:
            return {}
        of_cores = ("application.parallel_efficiency", "application.thread_efficiency")
        return {name: EFFICIENCIES[name] for name in of_cores if name in points}
    return {name: label for name, label in EFFICIENCIES.items() if name in points}


def _with_threads(points: Points) -> Points:
    """Points of ranks with one core beside others with several: all factors of theirs."""
    names = [name for name in EFFICIENCIES if name in points]
    if "application.thread_efficiency" not in names:
        return points
    filled = [
        with_threads(
            {name.removeprefix("application."): points[name][k] for name in names if points[name][k] is not None}
        )
        for k in range(len(points["point_id"]))
    ]
    return {**points, **{name: [each.get(name.removeprefix("application.")) for each in filled] for name in names}}


def _ratio_chart(page: Page, points: Points, axes: list[str], number: int, lines: Lines) -> str:
    """Instructions per cycle of a GPU, or cycles per instruction of a program, where there are figures of them."""
    name = next((name for name in _RATES if name in points and None not in points[name]), None)
    if name is None:
        return ""
    position = axis_of(axes[number], points[axes[number]])
    values = [[points[name][k] for k in line] for line in lines.values()]
    names = [label or _RATES[name] for label in lines]
    views = [
        values_view(label, names, lines, position, values, _RATES[name], "%{y:.4~g}", from_zero=label == "From zero")
        for label in ("Fitted", "From zero")
    ]
    figure = axis_figure(points, axes[number], names, list(lines.values()), views[position.is_category :])
    return page.chart(f"rate-{number}", "figure", 400, figure, f"{_RATES[name]} along {axes[number]}")


def _per_cent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


_SCALING_NOTE: Final = (
    "Speed-up: predicted time with the fewest cores of a rank over that with more, in each line; dotted: as many times "
    "faster as there are times more cores. Its efficiency: speed-up over that number. MPKI: misses per 1000 "
    "instructions of task instances that were simulated in detail."
)


def _scaling(page: Page, points: Points, axes: list[str], number: int, lines: Lines) -> Iterator[str]:
    """Speed-up and its efficiency along the number of cores, and misses where there are figures of them."""
    cores, times = points[axes[number]], points[MAKESPAN]
    gains, shares = [], []
    for line in lines.values():
        fewest = line[0]  # lines are in the order of cores
        gains.append([times[fewest] / times[k] if times[k] else 1.0 for k in line])
        more = [cores[k] / cores[fewest] for k in line]
        shares.append([100 * gain / each for gain, each in zip(gains[-1], more, strict=True)])
    names = [name or "speed-up" for name in lines]
    left = _plain(page, "speed-up", points, axes[number], lines, names, gains, "speed-up", "%{y:.4~g}")
    page.charts["speed-up"]["data"].append(_linear(cores))
    title = "efficiency of the speed-up (%)"
    right = _plain(page, "speed-up-efficiency", points, axes[number], lines, names, shares, title, "%{y:.1f} %")
    yield side_by_side(left, right)
    charts = []
    for place, (statistic, label) in enumerate(_MISSES.items()):
        if statistic in points:
            values = [[points[statistic][k] for k in line] for line in lines.values()]
            names = [name or label for name in lines]
            title = f"misses of the {label} (MPKI)"
            charts.append(
                _plain(page, f"misses-{place}", points, axes[number], lines, names, values, title, "%{y:.4~g}")
            )
    if charts:
        yield side_by_side(*charts)


def _plain(
    page: Page, element: str, points: Points, along: str, lines: Lines, names: list[str], values: list[list[Any]],
    title: str, hover: str,
) -> str:  # fmt: skip
    """A chart of one view, from zero."""
    position = axis_of(along, points[along])
    view = values_view("", names, lines, position, values, title, hover, from_zero=True)
    figure = axis_figure(points, along, names, list(lines.values()), [view])
    return page.chart(element, "figure", 380, figure, f"{title} along {along}")


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


def _stacks(page: Page, points: Points, axes: list[str], prefix: str, unit: str) -> str:
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
        "line": {"color": GREY, "dash": "dot", "width": 1.5}, "hoverinfo": "skip",
    }  # fmt: skip


def _points_table(points: Points, axes: list[str], directory: Path) -> str:
    known = list(efficiencies(points))
    counted = {name: label for name, label in _COUNTED.items() if name in points and None not in points[name]}
    times = points[MAKESPAN]
    best = min(times, default=0.0)
    parts = [name for name in points if name.startswith(_CORES_CPI)]
    rows = []
    chosen, left_out = listed(points)
    for index in chosen:
        link = f"{int(points['point_id'][index]):04d}"
        if (directory / "points" / link / "report.html").is_file():
            link = f'<a href="points/{link}/report.html">{link}</a>'
        time = escape(duration(times[index])) + (" (fastest)" if times[index] == best and len(times) > 1 else "")
        values = [escape(points[name][index]) for name in axes]
        stack = {name.removeprefix(_CORES_CPI): points[name][index] for name in parts}
        bound = (escape(bound_by(stack)),) if parts else ()
        rows.append(
            (
                link,
                *values,
                time,
                *bound,
                *(f"{points[name][index]:,.6g}" for name in counted),
                *(percent(points[name][index]) for name in known),
            )
        )
    header = (
        "point", *map(escape, axes), "predicted time", *(("cores mostly wait for",) if parts else ()),
        *counted.values(), *(EFFICIENCIES[name] for name in known),
    )  # fmt: skip
    columns = f"; {', '.join(EFFICIENCIES[name] for name in known)}: efficiencies" if known else ""
    asked = f"{left_out}The page of a point is written by manyscale report DIR --point N{columns}."
    return f'<p class="note">{escape(asked)}</p>{table(header, rows, css="paged" if len(rows) > ROWS_AT_ONCE else "")}'
