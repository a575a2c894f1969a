"""What a finished point, and a sweep of them, leave in the run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note, Severity
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Outcome
from manyscale.runner.registry import lookup, names
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import rendered
from manyscale.runner.run.execute.execution import Execution
from manyscale.runner.run.parquet import write_table
from manyscale.runner.run.results import Result
from manyscale.runner.run.shown import PAGE, POINT_PAGE, is_built_in
from manyscale.runner.study import what_if

_ALWAYS = ("timeline", "statistics")


@dataclass(frozen=True)
class Summary:
    """A point without its tables."""

    name: str
    target: str
    num_ranks: int
    axes: Mapping[str, Any]
    statistics: Mapping[str, Statistic]
    notes: Sequence[Note]


def summary(result: Result) -> Summary:
    """What is kept of a point once its files are written."""
    name, target, num_ranks = result.name, result.machine.name, result.workload.num_ranks
    return Summary(name, target, num_ranks, result.sweep_point, result.statistics, result.notes)


def write_point(result: Result, directory: Path, shown: str | None, records: Path, writers: Sequence[str]) -> None:
    """One point: resolved study, plan, timelines, statistics; with ``shown``, the key of what they show, the traces and
    the page of ``writers``, too, from an earlier run of which there is one among ``records`` (``rendered``), and with a
    page what writers that are plugged in make of it."""
    directory.mkdir(parents=True, exist_ok=True)
    resolved = {key: value for key, value in result.resolved.items() if key != "placement"}  # follows from mapping
    rundir.write_yaml(directory / rundir.RESOLVED, resolved)
    if result.plan is not None:
        write_table(result.plan, directory / "plan.parquet")
    _write(result, _ALWAYS, directory)
    if shown is None:
        return
    rendered.write(directory, records, shown, partial(_write, result, writers))
    if PAGE in writers or POINT_PAGE in writers:
        _write(result, [name for name in names("writer") if name not in _ALWAYS and not is_built_in(name)], directory)


def _write(result: Result, writers: Sequence[str], directory: Path) -> None:
    for name in writers:
        lookup("writer", name)(result, directory)


def write_units(directory: Path, execution: Execution) -> None:
    """``units.parquet``, by key: what the journal says, once per unit."""
    rows: list[tuple[str, Outcome, str]] = [execution.outcomes[key] for key in sorted(execution.outcomes)]
    columns = {
        "key": text_array([outcome.key for _, outcome, _ in rows]),
        "kind": text_array([kind for kind, _, _ in rows]),
        "status": text_array([status for _, _, status in rows]),
        "attempts": to_arrow(np.array([outcome.attempts for _, outcome, _ in rows], np.int32)),
        "cpu_seconds": to_arrow(np.array([outcome.cpu_seconds for _, outcome, _ in rows], np.float64)),
        "result_path": text_array([execution.store.place(outcome.key) for _, outcome, _ in rows]),
    }
    write_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)), directory / "units.parquet")


def sweep_table(points: Sequence[Summary], axes: list[str]) -> pa.Table:
    """A row per point: ``point_id``, the values of the axes (numbers, else text), every statistic that a point has,
    null where another has it not (a machine's third cache, the links that some models of networks know), and ``notes``:
    the codes of the notes that change or forbid its numbers, most severe first, joined by spaces."""
    columns: dict[str, pa.Array] = {"point_id": to_arrow(np.arange(len(points), dtype=np.int32))}
    for axis in axes:
        values = [point.axes[axis] for point in points]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        columns[axis] = to_arrow(np.array(values)) if numeric else text_array([_text(value) for value in values])
    for name in _names_of_all([list(point.statistics) for point in points]):
        found = [point.statistics.get(name) for point in points]
        columns[name] = pa.array([None if each is None else each.value for each in found])
    severe = [[note.code for note in point.notes if note.severity is not Severity.informs] for point in points]
    columns["notes"] = text_array([" ".join(dict.fromkeys(codes)) for codes in severe])
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


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
        notes = sorted(dict.fromkeys(note for point in points for note in point.notes), key=_severity)
        lookup("sweep-writer", page)(table, axes, directory, title, notes)


def _severity(note: Note) -> int:
    return list(Severity).index(note.severity)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
