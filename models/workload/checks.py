"""What the tables of a workload promise beyond their schemas, as data, and the checks that hold them to it.

A table's rules are the order of its rows and the range of its columns; what does not fit that form (kinds by name,
peers and requests of operations, members of communicators) has a function of its own. All are passes over whole
columns: O(rows), some 2 ns a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import first_rows, one_chunk, to_arrow, to_numpy
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.operation_tables import (
    ANY_SOURCE,
    ANY_TAG,
    COLLECTIVES,
    KIND_NAMES,
    NO_RANK,
    NO_REQUEST,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

_RECV, _IRECV = int(OperationKind.recv), int(OperationKind.irecv)  # plain, or NumPy would widen what is compared
_ROWS: Final = 1 << 15  # at once, so that what is made of them stays in the caches
RULES_VERSION: Final = 2  # raised when a rule is added or sharpened


class WorkloadError(ValueError):
    """A workload that contradicts itself: the message names the table or the rank, the place and what to do."""


@dataclass(frozen=True)
class Values:
    """Values of ``column`` (of a list column, in its lists) are at least ``least`` and, where ``end`` is given, below
    it: a number, or the number of ranks ("ranks"), or of rows of a table and ``more``; if ``per_rank``, of rows of the
    row's rank."""

    column: str
    least: int = 0
    end: int | str | None = None
    per_rank: bool = False
    more: int = 0


@dataclass(frozen=True)
class Rules:
    """Rows ascend by the columns of ``order``, and if ``is_unique`` no two rows have the same values there."""

    order: tuple[str, ...] = ()
    is_unique: bool = False
    values: tuple[Values, ...] = ()


_OPERATION = Values("operation_id", 0, "operations", per_rank=True)
_BEFORE_OPERATION = Values("operation_id", 0, "operations", per_rank=True, more=1)  # behind the last one, too
_TASK = Values("task_instance_id", 0, "tasks", per_rank=True)
_TASK_TYPE = Values("task_type_id", -1, "task_types")
_BLOCK = Values("block_id", 0, "blocks")

