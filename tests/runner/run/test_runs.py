"""Whole runs: the run directory, reuse over sweeps, interruption and resuming, and equal bytes on every executor."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import manyscale
from manyscale.runner import registry, shipped
from manyscale.runner.cli import run as run_command
from manyscale.runner.errors import UserError

# Everything of a run directory that must not depend on how, where and how often the run was made
SAME = [
    "timeline/ranks.parquet", "timeline/messages.parquet", "stats.json", "stats.txt", "plan.parquet", "resolved.yaml",
    "trace.prv", "trace.pcf", "trace.row", "trace.json.gz", "report.html",
]  # fmt: skip


def different_files(first: Path, second: Path) -> list[str]:
    """Names among SAME that are missing or differ."""
    return [
        name
        for name in SAME
        if not (first / name).is_file()
        or not (second / name).is_file()
        or (first / name).read_bytes() != (second / name).read_bytes()
    ]


def units(directory: Path) -> dict[str, int]:
    return json.loads((directory / "simulator.json").read_text())["units"]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    study = {
        "schema": 1,
        "workload": {"path": str(shipped.folder() / "nas-is-A-8.tar.zst")},
        "target": "crossbar256",
        "sweep": {"cpu_ratio": [1.0, 0.5], "target.network.latency": ["1 us", "10 us"]},
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``interrupt_after(n)``: Ctrl-C arrives once n units are finished."""

    def arrange(count: int) -> None:
        @contextmanager
        def progress():  # type: ignore[no-untyped-def]
            told: list[float] = []

            def tell(done: float, total: float, what: str) -> None:
                told.extend([done] if done else [])  # once for each unit
                if len(told) >= count:
                    raise KeyboardInterrupt

            yield tell

        monkeypatch.setattr(run_command, "progress_bar", progress)

    return arrange


@pytest.mark.contract
def test_run_directory_explains_itself(cli, tmp_path):
    outcome = cli("run", "nas-is-A-8", "-o", "run")
    assert outcome.status == 0
    assert "0.147645 s" in outcome.out
    run = tmp_path / "run"
    assert {
        name
        for name in (*SAME, "manifest.json", "units.jsonl", "units.parquet", "simulator.json", "status.json")
        if not (run / name).is_file()
    } == set()
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"
    figures = json.loads((run / "stats.json").read_text())
    assert figures["application.makespan"]["value"] == pytest.approx(0.147645, abs=1.01e-6)  # SimGrid 3.32
    assert figures["application.messages"]["value"] == 7
    # NAS IS communicates by alltoall(v) and allreduce; its 7 point-to-point messages are one word each
    assert figures["application.collective"]["value"] > 50 * figures["application.wait"]["value"]
    plan = pq.read_table(run / "plan.parquet").to_pydict()
    listed = pq.read_table(run / "units.parquet").to_pydict()
    assert plan["element_id"] == list(range(8))
    assert set(plan["unit_key"]) <= set(listed["key"])
    assert all(Path(path).is_file() for path in listed["result_path"])


@pytest.mark.theory
def test_time_of_every_rank_adds_up(cli, tmp_path):
    cli("run", "nas-is-A-8", "-o", "run", "--no-report")
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    value = {name.removeprefix("application."): entry["value"] for name, entry in figures.items()}
    parts = sum(value[name] for name in ("compute", "point_to_point", "collective", "wait", "idle"))
    assert parts == pytest.approx(value["makespan"], rel=1e-12)
    assert value["load_balance"] * value["communication_efficiency"] == pytest.approx(
        value["parallel_efficiency"], rel=1e-12
    )
    assert value["serialisation_efficiency"] * value["transfer_efficiency"] == pytest.approx(
        value["communication_efficiency"], rel=1e-12
    )


@pytest.mark.contract
def test_a_resolved_study_runs_again_to_the_same_bytes(cli, tmp_path):
    cli("run", "nas-is-A-8", "-o", "first")
    assert cli("run", tmp_path / "first" / "resolved.yaml", "-o", "second", "--cache", "other").status == 0
    assert different_files(tmp_path / "first", tmp_path / "second") == []
    assert units(tmp_path / "second")["reused"] == 0


@pytest.mark.contract
def test_comparison_of_run_directories_can_fail(cli, tmp_path):
    cli("run", "nas-is-A-8", "-o", "first", "--no-report")
    cli("run", "nas-is-A-8", "-o", "second", "--no-report", "--set", "cpu_ratio=1.001")
    assert {"timeline/ranks.parquet", "stats.json", "trace.prv"} <= set(
        different_files(tmp_path / "first", tmp_path / "second")
    )


