"""Errors that a user can mend: one line that names the file, the place, what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LONGEST: Final = 900  # characters


def one_line(text: str) -> str:
    """``text`` as one printable line of up to 900 characters, whatever it quotes of a file: of a longer one the middle
    is left out, and characters that are not printable are escaped."""
    shown = (each if each.isprintable() else " " if each.isspace() else repr(each)[1:-1] for each in _shortened(text))
    return _shortened("".join(shown))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:600]} ... {text[5 - _LONGEST + 600 :]}"


class UserError(Exception):
    """Bad input; exit status 2."""

    def __init__(self, text: object = "") -> None:
        super().__init__(one_line(str(text)))


class RunError(Exception):
    """The input was sound but the run failed; exit status 1. ``directory``: of a run that can go on from there."""

    def __init__(self, text: str, directory: Path | None = None) -> None:
        super().__init__(one_line(text))
        self.directory = directory


class TerminationError(KeyboardInterrupt):
    """The process was told to end by SIGTERM, as KeyboardInterrupt tells of SIGINT; exit status 143."""


class InterruptedRunError(KeyboardInterrupt):
    """A run was interrupted, ``by`` either of these, and can go on: what was finished is kept."""

    def __init__(self, directory: Path, by: KeyboardInterrupt) -> None:
        super().__init__(str(directory))
        self.directory, self.by = directory, by
