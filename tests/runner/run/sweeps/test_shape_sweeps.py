"""Sweeps over shapes of a step: each point is the step of its shape alone, whoever makes it; the best come first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import changes, informs
from manyscale.runner.notes import of_shapes
from manyscale.runner.predict.phase_source import FILE, SweepShared
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps import point_files, workloads
from manyscale.runner.study import Sweep
from manyscale.runner.study.shapes import PREFIX
from manyscale.runner.study.targets import machine_file

STEP = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 64, "global_batch": 8, "gpus": 4, "target": "dgx-a100"}
AXES = {f"{PREFIX}tp": [1, 2, 3], "target.network.latency": ["1 us", "4 us"], f"{PREFIX}pp": [2, 1]}
SHAPES = [(1, 2), (1, 1), (2, 2), (2, 1)]  # of 4 GPUs


def written(name: str, content: dict[str, Any]) -> Path:
    path = Path(name)
    path.write_text(yaml.safe_dump({"target": "dgx-a100", **content}, sort_keys=False))
    return path


@pytest.fixture
def study(cli: Callable) -> Path:
    return written("sweep.yaml", {"workload": {"synthesise": STEP}, "sweep": AXES})


def contents(directory: Path) -> dict[str, bytes]:
    """All but what the simulation itself took, and how it was called."""
    own = ("manifest.json", "simulator.json", "status.json", "units.jsonl", "units.parquet")
    return {name: content for name, content in point_files.read_folder(directory).items() if Path(name).name not in own}


def test_points_are_their_shapes_alone_and_the_best_are_first(study, cli):
    swept = cli("run", study, "-o", "all", "--executor", "local")
    assert swept.status == 0, swept.err
    table = pq.read_table("all/sweep.parquet").to_pydict()
    assert [(table[f"{PREFIX}tp"][k], table[f"{PREFIX}pp"][k]) for k in (0, 1, 4, 5)] == SHAPES
    assert table[f"{PREFIX}dp"] == [2, 4, 2, 4, 1, 2, 1, 2]
    tokens = [8 * 64 / whole for whole in table["step.whole"]]
    assert table["step.tokens_per_second"] == pytest.approx(tokens)

    alone = {**STEP, "tp": 2, "pp": 1}
    latency = {"target": {"name": "dgx-a100", "network": {"latency": "4 us"}}}
    one = written("one.yaml", {"workload": {"synthesise": alone}, **latency})
    assert cli("run", one, "-o", "one", "--cache", "other", "--no-report").status == 0
    mine, its = (json.loads(Path(name, "stats.json").read_text()) for name in ("one", "all/points/0007"))
    assert {"step.time", "step.memory", "application.makespan"} <= mine.keys() == its.keys()
    assert all(mine[name] == its[name] for name in mine if name != "notes")

    lines = swept.out.splitlines()
    first = next(place for place, line in enumerate(lines) if line.endswith("the best first:"))
    shown = [int(line.split()[0]) for line in lines[first + 2 : first + 10]]
    assert shown == sorted(range(8), key=lambda k: table["step.whole"][k])
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(notes) == len({line.partition("[")[2].partition("]")[0] for line in notes}), "a code stands once"
    assert "2 of the sweep's 6 shapes cannot be, and are no points: 2 for gpus" in swept.out
    page = Path("all/report.html").read_text()
    assert "Shapes, the best first" in page

    compared = cli("compare", "all/points/0000", "all/points/0007")
    assert (compared.status, "not-compared" in compared.out) == (0, False)

    before = contents(Path("all"))
    shutil.rmtree("all/points/0005")
    again = cli("run", study, "-o", "all", "--resume", "--executor", "local")
    assert again.status == 0, again.err
    assert contents(Path("all")) == before


def test_packed_points_know_what_was_made_for_each(tmp_path):
    rundir.write_manifest(tmp_path, "complete", 0, {"transformer": "of all"})
    for name, inputs in (("own", {"transformer": "of one"}), ("shared", None)):
        folder = tmp_path / "points" / name
        point_files.write_files(folder, point_files.pack({point_files.STATISTICS: b"{}", "timeline": b""}, inputs))
        point_files.unpack(folder, into := tmp_path / name)
        assert rundir.read_manifest(into)["inputs"] == (inputs or {"transformer": "of all"})


def test_a_shape_that_does_not_fit_on_the_machine_is_told_before_any_is_predicted(cli, refused):
    step = {**STEP, "gpus": None}
    axes = {f"{PREFIX}tp": [1, 4], f"{PREFIX}dp": [1, 8]}
    target = {"name": "dgx-a100", "nodes": 2}
    given = written("large.yaml", {"workload": {"synthesise": step}, "sweep": axes, "target": target})
    refused(cli("run", given, "-o", "large"), "tp=4, workload.synthesise.dp=8: 32 ranks do not fit on dgx-a100")
    assert not Path("large").exists()


def test_one_workload_is_held_at_a_time_and_another_machine_makes_others():
    sweep = Sweep({"workload": {"synthesise": STEP}, "target": "dgx-a100", "sweep": AXES}, "here")
    memory: dict[str, Any] = {}
    made = [workloads.of_point(sweep, index, sweep.study(index), None, memory, {}) for index in (0, 2, 1)]
    (first, of_first), (alike, of_alike), (other, of_other) = made
    assert first is alike
    assert of_first is of_alike
    assert first.digest != other.digest
    assert of_first is not of_other
    assert [each for each in memory.values() if isinstance(each, Workload)] == [other]

    content = machine_file("dgx-a100", None)[1]
    digests = set()
    for name in ("one", "one", "another"):
        shared = SweepShared({(FILE, "synthesised", "dgx-a100"): ("place", {**content, "name": name})})
        digests.add(workloads.digest(sweep, sweep.study(0), first, shared))
    assert len(digests) == 2


def test_of_notes_that_differ_by_what_they_count_the_largest_stands():
    notes = [informs("a", "5 of them", count=5), informs("a", "9 of them", count=9), informs("b", "some", count=1)]
    as_many = [changes("c", text, count=16) for text in ("50 GB of 40", "60 GB of 40")]
    shown = of_shapes([*notes, informs("b", "some", count=2), changes("a", "1 of them"), *as_many])
    assert [(note.code, note.count, note.text) for note in shown] == [
        ("a", 9, "9 of them; other points have fewer"), ("b", 2, "some"), ("a", 1, "1 of them"),
        ("c", 16, "50 GB of 40; other points have other figures"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.contract
def test_workers_make_the_same_shapes(study, cli):
    assert cli("run", study, "-o", "here", "--executor", "local").status == 0
    by_ray = cli("run", study, "-o", "ray", "--executor", "ray", "--workers", 2, "--cache", "other")
    assert by_ray.status == 0, by_ray.err
    assert contents(Path("ray")) == contents(Path("here"))
