"""How long launches took on hardware: cycles or times of a profiler's table, whatever else it counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.readers.launch_counters.profiler_csv import KERNEL_NAMES, headers_in, read_table, simple_name
from manyscale.runner.readers.launch_counters.reader import (
    CYCLES,
    DURATION,
    SUM_OF_SMS,
    Finder,
    kernels_only,
    plain_name,
    shape_of,
)

_NAMED = frozenset(KERNEL_NAMES)
_TIMES = frozenset((*CYCLES, *DURATION, *SUM_OF_SMS))
_SHAPES = frozenset(("grid_x", "grid_size", "launch_grid_size"))
_BLOCK_SHAPES = frozenset(("block_x", "block_size", "launch_block_size"))
_SUMMARY = {"invocations", "avg"}


@dataclass(frozen=True)
class Measured:
    """Of each launch, in the file's order: ``kernel_name``, ``line`` int64, ``grid`` and ``block`` int64[launches, 3]
    (None: the file does not say), ``cycles`` and ``duration_s`` float64 (None likewise). ``cycles_are_summed``: over
    the SMs of the GPU."""

    path: Path
    kernel_name: tuple[str, ...]
    line: np.ndarray
    grid: np.ndarray | None
    block: np.ndarray | None
    cycles: np.ndarray | None
    duration_s: np.ndarray | None
    cycles_are_summed: bool
    notes: tuple[Note, ...] = ()


def can_read(path: Path) -> bool:
    """Whether the file has a table with a column of kernels' names, as profilers write them."""
    return any(_begins(names) for _, names in headers_in(path))


def _begins(names: set[str]) -> bool:
    return bool(_NAMED & names) and ("metric_name" in names or bool(_TIMES & names))


def read(path: Path) -> Measured:
    """Raises UserError with file and line; for a file that says nothing of time, with what to collect."""
    table = kernels_only(read_table(path, _begins))
    if {simple_name(name) for name in table.columns} >= _SUMMARY:
        raise UserError(f"{path}: is a summary over launches; profile with --print-gpu-trace, which has each of them")
    find = Finder(table)
    cycles, summed = find.cycles()
    duration = find.times(DURATION)
    if cycles is None and duration is None:
        raise UserError(
            f"{path}: has neither cycles nor times of launches; collect gpc__cycles_elapsed.max (ncu --metrics) or "
            "--print-gpu-trace (nvprof)"
        )
    names = find.texts(KERNEL_NAMES)
    return Measured(
        path=path,
        kernel_name=tuple(map(plain_name, names)),
        line=table.lines,
        grid=shape_of(find, "grid", len(names)) if _SHAPES & set(table.columns) else None,
        block=shape_of(find, "block", len(names)) if _BLOCK_SHAPES & set(table.columns) else None,
        cycles=cycles,
        duration_s=duration,
        cycles_are_summed=summed,
        notes=tuple(find.notes),
    )
