"""What collectives that streams take part in, and messages between GPUs, ask of the links of a machine whose NCCL is
described (network.nccl): one Demand for all that are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from manyscale.models.network.nccl.demand import Demand, demand
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.workload import OperationKind


@dataclass(frozen=True)
class Demands:
    """``found``: those that differ; ``which`` int32[n]: that of each collective or message, -1 for one without."""

    found: tuple[Demand, ...]
    which: np.ndarray

    @property
    def time_ps(self) -> np.ndarray:
        """int64[n]: what each takes alone, -1 of one without."""
        return np.array([*(each.time_ps for each in self.found), -1], np.int64)[self.which]

    def joined(self, other: Demands) -> Demands:
        """Of both, one behind the other."""
        moved = np.where(other.which >= 0, other.which + len(self.found), -1)
        return Demands((*self.found, *other.found), np.append(self.which, moved).astype(np.int32))


def of_collectives(
    kind: np.ndarray,
    size: np.ndarray,
    group: np.ndarray,
    members: Sequence[np.ndarray],
    fabric: Fabric,
    counts: Mapping[int, np.ndarray],
) -> Demands:
    """``kind``, ``size`` and ``group`` [n]; ``members``: GPUs of each group in its order; ``counts``: bytes from each
    member to each, of uneven all-to-alls by their number. O(n log n + members of groups that differ). Raises ValueError
    for groups that the machine has no place for."""
    uneven = np.zeros(len(kind), np.int64)
    known: dict[bytes, int] = {}
    for number, table in counts.items():
        uneven[number] = known.setdefault(table.tobytes(), len(known) + 1)
    _, first, which = np.unique(
        np.stack((kind.astype(np.int64), size, group.astype(np.int64), uneven)), axis=1, return_index=True,
        return_inverse=True,
    )  # fmt: skip
    found = [
        demand(
            OperationKind(int(kind[number])), int(size[number]), members[int(group[number])], fabric,
            counts=counts.get(number),
        )
        for number in first.tolist()
    ]  # fmt: skip
    return Demands(tuple(found), np.asarray(which).ravel().astype(np.int32))


def of_messages(
    is_between: np.ndarray, source: np.ndarray, destination: np.ndarray, size: np.ndarray, fabric: Fabric
) -> Demands:
    """Of messages where ``is_between`` bool[n], from GPU ``source`` to GPU ``destination`` (int64[n]), two of the
    machine's. O(n log n)."""
    which = np.full(len(size), -1, np.int32)
    mine = np.flatnonzero(is_between)
    if not len(mine):
        return Demands((), which)
    asked = np.stack((source[mine], destination[mine], size[mine].astype(np.int64)))
    key, inverse = np.unique(asked, axis=1, return_inverse=True)
    which[mine] = np.asarray(inverse).ravel()
    found = [demand(OperationKind.isend, each[2], np.array(each[:2]), fabric) for each in key.T.tolist()]
    return Demands(tuple(found), which)
