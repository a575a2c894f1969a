"""Timeline tables of a run directory as segments: a row of the picture, begin and end, category, and the item it is of.

Tables are read in batches, never whole. What each table's columns mean here stands in ``TABLES``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.runner.errors import UserError

BATCH_ROWS: Final = 1 << 18  # of a table that are in memory at a time
_BUFFER_BYTES: Final = 1 << 18  # of each column of the file; Parquet reads whole row groups otherwise


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns. ``row``: what a line of the picture is of; ``category``: what is told apart by
    colour; ``item``: the number that names a segment, called ``item_label`` before a user."""

    label: str
    row: tuple[str, ...]
    start: str
    end: str
    category: str
    item: str
    item_label: str


TABLES: Final = {
    "ranks": Columns("ranks", ("rank",), "start_ps", "end_ps", "state", "operation_id", "operation"),
    "cores": Columns("cores", ("rank", "core"), "start_ps", "end_ps", "task_type", "instance_id", "instance"),
    "launches": Columns("kernel launches", ("rank",), "start_ps", "end_ps", "kernel_name", "launch_id", "launch"),
}
MESSAGES: Final = Columns("messages", ("source",), "send_ps", "receive_ps", "destination", "message_id", "message")


@dataclass(frozen=True)
class Batch:
    """Segments of equal length arrays: ``row`` int32, ``start`` and ``end`` int64 in ps, ``category`` int32, ``item``
    int64."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    category: np.ndarray
    item: np.ndarray


@dataclass
class SegmentTable:
    """A Parquet file that is read as segments.

    ``categories``: names by code, complete once all batches were read (empty where the category is a number already).
    ``keys``: the values of the row columns by row, complete once ``scan`` is done; None where the row is their value.
    """

    path: Path
    columns: Columns
    categories: list[str] = field(default_factory=list)
    keys: np.ndarray | None = None
    num_rows: int = 0
    num_segments: int = 0
    span_ps: int = 0

    def __post_init__(self) -> None:
        """A run of an earlier version has no ids in the run, but those of the trace."""
        if self.columns is TABLES["cores"] and self.columns.item not in self._names():
            self.columns = replace(self.columns, item="task_instance_id", item_label="task instance")

    def _names(self) -> list[str]:
        """Of the file's columns; none of one that cannot be read, which whoever reads it is told."""
        try:
            return list(pq.read_schema(self.path).names)
        except (pa.ArrowException, OSError):
            return []

    def scan(self, every: int = 64) -> np.ndarray:
        """Find the number of rows, their keys and the end of the last segment. Returns every ``every``-th start, in
        order of time: int64 in ps. Raises UserError where the file is no such table."""
        starts, keys = [np.zeros(0, np.int64)], np.zeros(0, np.int64)
        for batch in self._batches([*self.columns.row, self.columns.start, self.columns.end]):
            starts.append(_integers(batch, self.columns.start)[::every])
            self.span_ps = max(self.span_ps, int(_integers(batch, self.columns.end).max(initial=0)))
            self.num_segments += batch.num_rows
            if len(self.columns.row) > 1:
                keys = np.union1d(keys, self._key(batch))
            else:
                self.num_rows = max(self.num_rows, int(_integers(batch, self.columns.row[0]).max(initial=-1)) + 1)
        if len(self.columns.row) > 1:
            self.keys, self.num_rows = keys, len(keys)
        return np.sort(np.concatenate(starts))

    def batches(self) -> Iterator[Batch]:
        """All segments in the order of the file. Raises UserError where the file is no such table."""
        known = {name: code for code, name in enumerate(self.categories)}
        columns = self.columns
        for batch in self._batches([*columns.row, columns.start, columns.end, columns.category, columns.item]):
            row = self._key(batch)
            if self.keys is not None:
                row = np.searchsorted(self.keys, row)
            category = self._codes(batch.column(columns.category), known)
            start, end, item = (_integers(batch, name) for name in (columns.start, columns.end, columns.item))
            yield Batch(row.astype(np.int32), start, end, category, item)

    def row_label(self, row: int) -> str:
        """What a row is called: ``3``, or ``rank 3, core 1``."""
        if self.keys is None:
            return str(row)
        key = int(self.keys[row])
        return f"{key >> 32}.{key & 0xFFFFFFFF}"

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                missing = [name for name in columns if name not in file.schema_arrow.names]
                if missing:
                    raise UserError(f"{self.path}: cannot be read (it has no column {missing[0]})")
                yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{self.path}: cannot be read ({' '.join(str(error).split())})") from None

    def _key(self, batch: pa.RecordBatch) -> np.ndarray:
        parts = [_integers(batch, name) for name in self.columns.row]
        key = parts[0]
        for part in parts[1:]:
            key = key << 32 | part
        return key

    def _codes(self, column: Any, known: dict[str, int]) -> np.ndarray:
        """int32: the place of each value in ``categories``, which grows by values that are new."""
        if pa.types.is_integer(column.type):
            return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int32)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        for name in column.dictionary.to_pylist():
            if name not in known:
                known[name] = len(known)
                self.categories.append(name)
        places = np.array([known[name] for name in column.dictionary.to_pylist()], np.int32)
        return places[np.asarray(column.indices.to_numpy(zero_copy_only=False))]


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def tables_of(directory: Path) -> list[str]:
    """Names of the timeline tables that a run directory has, in the order in which they are offered."""
    return [name for name in TABLES if (directory / "timeline" / f"{name}.parquet").is_file()]
