"""The reader of Nsight Systems' SQLite exports: groups of NCCL's calls, graphs, and what the export does not tell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from nsys_files import Export, rank

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind as G
from manyscale.runner.errors import UserError
from manyscale.runner.readers import nsys

US = 1_000_000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
MOVE = "ncclDevKernel_SendRecv(x)"


def grouped(path: Path, pid: int, kernels: tuple[str, ...], *calls: str) -> Path:
    """Calls between ncclGroupStart and ncclGroupEnd, which launches the kernels; then an all-reduce of 64 bytes."""
    made = Export(path, pid, later=True)
    made.mark("ncclGroupStart", 0, 1)
    for at, call in enumerate(calls):
        made.mark(f"{call}, type_size 4", 2 + at, 2.5 + at)
    made.mark("ncclGroupEnd", 20, 40)
    for at, kernel in enumerate(kernels):
        launched = made.call("cuLaunchKernelEx", 21 + 2 * at, 22 + 2 * at)
        made.kernel(kernel, 50 + 10 * at, 60 + 10 * at, launched, 20 + at)
    made.mark("ncclAllReduce(): commHash 0xab, data_size 64, type_size 4", 100, 110)
    made.kernel(REDUCE, 120, 130, made.call("cuLaunchKernelEx", 101, 102), 20)
    return made.write()


def collectives(workload: Workload) -> list[tuple[str, int, int]]:
    """(kind, bytes, partner) of the first rank's."""
    rows = workload.tables["operations"].to_pylist()
    return [
        (each["kind"], each["bytes"] + each["receive_bytes"] * (each["kind"] == "irecv"), each["peer"])
        for each in rows if each["rank"] == 0 and each["kind"] not in ("other", "waitall")
    ]  # fmt: skip


def test_one_kernel_of_several_collectives_has_their_sizes(tmp_path: Path) -> None:
    for pid in (1, 2):
        calls = [f"ncclAllReduce(): commHash 0xab, data_size {size}" for size in (64, 400)]
        grouped(tmp_path / f"{pid}.sqlite", pid, (REDUCE,), *calls)
    assert collectives(nsys.read(tmp_path)) == [("allreduce", 464, -2), ("allreduce", 64, -2)]


def test_kernels_of_a_group_are_its_calls_in_their_order(tmp_path: Path) -> None:
    """Of two communicators, one kernel each."""
    for pid in (1, 2):
        calls = [f"ncclAllReduce(): commHash 0xa{number}, data_size {64 * number}" for number in (1, 2)]
        grouped(tmp_path / f"{pid}.sqlite", pid, (REDUCE, REDUCE), *calls)
    assert collectives(nsys.read(tmp_path))[:2] == [("allreduce", 64, -2), ("allreduce", 128, -2)]


def test_communicators_are_those_of_their_names(tmp_path: Path) -> None:
    """Of four processes the first two have one, the others another, and all a third; each has its own one first."""
    for pid in range(4):
        own = f"ncclAllReduce(): commHash 0x{pid // 2 + 1:x}, data_size {64 * (pid // 2 + 1)}"
        grouped(tmp_path / f"{pid}.sqlite", pid + 1, (REDUCE,), own)
    found = nsys.read(tmp_path)
    assert found.tables["communicators"]["members"].to_pylist() == [[0, 1, 2, 3], [0, 1], [0, 1, 2, 3], [2, 3]]
    assert not {"groups-assumed", "one-group-assumed"} & {note.code for note in found.notes}


def test_a_message_in_a_group_has_its_partner(tmp_path: Path) -> None:
    for pid, call in ((1, "ncclSend(): commHash 0xc, data_size 256, receiver_rank 1"),
                      (2, "ncclRecv(): commHash 0xc, data_size 256, sender_rank 0")):  # fmt: skip
        grouped(tmp_path / f"{pid}.sqlite", pid, (MOVE,), call)
    assert collectives(nsys.read(tmp_path)) == [("isend", 256, 1), ("allreduce", 64, -2)]


def test_messages_in_one_kernel_take_its_time(tmp_path: Path) -> None:
    """A send and a receive: whom the kernel waits for is not told by its ranges' order."""
    for pid in (1, 2):
        calls = [f"nccl{call}(): commHash 0xc, data_size 256, peer {2 - pid}" for call in ("Send", "Recv")]
        grouped(tmp_path / f"{pid}.sqlite", pid, (MOVE,), *calls)
    found = nsys.read(tmp_path)
    assert collectives(found) == [("allreduce", 64, -2)]
    assert "communication-alone" in {note.code for note in found.notes}


