"""Report of what happened inside nodes: cores over time, and cycles by cause. How task instances vary: see
report/sections/task_types.py.

Everything drawn is bounded: a core's line has MAX_BINS columns, of at most MAX_CORES cores, and of types and cores as
many bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.page import Page, colour_legend
from manyscale.runner.report.palette import LINE_COLOURS, axis
from manyscale.runner.report.text import escape, side_by_side, table, time_unit
from manyscale.runner.run.results import Result

MAX_BINS: Final = 1200  # of the timeline of cores
MAX_CORES: Final = 128
MAX_TYPES: Final = 24  # those with most instructions
_IDLE_COLOUR: Final = "#e3e6ea"
_PIXELS_PER_LETTER: Final = 7
_OTHER: Final = "other types"
_PART_COLOURS: Final = (*LINE_COLOURS, "#f0e442")  # with the last one of Okabe and Ito's
_PATTERNS: Final = ("", "/", ".", "x")  # beside the colours, so that more parts remain distinct
_PS: Final = 1e-12


def add_sections(page: Page, result: Result) -> None:
    """Nothing where no node was simulated."""
    figures = [(name, each) for name, each in result.statistics.items() if name.startswith("node.")]
    if not figures:
        return
    parts, note = [figures_table(figures)], ""
    if result.cores is not None and result.cores.num_rows:
        chart, note = _cores_chart(page, result.cores)
        parts.append(chart)
    page.add("Inside the nodes", *parts, note=note)
    if result.cpi_stacks is not None and result.cpi_stacks.num_rows:
        _add_stacks(page, result.cpi_stacks)
    if result.task_instances is not None and result.task_instances.num_rows:
        # (loads kernels, which only results of simulated cores need)
        from manyscale.runner.report.sections.task_types import add_task_types

        add_task_types(page, result.task_instances)


def figures_table(figures: Sequence[tuple[str, Statistic]]) -> str:
    rows = []
    for name, each in figures:
        interval = "" if each.ci_low is None else f"{each.ci_low:.4g} to {each.ci_high:.4g}"
        unit = "" if each.unit == "1" else f" {each.unit}"
        value = f"{each.value:,}" if isinstance(each.value, int) else f"{each.value:,.4g}"
        rows.append((escape(name), f"{value}{escape(unit)}", interval, escape(each.description)))
    if not any(interval for _, _, interval, _ in rows):
        shown = [(name, value, text) for name, value, _, text in rows]
        return table(("figure", "value", "what it is"), shown, text_from=2)
    return table(("figure", "value", "95 % interval", "what it is"), rows, text_from=3)


# ---- cores over time ----


def _cores_chart(page: Page, cores: pa.Table) -> tuple[str, str]:
    """HTML and note: cores of the rank with most rows against time, coloured by task type."""
    rank = to_numpy(cores.column("rank"))
    shown = int(np.bincount(rank).argmax())
    mine = rank == shown
    core, start, end = (to_numpy(cores.column(name))[mine] for name in ("core", "start_ps", "end_ps"))
    kind, names = codes_and_names(cores.column("task_type"))
    code, legend = _colour_codes(kind[mine], end - start, names)
    begin, finish = int(start.min()), max(int(end.max()), int(start.min()) + 1)
    cells = _majority(core, start, end, code, begin, finish)
    length, unit = time_unit((finish - begin) * _PS)
    edges = np.linspace(begin, finish, cells.shape[1] + 1) * (_PS / length)
    colours = [_IDLE_COLOUR, *LINE_COLOURS[: len(legend) - 1]]
    data = {
        "type": "heatmap", "z": cells.tolist(), "x": [float(f"{each:.9g}") for each in edges],
        "y": list(range(len(cells))), "zmin": -0.5, "zmax": len(colours) - 0.5, "colorscale": colour_steps(colours),
        "showscale": False, "ygap": 1 if len(cells) <= 64 else 0,
        "hovertemplate": f"core %{{y}}, %{{x:.6~g}} {unit}<extra></extra>",
    }  # fmt: skip
    layout = {"xaxis": axis(f"time ({unit})"), "yaxis": _core_axis(len(cells), shown)}
    key = colour_legend(list(zip(colours, legend, strict=True)))
    height = int(np.clip(len(cells) * 12 + 110, 220, 640))
    chart = page.chart("cores", "figure", height, {"data": [data], "layout": layout}, "task types on cores over time")
    note = (
        "Each core has the colour of the task type that takes most of a column, grey where it is idle for more than "
        "half of it. timeline/cores.parquet, trace.json.gz and trace.prv hold every task instance of the ranks and "
        "iterations that the study's key timeline chooses."
    )
    if len(np.unique(rank)) > 1:
        note += f" Of {len(np.unique(rank)):,} ranks in these, the one with most of them is shown."
    if core.max() >= MAX_CORES:
        note += f" The first {MAX_CORES} of {core.max() + 1:,} cores are shown."
    return key + chart, note


def _core_axis(num_cores: int, rank: int) -> dict[str, Any]:
    return axis(f"core of rank {rank}", autorange="reversed", tick0=0, dtick=-(-num_cores // 16))


def _colour_codes(kind: np.ndarray, duration_ps: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """Code from 1 of each row, types that take most time first, and what codes mean, 0 idle; where there are more types
    than colours, all that have none of their own share the last one."""
    time = np.bincount(kind, duration_ps.astype(float), minlength=len(names))
    present = np.bincount(kind, minlength=len(names)) > 0
    order = [int(each) for each in np.argsort(-time, kind="stable") if present[each]]
    most = len(LINE_COLOURS)
    own = order if len(order) <= most else order[: most - 1]
    code = np.full(len(names), most, np.int64)
    code[own] = np.arange(1, len(own) + 1)
    return code[kind], ["idle", *(names[each] for each in own), *([_OTHER] if len(own) < len(order) else [])]


def colour_steps(colours: Sequence[str]) -> list[list[Any]]:
    """A scale of colours in which each code has one."""
    edges = [[index / len(colours), (index + 1) / len(colours)] for index in range(len(colours))]
    return [[edge, colour] for pair, colour in zip(edges, colours, strict=True) for edge in pair]


def _majority(
    core: np.ndarray, start: np.ndarray, end: np.ndarray, code: np.ndarray, begin: int, finish: int
) -> np.ndarray:
    """int64[cores, bins]: the code that takes most of each bin of [``begin``, ``finish``), 0 where less than half of it
    is taken. O(rows + codes x cores x bins)."""
    cores, bins = min(int(core.max()) + 1, MAX_CORES), min(MAX_BINS, finish - begin)
    inside = core < cores
    core, code = core[inside], code[inside]
    low, high = ((each[inside] - begin) * (bins / (finish - begin)) for each in (start, end))
    first, last = (np.minimum(each.astype(np.int64), bins - 1) for each in (low, high))
    time = np.zeros((int(code.max(initial=0)) + 1, cores, bins + 1))
    # a stretch takes its bins from the first to the last whole, but for what lies before it in the one and after it in
    # the other
    np.add.at(time, (code, core, first), 1.0)
    np.add.at(time, (code, core, last + 1), -1.0)
    time = np.cumsum(time, axis=2)[:, :, :bins]
    np.add.at(time, (code, core, first), first - low)
    np.add.at(time, (code, core, last), high - last - 1)
    return np.where(time.sum(axis=0) >= 0.5, time.argmax(axis=0), 0)


# ---- cycles by cause ----


def _add_stacks(page: Page, stacks: pa.Table) -> None:
    part, parts = codes_and_names(stacks.column("part"))
    kind, names = codes_and_names(stacks.column("task_type"))
    core, cycles, instructions = (to_numpy(stacks.column(name)) for name in ("core", "cycles", "instructions"))
    markers = part_markers(parts, np.bincount(part, np.abs(cycles), minlength=len(parts)) > 0)
    of_type = core < 0
    charts, note = [], "Cycles per instruction by what the core waited for, over all that was simulated."
    if of_type.any():
        spent = _sums(kind[of_type], part[of_type], cycles[of_type], (len(names), len(parts)))
        # each row of a cell's type repeats its instructions
        one = of_type & (part == part[of_type].min())
        work = np.bincount(kind[one], instructions[one], minlength=len(names))
        chosen = [int(each) for each in np.argsort(-work, kind="stable")[:MAX_TYPES] if work[each] > 0]
        labels = [names[each] for each in chosen]
        values = spent[chosen] / work[chosen, None]
        charts.append(stack_chart(page, "cpi", ("cycles per instruction", "task type"), labels, markers, values))
        if np.count_nonzero(work) > MAX_TYPES:
            note += f" The {MAX_TYPES} types with most instructions are shown."
    if not of_type.all():
        cores = int(core.max()) + 1
        spent = _sums(core[~of_type], part[~of_type], cycles[~of_type], (cores, len(parts)))[:MAX_CORES]
        total = spent.sum(axis=1, keepdims=True)
        share = np.divide(spent, total, out=np.zeros_like(spent), where=total > 0)
        labels = [str(each) for each in range(len(share))]
        charts.append(stack_chart(page, "core-cycles", ("share of cycles", "core"), labels, markers, share))
        note += " The second chart has the cycles of each core, with those in which it executes nothing."
        if cores > MAX_CORES:
            note += f" The first {MAX_CORES} of {cores:,} cores are shown."
    page.add("Where cycles go", side_by_side(*charts), note=note)


def _sums(row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """float64[shape]: sums of ``values`` by row and column."""
    place = row.astype(np.int64) * shape[1] + column
    return np.bincount(place, values, minlength=shape[0] * shape[1]).reshape(shape)


def part_markers(parts: list[str], occurs: np.ndarray) -> dict[str, dict[str, Any]]:
    """Colour and pattern of each part that occurs, the same in every chart."""
    shown = [name for index, name in enumerate(parts) if occurs[index]]
    result: dict[str, dict[str, Any]] = {}
    for index, name in enumerate(name for name in shown if name != "idle"):
        round_, place = divmod(index, len(_PART_COLOURS))
        pattern = _PATTERNS[round_ % len(_PATTERNS)]
        result[name] = {"color": _PART_COLOURS[place], **({"pattern": {"shape": pattern}} if pattern else {})}
    return {name: result.get(name, {"color": _IDLE_COLOUR}) if name in shown else {} for name in parts}


def stack_chart(
    page: Page, element: str, titles: tuple[str, str], labels: list[str], markers: dict[str, dict[str, Any]],
    values: np.ndarray,
) -> str:  # fmt: skip
    """Stacked bars: ``values`` float64[labels, parts]; a part without a marker does not occur. Labels of several lines
    (``<br>``), which stand upright, get the room that they need."""
    data = [
        {
            "type": "bar",
            "name": name,
            "x": labels,
            "y": [round(float(each), 6) for each in values[:, index]],
            "marker": marker,
            "hovertemplate": "%{x}: %{y:.3~g}<extra>%{fullData.name}</extra>",
        }
        for index, (name, marker) in enumerate(markers.items())
        if marker
    ]
    layout = {
        "barmode": "stack", "yaxis": axis(titles[0], rangemode="tozero"), "xaxis": axis(titles[1], type="category"),
        "legend": {"traceorder": "normal"}, "showlegend": True,
    }  # fmt: skip
    lines = [len(line) for label in labels if "<br>" in label for line in label.split("<br>")]
    height = 400 + _PIXELS_PER_LETTER * max(lines, default=0)
    return page.chart(
        element, "figure", height, {"data": data, "layout": layout}, f"{titles[0]} by cause and {titles[1]}"
    )
