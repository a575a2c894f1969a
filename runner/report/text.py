"""Text of the report: numbers with fitting units, escaped HTML, tables."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from manyscale.models.workload.notes import Note, Severity


def escape(text: object) -> str:
    """Text as HTML, quotes included."""
    return html.escape(str(text), quote=True)


def swatch_style(colour: str) -> str:
    """Style of something of a chart's colour, which report.css changes on a dark page."""
    return f"background:var(--c-{colour[1:]},{colour})"


def time_unit(seconds: float) -> tuple[float, str]:
    """The largest of s, ms, us, ns in which the time is at least 1: its length in s, and its name."""
    for length, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= length:
            return length, unit
    return 1e-9, "ns"


def duration(seconds: float) -> str:
    """Four significant digits with a fitting unit, such as 36.96 ms; from 1,000 s on whole seconds."""
    if seconds == 0:
        return "0 s"
    length, unit = time_unit(seconds)
    value = seconds / length
    return f"{value:,.0f} {unit}" if abs(value) >= 999.95 else f"{value:#.4g} {unit}"


def signed_duration(seconds: float) -> str:
    """A difference of times, such as +36.96 ms."""
    return ("+" if seconds > 0 else "") + duration(seconds)


def size(num_bytes: float) -> str:
    """Bytes with a decimal prefix, four significant digits."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.4g} {unit}"
    return f"{num_bytes:.4g} B"


def binary_size(num_bytes: int) -> str:
    """Bytes with a binary prefix where that is exact: 64 KiB, 1,000 B."""
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= factor and num_bytes % factor == 0:
            return f"{num_bytes // factor:,} {unit}"
    return f"{num_bytes:,} B"


def percent(ratio: float, half_width: float | None = None) -> str:
    """One decimal, such as 93.2 %; what would show as 0.0 % though it is more, as < 0.1 %. ``half_width`` of an
    interval stands behind it, as in 93.2 % ± 1.3."""
    text = "< 0.1 %" if 0 < ratio < 0.0005 else f"{100 * ratio:.1f} %"
    return text if half_width is None else f"{text} ± {min(100 * half_width, 100):.1f}"


def signed_percent(per_cent: float) -> str:
    """A change in per cent with one decimal, such as +3.2 %; one digit of what would show as 0.0 though it is more."""
    if per_cent == 0:
        return "0 %"
    return f"{per_cent:+.1f} %" if abs(per_cent) >= 0.05 else f"{per_cent:+.1g} %"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numeric_from: int = 1, text_from: int = 99, css: str = ""
) -> str:
    """A table of cells that are HTML already; columns from ``numeric_from`` to before ``text_from`` are aligned
    right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        parts = []
        for i, cell in enumerate(cells):
            kind = tag if cell else "td"  # a heading without text is none
            place = " class=number" if numeric_from <= i < text_from else ""
            parts.append(f"<{kind}{place}>{cell}</{kind}>")
        return f"<tr>{''.join(parts)}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    head = f"<thead>{line('th', header)}</thead>" if header else ""
    # the box scrolls where the table is wider than the page, by the keyboard, too
    box = '<div class="scroll" tabindex="0" role="region" aria-label="table">'
    return f'{box}<table class="{css}">{head}\n<tbody>\n{body}\n</tbody></table></div>'


def cards_html(cards: Sequence[tuple[str, str, str]], *, first: str = " first") -> str:
    """Cards of (label, value, more), the first one of a class of its own."""
    return '<div class="cards">' + "".join(
        f'<div class="card{first if i == 0 else ""}"><div class="label">{escape(label)}</div>'
        f'<div class="value">{escape(value)}</div><div class="exact">{escape(more)}</div></div>'
        for i, (label, value, more) in enumerate(cards)
    ) + "</div>"  # fmt: skip


def side_by_side(*charts: str) -> str:
    """Charts beside each other, where the page is wide enough."""
    return f'<div class="pair level">{"".join(f"<div>{chart}</div>" for chart in charts)}</div>'


def items(texts: Iterable[object]) -> str:
    """A list of texts, escaped here."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def notes_html(notes: Sequence[Note]) -> str:
    """A box of notes, most severe first; those that only inform can be opened."""
    severe = [note for note in notes if note.severity is not Severity.informs]
    others = [note for note in notes if note.severity is Severity.informs]
    found = f'<div class="notes"><strong>What the number leaves out or guesses</strong>{items(severe)}</div>'
    more = f"<details><summary>{len(others)} more to know</summary>{items(others)}</details>"
    return (found if severe else "") + (more if others else "")


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element: no text in it can end the element."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).replace("<", "\\u003c")


def packed(values: np.ndarray, dtype: str) -> str:
    """Base64 of the values in little-endian order, for a typed array in the page."""
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()
