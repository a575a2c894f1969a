"""The operation graph: calculations, sends and receives of all ranks with what must precede each.

The form in which the LogGOPS model replays; the words are GOAL's (Hoefler, Siebert, Lumsdaine, "Group Operation
Assembly Language", ICPP 2009). A workload with a table of dependencies is such a graph: one vertex per operation.
Others are lowered to it (network/loggops/strand_graph.py).

An edge is satisfied when its source has *started* (``irequires``) or *ended* (``requires``). A vertex becomes ready
once all its edges are; then a calculation, a send or a receive competes for its rank's CPU. The other kinds need none:

* ``join`` ends at once;
* ``delay`` ends ``duration`` after it became ready;
* ``any`` ends once it is ready and one of its *candidates* has ended that no other ``any`` has taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_REQUEST, OperationKind, Workload, WorkloadError


class Vertex(IntEnum):
    """Kinds of vertices. Of those that become ready at once, LogGOPSim takes the lower kind first."""

    send = 0
    receive = 1
    calculation = 2
    join = 3
    delay = 4
    any = 5


class Edge(IntEnum):
    """When an edge is satisfied; a candidate's end may satisfy an ``any``."""

    start = 0
    end = 1
    candidate = 2


SEND: Final = int(Vertex.send)
RECEIVE: Final = int(Vertex.receive)
CALCULATION: Final = int(Vertex.calculation)
JOIN: Final = int(Vertex.join)
DELAY: Final = int(Vertex.delay)
ANY: Final = int(Vertex.any)
ON_START: Final = int(Edge.start)
ON_END: Final = int(Edge.end)
CANDIDATE: Final = int(Edge.candidate)

_KIND_OF_OPERATION: Final = {
    OperationKind.isend: SEND,
    OperationKind.send: SEND,
    OperationKind.irecv: RECEIVE,
    OperationKind.recv: RECEIVE,
    OperationKind.other: CALCULATION,
    OperationKind.waitall: JOIN,
}


