"""Times of task types that a runtime system learns while it schedules, for the policy predicted-critical-path.

What is known of an instance before it runs is its type and its size, where there is one (instructions; else all are 1).
Its time is predicted as its size times what the instances of its type that have ended took for theirs, both summed; for
a type of which none has ended, what all have taken. That is interpolation over sizes from nothing on, as the first of
the predictors of Grass (UPC 2017, chapter 4) does between support points; section 8.1 of it asks for runtime systems
that use such predictions. The initial task's own pieces are not predicted: they count as no time.

Bottom levels are found anew when the first instance of a type has ended, and when as many have ended as twice the last
time. A phase begins with what the phases before it have taught, of earlier iterations, too. Where all times are known
before (bursts), that is what instances of earlier phases take in the mean, so that a phase is scheduled the same
whichever others are scheduled with it: without jitter, and on cores of several speeds as by the mean of these.

Cost: O(1) a piece and an end; O(steps + edges + ready log ready) each time, types + log2(instances) times a phase.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner_inlined, read_only, seldom, separate
from manyscale.models.kernels.event_heap import push
from manyscale.models.node.program.node_program import Action, InstanceFlag, NodeProgram
from manyscale.models.node.scheduler.bottom_levels import find_bottom_levels, first_step_of

_CHUNK, _PSEUDO = int(InstanceFlag.chunk), int(InstanceFlag.pseudo)
_COMPUTE: Final = int(Action.compute)
_ROW: Final = (1 << 32) - 1


class Learning(NamedTuple):
    """``task_type`` int32[instances], ``size`` float64[instances]; ``spent_ps`` int64[rows] so far; ``seen``
    float64[types, 2]: time and size of the instances of each type that have ended; ``earlier`` float64[2, types, 2]:
    the same of phases before the first one that is scheduled, and before the current one, by ``known_ps``
    int64[pieces], which is empty where times are not known before. ``control``: one record, ``ended``
    instances, ``due``: how many are to have ended when bottom levels are found anew. All but ``control`` are empty for
    other policies."""

    task_type: np.ndarray
    size: np.ndarray
    spent_ps: np.ndarray
    seen: np.ndarray
    earlier: np.ndarray
    known_ps: np.ndarray
    control: np.ndarray


# ``first_phase``: that is scheduled, -1 before it is; ``phase``: before which ``earlier`` ends; ``factor``: of cores'
# mean speed on ``known_ps``
_CONTROL: Final = np.dtype(
    [("ended", "i8"), ("due", "i8"), ("num_rows", "i8"), ("first_phase", "i8"), ("phase", "i8"), ("factor", "f8")]
)


def new_learning(
    program: NodeProgram, num_rows: int, size: np.ndarray | None, *, learns: bool,
    known_ps: np.ndarray | None = None, speed: np.ndarray | None = None, seen: np.ndarray | None = None,
) -> Learning:  # fmt: skip
    """``size`` float64[instances], by default all alike; ``known_ps`` int64[pieces] on a core of the ``speed`` 1
    (float64[cores]; all are, by default); or ``seen`` before (nothing by default). Raises ValueError where ``size``
    does not fit."""
    if learns:
        for kernel in (forget, note_end):
            kernel.want()
    count = program.num_instances if learns else 0
    if size is not None and len(size) != program.num_instances:
        raise ValueError(f"{len(size)} sizes of {program.num_instances} instances")
    sizes = np.ones(count) if size is None else np.maximum(size, 1.0)[:count]
    types = int(program.task_type.max(initial=-1)) + 1 if learns else 0
    control = np.zeros(1, _CONTROL)
    control["first_phase"] = -1
    control["factor"] = 1.0 if speed is None else len(speed) / speed.sum()
    return Learning(
        task_type=read_only(program.task_type[:count], np.int32),
        size=read_only(sizes, np.float64),
        spent_ps=np.zeros(num_rows if learns else 0, np.int64),
        seen=np.zeros((types, 2)) if seen is None or not learns else seen.copy(),
        earlier=np.zeros((2, types, 2)),
        known_ps=read_only(np.zeros(0) if known_ps is None or not learns else known_ps, np.int64),
        control=control,
    )


@seldom(gives="nothing")
def forget(sch, num_rows):  # type: ignore[no-untyped-def]
    """A phase of so many rows begins: what is known of an instance is its size, and what its type took before."""
    known = sch.learning
    known.control[0].ended = 0
    known.control[0].due = 1
    known.control[0].num_rows = num_rows
    for row in range(num_rows):
        known.spent_ps[row] = 0
    if known.known_ps.shape[0] > 0:
        _go_to(sch, sch.node[0].phase)
        for kind in range(known.seen.shape[0]):
            known.seen[kind, 0] = known.earlier[1, kind, 0]
            known.seen[kind, 1] = known.earlier[1, kind, 1]
    _predict(sch)


@separate
def _go_to(sch, phase):  # type: ignore[no-untyped-def]
    """``earlier`` ends before a phase. O(instances and steps between), and of all before the first one at first."""
    known, program = sch.learning, sch.program
    control = known.control[0]
    if phase < control.phase:
        is_first = phase == control.first_phase
        for kind in range(known.seen.shape[0]):
            for part in range(2):
                known.earlier[1, kind, part] = known.earlier[0, kind, part] if is_first else 0.0
        control.phase = phase if is_first else 0
    first = np.int64(program.phase_first_instance[control.phase])
    for instance in range(first, program.phase_first_instance[phase]):
        kind = known.task_type[instance]
        if kind < 0 or program.instance_flags[instance] & (_CHUNK | _PSEUDO):
            continue
        time_ps = np.int64(0)
        for step in range(program.first_step[instance], program.first_step[instance + 1]):
            if sch.step_action[step] == _COMPUTE:
                time_ps += known.known_ps[sch.step_target[step]]
        known.earlier[1, kind, 0] += time_ps * control.factor
        known.earlier[1, kind, 1] += known.size[instance]
    control.phase = phase
    if control.first_phase < 0:
        control.first_phase = phase
        for kind in range(known.seen.shape[0]):
            for part in range(2):
                known.earlier[0, kind, part] = known.earlier[1, kind, part]


@inner_inlined
def note_piece(sch, row, step, lasted_ps):  # type: ignore[no-untyped-def]
    """A step of an instance, maybe a piece, has lasted so long."""
    if sch.step_action[step] == _COMPUTE:
        sch.learning.spent_ps[row] += lasted_ps


@seldom(gives="nothing")
def note_end(sch, row):  # type: ignore[no-untyped-def]
    """An instance has ended."""
    known = sch.learning
    kind = known.task_type[row + sch.node[0].base]
    if kind < 0 or sch.instance[row].flags & (_CHUNK | _PSEUDO):
        return
    is_first = known.seen[kind, 1] == 0.0
    known.seen[kind, 0] += known.spent_ps[row]
    known.seen[kind, 1] += known.size[row + sch.node[0].base]
    control = known.control[0]
    control.ended += 1
    if is_first or control.ended >= control.due:
        control.due = 2 * control.ended
        _predict(sch)
        _order_anew(sch)


@separate
def _predict(sch):  # type: ignore[no-untyped-def]
    """Predicted times of all pieces of the phase, and the bottom levels that follow."""
    known = sch.learning
    time, size = 0.0, 0.0
    for other in range(known.seen.shape[0]):
        time += known.seen[other, 0]
        size += known.seen[other, 1]
    of_all = time / size if size > 0.0 else 1.0
    for row in range(known.control[0].num_rows):
        first = first_step_of(sch, row)
        end = sch.instance[row].end_step
        pieces = 0
        for step in range(first, end):
            pieces += sch.step_action[step] == _COMPUTE
        if pieces == 0:
            continue
        each_ps = 0.0
        kind = np.int64(known.task_type[row + sch.node[0].base]) if row > 0 else np.int64(-1)
        if kind >= 0:
            rate = known.seen[kind, 0] / known.seen[kind, 1] if known.seen[kind, 1] > 0.0 else of_all
            each_ps = rate * known.size[row + sch.node[0].base] / pieces
        for step in range(first, end):
            if sch.step_action[step] == _COMPUTE:
                sch.predicted_ps[sch.step_target[step]] = np.int64(each_ps)
    find_bottom_levels(sch, known.control[0].num_rows)
    most = sch.queues.control[0].longest - 1
    for row in range(known.control[0].num_rows):
        sch.queues.bottom_level[row] = min(sch.queues.bottom_level[row], most)


@separate
def _order_anew(sch):  # type: ignore[no-untyped-def]
    """The ready instances by their new bottom levels; those of equal ones stay in the order in which they became
    ready."""
    queues = sch.queues
    count = queues.heap_size[0]
    queues.heap_size[0] = 0
    for place in range(count):
        number = queues.heap[place].number  # what is put back takes places up to this one
        row = number & _ROW
        later = sch.instance[row].level * queues.control[0].longest
        push(queues.heap, queues.heap_size, number, later - queues.bottom_level[row])
