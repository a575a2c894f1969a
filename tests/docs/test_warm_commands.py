"""The pages' quick ``manyscale`` is to a shell what the installed one is."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import PageRun, page_environment

pytestmark = [pytest.mark.contract, pytest.mark.slow]

TEXT = """
manyscale run no-such-example || echo "status $?"
mkdir -p below; touch below/no-trace; cd below
manyscale show no-trace 2>&1 | tail -n 1
COLUMNS=60 manyscale examples --help
PYTHONWARNINGS=error manyscale --version
manyscale no-such-command
"""


def test_statuses_streams_folder_and_environment_are_alike(commands: Path, tmp_path: Path) -> None:
    installed = PageRun(tmp_path, page_environment(tmp_path / "cache"))
    quick = PageRun(tmp_path, installed.environment | {"PATH": f"{commands}:{installed.environment['PATH']}"})
    assert quick.shell("command -v manyscale") == (0, f"{commands}/manyscale\n")
    status, told = quick.shell(TEXT)
    assert (status, told) == installed.shell(TEXT)
    assert status == 2
    assert "status 2\n" in told
