"""What the report shows of a result's tables: sums, timeline, message matrix and sizes, all bounded in size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.report.operation_times import column, operation_rows
from manyscale.runner.run.results import STATES, Result

IDLE: Final = len(STATES)  # ended, while others still run
CATEGORIES: Final = (*STATES, "idle")
MAX_ROWS: Final = 1024  # ranks drawn one by one
MAX_RUNS: Final = 600_000  # of the timeline; 5 bytes each
MAX_BINS: Final = 1 << 21  # of a timeline with more runs; all rows together
MAX_CELLS: Final = 256  # rows and columns of the message matrix; their numbers fit a byte


def time_by_state(result: Result) -> np.ndarray:
    """int64[num_ranks, categories]: ps of each rank in each of CATEGORIES; the rows sum to the makespan."""
    ranks = result.ranks
    spent = np.zeros((result.workload.num_ranks, len(CATEGORIES)), np.int64)
    end, start = column(ranks, "end_ps"), column(ranks, "start_ps")
    np.add.at(spent, (column(ranks, "rank"), column(ranks, "state")), end - start)
    spent[:, IDLE] = makespan_ps(result) - spent.sum(axis=1)
    return spent


def makespan_ps(result: Result) -> int:
    """End of the last state."""
    return int(column(result.ranks, "end_ps").max(initial=0))


@dataclass(frozen=True)
class Calls:
    """Per kind of operation that occurs: how often it was called and the ps that all ranks together spent in it."""

    kind: list[OperationKind]
    count: np.ndarray
    time_ps: np.ndarray


def calls(result: Result) -> Calls:
    """Operations by kind, the longest first."""
    kinds = result.workload.column("operations", "kind")
    own = column(result.ranks, "state") != STATES.index("compute")
    duration = (column(result.ranks, "end_ps") - column(result.ranks, "start_ps"))[own]
    count = np.bincount(kinds, minlength=len(OperationKind))
    time = np.zeros(len(OperationKind), np.int64)
    np.add.at(time, kinds[operation_rows(result.workload, result.ranks)[own]], duration)
    order = np.lexsort((np.arange(len(count)), -count, -time))
    order = order[count[order] > 0]
    return Calls([OperationKind(kind) for kind in order], count[order], time[order])


@dataclass(frozen=True)
class Runs:
    """Timeline as runs of one state, row after row: the row's first run, and each run's end and category.

    Rows are ranks 0, ``rank_step``, 2 ``rank_step`` and so on. ``bin_ps``: time is divided into bins of this length,
    each with the category that takes most of it; 0 where the runs are exact.
    """

    offsets: np.ndarray
    end_ps: np.ndarray
    category: np.ndarray
    rank_step: int
    bin_ps: float


def timeline(result: Result) -> Runs:
    """At most MAX_ROWS rows and about MAX_RUNS runs. O(states + MAX_RUNS)."""
    span = makespan_ps(result)
    step = -(-result.workload.num_ranks // MAX_ROWS)
    num_rows = -(-result.workload.num_ranks // step)
    rank = column(result.ranks, "rank")
    shown = rank % step == 0
    row, start, end, category = _filled(
        rank[shown] // step,
        column(result.ranks, "start_ps")[shown],
        column(result.ranks, "end_ps")[shown],
        column(result.ranks, "state")[shown],
        num_rows,
        span,
    )
    last = _is_last(row, category)
    bin_ps, num_bins = 0.0, min(4096, MAX_BINS // num_rows)
    exact = row, start, end, category
    while np.count_nonzero(last) > MAX_RUNS:
        bin_ps = span / num_bins
        category = _dominant(*exact, num_rows, num_bins, span)
        row = np.repeat(np.arange(num_rows), num_bins)
        end = np.tile(np.rint(np.arange(1, num_bins + 1) * bin_ps).astype(np.int64), num_rows)
        last = _is_last(row, category)
        num_bins //= 2
    offsets = np.searchsorted(row[last], np.arange(num_rows + 1))
    return Runs(offsets, end[last], category[last], step, bin_ps)


def _filled(
    row: np.ndarray, start: np.ndarray, end: np.ndarray, category: np.ndarray, num_rows: int, span: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The states and, between and after them, idle time: every row then covers [0, span)."""
    # a mark of no duration at the end of each row closes it
    row = np.concatenate([row, np.arange(num_rows)])
    start = np.concatenate([start, np.full(num_rows, span)])
    end = np.concatenate([end, np.full(num_rows, span)])
    category = np.concatenate([category, np.full(num_rows, IDLE)])
    order = np.lexsort((end, start, row))
    row, start, end, category = row[order], start[order], end[order], category[order]
    before = np.concatenate([[0], end[:-1]])
    before[np.searchsorted(row, np.arange(num_rows))] = 0
    gap = np.flatnonzero(start > before)
    row, category = np.insert(row, gap, row[gap]), np.insert(category, gap, IDLE)
    start, end = np.insert(start, gap, before[gap]), np.insert(end, gap, start[gap])
    keep = start < end
    return row[keep], start[keep], end[keep], category[keep]


