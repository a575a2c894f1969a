"""The page around a report: HTML with style, script, data and plotly inside, so that it opens from anywhere.

Plotly's script stands in the page compressed, or in a file that the pages of a run directory share. The page's content
policy forbids it to fetch anything else: only scripts with the page's own nonce run, a checksum of its content.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from manyscale.runner.report.palette import COLOURS, LINE_DASHES, line_style
from manyscale.runner.report.text import embedded_json, escape, swatch_style
from manyscale.runner.run import script as plotly

_COMPRESSION: Final = 4  # 4 per cent smaller at twice the time
_AS_GZIP: Final = 16 + zlib.MAX_WBITS
WITHOUT_CHARTS: Final = (
    '<p class="note">The charts are left out: Plotly was not installed where this page was written. The tables are '
    "whole.</p>",
    "<style>.chart, .legend { display: none }</style>",
)


@dataclass
class Page:
    """Sections in order and the data of their charts, by the id of the element that holds the chart."""

    title: str
    subtitle: str
    sections: list[str] = field(default_factory=list)
    charts: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, heading: str, *parts: str, note: str = "") -> None:
        """A section; ``heading`` and ``note`` are text, ``parts`` are HTML. Nothing where all of these are empty."""
        if not any(parts) and not note:
            return
        explanation = f'<p class="note">{escape(note)}</p>' if note else ""
        head = f"<h2>{escape(heading)}</h2>" if heading else ""
        self.sections.append(f"<section>{head}{explanation}{''.join(parts)}</section>")

    def chart(self, element: str, kind: str, height: int, content: Mapping[str, Any], label: str) -> str:
        """HTML of a chart that the page's script draws: ``kind`` is a function there, ``content`` its data."""
        self.charts[element] = {"kind": kind, **content}
        return (
            f'<div class="chart"><div class="controls" id="{element}-controls"></div>'
            f'<div id="{element}" style="height:{height}px" role="figure" aria-label="{escape(label)}"></div></div>'
        )

    def html(self, script: str = "") -> str:
        """The whole file. ``script``: where plotly's script is, as seen from the page; without, it is in the page, or,
        where plotly is not installed, the page has no charts and says so."""
        return "".join(self._pieces(script))

    def write(self, path: Path, script: str = "") -> None:
        """Write the file, of which there is no second copy in memory."""
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(self._pieces(script))

    def _pieces(self, script: str) -> Iterator[str]:
        assets = files(__package__)
        style = assets.joinpath("report.css").read_text(encoding="utf-8")
        own = assets.joinpath("report.js").read_text(encoding="utf-8")
        draws = bool(self.charts) and (bool(script) or plotly.is_installed())
        data = embedded_json(self.charts) if draws else ""
        body = [
            f"<title>{escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n",
            f'<header><h1>{escape(self.title)}</h1><p class="subtitle">{escape(self.subtitle)}</p></header>\n',
            *(f"{line}\n" for line in (WITHOUT_CHARTS if self.charts and not draws else ())),
            *(piece for section in self.sections for piece in (section, "\n")),
            "</main>\n",
            '<noscript><p class="note">The charts need JavaScript; the tables do not.</p></noscript>' * draws,
        ]
        checksum = hashlib.sha256()
        for piece in (*body, data, own, script):
            checksum.update(piece.encode(errors="backslashreplace"))
        nonce = checksum.hexdigest()[:32]
        yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        yield '<meta name="color-scheme" content="light dark">\n'
        yield '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        yield f"script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:\">\n"
        yield from body
        if draws:
            yield from ('\n<script type="application/json" id="charts">', data, "</script>\n")
            if script:
                yield f'<script id="plotly" nonce="{nonce}" src="{escape(script)}"></script>'
            else:
                yield from ('<script type="application/octet-stream" id="plotly">', _packed_plotly(), "</script>")
            yield f'\n<script nonce="{nonce}">\n{own}</script>'
        yield "\n</body>\n</html>\n"


@cache
def _packed_plotly() -> str:
    """Base64 of plotly's script, compressed by gzip."""
    packer = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, _AS_GZIP)
    packed = [packer.compress(piece) for piece in plotly.pieces()]
    return base64.b64encode(b"".join((*packed, packer.flush()))).decode()


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Swatches with their names, given as (category, text)."""
    return colour_legend([(COLOURS[key], text) for key, text in entries])


def colour_legend(entries: Sequence[tuple[str, str]]) -> str:
    """Swatches with their names, given as (colour, text)."""
    parts = (f'<span><i style="{swatch_style(colour)}"></i>{escape(text)}</span>' for colour, text in entries)
    return f'<div class="legend">{"".join(parts)}</div>'


def line_legend(names: Sequence[str]) -> str:
    """The lines of a chart with their names."""
    dashes = dict(LINE_DASHES)
    parts = []
    for index, name in enumerate(names):
        colour, dash = line_style(index)
        stroke = f'stroke-width="2.5" stroke-dasharray="{dashes[dash]}"'
        line = f'<line x1="0" y1="6" x2="36" y2="6" {stroke}/>'
        paint = f"stroke:var(--c-{colour[1:]},{colour})"
        parts.append(f'<span><svg width="36" height="12" style="{paint}">{line}</svg> {escape(name)}</span>')
    return f'<div class="legend">{"".join(parts)}</div>'
