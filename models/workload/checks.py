"""Checks that hold the tables of a workload to what they promise beyond their schemas.

A table's rules (``rules``) are the order of its rows and the range of its columns; what does not fit that form (kinds
by name, peers and requests of operations, members of communicators) has a function of its own. All are passes over
whole columns: O(rows), some 2 ns a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import first_rows, one_chunk, to_arrow, to_numpy
from manyscale.models.workload.operation_tables import (
    ANY_SOURCE,
    COLLECTIVES,
    KIND_NAMES,
    NO_RANK,
    OperationKind,
)
from manyscale.models.workload.rules import ENDS, RULES, Rules, Values

_RECV, _IRECV = int(OperationKind.recv), int(OperationKind.irecv)  # plain, or NumPy would widen what is compared

_ROWS: Final = 1 << 15  # at once, so that what is made of them stays in the caches


class WorkloadError(ValueError):
    """A workload that contradicts itself: the message names the table or the rank, the place and what to do."""


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
        for first, last in ENDS.get(level, ()):
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
