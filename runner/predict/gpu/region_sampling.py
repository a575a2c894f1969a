"""TBPoint inside a launch, handed to the simulation: which blocks it runs, and what their time says of all.

Some of the skipped blocks L2 is shown, so that those that follow find what they would have found. L2 keeps what was
used last. If it were shown all that was skipped, it would forget what the resident blocks had used, which run on behind
the skip as if nothing had been between: they would miss what they never miss (b+tree: a miss ratio of 0.155 instead of
0.125). So it is shown only the last of the skipped blocks, as many as fill its empty lines and SHARE of the others; the
rest is left to what was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.detailed import ASKED_COUNTS
from manyscale.models.gpu.l2.warm import touch_blocks
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.gpu.skipped_blocks import first_full, first_shown
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.block_sampling import BlockSampler, SampledBlocks
from manyscale.runner.predict.gpu.blocks import profile_of, regions_of
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.study import Study
from manyscale.sampling.tbpoint.block_estimate import SampledLaunch, sampled_counts, sampled_launch
from manyscale.sampling.tbpoint.options import TbpointChoice
from manyscale.sampling.tbpoint.regions import BlockProfile
from manyscale.sampling.tbpoint.rules import RegionSamplingRules
from manyscale.sampling.tbpoint.state import (
    block_dispatched,
    block_ended,
    new_region_sampling,
    next_block,
)

VERSION: Final = 6  # of what follows from the same rules
SHARE: Final = 0.5


class RegionSampler(BlockSampler):
    """TBPoint's homogeneous regions."""

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        return {"warming": study.options(TbpointChoice).warming.model_dump(mode="json"), "rules": VERSION}

    @staticmethod
    def begin(trace: LaunchTrace, gpu: Gpu, options: Mapping[str, Any]) -> RegionChoice:
        return RegionChoice(trace, gpu, options)


class RegionChoice(SampledBlocks):
    """``rules``: the options of a unit, ``regions`` and ``warming``."""

    def __init__(
        self, trace: LaunchTrace, gpu: Gpu, rules: Mapping[str, Any], profile: BlockProfile | None = None
    ) -> None:
        profile = profile or profile_of(trace)
        regions = regions_of(trace, profile, gpu, rules["regions"])
        warming = RegionSamplingRules.model_validate(rules["warming"])
        self._trace, self._gpu = trace, gpu
        self._accesses = trace.warp_accesses[trace.block_warps]
        full = _changes_l2(trace, gpu, self._accesses)
        self._state = new_region_sampling(regions, profile.warp_instructions, warming, full)

    @property
    def _l2_sectors(self) -> int:
        return self._gpu.l2.size_bytes // SECTOR_BYTES

    def next(self) -> tuple[int, int]:
        first, block = next_block(self._state)
        return int(first), int(block)

    def dispatched(self, block: int, time: int, issued: float) -> None:
        block_dispatched(self._state, block, time, round(issued))

    def ended(self, block: int, time: int, issued: float) -> None:
        block_ended(self._state, block, time, round(issued))

    def skipped(self, memory: Memory, first: int, end: int) -> None:
        accesses, capacity = self._accesses, self._l2_sectors
        empty = int(np.count_nonzero(memory.tag < 0)) * capacity // memory.tag.size
        shown = first_shown(self._trace.sector, accesses, first, end, empty + int(SHARE * (capacity - empty)))
        touch_blocks(self._trace, self._gpu, memory, shown, end)

    def launch(self, cycles: float) -> SampledLaunch:
        """From the ``cycles`` of what was simulated."""
        return sampled_launch(self._state, cycles)

    def counts(self, asked_at: np.ndarray, asked_counts: np.ndarray, simulated: np.ndarray) -> np.ndarray:
        """float64[]: ASKED_COUNTS of the launch; ``simulated``: of what was."""
        return sampled_counts(self._state, asked_at, asked_counts, simulated)

    def of_all(self, simulated: LaunchResult, asked_at: np.ndarray, asked_counts: np.ndarray) -> LaunchResult:
        found = self.launch(simulated.cycles)
        own = np.array([getattr(simulated, name) for name in ASKED_COUNTS])
        counts = self.counts(asked_at, asked_counts, own)
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


def _changes_l2(trace: LaunchTrace, gpu: Gpu, accesses: np.ndarray) -> int:
    """The block that fills an L2 that was empty, so that lines have to leave it; where as many as it may keep are
    written, the block that writes the last of these, if that is later; the number of blocks, if neither happens.
    O(accesses)."""
    count, sectors = trace.num_blocks, gpu.l2.size_bytes // SECTOR_BYTES
    is_written = trace.written != 0
    written = np.concatenate(([0], np.cumsum(is_written, dtype=np.int64)))
    of_blocks = trace.sector[is_written]
    full = first_full(trace.sector, accesses, 0, count, sectors)
    changing = first_full(of_blocks, written[accesses], 0, count, int(gpu.l2.dirty_share * sectors))
    return max(full, changing) if changing < count else full
