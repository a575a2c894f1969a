"""The Paraver reader on tiny traces; every expected table is derived by hand. Times are ns unless a trace says else."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from told import told

from manyscale.models.workload import NO_RANK, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import paraver
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.readers.paraver import records as prv_records

DATA = Path(__file__).parents[2] / "data" / "paraver"
TWO = "#Paraver (01/01/2020 at 00:00):1000_ns:1(2):1:2(1:1,1:1),1\nc:1:1:2:1:2\n"
P2P, COLLECTIVE, OTHER = 50000001, 50000002, 50000003
SEND, RECV, ISEND, IRECV, WAIT, WAITALL, BCAST, ALLREDUCE, SENDRECV, WAITANY = 1, 2, 3, 4, 5, 6, 7, 10, 41, 59


def event(task: int, time: int, *pairs: int, thread: int = 1, application: int = 1) -> str:
    return ":".join(map(str, (2, task, application, task, thread, time, *pairs))) + "\n"


def call(task: int, begin: int, end: int, value: int, *more: int, group: int = P2P) -> str:
    return event(task, begin, group, value, *more) + event(task, end, group, 0)


def state(task: int, begin: int, end: int, number: int = 1) -> str:
    return f"1:{task}:1:{task}:1:{begin}:{end}:{number}\n"


def message(source: int, sent: int, target: int, posted: int, received: int, size: int = 8, tag: int = 0) -> str:
    return f"3:{source}:1:{source}:1:{sent}:{sent}:{target}:1:{target}:1:{posted}:{received}:{size}:{tag}\n"


def read(folder: Path, text: str, pcf: str = "", **options: int) -> Workload:
    path = folder / "trace.prv"
    path.write_text(text)
    if pcf:
        path.with_suffix(".pcf").write_text(pcf)
    assert paraver.can_read(path)
    return paraver.read(path, ReadOptions(**options))


def rows(workload: Workload, rank: int, *columns: str) -> list[tuple]:
    table = workload.tables["operations"].to_pylist()
    return [tuple(row[name] for name in ("kind", *columns)) for row in table if row["rank"] == rank]


def phases(workload: Workload) -> list[tuple]:
    table = workload.tables["phases"].to_pylist()
    return [(row["rank"], row["operation_id"], row["kind"], row["duration_ps"] // 1000) for row in table]


def noted(workload: Workload, words: str) -> bool:
    return any(words in note for note in told(workload.notes))


# -- point to point --------------------------------------------------------------------------------------------------


def test_send_and_receive(tmp_path):
    text = TWO + call(1, 10, 20, SEND) + call(2, 5, 25, RECV) + message(1, 10, 2, 5, 25, size=100, tag=7)
    workload = read(tmp_path, text)
    assert rows(workload, 0, "peer", "bytes", "tag") == [("send", 1, 100, 7)]
    assert rows(workload, 1, "peer", "bytes", "tag") == [("recv", 0, 100, 7)]
    assert workload.tables["measured"].to_pylist() == [
        {"start_ps": 10_000, "end_ps": 20_000}, {"start_ps": 5_000, "end_ps": 25_000}
    ]  # fmt: skip
    # without states the time between calls is compute
    assert phases(workload) == [(0, 0, 0, 10), (1, 0, 0, 5)]


def test_a_folder_with_one_trace_is_one(tmp_path):
    text = TWO + call(1, 10, 20, SEND) + call(2, 5, 30, RECV) + message(1, 10, 2, 5, 30)
    whole = read(tmp_path, text)
    assert paraver.can_read(tmp_path)
    assert paraver.read(tmp_path).digest == whole.digest
    (tmp_path / "other.prv").write_text(text)
    with pytest.raises(UserError, match=r"holds 2 Paraver traces \(other.prv, trace.prv\); name the one to read"):
        paraver.read(tmp_path)
    (tmp_path / "resolved.yaml").touch()  # a run's directory
    assert not paraver.can_read(tmp_path)


def test_sendrecv_has_two_messages(tmp_path):
    text = TWO + call(1, 10, 20, SENDRECV) + call(2, 12, 22, SENDRECV)
    text += message(1, 10, 2, 12, 22, size=3) + message(2, 12, 1, 10, 20, size=4)
    workload = read(tmp_path, text)
    assert rows(workload, 0, "peer", "source", "bytes", "receive_bytes") == [("sendrecv", 1, 1, 3, 4)]
    assert rows(workload, 1, "peer", "source", "bytes", "receive_bytes") == [("sendrecv", 0, 0, 4, 3)]


def test_sendrecv_to_no_rank_on_one_side(tmp_path):
    text = TWO + call(1, 10, 20, SENDRECV) + call(2, 12, 22, SENDRECV) + message(1, 10, 2, 12, 22, tag=9)
    workload = read(tmp_path, text)
    assert rows(workload, 0, "peer", "source") == [("sendrecv", 1, NO_RANK)]
    assert rows(workload, 1, "peer", "source", "tag") == [("sendrecv", NO_RANK, 0, 9)]


WHOLE = [
    call(1, 10, 20, SENDRECV) + call(1, 30, 31, ISEND) + call(1, 32, 33, IRECV) + call(1, 40, 50, WAITALL),
    call(1, 50, 60, SEND) + call(1, 60, 60, SEND) + call(1, 60, 60, SEND),
    call(2, 12, 22, SENDRECV) + call(2, 23, 24, IRECV) + call(2, 25, 26, ISEND) + call(2, 27, 52, WAITALL),
    call(2, 52, 61, RECV) + call(2, 61, 61, RECV) + call(2, 61, 61, RECV),
]
MESSAGES = [
    message(1, 10, 2, 12, 22), message(2, 12, 1, 10, 20), message(1, 30, 2, 24, 52), message(2, 25, 1, 33, 50),
    message(1, 50, 2, 52, 61), message(1, 60, 2, 61, 61), message(1, 60, 2, 61, 61),
]  # fmt: skip


@pytest.mark.parametrize("which", range(len(MESSAGES)))
@pytest.mark.parametrize("times", [0, 2])
def test_a_message_deleted_or_doubled_is_noted(tmp_path, which, times):
    def severe(messages: list[str]) -> set[str]:
        notes = read(tmp_path, TWO + "".join(WHOLE + messages)).notes
        return {note.code for note in notes if note.severity in ("changes", "forbids")}

    damaged = [each for at, each in enumerate(MESSAGES) for _ in range(times if at == which else 1)]
    assert severe(MESSAGES) == set()
    assert severe(damaged) & {"calls-left-out", "messages-left-out"}


def test_messages_to_oneself(tmp_path):
    text = TWO + call(1, 10, 20, SENDRECV) + message(1, 10, 1, 10, 20) + call(2, 0, 1, 31, group=OTHER)
    assert rows(read(tmp_path, text), 0, "peer", "source") == [("sendrecv", 0, 0)]


@pytest.mark.parametrize("mark", [11, 10])  # Extrae's at the end of the irecv; others' at its begin
def test_requests_and_the_waits_that_complete_them(tmp_path, mark):
    text = TWO + call(1, 10, 11, IRECV) + call(1, 12, 13, ISEND) + call(1, 20, 30, WAIT) + call(1, 40, 50, WAIT)
    text += call(2, 14, 15, ISEND) + call(2, 16, 17, IRECV) + call(2, 18, 28, WAITALL)
    text += message(1, 12, 2, 17, 28) + message(2, 14, 1, mark, 50)
    workload = read(tmp_path, text)
    # the irecv (request 0) ends with the second wait; the first is left for the send
    assert rows(workload, 0, "request", "completes") == [
        ("irecv", 0, None), ("isend", 1, None), ("wait", -1, [1]), ("wait", -1, [0])
    ]  # fmt: skip
    assert rows(workload, 1, "request", "completes")[-1] == ("waitall", -1, [0, 1])
    assert not noted(workload, "first wait")


def test_receives_that_end_with_no_wait_take_the_next_free_one(tmp_path):
    text = TWO + call(1, 1, 2, IRECV) + call(1, 3, 4, IRECV) + call(1, 10, 20, WAIT) + call(1, 21, 30, WAITANY)
    text += call(2, 1, 2, SEND) + call(2, 3, 4, SEND) + message(2, 1, 1, 2, 5) + message(2, 3, 1, 4, 6)
    workload = read(tmp_path, text)
    assert rows(workload, 0, "completes")[2:] == [("wait", [0]), ("wait", [1])]
    assert noted(workload, "2 receives were completed by the first wait that ended after their message")


def test_calls_without_duration_at_one_time(tmp_path):
    text = TWO + call(1, 10, 10, SEND) * 3 + call(2, 10, 10, RECV) * 3
    text += "".join(message(1, 10, 2, 10, 10, size=size) for size in (1, 2, 3))
    workload = read(tmp_path, text)
    assert rows(workload, 0, "bytes") == [("send", 1), ("send", 2), ("send", 3)]
    assert rows(workload, 1, "bytes") == [("recv", 1), ("recv", 2), ("recv", 3)]


def test_back_to_back_calls_take_the_message_marked_at_their_begin(tmp_path):
    text = TWO + call(1, 0, 10, SEND) + call(1, 10, 20, SEND) + call(2, 0, 30, RECV) + message(1, 10, 2, 0, 30)
    workload = read(tmp_path, text)
    assert rows(workload, 0) == [("other",), ("send",)]
    assert noted(workload, "calls without a message in the trace (to no rank, or beyond a cut): send 1")


def test_back_to_back_irecvs_take_the_message_marked_at_their_end(tmp_path):
    text = TWO + call(1, 0, 10, IRECV) + call(1, 10, 20, IRECV) + call(1, 30, 40, WAITALL)
    text += (
        call(2, 0, 5, SEND) + call(2, 5, 9, SEND) + message(2, 0, 1, 10, 40, size=1) + message(2, 5, 1, 20, 40, size=2)
    )
    assert rows(read(tmp_path, text), 0, "bytes")[:2] == [("irecv", 1), ("irecv", 2)]


def test_a_receive_earlier_than_its_message_was_sent(tmp_path):
    text = TWO + call(1, 100, 110, SEND) + call(2, 5, 25, RECV) + message(1, 100, 2, 5, 25)
    assert rows(read(tmp_path, text), 1, "peer") == [("recv", 0)]


def test_point_to_point_without_any_message_is_said_loudly(tmp_path):
    workload = read(tmp_path, TWO + call(1, 10, 20, SEND) + call(2, 5, 25, RECV))
    assert rows(workload, 0) == [("other",)]
    assert noted(workload, "the trace holds no message (no record of type 3) although it has 2 point-to-point calls")


def test_waits_alone_need_no_message(tmp_path):
    bcast = 178  # MPI_Ibcast; waits are calls of the same group as sends
    workload = read(tmp_path, TWO + "".join(call(task, 10, 20, bcast, group=COLLECTIVE) for task in (1, 2))
                    + "".join(call(task, 30, 40, WAIT) for task in (1, 2)))  # fmt: skip
    assert not noted(workload, "the trace holds no message")


def test_messages_of_no_call_are_left_out(tmp_path):
    workload = read(tmp_path, TWO + state(1, 0, 100) + state(2, 0, 100) + message(1, 10, 2, 20, 30))
    assert rows(workload, 0) == [("other",)]
    assert noted(workload, "the trace holds no MPI call")
    assert noted(workload, "1 of 1 messages are left out")


# -- collectives -----------------------------------------------------------------------------------------------------

SIZES = (50100001, 50100002, 50100004)


def collective(task: int, begin: int, value: int, send: int, receive: int, root: bool = False, number: int = 1) -> str:
    mark = (50100003, 1) if root else ()
    pairs = (SIZES[0], send, SIZES[1], receive, SIZES[2], number, *mark)
    return event(task, begin, COLLECTIVE, value, *pairs) + event(task, begin + 5, COLLECTIVE, 0)


@pytest.mark.parametrize(
    ("value", "members", "expected"),
    [
        (BCAST, [(0, 64, False), (64, 0, True)], ("bcast", 1, 64, 0, None, None)),
        (ALLREDUCE, [(8, 8, False), (8, 8, False)], ("allreduce", NO_RANK, 8, 0, None, None)),
        (17, [(8, 16, False), (8, 16, False)], ("allgather", NO_RANK, 8, 8, None, None)),
        (11, [(8, 16, False), (8, 16, False)], ("alltoall", NO_RANK, 8, 8, None, None)),
        (13, [(8, 16, True), (8, 0, False)], ("gather", 0, 8, 8, None, None)),
        (14, [(8, 20, True), (12, 0, False)], ("gatherv", 0, 8, 0, None, [8, 12])),
        (15, [(32, 16, True), (0, 16, False)], ("scatter", 0, 16, 16, None, None)),
        (16, [(20, 8, True), (0, 12, False)], ("scatterv", 0, 0, 8, [8, 12], None)),
        (18, [(8, 20, False), (12, 20, False)], ("allgatherv", NO_RANK, 8, 0, None, [8, 12])),
        (80, [(20, 8, False), (20, 12, False)], ("reduce_scatter", NO_RANK, 1, 0, None, [8, 12])),
        (12, [(7, 5, False), (5, 7, False)], ("alltoallv", NO_RANK, 0, 0, [4, 3], [3, 2])),
        (8, [(0, 0, False), (0, 0, False)], ("barrier", NO_RANK, 0, 0, None, None)),
    ],
)
def test_sizes_and_roots(tmp_path, value, members, expected):
    text = TWO + "".join(collective(task, 10, value, *sizes) for task, sizes in enumerate(members, start=1))
    workload = read(tmp_path, text)
    columns = ("peer", "bytes", "receive_bytes", "send_counts", "receive_counts")
    assert rows(workload, 0, *columns) == [expected]


def test_communicators_larger_than_the_application_and_empty_ones(tmp_path):
    head = "#Paraver (01/01/2020 at 00:00):1000_ns:1(2):1:2(1:1,1:1),4\n"
    head += "c:1:1:4:1:2:3:4\nc:1:2:1:-1\nc:1:3:1:2\nc:1:4:2:2:1\n"
    text = head + collective(1, 10, ALLREDUCE, 8, 8) + collective(2, 10, ALLREDUCE, 8, 8)
    text += collective(2, 20, ALLREDUCE, 8, 8, number=3)
    text += collective(1, 30, BCAST, 8, 0, root=True, number=4) + collective(2, 30, BCAST, 0, 8, number=4)
    workload = read(tmp_path, text)
    assert workload.tables["communicators"].column("members").to_pylist() == [[0, 1], [1], [1, 0]]
    assert rows(workload, 1, "communicator_id") == [("allreduce", 0), ("allreduce", 1), ("bcast", 2)]
    assert rows(workload, 0, "peer")[-1] == ("bcast", 1)  # its place in the communicator
    assert noted(workload, "1 communicators list tasks that the application does not have")


@pytest.mark.parametrize(("cut", "kept"), [("begin", [20, 40]), ("end", [0, 20])])
def test_collectives_that_a_cut_left_some_members_of(tmp_path, cut, kept):
    times = {"begin": [(0, 20, 40), (20, 40)], "end": [(0, 20, 40), (0, 20)]}[cut]
    text = TWO + "".join(
        collective(task, time + task, ALLREDUCE, 8, 8) for task, mine in enumerate(times, start=1) for time in mine
    )
    workload = read(tmp_path, text)
    start = workload.tables["measured"].column("start_ps").to_pylist()
    kinds = [kind for (kind,) in rows(workload, 0)]
    assert [time // 1000 - 1 for time, kind in zip(start, kinds, strict=False) if kind == "allreduce"] == kept
    assert kinds.count("other") == 1
    assert noted(workload, "1 collectives lack some of their members")


# -- time, counters, regions -----------------------------------------------------------------------------------------


def test_compute_is_time_in_state_running(tmp_path):
    text = TWO + state(1, 0, 10, 2) + state(1, 10, 40) + state(1, 40, 50, 7) + state(1, 50, 60, 15) + state(1, 60, 70)
    text += call(1, 70, 80, 31, group=OTHER) + state(1, 70, 80, 15) + state(1, 80, 100)
    workload = read(tmp_path, text + call(2, 0, 1, 31, group=OTHER))
    # scheduling is no compute but takes its time (kind 1); what the tracer did is left out
    assert phases(workload) == [(0, 0, 0, 40), (0, 0, 1, 10), (0, 1, 0, 20)]
    assert rows(workload, 0) == [("init",), ("other",)]
    assert workload.tables["measured"].to_pylist()[1] == {"start_ps": 100_000, "end_ps": 100_000}


def test_counters_of_compute_alone(tmp_path):
    names = "EVENT_TYPE\n7  42000050 PAPI_TOT_INS [Instr completed]\n7\t42000059\tPAPI_TOT_CYC [Total cycles]\n"
    text = TWO + state(1, 0, 10) + event(1, 0, 42000050, 0) + event(1, 5, 42000050, 30, 42000059, 7)
    text += state(1, 10, 20, 4) + event(1, 10, P2P, SEND, 42000050, 40)
    text += event(1, 20, P2P, 0, 42000050, 1000) + event(1, 20, 42000050, 0)
    text += state(1, 20, 30) + event(1, 30, P2P, SEND) + event(1, 30, 42000050, 5) + event(1, 40, P2P, 0)
    text += event(1, 40, 42000050, 2000) + state(1, 30, 40, 4) + state(1, 40, 50) + state(1, 50, 60, 15)
    text += event(1, 50, 42000050, 6) + event(1, 60, 42000050, 3000) + state(1, 60, 70) + call(1, 70, 80, SEND)
    text += state(2, 0, 50) + event(2, 50, OTHER, 31) + event(2, 51, OTHER, 0)
    workload = read(tmp_path, text, names)
    assert workload.tables["counters"].to_pylist() == [
        {"phase_id": 0, "counter": "PAPI_TOT_INS", "value": 70},
        {"phase_id": 0, "counter": "PAPI_TOT_CYC", "value": 7},
        {"phase_id": 1, "counter": "PAPI_TOT_INS", "value": 5},  # on a line of its own behind the call's begin
        {"phase_id": 2, "counter": "PAPI_TOT_INS", "value": 6},  # neither the call's nor the tracer's
    ]


def test_regions_are_the_user_function_that_ran_alone_or_the_common_caller(tmp_path):
    names = "EVENT_TYPE\n0 60000019 User function\nVALUES\n0 End\n1 solve\n2 a..x [assemble_matrix]\n\n"
    names += "EVENT_TYPE\n0 70000001 Caller at level 1\nVALUES\n5 main\n"
    text = TWO + event(1, 0, 60000019, 1) + call(1, 10, 20, 31, group=OTHER)
    text += event(1, 25, 60000019, 2) + event(1, 28, 60000019, 0) + call(1, 30, 40, 19, 70000001, 5, group=OTHER)
    text += event(1, 40, 60000019, 0) + call(1, 50, 60, 19, 70000001, 5, group=OTHER)
    text += event(1, 60, 60000019, 2) + call(1, 70, 80, 19, group=OTHER)
    workload = read(tmp_path, text + call(2, 0, 1, 31, group=OTHER), names)
    regions = [*workload.tables["regions"].column("name").to_pylist(), None]
    named = [regions[row["region_id"]] for row in workload.tables["phases"].to_pylist()]
    assert named == ["solve", None, "main", "assemble_matrix"]


def test_microseconds_and_old_records(tmp_path):
    text = "#Paraver (26/01/04 at 16:35):260199:2:1:2(1:1,1:2),1\nc:1:91:2:1:2\n"
    text += call(1, 10, 20, 31, group=OTHER) + call(2, 10, 20, 31, group=OTHER) + "4:1:1:1:1:99:91:8:8:10:1\n"
    workload = read(tmp_path, text)
    assert workload.tables["measured"].to_pylist()[0] == {"start_ps": 10_000_000, "end_ps": 20_000_000}
    assert noted(workload, "1 records of type 4 are not read")
    assert noted(workload, "line 1 says that the trace ends at 260199, its records end at 20")


# -- several applications and threads, cuts, comments -----------------------------------------------------------------


def test_the_application_is_chosen(tmp_path):
    text = "#Paraver (01/01/2020 at 00:00):9_ns:0:2:1(1:0),2(1:0,1:0),3\nc:1:1:1:1\nc:2:1:2:1:2\n"
    text += call(1, 10, 20, 31, group=OTHER) + "".join(
        event(task, time, OTHER, value, application=2) for task in (1, 2) for time, value in ((30, 31), (40, 0))
    )
    first, second = read(tmp_path, text), read(tmp_path, text, application=2)
    assert (first.num_ranks, second.num_ranks) == (1, 2)
    assert noted(first, "application 1 of 2 is read; the records of the others (4) are not")
    assert rows(second, 1) == [("init",)]
    with pytest.raises(UserError, match="there is no application 3; the trace has 2"):
        read(tmp_path, text, application=3)


def test_other_threads_are_counted(tmp_path):
    text = "#Paraver (01/01/2020 at 00:00):30_ns:1(2):1:1(2:1),0\n" + call(1, 10, 20, 31, group=OTHER)
    text += event(1, 12, P2P, SEND, thread=2) + event(1, 13, P2P, 0, thread=2) + "3:1:1:1:2:12:12:1:1:1:1:9:9:8:0\n"
    workload = read(tmp_path, text)
    assert noted(workload, "2 records of other threads")
    assert noted(workload, "1 MPI calls of threads other than the first are left out")
    assert noted(workload, "1 messages of threads other than the first are left out")
    assert [note.code for note in workload.notes if note.severity == "forbids"] == ["calls-lost"]


def test_calls_that_a_cut_left_half_of(tmp_path):
    text = TWO + event(1, 30, P2P, 0) + call(1, 40, 50, 31, group=OTHER) + event(1, 60, P2P, SEND) + state(1, 50, 90)
    workload = read(tmp_path, text + event(2, 5, P2P, SEND) + call(2, 10, 20, 31, group=OTHER))
    times = [(row["start_ps"] // 1000, row["end_ps"] // 1000) for row in workload.tables["measured"].to_pylist()]
    assert times == [(0, 30), (40, 50), (60, 90), (5, 10), (10, 20)]
    assert rows(workload, 0) == [("other",), ("init",), ("other",)]
    assert noted(workload, "1 calls began before the trace (not replayed) and 1 went on after it")
    assert noted(workload, "1 MPI calls have no end")


def test_lines_that_are_no_records(tmp_path):
    text = (
        TWO + "# cut\n\n" + call(1, 10, 20, SEND) + "#free text\n \n" + call(2, 5, 25, RECV) + message(1, 10, 2, 5, 25)
    )
    plain = read(tmp_path, text)
    assert plain.digest == read(tmp_path, text.replace("\n", "\r\n")).digest == read(tmp_path, text.rstrip()).digest
    assert rows(plain, 1) == [("recv",)]


def test_lines_behind_the_end_that_go_back_in_time(tmp_path):
    text = TWO + call(1, 10, 20, 31, group=OTHER) + call(2, 10, 20, 31, group=OTHER)
    workload = read(tmp_path, text + event(1, 3, 41999999, 1, 42000050, 9, 50000061, 1))
    assert workload.tables["counters"].num_rows == 0
    assert noted(workload, "1 event lines go back in time")
    with pytest.raises(UserError, match=r"prv:7: .* goes back in time among the MPI calls"):
        read(tmp_path, text + event(1, 3, P2P, SEND))


# -- what is wrong is refused, with its line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("2:1:1:1:1:10:50000001", "is not a whole record"),
        ("2:1:1:1:1:10:5000000x:1", "is not a whole record"),
        ("1:1:1:1:1:10:20:1 trailing", "is not a whole record"),
        ("3:1:1:1:1:10:10:2:1:2:1:5:25:8", "is not a whole record"),
        ("5:1:1:1:1:10", "is no record of type 1 to 4"),
        ("hello", "is no record of type 1 to 4"),
        ("2:1:2:1:1:10:1:1", "names an application that line 1 does not declare"),
        ("2:1:1:3:1:10:1:1", "names a task that line 1 does not declare"),
        ("2:1:1:0:1:10:1:1", "names a task that line 1 does not declare"),
        ("2:1:1:2:2:10:1:1", "names a thread that line 1 does not declare"),
        ("3:1:1:1:1:10:10:2:1:9:1:5:25:8:0", "names a task that line 1 does not declare"),
    ],
)
def test_a_wrong_record_is_named_with_its_line(tmp_path, line, problem, monkeypatch):
    text = TWO + "# a comment\n" + call(1, 10, 20, SEND) + line + "\n" + call(2, 5, 25, RECV)
    for block in (1 << 20, 32):
        monkeypatch.setattr(prv_records, "BLOCK_BYTES", block)
        with pytest.raises(UserError) as caught:
            read(tmp_path, text)
        assert f"trace.prv:6: {line!r}" in str(caught.value)
        assert problem in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_truncated_gzip_is_refused(tmp_path):
    path = tmp_path / "trace.prv.gz"
    path.write_bytes(gzip.compress((TWO + call(1, 10, 20, SEND) * 500).encode())[:-20])
    with pytest.raises(UserError, match="damaged or cut short"):
        paraver.read(path)


def test_can_read_never_raises(tmp_path):
    other = tmp_path / "other"
    other.write_text("0 init\n")
    assert not paraver.can_read(other)
    assert not paraver.can_read(tmp_path / "missing")
    assert not paraver.can_read(tmp_path)


# -- real traces -----------------------------------------------------------------------------------------------------


@pytest.mark.property
@pytest.mark.parametrize("size", [4099, 1 << 14])
def test_the_size_of_the_blocks_plays_no_part(size, monkeypatch):
    whole = paraver.read(DATA / "lulesh-7+1.prv.gz")
    monkeypatch.setattr(prv_records, "BLOCK_BYTES", size)
    assert paraver.read(DATA / "lulesh-7+1.prv.gz").digest == whole.digest


def test_lulesh_with_a_second_application():
    """160 messages, each with both ends; 8 ranks; allreduces on a world that Extrae calls 14."""
    workload = paraver.read(DATA / "lulesh-7+1.prv.gz")
    kinds = workload.tables["operations"].column("kind").to_pylist()
    assert (workload.num_ranks, kinds.count("isend"), kinds.count("irecv"), kinds.count("allreduce")) == (
        8,
        160,
        160,
        16,
    )
    assert not noted(workload, "messages are left out")
    assert paraver.read(DATA / "lulesh-7+1.prv.gz", ReadOptions(application=2)).num_ranks == 12


@pytest.mark.parametrize("name", ["test1.prv", "test2.prv", "aliasing-lt_autoparallel.prv.gz"])
def test_odd_traces_read(name):
    workload = paraver.read(DATA / name)
    assert workload.is_measured
    assert workload.num_ranks == (2 if "aliasing" in name else 8)


# records of types 1, 2, 3 and 4; ranks of the first application; operations that send and that receive
EVERY = {
    "pypop-epoch/epoch_1proc.prv.gz": ((3468, 4048, 576, 0), 1, 576),
    "pypop-epoch/epoch_2proc.prv.gz": ((6985, 8147, 1156, 0), 2, 1156),
    "pypop-epoch/epoch_4proc.prv.gz": ((15007, 17579, 2556, 0), 4, 2556),
    "pypop-epoch/epoch_8proc.prv.gz": ((29983, 35114, 5100, 0), 8, 5100),
    "mess-lulesh/lulesh_4+4_with_uncores_sockets1+2.chop_5it.prv": ((4280, 6785, 484, 0), 8, 484),
    "mess-lulesh/lulesh_7+1_with_uncores_sockets1+2.chop8.prv": ((1704, 2640, 160, 0), 8, 160),
    "mess-lulesh/test1.prv": ((8, 25, 0, 0), 8, 0),
    "mess-lulesh/test2.prv": ((8, 27, 0, 0), 8, 0),
    "compss-cholesky-mn/cholesky-userparallel-1438874-16-2048.prv.gz": ((461, 42866, 136, 0), 2, 0),
    "compss-aliasing-local/aliasing-lt_autoparallel.prv": ((59, 910, 0, 0), 2, 0),
}
FOLDER = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "formats" / "paraver"


@pytest.mark.golden
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
def test_every_trace_at_hand_is_listed():
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.prv*")} == set(EVERY)


@pytest.mark.golden
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
@pytest.mark.parametrize("name", EVERY)
def test_every_trace(name, monkeypatch):
    counts, num_ranks, num_messages = EVERY[name]
    seen = []
    real = prv_records.RecordReader.read
    monkeypatch.setattr(prv_records.RecordReader, "read", lambda *args: seen.append(real(*args)) or seen[-1])
    workload = paraver.read(FOLDER / name)
    assert tuple(seen[0].tally[1:5].tolist()) == counts
    assert workload.num_ranks == num_ranks
    assert len(workload.send_rows) == num_messages
    measured = workload.column("measured", "end_ps") - workload.column("measured", "start_ps")
    assert measured.min() >= 0


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    paraver.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.property
def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    """User events within one phase: the tables stay as they are."""
    monkeypatch.setattr(prv_records, "BLOCK_BYTES", 1 << 16)
    paths = []
    for times in (1, 1, 8):
        paths.append(tmp_path / f"{times}.prv")
        lines = "".join(event(1, time, 9200001, 5, 60000100, time) for time in range(10_000)) * times
        paths[-1].write_text(TWO + lines + call(1, 10_000, 10_001, 31, group=OTHER))
    sizes = [peak_bytes(path) for path in paths]  # the first one also compiles
    assert paths[2].stat().st_size > 3_000_000
    assert sizes[2] < 1.2 * sizes[1] < 8_000_000
