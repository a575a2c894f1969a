"""What the recorded MPI calls of a native trace become: operations, one or several each.

A call is one operation, but for these: MPI_Start and MPI_Startall become what each started request does; a neighbour
collective becomes a send to each destination, a receive from each source and, if it blocks, a wait for all of them; a
sendrecv whose halves have different tags, or that does not block, becomes its halves, likewise; a collective access of
a file becomes a barrier and an operation ``other`` with its bytes. The fields of a record are described in
``runner/readers/raw_trace/mpi_calls.py``. O(calls) in NumPy for each process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.gpu_calls import COMPLETING, KINDS
from manyscale.runner.readers.raw_trace.mpi_calls import COLLECTIVE_NAMES, NAMES

# flags of a record: trace.h
UNFINISHED, CANCELLED, WILDCARD, ANY_TAG, FAILED = 1, 2, 4, 8, 16
INTERCOMMUNICATOR, COMPLETED, COUNTED, DEVICE_BUFFER = 128, 256, 512, 2048
STRANGER: Final = -4  # a process outside MPI_COMM_WORLD

_K = OperationKind
# how the rows of a call are made
PLAIN, STARTS, TEMPLATE, ACCESS, SENDRECV, ISENDRECV, NEIGHBOURS, INEIGHBOURS, EXPANDED = range(9)
_ONE_SIDED: Final = (
    "Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap", "Rput", "Rget", "Raccumulate",
    "Rget_accumulate",
)  # fmt: skip
# whose counts its lists are
NO_COUNTS, RECEIVE_COUNTS, SEND_COUNTS, BOTH_COUNTS = range(4)

_POINT_TO_POINT: Final = {
    "Send": _K.send, "Rsend": _K.send, "Bsend": _K.bsend, "Ssend": _K.ssend, "Isend": _K.isend, "Irsend": _K.isend,
    "Ibsend": _K.ibsend, "Issend": _K.issend, "Recv": _K.recv, "Mrecv": _K.recv, "Irecv": _K.irecv,
    "Imrecv": _K.irecv, "Sendrecv": _K.sendrecv, "Sendrecv_replace": _K.sendrecv, "Isendrecv": _K.isend,
    "Isendrecv_replace": _K.isend, "Send_init": _K.isend, "Rsend_init": _K.isend, "Bsend_init": _K.ibsend,
    "Ssend_init": _K.issend, "Recv_init": _K.irecv, "Init": _K.init, "Init_thread": _K.init, "Finalize": _K.finalize,
    "Psend_init": _K.isend, "Precv_init": _K.irecv, "Parrived": _K.test, "Session_init": _K.init,
    "Session_finalize": _K.finalize, "Request_get_status": _K.test,
}  # fmt: skip
# waits and tests, by what they are once something is complete
_COMPLETING: Final = {
    "Wait": _K.wait, "Waitany": _K.wait, "Waitall": _K.waitall, "Waitsome": _K.waitall,
    "Test": _K.wait, "Testany": _K.wait, "Testall": _K.waitall, "Testsome": _K.waitall,
}  # fmt: skip
# starts: all of what they start, or the last part of it
_STARTS: Final = ("Start", "Startall", "Pready", "Pready_range", "Pready_list")
# what ranks wait for in calls of which nothing else is replayed
_BARRIERS: Final = (
    "Comm_dup", "Comm_dup_with_info", "Comm_split", "Comm_split_type", "Comm_create", "Comm_create_group",
    "Comm_create_from_group", "Cart_create", "Cart_sub", "Graph_create", "Dist_graph_create",
    "Dist_graph_create_adjacent", "Intercomm_create", "Intercomm_create_from_groups", "Intercomm_merge",
    "Comm_disconnect", "File_open", "File_close", "File_set_size", "File_preallocate", "File_set_view", "File_sync",
    "File_seek_shared", "File_set_atomicity", "File_read_all", "File_read_at_all", "File_read_ordered",
    "File_write_all", "File_write_at_all", "File_write_ordered",
)  # fmt: skip
_IBARRIERS: Final = (
    "Comm_idup", "Comm_idup_with_info", "File_iread_all", "File_iread_at_all", "File_iwrite_all", "File_iwrite_at_all",
    "File_read_all_begin", "File_read_at_all_begin", "File_read_ordered_begin", "File_write_all_begin",
    "File_write_at_all_begin", "File_write_ordered_begin",
)  # fmt: skip
_COUNTS: Final = {
    "gatherv": RECEIVE_COUNTS, "allgatherv": RECEIVE_COUNTS, "reduce_scatter": RECEIVE_COUNTS, "scatterv": SEND_COUNTS,
    "alltoallv": BOTH_COUNTS,
}  # fmt: skip
ACCESSES: Final = re.compile(r"File_i?(read|write)\w*(?<!_end)")
_SAME: Final = {"alltoallw": "alltoallv", "reduce_scatter_block": "reduce_scatter"}


@dataclass(frozen=True)
class CallTable:
    """Per number of a call: its ``kind`` (of a template: of what is started), how its rows are made (``form``), whose
    ``counts`` its lists are, and whether it completes requests, is a test, a probe that does not wait, a call
    ``on_window``, or one that reads or writes a file."""

    names: tuple[str, ...]
    kind: np.ndarray
    form: np.ndarray
    counts: np.ndarray
    is_completing: np.ndarray
    is_test: np.ndarray
    is_probe: np.ndarray
    on_window: np.ndarray
    is_access: np.ndarray


def _forms_of(name: str) -> tuple[int, int, int]:
    """(kind, form, counts) of a call."""
    if name in KINDS:
        return int(KINDS[name]), PLAIN, RECEIVE_COUNTS if KINDS[name] == _K.reduce_scatter else NO_COUNTS
    if name in _POINT_TO_POINT:
        form = TEMPLATE if name.endswith("_init") and name != "Session_init" else PLAIN
        if name.startswith(("Sendrecv", "Isendrecv")):
            form = SENDRECV if name.startswith("S") else ISENDRECV
        return int(_POINT_TO_POINT[name]), form, NO_COUNTS
    if name in _COMPLETING:
        return int(_COMPLETING[name]), PLAIN, NO_COUNTS
    if _is_split_end(name):
        return int(_K.wait), PLAIN, NO_COUNTS
    if name in _STARTS:
        return int(_K.other), STARTS, NO_COUNTS
    if name in _BARRIERS or name in _IBARRIERS:
        form = ACCESS if ACCESSES.fullmatch(name) else PLAIN
        return int(_K.barrier if name in _BARRIERS else _K.ibarrier), form, NO_COUNTS
    for base in COLLECTIVE_NAMES:
        stem = base.removeprefix("MPI_")
        if name not in (stem, f"I{stem[0].lower()}{stem[1:]}", f"{stem}_init"):
            continue
        form = TEMPLATE if name.endswith("_init") else PLAIN
        if stem.startswith("Neighbor"):
            return int(_K.other), form or (NEIGHBOURS if name == stem else INEIGHBOURS), NO_COUNTS
        kind = _SAME.get(stem.lower(), stem.lower())
        return int(OperationKind[kind if name == stem else f"i{kind}"]), form, _COUNTS.get(kind, NO_COUNTS)
    return int(_K.other), PLAIN, NO_COUNTS


def _is_split_end(name: str) -> bool:
    return name.startswith("File_") and name.endswith("_end")


def _table(names: tuple[str, ...]) -> CallTable:
    stems = [name.removeprefix("MPI_") for name in names]
    forms = np.array([_forms_of(stem) for stem in stems], np.int8).reshape(-1, 3)
    return CallTable(
        names=names,
        kind=forms[:, 0],
        form=forms[:, 1],
        counts=forms[:, 2],
        is_completing=np.array([stem in (*_COMPLETING, COMPLETING) or _is_split_end(stem) for stem in stems], np.bool_),
        is_test=np.array([stem.startswith("Test") for stem in stems], np.bool_),
        is_probe=np.array([stem in ("Iprobe", "Improbe") for stem in stems], np.bool_),
        on_window=np.array([stem.startswith("Win_") or stem in _ONE_SIDED for stem in stems], np.bool_),
        is_access=np.array([bool(ACCESSES.fullmatch(stem)) for stem in stems], np.bool_),
    )


TABLE: Final = _table(NAMES)
IS_BARRIER: Final = np.array([name.removeprefix("MPI_") in (*_BARRIERS, *_IBARRIERS) for name in NAMES], np.bool_)
_IS_NEIGHBOUR: Final = np.array(["neighbor" in name.lower() for name in NAMES], np.bool_)
_OPENING: Final = np.isin(np.arange(len(OperationKind)), (_K.isend, _K.issend, _K.ibsend, _K.irecv)) | (
    np.arange(len(OperationKind)) >= _K.ibarrier
)


def opens_request(kind: np.ndarray) -> np.ndarray:
    """Whether operations of these kinds open a request."""
    return _OPENING[kind]


@dataclass
class Expansion:
    """Rows that calls become which say nothing of them alone (readers/raw_trace/one_sided.py): per call its ``record``
    and ``num_rows``; the ``rows`` of all (kind, peer, tag, bytes, receive_bytes); and ``waits``: (record, row of it
    that waits, record, row of it that opened what is waited for)."""

    record: list[int] = field(default_factory=list)
    num_rows: list[int] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, record: int, rows: Sequence[tuple[int, ...]], waits: Sequence[tuple[int, int, int]]) -> None:
        """A call's rows; ``waits``: (row, record, row of that)."""
        self.record.append(record)
        self.num_rows.append(len(rows))
        self.rows += rows
        self.waits += [(record, row, of, part) for row, of, part in waits]


