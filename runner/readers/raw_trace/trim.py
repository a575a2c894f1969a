"""The largest consistent prefix of a trace whose ranks end at different points.

Such traces are left by programs that crashed, were killed or ended without MPI_Finalize.

Each rank keeps what it did before its first operation that cannot end with what is left of the others:

* a blocking send, receive, sendrecv or collective whose partners did not all get there (standard sends, too: whether
  one was buffered cannot be known, and the replay wants a receive for each message),
* a wait for a request of that sort.

What is cut of one rank may leave others without a partner, and so on, until nothing changes. The result is unique: of
two consistent prefixes the longer one of each rank is a consistent prefix, too. A non-blocking operation without its
partners, whose request nothing waits for any more, is no reason to cut: it becomes an operation ``other``, as does a
buffered send. So does the first operation that is cut, which keeps the time that its rank computed before it.

Messages are matched as MPI does, the k-th send with the k-th receive of a communicator, source, destination and tag.
Receives from any source or with any tag (in this tracer's files those that never ended, since the others have the
source and tag they got) take the earliest fitting ones that are left over. Task instances that are kept keep all their
time.

Cost: O(n log n) for n operations, each cut once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.kernels import njit
from manyscale.models.workload import (
    ANY_SOURCE,
    ANY_TAG,
    COLLECTIVES,
    KIND_NAMES,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    NONBLOCKING_COLLECTIVES,
    OPERATIONS_SCHEMA,
    RECEIVES,
    OperationKind,
    Workload,
    WorkloadError,
)
from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.models.workload.task_tables import EventKind

MOST_NOTES: Final = 8  # ranks that are told about one by one
_K = OperationKind
_BLOCKING: Final = (_K.send, _K.ssend, _K.recv, _K.sendrecv)
_EMPTY: Final = {  # an operation that takes no part
    "kind": _K.other, "peer": NO_RANK, "source": NO_RANK, "tag": 0, "bytes": 0, "receive_bytes": 0,
    "communicator_id": 0, "request": NO_REQUEST,
}  # fmt: skip


def trim(workload: Workload) -> tuple[Workload, list[Note]]:
    """The largest consistent prefix, and what was cut, rank by rank; the workload itself where nothing was.

    Raises WorkloadError for a workload with a detailed level (trim first, then add it).
    """
    meetings = _Meetings(workload)
    end = workload.rank_offsets[1:].copy()
    is_dead = meetings.incomplete.copy()
    _cut(
        workload.column("operations", "rank"), meetings.of_operation, meetings.offsets, meetings.operations,
        _stops_at(workload), is_dead, end,
    )  # fmt: skip
    if not is_dead.any():
        return workload, []
    if workload.tables["segments"].num_rows:
        raise WorkloadError(f"{workload.name}: the detailed level cannot be trimmed; trim before it is added")
    empty = np.zeros(workload.num_operations, np.bool_)
    for column in meetings.of_operation.T:
        empty |= (column >= 0) & is_dead[column]
    is_cut = end < workload.rank_offsets[1:]
    empty[end[is_cut]] = True
    return _kept(workload, end - workload.rank_offsets[:-1], empty), _notes(workload, end, empty)


class _Meetings:
    """What operations need each other for: messages (a send and a receive) and collectives.

    ``of_operation`` int64[operations, 2]: numbers of an operation's meetings (-1 for none; two for a sendrecv);
    ``operations`` those of meeting i at [offsets[i], offsets[i + 1]); ``incomplete``: a partner is missing.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rank, self._kind, self._peer, self._tag, self._communicator = (
            workload.column("operations", name) for name in ("rank", "kind", "peer", "tag", "communicator_id")
        )
        self.of_operation = np.full((workload.num_operations, 2), -1, np.int64)
        wanted = self._match_messages()
        wanted = np.append(wanted, self._match_collectives(len(wanted)))
        rows, columns = np.nonzero(self.of_operation >= 0)
        meeting = self.of_operation[rows, columns]
        self.operations = rows[np.argsort(meeting, kind="stable")]
        present = np.bincount(meeting, minlength=len(wanted))
        self.offsets = np.append(0, np.cumsum(present))
        self.incomplete = (present > 0) & (present < wanted)

    def _match_messages(self) -> np.ndarray:
        """Fills in the messages; int64[]: how many operations each needs."""
        sends = self._workload.send_rows
        source = np.where(self._kind == _K.sendrecv, self._workload.column("operations", "source"), self._peer)
        is_receive = np.isin(np.arange(len(_K)), RECEIVES)[self._kind]
        receives = np.flatnonzero(is_receive & ((source >= 0) | (source == ANY_SOURCE)))
        is_wild = (source[receives] == ANY_SOURCE) | (self._tag[receives] == ANY_TAG)
        specific, wild = receives[~is_wild], receives[is_wild]
        message = _nth_of_group(
            [
                np.concatenate((self._communicator[sends], self._communicator[specific])),
                np.concatenate((self._tag[sends], self._tag[specific])),
                np.concatenate((self._rank[sends], source[specific])),
                np.concatenate((self._peer[sends], self._rank[specific])),
            ],
            len(sends),
        )
        self.of_operation[sends, 0] = message[: len(sends)]
        self.of_operation[specific, 1] = message[len(sends) :]
        number = int(message.max(initial=-1)) + 1
        if len(wild):
            self._match_wild(sends, wild, source, message[: len(sends)], message[len(sends) :], number)
            number += len(wild)
        return np.full(number, 2, np.int64)

    def _match_wild(
        self, sends: np.ndarray, wild: np.ndarray, source: np.ndarray, sent: np.ndarray, received: np.ndarray, new: int
    ) -> None:
        left = sends[~np.isin(sent, received)]
        measured = self._workload.is_measured
        posted = self._workload.column("measured", "start_ps") if measured else np.arange(len(self._kind))
        left = left[np.lexsort((posted[left], self._peer[left]))]
        first = np.searchsorted(self._peer[left], np.arange(self._workload.num_ranks + 1)).astype(np.int64)
        taken = _take_earliest(wild, self._rank, source, self._tag, self._communicator, left, first)
        number = np.where(taken >= 0, self.of_operation[taken, 0], new + np.arange(len(wild)))
        self.of_operation[wild, 1] = number

    def _match_collectives(self, first: int) -> np.ndarray:
        """Fills in the collectives, numbered from ``first``; int64[]: how many members each has."""
        rows = np.flatnonzero(self._kind >= COLLECTIVES.start)
        communicator = self._communicator[rows]
        number = _nth_of_group([communicator], 0, [communicator, self._rank[rows]])
        self.of_operation[rows, 0] = first + number
        bounds, _ = self._workload.lists("communicators", "members")
        wanted = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
        wanted[number] = np.diff(bounds)[communicator]
        return wanted


