"""Notes: what a reader, a tracer, a model, a sampler or a setting left out or assumed. They are part of the number that
they are about, and travel with it from the workload to every place where it is shown.

A note's severity is its effect:

- ``informs``: nothing that takes time is missing; the reader of the number should know it all the same;
- ``changes``: something that takes time was left out, guessed or taken from elsewhere: the number differs from the one
  that it stands for, and is refused with ``--strict``;
- ``forbids``: the number would mean nothing: it is refused unless the note's code is accepted (``--accept CODE``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The effect of a note on the number. See the module's docstring."""

    forbids = "forbids"
    changes = "changes"
    informs = "informs"


class Errs(StrEnum):
    """Which way the number errs for what a note says."""

    unknown = ""
    short = "too short"
    long = "too long"


@dataclass(frozen=True)
class Note:
    """``code``: words joined by hyphens, the same for all notes of one kind; ``text``: a clause that says what was left
    out or assumed, with how many; ``where``: file, ranks or launches, "" for the whole; ``count``: that number
    once more, for programs; ``errs``: which way the time errs, if that is known."""

    code: str
    severity: Severity
    text: str
    where: str = ""
    count: int = 1
    errs: Errs = Errs.unknown

    def __str__(self) -> str:
        """One line: how it is shown everywhere."""
        place = f"{self.where}: " if self.where else ""
        errs = f" (the time is {self.errs})" if self.errs else ""
        return f"{self.severity} [{self.code}] {place}{self.text}{errs}"


def informs(code: str, text: str, where: str = "", count: int = 1) -> Note:
    """A note on something that takes no time."""
    return Note(code, Severity.informs, text, where, count)


def changes(code: str, text: str, where: str = "", count: int = 1, errs: Errs = Errs.unknown) -> Note:
    """A note on something that takes time and was left out, guessed or taken from elsewhere."""
    return Note(code, Severity.changes, text, where, count, errs)


def forbids(code: str, text: str, where: str = "", count: int = 1, errs: Errs = Errs.unknown) -> Note:
    """A note on something without which the number would mean nothing."""
    return Note(code, Severity.forbids, text, where, count, errs)


def in_order(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Most severe first, else as they come; equal ones once."""
    rank = list(Severity)
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: rank.index(note.severity)))


def to_json(notes: Iterable[Note]) -> str:
    return json.dumps([asdict(note) for note in notes])


def from_json(text: str) -> tuple[Note, ...]:
    """Raises ValueError, KeyError or TypeError if the text is no list of notes."""
    return tuple(
        Note(**{**fields, "severity": Severity(fields["severity"]), "errs": Errs(fields["errs"])})
        for fields in json.loads(text)
    )


def named(notes: Sequence[Note], severity: Severity) -> list[Note]:
    """Those of one severity."""
    return [note for note in notes if note.severity is severity]


def percent(share: float) -> str:
    """A share as texts of notes have it."""
    digits = 2 if share < 0.1 else 3  # two of 99.6 would be 1e+02
    return f"{100 * share:.{digits}g} %" if share >= 1e-4 else "less than 0.01 %"
