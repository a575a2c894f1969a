"""Report of how task instances of a type vary, and how well a few of them predict the others.

The views of Grass (UPC 2017): box plots of instructions per cycle by task type (figures 4.2 and 5.1: a box from the
first to the third quartile, whiskers from the 5th to the 95th percentile), instruction count against IPC as a heat map
(figure 4.3), misses per 1000 instructions (figure 4.5), and errors of predictors (figures 4.1 and 4.4). Everything
drawn is bounded, whatever the number of instances and types.

Cost: O(instances log instances); measured 3.5 s of CPU for a million instances of 31 types, most of it the predictors.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import COLORSCALE, LINE_COLOURS, axis
from manyscale.runner.report.text import escape, percent, side_by_side, table
from manyscale.runner.run.questions.predictability import execution_order
from manyscale.sampling.taskpoint import predictability
from manyscale.sampling.taskpoint.predictability import Instances

MAX_TYPES: Final = 24  # those with most instructions
_MAX_HEAT_MAPS: Final = 6
_HEAT_BINS: Final = (40, 40)
_RATIO: Final = "instructions per cycle, fused as two"
_NOTE: Final = (
    "Of task instances whose cycles a model of the cores found, without those that were fast-forwarded. Boxes reach "
    "from the first to the third quartile, whiskers from the 5th to the 95th percentile. MPKI: misses per 1000 "
    "instructions. Spread: standard deviation over mean of the IPC of instances. A compare and its branch are two "
    "instructions, also where the core fuses them, so that IPC may exceed its width."
)
_PREDICTORS_NOTE: Final = (
    "Error of the cycles of all instances together, had only those in brackets been simulated and the others been "
    "predicted from them: by the first or the second instance of a type, by interpolation over instruction counts, or "
    "by one instance of each cluster of instruction counts."
)


def add_task_types(page: Page, instances: pa.Table) -> None:
    """A section; nothing where the cycles of no instance were simulated."""
    kind, names = codes_and_names(instances.column("task_type"))
    instructions, cycles = (to_numpy(instances.column(name)) for name in ("instructions", "cycles"))
    model, models = codes_and_names(instances.column("model"))
    forwarded = np.isin(model, [code for code, name in enumerate(models) if name == "fast-forward"])
    shown = (instructions > 0) & (cycles > 0) & ~forwarded
    if not shown.any():
        return
    work = np.bincount(kind[shown], instructions[shown], minlength=len(names))
    types = [int(each) for each in np.argsort(-work, kind="stable")[:MAX_TYPES] if work[each] > 0]
    known = Instances(kind[shown], instructions[shown], cycles[shown])
    in_detail = np.isin(model, [code for code, name in enumerate(models) if name == "detailed"])
    parts = [
        _figures(instances, kind, shown, in_detail, names, types),
        side_by_side(boxes(page, known, names, types), heat_maps(page, known, names, types)),
    ]
    if in_detail.all():
        parts.append(_predictors(_in_order(instances, kind), names, types))
    note = (
        _NOTE if (work > 0).sum() <= MAX_TYPES else f"{_NOTE} The {MAX_TYPES} types with most instructions are shown."
    )
    page.add("Task types", *parts, note=note)


def _figures(
    instances: pa.Table, kind: np.ndarray, shown: np.ndarray, in_detail: np.ndarray, names: list[str], types: list[int]
) -> str:
    instructions, cycles, first, last = (
        to_numpy(instances.column(name).fill_null(0))
        for name in ("instructions", "cycles", "first_cache_misses", "last_cache_misses")
    )
    rows = []
    for each in types:
        mine = shown & (kind == each)
        simulated = mine & in_detail  # misses of others are not known
        total, counted = int(instructions[mine].sum()), int(instructions[simulated].sum())
        ipc = instructions[mine] / cycles[mine]
        rows.append(
            (
                escape(names[each]),
                f"{mine.sum():,} of {np.count_nonzero(kind == each):,}",
                f"{total / mine.sum():,.0f}",
                f"{total / cycles[mine].sum():.3g}",
                escape(percent(float(ipc.std() / ipc.mean()))),
                *(f"{1000 * misses[simulated].sum() / counted:.3g}" if counted else "-" for misses in (first, last)),
            )
        )
    header = (
        "task type", "instances", "instructions each", "IPC, fused as two", "IPC spread", "first-cache MPKI",
        "last-cache MPKI",
    )  # fmt: skip
    return table(header, rows)


def boxes(page: Page, known: Instances, names: list[str], types: list[int], label: str = _RATIO) -> str:
    """IPC of each type as a box."""
    percentiles = predictability.ipc_percentiles(known)
    low, first, median, third, high = ([round(float(value), 6) for value in percentiles[types, i]] for i in range(5))
    box = {
        "type": "box", "x": [names[each] for each in types], "lowerfence": low, "q1": first, "median": median,
        "q3": third, "upperfence": high, "marker": {"color": LINE_COLOURS[0]},
    }  # fmt: skip
    y = axis(label, rangemode="tozero")
    layout = {"xaxis": {"type": "category"}, "yaxis": y, "showlegend": False}
    return page.chart("ipc", "figure", 400, {"data": [box], "layout": layout}, "instructions per cycle by task type")


def heat_maps(page: Page, known: Instances, names: list[str], types: list[int], label: str = _RATIO) -> str:
    """Number of instances by instruction count and IPC, of one type at a time."""
    data: list[dict[str, Any]] = []
    drawn = types[:_MAX_HEAT_MAPS]
    for each in drawn:
        counts, instructions, ipc = predictability.instructions_ipc_histogram(known, each, _HEAT_BINS)
        data.append(
            {
                "type": "heatmap",
                "z": [[count or None for count in row] for row in counts.T.tolist()],
                "x": instructions.tolist(),
                "y": ipc.tolist(),
                "colorscale": COLORSCALE,
                "zmin": 0,
                "colorbar": {"title": {"text": "instances"}, "thickness": 14, "outlinewidth": 0},
                "hoverongaps": False,
                "hovertemplate": "%{z} instances of about %{x:,.0f} instructions, %{y:.3g} per cycle<extra></extra>",
                "visible": each == drawn[0],
            }
        )
    layout = {
        "xaxis": axis("instructions of an instance", exponentformat="none"),
        "yaxis": axis(label),
    }
    figure: dict[str, Any] = {"data": data, "layout": layout}
    figure["choices"] = [{"label": names[each], "shown": [other == each for other in drawn]} for each in drawn]
    return page.chart("heat", "figure", 360, figure, "number of task instances by instruction count and IPC")


def _in_order(instances: pa.Table, kind: np.ndarray) -> Instances:
    """In the order of execution, as far as the run knows it."""
    order, _ = execution_order(instances)
    columns = (to_numpy(instances.column(name))[order] for name in ("instructions", "cycles"))
    return Instances(kind[order], *columns)


def _predictors(instances: Instances, names: list[str], types: list[int]) -> str:
    """Errors of each predictor by type, and of all types together."""
    cells: dict[int, list[str]] = {each: [] for each in (-1, *types)}
    for name, predict in predictability.PREDICTORS.items():
        for row in predictability.error_rows(name, instances, predict(instances)):
            if row.task_type in cells:
                error = escape(percent(row.error)) if np.isfinite(row.error) else "-"
                cells[row.task_type].append(f"{error} ({row.num_measured:,})")
    labels = {-1: "all types", **{each: names[each] for each in types}}
    rows = [(escape(labels[each]), *errors) for each, errors in cells.items()]
    header = ("predictability", *(escape(name) for name in predictability.PREDICTORS))
    return f'<h3>Predictability</h3><p class="note">{escape(_PREDICTORS_NOTE)}</p>{table(header, rows)}'