def _nth_of_group(keys: list[np.ndarray], num_first: int, counted: list[np.ndarray] | None = None) -> np.ndarray:
    """int64[]: a number for each combination of the group's ``keys`` and the how-manieth the element is, counted within
    the groups of ``counted`` (``keys`` if not given) and apart for the first ``num_first`` elements and the others.

    So the k-th send and the k-th receive of a channel have the same number. O(n log n).
    """
    count = len(keys[0])
    is_first = np.arange(count) < num_first
    order = np.lexsort((is_first, *(counted or keys)))
    place = np.arange(count)
    is_new = np.ones(count, np.bool_)
    if count:
        is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in (is_first, *(counted or keys))], axis=0)
    nth = np.empty(count, np.int64)
    nth[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    order = np.lexsort((nth, *keys))
    is_new = np.zeros(count, np.bool_)
    if count:
        is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in (nth, *keys)], axis=0)
    number = np.empty(count, np.int64)
    number[order] = np.cumsum(is_new)
    return number


@njit(cache=True, nogil=True)
def _take_earliest(wild, rank, source, tag, communicator, left, first):  # type: ignore[no-untyped-def]
    """Send that each receive of ``wild`` takes, -1 for none: the earliest of those ``left`` that fits; ``first``: where
    the sends to each rank begin. O(receives + sends), times the sends that stand before and do not fit."""
    taken = np.full(wild.shape[0], -1, np.int64)
    is_gone = np.zeros(left.shape[0], np.bool_)
    start = first.copy()
    for i in range(wild.shape[0]):
        row = wild[i]
        to = rank[row]
        while start[to] < first[to + 1] and is_gone[start[to]]:
            start[to] += 1
        for k in range(start[to], first[to + 1]):
            send = left[k]
            if is_gone[k] or communicator[send] != communicator[row]:
                continue
            if source[row] >= 0 and source[row] != rank[send]:
                continue
            if tag[row] >= 0 and tag[row] != tag[send]:
                continue
            taken[i] = send
            is_gone[k] = True
            break
    return taken


