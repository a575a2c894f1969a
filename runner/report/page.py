"""The page around a report: one HTML file with style, script, plotly and data inside, so that it opens from anywhere.

The page's content policy forbids it to fetch anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from manyscale.runner.report.text import embedded_json, escape

# Colours that remain distinct for colour-blind readers: Okabe and Ito, "Color Universal Design" (2008), and a light
# grey for what is not there.
COLOURS: Final = {
    "compute": "#0072b2",
    "send": "#e69f00",
    "receive": "#56b4e9",
    "wait": "#d55e00",
    "collective": "#cc79a7",
    "overhead": "#009e73",
    "idle": "#e3e6ea",
}
LINE_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
# plotly's name of a dash, and SVG's
LINE_DASHES: Final = (("solid", ""), ("dash", "8 4"), ("dot", "2 3"), ("dashdot", "8 3 2 3"))


@dataclass
class Page:
    """Sections in order and the data of their charts, by the id of the element that holds the chart."""

    title: str
    subtitle: str
    sections: list[str] = field(default_factory=list)
    charts: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, heading: str, *parts: str, note: str = "") -> None:
        """A section; ``heading`` and ``note`` are text, ``parts`` are HTML."""
        explanation = f'<p class="note">{escape(note)}</p>' if note else ""
        head = f"<h2>{escape(heading)}</h2>" if heading else ""
        self.sections.append(f"<section>{head}{explanation}{''.join(parts)}</section>")

    def chart(self, element: str, kind: str, height: int, content: Mapping[str, Any], label: str) -> str:
        """HTML of a chart that the page's script draws: ``kind`` is a function there, ``content`` its data."""
        self.charts[element] = {"kind": kind, **content}
        return (
            f'<div class="chart"><div class="controls" id="{element}-controls"></div>'
            f'<div id="{element}" style="height:{height}px" role="img" aria-label="{escape(label)}"></div></div>'
        )

    def html(self) -> str:
        """The whole file."""
        from plotly.offline import get_plotlyjs

        assets = files(__package__)
        style = assets.joinpath("report.css").read_text(encoding="utf-8")
        script = assets.joinpath("report.js").read_text(encoding="utf-8")
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
                "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">",
                f"<title>{escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>",
                f'<header><h1>{escape(self.title)}</h1><p class="subtitle">{escape(self.subtitle)}</p></header>',
                *self.sections,
                "</main>",
                '<noscript><p class="note">The charts need JavaScript; the tables do not.</p></noscript>',
                f'<script type="application/json" id="charts">{embedded_json(self.charts)}</script>',
                f'<script id="plotly">{get_plotlyjs()}</script>',
                f"<script>\n{script}</script>\n</body>\n</html>\n",
            ]
        )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Swatches with their names, given as (category, text)."""
    parts = (f'<span><i style="background:{COLOURS[key]}"></i>{escape(text)}</span>' for key, text in entries)
    return f'<div class="legend">{"".join(parts)}</div>'


def line_style(index: int) -> tuple[str, str]:
    """Colour and dash of the index-th line of a chart; they repeat after 28."""
    return LINE_COLOURS[index % len(LINE_COLOURS)], LINE_DASHES[index // len(LINE_COLOURS) % len(LINE_DASHES)][0]


def line_legend(names: Sequence[str]) -> str:
    """The lines of a chart with their names."""
    dashes = dict(LINE_DASHES)
    parts = []
    for index, name in enumerate(names):
        colour, dash = line_style(index)
        stroke = f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dashes[dash]}"'
        line = f'<line x1="0" y1="5" x2="30" y2="5" {stroke}/>'
        parts.append(f'<span><svg width="30" height="10">{line}</svg> {escape(name)}</span>')
    return f'<div class="legend">{"".join(parts)}</div>'


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """A chart's axis."""
    return {"title": {"text": title}, **settings}
