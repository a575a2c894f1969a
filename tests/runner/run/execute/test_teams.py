"""Teams of threads and of processes: all see what others wrote, and nobody waits for one that has failed."""

from __future__ import annotations

import multiprocessing
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_units import pooled
from ray_units import SHARED, lockstep, pooled_unit, stored_bytes

from manyscale.models.kernels.team import ALONE, Team, TeamBrokenError
from manyscale.runner.errors import RunError
from manyscale.runner.predict.units import AS_MANY_AS_THERE_ARE, BROKEN, Outcome, of_members
from manyscale.runner.run.execute import local, teams
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.execute.teams import ProcessTeam, in_threads
from manyscale.runner.run.store import Store


def _member(name: str, me: int, count: int, parameters: dict[str, Any], answers: Any) -> None:
    team = ProcessTeam(name, me, count)
    try:
        answers.put((me, pooled(parameters, SHARED, team)["doubled"]))
    except TeamBrokenError:
        answers.put((me, "broken"))
    except ValueError:
        team.fail()
        answers.put((me, "failed"))


def _in_processes(count: int, parameters: dict[str, Any]) -> list[Any]:
    spawn = multiprocessing.get_context("spawn")
    answers, name = spawn.Queue(), f"manyscale-{secrets.token_hex(8)}"
    members = [spawn.Process(target=_member, args=(name, me, count, parameters, answers)) for me in range(count)]
    for member in members:
        member.start()
    found = dict(answers.get(timeout=60) for _ in members)
    for member in members:
        member.join()
    assert not list(teams._MEMORY_FOLDER.glob(f"{name}*"))
    return [found[me] for me in range(count)]


def _in_threads(count: int, parameters: dict[str, Any]) -> list[Any]:
    return [each["doubled"] for each in in_threads(count, lambda team: pooled(parameters, SHARED, team))]


@pytest.mark.contract
def test_a_run_says_where_shards_gain_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Of three units one has too few instructions, one more shards than there are processors, and one takes as many as
    there are."""
    monkeypatch.setattr(local, "usable_cpus", lambda: frozenset({3, 5}))
    units = [
        replace(pooled_unit(shards, str(shards), offset=shards), instructions=instructions)
        for shards, instructions in ((2, 99_999), (3, 100_000), (AS_MANY_AS_THERE_ARE, 100_000))
    ]
    members: list[int] = []
    of_threads = teams.in_threads
    monkeypatch.setattr(teams, "in_threads", lambda count, work: members.append(count) or of_threads(count, work))
    lockstep(LocalExecutor(), units, Store(tmp_path))
    assert members == [2, 3, 2]
    assert capsys.readouterr().err.splitlines() == [
        "manyscale: 3 shards of a work unit on 2 processors wait for each other: more than 2 make it no sooner "
        "(gpu.groups: auto takes 2)",
        "manyscale: 1 of 3 work units with shards have fewer than 100,000 warp instructions, which strict order "
        "simulates as soon (gpu.order: strict)",
    ]
    lockstep(LocalExecutor(), [replace(pooled_unit(2), instructions=100_000)], Store(tmp_path))
    assert capsys.readouterr().err == ""


@pytest.mark.contract
@pytest.mark.parametrize(("members", "count"), [(_in_threads, 1), (_in_threads, 3), (_in_processes, 3)])
def test_a_team_s_work_is_that_of_one(members: Callable[[int, dict[str, Any]], list[Any]], count: int) -> None:
    alone = pooled({"offset": 5}, SHARED, ALONE)["doubled"]
    assert np.array_equal(alone, 2 * SHARED["values"] + 5)
    for each in members(count, {"offset": 5}):
        assert np.array_equal(each, alone)


def test_in_processes_others_stop_when_one_fails() -> None:
    assert _in_processes(3, {"offset": 0, "fails": 1}) == ["broken", "failed", "broken"]


@pytest.mark.parametrize("member", [0, 2])
def test_in_threads_the_first_error_of_its_own_is_raised(member: int) -> None:
    with pytest.raises(ValueError, match="make no sense"):
        _in_threads(3, {"offset": 0, "fails": member})


def test_a_value_is_made_once_for_all_threads() -> None:
    made = []

    def work(team: Team) -> object:
        return team.once(lambda: made.append(team.me) or object())

    values = in_threads(3, work)
    assert made == [0]
    assert values[0] is values[1] is values[2]


def test_arrays_of_several_types_and_of_none() -> None:
    wanted = {"a": ((3,), np.uint8), "empty": ((0, 4), np.float64), "b": ((2, 2), np.int64)}
    found = ProcessTeam(f"manyscale-{secrets.token_hex(8)}", 0, 1).arrays("x", wanted)
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == wanted
    found["a"][:] = 255  # apart from each other
    assert not found["b"].any()


def test_no_room_for_what_is_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(teams.os, "posix_fallocate", full)
    monkeypatch.setattr(teams, "_MEMORY_FOLDER", tmp_path)
    with pytest.raises(RunError, match=r"no room for 16 bytes .*\(No space left on device\); use gpu.groups: 1"):
        ProcessTeam("manyscale-full", 0, 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.contract
def test_the_local_executor_runs_shards_in_threads(tmp_path: Path) -> None:
    units = [pooled_unit(shards, "same", offset=3) for shards in (1, 2, 3)]
    for shards, unit in enumerate(units):
        lockstep(LocalExecutor(), [unit], Store(tmp_path / str(shards)))
    stored = [stored_bytes(Store(tmp_path / str(shards))) for shards in range(3)]
    assert len(stored[0]) == 1
    assert stored[0] == stored[1] == stored[2]


def test_the_local_executor_tells_why_a_shard_failed(tmp_path: Path) -> None:
    bad, good = pooled_unit(2, "bad", fails=1), pooled_unit(2, "good")
    found = lockstep(LocalExecutor(), [bad, good], Store(tmp_path))
    assert found[bad.key].error == "these parameters make no sense"
    assert not found[good.key].error


def test_the_outcome_of_members() -> None:
    fine, broken, failed = Outcome("k", 1.0), Outcome("k", 2.0, BROKEN), Outcome("k", 3.0, "why")
    assert of_members([fine, fine]) == Outcome("k", 2.0)
    assert of_members([broken, failed, broken]) == Outcome("k", 7.0, "why")
    assert of_members([fine, broken]).error == BROKEN