@pytest.mark.contract
def test_sweep_shares_compute_results(cli, sweep, tmp_path):
    assert cli("run", sweep, "-o", "run", "--no-report").status == 0
    # 4 points: two CPU ratios x 8 ranks of bursts, and a replay each
    assert units(tmp_path / "run") == {"total": 20, "simulated": 20, "reused": 0, "failed": 0}
    table = pq.read_table(tmp_path / "run" / "sweep.parquet").to_pydict()
    assert table["point_id"] == [0, 1, 2, 3]
    assert table["cpu_ratio"] == [1.0, 1.0, 0.5, 0.5]
    assert table["target.network.latency"] == ["1 us", "10 us", "1 us", "10 us"]
    makespan = table["application.makespan"]
    assert makespan[0] < makespan[1]
    assert makespan[2] < makespan[0]
    assert makespan[1] == pytest.approx(0.147645, abs=1.01e-6)
    for index, value in enumerate(makespan):
        point = json.loads((tmp_path / "run" / "points" / f"{index:04d}" / "stats.json").read_text())
        assert point["application.makespan"]["value"] == value


@pytest.mark.contract
def test_one_change_simulates_only_what_it_concerns(cli, tmp_path):
    cli("run", "nas-is-A-8", "-o", "first", "--no-report")
    cli("run", "nas-is-A-8", "-o", "network", "--no-report", "--set", "target.network.latency=2 us")
    assert units(tmp_path / "network") == {"total": 9, "simulated": 1, "reused": 8, "failed": 0}
    cli("run", "nas-is-A-8", "-o", "rank", "--no-report", "--set", "ipc_correction.ranks={3: 2.0}")
    assert units(tmp_path / "rank") == {"total": 9, "simulated": 2, "reused": 7, "failed": 0}
    cli("run", "nas-is-A-8", "-o", "units", "--no-report", "--set", "target.network.latency=10000 ns")
    assert units(tmp_path / "units")["simulated"] == 0  # the same latency in another unit


@pytest.mark.theory
def test_ipc_corrections_multiply(cli, write_trace, tmp_path):
    lines = [
        "init",
        "compute 8000",
        "barrier",
        "location solver.c 7",
        "compute 6000",
        "barrier",
        "sleep 1e-6",
        "finalize",
    ]
    trace = write_trace({0: lines, 1: lines})
    corrections = {"default": 1.0, "ranks": {1: 2.0}, "regions": {"solver.c:7": 3.0}, "phases": {"1/0": 4.0}}
    done = cli(
        "run",
        "--workload",
        trace,
        "--target",
        "crossbar256",
        "-o",
        "run",
        "--no-report",
        "--set",
        f"ipc_correction={corrections}",
    )
    assert done.status == 0, done.err
    states = pq.read_table(tmp_path / "run" / "timeline" / "ranks.parquet").to_pandas()
    compute = states[states["state"] == "compute"]
    durations = (compute["end_ps"] - compute["start_ps"]) // 1000
    # ns; rank 0: 8000, 6000 / 3, sleep 1000; rank 1: 8000 / (2 x 4), 6000 / (2 x 3), sleep as it is
    assert durations[compute["rank"] == 0].tolist() == [8000, 2000, 1000]
    assert durations[compute["rank"] == 1].tolist() == [1000, 1000, 1000]


