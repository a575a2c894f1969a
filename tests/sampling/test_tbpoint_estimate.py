"""Totals over launches: closed forms, and how often intervals hold the truth of populations made for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from manyscale.sampling.tbpoint.estimate import PRIOR_FREEDOM, LaunchEstimate, estimate, more
from manyscale.sampling.tbpoint.launches import LaunchCounts, LaunchSample, choose
from manyscale.sampling.tbpoint.rules import LaunchSampling

SEEDS = 600


def sample_of(
    cluster: list[int], chosen: list[int], is_drawn: bool = True, columns: list[float] | None = None
) -> LaunchSample:
    """Features without a width, unless ``columns`` are given."""
    label = np.array(cluster)
    values = label.astype(float) if columns is None else np.array(columns)
    return LaunchSample(np.zeros(len(label), int), label, np.array(chosen), is_drawn, values[:, None], 0.0, 0)


@pytest.mark.theory
def test_table_4_by_hand() -> None:
    """Representatives of 10 and 40 instructions take 30 and 80 cycles: CPI 3 and 2, for 40 and 60 instructions."""
    sample = sample_of([0, 0, 0, 1, 1], [1, 4], is_drawn=False)
    found = estimate(sample, np.array([5, 10, 25, 20, 40]), np.array([30.0, 80.0]))
    assert found.total_cycles == pytest.approx(3 * 40 + 2 * 60)
    assert found.launch_cycles == pytest.approx([15, 30, 75, 40, 80])
    assert (found.launch_share, found.instruction_share) == (0.4, 0.5)
    assert np.isnan(found.half_width_cycles)


@pytest.mark.theory
def test_stratified_total_by_hand() -> None:
    """10 launches, two of 90 and 110 cycles: 1000 +- t(1) sqrt(10^2 x 0.8 x 200 / 2). One taken whole adds none."""
    sample = sample_of([0] * 10 + [1], [2, 5, 10])
    found = estimate(sample, np.ones(11), np.array([90.0, 110.0, 7.0]))
    assert found.total_cycles == pytest.approx(1007)
    assert found.standard_error_cycles == pytest.approx(np.sqrt(8000))
    assert found.degrees_of_freedom == pytest.approx(1)
    assert found.half_width_cycles == pytest.approx(stats.t.ppf(0.975, 1) * np.sqrt(8000))
    assert found.launch_cycles.sum() == pytest.approx(found.total_cycles)


@pytest.mark.theory
def test_degrees_of_freedom_by_hand() -> None:
    """Satterthwaite: (a + b)^2 / (a^2 / 1 + b^2 / 2), with a = 4^2 x 0.5 x 2 / 2 = 8 and b = 6^2 x 0.5 x 1 / 3 = 6."""
    sample = sample_of([0] * 4 + [1] * 6, [0, 1, 4, 5, 6])
    found = estimate(sample, np.ones(10), np.array([9.0, 11.0, 19.0, 20.0, 21.0]))
    assert found.standard_error_cycles**2 == pytest.approx(14)
    assert found.degrees_of_freedom == pytest.approx(14**2 / (64 + 36 / 2))


@pytest.mark.theory
def test_variance_is_borrowed_by_a_single_draw() -> None:
    """v = 2 of cycles of 10: of another cluster's single draw of 100, 2 absolute or 0.02 x 100^2, the larger one."""
    sample = sample_of([0] * 4 + [1] * 3, [0, 1, 4])
    found = estimate(sample, np.ones(7), np.array([9.0, 11.0, 100.0]))
    assert found.standard_error_cycles**2 == pytest.approx(8 + 3**2 * (2 / 3) * 200)
    small = estimate(sample, np.ones(7), np.array([9.0, 11.0, 1.0]))
    assert small.standard_error_cycles**2 == pytest.approx(8 + 3**2 * (2 / 3) * 2)
    nothing = estimate(sample_of([0] * 4, [0]), np.ones(4), np.array([9.0]))
    assert nothing.half_width_cycles == np.inf


@pytest.mark.theory
def test_leap_between_neighbours_by_hand() -> None:
    """Centres at 0 and 1, widths 0.5 and 0; means 10 and 70: 60^2 x 0.5 / 6 = 300 is joined, with PRIOR_FREEDOM, with
    squares of 2 of one degree of freedom."""
    columns = [-0.25, 0.25, -0.25, 0.25, 1.0]
    found = estimate(sample_of([0, 0, 0, 0, 1], [0, 1, 4], columns=columns), np.ones(5), np.array([9.0, 11.0, 70.0]))
    variance = (2 + PRIOR_FREEDOM * 300) / (1 + PRIOR_FREEDOM)
    assert found.standard_error_cycles**2 == pytest.approx(4**2 * 0.5 * variance / 2)
    assert found.degrees_of_freedom == pytest.approx(1 + PRIOR_FREEDOM)


def test_other_kernels_are_no_neighbours() -> None:
    sample = sample_of([0, 0, 0, 1], [0, 1, 3], columns=[-0.2, 0.2, 0.2, 1.0])
    alone = replace(sample, kernel=np.array([0, 0, 0, 1]))
    cycles = np.array([9.0, 11.0, 900.0])
    assert (
        estimate(sample, np.ones(4), cycles).half_width_cycles > estimate(alone, np.ones(4), cycles).half_width_cycles
    )
    assert estimate(alone, np.ones(4), cycles).standard_error_cycles ** 2 == pytest.approx(3**2 / 3 * 2 / 2)


