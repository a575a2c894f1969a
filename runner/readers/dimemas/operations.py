"""The records of a Dimemas .dim trace as operations: kinds, peers, requests, and the sizes of collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload import NO_RANK, NO_REQUEST, OperationKind
from manyscale.runner.readers.dimemas.lines import GLOBAL, SEND

_K = OperationKind
_SEND_KINDS: Final = np.array([_K.send, _K.ssend, _K.isend, _K.issend], np.int8)  # by the two bits of the record
_RECEIVE_KINDS: Final = np.array([_K.recv, _K.irecv, _K.wait], np.int8)
_IRECV: Final = int(_K.irecv)
_WAIT: Final = int(_K.wait)
_FIRST_NONBLOCKING: Final = int(_K.ibarrier)
GLOBAL_KINDS: Final = np.array(
    [
        _K.barrier, _K.bcast, _K.gather, _K.gatherv, _K.scatter, _K.scatterv, _K.allgather, _K.allgatherv, _K.alltoall,
        _K.alltoallv, _K.reduce, _K.allreduce, _K.reduce_scatter, _K.reduce_scatter, _K.scan, _K.alltoallv,
    ],
    np.int8,
)  # fmt: skip
_ROOTED: Final = (_K.bcast, _K.reduce, _K.gather, _K.gatherv, _K.scatter, _K.scatterv)
_TO_NONBLOCKING: Final = int(_K.ibarrier) - int(_K.barrier)
GLOBAL_ASYNC, GLOBAL_SYNC, GLOBAL_WAIT, GLOBAL_ROOT_SYNC = range(4)


class RecordError(Exception):
    """A record that cannot be taken: its number among the operations, and what is wrong."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        self.message = message


@dataclass
class Columns:
    """Per operation, ranks contiguous: what OPERATIONS_SCHEMA says. ``completes`` is the one request that a wait
    completes, -1 for none; counts are lists by row."""

    rank: np.ndarray
    kind: np.ndarray
    peer: np.ndarray
    tag: np.ndarray
    bytes: np.ndarray
    receive_bytes: np.ndarray
    communicator: np.ndarray
    request: np.ndarray
    completes: np.ndarray
    send_counts: dict[int, np.ndarray]
    receive_counts: dict[int, np.ndarray]
    num_uncompleted: int = 0
    num_spread: int = 0  # all-to-alls of which only the totals are known


def operations(record: np.ndarray, rank: np.ndarray, fields: np.ndarray, members: list[np.ndarray]) -> Columns:
    """Operations of the records of types SEND, RECEIVE and GLOBAL in the order of ranks; ``fields`` int64[n, 7] with
    the communicator replaced by its row in ``members``. Raises RecordError."""
    count, num_ranks = len(record), int(rank.max(initial=-1)) + 1
    columns = Columns(
        rank, np.zeros(count, np.int8), np.full(count, NO_RANK, np.int32), np.zeros(count, np.int32),
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int32),
        np.full(count, NO_REQUEST, np.int32), np.full(count, NO_REQUEST, np.int32), {}, {},
    )  # fmt: skip
    messages = np.flatnonzero(record != GLOBAL)
    send = record[messages] == SEND
    _refuse(messages, send & ((fields[messages, 5] < 0) | (fields[messages, 5] > 3)), "a send of unknown kind (0 to 3)")
    _refuse(
        messages, ~send & ((fields[messages, 5] < 0) | (fields[messages, 5] > 2)), "a receive of unknown kind (0 to 2)"
    )
    _refuse(messages, (fields[messages, 3] < 0) | (fields[messages, 3] > 2**31 - 1), "a tag out of range")
    code = fields[messages, 5]
    columns.kind[messages] = np.where(send, _SEND_KINDS[code], _RECEIVE_KINDS[np.minimum(code, 2)])
    is_wait = columns.kind[messages] == _WAIT
    columns.peer[messages] = np.where(is_wait, NO_RANK, fields[messages, 0])
    columns.tag[messages] = np.where(is_wait, 0, fields[messages, 3])
    columns.bytes[messages] = np.where(is_wait, 0, fields[messages, 2])
    columns.communicator[messages] = np.where(is_wait, 0, fields[messages, 4])
    _collectives(columns, np.flatnonzero(record == GLOBAL), fields, members)
    bounds = np.searchsorted(rank, np.arange(num_ranks + 1))
    wrong = _requests(columns.kind, record, fields, bounds, columns.request, columns.completes)
    if wrong >= 0:
        what = "collective" if record[wrong] == GLOBAL else "receive"
        raise RecordError(int(wrong), f"waits for a non-blocking {what} that no record before it starts")
    opened = np.count_nonzero((columns.kind == _IRECV) | (columns.kind >= _FIRST_NONBLOCKING))
    columns.num_uncompleted = int(opened - np.count_nonzero(columns.completes >= 0))
    return columns


