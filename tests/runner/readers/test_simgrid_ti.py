"""The reader of time-independent traces, on tiny traces; every expected table is derived by hand.

Sizes: datatype 0 is a double (8 B), 1 an int (4 B), 6 a byte. At 1 Gflop/s one unit of compute is 1000 ps.
"""

from __future__ import annotations

import gzip
import json
import lzma
from itertools import count

import pytest
import zstandard
from told import told

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK, OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.readers.simgrid_ti.verb_names import CODE, COLLECTIVE_VERBS, VERBS

DEFAULTS = {
    "peer": NO_RANK, "source": NO_RANK, "tag": 0, "bytes": 0, "receive_bytes": 0, "communicator_id": 0, "request": -1,
    "completes": [], "send_counts": [], "receive_counts": [],
}  # fmt: skip


def operations(workload, rank: int = 0) -> list[dict]:
    """The rows of a rank, without the rank; an absent list is an empty one."""
    rows = [row for row in workload.tables["operations"].to_pylist() if row.pop("rank") == rank]
    return [{name: [] if value is None else value for name, value in row.items()} for row in rows]


def row(kind: str, **columns: object) -> dict:
    return {"kind": kind, **DEFAULTS, **columns}


def phases(workload, rank: int = 0) -> list[tuple[int, int, int, int]]:
    """(operation_id, kind, region_id, duration_ps) of a rank."""
    names = ("operation_id", "kind", "region_id", "duration_ps")
    return [
        tuple(each[name] for name in names) for each in workload.tables["phases"].to_pylist() if each["rank"] == rank
    ]


def kinds(workload, rank: int = 0) -> list[str]:
    return [each["kind"] for each in operations(workload, rank)]


def completed(workload, rank: int = 0) -> list[tuple[str, list[int]]]:
    """The operations that a request could end, and the requests that they do."""
    waits = ("wait", "waitall", "waitany", "test")
    return [(each["kind"], each["completes"]) for each in operations(workload, rank) if each["kind"] in waits]


# -- every verb, on two ranks --------------------------------------------------------------------------------------

