"""Report of what happened inside nodes: cores over time, cycles by cause, and how task instances of a type vary.

The views of Grass (UPC 2017): box plots of IPC per task type (figures 4.2 and 5.1: box from the first to the third
quartile, whiskers from the 5th to the 95th percentile), instruction count against IPC as a heat map (figure 4.3), and
misses per 1000 instructions (figure 4.5). All bounded in size, whatever the number of instances.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.columns import to_numpy
from manyscale.runner.results import Result
from manyscale.runner.writers.report_page import LINE_COLOURS, Page, axis
from manyscale.runner.writers.report_text import escape, table, time_unit

MAX_BINS: Final = 1200  # of the timeline of cores
MAX_CORES: Final = 128
MAX_TYPES: Final = 24  # those with most instructions
HEAT_BINS: Final = 40
_IDLE_COLOUR: Final = "#e3e6ea"
_PART_COLOURS: Final = (*LINE_COLOURS, "#999933", "#882255", "#117733", "#aaaaaa", "#332288", "#cccccc")


def add_sections(page: Page, result: Result) -> None:
    """Nothing where no node was simulated."""
    figures = [(name, each) for name, each in result.statistics.items() if name.startswith("node.")]
    if not figures:
        return
    parts = [_figures(figures)]
    if result.cores is not None and result.cores.num_rows:
        parts.append(_cores_chart(page, result.cores))
    page.add("Inside the nodes", *parts, note=_cores_note(result.cores))
    if result.cpi_stacks is not None and result.cpi_stacks.num_rows:
        note = "Cycles per instruction by what the core waited for; the parts sum to the whole."
        page.add("Where cycles go", _stacks_chart(page, result.cpi_stacks), note=note)
    if result.task_instances is not None and result.task_instances.num_rows:
        _add_task_types(page, result.task_instances)


def _figures(figures: list[tuple[str, Any]]) -> str:
    rows = []
    for name, each in figures:
        interval = "" if each.ci_low is None else f"{each.ci_low:.4g} to {each.ci_high:.4g}"
        unit = "" if each.unit == "1" else f" {each.unit}"
        rows.append((escape(name), f"{each.value:,.6g}{unit}", interval, escape(each.description)))
    return table(("figure", "value", "95 % interval", "what it is"), rows)


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Codes of a dictionary column and their names."""
    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return to_numpy(whole.indices), whole.dictionary.to_pylist()


def _cores_chart(page: Page, cores: pa.Table) -> str:
    """Cores of the rank with most rows against time, coloured by task type."""
    rank = to_numpy(cores.column("rank"))
    shown = int(np.bincount(rank).argmax())
    mine = rank == shown
    core, start, end = (to_numpy(cores.column(name))[mine] for name in ("core", "start_ps", "end_ps"))
    kind, names = _codes(cores.column("task_type"))
    kind = kind[mine]
    time = np.bincount(kind, (end - start).astype(float), minlength=len(names))
    order = [int(each) for each in np.argsort(-time, kind="stable") if time[each] > 0]
    drawn = order[: len(LINE_COLOURS)]  # types beyond share the last colour
    code = np.full(len(names), min(len(order), len(LINE_COLOURS)), np.int64)
    for place, each in enumerate(order):
        code[each] = min(place, len(LINE_COLOURS) - 1) + 1
    cells = _majority(core, start, end, code[kind], int(start.min()), int(end.max()))
    length, unit = time_unit((end.max() - start.min()) * 1e-12)
    edges = np.linspace(start.min(), end.max(), cells.shape[1] + 1) * 1e-12 / length
    count = len(drawn)
    colours = [_IDLE_COLOUR, *LINE_COLOURS[:count]]
    scale = []
    for index, colour in enumerate(colours):
        scale += [[index / len(colours), colour], [(index + 1) / len(colours), colour]]
    data = {
        "type": "heatmap", "z": cells.tolist(), "x": np.round(edges, 6).tolist(), "y": list(range(cells.shape[0])),
        "zmin": -0.5, "zmax": count + 0.5, "colorscale": scale, "showscale": False, "hoverinfo": "x+y",
    }  # fmt: skip
    layout = {"xaxis": axis(f"time ({unit})"), "yaxis": axis(f"core of rank {shown}", autorange="reversed")}
    key = "".join(
        f'<span><i style="background:{colour}"></i>{escape(text)}</span>'
        for colour, text in zip(colours, ["idle", *(names[each] for each in drawn)], strict=True)
    )
    height = int(np.clip(cells.shape[0] * 12 + 110, 220, 640))
    chart = page.chart("cores", "figure", height, {"data": [data], "layout": layout}, "task types on cores over time")
    return f'<div class="legend">{key}</div>{chart}'


def _majority(
    core: np.ndarray, start: np.ndarray, end: np.ndarray, code: np.ndarray, begin: int, finish: int
) -> np.ndarray:
    """int[cores, bins]: the code that takes most of each bin of time, 0 where nothing takes half of it."""
    cores, bins = min(int(core.max()) + 1, MAX_CORES), MAX_BINS
    width = max((finish - begin) / bins, 1.0)
    time = np.zeros((int(code.max()) + 1, cores, bins))
    inside = core < cores
    core, code = core[inside], code[inside]
    low, high = (start[inside] - begin) / width, (end[inside] - begin) / width
    first, last = np.minimum(low.astype(np.int64), bins - 1), np.minimum(high.astype(np.int64), bins - 1)
    same = first == last
    np.add.at(time, (code, core, first), np.where(same, high - low, first + 1 - low))
    np.add.at(time, (code[~same], core[~same], last[~same]), (high - last)[~same])
    steps = np.zeros((*time.shape[:2], bins + 1))
    np.add.at(steps, (code[~same], core[~same], first[~same] + 1), 1.0)
    np.add.at(steps, (code[~same], core[~same], last[~same]), -1.0)
    time += np.cumsum(steps, axis=2)[:, :, :bins]
    return np.where(time.sum(axis=0) >= 0.5, time.argmax(axis=0), 0)