@dataclass(frozen=True)
class OperationGraph:
    """Arrays of a graph; ranks' vertices stand in rank order.

    Per vertex: ``kind`` uint8, ``rank`` int32, ``message`` int32 that it sends (-1: none), ``queue`` int32 where sends
    and receives meet, in which a receive takes the first message from ``source`` with ``tag`` (int32, -1 takes any; of
    a send its own). ``num_required`` int32 counts the edges that must be satisfied. Edges by the vertex they leave:
    those on its start are ``target[first[v] : middle[v]]``, those on its end ``target[middle[v] : first[v + 1]]``; a
    candidate's is stored as -1 - target.
    """

    kind: np.ndarray
    rank: np.ndarray
    message: np.ndarray
    queue: np.ndarray
    source: np.ndarray
    tag: np.ndarray
    num_queues: int
    num_required: np.ndarray
    first: np.ndarray
    middle: np.ndarray
    target: np.ndarray

    def __post_init__(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def num_vertices(self) -> int:
        return len(self.kind)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return sum(value.nbytes for value in self.__dict__.values() if isinstance(value, np.ndarray))


def is_ordered(workload: Workload) -> bool:
    """Whether the order of the rows is an order in which each rank may run: so it is without dependencies; with them,
    if every non-blocking operation opens a request, for waits then stand wherever the dependencies demand them."""
    if not workload.tables["dependencies"].num_rows:
        return True
    kind = workload.column("operations", "kind")
    posts = (kind == OperationKind.isend) | (kind == OperationKind.irecv)
    return bool(np.all(workload.column("operations", "request")[posts] != NO_REQUEST))


def graph_of_dependencies(workload: Workload, completes: tuple[np.ndarray, np.ndarray]) -> OperationGraph:
    """The graph of a workload that has dependencies: vertex i is row i of its operations.

    ``completes``: (offsets, rows) of the operations that each waits for. Where the trace leaves a tie, vertices become
    ready in the order of their rows. Raises WorkloadError for other operations than sends, receives, waits and
    ``other``. O(n log n) for the queues.
    """
    kinds = workload.column("operations", "kind")
    table = np.full(len(OperationKind), 255, np.uint8)
    for operation, vertex in _KIND_OF_OPERATION.items():
        table[operation] = vertex
    kind = table[kinds]
    rank = workload.column("operations", "rank")
    wrong = np.flatnonzero(kind == 255)
    if len(wrong):
        row = int(wrong[0])
        raise WorkloadError(
            f"rank {rank[row]}, operation {row - workload.rank_offsets[rank[row]]} "
            f"({OperationKind(int(kinds[row])).name}) cannot stand in a graph of dependencies; "
            "only isend, irecv, waitall and other can"
        )
    message = np.full(len(kind), -1, np.int32)
    message[workload.send_rows] = np.arange(len(workload.send_rows), dtype=np.int32)
    queue, num_queues = _queues(workload, kind)
    is_receive = kind == RECEIVE
    before, after = _edges(workload)
    on_start = workload.column("dependencies", "on_start")
    offsets, rows = completes
    waits = np.repeat(np.arange(len(kind), dtype=np.int32), np.diff(offsets))
    return OperationGraph(
        kind,
        rank,
        message,
        queue,
        np.where(is_receive, workload.column("operations", "peer"), rank).astype(np.int32),
        workload.column("operations", "tag"),
        num_queues,
        *link(
            len(kind),
            np.concatenate((before, rows.astype(np.int32))),
            np.concatenate((after, waits)),
            np.concatenate((np.where(on_start, ON_START, ON_END), np.full(len(rows), ON_END))).astype(np.uint8),
        ),
    )


def _edges(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Rows (required, dependent) of each dependency. Raises WorkloadError for operations that do not exist."""
    first = workload.rank_offsets
    rank = workload.column("dependencies", "rank")
    ends = []
    for name in ("requires", "operation_id"):
        operation = workload.column("dependencies", name)
        wrong = np.flatnonzero((operation < 0) | (operation >= (first[1:] - first[:-1])[rank]))
        if len(wrong):
            at = int(wrong[0])
            raise WorkloadError(f"rank {rank[at]}: a dependency names operation {operation[at]}, which does not exist")
        ends.append((first[rank] + operation).astype(np.int32))
    return ends[0], ends[1]


def _queues(workload: Workload, kind: np.ndarray) -> tuple[np.ndarray, int]:
    """Queue of each send and receive (-1 for other vertices), and their number.

    One per (communicator, destination, tag, source), but one for all sources where some receive takes any of them, and
    one per (communicator, destination) where some receive takes any tag.
    """
    rows = np.flatnonzero((kind == SEND) | (kind == RECEIVE))
    is_receive = kind[rows] == RECEIVE
    rank = workload.column("operations", "rank")[rows].astype(np.int64)
    peer = workload.column("operations", "peer")[rows].astype(np.int64)
    tag = workload.column("operations", "tag")[rows].astype(np.int64)
    source = np.where(is_receive, peer, rank)
    wrong = np.flatnonzero((peer >= workload.num_ranks) | (peer < np.where(is_receive, ANY_SOURCE, 0)))
    if len(wrong):
        row = int(rows[wrong[0]])
        place = f"rank {rank[wrong[0]]}, operation {row - workload.rank_offsets[rank[wrong[0]]]}"
        raise WorkloadError(f"{place} names rank {peer[wrong[0]]} of {workload.num_ranks}")
    pair = workload.column("operations", "communicator_id")[rows] * workload.num_ranks + np.where(
        is_receive, rank, peer
    )
    number, group = _refine(pair, np.zeros(len(rows), np.int64))
    number, group = _refine(number, _kept(tag, group, is_receive & (tag == ANY_TAG)))
    number, group = _refine(number, _kept(source, group, is_receive & (source == ANY_SOURCE)))
    queue = np.full(len(kind), -1, np.int32)
    queue[rows] = number
    return queue, int(number.max(initial=-1)) + 1


def _refine(number: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dense numbers of the pairs (number, part), twice."""
    _, dense = np.unique(number * (part.max(initial=0) + 2) + part + 1, return_inverse=True)
    return dense, dense


def _kept(part: np.ndarray, group: np.ndarray, is_wild: np.ndarray) -> np.ndarray:
    """``part``, or -1 in groups that a wildcard is in."""
    wild = np.zeros(int(group.max(initial=-1)) + 1, np.bool_)
    wild[group[is_wild]] = True
    return np.where(wild[group], -1, part)


def link(
    num_vertices: int, before: np.ndarray, after: np.ndarray, when: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges as (num_required, first, middle, target), of each vertex in the given order. O(vertices + edges)."""
    is_candidate = when == CANDIDATE
    num_required = np.bincount(after[~is_candidate], minlength=num_vertices).astype(np.int32)
    edge = np.where(is_candidate, -1 - after, after).astype(np.int32, copy=False)
    del is_candidate
    number = np.int32 if max(2 * num_vertices, len(before)) < 2**31 - 1 else np.int64
    group: np.ndarray = 2 * before.astype(number) + (when != ON_START)
    bounds = np.zeros(2 * num_vertices + 1, number)
    np.cumsum(np.bincount(group, minlength=2 * num_vertices), out=bounds[1:], dtype=number)
    target = np.empty(len(before), np.int32)
    first, middle = bounds[0::2].copy(), bounds[1::2].copy()
    _group_edges(group, edge, bounds, target)
    return num_required, first, middle, target


@allocation_free
def _group_edges(group, edge, place, target):  # type: ignore[no-untyped-def]
    """Write each edge to the next free ``place`` of its group. O(edges)."""
    for k in range(group.shape[0]):
        target[place[group[k]]] = edge[k]
        place[group[k]] += 1
