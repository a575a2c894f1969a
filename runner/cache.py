"""Where files are kept that any run may use again."""

from __future__ import annotations

import os
from pathlib import Path

from manyscale.runner.errors import UserError


def default_cache() -> Path:
    """The user's cache directory for manyscale (XDG base directory specification). Raises UserError for an address."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given and "://" in given:
        raise UserError("XDG_CACHE_HOME is a folder of this machine; name object storage with --cache")
    return Path(given or Path.home() / ".cache") / "manyscale"
