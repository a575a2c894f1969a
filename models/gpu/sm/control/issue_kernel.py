"""Issue by control bits: the compiler says when a warp can go on, the scheduler which warp does.

Each scheduler goes on with the warp that it issued last as long as that can, else with the youngest that can. An
instruction of fixed latency passes Control, then Allocate, where it waits until each bank of registers has a free port
for what it reads in the next three cycles; two stages of room lie between that wait and the scheduler. One of variable
latency leaves Control for the queue of its unit, or of memory. Three instructions of a warp are fetched ahead.

A wrong count of the compiler's is timed as it stands: nothing looks at registers. Left out: ports of registers for what
instructions of variable latency read and for results (a queue hides these), turns of schedulers at the SM's cache of
instructions, and which of two warps is fetched first (each scheduler fetches as fast as it issues). Code and constants
are taken to be in L2, and what the SM's cache of instructions holds of the code from its begin to be there when the
launch begins: NVIDIA's launch descriptors name so much to be fetched ahead (PROGRAM_PREFETCH_SIZE, up to 511 x 256 B).
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.launch_program import (
    BARRIER,
    COPY_GROUP,
    COPY_WAIT,
    MEMORY_BARRIER,
    NUM_UNITS,
    OPERATION,
    PRODUCT,
)
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import leave
from manyscale.models.gpu.sm.asynchronous.operation_kernel import operate
from manyscale.models.gpu.sm.control.caches_kernel import code_at, constant_at
from manyscale.models.gpu.sm.control.counters_kernel import hold, hold_until
from manyscale.models.gpu.sm.control.rows import FIXED, OWN, PENDING
from manyscale.models.gpu.sm.issue_kernel import count_issue, must_wait, take_load
from manyscale.models.gpu.sm.state import (
    DEPENDENCY,
    FETCH,
    NEVER,
    RUNNING,
    WAITS_MEMORY,
)
from manyscale.models.gpu.sm.warp_kernel import exit_warp, meet_at_barrier, next_ready
from manyscale.models.kernels import inner, inner_inlined, merged, seldom

_AHEAD: Final = 2  # of the next instruction: the instruction buffer holds three
_DECODED: Final = 2  # stages from fetch to issue
_LINE_SHIFT: Final = 3  # instructions of a line of code: eight
_LINE_MASK: Final = 7
_STAGES: Final = 2  # from issue to Allocate
_READ_CYCLES: Final = 3


@inner_inlined
def _can_be_chosen(sm, limits, k, w, time):  # type: ignore[no-untyped-def]
    """0: it can be issued now; else when to try again (NEVER: once a memory instruction has left)."""
    ready = sm.ready[w]
    if ready > time:
        return ready
    scheduler = sm.scheduler[k]
    front = sm.warp[w].front
    if front == NUM_UNITS:
        if sm.core[0].free_loads == 0 or scheduler.queued >= limits.memory_queue:
            return NEVER
        at = scheduler.memory_from if scheduler.queued == limits.memory_queue - 1 else 0
    else:
        at = sm.unit[k, front].in_front
    return at if at > time else 0


@seldom(gives="int")
def choose_youngest(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """The warp that a scheduler issues of; -1: none can, and when to try again is set."""
    scheduler = sm.scheduler[k]
    if scheduler.gate > time:
        sm.try_at[k] = scheduler.gate
        return -1
    again = NEVER
    best = -1
    last = scheduler.last_issued
    if last >= 0 and _can_be_chosen(sm, limits, k, last, time) == 0:
        best = last
    if best < 0:
        w = k
        while w < limits.warps:
            if best < 0 or sm.warp[w].age > sm.warp[best].age:
                at = _can_be_chosen(sm, limits, k, w, time)
                if at == 0:
                    best = w
                else:
                    again = min(again, at)
            w += limits.schedulers
    if best < 0:
        sm.try_at[k] = again
        return -1
    static = program.static[program.instruction[sm.warp[best].at]]
    if static.constant >= 0 and static.fixed == FIXED:
        at = constant_at(sm, limits, k, static.constant, static.constant_block, time)
        if at > time:
            sm.ready[best] = at
            sm.warp[best].cause = FETCH
            scheduler.gate = min(at, time + limits.constant_wait)
            sm.try_at[k] = scheduler.gate
            return -1
    return best


@inner_inlined
def _reads(sm, k, register, slot, keeps):  # type: ignore[no-untyped-def]
    """How many ports of its bank a register needs: none if the operand cache has it."""
    if register < 0:
        return 0
    cached = sm.reuse[k]
    place = 3 * (register & 1) + slot
    hits = cached[place] == register
    cached[place] = register if keeps else -1
    return 0 if hits else 1


@merged
def _free_from(busy, count):  # type: ignore[no-untyped-def]
    """Whether three cycles have so many free ports."""
    return _READ_CYCLES - (busy & 1) - (busy >> 1 & 1) - (busy >> 2 & 1) >= count


@inner_inlined
def _with_taken(busy, count):  # type: ignore[no-untyped-def]
    for cycle in range(_READ_CYCLES):
        if count > 0 and not busy >> cycle & 1:
            busy |= 1 << cycle
            count -= 1
    return busy


@inner
def _allocate(sm, limits, k, w, static, time):  # type: ignore[no-untyped-def]
    """When an instruction leaves Allocate: its ports are taken."""
    scheduler = sm.scheduler[k]
    if scheduler.cached_warp != w:
        for place in range(6):
            sm.reuse[k, place] = -1
        scheduler.cached_warp = w
    even = odd = 0
    for slot in range(3):
        register = static.slot_a if slot == 0 else static.slot_b if slot == 1 else static.slot_c
        needs = _reads(sm, k, register, slot, static.reuse >> slot & 1)
        odd += needs * (register & 1)
        even += needs * (1 - (register & 1))
        if slot == 2 and static.wide and register >= 0:  # its other half stands in the other bank
            odd += 1 - (register & 1)
            even += register & 1
    even = (even + limits.register_ports - 1) // limits.register_ports
    odd = (odd + limits.register_ports - 1) // limits.register_ports
    at = max(time + _STAGES, scheduler.allocated + 1)
    passed = min(at - scheduler.allocated, _READ_CYCLES)
    busy_even = scheduler.busy_even >> passed
    busy_odd = scheduler.busy_odd >> passed
    while not (_free_from(busy_even, even) and _free_from(busy_odd, odd)):
        at += 1
        busy_even >>= 1
        busy_odd >>= 1
    scheduler.allocated = at
    scheduler.busy_even = _with_taken(busy_even, even)
    scheduler.busy_odd = _with_taken(busy_odd, odd)
    return at


@merged
def _issue_to_unit(sm, program, limits, k, w, row, time):  # type: ignore[no-untyped-def]
    """An instruction takes its unit, or has latencies of its own."""
    static = program.static[row]
    unit = sm.unit[k, static.front]
    scheduler = sm.scheduler[k]
    beyond = limits.front + limits.back - _STAGES
    scheduler.gate = max(time + 1, scheduler.allocated)
    if static.kind == PRODUCT:  # (what it holds up, _multiply lets go)
        if static.sets >= 0:
            hold(sm, w, static.sets)
        if static.reads >= 0:
            hold(sm, w, static.reads)
        return
    if static.fixed == FIXED:
        begins = _allocate(sm, limits, k, w, static, time)
        unit.in_front = begins - _STAGES + static.interval
        done = begins + beyond + static.latency
        read = begins
    elif static.fixed == OWN:
        begins = time
        if static.constant >= 0:
            begins = constant_at(sm, limits, limits.schedulers + k, static.constant, static.constant_block, time)
        done = begins + static.result
        read = begins + static.after
    else:
        begins = max(time + _STAGES, unit.free)
        unit.free = begins + static.interval
        unit.in_front = max(time + 1, unit.free - limits.unit_queue * static.interval)
        done = begins + beyond + static.latency
        read = begins + _READ_CYCLES
    if static.sets >= 0:
        hold_until(sm, w, static.sets, done, DEPENDENCY)
    if static.reads >= 0:
        hold_until(sm, w, static.reads, read, DEPENDENCY)
    sm.warp[w].done = max(sm.warp[w].done, done)


@merged
def _issue_to_memory(sm, program, limits, k, w, at, row, time):  # type: ignore[no-untyped-def]
    """A memory instruction waits in its scheduler's queue, in order."""
    core = sm.core[0]
    scheduler = sm.scheduler[k]
    static = program.static[row]
    scheduler.gate = time + 1
    number = take_load(sm, program, limits, w, at, row)
    entry = sm.queue[scheduler.queued, k]
    entry.time = time + static.leaves
    entry.issued = time
    entry.load = number
    if scheduler.queued == 0:
        entry.time = max(entry.time, scheduler.leaves_from)
        if core.current < 0:
            core.next_load_store = min(core.next_load_store, max(entry.time, core.accepts_from))
    scheduler.queued += 1
    core.queued += 1
    if static.sets >= 0:
        hold(sm, w, static.sets)
    if static.reads >= 0:
        hold(sm, w, static.reads)


