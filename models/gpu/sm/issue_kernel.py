"""Fetch, schedulers and operand collectors of an SM (see gpu/sm/kernel.py)."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.launch_program import (
    ATOMIC,
    BARRIER,
    COPY,
    COPY_GROUP,
    COPY_WAIT,
    MEMORY_BARRIER,
    NUM_UNITS,
    OPERATION,
    PRODUCT,
    REDUCTION,
    SHARED,
    STORE,
)
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import leave
from manyscale.models.gpu.sm.asynchronous.operation_kernel import operate
from manyscale.models.gpu.sm.limits import GREEDY, ROUND_ROBIN, TWO_LEVEL
from manyscale.models.gpu.sm.state import (
    BEFORE_UNIT,
    COLLECTOR,
    COPY_GROUPS,
    DEPENDENCY,
    FREE,
    IN_FRONT,
    ISSUE,
    LOAD_STORE,
    NEVER,
    RUNNING,
    UNIT_BUSY,
    WAITS_FETCH,
    WAITS_MEMORY,
)
from manyscale.models.gpu.sm.warp_kernel import (
    exit_warp,
    may_go_on,
    meet_at_barrier,
    next_ready,
    release,
    write_registers,
)
from manyscale.models.kernels import inner_inlined, merged, read_soon, separate

FETCHED: Final = 4  # pairs of instructions, each cycle
_PAIR: Final = 2
_REQUESTS_OF_HOST_LINE: Final = 8  # that stand in a line of the host's caches
_INSTRUCTIONS_AHEAD: Final = 8  # of the one that is issued: what is brought into the host's caches
_BYTES_AHEAD: Final = 32  # the same of what has a byte for each


@merged
def await_fetch(sm, w):  # type: ignore[no-untyped-def]
    """A warp has no instruction to issue."""
    sm.core[0].to_fetch += 1
    sm.warp[w].state = WAITS_FETCH
    sm.ready[w] = NEVER


@separate
def fetch(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """At the end of a cycle: the next instructions of up to four warps, in turn. The last of four can issue a cycle
    later than the others. (What waits for something else too is taken to get them meanwhile.)"""
    core = sm.core[0]
    if core.to_fetch == 0 and core.used_up == FETCHED:
        w = core.last_fetched = core.used_up_last
        core.used_up = 0
        sm.ready[w] = max(sm.ready[w], time + 2)
        return
    for k in range(limits.schedulers):
        w = sm.scheduler[k].last_issued
        if sm.scheduler[k].active_until > time and sm.warp[w].of_pair == 0 and sm.warp[w].state == RUNNING:
            await_fetch(sm, w)
    core.used_up = 0
    left = FETCHED
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
            cause = np.int64(warp.cause)
            release(sm, program, limits, w, time + 1 if left > 0 else time + 2, cause)
    if core.to_fetch > 0:
        sm.try_at[0] = time + 1


@merged
def _memory_holds_both(scheduler):  # type: ignore[no-untyped-def]
    """Whether memory instructions fill the collectors, which wait for the load/store unit."""
    return min(scheduler.collector_0, scheduler.collector_1) == NEVER


@inner_inlined
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


@merged
def take_load(sm, program, limits, w, at, row):  # type: ignore[no-untyped-def]
    """A memory instruction is in flight: its number."""
    core = sm.core[0]
    warp = sm.warp[w]
    static = program.static[row]
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
    load.time = 0
    load.cause = 0
    load.access = access
    shared = static.kind == SHARED
    if shared or access != STORE:
        warp.loads += 1
    for i in range(static.first, static.written):
        sm.register[w, program.operand[i]] = NEVER
    if shared:
        return number
    for i in range(0, requests, _REQUESTS_OF_HOST_LINE):
        read_soon(program.request, load.first + i)
    warp.next_request += requests
    if access == STORE:
        warp.stores += requests
    elif access == ATOMIC or access == REDUCTION:
        warp.atomics += 1
    elif access == COPY:
        load.group = warp.copy_group
        sm.copies[w, warp.copy_group % COPY_GROUPS] += 1
    return number


@merged
def _issue_memory(sm, program, limits, k, w, at, row, time):  # type: ignore[no-untyped-def]
    """A memory instruction on its way to the load/store unit."""
    number = take_load(sm, program, limits, w, at, row)
    static = program.static[row]
    _enter_queue(sm, limits, k, number, static.written < static.end, time)


@merged
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


@separate
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
        next_ready(sm, program, limits, w, sm.ready[w])
    elif warp.state == FREE:
        block = sm.block[warp.slot]
        block.latest = max(block.latest, done)
        if block.warps == 0:
            block.end = block.latest
            sm.core[0].next_end = min(sm.core[0].next_end, block.end)


@merged
def count_issue(sm, limits, k, w, active, time):  # type: ignore[no-untyped-def]
    """A scheduler issues an instruction of ``active`` threads; why it did not in the cycles before this one."""
    core = sm.core[0]
    scheduler = sm.scheduler[k]
    if time > scheduler.active_until:
        split = min(max(sm.ready[w], scheduler.active_until), time)
        sm.stack[sm.warp[w].cause] += split - scheduler.active_until
        sm.stack[LOAD_STORE if _memory_holds_both(scheduler) else UNIT_BUSY] += time - split
    sm.stack[ISSUE] += 1
    sm.issued[min(time >> limits.ipc_shift, len(sm.issued) - 1)] += 1
    core.instructions += 1
    core.thread_instructions += active
    scheduler.active_until = time + 1
    scheduler.last_issued = w


@merged
def _issue_to_unit(sm, program, limits, k, w, row, time):  # type: ignore[no-untyped-def]
    """An instruction takes an operand collector, the register before its unit, and the unit."""
    static = program.static[row]
    scheduler = sm.scheduler[k]
    unit = sm.unit[k, static.front]
    reads = static.written < static.end
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
    sm.warp[w].done = max(sm.warp[w].done, done)
    write_registers(sm, program, w, row, done, DEPENDENCY)


@merged
def _use_up(sm, limits, w):  # type: ignore[no-untyped-def]
    """A warp has issued an instruction of those that were fetched for it."""
    core = sm.core[0]
    warp = sm.warp[w]
    warp.of_pair += 1
    if warp.of_pair == _PAIR:
        warp.of_pair = 0
        turn = w if w > core.last_fetched else w + limits.warps
        last = core.used_up_last
        if core.used_up == 0 or turn > (last if last > core.last_fetched else last + limits.warps):
            core.used_up_last = w
        core.used_up += 1


@merged
def must_wait(sm, w, kind, immediate):  # type: ignore[no-untyped-def]
    """Whether a warp waits for memory behind an instruction that is neither a barrier nor goes to a unit."""
    warp = sm.warp[w]
    if kind == MEMORY_BARRIER:
        warp.fence = 1
    elif kind == COPY_GROUP:
        warp.copy_group += 1
    elif kind == COPY_WAIT:
        warp.copy_limit = warp.copy_group - immediate
    if not may_go_on(sm, w):
        return True
    warp.fence = 0
    return False


@separate
def issue(sm, program, limits, k, w, time):  # type: ignore[no-untyped-def]
    """Issue the next instruction of a warp."""
    warp = sm.warp[w]
    at = warp.at
    row = program.instruction[at]
    static = program.static[row]
    kind = static.kind
    memory = static.front == NUM_UNITS
    count_issue(sm, limits, k, w, program.active[at], time)
    warp.at = at + 1
    read_soon(program.instruction, at + _INSTRUCTIONS_AHEAD)
    read_soon(program.active, at + _BYTES_AHEAD)
    read_soon(program.requests, at + _BYTES_AHEAD)
    if memory:
        _issue_memory(sm, program, limits, k, w, at, row, time)
    elif kind != PRODUCT:
        _issue_to_unit(sm, program, limits, k, w, row, time)
    if at + 1 == warp.last:
        exit_warp(sm, program, limits, w, time)
        if limits.cluster > 1:
            leave(sm, program, limits, w, time)
        return
    _use_up(sm, limits, w)
    if kind == BARRIER:
        meet_at_barrier(sm, program, limits, w, time + 1)
        return
    if kind >= OPERATION:
        earliest = operate(sm, program, limits, w, at, row, time)
        if earliest < NEVER:
            next_ready(sm, program, limits, w, earliest)
        return
    waits = memory and warp.atomics > 0 if kind <= SHARED else must_wait(sm, w, kind, static.immediate)
    if waits:
        warp.state = WAITS_MEMORY
        sm.ready[w] = NEVER
        return
    next_ready(sm, program, limits, w, time + 1)


@merged
def _choose_in_turn(sm, limits, k, time):  # type: ignore[no-untyped-def]
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
                    return w
                again = min(again, at)
            else:
                again = min(again, ready[w])
            w += step
    sm.try_at[k] = again
    return -1


@merged
def _choose_oldest(sm, limits, k, time):  # type: ignore[no-untyped-def]
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
    return best


@merged
def _choose_of_two_levels(sm, limits, k, time):  # type: ignore[no-untyped-def]
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
                return w
            again = min(again, at)
    sm.try_at[k] = again
    return -1


@separate
def choose(sm, limits, k, time):  # type: ignore[no-untyped-def]
    """The warp that a scheduler issues of; -1: none can, and when to try again is set."""
    if limits.scheduler == ROUND_ROBIN:
        return _choose_in_turn(sm, limits, k, time)
    if limits.scheduler == TWO_LEVEL:
        return _choose_of_two_levels(sm, limits, k, time)
    return _choose_oldest(sm, limits, k, time)
