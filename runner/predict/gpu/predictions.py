"""What a run takes each launch to be: simulated, or like the one that stands for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.gpu.launch_results import LaunchResult, from_arrays
from manyscale.runner.predict.gpu.plan import LaunchPlan
from manyscale.runner.predict.units import Arrays

NORMAL_95: Final = 1.959964  # half-width of a 95 % interval in standard deviations


@dataclass(frozen=True)
class Predictions:
    """Of the launches of a plan, row by row: ``result``, of the launch that stands for it; ``cycles`` int64[n] with the
    launch latency; ``duration_ps`` int64[n]. ``latency_cycles``: of each. Half-widths are those of 95 % intervals of
    what comes without latencies: ``half_width_cycles`` float64[n] of launches whose blocks were sampled, 0 of others;
    ``relative_half_width`` of all launches together (NaN: samples were taken, but nothing tells how far they are
    off)."""

    plan: LaunchPlan
    result: list[LaunchResult]
    cycles: np.ndarray
    duration_ps: np.ndarray
    half_width_cycles: np.ndarray
    relative_half_width: float
    latency_cycles: int


def predictions(launches: Workload, plan: LaunchPlan, gpu: Gpu, results: Iterable[Arrays]) -> Predictions:
    """From the results of units, whatever their order. A launch that is not simulated takes what TBPoint estimates, or,
    where the study names those that are, has the cycles per warp instruction of the one that stands for it. O(launches)
    """
    found = {each.launch_id: each for arrays in results for each in from_arrays(arrays)}
    ids = launches.column("launches", "launch_id")
    size = launches.column("launches", "warp_instructions")[plan.row]
    result = [found[launch_id] for launch_id in ids[plan.representative].tolist()]
    simulated = np.array([each.cycles for each in result], np.float64)
    own = np.array([each.half_width for each in result]) * simulated
    is_own = plan.representative == plan.row
    if plan.sample is None:
        instructions = np.array([each.warp_instructions for each in result], np.float64)
        taken = simulated * np.divide(size, instructions, out=np.ones(len(size)), where=instructions > 0)
        total = float(taken.sum())
        relative = float(own[is_own].sum()) / total if plan.is_census and total else np.nan  # they lean one way
    else:
        from manyscale.sampling.tbpoint.estimate import estimate

        mine = np.isin(plan.row, plan.chosen)
        found_of_all = estimate(plan.sample, size, simulated[mine], (own[mine] / NORMAL_95) ** 2)
        taken, relative = found_of_all.launch_cycles, found_of_all.relative_half_width
    latency = round(gpu.launch_latency_cycles)
    cycles = np.rint(taken).astype(np.int64) + latency
    duration = np.rint(cycles * (PS_PER_SECOND / gpu.frequency_hz)).astype(np.int64)
    return Predictions(plan, result, cycles, duration, np.where(is_own, own, 0.0), relative, latency)
