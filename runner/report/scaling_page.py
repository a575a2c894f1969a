"""The page of ``manyscale scaling``: how an application's time changes with the number of ranks and cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.figures.scaling import size_column
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, percent
from manyscale.runner.report.text import table as html_table

_RATIOS: Final = {
    "efficiency": "efficiency of the speed-up",
    "parallel_efficiency": "parallel efficiency",
    "load_balance": "load balance",
    "communication_efficiency": "communication efficiency",
}


def page(table: pa.Table, title: str, notes: Sequence[Note] = ()) -> str:
    """The page of a table with a row per run: label, num_ranks, num_cores, makespan_s, speed_up, efficiency,
    parallel_efficiency, load_balance, communication_efficiency (null where unknown; a column of nulls is left out).
    Equal tables give equal text."""
    rows = table.to_pylist()
    size = size_column(table)
    what = "cores" if size == "num_cores" else "ranks"
    made = Page(title, f"{len(rows):,} runs on different numbers of {what}.")
    made.add("", _cards(rows, size, what), notes_html(notes))
    if len(rows) > 1:
        chart = made.chart("scaling", "figure", 420, figures.scaling(table), f"speed-up over the number of {what}")
        note = "Dotted: as many times faster as there are times more. Buttons show the efficiency and the times."
        made.add("Scaling", chart, note=note)
    known = [name for name in _RATIOS if any(row[name] is not None for row in rows)]
    header = ("run", "ranks", "cores", "predicted time", "speed-up", *(_RATIOS[name] for name in known))
    cells = [
        (
            escape(row["label"]), _count(row["num_ranks"]), _count(row["num_cores"]),
            "-" if row["makespan_s"] is None else duration(row["makespan_s"]),
            "-" if row["speed_up"] is None else f"{row['speed_up']:.4g}",
            *("-" if row[name] is None else escape(percent(row[name])) for name in known),
        )
        for row in rows
    ]  # fmt: skip
    made.add("All runs", html_table(header, cells))
    return made.html()


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _cards(rows: Sequence[dict[str, Any]], size: str, what: str) -> str:
    known = [row for row in rows if row["makespan_s"] is not None and row[size]]
    if not known:
        return "<p>No run has a time.</p>"
    fastest, most = min(known, key=lambda row: row["makespan_s"]), max(known, key=lambda row: row[size])
    cards = [("Fastest", duration(fastest["makespan_s"]), f"{fastest[size]:,} {what}")]
    if most["speed_up"] is not None:
        share = "" if most["efficiency"] is None else f", efficiency {percent(most['efficiency'])}"
        cards.append((f"Speed-up on {most[size]:,} {what}", f"{most['speed_up']:.4g}", f"over the fewest{share}"))
    return cards_html(cards)
