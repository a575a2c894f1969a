"""Traces that others published: DLRM on 8 V100 (shipped), and those of HolisticTraceAnalysis, where they are here."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import manyscale
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner import shipped
from manyscale.runner.readers import kineto

_US = 1_000_000
_G = GpuOperationKind
HTA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "ai" / "hta"
needs_traces = pytest.mark.skipif(not HTA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
# each rank's ProfilerStep#10 in the traces, us
STEPS = [14455, 19901, 13017, 19313, 17979, 17797, 13091, 12509]


@pytest.fixture(scope="module")
def dlrm() -> Workload:
    return kineto.read(shipped.folder() / "dlrm-8.tar.zst")


def collectives(workload: Workload, rank: int) -> list[dict[str, object]]:
    table = workload.tables["operations"]
    return table.filter(pc.and_(pc.greater(table["communicator_id"], 0), pc.equal(table["rank"], rank))).to_pylist()


def test_collectives_of_dlrm(dlrm: Workload) -> None:
    """Kinds and elements as the host execution traces have them; the least times of NCCL's kernels over the ranks."""
    own = collectives(dlrm, 0)
    assert [(each["kind"], each["bytes"]) for each in own] == [
        ("alltoallv", 4 * 6144), ("alltoall", 8 * 3), ("alltoallv", 4 * 384), ("alltoallv", 4 * 3392),
        ("allreduce", 4 * 394_241), ("alltoallv", 4 * 6144), ("allreduce", 4 * 112), ("allreduce", 4 * 226_960),
    ]  # fmt: skip
    uneven = [96, 224, 288, 1664, 592, 96, 192, 240]
    assert own[3]["send_counts"] == [4 * each for each in uneven]
    assert own[3]["receive_counts"] == [4 * 96] * 8
    given = dlrm.tables["gpu_operations"]
    mine = given.filter(pc.equal(given["kind"], int(_G.communication)))
    took = np.array(mine.column("duration_ps").to_pylist()).reshape(8, 8) / _US
    assert took.tolist() == [[10, 8, 7, 7, 86, 10, 20, 69]] * 8


def test_threads_and_streams_of_dlrm(dlrm: Workload) -> None:
    """A forward and a backward thread, which wait for each other once; compute on stream 7, copies on 22 and 24, NCCL
    on 84; the kernels of the last step that ranks 1 and 3 still had to do."""
    column = {name: dlrm.column("gpu_operations", name) for name in ("rank", "kind", "stream", "thread")}
    gives = column["kind"] <= _G.communication
    assert set(column["stream"][gives & (column["rank"] == 0)].tolist()) == {7, 22, 24, 84}
    for rank in range(8):
        mine = column["rank"] == rank
        signals = (column["kind"] == _G.signal_thread) & mine
        assert column["thread"][signals].tolist() == [0, 1]
    assert {note.code: note.count for note in dlrm.notes}["given-before-window"] == 128
    assert dlrm.tables["traced_gpus"].column("gpu_name").to_pylist() == ["Tesla V100-SXM2-32GB"] * 8


def test_steps_of_dlrm(tmp_path: Path) -> None:
    """Replayed on the machine of the trace, within 1 % of what was measured."""
    result = manyscale.run("dlrm-8", tmp_path / "run", executor="local", report=False)
    steps = pq.read_table(result.directory / "timeline" / "steps.parquet").sort_by("rank")
    took = pc.subtract(steps["end_ps"], steps["start_ps"]).to_pylist()
    assert [each / _US for each in took] == pytest.approx(STEPS, rel=0.01)


@needs_traces
def test_collectives_of_a_rank_alone() -> None:
    """Rank 0 of 2: five all-reduces and two broadcasts in each of three steps."""
    found = kineto.read(HTA / "nccl_parser_config_nccl_data.json.gz")
    own = [(each["kind"], each["bytes"]) for each in collectives(found, 0)]
    reduced = [("allreduce", 4 * each) for each in (2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040)]
    sent = [("bcast", 4 * 53_120), ("bcast", 8 * 53)]
    assert sorted(own) == sorted(3 * (reduced + sent))
    assert found.tables["groups"].column("group_name").to_pylist() == ["default_pg"]
    assert found.tables["steps"].column("step").to_pylist() == [4, 5, 6]
    assert "ranks-missing" in [note.code for note in found.notes]


def replayed(path: Path, directory: Path, target: str = "dgx-a100") -> dict[str, list[dict[str, int]]]:
    """Rows of a run's timeline, by table."""
    study = {"workload": {"path": str(path)}, "target": target}
    result = manyscale.run(study, directory, executor="local", report=False)
    names = ("steps", "gpu_streams")
    return {name: pq.read_table(result.directory / "timeline" / f"{name}.parquet").to_pylist() for name in names}


def step_times(path: Path, directory: Path) -> dict[int, float]:
    """us of each step of a rank's."""
    return {each["step"]: (each["end_ps"] - each["start_ps"]) / _US for each in replayed(path, directory)["steps"]}


# of the trace, us: PyTorch marks them ProfilerStep#4 to #6
TRAINING_STEPS = {4: 222_442, 5: 219_727, 6: 224_936}


@needs_traces
@pytest.mark.slow
def test_steps_of_a_rank_alone(tmp_path: Path) -> None:
    path = HTA / "nccl_parser_config_nccl_data.json.gz"
    assert step_times(path, tmp_path / "run") == pytest.approx(TRAINING_STEPS, rel=0.02)


