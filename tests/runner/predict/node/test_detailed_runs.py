"""Runs whose cores are simulated from a detailed trace of some ranks and iterations."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import manyscale
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.node_source import NodeSource
from manyscale.runner.predict.phase_source import Case, Finished, SweepShared
from manyscale.runner.shipped import folder
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target
from manyscale.runner.study.traces import read_workload

TRACES = {"path": str(folder() / "multizone-8.tar.zst"), "detail": str(folder() / "multizone-8-detail.tar.zst")}


def study(**more):
    base = {
        "workload": TRACES,
        "target": "marenostrum3",
        "model": {"cpu": "interval"},
        "mapping": {"cores_per_rank": 4},
    }
    return {**base, **more}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"ranks": [3]}, "rank 3, iteration 1, is to be simulated, but has no detailed level, which ranks 0, 7"),
        ({"ranks": "full"}, "rank 1, iteration 1, is to be simulated, but has no detailed level"),
        ({"iterations": [0]}, "rank 0, iteration 0, is to be simulated, but has no detailed level"),
        ({"iterations": [7]}, "iteration 7 is not one of the trace's 4"),
        ({"ranks": [8]}, "rank 8 is not one of the trace's 8"),
    ],
)
def test_what_was_not_traced_in_detail_is_refused(sampling, message, tmp_path):
    with pytest.raises(UserError, match=re.escape(message)):
        manyscale.run(study(sampling=sampling), tmp_path / "run", executor="local")
    assert not (tmp_path / "run").exists()


@pytest.mark.contract
def test_a_detailed_trace_of_another_program_is_refused(tmp_path):
    content = study(workload=TRACES | {"path": str(folder() / "jacobi-8.tar.zst")})
    with pytest.raises(UserError, match=re.escape("multizone-8-detail.tar.zst: has no task type of ")):
        manyscale.run(content, tmp_path / "run", executor="local")
    assert not (tmp_path / "run").exists()


@pytest.mark.contract
def test_a_machine_without_cores_is_refused(tmp_path):
    message = "crossbar256: simulated cores need node.main_memory, node.core, node.caches"
    with pytest.raises(UserError, match=re.escape(message)):
        manyscale.run(study(target="crossbar256", mapping={}), tmp_path / "run", executor="local")


@pytest.mark.slow
@pytest.mark.contract
def test_the_interval_model_shows_types_and_cycles(tmp_path):
    found = manyscale.run(study(), tmp_path / "run", executor="local", report=False)
    plan = pq.read_table(tmp_path / "run" / "plan.parquet").to_pydict()
    assert plan["element_id"] == [0, 7]
    assert sum(plan["weight"]) == 8
    makespan = found.statistics["application.makespan"]
    assert makespan.ci_low < makespan.value < makespan.ci_high
    parts = [each.value for name, each in found.statistics.items() if name.startswith("node.cpi.")]
    stacks, instances = found.cpi_stacks, found.task_instances
    cycles = to_numpy(stacks.column("cycles"))[to_numpy(stacks.column("core")) < 0].sum()
    work = to_numpy(instances.column("instructions")).sum()
    assert sum(parts) == pytest.approx(cycles / work, rel=0.01)
    assert sum(parts) == pytest.approx(found.statistics["node.cpi"].value, rel=0.01)
    assert found.statistics["node.ipc"].value * sum(parts) <= 1.01  # a fused compare and branch are one of these
    assert {"misses-not-known", "run-before-guessed"} <= {note.code for note in found.notes}
    assert instances.column("last_cache_misses").null_count == instances.num_rows
    check_cores(found.cores.to_pylist(), instances.to_pylist(), frequency_hz=2.6e9)


def check_cores(cores, instances, frequency_hz):
    """What the interval model predicted is on cores for its cycles, one after the other; all else takes ratios."""
    shown = [row for row in cores if row["model"] == "interval"]
    assert {row["model"] for row in cores} == {"interval", "ratio"}
    duration = {row["instance_id"]: row["end_ps"] - row["start_ps"] for row in shown}
    expected = {row["instance_id"]: row["cycles"] / frequency_hz * 1e12 for row in instances}
    assert duration == pytest.approx(expected, rel=1e-5)
    names = (
        "instance_id",
        "rank",
        "task_instance_id",
        "core",
        "start_ps",
        "end_ps",
        "creator_id",
        "task_type",
        "created_ps",
        "ready_ps",
    )
    assert sorted([row[name] for name in names] for row in shown) == sorted(
        [row[name] for name in names] for row in instances
    )
    assert all(row["created_ps"] <= row["ready_ps"] <= row["start_ps"] for row in shown)
    assert any(row["ready_ps"] < row["start_ps"] for row in shown)
    last = max(row["instance_id"] for row in cores if row["model"] == "ratio")
    assert max(duration) < last  # the detailed trace's instances have the run's numbers, none of their own behind these
    shown.sort(key=lambda row: (row["rank"], row["core"], row["start_ps"]))
    assert {row["core"] for row in shown} == {0, 1, 2, 3}
    for one, other in pairwise(shown):
        assert (one["rank"], one["core"]) != (other["rank"], other["core"]) or one["end_ps"] <= other["start_ps"]


@pytest.mark.slow
@pytest.mark.contract
def test_a_sweep_over_the_network_simulates_cells_once(tmp_path):
    content = study(sweep={"target.network.latency": ["1 us", "2 us"]})
    manyscale.sweep(content, tmp_path / "sweep", executor="local", report=False, cache=tmp_path / "cache")
    units = pq.read_table(tmp_path / "sweep" / "units.parquet").to_pydict()["kind"]
    assert {kind: units.count(kind) for kind in set(units)} == {
        "node-profile": 2, "node-costs": 2, "node-cell": 2, "node-schedule": 8, "interval": 8, "replay": 2,
    }  # fmt: skip


@pytest.mark.contract
def test_a_sweep_over_cores_reads_the_profiles_of_each_number():
    """Static loops have a chunk per core, so instances are others."""
    workload, shared = read_workload(parse_study(study(), "study").workload), SweepShared()
    for cores in (4, 8):
        point = parse_study(study(mapping={"cores_per_rank": cores}), "study")
        source = NodeSource(Case(workload, point, *resolve_target(point), shared))
        (profiling,) = source.stages({})
        profiles = [{"cores": np.array([cores])} for _ in profiling.units]
        (cells,) = source.stages({profiling.name: Finished(profiling.units, profiles)})
        assert len(cells.units) == len(profiles) == 2
        for cell, profile in zip(cells.units, profiles, strict=True):
            assert cells.inputs[cell.inputs["profile"]] is profile


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("sampling", [{}, {"tasks": "lazy"}])
def test_detailed_cells_have_the_same_bytes_on_ray(sampling, tmp_path):
    content = study(model={"cpu": "detailed"}, sampling=sampling)
    manyscale.run(content, tmp_path / "a", executor="local", cache=tmp_path / "one")
    manyscale.run(content, tmp_path / "b", executor="ray", workers=2, cache=tmp_path / "two")
    names = ["stats.json", *(f"timeline/{name}.parquet" for name in ("cores", "task_instances", "cpi_stacks", "ranks"))]
    for name in (*names, "report.html", "trace.prv", "trace.json.gz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.theory
def test_detailed_takes_less_than_one_core_and_more_than_its_share(tmp_path):
    """From one core to eight: at least an eighth, and the critical path, of the cells' time."""
    times = {}
    for cores in (1, 8):
        content = study(model={"cpu": "detailed"}, mapping={"cores_per_rank": cores})
        directory = tmp_path / str(cores)
        manyscale.run(content, directory, executor="local", report=False)
        times[cores] = json.loads((directory / "stats.json").read_text())["node.cells_time"]["value"]
    assert times[1] / 8 <= times[8] < times[1] / 3


