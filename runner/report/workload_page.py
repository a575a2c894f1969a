"""What ``manyscale show`` says of a workload before anything is predicted: lines to read, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.kernel_names import function_name
from manyscale.runner.report import figures
from manyscale.runner.report.page import Page
from manyscale.runner.report.text import cards_html, duration, escape, items, notes_html, percent, size
from manyscale.runner.report.text import table as html_table
from manyscale.runner.run.questions.contents import Section, Use

MOST_ROWS: Final = 100
MOST_PRINTED: Final = 8
_LONGEST_NAME: Final = 60
_UNITS: Final = ("ps", "bytes", "ratio", "share")
_HEIGHT: Final = 340


def words(name: str) -> str:
    """The name of a fact or a column without its unit; that something is a share belongs to its name."""
    return (name.rpartition("_")[0] if _unit(name) not in ("", "share") else name).replace("_", " ")


def text(name: str, value: Any) -> str:
    """A value as its name says: a time, a size, a share, a count or a text; "-" for NaN."""
    unit = _unit(name)
    if isinstance(value, str):
        return function_name(value) if name == "kernel" else value
    if value != value:
        return "-"
    if unit == "ps":
        return duration(value * 1e-12)
    if unit == "bytes":
        return size(value)
    if unit in ("ratio", "share"):
        return percent(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _unit(name: str) -> str:
    last = name.rpartition("_")[2]
    return last if last in _UNITS and last != name else ""


def printed(sections: Sequence[Section], uses: Sequence[Use]) -> list[str]:
    """Lines to read in a terminal: of each section its figures, and the first rows of its first table."""
    lines: list[str] = []
    for section in sections:
        facts = ", ".join(
            text(name, value) if name == section.name else f"{words(name)} {text(name, value)}"
            for name, value in section.facts.items()
        )
        lines += ["", f"{section.name}: {facts}"] if lines else [f"{section.name}: {facts}"]
        for name, table in list(section.tables.items())[:1]:
            lines += _rows(table, name)
    lines += ["", "it can be given to:"]
    lines += [f"  {use.command}: {use.gives}" for use in uses if not use.lacks]
    missing: dict[str, list[str]] = {}
    for use in uses:
        if use.lacks:
            missing.setdefault(use.lacks, []).append(use.gives)
    lines += ["it lacks:"] if missing else []
    lines += [f"  {lacks}, for: {'; '.join(gives)}" for lacks, gives in missing.items()]
    return lines


def _rows(table: pa.Table, name: str) -> list[str]:
    names = table.column_names
    rows = [tuple(map(words, names))]
    for row in table.slice(0, MOST_PRINTED).to_pylist():
        rows.append(tuple(_short(text(key, value)) for key, value in row.items()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]  # fmt: skip
    left = table.num_rows - MOST_PRINTED
    return [*lines, f"  {left:,} more: {name}.parquet"] if left > 0 else lines


def _short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_NAME else f"{cell[: _LONGEST_NAME - 4]} ..."


def page(title: str, sections: Sequence[Section], uses: Sequence[Use], notes: Sequence[Note]) -> str:
    """The page. Equal sections give equal text."""
    made = Page(title, "What the trace holds, before anything is predicted.")
    for number, section in enumerate(sections):
        heading = "" if number == 0 else section.name.capitalize()
        cards = [(words(name).capitalize(), text(name, value), "") for name, value in section.facts.items()]
        parts = [cards_html(cards, first="")]
        if number == 0:
            parts.append(notes_html(notes))
        for name, table in section.tables.items():
            parts += _table(made, name, table, section.about.get(name, ""))
        made.add(heading, *parts, note=section.note)
    able = [use for use in uses if not use.lacks]
    made.add("What it can be given to", html_table(("command", "what that says"), _commands(able), text_from=0))
    lacking = [f"{use.gives[0].upper()}{use.gives[1:]}: needs {use.lacks}" for use in uses if use.lacks]
    made.add("What it lacks", items(lacking) if lacking else "")
    return made.html()


def _commands(uses: Sequence[Use]) -> list[tuple[str, str]]:
    return [(f"<code>{escape(use.command)}</code>", escape(use.gives)) for use in uses]


def _table(made: Page, name: str, table: pa.Table, about: str) -> list[str]:
    found = [f"<h3>{escape(name.replace('_', ' ').capitalize())}</h3>"]
    if about:
        found.append(f'<p class="note">{escape(about)}</p>')
    figure = figures.workload(name, table)
    if figure is not None:
        found.append(made.chart(f"show-{name}", "figure", _HEIGHT, figure, name.replace("_", " ")))
    rows = [
        [escape(text(key, value)) for key, value in row.items()] for row in table.slice(0, MOST_ROWS).to_pylist()
    ]  # fmt: skip
    found.append(html_table([escape(words(key)) for key in table.column_names], rows))
    left = table.num_rows - MOST_ROWS
    if left > 0:
        found.append(f'<p class="note">{left:,} more are in {escape(name)}.parquet.</p>')
    return found
