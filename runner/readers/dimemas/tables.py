"""The tables of a workload from the columns of a Dimemas .dim trace: operations, and regions by user events."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.kernels import njit
from manyscale.models.workload import KIND_NAMES, NO_RANK, OPERATIONS_SCHEMA, OperationKind
from manyscale.models.workload.columns import to_arrow
from manyscale.runner.readers.dimemas.lines import BURST, GPU_BURST
from manyscale.runner.readers.dimemas.operations import Columns

_MPI_EVENTS: Final = (50000000, 50999999)  # Paraver's types of MPI calls and their arguments
_COUNTER_EVENTS: Final = (41999000, 42999999)  # hardware counters: values, not blocks
_DEEPEST: Final = 256  # of nested events, the innermost


def regions(kind: np.ndarray, rank: np.ndarray, events: np.ndarray, fields: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """int32 region per record, -1 for none, and the regions' names, TYPE:VALUE of a user event; ``events`` are the
    records of user events, ``fields`` theirs. O(records x log events + events x depth)."""
    for low, high in (_MPI_EVENTS, _COUNTER_EVENTS):
        keep = (fields[:, 0] < low) | (fields[:, 0] > high)
        events, fields = events[keep], fields[keep]
    if not len(events):
        return np.full(len(kind), -1, np.int32), []
    innermost = np.full(len(events), -1, np.int64)
    _open_events(rank[events], fields[:, 0].copy(), fields[:, 1].copy(), innermost)
    latest = np.searchsorted(events, np.arange(len(kind))) - 1
    same = (latest >= 0) & (rank[events[np.maximum(latest, 0)]] == rank)
    event = np.where(same, innermost[np.maximum(latest, 0)], -1)
    bursts = np.flatnonzero((event >= 0) & ((kind == BURST) | (kind == GPU_BURST)))
    named, inverse = np.unique(fields[event[bursts], :2], axis=0, return_inverse=True)
    region = np.full(len(kind), -1, np.int32)
    region[bursts] = inverse.reshape(-1)
    return region, [f"{one}:{other}" for one, other in named.tolist()]


@njit(cache=True, nogil=True)
def _open_events(rank, kind, value, innermost):  # type: ignore[no-untyped-def]
    """Index of the innermost event that is open after each one, -1 for none. O(events x depth)."""
    stack = np.empty(_DEEPEST, np.int64)
    depth = 0
    for event in range(rank.shape[0]):
        if event == 0 or rank[event] != rank[event - 1]:
            depth = 0
        if value[event] != 0:
            if depth == _DEEPEST:  # forget the outermost
                for k in range(1, depth):
                    stack[k - 1] = stack[k]
                depth -= 1
            stack[depth] = event
            depth += 1
        else:
            place = depth - 1
            while place >= 0 and kind[stack[place]] != kind[event]:
                place -= 1
            if place >= 0:
                for k in range(place + 1, depth):
                    stack[k - 1] = stack[k]
                depth -= 1
        innermost[event] = stack[depth - 1] if depth else -1


def operations(columns: Columns, per_rank: np.ndarray, extra: np.ndarray) -> pa.Table:
    """The table of operations, with an operation ``other`` behind the last of each rank in ``extra``."""
    at = np.repeat(np.cumsum(per_rank), extra)
    count = len(columns.rank) + len(at)

    def padded(values: np.ndarray, fill: int) -> np.ndarray:
        return np.insert(values, at, np.array(fill, values.dtype)) if len(at) else values

    row_of = np.arange(len(columns.rank)) + np.searchsorted(at, np.arange(len(columns.rank)), side="right")
    completes = padded(columns.completes, -1)
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(completes >= 0, dtype=np.int32)))
    rank = np.repeat(np.arange(len(per_rank), dtype=np.int32), per_rank + extra)
    arrays = {
        "rank": to_arrow(rank),
        "kind": pa.DictionaryArray.from_arrays(to_arrow(padded(columns.kind, OperationKind.other)), KIND_NAMES),
        "peer": to_arrow(padded(columns.peer, NO_RANK)),
        "source": to_arrow(np.full(count, NO_RANK, np.int32)),
        "tag": to_arrow(padded(columns.tag, 0)),
        "bytes": to_arrow(padded(columns.bytes, 0)),
        "receive_bytes": to_arrow(padded(columns.receive_bytes, 0)),
        "communicator_id": to_arrow(padded(columns.communicator, 0)),
        "request": to_arrow(padded(columns.request, -1)),
        "completes": pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(completes[completes >= 0])),
        "send_counts": _counts(columns.send_counts, row_of, count),
        "receive_counts": _counts(columns.receive_counts, row_of, count),
    }
    return pa.Table.from_arrays([arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA)


def _counts(lists: dict[int, np.ndarray], row_of: np.ndarray, count: int) -> pa.Array:
    lengths = np.zeros(count, np.int32)
    rows = sorted(lists)
    for row in rows:
        lengths[row_of[row]] = len(lists[row])
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))
    values = np.concatenate([lists[row] for row in rows]).astype(np.int64) if rows else np.empty(0, np.int64)
    return pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(values))


def lists(parts: list[np.ndarray]) -> pa.Array:
    """One list for each part."""
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(np.concatenate(parts)))
