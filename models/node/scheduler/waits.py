"""Steps at which an instance may have to wait: for instances, loops, locks and MPI operations."""

from __future__ import annotations

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.node.program.node_program import Action
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
    OPERATION,
    WAITS,
)

_WAIT_CHILDREN, _WAIT_INSTANCE = int(Action.wait_children), int(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = int(Action.begin_group), int(Action.end_group), int(Action.barrier)
_LOOP, _LOOP_NOWAIT = int(Action.loop), int(Action.loop_nowait)
_ACQUIRE, _RELEASE = int(Action.acquire), int(Action.release)


@inlined
def suspend(instances, node, row, step, waiting):  # type: ignore[no-untyped-def]
    """Until `_resume`, or, for all instances of the rank, until none is left."""
    state = instances[row]
    state.step = step
    state.waiting = waiting
    if waiting == ALL:
        state.following = node.waiter
        node.waiter = row


@allocation_free
def synchronise(  # type: ignore[no-untyped-def]
    cores, instances, loops, groups, locks, first_chunk, node, woken, num_woken, core, row, step, action, target
):
    """A step that is neither work nor creation: GOES_ON, WAITS (suspended), or what `advance` is to return."""
    state = instances[row]
    if action == _WAIT_CHILDREN:
        if state.children == 0:
            return GOES_ON
        suspend(instances, node, row, step, CHILDREN)
        return WAITS
    if action == _WAIT_INSTANCE:
        other = instances[target - node.base]
        if other.flags & DONE:
            return GOES_ON
        suspend(instances, node, row, step, INSTANCE)
        state.following = other.waiter
        other.waiter = row
        return WAITS
    if action == _BEGIN_GROUP:
        group = groups[node.num_groups]
        group.count = 0
        group.outer = state.open_group
        group.waiter = -1
        state.open_group = node.num_groups
        node.num_groups += 1
        return GOES_ON
    if action == _END_GROUP and state.open_group >= 0:
        group = groups[state.open_group]
        if group.count > 0:
            suspend(instances, node, row, step, GROUP)
            group.waiter = row
            return WAITS
        state.open_group = group.outer
        return GOES_ON
    if action == _BARRIER or action == _END_GROUP:  # of a group that was begun in an earlier phase
        if node.num_outstanding == 0:
            return GOES_ON
        suspend(instances, node, row, step, ALL)
        return WAITS
    if action == _LOOP or action == _LOOP_NOWAIT:
        waiting = CHUNKS_DONE if action == _LOOP else CHUNKS_BEGUN
        first, end = first_chunk[target] - node.base, first_chunk[target + 1] - node.base
        return _begin_loop(instances, loops, groups, node, row, step, target - node.first_loop, first, end, waiting)
    if action == _ACQUIRE:
        return _acquire(cores, locks[target], core)
    if action == _RELEASE:
        _release(cores, locks[target], woken, num_woken)
        return GOES_ON
    cores[core].operation = target
    return OPERATION


@allocation_free
def _begin_loop(  # type: ignore[no-untyped-def]
    instances, loops, groups, node, row, step, number, first, end, waiting
):
    """All chunks of a loop, rows [first, end), may be begun; the instance is suspended."""
    if first == end:
        return GOES_ON
    loop = loops[number]
    loop.owner = row
    loop.next_row = first
    loop.end_row = end
    loop.num_running = end - first
    loop.is_awaited = waiting == CHUNKS_DONE
    loop.following = -1
    if node.open_loop < 0:
        node.open_loop = number
    else:
        loops[node.last_open_loop].following = number
    node.last_open_loop = number
    node.num_chunks += end - first
    node.num_outstanding += end - first
    group = instances[row].open_group
    if group >= 0:
        groups[group].count += end - first
    suspend(instances, node, row, step + 1, waiting)
    return WAITS


@allocation_free
def _acquire(cores, lock, core):  # type: ignore[no-untyped-def]
    if lock.holder < 0:
        lock.holder = core
        return GOES_ON
    cores[core].following = -1
    if lock.first < 0:
        lock.first = core
    else:
        cores[lock.last].following = core
    lock.last = core
    return IDLE


@allocation_free
def _release(cores, lock, woken, num_woken):  # type: ignore[no-untyped-def]
    """Hand a lock to the core that has waited longest."""
    core = lock.first
    lock.holder = core
    if core >= 0:
        lock.first = cores[core].following
        woken[num_woken[0]] = core
        num_woken[0] += 1
