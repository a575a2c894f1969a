"""The anchor file of an OTF2 archive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError

_MAGIC: Final = b"\x03BOTF2"


def is_anchor(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def anchor_of(path: Path) -> Path:
    if not path.is_dir():
        if not is_anchor(path):
            raise UserError(f"{path}: byte 0: is no anchor file of an OTF2 archive; name the file NAME.otf2")
        return path
    found = sorted(filter(is_anchor, path.glob("*.otf2")))
    if len(found) != 1:
        names = f": {', '.join(file.name for file in found)}" if found else ""
        raise UserError(f"{path}: holds {len(found)} OTF2 anchor files{names}; name one")
    return found[0]
