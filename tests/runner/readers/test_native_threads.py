"""Calls of several threads as one sequence."""

import numpy as np

from manyscale.runner.readers.raw_trace import threads
from manyscale.runner.readers.raw_trace.files import OPERATION
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES


def records(thread, *calls):
    """Records of (name, start, end, CPU time, other fields) and their lists."""
    rows = np.zeros(len(calls), OPERATION)
    lists = []
    for row, (name, start, end, cpu, *rest) in zip(rows, calls, strict=True):
        row["peer"], row["source"], row["request"], row["num_events"] = -2, -2, -1, thread
        row["call"], row["start_ns"], row["end_ns"], row["cpu_ns"] = NAMES.index(f"MPI_{name}"), start, end, cpu
        for field, value in (rest[0] if rest else {}).items():
            if field == "lists":
                row["num_lists"] = len(value)
                lists += value
            else:
                row[field] = value
    return threads.Records(rows, np.array(lists, np.int64))


def shown(merged):
    starts = np.cumsum(merged.operations["num_lists"]) - merged.operations["num_lists"]
    return [
        (NAMES[row["call"]].removeprefix("MPI_"), int(row["request"]), int(row["cpu_ns"]),
         merged.lists[at : at + row["num_lists"]].tolist())
        for row, at in zip(merged.operations, starts, strict=True)
    ]  # fmt: skip


def test_calls_that_block_end_where_they_ended():
    """A receive and a send of two threads that overlap: neither holds up the other."""
    own = records(0, ("Init_thread", 0, 10, 5), ("Recv", 20, 60, 10, {"peer": 3, "tag": 7, "receive_bytes": 8}))
    others = records(1, ("Send", 30, 40, 4, {"peer": 2, "bytes": 9}))
    merged = threads.merged(own, others, NAMES)
    # CPU time: until 20 the first thread's 10 since 10; from 26 to 30 the other's 4, whose phase may begin with them
    assert shown(merged) == [
        ("Init_thread", -1, 5, []),
        ("Irecv", 0, 10, []),
        ("Isend", 1, 4, []),
        ("Wait", -1, 0, [1, -2, 0, 0]),
        ("Wait", -1, 0, [0, 3, 8, 7]),
    ]


def test_threads_that_compute_at_once_take_what_the_longest_takes():
    own = records(0, ("Init_thread", 0, 0, 0), ("Barrier", 100, 120, 0))
    first = records(1, ("Barrier", 100, 110, 100))  # computes from 0 to 100
    second = records(2, ("Barrier", 50, 60, 20))  # computes for 20 before 50, on a CPU it has to itself
    others = threads.Records(np.concatenate((second.operations, first.operations)), np.empty(0, np.int64))
    merged = threads.merged(own, others, NAMES)
    assert [name for name, *_ in shown(merged)] == [
        "Init_thread",
        "Ibarrier",
        "Wait",
        "Ibarrier",
        "Ibarrier",
        "Wait",
        "Wait",
    ]
    assert merged.operations["cpu_ns"].sum() == 100


def test_lists_stay_with_their_calls():
    own = records(0, ("Waitall", 0, 90, 0, {"lists": [0, -2, 0, 0, 1, -2, 0, 0]}))
    own = threads.Records(own.operations, np.append(own.lists, 99))  # of a call that was being recorded
    others = records(1, ("Isend", 5, 6, 0, {"request": 0}), ("Isend", 7, 8, 0, {"request": 1}),
                     ("Wait", 9, 100, 0, {"lists": [2, -2, 0, 0]}))  # fmt: skip
    assert shown(threads.merged(own, others, NAMES)) == [
        ("Isend", 0, 0, []),
        ("Isend", 1, 0, []),
        ("Waitall", -1, 0, [0, -2, 0, 0, 1, -2, 0, 0]),
        ("Wait", -1, 0, [2, -2, 0, 0]),
    ]


def test_what_a_thread_computes_last_counts():
    """Its end is an unfinished record; it is no call."""
    # the first thread waits for it, and computes for 1 then
    own = records(0, ("Init", 0, 0, 0), ("Finalize", 500, 510, 1, {"elapsed_ns": 100_000}))
    others = records(1, ("Barrier", 10, 20, 10), ("Init", 320, 320, 300, {"flags": 1}))
    merged = threads.merged(own, others, NAMES)
    assert [name for name, *_ in shown(merged)] == ["Init", "Ibarrier", "Wait", "Finalize"]
    assert merged.operations["cpu_ns"].tolist() == [0, 10, 0, 300 + 1]
