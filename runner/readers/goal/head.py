"""How a GOAL schedule begins, and which file of a folder is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 1 << 16
BINARY: Final = (4223).to_bytes(8, "little"), (2342).to_bytes(8, "little")  # LogGOPSim's, fresh and used
COMMENT: Final = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
NUM_RANKS: Final = re.compile(rb"\s*num_ranks[ \t]+(\d{1,18})\b")


def schedule_of(path: Path) -> Path:
    """The file itself, or the one of a folder."""
    files = sorted(path.glob("*.goal*")) if path.is_dir() else []
    return files[0] if len(files) == 1 else path
