"""Profiles of basic-block vectors (.bb) that are larger than memory: projected while they are read.

What is kept is a few numbers of each interval; of the vectors some megabytes at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.readers import simpoint_bb
from manyscale.sampling.interval_population import ProjectedPopulation
from manyscale.sampling.vectors import Vectors

LARGE_BYTES: Final = 1 << 28  # of text; a workload of it takes six times as much
_PACKED: Final = 12  # times that compressed text grows, as a rule


def is_large(path: Path) -> bool:
    """Whether a profile is better streamed."""
    if not path.is_file() or not simpoint_bb.can_read(path):
        return False
    factor = _PACKED if path.suffix in (".xz", ".gz", ".zst") else 1
    return factor * sum(file.stat().st_size for file in simpoint_bb.thread_files(path)) > LARGE_BYTES


def streamed(path: Path, seed: int, dimensions: int) -> tuple[ProjectedPopulation, tuple[str, ...]]:
    """The intervals of a profile with their projected vectors, and notes of what was odd. Row r of all threads is
    interval r. Raises UserError with file and line. O(bytes + pairs x dimensions)."""
    notes: list[str] = []
    points, sums = np.zeros((0, dimensions)), np.zeros(0)
    files = simpoint_bb.thread_files(path)
    for thread, file in enumerate(files):
        parts, totals = [], []
        for sizes, block, count in simpoint_bb.blocks(file, notes):
            rows = Vectors(np.append(0, np.cumsum(sizes)), block.astype(np.int64) - 1 + (thread << 32), count)
            parts.append(rows.projected(seed, dimensions))
            totals.append(rows.sums())
        points, sums = _added(points, np.concatenate(parts)), _added(sums, np.concatenate(totals))
    points /= np.where(sums > 0, sums, 1.0)[:, None]
    empty = Vectors(np.zeros(len(sums) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
    found = ProjectedPopulation(np.arange(len(sums)), sums, empty, len(files), points=points)
    return found, tuple(notes)


def _added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Sums of rows; the shorter one has zeros at its end."""
    found = np.zeros((max(len(one), len(other)), *one.shape[1:]))
    found[: len(one)] = one
    found[: len(other)] += other
    return found
