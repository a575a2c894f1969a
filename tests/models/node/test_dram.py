"""Reservations by windows, and DRAM: rows, banks and channels by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_memory import CORE, DRAM, caches, flow, node

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.node.memory.reservations import HORIZON, WINDOW, new_reservations, reserve
from manyscale.models.node.memory.system import MemorySystem, new_memory_system


@pytest.mark.theory
def test_an_idle_resource_serves_at_once() -> None:
    taken = new_reservations(2)
    assert reserve(taken, 0, 1000.5, 10.0) == 1000.5
    assert reserve(taken, 1, 1000.5, 10.0) == 1000.5


@pytest.mark.theory
def test_a_busy_resource_serves_one_after_the_other() -> None:
    """Requests at once: one every 10 cycles, across windows; and one of long ago is not held up by those far ahead."""
    taken = new_reservations(1)
    assert [reserve(taken, 0, 0.0, 10.0) for _ in range(1000)] == [10.0 * i for i in range(1000)]
    taken = new_reservations(1)
    for _ in range(100):
        reserve(taken, 0, 6400.0, 10.0)
    assert reserve(taken, 0, 100.0, 10.0) == 100.0
    assert reserve(taken, 0, 6400.0, 10.0) == 7400.0


_REQUESTS = st.lists(st.tuples(st.floats(0, 1500), st.floats(0.5, 200)), min_size=1, max_size=100)


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(_REQUESTS)
def test_capacity_is_conserved(requests: list[tuple[float, float]]) -> None:
    """In any order: nobody is served before it asks, and what is taken of all windows is what was asked for."""
    taken = new_reservations(1)
    starts = np.array([reserve(taken, 0, cycle, amount) for cycle, amount in requests])
    cycles, amounts = np.array(requests).T
    assert (starts >= cycles).all()
    begins = np.arange(len(taken)) * WINDOW
    used = np.clip(taken[:, 0] - begins, 0.0, WINDOW)
    assert used.sum() == pytest.approx(amounts.sum(), rel=1e-9)
    assert starts.max() <= cycles.max() + amounts.sum() + WINDOW


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(_REQUESTS)
def test_no_more_is_served_than_there_is(requests: list[tuple[float, float]]) -> None:
    """In order of time, until any cycle. (Out of order, what begins in the rest of a window goes on behind those that
    came before it, and still counts as one piece.)"""
    taken = new_reservations(1)
    cycles, amounts = np.array(sorted(requests)).T
    ends = amounts + [reserve(taken, 0, cycle, amount) for cycle, amount in zip(cycles, amounts, strict=True)]
    for limit in (150.0, 700.0, 2500.0):
        assert amounts[ends <= limit].sum() <= limit * (1 + 1e-9)


@pytest.mark.contract
def test_requests_of_a_former_turn_are_counted() -> None:
    """The ring knows a horizon; what comes after its windows were used again is served at once."""
    taken = new_reservations(1)
    for _ in range(10):
        reserve(taken, 0, HORIZON, 64.0)
    assert reserve(taken, 0, 3.0, 10.0) == 3.0
    assert taken[0, -1] == 1.0


class _Ring(NamedTuple):
    taken: np.ndarray


@allocation_free
def _reserve(ring, cycle, amount):  # type: ignore[no-untyped-def]
    """As in the kernels of the memory system, where no index may be negative."""
    ring = by_reference(ring)
    return reserve(ring.taken, 0, cycle, amount)


@pytest.mark.theory
def test_a_request_of_another_turn_is_counted_and_touches_no_other_memory() -> None:
    around = np.full((3, *new_reservations(1).shape), 7.0)
    around[1] = new_reservations(1)
    for _ in range(10):
        _reserve(_Ring(around[1]), HORIZON, 64.0)
    assert _reserve(_Ring(around[1]), 3.0, 10.0) == 3.0
    assert around[1, 0, -1] == 1.0
    assert np.all(around[[0, 2]] == 7.0)


def system(num_cores: int = 1, buffers: int = 40, **changes: Any) -> MemorySystem:
    """Cycles are nanoseconds. A cache of no latency; DRAM of 100: a closed row; 86: an open one; 112: another one open;
    rows of 16 lines, two channels of 8 a line, four banks of which each opens a row every 46."""
    memory = {"latency": "100 ns", "bandwidth": "inf B/s", "dram": DRAM | changes}
    of_node = node(num_cores, caches({"L1D": (1024, 2, 1)}), memory=memory, core=CORE | {"line_fill_buffers": buffers})
    return new_memory_system(of_node, num_cores)


@pytest.mark.theory
def test_rows_and_banks() -> None:
    """Lines 0, 2, .. 30 are row 0 of bank 0 of channel 0, 32 that of bank 1, 128 row 1 of bank 0."""
    memory = system()
    lines = [0, 2, 30, 1, 32, 128]
    latency = flow(memory, 0, lines, False, np.arange(6) * 1000.0) - np.arange(6) * 1000.0
    assert latency.tolist() == [100.0, 86.0, 86.0, 100.0, 100.0, 112.0]
    again = flow(memory, 0, [256, 258], False, [9000.0, 9001.0])
    assert again[0] == 9112.0  # the row opens at 9026; the channel is free again 8 later, or less in the same window
    assert 9112.0 < again[1] <= 9120.0
    start = 300 * WINDOW
    held_up = flow(memory, 0, [384, 512, 32], False, start) - start
    assert held_up.tolist() == [112.0, 158.0, 94.0]  # the same bank 46 later; another at once, but for the channel


@pytest.mark.theory
def test_channels_bound_streams() -> None:
    """Two channels carry a line in 4 cycles, one that is hit alone in 8, whatever the number of cores; cores get equal
    parts of it."""
    assert flow(system(), 0, np.arange(8000), False, 0.0).max() == pytest.approx(8000 * 4, rel=0.02)
    assert flow(system(), 0, np.arange(4000) * 2, False, 0.0).max() == pytest.approx(4000 * 8, rel=0.02)
    for num_cores in (2, 8):
        core = np.tile(np.arange(num_cores), 2000)
        line = np.repeat(np.arange(2000) * 2, num_cores) + 32 * 1000 * core
        done = flow(system(num_cores, row_cycle="0 ns"), core, line, False, 0.0, depth=30)
        assert done.max() == pytest.approx(len(line) * 8, rel=0.02)
        ends = [done[core == each].max() for each in range(num_cores)]
        assert min(ends) == pytest.approx(max(ends), rel=0.02)


@pytest.mark.theory
def test_banks_bound_rows() -> None:
    """A new row of one bank with each line: one in 46 cycles."""
    done = flow(system(), 0, np.arange(1000) * 128, False, 0.0)
    assert done.max() == pytest.approx(1000 * 46, rel=0.02)


@pytest.mark.theory
def test_three_channels() -> None:
    """Numbers that are no powers of two: three channels of 8 cycles a line, each with 3 banks."""
    done = flow(system(channels=3, banks=3), 0, np.arange(9000), False, 0.0)
    assert done.max() == pytest.approx(9000 * 8 / 3, rel=0.02)
