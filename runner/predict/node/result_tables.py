"""The tables of a result that tell of nodes, from the results of its units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.predict.node.cells.plan import Cell
from manyscale.runner.predict.node.instance_ids import first_ids, first_ids_of_detail, in_run, traced_ids
from manyscale.runner.predict.node.nested_rows import alone_on_cores
from manyscale.runner.predict.node.options import TimelineChoice
from manyscale.runner.predict.node.schedule_units import is_coupled
from manyscale.runner.predict.node.tables import (
    CORE_CALLS_SCHEMA,
    CPI_STACKS_SCHEMA,
    MODELS,
    cores_table,
    task_instances_table,
    type_names,
)
from manyscale.runner.predict.node.task_type_names import same_types
from manyscale.runner.predict.phase_source import Replayed
from manyscale.runner.predict.units import Arrays

_CORE, _START, _NUM_COLUMNS = 1, 2, 11  # of the columns that are put together here
_BURST, _RATIO = MODELS.index("burst"), MODELS.index("ratio")
_TIMES: Final = ("start_ps", "end_ps", "created_ps", "ready_ps")
ALL_CHOSEN: Final = TimelineChoice()


def tables(
    workload: Workload, base: Workload, plan: Sequence[Cell], cells: Sequence[Arrays], schedules: Sequence[Arrays],
    replayed: Replayed, detail: Workload | None = None, chosen: TimelineChoice = ALL_CHOSEN,
) -> dict[str, Any]:  # fmt: skip
    """``cores``, where the replay schedules instances ``core_calls``, and where cells were simulated
    ``task_instances`` and ``cpi_stacks``. The replay says when phases
    begin, or what cores did that it scheduled itself.
    ``detail``: the workload of the cells, where it is not ``base``. ``chosen``: cells that are shown on cores.

    Cells are shown on cores where the run takes their times (``simulated_before`` of schedules), else they are shown as
    all other phases: in traced times, scaled by the ratios of task types if there are cells."""
    names = type_names(base)
    other = base if detail is None else detail
    first = first_ids(schedules)
    of_rank = dict(enumerate(first.tolist()))
    own = of_rank if other is base else first_ids_of_detail(plan, cells, int(first[-1]))
    first_id = [
        (of_rank if cell.get("is_of_run", [False])[0] else own)[place.rank]
        for place, cell in zip(plan, cells, strict=True)
    ]
    placed = _cells(workload, plan, cells, schedules, replayed, first_id)
    found: dict[str, Any] = {"cores": _cores(workload, names, plan, placed, schedules, replayed, chosen, first)}
    if replayed.is_coupled:
        found["core_calls"] = _calls(workload, replayed.arrays)
    if cells:
        types = np.append(np.arange(len(names) - 1) if other is base else same_types(other, base), -1)
        found["task_instances"] = _instances(names, plan, cells, placed)
        found["cpi_stacks"] = _stacks(names, types, plan, cells)
    return found


def _cells(
    workload: Workload, plan: Sequence[Cell], cells: Sequence[Arrays], schedules: Sequence[Arrays], replayed: Replayed,
    first_id: Sequence[int],
) -> list[tuple[np.ndarray, ...]]:  # fmt: skip
    """Of each cell the columns of its instances; core and times -1 where the run does not take its times.
    ``first_id``: of each cell's rank."""
    phases: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    first: dict[int, int] = {}  # of the rank's next cell: which of its simulated phases the schedule knows
    found = []
    for cell, simulated, number in zip(
        plan, cells, first_id, strict=True
    ):  # in the order in which the schedules know their phases
        rank, result = cell.rank, schedules[cell.rank]
        phase = first.get(rank, 0) + simulated["phase"]
        first[rank] = first.get(rank, 0) + len(simulated["makespan_ps"])
        before = np.empty(0, np.int64) if is_coupled(result) else result["simulated_before"]
        own: dict[str, Any] = {"rank": rank, "first_id": number, "model": simulated["model"]}
        if first[rank] <= len(before) and not np.any(before[phase] < 0) and _knows_times(simulated):
            if rank not in phases:
                phases[rank] = _phases(workload, rank, result["compute_ps"], replayed)
            since = result["simulated_begin_ps"][phase]
            found.append(_placed(simulated, before[phase], since, *phases[rank], **own))
        else:
            nowhere = np.full(len(simulated["core"]), -1)
            found.append(_columns(simulated, nowhere, [nowhere] * len(_TIMES), **own))
    return found


