"""From curves over working sets to the parameters of levels: latency, bandwidth, entries, numbers of buffers.

Method: a level shows as a plateau of the curve, between several times the capacity of the level before it and half its
own. Within this range the values that another level dominates already (a cache that other programs use as well holds
less than it could) are left out, and of the rest the median is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

_INSIDE_RATIO: Final = 1.15  # beyond this, compared with the best value of the range, another level serves, too
_CLIFF_RATIO: Final = 1.5  # beyond this it is another level that serves
_FAR_BELOW: Final = 4  # times the level before: a cache keeps some lines of sets that are a little too large
_NEAR_BELOW: Final = 2
_PARTLY_HELD: Final = (0.25, 0.9)  # hit ratios that tell how much a cache holds
_AGREED_RATIO: Final = 1.5  # by how much what single sizes tell may differ
_FREE_CYCLES: Final = 1.0  # a translation that costs less is found in the first TLB


def plateau(curve: Mapping[int, float], below: int, capacity: int | None) -> float:
    """The value (the smaller the better) of a level of ``capacity`` bytes behind one of ``below`` (0: none).

    ``curve``: by size in bytes. ``capacity`` None: of what has no capacity, main memory. Raises ValueError for an empty
    curve.
    """
    if not curve:
        raise ValueError("nothing was measured")
    for times in (_FAR_BELOW, _NEAR_BELOW) if capacity is not None else (_NEAR_BELOW,):
        inside = [
            value
            for size, value in curve.items()
            if size >= times * below and (capacity is None or 2 * size <= capacity)
        ]
        if inside:
            best = min(inside)
            return float(np.median([value for value in inside if value <= _INSIDE_RATIO * best]))
    wanted = 1.4 * below if capacity is None or not below else (below * capacity) ** 0.5
    return curve[min(curve, key=lambda size: abs(np.log(size / wanted)) if wanted else size)]


def levels(curve: Mapping[int, float], capacities: Mapping[str, int]) -> dict[str, float]:
    """The plateau of every cache, nearest first, and of ``memory``."""
    found, below = {}, 0
    for name, capacity in capacities.items():
        found[name] = plateau(curve, below, capacity)
        below = capacity
    found["memory"] = plateau(curve, below, None)
    return found


def held_bytes(curve: Mapping[int, float], below: int, value: float) -> int:
    """The largest working set beyond ``below`` that a level whose plateau is ``value`` serves alone; 0 if none."""
    held = 0
    for size in sorted(curve):
        if size > below:
            if curve[size] > _CLIFF_RATIO * value:
                break
            held = size
    return held


def mostly_held(curve: Mapping[int, float], below: int, value: float, beyond: float) -> int | None:
    """Bytes that a cache holds of working sets which it does not hold whole, through each of which a random cycle runs,
    where any line may give way: by other programs, if not by its own rule. ``value`` and ``beyond``: what a load takes
    that it serves, and one that it does not. None where the curve shows no such range: of a cycle that it does not hold
    a cache of one's own that keeps the latest lines has none left.

    Of a cycle through S bytes a line is used again after all others. Each of the S (1 - h) misses between replaces it
    with a chance of one in H, so that the hit ratio h is exp(-(1 - h) S / H).
    """
    found = {}
    for size, each in curve.items():
        hits = (beyond - each) / (beyond - value) if beyond > value else 0.0
        if size > below and _PARTLY_HELD[0] < hits < _PARTLY_HELD[1]:
            found[size] = -(1 - hits) * size / float(np.log(hits))
    if len(found) < 2:
        return None
    held = float(np.median(list(found.values())))
    agreed = [each for each in found.values() if held / _AGREED_RATIO <= each <= held * _AGREED_RATIO]
    return round(held) if 2 * len(agreed) > len(found) else None


def entries(cost: Mapping[int, float]) -> list[tuple[int, float]]:
    """TLBs from what translation costs by number of pages: entries, and the cost where the level before misses.

    The first costs nothing. A level ends at the last number of pages whose cost is nearer to its own than to that of
    the next. Levels that no number of pages reaches are not found.
    """
    numbers = sorted(cost)
    if len(numbers) < 3:
        return []
    largest = cost[numbers[-1]]
    free = [number for number in numbers if cost[number] < _FREE_CYCLES]
    steps = [number for number in numbers if not free or number > free[-1]]
    if not free or not steps:
        return []
    second_cost = float(np.median([cost[number] for number in steps[:4]]))
    found = [(free[-1], 0.0)]
    inside = [number for number in steps if cost[number] < (second_cost + largest) / 2]
    if inside and largest > 2 * second_cost:
        found.append((inside[-1], second_cost))
    return found


def buffers(times: Mapping[int, float]) -> int | None:
    """How many misses are in flight at most: the largest gain of k chains over one. ``times``: per access, by k."""
    if 1 not in times or len(times) < 2:
        return None
    return round(max(times[1] / each for each in times.values()))


def window(times: Mapping[int, float]) -> int | None:
    """Instructions between two misses from which on they no longer overlap; None where no step is seen.

    The step is where two constants, one before and one after, fit the times best; its height must be a half at least.
    """
    numbers = sorted(times)
    if len(numbers) < 4:
        return None
    values = np.array([times[number] for number in numbers])
    errors = [values[:split].var() * split + values[split:].var() * (len(values) - split)
              for split in range(1, len(values))]  # fmt: skip
    split = int(np.argmin(errors)) + 1
    if np.median(values[split:]) < _CLIFF_RATIO * np.median(values[:split]):
        return None
    return (numbers[split - 1] + numbers[split]) // 2


def middle(values: list[float]) -> float:
    """The median. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    return float(np.median(values))