POINT_TO_POINT = {"peer": 1, "tag": 7}
LINES = {
    "init": row("init"),
    "init 1": row("init"),
    "finalize": row("finalize"),
    "send 1 7 10 1": row("send", **POINT_TO_POINT, bytes=40),
    "send 1 7 10": row("send", **POINT_TO_POINT, bytes=80),
    "ssend 1 7 10 1": row("ssend", **POINT_TO_POINT, bytes=40),
    "bsend 1 7 10 1": row("bsend", **POINT_TO_POINT, bytes=40),
    "isend 1 7 10 1": row("isend", **POINT_TO_POINT, bytes=40, request=0),
    "issend 1 7 10 1": row("issend", **POINT_TO_POINT, bytes=40, request=0),
    "ibsend 1 7 10 1": row("ibsend", **POINT_TO_POINT, bytes=40, request=0),
    "send 0 7 10 6": row("send", peer=0, tag=7, bytes=10),
    "send 1 2147483647 1 6": row("send", peer=1, tag=2147483647, bytes=1),
    "recv 1 7 10 1": row("recv", **POINT_TO_POINT, receive_bytes=40),
    "recv 1 7 -1 1": row("recv", **POINT_TO_POINT, receive_bytes=0),  # the receiver probed for the size
    "irecv 1 7 10 1": row("irecv", **POINT_TO_POINT, receive_bytes=40, request=0),
    "sendRecv 10 1 5 0 1 0": row("sendrecv", peer=1, bytes=40, source=0, receive_bytes=40),
    "sendRecv 10 1 5 0": row("sendrecv", peer=1, bytes=80, source=0, receive_bytes=40),
    "Start 1 7 80": row("isend", **POINT_TO_POINT, bytes=80, request=0),  # in bytes
    "barrier": row("barrier"),
    "ibarrier": row("ibarrier", request=0),
    "bcast 10 1 1": row("bcast", peer=1, bytes=40, receive_bytes=40),
    "bcast 10": row("bcast", peer=0, bytes=80, receive_bytes=80),
    "ibcast 10 1 1": row("ibcast", peer=1, bytes=40, receive_bytes=40, request=0),
    "reduce 10 0 1 1": row("reduce", peer=1, bytes=40, receive_bytes=40),
    "reduce 10 0": row("reduce", peer=0, bytes=80, receive_bytes=80),
    "ireduce 10 0 1 1": row("ireduce", peer=1, bytes=40, receive_bytes=40, request=0),
    "allreduce 10 0 1": row("allreduce", bytes=40, receive_bytes=40),
    "iallreduce 10 0 1": row("iallreduce", bytes=40, receive_bytes=40, request=0),
    "scan 10 0 1": row("scan", bytes=40, receive_bytes=40),
    "exscan 10 0 1": row("exscan", bytes=40, receive_bytes=40),
    "gather 10 5 1 1 0": row("gather", peer=1, bytes=40, receive_bytes=40),
    "gather 10 1 1 0": row("gather", peer=1, bytes=40),  # a receive count of 0 is left out
    "scatter 10 5 1 1 0": row("scatter", peer=1, bytes=40, receive_bytes=40),
    "scatter 10 5": row("scatter", peer=0, bytes=80, receive_bytes=40),
    "allgather 10 5 1 0": row("allgather", bytes=40, receive_bytes=40),
    "allgather 10 1 0": row("allgather", bytes=40),
    "alltoall 10 5 1 0": row("alltoall", bytes=40, receive_bytes=40),
    "ialltoall 10 5": row("ialltoall", bytes=80, receive_bytes=40, request=0),
    "gatherv 10 3 4 1 1 0": row("gatherv", peer=1, bytes=40, receive_counts=[24, 32]),
    "gatherv 10 3 4": row("gatherv", peer=0, bytes=80, receive_counts=[24, 32]),
    "allgatherv 10 3 4 1 0": row("allgatherv", bytes=40, receive_counts=[24, 32]),
    "allgatherv 10 3 4": row("allgatherv", bytes=80, receive_counts=[24, 32]),
    "scatterv 3 4 10 1 1 0": row("scatterv", peer=1, receive_bytes=80, send_counts=[12, 16]),
    "alltoallv 9 3 4 9 5 6 1 0": row("alltoallv", send_counts=[12, 16], receive_counts=[40, 48]),
    "ialltoallv 9 3 4 9 5 6": row("ialltoallv", send_counts=[24, 32], receive_counts=[40, 48], request=0),
    "reducescatter 3 4 500 1": row("reduce_scatter", bytes=4, receive_counts=[12, 16]),
    "reducescatter 3 4 0 1": row("reduce_scatter", bytes=4, receive_counts=[12, 16]),
    "reducescatter 0 0 0 0 0 1": row("reduce_scatter", receive_counts=[20, 20]),  # a block of five ints
    "waitAny 3": row("waitany"),
    "waitAll 3": row("waitall"),
    "testany": row("test"),
    "testsome": row("test"),
    "testall": row("test"),
}


BARRIERS = ("barrier", "ibarrier")


def others(*lines: str) -> list[str]:
    """What the other ranks do beside these lines of rank 0: the same collectives."""
    return [
        "init 1",
        *(line for line in lines if line.split()[0].lower() in (*COLLECTIVE_VERBS, "barrier", "ibarrier")),
    ]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("spelled", [str, str.upper, str.capitalize])
def test_verb(write_trace, line, spelled):
    workload = simgrid_ti.read(write_trace({0: [spelled(line)], 1: others(line)}))
    assert operations(workload)[0] == LINES[line]


