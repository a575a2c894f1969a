"""The page of ``manyscale scaling``: how an application's time changes with the number of ranks and cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.figures.scaling import size_column
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, percent
from manyscale.runner.report.text import table as html_table
from manyscale.runner.run.questions.factors import THREAD, pop_factors


def page(table: pa.Table, title: str, notes: Sequence[Note] = ()) -> str:
    """The page of a table with a row per run: label, num_ranks, num_cores, makespan_s, speed_up, efficiency,
    and the factors of parallel efficiency (null where unknown; a column of nulls is left out). Equal tables give equal
    text."""
    rows = table.to_pylist()
    size = size_column(table)
    what = "cores" if size == "num_cores" else "ranks"
    made = Page(title, f"{len(rows):,} runs on different numbers of {what}.")
    made.add("", _cards(rows, size, what), notes_html(notes))
    if len(rows) > 1:
        chart = made.chart("scaling", "figure", 420, figures.scaling(table), f"speed-up over the number of {what}")
        note = "Dotted: as many times faster as there are times more. Buttons show the efficiency and the times."
        made.add("Scaling", chart, note=note)
        factors = figures.scaling_factors(table)
        if factors["data"]:
            chart = made.chart("factors", "figure", 420, factors, f"efficiencies over the number of {what}")
            note = (
                "Parallel efficiency counts all cores. It is the product of processes and threads, where ranks have "
                "several cores, and each of these is the product of its own factors: a factor of 100 % costs nothing."
            )
            made.add("Why: the factors of parallel efficiency", chart, note=note)
    ratios = {"efficiency": "efficiency of the speed-up"}
    factors_of = pop_factors(rows)
    has_threads = any(each.name == THREAD for each in factors_of)  # so many columns that each has one word
    ratios |= {each.name: each.alone if has_threads else each.label.lower() for each in factors_of}
    if has_threads:
        ratios["efficiency"] = "of the speed-up"
    known = [name for name in ratios if any(row.get(name) is not None for row in rows)]
    header = ("run", "ranks", "cores", "predicted time", "speed-up", *(ratios[name] for name in known))
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
    if most["parallel_efficiency"] is not None and any(each.name == THREAD for each in pop_factors(rows)):
        parts = f"= processes {percent(most['process_efficiency'])} x threads {percent(most['thread_efficiency'])}"
        cards.append(("Parallel efficiency there", percent(most["parallel_efficiency"]), parts))
    return cards_html(cards)
