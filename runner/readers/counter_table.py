"""Tables of what was measured of intervals: numbers separated by commas, a row for each interval of each thread.

Columns ``interval`` (from 0), ``tid`` (from 1; needed with several threads), ``instrs`` (optional), and any others,
each of which becomes a counter; a field without a number was not measured. Row r of a thread's vectors belongs to that
thread's r-th row. A column ``...centicycles`` holds hundredths of ``...cycles``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream

_COLUMNS: Final = {"interval": 2.0**31, "tid": 2.0**31, "instrs": 2.0**53}  # and where they end


@dataclass(frozen=True)
class Measured:
    """What a table says: per thread the interval of each of its rows (int64[]), instructions (int64[]) or None, and
    the counters, float64[rows of all threads], NaN where nothing was measured."""

    intervals: list[np.ndarray]
    instructions: np.ndarray | None
    counters: dict[str, np.ndarray]


def read(path: Path, files: list[Path], num_rows: list[int], notes: list[Note]) -> Measured:
    """The table of the vectors in ``files``, which hold ``num_rows`` intervals. Raises UserError where it does not fit
    them or holds what is no count; ``notes`` say what it lacks."""
    table = _columns(path)
    if "interval" not in table or (len(files) > 1 and "tid" not in table):
        raise UserError(f"{path}:1: has no column 'interval', or none 'tid' for {len(files)} threads; rename it")
    _check(table, path)
    thread = table["tid"].astype(np.int64) - 1 if "tid" in table else np.zeros(len(table["interval"]), np.int64)
    stray = np.flatnonzero((thread < 0) | (thread >= len(files)))
    if len(stray):
        beyond = int(thread[stray[0]]) + 1
        raise UserError(
            f"{path}:{stray[0] + 2}: names thread {beyond}, of which there are no vectors; add its file (threads count "
            "from 1)"
        )
    rows = [np.flatnonzero(thread == each) for each in range(len(files))]
    for number, mine, file in zip(num_rows, rows, files, strict=True):
        if number != len(mine):
            raise UserError(f"{path}: has {len(mine)} rows for the {number} intervals of {file.name}; profile again")
    interval = table["interval"].astype(np.int64)
    for mine in rows:
        back = np.flatnonzero(np.diff(interval[mine]) <= 0)
        if len(back):
            earlier, later = mine[back[0]], mine[back[0] + 1]
            raise UserError(
                f"{path}:{later + 2}: the thread's interval {interval[later]} does not follow {interval[earlier]}; "
                "sort the table"
            )
    order = np.concatenate(rows)
    counters = {
        _counter(name): values[order] / (100 if name.endswith("centicycles") else 1)
        for name, values in table.items()
        if name not in _COLUMNS
    }
    if "cycles" not in counters:
        text = f"has no column 'cycles', so CPI is not known; it has {', '.join(table)}"
        notes.append(informs("counters-missing", text, path.name))
    whole = np.unique(interval)
    if len(whole) <= whole.max(initial=-1):
        number = int(whole.max() + 1 - len(whole))
        text = f"{number} intervals before the last one have no row"
        notes.append(changes("counts-incomplete", text, path.name, number))
    for name, values in counters.items():
        lacking = len(whole) - len(np.unique(interval[order][~np.isnan(values)]))
        if lacking:
            text = f"{name} was not measured in {lacking} of {len(whole)} intervals"
            notes.append(changes("counts-incomplete", text, path.name, lacking))
    instructions = table["instrs"].astype(np.int64)[order] if "instrs" in table else None
    return Measured([interval[mine] for mine in rows], instructions, counters)


def _counter(column: str) -> str:
    return column.replace("centicycles", "cycles")


def _check(table: dict[str, np.ndarray], path: Path) -> None:
    """Refuses what is no count. Counters may lack numbers and have fractions."""
    for name, values in table.items():
        whole = name in _COLUMNS
        right = (values >= 0) & (values < _COLUMNS.get(name, math.inf))
        wrong = np.flatnonzero(~(right & (values == np.floor(values)) if whole else right | np.isnan(values)))
        if len(wrong):
            what = "it must be a whole number from 0 up" if whole else "a count must be 0 or more, or left empty"
            raise UserError(f"{path}:{wrong[0] + 2}: column {name!r} has {values[wrong[0]]:g}; {what}")


def _columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table of numbers, float64[], NaN where there is none."""
    from pyarrow import compute, csv

    try:
        with guarded(path), open_stream(path) as stream:
            table = csv.read_csv(stream)
        names = [name.strip() for name in table.column_names]
        wide = [compute.fill_null(column.cast(pa.float64()), math.nan) for column in table.columns]
    except (pa.ArrowException, UnicodeDecodeError) as error:
        told = str(error).splitlines()[0]
        raise UserError(
            f"{path}: is no table of numbers separated by commas ({told}); mend it or move it away"
        ) from None
    counters = [_counter(name) for name in names]
    for name in names:
        if not name:
            raise UserError(f"{path}:1: a column has no name; name it or take it out")
        if counters.count(_counter(name)) > 1:
            raise UserError(f"{path}:1: column {_counter(name)!r} stands there more than once; take one out")
    return {name: to_numpy(column) for name, column in zip(names, wide, strict=True)}