@inner
def fetched_first(sm, program, limits, k, w, time):  # type: ignore[no-untyped-def]
    """When the first instruction of a warp, fetched from ``time`` on, or the one that a branch leads to, can issue."""
    place = program.static[program.instruction[sm.warp[w].at]].place
    line = place >> _LINE_SHIFT
    at = code_at(sm, limits, k, line, time)
    ahead = (place + _AHEAD) >> _LINE_SHIFT
    if ahead != line and ahead < sm.code.shape[1]:
        sm.warp[w].line_at = code_at(sm, limits, k, ahead, at)
    return at + _DECODED


@merged
def _next_fetched(sm, program, limits, k, w, before, time):  # type: ignore[no-untyped-def]
    """From when on the instruction behind the one at place ``before`` has been fetched."""
    warp = sm.warp[w]
    place = program.static[program.instruction[warp.at]].place
    if place != before + 1:
        begins = time + limits.redirect - _DECODED
        return fetched_first(sm, program, limits, k, w, begins)
    ahead = place + _AHEAD
    at = warp.line_at + _DECODED if place & _LINE_MASK == 0 else time
    if ahead & _LINE_MASK == 0 and ahead >> _LINE_SHIFT < sm.code.shape[1]:
        warp.line_at = code_at(sm, limits, k, ahead >> _LINE_SHIFT, time)
    return at


