"""The bytes of a Dimemas trace, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, is_tar, open_stream, tar_members

MARK: Final = b"#DIMEMAS:"
OLD_MARK: Final = b"SDDFA"
_MEMBERS_LOOKED_AT: Final = 8  # of an archive


@contextmanager
def content(path: Path) -> Iterator[IO[bytes]]:
    """The trace's bytes, out of a compressed file or an archive."""
    with guarded(path):
        if not is_tar(path):
            with open_stream(path) as stream:
                yield stream
            return
        for _, (_, member) in zip(range(_MEMBERS_LOOKED_AT), tar_members(path), strict=False):
            head = member.read(len(MARK))
            if head.startswith((MARK, OLD_MARK)):
                yield _Rest(head, member)  # type: ignore[misc]
                return
    raise UserError(
        f"{path}: none of the archive's first {_MEMBERS_LOOKED_AT} files is a Dimemas trace ({MARK.decode()})"
    )


class _Rest:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._stream.read(size - len(head))