def test_every_kind_of_operation_is_covered():
    made = {expected["kind"] for expected in LINES.values()} | {"wait"}
    no_sizes_of_their_own = {f"i{verb}" for verb in ("scan", "exscan", "gather", "gatherv", "scatter", "scatterv")}
    no_sizes_of_their_own |= {"iallgather", "iallgatherv", "ireduce_scatter"}
    never_written = {"other"}
    assert {kind.name for kind in OperationKind} == made | no_sizes_of_their_own | never_written


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.startswith("i") and verb[1:] in CODE])
def test_nonblocking_verb_has_the_sizes_of_the_blocking_one(write_trace, verb):
    line = next((line for line in LINES if line.split()[0] == verb[1:] and len(line.split()) > 2), verb[1:])
    blocking, nonblocking = (
        operations(simgrid_ti.read(write_trace({0: [text], 1: others(text)}, name)))[0]
        for text, name in ((line, "a"), ("i" + line, "b"))
    )
    assert nonblocking == {**blocking, "kind": "i" + blocking["kind"], "request": 0}


def test_allgatherv_layouts_with_displacements(write_trace):
    # on three ranks: counts and displacements; counts, datatypes and displacements
    lines = ["init", "allgatherv 10 3 4 5 0 3 7", "allgatherv 10 3 4 5 1 0 0 3 7"]
    workload = simgrid_ti.read(write_trace({0: lines, 1: lines, 2: lines}))
    assert operations(workload)[1:3] == [
        row("allgatherv", bytes=10, receive_counts=[3, 4, 5]),
        row("allgatherv", bytes=40, receive_counts=[24, 32, 40]),
    ]


@pytest.mark.parametrize(("first", "size"), [("init", 1), ("init 1", 8), ("barrier", 8)])
def test_init_sets_the_default_datatype(write_trace, first, size):
    workload = simgrid_ti.read(write_trace({0: [first, "send 1 0 10"], 1: others(first)}))
    assert operations(workload)[1]["bytes"] == 10 * size


def test_verbs_without_a_row(write_trace):
    lines = ["init", "comm_size 2", "comm_split 1", "comm_dup 1", "location a.c 3", "compute 5", "finalize"]
    assert kinds(simgrid_ti.read(write_trace({0: lines}))) == ["init", "finalize"]


def test_old_format_without_tags(write_trace):
    # SimGrid 3.19 and older: a wait takes the latest request before it
    lines = ["init", "Irecv 1 10 1", "wait", "Isend 1 3", "wait", "send 1 2 0", "finalize"]
    workload = simgrid_ti.read(write_trace({0: lines, 1: ["init"]}))
    assert operations(workload)[1:6] == [
        row("irecv", peer=1, receive_bytes=40, request=0),
        row("wait", completes=[0]),
        row("isend", peer=1, bytes=3, request=1),
        row("wait", completes=[1]),
        row("send", peer=1, bytes=16),
    ]


# -- compute ---------------------------------------------------------------------------------------------------------


def test_phases_and_their_regions(write_trace):
    lines = ["init", "compute 1", "location a.c 5", "compute 2", "compute 3", "barrier", "location b.c 6", "sleep 1e-9"]
    lines += ["location a.c 5", "compute 4.5", "compute 0", "finalize"]
    workload = simgrid_ti.read(write_trace({0: lines, 1: ["location b.c 6", "compute 1", "finalize"]}))
    assert workload.tables["regions"].column("name").to_pylist() == ["a.c:5", "b.c:6"]
    assert phases(workload) == [(1, 0, -1, 1000), (1, 0, 0, 2000), (1, 0, 0, 3000), (2, 1, 1, 1000), (2, 0, 0, 4500)]
    assert phases(workload, 1) == [(0, 0, 1, 1000)]


def test_compute_scales_with_the_flop_rate_and_sleep_does_not(write_trace):
    trace = write_trace({0: ["compute 10", "sleep 1", "finalize"]})
    assert [each[3] for each in phases(simgrid_ti.read(trace, ReadOptions(flop_rate=2e9)))] == [5000, 10**12]


@pytest.mark.parametrize("line", ["allreduce 1 500 6", "reduce 1 500 0 6", "scan 1 500 6", "reducescatter 1 1 500 6"])
def test_reduction_work_stands_behind_its_operation(write_trace, line):
    workload = simgrid_ti.read(write_trace({0: ["compute 7", line, "compute 8", "finalize"], 1: others(line)}))
    assert phases(workload) == [(0, 0, -1, 7000), (1, 0, -1, 500_000), (1, 0, -1, 8000)]


