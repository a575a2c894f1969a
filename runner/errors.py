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


class WrongKeyError(UserError):
    """A key of a study, a machine or another file that is wrong. Whoever knows better where it comes from (an option of
    the command line, a point of a sweep) says so with the parts: ``place``, the dotted ``key`` and ``problem``."""

    def __init__(self, place: str, key: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (place, key, problem) if part))
        self.place, self.key, self.problem = place, key, problem

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:  # a process may hand it to another
        return type(self), (self.place, self.key, self.problem)

    def within(self, place: str, key: str = "") -> WrongKeyError:
        """The same in another place, where the key stands inside ``key``."""
        return WrongKeyError(place, ".".join(part for part in (key, self.key) if part), self.problem)


def placed(error: UserError, place: str) -> UserError:
    """``error`` as one of ``place``, which it does not name itself."""
    if isinstance(error, WrongKeyError) and not error.place:
        return error.within(place)
    return UserError(f"{place}: {error}")


class RunError(Exception):
    """The input was sound but the run failed; exit status 1. ``directory``: of a run that can go on from there."""

    def __init__(self, text: str, directory: Path | None = None) -> None:
        super().__init__(one_line(text))
        self.directory = directory


class LostClusterError(RunError):
    """The cluster that computed the run is gone; what was finished is kept."""


class TerminationError(KeyboardInterrupt):
    """The process was told to end by SIGTERM, as KeyboardInterrupt tells of SIGINT; exit status 143."""


class InterruptedRunError(KeyboardInterrupt):
    """A run was interrupted, ``by`` either of these, and can go on: what was finished is kept."""

    def __init__(self, directory: Path, by: KeyboardInterrupt) -> None:
        super().__init__(str(directory))
        self.directory, self.by = directory, by