@seldom(gives="nothing")
def issue_controlled(sm, program, limits, k, w, time):  # type: ignore[no-untyped-def]
    """Issue the next instruction of a warp."""
    warp = sm.warp[w]
    at = warp.at
    row = program.instruction[at]
    static = program.static[row]
    kind = static.kind
    count_issue(sm, limits, k, w, program.active[at], time)
    warp.at = at + 1
    if static.front == NUM_UNITS:
        _issue_to_memory(sm, program, limits, k, w, at, row, time)
    else:
        _issue_to_unit(sm, program, limits, k, w, row, time)
    if at + 1 == warp.last:
        exit_warp(sm, program, limits, w, time)
        if limits.cluster > 1:
            leave(sm, program, limits, w, time)
        return
    fetched = _next_fetched(sm, program, limits, k, w, static.place, time)
    warp.earliest = max(time + static.stall, fetched)
    if kind == BARRIER:
        meet_at_barrier(sm, program, limits, w, time + limits.barrier)
        return
    if kind >= OPERATION:
        earliest = operate(sm, program, limits, w, at, row, time)
        if earliest < NEVER:
            warp.earliest = max(warp.earliest, earliest)
            next_ready(sm, program, limits, w, warp.earliest)
        return
    waits = False
    if kind == MEMORY_BARRIER or kind == COPY_GROUP or kind == COPY_WAIT:
        waits = must_wait(sm, w, kind, static.immediate)
    if static.limited >= 0:
        if sm.register[w, PENDING + static.limited] > static.immediate:
            warp.limited = static.limited + 1
            warp.counter_limit = static.immediate
            waits = True
        elif static.immediate == 0:
            warp.earliest = max(warp.earliest, sm.register[w, static.limited])
    if waits:
        warp.state = WAITS_MEMORY
        sm.ready[w] = NEVER
        return
    next_ready(sm, program, limits, w, warp.earliest)
    if fetched > time + static.stall and sm.ready[w] == fetched:
        warp.cause = FETCH


@seldom(gives="nothing")
def begin_controlled(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """A warp of a block that begins at the end of ``time``."""
    warp = sm.warp[w]
    warp.state = RUNNING
    warp.earliest = max(time + _DECODED, fetched_first(sm, program, limits, warp.scheduler, w, time))
    next_ready(sm, program, limits, w, warp.earliest)
    warp.cause = FETCH
