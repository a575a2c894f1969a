"""Samples spread over each run of a region's blocks: the rules ``spread`` of tbpoint/state.py, which calls this.

How fast the GPU runs is measured by *lives*. An epoch is as many blocks as the GPU holds, E. From the dispatch of a
block to that of the E-th one behind it the GPU replaces all it holds, whatever the phases of the residents are. So the
mean of that time over E consecutive dispatches, and of the instructions in between, is a unit: it does not feel that
blocks which began together also end together, as the time between every E-th end does (hotspot on 46 SMs: 25 % and
19 % too long in the first two epochs, against 7 % and 0 %).

* A launch begins with cold caches, and with residents in step. A run is *warm* once the last unit differs from the one
  before it by at most AGREES and from the one before that by at most twice as much (two units are enough where they
  differ by half of AGREES), or, where single units scatter, once the second half of all runs as the second quarter
  does, within the standard error. It takes half the ``share`` of the run at least.
* Nor is a run warm while its residents are falling out of step: they may agree for three lives at a speed that they
  then leave (a launch of BFS on the source's machine: 23 % too long, which three units of 1.233, 1.223 and 1.227 did
  not show). How much they are in step is the length of the mean of their dispatches, as points on a circle whose
  round is a life: 1 if all begin together, 0 if evenly over a life. As long as that is above IN_STEP and falls by more
  than FALLS in a unit, the run is not warm. Equal blocks that stay in step are.
* The first sample is what agrees with the last unit, of the second half.
* So many further ones follow as ``share`` leaves room for, ``samples`` in all at most. Each begins with DISCARDED
  epochs that do not count: caches are not what they would be. Distances vary (multiples of the golden ratio modulo 1),
  in step with no period of blocks.
* Where there is no room for one, the rest is skipped but for its last, partial wave. But where L2 is filled (from then
  on lines have to leave it, and be written back) the run changes: a little behind that a sample is taken in any case,
  and what is skipped up to there has the speed of the sample before.
* Whole epochs are skipped: where residents are in step, the last wave is as full as that of the whole run. If nothing
  else follows in the launch, that wave runs first, and the last blocks are the ones that are skipped: blocks behind a
  skip run slower, and would be in the time of the launch (2 % of a launch of 19 waves of MST on the source's machine).

What that takes at least: FEWEST + 1 epochs to be warm (one less where nothing is to be warmed), up to one at the end,
and DISCARDED + LEAST_UNITS where L2 is filled. A run of which that leaves less than LEAST_SKIPPED is simulated.
"""

from __future__ import annotations

import math
from typing import Final

from manyscale.models.kernels import allocation_free

OUTSIDE: Final = 0
WARMING: Final = 1
FORWARDING: Final = 2
NO_BLOCK: Final = -1
NO_SAMPLE: Final = -1
DISCARDED: Final = 1  # epochs after a skip
LEAST_UNITS: Final = 2  # of a sample, where there is room
LEAST_SKIPPED: Final = 0.15
FEWEST: Final = 3  # units until a run is warm
AGREES: Final = 0.01
SHORT: Final = 12  # epochs: of a share no larger than that all is the first sample
BEYOND: Final = 0.25  # of the blocks that fill L2: until it shows
SCATTER: Final = 8  # units from which on scattered ones are looked at
IN_STEP: Final = 0.5
FALLS: Final = 0.03
STAYS: Final = 0.005  # the same of two units that are enough
_GOLDEN: Final = 0.6180339887498949


@allocation_free
def enter_run(state):  # type: ignore[no-untyped-def]
    """All resident blocks are of the region that is entered."""
    now = state.now[0]
    now.began = now.dispatched - now.resident
    now.counted = now.began + state.rule[0].epoch
    if now.num_units > 0 and state.units[now.num_units - 1].sample == now.sample:
        now.sample += 1  # that of the run before
    now.units_before = now.num_units
    now.left = state.rule[0].samples
    now.discard = 0
    now.sample_end = 0


@allocation_free
def tell_dispatch(state, block, time):  # type: ignore[no-untyped-def]
    """After `RegionSampling.now` was brought up to date with the dispatch of ``block``."""
    now = state.now[0]
    index = now.dispatched
    now.dispatched = index + 1
    state.times[index + 1] = state.times[index] + time
    begun = state.begun[index] + state.instructions[block + 1] - state.instructions[block]
    state.begun[index + 1] = begun
    state.works[index + 1] = state.works[index] + begun


@allocation_free
def look(state, time):  # type: ignore[no-untyped-def]
    """Whether an epoch or a sample is complete, after a dispatch in a region that is simulated."""
    now, rule = state.now[0], state.rule[0]
    if now.mode != WARMING or now.left <= 0:
        return
    is_last = now.next >= state.region.shape[0] or state.run_end[now.next - 1] == now.next
    length = now.dispatched - now.counted
    if length >= rule.epoch or (is_last and 2 * length >= rule.epoch):
        _end_unit(state, now.counted, now.dispatched)
        now.counted = now.dispatched
    now.unit_time = time
    if is_last:
        now.left = 0
        if now.sample_end == 0:
            _forget_units(state, now.num_units - now.units_before)
        return
    if length < rule.epoch:
        return
    if now.sample_end > 0:
        if now.left > 1 and now.dispatched >= now.sample_end:
            _skip(state)
        return
    agreeing = _agreeing(state)
    if agreeing > 0:
        _forget_units(state, now.num_units - now.units_before - agreeing)
        _plan(state)


@allocation_free
def _forget_units(state, count):  # type: ignore[no-untyped-def]
    """The first ones of the run are in no sample: it was not warm."""
    first = state.now[0].units_before
    for i in range(first, first + count):
        state.units[i].sample = NO_SAMPLE


