"""Launches that run on one GPU at the same time: their blocks share its SMs.

A launch that has the GPU for itself takes what its own simulation says. When another comes before it has ended, the
blocks that it has on SMs by then stay there, and from then on blocks are given out one by one: those of the launch of
the highest priority first, of equal ones those of the launch that came first; a later launch's when all of the
former have been given out; each to the SM with the most free warps among those that have room for it.

A block makes progress at rate 1 (it then takes what it takes in its launch's simulation) unless all blocks together
ask for more of something than there is: issue slots, units and L1 of an SM, L2 and DRAM. Then each resident warp
gets the same share of it, and what some do not need goes to the others. A block goes at the lowest of these rates.

Cost: O(SMs) for a block that is given out, O(SMs x launches) for each time at which some end.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.device.state import NUM_OF_SM, NUM_RESOURCES, WARPS
from manyscale.models.kernels import inner

_NEVER = 1e300
_ROUNDING = 0.01  # ps


@inner
def block_times(devices, launch, block):  # type: ignore[no-untyped-def]
    """When a block of a launch that is alone begins and ends, from the launch's begin, and on which SM."""
    what = devices.launch[launch]
    if what.first_block >= 0:
        k = what.first_block + block
        return what.scale * devices.block_begin[k], what.scale * devices.block_end[k], devices.block_sm[k]
    wave = block // what.at_once
    sms = devices.used.shape[1]
    return wave * what.block_ps, (wave + 1) * what.block_ps, np.int32(block % what.at_once % sms)


@inner
def take_apart(devices, gpu, slot, time):  # type: ignore[no-untyped-def]
    """The launch that was alone on the GPU: where its blocks are at ``time``."""
    me = devices.slot[gpu, slot]
    launch = devices.operation[me.operation].launch
    gone = np.float64(time - me.begin)
    me.left = 0
    me.next_block = devices.launch[launch].blocks
    for block in range(devices.launch[launch].blocks):
        begin, end, sm = block_times(devices, launch, block)
        if end > gone:
            me.left += 1
        if begin > gone:
            me.next_block = min(me.next_block, block)
        elif end > gone:
            _add(devices, gpu, slot, launch, sm, end - gone)


@inner
def _add(devices, gpu, slot, launch, sm, duration):  # type: ignore[no-untyped-def]
    group = devices.group[gpu, slot, sm]
    if group.count == 0:
        group.progress = 0.0
    ends = group.progress + duration
    devices.target[gpu, slot, sm, group.count] = ends
    group.next = min(group.next, ends) if group.count else ends
    group.count += 1
    devices.slot[gpu, slot].resident += 1
    for k in range(4):
        devices.used[gpu, sm, k] += devices.need[launch, k]
    devices.changed[gpu, sm] = 1


@inner
def go_on(devices, gpu, time):  # type: ignore[no-untyped-def]
    """Progress up to ``time``; blocks that have ended leave."""
    passed = np.float64(time - devices.gpu[gpu].now)
    devices.gpu[gpu].now = time
    for slot in range(devices.slot.shape[1]):
        me = devices.slot[gpu, slot]
        if me.operation < 0 or me.resident == 0:
            continue
        launch = devices.operation[me.operation].launch
        for sm in range(devices.used.shape[1]):
            group = devices.group[gpu, slot, sm]
            if group.count == 0:
                continue
            group.progress += passed * group.rate
            if group.next > group.progress + _ROUNDING:
                continue
            kept = 0
            nearest = _NEVER
            for k in range(group.count):
                ends = devices.target[gpu, slot, sm, k]
                if ends > group.progress + _ROUNDING:
                    devices.target[gpu, slot, sm, kept] = ends
                    kept += 1
                    nearest = min(nearest, ends)
            ended = group.count - kept
            group.count = kept
            group.next = nearest
            me.left -= ended
            me.resident -= ended
            for k in range(4):
                devices.used[gpu, sm, k] -= ended * devices.need[launch, k]
            devices.changed[gpu, sm] = 1


@inner
def give_out(devices, gpu):  # type: ignore[no-untyped-def]
    """Blocks to SMs that have room."""
    while True:
        slot = _first(devices, gpu)
        if slot < 0:
            return
        me = devices.slot[gpu, slot]
        launch = devices.operation[me.operation].launch
        while me.next_block < devices.launch[launch].blocks:
            sm = _roomiest(devices, gpu, launch)
            if sm < 0:
                return
            begin, end, _ = block_times(devices, launch, me.next_block)
            _add(devices, gpu, slot, launch, sm, end - begin)
            me.next_block += 1


