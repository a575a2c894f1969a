"""A GPU of so many slots for thread blocks, simulated block by block, with TBPoint's region sampling or without."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from manyscale.sampling.tbpoint.block_estimate import SampledLaunch, sampled_launch
from manyscale.sampling.tbpoint.regions import BlockProfile, Regions, find_regions
from manyscale.sampling.tbpoint.rules import RegionRules, RegionSamplingRules
from manyscale.sampling.tbpoint.state import (
    RegionSampling,
    block_dispatched,
    block_ended,
    new_region_sampling,
    next_block,
)


@dataclass(frozen=True)
class Run:
    """``simulated`` blocks in the order of dispatch; ``cycles`` of the simulation alone, without what was skipped."""

    state: RegionSampling
    simulated: list[int]
    cycles: float

    @property
    def launch(self) -> SampledLaunch:
        return sampled_launch(self.state, self.cycles)

    @property
    def skips(self) -> list[tuple[int, int, int]]:
        """(region, first block, last block)"""
        kept = self.state.skips[: int(self.state.now["num_skips"][0])]
        return [(int(one["region"]), int(one["first"]), int(one["last"])) for one in kept]

    @property
    def units(self) -> list[tuple[int, int, float]]:
        """(block, region, IPC)"""
        kept = self.state.units[: int(self.state.now["num_units"][0])]
        return [(int(one["block"]), int(one["region"]), float(one["ipc"])) for one in kept]


def regions_of(labels: list[int], occupancy: int = 4) -> Regions:
    """Of given regions of epochs, -1 for none; a stand-in for what a profile gives."""
    profile = BlockProfile(*(np.ones(len(labels) * occupancy, np.int64),) * 3)
    found = find_regions(profile, occupancy, RegionRules())
    of_epoch = np.array(labels, np.int32)
    return Regions(
        occupancy, np.repeat(of_epoch, occupancy), found.stall_probability, found.variation, of_epoch, found.rows
    )


def run(
    regions: Regions,
    instructions: np.ndarray,
    cycles: np.ndarray,
    occupancy: int,
    rules: RegionSamplingRules | None = None,
    full: int | None = None,
) -> Run:
    """Blocks last ``cycles`` each, whatever runs beside them, and issue their instructions evenly."""
    state = new_region_sampling(regions, instructions, rules or RegionSamplingRules(), full)
    resident: list[tuple[float, int]] = []
    simulated: list[int] = []
    begun: dict[int, float] = {}
    now, retired = 0.0, 0

    def issued() -> int:
        part = sum(instructions[block] * (now - begun[block]) / cycles[block] for _, block in resident)
        return retired + round(part)

    while True:
        while len(resident) < occupancy:
            _, block = next_block(state)
            if block == len(instructions):
                break
            block_dispatched(state, block, now, issued())
            begun[block] = now
            heappush(resident, (now + cycles[block], block))
            simulated.append(block)
        if not resident:
            return Run(state, simulated, now)
        now, block = heappop(resident)
        retired += int(instructions[block])
        block_ended(state, block, now, issued())
