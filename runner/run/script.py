"""The script that draws charts, plotly's: where it is installed, and the file of it that the pages of one run directory
share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from manyscale.runner import extras
from manyscale.runner.errors import UserError

NAME: Final = "plotly.min.js"
_PIECE_BYTES: Final = 1 << 16
_is_told = False


@cache
def _source() -> Path | None:
    """Where the script is installed, found without importing plotly, which takes longer than to draw a page."""
    found = find_spec("plotly") if extras.is_installed("plotly") else None
    paths = (Path(folder, "package_data", NAME) for folder in (found and found.submodule_search_locations) or ())
    return next((path for path in paths if path.is_file()), None)


def is_installed() -> bool:
    """Whether charts can be drawn. If not, pages are written without them, which is said once."""
    global _is_told
    if _source() is None and not _is_told:
        _is_told = True
        line = f"charts are left out of pages: Plotly is not installed ({extras.INSTALL['plotly']})"
        print(f"manyscale: {line}", file=sys.stderr, flush=True)
    return _source() is not None


def content() -> bytes:
    """The script. Raises UserError where plotly is not installed, or has no such file."""
    return b"".join(pieces())


def pieces() -> Iterator[bytes]:
    """The same, some at a time."""
    source = _source()
    if source is None:
        extras.require("plotly", "drawing")
        raise UserError(f"plotly is installed without its {NAME}: pip install --force-reinstall plotly")
    with source.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def share(directory: Path, is_shared: bool) -> None:
    """Write the file that the pages in and below ``directory`` share, unless it is there; or remove it. Without plotly
    there is none to share."""
    path = directory / NAME
    if not is_shared or not is_installed():
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.read_bytes() != content():
        path.write_bytes(content())


def is_shared(directory: Path) -> bool:
    """Whether pages in ``directory`` share the file."""
    return (directory / NAME).is_file()
