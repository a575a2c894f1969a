"""An SM, cycle by cycle: schedulers, operand collectors, units, load/store unit, L1, barriers.

The pipeline is Accel-Sim's (Khairy et al., ISCA 2020; its RTX 3070 configuration is the reference). An instruction is
issued at cycle t if its operands are there, the register before the operand collectors of its scheduler is free, and
(for memory) the load/store unit's queue has room. It takes the first of two collectors that is free from t + 1,
leaves it for the register before its unit (a cycle later if it reads registers), enters the unit when that is free, and
its result can be used ``latency`` and the back of the pipeline later. Of two collectors that wait for the same register
the first goes first, so that an instruction in the second may starve. Instructions are fetched in pairs, for four
warps a cycle in turn, when a warp has issued those that it had. The load/store unit takes one instruction at a time,
and gives its requests, the highest address first, to the banks of L1, one a cycle each; they are looked up
``l1_latency`` cycles later. One reply a cycle comes in, and one request a cycle of those that waited for it is written
back (or as many as the port to L2 is wide).

Inside a cycle: replies, lookups, load/store unit, bulk copies, schedulers, fetch, ends of blocks. Cycles in which
nothing can happen are skipped. An SM runs by itself up to a given cycle, since what it asks of L2 is answered later
than that. What a warp waits for stands in gpu/sm/warp_kernel.py, fetch, schedulers and collectors in
gpu/sm/issue_kernel.py, the load/store unit and replies in gpu/sm/memory_kernel.py, L1 in gpu/sm/l1_kernel.py, bulk
copies, barriers in shared memory and products of warp groups in gpu/sm/asynchronous.

Launches whose trace has control bits are issued otherwise on a target that declares such a core: see
gpu/sm/control/issue_kernel.py.

Cost: O(warps of a scheduler) for each instruction, O(1) for each request.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm.asynchronous.cluster_kernel import begin_in_cluster, leave
from manyscale.models.gpu.sm.asynchronous.copy_kernel import move_copies
from manyscale.models.gpu.sm.control.issue_kernel import begin_controlled, choose_youngest, issue_controlled
from manyscale.models.gpu.sm.issue_kernel import (
    FETCHED,
    await_fetch,
    choose,
    fetch,
    issue,
)
from manyscale.models.gpu.sm.l1_kernel import forget_all
from manyscale.models.gpu.sm.memory_kernel import load_store, look_up, take_reply
from manyscale.models.gpu.sm.state import COPY_GROUPS, DRAIN, EMPTY, NEVER, OneSm
from manyscale.models.gpu.sm.warp_kernel import account, exit_warp
from manyscale.models.kernels import merged, read_soon, row_of, separate
from manyscale.models.workload.asynchronous import NAMED_BARRIERS

REACHED: Final = 0  # why an SM stopped
BLOCK_ENDED: Final = 1


@separate
def start_block(group, s, program, limits, block, time):  # type: ignore[no-untyped-def]
    """Give a block to a free slot at the end of cycle ``time``; its first warps can issue two cycles later."""
    sm = row_of(group, s, OneSm)
    core = sm.core[0]
    slot = 0
    while sm.block[slot].number >= 0:
        slot += 1
    place = block - program.first_block[0]
    first = program.block_warps[place]
    count = program.block_warps[place + 1] - first
    if core.blocks == 0:
        core.resident_since = time
        account(sm, limits, EMPTY, time)
    core.blocks += 1
    resident = sm.block[slot]
    resident.number = block
    resident.begin = time
    resident.warps = resident.running = count
    resident.arrived = 0
    for number in range(min(NAMED_BARRIERS, sm.barrier.shape[1] - 1)):
        sm.barrier[slot, number].pending = 0
    resident.latest = time + 1
    resident.end = NEVER
    if limits.block_warps > 0:
        resident.first_warp = slot * limits.block_warps
        resident.end_warp = resident.first_warp + limits.block_warps
    else:
        resident.first_warp = core.first_warp
        resident.end_warp = core.end_warp
    if limits.cluster > 1:
        begin_in_cluster(sm, slot)
        sm.place_sm[block] = s
        sm.place_slot[block] = slot
    for i in range(count):
        w = resident.first_warp + i
        warp = sm.warp[w]
        warp.at = program.warp_instructions[first + i]
        warp.last = program.warp_instructions[first + i + 1]
        warp.next_request = program.warp_requests[first + i]
        read_soon(program.instruction, warp.at)
        read_soon(program.active, warp.at)
        read_soon(program.requests, warp.at)
        warp.slot = slot
        warp.scheduler = w % limits.schedulers
        warp.age = core.next_age
        core.next_age += 1
        warp.done = time + 1
        warp.of_pair = 0
        warp.stores = warp.loads = warp.atomics = 0
        warp.copy_group = warp.copy_limit = 0
        warp.fence = 0
        warp.cause = EMPTY
        warp.next_word = program.warp_words[first + i]
        warp.bulk = warp.product_group = warp.has_products = 0
        warp.follower_head = warp.follower_tail = warp.cluster_phase = 0
        warp.limited = 0
        warp.earliest = 0
        for group in range(COPY_GROUPS):
            sm.copies[w, group] = 0
        for register in range(sm.register.shape[1]):
            sm.register[w, register] = 0
        if warp.at == warp.last:
            exit_warp(sm, program, limits, w, time + 1)
            if limits.cluster > 1:
                leave(sm, program, limits, w, time + 1)
            continue
        warp.front = program.static[program.instruction[warp.at]].front
        if limits.controlled:
            begin_controlled(sm, program, limits, w, time)
            continue
        await_fetch(sm, w)
        sm.try_at[0] = min(sm.try_at[0], time + 1)
    if count == 0:
        resident.end = time + 1
        core.next_end = min(core.next_end, time + 1)


@separate
def _end_blocks(sm, limits, time):  # type: ignore[no-untyped-def]
    """Free the slots of blocks that ended: how many."""
    core = sm.core[0]
    ended = 0
    core.next_end = NEVER
    for slot in range(limits.slots):
        block = sm.block[slot]
        if block.number < 0:
            continue
        if block.end > time:
            core.next_end = min(core.next_end, block.end)
            continue
        ended += 1
        core.blocks -= 1
        core.warp_cycles += (block.end_warp - block.first_warp) * (time - block.begin)
        sm.record_sm[block.number] = core.number
        sm.record_begin[block.number] = block.begin
        sm.record_end[block.number] = time
        sm.ended[0] += 1
        sm.ended[sm.ended[0]] = block.number
        block.number = -1
    if core.blocks == 0:
        core.active_cycles += time - core.resident_since
        account(sm, limits, DRAIN, time)
        forget_all(sm)
    return ended


@merged
def _next_event(core, bank_next, try_at):  # type: ignore[no-untyped-def]
    time = min(core.next_end, core.next_reply, core.next_load_store, core.next_copy)
    for bank in range(len(bank_next)):
        time = min(time, bank_next[bank])
    for k in range(len(try_at)):
        time = min(time, try_at[k])
    return time


@merged
def next_event(group, s):  # type: ignore[no-untyped-def]
    """The next cycle in which something can happen, or a request leave that has not been collected; NEVER: nothing
    before a reply."""
    core = group.core[s]
    time = _next_event(core, group.bank_next[s], group.try_at[s])
    return min(time, group.sent[s, 0].time) if core.out > 0 else time


@separate
def advance(group, s, program, limits, until):  # type: ignore[no-untyped-def]
    """Run an SM up to cycle ``until``, or to the end of a cycle in which a block ends: which."""
    sm = row_of(group, s, OneSm)
    core = sm.core[0]
    bank_next = sm.bank_next
    try_at = sm.try_at
    time = max(core.time, _next_event(core, bank_next, try_at))
    while time < until:
        taken = 0
        while core.next_reply <= time:
            taken += 1
            take_reply(sm, program, limits, time, taken == limits.port)
        for bank in range(limits.banks):
            if bank_next[bank] <= time:
                look_up(sm, program, limits, bank, time)
        if core.next_load_store <= time:
            load_store(sm, program, limits, time)
        if core.next_copy <= time:
            move_copies(sm, program, limits, time)
        for k in range(limits.schedulers):
            if try_at[k] <= time:
                if limits.controlled:
                    w = choose_youngest(sm, program, limits, k, time)
                    if w >= 0:
                        try_at[k] = time + 1
                        issue_controlled(sm, program, limits, k, w, time)
                    continue
                w = choose(sm, limits, k, time)
                if w >= 0:
                    try_at[k] = time + 1
                    issue(sm, program, limits, k, w, time)
        if core.used_up + core.to_fetch > 0:
            if core.to_fetch > 0 or core.used_up >= FETCHED:
                fetch(sm, program, limits, time)
            else:
                core.last_fetched = core.used_up_last
                core.used_up = 0
        if core.next_end <= time and _end_blocks(sm, limits, time) > 0:
            core.time = time + 1
            return BLOCK_ENDED
        time = max(time + 1, _next_event(core, bank_next, try_at))
    core.time = until
    return REACHED
