"""Traces of Kineto's made by hand: which groups, collectives and ranks follow from them, and which files are read."""

from __future__ import annotations

import gzip
import re
import tarfile
from pathlib import Path

import pytest
from kineto_traces import ONE_STEP, Recorded, codes, gpu_rows, told, two_ranks

from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import kineto
from manyscale.runner.study.traces import read_workload
from manyscale.runner.study.workload import WorkloadChoice

_US = 1_000_000
_G = GpuOperationKind
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def exchange(folder: Path, splits: list[list[int]], received: list[list[int]]) -> Path:
    for rank in range(2):
        made = Recorded(rank, 2)
        sent = {"In split size": str(splits[rank]), "Out split size": str(received[rank])}
        told_of = told("all_to_allv", sum(splits[rank]), **sent) | {"Out msg nelems": sum(received[rank])}
        made.launch(10, 20, 30, 20, "ncclDevKernel_SendRecv(ncclDevComm*)", **told_of)
        made.write(folder / f"rank{rank}.json")
    return folder


def test_an_all_to_all_has_the_parts_of_its_matrix(tmp_path: Path) -> None:
    found = kineto.read(exchange(tmp_path, [[1, 2], [3, 4]], [[1, 3], [2, 4]]))
    own = [each for each in found.tables["operations"].to_pylist() if each["kind"] == "alltoallv"]
    assert [(each["send_counts"], each["receive_counts"]) for each in own] == [([4, 8], [4, 12]), ([12, 16], [8, 16])]


def test_parts_that_form_no_matrix(tmp_path: Path) -> None:
    folder = exchange(tmp_path, [[1, 2], [3, 4]], [[1, 3], [5, 4]])
    with pytest.raises(
        UserError, match=r"rank0.json: group 'default_pg': collective 1: rank 0 sends 2 elements to rank 1"
    ):
        kineto.read(folder)


def test_a_collective_that_one_rank_lacks(tmp_path: Path) -> None:
    for rank, sizes in enumerate(([10, 20, 30], [10, 30])):
        made = Recorded(rank, 2)
        for at, size in enumerate(sizes):
            made.launch(100 * at, 100 * at + 10, 20, 20, COLLECTIVE, **told("allreduce", size))
        made.write(tmp_path / f"rank{rank}.json")
    expected = (
        "group 'default_pg': rank 1 has 2 collectives, rank 0 3; they differ first at number 2: rank 0's is allreduce "
        "of 80 bytes, rank 1's allreduce of 120 bytes"
    )
    with pytest.raises(UserError, match=re.escape(expected)):
        kineto.read(tmp_path)


def test_ranks_that_are_missing_are_said(tmp_path: Path) -> None:
    made = Recorded(3, 4)
    made.launch(10, 20, 30, 20, COLLECTIVE, **told("allreduce", 10, members="[1, 3]"))
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert found.num_ranks == 1
    assert gpu_rows(found, _G.communication)[0]["duration_ps"] == 30 * _US
    assert [str(note) for note in found.notes if note.code != ONE_STEP] == [
        "changes [ranks-missing] 3 of 4 ranks were not traced (there are 3, numbered from 0 here): collectives of "
        "groups that lack one take the time that they took, with the wait for those that are not there"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda made: made.head["distributedInfo"].update(world_size=8), "is of a job of"),
        (lambda made: made.head["distributedInfo"].update(rank=0), "is of rank 0, as .*rank0.json is"),
        (lambda made: made.head.update(baseTimeNanoseconds=10**16), "h behind the end of"),
        (lambda made: made.step(8, 0, 50), "rank 1's first step is 8, and rank 0's 7"),
    ],
)
def test_traces_of_different_jobs(tmp_path: Path, change, expected: str) -> None:  # type: ignore[no-untyped-def]
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(10, 20, 30)
        if not rank:
            made.step(7, 0, 50)
        if rank:
            change(made)
        made.write(tmp_path / f"rank{rank}.json")
    with pytest.raises(UserError, match=expected):
        kineto.read(tmp_path)


