"""Which workers still answer: each has a thread that does nothing else, which the kernels, since they do without
Python's lock, leave running. So a unit may take as long as it likes, and a process that was stopped, a node that was,
and a link that was cut are noticed, all workers being asked side by side.

The answer says how far the worker is with its unit, and how many calls it has answered: a worker whose answers do not
arrive, since its node's Ray hangs, is as good as silent.

Silence has two steps. After ``most_missed`` questions the units go elsewhere, and nothing else happens: a machine that
is merely busy, or swaps, is heard of again and goes on. After ``gives_up`` the worker is ended. Questions are counted,
not seconds: this process may itself have been stopped meanwhile, and then hears late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

THREAD: Final = "pulse"  # the actors' concurrency group
ASK_SECONDS: Final = 3.0
MOST_MISSED: Final = 3  # silence is noticed 9 to 12 seconds after it begins
GIVES_UP: Final = 20  # a minute


class SilentWorkerError(Exception):
    """A worker does not answer any more."""


@dataclass
class _Question:
    """Asked of a worker, or of all members of a gang: references of the answers, and how often they were not there."""

    answers: Sequence[Any]
    missed: int = 0


@dataclass(frozen=True)
class At:
    """Of a worker, by its number: the unit at hand, the share of it that is done, for how many seconds it is."""

    worker: int
    key: str
    share: float
    seconds: float


@dataclass
class Heard:
    """Who has become silent, who is heard of again, who is to be given up, and where the others are."""

    silent: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    at: list[At] = field(default_factory=list)


class Pulse:
    """Asks every ``seconds``; counts how many questions in a row were missed."""

    def __init__(self, seconds: float = ASK_SECONDS, most_missed: int = MOST_MISSED, gives_up: int = GIVES_UP) -> None:
        self.seconds, self._most_missed, self._gives_up = seconds, most_missed, max(gives_up, most_missed)
        self._next = 0.0
        self._asked: dict[int, _Question] = {}
        self.hear: Callable[[str, float], None] | None = None  # which share of which unit is done

    def ask(self, ray: Any, workers: Mapping[int, Sequence[Any]], settled: Callable[[int], int] | None = None) -> Heard:
        """What the ``workers`` (by number: their actors) answer, if it is time to ask; to be called at least as often.
        One that has died has answered: its calls tell of it. ``settled``: how many calls of a worker came in."""
        if time.monotonic() < self._next:
            return Heard()
        self._next = time.monotonic() + self.seconds
        self._asked = {number: asked for number, asked in self._asked.items() if number in workers}
        waiting = [answer for asked in self._asked.values() for answer in asked.answers]
        answered = set(ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]) if waiting else set()
        heard = Heard()
        for number, actors in workers.items():
            asked = self._asked.get(number)
            was_silent = asked is not None and asked.missed >= self._most_missed
            if asked is None or answered.issuperset(asked.answers):
                hangs = asked is not None and self._take(ray, number, asked.answers, heard, settled)
                answers = [actor.is_there.options(concurrency_group=THREAD).remote() for actor in actors]
                self._asked[number] = _Question(answers, asked.missed + 1 if asked is not None and hangs else 0)
            else:
                asked.missed += 1
            missed = self._asked[number].missed
            if missed >= self._gives_up:
                heard.gone.append(number)
            elif missed >= self._most_missed and not was_silent:
                heard.silent.append(number)
            elif missed == 0 and was_silent:
                heard.back.append(number)
        return heard

    def _take(
        self, ray: Any, number: int, answers: Sequence[Any], heard: Heard, settled: Callable[[int], int] | None
    ) -> bool:
        """Take answers in; whether the worker has answered calls of which nothing arrived."""
        hangs = False
        for answer in answers:
            try:
                at, num_calls = ray.get(answer)
            except ray.exceptions.RayError:
                continue
            hangs = hangs or (settled is not None and num_calls > settled(number))
            if at is not None:
                heard.at.append(At(number, *at))
                if self.hear is not None:
                    self.hear(at[0], at[1])
        return hangs

    @property
    def reason(self) -> str:
        """Why a silent worker is given up."""
        return f"it did not answer for {self.seconds * self._gives_up:.0f} s"
