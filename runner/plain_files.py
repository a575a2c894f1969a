"""Files that users name are files: a pipe, a device or a socket is refused before it is opened."""

from __future__ import annotations

import stat
from pathlib import Path

from manyscale.runner.errors import UserError


def refuse_special(path: Path) -> Path:
    """``path``. Raises UserError for a pipe, a device or a socket, which would be waited for or never end. What does
    not exist or cannot be looked at passes: whoever opens it says so."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{path}: is a pipe, a device or a socket; write its content to a file and give that")
    return path
