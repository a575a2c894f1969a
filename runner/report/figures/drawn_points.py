"""Which points of a large sweep a chart draws, and which a table shows: a page of any sweep stays small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manyscale.runner.report.figures.sweep import MAKESPAN, Points

MOST_LINES: Final = 24  # of a chart
MOST_ALONG: Final = 200  # points of a line
MOST_ROWS: Final = 2_000  # of a table
FASTEST_ROWS: Final = 500


def drawn(points: Points, axes: Sequence[str], along: int) -> tuple[Points, str]:
    """The points of a chart along the axis of that number: all, or those at some values of each axis, evenly spaced
    with the first and the last one; and what is left out, in words ("" for nothing). O(points x axes)."""
    values = {name: list(dict.fromkeys(points[name])) for name in axes}
    most = {axes[along]: MOST_ALONG} if axes else {}
    others = [name for name in axes if name not in most]
    lines = 1
    for name in others:
        lines *= len(values[name])
    for name in others:
        most[name] = len(values[name]) if lines <= MOST_LINES else max(2, int(MOST_LINES ** (1 / len(others))))
    shown = {name: _spread(len(values[name]), most[name]) for name in axes}
    left = [name for name in axes if len(shown[name]) < len(values[name])]
    if not left:
        return points, ""
    kept = {name: {values[name][place] for place in shown[name]} for name in left}
    rows = [row for row in range(len(points[MAKESPAN])) if all(points[name][row] in kept[name] for name in left)]
    words = ", ".join(f"{len(shown[name]):,} of {len(values[name]):,} values of {name}" for name in left)
    return _rows(points, rows), f"Drawn are {words}, evenly spaced; sweep.parquet has all."


def listed(points: Points) -> tuple[list[int], str]:
    """Rows of the table of points: all, or the fastest ones and some of the others, evenly spaced; and what is left
    out, in words."""
    times = points[MAKESPAN]
    if len(times) <= MOST_ROWS:
        return list(range(len(times))), ""
    order = sorted(range(len(times)), key=times.__getitem__)
    rest = sorted(order[FASTEST_ROWS:])
    some = [rest[place] for place in _spread(len(rest), MOST_ROWS - FASTEST_ROWS)]
    words = (
        f"The table has {MOST_ROWS:,} of {len(times):,} points: the {FASTEST_ROWS} fastest, and others evenly spaced"
    )
    return sorted(order[:FASTEST_ROWS] + some), f"{words}; sweep.parquet has all. "


def _spread(number: int, most: int) -> list[int]:
    """Places of at most so many of a ``number``, the first and the last one among them."""
    if number <= most:
        return list(range(number))
    return [place * (number - 1) // (most - 1) for place in range(most)]


def _rows(points: Points, rows: Sequence[int]) -> Points:
    return {name: [column[row] for row in rows] for name, column in points.items()}
