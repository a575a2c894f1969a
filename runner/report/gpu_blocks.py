"""Thread blocks of launches on the time scale of the run, for the timelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.run.results import Result

MAX_BLOCKS: Final = 100_000  # that timelines show: those of the first launches


@dataclass(frozen=True)
class TimedBlocks:
    """Blocks that ran on SMs, by (SM, start): ``sm``, ``launch`` (its id), ``block`` int64; ``start_ps``, ``end_ps``
    int64. ``lane`` int64: blocks of one SM and lane do not overlap. ``left_out``: how many are not here."""

    sm: np.ndarray
    launch: np.ndarray
    block: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray
    lane: np.ndarray
    left_out: int


def timed_blocks(result: Result) -> TimedBlocks | None:
    """Of the first execution of each launch that was simulated; None where there are none. Where streams were replayed,
    of launches of the first GPU that had it for themselves: others' blocks ran elsewhere and at other times. O(blocks
    log blocks)."""
    launches, blocks, gpu = result.launches, result.blocks, Gpu.of(result.machine.node)
    if launches is None or blocks is None or gpu is None:
        return None
    ran = blocks.filter(blocks.column("sm").is_valid())
    if result.gpu_streams is not None:
        ran = ran.filter(np.isin(to_numpy(ran.column("launch_id")), _alone(result, gpu)))
    if not ran.num_rows:
        return None
    left_out = max(ran.num_rows - MAX_BLOCKS, 0)
    ran = ran.slice(0, MAX_BLOCKS)
    names = ("launch_id", "block", "sm", "start_cycle", "end_cycle")
    launch, block, sm, start, end = (to_numpy(ran.column(name)).astype(np.int64) for name in names)
    known, first = np.unique(to_numpy(launches.column("launch_id")), return_index=True)
    row = first[np.searchsorted(known, launch)]
    begin = to_numpy(launches.column("start_ps"))[row]
    latency = to_numpy(launches.column("launch_latency_cycles"))[row]
    cycle_ps = PS_PER_SECOND / gpu.frequency_hz
    start_ps = begin + np.rint((start + latency) * cycle_ps).astype(np.int64)
    end_ps = begin + np.rint((end + latency) * cycle_ps).astype(np.int64)
    order = np.lexsort((block, start_ps, sm))
    lane = _lanes(sm[order], start_ps[order], end_ps[order])
    return TimedBlocks(sm[order], launch[order], block[order], start_ps[order], end_ps[order], lane, left_out)


def _alone(result: Result, gpu: Gpu) -> np.ndarray:
    """Numbers of the launches of the first GPU that took as long as they take alone."""
    streams, launches = result.gpu_streams, result.launches
    assert streams is not None
    assert launches is not None
    own = streams.filter(np.asarray(to_numpy(streams.column("gpu")) == int(to_numpy(streams.column("gpu")).min())))
    start, end, cycles, launch = (
        to_numpy(launches.column(name)) for name in ("start_ps", "end_ps", "cycles", "launch_id")
    )
    is_alone = np.abs(end - start - cycles * (PS_PER_SECOND / gpu.frequency_hz)) < 2
    return np.asarray(launch[is_alone & np.isin(launch, to_numpy(own.column("launch_id")))])


def _lanes(sm: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64[]: each takes the first lane of its SM that is free."""
    lanes = np.zeros(len(sm), np.int64)
    free_from: list[int] = []
    last = -1
    for index, (one, begin, until) in enumerate(zip(sm.tolist(), start.tolist(), end.tolist(), strict=True)):
        if one != last:
            free_from, last = [], one
        lane = next((number for number, free in enumerate(free_from) if free <= begin), len(free_from))
        if lane == len(free_from):
            free_from.append(until)
        else:
            free_from[lane] = until
        lanes[index] = lane
    return lanes
