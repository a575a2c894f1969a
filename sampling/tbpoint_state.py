"""Homogeneous region sampling: which blocks of a launch are simulated, and at what IPC the others are skipped.

Method: Huang et al., TBPoint (IPDPS 2014), section IV-B2, and Table IV. A sampling unit is the life of one *specified*
block: the first one dispatched, and, once it retires, the next one dispatched. A region is entered when all resident
blocks are of it. While it warms, blocks are simulated and each unit has an IPC, of the whole GPU; once those of two
consecutive units differ by less than ``difference``, the region's blocks are skipped at the IPC of the last unit. The
region is left when a block of another one is dispatched.

The simulator owns time and blocks: it asks `next_block` before each dispatch and tells `block_dispatched` and
`block_ended`, in the order of time.

Choices where the source is silent:

* Skipped time is put in without draining: resident blocks are as they were when the first one is skipped, and the first
  block behind the region takes the free slot. In a steady state the GPU is as full before the skipped blocks as behind
  them, so their time is what they add, instructions by IPC; letting the residents end first would count a drain that
  the whole run does not have. So all blocks up to the end of the region's run are skipped at once.
* A unit counts for a region if the region was entered by the time it began, and not left before it ended; it begins
  with the dispatch of its block. The difference is relative to the earlier of the two units.
* ``units``: how many consecutive units must agree, each with the one before; the source's two are the default.
* A region that comes back later in the launch is entered and warmed again.
* What the caches see of skipped blocks is the simulator's choice: nothing, or their accesses (`next_block` says which
  they are).

Cost: O(1) for each event; memory 24 B per block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.sampling.tbpoint_regions import NO_REGION, Regions
from manyscale.sampling.tbpoint_rules import RegionSamplingRules

OUTSIDE: Final = 0
WARMING: Final = 1
FORWARDING: Final = 2
NO_BLOCK: Final = -1


DEFAULT_RULES: Final = RegionSamplingRules()


class RegionSampling(NamedTuple):
    """State. ``skips`` has a record for each stretch of skipped blocks, ``now[0].num_skips`` of them; ``units`` one for
    each sampling unit, ``now[0].num_units``."""

    region: np.ndarray  # int32[blocks]
    run_end: np.ndarray  # int64[blocks]: the first block behind the run of blocks of one region that it is in
    instructions: np.ndarray  # int64[blocks + 1]: warp instructions of the blocks before
    num_resident: np.ndarray  # int64[regions + 1]: blocks of each region; the last entry those of none
    rule: np.ndarray  # record[1]
    now: np.ndarray  # record[1]
    skips: np.ndarray  # record[runs]
    units: np.ndarray  # record[blocks], no more than that are used


_RULE: Final = np.dtype([("difference", "f8"), ("units", "i8")])
# next: block that is dispatched next. resident: blocks. block: the specified one; unit_counts: for the region that was
# entered when it began. agreeing: consecutive units that agree, the last one included. ipc: of the last unit.
_NOW: Final = np.dtype(
    [
        ("next", "i8"), ("resident", "i8"), ("mode", "i8"), ("region", "i8"),
        ("block", "i8"), ("unit_time", "f8"), ("unit_issued", "i8"), ("unit_counts", "i8"),
        ("agreeing", "i8"), ("ipc", "f8"), ("num_skips", "i8"), ("num_units", "i8"),
    ]
)  # fmt: skip
# blocks [first, last]; ipc at which they were skipped, and first_unit, the index of the first of the num_units that
# agreed on it
_SKIP: Final = np.dtype(
    [
        ("region", "i8"), ("first", "i8"), ("last", "i8"), ("instructions", "i8"), ("cycles", "f8"), ("ipc", "f8"),
        ("first_unit", "i8"), ("num_units", "i8"),
    ]
)  # fmt: skip
# region NO_REGION: it counts for none
_UNIT: Final = np.dtype([("block", "i8"), ("region", "i8"), ("begin", "f8"), ("end", "f8"), ("ipc", "f8")])


def new_region_sampling(
    regions: Regions, warp_instructions: np.ndarray, rules: RegionSamplingRules = DEFAULT_RULES
) -> RegionSampling:
    """State before the first block of a launch. ``warp_instructions`` int64[blocks]. Raises ValueError if that does not
    fit the regions."""
    count = len(regions.of_block)
    if len(warp_instructions) != count:
        raise ValueError(f"{len(warp_instructions)} numbers of instructions for {count} blocks")
    region = np.ascontiguousarray(regions.of_block, np.int32)
    changes = np.append(np.flatnonzero(region[1:] != region[:-1]) + 1, count)
    state = RegionSampling(
        region=region,
        run_end=changes[np.searchsorted(changes, np.arange(count), side="right")],
        instructions=np.concatenate(([0], np.cumsum(warp_instructions, dtype=np.int64))),
        num_resident=np.zeros(regions.num_regions + 1, np.int64),
        rule=np.zeros(1, _RULE),
        now=np.zeros(1, _NOW),
        skips=np.zeros(len(changes), _SKIP),
        units=np.zeros(count, _UNIT),
    )
    state.rule["difference"], state.rule["units"] = rules.difference, rules.units
    state.now["region"], state.now["block"] = NO_REGION, NO_BLOCK
    return state


@allocation_free
def next_block(state):  # type: ignore[no-untyped-def]
    """(first, block): ``block`` is dispatched next, the launch's number of blocks if none is left; blocks [first,
    block) are skipped, now and for good (asked again, none are)."""
    now = state.now[0]
    first = now.next
    if now.mode != FORWARDING or first >= state.region.shape[0] or state.region[first] != now.region:
        return first, first
    last = state.run_end[first]
    skip = state.skips[now.num_skips]
    now.num_skips += 1
    skip.region, skip.first, skip.last = now.region, first, last - 1
    skip.instructions = state.instructions[last] - state.instructions[first]
    skip.ipc = now.ipc
    skip.cycles = skip.instructions / now.ipc
    skip.num_units = now.agreeing
    skip.first_unit = now.num_units - now.agreeing
    now.next = last
    return first, last


@allocation_free
def block_dispatched(state, block, time, issued):  # type: ignore[no-untyped-def]
    """``block``, which `next_block` named, begins at ``time`` (cycles); the GPU has issued ``issued`` warp instructions
    so far."""
    now = state.now[0]
    region = state.region[block]
    now.next = block + 1
    now.resident += 1
    state.num_resident[region] += 1  # that of none is the last
    if now.mode != OUTSIDE and region != now.region:
        _leave(now)
    _enter(state, region, time)
    if now.block == NO_BLOCK:
        now.block = block
        now.unit_time = time
        now.unit_issued = issued
        now.unit_counts = now.mode == WARMING


@allocation_free
def block_ended(state, block, time, issued):  # type: ignore[no-untyped-def]
    """``block`` has retired at ``time``; the GPU has issued ``issued`` warp instructions so far."""
    now = state.now[0]
    now.resident -= 1
    state.num_resident[state.region[block]] -= 1
    if block == now.block:
        _end_unit(state, time, issued)
    if now.next > 0 and now.resident > 0:
        _enter(state, state.region[now.next - 1], time)


@allocation_free
def _leave(now):  # type: ignore[no-untyped-def]
    now.mode = OUTSIDE
    now.region = NO_REGION
    now.agreeing = 0
    now.unit_counts = 0


@allocation_free
def _enter(state, region, time):  # type: ignore[no-untyped-def]
    """Enter ``region``, of the last dispatched block, if all resident blocks are of it."""
    now = state.now[0]
    if now.mode == OUTSIDE and region != NO_REGION and state.num_resident[region] == now.resident:
        now.mode = WARMING
        now.region = region
        now.agreeing = 0
        if now.block != NO_BLOCK and now.unit_time == time:
            now.unit_counts = 1


@allocation_free
def _end_unit(state, time, issued):  # type: ignore[no-untyped-def]
    now = state.now[0]
    unit = state.units[now.num_units]
    now.num_units += 1
    unit.block = now.block
    unit.begin, unit.end = now.unit_time, time
    unit.ipc = (issued - now.unit_issued) / (time - now.unit_time) if time > now.unit_time else 0.0
    unit.region = now.region if now.unit_counts else NO_REGION
    now.block = NO_BLOCK
    if now.mode != WARMING or not now.unit_counts:
        return
    agrees = now.agreeing > 0 and abs(unit.ipc - now.ipc) < state.rule[0].difference * now.ipc
    now.agreeing = now.agreeing + 1 if agrees else 1
    now.ipc = unit.ipc
    if now.agreeing >= state.rule[0].units and unit.ipc > 0:
        now.mode = FORWARDING


@dataclass(frozen=True)
class SampledLaunch:
    """A launch whose blocks were partly skipped: ``cycles`` +- ``half_width_cycles`` with ``confidence``, variance of
    ``cycles``, and shares of warp instructions and of blocks that were simulated."""

    cycles: float
    half_width_cycles: float
    variance: float
    skipped_cycles: float
    instruction_share: float
    block_share: float


def sampled_launch(state: RegionSampling, simulated_cycles: float, confidence: float = 0.95) -> SampledLaunch:
    """Table IV: what was simulated, and instructions by IPC of what was skipped.

    The interval takes the units that agreed on an IPC as draws from units of one IPC: their relative variance, pooled
    over all stretches skipped (half the squared relative difference, for two), is that of the IPC of each stretch,
    which errs independently of the others'. With one stretch of two units Student's t has one degree of freedom, 12.7:
    more ``units`` make it narrower. What the interval leaves out: units that happened to agree understate how much
    units vary, if that is more than the rule allows; units that follow each other share resident blocks; and none can
    say what the IPC does later in the region. Raises ValueError for a confidence not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    skips = state.skips[: int(state.now["num_skips"][0])]
    squares, freedom = 0.0, 0
    for skip in skips:
        ipc = state.units["ipc"][int(skip["first_unit"]) : int(skip["first_unit"] + skip["num_units"])]
        squares += float(((ipc / ipc.mean() - 1) ** 2).sum())
        freedom += len(ipc) - 1
    relative = squares / freedom if freedom else 0.0
    variance = relative * float((skips["cycles"] ** 2).sum())
    half_width = 0.0
    if variance > 0:
        from scipy.special import stdtrit

        half_width = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    skipped = float(skips["cycles"].sum())
    total = max(int(state.instructions[-1]), 1)
    num_skipped = int((skips["last"] - skips["first"] + 1).sum())
    return SampledLaunch(
        cycles=simulated_cycles + skipped,
        half_width_cycles=half_width,
        variance=variance,
        skipped_cycles=skipped,
        instruction_share=1 - int(skips["instructions"].sum()) / total,
        block_share=1 - num_skipped / max(len(state.region), 1),
    )
