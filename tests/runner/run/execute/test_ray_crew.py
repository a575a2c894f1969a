"""Workers that are hired, idle, silent and stuck: told by a clock and actors that the test makes up."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute import ray_crew
from manyscale.runner.run.execute.pace import Pace
from manyscale.runner.run.execute.ray_crew import IDLE_SECONDS, Crew
from manyscale.runner.run.execute.ray_nodes import Node, Nodes
from manyscale.runner.run.execute.ray_pulse import Heard
from manyscale.runner.run.execute.ray_workers import losses, versions
from manyscale.runner.run.execute.state import RunState


class Cluster(Nodes):
    """Nodes with CPUs, all of them free but for those of the crew; remembers how many more were asked for."""

    def __init__(self, **cpus: int) -> None:
        super().__init__("head:6379", can_grow=True)
        self._nodes = {name: Node(name, name, count) for name, count in cpus.items()}
        self.asked: list[int] = []

    def look(self, ray: Any, *, at_once: bool = False) -> bool:
        for node in self.all:
            node.free = node.num_cpus - len(node.workers) + len(node.starting)
        return True

    def ask_for(self, ray: Any, count: int) -> None:
        self.asked.append(count)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **cpus: int) -> None:
        self.now = 0.0
        monkeypatch.setattr(ray_crew, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        self.heard = Heard()
        self.nodes = Cluster(**cpus)
        pulse = SimpleNamespace(ask=lambda *_: self.heard, reason="it did not answer for 60 s")
        self.crew = Crew(self.nodes, pulse, self.actor, True, pace := Pace())  # type: ignore[arg-type]
        self.state = RunState(batch_weight=1, pace=pace)

    def actor(self, node_id: str) -> Any:
        return SimpleNamespace(greet=SimpleNamespace(remote=object), node_id=node_id)

    def add(self, count: int) -> None:
        first = len(self.state.units)
        self.state.add(WorkUnit(f"{first + index:04d}", "test", {}) for index in range(count))

    def see(self, seconds: float = 1.0) -> list[str]:
        """Where workers are, once it was looked around."""
        self.now += seconds
        self.crew.see(ray, self.state)
        return sorted(worker.node for worker in self.crew.workers.values())

    def greet(self, nodes: Sequence[str] = ()) -> None:
        """Workers that start, on some nodes or all, are ready."""
        for worker in list(self.crew.workers.values()):
            if not worker.is_ready and (not nodes or worker.node in nodes):
                self.crew.welcome(worker, versions())


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch, a=2, b=2)


def test_as_many_are_hired_as_there_is_work_for_and_more_are_asked_for(scene: Scene) -> None:
    scene.add(3)
    assert len(scene.see()) == 3
    assert scene.nodes.asked == [0]
    scene.add(10)
    assert scene.see() == ["a", "a", "b", "b"]
    assert scene.nodes.asked[-1] == 9  # 13 units wait, and four workers start


def test_nothing_is_left_to_a_faster_worker_who_was_dismissed(scene: Scene) -> None:
    """As by a run that nobody wanted further: the next one has a worker of its own, 100 times slower."""
    scene.add(1)
    scene.see()
    scene.greet()
    (quick,) = scene.crew.workers.values()
    pace = scene.state.pace
    units = [WorkUnit(f"u{number}", "test", {}) for number in range(9)]
    for unit in units[:3]:
        pace.learned(quick.worker, unit, 0.1)
    scene.crew.dismiss(quick)
    for unit in units[3:6]:
        pace.learned(quick.worker + 1, unit, 10.0)
    later = RunState(batch_weight=1, pace=pace)
    later.add(units[6:])
    assert later.next_batch(quick.worker + 1) != []


def test_no_more_are_hired_than_the_run_may_have(scene: Scene) -> None:
    scene.crew.most = 3
    scene.add(10)
    assert len(scene.see()) == 3
    assert scene.nodes.asked == [0]


def test_who_has_nothing_to_do_for_a_minute_is_released(scene: Scene) -> None:
    scene.add(4)
    scene.see()
    scene.greet()
    scene.state.next_batch(1)
    scene.crew.workers[1].num_calls = 1
    for key in list(scene.state.pending):
        scene.state.finished(Outcome(key))
    assert len(scene.see(IDLE_SECONDS - 1)) == 4
    scene.see(1)
    assert list(scene.crew.workers) == [1]
    assert sum(len(node.workers) for node in scene.nodes.all) == 1


def test_none_is_released_while_units_wait(scene: Scene) -> None:
    scene.add(20)
    scene.see()
    scene.greet()
    assert len(scene.see(2 * IDLE_SECONDS)) == 4


def test_who_takes_long_to_start_is_replaced_elsewhere(scene: Scene) -> None:
    scene.crew.most = 2
    scene.nodes["b"].num_cpus = 0
    scene.add(8)
    assert scene.see() == ["a", "a"]
    scene.nodes["b"].num_cpus = 2
    assert scene.see() == ["a", "a"]
    assert scene.see(40) == ["a", "a", "b", "b"]
    assert scene.crew.num_starting == 2  # the last units are not left to those that are stuck


def test_units_of_a_silent_worker_go_elsewhere_until_it_is_heard_of(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.add(2)
    scene.see()
    scene.greet()
    (unit,) = scene.state.next_batch(1)
    scene.heard = Heard(silent=[1])
    assert list(scene.crew.ask(ray, scene.state)) == []
    assert unit.key in scene.state.pending
    assert [worker.worker for worker in scene.crew.seats] == [2]
    assert "does not answer; its units go elsewhere" in capsys.readouterr().err
    scene.heard = Heard(back=[1])
    assert list(scene.crew.ask(ray, scene.state)) == []
    assert scene.state.copies[unit.key] == (1,)
    assert len(scene.crew.seats) == 2
    scene.heard = Heard(gone=[1])
    assert list(scene.crew.ask(ray, scene.state)) == []
    assert list(scene.crew.workers) == [2]
    assert scene.nodes["a"].failures == scene.nodes["b"].failures == 0  # silence is no failure of a node


def test_a_node_of_another_version_loses_all_that_start_there(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.add(4)
    scene.see()
    bad = next(worker for worker in scene.crew.workers.values() if worker.node == "b")
    scene.crew.welcome(bad, versions() | {"numba": "0.1"})
    assert scene.see() == ["a", "a"]
    assert "node b is left out: it has numba 0.1, here it is" in capsys.readouterr().err


def test_what_starts_on_a_node_that_goes_is_no_failure_of_the_node_and_what_finds_no_memory_is(scene: Scene) -> None:
    from ray.exceptions import ActorUnschedulableError, OutOfMemoryError, RuntimeEnvSetupError

    scene.add(4)
    scene.see()
    on_a, _, *on_b = sorted(scene.crew.workers.values(), key=lambda worker: worker.node)
    scene.crew.lose(on_a, ActorUnschedulableError("the node is gone"), scene.state)
    assert scene.nodes["a"].failures == 0
    scene.crew.lose(on_b[0], RuntimeEnvSetupError("no space left"), scene.state)
    assert scene.nodes["b"].failures == 1
    on_b[1].is_ready = True
    scene.crew.lose(on_b[1], OutOfMemoryError("killed"), scene.state)
    assert scene.nodes["b"].failures == 2
    assert all(isinstance(error("x"), losses()) for error in (ActorUnschedulableError, RuntimeEnvSetupError))