def _stops_at(workload: Workload) -> np.ndarray:
    """int64[operations]: the operation that cannot end if its partners are missing: itself, the first wait for its
    request, or -1."""
    kind, rank, request = (workload.column("operations", name) for name in ("kind", "rank", "request"))
    stops = np.full(len(kind), -1, np.int64)
    rows = np.arange(len(kind))
    is_collective = (kind >= COLLECTIVES.start) & (kind < NONBLOCKING_COLLECTIVES.start)
    blocks = np.isin(np.arange(len(_K)), _BLOCKING)[kind] | is_collective
    offsets, completed = workload.lists("operations", "completes")
    opened = np.flatnonzero(request >= 0)
    key = (rank[opened].astype(np.int64) << 32) | request[opened]
    order = np.argsort(key, kind="stable")
    waiting = np.repeat(rows, np.diff(offsets))
    wanted = (rank[waiting].astype(np.int64) << 32) | completed
    place = np.searchsorted(key[order], wanted)
    known = place < len(key)
    known[known] = key[order][place[known]] == wanted[known]
    opener = opened[order][place[known]]
    stops[opener[::-1]] = waiting[known][::-1]  # the first wait is written last
    stops[blocks] = rows[blocks]
    return stops


@njit(cache=True, nogil=True)
def _cut(rank, of_operation, offsets, operations, stops_at, is_dead, end):  # type: ignore[no-untyped-def]
    """Lower ``end`` (int64[ranks]: first operation that is cut) until it is consistent, marking the meetings that do
    not take place in ``is_dead``. O(operations + meetings)."""
    stack = np.empty(is_dead.shape[0], np.int64)
    depth = 0
    for meeting in range(is_dead.shape[0]):
        if is_dead[meeting]:
            stack[depth] = meeting
            depth += 1
    while depth > 0:
        depth -= 1
        meeting = stack[depth]
        for k in range(offsets[meeting], offsets[meeting + 1]):
            row = operations[k]
            stop = stops_at[row]
            who = rank[row]
            if stop < 0 or row >= end[who] or stop >= end[who]:
                continue
            for lost in range(stop, end[who]):
                for side in range(2):
                    other = of_operation[lost, side]
                    if other >= 0 and not is_dead[other]:
                        is_dead[other] = True
                        stack[depth] = other
                        depth += 1
            end[who] = stop