def test_ranks_that_mark_no_steps_are_told(tmp_path: Path) -> None:
    for rank in range(2):
        made = Recorded(rank, 2)
        made.launch(10, 20, 30)
        if rank:
            made.step(3, 0, 50)
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    assert codes(found) == ["steps-unmarked"]
    assert [each["rank"] for each in found.tables["steps"].to_pylist()] == [1]


def test_steps_of_one_number_are_told(tmp_path: Path) -> None:
    """As of two epochs: what the second one takes is no step, and is not compared."""
    made = Recorded()
    for at, number in enumerate((0, 1, 0, 1)):
        made.step(number, 1000 * at, 100 + at)
        made.launch(1000 * at + 10, 1000 * at + 20, 30)
    found = kineto.read(made.write(tmp_path / "a.json"))
    assert [(note.code, note.count) for note in found.notes] == [("steps-repeated", 2)]
    rows = found.tables["measured_steps"].to_pylist()
    assert [(each["step"], (each["end_ps"] - each["start_ps"]) // _US) for each in rows] == [(0, 100), (1, 101)]


def test_ranks_by_the_names_of_files(tmp_path: Path) -> None:
    """A model's name is no rank's: "resnet_50" is counted by its place; a time is no rank, either."""
    for name in ("resnet_50", "resnet_101"):
        made = Recorded()
        made.head["distributedInfo"] = {}
        made.launch(10, 17, 5)
        made.write(tmp_path / f"{name}.json")
    found = kineto.read(tmp_path)
    assert (found.num_ranks, codes(found)) == (2, [])
    made.write(tmp_path / "rank1695835535.json")
    with pytest.raises(UserError, match=r"rank1695835535.json: is of a job of 1695835536 ranks; at most 16777216"):
        kineto.read(tmp_path)


def test_ranks_by_the_order_of_files(tmp_path: Path) -> None:
    """Nothing but the number in a name tells which is which; kernels last 5 us more for each."""
    for number in range(11):
        made = Recorded()
        made.head["distributedInfo"] = {}
        made.launch(10, 17, 5 + 5 * number)
        made.write(tmp_path / f"part{number}.json")
    rows = gpu_rows(kineto.read(tmp_path))
    assert [each["duration_ps"] // _US for each in rows] == [5 + 5 * number for number in range(11)]


def test_a_trace_that_was_cut(tmp_path: Path) -> None:
    whole = two_ranks(tmp_path) / "rank1.pt.trace.json"
    whole.write_bytes(whole.read_bytes()[:1500])
    with pytest.raises(UserError, match=r"rank1.pt.trace.json: line 1: the JSON ends in the middle; the trace was cut"):
        kineto.read(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 40], ids=["empty", "a bracket", "no event"])
@pytest.mark.parametrize("how", ["plain", "gzip", "archive"])
def test_a_rank_that_was_cut_before_its_first_event_is_not_left_out(tmp_path: Path, how: str, kept: int) -> None:
    folder = two_ranks(tmp_path / "job")
    path = folder / "rank1.pt.trace.json"
    path.write_bytes(path.read_bytes()[:kept])
    expected = "is empty" if not kept else "line 1: the JSON ends in the middle; the trace was cut"
    if how == "gzip":
        whole = gzip.compress(path.read_bytes() + bytes(100))
        path.unlink()
        path = folder / "rank1.pt.trace.json.gz"
        path.write_bytes(whole[: 12 + kept // 8])
        expected = "the archive is damaged or cut short"
    job = folder
    if how == "archive":
        job = tmp_path / "job.tar"
        with tarfile.open(job, "w") as archive:
            archive.add(folder, "job")
    with pytest.raises(UserError, match=rf"rank1\.pt\.trace\.json.*: {expected}"):
        kineto.read(job)
    if how != "archive":
        with pytest.raises(UserError, match=rf"rank1\.pt\.trace\.json.*: {expected}"):
            read_workload(WorkloadChoice(path=str(path)))


def test_an_archive_is_its_files(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path / "job")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.add(folder, "job")
    assert kineto.can_read(tmp_path / "job.tar.gz")
    assert kineto.read(tmp_path / "job.tar.gz").digest == kineto.read(folder).digest


def test_a_number_that_is_none_by_the_book(tmp_path: Path) -> None:
    """NaN, which Kineto has written, is no JSON."""
    path = two_ranks(tmp_path / "job") / "rank0.pt.trace.json"
    before = kineto.read(path.parent).digest
    path.write_text(path.read_text().replace('"bytes": 4', '"bytes": 4, "memory bandwidth (GB/s)": NaN'))
    assert kineto.read(path.parent).digest == before


def test_kinds_of_operations(tmp_path: Path) -> None:
    names = {"_allgather_base": "allgather", "_reduce_scatter_base": "reduce_scatter", "broadcast": "bcast",
             "reduce": "reduce", "allreduce_coalesced": "allreduce"}  # fmt: skip
    made = Recorded(0, 1)
    for at, name in enumerate(names):
        made.launch(100 * at, 100 * at + 10, 20, 20, "ncclDevKernel_Generic()", **told(name, 8, members="[0, 1]"))
    found = kineto.read(made.write(tmp_path / "a.json"))
    kinds = [OperationKind(each).name for each in found.column("operations", "kind").tolist()]
    assert [each for each in kinds if each != "other"] == list(names.values())


def test_groups_whose_long_lists_of_ranks_were_cut(tmp_path: Path) -> None:
    """Two groups of two, and one of all four, by their names and sizes; each part of a reduce-scatter is half of the
    32 bytes that a rank of a group of two sends."""
    cut = {"members": "[0, ..., 3]"}
    for rank in range(4):
        made = Recorded(rank, 4)
        of_two = told("_reduce_scatter_base", 8, str(1 + rank // 2), **cut)
        made.launch(10, 20, 30, 20, "ncclDevKernel_ReduceScatter(x)", **of_two)
        of_all = told("allreduce", 8, "0", **cut, **{"Group size": 4})
        made.launch(110, 120, 30, 24, COLLECTIVE, **of_all)
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    assert found.tables["communicators"]["members"].to_pylist()[1:] == [[0, 1], [0, 1, 2, 3], [2, 3]]
    rows = found.tables["operations"].to_pylist()
    assert [each["receive_counts"] for each in rows if each["kind"] == "reduce_scatter"] == [[16, 16]] * 4
    assert codes(found) == []


def test_groups_without_names_are_those_that_use_them(tmp_path: Path) -> None:
    """Ranks 0 and 1 alone use a second one: its parts are halves of 32 bytes."""
    description = told("reduce_scatter", 8) | {"Process Group Name": None, "Process Group Ranks": None, "Group size": 0}
    for rank in range(4):
        made = Recorded(rank, 4)
        for stream in (20, 24) if rank < 2 else (20,):
            made.launch(10 * stream, 10 * stream + 10, 30, stream, "ncclDevKernel_ReduceScatter(x)", **description)
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    assert found.tables["communicators"]["members"].to_pylist()[1:] == [[0, 1], [0, 1, 2, 3]]
    rows = found.tables["operations"].to_pylist()
    counts = [each["receive_counts"] for each in rows if each["kind"] == "reduce_scatter" and each["rank"] == 0]
    assert counts == [[8, 8, 8, 8], [16, 16]]
    assert codes(found) == ["groups-assumed"]


def test_a_collective_that_began_before_one_ranks_window(tmp_path: Path) -> None:
    for rank in range(2):
        made = Recorded(rank, 2)
        made.operator("aten::add", 0, 5)
        if rank:
            made.work(999, 5, 10, 20, COLLECTIVE, **told("allreduce", 77))
        made.launch(30, 40, 20, 20, COLLECTIVE, **told("allreduce", 10))
        made.write(tmp_path / f"rank{rank}.json")
    found = kineto.read(tmp_path)
    own = [each for each in found.tables["operations"].to_pylist() if each["kind"] == "allreduce"]
    assert [each["bytes"] for each in own] == [40, 40]
    assert codes(found) == ["given-before-window", "communication-alone"]
