"""Homogeneous region sampling by the source's rules: which blocks are skipped, and that the cycles come out right."""

from __future__ import annotations

import numpy as np
import pytest
from block_simulator import Run, regions_of, run
from scipy import stats

from manyscale.sampling.tbpoint.block_estimate import sampled_launch
from manyscale.sampling.tbpoint.regions import NO_REGION
from manyscale.sampling.tbpoint.rules import RegionSamplingRules
from manyscale.sampling.tbpoint.state import (
    block_dispatched,
    block_ended,
    new_region_sampling,
    next_block,
)

SOURCE = RegionSamplingRules(rules="source")


def even(labels: list[int], cycles: float | list[float] = 10.0, occupancy: int = 4, **rules: float) -> Run:
    """Epochs whose blocks issue 100 instructions each, and all last as long."""
    lasting = np.repeat(np.broadcast_to(cycles, len(labels)).astype(float), occupancy)
    instructions = np.full(len(lasting), 100)
    asked = RegionSamplingRules(rules="source", **rules)
    return run(regions_of(labels, occupancy), instructions, lasting, occupancy, asked)


@pytest.mark.theory
def test_homogeneous_launch_is_exact() -> None:
    """25 epochs in lock step take 250 cycles. Two units of 40 instructions a cycle; the other blocks of the second
    epoch end with it, and 92 blocks go at 4 x 100 / 10 instructions a cycle: nothing is counted for a drain."""
    found = even([0] * 25)
    assert found.simulated == list(range(8))
    assert found.units == [(0, 0, 40.0), (4, 0, 40.0)]
    assert found.skips == [(0, 8, 99)]
    assert found.launch.cycles == pytest.approx(250)
    assert found.launch.instruction_share == pytest.approx(0.08)
    assert found.launch.block_share == pytest.approx(0.08)
    assert found.launch.half_width_cycles == 0


@pytest.mark.theory
def test_residents_are_as_they_were_behind_the_skipped_blocks() -> None:
    """Staggered blocks of 8, 9, 11 and 12 cycles: the GPU is full before and behind the region, and the total is that
    of the full run up to what units differ by."""
    lasting = np.tile([8.0, 9.0, 11.0, 12.0], 50)
    labels = [0] * 45 + [NO_REGION] * 5
    instructions = np.full(200, 100)
    found = run(regions_of(labels), instructions, lasting, 4, SOURCE)
    full = run(regions_of([NO_REGION] * 50), instructions, lasting, 4)
    assert full.simulated == list(range(200))
    assert [skip[2] for skip in found.skips] == [179]
    assert len(found.simulated) < 60
    assert found.launch.cycles == pytest.approx(full.cycles, rel=0.05)


@pytest.mark.golden
def test_example_of_the_source() -> None:
    """Figure 7: the first unit begins outside of the region and does not count; the next two warm it; then the rest of
    the region is skipped, and the simulation goes on with the first block behind."""
    found = even([NO_REGION, 0, 0, 0, 0, 0, 1])
    assert [unit[1] for unit in found.units[:3]] == [NO_REGION, 0, 0]
    assert found.skips == [(0, 12, 23)]
    assert found.simulated == [*range(12), *range(24, 28)]


def test_region_is_entered_once_all_residents_are_of_it() -> None:
    """A block of region 0 that lasts long keeps region 1 from being entered."""
    lasting = np.full(40, 10.0)
    lasting[3] = 65.0
    found = run(regions_of([0] + [1] * 9), np.full(40, 100), lasting, 4, SOURCE)
    counting = [block for block, region, _ in found.units if region == 1]
    assert min(counting) > 3
    assert min(found.simulated.index(block) for block in counting) > 18  # three slots, six rounds of 10 cycles
    assert found.skips[0][0] == 1


def test_units_must_agree() -> None:
    """Blocks get faster by a fifth from epoch to epoch, then stay: the source's 10 % are not met before that."""
    lasting = [20.0, 16.0, 12.8, 10.2, 8.2, *[8.0] * 20]
    found = even([0] * 25, lasting)
    assert found.skips == [(0, 24, 99)]
    assert even([0] * 25, lasting, difference=0.3).skips == [(0, 8, 99)]