def test_missing_finalize_is_added_and_noted(write_trace):
    workload = simgrid_ti.read(
        write_trace({0: ["init", "compute 5"], 1: ["init", "finalize"], 2: ["finalize", "compute 5"]})
    )
    assert [kinds(workload, rank) for rank in range(3)] == [
        ["init", "finalize"],
        ["init", "finalize"],
        ["finalize"] * 2,
    ]
    assert [phases(workload, rank) for rank in range(3)] == [[(1, 0, -1, 5000)], [], [(1, 0, -1, 5000)]]
    assert "2 ranks end without finalize: the trace may be cut short" in told(workload.notes)


# -- requests --------------------------------------------------------------------------------------------------------


def read_requests(write_trace, *lines: str):
    return simgrid_ti.read(write_trace({0: [*lines, "finalize"], 1: others(*lines)}))


def test_wait_takes_the_earliest_request_of_its_key(write_trace):
    workload = read_requests(
        write_trace, "isend 1 7 8 6", "isend 1 7 9 6", "irecv 1 7 8 6", "isend 1 8 8 6",
        "wait 0 1 7", "wait 1 0 7", "wait 0 1 8", "wait 0 1 7",
    )  # fmt: skip
    assert completed(workload) == [("wait", [0]), ("wait", [2]), ("wait", [3]), ("wait", [1])]


def test_waitall_covers_what_no_later_wait_names(write_trace):
    # LULESH: receives, sends, a waitall of the sends (26 with the null ones), a wait for each receive
    workload = read_requests(
        write_trace, "irecv 1 1 8 6", "irecv 1 2 8 6", "isend 1 3 8 6", "isend 1 4 8 6",
        "waitAll 26", "wait 1 0 1", "wait 1 0 2",
    )  # fmt: skip
    assert completed(workload) == [("waitall", [2, 3]), ("wait", [0]), ("wait", [1])]
    assert any(note.startswith("1 waitall operations do not record their requests") for note in told(workload.notes))


def test_waitall_covers_no_more_than_its_array(write_trace):
    workload = read_requests(write_trace, "irecv 1 1 8 6", "irecv 1 2 8 6", "irecv 1 3 8 6", "waitAll 2", "waitAll 2")
    assert completed(workload) == [("waitall", [0, 1]), ("waitall", [2])]


def test_waitany_has_all_outstanding_requests_as_candidates(write_trace):
    workload = read_requests(write_trace, "irecv 1 1 8 6", "irecv 1 2 8 6", "waitAny 2", "waitAny 2", "waitAny 2")
    assert completed(workload) == [("waitany", [0, 1]), ("waitany", [0, 1]), ("waitany", [])]
    assert any(note.startswith("3 waitany operations") for note in told(workload.notes))


def test_a_test_before_a_wait_failed(write_trace):
    workload = read_requests(write_trace, "isend 1 7 8 6", "test 0 1 7", "test 0 1 7", "wait 0 1 7")
    assert completed(workload) == [("test", []), ("test", []), ("wait", [0])]


def test_the_last_of_tests_without_a_wait_is_one(write_trace):
    workload = read_requests(write_trace, "isend 1 7 8 6", "test 0 1 7", "test 0 1 7")
    assert completed(workload) == [("test", []), ("wait", [0])]
    assert "1 tests must have completed their request: replayed as waits" in told(workload.notes)


@pytest.mark.parametrize(("verb", "becomes"), [("testall", "waitall"), ("testany", "waitany"), ("testsome", "waitany")])
def test_tests_of_several_requests(write_trace, verb, becomes):
    workload = read_requests(write_trace, "irecv 1 1 8 6", "irecv 1 2 8 6", verb, verb)
    assert completed(workload) == [("test", []), (becomes, [0, 1])]


def test_wait_for_a_nonblocking_collective(write_trace):
    workload = read_requests(write_trace, "ibcast 8 0 6", "iallreduce 8 0 6", "wait 0 0 -4446", "wait 0 0 -3335")
    assert completed(workload) == [("wait", [1]), ("wait", [0])]


