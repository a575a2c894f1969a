"""An SM, cycle by cycle: schedulers, operand collectors, units, load/store unit, L1, barriers.

The pipeline is Accel-Sim's (Khairy et al., ISCA 2020; its RTX 3070 configuration is the reference). An instruction is
issued at cycle t if its operands are there, the register before the operand collectors of its scheduler is free, and
(for memory) the load/store unit's queue has room. It takes one of two collectors from t + 1, leaves it for the register
before its unit (a cycle later if it reads registers), enters the unit when that is free, and its result can be used
``latency`` and the back of the pipeline later. The load/store unit takes one instruction at a time, and gives its
requests, the highest address first, to the banks of L1, one a cycle each; they are looked up ``l1_latency`` cycles
later. One reply a cycle comes in, and one request a cycle of those that waited for it is written back.

Inside a cycle: replies, lookups, load/store unit, schedulers, ends of blocks. Cycles in which nothing can happen are
skipped. An SM runs by itself up to a given cycle, since what it asks of L2 is answered later than that.

Cost: O(warps of a scheduler) for each instruction, O(1) for each request.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.l1_kernel import BLOCKED, FULL, HIT, forget_all, read, send, write
from manyscale.models.gpu.launch_program import (
    ATOMIC, BARRIER, COPY, COPY_GROUP, COPY_WAIT, LOAD, MEMORY, MEMORY_BARRIER, NUM_UNITS, REDUCTION, SHARED, STORE,
)  # fmt: skip
from manyscale.models.gpu.sm_limits import GREEDY, OLDEST, QUEUED_MEMORY, ROUND_ROBIN, TWO_LEVEL, SmLimits
from manyscale.models.gpu.sm_state import (
    ACTIVE_CYCLES, AT_BARRIER, BANK_QUEUE, BYPASS, COPY_GROUPS, CURRENT, CURRENT_FROM, DEPENDENCY, DRAIN, EMPTY, EXITED,
    FREE, FREE_LOADS, FREE_NODES, FROM_DRAM, FROM_L1, FROM_SHARED, IN_HEAD, IN_TAIL, INSTRUCTIONS, ISSUE, LAST_FILL,
    LAST_WRITEBACK, LOAD_STORE, MISSES, NEVER, NEXT_AGE, NEXT_END, NUM_BLOCKS, NUM_WARPS, QUEUE_HEAD, QUEUE_TAIL,
    RESIDENT_SINCE, RUNNING, STORES, THREAD_INSTRUCTIONS, TIME, UNIT_BUSY, WAITS_BARRIER, WAITS_MEMORY, WARP_CYCLES,
)  # fmt: skip
from manyscale.models.kernels import allocation_free, inlined

REACHED: Final = 0  # why an SM stopped
BLOCK_ENDED: Final = 1
_REPLY: Final = 2  # cycles from L2's output to L1
_WRITEBACK: Final = 2  # from there to a register


@allocation_free
def start_block(sm, s, program, limits, block, time):  # type: ignore[no-untyped-def]
    """Give a block to a free slot at the end of cycle ``time``; its first instructions can be issued two cycles later."""
    number = sm.number[s]
    slot = 0
    while sm.block[s, slot] >= 0:
        slot += 1
    first = program.block_warps[block]
    count = program.block_warps[block + 1] - first
    if number[NUM_BLOCKS] == 0:
        number[RESIDENT_SINCE] = time
        for k in range(limits.schedulers):
            sm.stack[s, EMPTY] += max(0, time - sm.active_until[s, k])
            sm.active_until[s, k] = max(time, sm.active_until[s, k])
    number[NUM_BLOCKS] += 1
    sm.block[s, slot] = block
    sm.block_begin[s, slot] = time
    sm.block_warps[s, slot] = count
    sm.block_running[s, slot] = count
    sm.block_arrived[s, slot] = 0
    sm.block_latest[s, slot] = time + 1
    sm.block_end[s, slot] = NEVER
    for i in range(count):
        w = slot * limits.block_warps + i
        sm.at[s, w] = program.warp_instructions[first + i]
        sm.last[s, w] = program.warp_instructions[first + i + 1]
        sm.next_request[s, w] = program.warp_requests[first + i]
        sm.block_slot[s, w] = slot
        sm.age[s, w] = number[NEXT_AGE]
        number[NEXT_AGE] += 1
        number[NUM_WARPS] += 1
        sm.done[s, w] = time + 1
        sm.stores[s, w] = sm.loads[s, w] = sm.atomics[s, w] = 0
        sm.copy_group[s, w] = sm.copy_limit[s, w] = 0
        sm.copies[s, w, :] = 0
        sm.fence[s, w] = False
        sm.register[s, w, :] = 0
        sm.state[s, w] = RUNNING
        if sm.at[s, w] == sm.last[s, w]:
            _exit(sm, s, program, limits, w, time + 1)
            continue
        sm.ready[s, w] = time + 2
        sm.cause[s, w] = EMPTY
        k = w % limits.schedulers
        sm.try_at[s, k] = min(sm.try_at[s, k], time + 2)
    if count == 0:
        sm.block_end[s, slot] = time + 1
        number[NEXT_END] = min(number[NEXT_END], time + 1)


@inlined
def _next_ready(sm, s, program, limits, w, earliest):  # type: ignore[no-untyped-def]
    """When the operands of a warp's next instruction are there."""
    row = program.instruction[sm.at[s, w]]
    ready = earliest
    cause = DEPENDENCY
    for i in range(program.operand_first[row], program.operand_first[row + 1]):
        register = program.operand[i]
        time = sm.register[s, w, register]
        if time > ready:
            ready = time
            cause = sm.register_cause[s, w, register]
    sm.ready[s, w] = ready
    sm.cause[s, w] = cause
    if ready < NEVER:
        k = w % limits.schedulers
        if ready < sm.try_at[s, k]:
            sm.try_at[s, k] = ready


