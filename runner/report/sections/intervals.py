"""Report of a program whose intervals were sampled: cycles per instruction over the run, by phase, and by cause."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.page import Page
from manyscale.runner.report.palette import LINE_COLOURS
from manyscale.runner.report.sections.node import figures_table, part_markers, stack_chart
from manyscale.runner.report.sections.phases import MOST_SHOWN, cpi_chart, markers
from manyscale.runner.run.results import Result

_WHOLE: Final = "whole program"


def add_intervals(page: Page, result: Result) -> None:
    """Figures, CPI and phases over the run, and the CPI stack."""
    assert result.intervals is not None
    figures = [(name, each) for name, each in result.statistics.items() if name.startswith("intervals.")]
    page.add("Intervals of the program", figures_table(figures))
    note = (
        "Crosses are intervals that were simulated; dots are the others, at the mean CPI of those that stand for them. "
        "timeline/intervals.parquet holds all."
    )
    page.add("Cycles per instruction over the run", _over_time(page, result), note=note)
    page.add("Where cycles go", _stack(page, result))


def _over_time(page: Page, result: Result) -> str:
    assert result.intervals is not None
    table = result.intervals
    begin, cluster, cpi, weight = (
        to_numpy(table.column(name).combine_chunks().fill_null(0)) for name in ("begin_instruction", "cluster", "cpi",
                                                                               "weight")
    )  # fmt: skip
    simulated = weight > 0
    data: list[dict[str, Any]] = []
    for phase in np.unique(cluster).tolist():
        mine = cluster == phase
        own = simulated & mine
        others = np.flatnonzero(mine & ~simulated)
        others = others[:: max(1, -(-len(table) // MOST_SHOWN))]
        name = "not simulated" if phase < 0 else f"phase {phase}"
        if own.any() and len(others):
            mean = float(weight[own] @ cpi[own] / weight[own].sum())
            colour = LINE_COLOURS[phase % len(LINE_COLOURS)]
            data.append(markers(name, begin[others], np.full(len(others), mean), colour, 4, "circle"))
    data.append(markers("simulated", begin[simulated], cpi[simulated], "#000000", 9, "x-thin-open"))
    caption = "cycles per instruction of intervals over the run"
    return cpi_chart(page, "intervals", data, "instructions of the program", caption)


def _stack(page: Page, result: Result) -> str:
    head = "intervals.cpi."
    found = {name.removeprefix(head): each.value for name, each in result.statistics.items() if name.startswith(head)}
    values = np.array([list(found.values())], np.float64)
    looks = part_markers(list(found), np.abs(values[0]) > 0)
    return stack_chart(page, "cpi", ("cycles per instruction", "program"), [_WHOLE], looks, values)
