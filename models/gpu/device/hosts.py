"""From what ranks give their GPUs to hosts and their items, streams, and which operations wait for which events."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from manyscale.models.gpu.device import state
from manyscale.models.gpu.device.state import MPI_CALL
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind

NOWHERE: Final = -1
SIGNAL: Final = int(GpuOperationKind.signal_thread)
_G: Final = GpuOperationKind


@dataclass(frozen=True)
class Given:
    """What ranks give their GPUs, and where they wait: int64 columns, sorted by rank and in their order. ``row``: of
    the workload's operations, -1 for none; ``kind``: GpuOperationKind; ``stream``: of the rank; ``launch``: index of a
    LaunchKind, -1 for none; ``bytes``; ``event``: of the rank, 0 for none; ``gpu``, of the machine, and ``peer``, the
    GPU at the other end of a copy (-1: none); ``priority``; ``flags`` (GpuFlag); ``thread`` of the rank."""

    rank: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    stream: np.ndarray
    launch: np.ndarray
    bytes: np.ndarray
    event: np.ndarray
    gpu: np.ndarray
    peer: np.ndarray
    priority: np.ndarray
    flags: np.ndarray
    thread: np.ndarray

    def __len__(self) -> int:
        return len(self.rank)

    def at(self, rows: np.ndarray) -> Given:
        """Some of its rows."""
        return Given(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def streams_of(given: Given, gpu_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """STREAM[], by rank, GPU and number, with a default stream for each rank and GPU; and int64[given], the stream of
    each row."""
    number = np.where((given.flags & GpuFlag.default_stream) != 0, 0, given.stream)
    numbers = distinct(number, np.zeros(1, np.int64))  # that of default streams is among them
    gpus = int(gpu_index.max(initial=0)) + 1
    key = (given.rank.astype(np.int64) * gpus + gpu_index) * len(numbers)
    default = int(np.searchsorted(numbers, 0))
    defaults = distinct(key) + default
    key += np.searchsorted(numbers, number)
    every = distinct(key, defaults)
    # number 0 stands first among the streams of a rank and GPU, whatever the others are
    context, of_number = np.divmod(every, len(numbers))
    every = every[np.lexsort((np.where(of_number == default, -1, of_number), context))]
    place = np.argsort(every, kind="stable")
    stream_of = place[np.searchsorted(every, key, sorter=place)].astype(np.int32)
    context, of_number = np.divmod(every, len(numbers))
    found = np.zeros(len(every), state.STREAM)
    found["rank"], found["gpu"] = np.divmod(context, gpus)
    found["is_default"] = of_number == default
    found["is_blocking"] = 1
    priority = np.zeros(len(every), np.int64)
    if len(given):
        np.minimum.at(priority, stream_of, given.priority)
        off = (given.flags & GpuFlag.non_blocking) != 0
        found["is_blocking"][stream_of[off & (number != 0)]] = 0
    found["priority"] = priority
    begin = np.searchsorted(context, context, "left")
    found["first"], found["end"] = begin, np.searchsorted(context, context, "right")
    found["default"] = begin  # number 0 stands first
    found["tail"] = NOWHERE
    return found, stream_of


def distinct(*parts: np.ndarray) -> np.ndarray:
    """int64[]: the distinct values, ascending; runs of equal ones cost no sorting."""
    every = [np.concatenate((part[:1], part[1:][np.diff(part) != 0])) for part in parts]
    return np.unique(np.concatenate(every).astype(np.int64))


def recorded(given: Given, of_given: np.ndarray) -> np.ndarray:
    """int64[given]: the operation that recorded the event for which a row waits, -1 for none."""
    found = np.full(len(given), NOWHERE, np.int32)
    waits = np.isin(given.kind, (int(_G.wait_event), int(_G.synchronize_event), int(_G.await_thread)))
    records = np.isin(given.kind, (int(_G.record_event), SIGNAL))
    rows = np.flatnonzero(waits | records)
    if not len(rows):
        return found
    order = rows[np.lexsort((rows, given.event[rows], given.rank[rows]))]
    place = np.where(records[order], np.arange(len(order)), -1)
    last = np.maximum.accumulate(place)
    is_same = last >= 0
    at = order[np.maximum(last, 0)]
    is_same &= (given.event[at] == given.event[order]) & (given.rank[at] == given.rank[order])
    mine = is_same & waits[order]
    found[order[mine]] = of_given[at[mine]]
    return found


def hosts_of(
    given: Given,
    of_given: np.ndarray,
    awaited: np.ndarray,
    stream_of: np.ndarray,
    rank_offsets: np.ndarray,
    compute_ps: np.ndarray,
    call_ps: int,
    strand_of_row: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Items of hosts, one for each thread of a rank: what they give, in the order of rows of the workload; what has no
    row stands before all that has. A CUDA call takes ``call_ps`` of its host before it has an effect; NCCL's and MPI's
    take what networks say. Thread 0 makes all MPI calls."""
    num_ranks = len(rank_offsets) - 1
    own = np.ones(int(rank_offsets[-1]), np.bool_)
    own[given.row[given.row >= 0]] = False
    calls = np.flatnonzero(own)
    rank_of_row = np.repeat(np.arange(num_ranks), np.diff(rank_offsets))
    count = len(given)
    threads = int(given.thread.max(initial=0)) + 1
    key = np.concatenate((given.rank, rank_of_row[calls])).astype(np.int64) * threads
    key[:count] += given.thread
    row = np.concatenate((given.row, calls)).astype(np.int32)
    order = np.lexsort((row, key))
    key, row = key[order], row[order]
    every = distinct(key, np.arange(num_ranks) * threads)  # thread 0 of each rank, and others
    own = order < count
    order = order[own]  # what of ``given`` each of these is
    item = np.zeros(len(row), state.ITEM)
    item["kind"], item["operation"], item["awaited"], item["cause"] = MPI_CALL, NOWHERE, 0, NOWHERE
    item["row"] = row
    item["strand"] = row if strand_of_row is None else strand_of_row[row]
    has_row = row >= 0
    item["compute"][has_row] = compute_ps[row[has_row]]
    item["kind"][own] = given.kind[order]
    item["waits"][own] = (given.flags[order] & GpuFlag.waits) != 0
    item["operation"][own] = of_given[order]
    item["awaited"][own] = awaited[order]
    item["stream"][own] = stream_of[order]
    if call_ps:
        item["compute"][own] += np.where(given.kind[order] != _G.communication, call_ps, 0)
    host = np.zeros(len(every), state.HOST)
    host["rank"], host["thread"] = np.divmod(every, threads)
    host["first_item"] = host["item"] = np.searchsorted(key, every, "left")
    host["end_item"] = np.searchsorted(key, every, "right")
    host["end"] = NOWHERE
    return host, item
