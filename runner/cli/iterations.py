"""``manyscale iterations``: where the iterations of a trace's main loop begin and end."""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa

from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.iterations import find_iterations
from manyscale.models.workload.task_tables import ITERATIONS_SCHEMA, EventKind
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.report.text import duration, percent
from manyscale.runner.run.parquet import write_table
from manyscale.runner.study import WorkloadChoice, traces

MOST_ROWS = 20


def iterations(options: argparse.Namespace) -> int:
    """Print what was found, and write the table with ``-o``. Exit status 0 also where there are none."""
    cache = options.cache or default_cache()
    workload = traces.read_workload(WorkloadChoice(path=options.workload, format=options.format), cache)
    try:
        found = find_iterations(workload, options.min_repeats, options.level)
    except ValueError as error:
        raise UserError(f"--min-repeats, --level: {error}") from None
    print("\n".join(iterations_summary(workload, found)))
    if options.output is not None:
        try:
            write_table(found, options.output)
        except OSError as error:
            raise UserError(
                f"{options.output}: cannot be written ({error.strerror or error}); name another file"
            ) from None
    return 0


def iterations_summary(workload: Workload, table: pa.Table) -> list[str]:
    """Lines to read: how many iterations, what they hold, and the first of them one by one; means over ranks.

    ``table``: as ``sampling.iterations.find_iterations`` returns it. O(operations + phases + events).
    """
    if not table.num_rows:
        return [f"{workload.name}: no iterations; nothing repeats often enough, mark them in the source"]
    rank, number, first, end, first_event, end_event = (
        to_numpy(table.column(name)).astype(np.int64) for name in ITERATIONS_SCHEMA.names[:6]
    )
    count = np.bincount(rank, minlength=workload.num_ranks)
    shown = f"{count.max()}" if np.all(count == count.max()) else f"{count.min()} to {count.max()}"
    how = "marked in the source" if table.column("annotated")[0].as_py() else "found by their period"
    time = np.append(0, np.cumsum(_compute_ps(workload)))
    compute = _until_ps(workload, time, rank, end, end_event) - _until_ps(workload, time, rank, first, first_event)
    part_operations = int((end - first).sum()) / max(1, workload.num_operations)
    part_time = float(compute.sum()) / max(1, int(time[-1]))
    lines = [
        f"{workload.name}: {shown} iterations per rank, {how}; they hold {percent(part_operations)} of the operations "
        f"and {percent(part_time)} of the compute time",
        f"{'iteration':>9}  {'operations':>10}  {'compute':>10}  {'of the mean':>11}",
    ]
    ranks = np.maximum(np.bincount(number), 1)
    operations, mean = np.bincount(number, end - first) / ranks, np.bincount(number, compute) / ranks
    for i in range(min(len(mean), MOST_ROWS)):
        share = mean[i] / mean.mean() if mean.mean() else 1.0
        lines.append(f"{i:>9}  {operations[i]:>10,.1f}  {duration(mean[i] * 1e-12):>10}  {share:>11.3f}")
    if len(mean) > MOST_ROWS:
        rest = mean[MOST_ROWS:]
        lines.append(f"{len(rest)} more, {duration(rest.min() * 1e-12)} to {duration(rest.max() * 1e-12)} of compute")
    return lines


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
