"""The printed formulas of GPUMech with the numbers of its text (Huang, dissertation, Georgia Tech, 2015, ch. 4)."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu.gpumech import multiwarp as model
from manyscale.models.gpu.gpumech.intervals import IntervalProfile, average_access_cycles


def profile(*intervals, loads=0.0, misses=0.0, fetched=0.0):
    """Intervals of (instructions, stall cycles), each with as many loads and requests."""
    instructions, stalls = np.array(intervals).T
    same = np.ones(len(intervals))
    return IntervalProfile(
        instructions, stalls.astype(float), np.full(len(intervals), -1), loads * same, misses * same, fetched * same
    )


def shared(warps=4.0, mshrs=6, miss_cycles=100.0, cores=1, service_cycles=1.0):
    return model.Contended(cores, warps, mshrs, miss_cycles, service_cycles)


@pytest.mark.golden
def test_latency_of_an_instruction_is_its_average_access_time():
    """Sec. 4.5.2: L2 answers 90 % in 120 cycles, DRAM 10 % in 420."""
    shares = np.array([[0, 0.9, 0.1]])
    assert average_access_cycles(shares, np.array([25.0, 120.0, 420.0])) == pytest.approx([150])


@pytest.mark.golden
def test_three_warps_hide_each_other():
    """Fig. 18, interval 1: one instruction, ten stall cycles; eq. 10 and eq. 16 agree, since nothing waits in turn."""
    one = profile((1, 10))
    assert model.issue_probability(one) == pytest.approx(1 / 11)
    assert model.naive_cpi(one, 3) == pytest.approx(11 / 3)
    assert model.multithreading_cpi(one, model.in_turn_instructions(one, 3), 3) == pytest.approx(11 / 3)


@pytest.mark.golden
def test_four_warps_round_robin():
    """Fig. 24: three instructions, six stall cycles. Eq. 20: 1/3 x 3 x 2."""
    one = profile((3, 6))
    not_hidden = model.in_turn_instructions(one, 4)
    assert not_hidden == pytest.approx([2])
    assert model.multithreading_cpi(one, not_hidden, 4) == pytest.approx(11 / 12)


@pytest.mark.golden
def test_four_warps_greedy():
    """Fig. 24b: W3's three instructions hide nothing (eq. 25)."""
    one = profile((3, 6))
    not_hidden = model.greedy_instructions(one, 4)
    assert not_hidden == pytest.approx([3])
    assert model.multithreading_cpi(one, not_hidden, 4) == pytest.approx(1)


@pytest.mark.theory
def test_greedy_warps_issue_the_average_of_intervals():
    """Eq. 22 to 24: of intervals of 1 and 5 instructions others issue 3 each, with 6/46 x 20 > 1 and 6/46 x 20."""
    two = profile((1, 20), (5, 20))
    assert model.greedy_instructions(two, 11) == pytest.approx([10, 10])  # 3 x 1 x 10 - 20
    assert model.greedy_instructions(profile((1, 2), (5, 38)), 11) == pytest.approx([3 * (6 / 46 * 2) * 10 - 2, 0])


@pytest.mark.golden
@pytest.mark.parametrize(
    ("p", "stall", "warps", "ipc"), [(0.05, 100, 4, 0.5177469), (0.1, 400, 1, 1 / 41), (0.05, 100, 1, 1 / 6)]
)
def test_markov_chain(p, stall, warps, ipc):
    """IPC = 1 - (pM / (1 + pM)) ^ N; of one warp 1 / (1 + pM), which is also eq. 14."""
    one = profile((round(1 / p), stall))
    assert 1 / model.markov_cpi(one, warps) == pytest.approx(ipc, rel=1e-6)


@pytest.mark.golden
def test_queueing_for_entries_of_misses():
    """Fig. 25: six entries, four warps of two requests: six wait one latency, two wait two."""
    one = profile((3, 10), loads=1, misses=2)
    assert model.mshr_cycles(one, shared()) == pytest.approx([25])


@pytest.mark.theory
def test_requests_that_fit_wait_for_no_entry():
    assert model.mshr_cycles(profile((3, 10), loads=1, misses=1.5), shared()) == pytest.approx([0])


@pytest.mark.theory
def test_delay_counts_for_each_load():
    """Eq. 29: for each instruction, not for each of its requests."""
    one, two = (model.mshr_cycles(profile((3, 10), loads=n, misses=2), shared())[0] for n in (1, 2))
    assert two == pytest.approx(2 * one)


@pytest.mark.theory
@pytest.mark.parametrize("requests", range(1, 40))
def test_expected_delay_is_the_mean_over_requests(requests):
    """Eq. 28, summed as it stands there."""
    expected = 100 * np.mean([-(-j // 6) for j in range(1, requests + 1)]) - 100
    one = profile((3, 10), loads=1, misses=requests)
    assert model.mshr_cycles(one, shared(warps=1.0)) == pytest.approx([expected if requests > 6 else 0])


@pytest.mark.theory
def test_dram_is_an_md1_queue():
    """16 requests in 40 cycles at one cycle each: utilisation 0.4, mean wait 0.4 / (2 x 0.6) of a service."""
    one = profile((10, 30), fetched=4)
    assert model.bandwidth_cycles(one, shared()) == pytest.approx([0.4 / 1.2])


@pytest.mark.theory
@pytest.mark.parametrize("cycles", [16, 8, 4])
def test_delay_is_capped_where_dram_cannot_keep_up(cycles):
    """Utilisation 1, 2, 4: half of the 16 requests are ahead."""
    assert model.bandwidth_cycles(profile((1, cycles - 1), fetched=4), shared()) == pytest.approx([8])


@pytest.mark.theory
def test_cap_just_below_saturation():
    """Utilisation 0.98 would wait 24.5 cycles; the cap is 8."""
    one = profile((1, 16 / 0.98 - 1), fetched=4)
    assert model.bandwidth_cycles(one, shared()) == pytest.approx([8])


@pytest.mark.theory
def test_delays_are_those_of_all_warps():
    """Eq. 26 divides by the instructions of one warp: four times as much."""
    one = profile((3, 6))
    delays = np.array([12.0])
    assert model.contention_cpi(one, delays, 4) == pytest.approx(1)
    assert model.contention_cpi(one, delays, 4, of_one_warp=True) == pytest.approx(4)


@pytest.mark.golden
def test_stack_of_a_warp():
    """Sec. 4.7: of 100 cycles that wait for an instruction with 10 % in L2 and 90 % in DRAM, 10 are L2's."""
    one = IntervalProfile(
        np.array([2, 1, 4]), np.array([100.0, 7.0, 0.0]), np.array([1, 0, -1]), np.zeros(3), np.zeros(3), np.zeros(3)
    )
    stack = model.stack_of_warp(one, np.array([False, True]), np.array([[1, 0, 0], [0, 0.1, 0.9]]))
    assert stack == pytest.approx({"BASE": 7, "DEP": 7, "L1": 0, "L2": 10, "DRAM": 90})