@pytest.fixture
def plugged_in(tmp_path, monkeypatch):
    """A CPU model of somebody else's, ``half``, which halves every phase, and samplers of ranks: ``first`` keeps rank 0
    only, ``former`` does so in the form that samplers once had, ``two`` keeps ranks 0 and 1 with weights of 3 and 1,
    ``drawn`` two ranks at random."""
    (tmp_path / "others.py").write_text(
        "import numpy as np\n"
        "from dataclasses import replace\n"
        "from manyscale.models.workload.parameters import Strict\n"
        "from manyscale.sampling.plan import Plan\n"
        "from manyscale.sampling.sampler import Sampler\n"
        "VERSION = 1\n"
        "def compute(parameters, inputs):\n"
        "    rows = slice(parameters['first'], parameters['last'])\n"
        "    return {'duration_ps': inputs['phases']['duration_ps'][rows] // 2}\n"
        "def former(workload, model):\n"
        "    one = np.zeros(1, np.int32)\n"
        "    return Plan('rank', one, one, np.array([float(workload.num_ranks)]), model, workload.num_ranks)\n"
        "def first(ranks, rules, seed):\n"
        "    return former(ranks.workload, '')\n"
        "def two(ranks, rules, seed):\n"
        "    return Plan('rank', np.arange(2), np.zeros(2, np.int32), np.array([3.0, 1.0]), '', 4)\n"
        "class Rules(Strict):\n"
        "    number: int = 2\n"
        "def drawn(ranks, rules, seed):\n"
        "    count = ranks.workload.num_ranks\n"
        "    chosen = np.sort(np.random.default_rng(seed).permutation(count)[: rules.number])\n"
        "    return replace(Plan.of_strata('rank', chosen, np.zeros(count)), is_random=True)\n"
        "DRAWN = Sampler(drawn, Rules)\n"
    )
    metadata = tmp_path / "others-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[manyscale.cpu]\nhalf = others\n[manyscale.unit]\nhalf = others:compute\n"
        "[manyscale.rank-sampler]\nfirst = others:first\ntwo = others:two\ndrawn = others:DRAWN\n"
        "[manyscale.sampling]\nformer = others:former\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry._plug_ins.cache_clear()
    yield
    registry._plug_ins.cache_clear()
    registry.lookup.cache_clear()
    sys.modules.pop("others", None)


@pytest.mark.contract
def test_the_cpu_model_that_is_named_is_the_one_that_runs(cli, plugged_in, write_trace, tmp_path):
    trace = write_trace({0: ["init", "compute 8000", "finalize"]})
    arguments = ("--workload", trace, "--target", "crossbar256", "--executor", "local", "--no-report")
    assert cli("run", *arguments, "--model", "cpu=half", "-o", "half").status == 0
    assert cli("run", *arguments, "-o", "burst").status == 0
    makespans = [
        json.loads((tmp_path / name / "stats.json").read_text())["application.makespan"]["value"]
        for name in ("half", "burst")
    ]
    assert makespans == [4e-6, 8e-6]


FOUR = {rank: ["init", f"compute {1000 * (rank + 1)}", "barrier", f"compute {100 * (rank + 1)}", "finalize"]
        for rank in range(4)}  # fmt: skip


