"""MPI calls of several threads of a process as one sequence of calls: what MPI_THREAD_MULTIPLE allows, in a format and
a replay in which a rank does one thing after another.

The calls are put in the order in which they began in the traced run. A call that blocks becomes what it starts, where
it began, and a wait for that, where it ended: so no thread's call holds up another's. This order is one in which the
run did happen, so it cannot deadlock; but it stays as it was traced where a faster target might have changed it.

Each thread has a clock of its own, which advances by the CPU time that it takes between two of its calls: so threads
compute at once, as they do where each has a CPU, though the traced machine may have had fewer and they took turns. The
sequence's clock is that of the thread that is furthest. A thread that waited outside MPI (for another one, by a
condition, a join or a barrier of OpenMP that does not spin) goes on when what its process did before is done, and so
does one that begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

UNFINISHED, COMPLETED, NULL_PEER = 1, 256, 32  # flags of a record: trace.h
_NONE: Final = -2
_SHORT_NS: Final = 50_000  # the tracer does not see shorter waits: MS_LAP_NS of trace.h
_BLOCKING_SENDS: Final = {
    "Send": "Isend", "Rsend": "Irsend", "Bsend": "Ibsend", "Ssend": "Issend", "Sendrecv": "Isendrecv",
    "Sendrecv_replace": "Isendrecv_replace",
}  # fmt: skip
_BLOCKING_RECEIVES: Final = {"Recv": "Irecv", "Mrecv": "Imrecv"}
_WAITING: Final = ("Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany", "Testsome")
_COLLECTIVES: Final = (
    "Barrier", "Bcast", "Reduce", "Allreduce", "Scan", "Exscan", "Allgather", "Alltoall", "Gather", "Scatter",
    "Gatherv", "Scatterv", "Allgatherv", "Alltoallv", "Alltoallw", "Reduce_scatter", "Reduce_scatter_block",
    "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw",
)  # fmt: skip


@dataclass(frozen=True)
class Records:
    """``operations``: records of calls; ``lists``: the values of their lists, in their order."""

    operations: np.ndarray
    lists: np.ndarray


def merged(own: Records, others: Records, calls: Sequence[str]) -> Records:
    """The first thread's calls and the ``others``' as one sequence. ``calls``: names of the numbers of calls.

    O(n log n) for n calls.
    """
    operations = np.concatenate((own.operations, others.operations))
    thread = np.concatenate((np.zeros(len(own.operations), np.int64), others.operations["num_events"]))
    starts = np.cumsum(operations["num_lists"], dtype=np.int64) - operations["num_lists"]
    if len(own.operations):
        starts[len(own.operations) :] += len(own.lists) - int(own.operations["num_lists"].sum(dtype=np.int64))
    is_call = (operations["flags"] & UNFINISHED) == 0
    is_call[: len(own.operations)] = True  # one that did not return stays, and is told
    kind = _Kinds(calls)
    call = operations["call"]
    starts_later = is_call & kind.later[call]
    posts = is_call & (kind.posted[call] >= 0) & ((operations["flags"] & UNFINISHED) == 0)
    first = operations[is_call].copy()
    at = np.where(starts_later, operations["end_ns"], operations["start_ns"])[is_call].astype(np.int64)
    chosen = posts[is_call]
    number = int(operations["request"].max(initial=-1)) + 1 + np.arange(int(chosen.sum()))
    first["call"][chosen] = kind.posted[first["call"][chosen]]
    first["request"][chosen] = number
    first["end_ns"][chosen] = first["start_ns"][chosen]
    waits = _waits(operations[posts], kind)
    entries = np.column_stack((number, *_received(operations[posts], kind))).astype(np.int64)
    lists = np.concatenate((own.lists, others.lists, entries.ravel()))
    first_entry = len(own.lists) + len(others.lists) + 4 * np.arange(len(waits))
    every = np.concatenate((first, waits))
    when = np.concatenate((at, waits["end_ns"].astype(np.int64)))
    order = np.lexsort((np.arange(len(every)) >= len(first), when))
    every = every[order]
    every["num_events"] = 0
    every["region"] = -1
    every["cpu_ns"] = _computed(operations, thread, when[order])
    for name in ("process_ns", "longest_ns", "elapsed_ns"):
        every[name] = every["cpu_ns"]
    begin = np.concatenate((starts[is_call], first_entry))[order]
    lengths = every["num_lists"].astype(np.int64)
    places = np.repeat(begin - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    return Records(every, lists[places[places < len(lists)]])


class _Kinds:
    """Per number of a call: the number of what it starts if it blocks (``posted``, -1), and whether it is over when it
    ends, not when it begins (``later``)."""

    def __init__(self, calls: Sequence[str]) -> None:
        number = {name.removeprefix("MPI_"): place for place, name in enumerate(calls)}
        posted = _BLOCKING_SENDS | _BLOCKING_RECEIVES
        posted |= {name: f"I{name[0].lower()}{name[1:]}" for name in _COLLECTIVES}
        self.posted = np.full(len(calls), -1, np.int64)
        self.receives = np.zeros(len(calls), np.bool_)
        self.later = np.zeros(len(calls), np.bool_)
        for name, start in posted.items():
            if name in number and start in number:
                self.posted[number[name]] = number[start]
                self.receives[number[name]] = name in _BLOCKING_RECEIVES
        for name in (*_WAITING, "Probe", "Mprobe", "Init", "Init_thread"):
            if name in number:
                self.later[number[name]] = True
        self.wait = number.get("Wait", 0)


def _waits(posts: np.ndarray, kinds: _Kinds) -> np.ndarray:
    """A wait for each of the calls that were made non-blocking, where it ended."""
    waits = np.zeros(len(posts), posts.dtype)
    waits["call"] = kinds.wait
    waits["flags"] = COMPLETED
    for name in ("peer", "source"):
        waits[name] = _NONE
    waits["communicator"], waits["request"], waits["num_lists"] = -1, -1, 4
    waits["start_ns"] = waits["end_ns"] = posts["end_ns"]
    return waits


def _received(posts: np.ndarray, kinds: _Kinds) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, bytes, tag) of the receives among them, as a wait lists what it completed."""
    receives = kinds.receives[posts["call"]] & ((posts["flags"] & NULL_PEER) == 0)
    return (
        np.where(receives, posts["peer"], _NONE),
        np.where(receives, posts["receive_bytes"], 0),
        np.where(receives, posts["tag"], 0),
    )


def _computed(operations: np.ndarray, thread: np.ndarray, when: np.ndarray) -> np.ndarray:
    """uint64[sequence]: how far the sequence's clock advances before each element, which came at ``when``, ascending.
    A phase counts when its call begins."""
    starts, cpu_ns = operations["start_ns"].astype(np.int64), operations["cpu_ns"].astype(np.int64)
    waited = operations["elapsed_ns"].astype(np.int64) > cpu_ns + np.maximum(cpu_ns // 20, _SHORT_NS)
    order = np.argsort(starts, kind="stable")
    clock, own = 0, dict[int, int]()
    moments, clocks = [np.iinfo(np.int64).min], [0]
    for start, who, cpu, idle in zip(*(each[order].tolist() for each in (starts, thread, cpu_ns, waited)), strict=True):
        begin = own.get(who)
        if begin is None or idle:  # it goes on when all before is done
            begin = max(begin or 0, clocks[bisect_right(moments, start - cpu) - 1])
        own[who] = begin + cpu
        clock = max(clock, own[who])
        moments.append(start)
        clocks.append(clock)
    reached = np.array(clocks)[np.searchsorted(np.array(moments), when, side="right") - 1]
    return np.diff(reached, prepend=0).astype(np.uint64)
