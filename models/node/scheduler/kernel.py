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

import numpy as np

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.node.program.node_program import Action, InstanceFlag
from manyscale.models.node.scheduler.codes import (
    ALL,
    BEGUN,
    CALLED,
    CHILDREN,
    CHUNKS_BEGUN,
    CREATED,
    CREATES,
    CREATING,
    DONE,
    ENDING,
    IDLE,
    LOOKING,
    NOTHING,
    OPERATION,
    PHASE_END,
    PIECE,
    STARTING,
    STEP_DONE,
    UNDEFERRED,
    WAITS,
)
from manyscale.models.node.scheduler.phase import begin_phase
from manyscale.models.node.scheduler.ready_queues import DATA_REUSE, lowest_bit, put, remove_reused, take
from manyscale.models.node.scheduler.waits import suspend, synchronise

__all__ = ["CREATES", "DONE", "IDLE", "OPERATION", "PHASE_END", "PIECE", "advance", "advance_inlined", "begin_phase"]

_UNTIED, _CHUNK, _PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)
_COMPUTE, _CREATE, _CALL = int(Action.compute), int(Action.create), int(Action.call)
_DONE_AT_ONCE = -2


@allocation_free
def advance(sch, core, time_ps):  # type: ignore[no-untyped-def]
    """Go through a core's steps at ``time_ps`` until something takes time: PIECE, IDLE, OPERATION or PHASE_END.

    PIECE: ``sch.core[core]`` says which ``piece`` of which ``instance`` to execute from ``start_ps`` on, or, with piece
    -1, that an overhead lasts until ``start_ps``. OPERATION: which ``operation`` to wait for. The core has to be
    advanced again when that is over. Cores that got something to do stand in ``sch.woken``: advance each of them at
    ``time_ps``, and set ``sch.num_woken[0]`` to 0.
    """
    return advance_inlined(sch, core, time_ps)


@inlined
def advance_inlined(sch, core, time_ps):  # type: ignore[no-untyped-def]
    """The same, put into the caller: for kernels that do little else."""
    me = sch.core[core]
    node = sch.node[0]
    control = sch.queues.control[0]
    why = me.why
    row = np.int64(me.row)
    step = np.int64(0)
    near = np.int64(core)
    if row >= 0:
        step = sch.instance[row].step
        if why == STEP_DONE:
            step += 1
    elif me.is_idle:
        leave_idle(me, sch.idle, node, core)
    while True:
        if node.to_resume >= 0:
            _resume_all(sch.core, sch.instance, sch.queues, sch.idle, node, sch.woken, sch.num_woken, core)
        is_new = row < 0
        cost_ps = np.int64(0)
        if is_new:
            if me.is_counted:
                me.is_counted = 0
                node.num_waking -= 1
            row, cost_ps = _next_row(
                sch.core, sch.instance, sch.loop, sch.queues, sch.idle, node, sch.woken, sch.num_woken, core
            )
        if node.num_idle > 0 and control.length + node.num_chunks > node.num_waking:
            _wake(sch.core, sch.idle, sch.sharers, node, control, sch.woken, sch.num_woken, near)
        if is_new:
            me.row = row
            if row < 0:
                me.instance = -1
                me.why = LOOKING
                _become_idle(me, sch.idle, node, core)
                return IDLE
            me.instance = row + node.base if row > 0 else 0
            step = sch.instance[row].step
            near = np.int64(core)
            why = np.uint8(STARTING)
            me.why = why
            if cost_ps > 0:
                return _overhead(me, time_ps, cost_ps)
        goes_on_with = row
        finished = np.int64(-1)
        if step == sch.instance[row].end_step:
            if row == 0:
                if node.num_outstanding == 0:
                    me.why = STARTING
                    return PHASE_END
                suspend(sch.instance, node, row, step, ALL)
                row = np.int64(-1)
                continue
            if node.complete_ps > 0 and why != ENDING:
                sch.instance[row].step = step
                me.why = ENDING
                return _overhead(me, time_ps, node.complete_ps)
            finished = row
        else:
            action = sch.step_action[step]
            target = sch.step_target[step]
            if action == _COMPUTE:
                sch.instance[row].step = step
                me.why = STEP_DONE
                me.piece = target
                me.start_ps = time_ps
                return PIECE
            if action == _CREATE or action == _CALL:
                child = target - node.base
                if node.create_ps > 0 and why != CREATING and not sch.instance[child].flags & _PSEUDO:
                    sch.instance[row].step = step
                    me.why = CREATING
                    return _overhead(me, time_ps, node.create_ps)
                step += 1
                sch.instance[row].step = step
                goes_on_with = _create(
                    sch.core, sch.instance, sch.group, sch.queues, node, core, row, child, action == _CALL
                )  # fmt: skip
                near = np.int64(sch.instance[child].core)
                if goes_on_with == _DONE_AT_ONCE:
                    goes_on_with = row
                    finished = np.int64(child)
            else:
                done = synchronise(
                    sch.core, sch.instance, sch.loop, sch.group, sch.lock, sch.first_chunk, node, sch.woken,
                    sch.num_woken, core, row, step, action, target,
                )  # fmt: skip
                if done >= 0:
                    sch.instance[row].step = step
                    me.why = STEP_DONE
                    return done
                step += 1
                if done == WAITS:
                    row = np.int64(-1)
                    continue
        if finished >= 0:
            caller = _complete(
                sch.core, sch.instance, sch.loop, sch.group, sch.successor, sch.queues, node, core, finished,
                finished == row,
            )  # fmt: skip
            if finished == row:
                goes_on_with = caller
        why = np.uint8(STARTING)
        if goes_on_with != row:  # none, the caller of an instance that is done, or one that is called
            row = goes_on_with
            if row >= 0:
                me.row = row
                me.instance = row + node.base if row > 0 else 0
                step = sch.instance[row].step


