"""Traces of Kineto's made by hand: where sizes of collectives come from."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from kineto_traces import MAIN, Recorded, codes, gpu_rows, host_trace, told

from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers import kineto

_US = 1_000_000
_G = GpuOperationKind


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
    assert codes(found) == ["collective-sizes-unknown"]


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


@pytest.mark.parametrize(
    "description",
    [
        {"In msg nelems": 2**61},
        {"In msg nelems": -5},
        {"Collective name": "all_to_allv", "In split size": f"[{10**30}]", "Out split size": "[4]"},
        {"Collective name": "all_to_allv", "In split size": "[-5]", "Out split size": "[-5]"},
        {"dtype": "quad"},
        None,
    ],
)
def test_sizes_that_cannot_be_are_not_told(tmp_path: Path, description: dict[str, object] | None) -> None:
    """Of a kernel's description, or (None) of a mark: as bytes they are beyond 64 bits, negative, or no numbers."""
    made = Recorded()
    shape = {"Input Dims": [[2**62, 2**62]], "Input type": ["double"]}
    made.add("user_annotation", "nccl:all_reduce", 8, 10, MAIN, **shape)
    of = {} if description is None else told("allreduce", 4, members="[0]", **{"Group size": 1}) | description
    made.launch(10, 20, 30, 20, "ncclDevKernel_Generic(x)", **of)
    found = kineto.read(made.write(tmp_path / "a.json"))
    (own,) = (each for each in found.tables["operations"].to_pylist() if each["kind"] != "other")
    assert own["bytes"] == 0
    assert codes(found) == ["collective-sizes-unknown"]