def _refuse(rows: np.ndarray, wrong: np.ndarray, what: str) -> None:
    found = np.flatnonzero(wrong)
    if len(found):
        raise RecordError(int(rows[found[0]]), f"is {what}")


@njit(cache=True, nogil=True)
def _requests(kind, record, fields, bounds, request, completes):  # type: ignore[no-untyped-def]
    """Number the requests of each rank, and find the one each wait completes: the oldest receive of the same source,
    tag and communicator, the oldest collective. Row of a wait for nothing, else -1. O(rows x open requests)."""
    following = np.full(kind.shape[0], -1, np.int64)
    for rank in range(bounds.shape[0] - 1):
        number = 0
        head, last = -1, -1
        collectives, last_collective = -1, -1
        for row in range(bounds[rank], bounds[rank + 1]):
            what = kind[row]
            if record[row] == SEND:
                if fields[row, 5] >= 2:
                    request[row] = number
                    number += 1
            elif what == _IRECV:
                request[row] = number
                number += 1
                if head < 0:
                    head = row
                else:
                    following[last] = row
                last = row
            elif what >= _FIRST_NONBLOCKING:
                request[row] = number
                number += 1
                if collectives < 0:
                    collectives = row
                else:
                    following[last_collective] = row
                last_collective = row
            elif what == _WAIT and record[row] == GLOBAL:
                if collectives < 0:
                    return row
                completes[row] = request[collectives]
                collectives = following[collectives]
            elif what == _WAIT:
                before = -1
                entry = head
                while entry >= 0 and not (
                    fields[entry, 0] == fields[row, 0]
                    and fields[entry, 3] == fields[row, 3]
                    and fields[entry, 4] == fields[row, 4]
                ):
                    before = entry
                    entry = following[entry]
                if entry < 0:
                    return row
                completes[row] = request[entry]
                if before < 0:
                    head = following[entry]
                else:
                    following[before] = following[entry]
                if last == entry:
                    last = before
    return -1


def _collectives(columns: Columns, rows: np.ndarray, fields: np.ndarray, members: list[np.ndarray]) -> None:
    """Kinds, roots and sizes of the collectives; the members' k-th on a communicator belong together."""
    if not len(rows):
        return
    operation, mode = fields[rows, 0], fields[rows, 6]
    _refuse(rows, (operation < 0) | (operation >= len(GLOBAL_KINDS)), "an unknown collective (0 to 15)")
    _refuse(rows, (mode < 0) | (mode > GLOBAL_ROOT_SYNC), "a collective of unknown mode (0 to 3)")
    _refuse(rows, (fields[rows, 4] < 0) | (fields[rows, 5] < 0), "a collective of negative size")
    waits = mode == GLOBAL_WAIT
    columns.kind[rows[waits]] = _WAIT
    rows = rows[~waits]
    kind = GLOBAL_KINDS[fields[rows, 0]]
    columns.kind[rows] = kind + np.where(fields[rows, 6] == GLOBAL_ASYNC, _TO_NONBLOCKING, 0).astype(np.int8)
    columns.communicator[rows] = fields[rows, 1]
    for communicator in np.unique(fields[rows, 1]):
        mine = rows[fields[rows, 1] == communicator]
        who = members[communicator]
        counts = np.bincount(columns.rank[mine], minlength=int(who.max()) + 1)
        strangers = np.flatnonzero(~np.isin(columns.rank[mine], who))
        if len(strangers):
            row = int(mine[strangers[0]])
            raise RecordError(row, "is a collective on a communicator that its task does not belong to")
        if np.any(counts[who] != counts[who[0]]):
            most = who[np.argmax(counts[who])]
            row = int(mine[columns.rank[mine] == most][counts[who].min()])
            raise RecordError(row, "is a collective that some member of its communicator never calls; the trace is cut")
        order = np.argsort(who, kind="stable")
        table = np.empty((len(who), counts[who[0]]), np.int64)
        table[order] = mine.reshape(len(who), -1)
        _settle(columns, np.ascontiguousarray(table.T), fields, who)


