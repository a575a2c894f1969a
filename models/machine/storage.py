"""What MPI calls that read and write files take of a target's storage: latency, and bytes by bandwidth.

An access by a rank alone takes ``latency`` and its bytes by the smaller of both bandwidths. A collective one begins
once all have come (it follows a barrier in the workload) and takes ``latency`` and the longer of what all its bytes
take by ``bandwidth`` and what those of the node with most take by ``node_bandwidth``, at every rank: so ROMIO's two
phases and parallel file systems share a storage (Thakur, Gropp and Lusk, "Data sieving and collective I/O in ROMIO",
Frontiers 1999), without the exchange between ranks. Caches, locks, stripes and other jobs are left out; reading is as
fast as writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field

from manyscale.models.workload import NONBLOCKING_COLLECTIVES, OperationKind, Workload
from manyscale.models.workload.parameters import PsPerByte, Strict, TimePs
from manyscale.models.workload.quantities import MOST_PS


class Storage(Strict):
    """``latency`` of an access, ``bandwidth`` of the storage in all and, if given, of one node's way to it."""

    latency_ps: TimePs = Field(alias="latency")
    """The latency of an access."""
    ps_per_byte: PsPerByte = Field(alias="bandwidth")
    """The bandwidth of the storage in all."""
    node_ps_per_byte: PsPerByte = Field(default=0.0, alias="node_bandwidth")
    """The bandwidth of one node's way to it. By default there is no limit."""


@dataclass(frozen=True)
class Accesses:
    """Per access of a file, by rank and in order: its ``row`` of operations, the ``rank``, its ``bytes`` (read and
    written), and the ``communicator`` of those who make it together (0: the rank alone)."""

    row: np.ndarray
    rank: np.ndarray
    bytes: np.ndarray
    communicator: np.ndarray
    is_open: np.ndarray  # whether it does not block

    @property
    def is_collective(self) -> np.ndarray:
        return self.communicator > 0

    @cached_property
    def call(self) -> np.ndarray:
        """int64: of collective ones, which of the calls on their communicator it is; members call in one order."""
        order = np.lexsort((self.row, self.communicator, self.rank))
        key = np.stack((self.rank[order], self.communicator[order]))
        is_first = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))[: len(order)]
        first = np.flatnonzero(is_first)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
        return place


def accesses(workload: Workload) -> Accesses:
    """The accesses of files of all ranks. O(operations)."""
    kind, rank, peer = (workload.column("operations", name) for name in ("kind", "rank", "peer"))
    row = np.flatnonzero((kind == OperationKind.other) & (peer == rank))
    sent, received, communicator = (
        workload.column("operations", name)[row].astype(np.int64)
        for name in ("bytes", "receive_bytes", "communicator_id")
    )
    is_open = (communicator > 0) & np.isin(kind[row - 1], NONBLOCKING_COLLECTIVES)
    return Accesses(row, rank[row].astype(np.int64), sent + received, communicator, is_open)


def storage_times(workload: Workload, storage: Storage | None, node_of_rank: np.ndarray) -> np.ndarray | None:
    """int64 per operation, ps: what it takes of the storage; None where nothing takes any. ``node_of_rank`` int[ranks].
    O(operations + accesses x log(accesses)). Raises ValueError for one that takes over 53 days."""
    if storage is None:
        return None
    found = accesses(workload)
    if not len(found.row):
        return None
    slower = max(storage.ps_per_byte, storage.node_ps_per_byte)
    times = np.where(found.bytes > 0, storage.latency_ps + found.bytes * slower, 0.0)
    together = np.flatnonzero(found.is_collective)
    calls = np.stack((found.communicator[together], found.call[together]))
    _, call = np.unique(calls, axis=1, return_inverse=True)
    call = call.reshape(-1)
    in_all = np.bincount(call, found.bytes[together])
    num_nodes = int(node_of_rank.max(initial=0)) + 1
    places, place = np.unique(call * num_nodes + node_of_rank[found.rank[together]], return_inverse=True)
    most = np.zeros(len(in_all))
    np.maximum.at(most, places // num_nodes, np.bincount(place, found.bytes[together]))
    taken = storage.latency_ps + np.maximum(in_all * storage.ps_per_byte, most * storage.node_ps_per_byte)
    times[together] = taken[call]
    if times.max() > MOST_PS:
        raise ValueError("storage: a file would be accessed for more than 53 days; mend its latency and bandwidth")
    result = np.zeros(workload.num_operations, np.int64)
    result[found.row] = np.rint(times).astype(np.int64)
    return result
