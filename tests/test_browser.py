"""The checks of pages find what they are for: a page with each fault is found, one without is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import NARROW, accessibility, keyboard, overflow, page_problems, visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

GOOD = """<!DOCTYPE html><html lang="en"><head><title>Good</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root { color-scheme: light dark; } body { background: Canvas; color: CanvasText; }
:focus-visible { outline: 3px solid; }</style></head>
<body><main><h1>Good</h1><button>One</button> <a href="#two" style="color: inherit">Two</a></main></body></html>"""


def page_of(folder: Path, old: str = "", new: str = "") -> str:
    """The address of the good page, or of one in which a part is replaced."""
    assert old in GOOD
    path = folder / "page.html"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    return path.as_uri()


@pytest.mark.slow
def test_a_good_page_has_no_problems(browser: Browser, tmp_path: Path) -> None:
    assert page_problems(browser, page_of(tmp_path)) == []


def test_low_contrast_is_found(browser: Browser, tmp_path: Path) -> None:
    address = page_of(tmp_path, "<h1>Good</h1>", '<p style="color:#999;background:#fff">pale</p>')
    with visit(browser, address) as visited:
        assert any("color-contrast" in line for line in accessibility(visited.page))


@pytest.mark.slow
def test_low_contrast_in_dark_mode_alone_is_found(browser: Browser, tmp_path: Path) -> None:
    address = page_of(tmp_path, "</style>", "@media (prefers-color-scheme: dark) { h1 { color: #333; } }</style>")
    found = page_problems(browser, address)
    assert found
    assert all("dark: color-contrast" in line for line in found)


def test_a_page_wider_than_a_telephone_is_found(browser: Browser, tmp_path: Path) -> None:
    address = page_of(tmp_path, "<h1>Good</h1>", '<div style="width:500px">wide</div>')
    with visit(browser, address, width=NARROW) as visited:
        assert overflow(visited.page)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("outline: 3px solid", "outline: none", "focus is not visible: button"),
        ("outline: 3px solid", "outline: 3px solid #eee", "focus is not visible: button"),
        ("<main>", '<main style="opacity: 0.4">', "focus is not visible: button"),
        ("<button>", '<button onfocus="this.blur()">', "not reached by Tab: a"),
    ],
)
def test_what_the_keyboard_cannot_reach_or_show_is_found(
    browser: Browser, tmp_path: Path, old: str, new: str, said: str
) -> None:
    with visit(browser, page_of(tmp_path, old, new)) as visited:
        assert any(line.startswith(said) for line in keyboard(visited.page))


def test_errors_and_requests_are_found(browser: Browser, tmp_path: Path) -> None:
    script = '<script>fetch("http://192.0.2.1/").catch(() => 0); throw new Error("amiss");</script></main>'
    with visit(browser, page_of(tmp_path, "</main>", script)) as visited:
        assert any("amiss" in line for line in visited.errors)
        assert visited.outside() == ["http://192.0.2.1/"]