@allocation_free
def _release(sm, s, program, limits, w, time, cause):  # type: ignore[no-untyped-def]
    """A warp that waited can go on at ``time``."""
    sm.state[s, w] = RUNNING
    _next_ready(sm, s, program, limits, w, time)
    if sm.ready[s, w] == time:
        sm.cause[s, w] = cause


@allocation_free
def _release_barrier(sm, s, program, limits, slot, time):  # type: ignore[no-untyped-def]
    """If all warps of a block that run have arrived, they go on."""
    if sm.block_arrived[s, slot] == 0 or sm.block_arrived[s, slot] < sm.block_running[s, slot]:
        return
    sm.block_arrived[s, slot] = 0
    for w in range(slot * limits.block_warps, (slot + 1) * limits.block_warps):
        if sm.state[s, w] == WAITS_BARRIER:
            _release(sm, s, program, limits, w, time, AT_BARRIER)


@allocation_free
def _exit(sm, s, program, limits, w, time):  # type: ignore[no-untyped-def]
    sm.state[s, w] = EXITED
    sm.ready[s, w] = NEVER
    slot = sm.block_slot[s, w]
    sm.block_running[s, slot] -= 1
    _release_barrier(sm, s, program, limits, slot, time + 1)
    _end_warp(sm, s, w, time)


@allocation_free
def _end_warp(sm, s, w, time):  # type: ignore[no-untyped-def]
    """A warp that has exited ends once nothing of it is in flight; with the last one, its block."""
    if sm.state[s, w] != EXITED or sm.stores[s, w] > 0 or sm.loads[s, w] > 0:
        return
    slot = sm.block_slot[s, w]
    sm.state[s, w] = FREE
    sm.number[s, NUM_WARPS] -= 1
    sm.block_latest[s, slot] = max(sm.block_latest[s, slot], time, sm.done[s, w])
    sm.block_warps[s, slot] -= 1
    if sm.block_warps[s, slot] == 0:
        sm.block_end[s, slot] = sm.block_latest[s, slot]
        sm.number[s, NEXT_END] = min(sm.number[s, NEXT_END], sm.block_end[s, slot])


