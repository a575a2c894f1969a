"""Pages of every kind in a browser: contrast, keyboard, narrow windows, dark mode, console, requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import page_problems
from pages import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def offers_no_upload(page: Page) -> None:
    """Plotly's own button to send a chart to its makers' server must not be there."""
    assert page.locator("[aria-label^='Share']").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_is_as_pages_must_be(browser: Browser, kind: str, tmp_path: Path, private_cache: Path) -> None:
    assert page_problems(browser, PAGES[kind](tmp_path / kind).as_uri(), offers_no_upload) == []
