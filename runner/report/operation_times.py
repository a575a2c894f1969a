"""What the tables of a result say about single operations: when each began and ended, where each message was awaited.

A result's ``ranks`` table has no rows for operations that take no time; their times follow from the rows around them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, RECEIVES, OperationKind, Workload
from manyscale.models.workload.columns import one_chunk, to_numpy
from manyscale.runner.run.results import STATES


def column(table: pa.Table, name: str) -> np.ndarray:
    """A column without nulls as one NumPy array (``state`` as indices into STATES)."""
    chunks = table.column(name)
    if not pa.types.is_dictionary(chunks.type):
        return to_numpy(chunks)
    values = one_chunk(chunks)
    place = np.array([STATES.index(name) for name in values.dictionary.to_pylist()], np.int8)
    return place[to_numpy(values)]


def operation_rows(workload: Workload, ranks: pa.Table) -> np.ndarray:
    """int64 per row of ``ranks``: the row of ``operations`` that it belongs to."""
    return workload.rank_offsets[column(ranks, "rank")] + column(ranks, "operation_id")


def operation_times(workload: Workload, ranks: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """int64 begin and end in ps of every operation (without the compute before it). O(states + operations)."""
    count = workload.num_operations
    row = operation_rows(workload, ranks)
    start, stop = column(ranks, "start_ps"), column(ranks, "end_ps")
    own = column(ranks, "state") != STATES.index("compute")
    # the last row of an operation ends with it; one without rows ends with the operation before it
    end = np.full(count, -1, np.int64)
    end[row] = stop
    latest = np.maximum.accumulate(np.where(end >= 0, np.arange(count), -1))
    first = workload.rank_offsets[workload.column("operations", "rank")]
    end = np.where(latest >= first, end[latest], 0)
    begin = end.copy()
    begin[row[own]] = start[own]
    return begin, end


def receive_rows(workload: Workload) -> np.ndarray:
    """int64 per message: the row of ``operations`` that posts its receive, or -1 where the trace alone cannot tell.

    MPI keeps the messages of one (communicator, source, destination, tag) in order, so the k-th send belongs to the
    k-th receive. That holds unless the destination also receives with a wildcard. O(messages log messages).
    """
    sends = workload.send_rows
    kind, rank, tag, communicator = (
        workload.column("operations", name) for name in ("kind", "rank", "tag", "communicator_id")
    )
    peer = workload.column("operations", "peer")
    receives = np.flatnonzero(np.isin(kind, RECEIVES))
    source = np.where(
        kind[receives] == OperationKind.sendrecv, workload.column("operations", "source")[receives], peer[receives]
    )
    wild = (source == ANY_SOURCE) | (tag[receives] == ANY_TAG)
    open_ranks = np.isin(np.arange(workload.num_ranks), rank[receives[wild]])
    keep_send = ~open_ranks[peer[sends]]
    keep = (source >= 0) & ~open_ranks[rank[receives]]
    receives, source = receives[keep], source[keep]
    chosen = sends[keep_send]
    sent = np.stack([tag[chosen], peer[chosen], rank[chosen], communicator[chosen]])
    received = np.stack([tag[receives], rank[receives], source, communicator[receives]])
    found = np.full(len(sends), -1, np.int64)
    send_order, receive_order = np.lexsort(sent), np.lexsort(received)
    if np.array_equal(sent[:, send_order], received[:, receive_order]):
        found[np.flatnonzero(keep_send)[send_order]] = receives[receive_order]
    return found


def state_at(
    ranks: pa.Table, num_ranks: int, rank: np.ndarray, time_ps: np.ndarray, *, starts_before: bool
) -> np.ndarray:
    """int64 per (rank, time): the last row of ``ranks`` of that rank that starts at or, with ``starts_before``, before
    the time; -1 if there is none. O((states + times) log)."""
    row_rank, start = column(ranks, "rank").astype(np.int64), column(ranks, "start_ps")
    moments, places = np.unique(np.concatenate([start, time_ps]), return_inverse=True)
    # (rank, time) as one integer: places instead of picoseconds keep it far from overflow
    rows = row_rank * len(moments) + places[: len(start)]
    wanted = rank.astype(np.int64) * len(moments) + places[len(start) :]
    found = np.searchsorted(rows, wanted, side="left" if starts_before else "right") - 1
    first = np.searchsorted(row_rank, np.arange(num_ranks))
    return np.where(found >= first[rank], found, -1)
