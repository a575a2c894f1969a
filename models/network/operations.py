"""The columns of a workload's operations that the replay program is built from."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind, Workload, WorkloadError


class Operations:
    """Columns as arrays, one entry per operation of all ranks."""

    def __init__(self, workload: Workload) -> None:
        self.num_ranks: Final = workload.num_ranks
        self.kind = workload.column("operations", "kind")
        self.rank = workload.column("operations", "rank")
        self.peer = workload.column("operations", "peer")
        self.source = workload.column("operations", "source")
        self.tag = workload.column("operations", "tag")
        self.communicator = workload.column("operations", "communicator_id")
        self.bytes = workload.column("operations", "bytes")
        self.receive_bytes = workload.column("operations", "receive_bytes")
        self.request = workload.column("operations", "request")
        self.completes = _narrow(*workload.lists("operations", "completes"))
        self.rank_offsets = workload.rank_offsets
        self._workload = workload

    @cached_property
    def counts(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(offsets, values) of the bytes per member of vector collectives, by side."""
        return {side: self._workload.lists("operations", side) for side in ("send_counts", "receive_counts")}

    @cached_property
    def members(self) -> list[np.ndarray]:
        """World ranks of each communicator, int32."""
        bounds, values = self._workload.lists("communicators", "members")
        return [values[first:last].astype(np.int32) for first, last in pairwise(bounds)]

    def place(self, row: int) -> str:
        """Where an operation stands, for messages."""
        rank = int(self.rank[row])
        name = OperationKind(int(self.kind[row])).name
        return f"rank {rank}, operation {int(row - self.rank_offsets[rank])} ({name})"

    def error(self, message: str) -> WorkloadError:
        return WorkloadError(message)


def _narrow(offsets: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with int32 offsets, as Arrow's lists have them."""
    return offsets.astype(np.int32), values
