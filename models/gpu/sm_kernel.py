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
back.

Inside a cycle: replies, lookups, load/store unit, schedulers, fetch, ends of blocks. Cycles in which nothing can happen
are skipped. An SM runs by itself up to a given cycle, since what it asks of L2 is answered later than that.

Cost: O(warps of a scheduler) for each instruction, O(1) for each request.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.l1_kernel import BLOCKED, FULL, HIT, bucket_of, forget_all, read, send, write
from manyscale.models.gpu.launch_program import (
    ATOMIC,
    BARRIER,
    COPY,
    COPY_GROUP,
    COPY_WAIT,
    MEMORY_BARRIER,
    NUM_UNITS,
    REDUCTION,
    SHARED,
    STORE,
)  # fmt: skip
from manyscale.models.gpu.sm_limits import GREEDY, ROUND_ROBIN, TWO_LEVEL
from manyscale.models.gpu.sm_state import (
    AT_BARRIER,
    BANK_QUEUE,
    BEFORE_UNIT,
    BYPASS,
    COLLECTOR,
    COPY_GROUPS,
    DEPENDENCY,
    DRAIN,
    EMPTY,
    EXITED,
    FREE,
    FROM_L1,
    FROM_SHARED,
    IN_FRONT,
    ISSUE,
    LOAD_STORE,
    NEVER,
    RUNNING,
    STORES,
    UNIT_BUSY,
    WAITS_BARRIER,
    WAITS_FETCH,
    WAITS_MEMORY,
    OneSm,
)  # fmt: skip
from manyscale.models.kernels import allocation_free, by_reference, inlined, read_soon

REACHED: Final = 0  # why an SM stopped
BLOCK_ENDED: Final = 1
_REPLY: Final = 2  # cycles from L2's output to L1
_WRITEBACK: Final = 2  # from there to a register
_FETCHED: Final = 4  # pairs of instructions, each cycle
_PAIR: Final = 2


@inlined
def one_of(group, s):  # type: ignore[no-untyped-def]
    """The rows of an SM."""
    return OneSm(  # type: ignore[call-arg]
        group.core[s : s + 1], group.warp[s], group.ready[s], group.copies[s], group.register[s],
        group.register_cause[s], group.block[s], group.scheduler[s], group.try_at[s], group.unit[s], group.order[s],
        group.queue[s], group.load[s], group.bank[s], group.bank_head[s], group.bank_tail[s], group.bank_next[s],
        group.frame[s], group.miss[s], group.use[s], group.use_begin[s], group.use_end[s], group.filled[s],
        group.bucket[s], group.node[s], group.sent[s], group.reply[s], group.stack[s], group.issued, group.record_sm,
        group.record_begin, group.record_end, group.ended,
    )  # fmt: skip


@allocation_free
def start_block(group, s, program, limits, block, time):  # type: ignore[no-untyped-def]
    """Give a block to a free slot at the end of cycle ``time``; its first warps can issue two cycles later."""
    sm = by_reference(one_of(group, s))
    core = sm.core[0]
    slot = 0
    while sm.block[slot].number >= 0:
        slot += 1
    place = block - program.first_block[0]
    first = program.block_warps[place]
    count = program.block_warps[place + 1] - first
    if core.blocks == 0:
        core.resident_since = time
        _account(sm, limits, EMPTY, time)
    core.blocks += 1
    resident = sm.block[slot]
    resident.number = block
    resident.begin = time
    resident.warps = resident.running = count
    resident.arrived = 0
    resident.latest = time + 1
    resident.end = NEVER
    for i in range(count):
        w = slot * limits.block_warps + i
        warp = sm.warp[w]
        warp.at = program.warp_instructions[first + i]
        warp.last = program.warp_instructions[first + i + 1]
        warp.next_request = program.warp_requests[first + i]
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
        for group in range(COPY_GROUPS):
            sm.copies[w, group] = 0
        for register in range(sm.register.shape[1]):
            sm.register[w, register] = 0
        if warp.at == warp.last:
            _exit(sm, program, limits, w, time + 1)
            continue
        warp.front = program.static[program.instruction[warp.at]].front
        _await_fetch(sm, w)
        sm.try_at[0] = min(sm.try_at[0], time + 1)
    if count == 0:
        resident.end = time + 1
        core.next_end = min(core.next_end, time + 1)


