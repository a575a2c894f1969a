"""What tests of pages share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_commands
from page_blocks import page_environment


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder for the PATH, whose ``manyscale`` starts at once."""
    with (
        tempfile.TemporaryDirectory(prefix="warm-", dir="/tmp") as name,  # a short path: a socket stands there
        warm_commands.warm_commands(Path(name), page_environment(Path(name, "cache"))) as folder,
    ):
        yield folder
