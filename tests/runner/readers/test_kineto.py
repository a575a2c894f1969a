"""Traces of Kineto's made by hand: what rows and times follow from them (groups: test_kineto_groups.py)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from kineto_traces import BACKWARD, MAIN, Recorded, codes, gaps, gpu_rows, told, two_ranks

from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import kineto
from manyscale.runner.readers.kineto.kernels import class_of, precision_of
from manyscale.runner.readers.kineto.nesting import innermost
from manyscale.runner.readers.kineto.trace import Spans
from manyscale.runner.readers.options import ReadOptions

_US = 1_000_000
_G = GpuOperationKind
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def test_collectives_are_matched_and_take_the_least_time(tmp_path: Path) -> None:
    """The first rank's kernel spins for 40 of its 90 us, until the second one comes."""
    found = kineto.read(two_ranks(tmp_path))
    rows = gpu_rows(found, _G.communication)
    assert [(each["rank"], each["stream"], each["duration_ps"]) for each in rows] == [
        (0, 20, 50 * _US),
        (1, 20, 50 * _US),
    ]
    operations = found.tables["operations"].to_pylist()
    own = [each for each in operations if each["kind"] == "allreduce"]
    assert [(each["bytes"], each["communicator_id"]) for each in own] == [(4000, 1), (4000, 1)]
    assert found.tables["communicators"].to_pylist()[1]["members"] == [0, 1]
    assert found.tables["groups"].to_pylist() == [{"communicator_id": 1, "group_name": "default_pg"}]
    assert found.tables["traced_gpus"].to_pylist()[1] == {"rank": 1, "device": 0, "gpu_name": "Tesla V100-SXM2-32GB"}
    assert codes(found) == []


def test_what_waits_take_is_not_the_hosts_time(tmp_path: Path) -> None:
    """A call's own time is in the gap behind it; a copy to pageable memory is waited for until 182 us, and its call
    ends at 190: 8 us are the host's. It is given as late as the earliest of its kind: 60 us behind its begin."""
    found = kineto.read(two_ranks(tmp_path))
    rows = gpu_rows(found)
    mine = [each for each in rows if each["rank"] == 0]
    assert [each["kind"] for each in mine] == [_G.launch, _G.launch, _G.communication, _G.copy_to_host]
    assert mine[3]["flags"] & 1 == 1
    # launches are given at 15, 45 and 65; the copy begins 90 + 5, as long as a launch takes; the step ends at 300
    assert gaps(found) == {1: 15, 2: 30, 3: 20, 4: 30, 5: 300 - 182}
    steps = found.tables["steps"].to_pylist()
    assert steps[0] == {"rank": 0, "step": 3, "first_operation_id": 0, "last_operation_id": 5}


def test_a_copy_on_a_device_need_not_wait(tmp_path: Path) -> None:
    """Of two calls of one name the first returns before its copy begins, the second behind its end, by 10 us."""
    made = Recorded()
    for at, took, begin in ((10, 5, 20), (100, 70, 110)):
        made.work(made.call("cudaMemcpy", at, took), begin, 50, 7, "Memcpy DtoD (Device -> Device)", "gpu_memcpy")
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [each["flags"] & 1 for each in gpu_rows(found)] == [0, 1]
    assert gaps(found)[0] == 5
    assert gaps(found)[2] == 10


def test_a_backward_thread_is_awaited(tmp_path: Path) -> None:
    """The first thread waits from 50, where the other one begins, to 100, where its last operator ends."""
    made = Recorded()
    made.step(1, 0, 200)
    made.launch(10, 17, 5)
    made.operator("autograd::engine::evaluate_function: MmBackward0", 50, 50, BACKWARD)
    made.launch(60, 67, 5, thread=BACKWARD)
    made.launch(80, 87, 5, thread=BACKWARD)
    made.operator("autograd::engine::evaluate_function: AccumulateGrad", 70, 5, MAIN)  # the first one helps
    made.operator("aten::add", 110, 20)
    made.launch(120, 127, 5)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = gpu_rows(found)
    assert [(each["thread"], _G(each["kind"]).name, each["event"]) for each in rows] == [
        (0, "launch", 0),
        (0, "signal_thread", 1),
        (1, "await_thread", 1),
        (1, "launch", 0),
        (1, "launch", 0),
        (1, "signal_thread", 2),
        (0, "await_thread", 2),
        (0, "launch", 0),
    ]
    # operation 0 is the begin of the step; 9 its end
    assert gaps(found) == {1: 15, 2: 35, 4: 15, 5: 20, 6: 15, 8: 25, 9: 75}
    assert codes(found) == []


