"""Compare times with reference times; made so that it cannot pass by accident (see test_comparison.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

CONTRACT_S: Final = 1e-6  # what is promised: the last digit that SimGrid prints by default
# What is held: SimGrid prints whole picoseconds, and adds up doubles where the replay adds integers.
TIGHT_S: Final = 1e-10

Times = Mapping[object, float]  # seconds by rank, by (rank, action), by program ...


def worst_difference(predicted: Times, reference: Times) -> tuple[float, object]:
    """Largest |predicted - reference| in seconds, and where.

    A key that only one side has and a time that is not finite count as an infinite difference, as do two empty sides.
    """
    keys = {*predicted, *reference}
    if not keys:
        return math.inf, "nothing to compare"
    worst, where = -1.0, None
    for key in sorted(keys, key=str):
        difference = abs(predicted.get(key, math.nan) - reference.get(key, math.nan))
        if not math.isfinite(difference):
            return math.inf, key
        if difference > worst:
            worst, where = difference, key
    return worst, where


def assert_same_times(predicted: Times, reference: Times, tolerance_s: float, title: str = "") -> float:
    """The largest difference in seconds. Fails, naming the place and both times, if it exceeds the tolerance."""
    worst, where = worst_difference(predicted, reference)
    assert worst <= tolerance_s, (
        f"{title} at {where}: predicted {predicted.get(where)} s, reference {reference.get(where)} s, "
        f"{worst:.3g} s apart where {tolerance_s:.3g} s are allowed"
    )
    return worst
