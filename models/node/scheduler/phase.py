"""How a phase begins: the state of its instances and of the cores, and bottom levels for policies by critical path."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner_inlined, separate
from manyscale.models.node.program.node_program import InstanceFlag
from manyscale.models.node.scheduler.bottom_levels import find_bottom_levels
from manyscale.models.node.scheduler.codes import CREATES, LOOKING, NOTHING, STARTING
from manyscale.models.node.scheduler.learning import forget
from manyscale.models.node.scheduler.ready_queues import CRITICAL_PATH, LEARNED

_CHUNK = int(InstanceFlag.chunk)


@separate
def begin_phase(sch, phase, time_ps):  # type: ignore[no-untyped-def]
    """The initial task's steps of a phase stand on core 0, all other cores are idle; call ``advance(sch, 0, time_ps)``.

    O(instances of the phase + cores), by critical path O(its steps and edges).
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
    node.first_loop = program.phase_first_loop[phase]
    node.open_loop = -1
    node.last_open_loop = -1
    node.waiter = -1
    node.to_resume = -1
    node.num_groups = 0
    _reset_row(sch.instance[0], 0)
    sch.instance[0].step = program.phase_first_step[phase]
    sch.instance[0].end_step = program.phase_first_step[phase + 1]
    edge = program.first_successor[first]
    sch.instance[0].first_successor = edge
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
        state.parent = above - base if above > 0 else 0
        if not state.flags & _CHUNK:
            sch.instance[state.parent].flags |= CREATES
        state.level = program.level[i]
    sch.instance[end - base].first_successor = edge
    _reset_cores(sch, time_ps)
    sch.instance[0].core = 0
    sch.instance[0].created_ps = time_ps
    sch.instance[0].ready_ps = time_ps
    sch.num_woken[0] = 0
    sch.queues.control[0].length = 0
    sch.queues.control[0].num_draws = 0
    sch.queues.control[0].order = 0
    sch.queues.heap_size[0] = 0
    policy = sch.queues.control[0].policy
    if policy == CRITICAL_PATH:
        find_bottom_levels(sch, end - base)
    elif policy == LEARNED:
        forget(sch, end - base)


@inner_inlined
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


@separate
def _reset_cores(sch, time_ps):  # type: ignore[no-untyped-def]
    count = sch.core.shape[0]
    for core in range(count):
        me = sch.core[core]
        me.row = -1
        me.instance = -1
        me.piece = -1
        me.operation = -1
        me.start_ps = time_ps
        me.why = LOOKING
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
    me.why = STARTING
    me.is_idle = 0
    for lock in range(sch.lock.shape[0]):
        sch.lock[lock].holder = -1
        sch.lock[lock].first = -1
        sch.lock[lock].before = -1
