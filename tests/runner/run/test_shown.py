"""Which traces and pages a run writes: large ones are compressed, or left out and made when they are asked for."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from manyscale.runner.report.paraver import files
from manyscale.runner.run import script, shown
from manyscale.runner.run.shown import Shown

pytestmark = pytest.mark.contract

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
TRACES = ("trace.prv", "trace.pcf", "trace.row", "trace.json.gz")


@pytest.fixture
def trace(write_trace: Callable) -> Path:
    return write_trace(LINES)


@pytest.fixture
def run(cli: Callable, trace: Path) -> Callable:
    def call(name: str, *more: object) -> Path:
        outcome = cli("run", "--workload", trace, "--target", "crossbar256", "-o", name, *more)
        assert outcome.status == 0, outcome.err
        return Path(name)

    return call


@pytest.fixture
def sweep(trace: Path) -> Path:
    study = {
        "schema": 1, "workload": {"path": str(trace)}, "target": "crossbar256", "sweep": {"cpu_ratio": [1.0, 0.5]},
    }  # fmt: skip
    path = Path("sweep.yaml")
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_small_trace_is_plain(run: Callable) -> None:
    assert set(TRACES) < names(run("small"))


def test_a_large_trace_is_compressed_and_the_same(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run("plain")
    monkeypatch.setattr(files, "MOST_PLAIN_BYTES", 10)
    packed = run("packed", "--set", "name=packed")  # another run: else the files of the first are copied
    assert "trace.prv" not in names(packed)
    assert gzip.decompress((packed / "trace.prv.gz").read_bytes()) == (plain / "trace.prv").read_bytes()
    assert (packed / "trace.prv.gz").read_bytes()[4:8] == bytes(4), "the time is in the file"


def test_what_is_compressed_is_read_as_what_is_not(
    run: Callable, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_PLAIN_BYTES", 10)
    packed = run("packed")
    outcome = cli("convert", packed / "trace.prv.gz", "-o", "again")
    assert outcome.status == 0, outcome.err


def test_traces_of_a_very_large_run_are_made_when_asked_for(
    run: Callable, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = run("small")
    monkeypatch.setattr(shown, "MOST_RECORDS", 1)
    large = run("large", "--set", "name=large")
    assert not set(TRACES) & names(large)
    assert "report.html" in names(large)
    before = {file.name: file.read_bytes() for file in large.iterdir() if file.is_file()}
    written = {"trace.prv", "trace.pcf", "trace.row", "trace.timeline.cfg"}
    outcome = cli("report", large, "--trace", "paraver")
    assert outcome.status == 0, outcome.err
    assert names(large) - set(before) - {"timeline"} == written
    assert {name: (large / name).read_bytes() for name in before} == before
    for name in written:
        assert (large / name).read_bytes() == (small / name).read_bytes()
    assert cli("report", large, "--trace", "perfetto").status == 0
    assert "trace.json.gz" in names(large)


def test_pages_of_a_sweep_share_one_script(cli: Callable, sweep: Path) -> None:
    assert cli("run", sweep, "-o", "out").status == 0
    assert not list(Path("out/points").rglob("*.html")), "pages of points are written when they are asked for"
    assert cli("report", "out", "--point", "1").status == 0
    assert [str(page) for page in Path("out/points").rglob("*.html")] == ["out/points/0001/report.html"]
    assert (Path("out") / script.NAME).read_bytes() == script.content()
    for page, place in (("out/report.html", script.NAME), ("out/points/0001/report.html", f"../../{script.NAME}")):
        text = Path(page).read_text()
        assert f'src="{place}"' in text
        assert len(text) < 200_000
        assert (Path(page).parent / place).resolve() == (Path("out") / script.NAME).resolve()


def test_a_self_contained_sweep_has_none(cli: Callable, sweep: Path) -> None:
    assert cli("run", sweep, "-o", "out").status == 0
    assert cli("report", "out", "--self-contained", "--point", "all").status == 0
    assert script.NAME not in names(Path("out"))
    for page in ("out/report.html", "out/points/0000/report.html"):
        text = Path(page).read_text()
        assert "src=" not in text
        assert len(text) > 1_000_000


def test_large_traces_of_points_are_left_out(cli: Callable, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST_RECORDS_OF_POINT", 1)
    assert cli("run", sweep, "-o", "out").status == 0
    point = Path("out/points/0001")
    assert not set(TRACES) & names(point)
    assert cli("report", point, "--trace", "perfetto").status == 0
    assert "trace.json.gz" in names(point)


def test_what_streams_do_counts_once() -> None:
    rows = {"ranks": 5, "messages": 3, "launches": 70, "blocks": 2}
    assert shown.records_of(rows, 8) == 80
    assert shown.records_of(rows | {"gpu_streams": 100}, 8) == 5 + 3 + 100 + 2, "launches are among what streams do"


def test_a_kind_that_is_none_and_a_sweep_are_refused(cli: Callable, sweep: Path, refused: Callable) -> None:
    assert cli("run", sweep, "-o", "out").status == 0
    refused(cli("report", "out/points/0000", "--trace", "parver"), "--trace parver", "paraver, perfetto")
    refused(cli("report", "out", "--trace", "paraver"), "out/points/0000")


def test_without_a_report_there_are_only_traces_that_were_asked_for() -> None:
    from manyscale.testing.writers import ping_pong_result

    result = ping_pong_result()
    assert Shown(report=False).writers(result) == []
    assert Shown(report=False, traces=["perfetto"]).writers(result) == ["perfetto"]
    assert Shown().writers(result)[-1] == "report"
