"""Kernel launches in ``manyscale plan --method`` and ``evaluate``: counters of a profiler, and a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyscale.models.gpu.occupancy import resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.readers import accelsim
from manyscale.runner.run.evaluation import tasks
from manyscale.runner.run.plans.launches import DEFAULT_METHODS
from manyscale.runner.shipped import folder
from manyscale.runner.study.targets import target_named

HEAD = "Name,inst_executed,thread_inst_executed,gld_transactions,elapsed_cycles_sm\n"
ROWS = [("a", 1000, 2000)] * 6 + [("a", 3000, 12000)] * 4 + [("b", 500, 500)] * 2  # kernel, instructions, cycles
BFS = folder() / "bfs-16"


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    """Clusters of 6,000, 12,000 and 1,000 instructions with CPI 2, 4 and 1."""
    path = tmp_path / "prog.csv"
    path.write_text(HEAD + "".join(f"{name},{count},{32 * count},{count // 10},{time}\n" for name, count, time in ROWS))
    return path


def test_a_plan_by_hand(cli, counters, tmp_path):
    done = cli("plan", "--method", "tbpoint", counters, "-o", tmp_path / "out")
    assert done.status == 0, done.err
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pydict()
    assert plan["element_kind"] == ["launch"] * 3
    assert plan["model"] == ["tbpoint"] * 3
    assert dict(zip(plan["stratum"], plan["weight"], strict=True)) == pytest.approx({0: 6 / 19, 1: 12 / 19, 2: 1 / 19})
    assert "3 of 12 launches, 23.68% of the instructions, would be simulated; cycles by these +0.00% off" in done.out
    assert (tmp_path / "out" / "prog.labels").read_text().split() == ["0"] * 6 + ["1"] * 4 + ["2"] * 2
    rows = (tmp_path / "out" / "prog.clusters.csv").read_text().splitlines()
    assert rows[0] == "cluster,kernel,launches,chosen,instruction_share,cpi,deviation"
    assert rows[2] == '1,"a",4,1,0.631579,4,0'


def test_several_of_each_cluster_say_how_sure_they_are(cli, counters, tmp_path):
    for name, given in (("one", ["tbpoint:2"]), ("two", ["tbpoint", "--set", "representatives=2"])):
        done = cli("plan", "--method", *given, counters, "--seed", "4", "-o", tmp_path / f"{name}.parquet")
        assert done.status == 0, done.err
        assert "6 of 12 launches" in done.out
        assert "expected within 0.00%" in done.out  # launches of a cluster are alike
    plans = [pq.read_table(tmp_path / f"{name}.parquet").to_pydict() for name in ("one", "two")]
    assert plans[0]["element_id"] == plans[1]["element_id"]


@pytest.mark.contract
@pytest.mark.parametrize("method", [*DEFAULT_METHODS, "tbpoint:3", "full"])
def test_weights_of_every_method_sum_to_one(cli, counters, tmp_path, method):
    for name in ("one", "two"):
        done = cli("plan", "--method", method, counters, "--seed", "3", "-o", tmp_path / f"{name}.parquet")
        assert done.status == 0, done.err
    weight = np.array(pq.read_table(tmp_path / "one.parquet").column("weight"))
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(weight > 0)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_regions_of_a_trace_on_a_gpu(cli, tmp_path):
    """An epoch is as many blocks as the GPU holds; regions are whole epochs, but at the launch's end."""
    done = cli("plan", "--method", "tbpoint", BFS, "--target", "rtx3070", "-o", tmp_path / "out")
    assert done.status == 0, done.err
    table = [line.split(",") for line in (tmp_path / "out" / "bfs-16.regions.csv").read_text().splitlines()[1:]]
    assert table
    gpu = target_named("rtx3070")[0].node.gpu
    assert isinstance(gpu, Gpu)
    streams = accelsim.read(BFS).gpu
    assert streams is not None
    for launch, region, first, last, executed, epoch in ([int(each) for each in row] for row in table):
        trace = streams.trace(launch)
        threads = int(np.prod(trace.block))
        assert epoch == gpu.sms * resident_blocks(gpu, threads, trace.registers, trace.shared_bytes)
        begins = trace.warp_instructions[trace.block_warps]
        assert executed == begins[last + 1] - begins[first]
        assert region >= 0
        assert first % epoch == 0


@pytest.mark.contract
def test_a_study_chooses_the_same_launches(cli, tmp_path):
    """``run --sampling launches=tbpoint`` simulates what the plan names; its weights count launches."""
    given = ("--workload", BFS, "--target", "rtx3070", "--sampling", "launches=tbpoint")
    assert cli("plan", *given, "-o", tmp_path / "study").status == 0
    assert cli("plan", "--method", "tbpoint", BFS, "-o", tmp_path / "method").status == 0
    study, method = (pq.read_table(tmp_path / name / "plan.parquet").to_pandas() for name in ("study", "method"))
    study = study[study.element_kind == "launch"]
    assert study.element_id.tolist() == method.element_id.tolist()
    assert study.stratum.tolist() == method.stratum.tolist()