RULES: Final[dict[str, Rules]] = {
    "operations": Rules(
        ("rank",),
        values=(
            Values("kind", 0, len(OperationKind)),
            Values("peer", NO_RANK, "ranks"),
            Values("source", NO_RANK, "ranks"),
            Values("tag", ANY_TAG),
            Values("bytes"),
            Values("receive_bytes"),
            Values("communicator_id", 0, "communicators"),
            Values("request", NO_REQUEST),
            Values("completes"),
            Values("send_counts"),
            Values("receive_counts"),
        ),
    ),
    "phases": Rules(
        ("rank", "operation_id"),
        values=(
            _OPERATION,
            Values("kind", 0, len(PhaseKind)),
            Values("region_id", -1, "regions"),
            Values("duration_ps"),
        ),
    ),
    "communicators": Rules(values=(Values("members", 0, "ranks"),)),
    "counters": Rules(("phase_id",), values=(Values("phase_id", 0, "phases"),)),
    "measured": Rules(values=(Values("start_ps"),)),
    "phase_times": Rules(values=(Values("thread_ps"), Values("process_ps"), Values("wall_ps"))),
    "dependencies": Rules(
        ("rank", "operation_id"), values=(_OPERATION, Values("requires", 0, "operations", per_rank=True))
    ),
    "jobs": Rules(
        ("first_rank",),
        is_unique=True,
        values=(Values("first_rank", 0, "ranks"), Values("num_ranks", 0, "ranks", more=1)),
    ),
    "task_types": Rules(values=(Values("line"),)),
    "events": Rules(
        ("rank", "operation_id"),
        values=(
            _BEFORE_OPERATION,
            Values("kind", 0, len(EventKind)),
            _TASK,
            _TASK_TYPE,
            Values("cpu_ps"),
        ),
    ),
    "tasks": Rules(
        ("rank", "task_instance_id"),
        is_unique=True,
        values=(
            _TASK,
            Values("parent_id", -1, "tasks", per_rank=True),
            _TASK_TYPE,
            _BEFORE_OPERATION,
            Values("flags", 0, 2 * max(TaskFlag)),
            Values("cpu_ps"),
        ),
    ),
    "task_dependences": Rules(("rank", "task_instance_id"), values=(_TASK, Values("kind", 0, len(DependenceKind)))),
    "loops": Rules(
        ("rank", "loop_id"),
        is_unique=True,
        values=(_TASK_TYPE, Values("num_iterations", -1), Values("chunk_iterations")),
    ),
    "loop_chunks": Rules(
        ("rank", "loop_id"), values=(Values("first_iteration"), Values("num_iterations"), Values("cpu_ps"))
    ),
    "task_counters": Rules(("rank", "task_instance_id"), values=(_TASK, Values("value"))),
    "chunk_counters": Rules(("rank", "loop_id"), values=(Values("first_iteration"), Values("value"))),
    "page_faults": Rules(
        ("rank", "operation_id"),
        values=(_BEFORE_OPERATION, Values("event_id", -1, "events", per_rank=True), Values("num_faults")),
    ),
    "iterations": Rules(
        ("rank", "iteration"),
        is_unique=True,
        values=(
            Values("iteration"),
            Values("first_operation_id", 0, "operations", per_rank=True, more=1),
            Values("end_operation_id", 0, "operations", per_rank=True, more=1),
            Values("first_event_id", 0, "events", per_rank=True, more=1),
            Values("end_event_id", 0, "events", per_rank=True, more=1),
        ),
    ),
    "blocks": Rules(values=(Values("line"), Values("num_instructions", -1))),
    "instructions": Rules(
        ("block_id",), values=(_BLOCK, Values("instruction_class", 0, len(InstructionClass)), Values("lanes"))
    ),
    "block_accesses": Rules(("block_id",), values=(_BLOCK, Values("instruction", -1), Values("bytes"))),
    "unseen_accesses": Rules(("block_id",), values=(_BLOCK, Values("instruction"), Values("bytes"))),
    "segments": Rules(
        values=(
            Values("operation_id", -1, "operations", per_rank=True, more=1),
            Values("event_id", -1, "events", per_rank=True, more=1),
            Values("task_instance_id", -1, "tasks", per_rank=True),
            Values("num_blocks"),
            Values("num_accesses"),
            Values("num_instructions", -1),
        )
    ),
    "task_stacks": Rules(("rank", "task_instance_id"), values=(_TASK,)),
    "intervals": Rules(
        ("interval_id", "thread"), is_unique=True, values=(Values("interval_id"), Values("num_instructions"))
    ),
    "interval_blocks": Rules(("interval_id", "thread", "block"), values=(Values("interval_id"), Values("count"))),
    "interval_counters": Rules(values=(Values("interval_id"),)),
    "stacks": Rules(values=(Values("frames", 0, "frames"),)),
    "stack_units": Rules(
        ("rank", "thread", "unit_id"),
        is_unique=True,
        values=(Values("unit_id"), Values("cpu_ps", -1), Values("num_instructions", -1)),
    ),
    "stack_samples": Rules(
        ("rank", "thread", "unit_id", "time_ps"),
        values=(Values("unit_id"), Values("stack_id", 0, "stacks"), Values("weight")),
    ),
    "unit_counters": Rules(values=(Values("unit_id"),)),
    "launches": Rules(
        ("launch_id",),
        is_unique=True,
        values=(
            Values("launch_id", 1),
            *(Values(f"{what}_{axis}", 1) for what in ("grid", "block") for axis in "xyz"),
            *(Values(name) for name in ("shared_bytes", "registers", "blocks", "warps", "warp_instructions")),
            *(Values(name) for name in ("thread_instructions", "memory_requests")),
        ),
    ),
    "copies": Rules(("before_launch_id",), values=(Values("before_launch_id", 1), Values("bytes"))),
    "gpu_operations": Rules(
        ("rank", "operation_id"),
        is_unique=True,
        values=(
            _OPERATION,
            Values("kind", 0, len(GpuOperationKind)),
            Values("launch_id"),
            Values("bytes"),
            Values("event"),
            Values("device"),
            Values("peer", -1),
            Values("flags", 0, 32),
            Values("thread"),
            Values("kernel_id", -1, "kernels"),
            Values("duration_ps", -1),
        ),
    ),
    "kernels": Rules(values=(Values("kernel_class", 0, len(KernelClass)),)),
    "traced_gpus": Rules(("rank", "device"), is_unique=True, values=(Values("device"),)),
    "gpu_memory": Rules(
        ("rank", "device"),
        is_unique=True,
        values=(
            Values("device"),
            *(Values(f"{what}_bytes") for what in ("weights", "gradients", "optimiser", "activations")),
        ),
    ),
    "trained_models": Rules(values=(Values("parameters"), Values("tokens"), Values("flops"))),
    "groups": Rules(("communicator_id",), is_unique=True, values=(Values("communicator_id", 0, "communicators"),)),
    "steps": Rules(
        ("rank", "step"),
        is_unique=True,
        values=(
            Values("first_operation_id", 0, "operations", per_rank=True),
            Values("last_operation_id", 0, "operations", per_rank=True),
        ),
    ),
    "measured_steps": Rules(("rank", "step"), is_unique=True, values=(Values("start_ps"),)),
}
_ENDS: Final = {  # (first, last) columns of spans whose end must not lie before their beginning
    "measured": (("start_ps", "end_ps"),),
    "steps": (("first_operation_id", "last_operation_id"),),
    "measured_steps": (("start_ps", "end_ps"),),
    "iterations": (("first_operation_id", "end_operation_id"), ("first_event_id", "end_event_id")),
    "task_stacks": (("first_address", "end_address"),),
    "stack_units": (("start_ps", "end_ps"),),
}