def test_started_persistent_requests(write_trace):
    # a start names destination, tag and bytes; the source of a receive is that of the wait for it
    workload = read_requests(write_trace, "Start 0 7 80", "Start 1 7 40", "Start 0 9 8", "wait 1 0 7", "wait 0 1 7")
    assert operations(workload)[:3] == [
        row("irecv", peer=1, tag=7, receive_bytes=80, request=0),
        row("isend", peer=1, tag=7, bytes=40, request=1),
        row("irecv", peer=NO_RANK, tag=9, receive_bytes=8, request=2),  # nobody sends it anything
    ]
    assert completed(workload) == [("wait", [0]), ("wait", [1])]


def test_started_receive_of_any_tag(write_trace):
    workload = simgrid_ti.read(write_trace({0: ["Start 0 -444 8"], 1: ["send 0 3 8 6"]}))
    assert operations(workload)[0] == row("irecv", peer=ANY_SOURCE, tag=ANY_TAG, receive_bytes=8, request=0)


# -- ranks that the tracer could not name ----------------------------------------------------------------------------


def test_any_source_and_any_tag(write_trace):
    workload = simgrid_ti.read(
        write_trace({
            0: ["send 1 7 8 6", "isend 1 8 8 6", "waitall 1", "finalize"],
            1: ["irecv -333 7 8 6", "wait -333 1 7", "recv 0 -444 8 6", "finalize"],
        })
    )  # fmt: skip
    assert operations(workload, 1)[:3] == [
        row("irecv", peer=ANY_SOURCE, tag=7, receive_bytes=8, request=0),
        row("wait", completes=[0]),
        row("recv", peer=0, tag=ANY_TAG, receive_bytes=8),
    ]
    assert any(
        note.startswith("1 receives from any source: the real source is not recorded") for note in told(workload.notes)
    )


def test_no_rank_as_a_peer(write_trace):
    workload = simgrid_ti.read(
        write_trace({
            0: ["send -333 7 8 6", "irecv -333 9 8 6", "wait -333 0 9", "sendRecv 1 -333 1 1 6 6", "finalize"],
            1: ["sendRecv 1 0 1 -333 6 6", "finalize"],
        })
    )  # fmt: skip
    assert operations(workload)[:4] == [
        row("send", peer=NO_RANK, tag=7, bytes=8),
        row("irecv", peer=NO_RANK, tag=9, receive_bytes=8, request=0),  # no send with tag 9: MPI_PROC_NULL
        row("wait", completes=[0]),
        row("sendrecv", peer=NO_RANK, bytes=1, source=1, receive_bytes=1),
    ]
    assert operations(workload, 1)[0] == row("sendrecv", peer=0, bytes=1, receive_bytes=1)  # nobody sends to rank 1
    assert any(
        "2 receives whose source is not recorded have no send that fits" in note for note in told(workload.notes)
    )


# -- containers ------------------------------------------------------------------------------------------------------

PROGRAM = {
    0: ["init", "location a.c 5", "compute 10", "isend 1 7 8 6", "wait 0 1 7", "alltoallv 8 3 4 9 5 6 1 0", "finalize"],
    1: ["init", "location b.c 6", "compute 20", "recv 0 7 8 6", "compute 5", "alltoallv 8 3 4 9 5 6 1 0", "finalize"],
}
PACKED = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "2.zst": lambda data: b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:99], data[99:])),
    "plain": bytes,
}


@pytest.fixture
def plain_digest(write_trace) -> str:
    return simgrid_ti.read(write_trace(PROGRAM, "plain")).digest


def mixed(ranks) -> bytes:
    """All ranks in one file, their lines in turn."""
    turns = zip(*([f"{rank} {line}\n" for line in lines] for rank, lines in ranks.items()), strict=True)
    return "".join(line for turn in turns for line in turn).encode()


@pytest.mark.parametrize("packed", PACKED)
def test_one_mixed_file(tmp_path, plain_digest, packed):
    path = tmp_path / "mixed"
    path.write_bytes(PACKED[packed](mixed(PROGRAM)))
    assert simgrid_ti.can_read(path)
    assert simgrid_ti.read(path).digest == plain_digest


