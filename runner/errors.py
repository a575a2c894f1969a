"""Errors that a user can mend: one line that names the file, the place, what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path


class UserError(Exception):
    """Bad input; exit status 2."""


class RunError(Exception):
    """The input was sound but the run failed; exit status 1. ``directory``: of a run that can go on from there."""

    def __init__(self, text: str, directory: Path | None = None) -> None:
        super().__init__(text)
        self.directory = directory


class TerminationError(KeyboardInterrupt):
    """The process was told to end by SIGTERM, as KeyboardInterrupt tells of SIGINT; exit status 143."""


class InterruptedRunError(KeyboardInterrupt):
    """A run was interrupted, ``by`` either of these, and can go on: what was finished is kept."""

    def __init__(self, directory: Path, by: KeyboardInterrupt) -> None:
        super().__init__(str(directory))
        self.directory, self.by = directory, by
