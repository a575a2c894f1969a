"""Jobs that share a machine: what each takes alone and beside others, by laws of fair sharing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from gpu_steps import US, Steps

import manyscale as ms
from manyscale.models.workload import COLLECTIVES, SCHEMAS, OperationKind
from manyscale.models.workload.jobs import LEVELS, joined
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.readers import workload_folder
from manyscale.runner.report.headline import headline
from manyscale.runner.report.text import duration

MB = 1_000_000
GB_PER_S = 1e9
TARGET = {
    "name": "crossbar256",
    "node": {"cores_per_socket": 4},
    "network": {"latency": "0 s", "bandwidth": "1 GB/s", "envelope": "0 B", "eager_threshold": "0 B"},
}


def kept(made: Steps, folder: Path, name: str) -> str:
    workload_folder.write(made.workload(name), folder / name)
    return str(folder / name)


def program(folder: Path, name: str, megabytes: int, computes: int = 0) -> str:
    """A job of two ranks: the first computes (ps), and sends a message of so many MB."""
    made = Steps(2)
    ends = {"tag": 0, "bytes": megabytes * MB, "receive_bytes": megabytes * MB}
    made.call(0, {"kind": OperationKind.send, "peer": 1, **ends}, computes)
    made.call(1, {"kind": OperationKind.recv, "peer": 0, **ends})
    return kept(made, folder, name)


def summed(size: int, takes: int, devices: tuple[int, int] = (0, 0)) -> Steps:
    """A step of two ranks with an A100 each, of these numbers in their processes: an all-reduce of ``size`` bytes,
    which took so many ps where it was traced."""
    made = Steps(2, {"dp": (0, 1)}, "NVIDIA A100-SXM4-40GB")
    for rank in (0, 1):
        begin = made.mark(rank)
        made.collective(rank, OperationKind.allreduce, size, "dp", takes, device=devices[rank])
        made.synchronize(rank, device=devices[rank])
        made.step(rank, 0, begin, made.mark(rank))
    return made


def study(
    jobs: list[str], nodes: list[int], network: str = "flow", target: Any = TARGET, **more: Any
) -> dict[str, Any]:
    return {
        "schema": 1, "workload": {"path": jobs[0], "beside": [{"path": each} for each in jobs[1:]], **more},
        "target": target, "model": {"network": network}, "mapping": {"placement": nodes},
    }  # fmt: skip


def times(*given: Any, **more: Any) -> dict[int, float]:
    """Of each job that runs, s."""
    found = ms.run(study(*given, **more), report=False).statistics
    return {
        int(name.split(".")[1]): each.value for name, each in found.items() if re.fullmatch(r"job\.\d+\.time", name)
    }


@pytest.mark.theory
def test_jobs_on_one_link_share_it_fairly(tmp_path: Path) -> None:
    """Both send from node 0 to node 1 at 1 GB/s. 10 MB take 10 ms alone, and beside 30 MB, at half the rate, 20 ms. The
    other then has the link to itself: 10 + 30 MB have passed after 40 ms (processor sharing)."""
    jobs = [program(tmp_path, "short", 10), program(tmp_path, "long", 30)]
    assert times(jobs, [0, 1, 0, 1], job=2) == {2: pytest.approx(30e-3)}
    assert times(jobs, [0, 1, 0, 1]) == {1: pytest.approx(20e-3), 2: pytest.approx(40e-3)}
    assert times(jobs, [0, 1, 2, 3]) == {1: pytest.approx(10e-3), 2: pytest.approx(30e-3)}


@pytest.mark.theory
def test_share_tells_each_job_alone_and_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three jobs on one link, the third begins to send at 5 ms. Until then two have sent 2.5 MB each; from then on each
    has a third: the first (10 MB) ends at 5 + 3 x 7.5 = 27.5 ms, the third (10 MB, of which 7.5 have passed) 2 x 2.5 ms
    later, and the second, of 20 MB, has all 40 MB before its end."""
    jobs = [program(tmp_path, "a", 10), program(tmp_path, "b", 20), program(tmp_path, "c", 10, computes=5_000 * US)]
    found = ms.share(study(jobs, [0, 1] * 3), output=tmp_path / "shared", report=False)
    rows = {row["job"]: (row["alone_s"], row["together_s"]) for row in found.jobs.to_pylist()}
    assert rows == {
        1: (pytest.approx(10e-3), pytest.approx(27.5e-3)),
        2: (pytest.approx(20e-3), pytest.approx(40e-3)),
        3: (pytest.approx(15e-3), pytest.approx(32.5e-3)),
    }
    codes = {note.code for note in found.notes}
    assert {"jobs-share-nodes", "jobs-overlap-in-part"} <= codes
    assert "jobs-share-nothing" not in codes
    assert {each.name for each in (tmp_path / "shared").iterdir()} == {
        "jobs.parquet", "together", "alone-1", "alone-2", "alone-3"
    }  # fmt: skip
    assert main(["share", str(tmp_path / "shared" / "alone-2"), "-o", str(tmp_path / "again"), "--no-report"]) == 0
    assert "2 b      2  20.00 ms  40.00 ms     2.000" in capsys.readouterr().out


