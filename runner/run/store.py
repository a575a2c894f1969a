"""Results of work units on disk, by key. A result is one Arrow file: one row of list columns, one per named array.

Two workers that write the same key write the same bytes. Arrow's file format rather than Parquet: results are mapped,
not decoded, when reused.

At an address (``runner/storage``) an object holds a result. What is written is put there meanwhile, and ``settle``
waits for that; what is wanted is fetched many at a time by ``expect``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.runner import kept, limits
from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import Arrays
from manyscale.runner.storage import address, mirror


class Store:
    """Results under ``root``. Raises UserError if the folder cannot be written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._is_copy = address.origin(root) is not None
        self._absent: set[str] = set()  # keys that were looked for at the address, until they are read
        self._puts: dict[str, Future[None]] = {}
        self._pool: ThreadPoolExecutor | None = None
        try:
            root.mkdir(parents=True, exist_ok=True)
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise UserError(
                f"{root}: the cache cannot be written ({error.strerror}); name another with --cache DIR"
            ) from None
        mirror.check(root)

    def path(self, key: str) -> Path:
        """Where the result of a key stands."""
        return self.root / key[:2] / f"{key}.arrow"

    def place(self, key: str) -> str:
        """The same as a user knows it."""
        return address.shown(self.path(key))

    def has(self, key: str) -> bool:
        return kept.mapped(self.path(key), fetches=key not in self._absent) is not None

    def write(self, key: str, arrays: Arrays) -> None:
        """Store a result, atomically. Raises UserError."""
        columns = {
            name: pa.ListArray.from_arrays(to_arrow(np.array([0, len(values)], np.int32)), to_arrow(values))
            for name, values in arrays.items()
        }
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        path = self.path(key)
        try:
            with (
                kept.written(path, publishes=False) as made,
                pa.OSFile(str(made), "wb") as sink,
                pa.ipc.new_file(sink, batch.schema) as writer,
            ):
                writer.write_batch(batch)
        except OSError as error:
            limits.refuse(error, path, "written")
            raise UserError(f"{path}: the result cannot be written ({error.strerror or error})") from None
        if self._is_copy:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(8, thread_name_prefix="storage")
            self._puts[key] = self._pool.submit(mirror.publish, path)

    def settle(self) -> dict[str, UserError]:
        """Wait until all that was written is at the address; what did not get there, by key."""
        failed: dict[str, UserError] = {}
        for key, put in self._puts.items():
            try:
                put.result()
            except UserError as error:
                failed[key] = error
        self._puts = {}
        return failed

    def expect(self, keys: Iterable[str]) -> None:
        """Fetch those of some results that are at the address and not here, many at a time. Raises UserError."""
        if not self._is_copy:
            return
        from manyscale.runner.storage.remote import side_by_side

        missing = [key for key in dict.fromkeys(keys) if not self.path(key).exists()]
        found = side_by_side(lambda key: mirror.fetch(self.path(key)), missing)
        self._absent |= {key for key, is_there in zip(missing, found, strict=True) if not is_there}

    def read(self, key: str) -> Arrays | None:
        """The arrays of a result, read-only views of the file; None if it is missing or damaged. Raises UserError if
        it cannot be read."""
        content = kept.mapped(self.path(key), fetches=key not in self._absent)
        self._absent.discard(key)
        if content is None:
            return None
        batch = pa.ipc.open_file(content).get_batch(0)
        return {name: to_numpy(column.values) for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    # Workers on other machines

    @property
    def address(self) -> str:
        """What other machines find it by."""
        return address.absolute(self.root)

    def leave_token(self) -> str:
        """Make the file by which a worker knows that it sees this very store; returns its name. Raises UserError."""
        name = f".token-{uuid.uuid4().hex}"
        try:
            (self.root / name).touch()
        except OSError as error:
            limits.refuse(error, self.root, "written")
            raise UserError(f"{self.root}: the cache cannot be written ({error.strerror})") from None
        mirror.publish(self.root / name)
        return name

    def remove_token(self, name: str) -> None:
        """Remove that file. Where the address does not answer any more, it stays there: it is empty."""
        (self.root / name).unlink(missing_ok=True)
        with suppress(UserError):
            mirror.remove(self.root / name)


def seen(place: str, token: str) -> Store | None:
    """The store of which another process has left ``token`` at ``place``; None if it is not seen from here."""
    try:
        root = address.located(place)
        if not (root / token).is_file() and not mirror.fetch(root / token):
            return None
        return Store(root)
    except UserError:  # no keys for it here: results travel with the answers
        return None
