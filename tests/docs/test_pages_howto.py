"""Every code block of the pages below docs/howto/ does what the page says (page_blocks.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import PageInfo
from page_params import hold_to_its_word, pages_below

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("info", pages_below("docs/howto/"))
def test_page(info: PageInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path) -> None:
    hold_to_its_word(info, tmp_path, monkeypatch, commands)