@allocation_free
def _end_unit(state, first, end):  # type: ignore[no-untyped-def]
    """Of dispatches [first, end), in their order."""
    now = state.now[0]
    epoch, length = state.rule[0].epoch, end - first
    unit = state.units[now.num_units]
    now.num_units += 1
    unit.first, unit.length = first, length
    unit.begin = (state.times[end - epoch] - state.times[first - epoch]) / length
    unit.end = (state.times[end] - state.times[first]) / length
    work = state.works[end] - state.works[first] - (state.works[end - epoch] - state.works[first - epoch])
    unit.ipc = work / length / max(unit.end - unit.begin, 1.0)
    unit.step = _in_step(state, first, end, max(unit.end - unit.begin, 1.0))
    unit.region = now.region
    unit.run = state.run_end[now.next - 1]
    unit.block = NO_BLOCK
    unit.sample = now.sample


@allocation_free
def _in_step(state, first, end, life):  # type: ignore[no-untyped-def]
    """How much dispatches [first, end) are in step (the resultant length of their phases in a ``life``)."""
    east, north = 0.0, 0.0
    for i in range(first, end):
        phase = 2 * math.pi * (state.times[i + 1] - state.times[i]) / life
        east += math.cos(phase)
        north += math.sin(phase)
    return math.sqrt(east * east + north * north) / (end - first)


@allocation_free
def _agreeing(state):  # type: ignore[no-untyped-def]
    """How many of the last units are the first sample; 0: the run is not warm."""
    now = state.now[0]
    last = now.num_units - 1
    count = now.num_units - now.units_before
    share = state.rule[0].share * _epochs(state)
    if share > SHORT:
        share /= 2
    if count < 2 or count + 1 < share - 0.5 or _fills_soon(state, 2):
        return 0
    step = state.units[last].step
    if step > IN_STEP and state.units[last - 1].step - step > (FALLS if count >= FEWEST else STAYS):
        return 0
    ipc = state.units[last].ipc
    one = abs(state.units[last - 1].ipc / ipc - 1) if ipc > 0 else 1.0
    if count < FEWEST:
        return 2 if one <= AGREES / 2 else 0
    two = abs(state.units[last - 2].ipc / ipc - 1) if ipc > 0 else 1.0
    if one <= AGREES and two <= 2 * AGREES:
        found = 2
        while found < count // 2 and abs(state.units[last - found].ipc / ipc - 1) <= AGREES:
            found += 1
        return found
    return count // 2 if count >= SCATTER and count % 4 == 0 and _is_level(state, count) else 0


@allocation_free
def _fills_soon(state, epochs):  # type: ignore[no-untyped-def]
    """Whether a block of the next ``epochs`` fills L2, or one of the last did."""
    next_block, rule = state.now[0].next, state.rule[0]
    return next_block - rule.epoch <= rule.full < next_block + epochs * rule.epoch


@allocation_free
def _is_level(state, count):  # type: ignore[no-untyped-def]
    """Whether the second half of the last ``count`` units runs as the second quarter, within the standard error."""
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
    return abs(after - before) <= (squares / (half + quarter - 2) * (1 / half + 1 / quarter)) ** 0.5


@allocation_free
def _epochs(state):  # type: ignore[no-untyped-def]
    last = state.now[0].next - 1
    return (state.run_end[last] - state.run_begin[last]) / state.rule[0].epoch


@allocation_free
def _plan(state):  # type: ignore[no-untyped-def]
    """The run is warm: how many samples follow, and how long each is."""
    now, rule = state.now[0], state.rule[0]
    spare = rule.share * _epochs(state) - (now.dispatched - now.began) / rule.epoch
    most = int(spare / (DISCARDED + LEAST_UNITS))
    now.left = 1 + max(1, min(rule.samples - 1, most))
    now.discard = DISCARDED
    now.length = 0
    if most > 0:
        now.length = DISCARDED + max(LEAST_UNITS, int(spare / (now.left - 1)) - DISCARDED)
    elif now.next <= rule.full < state.run_end[now.next - 1]:
        now.left = 3
    _skip(state)


@allocation_free
def _skip(state):  # type: ignore[no-untyped-def]
    """A sample is complete: how many blocks are skipped before the next one, whole epochs."""
    now, rule = state.now[0], state.rule[0]
    epoch = rule.epoch
    now.left -= 1
    now.sample += 1
    now.before = 0.5
    rest = state.run_end[now.next - 1] - now.next
    whole = (rest - now.left * now.length * epoch) // epoch
    is_little = now.sample_end == 0 and whole < LEAST_SKIPPED * _epochs(state)
    if whole > 0 and now.left > 1:
        if now.length == 0:
            until = (rule.full - now.next) / epoch
            whole = max(0, min(whole - DISCARDED - LEAST_UNITS, int(until + BEYOND * rule.full / epoch)))
            now.before = min(1.0, until / whole) if whole > 0 else 1.0
        else:
            whole = int(whole / now.left * (0.5 + now.sample * _GOLDEN % 1.0))
    if whole <= 0 or is_little:
        now.left = 0  # the rest is simulated
        return
    now.to_skip = whole * epoch
    is_end = now.left == 1 and now.length == 0 and state.run_end[now.next - 1] == state.region.shape[0]
    now.skip_from = now.dispatched + rest - now.to_skip if is_end else 0
    now.counted = now.dispatched + now.discard * epoch
    now.sample_end = now.counted + max(now.length - now.discard, LEAST_UNITS) * epoch
    now.mode = FORWARDING