class Calls:
    """The complete calls of a process, and which operations they become.

    ``records``: rows of dtype native_files.OPERATION; ``call``: their numbers in TABLE; ``unfinished``: name of a call
    that had not returned when the trace ended, or "".

    Items are what the calls do: one each, but one per request for MPI_Start and MPI_Startall. Per item: its ``record``,
    the record that holds its fields (``origin``: of a started request the one that set it up), the process's number of
    the ``request`` that it opens (-1), its ``form``, its ``num_rows`` and its ``first_row``.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.expansion = Expansion()
        records = process.operations
        is_done = (records["flags"] & UNFINISHED) == 0
        self.records = records[is_done]
        bounds = np.concatenate(([0], np.cumsum(records["num_lists"], dtype=np.int64)))
        missing = self.records["num_lists"].sum(dtype=np.int64) - len(process.lists)
        if missing > 0:
            raise UserError(
                f"{process.path}: rank {process.rank}: {missing} values of the calls' lists are missing; the trace is "
                "damaged, trace the program again"
            )
        self.lists = process.lists
        self.counter_names = process.counter_names
        self.is_counted = (self.records["flags"] & COUNTED) != 0
        self._counts_start = bounds[:-1][is_done]
        counted = np.where(self.is_counted, len(self.counter_names), 0)
        self.list_start = self._counts_start + counted
        self.num_lists = self.records["num_lists"].astype(np.int64) - counted
        self.call = self._numbers()[self.records["call"]]
        cut = self._numbers()[records["call"][~is_done]]
        self.unfinished = NAMES[int(cut[-1])] if len(cut) else ""

    def _numbers(self) -> np.ndarray:
        """Number in TABLE of each of the trace's calls."""
        listed = [name for each in self.process.definitions for name in each.get("calls", ())]
        unknown = next((name for name in listed if name not in NAMES), None)
        largest = int(self.process.operations["call"].max(initial=0)) if len(self.process.operations) else -1
        if unknown is not None or largest >= len(listed):
            raise UserError(
                f"{self.process.path}: rank {self.process.rank}: records call {unknown or f'number {largest}'}, which "
                "this version does not know; trace the program again"
            )
        return np.array([NAMES.index(name) for name in listed], np.int64)

    def counters(self) -> np.ndarray:
        """int64[calls, counters]: their increase since the call before, -1 where it was not counted."""
        increase = np.full((len(self.records), len(self.counter_names)), -1, np.int64)
        at = self._counts_start[self.is_counted][:, None] + np.arange(len(self.counter_names))
        increase[self.is_counted] = self.lists[at]
        return increase

    @cached_property
    def takes_part(self) -> np.ndarray:
        """Per record: whether it succeeded, and on a communicator that it can be replayed on."""
        records = self.records
        is_collective = (TABLE.kind[self.call] >= _K.barrier) | _IS_NEIGHBOUR[self.call]
        between = (records["flags"] & INTERCOMMUNICATOR) != 0
        between &= _IS_NEIGHBOUR[self.call]
        # of a trace that does not say who called together
        unknown = (IS_BARRIER[self.call] | TABLE.on_window[self.call]) & (records["communicator"] < 0)
        with_stranger = (records["peer"] == STRANGER) | (records["source"] == STRANGER)
        is_collective |= TABLE.on_window[self.call]
        with_stranger |= is_collective & np.isin(records["communicator"], self._strange_communicators())
        return ((records["flags"] & FAILED) == 0) & ~between & ~unknown & ~with_stranger

    def _strange_communicators(self) -> list[int]:
        """Numbers of the communicators with members outside MPI_COMM_WORLD."""
        return [
            int(each["communicator"])
            for each in self.process.definitions
            if any(STRANGER in each.get(key, ()) for key in ("members", "remote", "more"))
        ]

    @cached_property
    def _started(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of MPI_Start and MPI_Startall: (record, record of the template, request) of each request."""
        records = self.records
        starts = np.flatnonzero(TABLE.form[self.call] == STARTS)
        counts = self.num_lists[starts] // 2
        of_record = np.repeat(starts, counts)
        place = np.arange(len(of_record)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = self.list_start[of_record] + 2 * place
        templates = np.flatnonzero((TABLE.form[self.call] == TEMPLATE) & (records["request"] >= 0))
        where = np.full(int(records["request"].max(initial=-1)) + 2, -1, np.int64)
        where[records["request"][templates]] = templates
        named = self.lists[at]
        inside = np.flatnonzero((named < 0) | (named >= len(where) - 1))
        if len(inside) or np.any(where[named] < 0):
            raise UserError(
                f"{self.process.path}: rank {self.process.rank}: starts a request that no earlier call set up; the "
                "trace is damaged, trace the program again"
            )
        return of_record, where[named], self.lists[at + 1]

    @cached_property
    def items(self) -> Items:
        """What the calls do, in order."""
        count = len(self.records)
        of_start, template, request = self._started
        is_empty_start = np.ones(count, np.bool_)
        is_empty_start[of_start] = False
        plain = np.flatnonzero(is_empty_start)
        own_request = self.records["request"][plain].astype(np.int64)
        own_request[TABLE.form[self.call[plain]] == TEMPLATE] = -1
        record = np.concatenate((plain, of_start))
        order = np.argsort(record, kind="stable")
        record = record[order]
        origin = np.concatenate((plain, template))[order]
        requests = np.concatenate((own_request, request))[order]
        form = TABLE.form[self.call[origin]].astype(np.int64)
        is_started = record != origin
        form[is_started] = np.where(_IS_NEIGHBOUR[self.call[origin[is_started]]], INEIGHBOURS, PLAIN)
        form[~self.takes_part[origin]] = PLAIN
        form[np.isin(record, self.expansion.record)] = EXPANDED
        pairs = np.flatnonzero(form == SENDRECV)
        fields = self.records[origin[pairs]]
        two_tags = (fields["peer"] >= 0) & (fields["source"] >= 0) & (fields["tag"] != fields["receive_tag"])
        form[pairs[~two_tags]] = PLAIN
        num_rows = np.select([form == SENDRECV, (form == ISENDRECV) | (form == ACCESS)], [3, 2], 1)
        near = np.flatnonzero((form == NEIGHBOURS) | (form == INEIGHBOURS))
        at = self.list_start[origin[near]]
        num_destinations = self.lists[at]
        num_sources = self.lists[at + 1 + 2 * num_destinations]
        num_rows[near] = np.maximum(1, num_destinations + num_sources + (form[near] == NEIGHBOURS))
        num_rows[form == EXPANDED] = self.expansion.num_rows
        return Items(record, origin, requests, form, num_rows.astype(np.int64))

    def operation_ids(self) -> np.ndarray:
        """int64[calls + 1]: the first operation that each call becomes, and the number of all."""
        items = self.items
        first = np.searchsorted(items.record, np.arange(len(self.records)))
        return np.append(items.first_row[first], items.num_rows.sum())


@dataclass(frozen=True)
class Items:
    """See Calls."""

    record: np.ndarray
    origin: np.ndarray
    request: np.ndarray
    form: np.ndarray
    num_rows: np.ndarray

    @cached_property
    def first_row(self) -> np.ndarray:
        return np.cumsum(self.num_rows) - self.num_rows
