"""A node program in the making: steps and pieces in the order in which they were traced, and what kernels know so far.

Tasks are numbered from 1 within the part of the rank that is looked at, in order of creation; 0 is the initial task
and whatever began before the part. Rows are instances of the program.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner, separate
from manyscale.models.node.program.node_program import Action

_COMPUTE, _BEGIN_GROUP, _END_GROUP = int(Action.compute), int(Action.begin_group), int(Action.end_group)
NO_OPERATION: Final = -1  # of a phase that ends where an iteration does; of a piece: an operation ends it
SLEEP: Final = -2  # instead of a piece's event
UNBORN, CREATED, BEGUN, ENDED = range(4)  # states of a task


class Events(NamedTuple):
    """The part of the rank, one element per event: ``task`` by number, ``value`` as traced; per operation, and one
    more for what follows the last one, ``compute_ps`` and ``sleep_ps``. ``lock``: of each critical_begin and
    critical_end its lock. Per task ``parent`` (number), ``task_type``, ``flags``. Constructs and the row of each
    chunk: node/program/loops.py. Segments: neighbours that they stand before, and their rows."""

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
        ("iteration", "i8"), ("phase_iteration", "i8"), ("phase_start", "i8"), ("operation", "i8"), ("used_ps", "i8"),
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
    control["operation"] = first_operation
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


@inner
def step(draft, row, action, target):  # type: ignore[no-untyped-def]
    control = draft.control[0]
    place = control.num_steps
    control.num_steps = place + 1
    draft.step[place].row = row
    draft.step[place].action = action
    draft.step[place].target = target
    draft.row[row].last_step = place
    draft.row[row].num_steps += 1


@inner
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
    step(draft, row, _COMPUTE, place)


@inner
def _parts(events, draft, task, ps, event, first, end):  # type: ignore[no-untyped-def]
    """A piece of what the task does: of its row, or in equal parts of all rows that share its static chunk."""
    state = draft.task[task]
    if state.in_chunk and events.construct[state.construct].num_parts > 1:
        parts = events.construct[state.construct].num_parts
        each, rest = ps // parts, ps % parts
        for part in range(parts):
            _piece(draft, state.context + part, each + (part < rest), event, first, end, part, parts)
    else:
        _piece(draft, state.context, ps, event, first, end, 0, 1)


@separate
def work(events, draft, task, ps, operation, event, sleep):  # type: ignore[no-untyped-def]
    """The piece before an event, or an operation (``event`` -1), with its segments. False if segments are left over
    that stand before it. Segments whose rows do not follow each other are pieces of their own."""
    control = draft.control[0]
    wanted = event - control.first_event
    kept = event
    while True:
        at = control.segment
        first = end = 0
        while (
            at < events.segment_row.shape[0]
            and events.segment_operation[at] == operation
            and (event < 0 or events.segment_event[at] == wanted)
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
            ps, kept, sleep = sleep, SLEEP, 0
        control.segment = at
        _parts(events, draft, task, ps, kept, first, end)
        ps = 0
    at = control.segment
    if at == events.segment_row.shape[0] or events.segment_operation[at] > operation:
        return True
    return (
        event >= 0
        and events.segment_operation[at] == operation
        and (events.segment_event[at] < 0 or events.segment_event[at] > wanted)
    )


@inner
def bit(level):  # type: ignore[no-untyped-def]
    return np.uint64(1) << np.uint64(min(level, 63))


@inner
def close_group(row):  # type: ignore[no-untyped-def]
    """Nothing is left of what was created in the innermost group."""
    if row.level < 63:
        row.open &= bit(row.level) - np.uint64(1)
        row.loose &= bit(row.level) - np.uint64(1)


@inner
def end_group(draft, r):  # type: ignore[no-untyped-def]
    step(draft, r, _END_GROUP, 0)
    close_group(draft.row[r])
    draft.row[r].level -= 1


@inner
def begin_group(draft, r):  # type: ignore[no-untyped-def]
    step(draft, r, _BEGIN_GROUP, 0)
    draft.row[r].level += 1
