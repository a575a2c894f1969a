"""Point-to-point calls as they are traced: expected operations are those that the programs' sources say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mpi_traces import Tracing
from told import told
from tracer_programs import Mpi

pytestmark = pytest.mark.theory
SIZES = [8 << i for i in range(10)]


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> Tracing:
    return Tracing(mpi, compiled, tracer_cache, tmp_path)


def test_ping_pong(trace: Tracing) -> None:
    traced = trace("ping_pong.c", 2)
    columns = ("peer", "tag", "bytes", "receive_bytes")
    sends = [[("send", 1 - rank, i, size, 0) for i, size in enumerate(SIZES)] for rank in range(2)]
    receives = [[("recv", 1 - rank, i, 0, size) for i, size in enumerate(SIZES)] for rank in range(2)]
    assert traced.rows(0, *columns) == [row for pair in zip(sends[0], receives[0], strict=True) for row in pair]
    assert traced.rows(1, *columns) == [row for pair in zip(receives[1], sends[1], strict=True) for row in pair]
    assert traced.calls(0) == ["MPI_Init", *["MPI_Send", "MPI_Recv"] * 10, "MPI_Finalize"]
    assert not traced.workload.notes


def test_ring_sizes_requests_and_marks(trace: Tracing) -> None:
    traced = trace("ring.c")
    columns = ("peer", "tag", "bytes", "receive_bytes", "request", "completes")
    for rank in range(4):
        expected = []
        for i in range(5):
            expected += [
                ("irecv", (rank + 3) % 4, 3, 0, 800, 2 * i, []),  # 100 doubles came, though there was room for 200
                ("isend", (rank + 1) % 4, 3, 800, 0, 2 * i + 1, []),
                ("waitall", -2, 0, 0, 0, -1, [2 * i, 2 * i + 1]),
            ]
        assert traced.rows(rank, *columns) == expected
        marks = traced.processes[rank].events
        assert marks["kind"].tolist() == [28] * 5
        assert marks["value"].tolist() == [0, 1, 2, 3, 4]
        assert marks["num_operations"].tolist() == [1, 4, 7, 10, 13]


def test_all_of_the_cpu_time_is_in_the_phases(trace: Tracing) -> None:
    traced = trace("ring.c")
    duration = traced.workload.column("phase_times", "thread_ps")
    assert np.all(traced.workload.column("phases", "duration_ps") >= duration)
    for rank, process in enumerate(traced.processes):
        cpu_ns = int(process.operations["cpu_ns"].sum()) + process.end["rest_cpu_ns"]
        assert int(duration[traced.workload.column("phases", "rank") == rank].sum()) == 1000 * cpu_ns
    per_rank = np.bincount(traced.workload.column("phases", "rank"), duration)
    assert np.all(np.diff(per_rank) > 0)  # the program's ranks compute 1, 2, 3 and 4 times as much


def test_measured_times_are_in_order_on_one_clock(trace: Tracing) -> None:
    traced = trace("ping_pong.c", 2)
    start, end = (traced.workload.column("measured", name) for name in ("start_ps", "end_ps"))
    bounds = traced.workload.rank_offsets
    assert min(start.min(), end.min()) == 0
    assert np.all(end >= start)
    for rank in range(2):
        assert np.all(start[bounds[rank] + 1 : bounds[rank + 1]] >= end[bounds[rank] : bounds[rank + 1] - 1])
    for message in range(10):  # row 1 is rank 0's first send: none is received before it is sent
        assert end[bounds[1] + 1 + 2 * message] > start[1 + 2 * message]
        assert end[2 + 2 * message] > start[bounds[1] + 2 + 2 * message]


def test_every_mode_of_sending(trace: Tracing) -> None:
    traced = trace("point_to_point.c")
    columns = ("peer", "source", "tag", "bytes", "receive_bytes")
    tail = [
        ("sendrecv", 1, 1, 9, 44, 44),
        ("isend", 1, -2, 10, 48, 0),  # a sendrecv with two tags
        ("irecv", 1, -2, 11, 0, 48),
        ("waitall", -2, -2, 0, 0, 0),
        ("sendrecv", 1, -2, 12, 52, 400),  # receives from MPI_PROC_NULL
        ("sendrecv", 1, 1, 13, 56, 56),
        ("send", -2, -2, 14, 60, 0),
        ("recv", -2, -2, 14, 0, 60),
    ]
    assert traced.rows(0, *columns) == [
        ("send", 1, -2, 1, 10, 0),
        ("bsend", 1, -2, 2, 20, 0),
        ("ssend", 1, -2, 3, 30, 0),
        ("barrier", -2, -2, 0, 0, 0),
        ("send", 1, -2, 4, 40, 0),
        ("isend", 1, -2, 5, 50, 0),
        ("ibsend", 1, -2, 6, 60, 0),
        ("issend", 1, -2, 7, 70, 0),
        ("waitall", -2, -2, 0, 0, 0),
        ("barrier", -2, -2, 0, 0, 0),
        ("isend", 1, -2, 8, 80, 0),
        ("wait", -2, -2, 0, 0, 0),
        *tail,
    ]
    other = [(kind, *(0 if each == 1 else each for each in ends), *rest) for kind, *ends, t, b, r in tail
             for rest in [(t, b, r)]]  # fmt: skip
    other[1], other[2] = ("isend", 0, -2, 11, 48, 0), ("irecv", 0, -2, 10, 0, 48)
    other[4] = ("sendrecv", -2, 0, 12, 52, 52)  # sends to MPI_PROC_NULL
    assert traced.rows(1, *columns)[-8:] == other
    assert [row[5] for row in traced.rows(1, *columns) if row[0] in ("recv", "irecv")][:7] == [*range(10, 80, 10)]
    assert told(traced.workload.notes) == (
        "calls that are replayed as the sends and receives they consist of: MPI_Sendrecv 2",
    )


def test_persistent_requests_become_what_they_start(trace: Tracing) -> None:
    traced = trace("persistent.c")
    columns = ("peer", "tag", "bytes", "receive_bytes", "request", "completes")
    for rank, modes in ((0, ["isend", "ibsend", "issend", "isend"]), (1, ["irecv"] * 4)):
        expected: list[tuple[object, ...]] = []
        for turn in range(3):
            first = 4 * turn
            started = [
                (modes[i], 1 - rank, i + 1, (1 - rank) * 10 * (i + 1), rank * 10 * (i + 1), first + i, [])
                for i in range(4)
            ]
            barrier = ("barrier", -2, 0, 0, 0, -1, [])
            expected += [barrier, *started] if rank == 0 else [*started, barrier]
            expected.append(("waitall", -2, 0, 0, 0, -1, [*range(first, first + 4)]))
        expected.append((modes[0], 1 - rank, 1, (1 - rank) * 10, rank * 10, 12, []))
        expected.append(("wait", -2, 0, 0, 0, -1, [12]))
        expected.append(("wait", -2, 0, 0, 0, -1, []))
        assert traced.talk(rank, *columns) == expected
    assert "3 receives from any source take the one they had in the traced run" in told(traced.workload.notes)


def test_waits_and_tests_complete_what_they_completed(trace: Tracing) -> None:
    traced = trace("completions.c")
    rows = traced.talk(0, "peer", "tag", "receive_bytes", "request", "completes")
    blocking = [row for row in rows if row[0] == "recv"]
    assert sorted(blocking) == [("recv", rank, 5, 8 * rank, -1, []) for rank in (1, 2, 3)]
    opened = {row[4]: row for row in rows if row[0] == "irecv"}
    ways = [sorted(list(opened.values())[3 * way : 3 * way + 3], key=lambda row: str(row[:4])) for way in range(8)]
    for way in ways:
        assert [row[:4] for row in way] == [("irecv", rank, 20 + rank, 4 * rank) for rank in (1, 2, 3)]
    completed = [row[5] for row in rows if row[0] in ("wait", "waitall")]
    assert sorted(each for group in completed for each in group) == list(range(24))
    assert completed[:4] == [[0], [1], [2], [3, 4, 5]]  # waits in order, then one for all
    assert all(len(group) == 1 for group in completed[4:7])  # MPI_Waitany
    assert completed[7] == []  # MPI_Waitany without an active request
    names = [row[0] for row in rows]
    assert names.count("recv") == 3
    assert "27 receives from any source take the one they had in the traced run" in told(traced.workload.notes)
    assert "1 requests were cancelled: their operations take no part" in told(traced.workload.notes)
    assert "other" in [row[0] for row in traced.rows(0)][-3:]  # the cancelled receive


def test_probes_and_matched_receives(trace: Tracing) -> None:
    traced = trace("probes.c", 2)
    assert traced.talk(1, "peer", "tag", "receive_bytes", "completes") == [
        ("recv", 0, 1, 40, []),
        ("recv", 0, 2, 80, []),
        ("recv", 0, 3, 120, []),
        ("irecv", 0, 4, 160, []),
        ("wait", -2, 0, 0, [0]),
    ]


def test_sizes_of_derived_types(trace: Tracing) -> None:
    traced = trace("types.c", 2)
    assert traced.talk(0, "bytes") == [("send", 80), ("send", 160), ("send", 70), ("send", 0)]
    assert traced.talk(1, "receive_bytes") == [("recv", 80), ("recv", 160), ("recv", 70), ("recv", 0)]


def test_marked_regions_cut_phases(trace: Tracing) -> None:
    traced = trace("marks.c", 1)
    assert traced.workload.column("phases", "rank").tolist() == [0] * traced.workload.tables["phases"].num_rows
    assert traced.workload.tables["regions"].to_pydict() == {"name": ["outer", 'in"ner', "last"]}
    table = traced.workload.tables["phases"].to_pylist()
    found = [(row["operation_id"], row["region_id"]) for row in table if row["duration_ps"] > 200_000_000]
    # 1 to 6 units of computing: before the barriers (operations 1 and 2), MPI_Finalize (3) and the end
    assert found == [(1, 0), (1, 1), (2, 0), (2, -1), (3, 2), (4, -1)]