def compute_of_ranks(directory: Path) -> list[int]:
    table = pq.read_table(directory / "timeline" / "ranks.parquet").to_pandas()
    mine = table[table.state == "compute"]
    return (mine.end_ps - mine.start_ps).groupby(mine["rank"]).sum().tolist()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("method", "chosen", "stands"),
    [
        ("first", [0], [0, 0, 0, 0]), ("former", [0], [0, 0, 0, 0]),
        ("two", [0, 1], [0, 1, 0, 0]), ("one-in-2", [0, 2], [0, 0, 2, 2]), ("full", [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_ranks_that_a_sampler_leaves_out_take_the_times_of_those_that_stand_for_them(
    cli, plugged_in, write_trace, tmp_path, method, chosen, stands
):
    """By the weights of its plan, phase by phase."""
    arguments = ("--workload", write_trace(FOUR), "--target", "crossbar256", "--executor", "local", "--no-report")
    done = cli("run", *arguments, "--sampling", f"ranks={method}", "-o", "run")
    assert (done.status, done.err) == (0, "")
    assert compute_of_ranks(tmp_path / "run") == [1_100_000 * (rank + 1) for rank in stands]
    plan = pq.read_table(tmp_path / "run" / "plan.parquet").to_pydict()
    assert plan["element_id"] == chosen
    assert plan["weight"] == [stands.count(rank) for rank in chosen]
    assert set(plan["model"]) == {"burst"}
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    if method == "full":
        assert "sampling.ranks" not in figures
    else:
        assert figures["sampling.ranks"]["value"] == len(chosen)
        assert "were not drawn at random" in figures["sampling.ranks"]["description"]
        assert figures["application.compute"]["ci_low"] is None


@pytest.mark.theory
def test_ranks_drawn_at_random_say_how_sure_they_are(cli, plugged_in, write_trace, tmp_path):
    """Cochran's eq. 2.24 with Student's t for the mean of two of four: 12.7062 sqrt((1 - 2/4) s^2 / 2)."""
    arguments = ("--workload", write_trace(FOUR), "--target", "crossbar256", "--executor", "local", "--no-report")
    done = cli("run", *arguments, "--sampling", "ranks=drawn", "-o", "run")
    assert (done.status, done.err) == (0, "")
    chosen = np.array(pq.read_table(tmp_path / "run" / "plan.parquet").column("element_id"))
    compute = 1.1e-6 * (chosen + 1)
    half = 12.7062 * np.sqrt(0.5 * compute.var(ddof=1) / 2)
    figure = json.loads((tmp_path / "run" / "stats.json").read_text())["application.compute"]
    assert figure["value"] == pytest.approx(compute.mean(), rel=1e-9)
    assert figure["ci_high"] == pytest.approx(compute.mean() + half, rel=1e-4)


@pytest.mark.contract
def test_a_rank_that_does_something_else_is_not_stood_for(cli, plugged_in, write_trace):
    program = dict(FOUR) | {3: ["init", "barrier", "finalize"]}
    outcome = cli("run", "--workload", write_trace(program), "--target", "crossbar256", "--sampling", "ranks=first",
                  "-o", "run")  # fmt: skip
    assert outcome.status == 2
    assert "sampling.ranks: rank 0 cannot stand for rank 3, whose phases are not as many" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.contract
def test_dry_run_writes_nothing(cli, tmp_path):
    outcome = cli("run", "nas-is-A-8", "-o", "run", "--dry-run")
    assert outcome.status == 0
    assert "9 work units, 0 of them stored already" in outcome.out
    assert not (tmp_path / "run").exists()


@pytest.mark.contract
def test_interrupted_run_resumes_to_the_same_bytes(cli, tmp_path, interrupt_after, monkeypatch):
    cli("run", "nas-is-A-8", "-o", "whole", "--cache", "one")
    with monkeypatch.context():
        interrupt_after(3)
        outcome = cli("run", "nas-is-A-8", "-o", "cut", "--cache", "two")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert outcome.status == 130
    assert outcome.err.count("\n") == 1
    assert json.loads((tmp_path / "cut" / "manifest.json").read_text())["status"] == "interrupted"
    assert "interrupted; 3 units finished" in cli("status", "cut").out
    assert cli("run", "--resume", "-o", "cut", "--cache", "two").status == 0
    assert units(tmp_path / "cut")["reused"] >= 3  # Ray's workers may have stored more
    assert different_files(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.contract
def test_killed_driver_costs_only_what_was_in_flight(cli, tmp_path):
    program = (
        "import os, sys\n"
        "from contextlib import contextmanager\n"
        "from manyscale.runner.cli import run\n"
        "from manyscale.runner.cli import main\n"
        "@contextmanager\n"
        "def progress():\n"
        "    told = []\n"
        "    def tell(done, total, what):\n"
        "        told.extend([done] if done else [])\n"
        "        if len(told) == 5:\n"
        "            os._exit(9)\n"
        "    yield tell\n"
        "run.progress_bar = progress\n"
        "main(sys.argv[1:])\n"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "run",
        "nas-is-A-8",
        "-o",
        str(tmp_path / "cut"),
        "--cache",
        str(tmp_path / "c"),
    ]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 9
    assert len((tmp_path / "cut" / "units.jsonl").read_text().splitlines()) == 5
    assert cli("run", "--resume", "-o", "cut", "--cache", "c").status == 0
    assert units(tmp_path / "cut") == {"total": 9, "simulated": 4, "reused": 5, "failed": 0}
    cli("run", "nas-is-A-8", "-o", "whole", "--cache", "other")
    assert different_files(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.contract
def test_damaged_results_are_simulated_again(cli, tmp_path):
    cli("run", "nas-is-A-8", "-o", "first", "--no-report", "--cache", "c")
    stored = pq.read_table(tmp_path / "first" / "units.parquet").to_pydict()["result_path"]
    for path in stored:
        Path(path).write_bytes(Path(path).read_bytes()[:100])
    assert cli("run", "nas-is-A-8", "-o", "second", "--no-report", "--cache", "c").status == 0
    first, second = (tmp_path / name / "timeline" / "ranks.parquet" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.contract
def test_api_returns_tables(tmp_path, private_cache):
    result = manyscale.run(shipped.studies()["nas-is-A-8"], tmp_path / "run", executor="local", report=False)
    frame = result.ranks.to_pandas()
    assert list(frame.columns) == ["rank", "start_ps", "end_ps", "state", "operation_id"]
    assert frame["end_ps"].max() / 1e12 == result.makespan_seconds
    assert set(frame["state"]) <= {"compute", "send", "receive", "wait", "collective", "overhead"}
    study = manyscale.load_study(shipped.studies()["nas-is-A-8"])
    assert study.target == "crossbar256"


@pytest.mark.contract
def test_api_returns_a_row_per_point_of_a_sweep(sweep, tmp_path, private_cache):
    table = manyscale.sweep(sweep, tmp_path / "run", executor="local", report=False).sweep_table()
    assert table.equals(pq.read_table(tmp_path / "run" / "sweep.parquet"))
    assert table.num_rows == 4
    with pytest.raises(UserError, match=r"call manyscale\.sweep"):
        manyscale.run(sweep, tmp_path / "other")


@pytest.mark.contract
def test_every_point_of_a_sweep_is_a_run_directory(cli, sweep, tmp_path):
    cli("run", sweep, "-o", "run")
    point = tmp_path / "run" / "points" / "0002"
    resolved = yaml.safe_load((point / "resolved.yaml").read_text())
    assert (resolved["cpu_ratio"], resolved["target"]["network"]["latency"]) == (0.5, "1 us")
    assert cli("run", point / "resolved.yaml", "-o", "again", "--cache", "other").status == 0
    assert different_files(point, tmp_path / "again") == ["report.html"]  # it names the values of the axes


@pytest.mark.contract
@pytest.mark.parametrize("name", list(shipped.studies()))
def test_every_example_loads(name, cli):
    assert cli("run", name, "--dry-run").status == 0
    assert name in cli("examples").out


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_gives_the_same_bytes(cli, tmp_path, workers):
    cli("run", "lulesh-8", "-o", "local", "--executor", "local", "--cache", "one")
    outcome = cli("run", "lulesh-8", "-o", "ray", "--executor", "ray", "--workers", workers, "--cache", "two")
    assert outcome.status == 0, outcome.err
    assert units(tmp_path / "ray")["simulated"] == 9
    assert different_files(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.slow
@pytest.mark.contract
def test_run_interrupted_on_ray_resumes_locally(cli, tmp_path, interrupt_after, monkeypatch):
    with monkeypatch.context():
        interrupt_after(1)
        outcome = cli("run", "lulesh-8", "-o", "cut", "--executor", "ray", "--cache", "two")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert outcome.status == 130
    assert cli("run", "--resume", "-o", "cut", "--executor", "local", "--cache", "two").status == 0
    cli("run", "lulesh-8", "-o", "whole", "--executor", "local", "--cache", "one")
    assert different_files(tmp_path / "whole", tmp_path / "cut") == []


def test_a_sweep_says_its_points_before_anything_is_read(cli, sweep, tmp_path):
    outcome = cli("run", sweep, "-o", "out")
    assert outcome.out.splitlines()[0] == "4 points"
    missing = yaml.safe_load(sweep.read_text()) | {"workload": {"path": "nowhere"}}
    (tmp_path / "missing.yaml").write_text(yaml.safe_dump(missing))
    assert cli("run", "missing.yaml", "-o", "other").out == "4 points\n"


@pytest.mark.parametrize(
    "command", [("run", "-o", "out"), ("run", "--dry-run"), ("plan", "-o", "out"), ("what-if", "-o", "out")]
)
def test_a_sweep_of_very_many_points_is_refused(cli, sweep, refused, tmp_path, command):
    content = yaml.safe_load(sweep.read_text())
    content["sweep"] = {f"target.network.{key}": list(range(1000)) for key in ("latency", "bandwidth", "overhead")}
    (tmp_path / "many.yaml").write_text(yaml.safe_dump(content))
    outcome = cli(*command[:1], "many.yaml", *command[1:])
    if command[0] == "what-if":
        refused(outcome, "is a sweep")
    else:
        refused(outcome, "many.yaml: the sweep has 1,000,000,000 points, over 10,000; say --yes if they are wanted")


def test_more_points_may_be_wanted(cli, sweep, monkeypatch, refused):
    monkeypatch.setattr(importlib.import_module("manyscale.runner.study.content"), "MOST_POINTS", 3)
    refused(cli("run", sweep, "-o", "out"), "the sweep has 4 points, over 3")
    assert cli("run", sweep, "-o", "out", "--yes").status == 0
