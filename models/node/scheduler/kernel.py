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
begins with O(its instances), by critical path O(its steps and edges).
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, separate
from manyscale.models.node.program.node_program import Action, InstanceFlag, LoopFlag
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
    GOES_ON,
    IDLE,
    LOCKED,
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
from manyscale.models.node.scheduler.held_data import take_held, use_data
from manyscale.models.node.scheduler.learning import note_end, note_piece
from manyscale.models.node.scheduler.phase import begin_phase
from manyscale.models.node.scheduler.ready_queues import DATA_REUSE, LEARNED, put, remove_reused, take
from manyscale.models.node.scheduler.waits import overhead, suspend, synchronise, taken_ps
from manyscale.models.node.scheduler.waking import become_idle, leave_idle, let_resume, many_ready, resume_all, wake

__all__ = ["CREATES", "DONE", "IDLE", "OPERATION", "PHASE_END", "PIECE", "advance", "begin_phase"]

_UNTIED, _CHUNK, _PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)
_COMPUTE, _CALL = int(Action.compute), int(Action.call)
_ASKED = int(LoopFlag.asked)
_DONE_AT_ONCE = -2


@separate
def advance(sch, core, time_ps):  # type: ignore[no-untyped-def]
    """Go through a core's steps at ``time_ps`` until something takes time: PIECE, IDLE, OPERATION or PHASE_END.

    PIECE: ``sch.core[core]`` says which ``piece`` of which ``instance`` to execute from ``start_ps`` on, or, with piece
    -1, that an overhead lasts until ``start_ps``. OPERATION: which ``operation`` to wait for. The core has to be
    advanced again when that is over. Cores that got something to do stand in ``sch.woken``: advance each of them at
    ``time_ps``, and set ``sch.num_woken[0]`` to 0.
    """
    me = sch.core[core]
    node = sch.node[0]
    why = np.int64(me.why)
    row = np.int64(me.row)
    step = np.int64(0)
    near = np.int64(core)
    learns = sch.queues.control[0].policy == LEARNED
    if row >= 0:
        step = sch.instance[row].step
        if why == LOCKED:
            me.why = STEP_DONE
            return overhead(me, time_ps, taken_ps(sch, sch.lock[sch.step_target[step]], core))
        if why == STEP_DONE:
            if learns:
                note_piece(sch, row, step, time_ps - me.start_ps)
            step += 1
    elif me.is_idle:
        leave_idle(sch, core)
    while True:
        if node.to_resume >= 0:
            resume_all(sch, core)
        if row < 0:
            code = _begin_next(sch, core, near, time_ps)
            if code != GOES_ON:
                return code
            row = np.int64(me.row)
            step = sch.instance[row].step
            near = np.int64(core)
            why = np.int64(STARTING)
        elif many_ready(sch):
            wake(sch, near)
        finished = np.int64(-1)  # an instance that ends by this step
        goes_on_with = row
        if step == sch.instance[row].end_step:
            if row == 0 and node.num_outstanding == 0:
                me.why = STARTING
                return PHASE_END
            if row == 0:
                suspend(sch, row, step, ALL)
                row = np.int64(-1)
                continue
            if node.complete_ps > 0 and why != ENDING:
                return _pay(sch, core, step, ENDING, time_ps, node.complete_ps)
            finished = row
        elif sch.step_action[step] == _COMPUTE:
            return _begin_piece(sch, core, row, step, time_ps)
        elif sch.step_action[step] <= _CALL:
            child = sch.step_target[step] - node.base
            if node.create_ps > 0 and why != CREATING and not sch.instance[child].flags & _PSEUDO:
                return _pay(sch, core, step, CREATING, time_ps, node.create_ps)
            goes_on_with = _create(sch, core, row, step, time_ps)
            step += 1
            near = np.int64(sch.instance[child].core)
            if goes_on_with == _DONE_AT_ONCE:
                goes_on_with = row
                finished = child
        else:
            code = synchronise(sch, core, row, step, why, time_ps)
            if code >= 0:
                sch.instance[row].step = step
                return code
            step += 1
            if code == WAITS:
                row = np.int64(-1)
                continue
        if finished >= 0:
            if learns:
                note_end(sch, finished)
            caller = _complete(sch, core, finished, finished == row, time_ps)
            if finished == row:
                goes_on_with = caller
        why = np.int64(STARTING)
        if goes_on_with != row:  # none, the caller of an instance that is done, or one that is called
            row = goes_on_with
            if row >= 0:
                step = _go_on_with(sch, core, row)


