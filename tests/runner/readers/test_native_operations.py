"""Operations, phases and communicators from records that are written by hand, as the tracer would write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import told

from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace import operations as native_operations
from manyscale.runner.readers.raw_trace.files import EVENT, EVENTS, LISTS, OPERATION, OPERATIONS, Process
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES
from manyscale.runner.readers.raw_trace.reader import choose_ranks

pytestmark = pytest.mark.theory
UNFINISHED, CANCELLED, WILDCARD, ANY_TAG, FAILED = 1, 2, 4, 8, 16
INTERCOMMUNICATOR, COMPLETED, COUNTED = 128, 256, 512
Call = tuple[str, dict[str, Any], Sequence[int]]
Make = Callable[..., Process]


def call(name: str, values: Sequence[int] = (), **fields: Any) -> Call:
    """A record of MPI_``name``: on the world, without peers, 5 ns long after 7 ns of computing, unless said."""
    return f"MPI_{name}", fields, values


@pytest.fixture
def process(tmp_path: Path) -> Make:
    """``process(rank, size, calls, definitions, events)``: what a process recorded."""

    def make(
        rank: int,
        size: int,
        calls: Sequence[Call],
        definitions: Sequence[dict[str, Any]] = (),
        events: Sequence[tuple[int, int, int]] = (),
        *,
        end: dict[str, Any] | None = None,
        offset: int = 0,
    ) -> Process:
        path = tmp_path / f"{rank}.trace"
        path.touch()
        records = np.zeros(len(calls), OPERATION)
        for name, value in (("peer", -2), ("source", -2), ("request", -1), ("region", -1), ("cpu_ns", 7)):
            records[name] = value
        records["num_events"] = len(events)
        lists: list[int] = []
        for i, (name, fields, values) in enumerate(calls):
            records[i]["call"] = NAMES.index(name)
            records[i]["num_lists"] = len(values)
            records[i]["start_ns"], records[i]["end_ns"] = 100 * i, 100 * i + 5
            for field, value in fields.items():
                records[i][field] = value
            lists += values
        rows = np.zeros(len(events), EVENT)
        for i, (kind, value, cpu_ns) in enumerate(events):
            rows[i]["kind"], rows[i]["value"], rows[i]["cpu_ns"] = kind, value, cpu_ns
        start = {"trace": 2, "host": f"host{rank}", "clock_offset_ns": offset}
        first = [
            start,
            {"rank": rank, "size": size, "library": "MPI"},
            {"calls": list(NAMES[:50])},
            {"calls": list(NAMES[50:])},
        ]
        last = [{"end": True, "rest_cpu_ns": 9, "end_ns": 1000}] if end is None else [end] if end else []
        tail = {OPERATIONS: records.tobytes(), LISTS: np.array(lists, np.int64).tobytes(), EVENTS: rows.tobytes()}
        content = [json.loads(json.dumps(each)) for each in [*first, *definitions, *last]]
        return Process(path, content, bool(last), (), tail)

    return make


def built(*processes: Process) -> tuple[Workload, list[dict[str, Any]]]:
    tables, notes = native_operations.build(list(processes))
    # unchecked: some processes of a run, whose partners have no rows
    workload = Workload("built", len(processes), tables, tuple(notes), is_checked=True)
    return workload, workload.tables["operations"].to_pylist()


def test_a_program_without_mpi_has_one_last_operation(process: Make, tmp_path: Path) -> None:
    alone = process(0, 1, [])
    alone.definitions[:] = [each for each in alone.definitions if "rank" not in each and "calls" not in each]
    workload, rows = built(alone)
    assert [row["kind"] for row in rows] == ["other"]
    assert workload.tables["phases"].to_pylist() == [
        {"rank": 0, "operation_id": 0, "kind": 0, "region_id": -1, "duration_ps": 9000}
    ]
    assert workload.tables["communicators"].to_pydict() == {"members": [[0]]}


def test_a_receive_takes_source_tag_and_size_from_its_completion(process: Make) -> None:
    wild = {"flags": WILDCARD | ANY_TAG, "peer": -1, "tag": -1, "receive_bytes": 100}
    calls = [
        call("Irecv", request=0, **wild),
        call("Irecv", request=1, **wild),
        call("Waitany", [1, 3, 40, 8], flags=0),
        call("Test", flags=0),
        call("Test", [0, 2, 30, 9], flags=COMPLETED),
    ]
    workload, rows = built(process(0, 1, calls))
    assert [(row["kind"], row["peer"], row["tag"], row["receive_bytes"], row["completes"]) for row in rows[:-1]] == [
        ("irecv", 2, 9, 30, []),
        ("irecv", 3, 8, 40, []),
        ("wait", -2, 0, 0, [1]),
        ("test", -2, 0, 0, []),
        ("wait", -2, 0, 0, [0]),
    ]
    assert told(workload.notes) == ("2 receives from any source take the one they had in the traced run",)


def test_work_between_polls_is_marked(process: Make) -> None:
    calls = [
        call("Irecv", request=0, peer=1, tag=3, receive_bytes=8),
        call("Testall"),
        call("Testall"),
        call("Testall", [0, 1, 8, 3], flags=COMPLETED),
        call("Barrier"),
        call("Iprobe", peer=1),
        call("Iprobe", peer=1, flags=COMPLETED),
        call("Recv", peer=1, receive_bytes=8),
        call("Request_get_status"),
        call("Request_get_status"),
        call("Testany"),
        call("Testany", flags=COMPLETED),  # all null
        call("Barrier"),
    ]
    workload, rows = built(process(0, 1, calls))
    assert [row["kind"] for row in rows] == [
        "irecv", "test", "test", "waitall", "barrier", "test", "other", "recv", "test", "test", "test", "wait",
        "barrier", "other",
    ]  # fmt: skip
    polled = [0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert workload.column("phases", "kind").tolist() == [2 * each for each in polled]


def test_requests_that_never_complete_are_told(process: Make) -> None:
    workload, rows = built(process(0, 1, [call("Irecv", request=0, flags=WILDCARD, peer=-1, receive_bytes=8)]))
    assert (rows[0]["kind"], rows[0]["peer"], rows[0]["receive_bytes"]) == ("irecv", -1, 8)
    assert "1 requests are never completed in the trace" in told(workload.notes)
    assert "1 receives from any source never completed: the first message in simulated time is taken" in told(
        workload.notes
    )


def test_a_cancelled_request_takes_no_part(process: Make) -> None:
    calls = [
        call("Irecv", request=0, peer=1),
        call("Isend", request=1, peer=1, bytes=4),
        call("Cancel"),
        call("Waitall", [0, -3, 0, 0, 1, -2, 0, 0], flags=CANCELLED),
    ]
    workload, rows = built(process(0, 1, calls))
    assert [(row["kind"], row["request"], row["completes"]) for row in rows[:-1]] == [
        ("other", -1, []),
        ("isend", 0, []),
        ("other", -1, []),
        ("waitall", -1, [0]),
    ]
    assert "1 requests were cancelled: their operations take no part" in told(workload.notes)


def test_started_requests_repeat_their_template(process: Make) -> None:
    calls = [
        call("Ssend_init", request=0, peer=1, tag=5, bytes=16),
        call("Recv_init", request=1, peer=-1, tag=6, receive_bytes=99, flags=WILDCARD),
        call("Startall", [0, 2, 1, 3]),
        call("Startall"),
        call("Waitall", [2, -2, 0, 0, 3, 4, 24, 6]),
        call("Start", [0, 4]),
        call("Wait", [4, -2, 0, 0]),
    ]
    workload, rows = built(process(0, 1, calls))
    columns = ("kind", "peer", "tag", "bytes", "receive_bytes", "request", "completes")
    assert [tuple(row[name] for name in columns) for row in rows[2:-1]] == [
        ("issend", 1, 5, 16, 0, 0, []),
        ("irecv", 4, 6, 0, 24, 1, []),
        ("other", -2, 0, 0, 0, -1, []),  # MPI_Startall of nothing
        ("waitall", -2, 0, 0, 0, -1, [0, 1]),
        ("issend", 1, 5, 16, 0, 2, []),
        ("wait", -2, 0, 0, 0, -1, [2]),
    ]
    assert [row["kind"] for row in rows[:2]] == ["other"] * 2
    phases = workload.tables["phases"].to_pydict()
    assert phases["operation_id"] == [0, 1, 2, 4, 5, 6, 7, 8]  # before the first of the two that are started
    start = workload.column("measured", "start_ps")
    end = workload.column("measured", "end_ps")
    assert start[2:5].tolist() == [200_000, 200_000, 300_000]
    assert end[2:5].tolist() == [200_000, 205_000, 305_000]


def test_persistent_collectives_repeat_their_lists(process: Make) -> None:
    calls = [
        call("Alltoallv_init", [1, 2, 3, 4], request=0),
        call("Start", [0, 1]),
        call("Wait", [1, -2, 0, 0]),
    ]
    _, rows = built(process(0, 1, calls))
    assert [(row["kind"], row["send_counts"], row["receive_counts"], row["completes"]) for row in rows[:3]] == [
        ("other", [], [], []),
        ("ialltoallv", [1, 2], [3, 4], []),
        ("wait", [], [], [0]),
    ]


def test_a_sendrecv_that_does_not_block_has_two_halves(process: Make) -> None:
    calls = [
        call("Isendrecv", request=0, peer=1, tag=2, bytes=8, source=-1, receive_tag=-1, receive_bytes=99,
             flags=WILDCARD | ANY_TAG),
        call("Wait", [0, -2, 0, 0]),
    ]  # fmt: skip
    _, rows = built(process(0, 1, calls))
    columns = ("kind", "peer", "source", "tag", "bytes", "receive_bytes", "request", "completes")
    assert [tuple(row[name] for name in columns) for row in rows[:3]] == [
        ("isend", 1, -2, 2, 8, 0, 0, []),
        ("irecv", -1, -2, -1, 0, 99, 1, []),
        ("wait", -2, -2, 0, 0, 0, -1, [0, 1]),
    ]


def test_the_tag_of_neighbours_is_nobody_elses(process: Make) -> None:
    calls = [call("Send", peer=0, tag=77, bytes=1), call("Neighbor_alltoall", [1, 0, 8, 1, 0, 8])]
    _, rows = built(process(0, 1, calls))
    assert [row["tag"] for row in rows[:4]] == [77, 78, 78, 0]
    assert [row["completes"] for row in rows[:4]] == [[], [], [], [0, 1]]


def test_calls_that_take_no_part_say_why(process: Make) -> None:
    calls = [
        call("Send", flags=FAILED),
        call("Bcast", flags=INTERCOMMUNICATOR),
        call("Ineighbor_alltoall", flags=INTERCOMMUNICATOR, request=0),
        call("Send", peer=-4, bytes=8),
        call("Comm_dup", communicator=-1),
        call("Put", communicator=-1),
        call("Comm_spawn"),
        call("Request_free"),
    ]
    workload, rows = built(process(0, 1, calls))
    assert [row["kind"] for row in rows] == ["other", "barrier", *["other"] * 7]
    assert told(workload.notes) == (
        "one-sided communication and file access are not replayed: MPI_Put 1",
        "calls that may wait for other ranks are not replayed: MPI_Comm_dup 1",
        "communication with processes outside MPI_COMM_WORLD is not replayed: MPI_Ineighbor_alltoall 1, MPI_Send 1",
        "what processes outside the trace do is not known, nor generalised requests: MPI_Comm_spawn 1",
        "collectives between two groups are replayed as barriers, without their data: MPI_Bcast 1",
        "calls that returned an error take no part: MPI_Send 1",
    )


def test_a_call_that_had_not_returned_is_left_out(process: Make) -> None:
    calls = [call("Send", peer=0, bytes=8), call("Waitall", [0, 1], flags=UNFINISHED, cpu_ns=11)]
    workload, rows = built(process(0, 1, calls, end={}))
    assert [row["kind"] for row in rows] == ["send", "other"]
    assert workload.tables["phases"].to_pydict()["duration_ps"] == [7000, 11000]  # what it computed before that call
    assert told(workload.notes) == ("rank 0: MPI_Waitall had not returned when the trace ended: it is left out",)


def test_the_same_members_in_the_same_turn_are_the_same_communicator(process: Make) -> None:
    def made(number: int, *members: int, remote: Sequence[int] = ()) -> dict[str, Any]:
        return {"communicator": number, "members": members, **({"remote": remote} if remote else {})}

    barriers = [call("Barrier", communicator=number) for number in (2, 3, 4, 5)]
    one = process(0, 3, barriers, [made(1, 0), made(2, 0, 1, 2), made(3, 0, 1), made(4, 0, 1), made(5, 1, 0)])
    two = process(1, 3, barriers, [made(1, 1), made(2, 0, 1), made(3, 0, 1, 2), made(4, 0, 1), made(5, 1, 0)])
    send = [call("Barrier", communicator=2), call("Send", communicator=3, peer=1, flags=INTERCOMMUNICATOR)]
    last = {"communicator": 3, "more": [1], "of": "remote"}
    three = process(2, 3, send, [made(1, 2), made(2, 0, 1, 2), made(3, 2, remote=[0]), last])
    workload, rows = built(one, two, three)
    members = workload.tables["communicators"].column("members").to_pylist()
    number = [[row["communicator_id"] for row in rows if row["rank"] == rank][:-1] for rank in range(3)]
    assert [members[each] for each in number[0]] == [[0, 1, 2], [0, 1], [0, 1], [1, 0]]
    assert [members[each] for each in number[1]] == [[0, 1], [0, 1, 2], [0, 1], [1, 0]]
    assert [members[each] for each in number[2]] == [[0, 1, 2], [0, 1, 2]]
    assert number[0][0] == number[1][1] == number[2][0] != 0  # made by the program, so it is not the world
    assert len(set(number[0])) == 4
    assert number[0][1:] == [number[1][0], number[1][2], number[1][3]]
    assert number[2][1] not in (0, number[2][0])  # between 0 1 and 2: another one


def test_times_are_on_one_clock(process: Make) -> None:
    barrier = [call("Barrier")]
    workload, _ = built(process(0, 2, barrier, offset=5000), process(1, 2, barrier, offset=4000))
    assert workload.column("measured", "start_ps").tolist() == [1_000_000, 2_000_000, 0, 1_000_000]
    assert workload.column("measured", "end_ps").tolist() == [1_005_000, 2_000_000, 5_000, 1_000_000]


def test_marks_cut_phases(process: Make) -> None:
    begin, end, other = int(EventKind.mark_begin), int(EventKind.mark_end), int(EventKind.task_create)
    names = [{"region": 0, "name": "a"}, {"region": 1, "name": "b"}]
    events = [(begin, 0, 10), (other, 0, 1), (begin, 1, 20), (end, 1, 30), (end, 0, 4), (begin, 1, 5)]
    calls = [call("Barrier", cpu_ns=100, num_events=4), call("Barrier", cpu_ns=9, num_events=5)]
    workload, _ = built(process(0, 1, calls, names, events, end={"end": True, "rest_cpu_ns": 8, "end_ns": 0}))
    found = [tuple(row.values()) for row in workload.tables["phases"].select([1, 3, 4]).to_pylist()]
    assert found == [
        (0, -1, 10_000), (0, 0, 21_000), (0, 1, 30_000), (0, 0, 39_000), (1, 0, 4_000), (1, -1, 5_000), (2, -1, 5_000),
        (2, 1, 3_000),
    ]  # fmt: skip
    assert workload.tables["regions"].to_pydict() == {"name": ["a", "b"]}


def test_counters_belong_to_the_phase_before_their_call(process: Make) -> None:
    begin = int(EventKind.mark_begin)
    names = [{"counters": ["PAPI_TOT_INS", "PAPI_TOT_CYC"]}, {"region": 0, "name": "a"}]
    calls = [
        call("Irecv", [1000, 500], flags=COUNTED, request=0, num_events=0),
        call("Wait", [2000, 700, 0, 3, 16, 4], flags=COUNTED, num_events=0),
        call("Barrier", num_events=0),  # could not be counted
        call("Barrier", [3000, 900], flags=COUNTED, num_events=1),  # a mark cuts what came before it
    ]
    workload, rows = built(process(0, 1, calls, names, [(begin, 0, 3)]))
    assert workload.tables["counters"].to_pylist() == [
        {"phase_id": 0, "counter": "PAPI_TOT_INS", "value": 1000},
        {"phase_id": 0, "counter": "PAPI_TOT_CYC", "value": 500},
        {"phase_id": 1, "counter": "PAPI_TOT_INS", "value": 2000},
        {"phase_id": 1, "counter": "PAPI_TOT_CYC", "value": 700},
    ]
    assert (rows[0]["peer"], rows[0]["receive_bytes"], rows[1]["completes"]) == (3, 16, [0])


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([call("Wait", [5, -2, 0, 0])], "rank 0, call 0 (MPI_Wait): completes request 5, which no call opened"),
        ([call("Start", [3, 4])], "rank 0: starts a request that no earlier call set up"),
        ([call("Send", communicator=7, peer=0)], "call 0 (MPI_Send): is on a communicator whose members are not"),
    ],
)
def test_damaged_records_are_refused(process: Make, calls: list[Call], message: str) -> None:
    with pytest.raises(UserError) as raised:
        built(process(0, 1, calls))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_lists_and_unknown_calls_are_refused(process: Make) -> None:
    cut = process(0, 1, [call("Wait", [0, -2, 0, 0])])
    cut.tail[LISTS] = b""
    with pytest.raises(UserError, match="4 values of the calls' lists are missing"):
        built(cut)
    strange = process(0, 1, [call("Barrier")])
    strange.definitions[2] = {"calls": ["MPI_Foo"]}
    with pytest.raises(UserError, match="records call MPI_Foo"):
        built(strange)


def never_initialised(process: Process) -> Process:
    process.definitions[:] = [each for each in process.definitions if "rank" not in each and "calls" not in each]
    return process


def test_programs_that_end_before_mpi_say_so(process: Make, tmp_path: Path) -> None:
    """All of them, or some while another one aborts at once."""
    first, second = (never_initialised(process(rank, 2, [])) for rank in range(2))
    with pytest.raises(UserError, match="none of 2 processes initialised MPI: they ended before"):
        choose_ranks(tmp_path, [first, second])
    aborting = process(1, 2, [call("Init")], [{"abort": 3}])
    words = r"rank 0 of 2 ended before its MPI_Init returned, when rank 1 called MPI_Abort\(3\): there is nothing to"
    with pytest.raises(UserError, match=words):
        choose_ranks(tmp_path, [first, aborting])
    with pytest.raises(UserError, match="rank 0 of 2 left no trace"):
        choose_ranks(tmp_path, [aborting])


def test_traces_of_the_first_version_are_read(process: Make) -> None:
    """Their records end before the times of other threads; a phase is the first thread's CPU time."""
    new = process(0, 1, [call("Init"), call("Finalize", cpu_ns=40)])
    added = ("process_ns", "longest_ns", "elapsed_ns")
    old = np.dtype([(name, OPERATION[name]) for name in OPERATION.names if name not in added])
    records = np.frombuffer(new.tail[OPERATIONS], OPERATION)
    plain = np.zeros(len(records), old)
    for name in old.names:
        plain[name] = records[name]
    first = {**new.definitions[0], "trace": 1}
    tail = {**new.tail, OPERATIONS: plain.tobytes()}
    workload, rows = built(Process(new.path, [first, *new.definitions[1:]], True, (), tail))
    assert [row["kind"] for row in rows] == ["init", "finalize", "other"]
    assert workload.column("phases", "duration_ps").tolist() == [7000, 40000, 9000]
    assert workload.tables["phase_times"].num_rows == 0