def _settle(columns: Columns, table: np.ndarray, fields: np.ndarray, who: np.ndarray) -> None:
    """Roots and sizes of the instances (rows) of ``table`` int64[instances, members]."""
    size = len(who)
    kind = GLOBAL_KINDS[fields[table[:, 0], 0]]
    differs = np.flatnonzero((GLOBAL_KINDS[fields[table, 0]] != kind[:, None]).any(axis=1))
    if len(differs):
        row = table[differs[0]]
        other = row[np.argmax(GLOBAL_KINDS[fields[row, 0]] != kind[differs[0]])]
        raise RecordError(int(other), "meets another collective of its communicator; all must call the same one")
    roots = _roots(table, fields, kind, who)
    sent, received = fields[table, 4], fields[table, 5]
    larger = np.maximum(sent, received)
    rooted = np.isin(kind, _ROOTED)
    columns.peer[table] = np.where(rooted, roots, NO_RANK)[:, None].astype(np.int32)
    size_of: dict[OperationKind, Callable[[], np.ndarray]] = {
        _K.bcast: lambda: larger,
        _K.reduce: lambda: larger,
        _K.allreduce: lambda: larger,
        _K.scan: lambda: larger,
        _K.gather: lambda: sent,
        _K.gatherv: lambda: sent,
        _K.allgather: lambda: sent,
        _K.allgatherv: lambda: sent,
        _K.scatter: lambda: np.where(received > 0, received, sent // size),
        _K.alltoall: lambda: np.where(received > 0, received // size, sent),
        _K.reduce_scatter: lambda: np.ones_like(sent),
    }
    for one, sizes in size_of.items():
        chosen = kind == one
        if np.any(chosen):
            columns.bytes[table[chosen]] = sizes()[chosen]
    for index in np.flatnonzero(
        np.isin(kind, (_K.gatherv, _K.scatterv, _K.allgatherv, _K.alltoallv, _K.reduce_scatter))
    ):
        rows = table[index]
        if kind[index] == _K.alltoallv:
            columns.num_spread += 1
            for row, counts in zip(rows.tolist(), _spread(sent[index], received[index]), strict=True):
                columns.send_counts[row] = counts
        elif kind[index] == _K.scatterv:
            columns.send_counts[int(rows[roots[index]])] = received[index]
        else:
            blocks = received[index] if kind[index] == _K.reduce_scatter else sent[index]
            if kind[index] == _K.reduce_scatter and not blocks.any():
                blocks = sent[index] // size
            columns.receive_counts[int(rows[roots[index]])] = blocks


def _roots(table: np.ndarray, fields: np.ndarray, kind: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Member that is the root of each instance; the first where none is named. A reduction names its root's task in all
    records, the others mark the root's record by 1."""
    flags = fields[table, 2]
    roots = np.argmax(flags != 0, axis=1)
    rooted = np.isin(kind, _ROOTED)
    by_task = (kind == _K.reduce) & (flags == flags[:, :1]).all(axis=1)
    named = np.flatnonzero(by_task)
    if len(named):
        position = np.full(int(max(who.max(), flags[named].max())) + 1, -1, np.int64)
        position[who] = np.arange(len(who))
        place = position[np.maximum(flags[named, 0], 0)]
        if np.any(place < 0):
            raise RecordError(int(table[named[np.argmax(place < 0)], 0]), "names a root outside its communicator")
        roots[named] = place
    several = np.flatnonzero(rooted & ~by_task & (np.count_nonzero(flags, axis=1) > 1))
    if len(several):
        row = table[several[0]][np.flatnonzero(flags[several[0]])[1]]
        raise RecordError(int(row), "is the second root of its collective")
    return np.where(rooted, roots, 0)


def _spread(sent: np.ndarray, received: np.ndarray) -> np.ndarray:
    """int64[n, n]: what each sends to each if all that is sent goes to the receivers in proportion to what they get."""
    total = int(received.sum())
    if not total:
        received, total = np.ones_like(received), len(received)
    share = np.cumsum(received) / total
    ends = np.rint(sent[:, None] * share).astype(np.int64)
    return np.diff(ends, axis=1, prepend=0)