def test_threads_that_overlap_do_not_wait(tmp_path: Path) -> None:
    made = Recorded()
    made.step(1, 0, 200)
    made.launch(10, 17, 5)
    made.launch(60, 67, 5, thread=BACKWARD)
    made.operator("aten::add", 70, 20)
    made.launch(80, 87, 5, thread=BACKWARD)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert gpu_rows(found, _G.signal_thread, _G.await_thread) == []
    assert codes(found) == ["threads-overlap"]
    assert gaps(found) == {1: 15, 2: 65, 3: 20, 4: 185}


def test_events_that_the_trace_tells(tmp_path: Path) -> None:
    """Stream 20 waits for what stream 7 had been given when the event was recorded: the first kernel alone."""
    made = Recorded()
    made.launch(10, 17, 50)
    record = made.call("cudaEventRecord", 20, 1)
    made.launch(30, 67, 50)
    wait = made.call("cudaStreamWaitEvent", 40, 1)
    made.add("cuda_sync", "Stream Wait Event", 40, 1, 20, correlation=wait, stream=20, wait_on_stream=7,
             wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    made.launch(50, 67, 5, 20)
    awaited = made.call("cudaEventSynchronize", 60, 10)
    made.add("cuda_sync", "Event Sync", 60, 10, -1, correlation=awaited, stream=-1, wait_on_stream=7,
             wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = [(_G(each["kind"]).name, each["stream"], each["event"]) for each in gpu_rows(found)]
    assert rows == [
        ("launch", 7, 0),
        ("record_event", 7, 1),
        ("launch", 7, 0),
        ("wait_event", 20, 1),
        ("launch", 20, 0),
        ("synchronize_event", 0, 1),
    ]
    assert codes(found) == []
    assert gaps(found)[6] == 3  # the kernel ends at 67, the call at 70


def test_what_was_given_before_the_window(tmp_path: Path) -> None:
    made = Recorded()
    made.operator("aten::add", 0, 5)
    made.work(999, 20, 10)
    made.launch(40, 47, 5)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = gpu_rows(found)
    names = found.tables["kernels"].column("kernel_name").to_pylist()
    assert [(names[each["kernel_id"]], each["duration_ps"]) for each in rows] == [
        ("(given before the trace began)", 20 * _US),
        ("sgemm", 10 * _US),
        ("sgemm", 5 * _US),
    ]
    assert gaps(found)[2] == 45
    assert codes(found) == ["given-before-window"]


def test_what_two_gpus_had_to_do_before_the_window(tmp_path: Path) -> None:
    """Streams of the same number: the first one's kernel begins at 20 us, the second one's at 30."""
    made = Recorded()
    made.operator("aten::add", 0, 5)
    for device, begin in ((0, 20), (1, 30)):
        made.work(990 + device, begin, 10)
        made.events[-1]["args"]["device"] = device
    made.launch(60, 67, 5)
    rows = gpu_rows(kineto.read(made.write(tmp_path / "a.json")), _G.launch)
    assert [(each["device"], each["stream"], each["duration_ps"] // _US) for each in rows] == [
        (0, 7, 20),
        (1, 7, 30),
        (0, 7, 10),
        (1, 7, 10),
        (0, 7, 5),
    ]


@pytest.mark.parametrize(
    ("at", "took"),
    [(1.6e15, 5), (10**15, 5), (10, 10**14), (10, 2e13)],
    ids=["late", "late whole", "long whole", "long"],
)
def test_times_that_do_not_fit(tmp_path: Path, at: float, took: float) -> None:
    """One event far from all others, or of years: as ps they are beyond 64 bits."""
    made = Recorded()
    made.launch(10, 17, 5)
    made.operator("aten::add", at, took)
    with pytest.raises(UserError, match=r"a.json: its events take [0-9.e+]+ days; is it one trace\?"):
        kineto.read(made.write(tmp_path / "a.json"))


@pytest.mark.parametrize("unknown", [-1, 2**32 - 1])
def test_an_event_whose_record_is_not_known(tmp_path: Path, unknown: int) -> None:
    """Kineto writes -1 then, with a sign or without; it is no number of a call. The thread goes on at 85, behind the
    second kernel."""
    made = Recorded()
    made.launch(10, 17, 50)
    made.add("cuda_runtime", "cudaMalloc", 20, 5, MAIN)
    made.launch(30, 67, 13)
    awaited = made.call("cudaEventSynchronize", 60, 25)
    made.add("cuda_sync", "Event Sync", 60, 25, -1, correlation=awaited, stream=-1, wait_on_stream=unknown,
             wait_on_cuda_event_record_corr_id=unknown)  # fmt: skip
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [_G(each["kind"]).name for each in gpu_rows(found)] == [
        "launch", "launch", "record_event", "synchronize_event",
    ]  # fmt: skip
    assert gaps(found)[4] == 5  # the kernel ends at 80, the call at 85
    assert codes(found) == ["waits-inferred"]


def test_a_stream_that_was_given_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """A thread synchronises with stream 0, which is idle, then with stream 7 of GPU 3, of which the wait tells no
    device: the kernel ends at 60, the call at 64."""
    made = Recorded()
    made.launch(10, 17, 43)
    made.events[-1]["args"]["device"] = 3
    for at, took, stream in ((20, 3, 0), (30, 34, 7)):
        call = made.call("cudaStreamSynchronize", at, took)
        made.add("cuda_sync", "Stream Sync", at, took, stream, correlation=call, stream=stream)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [(each["kind"], each["stream"], each["device"]) for each in gpu_rows(found)] == [
        (_G.launch, 7, 3),
        (_G.synchronize_stream, 7, 3),
    ]
    assert codes(found) == []
    assert gaps(found) == {0: 5, 1: 15, 2: 4}


def test_a_stream_waits_for_a_stream_that_is_told_without_the_event(tmp_path: Path) -> None:
    """Stream 20 waits for stream 21, and of that for the kernel that had ended when stream 20 went on, at 90: not for
    stream 7, on which the thread worked."""
    made = Recorded()
    made.launch(0, 10, 10, 21)
    made.launch(10, 20, 100, 21)
    made.launch(20, 27, 5)
    wait = made.call("cudaStreamWaitEvent", 40, 1)
    made.add("cuda_sync", "Stream Wait Event", 40, 1, 20, correlation=wait, stream=20, wait_on_stream=21)
    made.launch(50, 90, 5, 20)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = [(_G(each["kind"]).name, each["stream"], each["event"]) for each in gpu_rows(found)]
    assert rows == [
        ("launch", 21, 0),
        ("record_event", 21, 1),
        ("launch", 21, 0),
        ("launch", 7, 0),
        ("wait_event", 20, 1),
        ("launch", 20, 0),
    ]
    assert codes(found) == ["waits-inferred"]


def test_a_graph_is_its_kernels(tmp_path: Path) -> None:
    """All are given by one call."""
    made = Recorded()
    graph = made.call("cudaGraphLaunch", 10, 8)
    for at, stream in ((20, 7), (30, 7), (25, 21)):
        made.work(graph, at, 5, stream)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [each["stream"] for each in gpu_rows(found)] == [7, 21, 7]
    assert gaps(found) == {0: 18 - 10}
    assert codes(found) == ["graphs-in-streams"]


def host_trace(path: Path, *records: tuple[str, int, int, list[int], list[int]]) -> None:
    """Schema 1.0.1: (name, elements sent, received, parts sent, received) of floats; and a wait."""
    nodes = [{"name": "record_param_comms", "id": 1, "rf_id": 99, "inputs": [0, 0, 0, "wait", [], []], "outputs": []}]
    for at, (name, sent, received, parts, theirs) in enumerate(records):
        inputs = [[1, 2, 0, sent, 4, "cuda:0"], at, 94594108284448, 0, name, parts, theirs]
        outputs = [[3, 4, 0, received, 4, "cuda:0"]]
        nodes.append({"name": "record_param_comms", "id": 2 + at, "rf_id": at, "inputs": inputs, "outputs": outputs})
    path.write_text(json.dumps({"schema": "1.0.1", "pid": 7, "nodes": nodes}))


@pytest.mark.parametrize("beside", [False, True])
def test_sizes_come_from_host_execution_traces(tmp_path: Path, beside: bool) -> None:
    """In the folder of the traces, or in one beside it."""
    folder, hosts = tmp_path / "job", tmp_path / ("hosts" if beside else "job")
    hosts.mkdir(exist_ok=True)
    parts = [[1, 2], [3, 4]], [[1, 3], [2, 4]]
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(10, 20, 30, 20, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)")
        made.launch(60, 70, 30, 20, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)")
        made.write(folder / f"rank{rank}.json")
        sizes = ("all_to_allv", sum(parts[0][rank]), sum(parts[1][rank]), parts[0][rank], parts[1][rank])
        host_trace(hosts / f"et_{rank}.json", sizes, ("allreduce", 50, 50, [], []))
    found = kineto.read(folder)
    own = [each for each in found.tables["operations"].to_pylist() if each["kind"] != "other"]
    assert [(each["kind"], each["bytes"], each["send_counts"]) for each in own] == [
        ("alltoallv", 12, [4, 8]), ("allreduce", 200, None), ("alltoallv", 28, [12, 16]), ("allreduce", 200, None),
    ]  # fmt: skip
    assert codes(found) == ["one-group-assumed", "sizes-of-host-traces"]


def test_host_execution_traces_stand_last_in_an_archive(tmp_path: Path) -> None:
    """Behind the traces of five ranks, which stand in the order opposite to their numbers."""
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        for name in ("worker", "et"):
            for rank in range(4, -1, -1):
                path = tmp_path / f"{name}_{rank}.json"
                made = Recorded(rank, 5)
                made.head["distributedInfo"] = {}
                made.launch(60, 70, 30, 20, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)")
                made.launch(160, 170, 10 + rank, 7)
                made.write(path) if name == "worker" else host_trace(path, ("allreduce", 50, 50, [], []))
                archive.add(path, path.name)
                path.unlink()
    found = kineto.read(tmp_path / "job.tar")
    assert [each["duration_ps"] // _US for each in gpu_rows(found, _G.launch)] == [10, 11, 12, 13, 14]
    assert codes(found) == ["one-group-assumed", "sizes-of-host-traces"]


def test_host_execution_traces_of_another_window_are_one_note(tmp_path: Path) -> None:
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(60, 70, 30, 20, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)")
        made.write(tmp_path / f"rank{rank}.json")
        host_trace(tmp_path / f"et_{rank}.json", *[("allreduce", 50, 50, [], [])] * 2)
    notes = [note for note in kineto.read(tmp_path).notes if note.code == "host-trace-unused"]
    assert [(note.count, "rank 0: 2 and 1" in note.text) for note in notes] == [(2, True)]


def test_a_mark_tells_the_size_and_a_name_tells_none(tmp_path: Path) -> None:
    made = Recorded()
    made.add("user_annotation", "nccl:all_reduce", 8, 10, MAIN, **{"Input Dims": [[5, 4]], "Input type": ["double"]})
    made.launch(10, 20, 30, 20, "ncclKernel_AllReduce_RING_LL_Sum_double(ncclWork*)")
    made.launch(60, 70, 30, 20, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)")
    found = kineto.read(made.write(tmp_path / "a.json"))
    own = [each for each in found.tables["operations"].to_pylist() if each["kind"] == "allreduce"]
    assert [each["bytes"] for each in own] == [160, 0]
    assert [(note.code, note.count) for note in found.notes] == [("collective-sizes-unknown", 1)]


def test_waits_that_the_trace_does_not_tell(tmp_path: Path) -> None:
    """NCCL's stream waits for the kernel before its launch; behind, its own call orders nothing. The wait for the
    collective is for the one of the two that had ended when stream 7 went on, at 130."""
    made = Recorded()
    made.launch(10, 17, 20)
    for at, end in ((30, 120), (60, 160)):
        made.operator("record_param_comms", at, 25)
        made.call("cudaStreamWaitEvent", at + 1, 1)
        made.launch(
            at + 5, at + 12, end - at - 12, 20, COLLECTIVE, **told("allreduce", 10, members="[0]", **{"Group size": 1})
        )
        made.call("cudaStreamWaitEvent", at + 15, 1)
    made.operator("record_param_comms", 90, 10)
    made.call("cudaStreamWaitEvent", 92, 1)
    made.launch(110, 130, 5)
    made.call("cudaStreamSynchronize", 120, 20)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = [(_G(each["kind"]).name, each["stream"], each["event"]) for each in gpu_rows(found)]
    assert rows == [
        ("launch", 7, 0),
        ("record_event", 7, 1),
        ("wait_event", 20, 1),
        ("communication", 20, 0),
        ("record_event", 20, 2),
        ("wait_event", 20, 1),
        ("communication", 20, 0),
        ("wait_event", 7, 2),
        ("launch", 7, 0),
        ("synchronize_stream", 7, 0),
    ]
    assert codes(found) == ["waits-inferred"]
    assert gaps(found)[10] == 5  # the kernel ends at 135, the call at 140


def test_kernels_have_classes_and_operations(tmp_path: Path) -> None:
    made = Recorded()
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}
    made.operator("aten::mm", 5, 20, **shapes)
    made.launch(10, 17, 5, name="volta_sgemm_128x32_nn")
    made.launch(40, 47, 5, name="void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)")
    found = kineto.read(made.write(tmp_path / "a.json")).tables["kernels"].to_pylist()
    assert (found[0]["kernel_class"], found[0]["precision"]) == (KernelClass.matrix, "fp32")
    assert (found[0]["flops"], found[0]["bytes"]) == (2 * 8 * 16 * 4, 4 * (8 * 16 + 16 * 4 + 8 * 4))
    assert found[1]["kernel_class"] == KernelClass.elementwise
    assert np.isnan(found[1]["flops"])


def test_a_rank_that_begins_later_sleeps_first(tmp_path: Path) -> None:
    for rank, late in enumerate((1_000_000, 1_000_030)):
        made = Recorded(rank, 2)
        made.operator("aten::add", late, 5)
        made.launch(late + 10, late + 20, 5)
        made.write(tmp_path / f"rank{rank}.json")
    phases = kineto.read(tmp_path).tables["phases"].to_pylist()
    own = [(each["rank"], each["operation_id"], each["kind"], each["duration_ps"] // _US) for each in phases]
    assert own == [(0, 0, 0, 15), (1, 0, 1, 30), (1, 0, 0, 15)]


def test_what_encloses_is_the_innermost() -> None:
    """Against a search of all, on nested spans of two threads at random."""
    random = np.random.default_rng(3)
    spans: list[tuple[int, int, int]] = []

    def nest(thread: int, begin: int, end: int) -> None:
        while end - begin > 4:
            first = begin + int(random.integers(0, 4))
            last = min(end, first + 1 + int(random.integers(0, end - begin)))
            spans.append((thread, first, last))
            nest(thread, first, last)
            begin = last

    for thread in (0, 1):
        nest(thread, 0, 120)
    spans.sort(key=lambda each: (each[1], -each[2]))
    thread, begin, end = np.array(spans).T
    asked = np.array([(thread, time) for thread in (0, 1) for time in range(122)])
    found = innermost(Spans(begin, thread, begin, end, [None] * len(spans)), asked[:, 0], asked[:, 1])
    for (of, time), at in zip(asked.tolist(), found.tolist(), strict=True):
        around = [(e - b, -b, i) for i, (t, b, e) in enumerate(spans) if t == of and b <= time < e]
        shortest = min(around)[:2] if around else None
        assert (None if at < 0 else (int(end[at] - begin[at]), -int(begin[at]))) == shortest


def test_ranks_that_were_not_traced_stay_in_their_groups(tmp_path: Path) -> None:
    """The first of two ranks alone: left out, the group has one member; kept, the second one is there with nothing."""
    (two_ranks(tmp_path) / "rank1.pt.trace.json").unlink()
    left, kept = (kineto.read(tmp_path, ReadOptions(missing_ranks=choice)) for choice in ("drop", "keep"))
    assert (left.num_ranks, kept.num_ranks) == (1, 2)
    assert left.tables["communicators"]["members"].to_pylist()[1:] == [[0]]
    assert kept.tables["communicators"]["members"].to_pylist()[1:] == [[0, 1]]
    assert np.diff(kept.rank_offsets).tolist() == [left.num_operations, 0]
    assert {note.code for note in left.notes} - {note.code for note in kept.notes} == {"ranks-missing"}


@pytest.mark.parametrize("told_by_host", [False, True])
def test_a_host_trace_tells_what_a_wait_is_for(tmp_path: Path, told_by_host: bool) -> None:
    """Of two collectives that had ended: by the order of calls the last one, by the host execution trace the first."""
    made = Recorded()
    for at in (10, 40):
        made.operator("record_param_comms", at, 20, **{"External id": at})
        made.launch(at + 5, at + 12, 10, 20, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)")
    made.operator("record_param_comms", 70, 10, **{"External id": 70})
    made.call("cudaStreamWaitEvent", 72, 1)
    made.launch(90, 97, 5)
    if told_by_host:
        host_trace(tmp_path / "et_0.json", ("allreduce", 50, 50, [], []), ("allreduce", 60, 60, [], []))
    found = kineto.read(made.write(tmp_path / "rank0.json"))
    kinds = [_G(each["kind"]).name for each in gpu_rows(found)]
    first, last = ["communication", "record_event"], ["communication"]
    assert kinds[:3] == (first + last if told_by_host else last + first)
    assert kinds[3:] == ["wait_event", "launch"]
    assert ("waits-inferred" in codes(found)) != told_by_host


@pytest.mark.parametrize("source", ["mark", "kernel"])
def test_an_all_to_all_whose_parts_nobody_tells(tmp_path: Path, source: str) -> None:
    """A mark has the elements that are sent; parts may differ for all that. A kernel's description has both, and no
    splits where parts are equal."""
    for rank in range(2):
        made = Recorded(rank, 2)
        shape = {"Input Dims": [[8]], "Input type": ["float"]}
        made.add("user_annotation", "nccl:all_to_all", 8, 10, MAIN, **shape)
        description = told("all_to_all", 8) if source == "kernel" else {}
        made.launch(10, 20, 30, 20, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)", **description)
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    own = [each for each in found.tables["operations"].to_pylist() if each["kind"] != "other"]
    assert [(each["kind"], each["bytes"]) for each in own] == [("alltoall", 16)] * 2
    assert ("collective-splits-unknown" in codes(found)) == (source == "mark")


def test_a_full_queue_is_a_wait(tmp_path: Path) -> None:
    """1,100 launches of 5 us each wait for a kernel of 100 ms; the last one's call takes until that ends, and 80 us."""
    made = Recorded()
    made.launch(10, 20, 100_000)
    for at in range(1_100):
        made.launch(20 + 6 * at, 100_200 + 2 * at, 2)
    made.work(made.call("cudaLaunchKernel", 10_000, 90_100), 102_500, 2)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = gpu_rows(found)
    assert [_G(each["kind"]).name for each in rows[-2:]] == ["synchronize_event", "launch"]
    assert rows[1]["kind"] == _G.record_event
    assert rows[-2]["event"] == rows[1]["event"]
    assert gaps(found)[rows[-1]["operation_id"]] == 80
    assert codes(found) == ["launch-queue-full"]


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int const*)", KernelClass.movement, ""),
        ("void at::native::unrolled_elementwise_kernel<at::native::addcmul(c10::Scalar)>", KernelClass.elementwise, ""),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(float const*)", KernelClass.movement, "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", KernelClass.matrix, "tf32"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn", KernelClass.matrix, "fp16"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32", KernelClass.matrix, "bf16"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::half_t>>", KernelClass.attention, "fp16"),
        ("void softmax_warp_forward<float, float, float, 10, true>", KernelClass.normalisation, "fp32"),
        (
            "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, Adam<float>>",
            KernelClass.optimiser,
            "fp32",
        ),
        ("distribution_elementwise_grid_stride_kernel<float, 4, uniform(double)>", KernelClass.elementwise, "fp32"),
        ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1", KernelClass.matrix, ""),
    ],
)
def test_classes_and_precisions_of_names(name: str, kind: KernelClass, precision: str) -> None:
    """Names as profilers show them of fbgemm, PyTorch, cuDNN, CUTLASS, cuBLAS, FlashAttention and rocBLAS."""
    assert (class_of(name), precision_of(name)) == (kind, precision)


def test_streams_of_two_gpus_are_two(tmp_path: Path) -> None:
    """Both have the number 7; the thread waits for that of the second GPU, until 40, and its call ends at 43."""
    made = Recorded()
    for device, lasts in ((0, 500), (1, 20)):
        made.launch(10 + device, 20, lasts)
        made.events[-1]["args"]["device"] = device
    made.call("cudaStreamSynchronize", 30, 13)
    found = kineto.read(made.write(tmp_path / "a.json"))
    rows = gpu_rows(found)
    assert [(each["kind"], each["stream"], each["device"]) for each in rows] == [
        (_G.launch, 7, 0),
        (_G.launch, 7, 1),
        (_G.synchronize_stream, 7, 1),
    ]
    assert gaps(found)[3] == 3
