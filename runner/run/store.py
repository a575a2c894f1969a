"""Results of work units on disk, by key. A result is one Arrow file: one row of list columns, one per named array.

Two workers that write the same key write the same bytes. Arrow's file format rather than Parquet: results are mapped,
not decoded, when reused.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import Arrays


class Store:
    """Results under ``root``. Raises UserError if the folder cannot be written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            root.mkdir(parents=True, exist_ok=True)
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise UserError(
                f"{root}: the cache cannot be written ({error.strerror}); name another with --cache DIR"
            ) from None

    def path(self, key: str) -> Path:
        """Where the result of a key stands."""
        return self.root / key[:2] / f"{key}.arrow"

    def has(self, key: str) -> bool:
        return kept.mapped(self.path(key)) is not None

    def write(self, key: str, arrays: Arrays) -> None:
        """Store a result, atomically."""
        columns = {
            name: pa.ListArray.from_arrays(to_arrow(np.array([0, len(values)], np.int32)), to_arrow(values))
            for name, values in arrays.items()
        }
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        path = self.path(key)
        try:
            with (
                kept.written(path) as made,
                pa.OSFile(str(made), "wb") as sink,
                pa.ipc.new_file(sink, batch.schema) as writer,
            ):
                writer.write_batch(batch)
        except OSError as error:
            raise UserError(f"{path}: the result cannot be written ({error.strerror or error})") from None

    def read(self, key: str) -> Arrays | None:
        """The arrays of a result, read-only views of the file; None if it is missing or damaged."""
        content = kept.mapped(self.path(key))
        if content is None:
            return None
        batch = pa.ipc.open_file(content).get_batch(0)
        return {name: to_numpy(column.values) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
