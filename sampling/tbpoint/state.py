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

*Spread* (the default). One block's life says little: residents are in step when a launch begins, and it takes many
lives until they no longer are (vectorAdd on 4 SMs: 45, in which the IPC falls by a fifth). So

* a unit is an epoch: as many ends of blocks as the GPU holds;
* a run begins with a *warm* part of half the ``share`` of its blocks, FIRST_LOOK epochs at least. Once its second half
  runs as its second quarter does, within SETTLED or the standard error, that half is the first sample; else the warm
  part is made twice as long;
* the other samples, ``samples`` in all, share the rest of ``share``, LEAST_UNITS epochs each at least. Each begins with
  DISCARDED epochs that do not count: caches are not what they would be. Distances vary (multiples of the golden ratio
  modulo 1), in step with no period of blocks; the last sample is the end of the run, so that what ends there is
  simulated;
* a run too short for that is simulated.

Choices for both, where the source is silent:

* Skipped time is put in without draining: resident blocks are as they were when the first one is skipped, and the first
  block behind takes the free slot. In a steady state the GPU is as full before the skipped blocks as behind them;
  letting the residents end first would count a drain that the whole run does not have.
* A region that comes back later in the launch is entered and warmed again.
* What the caches see of skipped blocks is the simulator's choice: nothing, or their accesses (`next_block` says which
  they are).

Cost: O(1) for each event; memory 130 B per block.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.sampling.tbpoint.regions import NO_REGION, Regions
from manyscale.sampling.tbpoint.rules import RegionSamplingRules

OUTSIDE: Final = 0
WARMING: Final = 1
FORWARDING: Final = 2
NO_BLOCK: Final = -1
NO_SAMPLE: Final = -1
DISCARDED: Final = 1  # epochs after a skip
LEAST_UNITS: Final = 2  # of a sample
FIRST_LOOK: Final = 4  # epochs, a multiple of 4
SETTLED: Final = 0.02
_GOLDEN: Final = 0.6180339887498949

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
    rule: np.ndarray  # record[1]
    now: np.ndarray  # record[1]
    skips: np.ndarray  # record[blocks], no more than that are used
    units: np.ndarray  # record[blocks], no more than that are used


# epoch: blocks that the GPU holds
_RULE: Final = np.dtype(
    [
        ("is_source", "i8"), ("difference", "f8"), ("units", "i8"),
        ("share", "f8"), ("samples", "i8"), ("epoch", "i8"),
    ]
)  # fmt: skip
# next: block that is dispatched next. resident: blocks. block: the specified one; unit_counts: for the region that was
# entered when it began. agreeing: consecutive units that agree, the last one included. ipc: of the last unit.
# Of rules spread: ended: blocks since the sample began; done: their instructions since the unit began; discard, epochs:
# of the sample, those that do not count and all; left: samples of this run of blocks that are not complete; sample: its
# number in the launch; to_skip: blocks.
_NOW: Final = np.dtype(
    [
        ("next", "i8"), ("resident", "i8"), ("mode", "i8"), ("region", "i8"),
        ("block", "i8"), ("unit_time", "f8"), ("unit_issued", "f8"), ("unit_counts", "i8"),
        ("agreeing", "i8"), ("ipc", "f8"), ("num_skips", "i8"), ("num_units", "i8"),
        ("ended", "i8"), ("done", "i8"), ("discard", "i8"), ("epochs", "i8"), ("left", "i8"), ("sample", "i8"),
        ("to_skip", "i8"),
    ]
)  # fmt: skip
# blocks [first, last], skipped at ``time``. Source: first_unit, the index of the first of the num_units that agreed.
# Spread: sample, the number of the next one
_SKIP: Final = np.dtype(
    [
        ("region", "i8"), ("first", "i8"), ("last", "i8"), ("instructions", "i8"), ("time", "f8"),
        ("first_unit", "i8"), ("num_units", "i8"), ("sample", "i8"),
    ]
)  # fmt: skip
# region NO_REGION: it counts for none. run: the block behind its run of blocks. sample NO_SAMPLE: it was not settled
_UNIT: Final = np.dtype(
    [
        ("block", "i8"), ("region", "i8"), ("run", "i8"), ("sample", "i8"), ("begin", "f8"), ("end", "f8"),
        ("ipc", "f8"),
    ]
)  # fmt: skip


