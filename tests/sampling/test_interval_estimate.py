"""Estimates of a whole run from its intervals, against what follows by hand and from the definition of coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from manyscale.sampling.estimate import NOT_RANDOM, TOO_FEW, estimate
from manyscale.sampling.interval_samplers import SizeRules, all_of_them, at_random, simpoints
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.simpoint import SimPointRules
from manyscale.sampling.vectors import Vectors

ALIKE = np.full(100, 1000.0)


def population(kinds: np.ndarray) -> IntervalPopulation:
    """Intervals that execute one block each, that of their kind."""
    count = len(kinds)
    vectors = Vectors(np.arange(count + 1), kinds.astype(np.int64), np.full(count, 1000.0))
    return IntervalPopulation(np.arange(count), np.full(count, 1000.0), vectors, 1)


def drawn(element: list[int], stratum: list[int], label: np.ndarray) -> Choice:
    """Elements drawn at random, each stratum weighing as much as it has intervals."""
    own = np.array(stratum)
    weight = np.bincount(label)[own] / len(label) / np.bincount(own)[own]
    return Choice(np.array(element), own.astype(np.int32), weight, label, is_random=True)


@pytest.mark.theory
def test_a_simple_random_sample_has_students_interval():
    """Cochran, eq. 2.22: t(n - 1) s sqrt((1 - n / N) / n), here of 4 in 100 with s^2 = 20 / 3."""
    choice = Choice(np.array([3, 30, 50, 90]), np.zeros(4, np.int32), np.full(4, 0.25), is_random=True)
    found = estimate(choice, ALIKE, np.array([1.0, 3.0, 5.0, 7.0]))
    half = stats.t.ppf(0.975, 3) * np.sqrt(20 / 3 / 4 * (1 - 4 / 100))
    assert (found.value, found.low, found.high) == pytest.approx((4, 4 - half, 4 + half))


@pytest.mark.theory
def test_all_intervals_leave_nothing_open():
    values = np.linspace(1, 2, 100)
    found = estimate(all_of_them(population(np.arange(100)), SizeRules(), 0), ALIKE, values)
    assert found.value == pytest.approx(values.mean())
    assert found.low == found.value == found.high


@pytest.mark.theory
def test_clusters_whose_intervals_are_alike_leave_nothing_open():
    label = np.repeat([0, 1], [60, 40]).astype(np.int32)
    found = estimate(drawn([1, 2, 70, 71], [0, 0, 1, 1], label), ALIKE, np.array([1.0, 1.0, 3.0, 3.0]))
    assert found.value == pytest.approx(0.6 * 1 + 0.4 * 3)
    assert found.low == found.value == found.high


@pytest.mark.theory
def test_a_cluster_that_differs_inside_opens_the_interval():
    label = np.repeat([0, 1], [60, 40]).astype(np.int32)
    found = estimate(drawn([1, 2, 70, 71], [0, 0, 1, 1], label), ALIKE, np.array([1.0, 1.0, 3.0, 3.5]))
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (drawn([1, 70, 71], [0, 1, 1], np.repeat([0, 1], [60, 40]).astype(np.int32)), TOO_FEW),
        (Choice(np.array([1, 2]), np.array([0, 1], np.int32), np.array([0.6, 0.4])), NOT_RANDOM),
    ],
)
def test_what_a_sample_does_not_tell_is_not_told(choice: Choice, why: str):
    found = estimate(choice, ALIKE, np.arange(len(choice.element)) + 1.0)
    assert (found.low, found.high, found.why) == (None, None, why)


def test_a_cluster_of_one_interval_is_known():
    label = np.repeat([0, 1], [99, 1]).astype(np.int32)
    found = estimate(drawn([1, 2, 99], [0, 0, 1], label), ALIKE, np.array([1.0, 2.0, 9.0]))
    assert found.low is not None


@pytest.mark.contract
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_several_of_each_cluster_stand_for_all_of_it(count: int):
    kinds = np.repeat([0, 1, 2], [50, 30, 20])
    found = simpoints(population(kinds), SimPointRules(per_cluster=count, max_k=5), 4)
    assert found.weight.sum() == pytest.approx(1)
    assert np.all(np.diff(found.element) > 0)
    of_kind = np.bincount(kinds[found.element], found.weight)
    assert of_kind == pytest.approx([0.5, 0.3, 0.2])
    assert np.bincount(kinds[found.element]).tolist() == np.minimum(count, [50, 30, 20]).tolist()
    assert found.is_random == (count > 1)
    again = simpoints(population(kinds), SimPointRules(per_cluster=count, max_k=5), 4)
    assert np.array_equal(found.element, again.element)


def test_another_seed_draws_other_intervals():
    kinds = np.repeat([0, 1], [50, 50])
    drawn_by = [simpoints(population(kinds), SimPointRules(per_cluster=3), seed).element.tolist() for seed in range(4)]
    assert len({tuple(each) for each in drawn_by}) == 4


@pytest.mark.theory
def test_intervals_hold_as_often_as_they_say():
    """Two clusters of normally distributed values: of 300 samples 95 % hold, to within three standard deviations of a
    binomial (1.3 %) below; joined variances make them wider, not narrower."""
    random = np.random.default_rng(1)
    kinds = np.repeat([0, 1], [60, 40])
    values = random.normal(1, 0.1, 100) + kinds
    runs = population(kinds)
    held = []
    for seed in range(300):
        choice = simpoints(runs, SimPointRules(per_cluster=3, max_k=3, seeds=1), seed)
        found = estimate(choice, ALIKE, values[choice.element])
        assert found.low is not None
        assert found.high is not None
        held.append(found.low <= values.mean() <= found.high)
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)


def test_weights_count_instructions():
    """Of a cluster of short and long intervals those drawn weigh as long as they are."""
    runs = population(np.zeros(4, int))
    runs = IntervalPopulation(runs.number, np.array([100.0, 300.0, 100.0, 300.0]), runs.vectors, 1)
    found = simpoints(runs, SimPointRules(per_cluster=4), 0)
    assert found.weight.tolist() == pytest.approx([1 / 8, 3 / 8, 1 / 8, 3 / 8])
    assert at_random(runs, SizeRules(intervals=4), 0).weight.tolist() == pytest.approx([1 / 8, 3 / 8, 1 / 8, 3 / 8])