def test_more_units() -> None:
    """Four units that agree, one after the other; a disagreement begins anew."""
    assert even([0] * 25, units=4).skips == [(0, 16, 99)]
    assert even([0] * 25, [10.0] * 3 + [20.0] * 22, units=4).skips == [(0, 28, 99)]


def test_region_is_left_before_it_is_warm() -> None:
    found = even([0, 1, 0, 1, 0, 1])
    assert found.skips == []
    assert found.cycles == pytest.approx(60)
    assert found.launch.cycles == pytest.approx(60)


def test_region_that_comes_back_warms_again() -> None:
    found = even([0] * 5 + [1] * 5 + [0] * 5)
    assert [skip[0] for skip in found.skips] == [0, 1, 0]
    assert found.launch.cycles == pytest.approx(150)


def test_next_block_skips_once() -> None:
    state = new_region_sampling(regions_of([0] * 4, 1), np.full(4, 10), SOURCE)
    for block in range(2):
        assert next_block(state) == (block, block)
        block_dispatched(state, block, 10 * block, 10 * block)
        block_ended(state, block, 10 * block + 10, 10 * block + 10)
    assert next_block(state) == (2, 4)
    assert next_block(state) == (4, 4)
    assert sampled_launch(state, 20).cycles == pytest.approx(40)


def test_blocks_of_no_region_are_all_simulated() -> None:
    assert even([NO_REGION] * 6).simulated == list(range(24))


@pytest.mark.theory
def test_interval_by_hand() -> None:
    """Two stretches, each skipped at the second of units 2 % and 4 % apart: relative variances of 0.0002 and 0.0008,
    0.0005 pooled; t of 2 degrees of freedom."""
    lasting = np.repeat([10.1, 9.9, 10.0, 10.0, 20.4, 19.6, 20.0, 20.0], 4)
    found = run(regions_of([0] * 4 + [1] * 4), np.full(32, 100), lasting, 4, SOURCE)
    assert [skip[1:] for skip in found.skips] == [(8, 15), (24, 31)]
    skipped = np.array([8 * 100 / (400 / 9.9), 8 * 100 / (400 / 19.6)])
    ipc = np.array([[400 / 10.1, 400 / 9.9], [400 / 20.4, 400 / 19.6]])
    variance = np.mean(np.var(ipc, axis=1, ddof=1) / ipc.mean(axis=1) ** 2)
    assert variance == pytest.approx(0.0005, rel=0.01)
    expected = stats.t.ppf(0.975, 2) * np.sqrt(variance * (skipped**2).sum())
    assert found.launch.half_width_cycles == pytest.approx(expected)
    assert found.launch.variance == pytest.approx(variance * (skipped**2).sum())
    assert found.launch.skipped_cycles == pytest.approx(skipped.sum())


@pytest.mark.theory
def test_interval_holds_as_often_as_it_says() -> None:
    """A GPU of one slot: units are blocks, independent, with a coefficient of variation of 1 %; 98 blocks are skipped
    at the IPC of the second. 95 % of 600 trials, within 3 standard deviations; too narrow by what the skipped blocks'
    own spread adds, 1 / 98 of the variance."""
    held = []
    for seed in range(600):
        lasting = np.random.default_rng(seed).normal(1000, 10, 100)
        found = run(regions_of([0] * 100, 1), np.full(100, 100_000), lasting, 1, SOURCE)
        assert len(found.simulated) == 2
        held.append(abs(found.launch.cycles - lasting.sum()) <= found.launch.half_width_cycles)
    assert np.mean(held) == pytest.approx(0.95, abs=0.035)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="3 numbers of instructions for 4 blocks"):
        new_region_sampling(regions_of([0]), np.ones(3, int))
    with pytest.raises(ValueError, match="confidence is 0"):
        sampled_launch(even([0]).state, 1.0, 0)