def _kept(workload: Workload, cut: np.ndarray, empty: np.ndarray) -> Workload:
    """The workload with operations up to and with ``cut`` (int64[ranks], ids), those that are ``empty`` emptied."""
    tables = dict(workload.tables)

    def upto(level: str, name: str = "operation_id", less: int = 0) -> np.ndarray:
        return workload.column(level, name) <= cut[workload.column(level, "rank")] - less

    def keep(level: str, mask: np.ndarray) -> None:
        tables[level] = workload.tables[level].filter(_bools(mask))

    rank = workload.column("operations", "rank")
    left = np.arange(len(rank)) - workload.rank_offsets[rank] <= cut[rank]
    operations = workload.tables["operations"]
    is_empty = _bools(empty)
    columns = []
    for field in OPERATIONS_SCHEMA:
        column = operations.column(field.name)
        if pa.types.is_list(field.type):
            column = pc.if_else(is_empty, pa.scalar(None, field.type), column)
        elif field.name in _EMPTY:
            values = np.where(empty, _EMPTY[field.name], workload.column("operations", field.name))
            if field.name == "kind":
                column = pa.DictionaryArray.from_arrays(to_arrow(values.astype(np.int8)), KIND_NAMES)
            else:
                column = to_arrow(values.astype(field.type.to_pandas_dtype()))
        columns.append(column)
    mask = _bools(left)
    tables["operations"] = pa.Table.from_arrays(columns, schema=OPERATIONS_SCHEMA).filter(mask)
    if workload.is_measured:
        start, end = (workload.column("measured", name)[left] for name in ("start_ps", "end_ps"))
        times = [to_arrow(start), to_arrow(np.where(empty[left], start, end))]
        tables["measured"] = pa.Table.from_arrays(times, schema=MEASURED_SCHEMA)
    phases = upto("phases")
    keep("phases", phases)
    if workload.tables["phase_times"].num_rows:
        keep("phase_times", phases)
    counted = workload.column("counters", "phase_id")
    keep("counters", phases[counted])
    number = tables["counters"].schema.get_field_index("phase_id")
    renumbered = to_arrow((np.cumsum(phases) - 1)[counted[phases[counted]]].astype(np.int64))
    tables["counters"] = tables["counters"].set_column(number, tables["counters"].schema.field(number), renumbered)
    keep("dependencies", upto("dependencies"))
    keep("events", upto("events"))
    keep("page_faults", upto("page_faults"))
    keep("tasks", upto("tasks"))
    keep("task_dependences", _among(workload, "task_dependences", "task_instance_id", tables["tasks"]))
    begun = tables["events"].filter(pc.equal(tables["events"].column("kind"), int(EventKind.loop_begin)))
    begun = begun.select(["rank", "value"]).rename_columns(["rank", "loop_id"])
    keep("task_counters", _among(workload, "task_counters", "task_instance_id", tables["tasks"]))
    for level in ("loops", "loop_chunks", "chunk_counters"):
        keep(level, _among(workload, level, "loop_id", begun))
    keep("iterations", upto("iterations", "end_operation_id"))
    return Workload(workload.name, workload.num_ranks, tables, workload.notes, workload.source_format)


def _bools(mask: np.ndarray) -> pa.Array:
    """An Arrow array of booleans, which are bits there."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def _among(workload: Workload, level: str, name: str, kept: pa.Table) -> np.ndarray:
    """bool[rows of the level]: whether (rank, ``name``) stands in ``kept``."""

    def keys(table: pa.Table) -> np.ndarray:
        rank, number = (to_numpy(table.column(part)).astype(np.int64) for part in ("rank", name))
        return (rank << 32) | number

    return np.isin(keys(workload.tables[level]), keys(kept))


def _notes(workload: Workload, end: np.ndarray, empty: np.ndarray) -> list[Note]:
    """What happened to each rank; one note for all but the first MOST_NOTES of them."""
    begin, last = workload.rank_offsets[:-1], workload.rank_offsets[1:]
    kind = workload.column("operations", "kind")
    notes = []
    for rank in np.flatnonzero(end < last)[:MOST_NOTES]:
        name = OperationKind(int(kind[end[rank]])).name.capitalize()
        lost = int(last[rank] - end[rank])
        text = (
            f"the last {lost:,} of {last[rank] - begin[rank]:,} operations were cut, from MPI_{name} on, which its "
            "partners did not reach"
        )
        notes.append(changes("operations-cut", text, f"rank {rank}", lost, Errs.short))
    more = np.flatnonzero(end < last)[MOST_NOTES:]
    if len(more):
        lost = int((last[more] - end[more]).sum())
        text = f"{lost:,} of {int((last - begin)[more].sum()):,} operations were cut"
        notes.append(changes("operations-cut", text, f"{len(more)} more ranks", lost, Errs.short))
    idle = sum(int(np.count_nonzero(empty[first:stop])) for first, stop in zip(begin, end, strict=True))
    if idle:
        text = f"{idle} non-blocking or buffered operations that nobody answered take no part"
        notes.append(changes("operations-unanswered", text, count=idle, errs=Errs.short))
    return notes
