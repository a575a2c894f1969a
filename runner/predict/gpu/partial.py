"""Launches of which only some blocks were recorded.

The recorded blocks are simulated as a launch of their own. While there are blocks to dispatch, every SM holds as many
as it can, as it does in the whole launch; so the others are taken to be executed at the rate of that time: from the end
of the first block, when the first blocks no longer run in step, to the dispatch of the last one. What comes before and
after is that of the whole launch and counts once. (TBPoint skips blocks of a region by the same reasoning; Huang et
al., IPDPS 2014, Table IV.) Counts of caches and cycles by cause grow with instructions and with cycles.

The time at that rate is cut into parts of at least one generation of blocks; how far they differ gives the interval of
what was not recorded (Student's t; parts as independent draws). It says nothing of blocks that are unlike the recorded
ones, and recorded blocks that are not neighbours share less in the caches than they would: a note says so.

It takes MIN_GENERATIONS times as many blocks as the GPU holds; with fewer there is no such time, and a run is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.occupancy import resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.launch_results import LaunchResult

MIN_GENERATIONS: Final = 4
MOST_PARTS: Final = 8


def check_blocks(launches: Workload, rows: np.ndarray, gpu: Gpu, model: str, sampler: str, place: str) -> None:
    """``rows``: launches that are simulated. Raises UserError for one whose recorded blocks do not tell its time."""
    streams = launches.gpu
    assert streams is not None
    names = ("launch_id", "block_x", "block_y", "block_z", "registers", "shared_bytes")
    columns = [launches.column("launches", name)[rows].tolist() for name in names]
    for launch_id, x, y, z, registers, shared in zip(*columns, strict=True):
        recorded = streams.recorded_blocks(launch_id)
        if recorded is None:
            continue
        told = f"{place}: of launch {launch_id} {int(recorded.sum())} of {len(recorded)} blocks were recorded"
        if model != "detailed" or sampler != "full":
            raise UserError(f"{told}, which --model gpu=detailed alone, with sampling.blocks full, can make a whole of")
        held = gpu.sms * resident_blocks(gpu, x * y * z, registers, shared)
        if recorded.sum() < MIN_GENERATIONS * held:
            raise UserError(
                f"{told}, and the GPU holds {held} at a time: they do not tell how fast the others run; record at "
                f"least {MIN_GENERATIONS * held} with --blocks, or whole launches with --launches tbpoint"
            )


def of_all_blocks(
    result: LaunchResult, recorded: np.ndarray, warp_instructions: int, confidence: float = 0.95
) -> LaunchResult:
    """The whole launch from ``result`` of its ``recorded`` blocks (bool[blocks]); ``warp_instructions`` of all."""
    from scipy.special import stdtrit

    begin, end = _full_time(result)
    held = max(1, int((result.block_start < begin).sum()))
    parts = min(MOST_PARTS, max(2, len(result.block) // held - 2))
    edges = np.linspace(begin, end, parts + 1)
    issued = np.diff(np.interp(edges, *_cumulated(result)))
    cpi = np.diff(edges) / np.maximum(issued, 1)
    rate = issued.sum() / (end - begin)
    left = warp_instructions - result.warp_instructions
    further = left / rate
    spread = float(cpi.std(ddof=1) / cpi.mean()) / np.sqrt(parts)
    half = float(stdtrit(parts - 1, (1 + confidence) / 2)) * spread * further
    cycles = round(result.cycles + further)
    grown = warp_instructions / max(result.warp_instructions, 1)
    accesses: dict[str, Any] = {
        name: round(getattr(result, name) * grown)
        for name in ("l1_accesses", "l1_misses", "l2_accesses", "l2_misses", "dram_reads", "dram_writes")
    }
    accesses |= {name: getattr(result, name) * grown for name in ("work", "work_cycles")}
    return replace(
        result,
        cycles=cycles,
        warp_instructions=warp_instructions,
        stack=result.stack * (cycles / max(float(result.stack.sum()), 1e-300)),
        half_width=half / cycles,
        block=np.flatnonzero(recorded)[result.block],
        block_region=np.full(len(result.block), -1),
        **accesses,
    )


def _full_time(result: LaunchResult) -> tuple[float, float]:
    """When the first block has ended, and when the last one is dispatched."""
    return float(result.block_end.min()), float(result.block_start.max())


def _cumulated(result: LaunchResult) -> tuple[np.ndarray, np.ndarray]:
    """(cycles, warp instructions that were issued until then)."""
    bins = len(result.ipc_instructions)
    times = np.minimum(np.arange(bins + 1) * result.bin_cycles, max(result.cycles, 1))
    return times.astype(np.float64), np.concatenate(([0], np.cumsum(result.ipc_instructions))).astype(np.float64)