@pytest.mark.parametrize("end", [90, 0])
def test_a_graph_that_was_traced_as_a_whole_is_a_kernel(tmp_path: Path, end: float) -> None:
    """From 20 to 90 us; or without times, which CUPTI writes as 0."""
    made = Export(tmp_path / "a.sqlite", later=True)
    made.graph(20, end, made.call("cudaGraphLaunch_v10000", 5, 10))
    found = nsys.read(made.write())
    (row,) = found.tables["gpu_operations"].to_pylist()
    assert (row["kind"], row["duration_ps"]) == (G.launch, 70 * US if end else 0)
    assert found.tables["kernels"].column("kernel_name").to_pylist() == ["CUDA graph 1"]
    assert ("events-untimed" in {note.code for note in found.notes}) == (not end)
    assert "graphs-whole" in {note.code for note in found.notes}


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"])
def test_names_that_are_in_no_text_are_told(tmp_path: Path, table: str) -> None:
    """A call without a name may be one that waits, a kernel one of NCCL's."""
    path = rank(tmp_path / "a.sqlite").write()
    with closing(sqlite3.connect(path)) as database, database:
        column = "nameId" if table.endswith("RUNTIME") else "demangledName = 999, shortName"
        database.execute(f"UPDATE {table} SET {column} = 999 WHERE rowid = 1")
    (note,) = (each for each in nsys.read(path).notes if each.code == "names-unknown")
    assert (note.count, table in note.text) == (1, True)


def test_columns_without_which_nothing_is_known(tmp_path: Path) -> None:
    path = rank(tmp_path / "a.sqlite").write()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN nameId")
    with pytest.raises(UserError, match=r"a\.sqlite: table CUPTI_ACTIVITY_KIND_RUNTIME has no column nameId"):
        nsys.read(path)


def test_a_later_schema_is_told(tmp_path: Path) -> None:
    made = rank(tmp_path / "a.sqlite", later=True)
    made.version = "4.1.0"
    assert "schema-unknown" in {note.code for note in nsys.read(made.write()).notes}


def test_kernels_whose_process_is_not_told(tmp_path: Path) -> None:
    """Calls of both processes have the correlations from 1; the kernels of an older export name no process."""
    one, two = rank(tmp_path / "a.sqlite"), rank(tmp_path / "b.sqlite", pid=99)
    name = "CUPTI_ACTIVITY_KIND_RUNTIME"
    one.rows[name] += two.rows[name]
    one.rows["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        (*row[:6], None, *row[7:]) for row in one.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    ]
    assert "calls-ambiguous" in {note.code for note in nsys.read(one.write()).notes}


def test_sessions_begin_when_they_say(tmp_path: Path) -> None:
    """Two files without collectives: the second session began 3 ms later, and its first call 1 ms later in it."""
    for number in range(2):
        made = Export(tmp_path / f"{number}.sqlite", later=True)
        made.session_ns += 3_000_000 * number
        at = 1000 * number
        made.kernel("gemm", at + 20, at + 30, made.call("cudaLaunchKernel", at, at + 5))
        made.write()
    found = nsys.read(tmp_path)
    (sleep,) = (each for each in found.tables["phases"].to_pylist() if each["kind"] == 1)
    assert (sleep["rank"], sleep["duration_ps"]) == (1, 4_000 * US)
    assert "clocks-apart" in {note.code for note in found.notes}


def test_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Kernels last 5 us more for each: 10 is the last of eleven."""
    for number in range(11):
        made = Export(tmp_path / f"node-1.rank{number}.sqlite")
        made.kernel("gemm", 20, 25 + 5 * number, made.call("cudaLaunchKernel", 5, 10))
        made.write()
    rows = nsys.read(tmp_path).tables["gpu_operations"].to_pylist()
    assert [each["duration_ps"] // US for each in rows] == [5 + 5 * number for number in range(11)]


def test_sessions_of_different_jobs_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        made = rank(tmp_path / f"{number}.sqlite", later=True)
        made.session_ns += 7_200 * 10**9 * number
        made.write()
    with pytest.raises(UserError, match=r"1\.sqlite: begins 2 h behind the end of .*0\.sqlite; give traces of one job"):
        nsys.read(tmp_path)
