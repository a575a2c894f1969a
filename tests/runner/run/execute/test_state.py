"""The run state alone: any order of events leaves every unit done exactly once."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.state import MAX_ATTEMPTS, RunState


def make_units(*weights: int) -> list[WorkUnit]:
    return [WorkUnit(f"{index:04d}", "burst", {}, weight=weight) for index, weight in enumerate(weights)]


def keys(units: list[WorkUnit]) -> list[str]:
    return [unit.key for unit in units]


def state_of(*weights: int, batch_weight: int = 10) -> RunState:
    state = RunState(batch_weight)
    state.add(make_units(*weights))
    state.validate()
    return state


def test_a_batch_is_bounded_by_weight_and_has_at_least_one_unit() -> None:
    state = state_of(4, 6, 1, 25, 1)
    batches = [keys(state.next_batch(worker)) for worker in range(4)]
    state.validate()
    assert batches == [["0000", "0001"], ["0002"], ["0003"], ["0004"]]  # 4 + 6 = 10; 1 (+ 25 > 10); 25 alone; 1
    assert state.next_batch(9) == []
    assert not state.is_complete


def test_a_unit_that_is_added_twice_runs_once() -> None:
    state = state_of(1, 1)
    state.add(make_units(1, 1, 1))
    state.validate()
    assert keys(state.next_batch(0)) == ["0000", "0001", "0002"]


def test_a_result_is_told_once() -> None:
    state = state_of(1)
    state.next_batch(0)
    assert state.finished(Outcome("0000", cpu_seconds=2.5)) == Outcome("0000", cpu_seconds=2.5, attempts=1)
    state.validate()
    assert state.is_complete
    assert state.finished(Outcome("0000", error="a second opinion")) is None
    state.validate()
    assert not state.done["0000"].error


def test_units_of_a_lost_worker_come_first_again_in_their_order() -> None:
    state = state_of(5, 5, 5, 5, 5)
    state.next_batch(0)
    state.next_batch(1)
    assert state.worker_lost(0, "gone") == []
    state.validate()
    assert keys(state.next_batch(2)) == ["0000"]  # each alone: it may be what killed the worker
    assert keys(state.next_batch(2)) == ["0001"]
    assert keys(state.next_batch(2)) == ["0004"]
    state.validate()


def test_a_unit_that_was_in_flight_on_too_many_lost_workers_fails() -> None:
    state = state_of(1, 20)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert keys(state.next_batch(attempt)) == ["0000"]
        failed = state.worker_lost(attempt, "killed")
        state.validate()
        assert [outcome.key for outcome in failed] == (["0000"] if attempt == MAX_ATTEMPTS else [])
    assert state.done["0000"].error == f"killed ({MAX_ATTEMPTS} times)"
    assert state.done["0000"].attempts == MAX_ATTEMPTS
    assert keys(state.next_batch(7)) == ["0001"]


def test_a_result_counts_the_attempts_it_took() -> None:
    state = state_of(1)
    state.next_batch(0)
    state.worker_lost(0, "gone")
    state.next_batch(1)
    assert state.finished(Outcome("0000")) == Outcome("0000", attempts=2)


def test_a_lost_worker_s_result_may_still_arrive() -> None:
    state = state_of(1, 1)
    state.next_batch(0)
    state.worker_lost(0, "gone")
    assert state.finished(Outcome("0000")) is not None  # while pending again
    state.validate()
    assert keys(state.next_batch(1)) == ["0001"]
    state.worker_lost(1, "gone")
    assert keys(state.next_batch(2)) == ["0001"]
    assert state.finished(Outcome("0001")) is not None
    assert state.worker_lost(2, "gone") == []
    state.validate()
    assert state.is_complete


@pytest.mark.parametrize("spoil", [
    lambda state: state.pending.append("0000"),
    lambda state: state.pending.clear(),
    lambda state: state.in_flight.update({"0000": 1}),
    lambda state: (state.pending.clear(), state.done.update({"unknown": Outcome("unknown")})),
])  # fmt: skip
def test_validate_finds_a_unit_that_is_lost_or_in_two_states(spoil: object) -> None:
    state = state_of(1)
    spoil(state)  # type: ignore[operator]
    with pytest.raises(AssertionError):
        state.validate()


class Run(RuleBasedStateMachine):
    """Workers take batches, answer, answer twice or late, and are lost, in any order."""

    num_workers = 3

    @initialize(weights=st.lists(st.integers(1, 12), max_size=12), batch_weight=st.integers(1, 20))
    def start(self, weights: list[int], batch_weight: int) -> None:
        self.state = RunState(batch_weight)
        self.expected = make_units(*weights)
        self.told: list[str] = []
        self.taken: list[str] = []  # once in flight, so that a result may come at any time
        self.losses: dict[str, int] = {}
        self.state.add(self.expected)

    @rule(worker=st.integers(0, num_workers - 1))
    def take(self, worker: int) -> None:
        before = len(self.state.pending)
        batch = self.state.next_batch(worker)
        assert bool(batch) == bool(before)
        assert len(batch) == 1 or sum(unit.weight for unit in batch) <= self.state.batch_weight
        self.taken.extend(keys(batch))

    @rule(weight=st.integers(1, 12))
    def add(self, weight: int) -> None:
        self.expected.append(WorkUnit(f"{len(self.expected):04d}", "burst", {}, weight=weight))
        self.state.add(self.expected[-2:])  # one of them is known already

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A result in time, a second time, or of a worker that is lost."""
        outcome = self.state.finished(Outcome(data.draw(st.sampled_from(self.taken))))
        if outcome is not None:
            assert not outcome.error
            self.told.append(outcome.key)

    @rule(worker=st.integers(0, num_workers - 1))
    def lose(self, worker: int) -> None:
        for key in [key for key, place in self.state.in_flight.items() if place == worker]:
            self.losses[key] = self.losses.get(key, 0) + 1
        for outcome in self.state.worker_lost(worker, "gone"):
            assert self.losses[outcome.key] == MAX_ATTEMPTS
            self.told.append(outcome.key)

    @invariant()
    def every_unit_is_in_one_state_and_told_when_done(self) -> None:
        if hasattr(self, "state"):
            self.state.validate()
            assert sorted(self.told) == sorted(self.state.done)

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        while batch := self.state.next_batch(0):
            for unit in batch:
                self.taken.append(unit.key)
        for key in list(self.state.in_flight):
            outcome = self.state.finished(Outcome(key))
            assert outcome is not None
            self.told.append(key)
        assert self.state.is_complete
        assert sorted(self.told) == keys(self.expected)


