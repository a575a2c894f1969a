"""From a rank's sequence of events and operations to steps and pieces, in the order in which they were traced.

What may be left to do is followed per instance in two sets of bits, one bit per taskgroup (level) that is open in it:
``open``: it has created instances that it did not wait for; ``loose``: instances complete, or chunks begun, whose own
descendants may not be. Beyond 63 levels, levels share a bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, separate
from manyscale.models.node.program.draft import (
    BEGUN,
    CREATED,
    ENDED,
    NO_OPERATION,
    UNBORN,
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

_CREATE, _CALL = int(Action.create), int(Action.call)
_WAIT_CHILDREN, _WAIT_INSTANCE = int(Action.wait_children), int(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = int(Action.begin_group), int(Action.end_group), int(Action.barrier)
_LOOP, _LOOP_NOWAIT = int(Action.loop), int(Action.loop_nowait)
_ACQUIRE, _RELEASE, _OPERATION = int(Action.acquire), int(Action.release), int(Action.operation)

_AT_ONCE: Final = int(TaskFlag.undeferred) | int(TaskFlag.merged)
_UNTIED, _FINAL, _TASKWAIT = int(TaskFlag.untied), int(TaskFlag.final), int(TaskFlag.taskwait)
_IS_UNTIED, _IS_CHUNK, _IS_PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)

# Codes of run()
DONE, BAD_ORDER, NO_TASK, BEGINS_TWICE, NOT_BEGUN, NO_GROUP, NEGATIVE, BAD_SEGMENT = range(8)


@inner
def _is_idle(draft, task):  # type: ignore[no-untyped-def]
    """Whether the initial task is what runs, and nothing else can be at work."""
    row = draft.row[0]
    return draft.task[task].context == 0 and row.open == 0 and row.loose == 0 and row.num_held == 0


@inner
def _cut(draft, operation, goes_on):  # type: ignore[no-untyped-def]
    """End the phase here; groups that are open, in which nothing is left to do, go on in the next one."""
    control = draft.control[0]
    level = draft.row[0].level
    for _ in range(level):
        step(draft, 0, _END_GROUP, 0)
    phase = draft.phase[control.num_phases]
    control.num_phases += 1
    phase.end_step = draft.row[0].num_steps
    phase.end_row = control.num_rows
    phase.operation = operation
    phase.iteration = control.phase_iteration
    control.phase_iteration = control.iteration
    draft.row[0].last_step = -1
    for _ in range(level * goes_on):
        step(draft, 0, _BEGIN_GROUP, 0)
    control.phase_start = draft.row[0].num_steps


@separate
def _iteration(events, draft):  # type: ignore[no-untyped-def]
    """The iteration changes here."""
    control = draft.control[0]
    control.iteration = events.bound[control.bound].iteration
    control.bound += 1
    if draft.row[0].num_steps == control.phase_start:
        control.phase_iteration = control.iteration
    elif _is_idle(draft, control.running):
        _cut(draft, NO_OPERATION, 1)


@separate
def _operations(events, draft, end):  # type: ignore[no-untyped-def]
    """Operations up to ``end`` - 1, each with what is left to do before it. Returns a code."""
    control = draft.control[0]
    code = DONE
    while control.operation < end and code == DONE:
        while control.bound < events.bound.shape[0]:
            bound = events.bound[control.bound]
            if 0 <= bound.event < events.kind.shape[0] or bound.operation > control.operation:
                break
            _iteration(events, draft)
        code = _operation(events, draft, control.operation)
        if code == DONE:
            control.operation += 1
            control.used_ps = 0
    return code


@separate
def _operation(events, draft, operation):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    place = operation - control.first_operation
    rest_ps = events.compute_ps[place] - control.used_ps
    if rest_ps < 0 and operation < control.end_operation:
        return NEGATIVE
    if not work(events, draft, control.running, max(rest_ps, 0), operation, NO_OPERATION, events.sleep_ps[place]):
        return BAD_SEGMENT
    if operation < control.end_operation:
        if _is_idle(draft, control.running):
            _cut(draft, operation, 1)
        else:
            step(draft, draft.task[control.running].context, _OPERATION, operation)
    return DONE


@inner
def _create(events, draft, task):  # type: ignore[no-untyped-def]
    """The explicit task is created, by its parent."""
    control = draft.control[0]
    by = draft.task[events.parent[task]].context
    creator = draft.row[by]
    r = control.num_rows
    control.num_rows = r + 1
    flags = events.flags[task]
    row = draft.row[r]
    row.parent = by
    row.task_type = events.task_type[task]
    row.task = task
    row.level_of_parent = creator.level
    row.flags = (_IS_UNTIED if flags & _UNTIED else 0) | (_IS_PSEUDO if flags & _TASKWAIT else 0)
    row.is_final = creator.is_final or flags & _FINAL != 0
    draft.task[task].row = r
    draft.task[task].context = r
    draft.task[task].state = CREATED
    if flags & _TASKWAIT:
        step(draft, by, _CREATE, r)
        step(draft, by, _WAIT_INSTANCE, r)
    elif flags & _AT_ONCE != 0 or creator.is_final != 0:
        step(draft, by, _CALL, r)
    else:
        step(draft, by, _CREATE, r)
        creator.open |= bit(creator.level)


@inner
def _begin_construct(events, draft, task):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    events.construct[control.num_constructs].first_row = control.num_rows
    draft.task[task].construct = control.num_constructs
    control.num_constructs += 1


@separate
def _begin_chunk(events, draft, task):  # type: ignore[no-untyped-def]
    """The rows of a construct are made by its first chunk, for the phase may be cut before it."""
    control = draft.control[0]
    state = draft.task[task]
    construct = events.construct[state.construct]
    if construct.seen == 0:
        r = control.num_rows
        construct.first_row = r
        control.num_rows = r + construct.num_rows
        for i in range(r, r + construct.num_rows):
            row = draft.row[i]
            row.parent = state.row
            row.task_type = construct.task_type
            row.task = -1
            row.level_of_parent = draft.row[state.row].level
            row.flags = _IS_CHUNK
    state.context = construct.first_row + events.chunk_row[construct.first_chunk + construct.seen]
    state.in_chunk = 1
    construct.seen += 1


@separate
def _end_construct(events, draft, task):  # type: ignore[no-untyped-def]
    state = draft.task[task]
    construct = events.construct[state.construct]
    by = draft.row[state.row]
    if construct.num_rows > 0:
        step(draft, state.row, _LOOP if construct.has_barrier else _LOOP_NOWAIT, 2 * state.construct)
        is_loose = not construct.has_barrier
        for i in range(construct.first_row, construct.first_row + construct.num_rows):
            is_loose = is_loose or draft.row[i].open != 0 or draft.row[i].loose != 0
        if is_loose:
            by.loose |= bit(by.level)
    state.context = state.row
    state.construct = -1
    state.in_chunk = 0


@inner
def _end_task(draft, task):  # type: ignore[no-untyped-def]
    state = draft.task[task]
    state.state = ENDED
    row = draft.row[state.row]
    if row.parent >= 0 and (row.open != 0 or row.loose != 0):
        draft.row[row.parent].loose |= bit(row.level_of_parent)


@inner
def _barrier(draft, task, begins):  # type: ignore[no-untyped-def]
    """Of a region inside another one, or inside a task, it waits for what the region has created."""
    r = draft.task[task].context
    row = draft.row[r]
    if draft.task[task].is_nested:
        if begins and row.level > 0:
            end_group(draft, r)
            begin_group(draft, r)
        elif row.level > 0:
            close_group(row)
    elif r == 0:
        if begins and (row.open != 0 or row.loose != 0):
            step(draft, 0, _BARRIER, 0)
        row.open = 0
        row.loose = 0


@separate
def _synchronise(draft, kind, task, value):  # type: ignore[no-untyped-def]
    """An event of tasks that wait, groups, regions. Returns a code."""
    r = draft.task[task].context
    row = draft.row[r]
    if kind == _TASKWAIT_BEGIN:
        # with dependences (a value) it waits where its pseudo task is created
        if value < 0 and row.open != 0:
            step(draft, r, _WAIT_CHILDREN, 0)
            row.open = np.uint64(0)
    elif kind == _TASKGROUP_BEGIN:
        begin_group(draft, r)
    elif kind == _TASKGROUP_END:
        if row.level == 0:
            return NO_GROUP
        end_group(draft, r)
    elif kind == _BARRIER_BEGIN or kind == _BARRIER_END:
        _barrier(draft, task, np.int64(kind == _BARRIER_BEGIN))
    elif kind == _PARALLEL_BEGIN:
        if task != 0:
            begin_group(draft, r)
    elif kind == _PARALLEL_END:
        if task == 0:
            _barrier(draft, task, 1)
        elif row.level > 0:
            end_group(draft, r)
    return DONE


@separate
def _task_event(events, draft, kind, task, other):  # type: ignore[no-untyped-def]
    """An event of tasks that are created, begin, end. ``other``: number of the other task. Returns a code."""
    control = draft.control[0]
    if other >= draft.task.shape[0] or other < 0:
        return NO_TASK
    if kind == _TASK_CREATE or kind == _IMPLICIT_BEGIN:
        control.num_created += 1
        if other != control.num_created:
            return BAD_ORDER
        if kind == _TASK_CREATE:
            if draft.task[events.parent[other]].state == UNBORN:
                return NOT_BEGUN
            _create(events, draft, other)
        else:
            draft.task[other].row = draft.task[task].context
            draft.task[other].context = draft.task[task].context
            draft.task[other].state = BEGUN
            draft.task[other].is_nested = task != 0
            control.running = other
        return DONE
    if kind == _TASK_BEGIN:
        if draft.task[other].state != CREATED:
            return BEGINS_TWICE if draft.task[other].state != UNBORN else NOT_BEGUN
        draft.task[other].state = BEGUN
    elif draft.task[other].state == UNBORN:
        return NOT_BEGUN
    elif kind == _TASK_END and draft.task[task].state == BEGUN and task != 0:
        _end_task(draft, task)
    control.running = other
    return DONE


@separate
def _before_event(events, draft, event, task):  # type: ignore[no-untyped-def]
    """The work before an event, and what ends or changes with that. Returns a code."""
    control = draft.control[0]
    kind = events.kind[event]
    cpu_ps = events.cpu_ps[event]
    if draft.task[task].state == UNBORN:
        return NOT_BEGUN
    control.used_ps += cpu_ps
    if not work(events, draft, task, cpu_ps, control.operation, event + control.first_event, 0):
        return BAD_SEGMENT
    if draft.task[task].construct >= 0 and (ends_construct(kind) or kind == _LOOP_BEGIN or kind == _SECTIONS_BEGIN):
        _end_construct(events, draft, task)
    control.running = task
    if control.bound < events.bound.shape[0] and events.bound[control.bound].event == event:
        _iteration(events, draft)
    return DONE


@separate
def _event(events, draft, event, task):  # type: ignore[no-untyped-def]
    """What an event itself is. Returns a code."""
    control = draft.control[0]
    kind = np.int64(events.kind[event])
    value = events.value[event]
    is_of_tasks = kind == _TASK_CREATE or kind == _TASK_BEGIN or kind == _TASK_END or kind == _TASK_SWITCH
    if is_of_tasks or kind == _IMPLICIT_BEGIN:
        return _task_event(events, draft, kind, task, max(value - control.first_task + 1, 0))
    if kind == _LOOP_BEGIN or kind == _SECTIONS_BEGIN:
        _begin_construct(events, draft, task)
    elif kind == _CHUNK or kind == _SECTION:
        _begin_chunk(events, draft, task)
    elif kind == _CRITICAL_BEGIN or kind == _CRITICAL_END:
        acquires = kind == _CRITICAL_BEGIN
        row = draft.task[task].context
        step(draft, row, _ACQUIRE if acquires else _RELEASE, events.lock[control.num_locks])
        draft.row[row].num_held += 1 if acquires else -1
        control.num_locks += 1
    else:
        return _synchronise(draft, kind, task, value)
    return DONE


@allocation_free
def run(events, draft):  # type: ignore[no-untyped-def]
    """Go through the part. Returns (code, event that it is about; operation for NEGATIVE, BAD_SEGMENT where there is no
    event: -1 - operation). O(events + operations + pieces, which cut static loops have one of per core)."""
    events, draft = by_reference(events), by_reference(draft)
    control = draft.control[0]
    for event in range(events.kind.shape[0]):
        code = _operations(events, draft, events.operation[event])
        if code != DONE:
            return code, -1 - control.operation
        while control.bound < events.bound.shape[0] and events.bound[control.bound].event < 0:
            if events.bound[control.bound].operation > control.operation:
                break
            _iteration(events, draft)
        task = events.task[event]
        code = _before_event(events, draft, event, task)
        if code == DONE:
            code = _event(events, draft, event, task)
        if code != DONE:
            return code, event
    code = _operations(events, draft, control.first_operation + events.compute_ps.shape[0])
    if code != DONE:
        return code, -1 - control.operation
    last = control.num_phases - 1
    if last < 0 or draft.row[0].num_steps > draft.phase[last].end_step:
        _cut(draft, control.end_operation, 0)
    return DONE, 0
