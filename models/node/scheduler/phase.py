"""How a phase begins: the state of its instances and of the cores, and, for the policy critical-path, bottom levels."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.node.program.node_program import Action, InstanceFlag
from manyscale.models.node.scheduler.codes import CREATES, LOOKING, NOTHING, STARTING
from manyscale.models.node.scheduler.ready_queues import CRITICAL_PATH

_CHUNK = int(InstanceFlag.chunk)
_COMPUTE, _CREATE, _CALL = int(Action.compute), int(Action.create), int(Action.call)
_BEGIN_GROUP, _BARRIER = int(Action.begin_group), int(Action.barrier)


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
    node.to_resume = -1
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
    _reset_cores(sch.core, sch.idle, sch.lock, node, time_ps)
    sch.instance[0].core = 0
    sch.num_woken[0] = 0
    sch.queues.control[0].length = 0
    sch.queues.control[0].num_draws = 0
    if sch.queues.control[0].policy == CRITICAL_PATH:
        _find_bottom_levels(
            sch.instance, sch.step_action, sch.step_target, sch.successor, sch.predicted_ps, sch.queues.bottom_level,
            node, end - base,
        )  # fmt: skip


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
def _reset_cores(cores, idle, locks, node, time_ps):  # type: ignore[no-untyped-def]
    count = cores.shape[0]
    for core in range(count):
        me = cores[core]
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
        idle[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    idle[0] &= ~np.uint64(1)
    node.num_idle = count - 1
    me = cores[0]
    me.row = 0
    me.instance = 0
    me.why = STARTING
    me.is_idle = 0
    for lock in range(locks.shape[0]):
        locks[lock].holder = -1
        locks[lock].first = -1


@allocation_free
def _find_bottom_levels(  # type: ignore[no-untyped-def]
    instances, step_action, step_target, successor, predicted_ps, bottom_level, node, num_rows
):
    """Of each instance its own predicted work and the longest way to the end after it: over its successors, or what its
    parent does after it has waited for it. Children are created later than their parents and successors later than
    predecessors, so each parent's children are done backwards, and parents forwards. O(steps + edges)."""
    create_ps = node.create_ps
    for row in range(num_rows):
        bottom_level[row] = _work(instances[row], step_action, step_target, predicted_ps, create_ps)
    for row in range(num_rows):
        state = instances[row]
        if not state.flags & CREATES:
            continue
        # After the instance, then after a step of it
        rest_ps = bottom_level[row] - _work(state, step_action, step_target, predicted_ps, create_ps)
        waited_ps = np.int64(0)
        for step in range(state.end_step - 1, state.step - 1, -1):
            action = step_action[step]
            if action == _COMPUTE:
                rest_ps += predicted_ps[step_target[step]]
            elif action == _CREATE or action == _CALL:
                child = step_target[step] - node.base
                longest = waited_ps if action == _CREATE else rest_ps
                for edge in range(instances[child].first_successor, instances[child + 1].first_successor):
                    longest = max(longest, bottom_level[successor[edge] - node.base])
                bottom_level[child] += longest
                rest_ps += create_ps
            elif action <= _BARRIER and action != _BEGIN_GROUP:
                waited_ps = rest_ps


@allocation_free
def _work(state, step_action, step_target, predicted_ps, create_ps):  # type: ignore[no-untyped-def]
    work_ps = np.int64(0)
    for step in range(state.step, state.end_step):
        if step_action[step] == _COMPUTE:
            work_ps += predicted_ps[step_target[step]]
        elif step_action[step] <= _CALL:
            work_ps += create_ps
    return work_ps
