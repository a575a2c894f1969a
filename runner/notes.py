"""Notes before a user: which of them refuse a number, and how they are shown beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from manyscale.models.workload.notes import Note, Severity, in_order
from manyscale.runner.errors import UserError

MOST_SHOWN: Final = 6  # on a terminal


def admit(notes: Iterable[Note], accept: Collection[str] = (), *, strict: bool = False) -> None:
    """Raises UserError for a note that forbids a number, with ``strict`` for one that changes it, too, unless its code
    is among ``accept``."""
    refused = (Severity.forbids, Severity.changes) if strict else (Severity.forbids,)
    for note in in_order(notes):
        if note.severity in refused and note.code not in accept:
            place = f"{note.where}: " if note.where else ""
            why = "forbids a number" if note.severity is Severity.forbids else "changes the number, with --strict"
            raise UserError(f"{place}{note.text}: {why}; mend it, or accept it with --accept {note.code}")


def accepted(notes: Iterable[Note], accept: Collection[str]) -> str:
    """For the line of the number: those that would have refused it, or ""."""
    codes = dict.fromkeys(note.code for note in notes if note.code in accept and note.severity is not Severity.informs)
    return f" [accepted: {', '.join(codes)}]" if codes else ""


def of_shapes(notes: Iterable[Note]) -> list[Note]:
    """Of points that are different programs, whose notes differ by what they count or say: the one that counts most of
    each code and place."""
    found: dict[tuple[str, Severity, str], list[Note]] = {}
    for note in dict.fromkeys(notes):
        found.setdefault((note.code, note.severity, note.where), []).append(note)
    shown = []
    for alike in found.values():
        most = max(alike, key=lambda each: each.count)
        others = [each for each in alike if each.text != most.text]
        if others:
            differ = "fewer" if all(each.count < most.count for each in others) else "other figures"
            most = replace(most, text=f"{most.text}; other points have {differ}")
        shown.append(most)
    return shown


def lines(notes: Sequence[Note]) -> list[str]:
    """To stand last: the most severe ones, the rest counted. Those of several runs that read alike stand once."""
    ordered = list({str(note): note for note in in_order(notes)}.values())
    shown = [f"note: {note}" for note in ordered[:MOST_SHOWN]]
    if len(ordered) > MOST_SHOWN:
        rest = [note.severity for note in ordered[MOST_SHOWN:]]
        counts = [f"{rest.count(severity)} {severity}" for severity in Severity if severity in rest]
        shown.append(f"note: and {len(rest)} more ({', '.join(counts)})")
    return shown