def with_declared_kinds(name: str, operations: pa.Table) -> pa.Table:
    """``operations`` with kinds encoded as ``OperationKind`` numbers them, whatever dictionary they came with. Raises
    WorkloadError for an unknown one."""
    column = operations.column("kind")
    if all(chunk.dictionary.equals(KIND_NAMES) for chunk in column.chunks):
        return operations
    chunks = []
    for chunk in column.chunks:
        names = chunk.dictionary.to_pylist()
        unknown = next((kind for kind in names if kind not in OperationKind.__members__), None)
        if unknown is not None:
            known = ", ".join(OperationKind.__members__)
            raise WorkloadError(f"{name}: table 'operations': kind {unknown!r} is unknown; use one of {known}")
        if chunk.null_count:
            return operations  # refused with the other columns' nulls
        numbers = np.array([OperationKind[kind] for kind in names], np.int8)
        codes = numbers[to_numpy(chunk)] if len(chunk) else np.empty(0, np.int8)
        chunks.append(pa.DictionaryArray.from_arrays(to_arrow(codes), KIND_NAMES))
    at = operations.schema.get_field_index("kind")
    return operations.set_column(at, operations.schema.field(at), pa.chunked_array(chunks, column.type))


def check(name: str, num_ranks: int, tables: Mapping[str, pa.Table]) -> None:
    """Hold all tables to their rules. ``tables`` have their schemas. Raises WorkloadError, one line, for the first
    value that breaks one."""
    filled = {level: table for level, table in tables.items() if table.num_rows}
    checks = _Checks(name, num_ranks, tables, {})
    for level in filled:
        checks.nulls(level)
    for level in filled:
        checks.order(level)
    for level in filled:
        checks.values(level)
        checks.spans(level)
    checks.communicators()
    checks.operations()
    checks.tasks()


