"""The page of ``manyscale compare``: where two runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import (
    cards_html,
    duration,
    escape,
    notes_html,
    percent,
    signed_duration,
    signed_percent,
    size,
)
from manyscale.runner.report.text import table as html_table
from manyscale.runner.run.questions.compare import TITLES
from manyscale.runner.run.questions.measured_steps import StepErrors, errors

MOST_ROWS: Final = 25  # of a group
_WHOLE: Final = ("figure", "gpu")  # groups of which all rows are shown


def page(table: pa.Table, a: str, b: str, notes: Sequence[Note] = ()) -> str:
    """The page of a table of differences B - A (``run/compare.py``: group, item, a, b, difference, unit); ``a`` and
    ``b``: names of the runs. Equal tables give equal text."""
    rows = table.to_pylist()
    made = Page("Comparison of two runs", f"A: {a}. B: {b}. Differences are B - A.")
    made.add("", _cards(rows, errors(table)), notes_html(notes))
    figure = figures.compare(table)
    if figure["data"]:
        chart = made.chart("differences", "figure", figure["layout"]["height"], figure, "differences of the two runs")
        note = "The largest differences of a group; bars to the right: B takes longer, or has more."
        made.add("Where they differ", chart, note=note)
    for group, lower in TITLES.items():
        title = lower[0].upper() + lower[1:]
        mine = [row for row in rows if row["group"] == group]
        shown = [row for row in mine if row["difference"] != 0 or group in _WHOLE]
        if not mine:
            continue
        if not shown:
            made.add(title, "<p>No difference.</p>")
            continue
        cut = shown if group in _WHOLE else shown[:MOST_ROWS]
        left = len(shown) - len(cut)
        more = f'<p class="note">And {left:,} smaller ones.</p>' if left else ""
        header = ("", "A", "B", "difference", "per cent")
        made.add(title, html_table(header, [_cells(row) for row in cut]), more)
    return made.html()


def _cards(rows: Sequence[dict[str, Any]], steps: StepErrors | None) -> str:
    time = next((row for row in rows if row["group"] == "figure" and row["item"] == "makespan"), None)
    of_steps = [] if steps is None else [
        ("Steps", f"{steps.mean:.2%}", f"mean of |B / A - 1|, {steps.count} steps"),
        ("Largest", f"{steps.worst:+.2%}", f"of A: {steps.worst_step}"),
    ]  # fmt: skip
    if time is None:
        return cards_html(of_steps, first="") if of_steps else ""
    cards = [(name, "-" if time[key] is None else duration(time[key]), "") for name, key in (("A", "a"), ("B", "b"))]
    if time["difference"] is not None:
        share = f"{signed_percent(100 * time['difference'] / time['a'])} of A" if time["a"] else ""
        cards.append(("B - A", signed_duration(time["difference"]), share))
    return cards_html([*cards, *of_steps], first="")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    value, unit = row["difference"], row["unit"]
    shown = (_shown(row[key], unit, _is_ratio(row)) for key in ("a", "b"))
    if not value and value is not None:
        return escape(row["item"]), *shown, "0", ""
    if value is None:
        return escape(row["item"]), *shown, "-", ""
    if unit == "s":
        difference = signed_duration(value)
    elif unit == "1" and _is_ratio(row):
        difference = f"{100 * value:+.1f} points"
    else:
        difference = f"{value:+,.4g}"
    share = "" if not row["a"] or _is_ratio(row) else signed_percent(100 * value / row["a"])
    return (
        escape(row["item"]),
        _shown(row["a"], unit, _is_ratio(row)),
        _shown(row["b"], unit, _is_ratio(row)),
        difference,
        share,
    )


def _is_ratio(row: dict[str, Any]) -> bool:
    return bool(row["unit"] == "1" and row["item"].endswith(("efficiency", "balance", "ratio", "share", "occupancy")))


def _shown(value: float | None, unit: str, is_ratio: bool = False) -> str:
    if value is None:
        return "-"
    if is_ratio:
        return escape(percent(value))
    if unit == "s":
        return duration(value)
    if unit == "B":
        return size(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
