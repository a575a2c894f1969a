"""What of a trace is followed over the number of ranks: burst durations, message sizes, sizes of collectives, totals.

A *burst class* is told by the kinds of four calls: the operation that the burst follows, the one that it precedes, and
the collectives before and after it. Position within the ranks' common sequence would tell more, but ranks at a boundary
have other sequences than those within, and iterations differ between traces. Followed is the time for each time that
the rank passes from the one call to the other (with no compute between: 0), so that more neighbours alone do not look
like longer bursts. Classes below SMALLEST_SHARE of the template's compute time, and those that a trace lacks, are one.

Messages: mean size of those sent in one neighbour class (the axes along which they go; a distance). Collectives: mean
size of a kind, for each member where each has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import COLLECTIVES, NONBLOCKING_COLLECTIVES, OperationKind, PhaseKind, Workload
from manyscale.runner.run.extrapolation.neighbours import Pattern
from manyscale.runner.run.extrapolation.workload import steps_of

SMALLEST_SHARE: Final = 0.02
COMPUTE: Final = "compute per rank, mean"
PS: Final = 1e-12
OTHERS: Final = -1  # the burst class of what is too small
_EDGE: Final = 63  # kind of the call before the first and after the last
_COUNTED: Final = {
    "alltoallv": "send_counts",
    "scatterv": "send_counts",
    "gatherv": "receive_counts",
    "allgatherv": "receive_counts",
    "reduce_scatter": "receive_counts",
}


@dataclass(frozen=True)
class Followed:
    """A trace's values: unit and value by name; and of its rows which burst class (phases) and which size (sent and
    received, operations) they belong to, as indices into ``names``, -1 for none."""

    bursts: dict[int, tuple[int, int]]  # compute in ps and times passed, by class
    sizes: dict[str, float]
    totals: dict[str, tuple[float, str]]
    burst_class: np.ndarray
    sent_class: np.ndarray
    received_class: np.ndarray
    size_names: tuple[str, ...]


def follow(workload: Workload, pattern: Pattern) -> Followed:
    """The values of one trace. O(operations log operations)."""
    burst_class = _burst_classes(workload)
    compute = workload.column("phases", "kind") == int(PhaseKind.compute)
    duration = np.where(compute, workload.column("phases", "duration_ps"), 0)
    row = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    distinct, of_row = np.unique(burst_class, return_inverse=True)
    spent = np.bincount(of_row[row], weights=duration, minlength=len(distinct))
    passed = np.bincount(of_row, minlength=len(distinct))
    per_rank = np.bincount(workload.column("phases", "rank"), weights=duration, minlength=workload.num_ranks)
    names, sent_class, received_class, sizes = _sizes(workload, pattern)
    sends = workload.send_rows
    sent_bytes = int(workload.column("operations", "bytes")[sends].sum())
    collectives = np.isin(workload.column("operations", "kind"), COLLECTIVES)
    return Followed(
        bursts={int(c): (int(s), int(p)) for c, s, p in zip(distinct, spent, passed, strict=True)},
        sizes=sizes,
        totals={
            COMPUTE: (float(per_rank.mean()) * PS, "s"),
            "compute per rank, most": (float(per_rank.max()) * PS, "s"),
            "messages per rank": (len(sends) / workload.num_ranks, ""),
            "bytes sent per rank": (sent_bytes / workload.num_ranks, "B"),
            "collectives per rank": (int(collectives.sum()) / workload.num_ranks, ""),
        },
        burst_class=burst_class[row],
        sent_class=sent_class,
        received_class=received_class,
        size_names=names,
    )


def burst_name(burst_class: int) -> str:
    """``burst wait to irecv (allreduce to allreduce)``."""
    if burst_class == OTHERS:
        return "burst, all others"
    before, after, previous, kind = ((burst_class >> shift) & 63 for shift in (18, 12, 6, 0))
    return (
        f"burst {_kind(previous, 'start')} to {_kind(kind, 'end')} ({_kind(before, 'start')} to {_kind(after, 'end')})"
    )


def _kind(code: int, edge: str) -> str:
    return edge if code == _EDGE else OperationKind(code).name


def _burst_classes(workload: Workload) -> np.ndarray:
    """int64[operations]: the class of the bursts before each operation."""
    kind = workload.column("operations", "kind").astype(np.int64)
    rank = workload.column("operations", "rank")
    first = workload.rank_offsets[rank]
    last = workload.rank_offsets[rank + 1]
    row = np.arange(len(kind))
    blocking = np.isin(kind, COLLECTIVES) & ~np.isin(kind, NONBLOCKING_COLLECTIVES)
    latest = np.concatenate(([-1], np.maximum.accumulate(np.where(blocking, row, -1))[:-1]))  # before this one
    before = np.where(latest >= first, kind[latest], _EDGE)
    coming = np.minimum.accumulate(np.where(blocking, row, len(row))[::-1])[::-1]  # this one, too
    after = np.where(coming < last, kind[np.minimum(coming, len(row) - 1)], _EDGE)
    previous = np.where(row > first, kind[row - 1], _EDGE)
    return np.asarray(((before * 64 + after) * 64 + previous) * 64 + kind)


def _sizes(workload: Workload, pattern: Pattern) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, dict[str, float]]:
    """Names of sizes, the one of each operation's sent and received bytes, and the mean of each that is not 0."""
    kind, sent = workload.column("operations", "kind"), workload.column("operations", "bytes")
    has_peer, steps, has_source, source_steps = steps_of(workload, pattern)
    names: list[str] = []
    sizes: dict[str, float] = {}
    sent_class, received_class = np.full((2, len(kind)), -1)
    toward = pattern.neighbour_classes(steps)
    of_source = pattern.neighbour_classes(source_steps)
    sends = np.zeros(len(kind), bool)
    sends[workload.send_rows] = True
    for one in np.unique(toward[has_peer]):
        chosen = has_peer & (toward == one)
        _add(f"message size {pattern.class_name(int(one))}", sent[chosen & sends], names, sizes)
        sent_class[chosen] = received_class[chosen & ~has_source] = len(names) - 1
        received_class[has_source & (of_source == one)] = len(names) - 1
    for one in np.unique(kind[np.isin(kind, COLLECTIVES)]):
        name = OperationKind(int(one)).name
        chosen = kind == one
        side = _COUNTED.get(name.removeprefix("i"))
        values = sent[chosen]
        if side is not None:
            offsets, counts = workload.lists("operations", side)
            values = counts[np.repeat(chosen, np.diff(offsets))]
        _add(f"{name} size{' for each rank' if side is not None else ''}", values, names, sizes)
        sent_class[chosen] = received_class[chosen] = len(names) - 1
    return tuple(names), sent_class, received_class, sizes


def _add(name: str, values: np.ndarray, names: list[str], sizes: dict[str, float]) -> None:
    names.append(name)
    total = int(values.sum())
    if total > 0:
        sizes[name] = total / len(values)
