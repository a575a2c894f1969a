"""``manyscale submit``: what is sent, and what is refused before anything is. The client of Ray is a stand-in here;
tests/runner/run/cluster has the real one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manyscale.runner.cli import main
from manyscale.runner.run.execute import ray_jobs

URL = "http://head:8265"
STUDY = "schema: 1\nworkload: {path: lulesh-8, format: simgrid-ti, flop_rate: 1 Gflop/s}\ntarget: crossbar256\n"
ON_THE_CLUSTER = ["--executor", "ray", "--address", "auto"]


class Recorded:
    """Takes what would be sent."""

    sent: list[tuple[list[str], Path | None]]
    follows: Any = 0

    def __init__(self, address: str) -> None:
        assert address == URL

    def submit(self, words: Sequence[str], folder: Path | None) -> str:
        self.sent.append((list(words), folder))
        return "job-1"

    def follow(self, _job: str, tell: Any) -> int:
        tell("8 work units\n")
        if isinstance(self.follows, BaseException):
            raise self.follows
        return int(self.follows)

    def look(self, job: str) -> str:
        return f"look {job}"

    def stop(self, job: str) -> str:
        return f"stop {job}"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Recorded]:
    Recorded.sent, Recorded.follows = [], 0
    monkeypatch.setattr(ray_jobs, "Jobs", Recorded)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "study.yaml").write_text(STUDY)
    return Recorded


def submitted(*words: str) -> int:
    return main(["submit", *words, "--dashboard", URL])


def test_a_study_travels_with_its_folder_and_options_as_typed(cluster: type[Recorded], tmp_path: Path) -> None:
    words = ["--set", "seed=2", "--accept", "a b", "--resume", "--cache", "s3://bucket/cache", "-o", "s3://bucket/run"]
    assert submitted("mine/study.yaml", *words) == 0
    ((sent, folder),) = cluster.sent
    assert folder == tmp_path / "mine"
    assert sent[:3] == ["manyscale", "run", "study.yaml"]
    assert sent[-4:] == ON_THE_CLUSTER
    pairs = set(itertools.pairwise(sent))
    assert {("--set", "seed=2"), ("--accept", "a b"), ("--cache", "s3://bucket/cache")} <= pairs
    assert ("--output", "s3://bucket/run") in pairs or ("-o", "s3://bucket/run") in pairs
    assert "--resume" in sent


def test_a_shipped_study_needs_no_folder(cluster: type[Recorded], capsys: pytest.CaptureFixture[str]) -> None:
    assert submitted("lulesh-8", "-o", "/shared/run", "--no-wait") == 0
    assert cluster.sent == [(["manyscale", "run", "lulesh-8", "-o", "/shared/run", *ON_THE_CLUSTER], None)]
    assert "look job-1; end it with: stop job-1" in capsys.readouterr().out


def test_the_exit_status_is_the_jobs(cluster: type[Recorded]) -> None:
    cluster.follows = 2
    assert submitted("lulesh-8", "-o", "/shared/run") == 2


def test_an_interrupt_leaves_the_job(cluster: type[Recorded], capsys: pytest.CaptureFixture[str]) -> None:
    cluster.follows = KeyboardInterrupt()
    assert submitted("lulesh-8", "-o", "/shared/run") == 130
    assert (
        capsys.readouterr().err == "manyscale: the job goes on; look at it with: look job-1; end it with: stop job-1\n"
    )


@pytest.mark.parametrize(("words", "message"), [
    (["lulesh-8", "-o", "out"], "-o out: would lie in the job's own folder"),
    (["lulesh-8", "-o", "/out", "--cache", "c"], "--cache c: would lie in the job's own folder"),
    (["lulesh-8", "-o", "ftp://b/out"], "ftp://"),
    (["mine/study.yaml", "-o", "/out", "--target", "elsewhere.yaml"], "--target elsewhere.yaml: only what lies beside"),
    (["mine/study.yaml", "-o", "/out", "--set", "sead=1"], "sead"),
    (["nothing.yaml", "-o", "/out"], "nothing.yaml"),
])  # fmt: skip
def test_what_would_fail_there_is_refused_here(
    cluster: type[Recorded], tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere.yaml").write_text("schema: 1\n")
    assert submitted(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert cluster.sent == []


def test_hidden_files_stay_here_and_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("study.yaml", ".secret", "a/trace", "a/.git/config", ".cache/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("four")
    assert sorted(ray_jobs._left_out(tmp_path)) == ["/.cache", "/.secret", "/a/.git"]
    monkeypatch.setattr(ray_jobs, "MOST_BYTES", 7)
    with pytest.raises(ray_jobs.UserError, match="travels with it, and is more than"):
        ray_jobs._left_out(tmp_path)


@pytest.mark.parametrize("address", ["head:8265", "10.0.0.1", "ftp://head"])
def test_what_is_no_dashboard_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs.extras, "require", lambda *_: None)
    with pytest.raises(
        ray_jobs.UserError, match=r"is not the address of a cluster's dashboard; write http://HEAD:8265"
    ):
        ray_jobs.Jobs(address)
