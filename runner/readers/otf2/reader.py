"""The events of an OTF2 archive as a workload."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import (
    COLLECTIVES,
    NO_RANK,
    RECEIVES,
    SENDS,
    OperationKind,
    Workload,
)
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.models.workload.polls import LOCAL, PROBES, TESTS, Poll
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.otf2 import collectives as otf2_collectives
from manyscale.runner.readers.otf2.anchor import anchor_of
from manyscale.runner.readers.otf2.events import Archive, read_archive
from manyscale.runner.readers.otf2.operations import (
    COMMUNICATOR,
    DEEPEST,
    IS_COLLECTIVE,
    IS_COMPLETION,
    IS_ICOLLECTIVE,
    IS_IRECEIVE,
    IS_ISEND,
    IS_OPEN_COLLECTIVE,
    IS_OPEN_RECEIVE,
    IS_OTHER,
    IS_RECEIVE,
    IS_SEND,
    IS_SENDRECV,
    IS_TEST,
    OPERATION,
    PEER,
    RECEIVED,
    REGION,
    SENT,
    SOURCE,
    TAG,
    WHAT,
    RankRows,
    operations_of,
)
from manyscale.runner.readers.otf2.tables import RankColumns, Tables
from manyscale.runner.readers.unreplayed import calls_left_out, listed, notes_on_calls

NAME = "otf2"
_COMPLETE: Final = b"MPI_COMMUNICATION_COMPLETE\x00"
_K = OperationKind
_KIND: Final = {
    IS_OTHER: _K.other, IS_SEND: _K.send, IS_ISEND: _K.isend, IS_RECEIVE: _K.recv, IS_IRECEIVE: _K.irecv,
    IS_SENDRECV: _K.sendrecv, IS_COMPLETION: _K.waitall, IS_TEST: _K.test, IS_OPEN_RECEIVE: _K.other,
    IS_OPEN_COLLECTIVE: _K.other,
}  # fmt: skip
# regions whose sends are of another kind than a standard one
_SEND_KINDS: Final = {"MPI_Ssend": _K.ssend, "MPI_Bsend": _K.bsend, "MPI_Issend": _K.issend, "MPI_Ibsend": _K.ibsend}
_ENDS: Final = {"MPI_Init": _K.init, "MPI_Init_thread": _K.init, "MPI_Finalize": _K.finalize}
_UNSIZED: Final = ("MPI_Ibarrier", "MPI_Ibcast", "MPI_Ireduce", "MPI_Iallreduce", "MPI_Iscan", "MPI_Iexscan",
                   "MPI_Igather", "MPI_Igatherv", "MPI_Iscatter", "MPI_Iscatterv", "MPI_Iallgather",
                   "MPI_Iallgatherv", "MPI_Ialltoall", "MPI_Ialltoallv", "MPI_Ialltoallw", "MPI_Ireduce_scatter",
                   "MPI_Ireduce_scatter_block")  # fmt: skip


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of an archive (``options`` play no part). Raises UserError, one line, for anything that cannot be
    read or replayed, and where the package is not installed."""
    anchor = anchor_of(path)
    with guarded(anchor):
        content = anchor.read_bytes()
    place = content.find(_COMPLETE)
    is_complete = place < 0 or content[place + len(_COMPLETE) :].startswith(b"true")
    return _Reader(anchor, read_archive(anchor), is_complete).workload()


