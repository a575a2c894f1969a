"""Homogeneous region sampling: which blocks of a launch are simulated, and which are skipped.

Method: Huang et al., TBPoint (IPDPS 2014), section IV-B2, and Table IV. A region is entered when all resident blocks
are of it, and left when a block of another one is dispatched; while it lasts, some of its blocks are skipped, and their
time is estimated by what was simulated (tbpoint/block_estimate.py).

The simulator owns time and blocks: it asks `next_block` before each dispatch and tells `block_dispatched` and
`block_ended`, in the order of time.

*Source* (``rules: source``): a sampling unit is the life of one *specified* block: the first one dispatched, and, once
it retires, the next one dispatched. Each unit has an IPC, of the whole GPU; once those of ``units`` consecutive ones
(the source's two) differ by less than ``difference``, each from the one before, the rest of the run of the region's
blocks is skipped. A unit counts if the region was entered by the time it began, and not left before it ended.

*Spread* (the default; tbpoint/spread.py). One block's life says little: residents are in step when a launch begins, and
it takes many lives until they no longer are (vectorAdd on 4 SMs: 45, in which the IPC falls by a fifth). So epochs are
measured, as many blocks as the GPU holds, until they agree, and samples lie all over the rest.

Choices for both, where the source is silent:

* Skipped time is put in without draining: resident blocks are as they were when the first one is skipped, and the first
  block behind takes the free slot. In a steady state the GPU is as full before the skipped blocks as behind them;
  letting the residents end first would count a drain that the whole run does not have.
* A region that comes back later in the launch is entered and warmed again.
* What the caches see of skipped blocks is the simulator's choice: nothing, or their accesses (`next_block` says which
  they are).

Cost: O(1) for each event; memory 180 B per block.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.sampling.tbpoint.regions import NO_REGION, Regions
from manyscale.sampling.tbpoint.rules import RegionSamplingRules
from manyscale.sampling.tbpoint.spread import (
    FORWARDING,
    NO_BLOCK,
    NO_SAMPLE,
    OUTSIDE,
    WARMING,
    enter_run,
    look,
    tell_dispatch,
)

DEFAULT_RULES: Final = RegionSamplingRules()


class RegionSampling(NamedTuple):
    """State. ``skips`` has a record for each stretch of skipped blocks, ``now[0].num_skips`` of them; ``units`` one for
    each sampling unit, ``now[0].num_units``."""

    region: np.ndarray  # int32[blocks]
    run_end: np.ndarray  # int64[blocks]: the first block behind the run of blocks of one region that it is in
    run_begin: np.ndarray  # int64[blocks]: the first one of that run
    instructions: np.ndarray  # int64[blocks + 1]: warp instructions of the blocks before
    num_resident: np.ndarray  # int64[regions + 1]: blocks of each region; the last entry those of none
    begin: np.ndarray  # float64[blocks]: cycle, NaN: not dispatched
    end: np.ndarray  # float64[blocks]
    # float64[blocks + 1], by number of dispatches: instructions of the blocks dispatched so far; sums of the times of
    # dispatches, and of ``begun`` at each
    begun: np.ndarray
    times: np.ndarray
    works: np.ndarray
    rule: np.ndarray  # record[1]
    now: np.ndarray  # record[1]
    skips: np.ndarray  # record[blocks], no more than that are used
    units: np.ndarray  # record[blocks], no more than that are used


# epoch: blocks that the GPU holds. full: the block that fills L2, if it was empty when the launch began
_RULE: Final = np.dtype(
    [
        ("is_source", "i8"), ("difference", "f8"), ("units", "i8"),
        ("share", "f8"), ("samples", "i8"), ("epoch", "i8"), ("full", "i8"),
    ]
)  # fmt: skip
# next: block that is dispatched next. resident: blocks. block: the specified one; unit_counts: for the region that was
# entered when it began. agreeing: consecutive units that agree, the last one included. ipc: of the last unit.
# Of rules spread, by number of dispatches: dispatched so far; began: the run of blocks; counted: up to where units are
# complete; sample_end, 0 until the run is warm. units_before that run; discard, length: epochs of a sample that do not
# count, and all, 0: the end of the run; left: samples of the run that are not complete; sample: its number in the
# launch; to_skip: blocks, once skip_from have been dispatched; before: as in skips.
_NOW: Final = np.dtype(
    [
        ("next", "i8"), ("resident", "i8"), ("mode", "i8"), ("region", "i8"),
        ("block", "i8"), ("unit_time", "f8"), ("unit_issued", "f8"), ("unit_counts", "i8"),
        ("agreeing", "i8"), ("ipc", "f8"), ("num_skips", "i8"), ("num_units", "i8"),
        ("dispatched", "i8"), ("began", "i8"), ("counted", "i8"), ("units_before", "i8"), ("sample_end", "i8"),
        ("discard", "i8"), ("length", "i8"), ("left", "i8"), ("sample", "i8"), ("to_skip", "i8"),
        ("skip_from", "i8"), ("before", "f8"),
    ]
)  # fmt: skip
# blocks [first, last], skipped at ``time``. Source: first_unit, the index of the first of the num_units that agreed.
# Spread: sample, the number of the next one; before: share of its instructions that run as the sample before it did,
# the others as that next one
_SKIP: Final = np.dtype(
    [
        ("region", "i8"), ("first", "i8"), ("last", "i8"), ("instructions", "i8"), ("time", "f8"),
        ("first_unit", "i8"), ("num_units", "i8"), ("sample", "i8"), ("before", "f8"),
    ]
)  # fmt: skip
# region NO_REGION: it counts for none. run: the block behind its run of blocks. sample NO_SAMPLE: it was not warm.
# Spread: first of its ``length`` dispatches, which are as much in ``step`` as spread.py says
_UNIT: Final = np.dtype(
    [
        ("block", "i8"), ("region", "i8"), ("run", "i8"), ("sample", "i8"), ("begin", "f8"), ("end", "f8"),
        ("ipc", "f8"), ("first", "i8"), ("length", "i8"), ("step", "f8"),
    ]
)  # fmt: skip


def new_region_sampling(
    regions: Regions,
    warp_instructions: np.ndarray,
    rules: RegionSamplingRules = DEFAULT_RULES,
    full: int | None = None,
) -> RegionSampling:
    """State before the first block of a launch. ``warp_instructions`` int64[blocks]; ``full``: the block that fills an
    empty L2 (None: none does). Raises ValueError if instructions do not fit the regions."""
    count = len(regions.of_block)
    if len(warp_instructions) != count:
        raise ValueError(f"{len(warp_instructions)} numbers of instructions for {count} blocks")
    region = np.ascontiguousarray(regions.of_block, np.int32)
    ends = np.append(np.flatnonzero(region[1:] != region[:-1]) + 1, count)
    run = np.searchsorted(ends, np.arange(count), side="right")
    state = RegionSampling(
        region=region,
        run_end=ends[run],
        run_begin=np.append(0, ends)[run],
        instructions=np.concatenate(([0], np.cumsum(warp_instructions, dtype=np.int64))),
        num_resident=np.zeros(regions.num_regions + 1, np.int64),
        begin=np.full(count, np.nan),
        end=np.full(count, np.nan),
        begun=np.zeros(count + 1),
        times=np.zeros(count + 1),
        works=np.zeros(count + 1),
        rule=np.zeros(1, _RULE),
        now=np.zeros(1, _NOW),
        skips=np.zeros(count, _SKIP),
        units=np.zeros(count, _UNIT),
    )
    rule = state.rule[0]
    rule["is_source"] = rules.rules == "source"
    rule["difference"], rule["units"] = rules.difference, rules.units
    rule["share"], rule["samples"] = rules.share, rules.samples
    rule["epoch"] = regions.occupancy
    rule["full"] = count if full is None else full
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
    if now.dispatched < now.skip_from:
        return first, first
    last = state.run_end[first]
    skip = state.skips[now.num_skips]
    now.num_skips += 1
    skip.num_units = now.agreeing
    if not state.rule[0].is_source:
        last = min(last, first + now.to_skip)
        skip.sample = now.sample
        now.mode = WARMING
    skip.region, skip.first, skip.last = now.region, first, last - 1
    skip.before = now.before
    skip.instructions = state.instructions[last] - state.instructions[first]
    skip.first_unit = now.num_units - skip.num_units
    skip.time = now.unit_time
    now.next = last
    return first, last


@allocation_free
def block_dispatched(state, block, time, issued):  # type: ignore[no-untyped-def]
    """``block``, which `next_block` named, begins at ``time`` (cycles); the GPU has issued ``issued`` warp instructions
    so far."""
    now = state.now[0]
    region = state.region[block]
    state.begin[block] = time
    now.next = block + 1
    now.resident += 1
    state.num_resident[region] += 1  # that of none is the last
    tell_dispatch(state, block, time)
    if now.mode != OUTSIDE and region != now.region:
        _leave(now)
    _enter(state, region, time)
    if not state.rule[0].is_source:
        look(state, time)
    elif now.block == NO_BLOCK:
        now.block = block
        now.unit_time = time
        now.unit_issued = issued
        now.unit_counts = now.mode == WARMING


@allocation_free
def block_ended(state, block, time, issued):  # type: ignore[no-untyped-def]
    """``block`` has retired at ``time``; the GPU has issued ``issued`` warp instructions so far."""
    now = state.now[0]
    state.end[block] = time
    now.resident -= 1
    state.num_resident[state.region[block]] -= 1
    if block == now.block:
        _end_life(state, time, issued)
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
    if now.mode != OUTSIDE or region == NO_REGION or state.num_resident[region] != now.resident:
        return
    now.mode = WARMING
    now.region = region
    now.agreeing = 0
    if now.block != NO_BLOCK and now.unit_time == time:
        now.unit_counts = 1
    if not state.rule[0].is_source:
        enter_run(state)


@allocation_free
def _end_life(state, time, issued):  # type: ignore[no-untyped-def]
    """Of the specified block: the source's unit."""
    now = state.now[0]
    unit = state.units[now.num_units]
    now.num_units += 1
    unit.begin, unit.end = now.unit_time, time
    unit.run = state.run_end[now.next - 1]
    unit.sample = NO_SAMPLE
    unit.block = now.block
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
