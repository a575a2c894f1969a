"""What a workload promises of its tables is checked when it is built: one wrong value, one line that says what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.workload import OPERATIONS_SCHEMA, SCHEMAS, OperationKind, Workload, WorkloadError
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.rules import RULES

pytestmark = pytest.mark.contract

Rows = dict[str, list[dict[str, Any]]]


def operation(rank: int, kind: str, **values: Any) -> dict[str, Any]:
    plain = dict.fromkeys(OPERATIONS_SCHEMA.names) | {
        "rank": rank, "kind": kind, "peer": -2, "source": -2, "tag": 0, "bytes": 0, "receive_bytes": 0,
        "communicator_id": 0, "request": -1,
    }  # fmt: skip
    return plain | values


def whole() -> Rows:
    """A row or two of every table."""
    plain: Rows = {level: [dict.fromkeys(schema.names, 0)] for level, schema in SCHEMAS.items()}
    for level, schema in SCHEMAS.items():
        for column in schema:
            if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
                plain[level][0][column.name] = "name"
            elif pa.types.is_list(column.type):
                plain[level][0][column.name] = []
            elif pa.types.is_boolean(column.type):
                plain[level][0][column.name] = False
    plain["operations"] = [
        operation(0, "irecv", peer=1, request=0),
        operation(0, "wait", completes=[0]),
        operation(0, "alltoallv", send_counts=[0, 8], receive_counts=[0, 8]),
        operation(0, "bcast", peer=0, communicator_id=1),
        operation(1, "send", peer=0, bytes=8),
        operation(1, "alltoallv", send_counts=[8, 0], receive_counts=[8, 0]),
    ]
    plain["phases"] = [
        {"rank": rank, "operation_id": number, "kind": 0, "region_id": region, "duration_ps": 5}
        for rank, number, region in ((0, 0, -1), (0, 3, 0), (1, 1, 0))
    ]
    plain["communicators"] = [{"members": [0, 1]}, {"members": [0]}]
    plain["measured"] = [{"start_ps": 0, "end_ps": 5} for _ in range(6)]
    plain["phase_times"] = [{"thread_ps": 5, "process_ps": 5, "wall_ps": 5} for _ in range(3)]
    plain["tasks"] = [{**plain["tasks"][0], "task_instance_id": i, "parent_id": i - 1} for i in range(2)]
    plain["stacks"] = [{"frames": [0, 0]}]
    plain["launches"] = [{name: value or 1 for name, value in plain["launches"][0].items()}]
    plain["launches"] += [{**plain["launches"][0], "launch_id": 2}]
    plain["copies"][0]["before_launch_id"] = 1
    return plain


def build(rows: Rows) -> Workload:
    return Workload("made", 2, {level: pa.Table.from_pylist(rows[level], SCHEMAS[level]) for level in rows})


def test_a_workload_that_keeps_its_promises() -> None:
    assert build(whole()).num_operations == 6


def test_kinds_are_what_they_are_called_whatever_their_dictionary() -> None:
    """A dictionary that Arrow makes numbers the kinds as they first appear."""
    table = pa.Table.from_pylist(whole()["operations"], OPERATIONS_SCHEMA)
    assert to_numpy(table.column("kind")).tolist() == [0, 1, 2, 3, 4, 2]
    workload = build(whole())
    names = ["irecv", "wait", "alltoallv", "bcast", "send", "alltoallv"]
    assert workload.column("operations", "kind").tolist() == [OperationKind[name] for name in names]
    assert workload.tables["operations"].column("kind").to_pylist() == names
    assert workload.tables["operations"].schema.equals(OPERATIONS_SCHEMA)
    pieces = pa.concat_tables([pa.Table.from_pylist([row], OPERATIONS_SCHEMA) for row in whole()["operations"]])
    tables = {**workload.tables, "operations": pieces}
    assert Workload("made", 2, tables).digest == workload.digest


def test_unknown_kinds_are_refused() -> None:
    rows = whole()
    rows["operations"][4]["kind"] = "shout"
    with pytest.raises(WorkloadError, match=r"^made: table 'operations': kind 'shout' is unknown; use one of init, "):
        build(rows)


# (table, row, column, wrong value, what is said): every rule once
WRONG = [
    ("operations", 0, "rank", 1, r"row 1 \(rank 0, operation 1\): \(rank\) is below that of the row before; sort"),
    ("operations", 5, "rank", 2, "rank is 2, but there are 2 ranks; it must lie within 0 to 1"),
    ("operations", 0, "peer", 2, r"row 0 \(rank 0, operation 0\): peer is 2, but there are 2 ranks; .* within -2 to 1"),
    ("operations", 0, "peer", -3, "peer is -3"),
    ("operations", 4, "peer", -1, r"row 4 \(rank 1, operation 0\): peer is -1 \(any source\), but it is no receive"),
    ("operations", 4, "source", 0, "has a source, but it is no sendrecv"),
    ("operations", 4, "source", 2, "source is 2"),
    ("operations", 4, "tag", -2, "tag is -2; it must be -1 or more"),
    ("operations", 4, "bytes", -8, "bytes is -8; it must be 0 or more"),
    ("operations", 4, "receive_bytes", -1, "receive_bytes is -1"),
    ("operations", 4, "communicator_id", 2, "communicator_id is 2, but there are 2 rows in table 'communicators'"),
    ("operations", 4, "communicator_id", -1, "communicator_id is -1"),
    ("operations", 4, "request", -2, "request is -2"),
    ("operations", 1, "request", 0, r"row 1 \(rank 0, operation 1\): opens request 0 again"),
    ("operations", 1, "completes", [0, -1], r"row 1 .*completes is -1"),
    ("operations", 2, "send_counts", [0, -1], r"row 2 .*send_counts is -1"),
    ("operations", 5, "receive_counts", [0], "row 5 .*receive_counts has 1 values for 2 members"),
    ("operations", 3, "peer", 1, "row 3 .*root 1 is outside its communicator"),
    ("operations", 3, "bytes", None, "row 3 .*bytes is missing; give it a value"),
    ("operations", 1, "completes", [0, None], "row 1 .*a value of completes is missing"),
    ("phases", 0, "operation_id", 5, r"row 1 \(rank 0\): .* below .*; sort the rows by \(rank, operation_id\)"),
    ("phases", 2, "operation_id", 2, "operation_id is 2, but there are 2 rows .* of this rank; .*0 to 1$"),
    ("phases", 1, "operation_id", 4, r"row 1 \(rank 0\): operation_id is 4, but there are 4 rows"),
    ("phases", 0, "operation_id", -1, "operation_id is -1"),
    ("phases", 0, "kind", 4, "kind is 4; it must lie within 0 to 3"),
    ("phases", 0, "region_id", 1, "region_id is 1, but there are 1 rows in table 'regions'; .* -1 to 0"),
    ("phases", 0, "duration_ps", -1, "duration_ps is -1"),
    ("communicators", 0, "members", [1, 0], "row 0: is not the world; make it the ranks 0 to 1 in order"),
    ("communicators", 1, "members", [1, 1], "row 1: has rank 1 twice"),
    ("communicators", 1, "members", [2], "members is 2, but there are 2 ranks"),
    ("counters", 0, "phase_id", 3, "phase_id is 3, but there are 3 rows in table 'phases'"),
    ("measured", 3, "end_ps", -1, "row 3: end_ps lies before start_ps"),
    ("measured", 3, "start_ps", -1, "start_ps is -1"),
    ("phase_times", 2, "wall_ps", -1, "wall_ps is -1"),
    ("dependencies", 0, "operation_id", 4, "operation_id is 4, but there are 4 rows"),
    ("dependencies", 0, "requires", 4, "requires is 4"),
    ("task_types", 0, "line", -1, "line is -1"),
    ("events", 0, "operation_id", 5, "operation_id is 5"),
    ("events", 0, "kind", 33, "kind is 33; it must lie within 0 to 32"),
    ("events", 0, "task_instance_id", 2, "task_instance_id is 2, but there are 2 rows in table 'tasks' of this rank"),
    ("events", 0, "task_type_id", 1, "task_type_id is 1"),
    ("events", 0, "cpu_ps", -1, "cpu_ps is -1"),
    ("tasks", 1, "task_instance_id", 0, r"row 1 \(rank 0\): .* not above .*; sort the rows by .*, once each"),
    ("tasks", 1, "task_instance_id", 2, "task_instance_id is 2"),
    ("tasks", 1, "parent_id", 1, "is not younger than its parent; number task instances in order of creation"),
    ("tasks", 1, "parent_id", -2, "parent_id is -2"),
    ("tasks", 1, "operation_id", 5, "operation_id is 5"),
    ("tasks", 1, "flags", 512, "flags is 512"),
    ("task_dependences", 0, "kind", 5, "kind is 5"),
    ("loops", 0, "num_iterations", -2, "num_iterations is -2"),
    ("loop_chunks", 0, "num_iterations", -1, "num_iterations is -1"),
    ("iterations", 0, "end_operation_id", 5, "end_operation_id is 5"),
    ("iterations", 0, "first_event_id", 1, "end_event_id lies before first_event_id; give the end of the span"),
    ("blocks", 0, "num_instructions", -2, "num_instructions is -2"),
    ("instructions", 0, "block_id", 1, "block_id is 1, but there are 1 rows in table 'blocks'"),
    ("instructions", 0, "instruction_class", 17, "instruction_class is 17"),
    ("block_accesses", 0, "bytes", -1, "bytes is -1"),
    ("segments", 0, "operation_id", 5, "operation_id is 5"),
    ("segments", 0, "task_instance_id", 2, "task_instance_id is 2"),
    ("segments", 0, "rank", 2, "rank is 2"),
    ("task_stacks", 0, "first_address", 1, "end_address lies before first_address"),
    ("intervals", 0, "num_instructions", -1, "num_instructions is -1"),
    ("interval_blocks", 0, "count", float("nan"), "count is nan"),
    ("stacks", 0, "frames", [0, 1], "frames is 1, but there are 1 rows in table 'frames'"),
    ("stack_units", 0, "cpu_ps", -2, "cpu_ps is -2"),
    ("stack_samples", 0, "stack_id", 1, "stack_id is 1"),
    ("launches", 1, "launch_id", 1, r"row 1: \(launch_id\) is not above that of the row before"),
    ("launches", 0, "grid_y", 0, "grid_y is 0; it must be 1 or more"),
    ("copies", 0, "bytes", -1, "bytes is -1"),
]  # fmt: skip


@pytest.mark.parametrize(("level", "row", "column", "value", "words"), WRONG)
def test_one_wrong_value_is_refused(level: str, row: int, column: str, value: object, words: str) -> None:
    rows = whole()
    rows[level][row][column] = value
    with pytest.raises(WorkloadError, match=f"^made: table '{level}', .*?{words}") as caught:
        build(rows)
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)  # what to do


def test_rules_name_columns_that_are_there() -> None:
    for level, rules in RULES.items():
        assert set(rules.order) | {rule.column for rule in rules.values} <= set(SCHEMAS[level].names)


def test_references_into_an_empty_table_are_refused() -> None:
    rows = whole()
    rows["task_types"] = []
    with pytest.raises(WorkloadError, match="task_type_id is 0, but there are 0 rows in table 'task_types'"):
        build(rows)


def test_slices_and_chunks_are_checked_alike() -> None:
    workload = build(whole())
    for level in ("operations", "phases"):
        table = workload.tables[level]
        twice = pa.concat_tables([table, table])
        for same in (twice.slice(0, table.num_rows), twice.slice(table.num_rows), twice.slice(1, 0)):
            tables = {**workload.tables, level: same if same.num_rows else table}
            assert Workload("made", 2, tables).digest == workload.digest
    lasts = workload.tables["operations"].slice(1)
    tables = {**workload.tables, "operations": lasts, "phases": workload.tables["phases"].slice(0, 0)}
    tables |= {level: workload.tables[level].slice(0, 0) for level in SCHEMAS if level not in ("operations", "phases")}
    tables["communicators"] = workload.tables["communicators"]
    assert Workload("made", 2, tables).rank_offsets.tolist() == [0, 3, 5]


def test_the_limit_of_each_rank_is_its_own() -> None:
    """Rank 1 has fewer operations than rank 0: what is right there may be wrong here, in sorted columns and others."""
    rows = whole()
    rows["dependencies"] = [
        {"rank": rank, "operation_id": number, "requires": 0, "on_start": False} for rank, number in ((0, 3), (1, 1))
    ]
    build(rows)
    for column in ("operation_id", "requires"):
        rows["dependencies"][1] |= {"operation_id": 1, "requires": 0, column: 2}
        with pytest.raises(WorkloadError, match=rf"row 1 \(rank 1\): {column} is 2, but there are 2 rows"):
            build(rows)


def test_requests_may_come_in_any_order_and_be_used_by_other_ranks() -> None:
    rows = whole()
    rows["operations"][0]["request"] = 7
    rows["operations"][1] = operation(0, "irecv", peer=1, request=3)
    rows["operations"][4] |= {"kind": "isend", "request": 7}
    assert np.flatnonzero(build(rows).column("operations", "request") >= 0).tolist() == [0, 1, 4]
    rows["operations"][2] = operation(0, "irecv", peer=1, request=7)
    with pytest.raises(WorkloadError, match=r"row 2 .*opens request 7 again"):
        build(rows)


@pytest.mark.parametrize("length", [2**15 - 1, 2**15, 2**15 + 1, 2**16 + 3])
def test_rows_are_looked_at_in_blocks(length: int) -> None:
    """Whether it is the last row of a block or the first of the next that is wrong."""
    sends = pa.Table.from_pylist([operation(0, "isend", peer=0)], OPERATIONS_SCHEMA).take(
        pa.array(np.zeros(length, int))
    )
    at = sends.schema.get_field_index("request")
    empty = {level: SCHEMAS[level].empty_table() for level in ("phases", "regions")}
    world = pa.Table.from_pylist([{"members": [0, 1]}], SCHEMAS["communicators"])

    def built(rank: np.ndarray, request: np.ndarray) -> Workload:
        table = sends.set_column(at, sends.schema.field(at), pa.array(request, pa.int32()))
        table = table.set_column(0, table.schema.field(0), pa.array(rank, pa.int32()))
        return Workload("made", 2, {**empty, "communicators": world, "operations": table})

    numbers, rank = np.arange(length), np.zeros(length, int)
    built(rank, numbers)
    built(rank, numbers[::-1])
    built(np.sort(numbers % 2), numbers % (length // 2 + 1))
    for row in (1, 2**15 - 2, min(2**15, length - 1), length - 1):
        turned = rank.copy()
        turned[row - 1] = 1
        with pytest.raises(WorkloadError, match=rf"row {row} .* \(rank\) is below"):
            built(turned, numbers)
        twice = numbers.copy()
        twice[row] = twice[row - 1]
        with pytest.raises(WorkloadError, match=rf"row {row} .*opens request {row - 1} again"):
            built(rank, twice)
