"""Task instances of a trace or of a finished run in the order of their execution, for what a few of them predict
(``sampling/taskpoint/predictability.py``).

A trace tells what a processor counted (``task_counters``), and always CPU time; a run what a model of its cores found.
An instance is a task, or a chunk of a loop; the initial task and the implicit ones of parallel regions, which contain
others, are none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.models.workload.task_tables import EventKind, TaskFlag
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.tables import INITIAL, codes_and_names, type_names
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps import point_files
from manyscale.sampling.taskpoint.predictability import (
    PERCENTILES,
    PREDICTORS,
    Instances,
    error_rows,
    ipc_percentiles,
)

INSTRUCTIONS: Final = "PAPI_TOT_INS"
CYCLES: Final = "PAPI_TOT_CYC"
TASK_CLOCK: Final = "task-clock"  # of the kernel, ns
CPU_TIME: Final = "cpu-time"  # of the tracer, ns
WITHOUT_SIZES: Final = ("first", "second")  # predictors that need no sizes
_SHORT: Final = {"cycles": CYCLES, "instructions": INSTRUCTIONS}
_UNITS: Final = {CYCLES: "cycles", TASK_CLOCK: "ns", CPU_TIME: "ns"}
_NO_TASK: Final = int(TaskFlag.implicit | TaskFlag.initial | TaskFlag.taskwait)


@dataclass(frozen=True)
class Executed:
    """``instances`` in the order of execution; names of their types; what is predicted (``of``) and the size it is
    predicted by (``by``, "" for none), counters or the name of the trace's own clock; ``unit`` of the former."""

    name: str
    instances: Instances
    types: Sequence[str]
    of: str
    by: str
    unit: str
    notes: tuple[Note, ...]

    @property
    def predictors(self) -> list[str]:
        """Those that have what they need."""
        return [name for name in PREDICTORS if self.by or name in WITHOUT_SIZES]


def of_run(run: Path) -> Executed:
    """Simulated instances of a finished run. Raises UserError for a run without them, or whose times are not all of a
    model of the cores."""
    files = point_files.finished_run(run)
    path = files / "timeline" / "task_instances.parquet"
    models = (rundir.read_resolved(files).get("model") or {}) if (files / "resolved.yaml").is_file() else {}
    if not path.is_file():
        if models.get("cpu") in ("detailed", "interval"):
            raise UserError(
                f"{run}: its program creates no task instances and shares out no loops; what is predictable are those"
            )
        raise UserError(
            f"{run}: no task instances were simulated; run a trace with its detailed level again, with "
            "--model cpu=detailed, or ask a trace with counters"
        )
    table = pq.read_table(path)
    model, known = codes_and_names(table.column("model"))
    simulated = np.isin(model, [code for code, name in enumerate(known) if name in ("detailed", "interval")])
    if not simulated.all():
        raise UserError(
            f"{run}: {np.count_nonzero(~simulated):,} of {len(simulated):,} task instances were not simulated, but "
            "predicted from others; run it again without sampling (--sampling tasks=full --sampling iterations=full)"
        )
    kind, names = codes_and_names(table.column("task_type"))
    order, is_executed = execution_order(table)
    order = order[(kind != (names.index(INITIAL) if INITIAL in names else -1))[order]]
    notes = rundir.read_notes(files)
    if not is_executed:
        text = "instances of a run that has no times of all of them stand in the order of their creation"
        notes.append(informs("order-of-creation", text))
    columns = (to_numpy(table.column(name))[order] for name in ("instructions", "cycles"))
    instances = Instances(kind[order], *columns)
    return Executed(run.resolve().name, instances, names, "cycles", "instructions", "cycles", tuple(notes))


def execution_order(table: pa.Table) -> tuple[np.ndarray, bool]:
    """Rows of a run's ``task_instances`` by rank and the time at which they begin; (rows, False) by rank, iteration and
    number, the order of creation, where the run does not have that time of all."""
    rank, iteration, number = (to_numpy(table.column(name)) for name in ("rank", "iteration", "task_instance_id"))
    if "start_ps" in table.column_names:
        start, instance = to_numpy(table.column("start_ps")), to_numpy(table.column("instance_id"))
        if len(start) and start.min() >= 0:
            return np.lexsort((instance, start, rank)), True
    return np.lexsort((number, iteration, rank)), False


