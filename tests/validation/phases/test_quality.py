"""Points judged on another machine: by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from manyscale.runner.run.evaluation.profiles import phase_deviation
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.vectors import Vectors

from .quality import judge


def population(cycles, number=0) -> IntervalPopulation:
    """Intervals of 100 instructions, as many as have ``cycles``, or ``number`` without."""
    number = number if cycles is None else len(cycles)
    sums = {} if cycles is None else {"cycles": np.array(cycles, float)}
    vectors = Vectors(np.arange(number + 1), np.zeros(number, int), np.full(number, 100.0))
    return IntervalPopulation(np.arange(number), np.full(number, 100.0), vectors, 1, sums)


def _choice(element, weight, label) -> Choice:
    return Choice(np.array(element), np.arange(len(element)), np.array(weight), np.array(label, np.int32))


def test_quality_by_hand():
    """IPC 2, 1, 4, 4 of equal intervals: phases {2, 1} with a deviation of 0.5, {4, 4} with none. The run takes
    50 + 100 + 25 + 25 cycles for 400 instructions, IPC 2; its points say CPI (0.5 + 0.25) / 2, IPC 8/3. Means of IPC:
    (2 + 4) / 2 and 11/4."""
    other = population([50, 100, 25, 25])
    found = judge(_choice([0, 2], [0.5, 0.5], [0, 0, 1, 1]), other, other)
    assert (found.num_phases, found.ipc, found.estimate) == (2, 2, pytest.approx(8 / 3))
    assert found.error == pytest.approx(1 / 3)
    assert found.printed_error == pytest.approx(3 / (11 / 4) - 1)
    assert found.deviation == pytest.approx(0.25)
    assert found.whole_deviation == pytest.approx(math.sqrt(27 / 16))  # squares 9, 49, 25, 25 of 16ths over 4


def test_deviations_weigh_intervals_by_their_instructions():
    """Mean (3 * 1 + 5) / 4 = 2, variance (3 * 1 + 9) / 4 = 3."""
    assert phase_deviation(np.array([1.0, 5]), np.zeros(2, int), np.array([300.0, 100])) == math.sqrt(3)


def test_phases_of_equal_ipc_have_neither_error_nor_deviation():
    """Section 6.2: "the phase-based standard deviation will be zero". The printed error is not, of the points' own
    mean; times are right."""
    other = population([50, 50, 200, 200])
    found = judge(_choice([1, 3], [0.5, 0.5], [0, 0, 1, 1]), other, other)
    assert (found.error, found.printed_error, found.deviation) == (0, 0, 0)
    assert found.whole_deviation == pytest.approx(0.75)


def test_points_are_judged_by_the_other_machine():
    one = population([100, 100, 100])
    other = population([100, 200, 300])
    choice = _choice([0], [1.0], [0, 0, 0])
    assert judge(choice, one, one).error == 0
    assert judge(choice, one, other).error == pytest.approx(1)


def test_what_cannot_be_judged():
    whole = population([1, 1, 1])
    label = _choice([0], [1.0], [0, 0, 0])
    with pytest.raises(ValueError, match="phases for 0 of 3 intervals"):
        judge(_choice([0], [1.0], []), whole, whole)
    with pytest.raises(ValueError, match="no cycles"):
        judge(label, whole, population(None, 3))
    fewer = population([1, 1])
    with pytest.raises(ValueError, match=r"different intervals \(3 and 2\)"):
        judge(label, whole, fewer)
