"""The DUMPI reader: what each call becomes. Files are written by dumpi_writer.py, but for real traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from told import told

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import dumpi, null_receives
from manyscale.runner.readers.dumpi.phases import phases
from manyscale.runner.readers.dumpi.records import read_rank_file
from manyscale.runner.study.targets import build_machine, shipped_targets

sys.path.insert(0, str(Path(__file__).parent))
from dumpi_writer import (
    ANY,
    DOUBLE,
    INT,
    NULL,
    SELF,
    TYPE_BYTES,
    WORLD,
    Call,
    dumpi_file,
    dumpi_trace,
    irecv,
    isend,
    recv,
    send,
)  # fmt: skip

data = Path(__file__).parents[2] / "data" / "dumpi"
traces = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "formats" / "dumpi"
needs_traces = pytest.mark.skipif(not traces.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write([calls of rank 0], [calls of rank 1], ...)`` writes a trace and returns its .meta file."""
    return partial(dumpi_trace, tmp_path)


def rows(workload: Workload, rank: int = 0) -> list[dict[str, object]]:
    """A rank's operations without those that the reader adds or that take no part."""
    found = workload.tables["operations"].to_pylist()
    return [row for row in found if row["rank"] == rank and row["kind"] not in ("other", "finalize")]


def makespan_s(workload: Workload) -> float:
    network = build_machine(load_yaml(shipped_targets()["crossbar256"]), "crossbar256").network
    compute_ps = np.zeros(workload.num_operations, np.int64)
    at = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    np.add.at(compute_ps, at, workload.column("phases", "duration_ps"))
    program = build_program(workload, network.collectives)
    placement = Placement.one_per_node(workload.num_ranks)
    return latency_bandwidth.replay(program, compute_ps, network, placement).makespan_ps / 1e12


# Real traces


@pytest.mark.golden
@pytest.mark.parametrize("path", ["testtrace.meta", "."])
def test_real_trace(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    folder.mkdir()
    for file in data.glob("testtrace*"):
        (folder / file.name).write_bytes(file.read_bytes())
    assert dumpi.can_read(folder / path)

    workload = dumpi.read(folder / path)

    # from the text that dumpi2ascii made of rank 0, and the ring that it shows: 0 sends to 1, receives from 3
    assert workload.num_ranks == 4
    kinds = [row["kind"] for row in rows(workload)]
    assert kinds == ["init", "barrier", "isend", "recv", "wait", "allreduce"]
    assert [row["peer"] for row in rows(workload) if row["kind"] == "isend"] == [1]
    assert [row["completes"] for row in rows(workload) if row["kind"] == "wait"] == [[0]]
    mine = workload.column("phases", "rank") == 0
    # gaps of the text: .737670 to .737694, .737698 to .737704, .737705 to .737712, .739659 to .739674, ...
    assert workload.column("phases", "duration_ps")[mine][:4].tolist() == [24e6, 6e6, 7e6, 15e6]
    starts = workload.column("measured", "start_ps")[:9]
    # entries of the text: .737669 .737694 .737704 .737712 .739674 .739699 .739888 .739909 .739939
    assert (starts - starts[0]).tolist() == [x * 10**6 for x in (0, 25, 35, 43, 2005, 2030, 2219, 2240, 2270)]
    assert makespan_s(workload) > 4 * 1e-5  # at least an allreduce over four ranks of 10 us each


@needs_traces
@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "messages", "bytes_each"),
    [
        ("sst-macro/testbgp.meta", 588, 712),  # 84 sends of 89 doubles on each of 7 ranks
        ("taufer-alltoall4", 48, 4),
        ("sst-dumpi-testtrace", 4, 4),
    ],
)
def test_messages_of_real_traces_match_and_replay(name: str, messages: int, bytes_each: int) -> None:
    workload = dumpi.read(traces / name)

    sent = workload.column("operations", "bytes")[workload.send_rows]
    assert (len(sent), sent.min(), sent.max()) == (messages, bytes_each, bytes_each)
    assert makespan_s(workload) > 0


@needs_traces
def test_one_rank_of_several_is_refused_and_still_decoded() -> None:
    path = traces / "taufer-alltoall4" / "dumpi-2019.05.22.11.54.43-0001.bin"

    with pytest.raises(UserError, match=r"one rank of 4; .*give the folder with all ranks' files"):
        dumpi.read(path)
    assert len(read_rank_file(path).calls) == 41


