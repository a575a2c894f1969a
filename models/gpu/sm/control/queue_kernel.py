"""Queues of memory instructions of schedulers, as the load/store unit takes from them: in turn, one each two cycles."""

from __future__ import annotations

from manyscale.models.gpu.sm.control.counters_kernel import let_go
from manyscale.models.gpu.sm.control.rows import FREED
from manyscale.models.gpu.sm.state import BEFORE_UNIT, DEPENDENCY, NEVER
from manyscale.models.gpu.sm.warp_kernel import after_memory
from manyscale.models.kernels import merged, seldom


@merged
def after_last(sm, limits, k, other):  # type: ignore[no-untyped-def]
    """Whether a scheduler's turn comes before another's."""
    begin = limits.schedulers - 1 - sm.core[0].last_taken
    return (k + begin) % limits.schedulers < (other + begin) % limits.schedulers


@seldom(gives="nothing")
def leave_queue(sm, program, limits, k, number, time):  # type: ignore[no-untyped-def]
    """The load/store unit has taken a scheduler's first memory instruction: those behind it move, and what it read is
    free."""
    core = sm.core[0]
    scheduler = sm.scheduler[k]
    load = sm.load[number]
    static = program.static[load.row]
    core.last_taken = k
    core.accepts_from = time + limits.shared_interval
    scheduler.leaves_from = time + limits.memory_interval
    scheduler.memory_from = time + FREED - static.leaves
    scheduler.queued -= 1
    for place in range(scheduler.queued):
        entry, behind = sm.queue[place, k], sm.queue[place + 1, k]
        entry.time = behind.time
        entry.issued = behind.issued
        entry.load = behind.load
    sm.queue[scheduler.queued, k].time = NEVER
    if scheduler.queued > 0:
        first = sm.queue[BEFORE_UNIT, k]
        first.time = max(first.time, scheduler.leaves_from)
    if static.reads >= 0:
        w = load.warp
        let_go(sm, w, static.reads, time + static.after, DEPENDENCY)
        after_memory(sm, program, limits, w, time + static.after, DEPENDENCY)
