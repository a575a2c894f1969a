"""Files of a trace, read by processes of other hosts: what was opened here is told there by its path and its digest,
and opened when it is first read.

Where the path is not there, a copy is: in the user's cache, under the digest, sealed (``kept``). Whoever computes for
another host says how a missing copy is made (``fetching``), since only that knows the way; elsewhere the path stays,
and to open it fails as for any file that is not there.
"""

from __future__ import annotations

import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from threading import RLock
from typing import Any, Final, TypeVar

from manyscale.runner import kept
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError

T = TypeVar("T")
S = TypeVar("S", bound="Told")
Fetch = Callable[[Path, Path], None]  # copies a file or a folder of the other host to a path

_CONTENT: Final = "content"
_fetch: ContextVar[Fetch | None] = ContextVar("fetch", default=None)  # of this thread's work unit
_opening: Final = RLock()  # one thread of a unit opens, while the others wait for what they read


def fetching(by: Fetch, call: Callable[[], T]) -> T:
    """What the call returns; files that are not here come ``by`` this."""
    token = _fetch.set(by)
    try:
        return call()
    finally:
        _fetch.reset(token)


def opened(kind: Callable[[Path], S], path: Path, digest: str) -> S:
    """What ``kind`` opens on this host: at ``path``, or a copy where there is nothing at this path, or something else.
    Raises UserError, and OSError where a copy cannot be made."""
    fetch = _fetch.get()
    if fetch is None:
        found = kind(path)
    else:
        with suppress(UserError):
            if path.exists() and (found := kind(path)).stored()[1] == digest:
                return found
        found = kind(_copy(path, digest, fetch))
    if found.stored()[1] != digest:
        raise UserError(f"{path}: was changed since the run began; start a new run")
    return found


def _copy(path: Path, digest: str, fetch: Fetch) -> Path:
    """The one that this host has, made if need be."""
    copy = default_cache() / "traces" / digest
    copy.parent.mkdir(parents=True, exist_ok=True)
    with kept.alone(copy.parent.parent):  # of all workers of this host
        if not kept.is_whole(copy):
            made = copy.with_name(f".{digest}.{uuid.uuid4().hex}")
            try:
                made.mkdir()
                fetch(path, made / _CONTENT)
                kept.seal_folder(made)
                kept.install(made, copy)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return copy / _CONTENT


class Told(ABC):
    """What is opened at one path and has a digest: it pickles as these two (``stored``), and is opened where it came to
    when it is first read. Its class takes the path alone, and raises UserError."""

    def __reduce__(self) -> tuple[Any, ...]:
        path, digest = self.__dict__.get("_told") or self.stored()
        return told, (type(self), path.absolute(), digest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        with _opening:
            if "_told" in self.__dict__:
                self.__dict__.update(opened(type(self), *self.__dict__["_told"]).__dict__)
                self.__dict__.pop("_told", None)
            return object.__getattribute__(self, name)

    @abstractmethod
    def stored(self) -> tuple[Path, str]:
        """The path, and the digest of its content."""


def told(kind: type[T], path: Path, digest: str) -> T:
    """One of a kind of ``Told``, not yet opened."""
    store = object.__new__(kind)
    store.__dict__["_told"] = path, digest
    return store
