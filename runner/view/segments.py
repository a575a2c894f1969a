"""Segments on disk in pieces by time and row, so that any part of a timeline is read without the rest.

A table of a run directory is sorted by rank, so that a short time of all ranks lies all over it, and no statistics of
its row groups help. It is read once, a batch at a time, and each batch is cut at instants between which there are about
equally many segments. A piece is a record batch of an Arrow file (LZ4); its least and greatest row and time stay in
memory. Segments that cross such an instant lie in one piece only, whose end is then later.

Memory: a batch (``tables.BATCH_ROWS`` rows, with what is derived from it) while the file is made, then 40 bytes for
each piece, of which 10 million segments have about 1,300, and one piece at a time for each thread that reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.runner.view.tables import BATCH_ROWS, Batch, SegmentTable

_PIECE_ROWS: Final = 1 << 13  # at least, of a batch that is full
_MOST_PIECES: Final = BATCH_ROWS // _PIECE_ROWS
_SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("category", pa.int32()),
        pa.field("item", pa.int64()),
    ]
)


class Segments:
    """All segments of a table, readable by time and row. Threads may read side by side."""

    def __init__(self, table: SegmentTable, path: Path, progress: Callable[[int, int], None] = lambda done, all: None):
        """Write the pieces to ``path``. ``progress`` is told how many of all segments are done. Raises UserError
        where the table cannot be read, OSError where the file cannot be written."""
        self.table = table
        starts = table.scan()
        num_slabs = min(_MOST_PIECES, 1 + table.num_segments // _PIECE_ROWS)
        cuts = starts[np.arange(1, num_slabs) * len(starts) // num_slabs]
        bounds: list[tuple[int, ...]] = []
        done = 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA, options=_lz4()) as writer:
            for batch in table.batches():
                for piece in _cut(batch, cuts):
                    columns = (piece.row, piece.start, piece.end, piece.category, piece.item)
                    writer.write_batch(pa.record_batch(list(columns), schema=_SCHEMA))
                    span = piece.row.min(), piece.row.max(), piece.start.min(), piece.end.max(), len(piece.row)
                    bounds.append(tuple(map(int, span)))
                done += len(batch.row)
                progress(done, table.num_segments)
        self._bounds = np.array(bounds, np.int64).reshape(-1, 5)
        self._path = path
        self._local = threading.local()

    def pieces(self, from_ps: int, to_ps: int, first_row: int, last_row: int) -> Iterator[Batch]:
        """The pieces that may hold segments that touch [from_ps, to_ps) on the rows from ``first_row`` to ``last_row``,
        whole, and without items (``item`` is empty)."""
        reader = self._file("without items", [0, 1, 2, 3])
        for index in self._touched(from_ps, to_ps, first_row, last_row):
            row, start, end, category = (column.to_numpy() for column in reader.get_batch(index).columns)
            yield Batch(row, start, end, category, np.zeros(0, np.int64))

    def read(self, from_ps: int, to_ps: int, first_row: int, last_row: int) -> Iterator[Batch]:
        """Segments that touch [from_ps, to_ps) on the rows from ``first_row`` to ``last_row``, a piece at a time."""
        reader = self._file("all", None)
        for index in self._touched(from_ps, to_ps, first_row, last_row):
            row, start, end, category, item = (column.to_numpy() for column in reader.get_batch(index).columns)
            batch = Batch(row, start, end, category, item)
            kept = (batch.row >= first_row) & (batch.row <= last_row) & (batch.start < to_ps) & (batch.end > from_ps)
            yield _taken(batch, np.flatnonzero(kept))

    def _touched(self, from_ps: int, to_ps: int, first_row: int, last_row: int) -> list[int]:
        low_row, high_row, begin, end, _ = self._bounds.T
        touched = (low_row <= last_row) & (high_row >= first_row) & (begin < to_ps) & (end > from_ps)
        return np.flatnonzero(touched).tolist()

    def count(self, from_ps: int, to_ps: int) -> int:
        """How many segments the pieces hold that touch [from_ps, to_ps): an upper bound, found without reading one."""
        wanted = (self._bounds[:, 2] < to_ps) & (self._bounds[:, 3] > from_ps)
        return int(self._bounds[wanted, 4].sum())

    def _file(self, name: str, fields: list[int] | None) -> pa.RecordBatchFileReader:
        """The file, opened once by each thread: readers are not made for several."""
        found = getattr(self._local, name, None)
        if found is None:
            options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            found = pa.ipc.open_file(pa.OSFile(str(self._path)), options=options)
            setattr(self._local, name, found)
        return found


def _lz4() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression="lz4")


def _cut(batch: Batch, cuts: np.ndarray) -> Iterator[Batch]:
    """The batch's segments by the cuts that their starts lie between, each in the order that they had."""
    slab = np.searchsorted(cuts, batch.start, side="right")
    order = np.argsort(slab, kind="stable")
    edges = np.searchsorted(slab[order], np.arange(len(cuts) + 2))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if high > low:
            yield _taken(batch, order[low:high])


def _taken(batch: Batch, rows: np.ndarray) -> Batch:
    return Batch(batch.row[rows], batch.start[rows], batch.end[rows], batch.category[rows], batch.item[rows])
