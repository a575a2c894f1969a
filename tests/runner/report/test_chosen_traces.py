"""Traces of a run of many ranks hold chosen ones: what these do, and what they send each other."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import manyscale
from manyscale.runner.errors import UserError
from manyscale.runner.report.paraver import ranks as paraver
from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.run import chosen_ranks, shown
from manyscale.runner.run.results import Result

from . import tiny

pytestmark = pytest.mark.contract

RANKS = 6


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_ranks, "MOST_RANKS", RANKS - 1)
    monkeypatch.setattr(chosen_ranks, "MOST_CHOSEN", 3)
    monkeypatch.setattr(chosen_ranks, "_LONGEST", 1)


@pytest.fixture
def result() -> Result:
    return tiny.random_result(7, RANKS, 40)


def chosen_of(result: Result) -> list[int]:
    chosen = chosen_ranks.chosen_ranks(result)
    assert chosen is not None
    return chosen.ranks.tolist()


def nanoseconds(picoseconds: int) -> int:
    return (picoseconds + 500) // 1000


def between(result: Result, ranks: list[int]) -> list[dict[str, int]]:
    return [row for row in result.messages.to_pylist() if row["source"] in ranks and row["destination"] in ranks]


def test_paraver_has_their_states_and_messages(result: Result, tmp_path: Path) -> None:
    ranks = chosen_of(result)
    assert len(ranks) == 3
    paraver.write(result, tmp_path)
    lines = [line.split(":") for line in (tmp_path / "trace.prv").read_text().splitlines()[1:] if line[0] in "123"]
    states = Counter((int(at[3]) - 1, int(at[5]), int(at[6])) for at in lines if at[0] == "1")
    expected = Counter(
        (row["rank"], nanoseconds(row["start_ps"]), nanoseconds(row["end_ps"]))
        for row in result.ranks.to_pylist()
        if row["rank"] in ranks and nanoseconds(row["end_ps"]) > nanoseconds(row["start_ps"])
    )
    assert states == expected
    sent = Counter(
        (int(at[3]) - 1, int(at[9]) - 1, int(at[6]), int(at[12]), int(at[13])) for at in lines if at[0] == "3"
    )
    assert sent == Counter(
        (m["source"], m["destination"], nanoseconds(m["send_ps"]), nanoseconds(m["receive_ps"]), m["bytes"])
        for m in between(result, ranks)
    )
    assert sent
    assert {int(at[3]) - 1 for at in lines if at[0] == "2"} == set(ranks)


def test_perfetto_has_their_slices_and_says_so(result: Result, tmp_path: Path) -> None:
    ranks = chosen_of(result)
    perfetto.write(result, tmp_path)
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    events = trace["traceEvents"]
    slices = Counter(event["tid"] - 1 for event in events if event["ph"] == "X" and event["pid"] == 1)
    assert slices == Counter(row["rank"] for row in result.ranks.to_pylist() if row["rank"] in ranks)
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert named == {f"rank {rank}" for rank in ranks}
    assert trace["otherData"]["left_out"][0].startswith(f"3 of {RANKS} ranks: ")
    assert trace["otherData"]["messages"] == result.messages.num_rows


def test_a_study_chooses_others(result: Result) -> None:
    assert chosen_of(replace(result, resolved={**result.resolved, "timeline": {"ranks": [4, 0]}})) == [0, 4]


def test_a_rank_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    study = {"schema": 1, "workload": {"path": "lulesh-8"}, "target": "laptop", "timeline": {"ranks": [7, 8]}}
    with pytest.raises(UserError, match=r"timeline\.ranks: there is no rank 8; the run's are 0 to 7"):
        manyscale.run(study, output=tmp_path / "run", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npz"))


def test_few_ranks_are_all_there(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_ranks, "MOST_RANKS", RANKS)
    assert chosen_ranks.chosen_ranks(result) is None


def test_whether_traces_are_written_follows_from_chosen_ranks(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST_RANKS", RANKS - 1)
    monkeypatch.setattr(shown, "MOST_CHOSEN", 3)
    assert shown.num_records(result) == (result.ranks.num_rows + result.messages.num_rows) * 3 // RANKS
