"""Collectives of a Paraver trace: communicators, roots and sizes from what Extrae records of each member.

Extrae writes what the member itself sends and receives in all (of alltoall: what it sends to one member), the
communicator's number, and a mark on the root alone. Sizes per member of vector collectives follow from what the others
of the same call say; of alltoallv only totals are known, which are spread evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from manyscale.models.workload import NO_RANK, OperationKind

_K = OperationKind


@dataclass(frozen=True)
class Communicators:
    """``members`` per communicator, ranks from 0; row 0 is the world. ``row_of`` Extrae's number. ``cut`` are the
    numbers of those that list tasks which the application does not have."""

    members: list[np.ndarray]
    row_of: dict[int, int]
    cut: set[int]


def communicators(declared: tuple[tuple[int, np.ndarray], ...], num_ranks: int) -> Communicators:
    """The communicators that a trace declares, without those that have no member."""
    world = np.arange(num_ranks, dtype=np.int32)
    found = Communicators([world], {}, set())
    for number, tasks in declared:
        members = (tasks[tasks <= num_ranks] - 1).astype(np.int32)
        if len(members) < len(tasks):
            found.cut.add(number)
        if np.array_equal(members, world):
            found.row_of[number] = 0
        elif len(members):
            found.row_of[number] = len(found.members)
            found.members.append(members)
    return found


@dataclass
class Collectives:
    """Collectives by row of ``operations`` (ascending), as they are read: ``kind``, ``rank``, ``number`` of the
    communicator, ``send`` and ``receive`` bytes, ``is_root``, ``end``. ``settle`` fills in the rest."""

    row: np.ndarray
    kind: np.ndarray
    rank: np.ndarray
    number: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    is_root: np.ndarray
    end: np.ndarray
    kept: np.ndarray = field(init=False)  # the others lack members that take part
    communicator: np.ndarray = field(init=False)
    peer: np.ndarray = field(init=False)
    bytes: np.ndarray = field(init=False)
    receive_bytes: np.ndarray = field(init=False)
    send_counts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # (rows, counts[rows, members])
    receive_counts: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    undeclared: int = 0  # calls on a communicator that the trace does not declare: taken as the world
    without_root: int = 0  # rooted calls in which no member is marked
    spread: int = 0  # alltoallv calls whose totals were spread

    def settle(self, groups: Communicators) -> None:
        """Find the calls that belong together and give each its sizes. O(collectives + counts)."""
        numbers, inverse = np.unique(self.number, return_inverse=True)
        rows = np.array([groups.row_of.get(int(number), -1) for number in numbers], np.int32)
        self.communicator = rows[inverse] if len(rows) else np.empty(0, np.int32)
        self.undeclared = int(np.count_nonzero(self.communicator < 0))
        self.communicator = np.maximum(self.communicator, 0)
        count = len(self.row)
        self.kept = np.zeros(count, np.bool_)
        self.peer = np.full(count, NO_RANK, np.int32)
        self.bytes = np.zeros(count, np.int64)
        self.receive_bytes = np.zeros(count, np.int64)
        order = np.argsort(self.communicator, kind="stable")
        present, first = np.unique(self.communicator[order], return_index=True)
        for communicator, mine in zip(present.tolist(), np.split(order, first[1:]), strict=False):
            table = self._instances(mine, groups.members[communicator])
            self.kept[table] = True
            if table.size:
                self._sizes(table)

    def _instances(self, mine: np.ndarray, members: np.ndarray) -> np.ndarray:
        """int64[members, instances]: which calls of a communicator belong together. Where a cut trace has more on one
        member than on another, the surplus is at the begin or at the end: as the rest fits better in kind and time."""
        ranks = self.rank[mine]  # ascending
        bounds = zip(np.searchsorted(ranks, members), np.searchsorted(ranks, members, side="right"), strict=True)
        per_member = [mine[first:last] for first, last in bounds]
        least = min(map(len, per_member))
        if all(len(calls) == least for calls in per_member):
            tables = [np.stack(per_member)]
        else:
            tables = [np.stack([calls[:least] for calls in per_member])]
            tables.append(np.stack([calls[len(calls) - least :] for calls in per_member]))
        fitting = [table for table in tables if np.all(self.kind[table] == self.kind[table[0]])]
        if not fitting or not least:
            return np.empty((len(members), 0), np.int64)
        return min(fitting, key=lambda table: float(np.ptp(self.end[table].astype(np.float64), axis=0).sum()))

    def _sizes(self, table: np.ndarray) -> None:
        kinds = self.kind[table[0]]
        for kind in np.unique(kinds).tolist():
            blocking = _K(kind).name.removeprefix("i") if kind >= _K.ibarrier else _K(kind).name
            self._sizes_of(blocking, table[:, kinds == kind])

    def _sizes_of(self, name: str, table: np.ndarray) -> None:
        """Sizes of calls of one kind on one communicator."""
        size = len(table)
        send, receive = self.send[table], self.receive[table]
        self.bytes[table] = send
        if name in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv"):
            root = np.argmax(self.is_root[table], axis=0)
            self.without_root += int(np.count_nonzero(~self.is_root[table].any(axis=0)))
            self.peer[table] = root
            at_root = np.arange(size)[:, None] == root
        if name == "bcast":
            self.bytes[table] = np.maximum(send, receive).max(axis=0)
        elif name in ("reduce", "allreduce", "scan", "exscan"):
            self.bytes[table] = np.where(send > 0, send, receive)
        elif name in ("allgather", "alltoall", "gather"):
            self.receive_bytes[table] = receive // size
        elif name == "scatter":
            self.bytes[table] = np.where(at_root, send // size, 0)
            self.receive_bytes[table] = receive
        elif name == "gatherv":
            self.receive_counts.append((self.row[table[at_root]], send.T[np.nonzero(at_root)[1]]))
        elif name == "allgatherv":
            self._all_counts(self.receive_counts, table, send)
        elif name == "scatterv":
            self.bytes[table] = 0
            self.receive_bytes[table] = receive
            self.send_counts.append((self.row[table[at_root]], receive.T[np.nonzero(at_root)[1]]))
        elif name == "reduce_scatter":
            parts = np.where(receive.any(axis=0), receive, send // size)
            self.bytes[table] = 1
            self._all_counts(self.receive_counts, table, parts)
        elif name == "alltoallv":
            self.bytes[table] = 0
            self.spread += table.size
            for total, side in ((send, self.send_counts), (receive, self.receive_counts)):
                parts = total.ravel()[:, None] // size + (np.arange(size) < (total.ravel() % size)[:, None])
                side.append((self.row[table.ravel()], parts))

    def _all_counts(self, side: list[tuple[np.ndarray, np.ndarray]], table: np.ndarray, parts: np.ndarray) -> None:
        """Every member knows the part of each."""
        side.append((self.row[table.ravel()], np.tile(parts.T, (len(table), 1))))
