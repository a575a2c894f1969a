"""What operations of a group that grows from t to n members send.

A rank goes on doing the work that it did: growing data parallelism makes the batch larger, growing tensor parallelism
the model wider, a longer pipeline the model deeper. Of collectives this means:

- ``allreduce``, ``bcast``, ``reduce``, ``barrier``, scans: the vector is that of the rank's own parameters or
  activations; it stays.
- ``allgather`` and ``reduce_scatter`` (ZeRO, FSDP, sequence parallelism): the whole vector stays, and each member has
  1/n of it in place of 1/t, rounded up. Where their counts are given per member, those of a traced member are divided
  among the new ones that take after it; equal ones of a ``reduce_scatter`` become one size for all.
- ``alltoall``: what a rank sends in all stays; each peer gets t/n of what it got, rounded up.
- ``alltoallv``: what traced rank a sent traced rank b is divided among the ranks that take after b, to the byte; who
  gets the odd bytes turns with the sender, so that what the ranks that take after b receive from one that takes after a
  is the same in all, too, where each traced rank has as many that take after it.
- ``gather`` and ``scatter``: the part of each member stays. Point-to-point messages stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.errors import UserError

_K: Final = OperationKind
_SHARED: Final = tuple(
    map(int, (_K.allgather, _K.iallgather, _K.allgatherv, _K.iallgatherv, _K.alltoall, _K.ialltoall))
)
_GATHERS: Final = tuple(map(int, (_K.allgather, _K.iallgather)))
_TO_ALL: Final = tuple(map(int, (_K.alltoall, _K.ialltoall)))
_SCATTERED: Final = (int(_K.reduce_scatter), int(_K.ireduce_scatter))
_MATRICES: Final = (int(_K.alltoallv), int(_K.ialltoallv))
_WHOLE: Final = (*_SCATTERED, int(_K.allgatherv), int(_K.iallgatherv))
MOST_COUNTS: Final = 2**27  # sizes for each member, of all collectives together: 1 GiB
SIDES: Final = ("send_counts", "receive_counts")


def even_blocks(workload: Workload) -> np.ndarray:
    """int64[operations]: the size of every member's block of a reduce_scatter that names one for each, where all are
    equal; 0 for other operations."""
    found = np.zeros(workload.num_operations, np.int64)
    bounds, values = workload.lists("operations", "receive_counts")
    rows = np.flatnonzero((np.diff(bounds) > 0) & np.isin(workload.column("operations", "kind"), _SCATTERED))
    if len(rows):
        named = np.flatnonzero(np.diff(bounds) > 0)
        least, most = (which.reduceat(values, bounds[named]) for which in (np.minimum, np.maximum))
        at = np.searchsorted(named, rows)
        found[rows] = np.where(least[at] == most[at], least[at], 0)
    return found


def scaled_sizes(
    workload: Workload, before: np.ndarray, after: np.ndarray, blocks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64[operations]: ``bytes`` and ``receive_bytes`` where an operation's group has ``after`` members in place of
    ``before`` (int64[operations]). ``blocks``: what each member gets of a reduce_scatter (``even_blocks``)."""
    kind, sent, received = (workload.column("operations", name) for name in ("kind", "bytes", "receive_bytes"))
    grows = before != after
    received = np.where(grows & (blocks > 0), blocks, received)
    own = grows & np.isin(kind, _SHARED)
    whole = received == sent * before  # of a gather, if its size is that of the result
    part = grows & (np.isin(kind, (*_TO_ALL, *_SCATTERED)) | (np.isin(kind, _GATHERS) & ~whole))
    return np.where(own, _share(sent, before, after), sent), np.where(part, _share(received, before, after), received)


def _share(size: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.asarray(-(-size * before // after))


def sharded(kind: np.ndarray) -> np.ndarray:
    """bool[operations]: those of which each member keeps a part of one result: what is updated there is sharded."""
    return np.isin(kind, _SCATTERED)


@dataclass(frozen=True)
class Grown:
    """The members of a traced communicator, int64[t] ``ranks``, and of each of the new ones that take after it in turn:
    ``position`` int64[n], the traced member behind each, and ``turn`` int64[n], how many before it have the same."""

    ranks: np.ndarray
    position: np.ndarray
    turn: np.ndarray

    @property
    def copies(self) -> np.ndarray:
        """int64[t]: new members for each traced one."""
        return np.bincount(self.position, minlength=len(self.ranks))


def grown(ranks: np.ndarray, places: np.ndarray) -> Grown:
    """``places`` int64[n]: the traced rank at whose place each new member stands."""
    order = np.argsort(ranks, kind="stable")
    position = order[np.searchsorted(ranks[order], places)]
    turn = np.empty(len(places), np.int64)
    by_position = np.argsort(position, kind="stable")
    starts = np.searchsorted(position[by_position], np.arange(len(ranks)))
    turn[by_position] = np.arange(len(places)) - starts[position[by_position]]
    return Grown(ranks, position, turn)


def counts(kind: int, side: str, traced: np.ndarray, of: Grown, member: int) -> np.ndarray:
    """int64[k, n]: sizes for each member of what new member ``member`` calls k times. ``traced`` int64[k, t]: the
    traced ones; ``side``: whether it sends or receives them."""
    value = traced[:, of.position]
    if kind in _WHOLE:
        copies, turn = of.copies[of.position], of.turn
    elif kind in _MATRICES:
        receiver = of.position if side == "send_counts" else of.position[member]
        copies = of.copies[receiver]
        turn = (of.turn + of.turn[member]) % copies
    else:
        return value
    return np.asarray(value * (turn + 1) // copies - value * turn // copies)


def refuse_too_many(entries: int, num_ranks: int) -> None:
    if entries > MOST_COUNTS:
        raise UserError(
            f"--ranks {num_ranks}: its collectives name {entries} sizes for their members; at most {MOST_COUNTS} can "
            "be kept; choose fewer ranks"
        )
