"""Compute phases of a DUMPI rank: the time from one call's return to the next one's entry, by the wall clock (the CPU
clock where no wall clock was recorded); with the increase of hardware counters over it, and the innermost function of
the user's where functions were traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.runner.errors import UserError
from manyscale.runner.readers.dumpi.layouts import FUNCTION_ENTER, FUNCTION_EXIT
from manyscale.runner.readers.dumpi.records import RankFile

_CPU_TIME, _WALL_TIME, _COUNTERS = 4, 8, 128
DEEPEST: Final = 4096  # nested functions; those within are taken as part of their caller


@dataclass(frozen=True)
class RankPhases:
    """Per phase: the ``operation`` it precedes, ``duration_ns``, ``region`` (address of a function, 0 for none);
    ``counters`` int64[phases, k], their increase (negative where not recorded). Per call: ``start_ns`` and ``end_ns``
    of the wall clock, of the whole epoch; empty where it was not recorded."""

    operation: np.ndarray
    duration_ns: np.ndarray
    region: np.ndarray
    counters: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def phases(file: RankFile, first_operation: np.ndarray) -> RankPhases:
    """Phases of a rank; ``first_operation``: the first operation of each call. Raises UserError for a file without
    times. O(calls)."""
    calls = file.calls
    has_wall = bool(np.all(calls.mask & _WALL_TIME))
    if not has_wall and not np.all(calls.mask & _CPU_TIME):
        row = int(np.argmin(calls.mask & _CPU_TIME != 0))
        raise UserError(
            f"{file.path}: byte {calls.position[row]}: call {row} has no time, so what was computed before it is not "
            "known; trace with 'timestamp cpu,wall' in dumpi.conf"
        )
    times = calls.wall_ns if has_wall else calls.cpu_ns
    gap = np.zeros(len(calls), np.int64)
    gap[1:] = np.maximum(0, times[1:, 0] - times[:-1, 1])
    rows = np.flatnonzero(gap > 0)
    region = np.zeros(len(calls), np.int64)
    is_function = (calls.function == FUNCTION_ENTER) | (calls.function == FUNCTION_EXIT)
    if is_function.any():
        address = np.zeros(len(calls), np.int64)
        address[is_function] = calls.values[calls.first_value[:-1][is_function]]
        _innermost(calls.function, address, region)
    increase = np.empty((len(rows), 0), np.int64)
    if calls.counters.shape[1]:
        increase = calls.counters[rows, 0::2] - calls.counters[rows - 1, 1::2]
        recorded = (calls.mask & _COUNTERS) != 0
        increase[~(recorded[rows] & recorded[rows - 1])] = -1
    bias = file.wall_bias_seconds * 10**9
    nothing = np.empty(0, np.int64)
    return RankPhases(
        operation=first_operation[rows],
        duration_ns=gap[rows],
        region=region[rows],
        counters=increase,
        start_ns=bias + times[:, 0] if has_wall else nothing,
        end_ns=bias + times[:, 1] if has_wall else nothing,
    )


@njit(cache=True, nogil=True)
def _innermost(function, address, region):  # type: ignore[no-untyped-def]
    """The function that each call is made from. O(calls)."""
    stack = np.zeros(DEEPEST, np.int64)
    depth = 0
    for i in range(function.shape[0]):
        if depth > 0:
            region[i] = stack[min(depth, DEEPEST) - 1]
        if function[i] == FUNCTION_ENTER:
            if depth < DEEPEST:
                stack[depth] = address[i]
            depth += 1
        elif function[i] == FUNCTION_EXIT and depth > 0:
            depth -= 1
