"""StatStack: the formula by hand, watches against brute force, accuracy against exact distances."""

from __future__ import annotations

import numpy as np
import pytest
from access_patterns import LINE_BYTES, errors, exact_profile, joined, matmul, stream, unlabelled
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.reuse_watch import ReuseWatch
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.statstack import StatStack, expected_stack_distance
from manyscale.models.memory.draws import chosen_between, mixed
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

SLACK = 0.02  # of a distance, and one unit: StatStack's distances are expectations


def sampled(accesses: Accesses, period: int, seed: int = 0, pieces: int = 1) -> ReuseProfile:
    model = StatStack(period, seed)
    for unit, site in zip(np.array_split(accesses.unit, pieces), np.array_split(accesses.site, pieces), strict=True):
        model.feed(Accesses(unit, site))
    return model.profile(LINE_BYTES)


@pytest.mark.theory
def test_expected_stack_distance_by_hand() -> None:
    # P(R >= 0) = 1, P(R >= 1 .. 3) = 3/4, P(R >= 4 ...) = 1/4, of units never used again
    convert = expected_stack_distance(np.array([3, 0, COLD]), np.array([4.0, 2.0, 2.0]))
    got = convert(np.array([0, 1, 2, 3, 4, 5, 8, COLD]))
    assert got.tolist() == [0, 1, 1.75, 2.5, 3.25, 3.5, 4.25, COLD]


@pytest.mark.theory
def test_each_access_in_a_cycle_is_as_far_as_the_cycle() -> None:
    profile = sampled(unlabelled(np.tile(np.arange(37), 200)), 7)
    assert profile.distance.tolist() == [COLD, 36]
    assert profile.num_accesses == pytest.approx(37 * 200)


@pytest.mark.theory
def test_random_accesses_to_equal_units() -> None:
    """R accesses, each to one of m units at random, meet m (1 - (1 - 1/m)^R) of them, less the unit itself."""
    m = 500
    unit = np.random.default_rng(3).integers(0, m, 200_000)
    model = StatStack(10)
    model.feed(unlabelled(unit))
    _, distance, count = model.reuse_distances()
    convert = expected_stack_distance(distance, count.astype(np.float64))
    reuse = np.array([10, 100, 500, 1000, 3000])
    others = (m - 1) * (1 - (1 - 1 / (m - 1)) ** reuse)
    assert convert(reuse) == pytest.approx(others, rel=0.03)


@pytest.mark.parametrize("count", [np.zeros(0), np.zeros(2)])
def test_an_empty_histogram_is_refused(count: np.ndarray) -> None:
    with pytest.raises(ValueError, match="counts nothing"):
        expected_stack_distance(np.arange(len(count)), count)


def test_a_period_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="every 0 accesses"):
        StatStack(0)


@pytest.mark.property
@settings(deadline=None, max_examples=60)
@given(data=st.data(), scale=st.sampled_from([1, 1 << 20, 1 << 50]))
def test_watches_find_the_next_use(data: st.DataObject, scale: int) -> None:
    size = data.draw(st.integers(1, 400))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    unit = rng.integers(0, data.draw(st.integers(1, 200)), size) * scale
    position = np.flatnonzero(rng.random(size) < data.draw(st.sampled_from([0.05, 0.5, 1.0])))
    cut = data.draw(st.integers(0, size))
    expected, dangling = {}, []
    for p in position.tolist():
        later = np.flatnonzero(unit[p + 1 :] == unit[p])
        if len(later):
            expected[p] = int(later[0])
        else:
            dangling.append(p)
    watch = ReuseWatch()
    found = {}
    for first, end in ((0, cut), (cut, size)):
        inside = position[(position >= first) & (position < end)]
        label, place, distance = watch.feed(unit[first:end], inside - first, inside)
        assert (unit[first:end][place] == unit[label]).all()
        found.update(zip(label.tolist(), distance.tolist(), strict=True))
    assert found == expected
    assert watch.pending().tolist() == dangling


def test_watches_that_crowd() -> None:
    """With a thousand watches in 16,384 places, and every access sampled, entries keep moving up to others' places."""
    rng = np.random.default_rng(8)
    unit = rng.choice(rng.integers(0, 1 << 40, 1000), 30_000)
    order = np.lexsort((np.arange(len(unit)), unit))
    is_again = np.diff(unit[order]) == 0
    watch, found = ReuseWatch(), np.full(len(unit), -1)
    for first in range(0, len(unit), 100):  # small pieces: the table has not to grow for what may come
        label, _, distance = watch.feed(unit[first : first + 100], np.arange(100), first + np.arange(100))
        found[label] = distance
    expected = np.full(len(unit), -1)
    expected[order[:-1][is_again]] = np.diff(order)[is_again] - 1
    assert (found == expected).all()


