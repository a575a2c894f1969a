"""Packages that manyscale works without: whether one is installed, and what to say where it is needed and missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from manyscale.runner.errors import UserError

INSTALL: Final = {
    "aiohttp": "pip install 'manyscale[cluster]'",
    "ray": "pip install 'manyscale[ray]'",
    "plotly": "pip install plotly",
}
_NAMES: Final = {"aiohttp": "Ray's client of jobs", "ray": "Ray", "plotly": "Plotly"}


def is_installed(package: str) -> bool:
    """Whether ``package`` can be imported. It is not imported: Ray takes more than a second."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # refused, or put into sys.modules by hand without saying where it is from
        return False


def require(package: str, use: str) -> None:
    """Raises UserError, in one line with the command that installs it, if ``package`` is missing. ``use``: what needs
    it, as the user typed it."""
    if not is_installed(package):
        raise UserError(f"{use} needs {_NAMES[package]}, which is not installed; {INSTALL[package]}")
