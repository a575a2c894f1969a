"""``status.json``: what a run says of itself while it works, and how that is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run import standing
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.standing import Standing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Turned by the test."""
    now = SimpleNamespace(seconds=100.0)
    turned = SimpleNamespace(monotonic=lambda: now.seconds, time=lambda: 1e9 + now.seconds)
    monkeypatch.setattr(standing, "time", turned)
    return now


def test_rate_and_time_left_are_of_the_phase_at_hand(clock: SimpleNamespace, tmp_path: Path) -> None:
    told: list[tuple[float, float, str]] = []
    found = Standing(tmp_path, lambda *said: told.append(said))
    found.progress(3, 10, "reading")
    clock.seconds += 50
    found.progress(20, 100, "replaying")
    assert found.content()["rate"] is None
    clock.seconds += 10
    found.progress(40, 100, "replaying")
    content = found.content()
    assert told[-1] == (40, 100, "replaying")
    assert (content["phase"], content["done"], content["total"]) == ("replaying", 40, 100)
    assert content["rate"] == pytest.approx(20 / 10)
    assert content["seconds_left"] == pytest.approx(60 / 2)
    assert content["seconds"] == pytest.approx(60)


def test_the_rate_is_that_of_the_last_minute(clock: SimpleNamespace, tmp_path: Path) -> None:
    found = Standing(tmp_path, lambda *_: None)
    found.progress(0, 1000, "replaying")
    for second in range(200):
        clock.seconds += 1
        found.progress(min(second + 1, 100) + 3 * max(0, second - 99), 1000, "replaying")
        content = found.content()
    assert content["rate"] == pytest.approx(3)  # 1 a second at first


def test_units_and_nodes_are_those_of_the_execution(tmp_path: Path) -> None:
    units = [WorkUnit(str(index), "test", {}) for index in range(3)]
    seen: list[Any] = []

    class Executor:
        def map(self, units: Any, shared: Any, store: Any) -> Any:
            for unit in units:
                yield Outcome(unit.key)

        def lockstep(self, *_: Any) -> Any:
            return iter(())

        def standing(self) -> dict[str, Any]:
            return {"nodes": [{"node": "a"}], "waiting": "a node"}

    store = SimpleNamespace(read=lambda _key: None, expect=lambda _keys: None, settle=dict)
    found = Standing(tmp_path, lambda *_: None)
    execution = Execution(store, Executor(), lambda *_: seen.append(found.content()), found.progress)  # type: ignore[arg-type]
    found.shows(execution)
    execution.execute(units, lambda _names: {})
    assert [each["units"]["left"] for each in seen] == [2, 1, 0]
    assert [each["units"]["simulated"] for each in seen] == [1, 2, 3]
    assert seen[0]["nodes"] == [{"node": "a"}]
    assert seen[0]["waiting"] == "a node"


def test_the_file_is_there_while_the_run_works_and_after(tmp_path: Path) -> None:
    with standing.told(tmp_path, lambda *_: None) as found:
        found.progress(1, 4, "replaying")
        found.write()
        during = standing.read(tmp_path)
        assert (during["phase"], during["done"]) == ("replaying", 1)
        assert during["age"] < 60
        found.progress(4, 4, "replaying")
    assert json.loads((tmp_path / "status.json").read_text())["done"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert standing.read(tmp_path) == {}
    (tmp_path / "status.json").write_text("{")
    assert standing.read(tmp_path) == {}
    assert standing.lines({}, is_running=True) == []


SAID = {
    "host": "login", "process": 7, "age": 0.5, "seconds": 300.0, "phase": "replaying", "done": 30.0, "total": 120.0,
    "rate": 0.5, "seconds_left": 180.0, "units": {"left": 90}, "waiting": "",
    "nodes": [
        {"node": "a (10.0.0.1)", "cpus": 8, "workers": 3, "units": 30, "state": "there", "reason": ""},
        {"node": "b (10.0.0.2)", "cpus": 8, "workers": 0, "units": 0, "state": "left out", "reason": "it is full"},
    ],
}  # fmt: skip


def test_the_lines_say_what_is_done_how_fast_and_where() -> None:
    assert standing.lines(SAID, is_running=True) == [
        "replaying 30/120 (25 %), 0.5/s, 3 min left; 90 units left at this stage",
        "a (10.0.0.1): 3 workers on 8 CPUs, 30 units finished, there",
        "b (10.0.0.2): 0 workers on 8 CPUs, 0 units finished, left out: it is full",
    ]
    assert standing.lines(SAID, is_running=False)[0] == "a (10.0.0.1): 8 CPUs, 30 units finished, there"


def test_a_run_that_is_waiting_and_one_that_is_gone_are_told() -> None:
    waiting = standing.lines({**SAID, "waiting": "a node with CPUs"}, is_running=True)
    assert "waiting for a node with CPUs" in waiting
    gone = standing.lines({**SAID, "age": 600.0}, is_running=True)
    assert "nothing was heard for 10 min of process 7 on login: it is stopped or gone;" in gone[1]
    assert "--resume" in gone[1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"phase": "replaying", "done": 1}'])
def test_a_file_that_is_damaged_or_lacks_something_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert standing.lines(standing.read(tmp_path), is_running=True) == []
