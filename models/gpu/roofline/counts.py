"""What a launch's static instructions come to: how often warps and threads execute them, what they ask of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import launch_program, read_only
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.kernels import njit
from manyscale.models.workload.launch_trace import LaunchTrace


class RowCounts(NamedTuple):
    """int64[rows]: ``executed`` by warps, by ``threads`` that take part, and ``requests`` (sectors; words of shared
    memory's busiest bank)."""

    executed: np.ndarray
    threads: np.ndarray
    requests: np.ndarray


def row_counts(trace: LaunchTrace) -> RowCounts:
    """O(instructions), a nanosecond each."""
    found = RowCounts(*(np.zeros(len(trace.static.pc), np.int64) for _ in RowCounts._fields))
    _count(read_only(trace.instruction), read_only(trace.active), read_only(trace.accesses), *found)
    return found


def static_rows(trace: LaunchTrace, gpu: Gpu) -> np.ndarray:
    """STATIC[rows] of the launch on ``gpu``."""
    none: dict[str, Any] = {
        name: np.zeros(1, np.int64) for name in ("block_warps", "warp_instructions", "warp_accesses")
    }
    none |= {name: getattr(trace, name)[:0] for name in ("instruction", "active", "accesses", "sector", "written")}
    return launch_program(replace(trace, **none), gpu).static


@njit(cache=True, nogil=True)
def _count(instruction, active, accesses, executed, threads, requests):  # type: ignore[no-untyped-def]
    for i in range(instruction.shape[0]):
        row = instruction[i]
        executed[row] += 1
        threads[row] += active[i]
        requests[row] += accesses[i]
