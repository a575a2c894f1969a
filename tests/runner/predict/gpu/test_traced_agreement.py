"""Which collectives keep the times of the trace: those that stand on the target as where they were traced.

An all-reduce in a node needs its NVLinks alone, one between nodes the NICs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gpu_steps import US, V100, Steps

import manyscale
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.workload import SCHEMAS, OperationKind
from manyscale.runner.predict.gpu.traced.agreement import agreement
from manyscale.runner.run.device_collectives import beside_ps
from manyscale.runner.study.targets import shipped_content

ALLREDUCE = OperationKind.allreduce
H100 = "NVIDIA H100 80GB HBM3"
PAIRS = {"pair": [0, 1], "far": [0, 8], "all": list(range(16))}


def nccl_of(target: str, **changes: Any) -> Nccl:
    content = shipped_content(target)
    assert content is not None
    return Nccl.model_validate({**content["network"]["nccl"], **changes})


def kept(
    nccl: Nccl, node: Sequence[int], gpu: Sequence[int], gpu_name: str = V100, devices: Sequence[int] | None = None
) -> tuple[list[str], list[str]]:
    """Names of groups that keep their times, and reasons of others; 16 ranks, traced on two nodes of eight."""
    workload = Steps(16, PAIRS, gpu_name).workload()
    devices = [rank % 8 for rank in range(16)] if devices is None else devices
    traced = workload.tables["traced_gpus"]
    workload.tables["traced_gpus"] = traced.set_column(1, traced.schema.field(1), pa.array(devices, pa.int32()))
    found = agreement(workload, nccl, 8, np.array(node), np.array(gpu), is_same_gpu=True)
    named = {name: int(found.why[1 + number]) for number, name in enumerate(PAIRS)}
    return [name for name, why in named.items() if why < 0], [found.reasons[why] for why in named.values() if why >= 0]


BLOCKS = [0] * 8 + [1] * 8
IN_TURN = [*range(8), *range(8)]


@pytest.mark.theory
def test_groups_that_stand_as_where_they_were_traced_keep_their_times():
    assert kept(nccl_of("dgx1-v100"), BLOCKS, IN_TURN) == (["pair", "far", "all"], [])
    assert kept(nccl_of("dgx1-v100"), BLOCKS, IN_TURN, devices=[0] * 16) == (["pair", "far", "all"], [])
    assert kept(nccl_of("dgx1-v100"), [1] * 8 + [0] * 8, IN_TURN)[0] == ["pair", "far", "all"]  # nodes are alike


@pytest.mark.theory
def test_groups_on_other_nodes_or_gpus_do_not():
    cyclic = [rank % 2 for rank in range(16)]
    names, reasons = kept(nccl_of("dgx1-v100"), cyclic, [rank // 2 for rank in range(16)])
    assert names == []
    assert {reason.partition(" on other nodes or GPUs")[0] for reason in reasons} == {"their ranks stand"}
    other = [1, 0, *range(2, 8), *range(8)]  # of a mesh, where pairs have different links
    assert kept(nccl_of("dgx1-v100"), BLOCKS, other)[0] == []
    switched = kept(nccl_of("dgx-a100"), BLOCKS, other, "NVIDIA A100-SXM4-40GB")[0]
    assert switched == ["pair"]  # all pairs of a switch are alike; far begins at another NIC


@pytest.mark.theory
def test_each_job_was_traced_on_nodes_of_its_own():
    """Of processes that see a GPU each: the second job had a node, and on the target its ranks stand on two."""
    groups = {"first": [0, 1, 2, 3], "second": [4, 5, 6, 7, 8, 9, 10, 11]}
    workload = Steps(12, groups, V100).workload()
    workload.tables["jobs"] = pa.table([["a", "b"], [0, 4], [4, 8]], schema=SCHEMAS["jobs"])
    for node, gpu, stay in (([0] * 8 + [1] * 4, [*range(8), *range(4)], [True, False]),
                            ([0] * 4 + [1] * 8, [*range(4), *range(8)], [True, True])):  # fmt: skip
        found = agreement(workload, nccl_of("dgx1-v100"), 8, np.array(node), np.array(gpu), is_same_gpu=True)
        assert (found.why[1:] < 0).tolist() == stay


@pytest.mark.theory
def test_another_link_changes_the_groups_that_use_it():
    nics = {"count": 4, "bandwidth": "1 GB/s"}
    names, (reason, _) = kept(nccl_of("dgx1-v100", nics=nics), BLOCKS, IN_TURN)
    assert names == ["pair"]
    assert "network.nccl.nics than dgx1-v100" in reason
    links = {"kind": "switch", "links": 6, "link_bandwidth": "25 GB/s"}
    assert kept(nccl_of("dgx1-v100", nvlink=links), BLOCKS, IN_TURN)[0] == []


@pytest.mark.theory
def test_a_trace_that_may_be_of_two_machines_agrees_with_what_these_have_in_common():
    """dgx-h100 and p5 have the same GPUs and NVSwitches, and other NICs."""
    for target in ("dgx-h100", "p5"):
        names, reasons = kept(nccl_of(target), BLOCKS, IN_TURN, H100)
        assert names == ["pair"]
        assert all("one of the 2 shipped targets" in reason and "nics" in reason for reason in reasons)


def reduced() -> Steps:
    """Eight ranks on eight V100, each of the first device that its process sees."""
    steps = Steps(8, {"a": list(range(8))})
    for rank in range(8):
        steps.collective(rank, ALLREDUCE, 1_000_000, "a", takes=4000 * US)
        steps.synchronize(rank)
    return steps


def test_a_run_says_which_collectives_keep_the_times_of_the_trace_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each on dgx1-v100, or a whole machine like it, as of a run that is resumed: 4 ms are of no model."""
    workload = reduced().workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)

    def run(**keys: Any) -> tuple[bool, Callable[[str], str]]:
        content = {"schema": 1, "workload": {"path": "steps"}, "target": "dgx1-v100", **keys}
        result = manyscale.run(content, executor="local", cache=tmp_path, report=False)
        took = {row["end_ps"] - row["start_ps"] for row in result.collectives.to_pylist()}
        return took == {4000 * US}, lambda code: "".join(note.text for note in result.notes if note.code == code)

    is_kept, told = run()
    assert is_kept
    assert "taken to be of dgx1-v100" in told("collectives-traced")
    assert run(target=shipped_content("dgx1-v100"))[0]
    assert run(target={"name": "dgx1-v100", "network": {"latency": "9 us"}})[0]  # of MPI
    is_kept, told = run(mapping={"ranks_per_node": 4})
    assert not is_kept
    assert "on other nodes or GPUs" in told("collectives-not-as-traced")
    assert "(groups a); gpu.collectives: traced keeps them" in told("collectives-not-as-traced")
    is_kept, told = run(mapping={"ranks_per_node": 4}, gpu={"collectives": "traced"})
    assert is_kept
    assert "on other nodes or GPUs" in told("collectives-as-traced")
    assert not told("collectives-traced")


