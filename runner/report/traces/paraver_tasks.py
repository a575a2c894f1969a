"""What the runtime system did in a traced run, for its Paraver trace: task instances as Extrae's events, and all tables
of that level as events of our own (readers/paraver/task_levels.py), from which they are read back.

A traced rank has one thread, so its events lie between its MPI calls: each at the end of the CPU time before it, from
where the rank starts to run on. At each the type and number of the task instance that goes on (0: none, the initial
task), what created it, and what was counted of it where the trace has counters per instance, stand as values that hold
until the next. Rows of other tables stand where the instance was created, the loop began or the operation follows.

Cost: O(rows log rows).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.columns import one_chunk
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.tables import type_names
from manyscale.runner.readers.paraver import labels, task_levels
from manyscale.runner.report.paraver.records import Records, nanoseconds
from manyscale.runner.report.paraver.views import View, task_times, timeline
from manyscale.runner.report.text_columns import integers, join, picked


@dataclass(frozen=True)
class _Places:
    """Where a row may stand: ``event_ns`` of each event, ``operation_ns`` of each operation, where the rank runs on."""

    workload: Workload
    event_ns: np.ndarray
    operation_ns: np.ndarray

    def of(self, level: str) -> np.ndarray:
        """int64 ns of each row of a table."""
        names = SCHEMAS[level].names
        if level == "events":
            return self.event_ns
        if level in ("tasks", "task_dependences", "task_counters"):
            return self._at(level, "task_instance_id", (EventKind.task_create, EventKind.implicit_begin))
        if "loop_id" in names:
            return self._at(level, "loop_id", (EventKind.loop_begin,))
        operation = "first_operation_id" if level == "iterations" else "operation_id"
        rank = self.workload.column(level, "rank")
        row = self.workload.rank_offsets[rank] + self.workload.column(level, operation)
        return self.operation_ns[np.minimum(row, self.workload.rank_offsets[rank + 1] - 1)]

    def _at(self, level: str, name: str, kinds: tuple[EventKind, ...]) -> np.ndarray:
        """When the event happened that names what a row is of; 0 for what none names."""
        chosen = np.flatnonzero(np.isin(self.workload.column("events", "kind"), kinds))
        value = self.workload.column("events", "value")[chosen]
        rank, wanted = (self.workload.column(level, each).astype(np.int64) for each in ("rank", name))
        width = int(max(value.max(initial=0), wanted.max(initial=0))) + 1
        keys = self.workload.column("events", "rank")[chosen].astype(np.int64) * width + value
        order = np.argsort(keys, kind="stable")
        keys = np.append(keys[order], -1)
        at = np.searchsorted(keys[:-1], rank * width + wanted)
        found = keys[at] == rank * width + wanted
        return np.where(found, np.append(self.event_ns[chosen][order], 0)[at], 0)


def records_of(workload: Workload, running_ns: np.ndarray, begin_ns: np.ndarray, who: list[str]) -> list[Records]:
    """``running_ns`` and ``begin_ns``, of each operation: from when on its rank computes before it, and when it begins.
    Nothing of a workload without tasks."""
    if not workload.tables["events"].num_rows:
        return []
    places = _Places(workload, _event_times(workload, running_ns, begin_ns), running_ns)
    own = [_rows(workload, level, places.of(level), who) for level in task_levels.LEVELS]
    return [*own, _going_on(workload, places.event_ns, who)]


def _event_times(workload: Workload, running_ns: np.ndarray, begin_ns: np.ndarray) -> np.ndarray:
    rank, operation, spent = (workload.column("events", name) for name in ("rank", "operation_id", "cpu_ps"))
    offsets = workload.rank_offsets
    row = offsets[rank] + operation
    last = row >= offsets[rank + 1]  # what follows a rank's last operation is put at it
    row = np.where(last, offsets[rank + 1] - 1, row)
    until = np.cumsum(spent)
    first = np.flatnonzero(np.append(True, (np.diff(row) != 0) | np.diff(last))) if len(row) else row
    before = np.repeat((until - spent)[first], np.diff(np.append(first, len(row))))
    return np.where(last, begin_ns[row], np.minimum(running_ns[row] + nanoseconds(until - before), begin_ns[row]))


def _rows(workload: Workload, level: str, time: np.ndarray, who: list[str]) -> Records:
    rank = workload.column(level, "rank")
    columns = [_values(workload, level, name) for name in task_levels.columns_of(level)]
    types = task_levels.types_of(level)
    prefix = [f"2:{name}" for name in who]

    def lines(rows: np.ndarray) -> pa.Array:
        pairs = [
            part
            for each, values in zip(types, columns, strict=True)
            for part in (f":{each}:", integers(values[rows] + 1))
        ]
        return join(picked(prefix, rank[rows]), integers(time[rows]), *pairs, "\n")

    return Records(time, time, lines)


def _going_on(workload: Workload, event_ns: np.ndarray, who: list[str]) -> Records:
    """Which task instance goes on where another one did before."""
    rank, before = (workload.column("events", name) for name in ("rank", "task_instance_id"))
    after = np.append(before[1:], 0)
    after[np.append(np.diff(rank) != 0, True)] = 0
    rows = np.flatnonzero(after != before)
    width = int(workload.column("tasks", "task_instance_id").max(initial=0)) + 1
    known = workload.column("tasks", "rank").astype(np.int64) * width + workload.column("tasks", "task_instance_id")
    task = np.minimum(np.searchsorted(known, rank[rows].astype(np.int64) * width + after[rows]), len(known) - 1)
    is_one = after[rows] > 0
    kind, parent = (workload.column("tasks", name)[task] for name in ("task_type_id", "parent_id"))
    values = [np.where(is_one, each + 1, 0) for each in (kind, after[rows], parent)]
    counted = [np.where(is_one, each[task], 0) for each in _counts(workload, known, width)]
    types = [labels.TASK_TYPE, labels.TASK_INSTANCE, labels.CREATOR]
    types += [task_levels.COUNTED + number for number in range(len(counted))]
    place, time = rank[rows], event_ns[rows]
    prefix = [f"2:{name}" for name in who]

    def lines(at: np.ndarray) -> pa.Array:
        pairs = [
            part
            for each, column in zip(types, [*values, *counted], strict=True)
            for part in (f":{each}:", integers(column[at].astype(np.int64)))
        ]
        return join(picked(prefix, place[at]), integers(time[at]), *pairs, "\n")

    return Records(time, time, lines)


def _counts(workload: Workload, known: np.ndarray, width: int) -> list[np.ndarray]:
    """Of each counter what it counted in each task instance, 0 where it counted nothing."""
    names = one_chunk(workload.tables["task_counters"].column("counter")).dictionary.to_pylist()
    code, value = (workload.column("task_counters", name) for name in ("counter", "value"))
    keys = workload.column("task_counters", "rank").astype(np.int64) * width
    row = np.searchsorted(known, keys + workload.column("task_counters", "task_instance_id"))
    found = np.zeros((len(names), len(known)), np.int64)
    np.add.at(found, (code, row), value)
    return list(found)


def configuration(workload: Workload) -> str:
    """What stands in the .pcf file for all of these."""
    if not workload.tables["events"].num_rows:
        return ""
    static = workload.tables[task_levels.STATIC]
    names = [" ".join(name.split()) for name in type_names(workload)[:-1]]
    blocks = [
        _block([(labels.TASK_TYPE, "Task type")], names),
        _block([(labels.TASK_INSTANCE, "Task instance: task_instance_id + 1")]),
        _block([(labels.CREATOR, "Created by task instance: task_instance_id + 1")]),
    ]
    if workload.tables["task_counters"].num_rows:
        counters = one_chunk(workload.tables["task_counters"].column("counter")).dictionary.to_pylist()
        of_instance = [(task_levels.COUNTED + n, f"{name} of the task instance") for n, name in enumerate(counters)]
        blocks.append(_block(of_instance))
    for level in task_levels.LEVELS:
        for number, name in zip(task_levels.types_of(level), task_levels.columns_of(level), strict=True):
            blocks.append(_block([(number, f"{level}: {name} + 1")], _names_of(workload, level, name)))
    for number, name in zip(task_levels.types_of(task_levels.STATIC), static.schema.names, strict=True):
        texts = [str(each).replace("\n", " ") for each in static.column(name).to_pylist()]
        blocks.append(_block([(number, f"{task_levels.STATIC}: {name}")], texts))
    return "".join(f"\n\n{block}" for block in blocks)


def _values(workload: Workload, level: str, name: str) -> np.ndarray:
    """int64 of each row: its value, or the place of its name."""
    if pa.types.is_string(SCHEMAS[level].field(name).type):
        names = _names_of(workload, level, name)
        texts = workload.tables[level].column(name).to_pylist()
        return np.array([names.index(text) for text in texts], np.int64)
    return workload.column(level, name).astype(np.int64)


def _names_of(workload: Workload, level: str, name: str) -> list[str]:
    """Names of the values of a column, none of one of numbers."""
    if (level, name) == ("events", "kind"):
        return [kind.name for kind in EventKind]
    column = workload.tables[level].column(name)
    if pa.types.is_dictionary(column.type):
        return list(one_chunk(column).dictionary.to_pylist())
    return sorted(set(column.to_pylist())) if pa.types.is_string(column.type) else []


def _block(types: list[tuple[int, str]], names: list[str] | None = None) -> str:
    head = "EVENT_TYPE\n" + "".join(f"0    {number}    {label}\n" for number, label in types)
    if not names:
        return head
    values = "".join(f"{number}   {name}\n" for number, name in enumerate(names, start=1))
    return f"{head}VALUES\n0   End\n{values}"


def views(workload: Workload) -> dict[str, View]:
    """Ready views of the trace."""
    if not workload.tables["events"].num_rows:
        return {"timeline": timeline({})}
    kind = task_levels.types_of("events")[task_levels.columns_of("events").index("kind")]
    return {"timeline": timeline({"Task types": labels.TASK_TYPE, "Runtime events": kind}), "task-times": task_times()}
