"""Files that are kept for later runs: verified before they are used, and replaced as a whole.

Each carries a checksum of all its bytes (XXH3 of 128 bits, which runs at the speed of memory): a file at its end, a
folder in its file ``checksums``. What does not fit its checksum, or has none, counts as missing: it is told on standard
error, and whoever needs it makes it again. A file is read for this once in a process, and again if it has changed.

Writers make a file or a folder beside its place and move it there, so that a reader sees all of the old one or all of
the new one. A damaged one is replaced, never only removed: another process may just have done the same.

Nothing counts as damaged before it is proved to be: what a map shows is read again by ordinary reads, twice. What the
system refuses to open, read or map is told as that, and stays.

What is kept at an address (``runner/storage``) is fetched when it is missing here, and put there when it was made. The
copy here is held to its checksum, so that a damaged object counts as missing as well.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import struct
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import xxhash

from manyscale.runner import limits
from manyscale.runner.errors import UserError
from manyscale.runner.storage import address, mirror

CHECKSUMS: Final = "checksums"  # of the other files of a folder
MOST_TOLD: Final = 10  # lines of a process
_MAGIC: Final = b"MSKEPT01"
_TRAILER: Final = struct.Struct("16s8s")  # checksum, magic
_BLOCK: Final = 1 << 18  # fits into caches
_MAPPED_ABOVE: Final = 1 << 15  # bytes: reading less costs no more than a map
_ATTEMPTS: Final = 5  # at reading what seems to be damaged

_known: dict[str, tuple[int, int, int, bytes]] = {}  # by path: inode, bytes, time of the last change, checksum
_told: set[Path] = set()


def checksum(path: Path) -> str:
    """Hexadecimal checksum of a file's bytes, as they are now. Raises OSError."""
    return _of_file(path).digest().hex()


def checksum_of_bytes(content: bytes) -> str:
    """The same as ``checksum``, of a file's content."""
    return xxhash.xxh3_128_hexdigest(content)


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


def mapped(path: Path, *, fetches: bool = True) -> pa.Buffer | None:
    """The content of a file that was ``sealed``, mapped; None if it is missing or damaged. ``fetches``: look for it at
    the address that it is copied from. Raises UserError if it is there and cannot be read."""
    content = _verified(path)
    return _verified(path) if content is None and fetches and mirror.fetch(path) else content


def _verified(path: Path) -> pa.Buffer | None:
    """``mapped``, of this machine alone. What seems to be damaged is read again, until two reads agree."""
    last = b""
    for attempt in range(_ATTEMPTS):
        status = _status(path)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            tell(path, "is no file")
            return None
        try:
            whole = _bytes_of(path, status.st_size, maps=attempt == 0)
        except FileNotFoundError:  # another process replaces it
            continue
        content, problem = _checked(path, whole, status)
        if not problem:
            return content
        seen = xxhash.xxh3_128_digest(whole)
        if seen == last:
            tell(path, problem)
            return None
        last = seen
    raise UserError(f"{path}: gives other bytes each time it is read; look after its disk and this machine's memory")


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def _bytes_of(path: Path, size: int, maps: bool) -> pa.Buffer:
    """A file's bytes: mapped, or read as ordinary files are. Small ones are always read, which takes no map of the
    65,530 that a process may have. Raises UserError and FileNotFoundError."""
    try:
        if maps and size > _MAPPED_ABOVE:
            return pa.memory_map(str(path)).read_buffer()
        return pa.py_buffer(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, MemoryError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: BaseException) -> UserError:
    """What is there and cannot be read is not damaged: it stays, and its reader is told why."""
    if limits.is_limit(error):
        return limits.LimitError(f"{path}: cannot be read: {limits.in_words(error, path)}")
    why = getattr(error, "strerror", None) or error
    return UserError(f"{path}: cannot be read ({why}); mend this, or name another cache with --cache DIR")


