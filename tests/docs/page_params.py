"""Parameters of the tests of pages: one each, with what the page says of itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from page_blocks import PageInfo, all_pages, run_page

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.compiler import toolkit


def pages_below(*places: str) -> list[object]:
    """The pages whose names begin with one of ``places`` and that no test of their own covers."""
    chosen = [info for info in all_pages() if info.name.startswith(places) and info.tested_by is None]
    return [pytest.param(info, id=info.name, marks=[pytest.mark.slow] if info.slow else []) for info in chosen]


def hold_to_its_word(info: PageInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path) -> None:
    """Runs the page in an empty folder; skipped, by name, where a tool that it needs is missing. ``commands``: the
    folder of its ``manyscale`` (warm_commands.py); the README's is the installed one."""
    missing = [tool for tool in info.needs if not _is_there(tool)]
    if missing:
        pytest.skip(f"{info.name} needs {', '.join(missing)}")
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run_page(info, folder, tmp_path / "cache", None if info.name == "README.md" else commands)


def _is_there(tool: str) -> bool:
    if tool != "nvcc":
        return shutil.which(tool) is not None
    try:  # pip has it beside Python's packages, not on the PATH
        toolkit()
    except UserError:
        return False
    return True
