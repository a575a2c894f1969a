"""Where the time of GPUs goes in steps with traced times, and what-ifs about them, against what is worked out by hand.

Two ranks on V100s whose streams begin what they are given at once. Each computes on stream 20 and communicates on
stream 84.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_steps import US, Steps

import manyscale
from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.traced import breakdown

ALLREDUCE = OperationKind.allreduce


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., manyscale.RunResult]:
    def of(steps: Steps, target_network: dict[str, Any] | None = None, **keys: Any) -> manyscale.RunResult:
        workload = steps.workload()
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        gpu = {"start_latency": "0 us", "stream_gap": "0 us"}
        target = {"name": "v100", "nodes": 1, "node": {"gpus": 4, "gpu": gpu}}
        target |= {"network": target_network} if target_network else {}
        content = {"schema": 1, "workload": {"path": "steps"}, "target": target, **keys}
        return manyscale.run(content, executor="local", cache=tmp_path, report=False)

    return of


def overlapped() -> Steps:
    """Rank 1 enters 5 us later. Of rank 0: kernel 0 to 10, all-reduce given at 2, which begins at 7 with the other's,
    until 27; a kernel from 20 to 23; and the host synchronises and computes 3 us more."""
    steps = Steps(2, {"dp": [0, 1]})
    for rank in (0, 1):
        steps.sleep(rank, 5 * US * rank) if rank else None
        first = steps.mark(rank)
        steps.launch(rank, 10 * US, name="forward")
        steps.collective(rank, ALLREDUCE, 4096, "dp", 20 * US, gap=2 * US)
        steps.launch(rank, 3 * US, name="backward", gap=18 * US)
        steps.synchronize(rank)
        steps.step(rank, 7, first, steps.mark(rank, gap=3 * US))
    return steps


def figure(result: manyscale.RunResult, name: str) -> float:
    return float(result.statistics[name].value)


@pytest.mark.theory
def test_the_parts_of_a_gpus_time_sum_to_the_step(run):
    """Rank 0: computes 0 to 10 and 20 to 23, transfers 10 to 20 and 23 to 27, idles 27 to 30. Rank 1, 5 to 30: computes
    5 to 15, transfers 15 to 25, computes 25 to 28; its host waits until then, and computes until 31."""
    result = run(overlapped())
    assert [(row["start_ps"] // US, row["end_ps"] // US) for row in result.steps.to_pylist()] == [(0, 30), (5, 31)]
    parts = [figure(result, f"gpu.time.{name}") for name in ("compute", "exposed_transfer", "exposed_wait", "idle")]
    assert parts == pytest.approx([13e-6, 12e-6, 0, 3e-6])
    assert figure(result, "step.time") == pytest.approx(28e-6) == pytest.approx(sum(parts))
    assert (figure(result, "step.longest"), figure(result, "step.whole")) == pytest.approx((30e-6, 31e-6))
    assert figure(result, "group.dp.transfer") == pytest.approx(20e-6)
    assert figure(result, "group.dp.wait") == pytest.approx(2.5e-6)  # rank 0 from 2 to 7, overlapped
    assert figure(result, "group.dp.exposed") == pytest.approx(12e-6)
    assert (figure(result, "group.dp.operations"), figure(result, "group.dp.bytes")) == (1, 4096)


@pytest.mark.theory
def test_a_wait_that_nothing_hides_is_exposed(run):
    steps = Steps(2, {"dp": [0, 1]})
    for rank in (0, 1):
        steps.collective(rank, ALLREDUCE, 4096, "dp", 20 * US, gap=(1 + 9 * rank) * US)
    result = run(steps)
    parts = [figure(result, f"gpu.time.{name}") for name in ("compute", "exposed_transfer", "exposed_wait", "idle")]
    assert parts == pytest.approx([0, 20e-6, 4.5e-6, 5.5e-6])


def test_of_many_groups_those_that_communicate_least_are_told_together(run, monkeypatch):
    """Of three groups with 1, 2 and 3 collectives the two with the fewest."""
    monkeypatch.setattr(breakdown, "_MOST_GROUPS", 2)
    steps = Steps(2, {name: [0, 1] for name in "abc"})
    for rank in (0, 1):
        for name, count in (("a", 1), ("b", 2), ("c", 3)):
            for _ in range(count):
                steps.collective(rank, ALLREDUCE, 4096, name, 20 * US)
    result = run(steps)
    counts = {name: each.value for name, each in result.statistics.items() if name.endswith(".operations")}
    assert counts == {"group.c.operations": 3, "group.others.operations": 3}


@pytest.mark.theory
def test_a_stage_waits_until_the_message_before_it_is_sent(run):
    """Rank 1 waits from 0; rank 0 computes until 10 us, and sends then: what is left of rank 1's wait is the transfer
    of 1 MB at 8 GB/s behind 0.5 us."""
    steps = Steps(2, {"pp": [0, 1]})
    steps.launch(0, 10 * US)
    steps.send(0, 1, 1_000_000, stream=20, group="pp")
    steps.group_end(0, [0])
    steps.send(1, 0, 1_000_000, receives=True, group="pp")
    steps.group_end(1, [0])
    result = run(steps, target_network={"intra_node": {"latency": "0.5 us", "bandwidth": "8 GB/s"}})
    assert figure(result, "group.pp.wait") == pytest.approx(10e-6 / 2, rel=0.01)  # mean over the two
    assert figure(result, "group.pp.operations") == 1
    assert figure(result, "group.pp.bytes") == 1_000_000


@pytest.mark.theory
@pytest.mark.parametrize("name", ["pp", "mesh_pp", "PIPELINE_MODEL_PARALLEL_GROUP", "dp", "embeddings"])
def test_the_bubble_is_what_stages_wait_for_each_other(run, name):
    """Two stages, one micro batch, messages for nothing: stage 0 computes 0 to 10, waits for stage 1's 20 and computes
    5 more; stage 1 waits 10, computes 20, and has ended 5 before the pipeline has."""
    steps = Steps(2, {name: [0, 1]})
    first = [steps.mark(rank) for rank in (0, 1)]
    steps.launch(0, 10 * US)
    steps.send(0, 1, 8, stream=20, group=name)
    steps.group_end(0, [0])
    steps.send(1, 0, 8, receives=True, stream=20, group=name)
    steps.group_end(1, [0])
    steps.launch(1, 20 * US)
    steps.send(1, 0, 8, stream=20, request=1, group=name)
    steps.group_end(1, [1])
    steps.send(0, 1, 8, receives=True, stream=20, request=1, group=name)
    steps.group_end(0, [1])
    steps.launch(0, 5 * US)
    for rank in (0, 1):
        steps.synchronize(rank)
        steps.step(rank, 0, first[rank], steps.mark(rank))
    result = run(steps, target_network={"intra_node": {"latency": "0 us", "bandwidth": "1 TB/s"}})
    bubble = result.statistics.get("step.pipeline_bubble")
    if name in ("dp", "embeddings"):
        assert bubble is None
    else:
        assert bubble.value == pytest.approx((20 + 10 + 5) / (2 * 35), rel=1e-3)


def path_of(result: manyscale.RunResult) -> list[tuple[str, int, str, int, int]]:
    """Kind, rank, name, begin and end in us; segments of one thread that follow each other as one."""
    found: list[tuple[str, int, str, int, int]] = []
    for row in result.step_path.to_pylist():
        own = (row["kind"], row["rank"], row["name"], row["start_ps"] // US, row["end_ps"] // US)
        if found and found[-1][:3] == own[:3] and found[-1][4] == own[3]:
            own = (*own[:3], found.pop()[3], own[4])
        found.append(own)
    return found


@pytest.mark.theory
def test_the_critical_path_leads_through_threads_streams_and_collectives(run):
    """The end is rank 1's: its host, which waited for a kernel that it had given at 25."""
    assert path_of(run(overlapped())) == [
        ("host", 1, "", 0, 25), ("kernel", 1, "backward", 25, 28), ("host", 1, "", 28, 31),
    ]  # fmt: skip
    steps = Steps(2, {"dp": [0, 1]})
    for rank in (0, 1):
        steps.launch(rank, (3 + 9 * rank) * US, stream=84, name="backward")
        steps.collective(rank, ALLREDUCE, 4096, "dp", 20 * US)
    result = run(steps)
    assert path_of(result) == [("kernel", 1, "backward", 0, 12), ("transfer", 0, "allreduce of dp", 12, 32)]
    assert (figure(result, "step_path.kernel"), figure(result, "step_path.transfer")) == pytest.approx((12e-6, 20e-6))
    assert figure(result, "step_path.ranks") == 2


