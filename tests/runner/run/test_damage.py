"""Files of the cache, damaged one by one: the same command gives the same figures, says what it makes again, and mends
it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import yaml

from manyscale.runner import kept
from manyscale.runner.predict.node.cells import streams
from manyscale.runner.shipped import folder

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
DETAILED = {
    "workload": {name: str(folder() / f"{file}.tar.zst") for name, file in
                 (("path", "multizone-8"), ("detail", "multizone-8-detail"))},
    "target": "marenostrum3", "model": {"cpu": "interval"}, "mapping": {"cores_per_rank": 4},
    "sampling": {"ranks": [0], "iterations": [1]},
}  # fmt: skip
INTERVALS = {
    "workload": {"path": str(folder() / "matmul-20.tar.zst")}, "target": "epyc-zen4", "model": {"cpu": "detailed"},
    "sampling": {"intervals": "simpoint"}, "intervals": {"instructions": 5000},
}  # fmt: skip
COMMANDS = {  # and how many damages each gets
    "replay": (["run", "lulesh-8"], 40),
    "tasks": (["run", "cholesky-8", "--no-report"], 40),
    "launches": (["run", "bfs-16", "--no-report"], 40),
    "profile": (["profile", str(folder() / "matmul-10.tar.zst"), "--target", "epyc-zen4", "--steady"], 20),
    "growth": (["predict", "matmul", "--sizes", "24", "--target", "epyc-zen4", "--steady"], 20),
    "detailed": (["run", "study.yaml", "--no-report"], 20),
    "streams": (["run", "study.yaml", "--no-report"], 10),
    "intervals": (["run", "study.yaml", "--no-report"], 20),
}
STUDIES = {"detailed": DETAILED, "streams": DETAILED, "intervals": INTERVALS}
OF_THE_RUN = (
    "manifest.json",
    "simulator.json",
    "status.json",
    "units.jsonl",
    "units.parquet",
)  # how it was made, not what came out


@pytest.fixture(autouse=True)
def _every_damage_is_told() -> Iterator[None]:
    yield
    kept._told.clear()


def whole_files(cache: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(cache.rglob("*")) if path.is_file()}


def figures(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in OF_THE_RUN
    }


def damaged(content: bytes, kind: str, random: Random) -> bytes:
    changed = bytearray(content)
    place = random.randrange(len(changed))
    if kind == "cut":
        return content[:place]
    if kind == "zeros":
        changed[place : place + 4096] = bytes(len(changed[place : place + 4096]))
    if kind == "bit":
        changed[place] ^= 1 << random.randrange(8)
    return bytes(changed)


def check(cli: Callable, cache: Path, command: Sequence[str], number: int | None, streams: bool = False) -> None:
    """Each file of the cache damaged once, or ``number`` of them, chosen by chance; all three kinds in turn.
    ``streams``: those that are read only where a unit is computed."""
    assert cli(*command, "-o", "before").status == 0
    before, whole = figures(Path("before")), whole_files(cache)
    files = [path for path, content in whole.items() if content and ("streams" in path.parts) is streams]
    random = Random(7)
    chosen = files if number is None else [random.choice(files) for _ in range(number)]
    for turn, path in enumerate(chosen):
        path.write_bytes(damaged(whole[path], ("bit", "zeros", "cut")[turn % 3], random))
        if path.read_bytes() == whole[path]:  # zeros that were there
            continue
        kept._told.clear()
        if streams:
            shutil.rmtree(cache / "units")
        outcome = cli(*command, "-o", "again")
        assert outcome.status == 0, (path, outcome.err)
        assert figures(Path("again")) == before, path
        assert "it is made again" in outcome.err, path
        assert len(outcome.err.splitlines()) == 1, outcome.err
        shutil.rmtree("again")
        for each, content in whole.items():
            if each.suffix == ".json" and each.parent.name == "shown":
                each.write_bytes(content)  # names the directory that has just gone
            else:
                assert each.read_bytes() == content, f"{path} was damaged, {each} not mended"


def test_any_file_of_the_cache_may_be_damaged(cli: Callable, private_cache: Path, write_trace: Callable) -> None:
    """A trace that is one file, so that the workload is kept, too."""
    trace = write_trace(LINES)
    text = "".join((trace / f"rank-{rank}.txt").read_text() for rank in LINES)
    Path("all.txt").write_text(text)
    check(cli, private_cache, ["run", "--workload", "all.txt", "--target", "crossbar256"], None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_files_of_every_kind_may_be_damaged(
    cli: Callable, private_cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(streams, "IN_MEMORY_BYTES", 0)  # small ones are kept, too
    if kind in STUDIES:
        Path("study.yaml").write_text(yaml.safe_dump({"schema": 1, **STUDIES[kind]}))
    command, number = COMMANDS[kind]
    check(cli, private_cache, command, number, streams=kind == "streams")


def test_a_damaged_trace_of_an_earlier_run_is_not_copied(
    cli: Callable, private_cache: Path, write_trace: Callable
) -> None:
    """Though neither its size nor its time tells."""
    command = ("run", "--workload", write_trace(LINES), "--target", "crossbar256", "-o")
    assert cli(*command, "first").status == 0
    path = Path("first/trace.prv")
    whole, time = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(damaged(whole, "bit", Random(7)))
    os.utime(path, ns=(time, time))
    outcome = cli(*command, "second")
    assert outcome.status == 0
    assert outcome.err == f"manyscale: {path.absolute()}: what was kept is damaged; it is made again\n"
    assert Path("second/trace.prv").read_bytes() == whole
    assert cli(*command, "third").err == ""


@pytest.mark.parametrize("with_study", [True, False])
def test_a_run_whose_directory_was_damaged_is_resumed_or_refused(
    cli: Callable, private_cache: Path, write_trace: Callable, with_study: bool, refused: Callable
) -> None:
    trace, random = write_trace(LINES), Random(7)
    study = ("--workload", trace, "--target", "crossbar256")
    assert cli("run", *study, "-o", "out").status == 0
    before, whole = figures(Path("out")), whole_files(Path("out"))
    for path in whole:
        is_read = path.name in ("manifest.json", "resolved.yaml", "units.jsonl")
        for kind in ("bit", "bit", "zeros", "cut") if is_read else ("bit",):
            for each, content in whole.items():
                each.write_bytes(content)
            path.write_bytes(damaged(whole[path], kind, random))
            outcome = cli("run", *(study if with_study else ()), "--resume", "-o", "out")
            if outcome.status:
                assert path.name in ("manifest.json", "resolved.yaml")
                refused(outcome, str(path))
            else:
                assert figures(Path("out")) == before, path


def test_a_run_is_resumed_although_results_of_its_units_were_damaged(
    cli: Callable, private_cache: Path, write_trace: Callable
) -> None:
    command = ("run", "--workload", write_trace(LINES), "--target", "crossbar256", "-o", "out")
    assert cli(*command).status == 0
    before = figures(Path("out"))
    for path in (private_cache / "units").rglob("*.arrow"):
        path.write_bytes(damaged(path.read_bytes(), "bit", Random(7)))
    outcome = cli(*command, "--resume")
    assert outcome.status == 0
    assert len(outcome.err.splitlines()) == 3, "a line for each of two ranks and the replay"
    assert figures(Path("out")) == before
