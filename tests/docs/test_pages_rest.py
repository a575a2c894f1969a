"""Every code block of the README and of all other pages does what the page says (page_blocks.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_blocks import ROOT, PageInfo, all_pages
from page_params import hold_to_its_word, pages_below

pytestmark = pytest.mark.contract
ELSEWHERE = ("docs/tutorials/", "docs/howto/")  # test files of their own, which run beside this one
REST = pages_below(*(info.name for info in all_pages() if not info.name.startswith(ELSEWHERE)))


@pytest.mark.parametrize("info", REST)
def test_page(info: PageInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path) -> None:
    hold_to_its_word(info, tmp_path, monkeypatch, commands)


def test_a_page_that_another_test_covers_is_named_there() -> None:
    """``<!-- tested by: FILE -->`` is no way to leave a page out."""
    for info in all_pages():
        if info.tested_by is not None:
            parts = re.findall(r'"([^"/]+)"', (ROOT / info.tested_by).read_text())
            assert info.path.name in parts, f"{info.name}: {info.tested_by} does not open it"