@inlined
def _may_go_on(sm, s, w):  # type: ignore[no-untyped-def]
    """Whether a warp that waits for memory has got it."""
    if sm.atomics[s, w] > 0 or (sm.fence[s, w] and sm.loads[s, w] > 0):
        return False
    low = max(0, sm.copy_group[s, w] - COPY_GROUPS + 1)
    for group in range(low, sm.copy_limit[s, w]):
        if sm.copies[s, w, group % COPY_GROUPS] > 0:
            return False
    return True


@allocation_free
def _complete(sm, s, program, limits, load):  # type: ignore[no-untyped-def]
    """All requests of a memory instruction were answered (or it had none)."""
    number = sm.number[s]
    w = sm.load_warp[s, load]
    row = sm.load_row[s, load]
    time = sm.load_time[s, load]
    cause = sm.load_cause[s, load]
    access = program.access[row]
    for i in range(program.operand_first[row], program.operand_written[row]):
        register = program.operand[i]
        sm.register[s, w, register] = time
        sm.register_cause[s, w, register] = cause
    sm.loads[s, w] -= 1
    if access == ATOMIC or access == REDUCTION:
        sm.atomics[s, w] -= 1
    elif access == COPY:
        sm.copies[s, w, sm.load_group[s, load] % COPY_GROUPS] -= 1
    sm.load_free[s, number[FREE_LOADS]] = load
    number[FREE_LOADS] += 1
    sm.done[s, w] = max(sm.done[s, w], time)
    if sm.state[s, w] == RUNNING:
        if sm.ready[s, w] == NEVER:
            _next_ready(sm, s, program, limits, w, time if sm.at[s, w] < 0 else 0)
    elif sm.state[s, w] == WAITS_MEMORY:
        if _may_go_on(sm, s, w):
            sm.fence[s, w] = False
            _release(sm, s, program, limits, w, time, cause)
    elif sm.state[s, w] == EXITED:
        _end_warp(sm, s, w, time)


@inlined
def _answer(sm, s, program, limits, load, time, cause):  # type: ignore[no-untyped-def]
    sm.load_time[s, load] = max(sm.load_time[s, load], time)
    sm.load_cause[s, load] = max(sm.load_cause[s, load], cause)
    sm.load_left[s, load] -= 1
    if sm.load_left[s, load] == 0:
        _complete(sm, s, program, limits, load)


@allocation_free
def _fill(sm, s, program, limits, time):  # type: ignore[no-untyped-def]
    """The next reply arrives."""
    number = sm.number[s]
    place = number[IN_HEAD] & (sm.in_time.shape[1] - 1)
    number[IN_HEAD] += 1
    number[LAST_FILL] = time
    tag = sm.in_tag[s, place]
    cause = sm.in_level[s, place]
    if tag >= STORES:
        w = tag - STORES
        sm.stores[s, w] -= 1
        _end_warp(sm, s, w, time)
        return
    if tag >= BYPASS:
        number[LAST_WRITEBACK] = max(time + _WRITEBACK, number[LAST_WRITEBACK] + 1)
        _answer(sm, s, program, limits, tag - BYPASS, number[LAST_WRITEBACK], cause)
        return
    frame = tag // limits.sectors
    sector = tag - frame * limits.sectors
    bit = 1 << sector
    sm.pending[s, frame] &= ~bit
    sm.valid[s, frame] |= bit
    number[MISSES] -= 1
    node = sm.waiting[s, frame, sector]
    sm.waiting[s, frame, sector] = -1
    while node >= 0:
        number[LAST_WRITEBACK] = max(time + _WRITEBACK, number[LAST_WRITEBACK] + 1)
        following = sm.node_next[s, node]
        sm.node_free[s, number[FREE_NODES]] = node
        number[FREE_NODES] += 1
        _answer(sm, s, program, limits, sm.node_load[s, node], number[LAST_WRITEBACK], cause)
        node = following
    for bank in range(limits.banks):
        sm.bank_blocked[s, bank] = False