@pytest.mark.property
def test_every_unit_is_done_exactly_once_whatever_happens() -> None:
    run_state_machine_as_test(
        Run, settings=settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
    )


@pytest.mark.property
@pytest.mark.parametrize("seed", range(20))
def test_a_long_run_with_losses_and_duplicates_ends(seed: int) -> None:
    """Ten thousand events on hundreds of units, as a coordinator would send them."""
    draw = random.Random(seed)
    state = RunState(batch_weight=30)
    state.add(make_units(*(draw.randint(1, 20) for _ in range(300))))
    told: list[str] = []
    in_flight: list[tuple[int, list[WorkUnit]]] = []
    worker = 0
    while not state.is_complete:
        if state.pending and len(in_flight) < 8:
            worker += 1
            in_flight.append((worker, state.next_batch(worker)))
        place, batch = in_flight.pop(draw.randrange(len(in_flight)))
        event = draw.random()
        if event < 0.1:  # lost, having computed a part that is heard of later
            told.extend(outcome.key for outcome in state.worker_lost(place, "gone"))
            in_flight.append((-1, batch[: draw.randint(0, len(batch))]))
        else:
            told.extend(outcome.key for unit in batch if (outcome := state.finished(Outcome(unit.key))) is not None)
            if event < 0.2:
                in_flight.append((-1, batch))  # heard of twice
        state.validate()
    assert sorted(told) == sorted(state.units)
