"""The comparison itself: it must fail wherever it should."""

from __future__ import annotations

import math

import pytest

from simgrid.comparison import CONTRACT_S, TIGHT_S, assert_same_times, worst_difference

REFERENCE = {0: 0.0123, 1: 0.0456, 2: 0.0}


def test_equal_times_pass() -> None:
    assert assert_same_times(dict(REFERENCE), REFERENCE, 0.0) == 0.0


def test_a_difference_within_the_tolerance_passes_and_is_returned() -> None:
    assert assert_same_times({**REFERENCE, 1: 0.0456 + 5e-7}, REFERENCE, CONTRACT_S) == pytest.approx(5e-7)


@pytest.mark.parametrize(
    "predicted",
    [
        pytest.param({rank: 2 * time for rank, time in REFERENCE.items()}, id="twice the value"),
        pytest.param({rank: time / 2 for rank, time in REFERENCE.items()}, id="half the value"),
        pytest.param({**REFERENCE, 2: 2e-6}, id="reference of zero"),
        pytest.param({0: 0.0123, 2: 0.0}, id="missing rank"),
        pytest.param({**REFERENCE, 3: 0.0}, id="additional rank"),
        pytest.param({**REFERENCE, 1: math.nan}, id="NaN"),
        pytest.param({**REFERENCE, 1: math.inf}, id="infinite"),
        pytest.param({}, id="no prediction"),
        pytest.param({0: 0.0456, 1: 0.0123, 2: 0.0}, id="ranks exchanged"),
    ],
)
def test_a_wrong_prediction_fails(predicted: dict[int, float]) -> None:
    with pytest.raises(AssertionError):
        assert_same_times(predicted, REFERENCE, CONTRACT_S)


@pytest.mark.parametrize("reference", [{}, {0: math.nan, 1: 0.0456, 2: 0.0}, {0: math.inf, 1: 0.0456, 2: 0.0}])
def test_a_broken_reference_fails(reference: dict[int, float]) -> None:
    with pytest.raises(AssertionError):
        assert_same_times(reference, reference, CONTRACT_S)


def test_the_place_of_the_worst_is_named() -> None:
    assert worst_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.5}) == (0.5, 1)


def test_the_held_tolerance_is_within_the_promised_one() -> None:
    assert 0 < TIGHT_S < CONTRACT_S <= 1e-6
