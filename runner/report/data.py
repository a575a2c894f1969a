"""What the report shows of a result's tables: sums, timeline, message matrix and sizes, all bounded in size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.report.operation_times import column, operation_rows
from manyscale.runner.run.results import STATES, Result

IDLE: Final = len(STATES)  # ended, while others still run
CATEGORIES: Final = (*STATES, "idle")
MAX_ROWS: Final = 1024  # ranks drawn one by one
MAX_RUNS: Final = 600_000  # of the timeline; 5 bytes each
MAX_CHOSEN_RUNS: Final = 200_000  # of that of chosen ranks
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

    Rows are ``ranks_per_row`` ranks each, from rank 0 on, or the ``ranks`` that were chosen. ``bin_ps``: time is
    divided into bins of this length, each with the category that takes most of it; 0 where the runs are exact.
    """

    offsets: np.ndarray
    end_ps: np.ndarray
    category: np.ndarray
    ranks_per_row: int
    bin_ps: float
    ranks: np.ndarray | None = None


def timeline(result: Result) -> Runs:
    """At most MAX_ROWS rows and about MAX_RUNS runs; rows of several ranks where there are more. O(states + MAX_RUNS +
    MAX_BINS)."""
    step = -(-result.workload.num_ranks // MAX_ROWS)
    if step > 1:
        return _of_ranges(result, step)
    return _of_ranks(result, np.arange(result.workload.num_ranks), MAX_RUNS)


def timeline_of_chosen(result: Result, ranks: np.ndarray) -> Runs:
    """Of single ranks, about MAX_CHOSEN_RUNS runs. O(states + MAX_BINS)."""
    return replace(_of_ranks(result, ranks, MAX_CHOSEN_RUNS), ranks=ranks)


def _of_ranks(result: Result, ranks: np.ndarray, most: int) -> Runs:
    span, num_rows = makespan_ps(result), len(ranks)
    row_of = np.full(result.workload.num_ranks, -1)
    row_of[ranks] = np.arange(num_rows)
    row = row_of[column(result.ranks, "rank")]
    shown = row >= 0
    exact = _filled(
        row[shown],
        column(result.ranks, "start_ps")[shown],
        column(result.ranks, "end_ps")[shown],
        column(result.ranks, "state")[shown],
        num_rows,
        span,
    )
    row, _, end, category = exact
    last = _is_last(row, category)
    bin_ps, num_bins = 0.0, min(4096, MAX_BINS // num_rows)
    while np.count_nonzero(last) > most:
        bin_ps = span / num_bins
        row, end, last = _of_bins(category := _dominant(*exact, num_rows, num_bins, span), num_rows, bin_ps)
        num_bins //= 2
    return Runs(np.searchsorted(row[last], np.arange(num_rows + 1)), end[last], category[last], 1, bin_ps)


def _of_ranges(result: Result, step: int) -> Runs:
    """Of ranges of ``step`` ranks, the last may have fewer."""
    span, num_ranks = makespan_ps(result), result.workload.num_ranks
    num_rows = -(-num_ranks // step)
    num_bins = min(4096, MAX_BINS // num_rows)
    while True:
        bin_ps = span / num_bins
        category = _dominant_of_ranges(result, step, num_rows, num_bins, span)
        row, end, last = _of_bins(category, num_rows, bin_ps)
        if np.count_nonzero(last) <= MAX_RUNS or num_bins == 1:
            break
        num_bins //= 2
    return Runs(np.searchsorted(row[last], np.arange(num_rows + 1)), end[last], category[last], step, bin_ps)


def _of_bins(category: np.ndarray, num_rows: int, bin_ps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row and end of each bin, and whether the next is of another row or category."""
    num_bins = len(category) // num_rows
    row = np.repeat(np.arange(num_rows), num_bins)
    end = np.tile(np.rint(np.arange(1, num_bins + 1) * bin_ps).astype(np.int64), num_rows)
    return row, end, _is_last(row, category)


def _dominant_of_ranges(result: Result, step: int, num_rows: int, num_bins: int, span: int) -> np.ndarray:
    """int[num_rows * num_bins]: the category in which the ranks of a row together are for most of each bin; of several
    the first, and idle last. O(states + categories x bins)."""
    length = span / num_bins
    edges = np.arange(num_bins + 1) * length
    row, state = column(result.ranks, "rank") // step, column(result.ranks, "state")
    times = [column(result.ranks, name) for name in ("start_ps", "end_ps")]
    in_row = np.diff(np.minimum(np.arange(num_rows + 1) * step, result.workload.num_ranks))
    most, best = np.zeros((num_rows, num_bins)), np.full((num_rows, num_bins), IDLE, np.uint8)
    idle = np.repeat(in_row[:, None] * length, num_bins, axis=1)
    for index in range(len(STATES)):
        mine = np.flatnonzero(state == index)
        if not len(mine):
            continue
        covered = np.zeros((num_rows, num_bins))
        for sign, time in zip((1, -1), times, strict=True):
            # what has begun (ended) before an edge has lasted (been over) since
            moment = time[mine]
            bins = np.minimum((moment / length).astype(np.int64), num_bins - 1)
            place, shape = row[mine] * np.int64(num_bins) + bins, (num_rows, num_bins)
            count = np.bincount(place, minlength=num_rows * num_bins).reshape(shape)
            first = np.bincount(place, edges[bins + 1] - moment, minlength=num_rows * num_bins).reshape(shape)
            covered += sign * (first + (np.cumsum(count, axis=1) - count) * length)
        better = covered > most
        most[better], best[better] = covered[better], index
        idle -= covered
    best[idle > most] = IDLE
    return best.ravel()


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
