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
from manyscale.runner.run.execute.state import MAX_ATTEMPTS, MAX_NODES, RunState
from manyscale.runner.run.execute.tail import moves


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


def test_only_units_of_the_call_at_hand_are_suspects() -> None:
    state = state_of(5, 5, 5, 5)
    state.next_batch(0)
    state.next_batch(0)
    state.worker_lost(0, "gone")
    state.validate()
    assert [keys(state.next_batch(worker)) for worker in (1, 2, 3)] == [["0000"], ["0001"], ["0002", "0003"]]


def test_units_that_are_lost_with_nodes_are_no_suspects_for_long() -> None:
    state = state_of(5, 5)
    for worker in range(MAX_NODES):
        assert keys(state.next_batch(worker, node=str(worker))) == ["0000", "0001"]
        failed = state.worker_lost(worker, "gone", str(worker), with_node=True)
        state.validate()
        assert len(failed) == (2 if worker == MAX_NODES - 1 else 0)


def test_a_silent_worker_goes_on_with_what_nobody_else_has_begun() -> None:
    state = state_of(5, 5, 5)
    state.next_batch(0)
    state.next_batch(0)
    state.worker_silent(0)
    state.validate()
    assert keys(state.next_batch(1)) == ["0000", "0001"]  # no suspects
    state.worker_back(0, now=9.0)
    state.validate()
    assert state.copies == {"0000": (1,), "0001": (1,), "0002": (0,)}
    assert state.finished(Outcome("0000"), 0, 1.0) is not None  # the first result wins
    assert state.finished(Outcome("0000"), 1, 1.0) is None
    assert state.worker_lost(1, "gone") == []
    state.validate()
    assert list(state.pending) == ["0001"]
    assert state.done["0000"].attempts == 2


def test_a_unit_that_silences_one_worker_after_the_other_fails() -> None:
    state = state_of(5)
    for worker in range(MAX_ATTEMPTS):
        assert keys(state.next_batch(worker)) == ["0000"]
        state.worker_silent(worker)
        failed = state.worker_lost(worker, "it did not answer")
        state.validate()
    assert [outcome.key for outcome in failed] == ["0000"]


def test_a_unit_that_was_lost_on_every_node_is_tried_again() -> None:
    state, nodes = state_of(5), {"a", "b"}
    for node in ("a", "b"):
        assert keys(state.next_batch(0, node=node, nodes=nodes)) == ["0000"]
        state.worker_lost(0, "gone", node)
    assert keys(state.next_batch(0, node="a", nodes=nodes)) == ["0000"]


def test_a_unit_that_lacks_something_on_a_node_is_tried_elsewhere() -> None:
    state = state_of(5, 5)
    state.next_batch(0, node="full")
    assert state.failed_there("0000", 0, "No space left on device", "full") == []
    state.validate()
    assert state.next_batch(1, node="full", nodes={"full", "other"}) == []
    assert keys(state.next_batch(2, node="other", nodes={"full", "other"})) == ["0000"]
    assert state.copies == {"0000": (2,), "0001": (0,)}


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
    lambda state: state.held.update({3: {"0000": 1}}),
    lambda state: state.pending.clear(),
    lambda state: state.copies.update({"0000": (1,)}),
    lambda state: (state.pending.clear(), state.done.update({"unknown": Outcome("unknown")})),
])  # fmt: skip
def test_validate_finds_a_unit_that_is_lost_or_in_two_states(spoil: object) -> None:
    state = state_of(1)
    spoil(state)  # type: ignore[operator]
    with pytest.raises(AssertionError):
        state.validate()


