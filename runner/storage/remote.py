"""Objects below an address, read and written by pyarrow.fs.

An object is written by one request that ends it, or not at all; two writers of one name leave the whole of either.
What is kept by content needs no more: equal names, equal bytes. (pyarrow 26 offers no conditional writes.)
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from manyscale.runner.errors import UserError
from manyscale.runner.storage.address import Address, Place, parsed
from manyscale.runner.storage.failures import told

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 8.0  # without a byte
ATTEMPTS: Final = 3
AT_A_TIME: Final = 16  # requests of a process
PROBE: Final = ".manyscale"  # what is written to see whether that is allowed
_BLOCK: Final = 1 << 22
_T = TypeVar("_T")
_R = TypeVar("_R")


class Entry(NamedTuple):
    """An object: its name below the address, bytes, and time of its last change (ns)."""

    name: str
    num_bytes: int
    changed_ns: int


class Remote:
    """What is below an address. Every method raises UserError, one line, where the storage refuses."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._is_checked = False

    def place(self, name: str) -> str:
        """An object as a user names it."""
        return str(Place(self.address.url, name))

    @cached_property
    def _files(self) -> Any:
        with told(self.address.url, "reached"):
            return {"s3": _s3, "gs": _gs, "file": _local}[self.address.scheme](self.address)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.address.bucket, self.address.prefix, name) if part)

    def get(self, name: str, to: Path) -> bool:
        """Copy an object to a file, which appears when it is whole; False if there is none."""
        beside = to.with_name(f".{to.name}.{uuid.uuid4().hex}")
        try:
            with told(self.place(name), "read"):
                try:
                    source = self._files.open_input_stream(self._path(name))
                except FileNotFoundError:
                    return False
                to.parent.mkdir(parents=True, exist_ok=True)
                with source, beside.open("wb") as file:
                    shutil.copyfileobj(source, file, _BLOCK)
                beside.replace(to)
                return True
        finally:
            beside.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """A small object; None if there is none."""
        with told(self.place(name), "read"):
            try:
                with self._files.open_input_stream(self._path(name)) as source:
                    return bytes(source.read())
            except FileNotFoundError:
                return None

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object, as a whole. An error half way may leave the begin of it, as a cut file that its checksum
        gives away; a process that ends leaves nothing."""
        import pyarrow as pa

        if isinstance(content, Path):
            is_empty = content.stat().st_size == 0
            content = b"" if is_empty else pa.memory_map(str(content)).read_buffer()
        with told(self.place(name), "written"):
            path = self._path(name)
            if self.address.scheme != "file":
                with self._files.open_output_stream(path) as sink:
                    sink.write(content)
                return
            target = Path(path)
            beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                beside.write_bytes(content)
                beside.replace(target)
            finally:
                beside.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""
        with told(self.place(name), "removed"):
            try:
                self._files.delete_file(self._path(name))
            except FileNotFoundError:
                return

    def entries(self, below: str = "") -> list[Entry]:
        """All objects whose names begin with the folder ``below``, by name."""
        from pyarrow.fs import FileSelector, FileType

        root = self._path(below)
        strip = len(self._path("")) + 1 if self._path("") else 0
        with told(self.place(below), "listed"):
            found = self._files.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        return sorted(
            Entry(each.path[strip:], each.size, each.mtime_ns or 0)
            for each in found
            if each.type == FileType.File and not os.path.basename(each.path).startswith(".")
        )

    def hidden(self, begin: str) -> list[Entry]:
        """Objects at the address itself, not in folders below, whose names begin so, as ``entries`` leaves them out."""
        from pyarrow.fs import FileSelector

        with told(self.address.url, "listed"):
            found = self._files.get_file_info(FileSelector(self._path(""), allow_not_found=True))
        names = {each.base_name: each for each in found if each.base_name.startswith(begin)}
        return [Entry(name, names[name].size or 0, names[name].mtime_ns or 0) for name in sorted(names)]

    def entry(self, name: str) -> Entry | None:
        """An object; None if there is none."""
        from pyarrow.fs import FileType

        with told(self.place(name), "read"):
            found = self._files.get_file_info(self._path(name))
        return Entry(name, found.size, found.mtime_ns or 0) if found.type == FileType.File else None

    def is_file(self) -> bool:
        """Whether the address is that of an object rather than of a folder."""
        return self.entry("") is not None

    def check(self) -> None:
        """See, once, whether objects can be written and read, before anything is computed."""
        if self._is_checked:
            return
        self.put(PROBE, b"manyscale\n")
        if self.read(PROBE) is None:
            raise UserError(f"{self.address.url}: what is written there cannot be read; mend the bucket's rules")
        self._is_checked = True


@lru_cache(maxsize=64)
def _remote(url: str, _settings: tuple[str, ...]) -> Remote:
    return Remote(parsed(url))


def remote(url: str) -> Remote:
    """What is at an address, connected once in a process."""
    return _remote(url, (os.environ.get("AWS_ENDPOINT_URL_S3", ""), os.environ.get("AWS_ENDPOINT_URL", "")))


def side_by_side(function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """``function`` of each item, several at a time, results in their order; the first error is raised when all are
    done. ``function`` calls this no further."""
    begun = [_threads().submit(function, item) for item in items]
    wait(begun)
    for each in begun:
        yield each.result()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="storage")


def _s3(address: Address) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options: dict[str, Any] = dict(address.options)
    if "endpoint_override" not in options:
        given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if given:
            parts = urlsplit(given if "//" in given else f"//{given}")
            options |= {"endpoint_override": parts.netloc, "scheme": options.get("scheme", parts.scheme or "https")}
    if "region" not in options and "endpoint_override" in options:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options["region"] = region or "us-east-1"  # what servers of one's own take
    return S3FileSystem(
        connect_timeout=CONNECT_SECONDS,
        request_timeout=ANSWER_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,
        background_writes=False,
        **options,
    )


def _gs(address: Address) -> Any:
    from pyarrow.fs import GcsFileSystem

    return GcsFileSystem(retry_time_limit=timedelta(seconds=ANSWER_SECONDS), **address.options)


def _local(_address: Address) -> Any:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()