@inlined
def _account(sm, limits, cause, time):  # type: ignore[no-untyped-def]
    """All schedulers have waited for ``cause`` up to ``time``."""
    for k in range(limits.schedulers):
        scheduler = sm.scheduler[k]
        if time > scheduler.active_until:
            sm.stack[cause] += time - scheduler.active_until
            scheduler.active_until = time


@inlined
def _next_ready(sm, program, limits, w, earliest):  # type: ignore[no-untyped-def]
    """When the operands of a warp's next instruction are there."""
    warp = sm.warp[w]
    static = program.static[program.instruction[warp.at]]
    registers = sm.register[w]
    warp.front = static.front
    ready = earliest
    slowest = -1
    for i in range(static.first, static.end):
        register = program.operand[i]
        time = registers[register]
        if time > ready:
            ready = time
            slowest = register
    sm.ready[w] = ready
    warp.cause = sm.register_cause[w, slowest] if slowest >= 0 else DEPENDENCY
    if ready < NEVER:
        k = warp.scheduler
        if ready < sm.try_at[k]:
            sm.try_at[k] = ready


@allocation_free
def _release(sm, program, limits, w, time, cause):  # type: ignore[no-untyped-def]
    """A warp that waited can go on at ``time``."""
    sm.warp[w].state = RUNNING
    _next_ready(sm, program, limits, w, time)
    if sm.ready[w] == time:
        sm.warp[w].cause = cause


@inlined
def _await_fetch(sm, w):  # type: ignore[no-untyped-def]
    """A warp has no instruction to issue."""
    sm.core[0].to_fetch += 1
    sm.warp[w].state = WAITS_FETCH
    sm.ready[w] = NEVER


