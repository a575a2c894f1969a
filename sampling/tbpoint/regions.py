"""TBPoint inside a launch: which of its blocks are expected to run at one IPC, from a profile taken once.

Method: Huang et al., TBPoint (IPDPS 2014), section IV-B1, eq. 4 and 5 (thesis, section 3.4.3, eq. 8 and 9). An epoch is
as many consecutive blocks as the whole GPU holds at a time. Its feature is the stall probability, memory requests by
warp instructions, in the mean over its blocks; epochs at most ``threshold`` apart are one cluster (complete linkage, in
one dimension: exact). An epoch whose blocks differ, by a coefficient of variation of their requests or of their
instructions above ``variation``, leaves its cluster. Consecutive epochs of a cluster are a homogeneous region, which
bears the cluster's number; another GPU or occupancy needs other epochs, but no other profile.

Choices where the source is silent:

* The scale of the threshold of 0.2: stall probabilities are divided by their mean over the launch's epochs, as the
  features of launches are (``scale: mean``); ``none`` takes them as they are.
* An epoch that leaves its cluster is in no region (NO_REGION), as drawn in the source's figure 6.
* Blocks behind the last full epoch belong to it: by themselves, one that has less to do at the edge of the grid would
  put them all outside of regions. A block without instructions has a stall probability of 0.

Cost: O(blocks + epochs log epochs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.sampling.tbpoint.linkage import by_occurrence, line_cut
from manyscale.sampling.tbpoint.rules import RegionRules

__all__ = ["DEFAULT_RULES", "NO_REGION", "BlockProfile", "RegionRules", "Regions", "block_profile", "find_regions"]

NO_REGION: Final = -1

DEFAULT_RULES: Final = RegionRules()


@dataclass(frozen=True)
class BlockProfile:
    """int64[blocks], in the order of dispatch: ``warp_instructions``, ``thread_instructions`` and ``memory_requests``
    (to global and local memory) of each thread block of a launch. Raises ValueError for columns that differ in
    length."""

    warp_instructions: np.ndarray
    thread_instructions: np.ndarray
    memory_requests: np.ndarray

    def __post_init__(self) -> None:
        lengths = {len(self.warp_instructions), len(self.thread_instructions), len(self.memory_requests)}
        if len(lengths) > 1:
            raise ValueError(f"columns of {sorted(lengths)} blocks; each needs an entry per block")

    @property
    def num_blocks(self) -> int:
        return len(self.warp_instructions)

    @property
    def size_variation(self) -> float:
        """Coefficient of variation of the blocks' thread instructions: the fourth feature between launches."""
        return float(_variation(self.thread_instructions, np.zeros(1, np.int64))[0]) if self.num_blocks else 0.0


def block_profile(
    block_warps: np.ndarray,
    warp_instructions: np.ndarray,
    active: np.ndarray,
    requests: np.ndarray,
) -> BlockProfile:
    """The profile of a traced launch. ``block_warps`` int64[blocks + 1] and ``warp_instructions`` int64[warps + 1]:
    first warp of each block, first instruction of each warp; ``active`` and ``requests`` [instructions]: threads that
    execute it, and its requests to global and local memory (0 for any other). O(instructions)."""
    begins = warp_instructions[block_warps]
    number = np.diff(begins)
    has_some = number > 0
    thread_instructions, memory_requests = np.zeros(len(number), np.int64), np.zeros(len(number), np.int64)
    if np.any(has_some):
        thread_instructions[has_some] = np.add.reduceat(active, begins[:-1][has_some], dtype=np.int64)
        memory_requests[has_some] = np.add.reduceat(requests, begins[:-1][has_some], dtype=np.int64)
    return BlockProfile(number.astype(np.int64), thread_instructions, memory_requests)


@dataclass(frozen=True)
class Regions:
    """``occupancy``: blocks in an epoch. ``of_block`` int32[blocks]: region of each, NO_REGION outside. Per epoch:
    ``stall_probability`` and ``variation`` float64[epochs], ``of_epoch`` int32[epochs] its region. ``rows``
    int64[, 3] is the table of regions: (region, first block, last block), ascending; a region that comes back has a row
    for each time."""

    occupancy: int
    of_block: np.ndarray
    stall_probability: np.ndarray
    variation: np.ndarray
    of_epoch: np.ndarray
    rows: np.ndarray

    @property
    def num_regions(self) -> int:
        return int(self.of_epoch.max(initial=NO_REGION)) + 1


def find_regions(profile: BlockProfile, occupancy: int, rules: RegionRules = DEFAULT_RULES) -> Regions:
    """Regions of a launch on a GPU that holds ``occupancy`` of its blocks at a time; ValueError if that is none."""
    if occupancy < 1:
        raise ValueError(f"the occupancy is {occupancy}; a GPU that runs the kernel holds at least one of its blocks")
    count = profile.num_blocks
    starts = np.arange(0, max(count - occupancy, 0) + 1, occupancy)[:count]
    size = np.diff(np.append(starts, count))
    instructions, requests = profile.warp_instructions, profile.memory_requests
    ratio = np.divide(requests, instructions, out=np.zeros(count), where=instructions > 0)
    stall = np.add.reduceat(ratio, starts) / size if count else np.zeros(0)
    variation = np.maximum(_variation(requests, starts), _variation(instructions, starts))
    of_epoch = _cluster_epochs(stall, variation, rules)
    return Regions(occupancy, np.repeat(of_epoch, size), stall, variation, of_epoch, _rows(of_epoch, starts, count))


def _variation(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Coefficient of variation (of the whole group, not a sample) of each group of consecutive values; 0 of zeros."""
    if not len(values):
        return np.zeros(0)
    size = np.diff(np.append(starts, len(values)))
    mean = np.add.reduceat(values.astype(np.float64), starts) / size
    squares = np.add.reduceat((values - np.repeat(mean, size)) ** 2, starts) / size
    return np.divide(np.sqrt(squares), mean, out=np.zeros(len(starts)), where=mean > 0)


def _cluster_epochs(stall: np.ndarray, variation: np.ndarray, rules: RegionRules) -> np.ndarray:
    mean = stall.mean() if rules.scale == "mean" and len(stall) else 1.0
    label = line_cut(stall / mean if mean > 0 else stall, rules.threshold * (1 + 1e-12))
    is_even = variation <= rules.variation
    of_epoch = np.full(len(stall), NO_REGION, np.int32)
    of_epoch[is_even] = by_occurrence(label[is_even])
    return of_epoch


def _rows(of_epoch: np.ndarray, starts: np.ndarray, num_blocks: int) -> np.ndarray:
    if not num_blocks:
        return np.zeros((0, 3), np.int64)
    changes = np.flatnonzero(np.append(True, of_epoch[1:] != of_epoch[:-1]))
    first = starts[changes]
    rows = np.stack((of_epoch[changes], first, np.append(first[1:], num_blocks) - 1), axis=1).astype(np.int64)
    return rows[rows[:, 0] != NO_REGION]