@pytest.mark.theory
def test_the_critical_path_follows_a_sender_that_waits_to_the_receiver(run):
    """Rank 0 has its message ready at 10, rank 1 comes to it behind a kernel of 100; it takes 40."""
    steps = Steps(2, {"pp": [0, 1]})
    for rank, name, takes in ((0, "ready", 10), (1, "late", 100)):
        steps.launch(rank, takes * US, name=name)
        steps.send(rank, 1 - rank, 2_000_000, receives=rank == 1, stream=20, group="pp", duration_ps=40 * US)
        steps.group_end(rank, [0])
    steps.launch(0, 50 * US, name="next")
    assert path_of(run(steps)) == [
        ("kernel", 1, "late", 0, 100), ("message", 0, "", 100, 140), ("kernel", 0, "next", 140, 190),
    ]  # fmt: skip


@pytest.mark.theory
def test_the_critical_path_follows_a_message_to_its_sender_and_a_thread_to_the_other(run):
    """A message of rank 2 comes to rank 1 before the one that it waits for."""
    steps = Steps(3, {"pp": [0, 1, 2]})
    steps.launch(0, 10 * US, name="forward")
    for source in (2, 0):
        steps.send(source, 1, 1_000_000, stream=20, group="pp")
        steps.group_end(source, [0])
        steps.send(1, source, 1_000_000, receives=True, request=source, group="pp")
    steps.group_end(1, [2, 0])
    steps.launch(1, 5 * US, stream=84, name="next")
    result = run(steps, target_network={"intra_node": {"latency": "0.5 us", "bandwidth": "8 GB/s"}})
    assert path_of(result) == [
        ("kernel", 0, "forward", 0, 10), ("message", 1, "", 10, 135), ("kernel", 1, "next", 135, 140),
    ]  # fmt: skip
    two = Steps(1)
    two.mark(0, gap=4 * US)
    two.signal(0, 1, 0, gap=2 * US)
    two.wait_for_thread(0, 1, 1)
    two.launch(0, 3 * US, thread=1, gap=1 * US, name="backward")
    assert path_of(run(two)) == [("host", 0, "", 0, 7), ("kernel", 0, "backward", 7, 10)]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("gpu", "ends_us"),
    [
        ({}, [30, 31]),
        ({"skew": False}, [26, 26]),  # all-reduce 2 to 22, backward 20 to 23, which the host waits for
        ({"collectives": "free"}, [26, 31]),  # of rank 0 from 7 to 7
        ({"slower": {1: 2.0}}, [30, 34]),  # rank 1: forward 5 to 25, backward 25 to 31
    ],
)
def test_what_ifs_of_steps(run, gpu, ends_us):
    assert [row["end_ps"] // US for row in run(overlapped(), gpu=gpu).steps.to_pylist()] == ends_us


def test_a_rank_that_is_not_there_cannot_be_slower(run):
    with pytest.raises(UserError, match=r"gpu\.slower: rank 2 is not one of the trace's 2"):
        run(overlapped(), gpu={"slower": {2: 1.5}})