def of_workload(workload: Workload, of: str = "auto", by: str = "auto") -> Executed:
    """Traced instances. ``of``: a counter, or ``cpu-time``; auto: cycles, else the kernel's clock, else the tracer's.
    ``by``: a counter; auto: instructions, of the detailed level where they were not counted. Raises UserError for a
    trace without task instances, and for counters that it does not have."""
    rows = _rows(workload)
    counted = [str(each) for each in _counter_names(workload)]
    chosen = _SHORT.get(of, of)
    if chosen == "auto":
        chosen = next(name for name in (CYCLES, TASK_CLOCK, CPU_TIME) if name in counted or name == CPU_TIME)
    size = _SHORT.get(by, by)
    notes = list(workload.notes)
    if rows.num_alone:
        text = (
            f"{rows.num_alone:,} chunks of loops without an event of a loop that the trace shows, and events without a "
            "chunk, are left out"
        )
        notes.append(changes("chunks-unmatched", text, count=rows.num_alone))
    values = rows.cpu_ns if chosen == CPU_TIME else _counts(workload, rows, chosen, counted, "--of")
    if chosen != CYCLES and of == "auto":
        text = f"the trace counts no cycles: what is predicted is {'CPU time' if chosen == CPU_TIME else 'task-clock'}"
        notes.append(changes("cycles-not-counted", text))
    sizes = np.zeros(len(values))
    if size != "auto":
        sizes = _counts(workload, rows, size, counted, "--by")
    elif INSTRUCTIONS in counted:
        size = INSTRUCTIONS
        sizes = _counts(workload, rows, size, counted, "--by")
    else:
        size = ""
        recorded = _recorded_instructions(workload, rows)
        if recorded is not None:
            size, sizes = "instructions of the detailed level", recorded
    known = (values >= 0) & (sizes >= 0)
    if not known.all():
        text = f"{np.count_nonzero(~known):,} of {len(known):,} task instances were not counted: left out"
        notes.append(changes("instances-not-counted", text, count=int(np.count_nonzero(~known))))
    if not known.any():
        raise UserError(f"{workload.name}: none of its {len(known):,} task instances was counted whole; trace again")
    if not size:
        text = "the trace counts no instructions: predictors by size (interpolation, clusters) are left out"
        notes.append(informs("sizes-not-counted", text))
    instances = Instances(rows.type[known], sizes[known].astype(np.int64), values[known])
    unit = _UNITS.get(chosen, "")
    return Executed(workload.name, instances, type_names(workload), chosen, size, unit, tuple(notes))


def errors_table(executed: Executed) -> pa.Table:
    """A row per predictor and type, and of all together (``task_type`` empty); ``error`` null where nothing takes any
    time."""
    rows = [
        row
        for name in executed.predictors
        for row in error_rows(name, executed.instances, PREDICTORS[name](executed.instances))
    ]
    names = [executed.types[row.task_type] if row.task_type >= 0 else "" for row in rows]
    numbers: list[tuple[str, list[Any]]] = [
        ("instances", [row.num_instances for row in rows]),
        ("measured", [row.num_measured for row in rows]),
        ("actual", [row.actual_cycles for row in rows]),
        ("predicted", [row.predicted_cycles for row in rows]),
        ("error", [None if np.isnan(row.error) else row.error for row in rows]),
    ]
    columns = {"predictor": text_array([row.predictor for row in rows]), "task_type": text_array(names)}
    return pa.table(columns | {name: pa.array(values) for name, values in numbers})


def types_table(executed: Executed) -> pa.Table:
    """A row per type: instances, means of what is predicted and of size, and percentiles of size over time (IPC)."""
    instances = executed.instances
    count = np.bincount(instances.task_type, minlength=instances.num_types)
    at = np.flatnonzero(count)
    means = {
        name: np.bincount(instances.task_type, values, instances.num_types)[at] / count[at]
        for name, values in (("mean", instances.cycles), ("mean_size", instances.instructions.astype(np.float64)))
    }
    ratios = ipc_percentiles(instances)[at] if executed.by else np.full((len(at), len(PERCENTILES)), np.nan)
    columns = {
        "task_type": text_array([executed.types[each] for each in at.tolist()]),
        "instances": to_arrow(count[at]),
    }
    columns |= {name: to_arrow(values) for name, values in means.items()}
    for number, per_cent in enumerate(PERCENTILES):
        columns[f"ratio_p{per_cent}"] = pa.array(ratios[:, number], mask=np.isnan(ratios[:, number]))
    return pa.table(columns)


@dataclass(frozen=True)
class _Rows:
    """Instances in the order of execution: rank, type, the row of ``tasks`` (-1 for a chunk) or of ``loop_chunks`` (-1
    for a task), CPU time. ``num_alone``: chunks without an event, or events without a chunk, which are left out."""

    rank: np.ndarray
    type: np.ndarray
    task: np.ndarray
    chunk: np.ndarray
    cpu_ns: np.ndarray
    num_alone: int


