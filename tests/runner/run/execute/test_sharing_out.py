"""How work is shared out between workers of any speed: a model of the workers in simulated time beside the decisions.

Bounds come from the work alone: no schedule is faster than all speeds together, and one without the slow worker takes
at most a unit longer than its share of the work (Graham's bound for lists).
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.feeding import Seat, next_calls
from manyscale.runner.run.execute.pace import WARM_SECONDS
from manyscale.runner.run.execute.state import RunState

TICK_SECONDS = 1.0
PULSE_SECONDS = 3.0


@dataclass
class Machine:
    """A worker: does ``speed`` seconds of work a second, from ``change[0]`` on ``change[1]`` as many; silent from
    ``silent[0]`` to ``silent[1]``, during which it computes nothing."""

    seat: Seat
    speed: float = 1.0
    change: tuple[float, float] = (float("inf"), 1.0)
    calls: list[list[str]] = field(default_factory=list)  # in turn
    told: set[str] = field(default_factory=set)  # to leave
    at: str = ""
    begin: float = 0.0
    answer: list[tuple[str, float]] = field(default_factory=list)
    spent: float = 0.0
    warm: float = 0.0  # seconds that its first unit takes longer

    def end_of(self, work: float, now: float) -> float:
        """When ``work`` that begins now is done."""
        when, factor = self.change
        if now >= when:
            return now + work / (self.speed * factor)
        end = now + work / self.speed
        return end if end <= when else when + (work - (when - now) * self.speed) / (self.speed * factor)


class Shop:
    """Units of ``work`` seconds each on machines, until all are done: ``wall``, and what each machine was busy."""

    def __init__(self, work: Mapping[str, float], machines: Sequence[Machine], weights: Mapping[str, int]) -> None:
        self.work, self.machines = work, {machine.seat.worker: machine for machine in machines}
        self.state = RunState(batch_weight=max(1, sum(weights.values()) // (4 * len(machines))))
        units = [WorkUnit(key, "test", {}, weight=weights[key]) for key in work]
        self.state.add(sorted(units, key=lambda unit: -unit.weight))
        self.told: list[str] = []
        self.wall = 0.0
        self._events: list[tuple[float, int, str, int]] = []
        self._number = itertools.count()

    def run(self) -> float:
        now = 0.0
        self._at(TICK_SECONDS, "tick", 0)
        self._feed(now)
        while not self.state.is_complete:
            now, _, what, worker = heapq.heappop(self._events)
            if what == "tick":
                self._tick(now)
            else:
                self._unit_done(self.machines[worker], now)
            self._feed(now)
            if next(self._number) % len(self.work) < 20:
                self.state.validate()
        self.wall = now
        assert sorted(self.told) == sorted(self.work)
        return now

    def _at(self, when: float, what: str, worker: int) -> None:
        heapq.heappush(self._events, (when, next(self._number), what, worker))

    def _tick(self, now: float) -> None:
        self._at(now + TICK_SECONDS, "tick", 0)
        if round(now / TICK_SECONDS) % round(PULSE_SECONDS / TICK_SECONDS) == 0:
            for worker, machine in self.machines.items():
                if machine.at:
                    self.state.heard(worker, machine.at, 0.0, now - machine.begin, now)

    def _feed(self, now: float) -> None:
        seats = [machine.seat for machine in self.machines.values()]
        for move in next_calls(self.state, seats, 0, now):
            machine = self.machines[move.worker]
            machine.calls.append(list(move.keys))
            for victim, keys in move.leaves.items():
                self.machines[victim].told |= set(keys)
            if not machine.at:
                self._next(machine, now)

    def _next(self, machine: Machine, now: float) -> None:
        while machine.calls:
            call = machine.calls[0]
            while call:
                key = call.pop(0)
                if key in machine.told:
                    machine.told.remove(key)
                    continue
                machine.at, machine.begin = key, now
                self._at(machine.end_of(self.work[key], now) + machine.warm, "unit", machine.seat.worker)
                machine.warm = 0.0
                return
            machine.calls.pop(0)
            self._answered(machine, now)
        machine.at = ""

    def _unit_done(self, machine: Machine, now: float) -> None:
        machine.answer.append((machine.at, now - machine.begin))
        machine.spent += now - machine.begin
        self._next(machine, now)

    def _answered(self, machine: Machine, now: float) -> None:
        machine.seat.num_calls -= 1
        machine.seat.is_closed = False
        for key, seconds in machine.answer:
            if self.state.finished(Outcome(key), machine.seat.worker, seconds) is not None:
                self.told.append(key)
        machine.answer = []
        self.state.answered(machine.seat.worker, now)


def shop(
    seconds: Sequence[float],
    speeds: Sequence[float],
    *,
    known: bool = True,
    nodes: Sequence[str] = (),
    **changes: float,
) -> Shop:
    """Units of so many seconds at speed 1. ``known``: weights tell their sizes, else all weigh the same."""
    work = {f"{index:05d}": size for index, size in enumerate(seconds)}
    weights = {key: max(1, round(1000 * size)) if known else 1 for key, size in work.items()}
    places = nodes or [f"node {index}" for index in range(len(speeds))]
    machines = [
        Machine(Seat(index, place), speed) for index, (speed, place) in enumerate(zip(speeds, places, strict=True))
    ]
    if changes:
        machines[-1].change = (changes["when"], changes["factor"])
    return Shop(work, machines, weights)


SIZES = {
    "many small": [0.01] * 1_500,
    "a sweep's": [0.5 + 1.5 * (index % 7) / 6 for index in range(120)],
    "a dozen": [5.0] * 12,
    "uneven": [random.Random(5).lognormvariate(0, 1) for _ in range(100)],
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_equal_workers_share_evenly_and_run_nothing_twice(name: str, known: bool) -> None:
    sizes = SIZES[name]
    found = shop(sizes, [1.0] * 4, known=known)
    wall = found.run()
    assert wall <= sum(sizes) / 4 + max(sizes) + 0.5
    busy = sum(machine.spent for machine in found.machines.values())
    assert busy <= 1.02 * sum(sizes) + max(sizes)


@pytest.mark.parametrize("name", SIZES)
def test_workers_that_load_kernels_with_their_first_unit_are_not_thought_slow(name: str) -> None:
    sizes = SIZES[name]
    found = shop(sizes, [1.0] * 4)
    for machine in found.machines.values():
        machine.warm = 1.0
    assert found.run() <= 1.0 + sum(sizes) / 4 + max(sizes) + 1.0
    assert sum(machine.spent for machine in found.machines.values()) <= 4 * 1.0 + 1.02 * sum(sizes) + max(sizes)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("num_fast", [1, 3, 15])
@pytest.mark.parametrize("name", SIZES)
def test_a_slow_worker_costs_at_most_a_quarter_more_wall(name: str, num_fast: int, known: bool) -> None:
    sizes = SIZES[name]
    wall = shop(sizes, [1.0] * num_fast + [0.1], known=known).run()
    without = shop(sizes, [1.0] * num_fast, known=known).run()
    assert wall >= sum(sizes) / (num_fast + 0.1) - 1e-6
    assert wall <= 1.25 * without + TICK_SECONDS


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("when", [0.5, 7.0, 20.0])
@pytest.mark.parametrize("name", SIZES)
def test_a_worker_that_becomes_slow_costs_at_most_a_quarter_more_than_without_it(
    name: str, when: float, known: bool
) -> None:
    sizes = SIZES[name]
    wall = shop(sizes, [1.0, 1.0, 1.0], known=known, when=when, factor=0.1).run()
    without = shop(sizes, [1.0, 1.0], known=known).run()
    assert wall <= 1.25 * without + PULSE_SECONDS


@pytest.mark.parametrize("name", SIZES)
def test_workers_of_any_speed_are_used(name: str) -> None:
    sizes = SIZES[name]
    speeds = [2.0, 1.0, 0.5, 0.25]
    wall = shop(sizes, speeds).run()
    assert wall <= 1.15 * sum(sizes) / sum(speeds) + max(sizes) / 0.5


def test_on_one_node_nothing_runs_twice() -> None:
    """A machine is no faster for a second copy; but units that wait behind a long one go elsewhere."""
    sizes = [30.0] + [1.0] * 20
    found = shop(sizes, [1.0, 1.0], known=False, nodes=["here", "here"])
    assert found.run() <= 30.0 + 5.0
    assert sum(machine.spent for machine in found.machines.values()) == pytest.approx(sum(sizes))


def feed(state: RunState, seats: Sequence[Seat], num_starting: int = 0) -> dict[int, list[int]]:
    """Sizes of the calls that are made at once, by worker."""
    calls: dict[int, list[int]] = {}
    for move in next_calls(state, seats, num_starting, 0.0):
        calls.setdefault(move.worker, []).append(len(move.keys))
    return calls


def state_of(count: int) -> RunState:
    state = RunState(2)
    state.add(WorkUnit(f"{index:04d}", "burst", {}) for index in range(count))
    return state


def test_each_worker_has_a_call_before_any_has_two() -> None:
    assert feed(state_of(5), [Seat(1), Seat(2)]) == {1: [2, 1], 2: [2]}
    assert feed(state_of(50), [Seat(1), Seat(2)]) == {1: [2, 2], 2: [2, 2]}
    assert feed(state_of(50), [Seat(2)], num_starting=1) == {2: [2, 2]}


def test_the_last_units_are_left_to_workers_that_start() -> None:
    state = state_of(4)
    first = Seat(1)
    assert feed(state, [first], num_starting=2) == {1: [2]}
    assert feed(state, [first, Seat(2)], num_starting=1) == {2: [2]}


def test_units_of_a_lost_worker_travel_alone_on_workers_without_other_calls() -> None:
    state, seats = state_of(20), [Seat(1), Seat(2), Seat(3)]
    assert [unit.key for unit in state.next_batch(9)] == ["0000", "0001"]
    state.worker_lost(9, "gone")
    assert feed(state, seats[:1]) == {1: [1]}
    assert feed(state, seats[:1]) == {}  # nothing waits behind it
    assert feed(state, seats[:2]) == {2: [1]}
    assert feed(state, seats) == {3: [2, 2]}  # those that were on no lost worker
    assert state.copies["0000"] == (1,)
    assert state.copies["0001"] == (2,)


def test_a_unit_goes_elsewhere_than_where_it_was_lost() -> None:
    state = state_of(1)
    here, there = Seat(1, "here"), Seat(2, "there")
    state.next_batch(9, node="here")
    state.worker_lost(9, "gone", "here")
    assert feed(state, [here, there]) == {2: [1]}
    alone = state_of(1)
    alone.next_batch(9, node="here")
    alone.worker_lost(9, "gone", "here")
    assert feed(alone, [Seat(1, "here")]) == {1: [1]}  # if there is nowhere else


def test_what_waits_behind_a_long_call_is_taken_back() -> None:
    state = state_of(4)
    busy = Seat(1, "here")
    assert feed(state, [busy]) == {1: [2, 2]}
    (move,) = next_calls(state, [busy, Seat(2, "here")], 0, 1.0)
    assert (move.worker, move.keys, move.leaves) == (2, ["0003"], {1: ["0003"]})
    assert state.copies["0003"] == (2,)
    state.validate()


def test_a_unit_at_hand_on_a_worker_that_has_become_slow_runs_twice_and_counts_once() -> None:
    seats = [Seat(1, "here"), Seat(2, "there")]
    last = state_of(1)
    last.pace.joins(1, "here")
    last.pace.joins(2, "there")
    last.pace.learned(2, WorkUnit("known", "burst", {}), 1.0)
    assert [unit.key for unit in last.next_batch(1, 0.0, "here")] == ["0000"]
    seats[0].num_calls = 1
    assert list(next_calls(last, seats, 0, WARM_SECONDS + 1.9)) == []  # may be done soon
    (move,) = next_calls(last, seats, 0, WARM_SECONDS + 2.1)
    assert (move.worker, move.keys, move.leaves) == (2, ["0000"], {})
    assert last.copies["0000"] == (1, 2)
    assert last.finished(Outcome("0000"), 2, 1.0) is not None
    assert last.finished(Outcome("0000"), 1, 4.0) is None
    last.validate()
