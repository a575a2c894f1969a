"""Files that users name are files: a pipe, a device or a socket is refused before it is opened."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

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


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises OSError, ValueError (for whatever is no JSON) and, for what is no file,
    UserError."""
    return parse_json(refuse_special(path).read_bytes())


def parse_json(text: str | bytes) -> Any:
    """``json.loads`` of which every refusal is a ValueError, that of text nested too deeply, too."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