@allocation_free
def _look_up(sm, s, program, limits, bank, time):  # type: ignore[no-untyped-def]
    """The oldest request of a bank is looked up."""
    head = sm.bank_head[s, bank]
    place = head & (BANK_QUEUE - 1)
    load = sm.bank_load[s, bank, place]
    at = sm.bank_request[s, bank, place]
    request = program.request[at]
    access = program.access[sm.load_row[s, load]]
    if access == STORE:
        outcome = write(sm, s, limits, request, program.written[at], sm.load_warp[s, load], time)
    else:
        outcome = read(sm, s, limits, request, load, time)
    if outcome == BLOCKED:
        sm.bank_blocked[s, bank] = True
        return
    if outcome == FULL:
        sm.bank_time[s, bank, place] = time + 1
        return
    sm.bank_head[s, bank] = head + 1
    if head + 1 < sm.bank_tail[s, bank]:
        following = (head + 1) & (BANK_QUEUE - 1)
        sm.bank_time[s, bank, following] = max(sm.bank_time[s, bank, following], time + 1)
    if access == STORE:
        sm.load_left[s, load] -= 1
        if sm.load_left[s, load] == 0:
            sm.load_free[s, sm.number[s, FREE_LOADS]] = load
            sm.number[s, FREE_LOADS] += 1
    elif outcome == HIT:
        _answer(sm, s, program, limits, load, time, FROM_L1)


@allocation_free
def _load_store(sm, s, program, limits, time):  # type: ignore[no-untyped-def]
    """A cycle of the load/store unit: requests of the current instruction into L1's pipeline, then the next one."""
    number = sm.number[s]
    load = number[CURRENT]
    if load >= 0 and time >= number[CURRENT_FROM]:
        row = sm.load_row[s, load]
        left = sm.load_count[s, load]
        if program.kind[row] == SHARED:
            number[CURRENT] = -1
            _complete_shared(sm, s, program, load)
        elif left == 0:
            number[CURRENT] = -1
            sm.load_time[s, load] = time
            _complete_empty(sm, s, program, limits, load)
        elif program.bypass[row] or program.access[row] == ATOMIC or program.access[row] == REDUCTION:
            left -= 1
            sm.load_count[s, load] = left
            at = sm.load_first[s, load] + left
            written = program.written[at]
            tag = STORES + sm.load_warp[s, load] if program.access[row] == STORE else BYPASS + load
            send(sm, s, time, program.request[at], written, tag)
            if left == 0:
                number[CURRENT] = -1
                if program.access[row] == STORE:
                    sm.load_free[s, number[FREE_LOADS]] = load
                    number[FREE_LOADS] += 1
        else:
            used = 0
            for _ in range(limits.banks):
                at = sm.load_first[s, load] + left - 1
                bank = program.request[at] % limits.banks
                tail = sm.bank_tail[s, bank]
                if used >> bank & 1 or tail - sm.bank_head[s, bank] >= limits.l1_latency:
                    break
                used |= 1 << bank
                place = tail & (BANK_QUEUE - 1)
                sm.bank_time[s, bank, place] = time + limits.l1_latency
                sm.bank_load[s, bank, place] = load
                sm.bank_request[s, bank, place] = at
                sm.bank_tail[s, bank] = tail + 1
                left -= 1
                if left == 0:
                    number[CURRENT] = -1
                    break
            sm.load_count[s, load] = left
    if number[CURRENT] < 0 and number[QUEUE_HEAD] < number[QUEUE_TAIL]:
        place = number[QUEUE_HEAD] & (sm.queue.shape[1] - 1)
        if sm.queue_time[s, place] <= time:
            load = sm.queue[s, place]
            number[QUEUE_HEAD] += 1
            number[CURRENT] = load
            row = sm.load_row[s, load]
            shared = program.kind[row] == SHARED
            number[CURRENT_FROM] = time + (max(1, sm.load_count[s, load]) if shared else 1)
            k = sm.load_scheduler[s, load]
            sm.queued[s, k] -= 1
            sm.try_at[s, k] = min(sm.try_at[s, k], time)
            if shared:
                _read_shared(sm, s, program, limits, load, number[CURRENT_FROM] + limits.shared_latency + 1)


