"""The timelines that are open in a viewer: made readable in the background, and held within bounds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.kernel_names import function_name
from manyscale.runner.system import usable_cpus
from manyscale.runner.view import tiles
from manyscale.runner.view.calls import CallNames
from manyscale.runner.view.segments import Segments
from manyscale.runner.view.tables import MESSAGES, TABLES, SegmentTable

_MOST_OPEN: Final = 8  # tables; the one that was not used for longest is closed, its file removed
_CACHED_BYTES: Final = 64 << 20  # of tiles
_MOST_READ: Final = 100_000  # messages to look through for those in view
_MOST_SHOWN: Final = 500  # messages in view; more would be a grey area
_MOST_AT: Final = 6  # segments at one place


class ChangedError(Exception):
    """The table is another one than the page knows: it was closed, or its file was written again."""


@dataclass
class _Opened:
    """A table that is being made readable, or is."""

    table: SegmentTable
    path: Path
    version: str
    done: int = 0
    segments: Segments | None = None
    problem: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    def make(self) -> None:
        try:
            self.segments = Segments(self.table, self.path, self._progress)
        except UserError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"{self.path}: cannot be written ({error.strerror}); make room, or set XDG_CACHE_HOME"
        finally:
            self.finished.set()

    def _progress(self, done: int, _all: int) -> None:
        self.done = done


class Timelines:
    """Threads may ask side by side.

    ``scratch``: a folder for files of pieces, some 20 bytes a segment; whoever made it removes it. ``cache``: where
    traces are kept as they were read.
    """

    def __init__(self, scratch: Path, cache: Path) -> None:
        self._scratch, self._cache = scratch, cache
        self._lock = threading.Lock()
        self._opened: OrderedDict[tuple[Path, str], _Opened] = OrderedDict()
        self._calls: dict[Path, CallNames] = {}
        self._tiles: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._tile_bytes = 0
        self._number = 0
        self._drawing = threading.Semaphore(len(usable_cpus()))

    def describe(self, directory: Path, name: str) -> dict[str, Any]:
        """What a page needs to know of a table; while it is being read, how far that is; or what is wrong with it."""
        opened = self._open(directory, name)
        table = opened.table
        if not opened.finished.is_set():
            return {"state": "reading", "done": opened.done, "all": table.num_segments}
        if opened.problem:
            return {"state": "failed", "problem": opened.problem}
        categories = [function_name(each) for each in table.categories]  # of kernels as people read them
        labels = None if table.keys is None else [table.row_label(row) for row in range(table.num_rows)]
        return {
            "state": "ready", "version": opened.version, "rows": table.num_rows, "segments": table.num_segments,
            "span": table.span_ps, "categories": categories, "labels": labels, "label": table.columns.label,
            "columns": tiles.COLUMNS, "tileRows": tiles.ROWS, "top": tiles.top_level(table.span_ps),
            "topRows": tiles.top_row_level(table.num_rows), "mostCategories": tiles.MOST_CATEGORIES,
        }  # fmt: skip

    def tile(self, directory: Path, name: str, version: str, place: tuple[int, int, int, int]) -> bytes:
        """A tile's cells, row by row. ``place``: level and number in time, level and number in rows. Raises
        ChangedError."""
        key = (directory, name, version, *place)
        with self._lock:
            found = self._tiles.get(key)
            if found is not None:
                self._tiles.move_to_end(key)
                return found
        segments = self._ready(directory, name, version)
        with self._drawing:
            made = tiles.tile(segments, *place).tobytes()
        with self._lock:
            if key not in self._tiles:
                self._tiles[key] = made
                self._tile_bytes += len(made)
            while self._tile_bytes > _CACHED_BYTES:
                self._tile_bytes -= len(self._tiles.popitem(last=False)[1])
        return made

    def at(self, directory: Path, name: str, version: str, row: int, ps: int) -> dict[str, Any]:
        """The segments of a row that an instant lies in. Raises ChangedError."""
        segments = self._ready(directory, name, version)
        table = segments.table
        found = [
            {"start": start, "end": end, "category": category, "item": item}
            for batch in segments.read(ps, ps + 1, row, row)
            for start, end, category, item in zip(
                batch.start.tolist(), batch.end.tolist(), batch.category.tolist(), batch.item.tolist(), strict=True
            )
        ][:_MOST_AT]
        answer: dict[str, Any] = {"row": table.row_label(row), "segments": found, "item": table.columns.item_label}
        if name == "ranks" and found:
            calls = self._names(directory)
            for segment in found:
                segment["call"] = calls.name(row, int(segment["item"]))
            answer["problem"] = calls.problem
        return answer

    def messages(self, directory: Path, from_ps: int, to_ps: int, first: int, last: int) -> dict[str, Any]:
        """Messages between the ranks from ``first`` to ``last`` that are on their way in [from_ps, to_ps), unless they
        are too many to be told apart: columns of equal length. Empty while they are being read."""
        columns: dict[str, list[int]] = {"source": [], "destination": [], "send": [], "receive": []}
        opened = self._open(directory, "messages")
        if not opened.finished.is_set():
            return {"state": "reading", **columns}
        if opened.segments is None:
            return {"state": "failed", "problem": opened.problem, **columns}
        if opened.segments.count(from_ps, to_ps) > _MOST_READ:
            return {"state": "many", **columns}
        for batch in opened.segments.read(from_ps, to_ps, first, last):
            inside = (batch.category >= first) & (batch.category <= last)
            columns["source"] += batch.row[inside].tolist()
            columns["destination"] += batch.category[inside].tolist()
            columns["send"] += batch.start[inside].tolist()
            columns["receive"] += batch.end[inside].tolist()
            if len(columns["source"]) > _MOST_SHOWN:
                return {"state": "many", **{name: [] for name in columns}}
        return {"state": "ready", **columns}

    def wait(self, directory: Path, name: str) -> None:
        """Until a table is readable or has failed."""
        self._open(directory, name).finished.wait()

    def _names(self, directory: Path) -> CallNames:
        with self._lock:
            if directory not in self._calls:
                self._calls[directory] = CallNames(directory, self._cache)
            return self._calls[directory]

    def _ready(self, directory: Path, name: str, version: str) -> Segments:
        opened = self._open(directory, name)
        if opened.version != version or opened.segments is None:
            raise ChangedError
        return opened.segments

    def _open(self, directory: Path, name: str) -> _Opened:
        """The table as its file is now; begins to read it if it is not known. Raises UserError where there is none."""
        path = directory / "timeline" / f"{name}.parquet"
        try:
            status = path.stat()
        except OSError:
            raise UserError(f"{path}: does not exist") from None
        stamp = f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
        with self._lock:
            opened = self._opened.get((directory, name))
            if opened is not None and opened.version.rpartition(".")[0] == stamp:
                self._opened.move_to_end((directory, name))
                return opened
            self._number += 1
            table = SegmentTable(path, MESSAGES if name == "messages" else TABLES[name])
            opened = _Opened(table, self._scratch / f"{self._number}.arrow", f"{stamp}.{self._number}")
            self._opened[directory, name] = opened
            self._opened.move_to_end((directory, name))
            while len(self._opened) > _MOST_OPEN:
                _, closed = self._opened.popitem(last=False)
                closed.path.unlink(missing_ok=True)  # whoever still reads it has it open
        threading.Thread(target=opened.make, daemon=True).start()
        return opened
