"""The reader of Nsight Systems' SQLite exports: what becomes of its rows, NCCL's ranges, and errors with the file.

The files are written after NVIDIA's documentation of the schema; none of a real run is at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nsys_files import Export, rank, sample

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind as G
from manyscale.runner.errors import UserError
from manyscale.runner.readers import nsys
from manyscale.runner.readers.nsys.ranges import Range, collective_args, step_of

US = 1_000_000


@pytest.fixture(params=[False, True], ids=["2022", "2025"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Workload:
    """Rank 1 comes to the all-reduce 25 us late; in the tables of two versions."""
    rank(tmp_path / "rank-0.sqlite", late=25, later=request.param).write()
    rank(tmp_path / "rank-1.sqlite", pid=99, later=request.param).write()
    assert nsys.can_read(tmp_path)
    return nsys.read(tmp_path)


def given(workload: Workload, number: int = 0) -> list[dict[str, Any]]:
    operations = workload.tables["operations"].to_pylist()
    first = int(workload.rank_offsets[number])
    return [
        {**row, "kind": G(row["kind"]).name, "of": operations[first + row["operation_id"]]}
        for row in workload.tables["gpu_operations"].to_pylist() if row["rank"] == number
    ]  # fmt: skip


def test_rows_become_streams_events_and_waits(pair):
    rows = given(pair)
    assert [row["kind"] for row in rows if row["kind"] not in ("record_event", "synchronize_event")] == [
        "launch", "launch", "wait_event", "communication", "copy_to_host", "synchronize_stream",
    ]  # fmt: skip
    assert [row["duration_ps"] for row in rows if row["kind"] == "launch"] == [10 * US, 10 * US]
    wait = next(row for row in rows if row["kind"] == "wait_event")
    record = next(row for row in rows if row["kind"] == "record_event" and row["event"] == wait["event"])
    assert (record["stream"], wait["stream"]) == (7, 20)
    copy = next(row for row in rows if row["kind"] == "copy_to_host")
    assert (copy["bytes"], copy["duration_ps"]) == (256, 4 * US)
    assert [row["kernel_name"] for row in pair.tables["kernels"].to_pylist()] == ["gemm", "add"]
    assert pair.tables["traced_gpus"].column("gpu_name").to_pylist() == ["Tesla V100-SXM2-32GB"] * 2
    assert [row["step"] for row in pair.tables["steps"].to_pylist()] == [3, 3]


def test_a_collective_has_the_size_of_its_range_and_its_true_time(pair):
    (collective,) = (row for row in given(pair) if row["kind"] == "communication")
    assert (collective["of"]["kind"], collective["of"]["bytes"]) == ("allreduce", 4096)
    assert collective["duration_ps"] == 30 * US  # the least of 55 and 30: the rest is waiting


def test_processes_of_one_file_are_ranks(tmp_path):
    one, two = rank(tmp_path / "a.sqlite"), rank(tmp_path / "b.sqlite", pid=99)
    for name, rows in two.rows.items():
        one.rows[name] += [] if name == "StringIds" else rows
    assert nsys.read(one.write()).num_ranks == 2


@pytest.mark.parametrize(
    ("text", "payload", "told"),
    [
        ("ncclAllGather(): commHash 0x1, data_size 64, type_size 2, pid 3", None, ("allgather", 32, "half", "0x1")),
        ("ncclBroadcast", '{"payload": {"Message size [bytes]": 12}}', ("broadcast", 12, "char", None)),
        ("ncclReduceScatter", "no JSON", ("reducescatter", None, None, None)),
        ("ncclAllReduce", '{"bytes": "0x40", "type_size": "0x4", "comm": 7}', ("allreduce", 16, "float", "7")),
        ("ncclAllReduce", '{"bytes": "ff", "type_size": "x"}', ("allreduce", None, None, None)),
        ("ncclAllToAll", '{"bytes": 64}', ("alltoall", None, None, None)),  # a peer's part, which is not all
    ],
)
def test_ranges_of_nccl(text, payload, told):
    args = collective_args(Range(0, 1, text, payload))
    assert args is not None
    assert (args.collective, args.in_elements, args.element_type, args.group) == told


def test_a_reduce_scatter_tells_what_each_gpu_receives(tmp_path):
    """NCCL's ranges hold recvcount (collectives.cc: ncclReduceScatter), not the whole that a GPU hands in."""
    for number in range(4):
        made = Export(tmp_path / f"{number}.sqlite", 7 + number)
        made.mark("ncclReduceScatter(): commHash 0xab, data_size 4096, type_size 4", 1, 4)
        made.kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", 5, 9, made.call("cuLaunchKernelEx", 2, 3))
        made.write()
    workload = nsys.read(tmp_path)
    (found,) = (row["of"] for row in given(workload) if row["kind"] == "communication")
    assert (found["kind"], found["receive_counts"]) == ("reduce_scatter", [4096] * 4)
    assert "collective-sizes-unknown" not in {note.code for note in workload.notes}


def test_the_innermost_range_around_a_launch_tells(tmp_path):
    made = Export(tmp_path / "one.sqlite")
    made.mark("ncclAllReduce(): data_size 64, type_size 4", 0, 100)
    made.mark("ncclAllGather(): data_size 32, type_size 4", 10, 20)
    for launch in (15, 30, 110):
        made.kernel("ncclDevKernel_x", 10 * launch, 10 * launch + 5, made.call("cuLaunchKernelEx", launch, launch + 1))
    workload = nsys.read(made.write())
    assert next(note.count for note in workload.notes if note.code == "collectives-of-ranges") == 2
    own = [row["of"]["kind"] for row in given(workload) if row["kind"] == "communication"]
    assert own[:2] == ["allgather", "allreduce"]


def test_other_ranges():
    assert collective_args(Range(0, 1, "ncclGroupEnd(): pid 3", None)) is None
    assert [step_of(text) for text in ("step 5", "Iteration_12", "ProfilerStep#3", "stepping 4", "forward")] == [
        5, 12, 3, None, None,
    ]  # fmt: skip


def test_collectives_whose_calls_are_missing(tmp_path):
    made = Export(tmp_path / "late.sqlite")
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 40, 70, 7, 20)
    workload = nsys.read(made.write())
    assert [row["kind"] for row in given(workload)].count("communication") == 1
    assert "given-before-window" in {note.code for note in workload.notes}


def test_errors_name_the_file(tmp_path):
    path = sample(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"report\.sqlite: cannot be read as SQLite"):
        nsys.read(path)
    empty = Export(tmp_path / "other.sqlite").write()
    with pytest.raises(UserError, match="no process used a GPU"):
        nsys.read(empty)
    wrong = Export(tmp_path / "wrong.sqlite")
    wrong.kernel("k", 5, 4, 1)
    with pytest.raises(UserError, match=r"wrong\.sqlite: 'k' lasts from"):
        nsys.read(wrong.write())
