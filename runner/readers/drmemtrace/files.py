"""The files of a drmemtrace: their records in pieces, whatever they are packed in."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers.archive import guarded, most_bytes, open_stream, read_head, too_large

RECORD: Final = np.dtype([("type", "<u2"), ("size", "<u2"), ("value", "<u8")])  # trace_entry_t of 64-bit programs
VERSIONS: Final = range(1, 8)  # TRACE_ENTRY_VERSION
(READ, WRITE) = range(2)
INSTRUCTION, JUMP, INDIRECT_JUMP, CONDITIONAL, CALL, INDIRECT_CALL, RETURN, BUNDLE = range(10, 18)
THREAD, THREAD_EXIT, PROCESS, HEADER, FOOTER = range(22, 27)
MARKER, NO_FETCH, MAYBE_FETCH, SYSENTER = range(28, 32)
ENCODING, TAKEN, UNTAKEN, INVALID = range(47, 51)
# markers
TIMESTAMP, FUNCTION, ARGUMENT, RETURNED, FILE_TYPE, WINDOW = 2, 4, 6, 7, 9, 14
SYSCALL, MAY_BLOCK, FAILED, SWITCH_TO = 25, 26, 30, 31
KERNEL_BEGINS, KERNEL_ENDS = (27, 34), (28, 35)  # of a system call, of a switch of threads
VECTOR_BYTES, UNSCHEDULE, SCHEDULE = 36, 37, 38
LAST_KNOWN: Final = 46  # TRACE_MARKER_TYPE_SKIPPED_MEMREF; those behind it are reserved, or the user's own (over 100)
# offline_file_type_t
FILTERED: Final = 0x01 | 0x80 | 0x100 | 0x2000
INSTRUCTIONS_ONLY: Final = 0x04
X86_64: Final = 0x40
ARM_64: Final = 0x08
OF_32_BITS: Final = 0x10 | 0x20
# templates of system calls, one file a core with threads in turns, a whole system
NOT_OF_THREADS: Final = 0x4000 | 0x10000 | 0x40000
SYNTHETIC: Final = 0x20000  # instructions of no processor (REGDEPS)
_ENDINGS: Final = (".trace", ".trace.gz", ".trace.zip")
_PIECE: Final = RECORD.itemsize << 16
_ZIP: Final = b"PK\x03\x04"


def of_threads(folder: Path) -> list[Path]:
    """Files of a folder, or of ``trace/`` in it, in order of their names."""
    inside = folder / "trace"
    place = inside if inside.is_dir() else folder
    return sorted(each for each in place.iterdir() if each.name.endswith(_ENDINGS))


def is_raw(folder: Path) -> bool:
    """Whether the folder holds what the tracer left before raw2trace, and no trace."""
    return (folder / "raw" / "modules.log").is_file() and not of_threads(folder)


def begins_so(path: Path) -> bool:
    """Whether the file's first record is a header of a version that is known."""
    with path.open("rb") as file:
        head = file.read(len(_ZIP))
    if head == _ZIP:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as member:
                head = member.read(RECORD.itemsize)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, IndexError, EOFError):
            return False
    else:
        head = read_head(path, RECORD.itemsize) or b""
    if len(head) < RECORD.itemsize:
        return False
    first = np.frombuffer(head, RECORD, 1)[0]
    return int(first["type"]) == HEADER and int(first["size"]) == 0 and int(first["value"]) in VERSIONS


def pieces(path: Path) -> Iterator[np.ndarray]:
    """The file's records (dtype RECORD), some at a time. Raises UserError for what cannot be unpacked, and where the
    file ends inside a record."""
    refuse_special(path)
    left, at = b"", 0
    for content in _contents(path):
        content = left + content
        whole = len(content) - len(content) % RECORD.itemsize
        left = content[whole:]
        if not whole:
            continue
        records = np.frombuffer(content, RECORD, whole // RECORD.itemsize)
        if at == 0:
            _check_header(path, records)
        at += len(records)
        yield records
    if left:
        raise UserError(f"{path}: record {at}: the file ends inside it; copy it again")


def _check_header(path: Path, records: np.ndarray) -> None:
    if records["type"][0] != HEADER:
        raise UserError(f"{path}: record 0: is no header of a drmemtrace; name the files that raw2trace wrote")
    version = int(records["value"][0])
    if version not in VERSIONS:
        raise UserError(f"{path}: record 0: version {version} is not known (1 to {VERSIONS[-1]}); trace it again")


def _contents(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        is_zip = file.read(len(_ZIP)) == _ZIP
    if not is_zip:
        with guarded(path), open_stream(path) as stream:
            yield from _of(stream)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            most = left = most_bytes()
            for name in sorted(archive.namelist()):
                with archive.open(name) as member:
                    for content in _of(member):
                        left -= len(content)
                        if left < 0:
                            raise too_large(path, most)
                        yield content
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise UserError(f"{path}: the archive is damaged ({error}); copy it again") from None


def _of(stream: IO[bytes]) -> Iterator[bytes]:
    while content := stream.read(_PIECE):
        yield content
