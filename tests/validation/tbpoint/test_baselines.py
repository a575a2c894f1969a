"""Baselines: what random, systematic and SimPoint samples say of populations whose totals are known."""

from __future__ import annotations

import numpy as np
import pytest

from .baselines import RANDOM_SHARE, projected, random_units, simpoint_units, systematic_units


def phases(count: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(instructions, cycles, vectors) of units of four phases with CPIs of 1 to 4."""
    rng = np.random.default_rng(0)
    phase = rng.integers(0, 4, count)
    instructions = np.full(count, 1_000_000)
    vectors = np.zeros((count, 40))
    for one in range(4):
        vectors[phase == one, 10 * one : 10 * one + 10] = 100_000
    return instructions, instructions * (1.0 + phase), vectors * rng.normal(1, 0.01, vectors.shape)


@pytest.mark.theory
@pytest.mark.parametrize("draw", [random_units, systematic_units])
def test_ratio_by_hand(draw: object) -> None:
    """Units of one CPI give the total whatever their sizes; as many are chosen as asked for, none twice."""
    instructions = np.arange(1, 101)
    found = draw(instructions, instructions * 3.0, round(RANDOM_SHARE * 100), 5)  # type: ignore[operator]
    assert found.total_cycles == pytest.approx(3 * instructions.sum())
    assert len(set(found.chosen.tolist())) == 10
    assert found.instruction_share == pytest.approx(instructions[found.chosen].sum() / 5050)


def test_systematic_units_are_equally_far_apart() -> None:
    found = systematic_units(np.ones(100), np.ones(100), 10, 3)
    assert set(np.diff(found.chosen)) == {10}
    assert systematic_units(np.ones(7), np.ones(7), 7, 0).chosen.tolist() == list(range(7))


def test_random_units_err_as_theory_says() -> None:
    """Relative standard error of a mean of n of N: CoV sqrt((1 - n/N) / n)."""
    instructions, cycles, _ = phases()
    totals = np.array([random_units(instructions, cycles, 30, seed).total_cycles for seed in range(1000)])
    expected = cycles.std(ddof=1) / cycles.mean() * np.sqrt((1 - 0.1) / 30)
    assert (totals / cycles.sum()).std() == pytest.approx(expected, rel=0.1)
    assert totals.mean() == pytest.approx(cycles.sum(), rel=0.005)


def test_simpoint_finds_the_phases() -> None:
    found = simpoint_units(*phases(60))
    assert len(found.chosen) == 4
    assert found.total_cycles == pytest.approx(phases(60)[1].sum())


def test_simpoint_of_one_phase() -> None:
    found = simpoint_units(np.full(50, 10), np.full(50, 20.0), np.ones((50, 3)))
    assert len(found.chosen) == 1
    assert found.total_cycles == pytest.approx(1000)


def test_simpoint_cannot_see_what_blocks_do_not_show() -> None:
    """The source's mst: the same blocks, but another parallelism."""
    instructions, cycles, vectors = phases()
    found = simpoint_units(instructions, cycles, np.ones_like(vectors))
    assert abs(found.total_cycles / cycles.sum() - 1) > 0.1


@pytest.mark.theory
def test_projection_of_a_steady_launch() -> None:
    """Ten blocks of which two run at a time, each 10,000 cycles long, at one IPC: it stops with the first wave. One
    that takes turns between an IPC of 0 and of 3 deviates by its mean, and is never stable; nor is a single wave
    cut."""
    ends = np.repeat(np.arange(1, 6), 2) * 10_000
    steady = np.full(500, 150)
    cycles, share = projected(steady, 100, 50_000, ends, 2)
    assert (cycles, share) == (pytest.approx(50_000), pytest.approx(10_100 / 50_000))
    assert projected(np.tile([0, 300], 250), 100, 50_000, ends, 2) == (50_000, 1.0)
    assert projected(steady, 100, 50_000, ends, 10) == (50_000, 1.0)


def test_projection_goes_by_the_ipc_where_it_stops() -> None:
    """Half as fast from the middle on: by what it saw, it would have gone on as before."""
    issued = np.concatenate((np.full(250, 200), np.full(250, 100)))
    cycles, share = projected(issued, 100, 50_000, np.repeat(np.arange(1, 6), 2) * 10_000, 2)
    assert cycles == pytest.approx(issued.sum() / 2)
    assert share == pytest.approx(10_100 * 2 / issued.sum())


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="4 of 3 units"):
        random_units(np.ones(3), np.ones(3), 4, 0)
    with pytest.raises(ValueError, match="0 of 3 units"):
        systematic_units(np.ones(3), np.ones(3), 0, 0)
    with pytest.raises(ValueError, match="one each per unit"):
        random_units(np.ones(3), np.ones(2), 1, 0)
    with pytest.raises(ValueError, match="2 vectors for 3 units"):
        simpoint_units(np.ones(3), np.ones(3), np.ones((2, 2)))
