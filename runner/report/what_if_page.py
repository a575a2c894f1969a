"""The page of ``manyscale what-if``: how each what-if changes the predicted time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.report import figures
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, duration, escape, notes_html, signed_duration, signed_percent
from manyscale.runner.report.text import table as html_table
from manyscale.runner.run import script
from manyscale.runner.study import what_if

_BASE = "base"
_FIXED = ("point_id", "what_if", "makespan_seconds", "base_seconds", "change_seconds", "speedup")
_MEANINGS = {
    "ideal-network": "no latency, infinite bandwidth, no contention, no overheads of messages",
    "zero-latency": "no latency on any route",
    "infinite-bandwidth": "no time for bytes on any route",
    "perfect-balance": "every rank computes as long as the mean of all",
}


def write_sweep(
    sweep_table: pa.Table, axes: list[str], directory: Path, title: str, notes: Sequence[Note] = ()
) -> None:
    """Write ``report.html`` of a sweep over what-ifs; what-ifs link to reports of their own where these are."""
    pages = {int(page.parent.name) for page in (directory / "points").glob("*/report.html")}
    made = _page(what_if.table(sweep_table, axes), f"What-ifs of {title}", notes, pages)
    text = made.html(script.NAME if script.is_shared(directory) else "")
    (directory / "report.html").write_text(text, encoding="utf-8", errors="backslashreplace")


def page(table: pa.Table, title: str, notes: Sequence[Note] = ()) -> str:
    """The page of a table of ``what_if.parquet``, with all that it needs. Equal tables give equal text."""
    return _page(table, title, notes, ()).html()


def _page(table: pa.Table, title: str, notes: Sequence[Note], pages: Collection[int]) -> Page:
    rows = table.to_pylist()
    others = [name for name in table.column_names if name not in _FIXED]
    asked = [row for row in rows if row["what_if"] != _BASE]
    made = Page(title, f"Predicted time under {len({row['what_if'] for row in asked})} what-ifs, against the base.")
    made.add("", _cards(rows, asked), notes_html(notes))
    if asked:
        figure = figures.what_if(table)
        chart = made.chart("what-if", "figure", figure["layout"]["height"], figure, "change of the predicted time")
        made.add(
            "How much it would change",
            chart,
            note="Bars to the left: less time than the base. A what-if says what the most is that could be gained "
            "there, not how to gain it; what two of them gain does not add up.",
        )
    header = (*map(escape, others), "what if", "predicted time", "change", "per cent", "speed-up")
    cells = [_cells(row, others, row["point_id"] in pages) for row in rows]
    made.add("All what-ifs", html_table(header, cells, numeric_from=len(others) + 1))
    return made


def _cards(rows: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]]) -> str:
    base = [row["makespan_seconds"] for row in rows if row["what_if"] == _BASE]
    cards = (
        [("Predicted time of the base", " to ".join(map(duration, sorted({min(base), max(base)}))), "")] if base else []
    )
    known = [row for row in asked if row["speedup"] is not None]
    if known:
        best = max(known, key=lambda row: row["speedup"])
        share = signed_percent(100 * (1 / best["speedup"] - 1)) if best["speedup"] else "-"
        cards.append(("Most is gained by", best["what_if"], f"{share}, {best['speedup']:.3f} times as fast"))
    return cards_html(cards)


def _cells(row: dict[str, Any], others: Sequence[str], has_links: bool) -> tuple[str, ...]:
    change, base, speedup = row["change_seconds"], row["base_seconds"], row["speedup"]
    is_base = row["what_if"] == _BASE
    meaning = _MEANINGS.get(row["what_if"])
    name = escape(row["what_if"])
    if has_links:
        name = f'<a href="points/{row["point_id"]:04d}/report.html">{name}</a>'
    name += f'<span class="meaning">{escape(meaning)}</span>' if meaning else ""
    return (
        *(escape(row[other]) for other in others),
        name,
        duration(row["makespan_seconds"]),
        "" if is_base or change is None else signed_duration(change),
        "" if is_base or change is None or not base else signed_percent(100 * change / base),
        "" if speedup is None else f"{speedup:.3f}",
    )