@pytest.mark.parametrize("packed", PACKED)
def test_archive(tmp_path, write_trace, folder_as_tar, plain_digest, packed):
    path = tmp_path / "archive"
    path.write_bytes(PACKED[packed](folder_as_tar(write_trace(PROGRAM))))
    assert simgrid_ti.can_read(path)
    assert simgrid_ti.read(path).digest == plain_digest


@pytest.mark.parametrize("packed", PACKED)
def test_packed_rank_files(write_trace, plain_digest, packed):
    folder = write_trace(PROGRAM)
    for file in folder.glob("rank-*.txt"):
        file.write_bytes(PACKED[packed](file.read_bytes()))
    assert simgrid_ti.read(folder).digest == plain_digest
    assert simgrid_ti.read(folder / "ti.txt").digest == plain_digest


def test_archive_of_one_mixed_file_that_is_listed_for_each_rank(tmp_path, tar_bytes, plain_digest):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes({"ti.txt": b"all\nall\n", "all": mixed(PROGRAM)}))
    assert simgrid_ti.read(path).digest == plain_digest


@pytest.mark.parametrize(
    "line", ["{folder}/{name}", "./{name}", "/traced/elsewhere/{name}", "../trace/{name}", "\n  {name}  \r"]
)
def test_lists(write_trace, folder_as_tar, tmp_path, plain_digest, line):
    folder = write_trace(PROGRAM)
    names = [line.format(folder=folder, name=f"rank-{rank}.txt") for rank in range(2)]
    (folder / "ti.txt").write_text("\n".join(names) + "\n")
    (folder / "ti.txt").rename(folder / "other-list.txt")
    assert simgrid_ti.can_read(folder / "other-list.txt")
    assert simgrid_ti.read(folder / "other-list.txt").digest == plain_digest
    assert simgrid_ti.read(folder).digest == plain_digest


def test_list_of_one_file_for_each_rank(tmp_path, plain_digest):
    (tmp_path / "all.txt").write_bytes(mixed(PROGRAM))
    (tmp_path / "list.txt").write_text("all.txt\nall.txt\n")
    assert simgrid_ti.read(tmp_path / "list.txt").digest == plain_digest


@pytest.mark.parametrize("packed", [False, True])
def test_files_without_a_list_are_ordered_by_rank_not_by_name(write_trace, folder_as_tar, tmp_path, packed):
    folder = write_trace({rank: ["init", f"compute {rank + 1}", "finalize"] for rank in range(12)})
    (folder / "ti.txt").unlink()
    path = folder
    if packed:
        path = tmp_path / "a.tar"
        path.write_bytes(folder_as_tar(folder))
    durations = simgrid_ti.read(path).column("phases", "duration_ps")
    assert durations.tolist() == [1000 * (rank + 1) for rank in range(12)]


def test_blanks_comments_and_line_ends_mean_nothing(tmp_path, write_trace, plain_digest):
    assert simgrid_ti.read(write_trace(PROGRAM, "crlf", ending="\r\n")).digest == plain_digest
    text = mixed(PROGRAM).decode().replace(" ", " \t ").replace("\n", "  \n\n# a comment 5\n   \n")
    path = tmp_path / "spaced"
    path.write_text("# first\n\n" + text.rstrip())  # no line end behind the last line
    assert simgrid_ti.read(path).digest == plain_digest


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 30, 100])
def test_chunks_end_anywhere(tmp_path, monkeypatch, plain_digest, chunk_bytes):
    path = tmp_path / "mixed"
    path.write_bytes(mixed(PROGRAM))
    monkeypatch.setattr("manyscale.runner.readers.simgrid_ti.reader.CHUNK_BYTES", chunk_bytes)
    assert simgrid_ti.read(path).digest == plain_digest
    path.write_bytes(b"\n# comment\n" + mixed(PROGRAM) + b"0 frobnicate 1\n")
    with pytest.raises(UserError, match=f"mixed:{3 + 2 * len(PROGRAM[0])}: unknown verb 'frobnicate'"):
        simgrid_ti.read(path)