@inner
def _first(devices, gpu):  # type: ignore[no-untyped-def]
    """Slot of the launch whose blocks are next, -1: none has more."""
    best = -1
    for slot in range(devices.slot.shape[1]):
        me = devices.slot[gpu, slot]
        if me.operation < 0:
            continue
        operation = devices.operation[me.operation]
        if me.next_block >= devices.launch[operation.launch].blocks:
            continue
        if best >= 0:
            priority = devices.stream[operation.stream].priority
            other = devices.slot[gpu, best]
            of_other = devices.stream[devices.operation[other.operation].stream].priority
            if priority > of_other or (priority == of_other and me.arrival > other.arrival):
                continue
        best = slot
    return best


@inner
def _roomiest(devices, gpu, launch):  # type: ignore[no-untyped-def]
    """The SM with the most free warps of those that have room for a block, -1: none has."""
    best = -1
    for sm in range(devices.used.shape[1]):
        fits = True
        for k in range(4):
            fits = fits and devices.used[gpu, sm, k] + devices.need[launch, k] <= devices.limit[k]
        if fits and (best < 0 or devices.used[gpu, sm, WARPS] < devices.used[gpu, best, WARPS]):
            best = sm
    return best


@inner
def set_rates(devices, gpu):  # type: ignore[no-untyped-def]
    """How fast the blocks of each group go: in how many ps the first of all ends (_NEVER: there is none)."""
    slots = devices.slot.shape[1]
    for sm in range(devices.used.shape[1]):
        if devices.changed[gpu, sm] == 0:
            continue
        devices.changed[gpu, sm] = 0
        for slot in range(slots):
            devices.group[gpu, slot, sm].issue = 1.0
        for what in range(NUM_OF_SM):
            level = _level(devices, gpu, sm, what)
            if level < _NEVER:
                for slot in range(slots):
                    group = devices.group[gpu, slot, sm]
                    if group.count:
                        group.issue = min(group.issue, _share(devices, gpu, slot, what, level))
    for slot in range(slots):
        devices.slot[gpu, slot].level = 1.0
    for what in range(NUM_OF_SM, NUM_RESOURCES):
        level = _level(devices, gpu, -1, what)
        if level < _NEVER:
            for slot in range(slots):
                me = devices.slot[gpu, slot]
                if me.operation >= 0 and me.resident:
                    me.level = min(me.level, _share(devices, gpu, slot, what, level))
    nearest = _NEVER
    for slot in range(slots):
        me = devices.slot[gpu, slot]
        if me.operation < 0 or me.resident == 0:
            continue
        for sm in range(devices.used.shape[1]):
            group = devices.group[gpu, slot, sm]
            if group.count:
                group.rate = min(me.level, group.issue)
                nearest = min(nearest, (group.next - group.progress) / group.rate)
    return nearest


@inner
def _share(devices, gpu, slot, what, level):  # type: ignore[no-untyped-def]
    """The rate of a launch's blocks where each warp gets ``level`` of something."""
    launch = devices.operation[devices.slot[gpu, slot].operation].launch
    wanted = devices.use[launch, what] / devices.need[launch, WARPS]
    return 1.0 if wanted <= level else level / wanted


@inner
def _level(devices, gpu, sm, what):  # type: ignore[no-untyped-def]
    """What each warp gets of something at most, so that all together take no more than there is: of an SM, or (-1) of
    the whole GPU. _NEVER where there is enough."""
    left = devices.rate[what]
    warps = 0.0
    asked = 0.0
    for slot in range(devices.slot.shape[1]):
        me = devices.slot[gpu, slot]
        me.is_within = 1
        if me.operation < 0:
            continue
        count = me.resident if sm < 0 else devices.group[gpu, slot, sm].count
        if count:
            me.is_within = 0
            launch = devices.operation[me.operation].launch
            asked += count * devices.use[launch, what]
            warps += count * devices.need[launch, WARPS]
    if asked <= left:
        return _NEVER
    while True:
        level = left / warps
        is_settled = True
        for slot in range(devices.slot.shape[1]):
            me = devices.slot[gpu, slot]
            if me.is_within:
                continue
            launch = devices.operation[me.operation].launch
            if devices.use[launch, what] <= level * devices.need[launch, WARPS]:
                count = me.resident if sm < 0 else devices.group[gpu, slot, sm].count
                me.is_within = 1
                left -= count * devices.use[launch, what]
                warps -= count * devices.need[launch, WARPS]
                is_settled = False
        if is_settled or warps <= 0:
            return level
