"""Broken traces: programs cut at random points, against a slow oracle and the replay; what is left of each table."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from told import told
from validation.simgrid.prediction import predict_workload
from validation.simgrid.random_programs import generate

from manyscale.models.workload import COLLECTIVES, NONBLOCKING_COLLECTIVES, OperationKind, Workload, WorkloadError
from manyscale.models.workload import SCHEMAS as ALL_SCHEMAS
from manyscale.models.workload.notes import informs
from manyscale.models.workload.task_tables import SCHEMAS as TASK_SCHEMAS
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.readers.raw_trace.trim import trim

BLOCKING = {"send", "ssend", "recv", "sendrecv"} | {
    OperationKind(kind).name for kind in COLLECTIVES if kind not in NONBLOCKING_COLLECTIVES
}


def shortened(workload: Workload, lengths: np.ndarray) -> Workload:
    """The first operations of each rank and their phases, as a tracer leaves that was killed."""
    tables = dict(workload.tables)
    place = np.arange(workload.num_operations) - workload.rank_offsets[workload.column("operations", "rank")]
    left = place < lengths[workload.column("operations", "rank")]
    tables["operations"] = tables["operations"].filter(pa.array(left))
    phases = workload.column("phases", "operation_id") < lengths[workload.column("phases", "rank")]
    tables["phases"] = tables["phases"].filter(pa.array(phases))
    return Workload(workload.name, workload.num_ranks, tables, workload.notes, workload.source_format)


def of_ranks(workload: Workload) -> list[list[dict[str, object]]]:
    rows = workload.tables["operations"].to_pylist()
    bounds = workload.rank_offsets
    return [rows[bounds[rank] : bounds[rank + 1]] for rank in range(workload.num_ranks)]


def expected_ends(workload: Workload) -> list[int]:
    """First operation of each rank that cannot end with what is left of the others: by trying again until it holds."""
    ranks = of_ranks(workload)
    members = [len(row["members"]) for row in workload.tables["communicators"].to_pylist()]
    ends = [len(rows) for rows in ranks]

    def sent(row):
        return (row["communicator_id"], row["tag"], row["rank"], row["peer"])

    def received(row):
        source = row["source"] if row["kind"] == "sendrecv" else row["peer"]
        return (row["communicator_id"], row["tag"], source, row["rank"])

    def is_send(row):
        return row["kind"] in ("send", "isend", "ssend", "issend", "bsend", "ibsend", "sendrecv") and row["peer"] >= 0

    def is_receive(row):
        return row["kind"] in ("recv", "irecv", "sendrecv") and received(row)[2] >= 0

    while True:
        before = list(ends)
        for rank, rows in enumerate(ranks):
            kept = [row for other, end in zip(ranks, ends, strict=True) for row in other[:end]]
            sends = Counter(sent(row) for row in kept if is_send(row))
            receives = Counter(received(row) for row in kept if is_receive(row))
            called = Counter(
                (row["communicator_id"], row["rank"]) for row in kept if OperationKind[row["kind"]] in COLLECTIVES
            )
            my_sends, my_receives, my_calls, dead = Counter(), Counter(), Counter(), set()
            for place, row in enumerate(rows[: ends[rank]]):
                lonely = False
                if is_send(row):
                    my_sends[sent(row)] += 1
                    lonely |= my_sends[sent(row)] > receives[sent(row)]
                if is_receive(row):
                    my_receives[received(row)] += 1
                    lonely |= my_receives[received(row)] > sends[received(row)]
                if OperationKind[row["kind"]] in COLLECTIVES:
                    communicator = row["communicator_id"]
                    my_calls[communicator] += 1
                    others = [count for (of, _), count in called.items() if of == communicator]
                    lonely |= sum(count >= my_calls[communicator] for count in others) < members[communicator]
                if lonely and row["request"] >= 0:
                    dead.add(row["request"])
                if (lonely and row["kind"] in BLOCKING) or dead & set(row["completes"] or ()):
                    ends[rank] = place
                    break
        if ends == before:
            return ends


@pytest.mark.property
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_cut_anywhere(seed: int, write_trace) -> None:
    """The result is the largest by the oracle, it replays with eager and with synchronous starts, and trimming it again
    changes nothing."""
    program = generate(seed)
    workload = simgrid_ti.read(write_trace(dict(enumerate(program.actions))))
    whole, notes = trim(workload)
    assert whole is workload
    assert notes == []
    random = np.random.default_rng(seed)
    sizes = np.diff(workload.rank_offsets)
    for draw in range(4):
        lengths = sizes.copy()
        if draw % 2:
            lengths[random.integers(len(sizes))] = random.integers(sizes.max() + 1)
        else:
            lengths = random.integers(sizes + 1)
        broken = shortened(workload, np.minimum(lengths, sizes))
        trimmed, _ = trim(broken)
        ends, had = expected_ends(broken), np.diff(broken.rank_offsets)
        assert np.diff(trimmed.rank_offsets).tolist() == np.minimum(np.array(ends) + 1, had).tolist()
        for rows, end in zip(of_ranks(trimmed), ends, strict=True):
            assert all(row["kind"] == "other" for row in rows[end:])
        if trimmed.num_operations:
            predict_workload(trimmed, eager=False)
            predict_workload(trimmed, eager=True)
        assert trim(trimmed)[0].digest == trimmed.digest


@pytest.mark.golden
@pytest.mark.parametrize("name", ["lulesh-8", "nas-cg-A-8", "hpcg-8", "comd-8", "nas-is-A-8"])
def test_real_traces(name: str) -> None:
    """Complete, they stay as they are; with one rank killed half way, all others are left somewhere near the half."""
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    whole, notes = trim(workload)
    assert whole.digest == workload.digest
    assert notes == []
    sizes = np.diff(workload.rank_offsets)
    lengths = sizes.copy()
    lengths[3] //= 2
    trimmed, notes = trim(shortened(workload, lengths))
    predict_workload(trimmed, eager=False)
    left = np.diff(trimmed.rank_offsets) / sizes
    assert np.all((left > 0.4) & (left < 0.7))
    assert len(notes) >= 7


def broken(write_trace, *ranks: str) -> Workload:
    """A workload from one text of actions per rank, whose init and finalize are given."""
    lines = {rank: [line.strip() for line in text.split(";")] for rank, text in enumerate(ranks)}
    return simgrid_ti.read(write_trace(lines))


END = ["init", "finalize"]  # the reader adds what a rank's last lines lack


def kinds(workload: Workload) -> list[list[str]]:
    return [[str(row["kind"]) for row in rows] for rows in of_ranks(workload)]


@pytest.mark.theory
class TestSmall:
    def test_a_receive_whose_sender_died(self, write_trace):
        trimmed, notes = trim(broken(write_trace, "init; compute 5; recv 1 0 8; barrier; finalize", "init; compute 3"))
        assert kinds(trimmed)[0] == ["init", "other"]
        assert told(notes) == (
            "rank 0: the last 3 of 4 operations were cut, from MPI_Recv on, which its partners did not reach",
        )
        # what it computed before the receive is kept
        assert trimmed.column("phases", "duration_ps").max() == 5000

    def test_one_cut_leads_to_the_next(self, write_trace):
        chain = broken(
            write_trace,
            "init; send 1 0 8; send 1 1 8; finalize",
            "init; recv 0 0 8; recv 2 0 8; recv 0 1 8; finalize",
            "init; recv 3 0 8; send 1 0 8; finalize",
            "init",
        )
        trimmed, _ = trim(chain)
        assert kinds(trimmed) == [["init", "send", "other"], ["init", "recv", "other"], ["init", "other"], END]

    def test_a_message_on_its_way_takes_no_part(self, write_trace):
        trimmed, notes = trim(broken(write_trace, "init; isend 1 0 8; compute 7; barrier", "init; barrier"))
        assert kinds(trimmed) == [["init", "other", "barrier", "finalize"], ["init", "barrier", "finalize"]]
        assert told(notes) == ("1 non-blocking or buffered operations that nobody answered take no part",)
        assert set(trimmed.column("operations", "request").tolist()) == {-1}

    def test_a_wait_for_it_is_where_the_rank_ends(self, write_trace):
        trimmed, notes = trim(
            broken(write_trace, "init; irecv 1 0 8; barrier; wait 1 0 0; compute 1; finalize", "init; barrier")
        )
        assert kinds(trimmed) == [["init", "other", "barrier", "other"], ["init", "barrier", "finalize"]]
        assert told(notes)[0].startswith("rank 0: the last 2 of 5 operations were cut, from MPI_Wait on")

    def test_the_first_of_several_waits_ends_the_rank(self, write_trace):
        mine = "init; irecv 1 0 8; irecv 1 1 8; waitAny 2; barrier; waitall 2; finalize"
        trimmed, _ = trim(broken(write_trace, mine, "init; send 0 0 8; barrier"))
        assert kinds(trimmed) == [["init", "irecv", "other", "other"], ["init", "send", "other"]]

    def test_collectives_that_not_all_reached(self, write_trace):
        trimmed, _ = trim(
            broken(write_trace, "init; barrier; bcast 8; finalize", "init; barrier; bcast 8; barrier", "init; barrier")
        )
        assert kinds(trimmed) == [
            ["init", "barrier", "other"],
            ["init", "barrier", "other"],
            ["init", "barrier", "finalize"],
        ]

    def test_a_receive_from_any_source_takes_what_is_left(self, write_trace):
        trimmed, _ = trim(
            broken(
                write_trace,
                "init; recv 1 0 8; recv -333 0 8; recv -333 0 8; finalize",
                "init; send 0 0 8; finalize",
                "init; send 0 0 8",
            )
        )
        assert kinds(trimmed)[0] == ["init", "recv", "recv", "other"]
        assert kinds(trimmed)[2] == ["init", "send", "finalize"]

    def test_many_ranks_are_told_of_together(self, write_trace):
        ranks = ["init; barrier; finalize"] * 12 + ["init"]
        _, notes = trim(broken(write_trace, *ranks))
        assert len(notes) == 9
        assert told(notes)[-1] == "4 more ranks: 8 of 12 operations were cut"

    def test_a_detailed_level_is_refused(self, write_trace):
        workload = broken(write_trace, "init; barrier", "init")
        segment = dict.fromkeys(ALL_SCHEMAS["segments"].names, 0) | {"task_instance_id": -1}
        tables = {**workload.tables, "segments": pa.Table.from_pylist([segment], ALL_SCHEMAS["segments"])}
        with pytest.raises(WorkloadError, match="trim before"):
            trim(Workload("made", 2, tables))


@pytest.mark.theory
def test_all_tables_end_with_the_operations(write_trace) -> None:
    """Rank 0 is cut at its operation 2: what happened before it stays, what came later goes."""
    workload = broken(
        write_trace, "init; compute 1; barrier; compute 2; barrier; compute 3; finalize", "init; compute 4; barrier"
    )
    phases = workload.tables["phases"].to_pylist()
    assert [(row["rank"], row["operation_id"]) for row in phases] == [(0, 1), (0, 2), (0, 3), (1, 1)]
    rows = {
        "measured": [{"start_ps": 10 * i, "end_ps": 10 * i + 5} for i in range(7)],
        "task_types": [{"construct": "task", "function": "", "file": "", "line": 0, "module": "", "offset": 0}],
        "counters": [{"phase_id": i, "counter": "PAPI_TOT_INS", "value": 100 + i} for i in range(4)],
        "events": [
            {
                "rank": 0, "operation_id": operation, "kind": kind, "task_instance_id": 0, "task_type_id": 0,
                "value": value, "cpu_ps": 1,
            }
            for operation, kind, value in (
                (1, EventKind.loop_begin, 0), (2, EventKind.task_create, 1), (3, EventKind.loop_begin, 1),
                (3, EventKind.task_create, 2),
            )
        ],
        "tasks": [
            {
                "rank": 0, "task_instance_id": task, "parent_id": 0 if task else -1, "task_type_id": 0,
                "operation_id": operation, "flags": 0, "cpu_ps": 1,
            }
            for task, operation in ((0, 0), (1, 2), (2, 3))
        ],
        "task_dependences": [
            {"rank": 0, "task_instance_id": task, "kind": 0, "address": 64 * task} for task in (1, 2)
        ],
        "loops": [
            {
                "rank": 0, "loop_id": loop, "task_type_id": 0, "schedule": "static", "num_iterations": 4,
                "chunk_iterations": 0,
            }
            for loop in (0, 1)
        ],
        "loop_chunks": [
            {"rank": 0, "loop_id": loop, "first_iteration": 0, "num_iterations": 4, "cpu_ps": 1} for loop in (0, 1)
        ],
        "task_counters": [
            {"rank": 0, "task_instance_id": task, "counter": "task-clock", "value": 7} for task in (0, 1, 2)
        ],
        "chunk_counters": [
            {"rank": 0, "loop_id": loop, "first_iteration": 0, "counter": "task-clock", "value": 7} for loop in (0, 1)
        ],
        "page_faults": [
            {"rank": 0, "operation_id": operation, "event_id": event, "num_faults": 1 + operation}
            for operation, event in ((1, 0), (2, -1), (3, 2))
        ],
        "iterations": [
            {
                "rank": 0, "iteration": i, "first_operation_id": 1 + i, "end_operation_id": 2 + i, "first_event_id": 0,
                "end_event_id": 0, "annotated": True,
            }
            for i in range(3)
        ],
        "dependencies": [
            {"rank": 0, "operation_id": i, "requires": i - 1, "on_start": False} for i in range(1, 4)
        ],
    }  # fmt: skip
    assert not set(TASK_SCHEMAS) - set(rows)
    tables = {level: pa.Table.from_pylist(content, ALL_SCHEMAS[level]) for level, content in rows.items()}
    trimmed, _ = trim(Workload("made", 2, {**workload.tables, **tables}, (informs("a-note", "a note"),), "raw"))

    def left(level: str, column: str) -> list[object]:
        return trimmed.tables[level].column(column).to_pylist()

    assert kinds(trimmed) == [["init", "barrier", "other"], ["init", "barrier", "finalize"]]
    assert left("phases", "duration_ps") == [1000, 2000, 4000]
    assert left("counters", "phase_id") == [0, 1, 2]
    assert left("counters", "value") == [100, 101, 103]
    assert left("measured", "start_ps") == [0, 10, 20, 40, 50, 60]
    assert left("measured", "end_ps") == [5, 15, 20, 45, 55, 65]
    assert left("events", "value") == [0, 1]
    assert left("tasks", "task_instance_id") == [0, 1]
    assert left("task_dependences", "task_instance_id") == [1]
    assert left("loops", "loop_id") == [0]
    assert left("loop_chunks", "loop_id") == [0]
    assert left("task_counters", "task_instance_id") == [0, 1]
    assert left("chunk_counters", "loop_id") == [0]
    assert left("page_faults", "num_faults") == [2, 3]
    assert left("iterations", "end_operation_id") == [2]
    assert left("dependencies", "operation_id") == [1, 2]
    assert told(trimmed.notes) == ("a note",)
    assert trimmed.source_format == "raw"
