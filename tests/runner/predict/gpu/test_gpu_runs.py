"""Runs of kernel launches: their times, tables, statistics, plan and sampling, and as phases of an MPI run.

Expected: the model that the fixtures choose takes 10 cycles per warp instruction, over the SMs (46 of rtx3070), 100
more for a launch that nothing ran before; the target adds 5,000 cycles of launch latency at 1.132 GHz.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gpu_launches import Launch, gpu_workload
from rank_events import Recorder

import manyscale as ms
from manyscale.models.workload.gpu_tables import COPIES_SCHEMA
from manyscale.runner.api import studies
from manyscale.runner.errors import UserError
from manyscale.runner.study.traces import read_workload

CYCLES = [460 * 10 // 46 + 100, 46 * 10 // 46, 920 * 10 // 46, 460 * 10 // 46]  # without latency
PS = 1e12 / 1132e6


def column(result, name):
    return result.launches.column(name).to_pylist()


def test_launches_run_one_after_the_other(run_launches, two_kernels):
    result = run_launches(two_kernels)
    cycles = [each + 5000 for each in CYCLES]
    assert column(result, "launch_id") == [1, 2, 3, 4]
    assert column(result, "kernel_name") == ["a", "b", "a", "a"]
    assert column(result, "cycles") == cycles
    assert column(result, "launch_latency_cycles") == [5000] * 4
    ends = np.cumsum([round(each * PS) for each in cycles]).tolist()
    assert column(result, "end_ps") == ends
    assert column(result, "start_ps") == [0, *ends[:-1]]
    assert result.makespan_seconds == pytest.approx(sum(cycles) / 1132e6, rel=1e-9)
    assert column(result, "representative_id") == [1, 2, 3, 4]
    assert column(result, "l1_miss_ratio") == [0.25] * 4
    assert column(result, "ci_low_cycles") == [None] * 4


def test_statistics(run_launches, two_kernels, tmp_path):
    run_launches(two_kernels)
    figures = json.loads((tmp_path / "out" / "stats.json").read_text())
    work, inside = 460 + 46 + 920 + 460, sum(CYCLES)
    expected = {
        "launches": 4, "simulated_launches": 4, "simulated_share": 1.0, "cycles": inside + 20000,
        "launch_latency": 20000, "warp_instructions": work, "thread_instructions": 32 * work, "ipc": work / inside,
        "l2_miss_ratio": 0.5, "occupancy": 0.5, "cpi.issue": 0.75 * inside / work, "cpi.dram": 0.25 * inside / work,
        "time": (inside + 20000) / 1132e6,
    }  # fmt: skip
    assert {name: figures[f"gpu.{name}"]["value"] for name in expected} == pytest.approx(expected)
    assert all(entry["unit"] and entry["description"] for entry in figures.values())
    assert figures["gpu.cycles"]["ci_low"] is None


def test_tables_of_blocks_ipc_and_causes(run_launches, two_kernels, tmp_path):
    run_launches(two_kernels)
    read = {path.stem: pq.read_table(path) for path in (tmp_path / "out" / "timeline").glob("*.parquet")}
    blocks = read["blocks"].to_pylist()
    assert [(row["launch_id"], row["block"], row["sm"]) for row in blocks[:5]] == [
        (1, 0, 0), (1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 0, 0),
    ]  # fmt: skip
    assert (blocks[1]["start_cycle"], blocks[1]["end_cycle"]) == (10, 25)
    assert {row["warp_instructions"] for row in blocks if row["launch_id"] == 3} == {230}
    assert {row["thread_instructions"] for row in blocks if row["launch_id"] == 3} == {230 * 32}
    stacks = read["gpu_cpi_stacks"].to_pylist()
    of_third = {row["part"]: row["cycles"] for row in stacks if row["launch_id"] == 3}
    assert of_third == {"issue": 0.75 * CYCLES[2], "dram": 0.25 * CYCLES[2]}
    ipc = read["gpu_ipc"].to_pylist()
    assert [row["warp_instructions"] for row in ipc] == [460, 46, 920, 460]
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pylist()
    assert [(row["element_kind"], row["element_id"], row["weight"], row["model"]) for row in plan] == [
        ("launch", row, 1.0, "detailed") for row in range(4)
    ]


def test_launches_that_share_caches_are_one_unit_and_others_are_not(run_launches, two_kernels, tmp_path):
    run_launches(two_kernels)
    plan = pq.read_table(tmp_path / "out" / "plan.parquet")
    assert len(set(plan.column("unit_key").to_pylist())) == 1


@pytest.mark.parametrize(("caches", "first", "others"), [("warm", 100, 0), ("cold", 100, 100)])
def test_caches_between_launches(run_launches, two_kernels, tmp_path, caches, first, others):
    result = run_launches(two_kernels, gpu={"caches": caches})
    more = [each - 5000 - bare for each, bare in zip(column(result, "cycles"), [100, 10, 200, 100], strict=True)]
    assert more == [first, others, others, others]
    plan = pq.read_table(tmp_path / "out" / "plan.parquet")
    assert len(set(plan.column("unit_key").to_pylist())) == 4


def test_a_target_that_forgets_its_caches_needs_no_launch_before(run_launches, two_kernels):
    target = {"name": "rtx3070", "node": {"gpu": {"l2": {"kept_between_launches": False}}}}
    result = run_launches(two_kernels, target=target)
    assert [each - 5000 for each in column(result, "cycles")] == [200, 110, 300, 200]


def test_another_launch_latency_simulates_nothing_again(run_launches, two_kernels, tmp_path):
    run_launches(two_kernels)
    (tmp_path / "out").rename(tmp_path / "first")
    target = {"name": "rtx3070", "node": {"gpu": {"launch_latency": "0 cycles"}}}
    result = run_launches(two_kernels, target=target)
    assert column(result, "cycles") == CYCLES
    assert result.makespan_seconds == pytest.approx(sum(CYCLES) / 1132e6, rel=1e-5)  # whole ps
    kinds = [json.loads(line) for line in (tmp_path / "out" / "units.jsonl").read_text().splitlines()]
    assert [line["status"] for line in kinds if line["kind"] == "gpu-launches"] == ["reused"]


def test_named_launches_stand_for_those_of_their_kernel(run_launches, two_kernels):
    result = run_launches(two_kernels, sampling={"launches": [1, 2]})
    assert column(result, "representative_id") == [1, 2, 1, 1]
    # launch 1 is cold here and takes 200 cycles for 460 instructions
    assert [each - 5000 for each in column(result, "cycles")] == [200, 10, 400, 200]
    assert column(result, "simulated_instructions") == [460, 46, 0, 0]
    assert result.statistics["gpu.simulated_share"].value == pytest.approx(506 / 1886)
    assert result.statistics["gpu.cycles"].ci_low is None  # nothing tells how far they are off


def test_a_kernel_that_nothing_stands_for_is_refused(run_launches, two_kernels):
    with pytest.raises(UserError, match=r"none is a launch of kernel b; name one, such as 2"):
        run_launches(two_kernels, sampling={"launches": [1, 3]})
    with pytest.raises(UserError, match="has no launch 9 that is predicted"):
        run_launches(two_kernels, sampling={"launches": [1, 2, 9]})


def test_tbpoint_simulates_one_of_launches_that_are_alike(run_launches, two_kernels, tmp_path):
    result = run_launches(two_kernels, sampling={"launches": "tbpoint"})
    # 1 and 4 are alike (460 of 613 in the mean), 3 is 0.75 away
    representative = column(result, "representative_id")
    assert representative[0] == representative[3] != representative[2]
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pylist()
    assert sorted(row["weight"] for row in plan) == [1.0, 1.0, 2.0]


def test_drawn_launches_give_an_interval(run_launches):
    alike = gpu_workload(*(Launch("a", (100 + size,) * 4) for size in range(20)))
    rules = {"launches": {"representatives": 4, "threshold": 1.0}}
    result = run_launches(alike, sampling={"launches": "tbpoint"}, tbpoint=rules)
    cycles = result.statistics["gpu.cycles"]
    truth = sum(5000 + 10 * 4 * (100 + size) // 46 for size in range(20)) + 100
    assert result.statistics["gpu.simulated_launches"].value == 4
    assert cycles.ci_low < truth < cycles.ci_high
    makespan = result.statistics["application.makespan"]
    assert makespan.ci_low == pytest.approx(cycles.ci_low / 1132e6, rel=1e-4)


def test_phases_of_an_mpi_run_take_the_times_of_launches(run_launches, two_kernels, write_trace, tmp_path, monkeypatch):
    compute = {0: ["init", "compute 1000", "send 1 0 8 6", "compute 3000", "finalize"],
               1: ["init", "compute 500", "recv 0 0 8 6", "finalize"]}  # fmt: skip
    from manyscale.runner.study import WorkloadChoice

    mpi = read_workload(WorkloadChoice(path=str(write_trace(compute)), flop_rate="1 Gflop/s"))
    monkeypatch.setattr("manyscale.runner.predict.gpu.mapping.read_workload", lambda choice: two_kernels)
    mapping = tmp_path / "map.csv"
    mapping.write_text("phase,rank,launch\n0,0,3\n0,0,2\n\n")
    keys = {"workload": {"path": "x", "gpu_trace": "launches"}, "mapping": {"launches": str(mapping)}, "cpu_ratio": 2.0}
    result = run_launches(mpi, **keys)
    # only 2 and 3 are executed, so they are simulated as they follow each other, 1 warms the caches
    assert column(result, "launch_id") == [3, 2]
    assert column(result, "rank") == [0, 0]
    first, second = round((200 + 5000) * PS), round((10 + 5000) * PS)
    assert list(zip(column(result, "start_ps"), column(result, "end_ps"), strict=True)) == [
        (0, first), (first, first + second),
    ]  # fmt: skip
    spent = dict.fromkeys((0, 1), 0)
    for row in result.ranks.to_pylist():
        if row["state"] == "compute":
            spent[row["rank"]] += row["end_ps"] - row["start_ps"]
    # other phases are twice as long as traced (1 flop takes 1 ns), launches are not
    assert spent == {0: first + second + 2 * 3_000_000, 1: 2 * 500_000}
    plan = pq.read_table(tmp_path / "out" / "plan.parquet").to_pylist()
    assert [(row["element_kind"], row["element_id"]) for row in plan] == [
        ("rank", 0), ("rank", 1), ("launch", 1), ("launch", 2),
    ]  # fmt: skip


def test_points_of_a_sweep_have_the_launches_of_their_mapping(
    two_kernels, write_trace, tmp_path, monkeypatch, foreseen
):
    """A launch of 46 and one of 920 warp instructions, by the model that is easy to foresee: of the phase that is one
    or the other."""
    from manyscale.runner.study import WorkloadChoice

    mpi = read_workload(WorkloadChoice(path=str(write_trace({0: ["init", "compute 1000", "finalize"]}))))
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: mpi)
    monkeypatch.setattr("manyscale.runner.predict.gpu.mapping.read_workload", lambda choice: two_kernels)
    files = [tmp_path / f"{launch}.csv" for launch in (2, 3)]
    for file in files:
        file.write_text(f"rank,phase,launch\n0,0,{file.stem}\n")
    study = {
        "schema": 1, "workload": {"path": "x", "gpu_trace": "launches"}, "target": "rtx3070",
        "mapping": {"launches": str(files[0])}, "sweep": {"mapping.launches": [str(file) for file in files]},
    }  # fmt: skip
    found = studies.sweep(study, tmp_path / "out", executor="local", cache=tmp_path / "cache", report=False)
    makespan = found.sweep_table().column("application.makespan").to_pylist()
    assert [round(each * 1e12) for each in makespan] == [round((cycles + 5000) * PS) for cycles in (10, 200)]


@pytest.mark.theory
def test_phases_take_the_times_of_copies_before_their_launches_too(
    run_launches, two_kernels, write_trace, tmp_path, monkeypatch
):
    """Each takes 8 us and its bytes at 12 GB/s; launch 1, and what is copied for it, is not mapped."""
    from manyscale.runner.study import WorkloadChoice

    mpi = read_workload(WorkloadChoice(path=str(write_trace({0: ["init", "compute 1000", "finalize"]}))))
    rows = [
        {"before_launch_id": launch, "address": -1, "bytes": size} for launch, size in ((1, 99), (2, 0), (3, 36_000))
    ]
    copied = replace(
        two_kernels, tables={**two_kernels.tables, "copies": pa.Table.from_pylist(rows, COPIES_SCHEMA)}, is_checked=True
    )
    monkeypatch.setattr("manyscale.runner.predict.gpu.mapping.read_workload", lambda choice: copied)
    mapping = tmp_path / "map.csv"
    mapping.write_text("phase,rank,launch\n0,0,3\n0,0,2\n")
    result = run_launches(mpi, workload={"path": "x", "gpu_trace": "launches"}, mapping={"launches": str(mapping)})
    first, second = round((200 + 5000) * PS), round((10 + 5000) * PS)
    begin = 11_000_000
    again = begin + first + 8_000_000
    assert list(zip(column(result, "start_ps"), column(result, "end_ps"), strict=True)) == [
        (begin, begin + first), (again, again + second),
    ]  # fmt: skip
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(again + second, abs=3)
    assert result.statistics["gpu.copies"].value == 2
    codes = {note.code for note in result.notes}
    assert "copies-in-turn" in codes
    assert "copies" not in codes


def test_ranks_that_share_a_core_do_not_slow_launches_down(
    run_launches, two_kernels, write_trace, tmp_path, monkeypatch
):
    from manyscale.runner.study import WorkloadChoice

    both = {rank: ["init", "compute 1000", "finalize"] for rank in (0, 1)}
    mpi = read_workload(WorkloadChoice(path=str(write_trace(both))))
    monkeypatch.setattr("manyscale.runner.predict.gpu.mapping.read_workload", lambda choice: two_kernels)
    mapping = tmp_path / "map.csv"
    mapping.write_text("rank,phase,launch\n0,0,1\n")
    keys = {
        "workload": {"path": "x", "gpu_trace": "launches"},
        "mapping": {"launches": str(mapping), "oversubscribe": True, "ranks_per_node": 2},
        "target": {"name": "rtx3070", "node": {"cores_per_socket": 1}},
    }
    result = run_launches(mpi, **keys)
    ends = {row["rank"]: row["end_ps"] for row in result.ranks.to_pylist() if row["state"] == "compute"}
    assert ends == {0: round(5200 * PS), 1: 2 * 1_000_000}


@pytest.mark.theory
def test_cores_beside_launches_are_not_counted_and_that_is_told(run_launches, two_kernels, tmp_path, monkeypatch):
    """A launch stands for the phase whose two tasks four cores would have executed: what these do is not known."""
    recorder = Recorder(lap_ps=10**9)
    for _ in range(2):
        with recorder.execute(recorder.create()):
            pass
    recorder.wait()
    recorder.operation()
    monkeypatch.setattr("manyscale.runner.predict.gpu.mapping.read_workload", lambda choice: two_kernels)
    mapping = tmp_path / "map.csv"
    mapping.write_text("rank,phase,launch\n0,0,1\n")
    result = run_launches(
        recorder.workload(), workload={"path": "x", "gpu_trace": "launches"},
        mapping={"launches": str(mapping), "cores_per_rank": 4},
        target={"name": "rtx3070", "node": {"cores_per_socket": 4}},
    )  # fmt: skip
    assert result.statistics["node.cores_per_rank"].value == 4
    assert "application.thread_efficiency" not in result.statistics
    assert "cores-not-counted" in {note.code for note in result.notes}
    found = ms.pop(tmp_path / "out")
    assert found.frame()["num_cores"].isna().all()
    assert found.frame()["parallel_efficiency"][0] == result.statistics["application.parallel_efficiency"].value
    assert "cores-not-counted" in {note.code for note in found.notes}


def test_a_sweep_reaches_into_the_gpu(monkeypatch, foreseen, two_kernels, tmp_path):
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: two_kernels)
    axes = {
        "target.node.gpu.sms": [23, 46],
        "target.node.gpu.l1.mshrs": [32, 384],
        "target.node.gpu.dram.bandwidth": ["224 GB/s", "448 GB/s"],
        "target.node.gpu.scheduler": ["greedy-then-oldest"],
    }
    study = {"schema": 1, "workload": {"path": "x"}, "target": "rtx3070", "sweep": axes}
    table = studies.sweep(
        study, tmp_path / "out", executor="local", cache=tmp_path / "cache", report=True
    ).sweep_table()
    cycles = table.column("gpu.cycles").to_pylist()
    assert cycles == [20000 + 100 + 2 * 410] * 4 + [20000 + 100 + 410] * 4
    units = pq.read_table(tmp_path / "out" / "units.parquet").to_pylist()
    assert sum(row["kind"] == "gpu-launches" for row in units) == 8
    assert "gpu-stacks" in (tmp_path / "out" / "report.html").read_text()


def test_launches_are_chosen_whatever_the_format(cli, tmp_path):
    outcome = cli("run", "bfs-16", "--launch", "9,11-12", "-o", tmp_path / "out", "--no-report")
    assert outcome.status == 0, outcome.err
    launches = pq.read_table(tmp_path / "out" / "timeline" / "launches.parquet")
    assert launches.column("launch_id").to_pylist() == [9, 11, 12]
    start, end = (np.array(launches.column(name)) for name in ("start_ps", "end_ps"))
    assert (start[1:] - end[:-1]).tolist() == [8_000_083, 0]  # a byte is copied before launch 11: 8 us, and 1 / 12 GB/s
    assert "its launches are 1 to 16" in cli("run", "bfs-16", "--launch", "17").err
    assert "has no kernel launches to choose from" in cli("run", "comd-8", "--launch", "1").err


def test_a_finished_run_can_be_run_again_from_its_directory(cli, tmp_path):
    options = ("--launch", "15,16", "--no-report")
    assert cli("run", "bfs-16", *options, "-o", tmp_path / "out").status == 0
    again = cli("run", tmp_path / "out" / "resolved.yaml", "-o", tmp_path / "again", "--no-report")
    assert again.status == 0, again.err
    for name in ("launches", "blocks"):
        one, other = (pq.read_table(tmp_path / where / "timeline" / f"{name}.parquet") for where in ("out", "again"))
        assert one.equals(other)
    assert cli("report", tmp_path / "out").status == 0
    assert "Kernel launches" in (tmp_path / "out" / "report.html").read_text()


def test_two_runs_are_compared_launch_by_launch(cli, tmp_path):
    for name, more in (("a", ()), ("b", ("--set", "target.node.gpu.launch_latency=0 cycles"))):
        assert cli("run", "bfs-16", "--launch", "15,16", *more, "--no-report", "-o", tmp_path / name).status == 0
    out = cli("compare", tmp_path / "a", tmp_path / "b").out
    assert "kernel launches" in out
    assert "launch 15 of Kernel" in out
    assert "-5,000" in out
    assert "cycles by kernel, latencies included" in out
    assert not [word for word in ("efficiency", "rank", "critical path", "by state") if word in out]


def test_statistics_to_read_are_those_of_the_gpu(cli, tmp_path):
    """What MPI would say of one process stands in stats.json alone."""
    assert cli("run", "bfs-16", "--launch", "16", "--no-report", "-o", tmp_path / "a").status == 0
    names = [line.split()[0] for line in (tmp_path / "a" / "stats.txt").read_text().splitlines()[1:] if line[0] != "#"]
    assert names[:6] == [
        f"gpu.{name}" for name in ("time", "cycles", "ipc", "ipc_per_sm", "occupancy", "of_peak.issue")
    ]
    assert [name for name in names if name.startswith(("application", "critical_path"))] == ["application.makespan"]
    known = json.loads((tmp_path / "a" / "stats.json").read_text())
    assert set(names) < set(known)
    assert known["application.parallel_efficiency"]["value"] == 1


def test_plan_and_dry_run_say_what_would_be_simulated(cli, tmp_path):
    out = cli("plan", "bfs-16", "--sampling", "launches=[9, 10]", "-o", tmp_path / "plan").out
    assert "2 of 16 launches would be simulated" in out
    assert "work units" in cli("run", "bfs-16", "--dry-run").out
