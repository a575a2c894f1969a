"""Profiles of basic-block vectors (.bb) that are larger than memory: projected while they are read.

What is kept is a few numbers of each interval; of the vectors some megabytes at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload.notes import Note
from manyscale.runner.readers import counter_table, simpoint_bb
from manyscale.runner.readers.simpoint_bb.files import table_file, thread_files
from manyscale.runner.readers.simpoint_bb.reader import blocks
from manyscale.sampling.population import ProjectedPopulation
from manyscale.sampling.vectors import Vectors

LARGE_BYTES: Final = 1 << 28  # of text; a workload of it takes six times as much
_PACKED: Final = 12  # times that compressed text grows, as a rule


def is_large(path: Path) -> bool:
    """Whether a profile is better streamed."""
    if not path.is_file() or not simpoint_bb.can_read(path):
        return False
    factor = _PACKED if path.suffix in (".xz", ".gz", ".zst") else 1
    return factor * sum(file.stat().st_size for file in thread_files(path)) > LARGE_BYTES


def streamed(
    path: Path, seed: int, dimensions: int, matrix: np.ndarray | None = None
) -> tuple[ProjectedPopulation, tuple[Note, ...]]:
    """The intervals of a profile with their projected vectors, and notes of what was odd. Without a table beside it,
    row r of all threads is interval r. ``matrix`` float64[blocks, dimensions], if given, projects, else random numbers.
    Raises UserError with file and line; ValueError for a matrix that has too few rows. O(bytes + pairs x
    dimensions)."""
    notes: list[Note] = []
    files = thread_files(path)
    if matrix is not None and len(files) > 1:
        raise ValueError("is large and of several threads, whose blocks lie apart; a matrix cannot project it")
    points, sums, columns = [], [], 0
    for thread, file in enumerate(files):
        parts, totals = [], []
        for sizes, block, count in blocks(file, notes):
            rows = Vectors(np.append(0, np.cumsum(sizes)), block.astype(np.int64) - 1 + (thread << 32), count)
            parts.append(rows.projected(seed, dimensions) if matrix is None else rows.times(matrix))
            totals.append(rows.sums())
            columns = max(columns, int(block.max(initial=0)))
        points.append(np.concatenate(parts))
        sums.append(np.concatenate(totals))
    table = table_file(path)
    measured = None if table is None else counter_table.read(table, files, [len(each) for each in sums], notes)
    own = [np.arange(len(each)) for each in sums] if measured is None else measured.intervals
    number, at = np.unique(np.concatenate(own), return_inverse=True)
    whole, total = np.zeros((len(number), dimensions)), np.bincount(at, np.concatenate(sums), len(number))
    np.add.at(whole, at, np.concatenate(points))
    whole /= np.where(total > 0, total, 1.0)[:, None]
    instructions, counters = total, {}
    if measured is not None:
        counters = {name: _sums(values, at) for name, values in measured.counters.items()}
        if measured.instructions is not None:
            instructions = np.bincount(at, measured.instructions, len(number))
    empty = Vectors(np.zeros(len(number) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
    found = ProjectedPopulation(
        number, instructions, empty, len(files), counters, points=whole, num_columns=columns
    )  # fmt: skip
    return found, tuple(notes)


def _sums(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Over the threads that were measured of each interval, NaN where none was."""
    return np.where(np.bincount(at, ~np.isnan(values)) > 0, np.bincount(at, np.nan_to_num(values)), np.nan)