def test_traces_that_differ_have_different_digests(write_trace, plain_digest):
    changed = {**PROGRAM, 0: [line.replace("compute 10", "compute 11") for line in PROGRAM[0]]}
    assert simgrid_ti.read(write_trace(changed)).digest != plain_digest


# -- collectives that only some ranks call ---------------------------------------------------------------------------


def groups(workload, num_ranks: int) -> list[list[tuple[str, list[int]]]]:
    """Of each rank its collectives and their members."""
    members = workload.tables["communicators"].column("members").to_pylist()
    return [
        [
            (each["kind"], members[each["communicator_id"]])
            for each in operations(workload, rank)
            if each["kind"] in COLLECTIVE_VERBS or each["kind"] == "barrier"
        ]
        for rank in range(num_ranks)
    ]


def unequal(write_trace, *ranks: list[str], choice: str = "infer"):
    trace = write_trace({rank: [*lines, "finalize"] for rank, lines in enumerate(ranks)}, f"trace-{next(_NUMBER)}")
    return simgrid_ti.read(trace, ReadOptions(unequal_collectives=choice))


_NUMBER = count()
SMALL, LARGE = "allreduce 1 0 1", "allreduce 32 0 1"


def test_a_group_that_sizes_tell(write_trace):
    # two ranks call one more allreduce, of another size, as after MPI_Comm_split
    workload = unequal(write_trace, [LARGE, SMALL], [LARGE, SMALL], [SMALL], [SMALL])
    pair, world = ("allreduce", [0, 1]), ("allreduce", [0, 1, 2, 3])
    assert groups(workload, 4) == [[pair, world], [pair, world], [world], [world]]
    note = next(note for note in workload.notes if note.code == "unequal-collectives")
    assert (note.severity, note.count) == ("changes", 2)
    assert "the first: allreduce of 128 B" in note.text
    assert note.where.endswith("rank-0.txt:1")


def test_a_group_takes_the_time_of_its_ranks_alone(cli, write_trace, tmp_path):
    # 1 ms, two rounds of 10 us and 128 B at 1.25 GB/s for two ranks, two or three more for four
    ranks = {rank: ["compute 1e6", *[LARGE] * (rank < 2), SMALL, "finalize"] for rank in range(4)}
    outcome = cli("run", "--workload", write_trace(ranks), "--target", "crossbar256", "-o", "r", "--no-report")
    assert outcome.status == 0
    makespan = json.loads((tmp_path / "r" / "stats.json").read_text())["application.makespan"]["value"]
    assert 1e-3 + 2 * 10.1e-6 + 2 * 10e-6 < makespan < 1e-3 + 6 * 10.2e-6


def test_halves_that_call_as_often_but_not_the_same(write_trace):
    workload = unequal(write_trace, [LARGE], [LARGE], [SMALL], [SMALL])
    lower, upper = ("allreduce", [0, 1]), ("allreduce", [2, 3])
    assert groups(workload, 4) == [[lower], [lower], [upper], [upper]]


def test_groups_within_groups(write_trace):
    # bisection: halves of two ranks, of which only one is parted again
    halves = ["bcast 4 0 1", "bcast 8 0 1"]
    ranks = [
        [halves[0], "reduce 2 0 0 1", "barrier"],
        [halves[0], "barrier"],
        [halves[1], "barrier"],
        [halves[1], "barrier"],
    ]
    workload = unequal(write_trace, *ranks)
    world = ("barrier", [0, 1, 2, 3])
    assert groups(workload, 4) == [
        [("bcast", [0, 1]), ("reduce", [0]), world], [("bcast", [0, 1]), world],
        [("bcast", [2, 3]), world], [("bcast", [2, 3]), world],
    ]  # fmt: skip


