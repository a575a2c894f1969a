"""What cores do from one thing that takes time to the next: the steps of NodeProgram, one instance after the other.

A core that has nothing to go on with takes, in this order: an instance of its own that was suspended and may go on; a
chunk of the loop that was begun first; a ready instance, by policy. Conventions:

- At a step that has to wait the instance is suspended and its core looks for other work; once resumed, which costs
  nothing, it executes the step again. Tied instances wait for their core, untied ones go to the ready queues.
- A barrier, and the end of a phase, wait for all instances, those that others create meanwhile too.
- A called instance begins at once, or when its predecessors are complete, in both cases on its caller's core, which
  goes on with the caller when it has ended; it is not scheduled, so that costs nothing.
- Chunks are instances of their loop, not children of the instance that begins it.
- A core that waits for a lock does nothing else; the lock goes to who has waited longest.
- What becomes ready while cores are idle is for the lowest of them, by data reuse one near its data; a core that ends
  an instance takes one of those that became ready by that before idle cores do.
- OpenMP's rule that a core may only begin descendants of its suspended tied tasks is not kept.

Instances are *rows* here: 0 is the initial task, others count from 1 in each phase.

Cost: O(1) a step, O(successors) a completion, O(ready queue) a take, and O(cores / 64) where a core is woken; a phase
begins with O(its instances), of critical path first O(its steps and edges).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.node.node_program import Action, InstanceFlag
from manyscale.models.node.ready_queues import CRITICAL_PATH, DATA_REUSE, lowest_bit, put, remove_reused, take

PIECE: Final = 0  # what `advance` returns
IDLE: Final = 1
OPERATION: Final = 2
PHASE_END: Final = 3

# What a suspended instance waits for
NOTHING, CHILDREN, INSTANCE, CALLED, GROUP, ALL, CHUNKS_DONE, CHUNKS_BEGUN = 0, 1, 2, 3, 4, 5, 6, 7
# Why a core was left to its caller
_LOOKING, _STEP_DONE, _STARTING, _CREATING, _ENDING = 0, 1, 2, 3, 4
# More bits of an instance's flags
CREATES, UNDEFERRED, CREATED, BEGUN, DONE = 8, 16, 32, 64, 128
# What a step of synchronisation comes to, beside IDLE and OPERATION
_GOES_ON, _WAITS = -1, -2

_UNTIED, _CHUNK, _PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)
_COMPUTE, _CREATE, _CALL = int(Action.compute), int(Action.create), int(Action.call)
_WAIT_CHILDREN, _WAIT_INSTANCE = int(Action.wait_children), int(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = int(Action.begin_group), int(Action.end_group), int(Action.barrier)
_LOOP, _LOOP_NOWAIT = int(Action.loop), int(Action.loop_nowait)
_ACQUIRE, _RELEASE = int(Action.acquire), int(Action.release)


@allocation_free
def begin_phase(sch, phase, time_ps):  # type: ignore[no-untyped-def]
    """The initial task's steps of a phase stand on core 0, all other cores are idle; call ``advance(sch, 0, time_ps)``.

    O(instances of the phase + cores), with critical path first O(its steps and edges).
    """
    program = sch.program
    node = sch.node[0]
    first = program.phase_first_instance[phase]
    end = program.phase_first_instance[phase + 1]
    base = np.int64(first) - 1
    node.base = base
    node.phase = phase
    node.num_outstanding = 0
    node.num_waking = 0
    node.num_chunks = 0
    node.first_loop = _first_not_below(sch.first_chunk, first)
    node.open_loop = -1
    node.last_open_loop = -1
    node.waiter = -1
    node.num_groups = 0
    _reset_row(sch.instance[0], 0)
    sch.instance[0].step = program.phase_first_step[phase]
    sch.instance[0].end_step = program.phase_first_step[phase + 1]
    edge = program.first_successor[first]
    sch.instance[0].first_successor = edge
    levels = program.levels
    step = program.first_step[first]
    for i in range(first, end):
        state = sch.instance[i - base]
        _reset_row(state, program.instance_flags[i])
        state.step = step
        step = program.first_step[i + 1]
        state.end_step = step
        state.first_successor = edge
        edge = program.first_successor[i + 1]
        state.predecessors = program.num_predecessors[i] + 1
        above = program.parent[i]
        state.parent = 0 if above == 0 else above - base
        if not state.flags & _CHUNK:
            sch.instance[state.parent].flags |= CREATES
        if levels.shape[0] > 1:
            state.level = _first_not_below(levels, -program.priority[i])
    sch.instance[end - base].first_successor = edge
    _reset_cores(sch, time_ps)
    sch.num_woken[0] = 0
    sch.queues.control[0].length = 0
    sch.queues.control[0].num_draws = 0
    if sch.queues.control[0].policy == CRITICAL_PATH:
        _find_bottom_levels(sch, end - base)


@inlined
def _reset_row(state, flags):  # type: ignore[no-untyped-def]
    state.predecessors = 1
    state.parent = -1
    state.children = 0
    state.group = -1
    state.open_group = -1
    state.core = -1
    state.level = 0
    state.waiter = -1
    state.following = -1
    state.waiting = NOTHING
    state.flags = flags


@inlined
def _first_not_below(values, key):  # type: ignore[no-untyped-def]
    """Index of the first of ascending values that is at least ``key``."""
    low, high = 0, values.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@allocation_free
def _reset_cores(sch, time_ps):  # type: ignore[no-untyped-def]
    count = sch.core.shape[0]
    for core in range(count):
        me = sch.core[core]
        me.row = -1
        me.instance = -1
        me.piece = -1
        me.operation = -1
        me.start_ps = time_ps
        me.why = _LOOKING
        me.is_idle = 1
        me.is_counted = 0
        me.first_resumed = -1
        me.last_resumed = -1
        me.following = -1
        sch.idle[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    sch.idle[0] &= ~np.uint64(1)
    sch.node[0].num_idle = count - 1
    me = sch.core[0]
    me.row = 0
    me.instance = 0
    me.why = _STARTING
    me.is_idle = 0
    sch.instance[0].core = 0
    for lock in range(sch.lock.shape[0]):
        sch.lock[lock].holder = -1
        sch.lock[lock].first = -1


@allocation_free
def advance(sch, core, time_ps):  # type: ignore[no-untyped-def]
    """Go through a core's steps at ``time_ps`` until something takes time: PIECE, IDLE, OPERATION or PHASE_END.

    PIECE: ``sch.core[core]`` says which ``piece`` of which ``instance`` to execute from ``start_ps`` on, or, with piece
    -1, that an overhead lasts until ``start_ps``. OPERATION: which ``operation`` to wait for. The core has to be
    advanced again when that is over. Cores that got something to do stand in ``sch.woken``: advance each at ``time_ps``,
    and set ``sch.num_woken[0]`` to 0.
    """
    return advance_inlined(sch, core, time_ps)


@inlined
def advance_inlined(sch, core, time_ps):  # type: ignore[no-untyped-def]
    """The same, put into the caller: for kernels that do little else."""
    me = sch.core[core]
    node = sch.node[0]
    why = me.why
    row = np.int64(me.row)
    step = np.int64(0)
    if row >= 0:
        step = sch.instance[row].step
        if why == _STEP_DONE:
            step += 1
    elif me.is_idle:
        _leave_idle(me, sch.idle, sch.node[0], core)
    while True:
        if row < 0:
            if me.is_counted:
                me.is_counted = 0
                node.num_waking -= 1
            row, cost_ps = _next_row(sch, core)
            _wake(sch, core)
            me.row = row
            why = np.uint8(_STARTING)
            me.why = why
            if row < 0:
                me.instance = -1
                me.why = _LOOKING
                _become_idle(me, sch.idle, node, core)
                return IDLE
            me.instance = row + node.base if row > 0 else 0
            step = sch.instance[row].step
            if cost_ps > 0:
                return _overhead(me, time_ps, cost_ps)
        if step == sch.instance[row].end_step:
            if row == 0:
                if node.num_outstanding == 0:
                    me.why = _STARTING
                    return PHASE_END
                _suspend(sch.instance, node, row, step, ALL)
                row = np.int64(-1)
                continue
            if node.complete_ps > 0 and why != _ENDING:
                sch.instance[row].step = step
                me.why = _ENDING
                return _overhead(me, time_ps, node.complete_ps)
            row = _complete(sch, core, row)
            if row >= 0:  # its caller
                _wake(sch, core)
                why = np.uint8(_STARTING)
                me.row = row
                me.instance = row + node.base if row > 0 else 0
                step = sch.instance[row].step
            continue
        action = sch.step_action[step]
        target = sch.step_target[step]
        if action == _COMPUTE:
            sch.instance[row].step = step
            me.why = _STEP_DONE
            me.piece = target
            me.start_ps = time_ps
            return PIECE
        if action == _CREATE or action == _CALL:
            child = target - node.base
            if node.create_ps > 0 and why != _CREATING and not sch.instance[child].flags & _PSEUDO:
                sch.instance[row].step = step
                me.why = _CREATING
                return _overhead(me, time_ps, node.create_ps)
            why = np.uint8(_STARTING)
            step += 1
            if action == _CREATE:
                _create(sch, core, row, child)
            else:
                sch.instance[row].step = step
                begun = _call(sch, core, row, child)
                if begun != row:
                    row = begun
                    if row >= 0:
                        me.row = row
                        me.instance = row + node.base
                        step = sch.instance[row].step
        else:
            done = _synchronise(sch, core, row, step, action, target)
            if done == _GOES_ON:
                step += 1
            elif done == _WAITS:
                row = np.int64(-1)
            else:
                sch.instance[row].step = step
                me.why = _STEP_DONE
                return done


@inlined
def _overhead(me, time_ps, cost_ps):  # type: ignore[no-untyped-def]
    me.piece = -1
    me.start_ps = time_ps + cost_ps
    me.overhead_ps += cost_ps
    return PIECE


@inlined
def _next_row(sch, core):  # type: ignore[no-untyped-def]
    """(row, cost) of the instance that a core goes on with, (-1, 0) if there is none."""
    me = sch.core[core]
    node = sch.node[0]
    row = np.int64(me.first_resumed)
    if row >= 0:
        me.first_resumed = sch.instance[row].following
        sch.instance[row].core = core
        return row, np.int64(0)
    if sch.queues.control[0].length + node.num_chunks <= node.num_waking:
        return np.int64(-1), np.int64(0)
    cost_ps = np.int64(node.schedule_ps)
    if node.num_chunks > 0:
        return _next_chunk(sch, core), cost_ps
    row, stolen = take(sch.queues, core, me.group)
    state = sch.instance[row]
    if sch.queues.control[0].policy == DATA_REUSE:
        remove_reused(sch.queues, row, state.level, state.core, sch.core[state.core].group)
    state.core = core
    if stolen:
        cost_ps += node.steal_ps
    if state.flags & BEGUN:
        cost_ps -= node.schedule_ps
    state.flags |= BEGUN
    return row, cost_ps


@allocation_free
def _next_chunk(sch, core):  # type: ignore[no-untyped-def]
    """Take a chunk of the loop that was begun first."""
    node = sch.node[0]
    number = node.open_loop
    loop = sch.loop[number]
    row = np.int64(loop.next_row)
    loop.next_row += 1
    node.num_chunks -= 1
    owner = sch.instance[loop.owner]
    chunk = sch.instance[row]
    chunk.core = core
    chunk.group = owner.open_group
    chunk.open_group = owner.open_group
    chunk.waiter = number
    chunk.flags |= BEGUN | CREATED
    if loop.next_row == loop.end_row:
        node.open_loop = loop.following
        if owner.waiting == CHUNKS_BEGUN:
            _resume(sch, loop.owner, core)
    return row


@inlined
def _create(sch, core, row, child):  # type: ignore[no-untyped-def]
    """An instance is there from now on."""
    ready = _account(sch.instance, sch.group, sch.node[0], row, child)
    state = sch.instance[child]
    if state.core < 0:
        state.core = core
    if ready:
        if state.flags & _PSEUDO:
            _complete_pseudo(sch, core, child)
        else:
            put(sch.queues, child, state.level, _place(sch.queues.control[0], state, core), sch.core[state.core].group)
        _wake(sch, state.core)


@inlined
def _place(control, state, core):  # type: ignore[no-untyped-def]
    """Whose queue an instance that ``core`` made ready belongs to: its own, by data reuse where its data lie."""
    return state.core if control.policy == DATA_REUSE else core


@inlined
def _account(instances, groups, node, row, child):  # type: ignore[no-untyped-def]
    """Count an instance wherever it is waited for: whether it is ready."""
    parent = instances[row]
    state = instances[child]
    node.num_outstanding += 1
    parent.children += 1
    group = parent.open_group
    state.group = group
    state.open_group = group
    if group >= 0:
        groups[group].count += 1
    state.flags |= CREATED
    state.predecessors -= 1
    return state.predecessors == 0


@allocation_free
def _call(sch, core, row, child):  # type: ignore[no-untyped-def]
    """Begin an undeferred instance: the row to go on with, -1 if it has to wait for its predecessors."""
    ready = _account(sch.instance, sch.group, sch.node[0], row, child)
    state = sch.instance[child]
    state.flags |= UNDEFERRED | BEGUN
    state.core = core
    if ready and state.flags & _PSEUDO:
        _complete_pseudo(sch, core, child)
        _wake(sch, core)
        return row
    sch.instance[row].following = state.waiter
    state.waiter = row
    sch.instance[row].waiting = CALLED
    return np.int64(child) if ready else np.int64(-1)


@allocation_free
def _complete_pseudo(sch, core, row):  # type: ignore[no-untyped-def]
    caller = _complete(sch, core, row)
    if caller >= 0:
        _resume(sch, caller, core)


@allocation_free
def _complete(sch, core, row):  # type: ignore[no-untyped-def]
    """An instance is done, and whoever waited for it may go on: the row of its caller, if this core goes on with it,
    else -1. Pseudo instances that become ready are done at once."""
    node = sch.node[0]
    base = node.base
    caller = np.int64(-1)
    pending = np.int64(-1)  # pseudo instances, by ``following``
    while True:
        state = sch.instance[row]
        state.flags |= DONE
        node.num_outstanding -= 1
        parent = np.int64(state.parent)
        if state.flags & _CHUNK:
            loop = sch.loop[state.waiter]
            loop.num_running -= 1
            if loop.num_running == 0 and loop.is_awaited:
                _resume(sch, parent, core)
        else:
            above = sch.instance[parent]
            above.children -= 1
            if above.children == 0 and above.waiting == CHILDREN:
                _resume(sch, parent, core)
            if state.waiter >= 0:
                caller = _tell_waiters(sch, core, row, caller)
        if state.group >= 0:
            group = sch.group[state.group]
            group.count -= 1
            if group.count == 0 and group.waiter >= 0:
                _resume(sch, group.waiter, core)
        for edge in range(state.first_successor, sch.instance[row + 1].first_successor):
            other = sch.successor[edge] - base
            after = sch.instance[other]
            after.core = core
            after.predecessors -= 1
            if after.predecessors == 0:
                if after.flags & _PSEUDO:
                    after.following = pending
                    pending = np.int64(other)
                elif after.flags & UNDEFERRED:
                    after.core = sch.instance[after.parent].core
                    _queue_on_core(sch.core, sch.instance, sch.idle, node, sch.woken, sch.num_woken, other, after.core)
                else:
                    put(sch.queues, other, after.level, core, sch.core[core].group)
        if pending < 0:
            break
        row = pending
        pending = np.int64(sch.instance[row].following)
    if node.num_outstanding == 0 and node.waiter >= 0:
        waiter = np.int64(node.waiter)
        node.waiter = -1
        _resume_all(sch, waiter, core)
    return caller


@allocation_free
def _tell_waiters(sch, core, row, caller):  # type: ignore[no-untyped-def]
    """Resume those that wait for an instance, except its caller if this core may go on with it and with no other."""
    waiter = np.int64(sch.instance[row].waiter)
    while waiter >= 0:
        state = sch.instance[waiter]
        following = np.int64(state.following)
        if state.waiting == CALLED and caller < 0 and (state.core == core or state.flags & _UNTIED):
            state.waiting = NOTHING
            state.core = core
            caller = waiter
        else:
            _resume(sch, waiter, core)
        waiter = following
    return caller


@allocation_free
def _resume_all(sch, row, core):  # type: ignore[no-untyped-def]
    while row >= 0:
        following = np.int64(sch.instance[row].following)
        _resume(sch, row, core)
        row = following


@allocation_free
def _resume(sch, row, core):  # type: ignore[no-untyped-def]
    """A suspended instance may go on: on its core, or, untied, on any."""
    state = sch.instance[row]
    state.waiting = NOTHING
    if state.flags & _UNTIED:
        put(sch.queues, row, state.level, _place(sch.queues.control[0], state, core), sch.core[state.core].group)
    else:
        _queue_on_core(sch.core, sch.instance, sch.idle, sch.node[0], sch.woken, sch.num_woken, row, state.core)


@allocation_free
def _queue_on_core(cores, instances, idle, node, woken, num_woken, row, core):  # type: ignore[no-untyped-def]
    """An instance goes on when its core is free."""
    me = cores[core]
    instances[row].following = -1
    if me.first_resumed < 0:
        me.first_resumed = row
    else:
        instances[me.last_resumed].following = row
    me.last_resumed = row
    if me.is_idle:
        _leave_idle(me, idle, node, core)
        woken[num_woken[0]] = core
        num_woken[0] += 1


@inlined
def _suspend(instances, node, row, step, waiting):  # type: ignore[no-untyped-def]
    """Until `_resume`, or, for all instances of the rank, until none is left."""
    state = instances[row]
    state.step = step
    state.waiting = waiting
    if waiting == ALL:
        state.following = node.waiter
        node.waiter = row


@allocation_free
def _synchronise(sch, core, row, step, action, target):  # type: ignore[no-untyped-def]
    """A step that is neither work nor creation: _GOES_ON, _WAITS (the instance is suspended), or what `advance` returns."""
    state = sch.instance[row]
    node = sch.node[0]
    if action == _WAIT_CHILDREN:
        if state.children == 0:
            return _GOES_ON
        _suspend(sch.instance, node, row, step, CHILDREN)
        return _WAITS
    if action == _WAIT_INSTANCE:
        other = sch.instance[target - node.base]
        if other.flags & DONE:
            return _GOES_ON
        _suspend(sch.instance, node, row, step, INSTANCE)
        state.following = other.waiter
        other.waiter = row
        return _WAITS
    if action == _BEGIN_GROUP:
        group = sch.group[node.num_groups]
        group.count = 0
        group.outer = state.open_group
        group.waiter = -1
        state.open_group = node.num_groups
        node.num_groups += 1
        return _GOES_ON
    if action == _END_GROUP and state.open_group >= 0:
        group = sch.group[state.open_group]
        if group.count > 0:
            _suspend(sch.instance, node, row, step, GROUP)
            group.waiter = row
            return _WAITS
        state.open_group = group.outer
        return _GOES_ON
    if action == _BARRIER or action == _END_GROUP:  # of a group that was begun in an earlier phase
        if node.num_outstanding == 0:
            return _GOES_ON
        _suspend(sch.instance, node, row, step, ALL)
        return _WAITS
    if action == _LOOP or action == _LOOP_NOWAIT:
        waiting = CHUNKS_DONE if action == _LOOP else CHUNKS_BEGUN
        first, end = sch.first_chunk[target] - node.base, sch.first_chunk[target + 1] - node.base
        return _begin_loop(
            sch.instance, sch.loop, sch.group, node, row, step, target - node.first_loop, first, end, waiting
        )
    if action == _ACQUIRE:
        return _acquire(sch.core, sch.lock[target], core)
    if action == _RELEASE:
        _release(sch.core, sch.lock[target], sch.woken, sch.num_woken)
        return _GOES_ON
    sch.core[core].operation = target
    return OPERATION


@allocation_free
def _begin_loop(  # type: ignore[no-untyped-def]
    instances, loops, groups, node, row, step, number, first, end, waiting
):
    """All chunks of a loop, rows [first, end), may be begun; the instance is suspended."""
    if first == end:
        return _GOES_ON
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
    _suspend(instances, node, row, step + 1, waiting)
    return _WAITS


@allocation_free
def _acquire(cores, lock, core):  # type: ignore[no-untyped-def]
    if lock.holder < 0:
        lock.holder = core
        return _GOES_ON
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


@inlined
def _become_idle(me, idle, node, core):  # type: ignore[no-untyped-def]
    me.is_idle = 1
    idle[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    node.num_idle += 1


@inlined
def _leave_idle(me, idle, node, core):  # type: ignore[no-untyped-def]
    me.is_idle = 0
    idle[core >> 6] &= ~(np.uint64(1) << np.uint64(core & 63))
    node.num_idle -= 1


@inlined
def _wake(sch, near):  # type: ignore[no-untyped-def]
    """Wake idle cores until there is one for each ready instance: by data reuse ``near`` itself or one that shares its
    last cache, else the lowest."""
    node = sch.node[0]
    control = sch.queues.control[0]
    if node.num_idle > 0 and control.length + node.num_chunks > node.num_waking:
        _wake_cores(sch.core, sch.idle, sch.sharers, node, control, sch.woken, sch.num_woken, near)


@allocation_free
def _wake_cores(cores, idle, sharers, node, control, woken, num_woken, near):  # type: ignore[no-untyped-def]
    while node.num_idle > 0 and control.length + node.num_chunks > node.num_waking:
        core = np.int64(-1)
        if control.policy == DATA_REUSE:
            core = _idle_near(cores, idle, sharers, near)
        if core < 0:
            at = 0
            while idle[at] == 0:
                at += 1
            core = (at << 6) + lowest_bit(idle[at])
        _leave_idle(cores[core], idle, node, core)
        cores[core].is_counted = 1
        node.num_waking += 1
        woken[num_woken[0]] = core
        num_woken[0] += 1


@allocation_free
def _idle_near(cores, idle, sharers, near):  # type: ignore[no-untyped-def]
    """An idle core that shares the last cache of another, itself first; -1 if there is none. O(cores / 64)."""
    if cores[near].is_idle:
        return np.int64(near)
    group = cores[near].group
    for at in range(idle.shape[0]):
        word = idle[at] & sharers[group, at]
        if word != 0:
            return (at << 6) + lowest_bit(word)
    return np.int64(-1)


@allocation_free
def _find_bottom_levels(sch, num_rows):  # type: ignore[no-untyped-def]
    """Of each instance its own predicted work and the longest way to the end after it: over its successors, or what its
    parent does after it has waited for it. Children are created later than their parents and successors later than
    predecessors, so each parent's children are done backwards, and parents forwards. O(steps + edges)."""
    bottom_level = sch.queues.bottom_level
    create_ps = sch.node[0].create_ps
    for row in range(num_rows):
        bottom_level[row] = _work(sch, row)
    for row in range(num_rows):
        state = sch.instance[row]
        if not state.flags & CREATES:
            continue
        rest_ps = bottom_level[row] - _work(sch, row)  # after it, then after a step of it
        waited_ps = np.int64(0)
        for step in range(state.end_step - 1, state.step - 1, -1):
            action = sch.step_action[step]
            if action == _COMPUTE:
                rest_ps += sch.predicted_ps[sch.step_target[step]]
            elif action == _CREATE or action == _CALL:
                child = sch.step_target[step] - sch.node[0].base
                longest = waited_ps if action == _CREATE else rest_ps
                for edge in range(sch.instance[child].first_successor, sch.instance[child + 1].first_successor):
                    longest = max(longest, bottom_level[sch.successor[edge] - sch.node[0].base])
                bottom_level[child] += longest
                rest_ps += create_ps
            elif action <= _BARRIER and action != _BEGIN_GROUP:
                waited_ps = rest_ps


@allocation_free
def _work(sch, row):  # type: ignore[no-untyped-def]
    work_ps = np.int64(0)
    for step in range(sch.instance[row].step, sch.instance[row].end_step):
        if sch.step_action[step] == _COMPUTE:
            work_ps += sch.predicted_ps[sch.step_target[step]]
        elif sch.step_action[step] <= _CALL:
            work_ps += sch.node[0].create_ps
    return work_ps