class Run(RuleBasedStateMachine):
    """Workers take batches and copies, answer, answer twice or late, fall silent, come back, and are lost, in any
    order."""

    num_workers = 4

    @initialize(weights=st.lists(st.integers(1, 12), max_size=12), batch_weight=st.integers(1, 20))
    def start(self, weights: list[int], batch_weight: int) -> None:
        self.state = RunState(batch_weight)
        self.expected = make_units(*weights)
        self.told: list[str] = []
        self.taken: list[str] = []  # once in flight, so that a result may come at any time
        self.losses: dict[str, int] = {}
        self.now = 0.0
        self.silent: set[int] = set()
        self.state.add(self.expected)

    def node(self, worker: int) -> str:
        return f"node {worker // 2}"

    @rule(worker=st.integers(0, num_workers - 1), nodes=st.sets(st.sampled_from(["node 0", "node 1"])))
    def take(self, worker: int, nodes: set[str]) -> None:
        if worker not in self.silent:
            is_measured = self.state.pace.cost("burst") is not None
            batch = self.state.next_batch(worker, self.now, self.node(worker), nodes)
            weight = sum(unit.weight for unit in batch)
            assert len(batch) <= 1 or is_measured or weight <= self.state.batch_weight
            self.taken.extend(keys(batch))

    @rule(idle=st.sets(st.integers(0, num_workers - 1), min_size=1))
    def take_from_others(self, idle: set[int]) -> None:
        idle = {worker for worker in idle if worker not in self.silent and worker not in self.state.held}
        before = dict(self.state.copies)
        found = moves(self.state, sorted(idle), {each: self.node(each) for each in range(self.num_workers)}, self.now)
        assert len({move.worker for move in found}) == len(found)
        for move in found:
            assert move.worker in idle
            assert all(move.worker in self.state.copies[key] for key in move.keys)
            for victim, left in move.leaves.items():
                assert all(before[key] == (victim,) for key in left)
                assert not any(victim in self.state.copies[key] for key in left)
            for key in set(move.keys) - {key for left in move.leaves.values() for key in left}:
                assert self.node(before[key][0]) != self.node(move.worker)  # twice, and not on one node

    @rule(seconds=st.floats(0.01, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(worker=st.integers(0, num_workers - 1), data=st.data(), share=st.floats(0, 1))
    def tell(self, worker: int, data: st.DataObject, share: float) -> None:
        if self.taken:
            key = data.draw(st.sampled_from(self.taken))
            self.state.heard(worker, key, share, data.draw(st.floats(0, 5)), self.now)

    @rule(weight=st.integers(1, 12))
    def add(self, weight: int) -> None:
        self.expected.append(WorkUnit(f"{len(self.expected):04d}", "burst", {}, weight=weight))
        self.state.add(self.expected[-2:])  # one of them is known already

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), seconds=st.floats(0, 30), worker=st.none() | st.integers(0, num_workers - 1))
    def answer(self, data: st.DataObject, seconds: float, worker: int | None) -> None:
        """A result in time, a second time, or of a worker that is lost."""
        outcome = self.state.finished(Outcome(data.draw(st.sampled_from(self.taken))), worker, seconds)
        if worker is not None:
            self.state.answered(worker, self.now)
        if outcome is not None:
            assert not outcome.error
            self.told.append(outcome.key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), worker=st.integers(0, num_workers - 1))
    def leave(self, data: st.DataObject, worker: int) -> None:
        self.state.left(worker, data.draw(st.sampled_from(self.taken)))

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), worker=st.integers(0, num_workers - 1))
    def lack(self, data: st.DataObject, worker: int) -> None:
        self.fail(self.state.failed_there(data.draw(st.sampled_from(self.taken)), worker, "full", self.node(worker)))

    @rule(worker=st.integers(0, num_workers - 1))
    def fall_silent(self, worker: int) -> None:
        if worker not in self.silent:
            self.silent.add(worker)
            self.state.worker_silent(worker)

    @rule(worker=st.integers(0, num_workers - 1))
    def come_back(self, worker: int) -> None:
        if worker in self.silent:
            self.silent.remove(worker)
            self.state.worker_back(worker, self.now, self.node(worker))

    @rule(worker=st.integers(0, num_workers - 1), with_node=st.booleans())
    def lose(self, worker: int, with_node: bool) -> None:
        self.silent.discard(worker)
        self.fail(self.state.worker_lost(worker, "gone", self.node(worker), with_node))

    def fail(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            losses = self.state.losses[outcome.key]
            assert losses.own >= MAX_ATTEMPTS or losses.all >= MAX_NODES
            self.told.append(outcome.key)

    @invariant()
    def every_unit_is_in_one_state_and_told_when_done(self) -> None:
        if hasattr(self, "state"):
            self.state.validate()
            assert sorted(self.told) == sorted(self.state.done)

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        for worker in range(self.num_workers):  # nobody is left to whom the last one could leave units
            self.fail(self.state.worker_lost(worker, "gone"))
        while batch := self.state.next_batch(99):
            self.taken.extend(keys(batch))
        for key in list(self.state.copies):
            outcome = self.state.finished(Outcome(key))
            assert outcome is not None
            self.told.append(key)
        assert self.state.is_complete
        assert sorted(self.told) == keys(self.expected)


@pytest.mark.property
def test_every_unit_is_done_exactly_once_whatever_happens() -> None:
    run_state_machine_as_test(
        Run, settings=settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
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