@inlined
def _overhead(me, time_ps, cost_ps):  # type: ignore[no-untyped-def]
    me.piece = -1
    me.start_ps = time_ps + cost_ps
    me.overhead_ps += cost_ps
    return PIECE


@inlined
def _next_row(  # type: ignore[no-untyped-def]
    cores, instances, loops, queues, idle, node, woken, num_woken, core
):
    """(row, cost) of the instance that a core goes on with, (-1, 0) if there is none."""
    me = cores[core]
    control = queues.control[0]
    row = np.int64(me.first_resumed)
    if row >= 0:
        me.first_resumed = instances[row].following
        instances[row].core = core
        return row, np.int64(0)
    if control.length + node.num_chunks <= node.num_waking:
        return np.int64(-1), np.int64(0)
    cost_ps = np.int64(node.schedule_ps)
    if node.num_chunks > 0:
        row = _next_chunk(instances, loops, node, core)
        if node.to_resume >= 0:
            _resume_all(cores, instances, queues, idle, node, woken, num_woken, core)
        return row, cost_ps
    row, stolen = take(queues, core, me.group)
    state = instances[row]
    if control.policy == DATA_REUSE:
        remove_reused(queues, row, state.level, state.core, cores[state.core].group)
    state.core = core
    if stolen:
        cost_ps += node.steal_ps
    if state.flags & BEGUN:
        cost_ps -= node.schedule_ps
    state.flags |= BEGUN
    return row, cost_ps


@allocation_free
def _next_chunk(instances, loops, node, core):  # type: ignore[no-untyped-def]
    """Take a chunk of the loop that was begun first."""
    number = node.open_loop
    loop = loops[number]
    row = np.int64(loop.next_row)
    loop.next_row += 1
    node.num_chunks -= 1
    owner = instances[loop.owner]
    chunk = instances[row]
    chunk.core = core
    chunk.group = owner.open_group
    chunk.open_group = owner.open_group
    chunk.waiter = number
    chunk.flags |= BEGUN | CREATED
    if loop.next_row == loop.end_row:
        node.open_loop = loop.following
        if owner.waiting == CHUNKS_BEGUN:
            _let_resume(instances, node, loop.owner)
    return row


@inlined
def _create(  # type: ignore[no-untyped-def]
    cores, instances, groups, queues, node, core, row, child, is_called
):
    """An instance is there from now on, and counts wherever it is waited for: the row that the core goes on with, the
    creator or what it calls, -1 if that has to wait for its predecessors, _DONE_AT_ONCE for a pseudo instance that
    does not."""
    state = instances[child]
    parent = instances[row]
    node.num_outstanding += 1
    parent.children += 1
    group = parent.open_group
    state.group = group
    state.open_group = group
    if group >= 0:
        groups[group].count += 1
    state.flags |= CREATED
    state.predecessors -= 1
    ready = state.predecessors == 0
    if is_called or state.core < 0:
        state.core = core
    if ready and state.flags & _PSEUDO:
        return np.int64(_DONE_AT_ONCE)
    if is_called:
        state.flags |= UNDEFERRED | BEGUN
        parent.following = state.waiter
        state.waiter = row
        parent.waiting = CALLED
        return np.int64(child) if ready else np.int64(-1)
    if ready:
        place = state.core if queues.control[0].policy == DATA_REUSE else core
        put(queues, child, state.level, place, cores[state.core].group)
    return row


