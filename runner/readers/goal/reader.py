"""The statements of a GOAL schedule as a workload."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    DEPENDENCIES_SCHEMA,
    KIND_NAMES,
    MAX_RANKS,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    Workload,
)
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import informs
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import CHUNK_BYTES, guarded, open_stream
from manyscale.runner.readers.goal import order as goal_order
from manyscale.runner.readers.goal import tokens as goal_tokens
from manyscale.runner.readers.goal.cycles import cycle_in
from manyscale.runner.readers.goal.head import BINARY, COMMENT, HEAD_BYTES, NUM_RANKS, schedule_of
from manyscale.runner.readers.goal.tokens import CALCULATION, Problem, Statements
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

NAME: Final = "goal"
GRAPH_NOTE: Final = informs(
    "unordered-operations",
    "no order of the operations stands for their dependencies: only the network model loggops can replay them",
)
_SHOWN: Final = 6  # lines of a cycle
_UNIT: Final = re.compile(rb"time unit:\s*(\d{1,12})\s*(ps|ns|us)\b")
_PS: Final = {b"ps": 1, b"ns": 1000, b"us": 1_000_000}
_PORTALS: Final = re.compile(r"\s*(?:\w+\s*:\s*)?(put|append|get|tput|tappend|tget|test|nop)\b")


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a schedule. Raises UserError, one line with file and line, for anything that is not GOAL."""
    path = schedule_of(path)
    statements, num_ranks, unit_ps = _read_statements(path, options.time_unit_ps)
    largest = int(statements.size[statements.kind == CALCULATION].max(initial=0))
    if largest * unit_ps > MOST_PS:
        raise UserError(
            f"{path}: a calculation of {largest} x {unit_ps} ps takes more than 53 days; mend the time unit"
        )
    return _Tables(path, statements, num_ranks, unit_ps).workload()


def _read_statements(path: Path, unit_ps: int) -> tuple[Statements, int, int]:
    state = goal_tokens.new_state()
    parts: list[Statements] = []
    seen: np.ndarray | None = None
    with guarded(path), open_stream(path) as stream:
        rest = b""
        while True:
            chunk = stream.read(CHUNK_BYTES)
            text = rest + (chunk or b"\n")
            end = text.rfind(b"\n") + 1
            text, rest = text[:end], text[end:]
            if text:
                if seen is None:
                    num_ranks, unit_ps = _header(path, text, unit_ps)
                    seen = np.zeros(num_ranks, np.uint8)
                parts.append(goal_tokens.scan(np.frombuffer(text, np.uint8), state, seen))
                if state[goal_tokens.PROBLEM]:
                    raise _problem(path, text, state)
            if not chunk:
                break
    assert seen is not None
    if state[goal_tokens.RANK] >= 0 or state[goal_tokens.IN_COMMENT]:
        what = "a comment" if state[goal_tokens.IN_COMMENT] else f"rank {state[goal_tokens.RANK]}"
        raise UserError(f"{path}: the file ends within {what}; it may be cut short")
    missing = np.flatnonzero(seen == 0)
    if len(missing):
        raise UserError(
            f"{path}: {len(missing)} of {len(seen)} ranks are missing, the first is rank {missing[0]}; "
            "the file may be cut short"
        )
    return Statements.joined(parts), len(seen), unit_ps


def _header(path: Path, text: bytes, unit_ps: int) -> tuple[int, int]:
    """Number of ranks, and the time unit in ps."""
    head = text[:HEAD_BYTES]
    if head.startswith(BINARY):
        raise UserError(
            f"{path}: this is LogGOPSim's binary form of a schedule; give the text that txt2bin made it from"
        )
    found = NUM_RANKS.match(COMMENT.sub(b" ", head))
    if found is None:
        raise UserError(f"{path}:1: a GOAL schedule starts with 'num_ranks' and a number")
    num_ranks = int(found[1])
    if not 1 <= num_ranks <= MAX_RANKS:
        raise UserError(f"{path}: num_ranks {num_ranks}; between 1 and {MAX_RANKS} can be replayed")
    named = _UNIT.search(head[: head.find(b"num_ranks")])
    return num_ranks, int(named[1]) * _PS[named[2]] if named else unit_ps


def _problem(path: Path, text: bytes, state: np.ndarray) -> UserError:
    at = int(state[goal_tokens.PROBLEM_AT])
    begin = text.rfind(b"\n", 0, at) + 1
    line = text[begin : text.find(b"\n", begin)].decode(errors="replace").rstrip("\r")
    place = f"{path}:{state[goal_tokens.LINE]}"
    verb = _PORTALS.match(line)
    if verb is not None:
        return UserError(
            f"{place}: {verb[1]!r} is GOAL of version 2 (Portals), of which only calc, send and recv can be replayed"
        )
    got = line.encode()[at - begin :].decode(errors="replace").strip()[:40]
    return UserError(f"{place}: {goal_tokens.TEXT_OF[Problem(int(state[goal_tokens.PROBLEM]))]}; got {got!r}")