@allocation_free
def _read_shared(sm, s, program, limits, load, time):  # type: ignore[no-untyped-def]
    """When the result of an access to shared memory is there is known when its turn comes."""
    w = sm.load_warp[s, load]
    row = sm.load_row[s, load]
    for i in range(program.operand_first[row], program.operand_written[row]):
        register = program.operand[i]
        sm.register[s, w, register] = time
        sm.register_cause[s, w, register] = FROM_SHARED
    if program.access[row] != STORE:
        sm.done[s, w] = max(sm.done[s, w], time)
    sm.loads[s, w] -= 1
    if sm.state[s, w] == RUNNING:
        if sm.ready[s, w] == NEVER:
            _next_ready(sm, s, program, limits, w, 0)
    elif sm.state[s, w] == WAITS_MEMORY:
        if _may_go_on(sm, s, w):
            sm.fence[s, w] = False
            _release(sm, s, program, limits, w, time, FROM_SHARED)
    elif sm.state[s, w] == EXITED:
        _end_warp(sm, s, w, time)


@inlined
def _complete_shared(sm, s, program, load):  # type: ignore[no-untyped-def]
    sm.load_free[s, sm.number[s, FREE_LOADS]] = load
    sm.number[s, FREE_LOADS] += 1


@inlined
def _complete_empty(sm, s, program, limits, load):  # type: ignore[no-untyped-def]
    """A memory instruction without requests: all its threads are masked out."""
    if program.access[sm.load_row[s, load]] == STORE:
        sm.load_free[s, sm.number[s, FREE_LOADS]] = load
        sm.number[s, FREE_LOADS] += 1
    else:
        _complete(sm, s, program, limits, load)


@inlined
def _blocked_until(sm, s, program, k, kind, unit, time):  # type: ignore[no-untyped-def]
    """Whether an instruction can be issued now (0), or when to try again (NEVER: once the load/store unit took one)."""
    if kind == MEMORY or kind == SHARED:
        if sm.queued[s, k] >= QUEUED_MEMORY or sm.number[s, FREE_LOADS] == 0:
            return NEVER
        front = sm.in_front[s, k, NUM_UNITS]
    else:
        if sm.queued[s, k] >= QUEUED_MEMORY - 1:  # they hold both collectors
            return NEVER
        front = sm.in_front[s, k, unit]
    return front if front > time else 0