def _cores_note(cores: pa.Table | None) -> str:
    if cores is None or not cores.num_rows:
        return ""
    return (
        "Each core has the colour of the task type that takes most of a column of pixels. timeline/cores.parquet and "
        "trace.json.gz hold every task instance of the ranks and iterations that the study's key timeline chooses."
    )


def _stacks_chart(page: Page, stacks: pa.Table) -> str:
    """Stacked bars per task type and per core."""
    part, parts = _codes(stacks.column("part"))
    kind, names = _codes(stacks.column("task_type"))
    core = to_numpy(stacks.column("core"))
    cycles, instructions = (to_numpy(stacks.column(name)) for name in ("cycles", "instructions"))
    of_type = core < 0
    first = part == part.min()
    work = np.bincount(kind[of_type & first], instructions[of_type & first], minlength=len(names))
    chosen = [int(each) for each in np.argsort(-work, kind="stable")[:MAX_TYPES] if work[each] > 0]
    labels = [names[each] for each in chosen]
    data = []
    for index, name in enumerate(parts):
        mine = of_type & (part == index)
        spent = np.bincount(kind[mine], cycles[mine], minlength=len(names))
        values = [float(spent[each] / work[each]) for each in chosen]
        if any(values):
            colour = _PART_COLOURS[index % len(_PART_COLOURS)]
            data.append({"type": "bar", "name": name, "x": labels, "y": values, "marker": {"color": colour}})
    layout = {"barmode": "stack", "yaxis": axis("cycles per instruction"), "xaxis": {"type": "category"}}
    return page.chart("cpi", "figure", 380, {"data": data, "layout": layout}, "cycles per instruction by cause")


def _add_task_types(page: Page, instances: pa.Table) -> None:
    kind, names = _codes(instances.column("task_type"))
    instructions, cycles = (to_numpy(instances.column(name)) for name in ("instructions", "cycles"))
    model, models = _codes(instances.column("model"))
    measured = (instructions > 0) & (cycles > 0) & (model != models.index("fast-forward"))
    if not measured.any():
        return
    kind, instructions, cycles = kind[measured], instructions[measured], cycles[measured]
    ipc = instructions / cycles
    work = np.bincount(kind, instructions, minlength=len(names))
    chosen = [int(each) for each in np.argsort(-work, kind="stable")[:MAX_TYPES] if work[each] > 0]
    first, last = (to_numpy(instances.column(name))[measured] for name in ("first_cache_misses", "last_cache_misses"))
    boxes = [_box(f"{names[each]}", ipc[kind == each]) for each in chosen]
    layout = {"yaxis": axis("instructions per cycle", rangemode="tozero"), "showlegend": False}
    left = page.chart("ipc", "figure", 360, {"data": boxes, "layout": layout}, "IPC by task type")
    right = _heat_map(page, names[chosen[0]], instructions[kind == chosen[0]], ipc[kind == chosen[0]])
    rows = []
    for each in chosen:
        mine = kind == each
        total = max(int(instructions[mine].sum()), 1)
        spread = float(ipc[mine].std() / ipc[mine].mean())
        misses = (f"{1000 * values[mine].sum() / total:.3g}" for values in (first, last))
        mean = f"{total / mine.sum():,.0f}"
        rows.append(
            (
                escape(names[each]),
                f"{mine.sum():,}",
                mean,
                f"{total / cycles[mine].sum():.3g}",
                f"{spread:.1%}",
                *misses,
            )
        )
    header = (
        "task type",
        "instances simulated",
        "instructions each",
        "IPC",
        "its spread",
        "L1 MPKI",
        "last-cache MPKI",
    )
    note = (
        "Of task instances that the model of the cores simulated. Boxes reach from the first to the third quartile, "
        "whiskers from the 5th to the 95th percentile; MPKI: misses per 1000 instructions."
    )
    page.add(
        "Task types",
        table(header, rows),
        f'<div class="pair level"><div>{left}</div><div>{right}</div></div>',
        note=note,
    )


def _box(name: str, values: np.ndarray) -> dict[str, Any]:
    low, first, median, third, high = (round(float(each), 6) for each in np.percentile(values, [5, 25, 50, 75, 95]))
    return {
        "type": "box", "name": name, "x": [name], "q1": [first], "median": [median], "q3": [third], "lowerfence": [low],
        "upperfence": [high], "marker": {"color": LINE_COLOURS[0]},
    }  # fmt: skip


def _heat_map(page: Page, name: str, instructions: np.ndarray, ipc: np.ndarray) -> str:
    """Number of instances by instruction count and IPC, of one type."""
    counts, x, y = np.histogram2d(instructions, ipc, bins=HEAT_BINS)
    data = {
        "type": "heatmap", "z": np.where(counts.T > 0, counts.T, np.nan).astype(object).tolist(), "x": x.tolist(),
        "y": y.tolist(), "colorscale": "Blues", "reversescale": True, "colorbar": {"title": {"text": "instances"}},
    }  # fmt: skip
    data["z"] = [[None if value != value else int(value) for value in row] for row in data["z"]]  # type: ignore[attr-defined]
    layout = {"xaxis": axis(f"instructions of an instance of {name}"), "yaxis": axis("instructions per cycle")}
    return page.chart("heat", "figure", 360, {"data": [data], "layout": layout}, "instruction count against IPC")
