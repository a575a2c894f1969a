"""Collectives, communicators and neighbours as they are traced: expected values are those of the programs' sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mpi_traces import MpiTrace, Tracing
from told import told
from tracer_programs import Mpi

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
    assert "collectives between two groups are not replayed: MPI_Barrier 4" in told(traced.workload.notes)


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


def test_one_sided_and_files_are_named(trace: Tracing) -> None:
    traced = trace("one_sided.c")
    assert told(traced.workload.notes) == (
        "one-sided communication and file access are not replayed: MPI_Accumulate 4, MPI_File_close 4, MPI_File_open "
        "4, MPI_File_read_at 4, MPI_File_write_at_all 4, MPI_Get 4, MPI_Put 4, MPI_Win_allocate 4, MPI_Win_fence 16, "
        "MPI_Win_free 4, MPI_Win_lock 4, MPI_Win_unlock 4",
    )
    assert all(row == ("other",) for rank in range(4) for row in traced.rows(rank))


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