def test_jobs_share_nothing_where_the_network_model_shares_none(tmp_path: Path) -> None:
    jobs = [program(tmp_path, "a", 10), program(tmp_path, "b", 30)]
    run = ms.run(study(jobs, [0, 1, 2, 3], "latency-bandwidth"), report=False)
    assert {each.code for each in run.notes} >= {"jobs-share-nothing", "jobs-overlap-in-part"}
    assert "jobs-share-nodes" not in {each.code for each in run.notes}
    with pytest.raises(UserError, match=r"job: 3 is none of the 2 jobs"):
        times(jobs, [0, 1, 2, 3], job=3)
    with pytest.raises(UserError, match="is one job; name those beside it"):
        ms.share(study(jobs[:1], [0, 1]))


def test_runs_of_jobs_are_published_together(tmp_path: Path, private_cache: Path) -> None:
    jobs = [program(tmp_path, name, 1) for name in ("a", "b")]
    ms.share(study(jobs, [0, 1, 2, 3]), output=f"file://{tmp_path}/bucket/shared", report=False)
    there = tmp_path / "bucket" / "shared"
    assert {"jobs.parquet", "files.json", "together", "alone-1", "alone-2"} <= {each.name for each in there.iterdir()}
    for run in ("together", "alone-1", "alone-2"):
        assert (there / run / "manifest.json").is_file(), run
        assert (there / run / "stats.json").is_file(), run


def test_a_job_that_takes_no_time_is_refused(tmp_path: Path) -> None:
    """Nothing that it takes beside others can be told as a multiple of what it takes alone."""
    made = Steps(1)
    made.call(0, {"kind": OperationKind.other})
    jobs = [program(tmp_path, "a", 1), kept(made, tmp_path, "idler")]
    with pytest.raises(UserError, match=r"^job 2 \(idler\) takes no time alone"):
        ms.share(study(jobs, [0, 1, 2]), report=False)


@pytest.mark.theory
def test_rings_of_two_jobs_share_a_nic(tmp_path: Path) -> None:
    """Two nodes with a NIC each; both jobs have a GPU on either node and sum 64 MB in a ring, which takes these bytes
    over each NIC. NCCL has 24 of its 25 GB/s, and alone gets less of them: together they take 128 MB at 24 GB/s, and
    latencies of less than 60 us. The second job's ranks do not have the GPUs of the first one's, whose numbers are the
    same in their traces."""
    jobs = [kept(summed(64 * MB, 1, devices=(0, 1)), tmp_path, name) for name in ("a", "b")]
    target = {"name": "dgx-a100", "network": {"nccl": {"nics": {"count": 1}}}}
    found = ms.share(study(jobs, [0, 1, 0, 1], target=target), report=False)
    for row in found.jobs.to_pylist():
        assert 0 < row["step_together_s"] - 2 * 64 * MB / 24e9 < 60e-6
        assert 64 * MB / 24e9 < row["step_alone_s"] < 0.62 * row["step_together_s"]
    assert "gpus-shared" not in {note.code for note in found.notes}
    for run in ("together", "alone-2"):  # its ranks have the same GPUs while the first job idles
        streams = pq.read_table(found.directory / run / "timeline" / "gpu_streams.parquet").to_pylist()
        assert {row["gpu"] for row in streams if row["rank"] >= 2} == {1, 9}, run


