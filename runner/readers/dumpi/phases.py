"""Compute phases of a DUMPI rank: the time from one call's return to the next one's entry; with the increase of
hardware counters over it, and the innermost function of the user's where functions were traced.

That time is by the wall clock, but by the process's CPU clock, where both were recorded, of phases in which the wall
clock went on for more than 5 % and 10 us longer: others had the core then, or the process slept. (With several threads
the CPU clock is the faster one, and the wall clock is right.) ``workload.time`` chooses one of the two.
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
_SLACK, _SLACK_NS = 0.05, 10_000
_COARSE_NS: Final = 1_000_000  # a CPU clock that ticks no more often than this says nothing of a phase
DEEPEST: Final = 4096  # nested functions; those within are taken as part of their caller


@dataclass(frozen=True)
class RankPhases:
    """Per phase: the ``operation`` it precedes, ``duration_ns``, ``region`` (address of a function, 0 for none);
    ``counters`` int64[phases, k], their increase (negative where not recorded). Per call: ``start_ns`` and ``end_ns``
    of the wall clock, of the whole epoch; empty where it was not recorded. ``idle_ns``: wall-clock time of the phases
    that the process did not run, and that is left out."""

    operation: np.ndarray
    duration_ns: np.ndarray
    region: np.ndarray
    counters: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    idle_ns: int


def phases(file: RankFile, first_operation: np.ndarray, clock: str = "auto") -> RankPhases:
    """Phases of a rank; ``first_operation``: the first operation of each call; ``clock``: auto, cpu or wall. Raises
    UserError for a file without times. O(calls)."""
    calls = file.calls
    has_wall, has_cpu = (bool(np.all(calls.mask & bit)) for bit in (_WALL_TIME, _CPU_TIME))
    if not has_wall and not has_cpu:
        row = int(np.argmin(calls.mask & _CPU_TIME != 0))
        raise UserError(
            f"{file.path}: byte {calls.position[row]}: call {row} has no time, so what was computed before it is not "
            "known; trace with 'timestamp cpu,wall' in dumpi.conf"
        )
    times = calls.wall_ns if has_wall else calls.cpu_ns
    gap = _gaps(times)
    idle_ns = 0
    if has_wall and has_cpu and clock != "wall" and not np.all(calls.cpu_ns % _COARSE_NS == 0):
        ran = _gaps(calls.cpu_ns)
        waits = np.ones(len(gap), np.bool_) if clock == "cpu" else gap > np.maximum(ran * (1 + _SLACK), ran + _SLACK_NS)
        idle_ns = int((gap - ran)[waits].sum())
        gap = np.where(waits, ran, gap)
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
        idle_ns=idle_ns,
    )


def _gaps(times: np.ndarray) -> np.ndarray:
    """int64 ns: time before each call since the one before it returned."""
    return np.concatenate((np.zeros(1, np.int64), np.maximum(0, times[1:, 0] - times[:-1, 1])))


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
