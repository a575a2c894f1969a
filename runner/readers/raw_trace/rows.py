"""The operations of one process of a native trace, as columns: sizes, partners, requests. O(calls) in NumPy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from manyscale.models.workload import (
    ANY_SOURCE,
    COLLECTIVES,
    NO_RANK,
    NO_REQUEST,
    NONBLOCKING_COLLECTIVES,
    RECEIVES,
    SENDS,
    OperationKind,
)
from manyscale.models.workload.polls import Poll
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.calls import (
    ACCESS,
    BOTH_COUNTS,
    COMPLETED,
    EXPANDED,
    FAILED,
    INEIGHBOURS,
    INTERCOMMUNICATOR,
    IS_BARRIER,
    ISENDRECV,
    NEIGHBOURS,
    PLAIN,
    RECEIVE_COUNTS,
    SEND_COUNTS,
    SENDRECV,
    TABLE,
    TEMPLATE,
    WILDCARD,
    Calls,
    opens_request,
)

_K = OperationKind
_CANCELLED = -3  # in place of a request's source
_ENTRY = 4  # values of a completed request: request, source, bytes, tag


@dataclass
class RankRows:
    """Columns of one rank's operations, as in OPERATIONS_SCHEMA; ``communicator`` is of all ranks, before those that
    nothing uses are left out. Lists are (lengths, values). ``start_ns`` and ``end_ns`` by the process's own clock.

    ``is_access``: whether it says what is read or written of a file.
    ``polls``: what each is to a run of polls (``models/workload/polls.py``).

    ``reasons``: calls by name that take no part, because they are ``others``, ``failed``, ``between_groups``,
    ``with_strangers``; and those that were ``lowered`` to sends and receives."""

    kind: np.ndarray
    peer: np.ndarray
    source: np.ndarray
    tag: np.ndarray
    bytes: np.ndarray
    receive_bytes: np.ndarray
    communicator: np.ndarray
    request: np.ndarray
    completes: tuple[np.ndarray, np.ndarray]
    send_counts: tuple[np.ndarray, np.ndarray]
    receive_counts: tuple[np.ndarray, np.ndarray]
    is_access: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    polls: np.ndarray
    reasons: dict[str, Counter[str]]
    num_wildcards: int
    num_cancelled: int
    num_never_completed: int


def rows_of(calls: Calls, communicator_of: np.ndarray, neighbour_tag: int) -> RankRows:
    """The operations of a process. ``communicator_of``: what each of its communicators is; ``neighbour_tag``: one that
    no message has. Raises UserError for a damaged record."""
    return _Rows(calls, communicator_of, neighbour_tag).rows()


class _Rows:
    def __init__(self, calls: Calls, communicator_of: np.ndarray, neighbour_tag: int) -> None:
        self.calls, self.items, self.records = calls, calls.items, calls.records
        self.neighbour_tag = neighbour_tag
        items = self.items
        count = int(items.num_rows.sum())
        self.item = np.repeat(np.arange(len(items.record)), items.num_rows)  # of each row
        self.part = np.arange(count) - items.first_row[self.item]
        origin = items.origin[self.item]
        self.origin = origin
        call = calls.call[origin]
        self.is_part = calls.takes_part[items.origin] & calls.takes_part[items.record]
        self.kind = np.where(self.is_part[self.item], TABLE.kind[call], int(_K.other)).astype(np.int64)
        own = calls.call[items.record[self.item]]
        self.kind[TABLE.form[own] == TEMPLATE] = _K.other
        self.peer, self.source, self.tag, self.bytes, self.receive_bytes = (
            self.records[name][origin].astype(np.int64) for name in ("peer", "source", "tag", "bytes", "receive_bytes")
        )
        self.is_access = self._accesses()
        self._between_groups()
        self._expand()
        self.communicator = self._communicators(self.records["communicator"][origin], communicator_of)
        self.rows_to_fill = count

    def rows(self) -> RankRows:
        self._tests()
        self._lower_sendrecvs()
        self._lower_neighbours()
        self._one_tag()
        entries = self._entries()
        self._clear(~np.isin(self.kind, (*SENDS, *RECEIVES, *COLLECTIVES)) & ~self.is_access)
        self.peer[self.is_access] = self.calls.process.rank
        self.source[self.is_access], self.tag[self.is_access] = NO_RANK, 0
        request, completes, num_never = self._requests(entries)
        send_counts, receive_counts = self._counts()
        start_ns, end_ns = self._times()
        wild = (self.records["flags"][self.origin] & WILDCARD) != 0
        receives = np.isin(self.kind, RECEIVES) & ((self.kind != _K.sendrecv) | (self.source >= ANY_SOURCE))
        return RankRows(
            *(self.kind, self.peer, self.source, self.tag, self.bytes, self.receive_bytes, self.communicator),
            request=request,
            completes=completes,
            send_counts=send_counts,
            receive_counts=receive_counts,
            is_access=self.is_access,
            start_ns=start_ns,
            end_ns=end_ns,
            polls=self._polls(),
            reasons=self._reasons(),
            num_wildcards=int(np.count_nonzero(wild & receives)),
            num_cancelled=self.num_cancelled,
            num_never_completed=num_never,
        )

    def _accesses(self) -> np.ndarray:
        """Which rows say how many bytes of a file are read or written: of collective calls those after the barrier."""
        form = self.items.form[self.item]
        self.kind[(form == ACCESS) & (self.part == 1)] = _K.other
        alone = (form == PLAIN) & self.is_part[self.item] & (self.kind == _K.other)
        return ((form == ACCESS) & (self.part == 1)) | (alone & TABLE.is_access[self.calls.call[self.origin]])

    def _between_groups(self) -> None:
        """Collectives on an intercommunicator: barriers of both groups."""
        between = (self.records["flags"][self.origin] & INTERCOMMUNICATOR) != 0
        rows = between & np.isin(self.kind, COLLECTIVES)
        self.kind[rows] = np.where(self.kind[rows] >= NONBLOCKING_COLLECTIVES.start, _K.ibarrier, _K.barrier)
        is_barrier = np.isin(self.kind, (_K.barrier, _K.ibarrier))
        self.peer[is_barrier] = NO_RANK
        self.bytes[is_barrier] = self.receive_bytes[is_barrier] = self.tag[is_barrier] = 0

    def _expand(self) -> None:
        """What the rows of calls say that become others' business, too."""
        rows = self.items.form[self.item] == EXPANDED
        values = np.array(self.calls.expansion.rows, np.int64).reshape(-1, 5)
        self.kind[rows], self.peer[rows], self.tag[rows], self.bytes[rows], self.receive_bytes[rows] = values.T
        self.source[rows] = NO_RANK

    def _error(self, record: int, message: str) -> UserError:
        process = self.calls.process
        name = TABLE.names[self.calls.call[record]]
        return UserError(f"{process.path}: rank {process.rank}, call {record} ({name}): {message}; trace again")

    def _communicators(self, number: np.ndarray, communicator_of: np.ndarray) -> np.ndarray:
        inside = (number >= 0) & (number < len(communicator_of))
        found = np.where(inside, communicator_of[np.where(inside, number, 0)], -1)
        needed = np.isin(self.kind, (*SENDS, *RECEIVES, *COLLECTIVES)) | np.isin(
            self.items.form[self.item], (NEIGHBOURS, INEIGHBOURS, ACCESS)
        )
        wrong = np.flatnonzero(needed & (found < 0))
        if len(wrong):
            raise self._error(int(self.origin[wrong[0]]), "is on a communicator whose members are not recorded")
        return np.where(needed, found, 0)

    def _tests(self) -> None:
        call = self.calls.call[self.items.record[self.item]]
        flags = self.records["flags"][self.items.record[self.item]]
        polls = TABLE.is_test[call] | TABLE.is_probe[call]
        self.kind[polls & ((flags & COMPLETED) == 0)] = _K.test

    def _polls(self) -> np.ndarray:
        record = self.items.record[self.item]
        call = self.calls.call[record]
        role = np.full(len(record), Poll.ends, np.int8)
        has_found = (self.records["flags"][record] & COMPLETED) != 0
        is_empty = TABLE.is_test[call] & (self.calls.num_lists[record] == 0)
        polls = TABLE.is_test[call] | TABLE.is_probe[call]
        role[polls] = np.where(has_found, np.where(is_empty, Poll.idle, Poll.found), Poll.failed)[polls]
        role[TABLE.kind[call] == _K.test] = Poll.unknown  # MPI_Request_get_status: its answer is not recorded
        return role

    def _lower_sendrecvs(self) -> None:
        form = self.items.form[self.item]
        both = (form == SENDRECV) | (form == ISENDRECV)
        receives = both & (self.part == 1)
        fields = self.records[self.origin[receives]]
        self.kind[both & (self.part == 0)] = _K.isend
        self.kind[receives] = _K.irecv
        self.kind[(form == SENDRECV) & (self.part == 2)] = _K.waitall
        self.peer[receives] = fields["source"]
        self.tag[receives] = fields["receive_tag"]
        self.source[both] = NO_RANK
        self.bytes[receives] = 0
        self.receive_bytes[both & ~receives] = 0

    def _lower_neighbours(self) -> None:
        form = self.items.form
        items = np.flatnonzero((form == NEIGHBOURS) | (form == INEIGHBOURS))
        lists, start = self.calls.lists, self.calls.list_start[self.items.origin[items]]
        num_out = np.zeros(len(form), np.int64)
        num_in = np.zeros(len(form), np.int64)
        at = np.zeros(len(form), np.int64)
        at[items] = start
        num_out[items] = lists[start]
        num_in[items] = lists[start + 1 + 2 * num_out[items]]
        rows = np.flatnonzero((form == NEIGHBOURS)[self.item] | (form == INEIGHBOURS)[self.item])
        item, part = self.item[rows], self.part[rows]
        is_send = part < num_out[item]
        is_receive = ~is_send & (part < num_out[item] + num_in[item])
        has_wait = (form[item] == NEIGHBOURS) & ~is_send & ~is_receive
        self.kind[rows] = np.select([is_send, is_receive, has_wait], [int(_K.isend), int(_K.irecv), int(_K.waitall)],
                                    int(_K.other))  # fmt: skip
        self.tag[rows] = self.neighbour_tag
        for chosen, column, first, length in (
            (is_send, self.bytes, at + 1, num_out),
            (is_receive, self.receive_bytes, at + 2 + 2 * num_out, num_in),
        ):
            of = item[chosen]
            place = part[chosen] - (0 if column is self.bytes else num_out[of])
            self.peer[rows[chosen]] = lists[first[of] + place]
            column[rows[chosen]] = lists[first[of] + length[of] + place]

    def _one_tag(self) -> None:
        """A sendrecv of one half has the tag of that."""
        halves = (self.kind == _K.sendrecv) & (self.peer < 0)
        self.tag[halves] = self.records["receive_tag"][self.origin[halves]]

    def _clear(self, rows: np.ndarray) -> None:
        """Let rows say nothing but their kind."""
        for column, nothing in ((self.peer, NO_RANK), (self.source, NO_RANK), (self.tag, 0), (self.bytes, 0),
                                (self.receive_bytes, 0), (self.communicator, 0)):  # fmt: skip
            column[rows] = nothing
        self.peer[(self.kind < COLLECTIVES.start) & (self.peer < ANY_SOURCE)] = NO_RANK

    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """(record, item) of each request that a call completed: fill in what receives received."""
        calls = self.calls
        completing = np.flatnonzero(TABLE.is_completing[calls.call])
        counts = calls.num_lists[completing] // _ENTRY
        record = np.repeat(completing, counts)
        place = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = calls.list_start[record] + _ENTRY * place
        native, source, size, tag = (calls.lists[at + k] for k in range(_ENTRY))
        opened = np.flatnonzero(self.items.request >= 0)
        item_of = np.full(int(self.items.request.max(initial=-1)) + 2, -1, np.int64)
        item_of[self.items.request[opened]] = opened
        wrong = np.flatnonzero((native < 0) | (native >= len(item_of) - 1))
        if len(wrong):
            raise self._error(int(record[wrong[0]]), f"completes request {native[wrong[0]]}, which no call opened")
        item = item_of[native]
        self.num_cancelled = int(np.count_nonzero(source == _CANCELLED))
        for_row = self.items.first_row[item]
        is_receive = (source >= 0) & (self.kind[for_row] == _K.irecv)
        rows = for_row[is_receive]
        self.peer[rows] = source[is_receive]
        self.receive_bytes[rows] = size[is_receive]
        self.tag[rows] = tag[is_receive]
        gone = item[source == _CANCELLED]
        self.kind[np.isin(self.item, gone)] = _K.other
        return record, item

    def _requests(
        self, entries: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], int]:
        """(request that each row opens, what each row completes, number of those never completed)."""
        items, count = self.items, self.rows_to_fill
        opens = opens_request(self.kind)
        request = np.where(opens, np.cumsum(opens) - 1, NO_REQUEST)
        record, item = entries
        # the rows of an item that open requests are its first ones
        num_opened = np.bincount(self.item[opens], minlength=len(items.record))
        row_of_record = items.first_row[np.searchsorted(items.record, record)]
        lengths = num_opened[item]
        by = np.repeat(row_of_record, lengths)
        place = np.arange(len(by)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        named = np.repeat(items.first_row[item], lengths) + place
        lowered = np.flatnonzero((items.form == NEIGHBOURS) | (items.form == SENDRECV))
        last = items.first_row[lowered] + items.num_rows[lowered] - 1
        mine = num_opened[lowered]
        by_last = np.repeat(last, mine)
        place = np.arange(len(by_last)) - np.repeat(np.cumsum(mine) - mine, mine)
        named = np.concatenate((named, np.repeat(items.first_row[lowered], mine) + place))
        by = np.concatenate((by, by_last))
        waits = np.array(self.calls.expansion.waits, np.int64).reshape(-1, 4)
        first = self.items.first_row[np.searchsorted(items.record, waits[:, [0, 2]])]
        by = np.concatenate((by, first[:, 0] + waits[:, 1]))
        named = np.concatenate((named, first[:, 1] + waits[:, 3]))
        order = np.argsort(by, kind="stable")
        values = request[named[order]]
        num_opened_ever = int(np.count_nonzero(opens))
        num_never = num_opened_ever - int(np.count_nonzero(np.bincount(values, minlength=num_opened_ever)))
        return request, (np.bincount(by, minlength=count), values), num_never

    def _counts(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Bytes to each member and from each member, of the collectives that have such lists."""
        whose = TABLE.counts[self.calls.call[self.origin]]
        whose = np.where(np.isin(self.kind, COLLECTIVES), whose, 0)
        total = self.calls.num_lists[self.origin]
        half = np.where(whose == BOTH_COUNTS, total // 2, total)
        start = self.calls.list_start[self.origin]
        sides = []
        for side, first in ((SEND_COUNTS, start), (RECEIVE_COUNTS, start + np.where(whose == BOTH_COUNTS, half, 0))):
            lengths = np.where((whose == side) | (whose == BOTH_COUNTS), half, 0)
            at = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
            sides.append((lengths, self.calls.lists[at]))
        return sides[0], sides[1]

    def _times(self) -> tuple[np.ndarray, np.ndarray]:
        """The last row of a call takes its time."""
        record = self.items.record[self.item]
        start, end = (self.records[name][record].astype(np.int64) for name in ("start_ns", "end_ns"))
        is_last = np.append(record[1:] != record[:-1], True)[: len(record)]
        return start, np.where(is_last, end, start)

    def _reasons(self) -> dict[str, Counter[str]]:
        calls, flags = self.calls, self.records["flags"]
        failed = (flags & FAILED) != 0
        between = calls.takes_part & ((flags & INTERCOMMUNICATOR) != 0) & np.isin(TABLE.kind[calls.call], COLLECTIVES)
        between &= ~IS_BARRIER[calls.call]
        unknown = (IS_BARRIER[calls.call] | TABLE.on_window[calls.call]) & (self.records["communicator"] < 0)
        strange = ~calls.takes_part & ~failed & ~unknown
        lowered = np.zeros(len(flags), np.bool_)
        lowered[self.items.record[self.items.form >= SENDRECV]] = True
        is_other = np.zeros(len(flags), np.bool_)
        is_other[self.items.record[self.item[self.kind == _K.other]]] = True
        is_other[self.items.record[np.isin(self.items.form, (EXPANDED, ACCESS))]] = False
        setting_up = TABLE.form[calls.call] == TEMPLATE
        is_other &= ~(failed | strange | between | lowered | setting_up)
        is_other &= ~np.isin(TABLE.kind[calls.call], (*SENDS, *RECEIVES))  # cancelled

        def counted(chosen: np.ndarray) -> Counter[str]:
            return Counter({TABLE.names[call]: int(n) for call, n in enumerate(np.bincount(calls.call[chosen])) if n})

        return {
            name: counted(chosen)
            for name, chosen in (("others", is_other), ("failed", failed), ("between_groups", between),
                                 ("with_strangers", strange), ("lowered", lowered))
        }  # fmt: skip
