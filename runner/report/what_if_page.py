"""The page of ``manyscale what-if``: how each what-if changes the predicted time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, signed_duration
from manyscale.runner.report.text import table as html_table

_BASE = "base"
_FIXED = ("point_id", "what_if", "makespan_seconds", "base_seconds", "change_seconds", "speedup")
_MEANINGS = {
    "ideal-network": "no latency, infinite bandwidth, no contention, no overheads of messages",
    "zero-latency": "no latency on any route",
    "infinite-bandwidth": "no time for bytes on any route",
    "perfect-balance": "every rank computes as long as the mean of all",
}


def page(table: pa.Table, title: str, notes: Sequence[Note] = ()) -> str:
    """The page of a table of ``what_if.parquet``. Equal tables give equal text."""
    rows = table.to_pylist()
    others = [name for name in table.column_names if name not in _FIXED]
    asked = [row for row in rows if row["what_if"] != _BASE]
    made = Page(title, f"Predicted time under {len({row['what_if'] for row in asked})} what-ifs, against the base.")
    made.add("", _cards(rows, asked), notes_html(notes))
    if asked:
        height = 110 + 34 * len({row["what_if"] for row in rows}) * max(1, len(rows) // max(len(asked), 1))
        chart = made.chart("what-if", "figure", height, figures.what_if(table), "change of the predicted time")
        made.add(
            "How much it would change",
            chart,
            note="Bars to the left: less time than the base. A what-if says what the most is that could be gained "
            "there, not how to gain it; what two of them gain does not add up.",
        )
    header = (*map(escape, others), "what if", "predicted time", "change", "per cent", "speed-up")
    made.add("All what-ifs", html_table(header, [_cells(row, others) for row in rows], numeric_from=len(others) + 1))
    return made.html()


def _cards(rows: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]]) -> str:
    base = [row["makespan_seconds"] for row in rows if row["what_if"] == _BASE]
    cards = (
        [("Predicted time of the base", " to ".join(map(duration, sorted({min(base), max(base)}))), "")] if base else []
    )
    known = [row for row in asked if row["speedup"] is not None]
    if known:
        best = max(known, key=lambda row: row["speedup"])
        share = f"{100 * (1 / best['speedup'] - 1):+.1f} %" if best["speedup"] else "-"
        cards.append(("Most is gained by", best["what_if"], f"{share}, {best['speedup']:.3f} times as fast"))
    return cards_html(cards)


def _cells(row: dict[str, Any], others: Sequence[str]) -> tuple[str, ...]:
    change, base, speedup = row["change_seconds"], row["base_seconds"], row["speedup"]
    is_base = row["what_if"] == _BASE
    meaning = _MEANINGS.get(row["what_if"])
    name = escape(row["what_if"]) + (f'<span class="meaning">{escape(meaning)}</span>' if meaning else "")
    return (
        *(escape(row[other]) for other in others),
        name,
        duration(row["makespan_seconds"]),
        "" if is_base or change is None else signed_duration(change),
        "" if is_base or change is None or not base else f"{100 * change / base:+.1f} %",
        "" if speedup is None else f"{speedup:.3f}",
    )
