"""The runtime-system tables from records written by hand: whose time is whose, and what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import told

from manyscale.models.workload.task_tables import SCHEMAS, EventKind, TaskFlag
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace import tasks as native_tasks
from manyscale.runner.readers.raw_trace.calls import COUNTED
from manyscale.runner.readers.raw_trace.files import (
    COUNTS,
    DEFINITIONS,
    EVENT,
    EVENTS,
    LISTS,
    OPERATION,
    OPERATIONS,
    Process,
)
from manyscale.runner.readers.raw_trace.task_events import DEPENDENCE, LOOP, PAGE_FAULTS, PARENT, UNKNOWN_DEPENDENCE

_E = EventKind
_BASE = 0x5000
_MODULES = [{"module": "/nowhere/app", "base": _BASE, "low": 0, "high": 0x1000}]

pytestmark = pytest.mark.theory


def site(number: int, address: int, construct: str = "task", base: int = _BASE) -> dict[str, Any]:
    return {"site": number, "address": base + address + 1, "construct": construct}


def process(
    folder: Path,
    events: list[tuple[int, int, int, int, int, int, int]],
    operations: list[tuple[int, int]] = [],  # noqa: B006
    rest_ns: int = 0,
    definitions: list[dict[str, Any]] | None = None,
    rank: int = 0,
    counts: list[list[int]] = [],  # noqa: B006
    of_calls: list[list[int]] = [],  # noqa: B006
) -> Process:
    """A process. Events: (kind, flags, operations before, task, extra, value, ns); operations: (ns, records before).
    ``counts`` of counters before each event, ``of_calls`` before each operation, where all of them are counted."""
    path = folder / f"rank{rank}.trace"
    path.touch()
    calls = np.zeros(len(operations), OPERATION)
    for row, (cpu_ns, num_events) in zip(calls, operations, strict=True):
        row["request"] = -1
        row["cpu_ns"], row["num_events"] = cpu_ns, num_events
        if of_calls:
            row["flags"], row["num_lists"] = COUNTED, len(of_calls[0])
    said = [
        {"trace": 2, "level": 2},
        {"rank": rank, "size": 2, "library": "mpich"},
        {"calls": ["MPI_Barrier"]},
        *([*_MODULES, site(1, 0x10), site(2, 0x20, "loop")] if definitions is None else definitions),
        {"end": True, "rest_cpu_ns": rest_ns},
    ]
    tail = {
        DEFINITIONS: b"",
        OPERATIONS: calls.tobytes(),
        LISTS: np.array(of_calls, "<i8").tobytes(),
        COUNTS: np.array(counts, "<i8").tobytes(),
        EVENTS: np.array(events, EVENT).tobytes(),
    }
    return Process(path, said, True, (), tail)


def rows(tables: dict[str, Any], table: str, *columns: str) -> list[Any]:
    found = tables[table].to_pylist()
    return [row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found]


def test_time_is_that_of_the_task_that_was_running(tmp_path: Path) -> None:
    """A creates B, which runs at once; operations lie before, inside and after B; each lap is told apart."""
    events = [
        (_E.task_create, 0, 1, 0, 1, 1, 1),
        (_E.task_begin, 0, 1, 0, 0, 1, 10),
        (_E.task_end, 0, 2, 1, 0, 0, 1000),
    ]
    operations = [(7, 0), (1 + 10 + 100, 2), (1000 + 10_000, 3)]
    tables, notes = native_tasks.build([process(tmp_path, events, operations, rest_ns=100_000)])
    assert {name: table.schema for name, table in tables.items()} == {
        name: schema
        for name, schema in SCHEMAS.items()
        if name not in ("iterations", "task_counters", "chunk_counters")
    }
    assert rows(tables, "events", "operation_id", "kind", "task_instance_id", "value", "cpu_ps") == [
        (1, int(_E.task_create), 0, 1, 1000),
        (1, int(_E.task_begin), 0, 1, 10_000),
        (2, int(_E.task_end), 1, 0, 1_000_000),
    ]
    assert rows(tables, "tasks", "parent_id", "task_type_id", "operation_id", "flags", "cpu_ps") == [
        (-1, -1, 0, TaskFlag.initial, (7 + 1 + 10 + 10_000 + 100_000) * 1000),
        (0, 0, 1, 0, (100 + 1000) * 1000),
    ]
    assert len(notes) == 1  # the program's file is not there
    assert notes[0].where == "app"


def test_what_is_counted_is_of_the_task_that_was_running(tmp_path: Path) -> None:
    """As time is: before each event, and the rest of a call's, behind its last event. A loop's chunks lie between
    events and calls."""
    events = [
        (_E.task_create, 0, 1, 0, 1, 1, 0),
        (_E.task_begin, 0, 1, 0, 0, 1, 0),
        (_E.task_end, 0, 2, 1, 0, 0, 0),
        (_E.loop_begin, 0, 2, 0, 2, 0, 0),
        (LOOP, 1, 2, 0, 4, 8, 0),
        (_E.loop_chunk, 0, 2, 0, 4, 0, 0),
        (_E.loop_chunk, 0, 3, 0, 4, 4, 0),
        (_E.loop_end, 0, 3, 0, 0, 0, 0),
    ]
    counts = [[1, 2], [10, 20], [1000, 2000], [3, 0], [4, 0], [5, 0], [7, 1]]
    of_calls = [[7, 0], [1 + 10 + 100, 22], [1000 + 3 + 4 + 40, 2000]]
    names = [*_MODULES, site(1, 0x10), site(2, 0x20, "loop"), {"counters": ["A", "B"]}]
    rest = [{"rest_count": 5 + 7 + 60_000}, {"rest_count": 1}]
    operations = [(0, 0), (0, 2), (0, 6)]
    one = process(tmp_path, events, operations, 0, [*names, *rest], 0, counts, of_calls)
    tables, notes = native_tasks.build([one])
    assert rows(tables, "task_counters", "task_instance_id", "counter", "value") == [
        (0, "A", 7 + 1 + 10 + 3 + 4 + 40 + 5 + 7 + 60_000), (0, "B", 2 + 20 + 1), (1, "A", 100 + 1000), (1, "B", 2000),
    ]  # fmt: skip
    assert rows(tables, "chunk_counters", "loop_id", "first_iteration", "counter", "value") == [
        (0, 0, "A", 40 + 5), (0, 0, "B", 0), (0, 4, "A", 7), (0, 4, "B", 1),
    ]  # fmt: skip
    assert not [note for note in notes if "counters" in note.code]
    # the processor gave the group's place to another in the first chunk
    counts[5] = [-1, -1]
    one = process(tmp_path, events, operations, 0, names, 0, counts, of_calls)
    tables, notes = native_tasks.build([one])
    assert rows(tables, "task_counters", "task_instance_id", "value") == [(1, 1100), (1, 2000)]
    assert rows(tables, "chunk_counters", "first_iteration", "value") == [(4, 7), (4, 1)]
    assert any("1 of 2 task instances have no counters" in note for note in told(notes))


def test_counts_that_end_inside_a_row_are_refused(tmp_path: Path) -> None:
    names = [*_MODULES, site(1, 0x10), {"counters": ["A", "B"]}]
    events = [(_E.task_create, 0, 0, 0, 1, 1, 0)]
    with pytest.raises(UserError, match="inside a record"):
        native_tasks.build([process(tmp_path, events, definitions=names, counts=[[1, 2, 3]])])


def test_events_are_about_types(tmp_path: Path) -> None:
    events = [
        (_E.taskgroup_begin, 0, 0, 0, 2, 0, 0),
        (_E.task_create, 0, 0, 0, 1, 1, 0),
        (_E.task_begin, 0, 0, 0, 0, 1, 0),
        (_E.critical_begin, 0, 0, 1, 2, 99, 0),
        (_E.critical_end, 0, 0, 1, 0, 99, 0),
        (_E.task_end, 0, 0, 1, 0, 0, 0),
        (_E.taskgroup_end, 0, 0, 0, 0, 0, 0),
        (_E.taskwait_begin, 0, 0, 0, 0, -1, 0),
    ]
    tables, _ = native_tasks.build([process(tmp_path, events)])
    assert rows(tables, "events", "task_type_id") == [1, 0, 0, 1, 1, 0, 1, -1]


def test_dependences_and_parents_that_stand_in_records_of_their_own(tmp_path: Path) -> None:
    events = [
        (_E.task_create, 0, 0, 0, 1, 1, 5),
        (_E.task_begin, 0, 0, 0, 0, 1, 5),
        (_E.task_create, 0, 0, 1, 1, 2, 5),
        (PARENT, 0, 0, 1, 0, 0, 0),
        (DEPENDENCE, 2, 0, 1, 2, 640, 0),
        (DEPENDENCE, UNKNOWN_DEPENDENCE, 0, 1, 2, 704, 0),
        (_E.task_end, 0, 0, 1, 0, 0, 5),
    ]
    one = process(tmp_path, events)
    tables, notes = native_tasks.build([one])
    assert rows(tables, "tasks", "parent_id") == [-1, 0, 0]
    assert rows(tables, "task_dependences", "task_instance_id", "kind", "address") == [(2, 2, 640), (2, 2, 704)]
    assert any("1 dependences are of unknown kinds" in note for note in told(notes))
    assert rows(tables, "events", "kind") == [
        int(_E.task_create),
        int(_E.task_begin),
        int(_E.task_create),
        int(_E.task_end),
    ]
    assert native_tasks.event_ids(one).tolist() == [0, 1, 2, 3, 3, 3, 3, -1]


def test_chunks_hold_all_time_to_the_next_one(tmp_path: Path) -> None:
    """That of tasks and operations in between, too; a loop that was cancelled ends where the next one begins."""
    events = [
        (_E.loop_begin, 0, 0, 0, 2, 0, 1),
        (LOOP, 2, 0, 0, 4, 8, 0),
        (_E.loop_chunk, 0, 0, 0, 4, 0, 2),
        (_E.task_create, 0, 0, 0, 1, 1, 4),
        (_E.loop_chunk, 0, 1, 0, 4, 4, 8),
        (_E.loop_begin, 0, 1, 0, 2, 1, 16),
        (_E.loop_chunk, 0, 1, 0, 2**32 - 1, 0, 32),
        (_E.loop_end, 0, 1, 0, 0, 1, 64),
    ]
    tables, _ = native_tasks.build([process(tmp_path, events, [(1 + 2 + 4 + 128, 4)], rest_ns=8 + 16 + 32 + 64)])
    assert rows(tables, "loops", "schedule", "num_iterations", "chunk_iterations") == [
        ("dynamic", 8, 4),
        ("unknown", -1, 0),
    ]
    chunks = rows(tables, "loop_chunks", "loop_id", "first_iteration", "num_iterations", "cpu_ps")
    assert chunks == [(0, 0, 4, (4 + 128 + 8) * 1000), (0, 4, 4, 16_000), (1, 0, -1, 64_000)]
    assert rows(tables, "events", "task_type_id") == [1, 1, 0, 1, 1, 1, 1]


def test_page_faults_are_of_what_the_next_event_or_operation_ends(tmp_path: Path) -> None:
    events = [
        (PAGE_FAULTS, 0, 0, 0, 0, 3, 0),
        (_E.loop_begin, 0, 0, 0, 2, 0, 1),
        (PAGE_FAULTS, 0, 0, 0, 0, 5, 0),  # an operation comes before the loop's end
        (_E.loop_end, 0, 1, 0, 0, 0, 64),
        (PAGE_FAULTS, 0, 1, 0, 0, 7, 0),
    ]
    one = process(tmp_path, events, [(4, 3)], rest_ns=100)
    tables, _ = native_tasks.build([one])
    assert rows(tables, "page_faults", "operation_id", "event_id", "num_faults") == [(0, 0, 3), (0, -1, 5), (1, -1, 7)]


def test_places_are_the_same_in_all_ranks_wherever_they_were_loaded(tmp_path: Path) -> None:
    elsewhere = 0x9000
    moved = [
        {"module": "/nowhere/app", "base": elsewhere, "low": 0, "high": 0x1000},
        site(1, 0x30, "taskloop", elsewhere),
        site(2, 0x10, "task", elsewhere),
        site(3, 0x5000, "task", elsewhere),
    ]
    events = [(_E.task_create, 0, 0, 0, number, number, 0) for number in (1, 2)]
    other = [*events, (_E.task_create, 0, 0, 0, 3, 3, 0)]
    tables, _ = native_tasks.build([process(tmp_path, events), process(tmp_path, other, definitions=moved, rank=1)])
    assert rows(tables, "task_types", "construct", "module", "offset", "function", "line") == [
        ("task", "app", 0x10, "0x10", 0),
        ("loop", "app", 0x20, "0x20", 0),
        ("taskloop", "app", 0x30, "0x30", 0),
        ("task", "", elsewhere + 0x5000, hex(elsewhere + 0x5000), 0),
    ]
    assert rows(tables, "tasks", "rank", "task_type_id") == [(0, -1), (0, 0), (0, 1), (1, -1), (1, 2), (1, 0), (1, 3)]


def test_marks_name_regions_of_the_table(tmp_path: Path) -> None:
    one = [{"region": 0, "name": "solve"}, {"region": 1, "name": "halo"}]
    other = [{"region": 0, "name": "halo"}]
    marks = [(_E.mark_begin, 0, 0, 0, 0, 0, 0), (_E.mark_end, 0, 0, 0, 0, 0, 0)]
    tables, _ = native_tasks.build(
        [process(tmp_path, marks, definitions=one), process(tmp_path, marks, definitions=other, rank=1)]
    )
    assert rows(tables, "events", "rank", "value") == [(0, 0), (0, 0), (1, 1), (1, 1)]


def test_what_a_trace_lacks_is_told(tmp_path: Path) -> None:
    said = [
        {"team": 3},
        {"foreign_events": 12},
        {"unreported": "work"},
        {"unreported": "masked"},
        {"invoker": "program"},
    ]
    _, notes = native_tasks.build([process(tmp_path, [], definitions=said)])
    assert len(notes) == 4
    for text in ("does not report masked, work", "3 threads", "12 OpenMP events", "built by GCC"):
        assert sum(text in note for note in told(notes)) == 1


def test_trace_without_the_level_has_no_tables(tmp_path: Path) -> None:
    one = process(tmp_path, [])
    one.definitions[0]["level"] = 1
    assert native_tasks.build([one]) == ({}, [])


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(_E.task_create, 0, 0, 0, 1, 2, 0)], "record 0: task instance 2 is created where 1 is expected"),
        ([(_E.taskyield, 0, 0, 1, 0, 0, 0)], "record 0: task instance 1 was never created"),
        ([(_E.task_create, 0, 0, 1, 1, 1, 0)], "record 0: task instance 1 has the parent 1"),
        ([(_E.loop_begin, 0, 0, 0, 2, 1, 0)], "record 0: loop 1 begins too early"),
    ],
)
def test_damaged_records(tmp_path: Path, events: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        native_tasks.build([process(tmp_path, events)])
    assert "rank0.trace: rank 0, event" in str(error.value)
