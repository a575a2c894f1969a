"""Steps whose kernels have traced times, against what is worked out by hand.

The target is a V100 whose streams begin what they are given 8 us later at the soonest (the assumption where a target
says nothing), and at once behind what they still do; or what a test says instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_steps import US, G, Steps

import manyscale
from manyscale.models.gpu.device.program import build
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Network
from manyscale.models.network.devices.model import replay_with_devices
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.streams.given import given_of, traced_columns
from manyscale.runner.problems import load_yaml
from manyscale.runner.run.devices import causes, statistics
from manyscale.runner.shipped import shipped_targets

START = 8 * US
ALLREDUCE, ALLGATHER = OperationKind.allreduce, OperationKind.allgather
Rows = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., manyscale.RunResult]:
    """``run(steps, gpu, **keys of the study)``: on nodes of four V100s, of which ``gpu`` says more."""

    def of(
        steps: Steps,
        gpu: dict[str, Any] | None = None,
        choice: dict[str, str] | None = None,
        network: dict[str, Any] | None = None,
        **keys: Any,
    ) -> manyscale.RunResult:
        workload = steps.workload()
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        target = {"name": "v100", "nodes": 2, "node": {"gpus": 4, "gpu": gpu or {}}}
        target |= {} if network is None else {"network": network}
        content = {"schema": 1, "workload": {"path": "steps"}, "target": target, "gpu": choice or {}, **keys}
        return manyscale.run(content, executor="local", cache=tmp_path, report=False)

    return of


def streams(result: manyscale.RunResult) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """Begins and ends in us, by rank and what it is: the name of a kernel or the operation."""
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for row in result.gpu_streams.to_pylist():
        name = row["kernel_name"] or row["operation"]
        found.setdefault((row["rank"], name), []).append((row["start_ps"] // US, row["end_ps"] // US))
    return found


def steps_of(result: manyscale.RunResult) -> list[tuple[int, int]]:
    return [(row["start_ps"] // US, row["end_ps"] // US) for row in result.steps.to_pylist()]


@pytest.mark.theory
def test_two_threads_hand_over_and_streams_wait_for_events(run):
    """Thread 1 gives b behind a once it is signalled; thread 0 has c wait for it. None of the calls takes time."""
    steps = Steps()
    steps.launch(0, 50 * US, gap=10 * US, name="a")  # given at 10
    steps.signal(0, 1, thread=0, gap=5 * US)
    steps.wait_for_thread(0, 1, thread=1, gap=2 * US)  # at 2, until 15
    steps.launch(0, 20 * US, name="b", thread=1, gap=3 * US)  # given at 18, behind a
    steps.record(0, 2, thread=1)
    steps.wait(0, 2, stream=21)
    steps.launch(0, 10 * US, stream=21, name="c", gap=1 * US)  # given at 16
    steps.wait_for_thread(0, 9, thread=1)  # nobody signals it: no wait
    steps.launch(0, 4 * US, stream=22, name="d", thread=1, gap=7 * US)  # given at 25
    steps.synchronize(0, event=2)
    first = steps.mark(0)
    steps.synchronize(0)
    last = steps.mark(0, gap=1 * US)
    steps.step(0, 3, first, last)
    result = run(steps)
    found = streams(result)
    assert found[0, "a"] == [(18, 68)]
    assert found[0, "b"] == [(68, 88)]
    assert found[0, "c"] == [(88, 98)]
    assert found[0, "d"] == [(33, 37)]
    assert steps_of(result) == [(88, 99)]
    assert "start-latency-assumed" in {note.code for note in result.notes}


@pytest.mark.theory
def test_the_latency_is_counted_from_the_call_and_hidden_behind_work(run):
    """5 us from the call, 1 us behind the one before: launches each 2 us, of 4 us and of 1 us; copies are alike."""
    steps = Steps()
    for _ in range(3):
        steps.launch(0, 4 * US, gap=2 * US, name="long")
    for _ in range(3):
        steps.launch(0, 1 * US, stream=21, gap=2 * US, name="short")
    steps.copy(0, G.copy_to_host, 1, stream=22, takes=3 * US, gap=2 * US, waits=True)
    last = steps.mark(0)
    steps.step(0, 0, last, last)
    result = run(steps, {"start_latency": "5 us", "stream_gap": "1 us"})
    found = streams(result)
    assert found[0, "long"] == [(7, 11), (12, 16), (17, 21)]  # given at 2, 4, 6
    assert found[0, "short"] == [(13, 14), (15, 16), (17, 18)]  # given at 8, 10, 12
    assert found[0, "copy_to_host"] == [(19, 22)]
    assert steps_of(result) == [(22, 22)]
    assert not {"start-latency-assumed", "kernels-scaled", "kernels-as-traced"} & {note.code for note in result.notes}


@pytest.mark.theory
def test_a_slower_host_gives_later_and_waits_are_found_anew(run):
    """At twice the gaps the host is no longer what the launch of 10 us waits for."""
    steps = Steps()
    steps.launch(0, 10 * US, gap=2 * US, name="a")
    steps.launch(0, 10 * US, gap=4 * US, name="b")
    steps.synchronize(0, stream=20)
    last = steps.mark(0, gap=1 * US)
    steps.step(0, 0, last, last)
    assert streams(run(steps))[0, "b"] == [(20, 30)]  # a ends at 20, and 6 + 8 is before
    slow = run(steps, cpu_ratio=2.5)
    assert streams(slow)[0, "b"] == [(23, 33)]
    assert steps_of(slow) == [(35, 35)]


def two_groups() -> Steps:
    """Ranks 0 and 1, and 2 and 3; rank k comes to its collective k us after it began."""
    steps = Steps(4, {"even": [0, 1], "odd": [2, 3]})
    for rank in range(4):
        steps.collective(rank, ALLREDUCE, 100, "even" if rank < 2 else "odd", takes=20 * US, gap=(1 + rank) * US)
        steps.synchronize(rank)
        steps.mark(rank)
    return steps


@pytest.mark.theory
def test_a_collective_begins_with_its_last_member(run):
    result = run(two_groups())
    rows = result.collectives.to_pylist()
    assert [(row["group_name"], row["rank"], row["kind"], row["bytes"]) for row in rows] == [
        ("even", 0, "allreduce", 100), ("even", 1, "allreduce", 100),
        ("odd", 2, "allreduce", 100), ("odd", 3, "allreduce", 100),
    ]  # fmt: skip
    times = [tuple(row[f"{name}_ps"] // US for name in ("arrive", "start", "end")) for row in rows]
    assert times == [(9, 10, 30), (10, 10, 30), (11, 12, 32), (12, 12, 32)]
    assert result.statistics["application.makespan"].value == pytest.approx(32e-6)
    assert result.statistics["gpu.collectives"].value == 2
    assert "collectives-as-traced" in {note.code for note in result.notes}


def test_a_deadlock_is_told_by_group_ranks_and_collective(run):
    """Rank 0 comes to a's and then b's collective in one stream, rank 1 the other way round."""
    steps = Steps(2, {"a": [0, 1], "b": [0, 1]})
    for rank in range(2):
        for group in ("ab", "ba")[rank]:
            steps.collective(rank, ALLREDUCE, 100, group, takes=20 * US)
        steps.synchronize(rank)
    with pytest.raises(manyscale.RunError) as found:
        run(steps)
    assert str(found.value).count("\n") == 0
    told = "allreduce 0 of group a (communicator 1) waits for rank 1, and rank 0 waits in it"
    assert told in str(found.value)
    assert "deadlock: 2 of 2 ranks never finish" in str(found.value)


def test_members_that_call_different_collectives_are_refused(run):
    steps = Steps(2, {"a": [0, 1]})
    for rank, kinds in enumerate(((ALLREDUCE, ALLREDUCE), (ALLREDUCE, ALLGATHER))):
        for kind in kinds:
            steps.collective(rank, kind, 100, "a", takes=20 * US)
    told = "group a (communicator 1): its collective 1 is allgather of rank 1, and allreduce of rank 0"
    with pytest.raises(UserError) as found:
        run(steps)
    assert told in str(found.value)


def test_a_member_that_calls_fewer_is_named(run):
    steps = Steps(3, {"a": [0, 2]})
    for rank in (0, 0, 2):
        steps.collective(rank, ALLREDUCE, 100, "a", takes=20 * US)
    with pytest.raises(UserError) as found:
        run(steps)
    assert "rank 0 calls 2 collectives on streams, rank 2 1; the trace is incomplete" in str(found.value)


@pytest.mark.theory
def test_kernels_of_another_gpu_take_the_ratio_of_peaks_or_bandwidths(run):
    """Data sheets: A100 312 Tflop/s of FP16 on tensor cores, 19.5 of FP32, 1,555.2 GB/s; V100 125, 15.7 and 898. A
    kernel of 1e9 flops and 1e9 bytes is bound by DRAM on both."""
    steps = Steps(gpu_name="NVIDIA A100-SXM4-40GB")
    for name, more in {
        "half": {"of": KernelClass.matrix, "precision": "fp16"},
        "single": {"of": KernelClass.matrix, "precision": "fp32"},
        "add": {"of": KernelClass.elementwise},
        "both": {"of": KernelClass.matrix, "flops": 1e9, "moves": 1e9},
    }.items():
        steps.launch(0, 1000 * US, name=name, **more)
    result = run(steps)
    took = {name: end - start for (_, name), [(start, end)] in streams(result).items()}
    assert took["half"] == pytest.approx(1000 * 312 / 125, rel=0.01)
    assert took["single"] == pytest.approx(1000 * 19.5 / 15.7, rel=0.01)
    assert took["add"] == pytest.approx(1000 * 1555.2 / 898, rel=0.01)
    assert took["both"] == pytest.approx(took["add"], rel=0.01)
    assert [note.count for note in result.notes if note.code == "kernels-scaled"] == [4]


def test_an_unknown_gpu_keeps_its_times_and_says_so(run):
    steps = Steps(gpu_name="Tesla K20")
    steps.launch(0, 30 * US, name="a")
    result = run(steps)
    assert streams(result)[0, "a"] == [(8, 38)]
    assert any(note.code == "kernels-as-traced" and "Tesla K20" in note.text for note in result.notes)


def test_a_model_of_nccl_is_asked_for_where_the_target_has_none(run):
    with pytest.raises(UserError, match=r"gpu\.collectives: model: .*network\.nccl"):
        run(two_groups(), choice={"collectives": "model"})


MEASURED = {
    "nccl": {
        "generation": "volta",
        "nvlink": {"kind": "switch", "link_bandwidth": "25 GB/s", "links": 6},
        "pci": {"bandwidth": "12 GB/s"},
        "tables": [
            {"collective": "allreduce", "gpus": 2, "sizes": ["1 MB", "2 MB"], "times": ["33 us", "44 us"]},
            {"collective": "sendrecv", "gpus": 2, "sizes": ["1 MB", "2 MB"], "times": ["33 us", "44 us"]},
        ],
    }
}


def reduced(takes: int) -> Steps:
    steps = Steps(2, {"a": [0, 1]})
    for rank in range(2):
        steps.collective(rank, ALLREDUCE, 1_000_000, "a", takes=takes, gap=(1 + rank) * US)
        steps.synchronize(rank)
    return steps


@pytest.mark.theory
@pytest.mark.parametrize(("choice", "takes", "expected"), [("model", 40, 33), ("traced", 40, 40), ("traced", -1, 33)])
def test_a_collective_takes_what_the_study_says(run, choice, takes, expected):
    """33 us by the target's table, 40 us by the trace; behind the last member, which comes at 2 + 8 us. Where the trace
    tells no time, the model does."""
    steps = reduced(takes * US if takes > 0 else -1)
    steps.launch(0, 1 * US)  # a trace with times
    result = run(steps, network=MEASURED, choice={"collectives": choice})
    for row in result.collectives.to_pylist():
        assert (row["start_ps"] // US, row["end_ps"] // US) == (10, 10 + expected)
    if takes > 0:
        assert result.statistics["nccl.model_ratio"].value == pytest.approx(33 / 40)
        assert result.statistics["nccl.max_error"].value == pytest.approx(1 - 33 / 40)


def test_a_network_that_the_study_changes_has_its_collectives_modelled(run):
    """auto: MEASURED is a change of the target's network."""
    rows = run(reduced(40 * US), network=MEASURED).collectives.to_pylist()
    assert {row["end_ps"] // US for row in rows} == {43}


def test_collectives_that_nobody_measured_are_told(run):
    unmeasured = {"nccl": {key: value for key, value in MEASURED["nccl"].items() if key != "tables"}}
    for network, count in ((MEASURED, 0), (unmeasured, 1)):
        notes = run(reduced(40 * US), network=network, choice={"collectives": "model"}).notes
        assert [note.code for note in notes].count("collectives-unmeasured") == count
    apart = {"nccl": {**MEASURED["nccl"], "nics": {"count": 4, "bandwidth": "25 GB/s"}}}  # measured within a node alone
    notes = run(reduced(40 * US), network=apart, choice={"collectives": "model"}, mapping={"ranks_per_node": 1}).notes
    assert [note.code for note in notes].count("collectives-unmeasured") == 1


def test_collectives_that_the_network_sends_as_messages_are_told(run):
    """On a target without network.nccl, one that the trace has no time of; both members' calls are counted."""
    steps = reduced(-1)
    steps.launch(0, 1 * US)  # a trace with times
    for network, counts in ((None, [2]), (MEASURED, [])):
        notes = run(steps, network=network).notes
        assert [note.count for note in notes if note.code == "collectives-as-messages"] == counts


def test_collectives_that_are_modelled_beside_others_are_told(run):
    """Two of the same group: of one the trace tells the time, of the other the model does."""
    unmeasured = {"nccl": {key: value for key, value in MEASURED["nccl"].items() if key != "tables"}}
    steps = reduced(40 * US)
    for rank in range(2):
        steps.collective(rank, ALLREDUCE, 1_000_000, "a")
    notes = run(steps, network=unmeasured, choice={"collectives": "traced"}).notes
    counts = {note.code: note.count for note in notes}
    told = ("collectives-as-traced", "collectives-modelled", "collectives-unmeasured")
    assert [counts.get(code) for code in told] == [1, 1, 1]


@pytest.mark.theory
def test_kernels_without_times_take_what_the_roofline_says(run):
    """V100: 125 TFLOP/s at fp16 (640 tensor cores, 8 x 64 multiply-adds a cycle, 1.53 GHz) and 900 GB/s."""
    steps = Steps()
    steps.launch(0, -1, name="busy", precision="fp16", flops=1.25e12, moves=9e6)
    steps.launch(0, -1, name="moving", precision="fp16", flops=1.25e6, moves=9e9)
    steps.launch(0, -1, name="unknown")
    last = steps.mark(0)
    steps.step(0, 0, last, last)
    result = run(steps)
    (busy,), (moving,) = (streams(result)[0, name] for name in ("busy", "moving"))
    assert busy[1] - busy[0] == pytest.approx(10_000, rel=0.02)
    assert moving[1] - moving[0] == pytest.approx(10_000, rel=0.02)
    counts = {note.code: note.count for note in result.notes}
    assert (counts["kernels-at-peak"], counts["kernels-untimed"]) == (2, 1)


@pytest.mark.theory
@pytest.mark.parametrize(("ranks", "size"), [(1, 1_000_000), (2, 0)])
def test_a_collective_that_no_model_can_price_takes_its_traced_time(run, ranks, size):
    """Its other members were not traced, or its size is not told: the model would have it for nothing."""
    steps = Steps(ranks, {"a": list(range(ranks))})
    for rank in range(ranks):
        steps.collective(rank, ALLREDUCE, size, "a", takes=40 * US, gap=2 * US)
        steps.synchronize(rank)
    result = run(steps, network=MEASURED, choice={"collectives": "model"})
    assert {(row["start_ps"] // US, row["end_ps"] // US) for row in result.collectives.to_pylist()} == {(10, 50)}
    assert [note.count for note in result.notes if note.code == "collectives-unpriced"] == [1]
    assert "nccl.model_ratio" not in result.statistics


@pytest.mark.theory
@pytest.mark.parametrize("model", ["latency-bandwidth", "flow"])
def test_messages_of_groups_that_share_a_link_slow_each_other(run, model):
    """GPU 0 sends to GPUs 1 and 2 at once, of two streams; out of it goes a link of 150 GB/s, of which NCCL counts on
    20 of 25: 150 MB take 1.25 ms alone, and on the flow model both take twice as long."""
    steps = Steps(3)
    for k, peer in enumerate((1, 2)):
        steps.send(0, peer, 150_000_000, stream=30 + k, request=k)
        steps.group_end(0, [k])
        steps.send(peer, 0, 150_000_000, receives=True, stream=30, request=0)
        steps.group_end(peer, [0])
    for rank in range(3):
        steps.launch(rank, 1 * US)
    network = {"nccl": {**MEASURED["nccl"], "tables": []}}
    result = run(steps, network=network, model={"network": model})
    found = streams(result)
    assert "gpu-messages-as-hosts" not in {note.code for note in result.notes}
    took = [
        end - start for (rank, name), each in found.items() for start, end in each if name == "communication" and rank
    ]
    alone = 1250
    assert took == pytest.approx([alone * (2 if model == "flow" else 1)] * len(took), rel=0.02)


@pytest.mark.theory
def test_collectives_of_groups_that_share_links_slow_each_other(run):
    """Two rings over the same pair of GPUs at a time, each of which could have all of their links."""
    steps = Steps(2, {"a": [0, 1], "b": [0, 1]})
    for rank in range(2):
        for k, group in enumerate("ab"):
            steps.collective(rank, ALLREDUCE, 1_000_000_000, group, takes=1 * US, stream=30 + k)
        steps.synchronize(rank)
    network = {"nccl": {**MEASURED["nccl"], "tables": []}}
    took = {}
    for model in ("latency-bandwidth", "flow"):
        result = run(steps, network=network, model={"network": model})
        took[model] = {row["end_ps"] - row["start_ps"] for row in result.collectives.to_pylist()}
    [alone], [shared] = took["latency-bandwidth"], took["flow"]
    assert shared == pytest.approx(2 * alone, rel=0.02)


@pytest.mark.theory
def test_what_each_operation_waited_for_last_is_known():
    """a (row 0) begins when it was given; b (row 1) behind a; the event (row 2) behind b; c (row 4) in another stream
    behind its wait (row 3) for the event; the host (row 5) behind c. Rows 1 and 2 are the second thread's."""
    steps = Steps()
    steps.launch(0, 50 * US, name="a")
    steps.launch(0, 20 * US, name="b", thread=1, gap=1 * US)
    steps.record(0, 2, thread=1)
    steps.wait(0, 2, stream=21, gap=2 * US)
    steps.launch(0, 10 * US, stream=21, name="c")
    steps.synchronize(0, stream=21)
    workload = steps.workload()
    given = given_of(workload)
    _, duration = traced_columns(workload)
    gpu = Gpu.model_validate(load_yaml(shipped_targets()["v100"])["node"]["gpu"])
    compute = np.array([0, 1, 0, 2, 0, 0]) * US
    devices = build(given, [], gpu, workload.rank_offsets, compute, traced_ps=duration)
    network = Network.model_validate(load_yaml(shipped_targets()["v100"])["network"])
    program = build_program(workload, network.collectives)
    found = replay_with_devices(program, devices, network, Placement.one_per_node(1))
    assert causes(found.devices, devices.of_given, given).tolist() == [-1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("count", "own"), [(1, 0), (2, 2), (64, 64), (65, 0)])
def test_each_gpu_has_a_figure_where_they_are_few(count, own):
    nothing = np.zeros(0, np.int64)
    arrays = {f"given_{name}": nothing for name in ("start_ps", "end_ps", "kind", "bytes")}
    arrays |= {"rank_end_ps": np.array([4]), "gpu_id": np.arange(count), "gpu_busy_ps": np.full(count, 3)}
    figures = statistics(arrays | {"gpu_overlapped_ps": np.zeros(count, np.int64)})
    assert figures["gpu.busy_ratio"].value == pytest.approx(0.75)
    assert sum(name.startswith("gpu.") and name.count(".") == 2 for name in figures) == own
