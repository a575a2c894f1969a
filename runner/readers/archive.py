"""Files of a trace, wherever they lie: in a folder, a compressed file or a tar archive. Nothing is unpacked to disk."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

import zstandard

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special

_MAGIC = {b"\x28\xb5\x2f\xfd": "zst", b"\x1f\x8b": "gz", b"\xfd7zXZ": "xz"}
CHUNK_BYTES = 1 << 23
_COMPRESSED_BYTES = 1 << 16  # read at once: zstd turns them into some megabytes
_BUFFER_BYTES = 1 << 18
MOST_GB = "MANYSCALE_MAX_GB"  # of the environment, so that worker processes have it, too: what --max-gb says


def most_bytes() -> int:
    """What one file may decompress to: as --max-gb says, else half of the machine's memory."""
    given = os.environ.get(MOST_GB)
    if given is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        most = float(given) * 1e9
    except ValueError:
        most = -1.0
    if not 0 < most < 2**63:
        raise UserError(f"--max-gb {given}: a number of gigabytes is expected, more than 0, e.g. 100")
    return int(most)


def open_stream(path: Path) -> IO[bytes]:
    """Open a file, decompressing zstd, gzip or xz by its first bytes (not by its name). One that decompresses to more
    than ``most_bytes`` is refused there by a UserError."""
    refuse_special(path)
    try:
        with path.open("rb") as file:
            head = file.read(6)
        kind = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
        if kind == "zst":
            return io.BufferedReader(_Bounded(path, _ZstdFile(path.open("rb"))), CHUNK_BYTES)
        if kind == "gz":
            return io.BufferedReader(_Bounded(path, gzip.open(path, "rb")), _BUFFER_BYTES)
        if kind == "xz":
            return io.BufferedReader(_Bounded(path, lzma.open(path, "rb")), _BUFFER_BYTES)
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


class _Bounded(io.RawIOBase):
    """What a compressed file holds, up to ``most_bytes``."""

    def __init__(self, path: Path, file: gzip.GzipFile | lzma.LZMAFile | _ZstdFile) -> None:
        self._path, self._file = path, file
        self._most = most_bytes()
        self._left = self._most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        readinto = self._file.readinto if isinstance(self._file, _ZstdFile) else self._file.readinto1
        size = readinto(buffer)
        self._left -= size
        if self._left < 0:
            raise too_large(self._path, self._most)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def unpacked(stored: bytes, size: int) -> bytes:
    """One zstd frame that must hold ``size`` bytes. Raises ZstdError, before anything is decompressed where the frame
    says of itself that it holds another number: zstandard would follow it."""
    told = zstandard.frame_content_size(stored)
    if told not in (-1, size):
        raise zstandard.ZstdError(f"a frame holds {told} bytes, not {size}")
    if size > most_bytes():
        raise zstandard.ZstdError(f"{size} bytes are more than --max-gb allows")
    return zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)


def too_large(place: object, most: int) -> UserError:
    """The one line for what decompresses to more than is allowed."""
    return UserError(
        f"{place}: decompresses to more than {most / 1e9:.3g} GB; if it is meant to, allow more by --max-gb (default: "
        "half of the memory)"
    )


class _ZstdFile(io.RawIOBase):
    """All frames of a zstd file as a raw stream. zstandard's own stream reader takes a cut file for a whole one; here
    it is an error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._content:
            compressed = (self._frame.unused_data if self._frame.eof else b"") or self._file.read(_COMPRESSED_BYTES)
            if not compressed:
                if not self._frame.eof:
                    raise EOFError("the last zstd frame is not complete")
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._content = memoryview(self._frame.decompress(compressed))
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class _Member(tarfile.TarInfo):
    """A member's header. A damaged one is an error, as is none where the mark of the end should stand: tarfile takes
    both for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark of the end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} where a member or the end should be") from None


_BROKEN = (EOFError, OSError, tarfile.TarError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


def broken_archive(path: Path, error: Exception) -> UserError:
    """The one line for an archive that is cut off or damaged."""
    return UserError(f"{path}: the archive is damaged or cut short ({error}); copy or download it again")


class guarded:  # noqa: N801 - used as a keyword-like context manager
    """Turn the errors of a damaged archive into one line that names it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _BROKEN) and not isinstance(error, UserError):
            raise broken_archive(self._path, error) from None


def read_head(path: Path, length: int) -> bytes | None:
    """The first bytes of a (decompressed) file, to tell its format by; None where there is no file that can be read."""
    if not path.is_file():
        return None
    try:
        with guarded(path), open_stream(path) as stream:
            return stream.read(length)
    except (UserError, OSError):
        return None


def first_line(path: Path, pattern: re.Pattern[bytes]) -> int | None:
    """Number of the first line, among the first 64 KiB of the (decompressed) file, that begins with ``pattern``."""
    lines = (read_head(path, 1 << 16) or b"").split(b"\n")
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), None)


def is_tar(path: Path) -> bool:
    """Whether the (decompressed) file is a tar archive; a damaged compressed file is an error."""
    with guarded(path), open_stream(path) as stream:
        head = stream.read(512)
        return len(head) == 512 and head[257:262] == b"ustar"


def tar_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Regular files of a tar archive as (normalised name, stream), in archive order, each to be read at once.

    Raises UserError for a member whose name leaves the archive's folder, for links and for a damaged archive.
    """
    with guarded(path), open_stream(path) as stream:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            for member in archive:
                name = posixpath.normpath(member.name)
                if name == ".." or name.startswith(("/", "../")):
                    raise UserError(f"{path}: member {member.name!r} points outside the archive; refusing to read it")
                if member.issym() or member.islnk():
                    raise UserError(f"{path}: member {member.name!r} is a link; archive the files themselves")
                if not member.isfile():
                    continue
                if member.size > most_bytes():  # of a sparse one more than the archive's bytes
                    raise too_large(f"{path}: member {member.name!r}", most_bytes())
                content = archive.extractfile(member)
                assert content is not None
                yield name, content
        while stream.read(CHUNK_BYTES):  # to where a compressed file has its checksum
            pass
