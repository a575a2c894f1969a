"""Traces and reports of an equal earlier run are copied; what was changed, or is of another result, is made again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.run import outputs

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
SHOWN = ("trace.prv", "trace.pcf", "trace.row", "trace.timeline.cfg", "trace.json.gz", "report.html")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders in which a timeline for Perfetto was made."""
    found: list[Path] = []
    write, lookup = perfetto.write, outputs.lookup

    def noted(result: object, directory: Path) -> None:
        found.append(directory)
        write(result, directory)  # type: ignore[arg-type]

    monkeypatch.setattr(
        outputs, "lookup", lambda seam, name: noted if (seam, name) == ("writer", "perfetto") else lookup(seam, name)
    )
    return found


@pytest.fixture
def run(cli: Callable, write_trace: Callable) -> Callable:
    trace = write_trace(LINES)

    def call(name: str, *more: str) -> Path:
        outcome = cli("run", "--workload", trace, "--target", "crossbar256", "-o", name, *more)
        assert outcome.status == 0, outcome.err
        return Path(name)

    return call


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SHOWN}


def test_an_equal_run_copies(run: Callable, made: list[Path]) -> None:
    first, second = run("first"), run("second")
    assert len(made) == 1
    assert contents(second) == contents(first)
    assert not [file for file in second.iterdir() if file.name.startswith(".")]
    with (second / "trace.prv").open("a") as file:
        file.write("mine")
    assert contents(first) != contents(second), "the first run's file is another"


@pytest.mark.parametrize("change", ["edited", "removed", "gone"])
def test_what_was_changed_is_made_again(run: Callable, made: list[Path], change: str) -> None:
    first = run("first")
    before = contents(first)
    if change == "edited":
        (first / "report.html").write_text("mine")
    elif change == "removed":
        (first / "trace.row").unlink()
    else:
        shutil.rmtree(first)
    assert contents(run("second")) == before
    assert len(made) == 2


def test_another_result_is_made(run: Callable, made: list[Path]) -> None:
    first, second = run("first"), run("second", "--set", "cpu_ratio=2")
    assert len(made) == 2
    assert contents(first)["report.html"] != contents(second)["report.html"]


def test_without_a_report_there_is_nothing_to_copy(run: Callable, made: list[Path]) -> None:
    run("first")
    second = run("second", "--no-report")
    assert not any((second / name).exists() for name in SHOWN)
    assert len(made) == 1
