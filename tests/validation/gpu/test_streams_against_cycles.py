"""Launches that share a GPU, against the cycle model that simulates both as one (RESULTS-STREAMS.md has all cases)."""

from __future__ import annotations

import pytest
from validation.gpu.streams import cases, compared, small_gpu

TOLERANCE = {
    "compute + compute, half of the GPU each": 0.03,
    "compute + latency, a third of the GPU each": 0.03,
    "small + small, a quarter of the SMs each": 0.01,
    "memory + memory, two and a half waves each": 0.03,
}


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", TOLERANCE)
def test_together_as_the_cycle_model_has_it(name):
    serial, both, devices = compared(*cases()[name], small_gpu())
    assert devices == pytest.approx(both, rel=TOLERANCE[name])
    assert devices < serial


@pytest.mark.slow
@pytest.mark.known_gap
def test_loads_that_nothing_waits_for_hinder_each_other_more():
    """Their DRAM rows conflict: the cycle model takes longer than one after the other."""
    serial, both, devices = compared(*cases()["loads that nothing waits for, a third of the GPU each"], small_gpu())
    assert both > serial > devices
