"""Which process of this machine writes the copy of what is at an address, and which bring it up to date."""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def writing(root: Path) -> Iterator[bool]:
    """Be the one process of this machine that writes a copy; False where another does. Who only brings it up to date
    is waited for."""
    with ExitStack() as held:
        with locked(root, "reading", waits=True):
            is_mine = held.enter_context(locked(root, "writing"))
        yield is_mine


@contextmanager
def locked(root: Path, what: str, *, waits: bool = False) -> Iterator[bool]:
    """Be the one process of this machine that does this with a copy; False where another is."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f".{what}-{uuid.uuid5(uuid.NAMESPACE_URL, root.name)}").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