@allocation_free
def _fetch(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """At the end of a cycle: the next instructions of up to four warps, in turn. The last of four can issue a cycle
    later than the others. (What waits for something else too is taken to get them meanwhile.)"""
    core = sm.core[0]
    if core.to_fetch == 0 and core.used_up == _FETCHED:
        w = core.last_fetched = core.used_up_last
        core.used_up = 0
        sm.ready[w] = max(sm.ready[w], time + 2)
        return
    for k in range(limits.schedulers):
        w = sm.scheduler[k].last_issued
        if sm.scheduler[k].active_until > time and sm.warp[w].of_pair == 0 and sm.warp[w].state == RUNNING:
            _await_fetch(sm, w)
    core.used_up = 0
    left = _FETCHED
    w = core.last_fetched
    for _ in range(limits.warps):
        if left == 0 or core.to_fetch == 0:
            break
        w = w + 1 if w + 1 < limits.warps else 0
        warp = sm.warp[w]
        if warp.state == WAITS_FETCH and sm.block[warp.slot].begin < time:
            left -= 1
            core.to_fetch -= 1
            core.last_fetched = w
            cause = warp.cause
            _release(sm, program, limits, w, time + 1 if left > 0 else time + 2, cause)
    if core.to_fetch > 0:
        sm.try_at[0] = time + 1


@allocation_free
def _release_barrier(sm, program, limits, slot, time):  # type: ignore[no-untyped-def]
    """If all warps of a block that run have arrived, they go on."""
    block = sm.block[slot]
    if block.arrived == 0 or block.arrived < block.running:
        return
    block.arrived = 0
    for w in range(slot * limits.block_warps, (slot + 1) * limits.block_warps):
        if sm.warp[w].state == WAITS_BARRIER:
            _release(sm, program, limits, w, time, AT_BARRIER)


@allocation_free
def _exit(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    warp = sm.warp[w]
    warp.state = EXITED
    sm.ready[w] = NEVER
    sm.block[warp.slot].running -= 1
    _release_barrier(sm, program, limits, warp.slot, time + 1)
    _end_warp(sm, w, time)


@allocation_free
def _end_warp(sm, w, time):  # type: ignore[no-untyped-def]
    """A warp that has exited ends once nothing of it is in flight; with the last one, its block."""
    warp = sm.warp[w]
    if warp.state != EXITED or warp.stores > 0 or warp.loads > 0:
        return
    warp.state = FREE
    block = sm.block[warp.slot]
    block.latest = max(block.latest, time, warp.done)
    block.warps -= 1
    if block.warps == 0:
        block.end = block.latest
        sm.core[0].next_end = min(sm.core[0].next_end, block.end)


@inlined
def _may_go_on(sm, w):  # type: ignore[no-untyped-def]
    """Whether a warp that waits for memory has got it."""
    warp = sm.warp[w]
    if warp.atomics > 0 or (warp.fence and warp.loads > 0):
        return False
    for group in range(max(0, warp.copy_group - COPY_GROUPS + 1), warp.copy_limit):
        if sm.copies[w, group % COPY_GROUPS] > 0:
            return False
    return True


@inlined
def _after_memory(sm, program, limits, w, time, cause):  # type: ignore[no-untyped-def]
    """What a warp does once a memory instruction of it is complete."""
    warp = sm.warp[w]
    if warp.state == RUNNING:
        if sm.ready[w] == NEVER:
            _next_ready(sm, program, limits, w, 0)
    elif warp.state == WAITS_MEMORY:
        if _may_go_on(sm, w):
            warp.fence = 0
            _release(sm, program, limits, w, time, cause)
    elif warp.state == EXITED:
        _end_warp(sm, w, time)


@inlined
def _write_registers(sm, program, w, row, time, cause):  # type: ignore[no-untyped-def]
    for i in range(program.static[row].first, program.static[row].written):
        register = program.operand[i]
        sm.register[w, register] = time
        sm.register_cause[w, register] = cause


@inlined
def _free_load(sm, number):  # type: ignore[no-untyped-def]
    core = sm.core[0]
    if core.free_loads == 0:  # schedulers may wait for one
        for k in range(sm.try_at.shape[0]):
            sm.try_at[k] = 0
    sm.load[number].count = core.freed_load
    core.freed_load = number + 1
    core.free_loads += 1


@allocation_free
def _complete(sm, program, limits, number):  # type: ignore[no-untyped-def]
    """All requests of a memory instruction were answered (or it had none)."""
    load = sm.load[number]
    w = load.warp
    warp = sm.warp[w]
    access = program.static[load.row].access
    time = load.time
    _write_registers(sm, program, w, load.row, time, load.cause)
    warp.loads -= 1
    if access == ATOMIC or access == REDUCTION:
        warp.atomics -= 1
    elif access == COPY:
        sm.copies[w, load.group % COPY_GROUPS] -= 1
    _free_load(sm, number)
    warp.done = max(warp.done, time)
    _after_memory(sm, program, limits, w, time, load.cause)


@inlined
def _answer(sm, program, limits, number, time, cause):  # type: ignore[no-untyped-def]
    load = sm.load[number]
    load.time = max(load.time, time)
    load.cause = max(load.cause, cause)
    load.left -= 1
    if load.left == 0:
        _complete(sm, program, limits, number)


@allocation_free
def expect_first_reply(group, s):  # type: ignore[no-untyped-def]
    """A reply was delivered where none was."""
    core = group.core[s]
    arrival = group.reply[s, core.in_head & (group.reply.shape[1] - 1)].time + _REPLY
    core.next_reply = max(arrival, core.last_fill + 1)


@inlined
def _expect_reply(sm):  # type: ignore[no-untyped-def]
    """When the next reply can come in."""
    core = sm.core[0]
    if core.in_head < core.in_tail:
        arrival = sm.reply[core.in_head & (sm.reply.shape[0] - 1)].time + _REPLY
        core.next_reply = max(arrival, core.last_fill + 1)
    else:
        core.next_reply = NEVER


@allocation_free
def _fill(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """The next reply arrives."""
    core = sm.core[0]
    reply = sm.reply[core.in_head & (sm.reply.shape[0] - 1)]
    tag = reply.tag
    cause = reply.level
    core.in_head += 1
    core.last_fill = time
    _expect_reply(sm)
    if tag >= STORES:
        sm.warp[tag - STORES].stores -= 1
        _end_warp(sm, tag - STORES, time)
        return
    if tag >= BYPASS:
        core.last_writeback = max(time + _WRITEBACK, core.last_writeback + 1)
        _answer(sm, program, limits, tag - BYPASS, core.last_writeback, cause)
        return
    at = tag >> limits.sector_shift
    sector = tag - (at << limits.sector_shift)
    frame = sm.frame[at]
    frame.pending &= ~(1 << sector)
    frame.valid |= 1 << sector
    core.misses -= 1
    miss = sm.miss[at, sector]
    waiting = miss.first
    miss.first = 0
    while waiting:
        node = sm.node[waiting]
        following = node.next
        node.next = core.freed_node
        core.freed_node = waiting
        core.free_nodes += 1
        core.last_writeback = max(time + _WRITEBACK, core.last_writeback + 1)
        _answer(sm, program, limits, node.load, core.last_writeback, cause)
        waiting = following
    for bank in range(limits.banks):
        head = sm.bank_head[bank]
        if head < sm.bank_tail[bank]:
            sm.bank_next[bank] = sm.bank[bank, head & (BANK_QUEUE - 1)].time


@allocation_free
def _look_up(sm, program, limits, bank, time):  # type: ignore[no-untyped-def]
    """The oldest request of a bank is looked up."""
    head = sm.bank_head[bank]
    entry = sm.bank[bank, head & (BANK_QUEUE - 1)]
    number = entry.load
    at = entry.request
    load = sm.load[number]
    access = program.static[load.row].access
    if access == STORE:
        outcome = write(sm, limits, program.request[at], program.written[at], load.warp, time)
    else:
        outcome = read(sm, limits, program.request[at], number, time)
    if outcome == BLOCKED:
        sm.bank_next[bank] = NEVER
        return
    if outcome == FULL:
        entry.time = sm.bank_next[bank] = time + 1
        return
    sm.bank_head[bank] = head + 1
    if head + 1 < sm.bank_tail[bank]:
        following = sm.bank[bank, (head + 1) & (BANK_QUEUE - 1)]
        following.time = sm.bank_next[bank] = max(following.time, time + 1)
    else:
        sm.bank_next[bank] = NEVER
    if access == STORE:
        load.left -= 1
        if load.left == 0:
            _free_load(sm, number)
    elif outcome == HIT:
        _answer(sm, program, limits, number, time, FROM_L1)


@allocation_free
def _send_requests(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """Requests of the current instruction into L1's pipeline, or past it."""
    core = sm.core[0]
    number = core.current
    load = sm.load[number]
    static = program.static[load.row]
    is_store = static.access == STORE
    if static.kind == SHARED:
        core.current = -1
        _free_load(sm, number)
    elif load.count == 0:  # all its threads are masked out
        core.current = -1
        load.time = time
        if is_store:
            _free_load(sm, number)
        else:
            _complete(sm, program, limits, number)
    elif static.passes_l1:
        load.count -= 1
        at = load.first + load.count
        send(sm, time, program.request[at], program.written[at], STORES + load.warp if is_store else BYPASS + number)
        if load.count == 0:
            core.current = -1
            if is_store:
                _free_load(sm, number)
    else:
        used = 0
        for _ in range(limits.banks):
            at = load.first + load.count - 1
            bank = program.request[at] & limits.bank_mask
            tail = sm.bank_tail[bank]
            if used >> bank & 1 or tail - sm.bank_head[bank] >= limits.l1_latency:
                break
            used |= 1 << bank
            entry = sm.bank[bank, tail & (BANK_QUEUE - 1)]
            entry.time = time + limits.l1_latency
            entry.load = number
            entry.request = at
            read_soon(sm.bucket, bucket_of(sm, program.request[at] >> limits.sector_shift))
            if tail == sm.bank_head[bank]:
                sm.bank_next[bank] = entry.time
            sm.bank_tail[bank] = tail + 1
            load.count -= 1
            if load.count == 0:
                core.current = -1
                break


@inlined
def _is_older(sm, limits, k, other):  # type: ignore[no-untyped-def]
    """Whether the memory instruction before the load/store unit was issued before another scheduler's."""
    issued = sm.queue[BEFORE_UNIT, k].issued
    if issued != sm.queue[BEFORE_UNIT, other].issued:
        return issued < sm.queue[BEFORE_UNIT, other].issued
    begin = 1 - issued  # each cycle another scheduler is the first
    return (k + begin) % limits.schedulers < (other + begin) % limits.schedulers


@allocation_free
def _load_store(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """A cycle of the load/store unit: the current instruction, then the next one."""
    core = sm.core[0]
    if core.current >= 0 and time >= core.current_from:
        _send_requests(sm, program, limits, time)
    first = -1
    if core.current < 0 and core.queued > 0:
        for k in range(limits.schedulers):
            entry = sm.queue[BEFORE_UNIT, k]
            if entry.time <= time and (first < 0 or _is_older(sm, limits, k, first)):
                first = k
    if first >= 0:
        core.queued -= 1
        number = core.current = sm.queue[BEFORE_UNIT, first].load
        load = sm.load[number]
        shared = program.static[load.row].kind == SHARED
        core.current_from = time + (max(1, load.count) if shared else 1)
        _move_up(sm, program, limits, first, time)
        sm.try_at[first] = min(sm.try_at[first], time)
        if shared:
            _read_shared(sm, program, limits, number, core.current_from + limits.shared_latency + 1)
    if core.current >= 0:
        core.next_load_store = max(time + 1, core.current_from)
    else:
        core.next_load_store = NEVER
        if core.queued > 0:
            for k in range(limits.schedulers):
                core.next_load_store = min(core.next_load_store, sm.queue[BEFORE_UNIT, k].time)


@allocation_free
def _move_up(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """The load/store unit has taken an instruction of a scheduler: those behind it move, the first collector first."""
    scheduler = sm.scheduler[k]
    queue = sm.queue
    queue[BEFORE_UNIT, k].time = NEVER
    scheduler.queued -= 1
    if scheduler.queued == 0:
        return
    after = limits.front - 2
    place = COLLECTOR
    if max(queue[COLLECTOR + 1, k].time, time + after) < max(queue[COLLECTOR, k].time, time + after):
        place += 1
    moved = queue[place, k]
    before = queue[BEFORE_UNIT, k]
    before.time = max(moved.time, time + after)
    before.issued = moved.issued
    before.load = moved.load
    moved.time = NEVER
    free = before.time - after
    waiting = queue[IN_FRONT, k]
    if waiting.time < NEVER:
        moved.time = free + waiting.time
        moved.issued = waiting.issued
        moved.load = waiting.load
        waiting.time = NEVER
        sm.unit[k, NUM_UNITS].in_front = free
    elif place == COLLECTOR and free < queue[COLLECTOR + 1, k].time - after < NEVER - after:
        # what enters a collector just now takes this one, not the second
        second = queue[COLLECTOR + 1, k]
        moved.time = second.time
        moved.issued = second.issued
        moved.load = second.load
        second.time = NEVER
        scheduler.collector_1 = free
    elif place == COLLECTOR:
        scheduler.collector_0 = free
    else:
        scheduler.collector_1 = free


@allocation_free
def _read_shared(sm, program, limits, number, time):  # type: ignore[no-untyped-def]
    """When the result of an access to shared memory is there is known when its turn comes."""
    load = sm.load[number]
    w = load.warp
    warp = sm.warp[w]
    _write_registers(sm, program, w, load.row, time, FROM_SHARED)
    if program.static[load.row].access == STORE:  # it is over with its turn
        time = sm.core[0].current_from
    warp.done = max(warp.done, time)
    warp.loads -= 1
    _after_memory(sm, program, limits, w, time, FROM_SHARED)


@inlined
def _memory_holds_both(scheduler):  # type: ignore[no-untyped-def]
    """Whether memory instructions fill the collectors, which wait for the load/store unit."""
    return min(scheduler.collector_0, scheduler.collector_1) == NEVER


@inlined
def _can_be_chosen(sm, k, w, time):  # type: ignore[no-untyped-def]
    """0: it can be issued now; else when to try again (NEVER: once the load/store unit took an instruction)."""
    ready = sm.ready[w]
    if ready > time:
        return ready
    front = sm.warp[w].front
    if front == NUM_UNITS:
        if sm.core[0].free_loads == 0:
            return NEVER
    elif _memory_holds_both(sm.scheduler[k]):
        return NEVER
    at = sm.unit[k, front].in_front
    return at if at > time else 0


@inlined
def _issue_memory(sm, program, limits, k, w, at, row, static, time):  # type: ignore[no-untyped-def]
    """A memory instruction on its way to the load/store unit."""
    core = sm.core[0]
    warp = sm.warp[w]
    core.free_loads -= 1
    if core.freed_load:
        number = core.freed_load - 1
        core.freed_load = sm.load[number].count
    else:
        number = core.used_loads
        core.used_loads += 1
    load = sm.load[number]
    access = static.access
    requests = program.requests[at]
    load.warp = w
    load.row = row
    load.left = load.count = requests
    load.first = warp.next_request
    read_soon(program.request, load.first + requests - 1)
    load.time = 0
    load.cause = 0
    load.scheduler = k
    _enter_queue(sm, limits, k, number, static.written < static.end, time)
    shared = static.kind == SHARED
    if shared or access != STORE:
        warp.loads += 1
    for i in range(program.static[row].first, program.static[row].written):
        sm.register[w, program.operand[i]] = NEVER
    if shared:
        return
    warp.next_request += requests
    if access == STORE:
        warp.stores += requests
    elif access == ATOMIC or access == REDUCTION:
        warp.atomics += 1
    elif access == COPY:
        load.group = warp.copy_group
        sm.copies[w, warp.copy_group % COPY_GROUPS] += 1


@inlined
def _enter_queue(sm, limits, k, number, reads, time):  # type: ignore[no-untyped-def]
    """A memory instruction takes a collector, if there is one: until it can leave that for the unit."""
    core = sm.core[0]
    scheduler = sm.scheduler[k]
    entered = max(time + 1, min(scheduler.collector_0, scheduler.collector_1))
    after = limits.front - 2
    if entered == NEVER:
        place = IN_FRONT
        leaves = 1 if reads else 0  # cycles
        sm.unit[k, NUM_UNITS].in_front = NEVER
    else:
        sm.unit[k, NUM_UNITS].in_front = entered
        leaves = entered + 1 if reads else entered
        second = scheduler.collector_0 > entered
        place = COLLECTOR + 1 if second else COLLECTOR
        free = NEVER
        if scheduler.queued == 0:
            place = BEFORE_UNIT
            free = leaves
            if core.current < 0:
                core.next_load_store = min(core.next_load_store, leaves + after)
        if second:
            scheduler.collector_1 = free
            scheduler.second_unit = NUM_UNITS
        else:
            scheduler.collector_0 = free
    scheduler.queued += 1
    core.queued += 1
    entry = sm.queue[place, k]
    entry.time = leaves + after
    entry.issued = time
    entry.load = number


@allocation_free
def _overtake(sm, program, limits, k, begins, interval):  # type: ignore[no-untyped-def]
    """What waits in the second collector for a unit lets an instruction in the first go first, which begins at
    ``begins``, its own turn so far, and takes the next one."""
    scheduler = sm.scheduler[k]
    static = program.static[scheduler.second_row]
    unit = sm.unit[k, scheduler.second_unit]
    w = scheduler.second_warp
    warp = sm.warp[w]
    scheduler.collector_1 = max(scheduler.collector_1, begins)
    unit.before = max(scheduler.collector_1 + limits.front - 2, begins + interval)
    unit.free = unit.before + static.interval
    done = unit.before + limits.back + static.latency
    for i in range(static.first, static.written):
        sm.register[w, program.operand[i]] = done
    warp.done = max(warp.done, done)
    if warp.state == RUNNING and warp.at < warp.last:  # (it may be issuing its last one)
        _next_ready(sm, program, limits, w, sm.ready[w])
    elif warp.state == FREE:
        block = sm.block[warp.slot]
        block.latest = max(block.latest, done)
        if block.warps == 0:
            block.end = block.latest
            sm.core[0].next_end = min(sm.core[0].next_end, block.end)


@allocation_free
def _issue(sm, program, limits, k, w, time):  # type: ignore[no-untyped-def]
    """Issue the next instruction of a warp."""
    core = sm.core[0]
    warp = sm.warp[w]
    scheduler = sm.scheduler[k]
    at = warp.at
    row = program.instruction[at]
    static = program.static[row]
    kind = static.kind
    memory = static.front == NUM_UNITS
    if time > scheduler.active_until:
        split = min(max(sm.ready[w], scheduler.active_until), time)
        sm.stack[warp.cause] += split - scheduler.active_until
        sm.stack[LOAD_STORE if _memory_holds_both(scheduler) else UNIT_BUSY] += time - split
    sm.stack[ISSUE] += 1
    sm.issued[min(time >> limits.ipc_shift, len(sm.issued) - 1)] += 1
    core.instructions += 1
    core.thread_instructions += program.active[at]
    scheduler.active_until = time + 1
    scheduler.last_issued = w
    warp.at = at + 1

    # an operand collector, and the register before the unit
    reads = static.written < static.end
    if memory:
        _issue_memory(sm, program, limits, k, w, at, row, static, time)
    else:
        unit = sm.unit[k, static.front]
        entered = max(time + 1, min(scheduler.collector_0, scheduler.collector_1))
        unit.in_front = entered
        if scheduler.collector_0 > entered:
            leaves = max(entered + 1 if reads else entered, unit.before)
            begins = max(leaves + limits.front - 2, unit.free)
            scheduler.collector_1 = leaves
            scheduler.second_warp = w
            scheduler.second_row = row
            scheduler.second_unit = static.front
            unit.before = begins
            unit.free = begins + static.interval
        elif scheduler.second_unit == static.front and entered < scheduler.collector_1:
            begins = unit.before
            scheduler.collector_0 = scheduler.collector_1
            _overtake(sm, program, limits, k, begins, static.interval)
        else:
            leaves = max(entered + 1 if reads else entered, unit.before)
            begins = max(leaves + limits.front - 2, unit.free)
            scheduler.collector_0 = leaves
            unit.before = begins
            unit.free = begins + static.interval
        done = begins + limits.back + static.latency
        warp.done = max(warp.done, done)
        _write_registers(sm, program, w, row, done, DEPENDENCY)

    if at + 1 == warp.last:
        _exit(sm, program, limits, w, time)
        return
    warp.of_pair += 1
    if warp.of_pair == _PAIR:
        warp.of_pair = 0
        turn = w if w > core.last_fetched else w + limits.warps
        last = core.used_up_last
        if core.used_up == 0 or turn > (last if last > core.last_fetched else last + limits.warps):
            core.used_up_last = w
        core.used_up += 1
    if kind <= SHARED:
        if memory and warp.atomics > 0:
            warp.state = WAITS_MEMORY
            sm.ready[w] = NEVER
            return
    else:
        if kind == BARRIER:
            sm.block[warp.slot].arrived += 1
            warp.state = WAITS_BARRIER
            sm.ready[w] = NEVER
            _release_barrier(sm, program, limits, warp.slot, time + 1)
            return
        if kind == MEMORY_BARRIER:
            warp.fence = 1
        elif kind == COPY_GROUP:
            warp.copy_group += 1
        elif kind == COPY_WAIT:
            warp.copy_limit = warp.copy_group - static.immediate
        if not _may_go_on(sm, w):
            warp.state = WAITS_MEMORY
            sm.ready[w] = NEVER
            return
        warp.fence = 0
    _next_ready(sm, program, limits, w, time + 1)


@allocation_free
def _schedule_in_turn(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """Loose round robin: after the warp that was last, the first that can."""
    step = limits.schedulers
    ready = sm.ready
    begin = sm.scheduler[k].last_issued
    begin = k if begin < 0 else begin + step
    again = NEVER
    for part in range(2):
        w = begin if part == 0 else k
        end = limits.warps if part == 0 else min(begin, limits.warps)
        while w < end:
            if ready[w] <= time:
                at = _can_be_chosen(sm, k, w, time)
                if at == 0:
                    sm.try_at[k] = time + 1
                    _issue(sm, program, limits, k, w, time)
                    return
                again = min(again, at)
            else:
                again = min(again, ready[w])
            w += step
    sm.try_at[k] = again


@allocation_free
def _schedule_oldest(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """The oldest warp that can; first, if ``GREEDY``, the one that was last."""
    again = NEVER
    last = sm.scheduler[k].last_issued
    best = -1
    if limits.scheduler == GREEDY and last >= 0 and _can_be_chosen(sm, k, last, time) == 0:
        best = last
    if best < 0:
        w = k
        while w < limits.warps:
            if best < 0 or sm.warp[w].age < sm.warp[best].age:
                at = _can_be_chosen(sm, k, w, time)
                if at == 0:
                    best = w
                else:
                    again = min(again, at)
            w += limits.schedulers
    if best < 0:
        sm.try_at[k] = again
    else:
        sm.try_at[k] = time + 1
        _issue(sm, program, limits, k, best, time)


@allocation_free
def _schedule_two_level(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """Round robin among active warps (Narasiman et al., MICRO 2011); one that waits for memory, for a barrier or has
    ended makes room for the first of the others that does not."""
    order = sm.order[k]
    count = min(limits.active_warps, len(order))
    place = count
    for i in range(count):
        w = order[i]
        if w < limits.warps and sm.ready[w] < NEVER:
            continue
        for j in range(place, len(order)):
            other = order[j]
            if other < limits.warps and sm.ready[other] < NEVER:
                order[j] = w
                order[i] = other
                place = j + 1
                break
    again = NEVER
    for i in range(count):
        w = order[i]
        if w < limits.warps:
            at = _can_be_chosen(sm, k, w, time)
            if at == 0:
                for j in range(i, count - 1):  # it is the last of them now
                    order[j] = order[j + 1]
                order[count - 1] = w
                sm.try_at[k] = time + 1
                _issue(sm, program, limits, k, w, time)
                return
            again = min(again, at)
    sm.try_at[k] = again


@allocation_free
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
        core.warp_cycles += limits.block_warps * (time - block.begin)
        sm.record_sm[block.number] = core.number
        sm.record_begin[block.number] = block.begin
        sm.record_end[block.number] = time
        sm.ended[0] += 1
        sm.ended[sm.ended[0]] = block.number
        block.number = -1
    if core.blocks == 0:
        core.active_cycles += time - core.resident_since
        _account(sm, limits, DRAIN, time)
        forget_all(sm)
    return ended


@inlined
def _next_event(core, bank_next, try_at):  # type: ignore[no-untyped-def]
    time = min(core.next_end, core.next_reply, core.next_load_store)
    for bank in range(len(bank_next)):
        time = min(time, bank_next[bank])
    for k in range(len(try_at)):
        time = min(time, try_at[k])
    return time


@allocation_free
def next_event(group, s):  # type: ignore[no-untyped-def]
    """The next cycle in which something can happen, or a request leave that has not been collected; NEVER: nothing
    before a reply."""
    core = group.core[s]
    time = _next_event(core, group.bank_next[s], group.try_at[s])
    return min(time, group.sent[s, 0].time) if core.out > 0 else time


@allocation_free
def advance(group, s, program, limits, until, pause):  # type: ignore[no-untyped-def]
    """Run an SM up to cycle ``until``; with ``pause`` only to the end of a cycle in which a block ends: which."""
    sm = by_reference(one_of(group, s))
    core = sm.core[0]
    bank_next = sm.bank_next
    try_at = sm.try_at
    time = max(core.time, _next_event(core, bank_next, try_at))
    while time < until:
        if core.next_reply <= time:
            _fill(sm, program, limits, time)
        for bank in range(limits.banks):
            if bank_next[bank] <= time:
                _look_up(sm, program, limits, bank, time)
        if core.next_load_store <= time:
            _load_store(sm, program, limits, time)
        for k in range(limits.schedulers):
            if try_at[k] <= time:
                if limits.scheduler == ROUND_ROBIN:
                    _schedule_in_turn(sm, program, limits, k, time)
                elif limits.scheduler == TWO_LEVEL:
                    _schedule_two_level(sm, program, limits, k, time)
                else:
                    _schedule_oldest(sm, program, limits, k, time)
        if core.used_up + core.to_fetch > 0:
            if core.to_fetch > 0 or core.used_up >= _FETCHED:
                _fetch(sm, program, limits, time)
            else:
                core.last_fetched = core.used_up_last
                core.used_up = 0
        if core.next_end <= time and _end_blocks(sm, limits, time) > 0 and pause:
            core.time = time + 1
            return BLOCK_ENDED
        time = max(time + 1, _next_event(core, bank_next, try_at))
    core.time = until
    return REACHED