def test_traced_times_of_collectives_know_of_no_other_job(tmp_path: Path) -> None:
    """On the GPUs of the trace each of two jobs on a node sums for 500 us by the trace, and on network flow, where
    others may use its links, as the model of NCCL says: 8 KB take less than 100 us."""
    jobs = [kept(summed(8192, 500 * US), tmp_path, name) for name in ("a", "b")]
    for network, least, most in (("latency-bandwidth", 500e-6, 600e-6), ("flow", 0, 100e-6)):
        took = times(jobs, [0, 0, 0, 0], network, "dgx-a100")
        assert least < took[1] < most
        assert least < took[2] < most


def test_of_every_table_it_is_decided_whether_jobs_have_it() -> None:
    """A table that is neither would be lost without a word."""
    of_one = {
        "phase_times", "jobs", "blocks", "instructions", "block_accesses", "unseen_accesses", "segments", "task_stacks",
        "intervals", "interval_blocks", "interval_counters", "frames", "stacks", "stack_units", "stack_samples",
        "unit_counters", "launches", "copies",
    }  # fmt: skip
    assert not of_one & set(LEVELS)
    assert of_one | set(LEVELS) == set(SCHEMAS)


def test_jobs_whose_launches_have_no_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"workload\.beside: .*: holds launches, and jobs that share a machine have"):
        ms.share("bfs-16", program(tmp_path, "a", 1), target="rtx3070")


def test_references_of_a_second_job_are_to_its_own() -> None:
    """A job of ranks with tasks and regions beside itself: what it refers to stands behind what the first one has."""
    one = ms.read_workload("cholesky-8")
    both = joined([one, one])
    counts = {level: table.num_rows for level, table in one.tables.items()}
    is_root = np.isin(one.column("operations", "kind"), COLLECTIVES)
    for level, name, by in (
        ("operations", "rank", 8), ("phases", "region_id", counts["regions"]), ("tasks", "parent_id", 0),
        ("tasks", "task_type_id", counts["task_types"]), ("events", "task_type_id", counts["task_types"]),
        ("operations", "peer", np.where(is_root, 0, 8)), ("operations", "communicator_id", counts["communicators"]),
    ):  # fmt: skip
        own = one.column(level, name)
        first, second = np.split(both.column(level, name), 2)
        if name == "communicator_id":
            used = is_root
            assert np.array_equal(first[used], own[used] + 1)  # behind that of all
            assert np.array_equal(second[used], first[used] + by)
        else:
            assert np.array_equal(first, own), name
            assert np.array_equal(second, np.where(own >= 0, own + by, own)), name
    made = Steps(2)  # root 1 is a member of its group; what a rank alone does to a file is of no group
    for rank in (0, 1):
        made.call(rank, {"kind": OperationKind.bcast, "peer": 1, "bytes": 8})
        made.call(rank, {"kind": OperationKind.other, "peer": rank, "bytes": 8})
    rows = joined([made.workload(), made.workload()]).tables["operations"].to_pylist()
    assert [(row["rank"], row["peer"], row["communicator_id"]) for row in rows] == [
        (0, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, 0), (2, 1, 2), (2, 2, 0), (3, 1, 2), (3, 3, 0)
    ]  # fmt: skip
    members = both.tables["communicators"].column("members").to_pylist()
    assert members[0] == list(range(16))
    assert members[1 + counts["communicators"]] == list(range(8, 16))


def test_no_utilisation_is_told_of_several_models(tmp_path: Path) -> None:
    """A job that is made, and as many beside it: steps of each, and no MFU of all."""
    made = {"synthesise": {"layers": 1, "hidden": 256, "heads": 4, "sequence": 128, "global_batch": 2, "dp": 2,
                           "target": "dgx-a100"}}  # fmt: skip
    one = ms.run({"schema": 1, "workload": made, "target": "dgx-a100"}, report=False).statistics
    run = ms.run({"schema": 1, "workload": {**made, "beside": [made]}, "target": "dgx-a100"}, report=False)
    both = run.statistics
    assert f'Job 2</div><div class="value">{duration(both["job.2.time"].value)}' in headline(run)
    assert both["job.2.step_time"].value == one["step.time"].value
    assert {name for name in one if name.startswith("step.") and name not in both} >= {"step.model_flops_utilisation"}