class _Tables:
    """The tables of a workload from the statements of all ranks."""

    def __init__(self, path: Path, statements: Statements, num_ranks: int, unit_ps: int) -> None:
        self.path = path
        self.num_ranks = num_ranks
        self.unit_ps = unit_ps
        ranks = np.arange(num_ranks + 1)
        columns = dict(statements.__dict__)
        for key, names in (
            ("rank", ("kind", "size", "peer", "tag", "label", "line", "rank")),
            ("dependency_rank", ("dependent", "required", "on_start", "dependency_line", "dependency_rank")),
        ):
            if np.any(np.diff(columns[key]) < 0):  # blocks of ranks in another order than the ranks'
                order = np.argsort(columns[key], kind="stable")
                columns |= {name: columns[name][order] for name in names}
        self.kind, self.size, self.rank = columns["kind"], columns["size"], columns["rank"]
        self.peer, self.tag = columns["peer"], columns["tag"]
        self.bounds = np.searchsorted(self.rank, ranks).astype(np.int64)
        self.after = np.empty(len(columns["dependent"]), np.int32)
        self.before = np.empty_like(self.after)
        dependency_bounds = np.searchsorted(columns["dependency_rank"], ranks).astype(np.int64)
        twice, undefined = goal_order.resolve(
            self.bounds, columns["label"], dependency_bounds, columns["dependent"], columns["required"], self.after,
            self.before,
        )  # fmt: skip
        if twice >= 0:
            raise UserError(f"{path}:{columns['line'][twice]}: the label is given twice in rank {self.rank[twice]}")
        if undefined >= 0:
            raise UserError(
                f"{path}:{columns['dependency_line'][undefined]}: a label is not defined in rank "
                f"{columns['dependency_rank'][undefined]}"
            )
        self.offsets, self.before, self.on_start = goal_order.by_dependent(
            len(self.kind), self.after, self.before, columns["on_start"]
        )
        self.after = np.repeat(np.arange(len(self.kind), dtype=np.int32), np.diff(self.offsets))
        self._check_cycles(columns["line"])

    def _check_cycles(self, line: np.ndarray) -> None:
        """Raises UserError, naming the lines, for operations that require each other. (What stands in the file before
        all that requires it is none.)"""
        if not np.any(self.before >= self.after):
            return
        found = cycle_in(len(self.kind), self.after, self.before)
        if found:
            lines = line[found].tolist()
            shown = ", which requires ".join(f"line {each}" for each in [*lines[:_SHOWN], lines[0]])
            more = f" (and {len(lines) - _SHOWN} more)" if len(lines) > _SHOWN else ""
            raise UserError(
                f"{self.path}:{lines[0]}: the operation requires itself, a cycle in rank {self.rank[found[0]]}: "
                f"{shown}{more}; take one of these dependencies out"
            )

    def workload(self) -> Workload:
        waited_before = np.full(len(self.kind), -1, np.int32)
        is_ordered = goal_order.order(self.bounds, self.kind, self.offsets, self.before, self.on_start, waited_before)
        if not is_ordered:
            waited_before[:] = -1
        posts = np.flatnonzero(self.kind != CALCULATION) if is_ordered else np.empty(0, np.int64)
        # a wait stands before an operation, or at the end of its rank for what nobody requires
        before = np.where(waited_before[posts] >= 0, waited_before[posts], self.bounds[self.rank[posts] + 1])
        at_end = waited_before[posts] < 0
        # by place: waits at the end of a rank come before those before the next rank's first operation
        place = 2 * before.astype(np.int64) + ~at_end
        waits, wait_of = np.unique(place, return_inverse=True)
        if not is_ordered and not len(self.before) and len(self.kind):
            waits = 2 * self.bounds[self.rank[:1] + 1]  # for the one dependency that tells a graph, see below
        empty = np.flatnonzero(np.diff(self.bounds) == 0)
        return self._assemble(posts, waits, wait_of, empty, is_ordered)

    def _assemble(
        self, posts: np.ndarray, waits: np.ndarray, wait_of: np.ndarray, empty: np.ndarray, is_ordered: bool
    ) -> Workload:
        """``waits``: twice the operation that each stands before, plus one unless it belongs to the rank before;
        ``wait_of`` each of ``posts``. A rank of ``empty`` gets one operation that does nothing."""
        count = len(self.kind)
        # sort key of the rows: ends of ranks, operations that fill empty ranks, waits, the operations themselves
        keys = np.concatenate((4 * np.arange(count) + 3, 2 * waits, 4 * self.bounds[empty] + 1))
        order = np.argsort(keys, kind="stable")
        row_of = np.empty(len(keys), np.int64)
        row_of[order] = np.arange(len(keys))
        wait_rows, empty_rows, own_rows = (
            row_of[count : count + len(waits)],
            row_of[count + len(waits) :],
            row_of[:count],
        )
        num_rows = len(keys)
        rank = np.empty(num_rows, np.int32)
        rank[own_rows] = self.rank
        rank[empty_rows] = empty
        rank[wait_rows] = self.rank[:1]
        rank[wait_rows[wait_of]] = self.rank[posts]
        kinds = np.array([OperationKind.isend, OperationKind.irecv, OperationKind.other], np.int8)
        kind = np.full(num_rows, OperationKind.other, np.int8)
        kind[own_rows] = kinds[self.kind]
        kind[wait_rows] = OperationKind.waitall
        columns = {"peer": (self.peer, NO_RANK), "tag": (self.tag, 0), "bytes": (self.size, 0)}
        operations = {}
        for name, (values, fill) in columns.items():
            operations[name] = np.full(num_rows, fill, values.dtype)
            operations[name][own_rows] = values
        operations["bytes"][kind == OperationKind.other] = 0
        operations["receive_bytes"] = np.where(kind == OperationKind.irecv, operations["bytes"], 0)
        operations["bytes"][kind == OperationKind.irecv] = 0
        first_row = np.searchsorted(rank, np.arange(self.num_ranks)).astype(np.int32)
        request = np.full(num_rows, NO_REQUEST, np.int32)
        request[own_rows[posts]] = posts - self.bounds[self.rank[posts]]
        by_wait = np.argsort(wait_of, kind="stable")
        lengths = np.zeros(num_rows, np.int64)
        np.add.at(lengths, wait_rows[wait_of], 1)
        completes = pa.ListArray.from_arrays(
            to_arrow(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)),
            to_arrow(request[own_rows[posts]][by_wait]),
        )
        calculations = own_rows[self.kind == CALCULATION]
        in_rank = np.arange(num_rows, dtype=np.int32) - first_row[rank]
        if not len(self.before) and len(waits):
            # without any dependency the rows would be taken for a sequence: let a wait, which takes no time, depend on
            # what stands before it
            self.before, self.on_start = np.zeros(1, np.int32), np.zeros(1, np.uint8)
            own_rows = np.append(own_rows, wait_rows[0])
            self.before[0] = np.searchsorted(own_rows[:count], wait_rows[0]) - 1
            self.after, self.rank = np.array([count], np.int32), np.append(self.rank, rank[wait_rows[0]])
        return self._workload(
            {**operations, "rank": rank, "kind": kind, "request": request}, completes, calculations, in_rank, own_rows,
            is_ordered,
        )  # fmt: skip

    def _workload(
        self,
        operations: dict[str, np.ndarray],
        completes: pa.Array,
        calculations: np.ndarray,
        in_rank: np.ndarray,
        own_rows: np.ndarray,
        is_ordered: bool,
    ) -> Workload:
        num_rows = len(in_rank)
        nothing = np.full(num_rows, NO_RANK, np.int32)
        columns = {**operations, "source": nothing, "communicator_id": np.zeros(num_rows, np.int32)}
        arrays = {name: to_arrow(values) for name, values in columns.items()}
        arrays["kind"] = pa.DictionaryArray.from_arrays(arrays["kind"], KIND_NAMES)
        arrays["completes"] = completes
        none = pa.ListArray.from_arrays(to_arrow(np.zeros(num_rows + 1, np.int32)), to_arrow(np.empty(0, np.int64)))
        arrays |= {"send_counts": none, "receive_counts": none}
        rank = operations["rank"]
        phases = {
            "rank": rank[calculations],
            "operation_id": in_rank[calculations],
            "kind": np.zeros(len(calculations), np.int8),
            "region_id": np.full(len(calculations), -1, np.int32),
            "duration_ps": self.size[self.kind == CALCULATION] * self.unit_ps,
        }
        dependencies = {
            "rank": to_arrow(self.rank[self.after]),
            "operation_id": to_arrow(in_rank[own_rows[self.after]]),
            "requires": to_arrow(in_rank[own_rows[self.before]]),
            "on_start": pa.array(self.on_start.astype(np.bool_)),
        }
        world = pa.ListArray.from_arrays(
            to_arrow(np.array([0, self.num_ranks], np.int32)), to_arrow(np.arange(self.num_ranks, dtype=np.int32))
        )
        tables = {
            "operations": pa.Table.from_arrays(
                [arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA
            ),
            "phases": pa.Table.from_arrays([to_arrow(values) for values in phases.values()], schema=PHASES_SCHEMA),
            "regions": REGIONS_SCHEMA.empty_table(),
            "communicators": pa.Table.from_arrays([world], schema=COMMUNICATORS_SCHEMA),
            "dependencies": pa.Table.from_arrays(list(dependencies.values()), schema=DEPENDENCIES_SCHEMA),
        }
        notes = () if is_ordered else (GRAPH_NOTE,)
        return Workload(self.path.name.split(".")[0], self.num_ranks, tables, notes, NAME)
