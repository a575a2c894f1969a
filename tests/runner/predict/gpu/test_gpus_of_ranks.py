"""Which GPU of its node a rank has, by how its ranks were traced and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from gpu_steps import US, G, Steps

import manyscale
from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.streams.given import Devices, given_of, on_machine, shares_gpu


def launching(devices: Sequence[int]) -> Steps:
    """A rank for each, with a launch on this device; thread 1 tells thread 0 of it."""
    steps = Steps(len(devices), {"all": range(len(devices))})
    for rank, device in enumerate(devices):
        steps.signal(rank, 1, thread=1)
        steps.wait_for_thread(rank, 1, thread=0)
        steps.launch(rank, 5 * US, device=device)
    return steps


def gpus(devices: Sequence[int], node: Sequence[int], num_gpus: int = 4) -> list[int]:
    """Of each rank that of its node, all that it does being on one."""
    nodes = np.array(node)
    found = on_machine(given_of(launching(devices).workload()), nodes, num_gpus)
    pairs = np.unique(np.stack((found.rank, found.gpu)), axis=1)
    assert pairs.shape[1] == len(devices)
    assert np.array_equal(pairs[1] // num_gpus, nodes)
    return (pairs[1] % num_gpus).tolist()


@pytest.mark.theory
@pytest.mark.parametrize(
    ("devices", "node", "expected"),
    [
        ([0, 1, 2, 3, 0, 1], [0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1]),  # as traced
        ([2, 3, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1], [2, 3, 0, 1, 1, 0]),  # as traced
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1]),  # each process sees one
        ([0, 1, 2, 3, 0, 1, 2, 3], [0, 1] * 4, [0, 0, 1, 1, 2, 2, 3, 3]),  # cyclic: devices 0 and 2 twice on a node
        ([0, 1, 2, 3, 0, 1, 2, 3], [1, 0, 1, 1, 1, 0, 0, 0], [0, 0, 1, 2, 3, 1, 2, 3]),  # at random
    ],
)
def test_ranks_of_a_node_have_gpus_of_their_own_while_there_are_some(devices, node, expected):
    assert gpus(devices, node) == expected


@pytest.mark.theory
def test_a_rank_of_several_devices_keeps_their_numbers():
    steps = launching([0, 0])
    for device in (0, 1):
        steps.launch(0, 5 * US, device=device)
    steps.launch(1, 5 * US, device=2)
    found = on_machine(given_of(steps.workload()), np.zeros(2, int), 4)
    pairs = Devices.of(found)
    assert list(zip(pairs.rank.tolist(), pairs.device.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 2)]
    assert shares_gpu(found) == 2


def test_ranks_that_share_a_gpu_are_told_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Three ranks on a node of two GPUs, without and with a collective, which NCCL refuses on one GPU."""
    steps = launching([0, 0, 0])

    def run(**choice: bool) -> manyscale.RunResult:
        workload = steps.workload()
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        target = {"name": "dgx-a100", "node": {"gpus": 2}}
        content = {"schema": 1, "workload": {"path": "steps"}, "target": target, "mapping": {"ranks_per_node": 3}}
        return manyscale.run({**content, "gpu": choice}, executor="local", cache=tmp_path, report=False)

    for mps in (False, True):
        result = run(mps=mps)
        told = [note for note in result.notes if note.code.startswith("gpus-shared")]
        assert [(note.count, note.severity) for note in told] == [(2, "changes" if mps else "informs")]
        rows = [row for row in result.gpu_streams.to_pylist() if row["operation"] == G.launch.name]
        begins = sorted(row["start_ps"] for row in rows)
        took = rows[0]["end_ps"] - rows[0]["start_ps"]
        assert begins == [2 * US, 2 * US, 2 * US + (0 if mps else took)]  # the last has the first one's GPU
    for rank in range(3):
        steps.collective(rank, OperationKind.allreduce, 1000, "all", takes=5 * US)
    with pytest.raises(UserError, match="give each rank a GPU of its own") as found:
        run()
    assert "\n" not in str(found.value)


@pytest.mark.theory
def test_groups_of_a_rank_go_over_the_links_of_the_gpus_that_they_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a DGX-1 two NVLinks join GPUs 0 and 3, and none 1 and 4: PCIe carries 12 GB/s there, of 2 x 1/2 x 100 MB."""
    steps = Steps(2, {"joined": [0, 1], "apart": [0, 1]})
    for group, devices in (("joined", (0, 3)), ("apart", (1, 4)), ("joined", (0, 3))):
        for rank, device in enumerate(devices):
            steps.collective(rank, OperationKind.allreduce, 100_000_000, group, device=device)
    for rank, device in enumerate((0, 3)):
        steps.launch(rank, 5 * US, device=device)
    workload = steps.workload()
    monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
    content = {"schema": 1, "workload": {"path": "steps"}, "target": "dgx1-v100"}
    result = manyscale.run(content, executor="local", cache=tmp_path, report=False)
    took = {row["group_name"]: (row["end_ps"] - row["start_ps"]) / US for row in result.collectives.to_pylist()}
    assert took["apart"] == pytest.approx(100_000_000 / 12e3, rel=0.1)
    assert took["joined"] < took["apart"] / 2
