"""From a rank's sequence of events and operations to steps and pieces, in the order in which they were traced.

Tasks are numbered from 1 within the part of the rank that is looked at, in order of creation; 0 is the initial task
and whatever began before the part. Rows are instances of the program.

What may be left to do is followed per instance in two sets of bits, one bit per taskgroup (level) that is open in it:
``open``: it has created instances that it did not wait for; ``loose``: instances complete, or chunks begun, whose own
descendants may not be. Beyond 63 levels, levels share a bit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, njit
from manyscale.models.node.node_program import Action, InstanceFlag
from manyscale.models.node.program_loops import ends_construct
from manyscale.models.task_tables import EventKind, TaskFlag

_PARALLEL_BEGIN, _PARALLEL_END = int(EventKind.parallel_begin), int(EventKind.parallel_end)
_TASK_CREATE, _TASK_BEGIN = int(EventKind.task_create), int(EventKind.task_begin)
_TASK_END, _TASK_SWITCH = int(EventKind.task_end), int(EventKind.task_switch)
_TASKWAIT_BEGIN = int(EventKind.taskwait_begin)
_TASKGROUP_BEGIN, _TASKGROUP_END = int(EventKind.taskgroup_begin), int(EventKind.taskgroup_end)
_BARRIER_BEGIN, _BARRIER_END = int(EventKind.barrier_begin), int(EventKind.barrier_end)
_LOOP_BEGIN, _CHUNK = int(EventKind.loop_begin), int(EventKind.loop_chunk)
_SECTIONS_BEGIN, _SECTION = int(EventKind.sections_begin), int(EventKind.section)
_CRITICAL_BEGIN, _CRITICAL_END = int(EventKind.critical_begin), int(EventKind.critical_end)
_IMPLICIT_BEGIN, _IMPLICIT_END = int(EventKind.implicit_begin), int(EventKind.implicit_end)

# As NumPy's integers, for of Python's Numba would compile functions anew for each value that they are called with
_COMPUTE, _CREATE, _CALL = np.int64(Action.compute), np.int64(Action.create), np.int64(Action.call)
_WAIT_CHILDREN, _WAIT_INSTANCE = np.int64(Action.wait_children), np.int64(Action.wait_instance)
_BEGIN_GROUP, _END_GROUP, _BARRIER = np.int64(Action.begin_group), np.int64(Action.end_group), np.int64(Action.barrier)
_LOOP, _LOOP_NOWAIT = np.int64(Action.loop), np.int64(Action.loop_nowait)
_ACQUIRE, _RELEASE, _OPERATION = np.int64(Action.acquire), np.int64(Action.release), np.int64(Action.operation)
_ZERO, _ONE = np.int64(0), np.int64(1)

_AT_ONCE: Final = int(TaskFlag.undeferred) | int(TaskFlag.merged)
_UNTIED, _FINAL, _TASKWAIT = int(TaskFlag.untied), int(TaskFlag.final), int(TaskFlag.taskwait)
_IS_UNTIED, _IS_CHUNK, _IS_PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.chunk), int(InstanceFlag.pseudo)

NO_OPERATION: Final = np.int64(-1)  # of a phase that ends where an iteration does; of a piece: an operation ends it
SLEEP: Final = np.int64(-2)  # instead of a piece's event

# Codes of run()
DONE, BAD_ORDER, NO_TASK, BEGINS_TWICE, NOT_BEGUN, NO_GROUP, NEGATIVE, BAD_SEGMENT = range(8)
UNBORN, CREATED, BEGUN, ENDED = range(4)  # states of a task


class Events(NamedTuple):
    """The part of the rank, one element per event: ``task`` by number, ``value`` as traced; per operation, and one
    more for what follows the last one, ``compute_ps`` and ``sleep_ps``. ``lock``: of each critical_begin and
    critical_end its lock. Per task ``parent`` (number), ``task_type``, ``flags``. Constructs and
    the row of each chunk: program_loops. Segments: neighbours that they stand before, and their rows."""

    kind: np.ndarray
    operation: np.ndarray
    task: np.ndarray
    value: np.ndarray
    cpu_ps: np.ndarray
    compute_ps: np.ndarray
    sleep_ps: np.ndarray
    lock: np.ndarray
    parent: np.ndarray
    task_type: np.ndarray
    flags: np.ndarray
    construct: np.ndarray
    chunk_row: np.ndarray
    bound: np.ndarray  # records: see BOUND
    segment_operation: np.ndarray
    segment_event: np.ndarray
    segment_row: np.ndarray


class Draft(NamedTuple):
    """What becomes the program, as records. ``control`` is one. The others are longer than needed; steps and pieces are
    in the order in which they were traced."""

    control: np.ndarray
    task: np.ndarray  # by number
    row: np.ndarray
    step: np.ndarray
    piece: np.ndarray
    phase: np.ndarray


BOUND: Final = np.dtype([("operation", "i8"), ("event", "i8"), ("iteration", "i4")])
"""Where the iteration of the main loop changes: at ``event``, or before ``operation`` if that is -1."""
_CONTROL: Final = np.dtype(
    [
        ("first_task", "i8"), ("first_event", "i8"), ("first_operation", "i8"), ("end_operation", "i8"),
        ("num_steps", "i8"), ("num_pieces", "i8"), ("num_rows", "i8"), ("num_phases", "i8"), ("num_constructs", "i8"),
        ("num_created", "i8"), ("num_locks", "i8"), ("running", "i8"), ("segment", "i8"), ("bound", "i8"),
        ("iteration", "i8"), ("phase_iteration", "i8"), ("phase_start", "i8"),
    ]
)  # fmt: skip
_TASK: Final = np.dtype(
    [("row", "i8"), ("context", "i8"), ("construct", "i8"), ("state", "u1"), ("is_nested", "u1"), ("in_chunk", "u1")]
)
_ROW: Final = np.dtype(
    [
        ("open", "u8"), ("loose", "u8"), ("last_step", "i8"), ("parent", "i4"), ("task_type", "i4"), ("task", "i4"),
        ("level", "i4"), ("level_of_parent", "i4"), ("num_held", "i4"), ("num_steps", "i4"), ("flags", "u1"),
        ("is_final", "u1"),
    ]
)  # fmt: skip
_STEP: Final = np.dtype([("row", "i4"), ("target", "i4"), ("action", "i4")])
_PIECE: Final = np.dtype(
    [
        ("ps", "i8"), ("event", "i8"), ("first_segment", "i8"), ("end_segment", "i8"), ("row", "i4"), ("part", "i4"),
        ("num_parts", "i4"),
    ]
)  # fmt: skip
_PHASE: Final = np.dtype([("end_step", "i8"), ("end_row", "i4"), ("operation", "i4"), ("iteration", "i4")])


def new_draft(
    events: Events, num_rows: int, num_steps: int, num_pieces: int, first_task: int, first_event: int,
    first_operation: int, end_operation: int,
) -> Draft:  # fmt: skip
    """An empty draft with room for so many. ``first_task``: task_instance_id of task number 1."""
    control = np.zeros(1, _CONTROL)
    control["first_task"], control["first_event"] = first_task, first_event
    control["first_operation"], control["end_operation"] = first_operation, end_operation
    control["iteration"] = control["phase_iteration"] = -1
    control["num_rows"] = 1
    task = np.zeros(len(events.parent), _TASK)
    task["construct"] = -1
    task["state"][0] = BEGUN
    row = np.zeros(num_rows, _ROW)
    row["last_step"] = -1
    row["parent"][0] = row["task_type"][0] = -1
    num_phases = len(events.compute_ps) + len(events.bound) + 1
    steps, pieces = np.empty(num_steps, _STEP), np.empty(num_pieces, _PIECE)
    return Draft(control, task, row, steps, pieces, np.zeros(num_phases, _PHASE))


@allocation_free
def _step(draft, row, action, target):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    place = control.num_steps
    control.num_steps = place + 1
    draft.step[place].row = row
    draft.step[place].action = action
    draft.step[place].target = target
    draft.row[row].last_step = place
    draft.row[row].num_steps += 1


@allocation_free
def _piece(draft, row, ps, event, first, end, part, num_parts):  # type: ignore[no-untyped-def]
    """A piece of the row, or more of its last one where nothing lies between."""
    if ps == 0 and first == end:
        return
    last = draft.row[row].last_step
    if last >= 0 and draft.step[last].action == _COMPUTE:
        piece = draft.piece[draft.step[last].target]
        has_segments = piece.first_segment < piece.end_segment
        fits = first == end or not has_segments or piece.end_segment == first
        if fits and (piece.event == SLEEP) == (event == SLEEP) and piece.num_parts == num_parts:
            piece.ps += ps
            piece.event = event
            if first < end:
                piece.end_segment = end
                if not has_segments:
                    piece.first_segment = first
            return
    place = draft.control[0].num_pieces
    draft.control[0].num_pieces = place + 1
    piece = draft.piece[place]
    piece.ps = ps
    piece.row = row
    piece.event = event
    piece.first_segment = first
    piece.end_segment = end
    piece.part = part
    piece.num_parts = num_parts
    _step(draft, row, _COMPUTE, place)


@allocation_free
def _parts(events, draft, t, ps, event, first, end):  # type: ignore[no-untyped-def]
    """A piece of what the task does: of its row, or in equal parts of all rows that share its static chunk."""
    task = draft.task[t]
    if task.in_chunk and events.construct[task.construct].num_parts > 1:
        parts = events.construct[task.construct].num_parts
        each, rest = ps // parts, ps % parts
        for part in range(parts):
            _piece(draft, task.context + part, each + (part < rest), event, first, end, part, parts)
    else:
        _piece(draft, task.context, ps, event, first, end, _ZERO, _ONE)


@allocation_free
def _work(events, draft, t, ps, operation, event, sleep):  # type: ignore[no-untyped-def]
    """The piece before an event, or an operation (``event`` -1), with its segments. False if segments are left over
    that stand before it. Segments whose rows do not follow each other are pieces of their own."""
    control = draft.control[0]
    wanted = event - control.first_event
    kept = event
    while True:
        at = control.segment
        first = end = _ZERO
        while at < events.segment_row.shape[0] and events.segment_operation[at] == operation and (
            event < 0 or events.segment_event[at] == wanted
        ):
            if first < end and end != events.segment_row[at]:
                break
            if first == end:
                first = events.segment_row[at]
            end = events.segment_row[at] + 1
            at += 1
        if at == control.segment and ps == 0:
            if sleep == 0:
                break
            ps, kept, sleep = sleep, SLEEP, _ZERO
        control.segment = at
        _parts(events, draft, t, ps, kept, first, end)
        ps = _ZERO
    at = control.segment
    if at == events.segment_row.shape[0] or events.segment_operation[at] > operation:
        return True
    return event >= 0 and events.segment_operation[at] == operation and (
        events.segment_event[at] < 0 or events.segment_event[at] > wanted
    )


@allocation_free
def _bit(level):  # type: ignore[no-untyped-def]
    return np.uint64(1) << np.uint64(min(level, 63))


@allocation_free
def _close_group(row):  # type: ignore[no-untyped-def]
    """Nothing is left of what was created in the innermost group."""
    if row.level < 63:
        row.open &= _bit(row.level) - np.uint64(1)
        row.loose &= _bit(row.level) - np.uint64(1)


@allocation_free
def _end_group(draft, r):  # type: ignore[no-untyped-def]
    _step(draft, r, _END_GROUP, _ZERO)
    _close_group(draft.row[r])
    draft.row[r].level -= 1


@allocation_free
def _begin_group(draft, r):  # type: ignore[no-untyped-def]
    _step(draft, r, _BEGIN_GROUP, _ZERO)
    draft.row[r].level += 1


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
        _step(draft, _ZERO, _END_GROUP, _ZERO)
    phase = draft.phase[control.num_phases]
    control.num_phases += 1
    phase.end_step = draft.row[0].num_steps
    phase.end_row = control.num_rows
    phase.operation = operation
    phase.iteration = control.phase_iteration
    control.phase_iteration = control.iteration
    draft.row[0].last_step = -1
    for _ in range(level * goes_on):
        _step(draft, _ZERO, _BEGIN_GROUP, _ZERO)
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
        _cut(draft, NO_OPERATION, _ONE)


@allocation_free
def _operation(events, draft, operation, used_ps):  # type: ignore[no-untyped-def]
    """What is left before an operation, and the operation. Returns a code."""
    control = draft.control[0]
    place = operation - control.first_operation
    while control.bound < events.bound.shape[0]:
        bound = events.bound[control.bound]
        if bound.event >= 0 or bound.operation > operation:
            break
        _iteration(events, draft)
    rest = events.compute_ps[place] - used_ps
    if rest < 0 and operation < control.end_operation:
        return NEGATIVE
    if not _work(events, draft, control.running, max(rest, _ZERO), operation, NO_OPERATION, events.sleep_ps[place]):
        return BAD_SEGMENT
    if operation >= control.end_operation:
        return DONE
    if _is_idle(draft, control.running):
        _cut(draft, operation, _ONE)
    else:
        _step(draft, draft.task[control.running].context, _OPERATION, operation)
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
        _step(draft, by, _CREATE, r)
        _step(draft, by, _WAIT_INSTANCE, r)
    elif flags & _AT_ONCE != 0 or creator.is_final != 0:
        _step(draft, by, _CALL, r)
    else:
        _step(draft, by, _CREATE, r)
        creator.open |= _bit(creator.level)


@allocation_free
def _begin_construct(events, draft, t):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    construct = events.construct[control.num_constructs]
    r = control.num_rows
    construct.first_row = r
    by = draft.task[t].row
    for i in range(r, r + construct.num_rows):
        row = draft.row[i]
        row.parent = by
        row.task_type = construct.task_type
        row.task = -1
        row.level_of_parent = draft.row[by].level
        row.flags = _IS_CHUNK
    control.num_rows = r + construct.num_rows
    draft.task[t].construct = control.num_constructs
    control.num_constructs += 1


@allocation_free
def _begin_chunk(events, draft, t):  # type: ignore[no-untyped-def]
    task = draft.task[t]
    construct = events.construct[task.construct]
    task.context = construct.first_row + events.chunk_row[construct.first_chunk + construct.seen]
    task.in_chunk = 1
    construct.seen += 1


@allocation_free
def _end_construct(events, draft, t):  # type: ignore[no-untyped-def]
    task = draft.task[t]
    construct = events.construct[task.construct]
    by = draft.row[task.row]
    if construct.num_rows > 0:
        _step(draft, task.row, _LOOP if construct.has_barrier else _LOOP_NOWAIT, 2 * task.construct)
        is_loose = not construct.has_barrier
        for i in range(construct.first_row, construct.first_row + construct.num_rows):
            is_loose = is_loose or draft.row[i].open != 0 or draft.row[i].loose != 0
        if is_loose:
            by.loose |= _bit(by.level)
    task.context = task.row
    task.construct = -1
    task.in_chunk = 0


@allocation_free
def _end_task(draft, t):  # type: ignore[no-untyped-def]
    task = draft.task[t]
    task.state = ENDED
    row = draft.row[task.row]
    if row.open != 0 or row.loose != 0:
        draft.row[row.parent].loose |= _bit(row.level_of_parent)


@allocation_free
def _barrier(draft, t, begins):  # type: ignore[no-untyped-def]
    """Of a region inside another one, or inside a task, it waits for what the region has created."""
    r = draft.task[t].context
    row = draft.row[r]
    if draft.task[t].is_nested:
        if begins and row.level > 0:
            _end_group(draft, r)
            _begin_group(draft, r)
        elif row.level > 0:
            _close_group(row)
    elif r == 0:
        if begins and (row.open != 0 or row.loose != 0):
            _step(draft, _ZERO, _BARRIER, _ZERO)
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
            _step(draft, r, _WAIT_CHILDREN, _ZERO)
            row.open = np.uint64(0)
    elif k == _TASKGROUP_BEGIN:
        _begin_group(draft, r)
    elif k == _TASKGROUP_END:
        if row.level == 0:
            return NO_GROUP
        _end_group(draft, r)
    elif k == _BARRIER_BEGIN or k == _BARRIER_END:
        _barrier(draft, t, np.int64(k == _BARRIER_BEGIN))
    elif k == _PARALLEL_BEGIN:
        if t != 0:
            _begin_group(draft, r)
    elif k == _PARALLEL_END:
        if t == 0:
            _barrier(draft, t, _ONE)
        elif row.level > 0:
            _end_group(draft, r)
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
    used_ps = _ZERO
    for e in range(events.kind.shape[0]):
        while operation < events.operation[e]:
            code = _operation(events, draft, operation, used_ps)
            if code != DONE:
                return code, -1 - operation
            operation += 1
            used_ps = _ZERO
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
        if not _work(events, draft, t, events.cpu_ps[e], operation, e + control.first_event, _ZERO):
            return BAD_SEGMENT, e
        if draft.task[t].construct >= 0 and (ends_construct(k) or k == _LOOP_BEGIN or k == _SECTIONS_BEGIN):
            _end_construct(events, draft, t)
        control.running = t
        code = DONE
        if k == _TASK_CREATE or k == _TASK_BEGIN or k == _TASK_END or k == _TASK_SWITCH or k == _IMPLICIT_BEGIN:
            code = _task_event(events, draft, k, t, max(value - control.first_task + 1, 0))
        elif k == _LOOP_BEGIN or k == _SECTIONS_BEGIN:
            _begin_construct(events, draft, t)
        elif k == _CHUNK or k == _SECTION:
            _begin_chunk(events, draft, t)
        elif k == _CRITICAL_BEGIN or k == _CRITICAL_END:
            acquires = k == _CRITICAL_BEGIN
            _step(draft, draft.task[t].context, _ACQUIRE if acquires else _RELEASE, events.lock[control.num_locks])
            draft.row[draft.task[t].context].num_held += 1 if acquires else -1
            control.num_locks += 1
        elif k == _IMPLICIT_END:
            draft.task[t].state = ENDED
        else:
            code = _synchronise(draft, k, t, value)
        if code != DONE:
            return code, e
        if control.bound < events.bound.shape[0] and events.bound[control.bound].event == e:
            _iteration(events, draft)
    while operation <= control.end_operation:
        if operation == control.end_operation and operation - control.first_operation >= events.compute_ps.shape[0]:
            break
        code = _operation(events, draft, operation, used_ps)
        if code != DONE:
            return code, -1 - operation
        operation += 1
        used_ps = _ZERO
    phases = control.num_phases
    if phases == 0 or draft.row[0].num_steps > draft.phase[phases - 1].end_step:
        _cut(draft, control.end_operation, _ZERO)
    return DONE, 0