@inner_inlined
def _go_on_with(sch, core, row):  # type: ignore[no-untyped-def]
    """The core executes an instance from now on: the step that it is at."""
    me = sch.core[core]
    me.row = row
    me.instance = row + sch.node[0].base if row > 0 else 0
    return sch.instance[row].step


@inner_inlined
def _begin_piece(sch, core, row, step, time_ps):  # type: ignore[no-untyped-def]
    me = sch.core[core]
    sch.instance[row].step = step
    me.why = STEP_DONE
    me.piece = sch.step_target[step]
    me.start_ps = time_ps
    return PIECE


@inner_inlined
def _pay(sch, core, step, why, time_ps, cost_ps):  # type: ignore[no-untyped-def]
    """First what a step costs."""
    me = sch.core[core]
    sch.instance[me.row].step = step
    me.why = why
    return overhead(me, time_ps, cost_ps)


@inner_inlined
def _begin_next(sch, core, near, time_ps):  # type: ignore[no-untyped-def]
    """The core goes on with another instance: GOES_ON, PIECE if that costs something, IDLE if there is none. What was
    done before, ``near`` a core, may have made others ready."""
    me = sch.core[core]
    if me.is_counted:
        me.is_counted = 0
        sch.node[0].num_waking -= 1
    row, cost_ps = _next_row(sch, core)
    if many_ready(sch):
        wake(sch, near)
    if row < 0:
        me.row = -1
        me.instance = -1
        me.why = LOOKING
        become_idle(sch, core)
        return IDLE
    _go_on_with(sch, core, row)
    me.why = STARTING
    return overhead(me, time_ps, cost_ps) if cost_ps > 0 else GOES_ON


@inner_inlined
def _next_row(sch, core):  # type: ignore[no-untyped-def]
    """(row, cost) of the instance that a core goes on with, (-1, 0) if there is none."""
    me = sch.core[core]
    node = sch.node[0]
    control = sch.queues.control[0]
    row = np.int64(me.first_resumed)
    if row >= 0:
        me.first_resumed = sch.instance[row].following
        sch.instance[row].core = core
        return row, np.int64(0)
    if control.length + node.num_chunks <= node.num_waking:
        return np.int64(-1), np.int64(0)
    cost_ps = np.int64(node.schedule_ps)
    knows_data = sch.held.cache.shape[0] > 0
    if node.num_chunks > 0:
        if node.chunk_ps >= 0:
            asked = sch.loop_flags[node.first_loop + node.open_loop] & _ASKED
            cost_ps = np.int64(node.chunk_ps) if asked else np.int64(0)
        row = _next_chunk(sch, core)
        if knows_data:
            use_data(sch, core, row)
        if node.to_resume >= 0:
            resume_all(sch, core)
        return row, cost_ps
    if knows_data:
        row, stolen = take_held(sch, core), False
    else:
        row, stolen = take(sch.queues, core, me.group)
    state = sch.instance[row]
    if control.policy == DATA_REUSE:
        remove_reused(sch.queues, row, state.level, state.core, sch.core[state.core].group)
    state.core = core
    if stolen:
        cost_ps += node.steal_ps
    if state.flags & BEGUN:
        cost_ps -= node.schedule_ps
    state.flags |= BEGUN
    return row, cost_ps


@separate
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
    chunk.created_ps = loop.begin_ps
    chunk.ready_ps = loop.begin_ps
    if loop.next_row == loop.end_row:
        node.open_loop = loop.following
        if owner.waiting == CHUNKS_BEGUN:
            let_resume(sch, loop.owner)
    return row


