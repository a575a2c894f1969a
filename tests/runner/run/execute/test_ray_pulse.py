"""Who is given up for silence: told by a clock and a Ray that the test turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from manyscale.runner.run.execute import ray_pulse
from manyscale.runner.run.execute.ray_pulse import MOST_MISSED, At, Heard, Pulse


class GoneError(Exception):
    """What Ray raises for a worker that has died."""


class Scene:
    """Workers by number; those that are ``mute`` answer no question that is asked meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.mute, self.asked = 0.0, set[int](), list[tuple[int, int]]()
        monkeypatch.setattr(ray_pulse, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.pulse = Pulse(seconds=10, most_missed=3, gives_up=5)
        self.exceptions = SimpleNamespace(RayError=GoneError)
        self.num_calls = 0

    def actor(self, number: int) -> Any:
        def remote() -> tuple[int, int]:
            self.asked.append((number, len(self.asked)))
            return self.asked[-1]

        return SimpleNamespace(is_there=SimpleNamespace(options=lambda **_: SimpleNamespace(remote=remote)))

    def wait(self, waiting: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert (num_returns, timeout) == (len(waiting), 0)
        return [each for each in waiting if each[0] not in self.mute], []

    def get(self, answer: tuple[int, int]) -> tuple[tuple[str, float, float] | None, int]:
        if answer[0] == 3:
            raise GoneError
        return ("unit", 0.25, 7.5) if answer[0] == 1 else None, self.num_calls

    def after(self, seconds: float, *numbers: int) -> Heard:
        self.now += seconds
        return self.pulse.ask(self, {number: [self.actor(number)] for number in numbers}, lambda number: 4)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def silent(heard: Heard) -> tuple[list[int], list[int], list[int]]:
    return heard.silent, heard.back, heard.gone


def test_silence_is_told_once_and_who_stays_silent_is_given_up(scene: Scene) -> None:
    scene.after(0, 1, 2)
    scene.mute = {2}
    found = [silent(scene.after(10, 1, 2)) for _ in range(5)]
    assert found == [([], [], []), ([], [], []), ([2], [], []), ([], [], []), ([], [], [2])]
    assert scene.pulse.reason == "it did not answer for 50 s"


def test_one_that_answers_late_is_back(scene: Scene) -> None:
    scene.after(0, 1)
    for missed in (2, 4):
        scene.mute = {1}
        for _ in range(missed):
            scene.after(10, 1)
        scene.mute = set()
        assert silent(scene.after(10, 1)) == ([], [1] if missed == 4 else [], [])


def test_silence_is_noticed_within_fifteen_seconds() -> None:
    pulse = Pulse()
    assert pulse.seconds * (MOST_MISSED + 1) < 15  # the link may be cut just after an answer


def test_a_worker_whose_answers_do_not_arrive_is_silent(scene: Scene) -> None:
    """It says that it has answered five calls; four have come in."""
    scene.after(0, 1, 2)
    scene.num_calls = 5
    assert [silent(scene.after(10, 2))[0] for _ in range(3)] == [[], [], [2]]
    scene.num_calls = 4
    assert silent(scene.after(10, 2)) == ([], [2], [])


def test_questions_are_not_asked_more_often_than_they_are_to_be(scene: Scene) -> None:
    for _ in range(100):
        scene.after(0.9, 1)
    assert len(scene.asked) == 9


def test_this_process_may_have_been_stopped_itself(scene: Scene) -> None:
    """An hour passes between two looks; that is one question, however long."""
    scene.after(0, 1)
    scene.mute = {1}  # its answer has not come in yet
    assert silent(scene.after(3600, 1)) == ([], [], [])
    scene.mute = set()
    assert silent(scene.after(10, 1)) == ([], [], [])


def test_a_gang_is_silent_if_one_of_it_is(scene: Scene) -> None:
    for turn in range(4):
        scene.now += 10
        found = scene.pulse.ask(scene, {7: [scene.actor(1), scene.actor(2)]})
        scene.mute = {2}
        assert found.silent == ([7] if turn == 3 else [])


def test_one_that_had_nothing_to_do_begins_anew(scene: Scene) -> None:
    scene.after(0, 1)
    scene.mute = {1}
    scene.after(10, 1)
    scene.after(10, 1)
    scene.after(10)
    assert [silent(scene.after(10, 1)) for _ in range(3)] == [([], [], [])] * 3


def test_answers_say_how_far_units_are(scene: Scene) -> None:
    heard: list[tuple[str, float]] = []
    scene.pulse.hear = lambda key, share: heard.append((key, share))

    for _ in range(2):
        found = scene.after(10, 1, 2, 3)  # the second has nothing to do, the third has died
    assert heard == [("unit", 0.25)]
    assert found.at == [At(1, "unit", 0.25, 7.5)]
