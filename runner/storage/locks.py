"""Which process of this machine writes the copy of what is at an address, and which bring it up to date; and which
writes a folder."""

from __future__ import annotations

import fcntl
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from manyscale.runner.errors import UserError


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
    """Be the one process of this machine that does this with a copy; False where another is. Raises UserError where
    there are no locks."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f".{what}-{uuid.uuid5(uuid.NAMESPACE_URL, root.name)}").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise UserError(
                f"{root.parent}: its file system has no locks ({os.strerror(error.errno or 0)}), which copies of "
                "object storage need; have XDG_CACHE_HOME name a folder of another one"
            ) from None
        yield True


@contextmanager
def alone_in(directory: Path) -> Iterator[bool]:
    """Be the one process that writes a folder; False where another does. Where folders have no locks (on NFS) nobody is
    kept away, which is told."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        is_mine = True
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_mine = False
        except OSError as error:
            why = f"its file system has no locks of folders ({os.strerror(error.errno or 0)})"
            line = f"{directory}: {why}; see that no other process writes there before this one has ended"
            print(f"manyscale: {line}", file=sys.stderr, flush=True)
        yield is_mine
    finally:
        os.close(folder)
