"""Distances of a traced stream moved to those of another input: what follows by hand."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.memory.amm.moved_distances import MovedDistances
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile


def profile(*rows: tuple[int, int, float]) -> ReuseProfile:
    return ReuseProfile.of(64, *(np.array(column) for column in zip(*rows, strict=True)))


@pytest.mark.theory
def test_quantiles_stay() -> None:
    """Site 0: the nearer half goes from 10 to 100, the farther from 20 to 3000, site 1 from first uses to 7."""
    moved = MovedDistances(
        profile((0, 10, 50), (0, 20, 50), (1, COLD, 4)), profile((0, 100, 500), (0, 3000, 500), (1, 7, 40))
    )
    label, distance = np.array([0, 0, 1, 0]), np.array([10, 20, COLD, 10])
    assert moved.at(label, distance).tolist() == [100, 3000, 7, 100]


@pytest.mark.theory
def test_equal_distances_spread_as_the_other_input_has_them() -> None:
    """All at 10 become a fourth at 5, a half at 600, and a fourth first uses, as even as a Weyl sequence."""
    moved = MovedDistances(profile((3, 10, 1000)), profile((3, 5, 25), (3, 600, 50), (3, COLD, 25)))
    found = moved.at(np.full(1000, 3), np.full(1000, 10))
    assert [int((found == each).sum()) for each in (5, 600, COLD)] == pytest.approx([250, 500, 250], abs=3)
    halves = [moved.at(np.full(500, 3), np.full(500, 10), first) for first in (0, 500)]
    assert np.array_equal(np.concatenate(halves), found)  # however the stream is cut


@pytest.mark.theory
def test_what_the_other_input_does_not_execute_stays() -> None:
    moved = MovedDistances(profile((0, 10, 5), (2, 8, 5)), profile((0, 30, 5)))
    assert moved.at(np.array([0, 2, 5]), np.array([10, 8, COLD])).tolist() == [30, 8, COLD]