@allocation_free
def _issue(sm, s, program, limits, k, w, time):  # type: ignore[no-untyped-def]
    """Issue the next instruction of a warp."""
    number = sm.number[s]
    at = sm.at[s, w]
    row = program.instruction[at]
    kind = program.kind[row]
    since = sm.active_until[s, k]
    if time > since:
        split = min(max(sm.ready[s, w], since), time)
        sm.stack[s, sm.cause[s, w]] += split - since
        sm.stack[s, LOAD_STORE if sm.queued[s, k] >= QUEUED_MEMORY - 1 else UNIT_BUSY] += time - split
    sm.stack[s, ISSUE] += 1
    sm.active_until[s, k] = time + 1
    sm.issued[min(time // limits.ipc_cycles, len(sm.issued) - 1)] += 1
    number[INSTRUCTIONS] += 1
    number[THREAD_INSTRUCTIONS] += program.active[at]
    sm.last_issued[s, k] = w
    sm.at[s, w] = at + 1

    # operand collectors, and the register before the unit
    reads = program.operand_written[row] < program.operand_first[row + 1]
    held = sm.queued[s, k] - 1
    which = 0 if sm.collector[s, k, 0] <= sm.collector[s, k, 1] else 1
    if held == 1:
        which = 1 - which
    memory = kind == MEMORY or kind == SHARED
    entered = time + 1 if memory else max(time + 1, sm.collector[s, k, which])
    leaves = entered + 1 if reads else entered
    if memory:
        sm.in_front[s, k, NUM_UNITS] = entered
        number[FREE_LOADS] -= 1
        load = sm.load_free[s, number[FREE_LOADS]]
        access = program.access[row]
        requests = program.requests[at]
        sm.load_warp[s, load] = w
        sm.load_row[s, load] = row
        sm.load_left[s, load] = requests
        sm.load_count[s, load] = requests
        sm.load_first[s, load] = sm.next_request[s, w]
        sm.load_time[s, load] = 0
        sm.load_cause[s, load] = 0
        sm.load_scheduler[s, load] = k
        sm.queued[s, k] += 1
        place = number[QUEUE_TAIL] & (sm.queue.shape[1] - 1)
        sm.queue[s, place] = load
        sm.queue_time[s, place] = leaves + limits.front - 2
        number[QUEUE_TAIL] += 1
        if kind == MEMORY:
            sm.next_request[s, w] += requests
        if kind == SHARED or access != STORE:
            sm.loads[s, w] += 1
        for i in range(program.operand_first[row], program.operand_written[row]):
            sm.register[s, w, program.operand[i]] = NEVER
        if kind == MEMORY:
            if access == STORE:
                sm.stores[s, w] += requests
            elif access == ATOMIC or access == REDUCTION:
                sm.atomics[s, w] += 1
            elif access == COPY:
                sm.load_group[s, load] = sm.copy_group[s, w]
                sm.copies[s, w, sm.copy_group[s, w] % COPY_GROUPS] += 1
    else:
        u = program.unit[row]
        leaves = max(leaves, sm.before_unit[s, k, u])
        sm.collector[s, k, which] = leaves
        sm.in_front[s, k, u] = entered
        begins = max(leaves + limits.front - 2, sm.unit[s, k, u])
        sm.before_unit[s, k, u] = begins
        sm.unit[s, k, u] = begins + program.interval[row]
        done = begins + limits.back + program.latency[row]
        sm.done[s, w] = max(sm.done[s, w], done)
        for i in range(program.operand_first[row], program.operand_written[row]):
            register = program.operand[i]
            sm.register[s, w, register] = done
            sm.register_cause[s, w, register] = DEPENDENCY

    if at + 1 == sm.last[s, w]:
        _exit(sm, s, program, limits, w, time)
        return
    if memory and sm.atomics[s, w] > 0:
        sm.state[s, w] = WAITS_MEMORY
        sm.ready[s, w] = NEVER
        return
    if kind > SHARED:
        if kind == BARRIER:
            slot = sm.block_slot[s, w]
            sm.block_arrived[s, slot] += 1
            sm.state[s, w] = WAITS_BARRIER
            sm.ready[s, w] = NEVER
            _release_barrier(sm, s, program, limits, slot, time + 1)
            return
        if kind == MEMORY_BARRIER:
            sm.fence[s, w] = True
        elif kind == COPY_GROUP:
            sm.copy_group[s, w] += 1
        elif kind == COPY_WAIT:
            sm.copy_limit[s, w] = sm.copy_group[s, w] - program.immediate[row]
        if not _may_go_on(sm, s, w):
            sm.state[s, w] = WAITS_MEMORY
            sm.ready[s, w] = NEVER
            return
        sm.fence[s, w] = False
    _next_ready(sm, s, program, limits, w, time + 1)


@inlined
def _can_be_chosen(sm, s, program, k, w, time):  # type: ignore[no-untyped-def]
    """0: it can be issued now; else when to try again."""
    ready = sm.ready[s, w]
    if ready > time:
        return ready
    row = program.instruction[sm.at[s, w]]
    return _blocked_until(sm, s, program, k, program.kind[row], program.unit[row], time)


@allocation_free
def _schedule_in_turn(sm, s, program, limits, k, time):  # type: ignore[no-untyped-def]
    """Loose round robin: after the warp that was last, the first that can."""
    step = limits.schedulers
    begin = sm.last_issued[s, k]
    begin = k if begin < 0 else begin + step
    again = NEVER
    w = begin
    for part in range(2):
        end = limits.warps if part == 0 else min(begin, limits.warps)
        w = begin if part == 0 else k
        while w < end:
            if sm.state[s, w] == RUNNING:
                at = _can_be_chosen(sm, s, program, k, w, time)
                if at == 0:
                    sm.try_at[s, k] = time + 1
                    _issue(sm, s, program, limits, k, w, time)
                    return
                again = min(again, at)
            w += step
    sm.try_at[s, k] = again


@allocation_free
def _schedule_oldest(sm, s, program, limits, k, time):  # type: ignore[no-untyped-def]
    """The oldest warp that can; first, if ``GREEDY``, the one that was last."""
    again = NEVER
    last = sm.last_issued[s, k]
    best = -1
    if limits.scheduler == GREEDY and last >= 0 and sm.state[s, last] == RUNNING:
        at = _can_be_chosen(sm, s, program, k, last, time)
        if at == 0:
            best = last
        again = at
    if best < 0:
        w = k
        while w < limits.warps:
            if sm.state[s, w] == RUNNING and (best < 0 or sm.age[s, w] < sm.age[s, best]):
                at = _can_be_chosen(sm, s, program, k, w, time)
                if at == 0:
                    best = w
                else:
                    again = min(again, at)
            w += limits.schedulers
    if best < 0:
        sm.try_at[s, k] = again
    else:
        sm.try_at[s, k] = time + 1
        _issue(sm, s, program, limits, k, best, time)


@allocation_free
def _schedule_two_level(sm, s, program, limits, k, time):  # type: ignore[no-untyped-def]
    """Round robin among active warps (Narasiman et al., MICRO 2011); one that waits for memory, for a barrier or has
    ended makes room for the first of the others that does not."""
    order = sm.order[s, k]
    count = min(limits.active_warps, len(order))
    place = count
    for i in range(count):
        w = order[i]
        if w < limits.warps and sm.state[s, w] == RUNNING and sm.ready[s, w] < NEVER:
            continue
        for j in range(max(place, count), len(order)):
            other = order[j]
            if other < limits.warps and sm.state[s, other] == RUNNING and sm.ready[s, other] < NEVER:
                order[j] = w
                order[i] = other
                place = j + 1
                break
    again = NEVER
    for i in range(count):
        w = order[i]
        if w < limits.warps and sm.state[s, w] == RUNNING:
            at = _can_be_chosen(sm, s, program, k, w, time)
            if at == 0:
                for j in range(i, count - 1):  # it is the last of them now
                    order[j] = order[j + 1]
                order[count - 1] = w
                sm.try_at[s, k] = time + 1
                _issue(sm, s, program, limits, k, w, time)
                return
            again = min(again, at)
    sm.try_at[s, k] = again


@allocation_free
def _end_blocks(sm, s, limits, time):  # type: ignore[no-untyped-def]
    """Free the slots of blocks that ended: how many."""
    number = sm.number[s]
    ended = 0
    following = NEVER
    for slot in range(limits.slots):
        if sm.block[s, slot] < 0:
            continue
        if sm.block_end[s, slot] > time:
            following = min(following, sm.block_end[s, slot])
            continue
        ended += 1
        number[NUM_BLOCKS] -= 1
        number[WARP_CYCLES] += limits.block_warps * (time - sm.block_begin[s, slot])
        sm.record_sm[sm.block[s, slot]] = limits.first_sm + s
        sm.record_begin[sm.block[s, slot]] = sm.block_begin[s, slot]
        sm.record_end[sm.block[s, slot]] = time
        sm.block[s, slot] = -1
    number[NEXT_END] = following
    if number[NUM_BLOCKS] == 0:
        number[ACTIVE_CYCLES] += time - number[RESIDENT_SINCE]
        for k in range(limits.schedulers):
            sm.stack[s, DRAIN] += max(0, time - sm.active_until[s, k])
            sm.active_until[s, k] = max(time, sm.active_until[s, k])
        forget_all(sm, s)
    return ended


@allocation_free
def next_event(sm, s, limits):  # type: ignore[no-untyped-def]
    """The next cycle in which something can happen; NEVER: nothing before a reply."""
    number = sm.number[s]
    time = number[NEXT_END]
    if number[IN_HEAD] < number[IN_TAIL]:
        arrival = sm.in_time[s, number[IN_HEAD] & (sm.in_time.shape[1] - 1)] + _REPLY
        time = min(time, max(arrival, number[LAST_FILL] + 1))
    for bank in range(limits.banks):
        head = sm.bank_head[s, bank]
        if head < sm.bank_tail[s, bank] and not sm.bank_blocked[s, bank]:
            time = min(time, sm.bank_time[s, bank, head & (BANK_QUEUE - 1)])
    if number[CURRENT] >= 0:
        time = min(time, number[CURRENT_FROM])
    elif number[QUEUE_HEAD] < number[QUEUE_TAIL]:
        time = min(time, sm.queue_time[s, number[QUEUE_HEAD] & (sm.queue.shape[1] - 1)])
    for k in range(limits.schedulers):
        time = min(time, sm.try_at[s, k])
    return time


@allocation_free
def advance(sm, s, program, limits, until, pause):  # type: ignore[no-untyped-def]
    """Run an SM up to cycle ``until``; with ``pause`` only to the end of a cycle in which a block ends. Returns which."""
    number = sm.number[s]
    time = max(number[TIME], next_event(sm, s, limits))
    while time < until:
        if number[IN_HEAD] < number[IN_TAIL] and number[LAST_FILL] < time:
            if sm.in_time[s, number[IN_HEAD] & (sm.in_time.shape[1] - 1)] + _REPLY <= time:
                _fill(sm, s, program, limits, time)
        for bank in range(limits.banks):
            head = sm.bank_head[s, bank]
            if head < sm.bank_tail[s, bank] and not sm.bank_blocked[s, bank]:
                if sm.bank_time[s, bank, head & (BANK_QUEUE - 1)] <= time:
                    _look_up(sm, s, program, limits, bank, time)
        if number[CURRENT] >= 0 or number[QUEUE_HEAD] < number[QUEUE_TAIL]:
            _load_store(sm, s, program, limits, time)
        for k in range(limits.schedulers):
            if sm.try_at[s, k] <= time:
                if limits.scheduler == ROUND_ROBIN:
                    _schedule_in_turn(sm, s, program, limits, k, time)
                elif limits.scheduler == TWO_LEVEL:
                    _schedule_two_level(sm, s, program, limits, k, time)
                else:
                    _schedule_oldest(sm, s, program, limits, k, time)
        if number[NEXT_END] <= time:
            if _end_blocks(sm, s, limits, time) > 0 and pause:
                number[TIME] = time + 1
                return BLOCK_ENDED
        time = max(time + 1, next_event(sm, s, limits))
    number[TIME] = until
    return REACHED


_UNUSED: Final = (LOAD, MEMORY_BARRIER, FROM_DRAM, OLDEST, SmLimits)
