"""How far ahead a prefetcher is that begins anew in each page, where loads without order come between the lines of a
sequence: the distance at which the dataflow model (models/cpu/dataflow_access.py) is as slow as the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from manyscale.models.machine.processor import Prefetcher

_INTERRUPTED: Final = 1.25  # times as slow as beside loads that the first cache answers: it begins anew
_NUM_PAGES: Final = 6  # the first two are left out
_FARTHEST: Final = 64
# instructions of the loop of microbench.c (load_beside) as gcc 12 makes it on x86-64, a compare with its branch as one
# (clang 14: 35 and 9.5)
_OF_A_LINE: Final = 31
_OF_ANOTHER_LOAD: Final = 11


def lines_ahead(
    beside: Mapping[int, float],
    few: Mapping[int, float],
    latency: float,
    window: int | None,
    width: float | None,
    page_lines: int,
) -> int | None:
    """Lines, or None where no page begins anew, or the core's window or width is not known. ``beside``, ``few``: cycles
    of a line in its order, by the loads beside it, which the first cache does not answer or does; ``latency``: cycles
    of main memory."""
    numbers = [number for number in beside if number in few]
    if window is None or width is None or not any(beside[number] > _INTERRUPTED * few[number] for number in numbers):
        return None
    errors = [
        sum(
            np.log(beside[number] / _cycles(distance, few[number], latency, window, width, number, page_lines)) ** 2
            for number in numbers
        )
        for distance in range(1, _FARTHEST + 1)
    ]
    return int(np.argmin(errors)) + 1


def _cycles(
    distance: int, alone: float, latency: float, window: int, width: float, others: int, page_lines: int
) -> float:
    """Of a line. O(lines)."""
    usual = Prefetcher.model_construct()
    instructions = _OF_A_LINE + _OF_ANOTHER_LOAD * others
    lines = -(-window // instructions)  # that the core sees at once, of the last one a part
    entry = instructions / width
    total = _NUM_PAGES * page_lines
    asked, left = np.zeros(total), np.zeros(total)
    for line in range(total):
        place = line % page_lines
        asked[line] = max(
            asked[line - 1] + entry if line else 0.0,
            left[line - lines] if line >= lines else 0.0,
        )
        by = line
        number = place - usual.confirm + 1
        if number > 0:
            by = line - number + max((number + usual.degree - 1) // usual.degree - 1, number - distance)
        left[line] = max(left[line - 1] + alone if line else 0.0, min(asked[by], asked[line]) + latency)
    first = 2 * page_lines
    return float((left[-1] - left[first - 1]) / (total - first))
