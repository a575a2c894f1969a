"""From the decoded calls of one DUMPI rank to rows of the workload's tables.

Each call becomes one operation, an MPI_Startall one for each request that it starts. Sizes are counts times the sizes
of datatypes; of collectives the side that MPI_IN_PLACE leaves significant is used, since the trace does not tell it.
Cost: O(calls) in NumPy, per function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.models.workload import ANY_SOURCE, NO_RANK, NO_REQUEST, OperationKind
from manyscale.models.workload.polls import LOCAL, PROBES, TESTS, Poll
from manyscale.runner.errors import UserError
from manyscale.runner.readers.dumpi import requests as dumpi_requests
from manyscale.runner.readers.dumpi.communicators import WORLD, Local, local_communicators
from manyscale.runner.readers.dumpi.layouts import FUNCTION_ENTER, FUNCTION_EXIT, LAYOUTS, NUMBER
from manyscale.runner.readers.dumpi.records import Places, RankFile
from manyscale.runner.readers.dumpi.types import TypeSizes

_K = OperationKind
_POINT_TO_POINT: Final = {
    "MPI_Send": _K.send, "MPI_Rsend": _K.send, "MPI_Bsend": _K.bsend, "MPI_Ssend": _K.ssend,
    "MPI_Isend": _K.isend, "MPI_Irsend": _K.isend, "MPI_Ibsend": _K.ibsend, "MPI_Issend": _K.issend,
    "MPI_Send_init": _K.isend, "MPI_Rsend_init": _K.isend, "MPI_Bsend_init": _K.ibsend, "MPI_Ssend_init": _K.issend,
    "MPI_Recv": _K.recv, "MPI_Irecv": _K.irecv, "MPI_Recv_init": _K.irecv,
    "MPI_Sendrecv": _K.sendrecv, "MPI_Sendrecv_replace": _K.sendrecv,
}  # fmt: skip
_COMPLETING: Final = {
    "MPI_Wait": _K.wait, "MPI_Test": _K.wait, "MPI_Waitany": _K.wait, "MPI_Testany": _K.wait,
    "MPI_Waitall": _K.waitall, "MPI_Testall": _K.waitall, "MPI_Waitsome": _K.waitall, "MPI_Testsome": _K.waitall,
}  # fmt: skip
_COLLECTIVE: Final = {
    "MPI_Barrier": _K.barrier, "MPI_Bcast": _K.bcast, "MPI_Reduce": _K.reduce, "MPI_Allreduce": _K.allreduce,
    "MPI_Scan": _K.scan, "MPI_Exscan": _K.exscan, "MPI_Gather": _K.gather, "MPI_Gatherv": _K.gatherv,
    "MPI_Scatter": _K.scatter, "MPI_Scatterv": _K.scatterv, "MPI_Allgather": _K.allgather,
    "MPI_Allgatherv": _K.allgatherv, "MPI_Alltoall": _K.alltoall, "MPI_Alltoallv": _K.alltoallv,
    "MPI_Alltoallw": _K.alltoallv, "MPI_Reduce_scatter": _K.reduce_scatter,
}  # fmt: skip
MOST_BYTES: Final = 1 << 56
# MPI_PROC_NULL of Open MPI, as it stands: libdumpi turns MPI_ANY_SOURCE into -1 and leaves MPI_PROC_NULL as the MPI has
# it, so that with MPICH and its kin, where it is -1, receives from nobody and from anybody are one (null_receives.py)
NULL_BESIDE_ANY: Final = -2


@dataclass
class Ragged:
    """A column of lists, filled function by function: lists of some operations at a time."""

    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, rows: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
        """``values[offsets[i]:offsets[i + 1]]`` is the list of operation ``rows[i]``."""
        self.parts.append((rows, np.diff(offsets), values))

    def column(self, num_operations: int) -> tuple[np.ndarray, np.ndarray]:
        """(offsets int64[num_operations + 1], values int64): the lists of all operations."""
        rows = np.concatenate([np.empty(0, np.int64), *(part[0] for part in self.parts)])
        lengths = np.concatenate([np.empty(0, np.int64), *(part[1] for part in self.parts)])
        values = np.concatenate([np.empty(0, np.int64), *(part[2] for part in self.parts)])
        all_lengths = np.zeros(num_operations, np.int64)
        all_lengths[rows] = lengths
        order = np.argsort(np.repeat(rows, lengths), kind="stable")
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(all_lengths))), values[order]


@dataclass
class RankOperations:
    """Columns of one rank. ``communicator`` and ``peer``, ``source`` are in the rank's own terms: its communicators by
    the order of their making, ranks within them. ``peer_from_status``, ``source_from_status``: receives of any source
    whose real one a status gave. ``call``: of each operation. ``has_own_null``: whether a partner is written as
    MPI_PROC_NULL alone."""

    places: Places
    local: Local
    call: np.ndarray
    kind: np.ndarray
    peer: np.ndarray
    source: np.ndarray
    tag: np.ndarray
    bytes: np.ndarray
    receive_bytes: np.ndarray
    communicator: np.ndarray
    request: np.ndarray
    completes: tuple[np.ndarray, np.ndarray]
    send_counts: Ragged
    receive_counts: Ragged
    peer_from_status: np.ndarray
    source_from_status: np.ndarray
    polls: np.ndarray  # what each is to a run of polls
    comm_ranks: np.ndarray  # int64[n, 3]: call, communicator, what MPI_Comm_rank said
    num_unknown_requests: int
    num_never_completed: int
    num_cancelled: int
    has_own_null: bool


def convert(file: RankFile, rank: int) -> RankOperations:
    """The operations of a rank. Raises UserError, naming file, byte and call, for what cannot be replayed."""
    return _Converter(file, rank).convert()


class _Converter:
    def __init__(self, file: RankFile, rank: int) -> None:
        calls = file.calls
        self.file, self.calls = file, calls
        self.places = file.places(rank)
        rows_of_call = np.ones(len(calls), np.int64)
        rows_of_call[(calls.function == FUNCTION_ENTER) | (calls.function == FUNCTION_EXIT)] = 0
        started = calls.rows("MPI_Startall")
        offsets, _ = calls.lists("MPI_Startall", "requests", started)
        rows_of_call[started] = np.maximum(1, np.diff(offsets))
        self.row = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows_of_call)))
        size = int(self.row[-1])
        self.call = np.repeat(np.arange(len(calls)), rows_of_call)
        self.kind = np.full(size, _K.other, np.int8)
        self.peer = np.full(size, NO_RANK, np.int32)
        self.source = np.full(size, NO_RANK, np.int32)
        self.tag = np.zeros(size, np.int32)
        self.bytes = np.zeros(size, np.int64)
        self.receive_bytes = np.zeros(size, np.int64)
        self.communicator = np.full(size, WORLD, np.int64)
        self.from_status = np.zeros((size, 2), np.bool_)  # of peer and source
        self.send_counts, self.receive_counts = Ragged(), Ragged()
        self.has_own_null = False

    def convert(self) -> RankOperations:
        calls = self.calls
        self.types = TypeSizes(calls, self.file.type_bytes)
        self.local = local_communicators(calls)
        for name, kind in _POINT_TO_POINT.items():
            self._point_to_point(name, kind)
        for name, kind in _COLLECTIVE.items():
            rows = calls.rows(name)
            if len(rows):
                self.kind[self.row[rows]] = kind
                self._communicator(name, rows)
                self._collective(name, rows)
        for names, kind in ((("MPI_Init", "MPI_Init_thread"), _K.init), (("MPI_Finalize",), _K.finalize)):
            for name in names:
                self.kind[self.row[calls.rows(name)]] = kind
        offsets, values, requests = self._requests()
        wrong = np.flatnonzero((self.bytes < 0) | (self.bytes > MOST_BYTES) | (self.receive_bytes > MOST_BYTES))
        if len(wrong):
            raise self._error(int(self.call[wrong[0]]), "has a negative or impossible size; the file is damaged")
        is_init = np.isin(calls.function, [NUMBER[name] for name in dumpi_requests.TEMPLATES])
        self._clear(self.row[:-1][is_init])
        return RankOperations(
            *(
                self.places,
                self.local,
                self.call,
                self.kind,
                self.peer,
                self.source,
                self.tag,
                self.bytes,
                self.receive_bytes,
            ),
            communicator=self.communicator,
            request=requests,
            completes=(offsets, values),
            send_counts=self.send_counts,
            receive_counts=self.receive_counts,
            peer_from_status=self.from_status[:, 0],
            source_from_status=self.from_status[:, 1],
            polls=self._polls(),
            comm_ranks=self._comm_ranks(),
            num_unknown_requests=self.num_unknown,
            num_never_completed=self.num_never_completed,
            num_cancelled=self.num_cancelled,
            has_own_null=self.has_own_null,
        )

    def _error(self, call: int, message: str) -> UserError:
        return self.places.error(call, message)

    def _clear(self, rows: np.ndarray) -> None:
        """Make operations take no part."""
        self.kind[rows] = _K.other
        self.peer[rows] = NO_RANK
        self.source[rows] = NO_RANK
        for column in (self.tag, self.bytes, self.receive_bytes, self.communicator):
            column[rows] = 0

    def _field(self, name: str, rows: np.ndarray, field: str) -> np.ndarray:
        return self.calls.column(name, field, rows)

    def _size(self, name: str, rows: np.ndarray, count_field: str, type_field: str) -> np.ndarray:
        """Bytes of ``count_field`` elements of ``type_field``."""
        count = self._field(name, rows, count_field)
        return count * self._type_bytes(rows, self._field(name, rows, type_field), count != 0)

    def _type_bytes(self, rows: np.ndarray, types: np.ndarray, matters: np.ndarray) -> np.ndarray:
        sizes = self.types.at(rows, types)
        wrong = np.flatnonzero((sizes < 0) & matters)
        if len(wrong):
            raise self._error(
                int(rows[wrong[0]]),
                f"uses datatype {types[wrong[0]]}, whose size is recorded nowhere in the file; trace the program with "
                "a DUMPI of version 0.6.6 or later",
            )
        return np.maximum(sizes, 0)

    def _communicator(self, name: str, rows: np.ndarray) -> None:
        self.communicator[self.row[rows]] = self.local.at(rows, self._field(name, rows, "comm"))

    def _point_to_point(self, name: str, kind: OperationKind) -> None:
        rows = self.calls.rows(name)
        if not len(rows):
            return
        at = self.row[rows]
        fields = LAYOUTS[NUMBER[name]].fields
        self.kind[at] = kind
        self._communicator(name, rows)
        both = "sendcount" in fields
        if "dest" in fields:
            dest = self._field(name, rows, "dest")
            self.peer[at] = np.where(dest < 0, NO_RANK, dest)  # MPI_PROC_NULL: any negative number
            self.has_own_null |= bool(np.any(dest == NULL_BESIDE_ANY))
            self.tag[at] = self._field(name, rows, "tag" if "tag" in fields else "sendtag")
            self.bytes[at] = self._size(name, rows, *(("sendcount", "sendtype") if both else ("count", "datatype")))
        if "source" in fields:
            sources = self._field(name, rows, "source")
            self.has_own_null |= bool(np.any(sources == NULL_BESIDE_ANY))
            sources = np.where(sources < ANY_SOURCE, NO_RANK, sources)
            (self.source if "dest" in fields else self.peer)[at] = sources
            if "dest" not in fields:
                self.tag[at] = self._field(name, rows, "tag")
            else:
                self._one_tag(name, rows, at)
            size = self._size(name, rows, *(("recvcount", "recvtype") if both else ("count", "datatype")))
            self.receive_bytes[at] = size
        if "status" in fields:
            places = self.calls.starts(name, "status", rows)
            self._real_sources(at, np.where(self.calls.values[places] > 0, places + 1, -1))

    def _one_tag(self, name: str, rows: np.ndarray, at: np.ndarray) -> None:
        """A sendrecv has one tag in the workload; its halves may have two."""
        received = self._field(name, rows, "recvtag")
        differs = np.flatnonzero((received != self.tag[at]) & (self.peer[at] != NO_RANK) & (self.source[at] != NO_RANK))
        if len(differs):
            raise self._error(
                int(rows[differs[0]]),
                f"sends with tag {self.tag[at][differs[0]]} and receives with tag {received[differs[0]]}; a "
                "sendrecv with two tags cannot be replayed",
            )
        self.tag[at] = np.where(self.peer[at] == NO_RANK, received, self.tag[at])

    def _real_sources(self, at: np.ndarray, places: np.ndarray) -> None:
        """Take the source of receives from any source from their statuses (places among the values, -1 for none),
        where these can be true: a tag that fits, no more bytes than there was room for, not cancelled."""
        is_pair = self.kind[at] == _K.sendrecv
        wanted = np.where(is_pair, self.source[at], self.peer[at])
        chosen = np.flatnonzero((wanted == ANY_SOURCE) & (places >= 0))
        at, is_pair, places = at[chosen], is_pair[chosen], places[chosen]
        size, source, cancelled, _, tag = (self.calls.values[places + k] for k in range(5))
        fits = (size >= 0) & (size <= self.receive_bytes[at]) & (source >= 0) & (cancelled == 0) & (tag >= 0)
        fits &= (self.tag[at] < 0) | (tag == self.tag[at])
        # a message has a real source: this one was from MPICH's MPI_PROC_NULL
        is_null = (source == ANY_SOURCE) & (size == 0) & (cancelled == 0)
        self.peer[at[is_null & ~is_pair]] = NO_RANK
        self.source[at[is_null & is_pair]] = NO_RANK
        for pairs, column in ((False, self.peer), (True, self.source)):
            mine = fits & (is_pair == pairs)
            column[at[mine]] = source[mine]
            self.from_status[at[mine], int(pairs)] = True

    def _requests(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Open and complete requests; returns (offsets, values) of what is completed and what each operation opens."""
        calls = self.calls
        named = self.named = dumpi_requests.named_requests(calls)
        wrong = np.flatnonzero((named.ids < 0) | (named.ids > dumpi_requests.LARGEST_ID))
        if len(wrong):
            raise self._error(int(named.calls[wrong[0]]), f"names request {named.ids[wrong[0]]}; the file is damaged")
        found = dumpi_requests.resolve(calls, named, self.row)
        if found.wrong_start >= 0:
            raise self._error(found.wrong_start, "starts a request that no earlier call set up; the file has gaps")
        started = np.flatnonzero(found.template >= 0)
        origin = self.row[found.template[started]]
        for column in (self.kind, self.peer, self.tag, self.bytes, self.receive_bytes, self.communicator):
            column[started] = column[origin]
        self._completing_kinds()
        opener = found.opened_by
        self._real_sources(opener, found.status)
        said = found.status >= 0
        is_cancelled_there = np.zeros(len(opener), np.bool_)
        is_cancelled_there[said] = calls.values[found.status[said] + 2] != 0
        dropped = found.is_cancelled & np.where(said, is_cancelled_there, self.kind[opener] == _K.irecv)
        request = found.request
        request[opener[dropped]] = NO_REQUEST
        self._clear(opener[dropped])
        self.num_cancelled = int(np.count_nonzero(dropped))
        self.num_unknown = found.num_unknown
        self.num_never_completed = int(np.count_nonzero(~found.is_completed & ~dropped))
        kept = ~dropped[found.values]
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
        return before[found.offsets], found.values[kept], request

    def _completing_kinds(self) -> None:
        for name, kind in _COMPLETING.items():
            rows = self.calls.rows(name)
            if not len(rows):
                continue
            fields = LAYOUTS[NUMBER[name]].fields
            done = np.ones(len(rows), np.bool_)
            if "flag" in fields:
                done = self._field(name, rows, "flag") != 0
            elif name == "MPI_Testsome":
                done = self._field(name, rows, "outcount") > 0
            self.kind[self.row[rows]] = np.where(done, kind, _K.test)

    def _polls(self) -> np.ndarray:
        role = np.full(len(self.kind), Poll.ends, np.int8)
        calls = self.calls
        asks = np.zeros(len(calls), np.bool_)
        asks[self.named.calls[self.named.ids != dumpi_requests.REQUEST_NULL]] = True
        for name in (*TESTS, *PROBES, *LOCAL):
            if name not in NUMBER:  # of a later MPI
                continue
            rows = calls.rows(name)
            if name in LOCAL:
                role[self.row[rows]] = Poll.beside
                continue
            has_found = self._field(name, rows, "outcount" if name == "MPI_Testsome" else "flag") != 0
            found = np.where(asks[rows], Poll.found, Poll.idle) if name in TESTS else Poll.found
            role[self.row[rows]] = np.where(has_found, found, Poll.failed)
            if name in PROBES:
                self.kind[self.row[rows[~has_found]]] = _K.test
        return role

    def _collective(self, name: str, rows: np.ndarray) -> None:
        at = self.row[rows]
        fields = LAYOUTS[NUMBER[name]].fields
        if "root" in fields:
            self.peer[at] = self._field(name, rows, "root")
        if name in ("MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Scan", "MPI_Exscan"):
            self.bytes[at] = self.receive_bytes[at] = self._size(name, rows, "count", "datatype")
        elif name in ("MPI_Allgather", "MPI_Alltoall"):
            self.bytes[at] = self.receive_bytes[at] = self._size(name, rows, "recvcount", "recvtype")
        elif name in ("MPI_Gather", "MPI_Scatter"):
            mine, roots = ("send", "recv") if name == "MPI_Gather" else ("recv", "send")
            is_root = self._field(name, rows, "commrank") == self._field(name, rows, "root")
            for chosen, side in ((rows[~is_root], mine), (rows[is_root], roots)):
                size = self._size(name, chosen, f"{side}count", f"{side}type")
                self.bytes[self.row[chosen]] = self.receive_bytes[self.row[chosen]] = size
        elif name != "MPI_Barrier":
            self._vector(name, rows)

    def _vector(self, name: str, rows: np.ndarray) -> None:
        at = self.row[rows]
        if name == "MPI_Reduce_scatter":
            self.bytes[at] = self._type_bytes(rows, self._field(name, rows, "datatype"), np.ones(len(rows), np.bool_))
            self._counts(name, rows, "recvcounts", "datatype", self.receive_counts)
        elif name in ("MPI_Gatherv", "MPI_Scatterv"):
            is_root = self._field(name, rows, "commrank") == self._field(name, rows, "root")
            roots, others = rows[is_root], rows[~is_root]
            if name == "MPI_Gatherv":
                self._counts(name, roots, "recvcounts", "recvtype", self.receive_counts)
                self.bytes[self.row[others]] = self._size(name, others, "sendcount", "sendtype")
            else:
                self._counts(name, roots, "sendcounts", "sendtype", self.send_counts)
                self.receive_bytes[self.row[others]] = self._size(name, others, "recvcount", "recvtype")
        else:
            type_field = "recvtypes" if name == "MPI_Alltoallw" else "recvtype"
            self._counts(name, rows, "recvcounts", type_field, self.receive_counts)
            if name != "MPI_Allgatherv":
                self._sent_counts(name, rows)

    def _sent_counts(self, name: str, rows: np.ndarray) -> None:
        """What each sends to each other; with MPI_IN_PLACE no counts are passed: as much as is received."""
        has_own = self.calls.values[self.calls.starts(name, "sendcounts", rows)] > 0
        many = "s" if name == "MPI_Alltoallw" else ""
        self._counts(name, rows[has_own], "sendcounts", f"sendtype{many}", self.send_counts)
        self._counts(name, rows[~has_own], "recvcounts", f"recvtype{many}", self.send_counts)

    def _counts(self, name: str, rows: np.ndarray, count_field: str, type_field: str, into: Ragged) -> None:
        offsets, counts = self.calls.lists(name, count_field, rows)
        owner = np.repeat(rows, np.diff(offsets))
        if type_field.endswith("s"):
            type_offsets, types = self.calls.lists(name, type_field, rows)
            wrong = np.flatnonzero(type_offsets != offsets)
            if len(wrong):
                raise self._error(int(rows[wrong[0] - 1]), "has lists of different lengths; the file is damaged")
        else:
            types = np.repeat(self._field(name, rows, type_field), np.diff(offsets))
        if np.any(counts < 0):
            raise self._error(int(owner[np.argmax(counts < 0)]), "has a negative count; the file is damaged")
        into.add(self.row[rows], offsets, counts * self._type_bytes(owner, types, counts != 0))

    def _comm_ranks(self) -> np.ndarray:
        rows = self.calls.rows("MPI_Comm_rank")
        communicators = self.local.at(rows, self._field("MPI_Comm_rank", rows, "comm"))
        return np.stack([rows, communicators, self._field("MPI_Comm_rank", rows, "rank")], axis=1)
