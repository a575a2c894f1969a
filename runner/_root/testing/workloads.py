"""Small workloads whose predictions are known in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    ANY_SOURCE,
    ANY_TAG,
    COMMUNICATORS_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    PhaseKind,
    Workload,
)

US: Final = 1_000_000  # ps

Operation = tuple[int, str, dict[str, Any]]  # compute before it in ps, kind, columns that are not the usual ones


def workload(name: str, ranks: Sequence[Sequence[Operation]], communicators: Sequence[Sequence[int]] = ()) -> Workload:
    """A workload of operations, each with a compute phase before it. ``communicators``: those after the world's."""
    usual = {
        "peer": NO_RANK, "source": NO_RANK, "tag": 0, "bytes": 0, "receive_bytes": 0, "communicator_id": 0,
        "request": NO_REQUEST, "completes": None, "send_counts": None, "receive_counts": None,
    }  # fmt: skip
    operations, phases = [], []
    for rank, mine in enumerate(ranks):
        for number, (compute_ps, kind, columns) in enumerate(mine):
            operations.append({"rank": rank, "kind": kind, **usual, **columns})
            phases.append({
                "rank": rank, "operation_id": number, "kind": int(PhaseKind.compute), "region_id": -1,
                "duration_ps": compute_ps,
            })  # fmt: skip
    members = [{"members": list(each)} for each in (range(len(ranks)), *communicators)]
    tables = {
        "operations": pa.Table.from_pylist(operations, OPERATIONS_SCHEMA),
        "phases": pa.Table.from_pylist(phases, PHASES_SCHEMA),
        "regions": pa.Table.from_pylist([], REGIONS_SCHEMA),
        "communicators": pa.Table.from_pylist(members, COMMUNICATORS_SCHEMA),
    }
    return Workload(name, len(ranks), tables)


def compute_of(workload: Workload) -> np.ndarray:
    """int64[operations]: compute before each, as traced."""
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    compute = np.zeros(workload.num_operations, np.int64)
    np.add.at(compute, rows, workload.column("phases", "duration_ps"))
    return compute


@dataclass(frozen=True)
class Known:
    """A workload, and how long it takes (ps) if messages take no time."""

    workload: Workload
    compute_only_ps: int


def known() -> list[Known]:
    """Blocking and non-blocking messages, wildcards, collectives of the world and of a part of it."""
    return [_ping_pong(), _halo(), _wildcards(), _collectives()]


def _ping_pong() -> Known:
    """Messages of 8 B to 1 MiB there and back; ranks compute in turn: 1 us before each send."""
    ranks: list[list[Operation]] = [[(0, "init", {})], [(0, "init", {})]]
    sizes = (8, 4096, 1 << 20)
    for size in sizes:
        for sender in (0, 1):
            ranks[sender].append((US, "send", {"peer": 1 - sender, "bytes": size}))
            ranks[1 - sender].append((0, "recv", {"peer": sender, "receive_bytes": size}))
    for mine in ranks:
        mine.append((0, "finalize", {}))
    return Known(workload("ping-pong", ranks), 2 * len(sizes) * US)


def _halo() -> Known:
    """Steps on a ring of 4 ranks: compute, exchange with both neighbours, barrier. Another rank is the slowest in each
    step: it takes 9 us, the others 1 to 3."""
    count, steps = 4, 6
    ranks: list[list[Operation]] = [[(0, "init", {})] for _ in range(count)]
    for step in range(steps):
        for rank, mine in enumerate(ranks):
            compute = 9 * US if rank == step % count else (1 + (rank + step) % 3) * US
            first = 4 * step
            for at, peer in enumerate(((rank + 1) % count, (rank - 1) % count)):
                receive = {"peer": peer, "tag": 1 - at, "receive_bytes": 20_000, "request": first + at}
                mine.append((compute if at == 0 else 0, "irecv", receive))
            for at, peer in enumerate(((rank + 1) % count, (rank - 1) % count)):
                mine.append((0, "isend", {"peer": peer, "tag": at, "bytes": 20_000, "request": first + 2 + at}))
            mine.append((0, "waitall", {"completes": [first, first + 1, first + 2, first + 3]}))
            mine.append((0, "barrier", {}))
    for mine in ranks:
        mine.append((0, "finalize", {}))
    return Known(workload("halo", ranks), 9 * US * steps)


def _wildcards() -> Known:
    """A master that takes one message from each of 3 workers, in the order in which they come, and then one more."""
    workers = 3
    ranks: list[list[Operation]] = [[(0, "init", {})] for _ in range(workers + 1)]
    for _ in range(2 * workers):
        ranks[0].append((0, "recv", {"peer": ANY_SOURCE, "tag": ANY_TAG, "receive_bytes": 64}))
    for worker in range(1, workers + 1):
        ranks[worker] += [(worker * US, "send", {"peer": 0, "tag": turn, "bytes": 64}) for turn in range(2)]
    for mine in ranks:
        mine.append((0, "finalize", {}))
    return Known(workload("wildcards", ranks), 2 * workers * US)


def _collectives() -> Known:
    """Collectives of 5 ranks, of 3 of them, and one that does not block; before each another rank computes for 4 us."""
    count, part = 5, (0, 2, 4)
    ranks: list[list[Operation]] = [[(0, "init", {})] for _ in range(count)]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("allreduce", {"bytes": 8}),
        ("allgather", {"bytes": 100, "receive_bytes": 100}),
        ("alltoall", {"bytes": 3000, "receive_bytes": 3000}),
        ("alltoallv", {"send_counts": [40] * count, "receive_counts": [40] * count}),
        ("barrier", {}),
    ]
    for number, (kind, columns) in enumerate(kinds):
        for rank, mine in enumerate(ranks):
            mine.append((4 * US if rank == number % count else US, kind, columns))
    for rank in part:
        ranks[rank].append((4 * US if rank == 2 else US, "allreduce", {"bytes": 1 << 16, "communicator_id": 1}))
    for rank, mine in enumerate(ranks):
        mine.append((0, "iallreduce", {"bytes": 8, "request": 0}))
        mine.append((2 * US if rank == 0 else US, "wait", {"completes": [0]}))
        mine.append((0, "finalize", {}))
    return Known(workload("collectives", ranks, [part]), 4 * US * len(kinds) + 4 * US + 2 * US)


def deadlock() -> Workload:
    """Two ranks that wait for each other: both send in a way that waits for the receiver."""
    ranks: list[list[Operation]] = [
        [
            (US, "ssend", {"peer": 1 - rank, "bytes": 8}),
            (0, "recv", {"peer": 1 - rank, "receive_bytes": 8}),
        ]
        for rank in (0, 1)
    ]
    return workload("deadlock", ranks)
