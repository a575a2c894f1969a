"""PKA, Sieve and STEM: what their papers say, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.launches.options import PkaRules, StemRules
from manyscale.sampling.launches.pka import PKA
from manyscale.sampling.launches.sieve import SIEVE, SieveRules, strata
from manyscale.sampling.launches.stem import STEM, clusters
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation, estimate
from manyscale.sampling.tbpoint.launches import LaunchCounts, draw


def of(
    instructions: list[float], kernel: list[int] | None = None, times: list[float] | None = None,
    threads: list[int] | None = None,
) -> LaunchPopulation:  # fmt: skip
    warp = np.array(instructions, float)
    counts = LaunchCounts(np.array(kernel or [0] * len(warp)), 32 * warp, warp, warp / 10)
    known = None if times is None else np.array(times, float)
    shape = None if threads is None else np.array(threads)
    return LaunchPopulation(np.arange(len(warp)), counts, known, threads=shape, profile=known)


def chosen(sampler: Sampler, population: LaunchPopulation, **rules: float) -> Choice:
    found: Choice = sampler.choose(population, sampler.rules(**rules), 0)
    return found


@pytest.mark.theory
def test_pka_takes_the_first_launch_of_the_fewest_clusters_that_do() -> None:
    """Two sizes of launches: with one cluster its first launch, of 100 cycles, stands for 6 that take 1,200; two are
    exact, and more are not looked at."""
    population = of([10, 30, 10, 30, 10, 30], times=[100, 300, 100, 300, 100, 300])
    found = chosen(PKA, population)
    assert found.element.tolist() == [0, 1]
    assert estimate(found, population).value == pytest.approx(10)
    assert chosen(PKA, population, error=0.6).element.tolist() == [0]


def test_pka_by_instructions_where_no_times_are_known() -> None:
    assert chosen(PKA, of([10, 30, 10, 30, 10, 30])).element.tolist() == [0, 1]
    assert PkaRules().error == 0.05


@pytest.mark.theory
def test_pka_counts_launches() -> None:
    """One cluster of launches of 10 and 10.2 instructions: the first one's time as often as there are launches."""
    population = of([10, 10.2, 10.1], times=[100, 103, 101])
    found = chosen(PKA, population)
    assert found.element.tolist() == [0]
    assert estimate(found, population).value == pytest.approx(300 / 30.3)


@pytest.mark.theory
def test_sieve_by_tiers() -> None:
    """Kernel 0 does not vary: its first launch. Kernel 1 varies by less than 0.4: the first launch with the threads
    that most of its launches have. Kernel 2 has launches of about 10 and about 1000: the first of each."""
    population = of(
        [5, 5, 5, 20, 22, 24, 10, 1000, 11, 1010], [0, 0, 0, 1, 1, 1, 2, 2, 2, 2],
        threads=[1, 2, 2, 64, 128, 128, 1, 1, 1, 1],
    )  # fmt: skip
    found = chosen(SIEVE, population)
    assert found.element.tolist() == [0, 4, 6, 7]
    assert found.weight == pytest.approx(np.array([15, 66, 21, 2010]) / 2112)


@pytest.mark.theory
def test_sieve_weighs_by_instructions() -> None:
    """10 and 14 instructions (variation 0.17), at the first one's 3 cycles for each: 72 cycles."""
    population = of([10, 14], times=[30, 70])
    assert estimate(chosen(SIEVE, population), population).value == pytest.approx(3)


@pytest.mark.theory
@pytest.mark.parametrize("seed", range(5))
def test_strata_of_sieve_vary_less_than_asked_for(seed: int) -> None:
    instructions = np.random.default_rng(seed).lognormal(5, 2, 300)
    parts = strata(np.arange(300), instructions, SieveRules().variation)
    assert sorted(np.concatenate(parts).tolist()) == list(range(300))
    assert all(instructions[part].std() / instructions[part].mean() < 0.4 for part in parts)
    assert len(parts) < 100


@pytest.mark.theory
def test_stem_draws_what_the_central_limit_theorem_asks_for() -> None:
    """Times of 90 and 110, each a hundred times: mean 100, deviation 10, and (1.96 x 10 / 0.05 x 100)^2 = 15.4 of them
    as one cluster; ROOT parts them, and one of each is enough."""
    time = np.repeat([90.0, 110.0], 100)
    (low, few), (high, many) = clusters(np.arange(200), time, 1.96 / 0.05)
    assert (len(low), len(high)) == (100, 100)
    assert few <= 1 >= many
    found = chosen(STEM, of([1.0] * 200, times=time.tolist()))
    assert len(found.element) == 2


@pytest.mark.theory
def test_stem_shares_draws_out_as_the_paper_has_it() -> None:
    """Two parts, of 50 times 10 +- 1 and 50 times 1000 +- 100. Together they need n_i = N_i s_i / sqrt(m_i) x
    sum(N s sqrt(m)) / (error / z sum(N m))^2 = 0.23 and 2.3 draws for 1 %: 1 and 3 after rounding up."""
    time = np.concatenate([np.tile([9.0, 11.0], 25), np.tile([900.0, 1100.0], 25)])
    factor = 1.96 / 0.01
    size, mean, deviation = np.array([50, 50]), np.array([10.0, 1000.0]), np.array([1.0, 100.0])
    total = size * deviation @ np.sqrt(mean)
    exact = size * deviation / np.sqrt(mean) * total / (size @ mean / factor) ** 2
    one = int(np.ceil((factor * time.std() / time.mean()) ** 2))
    assert one * time.mean() > np.ceil(exact) @ mean  # so that it is parted
    parts = clusters(np.arange(100), time, factor)
    assert sum(number * time[part].mean() for part, number in parts) <= np.ceil(exact) @ mean
    assert all(len(np.unique(time[part] > 100)) == 1 for part, _ in parts)


@pytest.mark.theory
@pytest.mark.parametrize("error", [0.01, 0.05])
def test_stem_is_as_near_as_it_says(error: float) -> None:
    """Of 40 seeds 95 % are within the error asked for, less 3 standard deviations."""
    time = np.random.default_rng(3).lognormal(5, 0.4, 5000)
    population = of([1.0] * 5000, times=time.tolist())
    truth = time.mean()
    held = []
    for seed in range(40):
        found = STEM.choose(population, StemRules(error=error), seed)
        held.append(abs(estimate(found, population).value / truth - 1) <= error)
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 40)


def test_stem_needs_times() -> None:
    with pytest.raises(ValueError, match="by their times, which are not known"):
        chosen(STEM, of([1, 2, 3]))


@pytest.mark.theory
def test_draws_are_spread_nested_and_fair() -> None:
    """Of 100 launches in a row no two neighbours of 10 draws are more than 16 apart (the longest of the golden ratio's
    three distances is 14.6); fewer draws are among them; over 4000 seeds each launch is drawn as often as any other,
    within 5 standard deviations."""
    label, size = np.zeros(100, np.int64), np.arange(100.0)
    count = np.zeros(100)
    for seed in range(4000):
        ten, three = (draw(label, np.array([number]), seed, size) for number in (10, 3))
        assert set(three.tolist()) <= set(ten.tolist())
        assert np.diff(np.append(ten, ten[0] + 100)).max() <= 16
        count[ten] += 1
    assert np.abs(count - 400).max() < 5 * np.sqrt(400 * 0.9)
    assert draw(label, np.array([200]), 0, size).tolist() == list(range(100))