@needs_traces
@pytest.mark.slow
def test_a_step_tells_the_next_ones(tmp_path: Path) -> None:
    """From a window of step 4 alone, what steps 5 and 6 took."""
    document = json.loads(gzip.decompress((HTA / "nccl_parser_config_nccl_data.json.gz").read_bytes()))
    events = [each for each in document["traceEvents"] if each.get("ph") == "X"]
    (step,) = (each for each in events if each["name"] == "ProfilerStep#4" and each["cat"] == "user_annotation")
    on_host = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
    kept = [each for each in events if each["cat"] in on_host and 0 <= each["ts"] - step["ts"] < step["dur"]]
    calls = {each["args"]["correlation"] for each in kept if each["cat"].startswith("cuda")}
    kept += [each for each in events if each["cat"] not in on_host and each["args"].get("correlation") in calls]
    (tmp_path / "rank0.json").write_text(json.dumps({**document, "traceEvents": kept}))
    (predicted,) = step_times(tmp_path / "rank0.json", tmp_path / "run").values()
    assert [TRAINING_STEPS[5], TRAINING_STEPS[6]] == pytest.approx([predicted] * 2, rel=0.05)


@needs_traces
@pytest.mark.parametrize(
    "name", ["cuda_event_sync", "cuda_event_sync_multi_stream_event_sync_trace", "simple_add_benchmark_result_493459"]
)
def test_nothing_begins_before_the_event_that_its_stream_waits_for(tmp_path: Path, name: str) -> None:
    """Nor does a kernel begin before the end of the one before it in its stream."""
    path = sorted(HTA.glob(f"critical_path_{name}*"))[0]
    spans: dict[int, list[tuple[int, int]]] = {}  # of each stream, in its order
    for each in sorted(replayed(path, tmp_path)["gpu_streams"], key=lambda each: each["start_ps"]):
        spans.setdefault(each["stream"], []).append((each["start_ps"], each["end_ps"]))
    done: dict[int, int] = {}  # by stream
    recorded: dict[int, int] = {}
    waits = 0
    for row in kineto.read(path).tables["gpu_operations"].to_pylist():
        if row["kind"] == _G.record_event:
            recorded[row["event"]] = done.get(row["stream"], 0)
        elif row["kind"] == _G.wait_event:
            done[row["stream"]] = max(done.get(row["stream"], 0), recorded[row["event"]])
            waits += 1
        elif row["kind"] <= _G.communication:
            start, end = spans[row["stream"]].pop(0)
            assert start >= done.get(row["stream"], 0)
            done[row["stream"]] = end
    assert not any(spans.values())
    assert waits or name == "cuda_event_sync"


@needs_traces
def test_events_of_three_streams() -> None:
    """Stream 24 waits for an event of stream 20; nothing waits for stream 28."""
    found = kineto.read(HTA / "critical_path_cuda_event_sync_multi_stream_event_sync_trace.json.gz")
    rows = found.tables["gpu_operations"].to_pylist()
    waits = [each for each in rows if each["kind"] == _G.wait_event]
    records = [each for each in rows if each["kind"] == _G.record_event]
    assert [(each["stream"], each["event"]) for each in waits] == [(24, records[0]["event"])]
    assert [each["stream"] for each in records] == [20]
    assert [note.code for note in found.notes] == ["one-step-assumed"]


@needs_traces
def test_streams_that_are_told_without_events() -> None:
    """The trace tells the streams of waits and no records: stream 20 waits for stream 7 as often as it says."""
    path = HTA / "critical_path_simple_add_benchmark_result_493459_1694039959_trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    told = [each["args"] for each in events if each.get("name") == "Stream Wait Event"]
    rows = kineto.read(path).tables["gpu_operations"].to_pylist()
    recorded = {each["event"]: each["stream"] for each in rows if each["kind"] == _G.record_event}
    waits = [(each["stream"], recorded[each["event"]]) for each in rows if each["kind"] == _G.wait_event]
    assert waits.count((20, 7)) == [(each["stream"], each["wait_on_stream"]) for each in told].count((20, 7)) > 0


@needs_traces
def test_no_kernel_begins_before_its_event(tmp_path: Path) -> None:
    """Replayed, with a kernel of stream 20 that takes 30 ms in place of 0.123: stream 24 waits for its end, stream 28
    does not. In the trace stream 24's first operation is given 19.4 ms behind stream 20's."""
    path = HTA / "critical_path_cuda_event_sync_multi_stream_event_sync_trace.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    (kernel,) = (
        each for each in document["traceEvents"] if each.get("cat") == "kernel" and each["args"]["stream"] == 20
    )
    kernel["dur"] = 30_000
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    study = {"workload": {"path": str(tmp_path / "rank0.json")}, "target": "dgx-a100"}
    result = manyscale.run(study, tmp_path / "run", executor="local", report=False)
    times = pq.read_table(result.directory / "timeline" / "gpu_streams.parquet").to_pylist()
    first, last = ({each["stream"]: each[name] for each in order} for name, order in
                   (("start_ps", times[::-1]), ("end_ps", times)))  # fmt: skip
    assert last[20] - first[20] > 30_000 * _US
    assert first[24] >= last[20]
    assert last[28] < last[20]


@needs_traces
@pytest.mark.parametrize(
    "name", ["cpu_only_rank-34.Jul_15_10_52_41.1074.pt", "amd_trace_mi250_minitoy_train_ROCm6_2_kineto"]
)
def test_other_machines(name: str) -> None:
    """Without a GPU, and ROCm's, whose kernels run on one stream."""
    (path,) = HTA.glob(f"{name}*")
    found = kineto.read(path)
    kinds = found.column("gpu_operations", "kind")
    assert (kinds == _G.launch).sum() == (14 if "amd" in name else 0)
    assert found.tables["steps"].num_rows == (2 if "amd" in name else 1)
