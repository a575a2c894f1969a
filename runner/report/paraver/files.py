"""Files of Paraver's traces: what is large is compressed, as Paraver reads it, too."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

MOST_PLAIN_BYTES: Final = 8 << 20  # of a .prv file that is not compressed
_COMPRESSION: Final = 4  # level 6 takes three times as long to save a tenth


@contextmanager
def opened_prv(path: Path) -> Iterator[BinaryIO]:
    """A file to write a trace to, named ``path``; if it grows beyond MOST_PLAIN_BYTES, ``path`` with .gz behind."""
    with path.open("wb") as file:
        yield file
    if path.stat().st_size <= MOST_PLAIN_BYTES:
        return
    with (
        path.open("rb") as plain,
        path.with_name(f"{path.name}.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=_COMPRESSION) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 20)
    path.unlink()