def new_region_sampling(
    regions: Regions, warp_instructions: np.ndarray, rules: RegionSamplingRules = DEFAULT_RULES
) -> RegionSampling:
    """State before the first block of a launch. ``warp_instructions`` int64[blocks]. Raises ValueError if that does not
    fit the regions."""
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
    skip.num_units = now.agreeing
    if not state.rule[0].is_source:
        last = min(last, first + now.to_skip)
        skip.sample = now.sample
        now.mode = WARMING
    skip.region, skip.first, skip.last = now.region, first, last - 1
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
    if now.mode != OUTSIDE and region != now.region:
        _end_half_unit(state, time)
        _leave(now)
    _enter(state, region, time)
    if block + 1 == state.region.shape[0]:
        _end_half_unit(state, time)
    if state.rule[0].is_source and now.block == NO_BLOCK:
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
    elif not state.rule[0].is_source and now.mode == WARMING and now.left > 0:
        now.ended += 1
        now.done += state.instructions[block + 1] - state.instructions[block]
        if now.ended % state.rule[0].epoch == 0:
            _end_epoch(state, time)
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
    rule = state.rule[0]
    now.ended = 0
    now.unit_time = now.unit_time if rule.is_source else time
    now.done = 0
    now.discard = 0
    now.epochs = max(FIRST_LOOK, round(rule.share * _epochs_of_run(state) / 8) * 4)
    now.left = rule.samples
    last = now.next - 1
    if state.run_end[last] - last < (now.epochs + now.left * (1 + DISCARDED + LEAST_UNITS)) * rule.epoch:
        now.left = 0


@allocation_free
def _epochs_of_run(state):  # type: ignore[no-untyped-def]
    last = state.now[0].next - 1
    return (state.run_end[last] - state.run_begin[last]) / state.rule[0].epoch


@allocation_free
def _end_life(state, time, issued):  # type: ignore[no-untyped-def]
    """Of the specified block: the source's unit."""
    now = state.now[0]
    unit = _end_unit(state, now.unit_time, time)
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


@allocation_free
def _end_unit(state, begin, time):  # type: ignore[no-untyped-def]
    now = state.now[0]
    unit = state.units[now.num_units]
    now.num_units += 1
    unit.begin, unit.end = begin, time
    unit.region = now.region
    unit.run = state.run_end[now.next - 1]
    unit.block = NO_BLOCK
    unit.sample = now.sample
    return unit


@allocation_free
def _end_half_unit(state, time):  # type: ignore[no-untyped-def]
    """Blocks of the region come to an end: the unit counts if half of its blocks, or more, have ended."""
    now, rule = state.now[0], state.rule[0]
    if not rule.is_source and now.mode == WARMING and now.left > 0:
        if now.ended % rule.epoch >= (rule.epoch + 1) // 2 and now.ended > now.discard * rule.epoch:
            _end_unit(state, now.unit_time, time)
        now.left = 0


@allocation_free
def _end_epoch(state, time):  # type: ignore[no-untyped-def]
    """As many blocks have ended as the GPU holds."""
    now, rule = state.now[0], state.rule[0]
    if now.ended > now.discard * rule.epoch:
        unit = _end_unit(state, now.unit_time, time)
        unit.ipc = now.done / max(time - now.unit_time, 1.0)
    now.unit_time = time
    now.done = 0
    if now.ended < now.epochs * rule.epoch:
        return
    if now.left == rule.samples:
        if not _is_settled(state, now.epochs):
            now.epochs *= 2
            return
        for i in range(now.num_units - now.epochs, now.num_units - now.epochs // 2):
            state.units[i].sample = NO_SAMPLE
        more = round((rule.share * _epochs_of_run(state) - now.epochs) / (rule.samples - 1)) - DISCARDED
        now.discard = DISCARDED
        now.epochs = DISCARDED + max(LEAST_UNITS, more)
    _end_sample(state)


@allocation_free
def _is_settled(state, count):  # type: ignore[no-untyped-def]
    """Whether the second half of the last ``count`` units runs as the second quarter does."""
    now = state.now[0]
    half, quarter = count // 2, count // 4
    first = now.num_units - count
    before, after, squares = 0.0, 0.0, 0.0
    for i in range(quarter):
        before += state.units[first + quarter + i].ipc
    for i in range(half):
        after += state.units[first + half + i].ipc
    before, after = before / quarter, after / half
    for i in range(quarter):
        squares += (state.units[first + quarter + i].ipc - before) ** 2
    for i in range(half):
        squares += (state.units[first + half + i].ipc - after) ** 2
    error = (squares / (half + quarter - 2) * (1 / half + 1 / quarter)) ** 0.5 if count > 4 else 0.0
    return abs(after - before) <= max(SETTLED * after, error)


@allocation_free
def _end_sample(state):  # type: ignore[no-untyped-def]
    """A sample is complete: how many blocks are skipped before the next one."""
    now, rule = state.now[0], state.rule[0]
    now.ended = 0
    now.left -= 1
    now.sample += 1
    if now.left == 0 or now.next >= state.region.shape[0] or state.region[now.next] != now.region:
        return
    spare = state.run_end[now.next] - now.next - now.left * now.epochs * rule.epoch
    if now.left > 1:
        spare = int(spare / now.left * (0.5 + now.sample * _GOLDEN % 1.0))
    if spare > 0:
        now.to_skip = spare
        now.mode = FORWARDING
