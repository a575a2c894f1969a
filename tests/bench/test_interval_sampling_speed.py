"""Speed of choosing intervals. Goals: clusters for k = 1 to 30 of 200,000 projected vectors, five beginnings each, in
10 CPU seconds (SimPoint 3.2 takes 54 on as many points); a million units of one dimension in 5.

CPU seconds are counted in sorts of a million numbers, ``UNIT`` of which took one where the goals were set.
"""

from __future__ import annotations

import numpy as np
import pytest
from cpu_time import once, second

from manyscale.sampling.simpoint import SimPointRules, choose

pytestmark = pytest.mark.bench

NOISE = 1.3


def vectors() -> np.ndarray:
    """Phases one after the other, as runs have them."""
    random = np.random.default_rng(0)
    centres, phase = 0.3 * random.uniform(-1, 1, (25, 15)), np.sort(random.integers(0, 25, 200_000))
    return centres[phase] + 0.05 * random.standard_normal((200_000, 15))


def sizes() -> np.ndarray:
    return np.random.default_rng(0).lognormal(0, 1, (1_000_000, 1))


@pytest.mark.parametrize(("points", "goal"), [(vectors, 10.0), (sizes, 5.0)])
def test_thirty_numbers_of_clusters(points: object, goal: float) -> None:
    given = points()  # type: ignore[operator]
    ones = np.ones(len(given))
    choose(given[:1000], ones[:1000], SimPointRules(max_k=3), 0)  # compiles
    taken = min(once(lambda: choose(given, ones, SimPointRules(max_k=30), 0)) for _ in range(2))
    unit = second()
    print(f"{given.shape}: {taken:.1f} CPU s, {taken / unit:.1f} s of the machine of the goal ({goal:.0f})")
    assert taken <= goal * unit * NOISE
