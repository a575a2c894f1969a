"""What notes say, for tests that compare their words."""

from __future__ import annotations

from collections.abc import Iterable

from manyscale.models.workload.notes import Note


def told(notes: Iterable[Note]) -> tuple[str, ...]:
    """Where and what, of each note."""
    return tuple(f"{note.where}: {note.text}" if note.where else note.text for note in notes)
