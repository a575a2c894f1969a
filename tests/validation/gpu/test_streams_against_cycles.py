"""Launches that share a GPU, all the way through a run, against the cycle model that simulates both as one launch, and
against launches alone (RESULTS-STREAMS.md has all cases)."""

from __future__ import annotations

import pytest
from gpu_host import Gives
from gpu_programs import launch
from validation.gpu.streams import cases, compared, cycles_of, run, simulated, small_gpu
from validation.gpu.streams_closed import CLOSED

WITHIN = 0.01
DEVICES = {  # of the model of devices, for what is not simulated together
    "compute + compute, half of the GPU each": 0.03,
    "compute + latency, a third of the GPU each": 0.03,
    "small + small, a quarter of the SMs each": 0.01,
    "memory + memory, two and a half waves each": 0.03,
}
TOGETHER = (
    "compute + latency, a third of the GPU each", "compute + memory, half of the GPU each",
    "compute + loads that nothing waits for, half of the GPU each",
    "loads that nothing waits for, a third of the GPU each",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", TOGETHER)
def test_a_run_takes_what_one_launch_of_all_blocks_takes(name):
    """To the cycle."""
    first, second = cases()[name]
    _, both = simulated([*first, *second], small_gpu())
    found = run(Gives(launch(first), 1), Gives(launch(second), 2))
    assert cycles_of(found) == both.busy_cycles
    assert "launches-together" in {note.code for note in found.notes}
    assert "launches-overlap" not in {note.code for note in found.notes}


@pytest.mark.slow
@pytest.mark.theory
@pytest.mark.parametrize("name", CLOSED)
def test_a_run_takes_what_follows_from_launches_alone(name):
    expected, found = CLOSED[name]()
    assert found == pytest.approx(expected, rel=WITHIN)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", DEVICES)
def test_the_model_of_devices_is_near_where_launches_hinder_each_other_by_rates(name):
    serial, both, devices = compared(*cases()[name], small_gpu())
    assert devices == pytest.approx(both, rel=DEVICES[name])
    assert devices < serial


@pytest.mark.slow
@pytest.mark.known_gap
def test_the_model_of_devices_knows_no_rows_of_dram():
    """Those of two launches conflict: the cycle model takes longer than one after the other."""
    serial, both, devices = compared(*cases()["loads that nothing waits for, a third of the GPU each"], small_gpu())
    assert both > serial > devices
