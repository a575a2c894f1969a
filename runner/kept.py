"""Files that are kept for later runs: verified before they are used, and replaced as a whole.

Each carries a checksum of all its bytes (XXH3 of 128 bits, which runs at the speed of memory): a file at its end, a
folder in its file ``checksums``. What does not fit its checksum, or has none, counts as missing: it is told on standard
error, and whoever needs it makes it again. A file is read for this once in a process, and again if it has changed.

Writers make a file or a folder beside its place and move it there, so that a reader sees all of the old one or all of
the new one. A damaged one is replaced, never only removed: another process may just have done the same.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import struct
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import xxhash

CHECKSUMS: Final = "checksums"  # of the other files of a folder
MOST_TOLD: Final = 10  # lines of a process
_MAGIC: Final = b"MSKEPT01"
_TRAILER: Final = struct.Struct("16s8s")  # checksum, magic
_BLOCK: Final = 1 << 18  # fits into caches

_known: dict[str, tuple[int, int, int, bytes]] = {}  # by path: inode, bytes, time of the last change, checksum
_told: set[Path] = set()


def checksum(path: Path) -> str:
    """Hexadecimal checksum of a file's bytes, as they are now. Raises OSError."""
    return _of_file(path).digest().hex()


def checksum_of_text(text: str) -> str:
    """Hexadecimal checksum of a line or a small text, of 64 bits."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def copied(source: Path, target: Path) -> str:
    """Copy a file's bytes; their hexadecimal checksum. Raises OSError."""
    with target.open("wb") as file:
        return _of_file(source, to=file).digest().hex()


def _of_file(path: Path, name: str = "", to: IO[bytes] | None = None) -> xxhash.xxh3_128:
    state = xxhash.xxh3_128(name.encode())
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            state.update(view[:size])
            if to is not None:
                to.write(view[:size])
    return state


# Files


def mapped(path: Path) -> pa.Buffer | None:
    """The content of a file that was ``sealed``, mapped; None if it is missing or damaged."""
    try:
        status = os.stat(path)
        whole = pa.memory_map(str(path)).read_buffer() if status.st_size >= _TRAILER.size else pa.py_buffer(b"")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, pa.ArrowInvalid) as error:
        tell(path, f"cannot be read ({getattr(error, 'strerror', None) or error})")
        return None
    size = whole.size - _TRAILER.size
    expected, magic = _TRAILER.unpack(whole.slice(size)) if size >= 0 else (b"", b"")
    if magic != _MAGIC:
        tell(path, "is cut short, damaged or of another version")
        return None
    content = whole.slice(0, size)
    stamp = status.st_ino, status.st_size, status.st_mtime_ns, expected
    if _known.get(str(path)) != stamp:
        state = xxhash.xxh3_128(path.name.encode())
        state.update(content)
        if state.digest() != expected:
            tell(path, "is damaged")
            return None
        _known[str(path)] = stamp
    return content


def seal(path: Path, name: str = "") -> None:
    """Append a file's checksum, which is of its name, too: ``name``, if it is to be moved to another. Raises
    OSError."""
    digest = _of_file(path, name or path.name).digest()
    with path.open("ab") as file:
        file.write(_TRAILER.pack(digest, _MAGIC))


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A name to write a file under, which then is sealed and moved to ``path``; nothing remains of it after an error.
    Raises OSError."""
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        seal(temporary, path.name)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # process ids repeat across hosts that share a folder


# Folders


def seal_folder(folder: Path) -> None:
    """Write the checksums of all files of a folder and of those in it. Raises OSError."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / CHECKSUMS]
    found = {str(file.relative_to(folder)): checksum(file) for file in files}
    with written(folder / CHECKSUMS) as path:
        path.write_text(json.dumps(found, indent=0))


def is_whole(folder: Path) -> bool:
    """Whether a folder that was sealed is there as it was; one that is there but not so is told."""
    sums = mapped(folder / CHECKSUMS)
    if sums is None:
        if folder.exists() and not (folder / CHECKSUMS).exists():
            tell(folder, "is incomplete or of another version")
        return False
    for name, expected in json.loads(sums.to_pybytes()).items():
        path = folder / name
        try:
            status = os.stat(path)
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, bytes.fromhex(expected)
            if _known.get(str(path)) == stamp:
                continue
            if checksum(path) != expected:
                tell(path, "is damaged")
                return False
        except OSError as error:
            tell(path, f"cannot be read ({error.strerror})")
            return False
        _known[str(path)] = stamp
    return True


def install(made: Path, folder: Path) -> None:
    """Move a sealed folder to its place, on the same file system, unless a whole one stands there by now: others may
    be using it. Raises OSError."""
    with _lock(folder.parent):
        while made.exists() and not is_whole(folder):
            aside = _beside(folder)
            with suppress(FileNotFoundError):
                os.rename(folder, aside)
            try:
                os.rename(made, folder)
            except OSError as error:  # where there are no locks, another was faster
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _remove(aside)
    _remove(made)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _lock(parent: Path) -> Iterator[None]:
    """Be the one process that replaces a folder of ``parent``."""
    lock = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: two processes that heal at a time may do so twice
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def tell(path: Path, what: str) -> None:
    """Say once that a file or folder is not used. ``what`` completes "what was kept ..."."""
    if path in _told or len(_told) > MOST_TOLD:
        return
    _told.add(path)
    line = f"{path}: what was kept {what}; it is made again"
    if len(_told) > MOST_TOLD:
        line = "more of what was kept is damaged or of another version; it is made again"
    print(f"manyscale: {line}", file=sys.stderr)
