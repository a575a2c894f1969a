"""Where files are kept that any run may use again."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """The user's cache directory for manyscale (XDG base directory specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manyscale"
