"""Scaling, comparisons and efficiencies from Python. Times are worked out by hand: one unit of ``compute`` is 1 ns, and
without messages a run takes as long as its slowest rank computes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import manyscale as ms


@pytest.fixture
def computing(write_trace, private_cache, tmp_path, monkeypatch) -> Callable[..., Path]:
    """``computing(100, 50)``: a trace whose ranks compute so many microseconds."""
    monkeypatch.chdir(tmp_path)

    def write(*microseconds: int) -> Path:
        ranks = {rank: ["init", f"compute {1000 * time}", "finalize"] for rank, time in enumerate(microseconds)}
        return write_trace(ranks, f"trace-{'-'.join(map(str, microseconds))}")

    return write


@pytest.mark.theory
def test_speed_up_and_efficiency_of_several_rank_counts(computing) -> None:
    traces = [computing(25, 25, 25, 50), computing(100), computing(50, 50)]
    found = ms.scaling(traces, target="crossbar256").frame()
    assert found["num_ranks"].tolist() == [1, 2, 4]
    assert found["num_cores"].tolist() == [1, 2, 4]
    assert found["makespan_s"].tolist() == pytest.approx([100e-6, 50e-6, 50e-6])
    assert found["speed_up"].tolist() == pytest.approx([1, 2, 2])
    assert found["efficiency"].tolist() == pytest.approx([1, 1, 0.5])
    assert found["load_balance"].tolist() == pytest.approx([1, 1, 31.25 / 50])
    assert found["communication_efficiency"].tolist() == pytest.approx([1, 1, 1])
    assert found["parallel_efficiency"].tolist() == pytest.approx([1, 1, 31.25 / 50])
    assert found["computation_scaling"].tolist() == pytest.approx([1, 1, 100 / 125])


@pytest.mark.theory
def test_weak_scaling_counts_the_work_done(computing) -> None:
    """Two ranks do twice the work in 1.25 times the time."""
    found = ms.scaling([computing(100), computing(125, 125)], target="crossbar256", weak=True).frame()
    assert found["speed_up"].tolist() == pytest.approx([1, 1.6])
    assert found["efficiency"].tolist() == pytest.approx([1, 0.8])


@pytest.mark.theory
def test_an_axis_other_than_cores_has_efficiencies_against_the_first_value(computing) -> None:
    found = ms.scaling(computing(100), axis=("cpu_ratio", [1.0, 0.5]), target="crossbar256")
    frame = found.frame()
    assert frame["label"].tolist() == ["cpu_ratio=1.0", "cpu_ratio=0.5"]
    assert frame["speed_up"].tolist() == pytest.approx([1, 2])
    assert frame["efficiency"].tolist() == pytest.approx([1, 2])  # as many cores


@pytest.mark.contract
def test_cores_are_those_of_all_ranks_and_the_times_those_of_the_sweep(private_cache) -> None:
    """A trace with tasks: the points are the runs that a sweep of the same key predicts."""
    found = ms.scaling("cholesky-8", cores=[4, 1], target="marenostrum3").frame()
    swept = ms.sweep("cholesky-8", axes={"mapping.cores_per_rank": [1, 4]}, target="marenostrum3").frame()
    assert found["num_cores"].tolist() == [8, 32]
    assert found["makespan_s"].tolist() == pytest.approx(swept["application.makespan"].tolist(), rel=1e-12)
    assert found["load_balance"].tolist() == pytest.approx(swept["application.load_balance"].tolist(), rel=1e-12)
    speed_up = found["makespan_s"][0] / found["makespan_s"][1]
    assert found["speed_up"].tolist() == pytest.approx([1, speed_up])
    assert found["efficiency"].tolist() == pytest.approx([1, speed_up / 4])


@pytest.mark.contract
def test_the_command_writes_what_the_function_returns(computing, cli, tmp_path) -> None:
    one, two = computing(100), computing(60, 50)
    outcome = cli("scaling", one, two, "--target", "crossbar256", "-o", "out", "--json", "table.json")
    assert outcome.status == 0, outcome.err
    found = ms.scaling([one, two], target="crossbar256")
    assert pq.read_table(tmp_path / "out" / "scaling.parquet").equals(found.table())
    told = json.loads((tmp_path / "table.json").read_text())["figures"]
    speed_ups = [each["value"] for each in told if each["name"] == "speed_up"]
    assert speed_ups == pytest.approx([1, 100 / 60], rel=1e-12)
    assert (tmp_path / "out" / "report.html").is_file()
    lines = [line.split() for line in outcome.out.splitlines()]
    assert lines[2][:6] == ["trace-60-50", "2", "2", "60.00", "us", "1.667"]
    again = cli("scaling", one, "--target", "crossbar256", "--axis", "cpu_ratio=1,2", "--no-report")
    assert again.status == 0, again.err
    assert (tmp_path / "runs" / "trace-100-scaling-001" / "scaling.parquet").is_file()
    assert not (tmp_path / "runs" / "trace-100-scaling-001" / "report.html").exists()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (("lulesh-8",), "one study alone does not scale"),
        (("lulesh-8", "--cores", "2"), "needs at least two values"),
        (("lulesh-8", "--cores", "1,2", "--axis", "cpu_ratio=1,2"), "give one of the two"),
        (("lulesh-8", "lulesh-64", "--cores", "1,2"), "is varied of one study, 2 are named"),
        (("lulesh-8", "--cores", "2,2"), "needs at least two values"),
        (
            ("cholesky-8", "--target", "marenostrum3", "--cores", "8,16,32,64"),
            "cores 32, 64: a node of marenostrum3 has 16 cores; leave them out, or name another target",
        ),
        (("cholesky-8", "--cores", "1,2"), "cores 2: a node of crossbar256 has 1 core; leave them out"),
        (("lulesh-8", "--target", "marenostrum3", "--cores", "1,2"), "has no task level"),
        (("lulesh-8", "lulesh-64-sweep"), "is a sweep"),
        (("lulesh-64-sweep", "--cores", "1,2"), "is a sweep already"),
        (("lulesh-8", "--cores", "1,zwei"), "--cores 1,zwei: is no list of numbers"),
        (("lulesh-8", "--axis", "cpu_ratio"), "--axis 'cpu_ratio': write KEY=V1,V2"),
        (("lulesh-8", "nowhere"), "unknown study 'nowhere'"),
    ],
)
def test_what_does_not_scale_is_refused(cli, refused, tmp_path, words, needle) -> None:
    refused(cli("scaling", *words, "-o", "out"), needle)
    assert not (tmp_path / "out").exists()


@pytest.mark.theory
def test_pop_and_compare_take_results(computing) -> None:
    """Rank 1 computes half of what rank 0 does: load balance 75 %, and 50 us less in the mean."""
    equal, unequal = (ms.run(trace, target="crossbar256") for trace in (computing(100, 100), computing(100, 50)))
    found = ms.pop([equal, unequal]).frame()
    assert found["load_balance"].tolist() == pytest.approx([1, 0.75])
    assert found["computation_scaling"].tolist() == pytest.approx([1, 200 / 150])
    differences = ms.compare(equal, unequal).frame().set_index(["group", "item"])
    assert differences.loc[("state", "compute"), "difference"] == pytest.approx(-25e-6)
    assert differences.loc[("figure", "makespan"), "difference"] == 0
    with pytest.raises(ms.UserError, match="name at least one"):
        ms.pop([])
    with pytest.raises(ms.UserError, match="has no files"):
        ms.compare(equal, ms.examples())


@pytest.mark.theory
def test_factors_of_efficiency_multiply_and_explain_the_speed_up(private_cache, tmp_path) -> None:
    """On the same ranks parallel efficiency falls as the speed-up's does: burst mode leaves the work as it is."""
    found = ms.scaling("cholesky-8", tmp_path / "out", cores=[4, 1], target="marenostrum3")
    rows = found.table().to_pylist()
    for row in rows:
        of_processes = row["load_balance"] * row["serialisation_efficiency"] * row["transfer_efficiency"]
        of_threads = row["serial_efficiency"] * row["thread_load_balance"] * row["scheduling_efficiency"]
        assert of_processes == pytest.approx(row["process_efficiency"], rel=1e-9)
        assert of_threads == pytest.approx(row["thread_efficiency"], rel=1e-9)
        assert of_processes * of_threads == pytest.approx(row["parallel_efficiency"], rel=1e-9)
        assert row["computation_scaling"] == pytest.approx(1, rel=1e-9)
        assert row["efficiency"] == pytest.approx(row["parallel_efficiency"] / rows[0]["parallel_efficiency"], rel=1e-9)
    assert rows[0]["thread_efficiency"] == 1
    with (tmp_path / "out" / "scaling.csv").open() as file:
        told = list(csv.DictReader(file))
    assert [float(row["thread_efficiency"]) for row in told] == [row["thread_efficiency"] for row in rows]
    assert " x threads " in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
