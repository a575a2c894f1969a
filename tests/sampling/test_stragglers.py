"""Expected slowest ranks against tables and closed forms of order statistics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from manyscale.sampling.ranks.stragglers import largest_lognormal, largest_measured, largest_normal, spread


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, 0.0), (2, np.pi**-0.5), (3, 1.5 * np.pi**-0.5), (10, 1.53875), (100, 2.50759), (1000, 3.24144)],
)
def test_normal(count: int, expected: float) -> None:
    """Closed forms for 2 and 3, the others from H. L. Harter, Biometrika 48 (1961), table 1."""
    assert largest_normal(count) == pytest.approx(expected, abs=6e-6)


def test_lognormal() -> None:
    """One: the mean exp(s^2 / 2); two: 2 exp(s^2 / 2) Phi(s / sqrt 2), for X > Y with X weighted by its size."""
    deviation = 0.3
    mean = np.exp(deviation**2 / 2)
    assert largest_lognormal(1, deviation) == pytest.approx(mean, rel=1e-9)
    assert largest_lognormal(2, deviation) == pytest.approx(2 * mean * ndtr(deviation / np.sqrt(2)), rel=1e-9)
    assert largest_lognormal(4096, 0.0) == pytest.approx(1.0, rel=1e-9)


def test_measured_values_drawn_again() -> None:
    """Of two draws of {1, 2} both are 1 in a quarter of the cases; of many, one is the largest."""
    assert largest_measured(np.array([2.0, 1.0]), 2) == pytest.approx(1.75)
    assert largest_measured(np.array([3.0, 1.0, 2.0]), 10_000) == pytest.approx(3.0)


def test_spread_within_roles() -> None:
    """Two roles of two ranks, distances 0.1 and 0.2 to both sides: (2 x 0.01 + 2 x 0.04) / (4 - 2); a rank alone in its
    role says nothing."""
    times = np.array([np.exp(0.1), np.exp(-0.1), 7 * np.exp(0.2), 7 * np.exp(-0.2), 100.0])
    found = spread(times, np.array([0, 0, 1, 1, 2]))
    np.testing.assert_allclose(found.distances, [0.1, -0.1, 0.2, -0.2, 0.0], atol=1e-12)
    assert found.says.tolist() == [True] * 4 + [False]
    assert found.deviation == pytest.approx(np.sqrt(0.05))
    assert (found.num_ranks, found.num_roles) == (4, 2)
    assert not spread(times, np.arange(5)).is_known