def _is_last(row: np.ndarray, category: np.ndarray) -> np.ndarray:
    """Where a run of one row and category ends."""
    last = np.ones(len(row), bool)
    last[:-1] = (row[1:] != row[:-1]) | (category[1:] != category[:-1])
    return last


def _dominant(
    row: np.ndarray, start: np.ndarray, end: np.ndarray, category: np.ndarray, num_rows: int, num_bins: int, span: int
) -> np.ndarray:
    """int[num_rows * num_bins]: the category that takes most of each bin.

    The time in a category up to a moment is piecewise linear in that moment; it is read off at the edges of the bins.
    """
    edges = (np.arange(num_rows)[:, None] * span + np.linspace(0.0, span, num_bins + 1)).ravel()
    most, best = np.full((num_rows, num_bins), -1.0), np.full((num_rows, num_bins), IDLE, np.uint8)
    for index in range(len(CATEGORIES)):
        mine = category == index
        if not mine.any():
            continue
        moments = np.stack([start[mine], end[mine]], axis=1) + (row[mine].astype(float) * span)[:, None]
        total = np.cumsum(end[mine] - start[mine])
        sums = np.stack([np.concatenate([[0], total[:-1]]), total], axis=1)
        at_edges = np.interp(edges, moments.ravel(), sums.ravel()).reshape(num_rows, num_bins + 1)
        covered = np.diff(at_edges, axis=1)
        better = covered > most
        most[better], best[better] = covered[better], index
    return best.ravel()


@dataclass(frozen=True)
class Matrix:
    """Messages by source and destination, as the pairs that occur; one cell is ``ranks_per_cell`` ranks each way."""

    num_cells: int
    ranks_per_cell: int
    source: np.ndarray
    destination: np.ndarray
    bytes: np.ndarray
    count: np.ndarray


def message_matrix(result: Result) -> Matrix:
    """At most MAX_CELLS cells a side. O(messages log messages)."""
    per_cell = -(-result.workload.num_ranks // MAX_CELLS)
    num_cells = -(-result.workload.num_ranks // per_cell)
    source = column(result.messages, "source").astype(np.int64) // per_cell
    destination = column(result.messages, "destination") // per_cell
    pairs, place = np.unique(source * num_cells + destination, return_inverse=True)
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, place, column(result.messages, "bytes"))
    return Matrix(
        num_cells, per_cell, pairs // num_cells, pairs % num_cells, total, np.bincount(place, minlength=len(pairs))
    )


@dataclass(frozen=True)
class Sizes:
    """Messages by size: ``upper_bytes`` of each class (a power of two, or 0), and what falls into it."""

    upper_bytes: list[int]
    count: np.ndarray
    bytes: np.ndarray


def message_sizes(result: Result) -> Sizes:
    """Classes from the smallest to the largest that occur, each up to twice the one before."""
    size = column(result.messages, "bytes")
    if not len(size):
        return Sizes([], np.zeros(0, np.int64), np.zeros(0, np.int64))
    bounds = np.concatenate([[0], 2 ** np.arange(63, dtype=np.int64)])
    place = np.searchsorted(bounds, size)
    first, last = int(place.min()), int(place.max()) + 1
    total = np.zeros(len(bounds), np.int64)
    np.add.at(total, place, size)
    count = np.bincount(place, minlength=len(bounds))
    return Sizes(bounds[first:last].tolist(), count[first:last], total[first:last])
