"""Traces of Kineto's made by hand: what waits for what, of threads, streams and events."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_traces import BACKWARD, MAIN, Recorded, codes, gaps, gpu_rows, host_trace, told, two_ranks

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers import kineto

_US = 1_000_000
_G = GpuOperationKind
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


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
    assert gaps(found)[rows[-1]["operation_id"] - 1] == 80  # counted without the step's begin
    assert codes(found) == ["launch-queue-full"]


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