@inner_inlined
def _create(sch, core, row, step, time_ps):  # type: ignore[no-untyped-def]
    """An instance is there from now on, and counts wherever it is waited for: the row that the core goes on with, the
    creator or what it calls, -1 if that has to wait for its predecessors, _DONE_AT_ONCE for a pseudo instance that
    does not."""
    child = sch.step_target[step] - sch.node[0].base
    is_called = sch.step_action[step] == _CALL
    state = sch.instance[child]
    parent = sch.instance[row]
    sch.node[0].num_outstanding += 1
    parent.step = step + 1
    parent.children += 1
    group = parent.open_group
    state.group = group
    state.open_group = group
    if group >= 0:
        sch.group[group].count += 1
    state.flags |= CREATED
    state.created_ps = time_ps
    state.ready_ps = time_ps
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
        place = state.core if sch.queues.control[0].policy == DATA_REUSE else core
        put(sch.queues, child, state.level, place, sch.core[state.core].group)
    return row


@separate
def _complete(sch, core, row, is_free, time_ps):  # type: ignore[no-untyped-def]
    """An instance is done, and whoever waited for it may go on: the row of its caller, if this core ``is_free`` to go
    on with it, else -1. Pseudo instances that become ready are done at once."""
    node = sch.node[0]
    caller = np.int64(-1)
    pending = np.int64(-1)  # pseudo instances, by ``following``
    while True:
        state = sch.instance[row]
        state.flags |= DONE
        node.num_outstanding -= 1
        if state.flags & _CHUNK:
            loop = sch.loop[state.waiter]
            loop.num_running -= 1
            if loop.num_running == 0 and loop.is_awaited:
                let_resume(sch, loop.owner)
        else:
            above = sch.instance[state.parent]
            above.children -= 1
            if above.children == 0 and above.waiting == CHILDREN:
                let_resume(sch, state.parent)
            if state.waiter >= 0:
                caller = max(caller, _release_waiters(sch, core, state.waiter, is_free and caller < 0))
        if state.group >= 0:
            group = sch.group[state.group]
            group.count -= 1
            if group.count == 0 and group.waiter >= 0:
                let_resume(sch, group.waiter)
        for edge in range(state.first_successor, sch.instance[row + 1].first_successor):
            pending = _precede(sch, core, sch.successor[edge] - node.base, pending, time_ps)
        if pending < 0:
            break
        row = pending
        pending = np.int64(sch.instance[row].following)
    if node.num_outstanding == 0:
        waiter = node.waiter
        node.waiter = -1
        _release_waiters(sch, core, waiter, False)
    return caller


@inner
def _release_waiters(sch, core, waiter, is_free):  # type: ignore[no-untyped-def]
    """A list of instances may go on: the row of the one that called what is done, if this core ``is_free`` to go on
    with it, else -1."""
    caller = np.int64(-1)
    while waiter >= 0:
        waiting = sch.instance[waiter]
        following = np.int64(waiting.following)
        if waiting.waiting == CALLED and is_free and (waiting.core == core or waiting.flags & _UNTIED):
            is_free = False
            waiting.waiting = NOTHING
            waiting.core = core
            caller = waiter
        else:
            let_resume(sch, waiter)
        waiter = following
    return caller


@inner_inlined
def _precede(sch, core, row, pending, time_ps):  # type: ignore[no-untyped-def]
    """A predecessor of an instance is done on the core: the first of the pseudo instances that became ready by that."""
    after = sch.instance[row]
    after.core = core
    after.predecessors -= 1
    if after.predecessors == 0:
        after.ready_ps = time_ps
        if after.flags & _PSEUDO:
            after.following = pending
            return row
        if after.flags & UNDEFERRED:
            after.core = sch.instance[after.parent].core
            let_resume(sch, row)
        else:
            put(sch.queues, row, after.level, core, sch.core[core].group)
    return pending
