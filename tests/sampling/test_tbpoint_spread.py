"""Samples spread over a region: which blocks are simulated, and that cycles and interval come out right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from block_simulator import Run, regions_of, run

from manyscale.models.gpu.skipped_blocks import first_full, first_shown
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
    """1000 epochs in lock step take 10,000 cycles: half of 5 % to be warm, and 7 further samples. No units differ: the
    interval is what states that are not seen are given, 1.96 standard errors."""
    found = even([0] * 1000)
    assert found.launch.cycles == pytest.approx(10_000)
    assert 0.045 < found.launch.instruction_share < 0.055
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
    """Six epochs that take twice as long: no more than two units of theirs, of the first epochs, are skipped past."""
    lasting = np.repeat([20.0, 10.0], [24, 1576])
    found = even([0] * 400, lasting)
    assert found.launch.cycles == pytest.approx(4060)
    assert min(first for _, first, _ in found.skips) >= 40  # half of 5 % of 1600


@pytest.mark.theory
@pytest.mark.parametrize("epochs", [1849 / 46, 7396 / 132, 7396 / 276])
def test_equal_blocks_on_a_whole_gpu(epochs: float) -> None:
    """Equal blocks in step take as many rounds as there are epochs, the last one in part: exact, with two rounds (of
    which the second says that the first one was as fast), what is resident then, and the last round."""
    occupancy, count = 46, round(epochs * 46)
    regions = regions_of([0] * -(-count // occupancy), occupancy)
    regions = replace(regions, of_block=regions.of_block[:count])
    found = run(regions, np.full(count, 100), np.full(count, 10.0), occupancy)
    assert found.launch.cycles == pytest.approx(10 * np.ceil(epochs))
    most = 0.05 * epochs + 1 if epochs > 80 else 4
    assert found.launch.block_share <= most / epochs
    assert len(found.skips) == 1


def test_a_run_is_warm_when_epochs_agree() -> None:
    """Epochs that take 8, 4, 2, 1 and then 0.4 % longer than the others: the fifth is within 1 % of the sixth, and the
    fourth, with it, within 2 %. Nothing is skipped before that."""
    lasting = 1000 * (1 + np.repeat([0.08, 0.04, 0.02, 0.01, 0.004], 4))
    found = even([0] * 100, np.append(lasting, np.full(380, 1000.0)))
    assert [first for _, first, _ in found.skips] == [4 * 6]
    assert found.launch.cycles == pytest.approx(lasting[::4].sum() + 95_000, rel=0.007)


def test_a_run_is_not_warm_while_blocks_fall_out_of_step() -> None:
    """Four epochs of the same mean life, whose blocks drift apart, and take four fifths of it from then on. What three
    of them agree on is not taken for the rest; of blocks that stay in step it is."""
    slots, count = 8, 800
    apart = np.tile(1.5 * (np.arange(slots) - 3.5), count // slots)
    lasting = np.repeat([100.0, 80.0], [4 * slots, count - 4 * slots])
    regions = regions_of([0] * (count // slots), slots)
    drifting, in_step = (run(regions, np.full(count, 100), each, slots) for each in (lasting + apart, lasting))
    assert drifting.skips[0][1] >= 6 * slots
    assert drifting.launch.cycles == pytest.approx(lasting[::slots].sum(), rel=0.02)
    assert in_step.skips[0][1] <= 5 * slots


def test_where_l2_is_filled_a_sample_is_taken() -> None:
    """Blocks take half as long again from the one on that fills L2: two samples, and each skip has the speed of its
    own; without being told, all has the first one's."""
    lasting = np.repeat([10.0, 15.0], [100, 100])
    labels = regions_of([0] * 50)
    told, silent = (run(labels, np.full(200, 100), lasting, 4, full=full) for full in (100, None))
    assert told.launch.cycles == pytest.approx(250 + 375, rel=0.01)
    assert silent.launch.cycles == pytest.approx(500, rel=0.02)
    (_, _, last), (_, first, _) = told.skips
    assert 100 <= last < 140
    assert last < first


def test_short_runs_are_simulated() -> None:
    """Of five epochs three are needed; what is left is less than 15 %."""
    assert even([0] * 3).skips == []
    found = even([0] * 3 + [1] * 3 + [0] * 3)
    assert found.launch.instruction_share == 1
    assert found.launch.cycles == pytest.approx(90)
    assert found.launch.half_width_cycles == 0