@dataclass(frozen=True)
class _Checks:
    name: str
    num_ranks: int
    tables: Mapping[str, pa.Table]
    found_rows: dict[str, np.ndarray]  # by table, of each rank

    def column(self, level: str, name: str) -> np.ndarray:
        return to_numpy(self.tables[level].column(name))

    def lists(self, level: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(int32[rows + 1] bounds in a list column's values, those values)."""
        column = one_chunk(self.tables[level].column(name))
        return to_numpy(column.offsets) if len(column) else np.zeros(1, np.int32), to_numpy(column.values)

    def nulls(self, level: str) -> None:
        for field, column in zip(self.tables[level].schema, self.tables[level].columns, strict=True):
            if not field.nullable and column.null_count:
                row = int(np.flatnonzero(np.array(column.is_null()))[0])
                self.refuse(level, row, f"{field.name} is missing", "give it a value")
            if pa.types.is_list(field.type) and any(
                chunk.values.null_count and chunk.flatten().null_count for chunk in column.chunks
            ):
                row = next(row for row, values in enumerate(column.to_pylist()) if values and None in values)
                self.refuse(level, row, f"a value of {field.name} is missing", "leave it out or give it a value")

    def order(self, level: str) -> None:
        rules = RULES.get(level, Rules())
        if not rules.order:
            return
        columns = [self.column(level, name) for name in rules.order]
        for first in range(0, len(columns[0]) - 1, _ROWS):
            wrong = np.full(min(_ROWS, len(columns[0]) - 1 - first), rules.is_unique)
            for values in reversed(columns):
                before, after = values[first : first + len(wrong)], values[first + 1 : first + len(wrong) + 1]
                wrong &= after == before
                wrong |= after < before
            if wrong.any():
                self.refuse_order(level, rules, first + int(wrong.argmax()) + 1)

    def refuse_order(self, level: str, rules: Rules, row: int) -> NoReturn:
        columns = ", ".join(rules.order)
        below = "not above" if rules.is_unique else "below"
        self.refuse(
            level, row, f"({columns}) is {below} that of the row before",
            f"sort the rows by ({columns}){', once each' * rules.is_unique}",
        )  # fmt: skip

    def values(self, level: str) -> None:
        rules = RULES.get(level, Rules())
        ranks = (Values("rank", 0, "ranks"),) if "rank" in self.tables[level].schema.names else ()
        for rule in (*ranks, *rules.values):
            if pa.types.is_list(self.tables[level].schema.field(rule.column).type):
                bounds, every = self.lists(level, rule.column)
                values = every[bounds[0] : bounds[-1]]
            else:
                bounds, values = None, self.column(level, rule.column)
            if not len(values) or self.is_within(level, rule, values, rules.order):
                continue
            end = self.end(rule)
            if isinstance(end, np.ndarray):
                end = end[self.column(level, "rank")]
            wrong = ~(values >= rule.least)
            if end is not None:
                wrong |= values >= end
            if wrong.any():
                at = int(wrong.argmax())
                row = at if bounds is None else int(np.searchsorted(bounds, bounds[0] + at, "right")) - 1
                limit = end if end is None or isinstance(end, int) else int(end[at])
                self.refuse(level, row, *_out_of_range(rule, values[at], limit))

    def is_within(self, level: str, rule: Values, values: np.ndarray, order: tuple[str, ...]) -> bool:
        """Whether values lie in a rule's range, by as few passes over the rows as their order allows; for limits that
        differ by rank False may mean that it was not found out."""
        is_ascending = order[:1] == (rule.column,)
        if not (values[0] if is_ascending else values.min()) >= rule.least:
            return False
        end = self.end(rule)
        if end is None:
            return True
        if isinstance(end, np.ndarray) and order[:1] == ("rank",):
            rows = self.rows_of_rank(level)
            filled = rows > 0
            if order == ("rank", rule.column):
                highest = values[np.cumsum(rows)[filled] - 1]
            else:
                highest = np.maximum.reduceat(values, (np.cumsum(rows) - rows)[filled])
            return bool(np.all(highest < end[filled]))
        return bool((values[-1] if is_ascending else values.max()) < np.min(end))

    def end(self, rule: Values) -> int | np.ndarray | None:
        """The number that values stay below; one for each rank if it differs by rank."""
        if rule.end is None or isinstance(rule.end, int):
            return rule.end
        if rule.end == "ranks":
            return self.num_ranks
        if rule.per_rank:
            return self.rows_of_rank(rule.end) + rule.more
        return int(self.tables[rule.end].num_rows) + rule.more

    def rows_of_rank(self, level: str) -> np.ndarray:
        """int64[ranks]: how many rows of a table that is sorted by rank each has."""
        if level not in self.found_rows:
            self.found_rows[level] = np.diff(first_rows(self.column(level, "rank"), self.num_ranks))
        return self.found_rows[level]

    def spans(self, level: str) -> None:
        for first, last in _ENDS.get(level, ()):
            wrong = self.column(level, last) < self.column(level, first)
            if wrong.any():
                self.refuse(level, int(wrong.argmax()), f"{last} lies before {first}", "give the end of the span")

    def communicators(self) -> None:
        """Members are distinct, and row 0 is the world."""
        bounds, members = self.lists("communicators", "members")
        sizes = np.diff(bounds)
        if len(sizes) and not np.array_equal(members[bounds[0] : bounds[1]], np.arange(self.num_ranks)):
            self.refuse("communicators", 0, "is not the world", f"make it the ranks 0 to {self.num_ranks - 1} in order")
        keys = np.repeat(np.arange(len(sizes)) * self.num_ranks, sizes) + members[bounds[0] : bounds[-1]]
        if np.any(keys[1:] <= keys[:-1]):
            order = np.argsort(keys, kind="stable")
            twice = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
            if len(twice):
                key = int(keys[order[twice[0]]])
                self.refuse(
                    "communicators", key // self.num_ranks, f"has rank {key % self.num_ranks} twice",
                    "list each member once",
                )  # fmt: skip

    def operations(self) -> None:
        if not self.tables["operations"].num_rows:
            return
        kind, peer = self.column("operations", "kind"), self.column("operations", "peer")
        for first in range(0, len(kind), _ROWS):
            of, at = kind[first : first + _ROWS], peer[first : first + _ROWS] == ANY_SOURCE
            at &= (of != _RECV) & (of != _IRECV)
            if at.any():
                self.refuse(
                    "operations", first + int(at.argmax()), f"peer is {ANY_SOURCE} (any source), but it is no receive",
                    f"give the rank, or {NO_RANK} where there is none",
                )  # fmt: skip
        source = self.column("operations", "source")
        given = np.flatnonzero(source != NO_RANK) if source.max() > NO_RANK else source[:0]
        wrong = kind[given] != int(OperationKind.sendrecv)
        if wrong.any():
            self.refuse(
                "operations", int(given[wrong.argmax()]), "has a source, but it is no sendrecv",
                f"put the source of a receive in peer and {NO_RANK} in source",
            )  # fmt: skip
        self.roots(kind, peer)
        self.requests()
        for side in ("send_counts", "receive_counts"):
            self.counts(side)

    def roots(self, kind: np.ndarray, peer: np.ndarray) -> None:
        sizes = np.diff(self.lists("communicators", "members")[0])
        if sizes.min() == self.num_ranks:
            return  # no root that is a rank can be too large
        rows = np.flatnonzero((kind >= int(COLLECTIVES.start)) & (peer >= 0))
        wrong = peer[rows] >= sizes[self.column("operations", "communicator_id")[rows]]
        if wrong.any():
            row = int(rows[wrong.argmax()])
            self.refuse(
                "operations", row, f"root {peer[row]} is outside its communicator",
                "number the root within the communicator",
            )  # fmt: skip

    def requests(self) -> None:
        """No rank opens a request twice."""
        request, rank = self.column("operations", "request"), self.column("operations", "rank")
        if _ascend_in_ranks(request, rank):
            return
        rows = np.flatnonzero(request >= 0)
        keys = (rank[rows].astype(np.int64) << 32) | request[rows]
        order = np.argsort(keys, kind="stable")
        twice = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
        if len(twice):
            row = int(rows[order[twice[0] + 1]])
            self.refuse(
                "operations", row, f"opens request {request[row]} again", "number the requests of a rank differently"
            )

    def counts(self, side: str) -> None:
        """Bytes to or from each member: as many as the communicator has members."""
        bounds = self.lists("operations", side)[0]
        if bounds[0] == bounds[-1]:
            return
        lengths = np.diff(bounds)
        rows = np.flatnonzero(lengths)
        sizes = np.diff(self.lists("communicators", "members")[0])[self.column("operations", "communicator_id")[rows]]
        wrong = lengths[rows] != sizes
        if wrong.any():
            at = int(wrong.argmax())
            self.refuse(
                "operations", int(rows[at]), f"{side} has {lengths[rows[at]]} values for {sizes[at]} members",
                "give one for each member of the communicator",
            )  # fmt: skip

    def tasks(self) -> None:
        """Instances count from 0 in each rank, and none is older than its parent."""
        if not self.tables["tasks"].num_rows:
            return
        instance = self.column("tasks", "task_instance_id")
        self.refuse_if(
            self.column("tasks", "parent_id") >= instance, "is not younger than its parent",
            "number task instances in order of creation", "tasks",
        )  # fmt: skip

    def refuse_if(self, wrong: np.ndarray, what: str, mend: str, level: str = "operations") -> None:
        if wrong.any():
            self.refuse(level, int(wrong.argmax()), what, mend)

    def refuse(self, level: str, row: int, what: str, mend: str) -> NoReturn:
        place = f"{self.name}: table {level!r}, row {row}"
        if "rank" in self.tables[level].schema.names:
            rank = self.tables[level].column("rank")[row].as_py()
            first = int(np.searchsorted(self.column(level, "rank"), rank)) if level == "operations" else 0
            place += f" (rank {rank}{f', operation {row - first}' if level == 'operations' else ''})"
        raise WorkloadError(f"{place}: {what}; {mend}")


def _ascend_in_ranks(request: np.ndarray, rank: np.ndarray) -> bool:
    """Whether the requests that are opened (not negative) ascend in each rank."""
    last = -1  # row that opened the request before
    for first in range(0, len(request), _ROWS):
        block = request[first : first + _ROWS]
        rows = np.flatnonzero(block >= 0)
        if not len(rows):
            continue
        opened = block[rows]
        falls = np.flatnonzero(opened[1:] <= opened[:-1])
        if not np.all(rank[first + rows[falls]] < rank[first + rows[falls + 1]]):
            return False
        if last >= 0 and opened[0] <= request[last] and rank[first + rows[0]] == rank[last]:
            return False
        last = first + int(rows[-1])
    return True


def _out_of_range(rule: Values, value: object, end: int | None) -> tuple[str, str]:
    """What is wrong with a value, and what to write instead. ``end``: that of the value's row."""
    text = f"{rule.column} is {value}"
    if end is None:
        return text, f"it must be {rule.least} or more"
    if isinstance(rule.end, str):
        what = "ranks" if rule.end == "ranks" else f"rows in table {rule.end!r}{' of this rank' * rule.per_rank}"
        text += f", but there are {end - rule.more} {what}"
    if end <= rule.least:
        return text, "give it the rows that are meant"
    return text, f"it must lie within {rule.least} to {end - 1}"
