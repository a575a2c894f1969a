"""Progress of a run as a state machine without I/O: events in, decisions out.

A unit is *pending*, then *in flight* on one worker, then *done* or *failed*. A worker that is lost returns its units to
pending; a unit that was in flight on ``MAX_ATTEMPTS`` lost workers fails, since it may be what kills them. A second
result for a key (a retry that overlapped) changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from manyscale.runner.predict.units import Outcome, WorkUnit

MAX_ATTEMPTS: Final = 3
HEAR_SECONDS: Final = 0.5  # of a wait for threads, after which it looks whether a signal came in just before


@dataclass
class RunState:
    """Units by state. ``batch_weight`` bounds the work that one call carries."""

    batch_weight: int
    units: dict[str, WorkUnit] = field(default_factory=dict)
    pending: deque[str] = field(default_factory=deque)
    in_flight: dict[str, int] = field(default_factory=dict)  # key -> worker
    attempts: dict[str, int] = field(default_factory=dict)
    done: dict[str, Outcome] = field(default_factory=dict)

    def add(self, units: Iterable[WorkUnit]) -> None:
        """Take units on; a key that is already known is the same unit."""
        for unit in units:
            if unit.key not in self.units:
                self.units[unit.key] = unit
                self.attempts[unit.key] = 0
                self.pending.append(unit.key)

    def next_batch(self, worker: int) -> list[WorkUnit]:
        """Units for one call to a worker, now in flight there; empty if nothing is pending. A unit that was on a lost
        worker goes alone: if it is what kills workers, it takes no others with it."""
        batch: list[WorkUnit] = []
        weight = 0
        while self.pending and (not batch or self._fits(self.pending[0], weight)):
            key = self.pending.popleft()
            if self.attempts[key]:
                weight = self.batch_weight
            self.in_flight[key] = worker
            self.attempts[key] += 1
            batch.append(self.units[key])
            weight += self.units[key].weight
        return batch

    def _fits(self, key: str, weight: int) -> bool:
        return not self.attempts[key] and weight + self.units[key].weight <= self.batch_weight

    def finished(self, outcome: Outcome) -> Outcome | None:
        """Record a result; returns it with its attempts counted, or None if the key was finished before."""
        was_in_flight = self.in_flight.pop(outcome.key, None) is not None
        if outcome.key in self.done:
            return None
        if not was_in_flight and outcome.key in self.pending:  # a lost worker's result arrived after all
            self.pending.remove(outcome.key)
        self.done[outcome.key] = replace(outcome, attempts=max(1, self.attempts[outcome.key]))
        return self.done[outcome.key]

    def worker_lost(self, worker: int, reason: str) -> list[Outcome]:
        """Return a lost worker's units to the head of the queue; returns those that fail for good."""
        failed = []
        for key in sorted((k for k, w in self.in_flight.items() if w == worker), reverse=True):
            del self.in_flight[key]
            if self.attempts[key] >= MAX_ATTEMPTS:
                self.done[key] = Outcome(
                    key, error=f"{reason} ({self.attempts[key]} times)", attempts=self.attempts[key]
                )
                failed.append(self.done[key])
            else:
                self.pending.appendleft(key)
        return failed

    @property
    def is_complete(self) -> bool:
        return not self.pending and not self.in_flight

    def validate(self) -> None:
        """Raises AssertionError unless every unit is in exactly one state."""
        states = [set(self.pending), set(self.in_flight), set(self.done)]
        assert len(self.pending) == len(states[0]), "a unit is pending twice"
        assert sum(map(len, states)) == len(self.units), "a unit is lost or in two states"
        assert set().union(*states) == set(self.units), "an unknown unit has a state"
