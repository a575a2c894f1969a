"""Sizes of collectives from the totals that Score-P records (see readers/otf2/__init__.py for what they mean).

With n members, rank r: a bcast's root sends n blocks; a reduce's and an allreduce's rank sends (allreduce: n times) its
data; a scan's sends n - r times, an exscan's n - 1 - r times; an allgather's sends its block n times; an alltoall's n
blocks; each rank of a reduce_scatter receives its part n times. With MPI_IN_PLACE the own share is left out: where a
total is no multiple of n, one of n - 1 is taken. Sizes of the v-collectives follow from the members' own totals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.otf2.events import COLLECTIVE_NAMES
from manyscale.runner.readers.otf2.operations import (
    IS_COLLECTIVE,
    IS_ICOLLECTIVE,
    OPERATION,
    PEER,
    RECEIVED,
    SENT,
    WHAT,
)

_K = OperationKind
_KINDS: Final = {
    "BARRIER": _K.barrier, "BCAST": _K.bcast, "GATHER": _K.gather, "GATHERV": _K.gatherv, "SCATTER": _K.scatter,
    "SCATTERV": _K.scatterv, "ALLGATHER": _K.allgather, "ALLGATHERV": _K.allgatherv, "ALLTOALL": _K.alltoall,
    "ALLTOALLV": _K.alltoallv, "ALLTOALLW": _K.alltoallv, "ALLREDUCE": _K.allreduce, "REDUCE": _K.reduce,
    "REDUCE_SCATTER": _K.reduce_scatter, "REDUCE_SCATTER_BLOCK": _K.reduce_scatter, "SCAN": _K.scan,
    "EXSCAN": _K.exscan,
}  # fmt: skip
_NUMBER: Final = {name: number for number, name in enumerate(COLLECTIVE_NAMES)}
_TO_NONBLOCKING: Final = _K.ibarrier - _K.barrier
_VECTOR: Final = ("GATHERV", "SCATTERV", "ALLGATHERV", "ALLTOALLV", "ALLTOALLW", "REDUCE_SCATTER",
                  "REDUCE_SCATTER_BLOCK")  # fmt: skip


@dataclass
class RankSizes:
    """Of one rank's operations: bytes ``sent`` and ``received`` (0 but for collectives), and the lists of counts as
    (offsets, values). ``num_spread``: alltoallv calls whose sizes had to be spread."""

    sent: np.ndarray
    received: np.ndarray
    send_counts: tuple[np.ndarray, np.ndarray]
    receive_counts: tuple[np.ndarray, np.ndarray]
    num_spread: int = 0
    _lists: tuple[dict[int, np.ndarray], dict[int, np.ndarray]] = field(default_factory=lambda: ({}, {}))


def kinds(operation: np.ndarray, what: np.ndarray) -> np.ndarray:
    """Kinds of collectives from the archive's operations, -1 for one that is none of MPI's."""
    table = np.array([*(_KINDS[name] for name in COLLECTIVE_NAMES), -1], np.int8)
    kind = table[operation]
    kind[(kind >= 0) & (what == IS_ICOLLECTIVE)] += _TO_NONBLOCKING
    return kind


def sizes(tables: list[np.ndarray], communicators: list[np.ndarray], members: list[np.ndarray]) -> list[RankSizes]:
    """Sizes of all collectives of all ranks. O(collectives) in NumPy; vector collectives one by one."""
    found = []
    for rank, (table, communicator) in enumerate(zip(tables, communicators, strict=True)):
        sent, received = _simple(rank, table, communicator, members)
        none = (np.zeros(len(table) + 1, np.int64), np.empty(0, np.int64))
        found.append(RankSizes(sent, received, none, none))
    _vectors(tables, communicators, members, found)
    for sizes_of, table in zip(found, tables, strict=True):
        sizes_of.send_counts, sizes_of.receive_counts = (_ragged(lists, len(table)) for lists in sizes_of._lists)
    return found


def _is_collective(table: np.ndarray) -> np.ndarray:
    return (table[:, WHAT] == IS_COLLECTIVE) | (table[:, WHAT] == IS_ICOLLECTIVE)


def _share(total: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """One of ``parts`` equal parts; of ``parts - 1`` where that alone goes without a rest (MPI_IN_PLACE)."""
    parts = np.maximum(parts, 1)
    fewer = np.maximum(parts - 1, 1)
    in_place = (total % parts != 0) & (total % fewer == 0)
    return total // np.where(in_place, fewer, parts)


def _simple(
    rank: int, table: np.ndarray, communicator: np.ndarray, members: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the collectives with one size."""
    count = np.array([len(who) for who in members])[communicator]
    place = np.array([int(np.argmax(who == rank)) if rank in who else 0 for who in members])[communicator]
    sent, received = table[:, SENT], table[:, RECEIVED]
    operation = np.where(_is_collective(table), table[:, OPERATION], -1)
    is_root = table[:, PEER] == place

    def of(*names: str) -> np.ndarray:
        return np.isin(operation, [_NUMBER[name] for name in names])

    size = np.select(
        [
            of("BCAST"),
            of("REDUCE", "GATHER"),
            of("SCATTER"),
            of("ALLREDUCE", "ALLTOALL"),
            of("ALLGATHER"),
            of("SCAN"),
            of("EXSCAN"),
        ],
        [
            np.where(received > 0, received, _share(sent, count)),
            np.where(is_root & (sent == 0), _share(received, count), sent),
            np.where(is_root & (received == 0), _share(sent, count), received),
            np.where(sent > 0, _share(sent, count), _share(received, count)),
            np.where(received > 0, _share(received, count), _share(sent, count)),
            sent // np.maximum(1, count - place),
            np.where(place > 0, received // np.maximum(1, place), sent // np.maximum(1, count - 1)),
        ],
        0,
    )
    return size, size.copy()


def _vectors(
    tables: list[np.ndarray], communicators: list[np.ndarray], members: list[np.ndarray], found: list[RankSizes]
) -> None:
    """Lists of the v-collectives: each member's size is that which it recorded itself."""
    vector = [_NUMBER[name] for name in _VECTOR]
    rows_of = [_is_collective(table) & np.isin(table[:, OPERATION], vector) for table in tables]
    used = np.unique(
        np.concatenate([np.empty(0, np.int64), *(c[r] for c, r in zip(communicators, rows_of, strict=True))])
    )
    for number in used.tolist():
        who = members[number]
        rows = [np.flatnonzero(rows_of[rank] & (communicators[rank] == number)) for rank in who]
        for call in zip(*rows, strict=False):  # calls without a counterpart are refused by the replay
            totals = np.array([tables[rank][row, [SENT, RECEIVED]] for rank, row in zip(who, call, strict=True)])
            name = COLLECTIVE_NAMES[int(tables[who[0]][call[0], OPERATION])]
            _one_vector(name, who, call, totals, found)


def _one_vector(name: str, who: np.ndarray, call: tuple[int, ...], totals: np.ndarray, found: list[RankSizes]) -> None:
    sent, received = totals[:, 0], totals[:, 1]
    count = np.full(len(who), len(who))
    own = {
        "GATHERV": sent,
        "SCATTERV": received,
        "ALLGATHERV": _share(sent, count),
        "REDUCE_SCATTER": _share(received, count),
        "REDUCE_SCATTER_BLOCK": _share(received, count),
    }.get(name)
    for place, (rank, row) in enumerate(zip(who.tolist(), call, strict=True)):
        sends, receives = found[rank]._lists
        if own is None:
            for lists, total in ((sends, sent[place]), (receives, received[place])):
                lists[row] = np.full(len(who), total // len(who)) + (np.arange(len(who)) < total % len(who))
            found[rank].num_spread += 1
        elif name == "SCATTERV":
            sends[row] = own
            found[rank].received[row] = own[place]
        else:
            receives[row] = own
            found[rank].sent[row] = 1 if name.startswith("REDUCE") else own[place]


def _ragged(lists: dict[int, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.zeros(count, np.int64)
    for row, values in lists.items():
        lengths[row] = len(values)
    ordered = [lists[row] for row in sorted(lists)]
    return np.concatenate(([0], np.cumsum(lengths))), np.concatenate([np.empty(0, np.int64), *ordered])
