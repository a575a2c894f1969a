"""Progress of a run as a state machine without I/O: events in, decisions out. Time comes in, too.

A unit is *pending*, then *in flight* on one worker, or on two of them, then *done* or *failed*. The first result wins;
another one for its key (of a copy, or of a retry that overlapped) changes nothing.

- A worker that is *lost* returns its units to pending. A unit that was at hand on ``MAX_ATTEMPTS`` lost workers fails,
  since it may be what kills them; one that was lost with whole nodes only after ``MAX_NODES``, since that is rarely its
  doing. It goes elsewhere than where it was lost, if there is another node.
- A worker that is *silent* returns them, too, and no harm is thought of them. If it is heard of again, it goes on with
  those that nobody else has begun.

Batches are sized by what was measured (``pace.py``). What is taken back from workers and run twice when others run dry
is decided in ``tail.py``. No event costs more than what the worker at hand has in flight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.pace import Pace

MAX_ATTEMPTS: Final = 3
MAX_NODES: Final = 10
HEAR_SECONDS: Final = 0.5  # of a wait for threads, after which it looks whether a signal came in just before
UNITS_PER_CALL: Final = 256  # at most: about 0.1 s of file writing
_UNITS_OF_FIRST_CALL: Final = 8  # at most, before one of the kind was measured
CALL_SECONDS: Final = 1.0  # of work in a call, so that progress shows and a call's round trip does not
_FOREMOST: Final = 64  # units that are looked at for one that a worker may have
_TOO_SLOW: Final = 1.5  # as late as the others would be done with all that waits: left to them


@dataclass
class Losses:
    """Of a unit: workers that died while it was at hand, those among them whose node did not die; where that was."""

    all: int = 0
    own: int = 0
    nodes: set[str] = field(default_factory=set)


@dataclass
class At:
    """What a worker said last: the unit at hand, since when, and which share of it was done at ``heard``."""

    key: str
    begin: float
    share: float
    heard: float


@dataclass
class RunState:
    """Units by state. ``batch_weight`` bounds the work of a call while nothing is known of how long units take."""

    batch_weight: int
    units_per_call: int = UNITS_PER_CALL
    pace: Pace = field(default_factory=Pace)
    units: dict[str, WorkUnit] = field(default_factory=dict)
    pending: OrderedDict[str, None] = field(default_factory=OrderedDict)
    copies: dict[str, tuple[int, ...]] = field(default_factory=dict)  # in flight: key -> its workers
    held: dict[int, dict[str, int]] = field(default_factory=dict)  # worker -> keys in turn -> number of their call
    late: dict[int, list[str]] = field(default_factory=dict)  # what silent workers held
    attempts: dict[str, int] = field(default_factory=dict)
    losses: dict[str, Losses] = field(default_factory=dict)
    done: dict[str, Outcome] = field(default_factory=dict)
    begun: dict[int, float] = field(default_factory=dict)  # when a worker came to the first of what it holds
    at: dict[int, At] = field(default_factory=dict)
    pending_weight: dict[str, int] = field(default_factory=dict)  # by kind
    _calls: int = 0

    def add(self, units: Iterable[WorkUnit]) -> None:
        """Take units on; a key that is already known is the same unit."""
        for unit in units:
            if unit.key not in self.units:
                self.units[unit.key] = unit
                self.attempts[unit.key] = 0
                self._wait(unit.key, first=False)

    # Handing out

    def next_batch(
        self, worker: int, now: float = 0.0, node: str = "", nodes: Set[str] = frozenset()
    ) -> list[WorkUnit]:
        """Units for one call to a worker, now in flight there; empty if nothing is pending for it. A unit that was on
        a lost worker goes alone: if it is what kills workers, it takes no others with it; and on no node where it was
        lost, if there is another among those of the run, ``nodes``."""
        foremost = list(islice(self.pending, _FOREMOST))
        first = next((key for key in foremost if not self._avoids(key, node, nodes)), None)
        if first is None:
            if len(foremost) < _FOREMOST:
                return []
            first = foremost[0]  # so many are to avoid this node that looking at all of them would cost more
        self.pace.joins(worker, node)
        if self._is_left_to_others(worker, self.units[first]):
            return []
        batch = [first] if self.is_suspect(first) else self._fitting(worker, first)
        for key in batch:
            self._wait_no_more(key)
        return self.give(worker, batch, now)

    def give(self, worker: int, keys: Iterable[str], now: float) -> list[WorkUnit]:
        """What a worker gets in one call, beside others that may have it, too."""
        self._calls += 1
        held = self.held.setdefault(worker, {})
        if not held:
            self.begun[worker] = now
        batch = [self.units[key] for key in keys]
        for unit in batch:
            self.copies[unit.key] = (*self.copies.get(unit.key, ()), worker)
            self.attempts[unit.key] += 1
            held[unit.key] = self._calls
        return batch

    def is_suspect(self, key: str) -> bool:
        """Whether a unit may be what killed its worker."""
        return key in self.losses and self.losses[key].own > 0

    def _avoids(self, key: str, node: str, nodes: Set[str]) -> bool:
        return key in self.losses and node in self.losses[key].nodes and not nodes <= self.losses[key].nodes

    def _fitting(self, worker: int, first: str) -> list[str]:
        """The first that waits, and those behind it which fit into one call."""
        waiting, units_per_call = self.pending_seconds, self.units_per_call
        seconds = self.pace.seconds(worker, self.units[first])
        if seconds is None or waiting is None:
            size, most = float(self.units[first].weight), float(self.batch_weight)
            units_per_call = min(units_per_call, _UNITS_OF_FIRST_CALL)
        else:
            size, most = seconds, min(CALL_SECONDS, waiting / max(self.pace.total_speed, 1e-9) / 2)
        batch = []
        for key in self.pending:
            if key == first:
                batch.append(key)
            elif not batch:
                continue
            elif self.is_suspect(key) or len(batch) >= units_per_call:
                break
            else:
                unit = self.units[key]
                size += float(unit.weight) if seconds is None or waiting is None else self._seconds(worker, unit)
                if size > most:
                    break
                batch.append(key)
        return batch

    def _seconds(self, worker: int, unit: WorkUnit) -> float:
        found = self.pace.seconds(worker, unit)
        assert found is not None, unit.kind
        return found

    @property
    def pending_seconds(self) -> float | None:
        """What all that waits takes at speed 1; None while that is not known of each kind."""
        total = 0.0
        for kind, weight in self.pending_weight.items():
            cost = self.pace.cost(kind)
            if cost is None and weight:
                return None
            total += weight * (cost or 0.0)
        return total

    def _is_left_to_others(self, worker: int, unit: WorkUnit) -> bool:
        """Whether the others are done with everything that waits, and the fastest with this unit, long before this
        worker would be; never of the fastest."""
        seconds, waiting = self.pace.seconds(worker, unit), self.pending_seconds
        others = self.pace.total_speed - self.pace.speed(worker)
        if seconds is None or waiting is None or others <= 1e-9 or self.units_per_call == 1:
            return False  # where a call is one unit, nothing can be moved away from one who is busy for long
        there = seconds * self.pace.speed(worker) / self.pace.fastest
        return seconds > _TOO_SLOW * (waiting / others + there)

    # What comes in

    def finished(self, outcome: Outcome, worker: int | None = None, seconds: float = 0.0) -> Outcome | None:
        """Record a result, of a worker that took so long for it; returns it with its attempts counted, or None if the
        key was finished before, or is of no unit of this run."""
        if outcome.key not in self.units:
            return None
        if worker is not None and not outcome.error:
            self.pace.learned(worker, self.units[outcome.key], seconds)
        if outcome.key in self.done:
            return None
        for each in self.copies.pop(outcome.key, ()):
            self._drop(each, outcome.key)
        self._wait_no_more(outcome.key)  # a lost worker's result arrived after all
        self.done[outcome.key] = replace(outcome, attempts=max(1, self.attempts[outcome.key]))
        return self.done[outcome.key]

    def answered(self, worker: int, now: float) -> None:
        """A worker's call is over: it is at the next, if it has one."""
        self.begun[worker] = now
        self.at.pop(worker, None)

    def heard(self, worker: int, key: str, share: float, seconds: float, now: float) -> None:
        """A worker says which unit is at hand, for how long by now, and the share of it that is done."""
        self.at[worker] = At(key, now - seconds, share, now)

    def failed_there(self, key: str, worker: int, reason: str, node: str = "") -> list[Outcome]:
        """A unit could not be computed for want of something on the worker's node: it is tried elsewhere, or fails for
        good."""
        if worker not in self.copies.get(key, ()):
            return []
        self._drop(worker, key)
        return self._returned(key, worker, reason, node, is_own=True)

    def worker_lost(self, worker: int, reason: str, node: str = "", with_node: bool = False) -> list[Outcome]:
        """Return a lost worker's units to the head of the queue; returns those that fail for good. ``with_node``: it
        died with its node."""
        failed: list[Outcome] = []
        held = self.held.pop(worker, {})
        at_hand = min(held.values(), default=0)
        for key in reversed(held):
            if held[key] == at_hand:
                failed += self._returned(key, worker, reason, node, not with_node)
            else:
                self.attempts[key] -= 1  # which had not begun
                if not self._without(worker, key):
                    self._wait(key, first=True)
        for key in self.late.pop(worker, ()):  # given up for good
            if key not in self.done and key in self.pending:
                self._wait_no_more(key)
                failed += self._returned(key, worker, reason, node, not with_node)
        self.begun.pop(worker, None)
        self.at.pop(worker, None)
        self.pace.leaves(worker)
        return sorted(failed, key=lambda outcome: outcome.key)

    def worker_silent(self, worker: int) -> None:
        """A worker is not heard of: others may take its units."""
        held = self.held.pop(worker, {})
        for key in reversed(held):
            if not self._without(worker, key):
                self._wait(key, first=True)
        self.late[worker] = [*self.late.get(worker, ()), *held]
        self.pace.leaves(worker)

    def worker_back(self, worker: int, now: float, node: str = "") -> None:
        """It is heard of again, and computes on; what nobody has taken meanwhile is left to it."""
        self.pace.joins(worker, node)
        for key in self.late.pop(worker, ()):
            if key in self.pending:
                self._wait_no_more(key)
                self.attempts[key] -= 1  # the same one
                self.give(worker, [key], now)

    def taken_back(self, worker: int, key: str) -> None:
        """A worker has been told to leave a unit that another one gets."""
        self._without(worker, key)
        self._drop(worker, key)
        self.attempts[key] -= 1  # which has not begun

    def left(self, worker: int, key: str) -> None:
        """A worker's call is over without a word on this unit: it had been told to leave it."""
        if worker in self.copies.get(key, ()):
            self._drop(worker, key)
            if not self._without(worker, key):
                self._wait(key, first=True)

    # Moves between states

    def _wait(self, key: str, first: bool) -> None:
        self.pending[key] = None
        if first:
            self.pending.move_to_end(key, last=False)
        unit = self.units[key]
        self.pending_weight[unit.kind] = self.pending_weight.get(unit.kind, 0) + unit.weight

    def _wait_no_more(self, key: str) -> None:
        if key in self.pending:
            del self.pending[key]
            self.pending_weight[self.units[key].kind] -= self.units[key].weight

    def _drop(self, worker: int, key: str) -> None:
        held = self.held.get(worker)
        if held is not None:
            held.pop(key, None)
            if not held:
                del self.held[worker]

    def _without(self, worker: int, key: str) -> bool:
        """Take a worker's copy away; whether another one has it, too."""
        others = tuple(each for each in self.copies.get(key, ()) if each != worker)
        if others:
            self.copies[key] = others
        else:
            self.copies.pop(key, None)
        return bool(others)

    def _returned(self, key: str, worker: int, reason: str, node: str, is_own: bool) -> list[Outcome]:
        losses = self.losses.setdefault(key, Losses())
        losses.all += 1
        losses.own += is_own
        losses.nodes.add(node)
        if self._without(worker, key):
            return []
        if losses.own < MAX_ATTEMPTS and losses.all < MAX_NODES:
            self._wait(key, first=True)
            return []
        self.done[key] = Outcome(key, error=f"{reason} ({losses.all} times)", attempts=max(1, self.attempts[key]))
        return [self.done[key]]

    @property
    def num_unfinished(self) -> int:
        return len(self.pending) + len(self.copies)

    @property
    def is_complete(self) -> bool:
        return not self.pending and not self.copies

    def validate(self) -> None:
        """Raises AssertionError unless every unit is in exactly one state, and known to those that hold it."""
        states = [set(self.pending), set(self.copies), set(self.done)]
        assert sum(map(len, states)) == len(self.units), "a unit is lost or in two states"
        assert set().union(*states) == set(self.units), "an unknown unit has a state"
        held = {(key, worker) for worker, keys in self.held.items() for key in keys}
        copies = [(key, worker) for key, workers in self.copies.items() for worker in workers]
        assert len(copies) == len(set(copies)), "a worker has a unit twice"
        assert held == set(copies), "a worker holds what is not in flight there"
        assert all(1 <= len(workers) <= 2 for workers in self.copies.values()), "a unit has too many copies"
        assert all(self.held.values()), "a worker holds nothing"
        weight: dict[str, int] = {}
        for key in self.pending:
            weight[self.units[key].kind] = weight.get(self.units[key].kind, 0) + self.units[key].weight
        assert weight == {kind: total for kind, total in self.pending_weight.items() if total}, (
            "what waits is miscounted"
        )
