"""From a rank's sequence of events and operations to steps and pieces, in the order in which they were traced.

What may be left to do is followed per instance in two sets of bits, one bit per taskgroup (level) that is open in it:
``open``: it has created instances that it did not wait for; ``loose``: instances complete, or chunks begun, whose own
descendants may not be. Beyond 63 levels, levels share a bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, njit
from manyscale.models.node.program.draft import (
    BEGUN,
    CREATED,
    ENDED,
    NO_OPERATION,
    ONE,
    UNBORN,
    ZERO,
    begin_group,
    bit,
    close_group,
    end_group,
    step,
    work,
)
from manyscale.models.node.program.loops import ends_construct
from manyscale.models.node.program.node_program import Action, InstanceFlag
from manyscale.models.workload.task_tables import EventKind, TaskFlag

_PARALLEL_BEGIN, _PARALLEL_END = int(EventKind.parallel_begin), int(EventKind.parallel_end)
_TASK_CREATE, _TASK_BEGIN = int(EventKind.task_create), int(EventKind.task_begin)
_TASK_END, _TASK_SWITCH = int(EventKind.task_end), int(EventKind.task_switch)
_TASKWAIT_BEGIN = int(EventKind.taskwait_begin)
_TASKGROUP_BEGIN, _TASKGROUP_END = int(EventKind.taskgroup_begin), int(EventKind.taskgroup_end)
_BARRIER_BEGIN, _BARRIER_END = int(EventKind.barrier_begin), int(EventKind.barrier_end)
_LOOP_BEGIN, _CHUNK = int(EventKind.loop_begin), int(EventKind.loop_chunk)
_SECTIONS_BEGIN, _SECTION = int(EventKind.sections_begin), int(EventKind.section)
_CRITICAL_BEGIN, _CRITICAL_END = int(EventKind.critical_begin), int(EventKind.critical_end)
_IMPLICIT_BEGIN = int(EventKind.implicit_begin)

# As NumPy's integers, for of Python's Numba would compile functions anew for each value that they are called with
_CREATE, _CALL = np.int64(Action.create), np.int64(Action.call)
_WAIT_CHILDREN, _WAIT_INSTANCE = np.int64(Action.wait_children), np.int64(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = (
    np.int64(Action.begin_group), np.int64(Action.end_group), np.int64(Action.barrier)
)  # fmt: skip
_LOOP, _LOOP_NOWAIT = np.int64(Action.loop), np.int64(Action.loop_nowait)
_ACQUIRE, _RELEASE, _OPERATION = np.int64(Action.acquire), np.int64(Action.release), np.int64(Action.operation)

_AT_ONCE: Final = int(TaskFlag.undeferred) | int(TaskFlag.merged)
_UNTIED, _FINAL, _TASKWAIT = int(TaskFlag.untied), int(TaskFlag.final), int(TaskFlag.taskwait)
_IS_UNTIED, _IS_CHUNK, _IS_PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)

# Codes of run()
DONE, BAD_ORDER, NO_TASK, BEGINS_TWICE, NOT_BEGUN, NO_GROUP, NEGATIVE, BAD_SEGMENT = range(8)


@allocation_free
def _is_idle(draft, t):  # type: ignore[no-untyped-def]
    """Whether the initial task is what runs, and nothing else can be at work."""
    row = draft.row[0]
    return draft.task[t].context == 0 and row.open == 0 and row.loose == 0 and row.num_held == 0


@allocation_free
def _cut(draft, operation, goes_on):  # type: ignore[no-untyped-def]
    """End the phase here; groups that are open, in which nothing is left to do, go on in the next one."""
    control = draft.control[0]
    level = draft.row[0].level
    for _ in range(level):
        step(draft, ZERO, _END_GROUP, ZERO)
    phase = draft.phase[control.num_phases]
    control.num_phases += 1
    phase.end_step = draft.row[0].num_steps
    phase.end_row = control.num_rows
    phase.operation = operation
    phase.iteration = control.phase_iteration
    control.phase_iteration = control.iteration
    draft.row[0].last_step = -1
    for _ in range(level * goes_on):
        step(draft, ZERO, _BEGIN_GROUP, ZERO)
    control.phase_start = draft.row[0].num_steps


@allocation_free
def _iteration(events, draft):  # type: ignore[no-untyped-def]
    """The iteration changes here."""
    control = draft.control[0]
    control.iteration = events.bound[control.bound].iteration
    control.bound += 1
    if draft.row[0].num_steps == control.phase_start:
        control.phase_iteration = control.iteration
    elif _is_idle(draft, control.running):
        _cut(draft, NO_OPERATION, ONE)


@allocation_free
def _operation(events, draft, operation, used_ps):  # type: ignore[no-untyped-def]
    """What is left before an operation, and the operation. Returns a code."""
    control = draft.control[0]
    place = operation - control.first_operation
    while control.bound < events.bound.shape[0]:
        bound = events.bound[control.bound]
        if 0 <= bound.event < events.kind.shape[0] or bound.operation > operation:
            break
        _iteration(events, draft)
    rest = events.compute_ps[place] - used_ps
    if rest < 0 and operation < control.end_operation:
        return NEGATIVE
    if not work(events, draft, control.running, max(rest, ZERO), operation, NO_OPERATION, events.sleep_ps[place]):
        return BAD_SEGMENT
    if operation >= control.end_operation:
        return DONE
    if _is_idle(draft, control.running):
        _cut(draft, operation, ONE)
    else:
        step(draft, draft.task[control.running].context, _OPERATION, operation)
    return DONE


@allocation_free
def _create(events, draft, t):  # type: ignore[no-untyped-def]
    """The explicit task t is created, by its parent."""
    control = draft.control[0]
    by = draft.task[events.parent[t]].context
    creator = draft.row[by]
    r = control.num_rows
    control.num_rows = r + 1
    flags = events.flags[t]
    row = draft.row[r]
    row.parent = by
    row.task_type = events.task_type[t]
    row.task = t
    row.level_of_parent = creator.level
    row.flags = (_IS_UNTIED if flags & _UNTIED else 0) | (_IS_PSEUDO if flags & _TASKWAIT else 0)
    row.is_final = creator.is_final or flags & _FINAL != 0
    draft.task[t].row = r
    draft.task[t].context = r
    draft.task[t].state = CREATED
    if flags & _TASKWAIT:
        step(draft, by, _CREATE, r)
        step(draft, by, _WAIT_INSTANCE, r)
    elif flags & _AT_ONCE != 0 or creator.is_final != 0:
        step(draft, by, _CALL, r)
    else:
        step(draft, by, _CREATE, r)
        creator.open |= bit(creator.level)


@allocation_free
def _begin_construct(events, draft, t):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    events.construct[control.num_constructs].first_row = control.num_rows
    draft.task[t].construct = control.num_constructs
    control.num_constructs += 1


@allocation_free
def _begin_chunk(events, draft, t):  # type: ignore[no-untyped-def]
    """The rows of a construct are made by its first chunk, for the phase may be cut before it."""
    control = draft.control[0]
    task = draft.task[t]
    construct = events.construct[task.construct]
    if construct.seen == 0:
        r = control.num_rows
        construct.first_row = r
        control.num_rows = r + construct.num_rows
        for i in range(r, r + construct.num_rows):
            row = draft.row[i]
            row.parent = task.row
            row.task_type = construct.task_type
            row.task = -1
            row.level_of_parent = draft.row[task.row].level
            row.flags = _IS_CHUNK
    task.context = construct.first_row + events.chunk_row[construct.first_chunk + construct.seen]
    task.in_chunk = 1
    construct.seen += 1


@allocation_free
def _end_construct(events, draft, t):  # type: ignore[no-untyped-def]
    task = draft.task[t]
    construct = events.construct[task.construct]
    by = draft.row[task.row]
    if construct.num_rows > 0:
        step(draft, task.row, _LOOP if construct.has_barrier else _LOOP_NOWAIT, 2 * task.construct)
        is_loose = not construct.has_barrier
        for i in range(construct.first_row, construct.first_row + construct.num_rows):
            is_loose = is_loose or draft.row[i].open != 0 or draft.row[i].loose != 0
        if is_loose:
            by.loose |= bit(by.level)
    task.context = task.row
    task.construct = -1
    task.in_chunk = 0


@allocation_free
def _end_task(draft, t):  # type: ignore[no-untyped-def]
    task = draft.task[t]
    task.state = ENDED
    row = draft.row[task.row]
    if row.open != 0 or row.loose != 0:
        draft.row[row.parent].loose |= bit(row.level_of_parent)


@allocation_free
def _barrier(draft, t, begins):  # type: ignore[no-untyped-def]
    """Of a region inside another one, or inside a task, it waits for what the region has created."""
    r = draft.task[t].context
    row = draft.row[r]
    if draft.task[t].is_nested:
        if begins and row.level > 0:
            end_group(draft, r)
            begin_group(draft, r)
        elif row.level > 0:
            close_group(row)
    elif r == 0:
        if begins and (row.open != 0 or row.loose != 0):
            step(draft, ZERO, _BARRIER, ZERO)
        row.open = 0
        row.loose = 0


@allocation_free
def _synchronise(draft, k, t, value):  # type: ignore[no-untyped-def]
    """An event of tasks that wait, groups, regions. Returns a code."""
    r = draft.task[t].context
    row = draft.row[r]
    if k == _TASKWAIT_BEGIN:
        # with dependences (a value) it waits where its pseudo task is created
        if value < 0 and row.open != 0:
            step(draft, r, _WAIT_CHILDREN, ZERO)
            row.open = np.uint64(0)
    elif k == _TASKGROUP_BEGIN:
        begin_group(draft, r)
    elif k == _TASKGROUP_END:
        if row.level == 0:
            return NO_GROUP
        end_group(draft, r)
    elif k == _BARRIER_BEGIN or k == _BARRIER_END:
        _barrier(draft, t, np.int64(k == _BARRIER_BEGIN))
    elif k == _PARALLEL_BEGIN:
        if t != 0:
            begin_group(draft, r)
    elif k == _PARALLEL_END:
        if t == 0:
            _barrier(draft, t, ONE)
        elif row.level > 0:
            end_group(draft, r)
    return DONE


@allocation_free
def _task_event(events, draft, k, t, v):  # type: ignore[no-untyped-def]
    """An event of tasks that are created, begin, end. ``v``: number of the other task. Returns a code."""
    control = draft.control[0]
    if v >= draft.task.shape[0] or v < 0:
        return NO_TASK
    if k == _TASK_CREATE or k == _IMPLICIT_BEGIN:
        control.num_created += 1
        if v != control.num_created:
            return BAD_ORDER
        if k == _TASK_CREATE:
            if draft.task[events.parent[v]].state == UNBORN:
                return NOT_BEGUN
            _create(events, draft, v)
        else:
            draft.task[v].row = draft.task[t].context
            draft.task[v].context = draft.task[t].context
            draft.task[v].state = BEGUN
            draft.task[v].is_nested = t != 0
            control.running = v
        return DONE
    if k == _TASK_BEGIN:
        if draft.task[v].state != CREATED:
            return BEGINS_TWICE if draft.task[v].state != UNBORN else NOT_BEGUN
        draft.task[v].state = BEGUN
    elif draft.task[v].state == UNBORN:
        return NOT_BEGUN
    elif k == _TASK_END and draft.task[t].state == BEGUN and t != 0:
        _end_task(draft, t)
    control.running = v
    return DONE


@njit(cache=True, nogil=True)
def run(events, draft):  # type: ignore[no-untyped-def]
    """Go through the part. Returns (code, event that it is about; operation for NEGATIVE, BAD_SEGMENT where there is no
    event: -1 - operation). O(events + operations + pieces, which cut static loops have one of per core)."""
    control = draft.control[0]
    operation = control.first_operation
    used_ps = ZERO
    for e in range(events.kind.shape[0]):
        while operation < events.operation[e]:
            code = _operation(events, draft, operation, used_ps)
            if code != DONE:
                return code, -1 - operation
            operation += 1
            used_ps = ZERO
        while control.bound < events.bound.shape[0] and events.bound[control.bound].event < 0:
            if events.bound[control.bound].operation > operation:
                break
            _iteration(events, draft)
        k = np.int64(events.kind[e])
        t = np.int64(events.task[e])
        value = events.value[e]
        if draft.task[t].state == UNBORN:
            return NOT_BEGUN, e
        used_ps += events.cpu_ps[e]
        if not work(events, draft, t, events.cpu_ps[e], operation, e + control.first_event, ZERO):
            return BAD_SEGMENT, e
        if draft.task[t].construct >= 0 and (ends_construct(k) or k == _LOOP_BEGIN or k == _SECTIONS_BEGIN):
            _end_construct(events, draft, t)
        control.running = t
        if control.bound < events.bound.shape[0] and events.bound[control.bound].event == e:
            _iteration(events, draft)
        code = DONE
        if k == _TASK_CREATE or k == _TASK_BEGIN or k == _TASK_END or k == _TASK_SWITCH or k == _IMPLICIT_BEGIN:
            code = _task_event(events, draft, k, t, max(value - control.first_task + 1, 0))
        elif k == _LOOP_BEGIN or k == _SECTIONS_BEGIN:
            _begin_construct(events, draft, t)
        elif k == _CHUNK or k == _SECTION:
            _begin_chunk(events, draft, t)
        elif k == _CRITICAL_BEGIN or k == _CRITICAL_END:
            acquires = k == _CRITICAL_BEGIN
            step(draft, draft.task[t].context, _ACQUIRE if acquires else _RELEASE, events.lock[control.num_locks])
            draft.row[draft.task[t].context].num_held += 1 if acquires else -1
            control.num_locks += 1
        else:
            code = _synchronise(draft, k, t, value)
        if code != DONE:
            return code, e
    while operation <= control.end_operation:
        if operation == control.end_operation and operation - control.first_operation >= events.compute_ps.shape[0]:
            break
        code = _operation(events, draft, operation, used_ps)
        if code != DONE:
            return code, -1 - operation
        operation += 1
        used_ps = ZERO
    phases = control.num_phases
    if phases == 0 or draft.row[0].num_steps > draft.phase[phases - 1].end_step:
        _cut(draft, control.end_operation, ZERO)
    return DONE, 0
