"""Steps at which an instance may have to wait: for instances, loops, locks and MPI operations."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, separate
from manyscale.models.node.program.node_program import Action, LoopFlag
from manyscale.models.node.scheduler.codes import (
    ALL,
    CHILDREN,
    CHUNKS_BEGUN,
    CHUNKS_DONE,
    DONE,
    GOES_ON,
    GROUP,
    IDLE,
    INSTANCE,
    LOCKED,
    MEETING,
    OPERATION,
    PIECE,
    STEP_DONE,
    WAITS,
)

_WAIT_CHILDREN, _WAIT_INSTANCE = int(Action.wait_children), int(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = int(Action.begin_group), int(Action.end_group), int(Action.barrier)
_LOOP, _LOOP_NOWAIT = int(Action.loop), int(Action.loop_nowait)
_ACQUIRE, _RELEASE = int(Action.acquire), int(Action.release)
_FORKS = int(LoopFlag.forks)


@inner_inlined
def overhead(me, time_ps, cost_ps):  # type: ignore[no-untyped-def]
    """A core is in the runtime system for so long."""
    me.piece = -1
    me.start_ps = time_ps + cost_ps
    me.overhead_ps += cost_ps
    return PIECE


@inner_inlined
def suspend(sch, row, step, waiting):  # type: ignore[no-untyped-def]
    """Until `_resume`, or, for all instances of the rank, until none is left."""
    state = sch.instance[row]
    state.step = step
    state.waiting = waiting
    if waiting == ALL:
        node = sch.node[0]
        state.following = node.waiter
        node.waiter = row


@separate
def synchronise(sch, core, row, step, why, time_ps):  # type: ignore[no-untyped-def]
    """A step that is neither work nor creation: GOES_ON, WAITS (suspended), or what `advance` is to return."""
    node = sch.node[0]
    me = sch.core[core]
    me.why = STEP_DONE
    state = sch.instance[row]
    action = sch.step_action[step]
    target = sch.step_target[step]
    if action == _WAIT_CHILDREN:
        if state.children == 0:
            return GOES_ON
        suspend(sch, row, step, CHILDREN)
        return WAITS
    if action == _WAIT_INSTANCE:
        other = sch.instance[target - node.base]
        if other.flags & DONE:
            return GOES_ON
        suspend(sch, row, step, INSTANCE)
        state.following = other.waiter
        other.waiter = row
        return WAITS
    if action == _BEGIN_GROUP:
        group = sch.group[node.num_groups]
        group.count = 0
        group.outer = state.open_group
        group.waiter = -1
        state.open_group = node.num_groups
        node.num_groups += 1
        return GOES_ON
    if action == _END_GROUP and state.open_group >= 0:
        group = sch.group[state.open_group]
        if group.count > 0:
            suspend(sch, row, step, GROUP)
            group.waiter = row
            return WAITS
        state.open_group = group.outer
        return GOES_ON
    is_barrier = action == _BARRIER or action == _END_GROUP  # of a group that was begun in an earlier phase
    if is_barrier and node.num_outstanding > 0:
        suspend(sch, row, step, ALL)
        return WAITS
    is_loop = action == _LOOP or action == _LOOP_NOWAIT
    if is_loop and sch.first_chunk[target] == sch.first_chunk[target + 1]:
        return GOES_ON
    if why != MEETING:  # what it takes that all cores meet: before a loop, and when a barrier waits no longer
        cost_ps = np.int64(node.barrier_ps) if action == _BARRIER or action == _LOOP else np.int64(0)
        if is_loop and sch.loop_flags[target] & _FORKS:
            cost_ps += node.fork_ps
        if cost_ps > 0:
            me.why = MEETING
            return overhead(me, time_ps, cost_ps)
    if is_barrier:
        return GOES_ON
    if is_loop:
        return _begin_loop(sch, row, step, target, CHUNKS_DONE if action == _LOOP else CHUNKS_BEGUN, time_ps)
    if action == _ACQUIRE:
        return _acquire(sch, sch.lock[target], core, time_ps)
    if action == _RELEASE:
        _release(sch, sch.lock[target])
        return GOES_ON
    me.operation = target
    return OPERATION


@inner
def _begin_loop(sch, row, step, target, waiting, time_ps):  # type: ignore[no-untyped-def]
    """All chunks of a loop may be begun; the instance is suspended."""
    node = sch.node[0]
    first = sch.first_chunk[target] - node.base
    end = sch.first_chunk[target + 1] - node.base
    number = target - node.first_loop
    loop = sch.loop[number]
    loop.begin_ps = time_ps
    loop.owner = row
    loop.next_row = first
    loop.end_row = end
    loop.num_running = end - first
    loop.is_awaited = waiting == CHUNKS_DONE
    loop.following = -1
    if node.open_loop < 0:
        node.open_loop = number
    else:
        sch.loop[node.last_open_loop].following = number
    node.last_open_loop = number
    node.num_chunks += end - first
    node.num_outstanding += end - first
    group = sch.instance[row].open_group
    if group >= 0:
        sch.group[group].count += end - first
    suspend(sch, row, step + 1, waiting)
    return WAITS


@inner
def _acquire(sch, lock, core, time_ps):  # type: ignore[no-untyped-def]
    me = sch.core[core]
    if lock.holder < 0:
        lock.holder = core
        cost_ps = taken_ps(sch, lock, core)
        return overhead(me, time_ps, cost_ps) if cost_ps > 0 else GOES_ON
    if sch.node[0].lock_ps > 0:
        me.why = LOCKED
    me.following = -1
    if lock.first < 0:
        lock.first = core
    else:
        sch.core[lock.last].following = core
    lock.last = core
    return IDLE


@inner_inlined
def taken_ps(sch, lock, core):  # type: ignore[no-untyped-def]
    """What it takes that a core has a lock now, which it may have had last."""
    is_moved = lock.before >= 0 and lock.before != core
    lock.before = core
    return np.int64(sch.node[0].lock_ps) if is_moved else np.int64(0)


@inner
def _release(sch, lock):  # type: ignore[no-untyped-def]
    """Hand a lock to the core that has waited longest."""
    core = lock.first
    lock.holder = core
    if core >= 0:
        lock.first = sch.core[core].following
        sch.woken[sch.num_woken[0]] = core
        sch.num_woken[0] += 1