@inlined
def _complete(  # type: ignore[no-untyped-def]
    cores, instances, loops, groups, successor, queues, node, core, row, is_free
):
    """An instance is done, and whoever waited for it may go on: the row of its caller, if this core ``is_free`` to go
    on with it, else -1. Pseudo instances that become ready are done at once."""
    base = node.base
    caller = np.int64(-1)
    pending = np.int64(-1)  # pseudo instances, by ``following``
    while True:
        state = instances[row]
        state.flags |= DONE
        node.num_outstanding -= 1
        if state.flags & _CHUNK:
            loop = loops[state.waiter]
            loop.num_running -= 1
            if loop.num_running == 0 and loop.is_awaited:
                _let_resume(instances, node, loop.owner)
        else:
            above = instances[state.parent]
            above.children -= 1
            if above.children == 0 and above.waiting == CHILDREN:
                _let_resume(instances, node, state.parent)
            waiter = np.int64(state.waiter)
            while waiter >= 0:
                waiting = instances[waiter]
                following = np.int64(waiting.following)
                if waiting.waiting == CALLED and is_free and (waiting.core == core or waiting.flags & _UNTIED):
                    is_free = False
                    waiting.waiting = NOTHING
                    waiting.core = core
                    caller = waiter
                else:
                    _let_resume(instances, node, waiter)
                waiter = following
        if state.group >= 0:
            group = groups[state.group]
            group.count -= 1
            if group.count == 0 and group.waiter >= 0:
                _let_resume(instances, node, group.waiter)
        for edge in range(state.first_successor, instances[row + 1].first_successor):
            other = np.int64(successor[edge] - base)
            after = instances[other]
            after.core = core
            after.predecessors -= 1
            if after.predecessors == 0:
                if after.flags & _PSEUDO:
                    after.following = pending
                    pending = other
                elif after.flags & UNDEFERRED:
                    after.core = instances[after.parent].core
                    _let_resume(instances, node, other)
                else:
                    put(queues, other, after.level, core, cores[core].group)
        if pending < 0:
            break
        row = pending
        pending = np.int64(instances[row].following)
    if node.num_outstanding == 0:
        waiter = np.int64(node.waiter)
        node.waiter = -1
        while waiter >= 0:
            following = np.int64(instances[waiter].following)
            _let_resume(instances, node, waiter)
            waiter = following
    return caller


@inlined
def _let_resume(instances, node, row):  # type: ignore[no-untyped-def]
    """An instance may go on, or begin, once `_resume_all` is called."""
    instances[row].following = -1
    if node.to_resume < 0:
        node.to_resume = row
    else:
        instances[node.last_to_resume].following = row
    node.last_to_resume = row


@allocation_free
def _resume_all(cores, instances, queues, idle, node, woken, num_woken, core):  # type: ignore[no-untyped-def]
    """What may go on does so when its core is free, or, if it was suspended and is untied, is ready for any."""
    row = np.int64(node.to_resume)
    node.to_resume = -1
    while row >= 0:
        state = instances[row]
        following = np.int64(state.following)
        me = cores[state.core]
        if state.flags & _UNTIED and state.waiting != NOTHING:
            place = state.core if queues.control[0].policy == DATA_REUSE else core
            put(queues, row, state.level, place, me.group)
        else:
            state.following = -1
            if me.first_resumed < 0:
                me.first_resumed = row
            else:
                instances[me.last_resumed].following = row
            me.last_resumed = row
            if me.is_idle:
                leave_idle(me, idle, node, state.core)
                woken[num_woken[0]] = state.core
                num_woken[0] += 1
        state.waiting = NOTHING
        row = following


@inlined
def _become_idle(me, idle, node, core):  # type: ignore[no-untyped-def]
    me.is_idle = 1
    idle[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    node.num_idle += 1


@inlined
def leave_idle(me, idle, node, core):  # type: ignore[no-untyped-def]
    me.is_idle = 0
    idle[core >> 6] &= ~(np.uint64(1) << np.uint64(core & 63))
    node.num_idle -= 1


@allocation_free
def _wake(cores, idle, sharers, node, control, woken, num_woken, near):  # type: ignore[no-untyped-def]
    """Wake idle cores until there is one for each ready instance: by data reuse ``near`` itself or one that shares its
    last cache, else the lowest."""
    while node.num_idle > 0 and control.length + node.num_chunks > node.num_waking:
        core = np.int64(-1)
        if control.policy == DATA_REUSE:
            core = _idle_near(cores, idle, sharers, near)
        if core < 0:
            at = 0
            while idle[at] == 0:
                at += 1
            core = (at << 6) + lowest_bit(idle[at])
        leave_idle(cores[core], idle, node, core)
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
