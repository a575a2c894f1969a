"""The script that draws charts, plotly's: where it is installed, and the file of it that the pages of one run directory
share."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError

NAME: Final = "plotly.min.js"


@cache
def content() -> bytes:
    """The script. Raises UserError where plotly is not installed, or has no such file.

    It is read without importing plotly, which takes longer than to draw a page.
    """
    found = find_spec("plotly")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, "package_data", NAME)
        if path.is_file():
            return path.read_bytes()
    raise UserError("reports need plotly, which is not installed: pip install plotly; or leave them out (--no-report)")


def share(directory: Path, is_shared: bool) -> None:
    """Write the file that the pages in and below ``directory`` share, unless it is there; or remove it."""
    path = directory / NAME
    if not is_shared:
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.stat().st_size != len(content()):
        path.write_bytes(content())


def is_shared(directory: Path) -> bool:
    """Whether pages in ``directory`` share the file."""
    return (directory / NAME).is_file()
