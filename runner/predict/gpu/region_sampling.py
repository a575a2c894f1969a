"""TBPoint inside a launch, handed to the simulation: which blocks it runs, and what their time says of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from manyscale.models.gpu.detailed import ASKED_COUNTS
from manyscale.models.gpu.l2.warm import touch_blocks
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.block_sampling import BlockSampler, SampledBlocks
from manyscale.runner.predict.gpu.blocks import profile_of, regions_of
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.study import Study
from manyscale.sampling.tbpoint.block_estimate import sampled_counts, sampled_launch
from manyscale.sampling.tbpoint.options import TbpointChoice
from manyscale.sampling.tbpoint.rules import RegionSamplingRules
from manyscale.sampling.tbpoint.state import (
    block_dispatched,
    block_ended,
    new_region_sampling,
    next_block,
)
from manyscale.sampling.tbpoint.warming import first_shown


class RegionSampler(BlockSampler):
    """TBPoint's homogeneous regions."""

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        return {"warming": study.options(TbpointChoice).warming.model_dump(mode="json")}

    @staticmethod
    def begin(trace: LaunchTrace, gpu: Gpu, options: Mapping[str, Any]) -> RegionChoice:
        return RegionChoice(trace, gpu, options)


class RegionChoice(SampledBlocks):
    """``rules``: the options of a unit, ``regions`` and ``warming``."""

    def __init__(self, trace: LaunchTrace, gpu: Gpu, rules: Mapping[str, Any]) -> None:
        profile = profile_of(trace)
        regions = regions_of(trace, profile, gpu, rules["regions"])
        warming = RegionSamplingRules.model_validate(rules["warming"])
        self._trace, self._gpu = trace, gpu
        self._state = new_region_sampling(regions, profile.warp_instructions, warming)

    def next(self) -> tuple[int, int]:
        first, block = next_block(self._state)
        return int(first), int(block)

    def dispatched(self, block: int, time: int, issued: float) -> None:
        block_dispatched(self._state, block, time, round(issued))

    def ended(self, block: int, time: int, issued: float) -> None:
        block_ended(self._state, block, time, round(issued))

    def skipped(self, memory: Memory, first: int, end: int) -> None:
        accesses = self._trace.warp_accesses[self._trace.block_warps]
        most = self._gpu.l2.size_bytes // SECTOR_BYTES
        shown = first_shown(self._trace.sector, accesses, first, end, most)
        touch_blocks(self._trace, self._gpu, memory, shown, end)

    def of_all(self, simulated: LaunchResult, asked_at: np.ndarray, asked_counts: np.ndarray) -> LaunchResult:
        found = sampled_launch(self._state, simulated.cycles)
        own = np.array([getattr(simulated, name) for name in ASKED_COUNTS])
        counts = sampled_counts(self._state, asked_at, asked_counts, own)
        changes: dict[str, Any] = {name: round(one) for name, one in zip(ASKED_COUNTS, counts.tolist(), strict=True)}
        ran = simulated.block_sm >= 0
        for name in ("block", "block_sm", "block_start", "block_end"):
            changes[name] = getattr(simulated, name)[ran]
        cycles = round(found.cycles)
        return replace(
            simulated,
            cycles=cycles,
            warp_instructions=int(self._state.instructions[-1]),
            stack=simulated.stack * (cycles / max(simulated.cycles, 1)),
            half_width=found.half_width_cycles / found.cycles if found.cycles else 0.0,
            **changes,
        )