def _checked(path: Path, whole: pa.Buffer, status: os.stat_result) -> tuple[pa.Buffer, str]:
    """The content of a sealed file, and what is wrong with it, if anything."""
    size = whole.size - _TRAILER.size
    expected, magic = _TRAILER.unpack(whole.slice(size)) if size >= 0 else (b"", b"")
    if magic != _MAGIC:
        return whole, "is cut short, damaged or of another version"
    content = whole.slice(0, size)
    stamp = status.st_ino, status.st_size, status.st_mtime_ns, expected
    if _known.get(str(path)) != stamp:
        state = xxhash.xxh3_128(path.name.encode())
        state.update(content)
        if state.digest() != expected:
            return whole, "is damaged"
        _known[str(path)] = stamp
    return content, ""


def seal(path: Path, name: str = "") -> None:
    """Append a file's checksum, which is of its name, too: ``name``, if it is to be moved to another. Raises
    OSError."""
    digest = _of_file(path, name or path.name).digest()
    with path.open("ab") as file:
        file.write(_TRAILER.pack(digest, _MAGIC))


@contextmanager
def written(path: Path, *, publishes: bool = True) -> Iterator[Path]:
    """A name to write a file under, which then is sealed and moved to ``path``, and with ``publishes`` put to the
    address that this is the copy of; nothing remains of it after an error. Raises OSError and UserError."""
    temporary = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        seal(temporary, path.name)
        temporary.replace(path)
        if publishes:
            mirror.publish(path)
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
    """Whether a folder that was sealed is there as it was; one that is there but not so is told. Raises UserError if it
    is there and cannot be read."""
    if _is_whole(folder):
        return True
    made = _beside(folder)
    try:
        if not mirror.fetch_folder(folder, CHECKSUMS, made):
            return False
        _move(made, folder)
    finally:
        _remove(made)
    return _is_whole(folder)


def _is_whole(folder: Path) -> bool:
    sums = _verified(folder / CHECKSUMS)
    if sums is None:
        if folder.exists() and not (folder / CHECKSUMS).exists():
            tell(folder, "is incomplete or of another version")
        return False
    for name, expected in json.loads(sums.to_pybytes()).items():
        path = folder / name
        status = _status(path)
        if status is None:
            tell(path, "is missing")
            return False
        stamp = status.st_ino, status.st_size, status.st_mtime_ns, bytes.fromhex(expected)
        if _known.get(str(path)) == stamp:
            continue
        try:
            if checksum(path) != expected and checksum(path) != expected:  # read twice: is it the file, or the reading?
                tell(path, "is damaged")
                return False
        except (FileNotFoundError, IsADirectoryError):
            tell(path, "is missing")
            return False
        except OSError as error:
            raise _unreadable(path, error) from None
        _known[str(path)] = stamp
    return True


def install(made: Path, folder: Path) -> None:
    """Move a sealed folder to its place, on the same file system, unless a whole one stands there by now: others may
    be using it. Raises OSError and UserError."""
    _move(made, folder)
    _remove(made)
    mirror.publish_folder(folder, CHECKSUMS)


def _move(made: Path, folder: Path) -> None:
    """``install``, on this machine alone."""
    with alone(folder.parent):
        while made.exists() and not _is_whole(folder):
            aside = _beside(folder)
            with suppress(FileNotFoundError):
                os.rename(folder, aside)
            try:
                os.rename(made, folder)
            except OSError as error:  # where there are no locks, another was faster
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):  # what is above it may be a file
            path.unlink()


@contextmanager
def alone(parent: Path) -> Iterator[None]:
    """Be the one process of this host that makes or replaces a folder of ``parent``. Not to be nested."""
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
    again = "made again" if address.origin(path) is None else "fetched or made again"
    line = f"{address.shown(path)}: what was kept {what}; it is {again}"
    if len(_told) > MOST_TOLD:
        line = "more of what was kept is damaged or of another version; it is made again"
    print(f"manyscale: {line}", file=sys.stderr)
