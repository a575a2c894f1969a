"""The Markov chain behind TBPoint's lemma: closed form, the source's matrix, Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.tbpoint.markov import ipc, ipc_by_matrix, vary_stalls


@pytest.mark.theory
def test_worked_numbers() -> None:
    """pM = 5: stalled for 5/6 of the time. pM = 40, one warp: 1/41."""
    assert ipc(0.05, np.full(4, 100.0)) == pytest.approx(1 - (5 / 6) ** 4)
    assert ipc(0.05, np.full(4, 100.0)) == pytest.approx(0.5177469, abs=1e-7)
    assert ipc(0.1, np.array([400.0])) == pytest.approx(1 / 41)
    assert ipc(0.0, np.array([400.0])) == 1
    assert ipc(0.1, np.array([[400.0], [10.0]])) == pytest.approx([1 / 41, 1 / 2])


@pytest.mark.theory
@pytest.mark.parametrize("num_warps", range(1, 9))
def test_closed_form_is_the_matrix(num_warps: int) -> None:
    """Eq. 3 as printed, with other stalls for each warp."""
    rng = np.random.default_rng(num_warps)
    for probability in (0.01, 0.1, 0.5):
        stalls = rng.uniform(2, 800, num_warps)
        assert ipc_by_matrix(probability, stalls) == pytest.approx(float(ipc(probability, stalls)), rel=1e-9)


@pytest.mark.theory
def test_matrix_against_the_powers_of_the_source() -> None:
    """V_s = V_i T^n for two warps, written out: states 00, 01, 10, 11, a bit set where the warp can run."""
    p, first, second = 0.2, 5.0, 10.0
    one = {(0, 0): 1 - 1 / first, (0, 1): 1 / first, (1, 0): p, (1, 1): 1 - p}
    other = {(0, 0): 1 - 1 / second, (0, 1): 1 / second, (1, 0): p, (1, 1): 1 - p}
    states = [(0, 0), (0, 1), (1, 0), (1, 1)]
    transition = np.array([[one[a, c] * other[b, d] for c, d in states] for a, b in states])
    stationary = np.array([0, 0, 0, 1.0]) @ np.linalg.matrix_power(transition, 2000)
    assert 1 - stationary[0] == pytest.approx(ipc_by_matrix(p, np.array([first, second])))


@pytest.mark.golden
@pytest.mark.parametrize(("probability", "cycles"), [(0.05, 100), (0.1, 400), (0.2, 400), (0.3, 1000)])
@pytest.mark.parametrize("num_warps", [4, 8, 48])
def test_lemma(probability: float, cycles: float, num_warps: int) -> None:
    """Lemma 4.1: more than 95 % of IPCs within 10 % of their mean."""
    found = vary_stalls(probability, cycles, num_warps)
    assert found.within > 0.95
    assert found.mean == pytest.approx(float(ipc(probability, np.full(num_warps, cycles))), rel=0.01)


@pytest.mark.theory
def test_one_warp_misses_the_lemma() -> None:
    """IPC = 1 / (1 + pM), nearly 1 / pM for large pM: |1/M - E| <= 0.1 E holds for M between 1/1.1 and 1/0.9 of the
    mean over 1 + 0.051^2, a normal probability of 94.8 %; 3 standard deviations of 10^5 samples are 0.2 %."""
    found = vary_stalls(0.5, 4000, 1, num_samples=100_000)
    assert found.within == pytest.approx(0.948, abs=0.002)
    assert vary_stalls(0.5, 4000, 8).deviation < vary_stalls(0.5, 4000, 1).deviation


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="stall probability is 2"):
        ipc(2, np.array([10.0]))
    with pytest.raises(ValueError, match="less than one cycle"):
        ipc(0.1, np.array([0.5]))
    with pytest.raises(ValueError, match="9 warps"):
        ipc_by_matrix(0.1, np.full(9, 100.0))
