"""Launches behind the form of interval samplers: weights and estimates by hand, and TBPoint's own."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.interval_samplers import SizeRules, SystematicRules
from manyscale.sampling.tbpoint import estimate as tbpoint_estimate
from manyscale.sampling.tbpoint.launch_samplers import (
    FULL,
    RANDOM,
    SYSTEMATIC,
    LaunchChoice,
    LaunchPopulation,
    estimate,
    expecting,
    tbpoint,
)
from manyscale.sampling.tbpoint.launches import LaunchCounts
from manyscale.sampling.tbpoint.rules import LaunchSampling


def population(instructions: list[float], cycles: list[float] | None = None) -> LaunchPopulation:
    """Of one kernel, whose thread instructions and requests follow the warp instructions."""
    own = np.array(instructions, float)
    counts = LaunchCounts(np.zeros(len(own), np.int64), own * 32, own, own / 10)
    return LaunchPopulation(np.arange(len(own)), counts, None if cycles is None else np.array(cycles, float))


@pytest.mark.theory
def test_a_representative_has_the_instructions_of_its_cluster() -> None:
    """Four launches of 100 instructions and two of 300: shares 0.4 and 0.6. CPI 2 and 3: 0.4 * 2 + 0.6 * 3 = 2.6."""
    launches = population([100, 300, 100, 100, 300, 100], [200, 900, 200, 200, 900, 200])
    choice = tbpoint(launches, LaunchSampling(), 0)
    assert choice.label.tolist() == [0, 1, 0, 0, 1, 0]
    assert dict(zip(choice.stratum.tolist(), choice.weight.tolist(), strict=True)) == pytest.approx({0: 0.4, 1: 0.6})
    found = estimate(choice, launches)
    assert found.value == pytest.approx(2.6)
    assert (found.low, found.high) == (None, None)


@pytest.mark.theory
def test_weights_in_a_cluster_are_by_instructions() -> None:
    """All of one cluster, drawn whole: each stands for itself."""
    launches = population([100, 101, 102])
    choice = tbpoint(launches, LaunchSampling(representatives=3), 0)
    assert choice.weight == pytest.approx(np.array([100, 101, 102]) / 303)


@pytest.mark.theory
def test_several_are_estimated_as_tbpoint_does() -> None:
    random = np.random.default_rng(3)
    instructions = random.choice([100.0, 300.0], 80)
    launches = population(instructions.tolist(), (instructions * random.uniform(2, 3, 80)).tolist())
    choice = tbpoint(launches, LaunchSampling(representatives=4), 1)
    assert isinstance(choice, LaunchChoice)
    assert choice.sample is not None
    assert launches.cycles is not None
    own = tbpoint_estimate.estimate(choice.sample, instructions, launches.cycles[choice.element])
    found = estimate(choice, launches)
    assert found.value == pytest.approx(own.total_cycles / instructions.sum())
    assert found.high is not None
    assert found.high - found.value == pytest.approx(own.half_width_cycles / instructions.sum())
    assert expecting(choice, launches).expected_error == pytest.approx(own.relative_half_width)


@pytest.mark.theory
def test_ratio_of_a_random_sample_by_hand() -> None:
    """Two of four launches. Instructions 100 and 300, cycles 300 and 700: R = 1000 / 400 = 2.5, residuals 50 and -50,
    s^2 = 5,000; variance (1 - 2/4) * 5000 / 2 / 200^2 = 0.03125; t(1 degree, 95 %) = 12.7062."""
    launches = population([100, 300, 100, 300], [300, 700, 300, 700])
    seed = next(
        seed for seed in range(99)
        if sorted(launches.instructions[RANDOM.choose(launches, SizeRules(intervals=2), seed).element]) == [100, 300]
    )  # fmt: skip
    found = estimate(RANDOM.choose(launches, SizeRules(intervals=2), seed), launches)
    assert found.value == pytest.approx(2.5)
    assert found.high is not None
    assert found.high - 2.5 == pytest.approx(12.7062 * np.sqrt(0.03125), rel=1e-5)


@pytest.mark.contract
def test_all_of_them_have_no_error() -> None:
    launches = population([100, 200, 300], [500, 300, 400])
    choice = expecting(FULL.choose(launches, LaunchSampling(), 0), launches)
    assert choice.expected_error == 0
    assert estimate(choice, launches).value == pytest.approx(1200 / 600)
    assert choice.weight.sum() == pytest.approx(1)


@pytest.mark.contract
def test_what_does_not_tell_how_sure_it_is() -> None:
    launches = population([100.0] * 8, [100.0] * 8)
    found = estimate(SYSTEMATIC.choose(launches, SystematicRules(period=4), 0), launches)
    assert (found.value, found.low) == (1.0, None)
    assert estimate(RANDOM.choose(launches, SizeRules(intervals=1), 0), launches).low is None


@pytest.mark.contract
def test_launches_without_instructions_are_refused() -> None:
    with pytest.raises(ValueError, match="the launch of row 1 has no instructions"):
        population([10, 0])
    with pytest.raises(ValueError, match="cycles of its launches are not known"):
        estimate(tbpoint(population([10, 10]), LaunchSampling(), 0), population([10, 10]))
