"""The events of the format ``omptask-trace-1`` (``omt``) as those of the workload's task level."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag
from manyscale.runner.errors import UserError

_IMPLICIT, _CREATE, _DEPENDENCE, _SCHEDULE, _SYNC_BEGIN, _SYNC_END, _PARALLEL, _PARALLEL_END = range(1, 9)
_CREATED_BY: Final = 102
_SYNCS: Final = {1: "barrier", 2: "barrier", 3: "barrier", 4: "barrier", 5: "taskwait", 6: "taskgroup"}
_DEPENDENCES: Final = {
    1: DependenceKind.depend_in, 2: DependenceKind.depend_out, 3: DependenceKind.depend_inout,
    4: DependenceKind.depend_mutexinoutset, 6: DependenceKind.depend_inoutset,
}  # fmt: skip
_FLAGS: Final = ((0x10000000, TaskFlag.untied), (0x20000000, TaskFlag.final), (0x40000000, TaskFlag.mergeable),
                 (0x80000000, TaskFlag.merged), (0x10, TaskFlag.taskwait))  # fmt: skip


@dataclass(frozen=True)
class Events:
    """Rows of the table ``events`` (one element each), creations and dependences of tasks.

    ``position``: records of the stream before each event. ``running``: the task before it; ``lap_ns``: time since the
    event before. Per task instance ``parent``, ``task_type``, ``flags``; ``last_running``: the task after all events.
    """

    kind: np.ndarray
    running: np.ndarray
    task_type: np.ndarray
    value: np.ndarray
    lap_ns: np.ndarray
    position: np.ndarray
    parent: np.ndarray
    type_of_task: np.ndarray
    flags: np.ndarray
    dependent: np.ndarray
    dependence: np.ndarray
    address: np.ndarray
    last_running: int

    @classmethod
    def of(cls, path: Path, arrays: dict[str, np.ndarray], num_sites: int) -> Events:
        """Raises UserError, naming the event, for what is unknown or contradicts itself."""
        what, a, b = (arrays[name].astype(np.int64) for name in ("ev_kind", "ev_a", "ev_b"))
        c, x = arrays["ev_c"].astype(np.int64), arrays["ev_x"].astype(np.int64)
        kind, running, value, last_running = _follow(path, what, a, b, c, x)
        created = np.flatnonzero(what == _CREATE)
        told = created + 1
        if len(told) and (told[-1] >= len(what) or np.any(what[told] != _CREATED_BY)):
            raise UserError(f"{path}: a task's creation is not followed by its flags (event 102); trace it again")
        parallels = np.flatnonzero(what == _PARALLEL)
        implicit = np.flatnonzero((what == _IMPLICIT) & (a != 3))
        num_tasks = 1 + len(created) + int(np.count_nonzero(a[implicit] == 2))
        parent, type_of_task = np.full(num_tasks, -1, np.int64), np.full(num_tasks, -1, np.int64)
        flags = np.zeros(num_tasks, np.int64)
        ids = np.concatenate((c[implicit], c[created])) - 1
        if not np.array_equal(np.sort(ids), np.arange(num_tasks)):
            raise UserError(f"{path}: its {num_tasks} tasks are not numbered from 1; trace the program again")
        parent[c[created] - 1] = c[told] - 1
        type_of_task[c[created] - 1] = x[created]
        for bit, flag in _FLAGS:
            flags[c[created] - 1] |= np.where(x[told] & bit, int(flag), 0)
        for each in implicit.tolist():  # one or two per parallel region
            before = parallels[parallels < each]
            is_initial = a[each] == 1
            flags[c[each] - 1] = TaskFlag.initial if is_initial else TaskFlag.implicit
            parent[c[each] - 1] = -1 if is_initial else running[each]
            type_of_task[c[each] - 1] = x[before[-1]] if len(before) and not is_initial else -1
        sited = np.isin(what, (_CREATE, _SYNC_BEGIN, _SYNC_END, _PARALLEL, _PARALLEL_END))
        site = np.where(sited, x, -1)
        # libomp gives no site where a region ends, and the sites of creations are those of their tasks
        site[(what == _PARALLEL_END) & (len(parallels) > 0)] = x[parallels[-1]] if len(parallels) else -1
        if np.any(site >= num_sites) or np.any(type_of_task >= num_sites):
            raise UserError(f"{path}: an event names site {max(site.max(), type_of_task.max())} of {num_sites}")
        kept = np.flatnonzero(kind >= 0)
        clock = np.cumsum(arrays["ev_dt"], dtype=np.int64)
        lap = np.diff(clock[kept], prepend=0)
        if np.any(lap < 0):
            raise UserError(
                f"{path}: event {kept[np.argmax(lap < 0)]} is before the one in front of it; trace it again"
            )
        dependences = np.flatnonzero(what == _DEPENDENCE)
        unknown = dependences[~np.isin(a[dependences], list(_DEPENDENCES))]
        if len(unknown):
            raise UserError(f"{path}: event {unknown[0]} is a dependence of kind {a[unknown[0]]}, which is not known")
        kinds = np.zeros(8, np.int64)
        kinds[list(_DEPENDENCES)] = list(_DEPENDENCES.values())
        return cls(
            kind[kept], running[kept], site[kept], value[kept], lap,
            np.cumsum(arrays["ev_dpos"], dtype=np.int64)[kept], parent, type_of_task, flags,
            c[dependences] - 1, kinds[a[dependences]], x[dependences], last_running,
        )  # fmt: skip


def _follow(
    path: Path, what: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """(EventKind or -1 for one without a row, task running before it, value) of each event, and the task at the end."""
    known = np.isin(what, [*range(1, 9), _CREATED_BY])
    if not np.all(known):
        at = int(np.flatnonzero(~known)[0])
        raise UserError(f"{path}: event {at} is of kind {what[at]}, which is not known; trace the program again")
    num_ids = int(max(c.max(initial=0), x[what == _SCHEDULE].max(initial=0))) + 1
    kind, running, value = (np.full(len(what), -1, np.int64) for _ in range(3))
    syncs = np.full((256, 2), -1, np.int64)
    for number, name in _SYNCS.items():
        syncs[number] = EventKind[f"{name}_begin"], EventKind[f"{name}_end"]
    at, last = _replay(what, a, b, c, x, syncs, np.zeros(num_ids, np.bool_), kind, running, value)
    if at >= 0:
        raise UserError(f"{path}: event {at} does not follow from those before it; trace the program again")
    return kind, running, value, int(last)


# Numba takes numbers, not enumerations
_TASK_CREATE, _TASK_BEGIN, _TASK_END = (
    int(each) for each in (EventKind.task_create, EventKind.task_begin, EventKind.task_end)
)
_TASK_SWITCH, _IMPLICIT_BEGIN, _IMPLICIT_END = (
    int(each) for each in (EventKind.task_switch, EventKind.implicit_begin, EventKind.implicit_end)
)
_PARALLEL_BEGINS, _PARALLEL_ENDS = int(EventKind.parallel_begin), int(EventKind.parallel_end)
_TASKWAIT: Final = 5


@njit(cache=True, nogil=True)
def _replay(what, a, b, c, x, syncs, has_begun, kind, running, value):  # type: ignore[no-untyped-def]
    """Fill ``kind``, ``running`` and ``value``. Returns (index of an event that is wrong, or -1; task that runs last).
    O(events)."""
    current = 0
    outer = 0
    for i in range(what.shape[0]):
        running[i] = current
        each = what[i]
        if each == _IMPLICIT and a[i] == 2:
            kind[i], value[i] = _IMPLICIT_BEGIN, c[i] - 1
            outer = current
            current = c[i] - 1
        elif each == _IMPLICIT and a[i] == 3:
            kind[i], value[i] = _IMPLICIT_END, current
        elif each == _CREATE:
            kind[i], value[i] = _TASK_CREATE, c[i] - 1
        elif each == _SCHEDULE:
            if c[i] - 1 != current or x[i] < 1:
                return i, current
            if a[i] == 1:
                kind[i] = _TASK_END
            else:
                kind[i] = _TASK_SWITCH if has_begun[x[i]] else _TASK_BEGIN
            has_begun[x[i]] = True
            current = x[i] - 1
            value[i] = current
        elif each == _SYNC_BEGIN or each == _SYNC_END:
            kind[i] = syncs[a[i], each - _SYNC_BEGIN]
            value[i] = -1 if a[i] == _TASKWAIT and each == _SYNC_BEGIN else 0
            if kind[i] < 0:
                return i, current
        elif each == _PARALLEL:
            kind[i], value[i] = _PARALLEL_BEGINS, b[i]
        elif each == _PARALLEL_END:
            kind[i], value[i] = _PARALLEL_ENDS, 0
            current = outer
            running[i] = current
    return -1, current
