"""Deciding who gets which unit costs the same for each, however many there are: no event looks at all of them."""

from __future__ import annotations

import time
from collections import deque

import pytest

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.feeding import Seat, next_calls
from manyscale.runner.run.execute.state import RunState

pytestmark = pytest.mark.bench


def decide(count: int, num_workers: int = 16) -> float:
    """CPU seconds of all decisions on so many units, each of 10 ms; a tenth of the calls are lost with their worker."""
    units = [WorkUnit(f"{index:06d}", "test", {}) for index in range(count)]
    seats = [Seat(index, f"node {index % 4}") for index in range(num_workers)]
    begin = time.process_time()
    state = RunState(batch_weight=8)
    state.add(units)
    calls: deque[tuple[Seat, list[str]]] = deque()
    now, turn = 0.0, 0
    while not state.is_complete:
        for move in next_calls(state, seats, 0, now):
            calls.append((seats[move.worker], move.keys))
        seat, keys = calls.popleft()
        turn += 1
        now += 0.01 * len(keys) / num_workers
        seat.num_calls -= 1
        seat.is_closed = False
        if turn % 10 == 0:
            state.worker_lost(seat.worker, "gone", seat.node, with_node=turn % 20 == 0)
            calls = deque(call for call in calls if call[0] is not seat)
            seat.num_calls = 0
            continue
        for key in keys:
            state.finished(Outcome(key), seat.worker, 0.01)
        state.answered(seat.worker, now)
    return time.process_time() - begin


def test_decisions_cost_as_much_for_a_unit_of_many_as_of_few() -> None:
    decide(5_000)
    taken = [(decide(10_000), decide(40_000)) for _ in range(4)]  # in turn: others on the machine slow down both
    few, many = map(min, zip(*taken, strict=True))
    print(f"{1e6 * few / 10_000:.0f} us a unit of 10,000, {1e6 * many / 40_000:.0f} us of 40,000")
    assert many < 1.6 * 4 * few