def _rows(workload: Workload) -> _Rows:
    kind, event_rank, value = (workload.column("events", name) for name in ("kind", "rank", "value"))
    task_rank, flags = workload.column("tasks", "rank"), workload.column("tasks", "flags")
    first_task = np.searchsorted(task_rank, np.arange(workload.num_ranks + 1))
    begins = np.flatnonzero(kind == EventKind.task_begin)
    task = first_task[event_rank[begins]] + value[begins]
    is_task = (flags[task] & _NO_TASK) == 0
    begins, task = begins[is_task], task[is_task]
    chunk_begins, chunk, num_alone = _chunks(workload)
    if not len(task) + len(chunk):
        raise UserError(_without_tasks(workload))
    order = np.argsort(np.concatenate((begins, chunk_begins)), kind="stable")
    none = -1
    tasks = np.concatenate((task, np.full(len(chunk), none)))[order]
    chunks = np.concatenate((np.full(len(task), none), chunk))[order]
    loop_type = _loop_types(workload)
    ranks = np.concatenate((task_rank[task], workload.column("loop_chunks", "rank")[chunk]))[order]
    types = np.concatenate((workload.column("tasks", "task_type_id")[task], loop_type[chunk]))[order]
    time = np.concatenate((workload.column("tasks", "cpu_ps")[task], workload.column("loop_chunks", "cpu_ps")[chunk]))
    unknown = _rows_of(workload, "task_types")  # the last of the names
    return _Rows(ranks, np.where(types < 0, unknown, types), tasks, chunks, time[order] / 1000, num_alone)


def _chunks(workload: Workload) -> tuple[np.ndarray, np.ndarray, int]:
    """(events that begin chunks, their rows of ``loop_chunks``, how many of either have no partner). A chunk event is
    of the innermost loop that its task instance is in, and names the chunk's first iteration. O(n log n)."""
    kinds = (EventKind.loop_begin, EventKind.loop_chunk, EventKind.loop_end)
    relevant = np.flatnonzero(np.isin(workload.column("events", "kind"), kinds))
    rank, task, kind, value = (
        workload.column("events", name)[relevant].astype(np.int64)
        for name in ("rank", "task_instance_id", "kind", "value")
    )
    at = np.lexsort((task, rank))  # of each instance, in the order of its events
    rank, task, kind, value = rank[at], task[at], kind[at], value[at]
    begins = np.flatnonzero((np.diff(rank, prepend=-1) != 0) | (np.diff(task, prepend=-2) != 0))
    instance = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(at))))
    opens = kind == EventKind.loop_begin
    depth = _depths(opens.astype(np.int64) - (kind == EventKind.loop_end), begins, instance)
    # of each depth, the latest loop that an instance has begun: of the innermost one, the chunk
    place = np.lexsort((np.arange(len(at)), depth, instance))
    begun = np.maximum.accumulate(np.where(opens[place], np.arange(len(at)), -1))
    known = np.maximum(begun, 0)
    same = (begun >= 0) & (instance[place[known]] == instance[place]) & (depth[place[known]] == depth[place])
    loop = np.full(len(at), -1)
    loop[place[same & (depth[place] > 0)]] = value[place[known]][same & (depth[place] > 0)]
    chunk = kind == EventKind.loop_chunk
    asked = np.column_stack((rank, loop, value))[chunk & (loop >= 0)]
    names = ("rank", "loop_id", "first_iteration")
    there = np.column_stack([workload.column("loop_chunks", name).astype(np.int64) for name in names])
    _, key = np.unique(np.concatenate((there, asked)), axis=0, return_inverse=True)
    row_of = np.full(len(key), -1)
    row_of[key[: len(there)]] = np.arange(len(there))
    row = row_of[key[len(there) :]]
    event = relevant[at[chunk & (loop >= 0)]]
    found = np.argsort(event, kind="stable")
    found = found[row[found] >= 0]
    alone = len(there) - len(np.unique(row[found]))
    return event[found], row[found], int(np.count_nonzero(chunk)) - len(found) + alone


def _depths(steps: np.ndarray, begins: np.ndarray, instance: np.ndarray) -> np.ndarray:
    """int64[events]: loops that are open behind each; ends of loops that never began count as nothing. ``steps``: 1
    where one begins, -1 where one ends; ``begins``: the first event of each ``instance``."""
    total = np.cumsum(steps)
    total -= np.append(0, total)[begins][instance]
    # the lowest so far, of each instance: it begins above what all others before have seen
    lift = (len(steps) + 1) * 2 * (instance.max(initial=0) - instance)
    lowest = np.minimum.accumulate(total + lift) - lift
    return np.asarray(total - np.minimum(lowest, 0))


