"""Parts of a timeline as grids: which category takes most of each cell.

A tile has ``COLUMNS`` columns of 2^e ps and up to ``ROWS`` rows of 2^r rows of the table each, so that tiles of one
level lie side by side without a gap whatever the window is, and those of two runs lie on one grid. It is made of all
segments that touch it: levels differ in how coarse they are, not in how exact.

Cost: O(segments of the pieces that touch the tile + cells that long segments cover).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.runner.view.segments import Segments

COLUMNS: Final = 512
ROWS: Final = 256
NOTHING: Final = 255  # a cell in which nothing is recorded
MOST_CATEGORIES: Final = 40  # further ones share the last colour


def top_level(span_ps: int) -> int:
    """The least e with which one tile covers the whole time."""
    return max(0, (max(span_ps, 1) - 1) // COLUMNS).bit_length()


def top_row_level(num_rows: int) -> int:
    """The least r with which one tile covers all rows."""
    return max(0, (max(num_rows, 1) - 1) // ROWS).bit_length()


def tile(segments: Segments, e: int, column: int, r: int, block: int) -> np.ndarray:
    """uint8[rows, COLUMNS]: the category that takes most of each cell, NOTHING where there is none. The tile is the
    ``column``-th of level ``e`` in time and the ``block``-th of level ``r`` in rows; it ends with the table's rows.

    Of categories that take equally long, the first counts.
    """
    table = segments.table
    first = block * (ROWS << r)
    last = min(first + (ROWS << r), table.num_rows) - 1
    rows = max(0, (last - first >> r) + 1)
    count = max(1, min(len(table.categories), MOST_CATEGORIES))
    spent = np.zeros((rows, COLUMNS, count), np.int64)
    if rows:
        from_ps = column * (COLUMNS << e)
        place = np.array([from_ps, e, first, r], np.int64)
        for piece in segments.pieces(from_ps, from_ps + (COLUMNS << e), first, last):
            _spend(piece.row, piece.start, piece.end, piece.category, place, spent)
    most = np.empty((rows, COLUMNS), np.uint8)
    _choose(spent, most)
    return most


def warm() -> None:
    """Load the kernels, or compile them where they are not kept yet, before somebody waits for the first tile."""
    row, time = np.zeros(0, np.int32), np.zeros(0, np.int64)
    spent = np.zeros((1, COLUMNS, 1), np.int64)
    _spend(row, time, time, row, np.zeros(4, np.int64), spent)
    _choose(spent, np.empty((1, COLUMNS), np.uint8))


@njit(cache=True, nogil=True)
def _spend(  # type: ignore[no-untyped-def]
    row, start, end, category, place, spent
):
    """Add the time of segments to the cells that they touch. ``row``, ``category`` int32[n], ``start``, ``end``
    int64[n] in ps; ``place``: begin in ps, level in time, first row, level in rows; ``spent`` int64[rows, columns,
    categories] in ps."""
    from_ps, e, first_row, r = place[0], place[1], place[2], place[3]
    rows, columns, count = spent.shape
    until = columns << e
    for index in range(len(row)):
        line = (np.int64(row[index]) - first_row) >> r
        begin, stop = max(start[index] - from_ps, 0), min(end[index] - from_ps, until)
        if line < 0 or line >= rows or stop <= begin:
            continue
        kind = min(np.int64(category[index]), count - 1)
        first, last = begin >> e, (stop - 1) >> e
        if first == last:
            spent[line, first, kind] += stop - begin
            continue
        spent[line, first, kind] += ((first + 1) << e) - begin
        for column in range(first + 1, last):
            spent[line, column, kind] += 1 << e
        spent[line, last, kind] += stop - (last << e)


@njit(cache=True, nogil=True)
def _choose(spent, most):  # type: ignore[no-untyped-def]
    """``most`` uint8[rows, columns]: the category with most of ``spent`` int64[rows, columns, categories]."""
    rows, columns, count = spent.shape
    for line in range(rows):
        for column in range(columns):
            best, longest = NOTHING, 0
            for kind in range(count):
                if spent[line, column, kind] > longest:
                    best, longest = kind, spent[line, column, kind]
            most[line, column] = best