def test_regions_are_sampled_by_themselves() -> None:
    """Two regions of other speeds, and blocks of none between them, which all run."""
    labels = [0] * 500 + [NO_REGION] * 5 + [1] * 500
    lasting = np.repeat([10.0, 30.0, 20.0], [2000, 20, 2000])
    found = even(labels, lasting)
    assert {skip[0] for skip in found.skips} == {0, 1}
    assert set(range(2000, 2020)) <= set(found.simulated)
    assert found.launch.cycles == pytest.approx(5000 + 150 + 10_000, rel=0.007)
    assert found.launch.instruction_share < 0.08


def test_runs_share_no_sample() -> None:
    """A run that is too short to be warm, of blocks that take ten times as long, says nothing of the next one; nor does
    the last sample of a run of the first one of the next."""
    short, long = [1] * 3, [0] * 200
    lasting = np.repeat([100.0, 10.0, 30.0], [12, 800, 800])
    found = even([*short, *long, *(2 for _ in long)], lasting)
    assert {skip[0] for skip in found.skips} == {0, 2}
    assert found.launch.cycles == pytest.approx(300 + 2000 + 6000, rel=0.01)


def test_more_samples_and_a_larger_share() -> None:
    few, many = even([0] * 2000, samples=4), even([0] * 2000, samples=16)
    assert (len(few.skips), len(many.skips)) == (3, 15)
    assert even([0] * 2000, share=0.2).launch.instruction_share == pytest.approx(0.2, abs=0.02)


@pytest.mark.theory
def test_interval_holds_as_often_as_it_says() -> None:
    """Blocks of independent cycles with a coefficient of variation of 30 %: 95 % of 60 trials, within 3 standard
    deviations, or more often by what is added for states."""
    held, widths = [], []
    for seed in range(60):
        lasting = np.random.default_rng(seed).normal(100, 30, 1600).clip(10)
        found = even([0] * 400, lasting)
        truth = even([NO_REGION] * 400, lasting).cycles
        held.append(abs(found.launch.cycles - truth) <= found.launch.half_width_cycles)
        widths.append(found.launch.half_width_cycles / truth)
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 60)
    assert np.median(widths) < 0.3


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


@pytest.mark.parametrize("full", [100, 3900])
def test_what_is_counted_once_a_cycle_is_as_much_as_there_are_cycles(full: int) -> None:
    """Of few waves the last skip stands behind all samples, of many between two."""
    count = 200 if full == 100 else 4000
    lasting = np.repeat([100.0, 103.0], [full, count - full])
    found = run(regions_of([0] * (count // 4)), np.full(count, 100), lasting, 4, full=full)
    times = np.sort(found.state.begin[~np.isnan(found.state.begin)])
    got = sampled_counts(found.state, times, times[:, None], np.array([found.cycles]))
    assert len(found.skips) > 1
    assert got == pytest.approx([found.launch.cycles], rel=1e-6)


def test_counts_of_a_launch_without_skips_are_exact() -> None:
    found = run(regions_of([0, 0]), np.full(8, 200), np.full(8, 100.0), 4)
    own = np.array([7.0, 3.0])
    assert sampled_counts(found.state, np.array([0.0, 100.0]), np.array([[0.0, 0.0], [4.0, 2.0]]), own) == (
        pytest.approx(own)
    )


def test_blocks_that_l2_is_shown() -> None:
    """Blocks of 10 new sectors each: 200 are those of the last 20; of the same 10 sectors, all are shown."""
    accesses = np.arange(0, 1010, 10)
    assert first_shown(np.arange(1000), accesses, 0, 100, 200) == 80
    assert first_shown(np.arange(1000), accesses, 95, 100, 200) == 95
    assert first_shown(np.arange(1000) % 10, accesses, 0, 100, 200) == 0
    assert first_shown(np.arange(1000), accesses, 0, 100, 5) == 100


def test_block_that_fills_l2() -> None:
    """Of blocks of 10 new sectors each the 21st from block 30 on is too many for 200; of the same sectors none is."""
    accesses = np.arange(0, 1010, 10)
    assert first_full(np.arange(1000), accesses, 30, 100, 200) == 50
    assert first_full(np.arange(1000), accesses, 95, 100, 200) == 100
    assert first_full(np.arange(1000) % 10, accesses, 0, 100, 200) == 100
