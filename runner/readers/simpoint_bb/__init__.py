"""Reader for profiles of intervals as basic-block vectors (.bb): plain, gzip, xz or zstd.

Written by Valgrind's exp-bbv, gem5, Pin and PinPlay for SimPoint. A line ``T:DIM:COUNT   :DIM:COUNT ...`` is an
interval; dimensions count from 1; a count is executions times instructions of a block. All rows are read, also those
that SimPoint 3.2 loses (a last line without its newline, what follows a bare ``T``); notes say what was odd.

Threads: each has a file of its own, NAME.bb, NAME.bb.2, NAME.bb.3 ... (exp-bbv) or NAME.T.0.bb, NAME.T.1.bb ...
(LoopPoint); naming the first one reads all. Row r of every file is interval r, unless a table says otherwise.

Beside NAME.bb, NAME.cpi.csv or NAME.csv (plain or compressed) may tell what was measured of the intervals
(counter_table.py).

A profile knows neither communication nor time: it becomes one rank with one ``other`` operation.

Memory: about 75 bytes a pair.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.readers.archive import first_line, read_head
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.simpoint_bb.files import table_file, thread_files

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

_HEAD_BYTES: Final = 1 << 14
_VECTOR: Final = re.compile(rb"T[ \t]*:\d+:[\d.]")
_ROW: Final = re.compile(rb"[ \t]*(T[ \t]*(:\d.*)?|#.*|G?[A-SU-Z][:=].*|[A-Z][a-z]+ .*)?\r?")


def can_read(path: Path) -> bool:
    """Whether the first lines of the file are basic-block vectors. Reads some thousand bytes."""
    head = read_head(path, _HEAD_BYTES)
    if head is None:
        return False
    lines = head.split(b"\n")
    whole = lines[:-1] if len(head) == _HEAD_BYTES and len(lines) > 1 else lines
    return any(_VECTOR.match(line.strip()) for line in lines) and all(_ROW.fullmatch(line) for line in whole)


def resembles(path: Path) -> int | None:
    """The first line that is a vector, if one is."""
    return first_line(path, _VECTOR)


def reads_one_file(path: Path) -> bool:
    """Whether no other file belongs to it."""
    return path.is_file() and len(thread_files(path)) == 1 and table_file(path) is None


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, table: Path | None = None) -> Workload:
    """The workload of a profile (``options`` play no part), with what ``table`` measured, else the one beside it.
    Raises UserError with file and line."""
    from manyscale.runner.readers.simpoint_bb import reader

    return reader.read(path, options, table)
