"""Steps of ranks of two sides, predicted or measured: which are the same, and how far apart.

A step is the same on both sides where rank and number are. Errors are relative to side A: where this one was measured
and B predicted, they are the errors of the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.notes import Note, informs
from manyscale.models.workload.quantities import PS_PER_SECOND

GROUP: Final = "step"  # of rows of a table of differences


@dataclass(frozen=True)
class StepErrors:
    """Of ``count`` steps that both sides have: the mean of |B / A - 1|, the largest with its sign, and whose it is."""

    count: int
    mean: float
    worst: float
    worst_step: str

    @property
    def text(self) -> str:
        return f"B differs from A by {self.mean:.2%} in the mean, and by {self.worst:+.2%} at most ({self.worst_step})"


def measured(workload: Workload) -> pa.Table | None:
    """Steps as they were traced (rank, step, start_ps, end_ps), None where the trace does not tell when they were."""
    table = workload.tables["measured_steps"]
    return table if table.num_rows else None


def compared(a: pa.Table, b: pa.Table) -> tuple[list[dict[str, Any]], list[Note]]:
    """Rows of a table of differences (group, item, a, b, difference, unit), by absolute difference, of steps that both
    have; a note where one has others. O(steps log steps)."""
    keys = [to_numpy(each.column("rank")).astype(np.int64) << 32 | to_numpy(each.column("step")) for each in (a, b)]
    common, *places = np.intersect1d(*keys, return_indices=True)
    one, other = (
        (to_numpy(each.column("end_ps")) - to_numpy(each.column("start_ps")))[at] / PS_PER_SECOND
        for each, at in zip((a, b), places, strict=True)
    )
    notes = []
    if left := len(keys[0]) + len(keys[1]) - 2 * len(common):
        text = f"{left} steps of ranks are of one side alone, {len(common)} of both: those are not compared"
        notes.append(informs("not-compared", text, "", left))
    rows = [
        {"group": GROUP, "item": f"rank {key >> 32}, step {key & 0xFFFFFFFF}", "a": before, "b": after,
         "difference": after - before, "unit": "s"}
        for key, before, after in zip(common.tolist(), one.tolist(), other.tolist(), strict=True)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -abs(row["difference"])), notes


def errors(differences: pa.Table) -> StepErrors | None:
    """Of the steps in a table of differences; None where there are none that take time on side A."""
    is_step = pc.equal(differences.column("group"), GROUP)
    found = differences.filter(pc.and_kleene(is_step, pc.greater(differences.column("a"), 0.0)))
    if not found.num_rows:
        return None
    error = to_numpy(found.column("difference")) / to_numpy(found.column("a"))
    worst = int(np.abs(error).argmax())
    mean = float(np.abs(error).mean())
    return StepErrors(found.num_rows, mean, float(error[worst]), found.column("item")[worst].as_py())
