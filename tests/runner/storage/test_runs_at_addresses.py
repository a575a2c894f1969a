"""A sweep whose run directory stands at an address, here that of a folder: taken up elsewhere, read from a third."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.storage import fetching, publishing
from manyscale.runner.storage import remote as objects
from manyscale.runner.storage.address import located

STUDY = "workload: {path: trace}\ntarget: crossbar256\nsweep: {cpu_ratio: [1.0, 2.0]}\n"
RANKS = {0: ["init", "compute 1e6", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}


def test_a_sweep_at_an_address_goes_on_elsewhere(on: Callable, tmp_path: Path, write_trace: Callable) -> None:
    write_trace(RANKS, "trace")
    (tmp_path / "study.yaml").write_text(STUDY)
    address = f"file://{tmp_path}/bucket/run"
    assert on("calm", "run", "study.yaml", "-o", "local", "--no-report").status == 0
    done = on("one", "run", "study.yaml", "-o", address, "--no-report")
    assert (done.status, f"results: {address}\n" in done.out) == (0, True), done
    there = tmp_path / "bucket" / "run"
    (there / "points" / "0001" / "stats.json").write_text("{}")
    resumed = on("two", "run", "--resume", "-o", address, "--no-report")
    assert resumed.status == 0, resumed.err
    lines = resumed.err.splitlines()
    assert f"manyscale: {address}/points/0001/stats.json: is damaged (its checksum differs) and is left out" in lines
    for name in ("sweep.parquet", *(f"points/000{number}/timeline/ranks.parquet" for number in range(2))):
        assert (there / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert (there / "points" / "0001" / "stats.json").read_bytes() == (
        tmp_path / "local" / "points" / "0001" / "stats.json"
    ).read_bytes()
    shutil.rmtree(tmp_path / "trace")
    assert on("three", "status", address).out.startswith(f"{address}: complete; ")
    assert on("three", "compare", f"{address}/points/0000", f"{address}/points/0001").status == 0


def test_a_finished_sweep_is_left_as_it_is(on: Callable, tmp_path: Path, write_trace: Callable) -> None:
    """Also by ``--resume`` alone, where the study named its trace by a relative path."""
    write_trace(RANKS, "trace")
    (tmp_path / "study.yaml").write_text(STUDY)
    address = f"file://{tmp_path}/bucket/run"
    assert on("one", "run", "study.yaml", "-o", address, "--no-report").status == 0
    assert "0 work units" in on("two", "run", "--resume", "-o", address, "--no-report").out


def test_what_is_half_published_is_not_whole(
    on: Callable, refused: Callable, tmp_path: Path, write_trace: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage refuses a file at the end: the run is not complete there, and can go on."""
    write_trace(RANKS, "trace")
    address = f"file://{tmp_path}/bucket/run"
    command = ["run", "--workload", "trace", "--target", "crossbar256", "-o", address, "--no-report"]
    put = objects.Remote.put

    def refuses(self: objects.Remote, name: str, content: bytes | Path) -> None:
        if name == "timeline/ranks.parquet":
            raise UserError(f"{self.place(name)}: cannot be written: it is full; make room there")
        put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(objects.Remote, "put", refuses)
        patch.setattr(publishing, "SECONDS_BETWEEN", 0.001)
        refused(on("one", *command), f"{address}/timeline/ranks.parquet: cannot be written: it is full")
    manifest = tmp_path / "bucket" / "run" / "manifest.json"
    assert not manifest.exists() or json.loads(manifest.read_text())["status"] == "running"
    assert not on("two", "status", address).out.startswith(f"{address}: complete")
    assert on("one", *command, *(["--resume"] if manifest.exists() else [])).status == 0 or not manifest.exists()


def test_a_manifest_that_says_complete_is_the_last(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "SECONDS_BETWEEN", 0.001)
    tick, round_ended = publishing._Publication._tick, Event()

    def ticked(self: publishing._Publication) -> None:
        tick(self)
        round_ended.set()

    monkeypatch.setattr(publishing._Publication, "_tick", ticked)
    copy, there = located(f"file://{tmp_path}/bucket/run"), tmp_path / "bucket" / "run"
    copy.mkdir(parents=True)
    (copy / "manifest.json").write_text('{"status": "complete"}')
    (copy / "units.jsonl").write_text('{"line": 1}\n')
    with publishing.published(copy):
        assert round_ended.wait(60)
        assert list(there.glob("units.jsonl.parts/*"))
        assert not (there / "manifest.json").exists()
    assert sorted(path.name for path in there.iterdir() if path.is_file()) == [
        "files.json", "manifest.json", "units.jsonl",
    ]  # fmt: skip


def test_who_only_reads_a_run_does_not_keep_it_from_being_written(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = located(f"file://{tmp_path}/bucket/run")
    begins, ends = Event(), Event()
    entries, flock = objects.Remote.entries, fcntl.flock

    def comes(file: object, what: int) -> None:
        try:
            if what & fcntl.LOCK_NB:
                flock(file, what)  # type: ignore[arg-type]
        finally:
            if begins.is_set():
                ends.set()
        if not what & fcntl.LOCK_NB:
            flock(file, what)  # type: ignore[arg-type]

    def slow(self: objects.Remote, below: str = "") -> list[objects.Entry]:
        begins.set()
        assert ends.wait(10)
        return entries(self, below)

    def write() -> None:
        with publishing.published(copy):
            pass

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(objects.Remote, "entries", slow)
        patch.setattr(fcntl, "flock", comes)
        threads.submit(fetching.fetch, copy)
        assert begins.wait(10)
        threads.submit(write).result()


def test_a_run_that_was_listed_is_not_listed_for_each_of_its_points(
    tmp_path: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "bucket" / "run"
    for index in range(5):
        (there / "points" / f"{index:04d}").mkdir(parents=True)
        (there / "points" / f"{index:04d}" / "manifest.json").write_text("{}")
    (there / "manifest.json").write_text("{}")
    listed: list[str] = []
    entries = objects.Remote.entries
    monkeypatch.setattr(objects.Remote, "entries", lambda self, below="": listed.append(below) or entries(self, below))
    copy = located(f"file://{there}")
    assert rundir.is_run(copy)
    assert all(map(rundir.is_run, (copy / "points").iterdir()))
    assert listed == [""]
    (there / "points" / "0005").mkdir()
    (there / "points" / "0005" / "manifest.json").write_text("{}")
    assert rundir.is_run(copy / "points" / "0005"), "it came later"
