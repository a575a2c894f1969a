"""Which instructions of a kernel its cycles are spent on: weights by which a launch's cycles by cause are spread.

The models count cycles by what the schedulers of an SM do or wait for, not for which instruction: that would cost a
look at every warp in every cycle. So cycles of each cause are spread over the instructions that can be it, by how much
of it they do: cycles of issue by how often an instruction is issued (which is exact), and of fetch by the same, of
units by how long it takes its unit, of dependences by its latency, of memory by the sectors that loads ask for, of the
load/store unit by the requests of all accesses, of shared memory by the words that the busiest bank gives, and of
barriers by the barriers.
Nothing is known of when a block has no work left; such cycles stay without an instruction.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.launch_program import BARRIER, MEMORY, NUM_UNITS, REDUCTION, SHARED, STORE
from manyscale.models.gpu.roofline.counts import RowCounts
from manyscale.models.workload.launch_trace import LaunchTrace

KINDS: Final = ("issue", "unit", "dependency", "shared", "memory", "load_store", "barrier")
KIND_OF: Final = {  # of the parts of the models' CPI stacks
    "issue": "issue", "unit": "unit", "dependency": "dependency", "shared": "shared", "l1": "memory", "l2": "memory",
    "dram": "memory", "load_store": "load_store", "barrier": "barrier", "fetch": "issue",
    "BASE": "issue", "ISSUE": "issue", "UNIT": "unit", "DEP": "dependency", "SHARED": "shared", "L1": "memory",
    "L2": "memory", "DRAM": "memory", "MSHR": "memory", "QUEUE": "memory", "BARRIER": "barrier",
}  # fmt: skip


def knows_lines(trace: LaunchTrace) -> bool:
    """Whether the trace tells lines of source."""
    details = trace.static.details
    return details is not None and bool(np.any(details.source_file >= 0))


def row_weights(rows: np.ndarray, counts: RowCounts) -> np.ndarray:
    """float64[rows, KINDS] of static instructions STATIC[rows]."""
    executed, requests = counts.executed.astype(np.float64), counts.requests.astype(np.float64)
    kind, access = rows["kind"], rows["access"]
    in_unit = kind < NUM_UNITS
    loads = (kind == MEMORY) & (access != STORE) & (access != REDUCTION)
    found = np.zeros((len(rows), len(KINDS)))
    for place, (which, amount) in enumerate(
        (
            (np.ones(len(rows), np.bool_), executed),
            (in_unit, executed * rows["interval"]),
            (in_unit, executed * rows["latency"]),
            (kind == SHARED, requests),
            (loads, requests),
            ((kind == MEMORY) | (kind == SHARED), requests),
            (kind == BARRIER, executed),
        )
    ):
        found[:, place] = np.where(which, amount, 0)
    return found


def spread(causes: tuple[str, ...], stack: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64[rows, causes]: the cycles of ``stack`` (float64[causes]) by instruction; those of a cause that no
    instruction can be are left out."""
    found = np.zeros((len(weights), len(causes)))
    for place, cause in enumerate(causes):
        kind = KIND_OF.get(cause)
        own = weights[:, KINDS.index(kind)] if kind is not None else np.zeros(len(weights))
        if own.sum() > 0:
            found[:, place] = stack[place] * own / own.sum()
    return found