@pytest.mark.slow
@pytest.mark.property
@pytest.mark.parametrize("cpu", ["detailed", "interval"])
def test_no_core_issues_more_than_its_width(tmp_path, cpu):
    """And the CPI stack sums to all cycles, over the instructions of the trace, fused or not."""
    targets = ["musa-high-performance", "musa-high-performance-tasksim", "marenostrum3"]
    sweep = {"target": targets, "target.node.core.width": [1, 4]}
    content = study(model={"cpu": cpu}, mapping={"ranks_per_node": 1}, sweep=sweep)
    rows = manyscale.sweep(content, tmp_path / cpu, executor="local", report=False).sweep_table().to_pylist()
    for row in rows:
        assert row["node.ipc"] <= row["target.node.core.width"] + 1e-9
        parts = [value for name, value in row.items() if name.startswith("node.cpi.") and value is not None]
        assert sum(parts) == pytest.approx(row["node.cpi"], rel=0.01)
        # compares and branches are one in seven of the trace's instructions: fused, nearly so many fewer are issued
        fuses = "tasksim" not in row["target"]
        assert row["node.ipc"] * row["node.cpi"] == pytest.approx(1 if not fuses else 13 / 14, abs=0.02)


@pytest.mark.slow
@pytest.mark.contract
def test_the_three_processors_differ_at_every_width(tmp_path):
    """What the shipped design-space study is for. With TaskSim's free instructions all three took equally long at
    width 1, since the width alone limited them."""
    content = yaml.safe_load((folder() / "multizone-8-design.yaml").read_text())
    content["workload"] |= TRACES
    content["sweep"]["mapping.cores_per_rank"] = [1]
    rows = manyscale.sweep(content, tmp_path / "out", executor="local", report=False).sweep_table().to_pylist()
    names = content["sweep"]["target"]
    assert len(names) == 3
    time = {(row["target"], row["target.node.core.width"]): row["application.makespan"] for row in rows}
    for width in (1, 2, 4):
        times = sorted(time[name, width] for name in names)
        assert min(later / earlier for earlier, later in pairwise(times)) > 1.05
    for name in names:
        assert time[name, 1] > 1.05 * time[name, 2] > 1.05 * time[name, 4]
        # from 2 to 4, under a third of what the width promises: chains of dependent operations are in the way
        assert time[name, 2] / time[name, 4] < 1.1
    assert all(row["node.ipc"] <= row["target.node.core.width"] for row in rows)
    assert all(row["node.cpi.dependency"] > row["node.cpi"] / 2 for row in rows)


def test_the_example_of_a_design_space_is_a_sweep_of_thirty_six(cli):
    outcome = cli("run", "multizone-8-design", "--dry-run")
    assert outcome.status == 0
    assert "36 points" in outcome.out


@pytest.mark.contract
def test_plans_name_what_is_simulated(cli, tmp_path: Path):
    assert cli("plan", "multizone-8-design", "-o", "plan").status == 0


def test_notes_of_a_detailed_trace_of_its_own_reach_the_result(tmp_path):
    detail = read_workload(parse_study({"workload": {"path": TRACES["detail"]}, "target": "laptop"}, "s").workload)
    result = manyscale.run(
        study(runtime={"policy": "data-reuse"}), tmp_path / "run", executor="local", cache=tmp_path / "cache",
        report=False,
    )  # fmt: skip
    assert detail.notes
    assert set(detail.notes) <= set(result.notes)
    # of iterations that are not simulated
    assert "data-of-tasks-not-known" in {note.code for note in result.notes}
