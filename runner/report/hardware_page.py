"""The page of ``manyscale evaluate RUN --cycles FILE``: predicted launches against measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from manyscale.models.workload.notes import Note
from manyscale.runner.report.figures.hardware import hardware
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.gpu_roofline import kernel_cell
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, percent, signed_percent, table
from manyscale.runner.run.evaluation.hardware import Comparison

MAX_ROWS: Final = 60  # of each table


def page(found: Comparison, file: str, notes: Sequence[Note] = ()) -> str:
    """HTML: the errors of all launches, by kernel, and of the launches that are furthest off."""
    figures = found.figures
    own = Page("Predicted launches against measured ones", f"Measured: {file}")
    rank = figures["rank_correlation"]
    cards = [
        ("Mean absolute error", percent(figures["mean_absolute_error"]),
         f"{percent(figures['mean_absolute_error_without_latency'])} without launch latency"),
        ("All together", signed_percent(100 * figures["error"]), "sum of predicted against sum of measured"),
        ("Geometric mean", f"{figures['geometric_mean']:.3f}", "of predicted / measured"),
        ("Rank correlation", "-" if rank != rank else f"{rank:.3f}", "Spearman, of launches"),
        ("Launches", f"{int(figures['launches']):,}", "with a partner"),
    ]  # fmt: skip
    own.add("", cards_html(cards), notes_html(notes))
    chart = own.chart("launches", "figure", 480, hardware(found.launches), "predicted against measured launches")
    own.add("Launches", chart, note="Marks above the dashed line: the prediction is too long.")
    kernels = found.kernels.to_pylist()
    note = "Sums of the launches that have a partner; those that take longest first."
    header = ("kernel", "launches", "predicted", "measured", "error", "mean absolute error")
    rows = [
        (
            kernel_cell(row["kernel"]), f"{row['launches']:,}", *(_shown(row[each], row["unit"]) for each in _BOTH),
            escape(signed_percent(100 * row["error"])), escape(percent(row["mean_absolute_error"])),
        )
        for row in kernels[:MAX_ROWS]
    ]  # fmt: skip
    own.add("Kernels", table(header, rows), note=note)
    launches = sorted(found.launches.to_pylist(), key=lambda row: -abs(row["error"]))
    note = "Those that are furthest off."
    if len(launches) > MAX_ROWS:
        note += f" {MAX_ROWS} of {len(launches):,}; evaluation.parquet has all."
    header = ("launch", "kernel", "line", "predicted", "measured", "error")
    rows = [
        (
            f"{row['launch_id']:,}", kernel_cell(row["kernel"]), f"{row['line']:,}",
            *(_shown(row[each], row["unit"]) for each in _BOTH), escape(signed_percent(100 * row["error"])),
        )
        for row in launches[:MAX_ROWS]
    ]  # fmt: skip
    own.add("Errors of launches", table(header, rows, numeric_from=2), note=note)
    return own.html()


_BOTH: Final[Any] = ("predicted", "measured")


def _shown(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "cycles" else duration(value)
