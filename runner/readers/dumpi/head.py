"""How the files of a DUMPI trace begin."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAGIC: Final = b"\xff\xaa\xddDUMPI"
_LONGEST_META: Final = 1 << 16


def is_rank_file(path: Path) -> bool:
    """Whether a file starts as DUMPI files do."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def is_meta(path: Path) -> bool:
    try:
        return path.is_file() and bool({"fileprefix", "numprocs"} <= read_meta(path).keys())
    except (OSError, UnicodeDecodeError):
        return False


def read_meta(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        lines = file.read(_LONGEST_META).decode().splitlines()
    return {key.strip(): value.strip() for key, is_there, value in (line.partition("=") for line in lines) if is_there}
