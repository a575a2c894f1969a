"""One instance of an MPI collective on one communicator: everything that its schedule depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCKING_KINDS: Final = (
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "scan",
    "exscan",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "reduce_scatter",
)
KINDS: Final = (*BLOCKING_KINDS, *(f"i{kind}" for kind in BLOCKING_KINDS))

# Where the sizes of a kind with one size per participant (or per pair) come from.
_COUNTED: Final = {
    "gatherv": "receive_counts",
    "allgatherv": "receive_counts",
    "scatterv": "send_counts",
    "alltoallv": "send_counts",
}


@dataclass(frozen=True)
class Choice:
    """An algorithm by name, and for one that sends in pieces (SEGMENTED) their size; 0 is for whole messages."""

    algorithm: str
    segment_bytes: int = 0


@dataclass(frozen=True, eq=False)
class CollectiveCall:
    """A collective over participants 0 to num_participants - 1 (all sizes in bytes).

    send_bytes: the block for each peer of alltoall and scatter, the own contribution to gather and allgather,
    the whole message of bcast, reduce, allreduce, scan and exscan. Sizes are always the sender's, so
    receive_bytes counts only for reduce_scatter without receive_counts (MPI_Reduce_scatter_block).
    send_counts: scatterv (n,), alltoallv (n, n) with row i what participant i sends to each.
    receive_counts: gatherv, allgatherv, reduce_scatter (n,); of alltoallv (n, n) it is not used.
    element_bytes: size of one element; reductions are split between elements only, and SMPI's choice for an
    irregular reduce_scatter depends on the number of elements.
    segment_bytes: size of the pieces in which an algorithm that can sends its messages, 0 for whole ones.
    """

    kind: str
    num_participants: int
    root: int = 0
    send_bytes: int = 0
    receive_bytes: int = 0
    send_counts: NDArray[np.int64] | None = None
    receive_counts: NDArray[np.int64] | None = None
    element_bytes: int = 1
    segment_bytes: int = 0

    def __post_init__(self) -> None:
        n = self.num_participants
        if self.kind not in KINDS:
            raise ValueError(f"unknown collective {self.kind!r}; known: {', '.join(KINDS)}")
        if n < 1:
            raise ValueError(f"{self.kind}: at least one participant is needed, got {n}")
        if not 0 <= self.root < n:
            raise ValueError(f"{self.kind}: root {self.root} is not among {n} participants")
        if self.send_bytes < 0 or self.receive_bytes < 0:
            raise ValueError(f"{self.kind}: negative size ({self.send_bytes}, {self.receive_bytes} bytes)")
        if self.element_bytes < 1:
            raise ValueError(f"{self.kind}: element_bytes is {self.element_bytes}, not positive")
        needed = _COUNTED.get(self.base_kind)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"{self.kind}: {needed} is missing")
        shape = (n, n) if self.base_kind == "alltoallv" else (n,)
        for name in ("send_counts", "receive_counts"):
            counts = getattr(self, name)
            if counts is None:
                continue
            counts = np.asarray(counts, np.int64)
            if name == (needed or "receive_counts") and counts.shape != shape:
                raise ValueError(f"{self.kind}: {name} has shape {counts.shape}, not {shape}")
            if (counts < 0).any():
                raise ValueError(f"{self.kind}: {name} holds a negative size")
            object.__setattr__(self, name, counts)

    @property
    def is_nonblocking(self) -> bool:
        return self.kind not in BLOCKING_KINDS

    @property
    def base_kind(self) -> str:
        """The kind without the "i" of its non-blocking form."""
        return self.kind[1:] if self.is_nonblocking else self.kind

    @cached_property
    def block_bytes(self) -> NDArray[np.int64]:
        """(n,) size of the block that participant i contributes, or is to receive of a rooted source."""
        kind = self.base_kind
        if kind == "scatterv":
            counts = self.send_counts
        elif kind in ("gatherv", "allgatherv", "reduce_scatter"):
            counts = self.receive_counts
        else:
            counts = None
        if counts is not None:
            return counts
        size = self.receive_bytes if kind == "reduce_scatter" else self.send_bytes
        return np.full(self.num_participants, size, np.int64)

    @property
    def pair_bytes(self) -> NDArray[np.int64]:
        """(n, n) size of what participant i (row) sends to participant j in alltoall and alltoallv."""
        if self.base_kind == "alltoallv" and self.send_counts is not None:
            return self.send_counts
        return np.broadcast_to(np.int64(self.send_bytes), (self.num_participants, self.num_participants))

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (
            *(self.kind, self.num_participants, self.root, self.send_bytes, self.receive_bytes),
            *(self.element_bytes, self.segment_bytes),
            *(None if c is None else c.tobytes() for c in (self.send_counts, self.receive_counts)),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectiveCall) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