def test_the_worlds_collectives_part_the_others(write_trace):
    # rank 1 calls LARGE twice, ranks 0 and 2 once, but on different sides of a barrier
    workload = unequal(write_trace, [LARGE, "barrier"], [LARGE, "barrier", LARGE], ["barrier", LARGE])
    world = ("barrier", [0, 1, 2])
    first, second = ("allreduce", [0, 1]), ("allreduce", [1, 2])
    assert groups(workload, 3) == [[first, world], [first, world, second], [world, second]]


TWICE = [[SMALL, SMALL], [SMALL, SMALL], [SMALL]]  # which of the two is on all ranks?


def test_a_group_that_cannot_be_told_is_refused_with_a_way_on(write_trace):
    message = (
        r"rank-0\.txt:1: allreduce of 4 B is not called by all ranks alike \(rank 0 calls it 2 times where rank 2 "
        r"calls it 1 times\), and the format names no communicators.*workload.unequal_collectives=group or =local$"
    )
    with pytest.raises(UserError, match=message):
        unequal(write_trace, *TWICE)
    with pytest.raises(UserError, match=message):  # that others can be told does not help
        unequal(write_trace, [SMALL, SMALL], [SMALL, SMALL], [SMALL], [LARGE])
    with pytest.raises(UserError, match="the ranks that call it come to it in different orders"):
        unequal(write_trace, [SMALL, LARGE], [LARGE, SMALL])
    cut = simgrid_ti.read(write_trace({0: [LARGE, SMALL, "finalize"], 1: [SMALL]}))
    said = next(note for note in cut.notes if note.code == "unequal-collectives-cut")
    assert said.severity == "forbids"
    assert "allreduce of 128 B is not called by all ranks alike, and rank 1 ends without finalize" in said.text
    with pytest.raises(UserError, match=r"rank-0\.txt:1: bcast of 16 B has a root beyond the 1 ranks that call it"):
        unequal(write_trace, ["bcast 4 1 1"], [])
    with pytest.raises(UserError, match=r"rank-0\.txt:1: gatherv of 4 B has counts for 2 ranks where 1 call it"):
        unequal(write_trace, ["gatherv 4 1 2 0 6 6"], [])


def test_counts_tell_the_members(write_trace):
    """Of five ranks two, then three, have lists of as many counts."""
    pair, three = "allgatherv 2 2 1 1 1", "alltoallv 9 1 2 3 9 4 5 6 6 6"
    ranks = [[pair, "barrier"], [pair, "barrier"], *[[three, "barrier"]] * 3]
    workload = unequal(write_trace, *ranks)
    world = ("barrier", list(range(5)))
    assert groups(workload, 5) == [[("allgatherv", [0, 1]), world]] * 2 + [[("alltoallv", [2, 3, 4]), world]] * 3
    assert operations(workload, 1)[0]["receive_counts"] == [8, 4]
    assert operations(workload, 4)[0]["send_counts"] == [1, 2, 3]
    assert operations(workload, 4)[0]["receive_counts"] == [4, 5, 6]
    # two pairs of five ranks: who is with whom?
    with pytest.raises(UserError, match=r"has counts for 2 ranks where 4 call it.*unequal_collectives=local$"):
        unequal(write_trace, *[[pair, "barrier"]] * 4, ["barrier"])
    alone = unequal(write_trace, *[[pair, "barrier"]] * 4, ["barrier"], choice="local")
    assert groups(alone, 5)[3] == [("allgatherv", [3]), world]
    assert operations(alone, 3)[0]["receive_counts"] == []


def test_the_user_chooses_groups(write_trace):
    pair, world = ("allreduce", [0, 1]), ("allreduce", [0, 1, 2])
    assert groups(unequal(write_trace, *TWICE, choice="group"), 3) == [[world, pair], [world, pair], [world]]
    alone = [("allreduce", [rank]) for rank in range(2)]
    assert groups(unequal(write_trace, *TWICE, choice="local"), 3) == [[world, alone[0]], [world, alone[1]], [world]]
    # what comes in different orders is done by those who have come
    crossed = groups(unequal(write_trace, [SMALL, LARGE], [LARGE, SMALL], choice="group"), 2)
    assert sorted(members for rank in crossed for _, members in rank) == [[0], [0, 1], [0, 1], [1]]
