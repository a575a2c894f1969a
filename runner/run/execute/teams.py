"""Teams (models/kernels/team.py): threads of one process, and processes of one node that map the same files.

A file is mapped by all, then unlinked: it is gone when the last of them ends, however it ends.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike

from manyscale.models.kernels import njit
from manyscale.models.kernels.shared_words import ABORT, ARRIVED, WORDS, add_word, load_word, store_word
from manyscale.models.kernels.team import Team, TeamBrokenError, Wanted
from manyscale.runner.errors import RunError
from manyscale.runner.run.execute.state import HEAR_SECONDS

T = TypeVar("T")
_ALIGNMENT: Final = 64  # bytes; a line of the host's caches
_NAP_SECONDS: Final = 0.0002
_MEMORY_FOLDER: Final = Path("/dev/shm")  # files there are memory


class _Threads:
    """What members in one process share."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.handed: list[Any] = [None] * count


class ThreadTeam:
    """A member that runs in a thread."""

    def __init__(self, threads: _Threads, me: int, count: int) -> None:
        self._threads, self.me, self.count = threads, me, count

    def wait(self) -> None:
        try:
            self._threads.barrier.wait()
        except threading.BrokenBarrierError:
            raise TeamBrokenError from None

    def _all(self, own: T) -> list[T]:
        self.wait()  # nobody reads what was handed in before
        self._threads.handed[self.me] = own
        self.wait()
        return list(self._threads.handed)

    def arrays(self, name: str, wanted: Wanted) -> dict[str, np.ndarray]:
        return self.once(lambda: {key: np.zeros(shape, dtype) for key, (shape, dtype) in wanted.items()})

    def gather(self, own: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
        return self._all(own)

    def once(self, make: Callable[[], T]) -> T:
        return cast(T, self._all(make() if self.me == 0 else None)[0])

    def fail(self) -> None:
        self._threads.barrier.abort()


def in_threads(count: int, work: Callable[[Team], T]) -> list[T]:
    """``work`` by each member of a team of threads: what each returned. Raises the error of the first that failed."""
    threads = _Threads(count)

    def run(me: int) -> T:
        team = ThreadTeam(threads, me, count)
        try:
            return work(team)
        except BaseException:
            team.fail()
            raise

    pool = ThreadPoolExecutor(count)
    try:
        futures = [pool.submit(run, me) for me in range(count)]
        while wait(futures, timeout=HEAR_SECONDS).not_done:
            pass
    except BaseException:  # an interrupt: those in a kernel are not waited for
        threads.barrier.abort()
        raise
    finally:
        pool.shutdown(wait=False)
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda each: isinstance(each, TeamBrokenError)):
        raise error
    return [future.result() for future in futures]


# What members in processes wait with: kernels, since no array operation of Python's is atomic.
@njit(cache=True, nogil=True)
def _arrive(words):  # type: ignore[no-untyped-def]
    return add_word(words, ARRIVED, 1)


@njit(cache=True, nogil=True)
def _read(words, column):  # type: ignore[no-untyped-def]
    return load_word(words, column)


@njit(cache=True, nogil=True)
def _write(words, column, value):  # type: ignore[no-untyped-def]
    store_word(words, column, value)


class ProcessTeam:
    """A member that runs in a process of its own, on the node of the others. ``name``: the team's, known to no other
    team of this node; whoever makes a team must end the other members if one is lost."""

    def __init__(self, name: str, me: int, count: int) -> None:
        self.me, self.count = me, count
        folder = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else Path(tempfile.gettempdir())
        self._path = folder / name
        self._files = 0
        self._waits = 0
        self._kept: dict[str, np.ndarray] = {}  # bytes, by name of their arrays
        self._words = np.zeros(0, np.int64)
        self._words = self._mapped(8 * WORDS).view(np.int64)[:WORDS]

    def wait(self) -> None:
        _arrive(self._words)
        self._waits += 1
        while _read(self._words, ARRIVED) < self._waits * self.count:
            if _read(self._words, ABORT):
                raise TeamBrokenError
            time.sleep(_NAP_SECONDS)

    def _mapped(self, size: int) -> np.ndarray:
        """uint8[size]: zeros that all members see."""
        path = self._path.with_name(f"{self._path.name}.{self._files}")
        self._files += 1
        if self.me == 0:
            own = path.with_suffix(".new")
            try:
                with own.open("xb+") as file:
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, size)  # fails here, not where a page is touched
                    else:  # macOS
                        file.truncate(size)
                    found = mmap.mmap(file.fileno(), size)
            except OSError as error:
                own.unlink(missing_ok=True)
                raise RunError(
                    f"{own.parent}: no room for {size} bytes that processes share ({error.strerror}); use gpu.groups: 1"
                ) from None
            own.rename(path)
        else:
            while not path.exists():
                if len(self._words) and _read(self._words, ABORT):
                    raise TeamBrokenError
                time.sleep(_NAP_SECONDS)
            with path.open("rb+") as file:
                found = mmap.mmap(file.fileno(), size)
        array = np.frombuffer(found, np.uint8)
        if not len(self._words):
            self._words = array.view(np.int64)[:WORDS]
        try:
            self.wait()
        finally:
            if self.me == 0:
                path.unlink()
        return array

    def arrays(self, name: str, wanted: Wanted) -> dict[str, np.ndarray]:
        ends = np.cumsum([_room_of(shape, dtype) for shape, dtype in wanted.values()])
        size = int(ends[-1]) if len(ends) else 1
        room = self._kept.get(name)
        if room is None or len(room) < size:
            room = self._kept[name] = self._mapped(size)
        else:
            self.wait()
            if self.me == 0:
                room[:size] = 0
            self.wait()
        return {
            key: np.frombuffer(room.data, dtype, math.prod(shape), int(end) - _room_of(shape, dtype)).reshape(shape)
            for (key, (shape, dtype)), end in zip(wanted.items(), ends, strict=True)
        }

    def gather(self, own: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
        text = np.frombuffer(pickle.dumps(dict(own), protocol=5), np.uint8)
        sizes = self.arrays("sizes", {"bytes": ((self.count,), np.int64)})["bytes"]
        sizes[self.me] = len(text)
        self.wait()
        room = self.arrays("gathered", {str(member): ((int(size),), np.uint8) for member, size in enumerate(sizes)})
        room[str(self.me)][:] = text
        self.wait()
        return [pickle.loads(room[str(member)].data) for member in range(self.count)]

    def once(self, make: Callable[[], T]) -> T:
        return make()

    def fail(self) -> None:
        _write(self._words, ABORT, 1)


def _room_of(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Bytes of an array, up to where the next can begin."""
    return -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