@needs_traces
def test_folder_with_two_traces_is_refused() -> None:
    with pytest.raises(UserError, match=r"holds 2 traces; name one: testbgp.meta, testtrace.meta"):
        dumpi.read(traces / "sst-macro")


# Requests


@pytest.mark.theory
def test_waits_complete_what_they_name(write: Write) -> None:
    mine = [irecv(2, tag=1), irecv(3, tag=2), irecv(4, tag=3),
            Call("MPI_Waitany", {"count": 3, "requests": [2, 3, 4], "index": 1}),
            Call("MPI_Test", {"request": 2, "flag": 0}),
            Call("MPI_Waitall", {"count": 3, "requests": [4, NULL, 2]}),
            irecv(3, tag=4),  # the number is used again
            Call("MPI_Test", {"request": 3, "flag": 1})]  # fmt: skip
    workload = dumpi.read(write(mine, [send(0, tag) for tag in (1, 2, 3, 4)]))

    found = [(row["kind"], row["completes"]) for row in rows(workload)][3:]
    assert found == [("wait", [1]), ("test", []), ("waitall", [2, 0]), ("irecv", []), ("wait", [3])]
    assert makespan_s(workload) > 0


@pytest.mark.theory
def test_waitsome_and_testsome_complete_what_they_list(write: Write) -> None:
    mine = [irecv(2, tag=1), irecv(3, tag=2), irecv(4, tag=3),
            Call("MPI_Testsome", {"count": 3, "requests": [2, 3, 4], "outcount": 0}),
            Call("MPI_Waitsome", {"count": 3, "requests": [2, 3, 4], "outcount": 2, "indices": [2, 0]}),
            Call("MPI_Testany", {"count": 3, "requests": [NULL, 3, NULL], "index": 1, "flag": 1})]  # fmt: skip
    workload = dumpi.read(write(mine, [send(0, tag) for tag in (1, 2, 3)]))

    found = [(row["kind"], row["completes"]) for row in rows(workload)][3:]
    assert found == [("test", []), ("waitall", [2, 0]), ("wait", [1])]


@pytest.mark.theory
def test_work_between_polls_is_marked(write: Write) -> None:
    def at(number: int, name: str, **fields: object) -> Call:
        return Call(name, fields, 1000 * number, 1000 * number + 10)

    def test(number: int, flag: int) -> Call:
        return at(number, "MPI_Testall", count=1, requests=[2], flag=flag)

    def probe(number: int, flag: int) -> Call:
        return at(number, "MPI_Iprobe", source=1, tag=2, comm=WORLD, flag=flag)

    mine = [irecv(2, tag=1), test(1, 0), at(2, "MPI_Wtime"), test(3, 0), test(4, 1), at(5, "MPI_Barrier", comm=WORLD),
            probe(6, 0), probe(7, 1), recv(1, 2)]  # fmt: skip
    workload = dumpi.read(write(mine, [send(0, 1), at(5, "MPI_Barrier", comm=WORLD), send(0, 2)]))

    assert [row["kind"] for row in rows(workload)] == ["irecv", "test", "test", "waitall", "barrier", "test", "recv"]
    of_rank = workload.column("phases", "rank") == 0
    kind = dict(
        zip(*(workload.column("phases", name)[of_rank].tolist() for name in ("operation_id", "kind")), strict=True)
    )
    assert [kind.get(each) for each in range(1, 8)] == [0, 2, 2, 2, 0, 0, 2]


@pytest.mark.theory
def test_persistent_requests_are_opened_by_each_start(write: Write) -> None:
    mine = [Call("MPI_Send_init", {"count": 2, "datatype": DOUBLE, "dest": 1, "tag": 5, "comm": WORLD, "request": 2}),
            Call("MPI_Recv_init", {"count": 1, "datatype": INT, "source": 1, "tag": 6, "comm": WORLD, "request": 3}),
            Call("MPI_Startall", {"count": 2, "requests": [2, 3]}),
            Call("MPI_Waitall", {"count": 2, "requests": [2, 3]}),
            Call("MPI_Start", {"request": 2}),
            Call("MPI_Wait", {"request": 2}),
            Call("MPI_Wait", {"request": 2}),  # not active: nothing to wait for
            Call("MPI_Request_free", {"request": 2})]  # fmt: skip
    workload = dumpi.read(write(mine, [recv(0, 5), send(0, 6), recv(0, 5)]))

    found = [(row["kind"], row["peer"], row["bytes"], row["request"], row["completes"]) for row in rows(workload)]
    assert found == [
        ("isend", 1, 16, 0, []),
        ("irecv", 1, 0, 1, []),
        ("waitall", -2, 0, -1, [0, 1]),
        ("isend", 1, 16, 2, []),
        ("wait", -2, 0, -1, [2]),
        ("wait", -2, 0, -1, []),
    ]
    assert makespan_s(workload) > 0


