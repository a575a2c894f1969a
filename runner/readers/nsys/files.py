"""The databases of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.runner.readers.file_order import by_numbers

_ENDINGS: Final = (".sqlite", ".sqlite3", ".db")


def files_of(path: Path) -> list[Path]:
    """Databases by their names, numbers in these by their size: ``rank10`` behind ``rank9``. Raises OSError."""
    if path.is_dir():
        found = (each for each in path.iterdir() if each.suffix in _ENDINGS and each.is_file())
        return sorted(found, key=lambda each: by_numbers(each.name))
    return [path] if path.is_file() else []
