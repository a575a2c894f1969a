"""Colours, dashes, markers and axes of all charts."""

from __future__ import annotations

from typing import Any, Final

# Colours that remain distinct for colour-blind readers: Okabe and Ito, "Color Universal Design" (2008), and a light
# grey for what is not there. report.css says what each becomes on a dark page.
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
LONGER: Final = "#b34f00"  # of bars with text on them: more time than before, and less
SHORTER: Final = "#0072b2"
GREY: Final = "#8a95a1"  # what is there to compare with
# plotly's name of a dash, and SVG's
LINE_DASHES: Final = (("solid", ""), ("dash", "8 4"), ("dot", "2 3"), ("dashdot", "8 3 2 3"))
LINE_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
BAR_PATTERNS: Final = ("", "/", ".", "x")  # of bars, where lines have dashes
# from light to dark, in even steps of lightness
COLORSCALE: Final = [
    [0.0, "#e8f1f8"], [0.25, "#a9cfe6"], [0.5, "#56a3cf"], [0.75, "#1f6fa8"], [1.0, "#08306b"],
]  # fmt: skip
LOGARITHMIC_FROM: Final = 20.0  # ratio of an axis's largest value to its smallest


def line_style(index: int) -> tuple[str, str]:
    """Colour and dash of the index-th line of a chart; they repeat after 28."""
    return LINE_COLOURS[index % len(LINE_COLOURS)], LINE_DASHES[index // len(LINE_COLOURS) % len(LINE_DASHES)][0]


def line_symbol(index: int) -> str:
    """Marker of the index-th line of a chart; together with colours the markers repeat after 56 lines."""
    return LINE_SYMBOLS[index % len(LINE_SYMBOLS)]


def bar_marker(index: int) -> dict[str, Any]:
    """Marker of the index-th group of bars: the colour of the line of that index, and a pattern where that has a
    dash."""
    pattern = BAR_PATTERNS[index // len(LINE_COLOURS) % len(BAR_PATTERNS)]
    return {"color": line_style(index)[0], **({"pattern": {"shape": pattern}} if pattern else {})}


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """A chart's axis."""
    return {"title": {"text": title}, **settings}


def is_wide(values: list[float]) -> bool:
    """Whether positive values span so much that an axis of them is logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= LOGARITHMIC_FROM
