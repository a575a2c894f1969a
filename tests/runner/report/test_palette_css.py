"""Every colour of a chart is known to the style sheet in the light and in the dark, and text can be read on both."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from manyscale.runner import report
from manyscale.runner.report.palette import COLORSCALE, COLOURS, LINE_COLOURS

pytestmark = pytest.mark.contract
CSS = files(report).joinpath("report.css").read_text(encoding="utf-8")
LIGHT, DARK = CSS.split("@media screen and (prefers-color-scheme: dark)")[:2]


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text))


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_of_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)  # WCAG 2.1, the most there is
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_every_colour_of_a_chart_has_one_for_dark_pages() -> None:
    folder = Path(str(files(report)))
    used = {
        colour
        for file in folder.rglob("*.py")
        for colour in re.findall(r'"(#[0-9a-f]{6})"', file.read_text(encoding="utf-8"))
    }
    assert used >= {*COLOURS.values(), *LINE_COLOURS, *(colour for _, colour in COLORSCALE)}
    for part in (LIGHT, DARK):
        assert {f"c-{colour[1:]}" for colour in used} <= set(variables(part))
    for name, colour in variables(LIGHT).items():
        if name.startswith("c-"):
            assert name == f"c-{colour[1:]}", "in the light a colour is itself"


@pytest.mark.parametrize("part", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(part: str) -> None:
    """WCAG 2.1, level AA: 4.5 to 1."""
    known = variables(part)
    for ground in ("paper", "ground"):
        for name in ("ink", "soft", "accent"):
            assert contrast(known[name], known[ground]) >= 4.5, (name, ground)
    assert contrast(known["on-accent"], known["accent"]) >= 4.5
    assert contrast(known["ink"], known["warn"]) >= 4.5
    for bar in ("c-b34f00", "c-0072b2"):  # with text on them, in the colour of the page
        assert contrast(known[bar], known["c-ffffff"]) >= 4.5


def test_lines_stand_out_on_dark_pages() -> None:
    """WCAG 2.1, success criterion 1.4.11: 3 to 1 for what a picture consists of."""
    known = variables(DARK)
    for colour in LINE_COLOURS:
        assert contrast(known[f"c-{colour[1:]}"], known["paper"]) >= 3.0, colour
