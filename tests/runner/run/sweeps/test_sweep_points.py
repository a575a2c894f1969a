"""Points of a sweep: whole run directories or two files each, wherever they were written and however often the run
was begun."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import forbids
from manyscale.runner import kept
from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run import pipeline, point_notes, shown, study_runs
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.shown import Shown
from manyscale.runner.run.sweeps import finished, point_files, point_units, sweep_runs
from manyscale.runner.study import Sweep
from manyscale.runner.study.targets import shipped_targets
from manyscale.runner.view.runs import Runs

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
NUMBER = 12


def test_points_of_another_machine_are_not_kept(cli, study):
    """The file of a target changes between a sweep and its end: no point is left that is of the machine before."""
    base = shipped_targets()["crossbar256"].read_text()
    Path("mine.yaml").write_text(base)
    words = ["run", study, "-o", "all", "--executor", "local", "--no-report", "--target", "mine.yaml"]
    words += ["--set", "sweep.cpu_ratio=[1.0]"]
    assert cli(*words).status == 0
    shutil.rmtree("all/points/0001")
    content = yaml.safe_load(base)
    content["nodes"] = 7
    Path("mine.yaml").write_text(yaml.safe_dump(content))
    assert cli(*words, "--resume").status == 0
    machines = [
        yaml.safe_load(path.read_text())["target"]["nodes"] for path in Path("all").glob("points/*/resolved.yaml")
    ]
    assert machines == [7] * 4


def test_points_of_another_placement_are_not_kept(cli, study):
    words = ["run", study, "-o", "all", "--executor", "local", "--no-report", "--set", "sweep.cpu_ratio=[1.0]"]
    words += ["--set", "mapping.placement.file=nodes.txt", "--set", "mapping.oversubscribe=true"]
    took = []
    for nodes, more in (("0 1", []), ("0 0", ["--resume"])):
        Path("nodes.txt").write_text(nodes)
        assert cli(*words, *more).status == 0
        took.append(json.loads(Path("all/points/0001/stats.json").read_text())["application.makespan"]["value"])
    assert took[0] != took[1]


@pytest.fixture
def study(write_trace: Callable) -> Path:
    content = {
        "schema": 1, "workload": {"path": str(write_trace(LINES))}, "target": "crossbar256",
        "sweep": {"cpu_ratio": [1.0, 0.5, 0.25], "target.network.latency": ["1 us", "2 us", "3 us", "4 us"]},
    }  # fmt: skip
    path = Path("sweep.yaml")
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_files, "MOST_WHOLE", 4)


@pytest.fixture(params=["whole", "packed"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "packed":
        monkeypatch.setattr(point_files, "MOST_WHOLE", 4)
    return str(request.param)


@pytest.fixture
def run(cli: Callable, study: Path) -> Callable:
    def call(name: str, *more: object) -> Path:
        outcome = cli("run", study, "-o", name, "--executor", "local", *more)
        assert outcome.status == 0, outcome.err
        return Path(name)

    return call


def contents(directory: Path) -> dict[str, bytes]:
    """What must be equal of two runs of a sweep: all but what the simulation itself took, and how it was called."""
    own = (
        "manifest.json",
        "simulator.json",
        "status.json",
        "units.jsonl",
        "units.parquet",
        "report.html",
        "plotly.min.js",
    )
    files = point_files.read_folder(directory)
    return {name: content for name, content in files.items() if name not in own}


def stamps(directory: Path, without: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    found = {}
    for file in sorted((directory / "points").rglob("*")):
        if file.is_file() and file.relative_to(directory / "points").parts[0] not in without:
            status = os.stat(file)
            found[str(file.relative_to(directory))] = status.st_ino, status.st_mtime_ns
    return found


@pytest.mark.contract
def test_a_packed_point_holds_the_whole_run_directory(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("whole", "--no-report")
    monkeypatch.setattr(point_files, "MOST_WHOLE", NUMBER - 1)
    packed = run("packed", "--no-report", "--cache", "other")
    for index in range(NUMBER):
        folder = point_files.folder(packed, index)
        assert sorted(os.listdir(folder)) == ["point.zip", "stats.json"]
        taken, left = contents(point_files.opened(folder)), contents(point_files.folder(whole, index))
        assert taken == left
        assert {"stats.json", "stats.txt", "resolved.yaml", "plan.parquet", "timeline/ranks.parquet"} <= set(taken)
    for name in ("sweep.parquet", "resolved.yaml"):
        assert (packed / name).read_bytes() == (whole / name).read_bytes()
    one = [json.loads((whole / "points" / "0007" / "stats.json").read_text())["application.makespan"]["value"]]
    assert pq.read_table(packed / "sweep.parquet")["application.makespan"].to_pylist()[7:8] == one


@pytest.mark.contract
def test_what_reads_a_run_reads_a_packed_point(run: Callable, cli: Callable, packs: None) -> None:
    packed = run("packed", "--no-report")
    point = packed / "points" / "0005"
    again = cli("run", point, "-o", "again", "--executor", "local", "--no-report")
    assert again.status == 0, again.err
    assert (Path("again") / "stats.json").read_bytes() == (point / "stats.json").read_bytes()
    compared = cli("compare", point, "again")
    assert compared.status == 0, compared.err
    assert compared.out.startswith(f"A: {point}, 2 ranks\nB: again, 2 ranks;")
    rows = Runs(packed).points(packed)
    assert [row["name"] for row in rows][5] == "cpu_ratio: 0.5, target.network.latency: 2 us"
    assert rows[5]["seconds"] == json.loads((point / "stats.json").read_text())["application.makespan"]["value"]
    assert "ranks" in rows[5]["tables"]
    assert sorted(os.listdir(point)) == ["point.zip", "stats.json"], "reading leaves nothing behind"


@pytest.mark.contract
def test_the_page_of_a_packed_point_is_written_when_it_is_asked_for(
    run: Callable, cli: Callable, refused: Callable, packs: None
) -> None:
    packed = run("packed")
    assert not list((packed / "points").rglob("report.html"))
    before = contents(packed)
    assert cli("report", packed, "--point", "3", "--point", "11").status == 0
    shown = [path.parent.name for path in sorted((packed / "points").rglob("report.html"))]
    assert shown == ["0003", "0011"]
    assert {"manifest.json", "trace.prv", "trace.json.gz", "resolved.yaml"} <= set(os.listdir(packed / "points/0003"))
    assert before.items() <= contents(packed).items()
    assert 'href="points/0003/report.html"' in (packed / "report.html").read_text()
    refused(cli("report", packed, "--point", "12"), "has no point 12", "0 to 11")
    refused(cli("report", packed, "--point", "x"), "--point x")
    assert cli("run", packed / "points" / "0002", "-o", "one").status == 0
    refused(cli("report", "one", "--point", "all"), "is no sweep")


@pytest.mark.contract
def test_resume_makes_missing_and_damaged_points_again_and_touches_no_other(
    run: Callable, cli: Callable, study: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = run("begun", "--no-report")
    before = contents(begun)
    big = "point.zip" if kind == "packed" else "timeline/ranks.parquet"
    points = begun / "points"
    (points / "0002" / "stats.json").unlink()
    cut = points / "0006" / big
    cut.write_bytes(cut.read_bytes()[:-9])
    flipped = bytearray((points / "0009" / "stats.json").read_bytes())
    flipped[40] ^= 4
    (points / "0009" / "stats.json").write_bytes(flipped)
    shutil.rmtree(points / "0011")
    broken = ("0002", "0006", "0009", "0011")
    untouched = stamps(begun, broken)
    prepared: list[Any] = []
    monkeypatch.setattr(kept, "_told", set())  # what other tests were told
    prepare = pipeline.prepare
    monkeypatch.setattr(pipeline, "prepare", lambda axes, *more: prepared.append(axes) or prepare(axes, *more))
    resumed = cli("run", study, "-o", "begun", "--executor", "local", "--no-report", "--resume")
    assert resumed.status == 0
    told = resumed.err
    assert contents(begun) == before
    assert stamps(begun, broken) == untouched
    assert {(each["cpu_ratio"], each["target.network.latency"]) for each in prepared} == {
        (1.0, "3 us"), (0.5, "3 us"), (0.25, "2 us"), (0.25, "4 us")
    }  # fmt: skip
    assert "0002/stats.json: what was kept is missing" in told
    assert f"0006/{big}: what was kept is damaged" in told
    assert "0009/stats.json: what was kept is damaged" in told


@pytest.mark.contract
def test_finished_points_without_traces_are_told(run: Callable, cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = run("begun", "--no-report")
    shutil.rmtree(begun / "points" / "0006")
    command = ["run", "--resume", "-o", "begun", "--executor", "local"]
    resumed = cli(*command)
    assert (begun / "points" / "0006" / "trace.prv").is_file()
    line = (
        "manyscale: points 0 to 5, 7 to 11 were finished without traces and left so; "
        "manyscale report begun --point N (or all) writes them"
    )
    assert line in resumed.err.splitlines(), resumed.err
    cli("report", begun, "--point", 3)
    assert "points 0 to 2, 4, 5, 7 to 11 were" in cli(*command).err
    assert "without traces" not in cli(*command, "--no-report").err
    monkeypatch.setattr(shown, "MOST_RECORDS_OF_POINT", 1)
    assert "without traces" not in cli(*command).err, "its traces are too large for one that is made now, too"


@pytest.mark.contract
def test_what_is_left_of_points_that_are_made_again_goes(run: Callable, kind: str) -> None:
    begun = run("begun", "--no-report")
    before = contents(begun)
    (begun / "points.jsonl").unlink()  # earlier versions wrote none, and whole run directories of all points
    (begun / "sweep.parquet").unlink()
    for name in ("0003/timeline", f".0003.{32 * 'a'}"):  # the latter of a worker that was killed
        (begun / "points" / name).mkdir(parents=True, exist_ok=True)
    (begun / "points" / "0003" / "manifest.json").write_text("{}")
    (begun / "points" / "0003" / "timeline" / "links.parquet").write_text("of an earlier version")
    assert contents(run("begun", "--no-report", "--resume")) == before
    assert sorted(os.listdir(begun / "points")) == [f"{index:04d}" for index in range(NUMBER)]
    assert (begun / "points" / "0003" / "manifest.json").is_file() == (kind == "whole")


@pytest.mark.contract
@pytest.mark.parametrize("done", [0, 5])
def test_a_run_that_was_cut_goes_on_to_the_same_bytes(
    run: Callable, cli: Callable, study: Path, kind: str, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = contents(run("calm", "--no-report"))
    assemble, made = pipeline.assemble, []

    def cut(*arguments: Any) -> Any:
        if len(made) == done:
            raise KeyboardInterrupt
        made.append(1)
        return assemble(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "assemble", cut)
        assert cli("run", study, "-o", "cut", "--executor", "local", "--no-report").status == 130
    assert finished.count(Path("cut")) == done
    assert contents(run("cut", "--resume", "--no-report")) == calm


@pytest.mark.contract
def test_files_travel_where_the_run_directory_is_not_seen(
    run: Callable, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = contents(run("here", "--no-report"))

    @contextmanager
    def unseen(_directory: Path) -> Iterator[str]:
        yield ".points-of-another-machine"

    monkeypatch.setattr(study_runs, "_marked", unseen)
    assert contents(run("away", "--no-report", "--cache", "other")) == here


@pytest.fixture
def coupled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for a sweep of which the second point has work units of its own: its ranks communicate inside
    tasks on several cores."""
    content = {
        "schema": 1, "workload": {"path": "jacobi-8"}, "target": "marenostrum3",
        "sweep": {"mapping.cores_per_rank": [1, 2]},
    }  # fmt: skip
    monkeypatch.setattr(sweep_runs, "LEAST_ASSEMBLED", 1)
    (tmp_path / "coupled.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return ["run", "coupled.yaml", "--no-report", "-o"]


@pytest.mark.contract
def test_points_with_units_of_their_own_are_assembled_where_their_results_are_seen(
    coupled: list[str], cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else by the driver. Here both are this process; its executor is called by another name."""
    assert cli(*coupled, "here", "--executor", "local").status == 0
    number_done = []
    predicted = point_units._predicted

    def told(*arguments: Any) -> Any:
        found = predicted(*arguments)
        number_done.append(len(found[0]))
        return found

    monkeypatch.setattr(LocalExecutor, "name", "elsewhere")
    monkeypatch.setattr(point_units, "_predicted", told)
    for name in ("seen", "unseen"):
        if name == "unseen":
            monkeypatch.setattr(point_units, "_store_at", lambda _place: None)
        there = cli(*coupled, name, "--executor", "local")
        assert there.status == 0, there.err
        assert contents(Path(name)) == contents(Path("here"))
    # units of the first point, of the second one, which is left, and of the second one when its units are done
    assert number_done == [1, 0, 1, 1, 0, 0]


@pytest.mark.slow
@pytest.mark.contract
def test_workers_assemble_points_with_units_of_their_own_to_the_same_bytes(coupled: list[str], cli: Callable) -> None:
    assert cli(*coupled, "here", "--executor", "local").status == 0
    by_ray = cli(*coupled, "ray", "--executor", "ray", "--workers", 2, "--cache", "other")
    assert by_ray.status == 0, by_ray.err
    assert contents(Path("ray")) == contents(Path("here"))
    assert "0 reused" in by_ray.out, "a point's units count once"


@pytest.mark.slow
@pytest.mark.contract
def test_workers_write_the_same_bytes(run: Callable, cli: Callable, study: Path, packs: None) -> None:
    here = contents(run("here"))
    by_ray = cli("run", study, "-o", "ray", "--executor", "ray", "--workers", 2, "--cache", "other")
    assert by_ray.status == 0, by_ray.err
    assert contents(Path("ray")) == here
    (Path("ray") / "points" / "0004" / "point.zip").unlink()
    again = cli("run", study, "-o", "ray", "--executor", "ray", "--workers", 2, "--cache", "other", "--resume")
    assert again.status == 0, again.err
    assert contents(Path("ray")) == here


@pytest.mark.contract
def test_a_point_of_large_sweeps_that_is_refused_is_named_and_leaves_what_is_finished(
    cli: Callable, study: Path, refused: Callable, packs: None
) -> None:
    content = yaml.safe_load(study.read_text())
    content["sweep"] = {"cpu_ratio": [1.0, 0.5, 0.25], "mapping.ranks_per_node": [1, 2]}  # nodes have one core
    study.write_text(yaml.safe_dump(content, sort_keys=False))
    refused(cli("run", study, "-o", "out", "--executor", "local"), "cpu_ratio=1.0, mapping.ranks_per_node=2")
    assert not Path("out").exists(), "the value shows it before anything is predicted"
    axes = {"cpu_ratio": [1.0, 0.5, 0.25], "mapping.oversubscribe": [True, False], "mapping.ranks_per_node": [1, 2]}
    study.write_text(yaml.safe_dump({**content, "sweep": axes}, sort_keys=False))
    place = "cpu_ratio=1.0, mapping.oversubscribe=False, mapping.ranks_per_node=2"
    refused(cli("run", study, "-o", "out", "--executor", "local"), place)
    assert finished.count(Path("out")) == 3, "no value alone shows it"


@pytest.mark.contract
def test_of_points_that_fail_the_first_is_named_whichever_worker_is_first(
    cli: Callable, study: Path, packs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of four points each, of which the last comes first: replays of points 5, 6 and 9 fail."""
    monkeypatch.setattr(sweep_runs, "LEAST_UNITS", 3)
    compute, replay_unit, in_order = point_units.compute, pipeline.replay_unit, LocalExecutor.map
    failing: dict[str, str] = {}

    def named(point: pipeline.Point, *more: Any) -> WorkUnit:
        unit = replay_unit(point, *more)
        if (name := str(dict(point.axes))) in wrong:
            failing[unit.key] = name
        return unit

    def computed(unit: WorkUnit, shared: Any) -> Any:
        return (Outcome(unit.key, error=failing[unit.key]), {}) if unit.key in failing else compute(unit, shared)

    sweep = Sweep(yaml.safe_load(study.read_text()), "here")
    wrong = {str(dict(sweep.values(index))) for index in (5, 6, 9)}
    monkeypatch.setattr(pipeline, "replay_unit", named)
    monkeypatch.setattr(point_units, "compute", computed)
    monkeypatch.setattr(LocalExecutor, "map", lambda self, units, *more: in_order(self, units[::-1], *more))
    refused = cli("run", study, "-o", "out", "--executor", "local", "--no-report")
    assert refused.status == 1
    assert refused.err.splitlines()[-1] == f"manyscale: {dict(sweep.values(5))}"
    assert finished.count(Path("out")) == 4 + 1 + 1, "those before the failing ones of each unit"


@pytest.mark.contract
def test_strict_refuses_before_anything_is_written(
    run: Callable, cli: Callable, study: Path, refused: Callable, kind: str
) -> None:
    refused(cli("run", study, "-o", "out", "--executor", "local", "--strict"), "with --strict")
    assert not Path("out").exists()
    codes = ["shared-links", "collectives-without-communicator", "waits-guessed"]
    accepted = [option for code in codes for option in ("--accept", code)]
    run("out", "--no-report")
    refused(cli("run", study, "-o", "out", "--executor", "local", "--strict", "--resume"), "with --strict")
    run("out", "--no-report", "--strict", "--resume", *accepted)


@pytest.mark.contract
def test_what_only_the_result_of_the_first_point_shows_leaves_nothing_behind(
    cli: Callable, study: Path, refused: Callable, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_notes, "of_ideal_network", lambda _figures: [forbids("no-use", "means nothing")])
    refused(cli("run", study, "-o", "out", "--executor", "local"), "means nothing: forbids a number", "--accept no-use")
    assert not Path("out").exists()


@pytest.mark.theory
def test_points_by_number_are_those_of_nested_loops() -> None:
    axes = {"cpu_ratio": [1.0, 2.0], "target": ["a", "b", "c"], "seed": [5, 7]}
    sweep = Sweep({"workload": {"path": "-"}, "target": "x", "sweep": axes}, "here")
    loops = [
        {"cpu_ratio": r, "target": t, "seed": s}
        for r in axes["cpu_ratio"]
        for t in axes["target"]
        for s in axes["seed"]
    ]
    assert [sweep.values(index) for index in range(len(sweep))] == loops
    assert [sweep.study(index).target for index in range(len(sweep))] == [each["target"] for each in loops]
    first = sweep.first_with_each_value()
    for name, values in axes.items():
        assert {next(i for i, each in enumerate(loops) if each[name] == value) for value in values} <= set(first)
    assert len(first) == 1 + (2 - 1) + (3 - 1) + (2 - 1)


@pytest.mark.contract
def test_a_hundred_thousand_points_are_planned_in_little_memory(workload_of_two: Workload) -> None:
    axes = {"cpu_ratio": [1 + each / 400 for each in range(400)], "seed": list(range(250))}
    tracemalloc.start()
    try:
        sweep = Sweep({"workload": {"path": "-"}, "target": "crossbar256", "sweep": axes}, "here", yes=True)
        points = point_units.Points(
            sweep, workload_of_two, None, {}, frozenset(), False, Path(), "", "", "", Path(), Shown(), packs=True,
            keeps=False, manifest={},
        )  # fmt: skip
        planned = sweep_runs.SweepRun(points, None, None, None, lambda *_: None, "stamp")  # type: ignore[arg-type]
        indices, most = [], 0
        for window in planned.windows(range(len(sweep)), len(sweep)):
            most = max(most, len(window))
            indices.append(sum(len(unit.parameters["indices"]) for unit in window))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (sum(indices), most) == (100_000, sweep_runs.UNITS_AT_ONCE)
    assert peak < 4_000_000


@pytest.fixture
def workload_of_two(write_trace: Callable) -> Workload:
    from manyscale.runner.study import parse_study
    from manyscale.runner.study.traces import read_workload

    content = {"workload": {"path": str(write_trace(LINES, "two"))}, "target": "crossbar256"}
    return read_workload(parse_study(content, "here").workload)
