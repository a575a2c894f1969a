"""What each rank sends and receives in its collective operations, as Extrae's wrappers record it.

Source: Extrae 4, src/tracer/wrappers/MPI/mpi_wrapper_coll_c.c (sizes times the members of the communicator on the side
that holds all parts) and src/merger/paraver/mpi_prv_semantics.c (bcast and reduce by side).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import COLLECTIVES, OperationKind, Workload

_BLOCKING: Final = {
    kind: OperationKind[kind.name[1:]] if kind >= OperationKind.ibarrier else kind
    for kind in map(OperationKind, COLLECTIVES)
}


@dataclass(frozen=True)
class CollectiveSizes:
    """Per collective operation, in order: its row in ``operations``, bytes sent and received by the rank, whether the
    rank is the root, and its communicator."""

    row: np.ndarray
    send_bytes: np.ndarray
    receive_bytes: np.ndarray
    is_root: np.ndarray
    communicator_id: np.ndarray


def collective_sizes(workload: Workload) -> CollectiveSizes:
    """Sizes of all collective operations. O(collectives + counts of vector collectives + members of communicators)."""
    kinds = workload.column("operations", "kind")
    row = np.flatnonzero(kinds >= COLLECTIVES.start)
    kind = np.array([_BLOCKING.get(k, k) for k in OperationKind])[kinds[row]]
    rank = workload.column("operations", "rank")[row].astype(np.int64)
    communicator = workload.column("operations", "communicator_id")[row]
    members = _members(workload)
    num_members = members.count[communicator]
    root = members.rank_at(communicator, workload.column("operations", "peer")[row])
    rooted = _one_of(kind, "bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
    is_root = rooted & (root == rank)

    send = workload.column("operations", "bytes")[row].copy()
    receive = workload.column("operations", "receive_bytes")[row].copy()
    symmetric = _one_of(kind, "bcast", "reduce", "allreduce", "scan", "exscan")
    receive[symmetric] = send[symmetric]
    receive[_one_of(kind, "allgather", "alltoall", "gather")] *= num_members[
        _one_of(kind, "allgather", "alltoall", "gather")
    ]
    send[_one_of(kind, "scatter")] *= num_members[_one_of(kind, "scatter")]
    _sum_counts(workload, "send_counts", row, send)
    has_counts = _sum_counts(workload, "receive_counts", row, receive)
    # reduce_scatter: all the parts go in, the rank's own comes out
    scattering = np.flatnonzero(has_counts & _one_of(kind, "reduce_scatter"))
    send[scattering] = receive[scattering]
    offsets, counts = workload.lists("operations", "receive_counts")
    place = members.place_of(communicator[scattering], rank[scattering])
    receive[scattering] = counts[offsets[row[scattering]] + place]

    send[_one_of(kind, "bcast", "scatter", "scatterv") & ~is_root] = 0
    receive[_one_of(kind, "bcast") & is_root] = 0
    receive[_one_of(kind, "reduce", "gather", "gatherv") & ~is_root] = 0
    return CollectiveSizes(row, send, receive, is_root, communicator)


def _one_of(kind: np.ndarray, *names: str) -> np.ndarray:
    return np.isin(kind, [OperationKind[name] for name in names])


def _sum_counts(workload: Workload, name: str, row: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Replace sizes by the sums of the operations' counts; returns where there are any."""
    offsets, counts = workload.lists("operations", name)
    total = np.concatenate([[0], np.cumsum(counts)])
    first, last = offsets[row], offsets[row + 1]
    has = last > first
    sizes[has] = (total[last] - total[first])[has]
    return has


@dataclass(frozen=True)
class _Members:
    offsets: np.ndarray
    members: np.ndarray
    num_ranks: int

    @property
    def count(self) -> np.ndarray:
        return np.diff(self.offsets)

    def rank_at(self, communicator: np.ndarray, place: np.ndarray) -> np.ndarray:
        """World rank at a place of each communicator, -1 where there is none."""
        at = self.offsets[communicator] + place
        known = (place >= 0) & (at < self.offsets[communicator + 1])
        return np.where(known, self.members[np.where(known, at, 0)], -1)

    def place_of(self, communicator: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Place of a world rank that is a member of each communicator."""
        owner = np.repeat(np.arange(len(self.count)), self.count)
        key = owner * self.num_ranks + self.members
        order = np.argsort(key)
        found = order[np.searchsorted(key, communicator.astype(np.int64) * self.num_ranks + rank, sorter=order)]
        return found - self.offsets[communicator]


def _members(workload: Workload) -> _Members:
    offsets, members = workload.lists("communicators", "members")
    return _Members(offsets, members.astype(np.int64), workload.num_ranks)
