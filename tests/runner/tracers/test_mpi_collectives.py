"""Collectives, communicators and neighbours as they are traced: expected values are those of the programs' sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mpi_traces import MpiTrace, Tracing
from told import told
from tracer_programs import Mpi

from manyscale.models.network.program import build_program
from manyscale.runner.readers.raw_trace.calls import Calls
from manyscale.runner.readers.raw_trace.mpi_standard import Role, role_of

pytestmark = pytest.mark.theory
ROOT = 1


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> Tracing:
    return Tracing(mpi, compiled, tracer_cache, tmp_path)


def blocking_collectives(rank: int) -> list[tuple[object, ...]]:
    """(kind, peer, bytes, receive_bytes, send_counts, receive_counts) of collectives.c, in its order, on 4 ranks."""
    one, two, three = ([4 * (first + i) for i in range(4)] for first in (1, 2, 3))
    both = [4 * (rank + i) for i in range(4)]
    doubles = [8 * (rank + i) for i in range(4)]
    is_root = rank == ROOT
    return [
        ("barrier", -2, 0, 0, [], []),
        ("bcast", ROOT, 4, 4, [], []),
        ("reduce", ROOT, 8, 8, [], []),
        ("allreduce", -2, 12, 12, [], []),
        ("scan", -2, 16, 16, [], []),
        ("exscan", -2, 20, 20, [], []),
        ("gather", ROOT, 24, 24, [], []),
        ("scatter", ROOT, 28, 28, [], []),
        ("allgather", -2, 32, 32, [], []),
        ("alltoall", -2, 36, 36, [], []),
        ("reduce_scatter", -2, 4, 40, [], []),  # of a block: its bytes are one element
        ("gatherv", ROOT, one[rank], 0, [], one if is_root else []),
        ("allgatherv", -2, one[rank], 0, [], one),
        ("scatterv", ROOT, 0, two[rank], two if is_root else [], []),
        ("reduce_scatter", -2, 4, three[rank], [], three),
        ("alltoallv", -2, 0, 0, both, both),
        ("alltoallv", -2, 0, 0, doubles, doubles),
    ]


def test_all_collectives(trace: Tracing) -> None:
    traced = trace("collectives.c")
    columns = ("peer", "bytes", "receive_bytes", "send_counts", "receive_counts")
    for rank in range(4):
        blocking = blocking_collectives(rank)
        nonblocking = [(f"i{kind}", *rest) for kind, *rest in blocking]
        both = [4 * (rank + i) for i in range(4)]
        in_place = [
            ("allreduce", -2, 12, 12, [], []),
            ("gather", ROOT, 24, 24, [], []),
            ("alltoallv", -2, 0, 0, both, both),
            ("allgather", -2, 32, 32, [], []),
        ]
        waited = ("waitall", -2, 0, 0, [], [])
        assert traced.rows(rank, *columns) == [*blocking, *nonblocking, waited, *in_place]
        assert traced.rows(rank, "completes")[34] == ("waitall", list(range(17)))
    assert not traced.workload.notes


# members of each communicator on which the program talks, in its order, and whether rank r is in it
TALKS = [
    *[[[0, 1, 2, 3]]] * 3,  # dup, dup_with_info, idup
    [[0, 2], [1, 3]],  # split by rank % 2
    [[3, 2, 1, 0]],  # split by key
    [[3, 1]],  # create
    [[3, 1]],  # create_group
    [[0, 1, 2, 3]],  # Cartesian
    [[0, 1], [2, 3]],  # its rows
    [[0, 1, 2, 3]],  # graph
    [[0, 1, 2, 3]],  # distributed graph
    "between groups",
    [[1, 3, 0, 2]],  # merged
]


def test_communicators(trace: Tracing) -> None:
    traced = trace("communicators.c")
    members = traced.workload.tables["communicators"].column("members").to_pylist()
    assert members[0] == [0, 1, 2, 3]
    for rank in range(4):
        expected: list[tuple[object, ...]] = [("barrier", [rank], -2, -2, 0, 0)]  # MPI_COMM_SELF
        for groups in TALKS:
            if groups == "between groups":
                other = [1, 0, 3, 2][rank]
                expected.append(("sendrecv", [0, 2, 1, 3], other, other, 2, 16))
                expected.append(("barrier", [0, 2, 1, 3], -2, -2, 0, 0))
                continue
            for who in groups:
                if rank not in who:
                    continue
                assert isinstance(who, list)
                if rank == who[0]:
                    expected.append(("send", who, who[1], -2, 1, 8))
                if rank == who[1]:
                    expected.append(("recv", who, who[0], -2, 1, 0))
                expected.append(("barrier", who, -2, -2, 0, 0))
        if rank == 0:  # a communicator of rank 0 alone, made after the one by key
            expected.insert(expected.index(("barrier", [3, 2, 1, 0], -2, -2, 0, 0)) + 1, ("barrier", [0], -2, -2, 0, 0))
        found = [
            (kind, members[communicator], *rest)
            for kind, communicator, *rest in traced.talk(rank, "communicator_id", "peer", "source", "tag", "bytes")
            if kind != "wait"  # for MPI_Comm_idup
        ]
        assert found == expected
    assert "collectives between two groups are replayed as barriers, without their data: MPI_Barrier 4" in told(
        traced.workload.notes
    )


def test_communicators_of_the_same_members_stay_apart(trace: Tracing) -> None:
    traced = trace("communicators.c")
    for rank in range(4):
        rows = traced.talk(rank, "communicator_id")
        barriers = [number for kind, number in rows if kind == "barrier"]
        assert len(set(barriers)) == len(barriers)  # the program talks once on each, though it frees some between
    same = [[number for kind, number in traced.talk(rank, "communicator_id") if kind == "barrier"] for rank in (1, 3)]
    assert [number for number in same[0] if number in same[1]] == [number for number in same[1] if number in same[0]]


def test_neighbour_collectives_become_sends_and_receives(trace: Tracing) -> None:
    traced = trace("neighbours.c")
    for rank in range(4):
        left, right = (rank + 3) % 4, (rank + 1) % 4
        line = [each if 0 <= each < 4 else -2 for each in (rank - 1, rank + 1)]
        mine, theirs = 1 + rank, 1 + left
        wait = ("waitall", -2, 0, 0)
        expected = [
            *(("isend", each, 12, 0) for each in line), *(("irecv", each, 0, 12) for each in line), wait,
            ("isend", right, 4 * mine, 0), ("irecv", left, 0, 4 * theirs), wait,
            ("isend", right, 8, 0), ("irecv", left, 0, 8),
            ("isend", right, 4 * mine, 0), ("irecv", left, 0, 4 * theirs),
            *(("isend", each, 16, 0) for each in line), *(("irecv", each, 0, 16) for each in line),
            ("isend", right, 8 * mine, 0), ("irecv", left, 0, 8 * theirs), wait,
        ]  # fmt: skip
        assert traced.talk(rank, "peer", "bytes", "receive_bytes") == expected
        completed = [row[1] for row in traced.talk(rank, "completes") if row[0] == "waitall"]
        assert completed == [[0, 1, 2, 3], [4, 5], list(range(6, 16))]
    communicators = traced.workload.tables["communicators"].num_rows
    assert communicators == 3  # the world, the line, the ring
    assert any("MPI_Neighbor_alltoallv 4" in note for note in told(traced.workload.notes))


def test_makers_of_communicators_wait_for_their_members(trace: Tracing) -> None:
    traced = trace("communicators.c")
    members = traced.workload.tables["communicators"].column("members").to_pylist()
    for rank in range(4):
        calls = Calls(traced.processes[rank])
        rows = [row for row in traced.workload.tables["operations"].to_pylist() if row["rank"] == rank]
        found: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
        for name, row in zip(traced.calls(rank), calls.operation_ids()[:-1], strict=True):
            if row_of := rows[row]:
                found.setdefault(name, set()).add((row_of["kind"], tuple(members[row_of["communicator_id"]])))
        everyone = (0, 1, 2, 3)
        for name in ("MPI_Comm_dup", "MPI_Comm_split", "MPI_Comm_create", "MPI_Cart_create", "MPI_Graph_create"):
            if name in found:
                assert ("barrier", everyone) in found[name]
        assert found["MPI_Comm_idup"] == {("ibarrier", everyone)}
        assert all(kind in ("barrier", "ibarrier") for name in found if role_of(name) is Role.synchronising
                   for kind, _ in found[name])  # fmt: skip


def test_one_sided_communication_becomes_messages(trace: Tracing) -> None:
    traced = trace("one_sided.c")
    barrier, tags = ("barrier", -2, 0, 0, 0, []), {"put": 0, "get": 1}
    # rank 1: puts to 2, gets from 2, accumulates at 0, while 0 puts to it and gets from it
    columns = ("peer", "tag", "bytes", "receive_bytes", "completes")
    assert [row for row in traced.rows(1, *columns) if row[0] != "other"] == [
        barrier, ("irecv", 0, tags["put"], 0, 4, []), ("issend", 0, tags["get"], 4, 0, []),  # the window is made
        barrier,
        ("issend", 2, tags["put"], 4, 0, []), ("waitall", -2, 0, 0, 0, [2, 0]), barrier,
        ("irecv", 2, tags["get"], 0, 4, []), ("waitall", -2, 0, 0, 0, [3, 1]), barrier,
        ("issend", 0, tags["put"], 4, 0, []), ("waitall", -2, 0, 0, 0, [4]), barrier,
        barrier,  # the window is freed
        barrier, barrier, barrier,  # the file: opened, written together, closed
    ]  # fmt: skip
    # rank 0, at whose window all accumulate: its own message is none
    own = [row[:2] for row in traced.rows(0, "peer") if row[0] == "irecv"]
    assert own == [("irecv", 1), ("irecv", 2), ("irecv", 3), ("irecv", 3), ("irecv", 1)]
    assert [(note.code, note.severity) for note in traced.workload.notes if note.severity == "changes"] == [
        ("locks-free", "changes"),
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["post", "lock", "flush", "request", "atomic"])
def test_epochs_of_one_sided_communication(trace: Tracing, what: str) -> None:
    """Rank 1 puts into rank 0's window, in each of MPI's ways, or swaps a value there; programs/mpi/epochs.c."""
    traced = trace("epochs.c", 2, what)
    columns = ("peer", "tag", "bytes", "receive_bytes")
    origin = [row for row in traced.rows(1, *columns) if row[0] not in ("other", "barrier")]
    target = [row for row in traced.rows(0, *columns) if row[0] not in ("other", "barrier")]
    wait = ("waitall", -2, 0, 0, 0)
    if what == "post":
        assert origin == [("recv", 0, 2, 0, 0), ("issend", 0, 0, 8, 0), wait, ("isend", 0, 3, 0, 0), wait]
        assert target == [("irecv", 1, 0, 0, 8), ("isend", 1, 2, 0, 0), ("recv", 1, 3, 0, 0), wait]
    elif what == "atomic":
        assert origin == [("issend", 0, 0, 8, 0), ("irecv", 0, 1, 0, 8), wait]
        assert target == [("irecv", 1, 0, 0, 8), ("issend", 1, 1, 8, 0), wait]
    else:
        assert origin == [("issend", 0, 0, 8, 0), ("wait", *wait[1:]) if what == "request" else wait]
        assert target == [("irecv", 1, 0, 0, 8), wait]
    build_program(traced.workload, "mpich")


def test_collectives_on_files_wait_for_all(trace: Tracing) -> None:
    """Split and non-blocking ones, too."""
    traced = trace("epochs.c", 2, "file")
    for rank in range(2):
        rows = [row for row in traced.rows(rank, "completes") if row[0] != "other"]
        assert rows == [
            ("barrier", []),
            ("ibarrier", []),
            ("wait", [0]),
            ("ibarrier", []),
            ("wait", [1]),
            ("barrier", []),
        ]


@pytest.mark.parametrize("program", ["mpif.f90", "module.f90", "f08.f90"])
def test_fortran(trace: Tracing, program: str) -> None:
    traced = trace(program)
    columns = ("peer", "tag", "bytes", "receive_bytes", "completes")
    after = [
        ("allreduce", -2, 0, 24, 24, []),
        ("gather", ROOT, 0, 20, 20, []),
        ("barrier", -2, 0, 0, 0, []),
    ]
    assert traced.talk(0, *columns) == [
        ("send", 1, 1, 80, 0, []),
        ("recv", 1, 2, 0, 80, []),
        ("isend", 1, 1, 80, 0, []),
        ("irecv", 1, 2, 0, 80, []),
        ("waitall", -2, 0, 0, 0, [0, 1]),
        *after,
    ]
    assert traced.talk(1, *columns) == [
        ("recv", 0, 1, 0, 80, []),
        ("send", 0, 2, 80, 0, []),
        ("irecv", 0, 1, 0, 80, []),
        ("wait", -2, 0, 0, 0, [0]),
        ("isend", 0, 2, 80, 0, []),
        ("wait", -2, 0, 0, 0, [1]),
        *after,
    ]
    for rank in (2, 3):
        assert traced.talk(rank, *columns) == after
    calls = [name for name in traced.calls(0) if name != "MPI_Testany"]
    assert calls == ["MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Allreduce",
                     "MPI_Gather", "MPI_Cart_create", "MPI_Barrier", "MPI_Finalize"]  # fmt: skip


def check_ring_of_three(traced: MpiTrace) -> None:
    """The last rank ended the others wherever they were."""
    for rank in range(3):
        expected = [("sendrecv", (rank + 1) % 3, (rank + 2) % 3, i, 4, 4) for i in range(3)]
        found = traced.talk(rank, "peer", "source", "tag", "bytes", "receive_bytes")
        assert found == expected[: len(found)]
        assert rank < 2 or found == expected
        unfinished = traced.calls(rank)[len(found) + 1 :]
        assert len(unfinished) <= 1
        mine = [note for note in traced.workload.notes if note.where == f"rank {rank}"]
        assert len(mine) == len(unfinished)
        assert rank == 2 or not traced.processes[rank].is_finished


def test_abort(trace: Tracing) -> None:
    traced = trace("ends.c", 3, "abort", succeeds=False)
    check_ring_of_three(traced)
    assert "rank 2: called MPI_Abort(3), which ended the program" in told(traced.workload.notes)


def test_crash(trace: Tracing) -> None:
    traced = trace("ends.c", 3, "crash", succeeds=False)
    check_ring_of_three(traced)
    assert not traced.processes[2].is_finished
