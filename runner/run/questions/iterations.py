"""What the iterations of a trace's main loop hold, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.task_tables import ITERATIONS_SCHEMA, EventKind


@dataclass(frozen=True)
class IterationFigures:
    """``annotated``: marked in the source, else found by their period. ``count_of_rank`` int64[ranks]. Of each
    iteration float64[]: ``operations`` and ``compute_s``, means over the ranks that have it. All iterations hold
    ``operations_share`` of the operations and ``compute_share`` of the compute time."""

    annotated: bool
    count_of_rank: np.ndarray
    operations: np.ndarray
    compute_s: np.ndarray
    operations_share: float
    compute_share: float


def iteration_figures(workload: Workload, table: pa.Table) -> IterationFigures | None:
    """None where there are no iterations.

    ``table``: as ``models.workload.iterations.find_iterations`` returns it. O(operations + phases + events).
    """
    if not table.num_rows:
        return None
    rank, number, first, end, first_event, end_event = (
        to_numpy(table.column(name)).astype(np.int64) for name in ITERATIONS_SCHEMA.names[:6]
    )
    time = np.append(0, np.cumsum(_compute_ps(workload)))
    compute = _until_ps(workload, time, rank, end, end_event) - _until_ps(workload, time, rank, first, first_event)
    ranks = np.maximum(np.bincount(number), 1)
    return IterationFigures(
        annotated=bool(table.column("annotated")[0].as_py()),
        count_of_rank=np.bincount(rank, minlength=workload.num_ranks),
        operations=np.bincount(number, end - first) / ranks,
        compute_s=np.bincount(number, compute) / ranks * 1e-12,
        operations_share=int((end - first).sum()) / max(1, workload.num_operations),
        compute_share=float(compute.sum()) / max(1, int(time[-1])),
    )


def _until_ps(
    workload: Workload, time: np.ndarray, rank: np.ndarray, operation: np.ndarray, event: np.ndarray
) -> np.ndarray:
    """int64[]: compute of all ranks before places: a mark that is an event, or what leads to an operation.

    ``time`` int64[operations + 1]: before the compute of each operation.
    """
    kind, before, owner = (workload.column("events", name) for name in ("kind", "operation_id", "rank"))
    spent = np.append(0, np.cumsum(workload.column("events", "cpu_ps")))
    row = np.searchsorted(owner, rank) + event
    is_mark = np.append(kind == EventKind.iteration, False)[row] & (row < np.searchsorted(owner, rank, "right"))
    span = int(max(before.max(initial=0), operation.max(initial=0))) + 1
    of_operation = np.searchsorted(owner.astype(np.int64) * span + before, rank * span + operation)
    row = np.maximum(row + is_mark, of_operation)  # an event's time precedes it
    found: np.ndarray = time[workload.rank_offsets[rank] + operation] + spent[row] - spent[of_operation]
    return found


def _compute_ps(workload: Workload) -> np.ndarray:
    """int64 per operation: compute that precedes it."""
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    compute = np.zeros(workload.num_operations, np.int64)
    is_compute = workload.column("phases", "kind") == PhaseKind.compute
    np.add.at(compute, rows[is_compute], workload.column("phases", "duration_ps")[is_compute])
    return compute
