"""Kernels of all ranks as one table, and the rows of ranks with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers.kineto import kernels
from manyscale.runner.readers.kineto.given import MARKER
from manyscale.runner.readers.kineto.rank import STEP_BEGINS, STEP_ENDS, WINDOW_ENDS, Rank
from manyscale.runner.readers.kineto.tables import RankRows
from manyscale.runner.readers.stream_tables import kernels_table

_G: Final = GpuOperationKind
class_of: Final = lru_cache(1 << 16)(kernels.class_of)
_OUTSIDE: Final = "(given before the trace began)"


def with_kernels(ranks: Sequence[Rank], begins: Sequence[int]) -> tuple[pa.Table, list[RankRows]]:
    """The table of kernels, and the ranks with theirs, threads numbered from 0."""
    numbers_of: dict[tuple[str, str, int, int], int] = {}
    work: list[tuple[float, float]] = []
    found = []
    for rank, begin in zip(ranks, begins, strict=True):
        trace, own = rank.trace, rank.rows
        kernel = np.full(len(own), -1, np.int64)
        launches = np.flatnonzero(own.kind == _G.launch)
        alone = np.bincount(rank.operator[rank.operator >= 0], minlength=len(trace.operators) or 1)
        for row in launches.tolist():
            given = int(own.given[row])
            name, shape, blocks, threads = _OUTSIDE, (float("nan"), float("nan")), 0, 0
            if given >= 0:
                blocks, threads = int(trace.blocks[given]), int(trace.block_threads[given])
                name = trace.names[int(trace.given.name[given])]
                operator = int(rank.operator[given])
                if operator >= 0 and alone[operator] == 1:
                    shape = kernels.work_of(
                        trace.names[int(trace.operators.name[operator])],
                        trace.operators.args[operator],
                        class_of(name),
                    )
            key = (name, f"{shape[0]} {shape[1]}", blocks, threads)
            if key not in numbers_of:
                numbers_of[key] = len(work)
                work.append(shape)
            kernel[row] = numbers_of[key]
        order = [rank.first, *(each for each in dict.fromkeys(own.thread.tolist()) if each != rank.first)]
        place = np.zeros(max(order) + 1, np.int64)
        place[order] = np.arange(len(order))
        shift = begin - trace.begin
        moved = replace(
            own, thread=place[own.thread], at=np.where(own.at > -(2**62), own.at + shift, own.at),
            until=np.where(own.until > -(2**62), own.until + shift, own.until),
        )  # fmt: skip
        found.append(RankRows(moved, kernel, {}, begin, _steps(rank), _took(rank, shift), _gpus(rank)))
    names = [name for name, *_ in numbers_of]
    classes, precisions = [class_of(name) for name in names], [kernels.precision_of(name) for name in names]
    shapes = np.array(work, np.float64).reshape(-1, 2)
    launched = np.array([key[2:] for key in numbers_of], np.int64).reshape(-1, 2)
    return kernels_table(names, classes, precisions, shapes[:, 0], shapes[:, 1], launched), found


def _steps(rank: Rank) -> tuple[tuple[int, int, int], ...]:
    marks = np.flatnonzero(rank.rows.kind == MARKER)
    times = rank.rows.order[marks]
    found: list[tuple[int, int, int]] = []
    for step, _, begin, end in rank.trace.steps:
        first = int(marks[(times == begin) & (rank.rows.second[marks] == STEP_BEGINS)][0])
        last = int(marks[(times == end) & np.isin(rank.rows.second[marks], (STEP_ENDS, WINDOW_ENDS))][0])
        if step not in {each for each, *_ in found}:
            found.append((step, first, last))
    return tuple(found)


def _took(rank: Rank, shift: int) -> dict[int, tuple[int, int]]:
    """Begin and end of each step, the first of its number, on the clock of all ranks."""
    found: dict[int, tuple[int, int]] = {}
    for step, _, begin, end in rank.trace.steps:
        found.setdefault(step, (begin + shift, end + shift))
    return found


def _gpus(rank: Rank) -> dict[int, str]:
    devices = np.unique(rank.trace.device).tolist()
    return {each: rank.trace.gpus[each] for each in devices if rank.trace.gpus.get(each)}
