"""Samples spread over a region: which blocks are simulated, and that cycles and interval come out right."""

from __future__ import annotations

import numpy as np
import pytest
from block_simulator import Run, regions_of, run

from manyscale.runner.predict.gpu.region_sampling import first_shown
from manyscale.sampling.tbpoint.block_estimate import STATE_ERROR, sampled_counts
from manyscale.sampling.tbpoint.regions import NO_REGION
from manyscale.sampling.tbpoint.rules import RegionSamplingRules


def even(labels: list[int], lasting: np.ndarray | float = 10.0, occupancy: int = 4, **rules: float) -> Run:
    """Epochs whose blocks issue 100 instructions each. ``lasting`` cycles of each block, or of all."""
    count = len(labels) * occupancy
    cycles = np.broadcast_to(lasting, count).astype(float)
    return run(regions_of(labels, occupancy), np.full(count, 100), cycles, occupancy, RegionSamplingRules(**rules))


@pytest.mark.theory
def test_homogeneous_launch_is_exact() -> None:
    """1000 epochs in lock step take 10,000 cycles: 16 epochs to be warm, 8 samples, all within 3.5 %. No units differ:
    the interval is what states that are not seen are given, 1.96 standard errors."""
    found = even([0] * 1000)
    assert found.launch.cycles == pytest.approx(10_000, abs=7.5)  # the last blocks may not fill the GPU
    assert 0.03 < found.launch.instruction_share < 0.045
    assert len(found.skips) == 7
    expected = 1.96 * STATE_ERROR * found.launch.skipped_cycles
    assert found.launch.half_width_cycles == pytest.approx(expected, rel=0.02)


def test_samples_lie_from_the_beginning_to_the_end() -> None:
    """The last blocks are simulated, and no gap is more than three times as long as another."""
    found = even([0] * 1000)
    assert found.simulated[0] == 0
    assert found.simulated[-1] == 3999
    gaps = np.array([last - first + 1 for _, first, last in found.skips])
    assert gaps.max() <= 3 * gaps.min()
    assert len(set(gaps.tolist())) > 4  # in step with no period


@pytest.mark.theory
def test_drift_is_followed() -> None:
    """Blocks that take longer and longer, by a factor of 1.5 from first to last: a sample on each side of a skip has
    its mean, where the first samples alone would be a fifth off."""
    lasting = np.linspace(100, 150, 4000)
    found = even([0] * 1000, lasting)
    full = even([NO_REGION] * 1000, lasting)
    assert full.launch.instruction_share == 1
    assert found.launch.instruction_share < 0.06
    assert found.launch.cycles == pytest.approx(full.cycles, rel=0.01)


def test_slow_beginning_is_not_taken_for_the_rest() -> None:
    """Six epochs that take twice as long: of the first eight the second half is not as the second quarter is, so that
    16 are simulated, and those from the ninth on are the first sample."""
    lasting = np.repeat([20.0, 10.0], [24, 1576])
    found = even([0] * 400, lasting)
    assert found.launch.cycles == pytest.approx(4060, abs=7.5)
    assert min(first for _, first, _ in found.skips) >= 64
    assert min(first for _, first, _ in even([0] * 400).skips) < 64


def test_short_runs_are_simulated() -> None:
    assert even([0] * 20).skips == []
    found = even([0] * 10 + [1] * 10 + [0] * 10)
    assert found.launch.instruction_share == 1
    assert found.launch.cycles == pytest.approx(300)
    assert found.launch.half_width_cycles == 0


def test_regions_are_sampled_by_themselves() -> None:
    """Two regions of other speeds, and blocks of none between them, which all run."""
    labels = [0] * 500 + [NO_REGION] * 5 + [1] * 500
    lasting = np.repeat([10.0, 30.0, 20.0], [2000, 20, 2000])
    found = even(labels, lasting)
    assert {skip[0] for skip in found.skips} == {0, 1}
    assert set(range(2000, 2020)) <= set(found.simulated)
    assert found.launch.cycles == pytest.approx(5000 + 150 + 10_000, rel=0.003)
    assert found.launch.instruction_share < 0.08


def test_more_samples_and_a_larger_share() -> None:
    few, many = even([0] * 2000, samples=4), even([0] * 2000, samples=16)
    assert (len(few.skips), len(many.skips)) == (3, 15)
    assert even([0] * 2000, share=0.2).launch.instruction_share == pytest.approx(0.2, abs=0.02)


@pytest.mark.theory
def test_interval_holds_as_often_as_it_says() -> None:
    """Blocks of independent cycles with a coefficient of variation of 30 %: 95 % of 60 trials, within 3 standard
    deviations, or more often by what is added for states. 64 blocks, 8 for each sample: +- 2.36 x 30 % / sqrt(64)."""
    held, widths = [], []
    for seed in range(60):
        lasting = np.random.default_rng(seed).normal(100, 30, 1600).clip(10)
        found = even([0] * 400, lasting)
        truth = even([NO_REGION] * 400, lasting).cycles
        held.append(abs(found.launch.cycles - truth) <= found.launch.half_width_cycles)
        widths.append(found.launch.half_width_cycles / truth)
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 60)
    assert np.median(widths) == pytest.approx(2.36 * 0.3 / 8, rel=0.3)


@pytest.mark.parametrize("rules", ["spread", "source"])
def test_counts_of_a_cold_beginning(rules: str) -> None:
    """Three accesses a cycle, all of which miss in the first 500 cycles, and one of ten later: the beginning stands for
    itself, the rest for what was skipped. (By the source's rules all grow with instructions.)"""
    count, cold = 4000, 500
    found = run(
        regions_of([0] * (count // 4)), np.full(count, 200), np.full(count, 100.0), 4, RegionSamplingRules(rules=rules)
    )
    times = np.sort(found.state.begin[~np.isnan(found.state.begin)])

    def counted(time: np.ndarray) -> np.ndarray:
        misses = 3.0 * np.minimum(time, cold) + 0.3 * np.maximum(time - cold, 0)
        return np.stack([3.0 * time, misses], axis=-1)

    end = np.array(found.cycles)
    got = sampled_counts(found.state, times, counted(times), counted(end))
    assert found.launch.instruction_share < 0.05
    if rules == "spread":
        assert got == pytest.approx(counted(np.array(count / 4 * 100.0)), rel=0.01)
    else:
        assert got == pytest.approx(counted(end) / found.launch.instruction_share)


def test_counts_of_a_launch_without_skips_are_exact() -> None:
    found = run(regions_of([0, 0]), np.full(8, 200), np.full(8, 100.0), 4)
    own = np.array([7.0, 3.0])
    assert sampled_counts(found.state, np.array([0.0, 100.0]), np.array([[0.0, 0.0], [4.0, 2.0]]), own) == (
        pytest.approx(own)
    )


def test_blocks_that_l2_is_shown() -> None:
    """Blocks of 10 new sectors each: half of 400 are those of the last 20; of the same 10 sectors, all are shown."""
    accesses = np.arange(0, 1010, 10)
    assert first_shown(np.arange(1000), accesses, 0, 100, 400) == 80
    assert first_shown(np.arange(1000), accesses, 95, 100, 400) == 95
    assert first_shown(np.arange(1000) % 10, accesses, 0, 100, 400) == 0
    assert first_shown(np.arange(1000), accesses, 0, 100, 10) == 100
