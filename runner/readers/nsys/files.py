"""The databases of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ENDINGS: Final = (".sqlite", ".sqlite3", ".db")


def files_of(path: Path) -> list[Path]:
    """Databases, by name. Raises OSError."""
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix in _ENDINGS and each.is_file())
    return [path] if path.is_file() else []