def test_cycles_of_a_table(cli, counters, tmp_path):
    """Of a trace: those that a run, or anybody, gives; here as many as instructions."""
    launches = accelsim.read(BFS).tables["launches"]
    pq.write_table(
        pa.table({"launch_id": launches.column("launch_id"), "cycles": launches.column("warp_instructions")}),
        tmp_path / "cycles.parquet",
    )
    done = cli("evaluate", BFS, "--cycles", tmp_path / "cycles.parquet", "--draws", "2", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    table = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas()
    error = table.set_index("method").error.abs()
    for method in ("tbpoint", "random", "systematic"):
        assert error[method].max() == pytest.approx(0, abs=1e-12)  # one CPI


def test_errors_against_known_cycles(cli, counters, tmp_path):
    done = cli("evaluate", counters, "--draws", "3", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    table = pq.read_table(tmp_path / "e" / "evaluation.parquet").to_pandas().set_index("method")
    assert list(dict.fromkeys(table.index)) == list(DEFAULT_METHODS)
    assert table.error["tbpoint"].abs().max() < 1e-12
    assert set(table.elements["random"]) == {3}
    assert table.holds["tbpoint"].isna().all()
    assert table.holds["tbpoint:auto"].tolist() == [1, 1, 1]
    truth = (6 * 2000 + 4 * 12000 + 2 * 500) / 19000
    page = (tmp_path / "e" / "report.html").read_text()
    assert "prog: tbpoint" in page
    assert "prog: random" not in page
    assert table.error["second"].abs().max() <= abs(1 / truth - 1)


@pytest.mark.contract
def test_columns_that_mean_the_same_are_the_same(cli, counters, tmp_path):
    """Of launches, intervals and task instances."""
    done = cli("evaluate", counters, "--draws", "1", "-o", tmp_path / "e")
    assert done.status == 0, done.err
    ours = pq.read_schema(tmp_path / "e" / "evaluation.parquet")
    row = dict.fromkeys(("time", "error", "half_width", "detailed_share", "cpu_seconds", "speedup"), 1.0)
    theirs = tasks.table([{"workload": "t", "method": "lazy", "cores": 4, "holds": None, **row}]).schema
    shared = set(ours.names) & set(theirs.names)
    assert shared == {"workload", "method", "error", "half_width", "holds", "detailed_share"}
    assert all(ours.field(name).type == theirs.field(name).type for name in shared)


@pytest.mark.parametrize(("arguments", "needles"), [
    (["plan", "--method", "tbpoint:some"], ["--method 'tbpoint:some'", "tbpoint:auto"]),
    (["plan", "--method", "simpoint"], ["--method 'simpoint'", "is none of kernel launches; did you mean 'tbpoint'"]),
    (["plan", "--method", "tbpoint", "--set", "treshold=1"], ["--set: treshold: unknown key"]),
    (["plan", "--method", "tbpoint", "--export", "gem5"], ["--export: ", "tbpoint chooses kernel launches here"]),
    (["plan", "--method", "taskpoint", "--cycles", "few.csv"], ["--cycles: is of kernel launches"]),
    (["plan", "--method", "tbpoint", "--set", "bbv_scale=1"], ["prog.csv: has counters alone", "need a trace"]),
    (["plan", "--method", "tbpoint", "--target", "rtx3070"], ["prog.csv: has counters alone", "leave --target out"]),
    (["plan", "--method", "tbpoint", "--target", "laptop"], ["--target laptop: has no GPU"]),
    (["plan", "--method", "tbpoint", "--cycles", "none.csv"], ["none.csv: is no table of cycles"]),
    (["plan", "--method", "tbpoint", "--cycles", "odd.csv"], ["odd.csv: needs the columns launch_id and cycles"]),
    (["plan", "--method", "tbpoint", "--cycles", "few.csv"], ["few.csv: has no cycles of launch 2"]),
    (["evaluate", "--method", "lazy"], ["--method 'lazy'", "is none of kernel launches; known are"]),
    (["evaluate", "--on", "other"], ["prog.csv --on other: has kernel launches"]),
])  # fmt: skip
def test_what_is_refused(cli, refused, counters, tmp_path, monkeypatch, arguments, needles):
    monkeypatch.chdir(tmp_path)
    Path("odd.csv").write_text("launch,time\n1,2\n")
    Path("few.csv").write_text("launch_id,cycles\n1,2\n")
    refused(cli(arguments[0], counters, *arguments[1:], "-o", "out"), *needles)
    assert not (tmp_path / "out").exists()


def test_what_has_no_launches(cli, refused, tmp_path, write_trace):
    trace = write_trace({0: ["init", "compute 1000", "finalize"]})
    refused(cli("plan", "--method", "tbpoint", trace, "-o", tmp_path / "out"), "has no kernel launches")


def test_kinds_are_not_mixed(cli, refused, counters, tmp_path, write_trace):
    trace = write_trace({0: ["init", "compute 1000", "finalize"]})
    refused(cli("evaluate", trace, counters, "-o", tmp_path / "out"), "prog.csv: is a profile", "one by one")
