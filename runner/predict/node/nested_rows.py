"""Rows of cores that do not overlap, from instances of which only the first begin and the last end are known.

Simulated cores tell of an instance when it began and when it had ended. One that was suspended meanwhile spans what its
core executed instead. A core is taken to execute, of all that have begun and not ended there, the one that began last.
"""

from __future__ import annotations

import numpy as np


def alone_on_cores(columns: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Columns (rank, core, start, end, ...) of rows of one rank, cut so that no two rows of a core overlap; as they are
    where none do. O(rows log rows), in Python only for rows of cores where some overlap."""
    core, start, end = columns[1:4]
    order = np.lexsort((-end, start, core))
    overlaps = (core[order][1:] == core[order][:-1]) & (start[order][1:] < end[order][:-1])
    if not overlaps.any():
        return columns
    nested = np.isin(core[order], np.unique(core[order][1:][overlaps])) & (start[order] < end[order])
    cut = [np.array(each, np.int64).reshape(-1) for each in zip(*_pieces(order[nested], core, start, end), strict=True)]
    owner = np.concatenate((order[~nested], cut[0]))
    found = [each[owner] for each in columns]
    found[2], found[3] = np.concatenate((start[order[~nested]], cut[1])), np.concatenate((end[order[~nested]], cut[2]))
    return tuple(found)


def _pieces(rows: np.ndarray, core: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, begin, end) of what each of the rows, by core and begin, executes."""
    found: list[tuple[int, int, int]] = []
    open_rows: list[tuple[int, int]] = []  # (row, end): those that go on behind the one that executes
    since, here = 0, -1
    for row, place, begin, finish in zip(
        rows.tolist(), core[rows].tolist(), start[rows].tolist(), end[rows].tolist(), strict=True
    ):
        since = _run_until(None if place != here else begin, since, open_rows, found)
        here, since = place, begin
        open_rows.append((row, finish))
    _run_until(None, since, open_rows, found)
    return found


def _run_until(
    time: int | None, since: int, open_rows: list[tuple[int, int]], found: list[tuple[int, int, int]]
) -> int:
    """The core goes on to ``time``, or to the end of all it has begun: what began last first."""
    while open_rows and (time is None or since < time):
        row, finish = open_rows[-1]
        until = finish if time is None else min(finish, time)
        if until > since:
            found.append((row, since, until))
            since = until
        if finish <= since:
            open_rows.pop()
    return since
