"""Which workers still answer: each has a thread that does nothing else, which the kernels, since they do without
Python's lock, leave running. So a unit may take as long as it likes, and a process that was stopped, or is swapped out,
is noticed.

The answer says how far the worker is with its unit.

Questions are counted, not seconds: this process may itself have been stopped meanwhile, and then hears late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

THREAD: Final = "pulse"  # the actors' concurrency group
ASK_SECONDS: Final = 10.0
MOST_MISSED: Final = 6  # a minute


class SilentWorkerError(Exception):
    """A worker does not answer any more."""


@dataclass
class _Question:
    """Asked of a worker, or of all members of a gang: references of the answers, and how often they were not there."""

    answers: Sequence[Any]
    missed: int = 0


class Pulse:
    """Asks every ``seconds``, and gives up those that missed ``most_missed`` times in a row to answer."""

    def __init__(self, seconds: float = ASK_SECONDS, most_missed: int = MOST_MISSED) -> None:
        self.seconds, self._most_missed = seconds, most_missed
        self._next = 0.0
        self._asked: dict[int, _Question] = {}
        self.hear: Callable[[str, float], None] | None = None  # which share of which unit is done

    def silent(self, ray: Any, workers: Mapping[int, Sequence[Any]]) -> list[int]:
        """Those of the ``workers`` (by number: their actors) that do not answer; to be called at least as often as they
        are to be asked. One that has died has answered: its calls tell of it."""
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + self.seconds
        self._asked = {number: asked for number, asked in self._asked.items() if number in workers}
        waiting = [answer for asked in self._asked.values() for answer in asked.answers]
        answered = set(ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]) if waiting else set()
        self._tell(ray, [answer for answer in waiting if answer in answered])
        for number, actors in workers.items():
            asked = self._asked.get(number)
            if asked is None or answered.issuperset(asked.answers):
                answers = [actor.is_there.options(concurrency_group=THREAD).remote() for actor in actors]
                self._asked[number] = _Question(answers)
            else:
                asked.missed += 1
        return [number for number in workers if self._asked[number].missed >= self._most_missed]

    def _tell(self, ray: Any, answers: Sequence[Any]) -> None:
        """Of the units that workers are at, by their answers; one that has died says nothing."""
        for answer in answers if self.hear is not None else ():
            try:
                at = ray.get(answer)
            except ray.exceptions.RayError:
                continue
            if at is not None and self.hear is not None:
                self.hear(*at)

    @property
    def reason(self) -> str:
        """Why a silent worker is given up."""
        return f"it did not answer for {self.seconds * self._most_missed:.0f} s"
