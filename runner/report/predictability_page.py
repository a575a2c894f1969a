"""The page of ``manyscale predictability``: how instances of each type vary, and errors of predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.task_types import MAX_TYPES, boxes, heat_maps
from manyscale.runner.report.text import escape, notes_html, percent, side_by_side, table
from manyscale.runner.run.questions.predictability import Executed

_NOTE: Final = (
    "Of each predictor the error of all instances together, had only those in brackets been measured and the others "
    "been predicted from them, in the order of execution: by the first or the second instance of a type, by "
    "interpolation over sizes, or by one instance of each cluster of sizes."
)


def page(executed: Executed, errors: pa.Table, notes: Sequence[Note]) -> str:
    """The whole page; of many types those with most time."""
    instances = executed.instances
    subtitle = f"{len(instances.cycles):,} task instances; {executed.of}" + (
        f" by {executed.by}" if executed.by else ""
    )
    made = Page(f"Predictability of {executed.name}", f"{subtitle}.")
    made.add("", notes_html(notes))
    time = np.bincount(instances.task_type, instances.cycles, instances.num_types)
    types = [int(each) for each in np.argsort(-time, kind="stable")[:MAX_TYPES] if time[each] > 0]
    shown = {executed.types[each] for each in types} | {""}
    made.add("Errors", table(*_cells(executed, errors, shown), numeric_from=1), note=_NOTE)
    if executed.by:
        label = "instructions per cycle"
        if (executed.of, executed.by) not in (("cycles", "instructions"), ("PAPI_TOT_CYC", "PAPI_TOT_INS")):
            label = f"{executed.by} per {executed.unit or executed.of}"
        names = list(executed.types)
        charts = (boxes(made, instances, names, types, label), heat_maps(made, instances, names, types, label))
        made.add("Task types", side_by_side(*charts), note=f"Boxes and maps of {label}.")
    return made.html()


def _cells(executed: Executed, errors: pa.Table, shown: set[str]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    cells: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for row in errors.to_pylist():
        if row["task_type"] in shown:
            error = "-" if row["error"] is None else percent(row["error"])
            cells.setdefault(row["task_type"], []).append(escape(f"{error} ({row['measured']:,})"))
            counts[row["task_type"]] = row["instances"]
    rows = [(escape(kind or "all types"), f"{counts[kind]:,}", *mine) for kind, mine in sorted(cells.items())]
    return ("task type", "instances", *map(escape, executed.predictors)), rows