class _Reader:
    def __init__(self, anchor: Path, archive: Archive, is_complete: bool) -> None:
        self.anchor, self.archive, self.is_complete = anchor, archive, is_complete
        self.num_ranks = len(archive.events)
        self.members = self._all_members()
        self.others: Counter[str] = Counter()
        self.unsized: Counter[str] = Counter()

    def _all_members(self) -> list[np.ndarray]:
        """Members of the archive's communicators, then of one for each rank alone."""
        known = [np.empty(0, np.int32) if who is None else who for who in self.archive.communicators]
        return [*known, *(np.array([rank], np.int32) for rank in range(self.num_ranks))]

    def workload(self) -> Workload:
        """Convert all ranks. Raises UserError for what cannot be replayed."""
        archive = self.archive
        is_mpi = np.array([name.startswith("MPI_") for name in archive.regions], np.bool_)
        self.ranks = []
        for rank, events in enumerate(archive.events):
            rows = operations_of(events, is_mpi, len(archive.classes))
            if rows.too_deep_at >= 0:
                raise UserError(
                    f"{self.anchor}: rank {rank}, event {rows.too_deep_at}: is in more than {DEEPEST} regions at once; "
                    "trace the program again without its recursive functions"
                )
            self.ranks.append(self._rank(rank, rows))
        self._check_complete()
        self.collectives = otf2_collectives.sizes(
            [rank.rows.operations for rank in self.ranks], [rank.communicator for rank in self.ranks], self.members
        )
        self.tables = Tables(self.anchor, archive, self.ranks, self.members, self.collectives)
        name = self.anchor.stem if self.anchor.stem != "traces" else self.anchor.resolve().parent.name
        return Workload(name, self.num_ranks, self.tables.all(), tuple(self._notes()), NAME)

    def _error(self, rank: int, row: int, rows: RankRows, message: str) -> UserError:
        region = int(rows.operations[row, REGION])
        name = self.archive.regions[region] if region >= 0 else "an event outside MPI regions"
        return UserError(f"{self.anchor}: rank {rank}, operation {row} ({name}) {message}")

    def _rank(self, rank: int, rows: RankRows) -> RankColumns:
        table = rows.operations
        what = table[:, WHAT]
        kind = np.array([_KIND.get(code, _K.other) for code in range(12)], np.int8)[what]
        is_collective = (what == IS_COLLECTIVE) | (what == IS_ICOLLECTIVE)
        kind[is_collective] = otf2_collectives.kinds(table[is_collective, OPERATION], what[is_collective])
        wrong = np.flatnonzero(is_collective & (kind < 0))
        if len(wrong):
            raise self._error(rank, int(wrong[0]), rows, "is a collective operation of no kind that is known")
        two_tags = np.flatnonzero((what == IS_SENDRECV) & (table[:, OPERATION] >= 0))
        if len(two_tags):
            raise self._error(rank, int(two_tags[0]), rows, "sends and receives with different tags or communicators; "
                              "such a sendrecv cannot be replayed")  # fmt: skip
        kind[(what == IS_COMPLETION) & (np.diff(rows.completes[0]) == 1)] = _K.wait
        polls = self._polls(what, table[:, REGION])
        self._name_kinds(what, table[:, REGION], kind)
        takes_part = np.isin(kind, (*SENDS, *RECEIVES, *COLLECTIVES))
        communicator = np.where(takes_part, table[:, COMMUNICATOR], 0)
        alone = np.array([who is None for who in self.archive.communicators], np.bool_)
        first_alone = len(self.archive.communicators)
        communicator[takes_part & alone[communicator]] = first_alone + rank
        sizes = np.array([len(who) for who in self.members])
        unknown = np.flatnonzero(takes_part & (sizes[communicator] == 0))
        if len(unknown):
            raise self._error(
                rank, int(unknown[0]), rows,
                f"is on communicator {communicator[unknown[0]]}, whose members the archive does not tell; it cannot be "
                "replayed",
            )  # fmt: skip
        peer, source = table[:, PEER].copy(), table[:, SOURCE].copy()
        flat = np.concatenate(self.members)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        is_point = takes_part & (kind < COLLECTIVES.start)
        for column in (peer, source):
            chosen = np.flatnonzero(is_point & (column != NO_RANK))
            beyond = chosen[(column[chosen] < 0) | (column[chosen] >= sizes[communicator[chosen]])]
            if len(beyond):
                raise self._error(rank, int(beyond[0]), rows, f"names rank {column[beyond[0]]} of a communicator of "
                                  f"{sizes[communicator[beyond[0]]]}; the archive is damaged")  # fmt: skip
            column[chosen] = flat[offsets[communicator[chosen]] + column[chosen]]
        peer[is_collective & ((peer < 0) | (peer >= sizes[communicator]))] = NO_RANK  # no root: all bits set
        peer[~takes_part] = NO_RANK
        points = [np.where(is_point, table[:, column], 0) for column in (SENT, RECEIVED)]
        return RankColumns(rows, kind, peer, source, communicator, points[0], points[1], polls)

    def _polls(self, what: np.ndarray, region: np.ndarray) -> np.ndarray:
        """What each operation is to a run of polls. Whether a probe found anything is not recorded."""
        roles = (
            dict.fromkeys(TESTS, Poll.idle) | dict.fromkeys(PROBES, Poll.unknown) | dict.fromkeys(LOCAL, Poll.beside)
        )
        of_region = np.array([*(roles.get(name, Poll.ends) for name in self.archive.regions), Poll.ends], np.int8)
        role = of_region[region]
        is_test = role == Poll.idle
        role[is_test & (what == IS_TEST)] = Poll.failed
        role[is_test & (what == IS_COMPLETION)] = Poll.found
        return role

    def _name_kinds(self, what: np.ndarray, region: np.ndarray, kind: np.ndarray) -> None:
        """Settle what only a region's name says, and count what takes no part."""
        names = self.archive.regions
        sends = (what == IS_SEND) | (what == IS_ISEND)
        for number in np.unique(region).tolist():
            name = names[number] if number >= 0 else ""
            here = region == number
            if name in _SEND_KINDS:
                kind[here & sends] = _SEND_KINDS[name]
            if name in _ENDS:
                kind[here & (what == IS_OTHER)] = _ENDS[name]
            count = int(np.count_nonzero(here & (kind == _K.other)))
            if count:
                (self.unsized if name in _UNSIZED else self.others)[name or "?"] += count

    def _check_complete(self) -> None:
        """Sends and receives must pair up where the archive itself says that communication is not complete."""
        if self.is_complete:
            return
        balance: Counter[tuple[int, int, int, int]] = Counter()
        for rank, columns in enumerate(self.ranks):
            tag = columns.rows.operations[:, TAG]
            sends = np.flatnonzero(np.isin(columns.kind, SENDS))
            receives = np.flatnonzero(np.isin(columns.kind, RECEIVES))
            source = np.where(columns.kind == _K.sendrecv, columns.source, columns.peer)
            for rows, sign, ends in ((sends, 1, columns.peer), (receives, -1, source)):
                keys, counts = np.unique(
                    np.stack([columns.communicator[rows], ends[rows], tag[rows]]), axis=1, return_counts=True
                )
                for (communicator, other, number), count in zip(keys.T.tolist(), counts.tolist(), strict=True):
                    pair = (rank, other) if sign > 0 else (other, rank)
                    balance[(communicator, *pair, number)] += sign * count
        wrong = next((key for key in sorted(balance) if balance[key]), None)
        if wrong is not None:
            _, source_rank, destination, number = wrong
            more = "sends" if balance[wrong] > 0 else "receives"
            raise UserError(
                f"{self.anchor}: communication is not complete, as the archive says (MPI_COMMUNICATION_COMPLETE = "
                f"false): {abs(balance[wrong])} {more} from rank {source_rank} to rank {destination} with tag {number} "
                "have no counterpart; trace the program without filters or pauses"
            )

    def _notes(self) -> list[Note]:
        archive = self.archive
        open_receives = sum(
            int(np.count_nonzero(rank.rows.operations[:, WHAT] == IS_OPEN_RECEIVE)) for rank in self.ranks
        )
        levels = sorted({name for entry in archive.classes
                         for name, up in zip(entry.names, entry.counts_up, strict=True) if not up})  # fmt: skip
        notes: list[Note] = []
        if not self.is_complete:
            text = "the archive says that its communication is not complete; all messages found do pair up"
            notes.append(changes("communication-incomplete", text))
        if self.unsized:
            text = "non-blocking collectives that the archive holds no data of are not replayed"
            notes.append(calls_left_out(text, self.unsized))
        notes += notes_on_calls(self.others)
        if archive.other_events:
            text = f"events that are not replayed: {listed(archive.other_events)}"
            notes.append(changes("events-not-replayed", text, count=archive.other_events.total()))
        if archive.other_locations:
            text = f"locations that are not ranks' main threads are not replayed: {listed(archive.other_locations)}"
            notes.append(changes("threads-left-out", text, count=archive.other_locations.total()))
        unknown, unbalanced, paused = (int(sum(getattr(rank.rows, name) for rank in self.ranks))
                                       for name in ("num_unknown", "num_unbalanced", "is_off"))  # fmt: skip
        unfinished = sum(end == _K.finalize for end in self.tables.ends)
        spread = sum(part.num_spread for part in self.collectives)
        found = (
            informs("metrics-left-out", f"metrics that are levels, not counts, are left out: {', '.join(levels)}",
                    count=len(levels)),
            changes("receives-without-source", f"{open_receives} receive requests never complete: their source is not "
                    "recorded, they take no part", count=open_receives),
            changes("requests-unknown", f"{unknown} completed requests were opened by no recorded event",
                    count=unknown),
            informs("regions-unbalanced", f"{unbalanced} regions are left that are not the innermost: those within are "
                    "taken to end there", count=unbalanced),
            changes("recording-stopped", f"{paused} ranks were not measured all the time: what passed then is left out",
                    count=paused, errs=Errs.short),
            changes("no-finalize", f"{unfinished} ranks have no MPI_Finalize: one is added", count=unfinished),
            changes("sizes-spread", f"{spread} calls of MPI_Alltoallv or MPI_Alltoallw record their sums only: spread "
                    "evenly over the members", count=spread),
        )  # fmt: skip
        return notes + [note for note in found if note.count]
