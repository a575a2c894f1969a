"""Where in an application time is spent: by what its ranks call, and by the region of the compute between the calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.workload import OperationKind, Workload


@dataclass(frozen=True)
class Places:
    """``names`` of the places; per operation, int32: the place of the compute before it (the region of its longest
    phase, or "before CALL" where the trace names none) and of the call itself."""

    names: tuple[str, ...]
    compute: np.ndarray
    call: np.ndarray


def places(workload: Workload) -> Places:
    """Places of a workload's operations. O(operations + phases log phases)."""
    kind = workload.column("operations", "kind").astype(np.int32)
    regions = workload.tables["regions"].column("name").to_pylist()
    calls = [known.name for known in OperationKind]
    names = (*calls, *(f"before {name}" for name in calls), *regions)
    compute = kind + len(calls)
    region = workload.column("phases", "region_id")
    named = np.flatnonzero(region >= 0)
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    named = named[np.lexsort((workload.column("phases", "duration_ps")[named], rows[named]))]
    compute[rows[named]] = region[named] + 2 * len(calls)  # the longest comes last and stays
    return Places(names, compute, kind)


def occurrence(rank: np.ndarray, place: np.ndarray) -> np.ndarray:
    """How often each entry's place came before in its rank: 0 for the first; entries of a rank are in order of time.
    O(n log n)."""
    order = np.lexsort((place, rank))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(rank[order]) != 0) | (np.diff(place[order]) != 0)
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    result = np.empty(len(order), np.int64)
    result[order] = np.arange(len(order)) - begin
    return result
