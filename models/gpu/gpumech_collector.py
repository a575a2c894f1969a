"""Which level answers each access of a launch: warps access the caches in turn, without time.

Source: GPUMech's input collector (Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.5): L1 of each SM
and the L2 of all are simulated over the warps that are resident together, round robin; an access counts by its slowest
request; what each instruction meets, over all its executions, is its distribution of miss events.

In a turn each warp makes the accesses of one of its segments (gpumech_segments.py), which it does without waiting for
any of them; inside a turn the warps of an SM access one after the other, an instruction each. A request for what
another one missed in the same turn, in that L1 or in L2, waits for the same answer (``pending``; else it counts as a
hit, as in the source). Where more wait than a cache has room for, it does nothing until they are answered, and the
access that was too many is marked. Blocks begin in their order, as many on each SM as it holds, and then where one ends
first, counted in turns.

Cost: O(requests), and O(1) for each segment.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.functional_caches import FULL, READS, WRITTEN_BACK, count_of, fill, read, write
from manyscale.models.gpu.gpumech_segments import BLOCKS_L1, BLOCKS_L2, IN_SHARED, LOADS, PASSES_L1, STORES
from manyscale.models.kernels import inlined, njit

FROM_L1, FROM_L2, FROM_DRAM = range(3)  # levels
(TO_L1, TO_L2, TO_DRAM, REQUESTS, SENT, FETCHED, NUM_EVENTS) = range(7)  # columns of what an instruction meets:
# executions by level, requests, those that leave the SM, those that memory answers


@inlined
def _slice_of(l2, line):  # type: ignore[no-untyped-def]
    hashed = line ^ (line >> 7) ^ (line >> 13)
    slices = len(l2.turn)
    return hashed % slices if slices & (slices - 1) else hashed & (slices - 1)


@inlined
def _send(own, which, count):  # type: ignore[no-untyped-def]
    """``count`` requests for a line go to a slice of L2."""
    own.sent += count
    if count > own.together:
        own.together = count
        own.slice = which


@inlined
def _from_l2(own, l2, l2_rules, tag, sectors, pending):  # type: ignore[no-untyped-def]
    """L2 is asked for sectors of a line: its frame there, and the mask of those that memory answers."""
    which = _slice_of(l2, tag)
    at, missing, before, _, blocked = read(l2, l2_rules, 0, tag, sectors, which)
    if blocked and pending:
        own.blocks |= BLOCKS_L2
        l2.turn[which] += 1
    count = count_of(sectors)
    l2.counts[READS] += count
    _send(own, which, count)
    if missing:
        fill(l2, 0, at, missing, which, missing)
        own.fetched += count_of(missing)
    return at, missing | before if pending else missing


@inlined
def _through_l1(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, pending):  # type: ignore[no-untyped-def]
    """Sectors of a line are loaded: the slowest level that answers."""
    at, missing, before, from_memory, blocked = read(l1, l1_rules, s, tag, sectors, s)
    if blocked and pending:
        own.blocks |= BLOCKS_L1
        l1.turn[s] += 1
    level = FROM_L1
    if missing:
        _, memory = _from_l2(own, l2, l2_rules, tag, missing, pending)
        fill(l1, s, at, missing, s, memory)
        level = FROM_DRAM if memory else FROM_L2
    if pending and before:
        own.waited += count_of(before)
        level = max(level, FROM_DRAM if from_memory else FROM_L2)
    return level


@inlined
def _load(own, l1, l1_rules, s, l2, l2_rules, request, first, bank_mask, pending):  # type: ignore[no-untyped-def]
    """Through L1, the highest address first; its banks take one request a cycle each, in order."""
    shift = l1_rules.sector_shift
    used, passes, level = 0, 1, FROM_L1
    tag = np.int64(-1)
    sectors = 0
    for i in range(first + own.requests - 1, first - 1, -1):
        sector = request[i]
        bank = 1 << (sector & bank_mask)
        if used & bank:
            passes += 1
            used = 0
        used |= bank
        if sector >> shift != tag:
            if sectors:
                below = _through_l1(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, pending)
                level = max(level, below)
            tag = sector >> shift
            sectors = 0
        sectors |= 1 << (sector - (tag << shift))
    if sectors:
        level = max(level, _through_l1(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, pending))
    l1.counts[READS] += own.requests
    own.passes = passes
    own.level = level


@inlined
def _pass_l1(own, l2, l2_rules, request, written, first, pending):  # type: ignore[no-untyped-def]
    """One request a cycle."""
    own.level = FROM_L2
    for i in range(first, first + own.requests):
        tag = request[i] >> l2_rules.sector_shift
        bit = 1 << (request[i] - (tag << l2_rules.sector_shift))
        at, memory = _from_l2(own, l2, l2_rules, tag, bit, pending)
        if memory:
            own.level = FROM_DRAM
        if written[i]:
            l2.line[0, at].dirty |= bit
    own.passes = max(1, own.requests)


@inlined
def _write(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, full):  # type: ignore[no-untyped-def]
    if own.kind == STORES:
        write(l1, l1_rules, s, tag, sectors, full)
    write(l2, l2_rules, 0, tag, sectors, full)
    _send(own, _slice_of(l2, tag), count_of(sectors))


@inlined
def _store(own, l1, l1_rules, s, l2, l2_rules, request, written, first, bank_mask):  # type: ignore[no-untyped-def]
    shift = l2_rules.sector_shift
    used, passes = 0, 1
    tag = np.int64(-1)
    sectors, full = 0, 0
    for i in range(first + own.requests - 1, first - 1, -1):
        sector = request[i]
        bank = 1 << (sector & bank_mask)
        if used & bank:
            passes += 1
            used = 0
        used |= bank
        if sector >> shift != tag:
            if sectors:
                _write(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, full)
            tag = sector >> shift
            sectors, full = 0, 0
        bit = 1 << (sector - (tag << shift))
        sectors |= bit
        if written[i] == FULL:
            full |= bit
    if sectors:
        _write(own, l1, l1_rules, s, l2, l2_rules, tag, sectors, full)
    own.level = FROM_L2
    own.passes = passes if own.kind == STORES else max(1, own.requests)


@inlined
def _take(own, l1, l1_rules, s, l2, l2_rules, request, written, first, bank_mask, pending, met):  # type: ignore[no-untyped-def]
    """An access: how many requests it has."""
    own.sent = 0
    own.together = 0
    own.slice = 0
    own.waited = 0
    own.fetched = 0
    own.blocks = 0
    events = met[own.row]
    events[REQUESTS] += own.requests
    if own.kind == IN_SHARED:
        own.passes = max(1, own.requests)
        own.level = FROM_L1
        events[TO_L1] += 1
        return 0
    written_back = l2.counts[WRITTEN_BACK]
    if own.kind == LOADS:
        _load(own, l1, l1_rules, s, l2, l2_rules, request, first, bank_mask, pending)
    elif own.kind == PASSES_L1:
        _pass_l1(own, l2, l2_rules, request, written, first, pending)
    else:
        _store(own, l1, l1_rules, s, l2, l2_rules, request, written, first, bank_mask)
    events[own.level] += 1
    events[SENT] += own.sent
    events[FETCHED] += own.fetched
    own.fetched += min(l2.counts[WRITTEN_BACK] - written_back, 255 - own.fetched)
    return own.requests


@inlined
def _take_turn(  # type: ignore[no-untyped-def]
    segment, access, moving, active, at_segment, at_access, at_request, l1, l1_rules, s, l2, l2_rules, request, written,
    bank_mask, pending, met,
):  # fmt: skip
    """The accesses of a segment of each of an SM's warps, one of each warp after the other."""
    step = 0
    while active > 0:
        step += 1
        kept = 0
        for i in range(active):
            warp = moving[i]
            at_request[warp] += _take(
                access[at_access[warp]], l1, l1_rules, s, l2, l2_rules, request, written, at_request[warp], bank_mask,
                pending, met,
            )  # fmt: skip
            at_access[warp] += 1
            if segment[at_segment[warp]].accesses > step:
                moving[kept] = warp
                kept += 1
            else:
                at_segment[warp] += 1
        active = kept