def test_many_watches_that_never_end() -> None:
    """The table grows; every unit is found again."""
    unit = np.arange(200_000) * 64
    watch = ReuseWatch()
    watch.feed(unit, np.arange(0, len(unit), 2), np.arange(0, len(unit), 2))
    assert len(watch.pending()) == 100_000
    label, place, distance = watch.feed(unit, np.empty(0, np.int64), np.empty(0, np.int64))
    assert (label == place).all()
    assert (distance == 199_999).all()
    assert len(label) == 100_000


@pytest.mark.property
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), period=st.integers(1, 300), cut=st.integers(0, 2000))
def test_draws_depend_on_nothing_but_the_element(seed: int, period: int, cut: int) -> None:
    start = np.uint64(mixed(seed, 0, 0))
    whole = chosen_between(start, period, 0, 2000)
    assert np.array_equal(
        whole, np.append(chosen_between(start, period, 0, cut), chosen_between(start, period, cut, 2000))
    )
    assert (np.bincount(whole // period, minlength=2000 // period)[: 2000 // period] == 1).all()


def test_every_element_has_the_same_chance() -> None:
    times = np.zeros(400, np.int64)
    for seed in range(3000):
        times[chosen_between(np.uint64(mixed(seed, 0, 0)), 20, 0, 400)] += 1
    # 150 each, binomial standard deviation 12
    assert abs(times - 150).max() < 5 * 12


def test_batches_do_not_matter() -> None:
    _, accesses = joined(matmul(24))
    one, many = sampled(accesses, 10), sampled(accesses, 10, pieces=7)
    assert one.distance.tolist() == many.distance.tolist()
    assert one.count.tolist() == many.count.tolist()


def test_each_site_keeps_its_number_of_accesses() -> None:
    _, accesses = joined(matmul(40))
    by_site = np.bincount(accesses.site)
    profile = sampled(accesses, 100)
    assert np.bincount(profile.site, profile.count) == pytest.approx(by_site)


def test_first_uses_are_units_never_used_again() -> None:
    _, accesses = joined(stream(20_000))
    truth, profile = exact_profile(accesses), sampled(accesses, 20)
    cold = [float(p.count[p.distance == COLD].sum()) for p in (truth, profile)]
    assert cold[1] == pytest.approx(cold[0], rel=0.1)


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(3))
def test_matmul_within_a_tenth_of_a_point(seed: int) -> None:
    _, accesses = joined(matmul(100))
    distance, hits = errors(sampled(accesses, 100, seed), exact_profile(accesses), SLACK)
    assert distance <= 0.005
    assert hits <= 0.001


@pytest.mark.peer
@pytest.mark.parametrize("n", [10_000, 40_000])
def test_stream(n: int) -> None:
    """Kernels on two and on three arrays follow each other: distances are off, by less than caches notice."""
    _, accesses = joined(stream(n))
    truth = exact_profile(accesses)
    for seed in range(3):
        distance, hits = errors(sampled(accesses, 100, seed), truth, SLACK)
        assert distance <= 0.05
        assert hits <= 0.01


@pytest.mark.slow
def test_large_matmul() -> None:
    _, accesses = joined(matmul(200))
    distance, hits = errors(sampled(accesses, 100), exact_profile(accesses), SLACK)
    assert distance <= 0.005
    assert hits <= 0.001


def test_exact_distances_lie_around_the_expected() -> None:
    """All sampled: the mean of the estimated distances is that of the exact ones. (Long streams: the last use of every
    unit counts as never used again.)"""
    unit = np.random.default_rng(1).zipf(1.3, 500_000) % 1000
    exact = StackDistances().feed(unit)
    profile = sampled(unlabelled(unit), 1)
    reused = profile.distance >= 0
    mean = (profile.distance[reused] * profile.count[reused]).sum() / profile.count[reused].sum()
    assert mean == pytest.approx(exact[exact >= 0].mean(), rel=0.02)


@pytest.mark.contract
def test_streams_of_which_nothing_is_sampled() -> None:
    assert sampled(unlabelled(np.empty(0, np.int64)), 10).num_accesses == 0
    with pytest.raises(ValueError, match="of 1 accesses, one of every 1000000, none was sampled"):
        sampled(unlabelled(np.zeros(1, np.int64)), 1_000_000)