@pytest.mark.theory
def test_uncertain_launches_by_hand() -> None:
    """Two of ten launches, exactly alike, but each with a variance of 4, which lean one way: (10 / 2 x (2 + 2))^2."""
    found = estimate(sample_of([0] * 10, [2, 5]), np.ones(10), np.array([50.0, 50.0]), np.array([4.0, 4.0]))
    assert found.standard_error_cycles**2 == pytest.approx(20**2)


@pytest.mark.parametrize("is_drawn", [True, False])
def test_census_has_no_error(is_drawn: bool) -> None:
    cycles = np.array([3.0, 9.0, 4.0])
    found = estimate(sample_of([0, 0, 1], [0, 1, 2], is_drawn), np.array([1, 2, 3]), cycles)
    assert found.total_cycles == 16
    assert found.half_width_cycles == 0
    assert (found.launch_share, found.instruction_share) == (1, 1)


@pytest.mark.theory
def test_more_by_hand() -> None:
    """Neyman: N s = 1000 in the first cluster, 0 in the second. For a variance of (0.01 x 12,500 / t)^2 of the total it
    takes 1000^2 / (V + 100 x 10^2) draws; t of 3 degrees of freedom, as known so far."""
    sample = sample_of([0] * 100 + [1] * 50, [0, 1, 2, 3, 100, 101])
    cycles = np.array([100 - np.sqrt(150), 100 + np.sqrt(150), 100.0, 100.0, 50.0, 50.0])  # variance 100, mean 100
    larger = more(sample, cycles, 0.01)
    variance = (0.01 * 12_500 / stats.t.ppf(0.975, 3)) ** 2
    assert larger.num_chosen.tolist() == [int(np.ceil(1000**2 / (variance + 100 * 100))), 2]
    assert more(sample, cycles, 0.5) is sample
    with pytest.raises(ValueError, match="several representatives"):
        more(replace(sample, is_drawn=False), cycles, 0.01)
    with pytest.raises(ValueError, match="aim is 0"):
        more(sample, cycles, 0)


def _held(outcomes: list[tuple[LaunchEstimate, float]]) -> float:
    return float(np.mean([abs(found.total_cycles - truth) <= found.half_width_cycles for found, truth in outcomes]))


def _run(
    make: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]], seeds: int = SEEDS, **rules: object
) -> float:
    """Share of intervals that hold the total: ``make`` gives thread instructions and cycles of a population."""
    outcomes = []
    for seed in range(seeds):
        size, cycles = make(np.random.default_rng(10_000 + seed))
        counts = LaunchCounts(np.zeros(len(size), int), size, size / 32, size / 320)
        sample = choose(counts, LaunchSampling.model_validate({"seed": seed, **rules}))
        outcomes.append((estimate(sample, size / 32, cycles[sample.chosen]), float(cycles.sum())))
    return _held(outcomes)


def test_coverage_is_counted() -> None:
    found = estimate(sample_of([0] * 10, [2, 5]), np.ones(10), np.array([90.0, 110.0]))
    assert _held([(found, found.total_cycles), (found, found.total_cycles + 1.01 * found.half_width_cycles)]) == 0.5


@pytest.mark.theory
@pytest.mark.parametrize("representatives", [2, 5, 20, "auto"])
def test_interval_of_one_cluster_holds_as_often_as_it_says(representatives: int | str) -> None:
    """Equal features, normal cycles: 95 %, within 3 standard deviations of 600 trials (2.7 %)."""
    held = _run(lambda rng: (np.full(60, 1000.0), rng.normal(1e6, 1e5, 60)), representatives=representatives)
    assert held == pytest.approx(0.95, abs=0.027)


@pytest.mark.theory
def test_interval_of_several_clusters_holds() -> None:
    def make(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        size = np.repeat([500.0, 900.0, 1500.0, 4000.0], [200, 50, 80, 20])
        return size, size * 100 * rng.normal(1, np.repeat([0.02, 0.2, 0.1, 0.05], [200, 50, 80, 20]))

    assert _run(make, representatives="auto") >= 0.93
    assert _run(make, representatives=4) >= 0.93


@pytest.mark.theory
def test_interval_holds_where_cycles_leap_inside_a_cluster() -> None:
    """Launches of 1 to 400 blocks on a GPU that holds 64: cycles go up by a round at 65, 129, ... Without what
    neighbours say, two draws of a cluster miss the leap in it (see the estimate's module)."""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        blocks = rng.integers(1, 401, 1000).astype(float)
        return blocks * 1000, np.ceil(blocks / 64) * 1e5 * rng.normal(1, 0.01, 1000)

    assert _run(make, seeds=200, representatives="auto") >= 0.93


def test_wrong_arguments() -> None:
    sample = sample_of([0, 0], [0])
    with pytest.raises(ValueError, match="confidence is 1"):
        estimate(sample, np.ones(2), np.ones(1), confidence=1)
    with pytest.raises(ValueError, match="3 numbers of instructions for 2 launches"):
        estimate(sample, np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match="2 numbers of cycles"):
        estimate(sample, np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="launch 0 has cycles of nan"):
        estimate(sample, np.ones(2), np.array([np.nan]))
