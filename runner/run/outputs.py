"""What a finished point, and a sweep of them, leave in the run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note, Severity
from manyscale.runner.notes import of_shapes
from manyscale.runner.predict.units import Outcome
from manyscale.runner.registry import lookup, names
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import rendered
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.results import Result
from manyscale.runner.run.shown import is_built_in
from manyscale.runner.run.sweeps.summaries import Summary
from manyscale.runner.study import what_if
from manyscale.runner.study.shapes import is_shape

_ALWAYS = ("timeline", "statistics")


def summary(result: Result) -> Summary:
    """What is kept of a point once its files are written."""
    name, target, num_ranks = result.name, result.machine.name, result.workload.num_ranks
    return Summary(name, target, num_ranks, result.sweep_point, result.statistics, result.notes)


def write_point(
    result: Result, directory: Path, writers: Sequence[str], record: rendered.Record | None, *, plugged: bool
) -> None:
    """A run, or one point: resolved study, plan, timelines, statistics, and what ``writers`` make of it, traces and a
    page, copied from an earlier run of which there is a ``record``; ``plugged``: what writers that are plugged in make
    of it, too."""
    directory.mkdir(parents=True, exist_ok=True)
    resolved = {key: value for key, value in result.resolved.items() if key != "placement"}  # follows from mapping
    rundir.write_yaml(directory / rundir.RESOLVED, resolved)
    if result.plan is not None:
        write_table(result.plan, directory / "plan.parquet")
    _write(result, _ALWAYS, directory)
    if record is not None:
        rendered.write(directory, record, partial(_write, result, writers))
    else:
        _write(result, writers, directory)
    if plugged:
        _write(result, [name for name in names("writer") if name not in _ALWAYS and not is_built_in(name)], directory)


def _write(result: Result, writers: Sequence[str], directory: Path) -> None:
    for name in writers:
        lookup("writer", name)(result, directory)


def write_units(directory: Path, execution: Execution, earlier: Mapping[str, tuple[str, Outcome, str]]) -> None:
    """``units.parquet``, by key: what the journal says, once per unit. ``earlier``: units of earlier attempts."""
    outcomes = {**earlier, **execution.outcomes}
    rows: list[tuple[str, Outcome, str]] = [outcomes[key] for key in sorted(outcomes)]
    columns = {
        "key": text_array([outcome.key for _, outcome, _ in rows]),
        "kind": text_array([kind for kind, _, _ in rows]),
        "status": text_array([status for _, _, status in rows]),
        "attempts": to_arrow(np.array([outcome.attempts for _, outcome, _ in rows], np.int32)),
        "cpu_seconds": to_arrow(np.array([outcome.cpu_seconds for _, outcome, _ in rows], np.float64)),
        "result_path": text_array([_path(execution, outcome.key) for _, outcome, _ in rows]),
    }
    write_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)), directory / "units.parquet")


def _path(execution: Execution, key: str) -> str:
    """Where a result is kept; "" for one that is made again more cheaply."""
    return execution.store.place(key) if execution.store.path(key).is_file() else ""


def sweep_table(points: Sequence[Summary], axes: list[str]) -> pa.Table:
    """A row per point: ``point_id``, the values of the axes (numbers, else text) and what follows from them, every
    statistic that a point has, null where another has it not (a machine's third cache, the links that some models of
    networks know), and ``notes``: the codes of the notes that change or forbid its numbers, most severe first, joined
    by spaces."""
    columns: dict[str, pa.Array] = {"point_id": to_arrow(np.arange(len(points), dtype=np.int32))}
    axes = list(dict.fromkeys([*axes, *(points[0].axes if points else ())]))
    values: dict[str, list[Any]] = {axis: [] for axis in axes}
    found: dict[str, list[Any]] = {}  # by statistic
    orders: dict[tuple[str, ...], None] = {}
    notes = []
    for count, point in enumerate(points):
        for axis in axes:
            values[axis].append(point.axes[axis])
        orders[tuple(point.statistics)] = None
        for name, each in point.statistics.items():
            of_name = found.setdefault(name, [])
            of_name.extend([None] * (count - len(of_name)))
            of_name.append(each.value)
        severe = (note.code for note in point.notes if note.severity is not Severity.informs)
        notes.append(" ".join(dict.fromkeys(severe)))
    for axis, given in values.items():
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)
        columns[axis] = to_arrow(np.array(given)) if numeric else text_array([_text(value) for value in given])
    for name in _names_of_all(list(orders)):
        columns[name] = _column(found[name] + [None] * (len(points) - len(found[name])))
    columns["notes"] = text_array(notes)
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _column(values: list[Any]) -> pa.Array:
    """By ``pa.array``, which imports pandas, only where there are nulls or several types."""
    if set(map(type, values)) in ({float}, {int}) and (numbers := np.array(values)).dtype.char in "dl":
        return to_arrow(numbers)
    return pa.array(values)


def _names_of_all(points: Sequence[Sequence[str]]) -> list[str]:
    """Every name once; what a later point alone has stands behind what it follows there."""
    names: list[str] = []
    for point in points:
        if set(names).issuperset(point):
            continue
        place = 0
        for name in point:
            if name in names:
                place = names.index(name) + 1
            else:
                names.insert(place, name)
                place += 1
    return names


def write_sweep(directory: Path, points: Sequence[Summary], axes: list[str], title: str, report: bool) -> None:
    """``sweep.parquet``, ``what_if.parquet`` if what-ifs are an axis, and with ``report`` the page: of what-ifs if
    these are the only axis, else of curves along each."""
    table = sweep_table(points, axes)
    write_table(table, directory / "sweep.parquet")
    if what_if.AXIS in axes:
        write_table(what_if.table(table, axes), directory / "what_if.parquet")
    if report:
        page = "what-if" if axes == [what_if.AXIS] else "report"
        found = dict.fromkeys(note for point in points for note in point.notes)
        notes = sorted(of_shapes(found) if any(map(is_shape, axes)) else found, key=_severity)
        lookup("sweep-writer", page)(table, axes, directory, title, notes)


def _severity(note: Note) -> int:
    return list(Severity).index(note.severity)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
