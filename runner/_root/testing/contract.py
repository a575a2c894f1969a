"""What a broken contract is, and the ways in which the checks ask."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np


class ContractError(AssertionError):
    """An implementation that does not keep a contract of its seam: one line that says which, and what was seen."""


def require(kept: object, reason: str) -> None:
    """Raise ContractError for ``reason`` unless ``kept`` is true."""
    if not kept:
        raise ContractError(reason)


def require_nowhere(wrong: np.ndarray, reason: str) -> None:
    """Raise ContractError where any of ``wrong`` bool[] is true: ``reason``, with the first such place for its {}."""
    if wrong.any():
        raise ContractError(reason.format(int(wrong.argmax())))


def require_one_line(error: BaseException, what: str) -> None:
    """An error that a user sees is one line."""
    text = str(error)
    require(text.strip(), f"{what}: {type(error).__name__} without a message")
    require("\n" not in text, f"{what}: the message has several lines: {text!r}")


def name_of(thing: Any) -> str:
    """What to call an implementation in messages."""
    return str(getattr(thing, "NAME", None) or getattr(thing, "__name__", None) or type(thing).__name__)


def contents(path: Path) -> dict[str, str]:
    """Hash of every file at or below ``path``, by its name relative to it."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(file.relative_to(path)): hashlib.blake2b(file.read_bytes()).hexdigest() for file in files}