def _loop_types(workload: Workload) -> np.ndarray:
    """Of each row of ``loop_chunks`` the type of its loop."""
    keys = [
        (workload.column(level, "rank").astype(np.int64) << 32) | workload.column(level, "loop_id")
        for level in ("loops", "loop_chunks")
    ]
    at = np.searchsorted(keys[0], keys[1])
    found: np.ndarray = workload.column("loops", "task_type_id")[at]
    return found


def _counter_names(workload: Workload) -> list[str]:
    names: list[str] = []
    for level in ("task_counters", "chunk_counters"):
        table = workload.tables[level]
        if table.num_rows:
            code, known = codes_and_names(table.column("counter"))
            names += [known[each] for each in np.unique(code).tolist() if known[each] not in names]
    return names


def _counts(workload: Workload, rows: _Rows, name: str, counted: Sequence[str], option: str) -> np.ndarray:
    """float64[rows]: of a counter, -1 where it is not known. Raises UserError for one that the trace does not have."""
    if name not in counted:
        raise UserError(_without_counter(workload, name, counted, option))
    values = np.full(len(rows.rank), -1.0)
    for level, keys, at in (
        ("tasks", ("rank", "task_instance_id"), rows.task),
        ("loop_chunks", ("rank", "loop_id", "first_iteration"), rows.chunk),
    ):
        table = workload.tables["task_counters" if level == "tasks" else "chunk_counters"]
        if not table.num_rows or not workload.tables[level].num_rows:
            continue
        code, known = codes_and_names(table.column("counter"))
        mine = table.filter(pa.array(code == known.index(name))) if name in known else table.slice(0, 0)
        there = (
            workload.tables[level]
            .select(list(keys))
            .append_column("row", pa.array(np.arange(_rows_of(workload, level))))
        )
        joined = there.join(mine.select([*keys, "value"]), list(keys), join_type="inner")
        of_row = np.full(_rows_of(workload, level), -1.0)
        of_row[to_numpy(joined.column("row"))] = to_numpy(joined.column("value"))
        values[at >= 0] = of_row[at[at >= 0]]
    return values


def _rows_of(workload: Workload, level: str) -> int:
    return int(workload.tables[level].num_rows)


def _recorded_instructions(workload: Workload, rows: _Rows) -> np.ndarray | None:
    """float64[rows]: instructions of task instances by the detailed level, -1 where it was not recorded; None where
    there is none, or it does not count them."""
    segments = workload.tables["segments"]
    if not segments.num_rows:
        return None
    rank, task, count = (workload.column("segments", name) for name in ("rank", "task_instance_id", "num_instructions"))
    if count.min() < 0:
        return None
    first = np.searchsorted(workload.column("tasks", "rank"), np.arange(workload.num_ranks + 1))
    of = task >= 0
    sums = np.full(_rows_of(workload, "tasks"), -1.0)
    at = first[rank[of]] + task[of]
    sums[at] = 0
    np.add.at(sums, at, count[of])
    found: np.ndarray = np.where(rows.task >= 0, sums[rows.task], -1.0)
    return found if (found >= 0).any() else None


def _without_tasks(workload: Workload) -> str:
    if workload.tables["task_types"].num_rows or workload.tables["events"].num_rows:
        return f"{workload.name}: the program creates no task instances and shares out no loops: nothing is predicted"
    return (
        f"{workload.name}: the trace holds no task instances; record them with manyscale trace --level tasks "
        "--counters hardware"
    )


def _without_counter(workload: Workload, name: str, counted: Sequence[str], option: str) -> str:
    """Which command records it; not one that has been tried."""
    has = f"it has {', '.join([*counted, CPU_TIME])}"
    tried = [note for note in workload.notes if note.code == "counters-unavailable" and name in note.text]
    if tried:
        reason = tried[0].text.partition(": ")[2]
        return (
            f"{workload.name}: {option} {name} was asked for when it was recorded, and was not counted ({reason}); "
            f"{has}. Record it on another machine, or run the trace with its detailed level (--model cpu=detailed) and "
            "ask that run"
        )
    asked = {CYCLES: "hardware", INSTRUCTIONS: "hardware", TASK_CLOCK: "software"}.get(name, shlex.quote(name))
    return (
        f"{workload.name}: {option} {name} is not in the trace; {has}. Record it with manyscale trace --level tasks "
        f"--counters {asked}"
    )
