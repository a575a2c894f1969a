"""What a model of a GPU says of launches, and how the result of a work unit holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.roofline.operations import RESOURCES
from manyscale.models.gpu.roofline.waits import KINDS
from manyscale.runner.predict.stored_arrays import restored, stored
from manyscale.runner.predict.units import Arrays

NOT_TOLD: Final = -1


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


def _no_work() -> np.ndarray:
    return np.zeros(len(RESOURCES))


def _no_rows() -> np.ndarray:
    return np.zeros((0, len(KINDS)))


@dataclass(frozen=True)
class LaunchResult:
    """One launch, without its launch latency.

    ``cycles``; ``warp_instructions`` of the launch, of which ``simulated_instructions`` were simulated.
    ``stack`` float64[causes]: cycles by cause; they sum to ``cycles``. ``occupancy``: mean share of an SM's warps that
    are resident. ``half_width``: relative, of the 95 % interval of ``cycles``; 0 where nothing was sampled.
    Of blocks int64[n]: ``block`` their numbers, ``block_sm``, ``block_start`` and ``block_end`` in cycles from the
    launch's first (-1 of blocks that were not simulated), ``block_warp_instructions``, ``block_thread_instructions``,
    ``block_requests`` to global and local memory, ``block_region`` (TBPoint's homogeneous region, -1 in none).
    ``dram_reads`` and ``dram_writes``: sectors of L2 (NOT_TOLD: the model does not say). ``work`` and ``work_cycles``
    float64[RESOURCES]: as ``models.gpu.roofline.operations.Work`` has them. ``row_weights``: as
    ``models.gpu.roofline.waits`` has them, of a launch whose lines of source are known, else without rows.
    ``ipc_instructions`` int64[bins]: warp instructions issued in each of ``bin_cycles`` cycles.
    """

    launch_id: int
    cycles: int
    warp_instructions: int
    simulated_instructions: int
    causes: tuple[str, ...]
    stack: np.ndarray
    l1_accesses: int = 0
    l1_misses: int = 0
    l2_accesses: int = 0
    l2_misses: int = 0
    dram_reads: int = NOT_TOLD
    dram_writes: int = NOT_TOLD
    occupancy: float = 0.0
    half_width: float = 0.0
    block: np.ndarray = field(default_factory=_none)
    block_sm: np.ndarray = field(default_factory=_none)
    block_start: np.ndarray = field(default_factory=_none)
    block_end: np.ndarray = field(default_factory=_none)
    block_warp_instructions: np.ndarray = field(default_factory=_none)
    block_thread_instructions: np.ndarray = field(default_factory=_none)
    block_requests: np.ndarray = field(default_factory=_none)
    block_region: np.ndarray = field(default_factory=_none)
    bin_cycles: int = 1
    ipc_instructions: np.ndarray = field(default_factory=_none)
    work: np.ndarray = field(default_factory=_no_work)
    work_cycles: np.ndarray = field(default_factory=_no_work)
    row_weights: np.ndarray = field(default_factory=_no_rows)

    @property
    def tells_dram(self) -> bool:
        return self.dram_reads != NOT_TOLD


BLOCK_COLUMNS: Final = tuple(each.name for each in fields(LaunchResult) if each.name.startswith("block"))
_SCALARS: Final = tuple(
    each.name
    for each in fields(LaunchResult)
    if each.name not in (*BLOCK_COLUMNS, "causes", "stack", "ipc_instructions", "work", "work_cycles", "row_weights")
)
_REAL: Final = ("occupancy", "half_width")


def to_arrays(results: Sequence[LaunchResult]) -> Arrays:
    """The result of a work unit on launches, in their order; all have the same causes."""
    causes = results[0].causes
    if any(each.causes != causes for each in results):
        raise ValueError("launches of one unit have different causes of stalls")
    arrays: dict[str, np.ndarray] = {
        name: np.array([getattr(each, name) for each in results], np.float64 if name in _REAL else np.int64)
        for name in _SCALARS
    }
    arrays["cause"] = np.array(causes)
    for name in ("stack", "work", "work_cycles"):
        arrays[name] = np.array([getattr(each, name) for each in results], np.float64)
    for name in (*BLOCK_COLUMNS, "ipc_instructions"):
        arrays[name] = np.concatenate([np.asarray(getattr(each, name), np.int64) for each in results])
    arrays["row_weights"] = np.concatenate([each.row_weights for each in results])
    arrays["num_rows"] = np.array([len(each.row_weights) for each in results], np.int64)
    arrays["num_blocks"] = np.array([len(each.block) for each in results], np.int64)
    arrays["num_bins"] = np.array([len(each.ipc_instructions) for each in results], np.int64)
    return stored(arrays)


def from_arrays(arrays: Arrays) -> list[LaunchResult]:
    """What ``to_arrays`` was given."""
    found = restored(arrays)
    blocks = np.concatenate(([0], np.cumsum(found["num_blocks"])))
    bins = np.concatenate(([0], np.cumsum(found["num_bins"])))
    rows = np.concatenate(([0], np.cumsum(found["num_rows"])))
    causes = tuple(str(each) for each in found["cause"])
    results = []
    for row in range(len(found["launch_id"])):
        scalars = {name: found[name][row].item() for name in _SCALARS}
        part = slice(int(blocks[row]), int(blocks[row + 1]))
        more: dict[str, Any] = {name: found[name][part] for name in BLOCK_COLUMNS}
        more["ipc_instructions"] = found["ipc_instructions"][int(bins[row]) : int(bins[row + 1])]
        more["row_weights"] = found["row_weights"][int(rows[row]) : int(rows[row + 1])]
        more |= {name: found[name][row] for name in ("stack", "work", "work_cycles")}
        results.append(LaunchResult(**scalars, **more, causes=causes))
    return results