def test_start_of_what_was_never_set_up_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"byte \d+: rank 0, call 0 \(MPI_Start\) starts a request that no earlier"):
        dumpi.read(write([Call("MPI_Start", {"request": 7})], [Call("MPI_Wtime")]))


def test_requests_of_unrecorded_calls_are_counted(write: Write) -> None:
    workload = dumpi.read(write([Call("MPI_Wait", {"request": 9})]))

    assert any(note.startswith("1 completed requests were opened by no recorded call") for note in told(workload.notes))


@pytest.mark.theory
def test_cancelled_receive_takes_no_part(write: Write) -> None:
    status = [(0, 0, 1, 0, 0)]
    workload = dumpi.read(
        write([irecv(2), Call("MPI_Cancel", {"request": 2}), Call("MPI_Wait", {"request": 2, "status": status})],
              [Call("MPI_Wtime")])
    )  # fmt: skip

    assert [(row["kind"], row["completes"]) for row in rows(workload)] == [("wait", [])]
    assert any(note.startswith("1 requests were cancelled") for note in told(workload.notes))


# Sources


@pytest.mark.theory
@pytest.mark.parametrize(
    ("status", "source"),
    [
        ((4, 1, 0, 0, 3), 1),
        ((4, 1, 0, 0, 4), ANY),  # another tag
        ((1606419960, 1, 0, 0, 3), ANY),  # more bytes than there was room for
        ((4, 9, 0, 0, 3), ANY),  # no such rank
        ((4, 1, 1, 0, 3), ANY),  # cancelled
        ((0, -1, 0, 0, -1), -2),  # MPI_PROC_NULL of MPICH
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_real_source_of_a_wildcard(write: Write, status: tuple[int, ...], source: int, waits: bool) -> None:
    mine = [recv(ANY, 3, statuses=[status])]
    if waits:
        mine = [irecv(2, ANY, 3), Call("MPI_Wait", {"request": 2, "status": [status]})]
    workload = dumpi.read(write(mine, [send(0, 3)]))

    assert rows(workload)[0]["peer"] == source
    assert any("any source" in note for note in told(workload.notes)) == (source == ANY)


@pytest.mark.golden
def test_receives_from_nobody_of_an_mpich_trace() -> None:
    """Three ranks on an open chain, traced under MPICH: computing 1 ms, exchanging with both neighbours, three times.
    ``manyscale trace`` of the same program gives 3.167 ms."""
    workload = dumpi.read(data.parent / "dumpi-mpich")

    ends = [[row["source"] for row in rows(workload, rank) if row["kind"] == "sendrecv"] for rank in range(3)]
    assert ends == [[-2] * 3, [0] * 3, [1] * 3]
    assert {note.code for note in workload.notes} >= {"null-receives", "time-not-run"}
    assert makespan_s(workload) == pytest.approx(3.2e-3, rel=0.02)


@pytest.mark.theory
def test_a_receive_from_nobody_takes_no_message() -> None:
    """Of receives from -1 those waited longest that received something; -2, of Open MPI, leaves none in doubt."""

    def sources(mine: Sequence[int], waited: Sequence[int], others: Sequence[int] = (7,)) -> list[int]:
        count = len(mine)
        columns = {
            "rank": [0] * count + [1] * len(others),
            "kind": [int(OperationKind.recv)] * count + [int(OperationKind.send)] * len(others),
            "peer": [*mine, *[0] * len(others)],
            "source": [-2] * (count + len(others)),
            "tag": [7] * count + list(others),
            "communicator_id": [0] * (count + len(others)),
        }
        arrays = {name: np.array(values, np.int64) for name, values in columns.items()}
        null_receives.settle(arrays, np.array([*waited, *[0] * len(others)]))
        return arrays["peer"][:count].tolist()

    assert sources([-1], [0]) == [-1]  # the one message is its own
    assert sources([-1, 1], [0, 9]) == [-2, 1]  # it is a named receive's
    assert sources([-1, -1, -1], [1, 9, 2]) == [-2, -1, -2]  # it is the one's that waited
    assert sources([-1, -1, 1], [1, 9, 0], [7, 7]) == [-2, -1, 1]
    assert sources([-1], [5], [8]) == [-2]  # of another tag


@pytest.mark.theory
def test_open_mpi_writes_nobody_apart(write: Write) -> None:
    workload = dumpi.read(write([recv(-2, 3), recv(ANY, 4)], [recv(0, 9)]))

    assert [row["peer"] for row in rows(workload)] == [-2, ANY]


@pytest.mark.theory
@pytest.mark.parametrize(("clock", "expected"), [("auto", [1000, 3000]), ("cpu", [990, 3000]), ("wall", [1000, 9000])])
def test_time_that_the_process_did_not_run(write: Write, clock: str, expected: list[int]) -> None:
    path = write([Call("MPI_Wtime", {}, 0, 0)] * 3)
    file = read_rank_file(next(path.parent.glob("*0000.bin")))
    wall, cpu = np.array([0, 1_000_000, 10_000_000]), np.array([7, 990_007, 3_990_007])
    calls = replace(file.calls, wall_ns=np.stack([wall, wall], axis=1), cpu_ns=np.stack([cpu, cpu], axis=1))
    found = phases(replace(file, calls=calls), np.arange(4), clock)

    assert (found.duration_ns // 1000).tolist() == expected
    assert found.start_ns[1] - found.start_ns[0] == 1_000_000


@pytest.mark.theory
def test_status_of_a_send_is_not_looked_at(write: Write) -> None:
    garbage = [(1606419960, 9, 0, 96, 9)]
    workload = dumpi.read(write([isend(2), Call("MPI_Wait", {"request": 2, "status": garbage})], [recv(0)]))

    assert [row["peer"] for row in rows(workload)] == [1, -2]


# Communicators


def comm_rank(comm: int, rank: int) -> Call:
    return Call("MPI_Comm_rank", {"comm": comm, "rank": rank})


@pytest.mark.theory
def test_split_by_colour_and_key(write: Write) -> None:
    # colours 0 1 0 1; keys turn the order around; ids differ between the ranks
    def rank(me: int, comm: int) -> list[Call]:
        split = {"oldcomm": WORLD, "color": me % 2, "key": -me, "newcomm": comm}
        return [Call("MPI_Comm_split", split), comm_rank(comm, 1 - me // 2),
                send(1, comm=comm) if me // 2 else recv(0, comm=comm)]  # fmt: skip

    workload = dumpi.read(write(*(rank(me, 4 + me) for me in range(4))))

    members = [list(entry["members"]) for entry in workload.tables["communicators"].to_pylist()]
    assert members == [[0, 1, 2, 3], [2, 0], [3, 1]]
    sends = [(row["rank"], row["peer"], row["communicator_id"]) for r in (2, 3) for row in rows(workload, r)]
    assert sends == [(2, 0, 1), (3, 1, 2)]
    assert makespan_s(workload) > 0


@pytest.mark.theory
def test_groups_make_communicators(write: Write) -> None:
    def rank(me: int) -> list[Call]:
        inside = me in (3, 1)
        calls = [Call("MPI_Comm_group", {"comm": WORLD, "group": 3}),
                 Call("MPI_Group_range_incl", {"group": 3, "count": 1, "ranges": [[3, 1, -2]], "newgroup": 4}),
                 Call("MPI_Comm_create", {"oldcomm": WORLD, "group": 4, "newcomm": 5 if inside else NULL})]  # fmt: skip
        return [*calls, Call("MPI_Barrier", {"comm": 5})] if inside else calls

    workload = dumpi.read(write(*(rank(me) for me in range(4))))

    assert [list(e["members"]) for e in workload.tables["communicators"].to_pylist()] == [[0, 1, 2, 3], [3, 1]]


@pytest.mark.theory
def test_cartesian_rows(write: Write) -> None:
    def rank(me: int) -> list[Call]:
        make = {"oldcomm": WORLD, "ndim": 2, "dims": [2, 3], "periods": [0, 0], "reorder": 1, "newcomm": 4}
        rows_of = {"ndim": 2, "oldcomm": 4, "remain_dims": [0, 1], "newcomm": 5}
        return [Call("MPI_Cart_create", make), Call("MPI_Cart_sub", rows_of), comm_rank(5, me % 3),
                Call("MPI_Barrier", {"comm": 5})]  # fmt: skip

    workload = dumpi.read(write(*(rank(me) for me in range(6))))

    members = [list(entry["members"]) for entry in workload.tables["communicators"].to_pylist()]
    assert members[1:] == [[0, 1, 2], [3, 4, 5]]


def test_order_that_is_not_recorded_is_refused(write: Write) -> None:
    make = {"oldcomm": WORLD, "ndim": 1, "dims": [2], "periods": [0], "reorder": 1, "newcomm": 4}
    with pytest.raises(UserError, match=r"\(MPI_Comm_rank\) says rank 1 in the communicator made by MPI_Cart_create"):
        dumpi.read(write(*([Call("MPI_Cart_create", make), comm_rank(4, 1 - me)] for me in range(2))))


def test_communicator_without_recorded_members_is_refused(write: Write) -> None:
    make = {"localcomm": SELF, "localleader": 0, "remotecomm": WORLD, "remoteleader": 0, "tag": 1, "newcomm": 4}
    with pytest.raises(UserError, match=r"\(MPI_Barrier\) is on a communicator made by MPI_Intercomm_create"):
        dumpi.read(write([Call("MPI_Intercomm_create", make), Call("MPI_Barrier", {"comm": 4})]))


# Sizes


@pytest.mark.theory
def test_derived_datatypes(write: Write) -> None:
    makes = [Call("MPI_Type_vector", {"count": 3, "blocklength": 2, "stride": 9, "oldtype": DOUBLE, "newtype": 28}),
             Call("MPI_Type_create_struct", {"count": 2, "blocklengths": [2, 3], "displacements": [0, 99],
                                             "oldtypes": [28, INT], "newtype": 29}),
             Call("MPI_Type_indexed", {"count": 2, "lengths": [1, 4], "indices": [0, 7], "oldtype": 29,
                                       "newtype": 30}),
             Call("MPI_Type_create_subarray", {"ndims": 2, "sizes": [9, 9], "subsizes": [2, 5], "starts": [0, 0],
                                               "oldtype": INT, "newtype": 31}),
             send(1, datatype=28), send(1, datatype=29), send(1, datatype=30), send(1, datatype=31),
             Call("MPI_Type_contiguous", {"count": 7, "oldtype": 2, "newtype": 28}),  # the number is used again
             send(1, datatype=28, count=2)]  # fmt: skip
    workload = dumpi.read(write(makes, [recv(0) for _ in range(5)], type_bytes=(*TYPE_BYTES, 48)))

    struct = 2 * 48 + 3 * 4
    assert [row["bytes"] for row in rows(workload)] == [48, struct, 5 * struct, 40, 14]


def test_unknown_datatype_is_refused(write: Write) -> None:
    with pytest.raises(
        UserError, match=r"rank 0, call 0 \(MPI_Send\) uses datatype 40, whose size is recorded nowhere"
    ):
        dumpi.read(write([send(1, datatype=40)], [recv(0)]))


def test_file_without_sizes_has_the_usual_ones(write: Write) -> None:
    workload = dumpi.read(write([send(1, datatype=DOUBLE)], [recv(0)], type_bytes=None))

    assert rows(workload)[0]["bytes"] == 8


@pytest.mark.theory
def test_collectives(write: Write) -> None:
    def rank(me: int) -> list[Call]:
        both = {"sendcount": 3, "sendtype": INT, "recvcount": 3, "recvtype": INT, "comm": WORLD}
        at_root = {"root": 1, "commrank": me, "comm": WORLD}
        counts = {"commsize": 2, "recvcounts": [1, 2], "displs": [0, 1]}
        return [Call("MPI_Bcast", {"count": 5, "datatype": DOUBLE, "root": 1, "comm": WORLD}),
                Call("MPI_Alltoall", both),
                # in place: the side that sends holds anything
                Call("MPI_Allgather", both | {"sendcount": 999, "sendtype": 0}),
                Call("MPI_Gather", at_root | {"sendcount": 999 if me else 4, "sendtype": INT} | (
                    {"recvcount": 4, "recvtype": INT} if me else {})),
                Call("MPI_Gatherv", at_root | {"commsize": 2, "sendcount": me + 1, "sendtype": INT, "recvtype": INT} | (
                    {"recvcounts": [1, 2], "displs": [0, 1]} if me else {})),
                Call("MPI_Allgatherv", counts | {"sendcount": me + 1, "sendtype": INT, "recvtype": INT, "comm": WORLD}),
                Call("MPI_Alltoallv", {"commsize": 2, "sendcounts": [1, 2], "senddispls": [0, 1], "sendtype": INT,
                                       "recvcounts": [1, 1], "recvdispls": [0, 1], "recvtype": INT, "comm": WORLD}),
                Call("MPI_Reduce_scatter", {"commsize": 2, "recvcounts": [1, 2], "datatype": DOUBLE, "op": 3,
                                            "comm": WORLD})]  # fmt: skip

    workload = dumpi.read(write(rank(0), rank(1)))

    found = {row["kind"]: row for row in rows(workload, 1)}
    assert (found["bcast"]["bytes"], found["bcast"]["peer"]) == (40, 1)
    assert [found[kind]["bytes"] for kind in ("alltoall", "allgather", "gather")] == [12, 12, 16]
    assert found["gatherv"]["receive_counts"] == found["allgatherv"]["receive_counts"] == [4, 8]
    assert (found["alltoallv"]["send_counts"], found["alltoallv"]["receive_counts"]) == ([4, 8], [4, 4])
    assert (found["reduce_scatter"]["bytes"], found["reduce_scatter"]["receive_counts"]) == (8, [8, 16])
    assert [row["bytes"] for row in rows(workload, 0) if row["kind"] in ("gather", "gatherv")] == [16, 4]
    assert makespan_s(workload) > 0


@pytest.mark.theory
def test_null_ranks_send_nothing(write: Write) -> None:
    pair = {"sendcount": 1, "sendtype": INT, "dest": -2, "sendtag": 8, "recvcount": 1, "recvtype": INT,
            "source": 1, "recvtag": 7, "comm": WORLD}  # fmt: skip
    workload = dumpi.read(write([send(-1), Call("MPI_Sendrecv", pair)], [send(0, 7)]))

    assert [(row["peer"], row["source"], row["tag"]) for row in rows(workload)] == [(-2, -2, 0), (-2, 1, 7)]
    assert makespan_s(workload) > 0


# Times, counters, functions


@pytest.mark.theory
def test_times_counters_and_functions(write: Write) -> None:
    def at(name: str, start: int, end: int, counters: tuple[int, int], **fields: object) -> Call:
        return Call(name, fields, start, end, counters=[counters])

    second = 10**9
    mine = [at("MPI_Init", 65535 * second, 65535 * second + 10, (0, 5)),
            at("MPI_Function_enter", 65536 * second, 65536 * second, (7, 7), address=77),
            at("MPI_Wtime", 65536 * second + 4, 65536 * second + 5, (17, 20)),
            at("MPI_Function_exit", 65536 * second + 9, 65536 * second + 9, (21, 21), address=77),
            at("MPI_Finalize", 65536 * second + 19, 65536 * second + 20, (30, 31))]  # fmt: skip
    workload = dumpi.read(write(mine, labels=["PAPI_X"], functions={77: "work"}))

    phases = workload.tables["phases"].to_pylist()
    assert [(p["operation_id"], p["region_id"], p["duration_ps"]) for p in phases] == [
        (1, -1, (second - 10) * 1000),  # the seconds, stored in 16 bits, wrap here
        (1, 0, 4000),
        (2, 0, 4000),
        (2, -1, 10000),
    ]
    assert workload.tables["regions"].to_pylist() == [{"name": "work"}]
    counters = workload.tables["counters"].to_pylist()
    assert [(c["phase_id"], c["counter"], c["value"]) for c in counters] == [
        (0, "PAPI_X", 2), (1, "PAPI_X", 10), (2, "PAPI_X", 1), (3, "PAPI_X", 9),
    ]  # fmt: skip
    assert workload.column("measured", "end_ps").tolist() == [10000, (second + 5) * 1000, (second + 20) * 1000]


@pytest.mark.theory
def test_measured_times_count_from_the_earliest_rank(tmp_path: Path) -> None:
    for rank, bias in ((0, 103), (1, 101)):
        (tmp_path / f"t-{rank:04d}.bin").write_bytes(dumpi_file([Call("MPI_Finalize", {}, 5, 7)], wall_bias=bias))

    workload = dumpi.read(tmp_path)

    assert workload.column("measured", "start_ps").tolist() == [2 * 10**12, 0]


def test_notes_name_what_is_not_replayed(write: Write) -> None:
    put = Call("MPI_Put", {"origincount": 1, "origintype": INT, "targetcount": 1, "targettype": INT})
    workload = dumpi.read(write([put, put, Call("MPI_File_sync", {}), Call("MPI_Wtime"), Call("MPI_Finalize")]))

    assert told(workload.notes) == (
        "one-sided communication and file access are not replayed: MPI_File_sync 1, MPI_Put 2",
        "local calls take no part in the replay: MPI_Wtime 1",
    )