def _cores(
    workload: Workload, names: Sequence[str], plan: Sequence[Cell], placed: Sequence[tuple[np.ndarray, ...]],
    schedules: Sequence[Arrays], replayed: Replayed, chosen: TimelineChoice, first_id: np.ndarray,
) -> pa.Table:  # fmt: skip
    """``placed``: the cells. O(rows log rows + operations of the ranks shown)."""
    traced = _RATIO if plan else _BURST
    parts = [_replayed(replayed.arrays, traced, first_id)] if replayed.is_coupled else []
    for rank, result in enumerate(schedules):
        if is_coupled(result) or not len(result["operation"]):
            continue
        phases = _phases(workload, rank, result["compute_ps"], replayed)
        own: dict[str, Any] = {
            "rank": rank,
            "first_id": int(first_id[rank]),
            "model": np.full(len(result["core"]), traced),
        }
        parts.append(_placed(result, result["operation"], result["operation"] * 0, *phases, **own))
    for cell, columns in zip(plan, placed, strict=True):
        if chosen.shows(cell.rank, cell.iteration) and np.all(columns[_CORE] >= 0):
            parts.append(alone_on_cores(columns))
    empty = [np.empty(0, np.int64)] * _NUM_COLUMNS
    joined = [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else empty
    order = np.lexsort((joined[_CORE], joined[_START], joined[0]))
    return cores_table(names, *(each[order] for each in joined))


def _knows_times(simulated: Arrays) -> bool:
    """Whether a cell says when its instances ran, which those of the interval model do not where the replay schedules
    them."""
    return bool((simulated["end_ps"] > simulated["start_ps"]).any())


def _calls(workload: Workload, replay: Arrays) -> pa.Table:
    """MPI operations of the ranks whose cores the replay kept, by rank and operation."""
    shown = np.unique(replay["rows_rank"])
    rank = workload.column("operations", "rank")
    row = np.flatnonzero(np.isin(rank, shown))
    core = np.full(workload.num_operations, -1, np.int64)
    waits = replay["rows_operation"] >= 0
    owner, number, place = (replay[f"rows_{name}"][waits] for name in ("rank", "operation", "core"))
    core[workload.rank_offsets[owner] + number] = place
    operation = row - workload.rank_offsets[rank[row]]
    columns = [each.astype(np.int32) for each in (rank[row], operation, core[row])]
    columns += [replay[name][row].astype(np.int64) for name in ("begin_ps", "end_ps")]
    return pa.Table.from_arrays([to_arrow(each) for each in columns], schema=CORE_CALLS_SCHEMA)


def _replayed(replay: Arrays, model: int, first_id: np.ndarray) -> tuple[np.ndarray, ...]:
    """What cores did that the replay scheduled, communication left out."""
    kept = replay["rows_instance"] >= 0
    names = ("rank", "core", "start_ps", "end_ps", "task_instance", "task_type", "instance", "creator")
    rank, core, start, end, instance, kind, row, creator = (replay[f"rows_{name}"][kept] for name in names)
    since = (replay[f"rows_{name}"][kept] for name in ("created_ps", "ready_ps"))
    first = first_id[rank]
    numbers = in_run(first, row.astype(np.int64)), in_run(first, creator.astype(np.int64))
    return rank, core, start, end, traced_ids(instance, row), kind, np.full(len(row), model), *numbers, *since


def _phases(
    workload: Workload, rank: int, scheduled_ps: np.ndarray, replayed: Replayed
) -> tuple[np.ndarray, np.ndarray]:
    """(when the phases before each operation of a rank begin, what a scheduled ps takes in the run there); what follows
    the last operation begins with its end."""
    rows = slice(int(workload.rank_offsets[rank]), int(workload.rank_offsets[rank + 1]))
    end = replayed.arrays["end_ps"][rows]
    begin = np.concatenate(([0], end))
    known = np.append(replayed.compute_ps[rows], 0)
    stretch = np.divide(known, scheduled_ps, out=np.ones(len(known)), where=(scheduled_ps > 0) & (known > 0))
    return begin, stretch


def _placed(
    result: Arrays, operation: np.ndarray, since_ps: np.ndarray, begin: np.ndarray, stretch: np.ndarray, **own: Any
) -> tuple[np.ndarray, ...]:
    """Columns of ``cores``; ``since_ps``: when, after ``begin``, the time begins that stretches count from."""
    times = [
        begin[operation] + np.rint((since_ps + result[name]) * stretch[operation]).astype(np.int64) for name in _TIMES
    ]
    return _columns(result, result["core"], times, **own)


def _columns(
    result: Arrays, core: np.ndarray, times: Sequence[np.ndarray], rank: int, first_id: int, model: np.ndarray
) -> tuple[np.ndarray, ...]:
    """``times``: begin, end, creation, readiness."""
    start, end, *since = times
    ids = (in_run(first_id, result[name]) for name in ("id", "creator"))
    whose = np.full(len(core), rank, np.int64)
    return whose, core, start, end, result["instance"], result["type"], model, *ids, *since


def _instances(
    names: Sequence[str], plan: Sequence[Cell], cells: Sequence[Arrays], placed: Sequence[tuple[np.ndarray, ...]]
) -> pa.Table:
    lengths = [len(cell["instance"]) for cell in cells]
    joined = {
        name: np.concatenate([cell[name] for cell in cells])
        for name in (
            "instance",
            "type",
            "instructions",
            "cycles",
            "first_misses",
            "last_misses",
            "second_misses",
            "model",
        )
    }
    _, core, start, end, *_, number, creator, created, ready = (
        np.concatenate(each) for each in zip(*placed, strict=True)
    )
    rank = np.repeat([cell.rank for cell in plan], lengths)
    iteration = np.repeat([cell.iteration for cell in plan], lengths)
    return task_instances_table(
        names, rank, iteration, joined["instance"], joined["type"], joined["instructions"], joined["cycles"],
        joined["first_misses"], joined["last_misses"], joined["model"], joined["second_misses"], number, creator, core,
        start, end, created, ready,
    )  # fmt: skip


def _stacks(names: Sequence[str], types: np.ndarray, plan: Sequence[Cell], cells: Sequence[Arrays]) -> pa.Table:
    """A row per cell, core or type, and part. Parts are those of all cells, in the order in which they are met.
    ``types`` int64[types of the cells + 1]: which of ``names`` each is, -1 for the initial task and what has no
    name."""
    parts: list[str] = []
    for cell in cells:
        parts += [str(name) for name in (*cell["part"], *cell["core_part"]) if str(name) not in parts]
    rows: dict[str, list[np.ndarray]] = {
        name: [] for name in ("rank", "iteration", "core", "type", "part", "cycles", "work")
    }
    for place, cell in zip(plan, cells, strict=True):
        for stack, labels, is_core in (
            (cell["type_stack"], cell["part"], False),
            (cell["core_stack"], cell["core_part"], True),
        ):
            owner, column = (each.ravel() for each in np.indices(stack.shape))
            code = np.array([parts.index(str(name)) for name in labels], np.int64)
            work = np.zeros(len(stack), np.int64) if is_core else cell["type_instructions"]
            shown = np.ones(len(owner), bool) if is_core else work[owner] > 0
            owner, column = owner[shown], column[shown]
            rows["rank"].append(np.full(len(owner), place.rank))
            rows["iteration"].append(np.full(len(owner), place.iteration))
            rows["core"].append(owner if is_core else np.full(len(owner), -1))
            rows["type"].append(np.full(len(owner), -1) if is_core else types[owner])
            rows["part"].append(code[column])
            rows["cycles"].append(stack[owner, column])
            rows["work"].append(work[owner])
    joined = {name: np.concatenate(each) for name, each in rows.items()}
    kind = np.where(joined["type"] < 0, len(names) - 1, joined["type"]).astype(np.int32)
    columns = [to_arrow(joined[name].astype(np.int32)) for name in ("rank", "iteration", "core")]
    columns.append(pa.DictionaryArray.from_arrays(to_arrow(kind), text_array(list(names))))
    columns.append(pa.DictionaryArray.from_arrays(to_arrow(joined["part"].astype(np.int8)), text_array(parts)))
    columns += [to_arrow(joined["cycles"].astype(np.float64)), to_arrow(joined["work"].astype(np.int64))]
    return pa.Table.from_arrays(columns, schema=CPI_STACKS_SCHEMA)