def test_collectives_and_messages_without_size_or_time_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of group a one of three has neither; b's all-to-all says that nobody sends, and a barrier has no size."""
    steps = Steps(2, {"a": [0, 1], "b": [0, 1]})
    for rank in range(2):
        steps.launch(rank, 1 * US)
        for size, takes in ((1000, -1), (0, -1), (0, 10 * US)):
            steps.collective(rank, ALLREDUCE, size, "a", takes=takes)
        steps.collective(rank, OperationKind.barrier, 0, "b")
        row = steps.collective(rank, OperationKind.alltoallv, 0, "b")
        steps.operations[rank][row] |= {"send_counts": [0, 0], "receive_counts": [0, 0]}
        steps.send(rank, 1 - rank, 0, receives=rank == 1)
        steps.group_end(rank, [0])
    workload = steps.workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
    content = {"schema": 1, "workload": {"path": "steps"}, "target": "dgx1-v100"}
    notes = manyscale.run(content, executor="local", cache=tmp_path, report=False).notes
    told = {note.code: note for note in notes}
    assert told["collectives-unsized"].count == 1
    assert "(groups a)" in told["collectives-unsized"].text
    assert told["messages-unsized"].count == 1


@pytest.mark.theory
def test_collectives_whose_parts_differ_take_what_all_parts_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On 4 V100 an all-gather of 80, 0, 0, 0 MB moves what one of 80/3 MB from each does, a scatter and a gather of
    30, 10, 20 MB what those of 20 do; where no part is told, all are taken to be equal."""
    parts = {"list": [80_000_000, 0, 0, 0], "even": [26_666_667] * 4}
    steps = Steps(4, {name: range(4) for name in (*parts, "scattered", "gathered", "scatter", "gather", "unknown")})
    blocks, root = [30_000_000, 0, 10_000_000, 20_000_000], 1
    for rank in range(4):
        steps.launch(rank, 1 * US)
        for name, sizes in parts.items():
            steps.collective(rank, OperationKind.allgather, sizes[rank], name)
        for kind, size, name in (
            (OperationKind.scatterv, 0, "scattered"),
            (OperationKind.gatherv, blocks[rank], "gathered"),
            (OperationKind.scatter, 20_000_000, "scatter"),
            (OperationKind.gather, 20_000_000, "gather"),
            (OperationKind.alltoallv, 80_000_000, "unknown"),
        ):
            row = steps.collective(rank, kind, size, name)
            steps.operations[rank][row] |= {} if name == "unknown" else {"peer": root}
            if name == "scattered" and rank == root:
                steps.operations[rank][row] |= {"bytes": sum(blocks), "send_counts": blocks}
    workload = steps.workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
    nvlink = {"kind": "switch", "links": 6, "link_bandwidth": "25 GB/s"}
    target = {"name": "dgx1-v100", "network": {"nccl": {"nvlink": nvlink}}}
    content = {"schema": 1, "workload": {"path": "steps"}, "target": target}
    result = manyscale.run(content, executor="local", cache=tmp_path, report=False)
    took = {row["group_name"]: row["end_ps"] - row["start_ps"] for row in result.collectives.to_pylist()}
    assert took["list"] == pytest.approx(took["even"], rel=1e-5)
    assert took["scattered"] == pytest.approx(took["scatter"], rel=1e-5)
    assert took["gathered"] == pytest.approx(took["gather"], rel=1e-5)
    told = {note.code: note for note in result.notes}
    assert "(groups unknown)" in told["collectives-evened"].text
    assert "collectives-unsized" not in told


def test_collectives_of_which_no_table_tells_are_counted_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """dgx1-v100 has tables of all-reduces within a node: of three collectives one is measured."""
    steps = Steps(16, PAIRS)
    for rank in range(16):
        steps.launch(rank, 1 * US)
        if rank < 2:
            steps.collective(rank, ALLREDUCE, 1 << 20, "pair")
            steps.collective(rank, OperationKind.alltoall, 1 << 20, "pair")
        steps.collective(rank, ALLREDUCE, 1 << 20, "all")
    workload = steps.workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
    content = {"schema": 1, "workload": {"path": "steps"}, "target": "dgx1-v100"}
    notes = manyscale.run(content, executor="local", cache=tmp_path, report=False).notes
    told = [(note.count, "between nodes" in note.text) for note in notes if note.code == "collectives-unmeasured"]
    assert told == [(1, False), (1, True)]


@pytest.mark.theory
@pytest.mark.parametrize(("network", "stream", "told"), [("latency-bandwidth", 85, 1), ("latency-bandwidth", 84, 0),
                                                         ("flow", 85, 0)])  # fmt: skip
def test_collectives_beside_each_other_that_do_not_share_links_are_told(tmp_path, monkeypatch, network, stream, told):
    """Two of a pair of GPUs, in one stream or two, given at once: of four members' times half is beside another."""
    steps = Steps(2, {"a": [0, 1], "b": [0, 1]})
    for rank in range(2):
        steps.launch(rank, 1 * US)
        steps.collective(rank, ALLREDUCE, 100 << 20, "a")
        steps.collective(rank, ALLREDUCE, 100 << 20, "b", stream=stream)
    workload = steps.workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
    content = {"schema": 1, "workload": {"path": "steps"}, "target": "dgx1-v100", "model": {"network": network}}
    notes = manyscale.run(content, executor="local", cache=tmp_path, report=False).notes
    texts = [note.text for note in notes if note.code == "collectives-beside"]
    assert [text.partition(" of the time")[0] for text in texts] == ["50 %"] * told


@pytest.mark.theory
def test_time_beside_other_collectives_is_of_each_rank_on_large_machines_too():
    """On the last of 100,000 ranks, 100 s after the begin: 0 to 10 s, 2 to 5 s and 8 to 12 s, of which 3 + 2 s are
    beside one that began before; the first rank's, at the same time as these, is beside none."""
    s = 10**12
    rank = np.array([99_999, 0, 99_999, 99_999], np.int32)
    begin, end = 100 * s + np.array([[8, 0, 0, 2], [12, 10, 10, 5]]) * s
    of = SimpleNamespace(of_given=np.arange(4))
    taken: Any = SimpleNamespace(traced=SimpleNamespace(collectives=of), by_model=np.ones(4, np.bool_))
    assert beside_ps(taken, rank, begin, end).tolist() == [5 * s, 27 * s]
