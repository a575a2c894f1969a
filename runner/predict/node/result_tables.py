"""The tables of a result that tell of nodes, from the results of its units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.predict.node.cells import Cell
from manyscale.runner.predict.node.options import TimelineChoice
from manyscale.runner.predict.node.schedule_units import is_coupled
from manyscale.runner.predict.node.tables import (
    CPI_STACKS_SCHEMA,
    MODELS,
    cores_table,
    task_instances_table,
    type_names,
)
from manyscale.runner.predict.node.task_type_names import same_types
from manyscale.runner.predict.phase_source import Replayed
from manyscale.runner.predict.units import Arrays

_BURST, _RATIO = MODELS.index("burst"), MODELS.index("ratio")
ALL_CHOSEN: Final = TimelineChoice()


def tables(
    workload: Workload, base: Workload, plan: Sequence[Cell], cells: Sequence[Arrays], schedules: Sequence[Arrays],
    replayed: Replayed, detail: Workload | None = None, chosen: TimelineChoice = ALL_CHOSEN,
) -> dict[str, Any]:  # fmt: skip
    """``cores``, and where cells were simulated ``task_instances`` and ``cpi_stacks``. The replay says when phases
    begin, or what cores did that it scheduled itself.
    ``detail``: the workload of the cells, where it is not ``base``. ``chosen``: cells that are shown on cores.

    Cells are shown on cores where the run takes their times (``simulated_before`` of schedules), else they are shown as
    all other phases: in traced times, scaled by the ratios of task types if there are cells."""
    names = type_names(base)
    other = base if detail is None else detail
    found: dict[str, Any] = {"cores": _cores(workload, names, plan, cells, schedules, replayed, chosen)}
    if cells:
        types = np.append(np.arange(len(names) - 1) if other is base else same_types(other, base), -1)
        found["task_instances"] = _instances(names, plan, cells)
        found["cpi_stacks"] = _stacks(names, types, plan, cells)
    return found


def _cores(
    workload: Workload, names: Sequence[str], plan: Sequence[Cell], cells: Sequence[Arrays],
    schedules: Sequence[Arrays], replayed: Replayed, chosen: TimelineChoice,
) -> pa.Table:  # fmt: skip
    """O(rows log rows + operations of the ranks shown)."""
    of_rank: dict[int, list[tuple[Cell, Arrays]]] = {}
    for cell, simulated in zip(plan, cells, strict=True):  # in the order in which the schedules know their phases
        of_rank.setdefault(cell.rank, []).append((cell, simulated))
    traced = _RATIO if cells else _BURST
    parts = [_replayed(replayed.arrays, traced)] if replayed.is_coupled else []
    for rank, result in enumerate(schedules):
        if is_coupled(result) or not (len(result["operation"]) or len(result["simulated_before"])):
            continue
        begin, stretch = _phases(workload, rank, result["compute_ps"], replayed)
        model = np.full(len(result["core"]), traced)
        parts.append(_placed(rank, result, result["operation"], result["operation"] * 0, begin, stretch, model))
        first = 0
        for cell, simulated in of_rank.get(rank, []):
            phase = first + simulated["phase"]
            first += len(simulated["makespan_ps"])
            is_there = first <= len(result["simulated_before"]) and not np.any(result["simulated_before"][phase] < 0)
            if is_there and _knows_times(simulated) and chosen.shows(rank, cell.iteration):
                operation, since = result["simulated_before"][phase], result["simulated_begin_ps"][phase]
                parts.append(_placed(rank, simulated, operation, since, begin, stretch, simulated["model"]))
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else [np.empty(0, np.int64)] * 7
    order = np.lexsort((columns[1], columns[2], columns[0]))
    return cores_table(names, *(each[order] for each in columns))


def _knows_times(simulated: Arrays) -> bool:
    """Whether a cell says when its instances ran, which those of the interval model do not where the replay schedules
    them."""
    return bool((simulated["end_ps"] > simulated["start_ps"]).any())


def _replayed(replay: Arrays, model: int) -> tuple[np.ndarray, ...]:
    """What cores did that the replay scheduled, communication left out."""
    kept = replay["rows_instance"] >= 0
    names = ("rank", "core", "start_ps", "end_ps", "task_instance", "task_type")
    return (*(replay[f"rows_{name}"][kept] for name in names), np.full(int(kept.sum()), model))


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
    rank: int, result: Arrays, operation: np.ndarray, since_ps: np.ndarray, begin: np.ndarray, stretch: np.ndarray,
    model: np.ndarray,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Columns of ``cores``; ``since_ps``: when, after ``begin``, the time begins that stretches count from."""
    start, end = (
        begin[operation] + np.rint((since_ps + result[name]) * stretch[operation]).astype(np.int64)
        for name in ("start_ps", "end_ps")
    )
    instance = result["instance"]
    rank_column = np.full(len(instance), rank, np.int64)
    return rank_column, result["core"], start, end, instance, result["type"], model


def _instances(names: Sequence[str], plan: Sequence[Cell], cells: Sequence[Arrays]) -> pa.Table:
    lengths = [len(cell["instance"]) for cell in cells]
    joined = {
        name: np.concatenate([cell[name] for cell in cells])
        for name in ("instance", "type", "instructions", "cycles", "first_misses", "last_misses", "model")
    }
    rank = np.repeat([cell.rank for cell in plan], lengths)
    iteration = np.repeat([cell.iteration for cell in plan], lengths)
    return task_instances_table(
        names, rank, iteration, joined["instance"], joined["type"], joined["instructions"], joined["cycles"],
        joined["first_misses"], joined["last_misses"], joined["model"],
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