@njit(cache=True, nogil=True)
def walk(  # type: ignore[no-untyped-def]
    segment, access, first_segment, first_access, block_warps, warp_requests, request, written, l1, l1_rules, l2,
    l2_rules, bank_mask, num_sms, slots, pending, met,
):  # fmt: skip
    """Fill in what the caches say of each access, and ``met`` int64[static, NUM_EVENTS]."""
    num_blocks = len(block_warps) - 1
    num_warps = len(first_segment) - 1
    at_segment = first_segment[:-1].copy()
    at_access = first_access[:-1].copy()
    at_request = warp_requests[:-1].copy()
    most = 0
    for block in range(num_blocks):
        most = max(most, block_warps[block + 1] - block_warps[block])
    running = np.empty((num_sms, slots * most), np.int32)
    moving = np.empty(slots * most, np.int32)
    count = np.zeros(num_sms, np.int64)
    block_of = np.empty(num_warps, np.int32)
    left = np.empty(num_blocks, np.int32)
    for block in range(num_blocks):
        left[block] = block_warps[block + 1] - block_warps[block]
        block_of[block_warps[block] : block_warps[block + 1]] = block
    room = np.full(num_sms, slots)
    given = 0
    while given < min(num_blocks, num_sms * slots):
        s = given % num_sms
        for warp in range(block_warps[given], block_warps[given + 1]):
            running[s, count[s]] = warp
            count[s] += 1
        room[s] -= 1
        given += 1
    resident = given
    while resident > 0:
        l1.turn[:] += 1
        l2.turn[:] += 1
        for s in range(num_sms):
            active = 0
            for i in range(count[s]):
                warp = running[s, i]
                at = at_segment[warp]
                end = first_segment[warp + 1]
                while at < end and segment[at].accesses == 0:
                    at += 1
                at_segment[warp] = at
                if at < end:
                    moving[active] = warp
                    active += 1
            _take_turn(
                segment, access, moving, active, at_segment, at_access, at_request, l1, l1_rules, s, l2, l2_rules,
                request, written, bank_mask, pending, met,
            )  # fmt: skip
            kept = 0
            for i in range(count[s]):
                warp = running[s, i]
                if at_segment[warp] < first_segment[warp + 1]:
                    running[s, kept] = warp
                    kept += 1
                    continue
                left[block_of[warp]] -= 1
                if left[block_of[warp]] == 0:
                    room[s] += 1
                    resident -= 1
            count[s] = kept
        for s in range(num_sms):
            while room[s] > 0 and given < num_blocks:
                for warp in range(block_warps[given], block_warps[given + 1]):
                    running[s, count[s]] = warp
                    count[s] += 1
                if block_warps[given] == block_warps[given + 1]:
                    given += 1
                    continue
                room[s] -= 1
                resident += 1
                given += 1


@njit(cache=True, nogil=True)
def touch_in_order(request, written, l2, l2_rules):  # type: ignore[no-untyped-def]
    """L2 takes requests in the order of the trace."""
    shift = l2_rules.sector_shift
    l2.turn[:] += 1
    for i in range(len(request)):
        tag = request[i] >> shift
        bit = 1 << (request[i] - (tag << shift))
        if written[i]:
            write(l2, l2_rules, 0, tag, bit, bit if written[i] == FULL else 0)
        else:
            which = _slice_of(l2, tag)
            at, missing, _, _, _ = read(l2, l2_rules, 0, tag, bit, which)
            if missing:
                fill(l2, 0, at, missing, which, missing)
