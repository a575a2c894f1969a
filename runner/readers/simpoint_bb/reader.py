"""The vectors of a profile as a workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.models.workload.profile_tables import (
    INTERVAL_BLOCKS_SCHEMA,
    INTERVAL_COUNTERS_SCHEMA,
    INTERVALS_SCHEMA,
)
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds, counter_table
from manyscale.runner.readers.archive import CHUNK_BYTES, guarded, open_stream
from manyscale.runner.readers.counter_table import Measured
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.simpoint_bb import lines as bb_lines
from manyscale.runner.readers.simpoint_bb.files import name_of, table_file, thread_files

NAME: Final = "simpoint-bb"
INSTRUCTIONS_APART: Final = 0.01  # share by which a table and the vectors may differ unnoticed


@dataclass(frozen=True)
class _Vectors:
    """A thread's rows: ``sizes`` int64[rows], pairs of each; ``dimensions`` int32[], ``counts`` float64[] of pairs."""

    sizes: np.ndarray
    dimensions: np.ndarray
    counts: np.ndarray


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, table: Path | None = None) -> Workload:
    """The workload of a profile (``options`` play no part), with what ``table`` measured, else the one beside it.
    Raises UserError with file and line."""
    notes: list[Note] = []
    files = thread_files(path)
    threads = [_vectors(file, notes) for file in files]
    table = table or table_file(path)
    measured = None if table is None else counter_table.read(table, files, [len(each.sizes) for each in threads], notes)
    if measured is None:
        intervals = [np.arange(len(each.sizes), dtype=np.int64) for each in threads]
        if len({len(each) for each in intervals}) > 1:
            text = (
                "the threads have different numbers of intervals and no table says which belong together: the first "
                "intervals of all threads are taken for one, and so on"
            )
            notes.append(changes("intervals-joined-by-number", text))
    else:
        intervals = measured.intervals
    tables = _tables(threads, intervals, measured, notes) | rank_tables(1, {})
    return Workload(name_of(path), 1, tables, tuple(notes), NAME)


def _vectors(path: Path, notes: list[Note]) -> _Vectors:
    found = [*blocks(path, notes)]
    return _Vectors(*map(np.concatenate, zip(*found, strict=True)))


def blocks(path: Path, notes: list[Note]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of one file, some megabytes at a time: pairs of each row (int64[]), dimensions from 1 (int32[]) and counts
    (float64[]) of all pairs. What was odd is added to ``notes`` at the end. Raises UserError with file and line."""
    seen = np.zeros(bb_lines.NUM_SEEN, np.int64)
    rows = 0
    with guarded(path), open_stream(path) as stream:
        for text, size, base in _whole_lines(path, stream, notes):
            *parts, stop, problem = bb_lines.parse_block(text, size, seen)
            if problem:
                raise _line_error(path, base + stop, bb_lines.PROBLEMS[problem])
            rows += len(parts[0])
            yield parts[0], parts[1], parts[2]
    if not rows:
        raise UserError(f"{path}: has no intervals (lines T:DIM:COUNT ...); profile the program again")
    empty, other, carriage_returns, fractions = (int(seen[index]) for index in (
        bb_lines.EMPTY_ROWS, bb_lines.OTHER_LINES, bb_lines.CARRIAGE_RETURNS, bb_lines.FRACTIONS
    ))  # fmt: skip
    odd = (
        informs("empty-intervals", f"{empty} intervals without blocks (a bare T), where SimPoint would stop: kept as "
                "empty ones", path.name, empty),
        informs("lines-left-out", f"{other} lines that are no vectors (markers and tables of PinPlay): left out",
                path.name, other),
        informs("carriage-returns", f"{carriage_returns} lines end in a carriage return", path.name, carriage_returns),
        informs("fractional-counts", f"{fractions} counts are no integers", path.name, fractions),
    )  # fmt: skip
    notes += [note for note in odd if note.count]


def _whole_lines(path: Path, stream: IO[bytes], notes: list[Note]) -> Iterator[tuple[bytes, int, int]]:
    """Blocks of whole lines as (text, number of bytes to parse, offset in the file)."""
    text, base = b"", 0
    while block := stream.read(CHUNK_BYTES):
        text += block
        size = text.rfind(b"\n") + 1
        if size:
            yield text, size, base
            text, base = text[size:], base + size
    if text:
        kept = "the last line has no newline, SimPoint would drop it: kept"
        notes.append(informs("no-last-newline", kept, path.name))
        yield text, len(text), base


def _line_error(path: Path, place: int, what: str) -> UserError:
    number, left = 1, place
    with open_stream(path) as stream:
        while left and (block := stream.read(min(left, CHUNK_BYTES))):
            number += block.count(b"\n")
            left -= len(block)
        shown = stream.readline(60).decode(errors="replace").rstrip()
    return UserError(f"{path}:{number}: {shown!r} {what}; profile the program again or mend the line")


def _tables(
    threads: list[_Vectors], intervals: list[np.ndarray], measured: Measured | None, notes: list[Note]
) -> dict[str, pa.Table]:
    """Rows sorted by (interval, thread), pairs by dimension within; repeated dimensions are added. O(n log n)."""
    interval = np.concatenate(intervals)
    thread = np.repeat(np.arange(len(threads)), [len(each) for each in intervals])
    order = np.lexsort((thread, interval))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    row = np.repeat(place, np.concatenate([each.sizes for each in threads]))
    key = row << 32 | np.concatenate([each.dimensions for each in threads])
    counts = np.concatenate([each.counts for each in threads])
    if np.any(key[1:] <= key[:-1]):
        by_key = np.argsort(key, kind="stable")
        key, counts = key[by_key], counts[by_key]
        first = np.flatnonzero(np.append(True, np.diff(key) != 0))
        if len(first) < len(key):
            key, counts = key[first], np.add.reduceat(counts, first)
    row = key >> 32
    interval, thread = interval[order].astype(np.int32), thread[order].astype(np.int32)
    instructions = bounds.counts(np.bincount(row, counts, len(order)), "vectors", "the count of an interval")
    counter_names: list[str] = []
    values = np.empty((len(order), 0))
    if measured is not None:
        counter_names = list(measured.counters)
        values = np.array(list(measured.counters.values())).reshape(len(counter_names), len(order)).T[order]
        if measured.instructions is not None:
            told, counted = int(measured.instructions.sum()), int(instructions.sum())
            if abs(told - counted) > INSTRUCTIONS_APART * max(told, counted):
                text = f"the table tells {told:,} instructions, the vectors hold {counted:,}: the table is taken"
                notes.append(changes("instructions-disagree", text))
            instructions = measured.instructions[order]
    at, code = np.nonzero(~np.isnan(values))
    named = pa.DictionaryArray.from_arrays(to_arrow(code.astype(np.int16)), text_array(counter_names))
    blocks = [interval[row], thread[row], (key & 0x7FFFFFFF).astype(np.int32), counts]
    counters = [to_arrow(interval[at]), to_arrow(thread[at]), named, to_arrow(values[at, code])]
    return {
        "intervals": _table([interval, thread, instructions], INTERVALS_SCHEMA),
        "interval_blocks": _table(blocks, INTERVAL_BLOCKS_SCHEMA),
        "interval_counters": pa.Table.from_arrays(counters, schema=INTERVAL_COUNTERS_SCHEMA),
    }


def _table(columns: list[np.ndarray], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(list(map(to_arrow, columns)), schema=schema)
