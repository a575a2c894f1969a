"""What a warp of an SM waits for: operands, barriers, memory; its end, and with the last one that of its block."""

from __future__ import annotations

from manyscale.models.gpu.sm.control.counters_kernel import let_go
from manyscale.models.gpu.sm.control.rows import PENDING
from manyscale.models.gpu.sm.state import (
    AT_BARRIER,
    COPY_GROUPS,
    DEPENDENCY,
    EXITED,
    FREE,
    NEVER,
    RUNNING,
    WAITS_BARRIER,
    WAITS_MEMORY,
)
from manyscale.models.kernels import inner, inner_inlined, merged, separate


@inner_inlined
def account(sm, limits, cause, time):  # type: ignore[no-untyped-def]
    """All schedulers have waited for ``cause`` up to ``time``."""
    for k in range(limits.schedulers):
        scheduler = sm.scheduler[k]
        if time > scheduler.active_until:
            sm.stack[cause] += time - scheduler.active_until
            scheduler.active_until = time


@inner_inlined
def next_ready(sm, program, limits, w, earliest):  # type: ignore[no-untyped-def]
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


@separate
def release(sm, program, limits, w, time, cause):  # type: ignore[no-untyped-def]
    """A warp that waited can go on at ``time``."""
    sm.warp[w].state = RUNNING
    next_ready(sm, program, limits, w, max(time, sm.warp[w].earliest))
    if sm.ready[w] == time:
        sm.warp[w].cause = cause


@inner
def release_barrier(sm, program, limits, slot, time):  # type: ignore[no-untyped-def]
    """If all warps of a block that run have arrived, they go on."""
    block = sm.block[slot]
    if block.arrived == 0 or block.arrived < block.running:
        return
    block.arrived = 0
    for w in range(block.first_warp, block.end_warp):
        if sm.warp[w].state == WAITS_BARRIER:
            release(sm, program, limits, w, time, AT_BARRIER)


@merged
def meet_at_barrier(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """A warp arrives at its block's barrier; with the last one all go on at ``time``."""
    warp = sm.warp[w]
    sm.block[warp.slot].arrived += 1
    warp.state = WAITS_BARRIER
    sm.ready[w] = NEVER
    release_barrier(sm, program, limits, warp.slot, time)


@separate
def exit_warp(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    warp = sm.warp[w]
    warp.state = EXITED
    sm.ready[w] = NEVER
    sm.block[warp.slot].running -= 1
    release_barrier(sm, program, limits, warp.slot, time + 1)
    end_warp(sm, w, time)


@inner
def end_warp(sm, w, time):  # type: ignore[no-untyped-def]
    """A warp that has exited ends once nothing of it is in flight; with the last one, its block."""
    warp = sm.warp[w]
    if warp.state != EXITED or warp.stores > 0 or warp.loads > 0 or warp.bulk > 0:
        return
    warp.state = FREE
    block = sm.block[warp.slot]
    block.latest = max(block.latest, time, warp.done)
    block.warps -= 1
    if block.warps == 0:
        block.end = block.latest
        sm.core[0].next_end = min(sm.core[0].next_end, block.end)


@inner_inlined
def may_go_on(sm, w):  # type: ignore[no-untyped-def]
    """Whether a warp that waits for memory has got it."""
    warp = sm.warp[w]
    if warp.atomics > 0 or (warp.fence and warp.loads > 0):
        return False
    if warp.limited and sm.register[w, PENDING - 1 + warp.limited] > warp.counter_limit:
        return False
    for group in range(max(0, warp.copy_group - COPY_GROUPS + 1), warp.copy_limit):
        if sm.copies[w, group % COPY_GROUPS] > 0:
            return False
    return True


@inner_inlined
def after_memory(sm, program, limits, w, time, cause):  # type: ignore[no-untyped-def]
    """What a warp does once a memory instruction of it is complete."""
    warp = sm.warp[w]
    if warp.state == RUNNING:
        if sm.ready[w] == NEVER:
            next_ready(sm, program, limits, w, warp.earliest)
    elif warp.state == WAITS_MEMORY:
        if may_go_on(sm, w):
            warp.fence = warp.limited = 0
            release(sm, program, limits, w, time, cause)
    elif warp.state == EXITED:
        end_warp(sm, w, time)


@inner_inlined
def write_registers(sm, program, w, row, time, cause):  # type: ignore[no-untyped-def]
    """An instruction's results can be read from ``time`` on."""
    static = program.static[row]
    for i in range(static.first, static.written):
        register = program.operand[i]
        sm.register[w, register] = time
        sm.register_cause[w, register] = cause
    if static.sets >= 0:
        let_go(sm, w, static.sets, time, cause)
