"""Which clock says how long the phases of a workload take, where its trace read several (table ``phase_times``).

Without a choice, a phase takes what its longest thread takes: the reader of the trace decides (of a native trace:
``runner/readers/raw_trace/phases.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from manyscale.models.workload import SCHEMAS, Workload, WorkloadError
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Note, changes, informs

CLOCKS: Final = {"cpu": "thread_ps", "process": "process_ps", "wall": "wall_ps"}
LEVEL: Final = "phase_times"
_DIFFERENT: Final = 0.05


def by_clock(workload: Workload, clock: str) -> Workload:
    """The workload whose phases take what ``clock``, one of CLOCKS, shows; its table of times is gone, as are notes on
    it. Raises WorkloadError for a workload without that table."""
    if not workload.tables[LEVEL].num_rows:
        raise WorkloadError(
            f"{workload.name}: the trace says of its phases by one clock only how long they took; leave the choice of "
            "a clock (time) out, or trace the program again"
        )
    phases = workload.tables["phases"]
    place = phases.schema.get_field_index("duration_ps")
    column = to_arrow(workload.column(LEVEL, CLOCKS[clock]))
    tables = {**workload.tables, "phases": phases.set_column(place, phases.schema.field(place), column)}
    tables[LEVEL] = SCHEMAS[LEVEL].empty_table()
    notes = tuple(note for note in workload.notes if not note.code.endswith("clocks-differ"))
    return replace(workload, tables=tables, notes=(*notes, *_on_choice(workload, clock)), is_checked=True)


def without_clocks(workload: Workload) -> Workload:
    """The workload with its phases as they are, and no other times of them."""
    if not workload.tables[LEVEL].num_rows:
        return workload
    return replace(workload, tables={**workload.tables, LEVEL: SCHEMAS[LEVEL].empty_table()}, is_checked=True)


def notes_on_clocks(workload: Workload) -> list[Note]:
    """What is to be said where the phases as they are differ by more than 5 % from what a clock shows."""
    if not workload.tables[LEVEL].num_rows:
        return []
    taken, seconds = _seconds(workload.column("phases", "duration_ps")), _by_clock(workload)
    differing = [clock for clock in CLOCKS if abs(seconds[clock] - taken) > _DIFFERENT * max(taken, seconds[clock])]
    if not differing:
        return []
    text = (
        f"phases outside MPI take {taken:.6g} s in all ranks, of each what its longest thread computed or waited for; "
        f"{_told(seconds)}: --time cpu, process or wall takes one of these"
    )
    return [changes("clocks-differ", text) if "cpu" in differing else informs("other-clocks-differ", text)]


def _on_choice(workload: Workload, clock: str) -> list[Note]:
    seconds = _by_clock(workload)
    taken = seconds[clock]
    if all(abs(other - taken) <= _DIFFERENT * max(taken, other) for other in seconds.values()):
        return []
    text = f"phases outside MPI take what one clock shows, as --time {clock} says; {_told(seconds)}"
    return [changes("clocks-differ", text)]


def _by_clock(workload: Workload) -> dict[str, float]:
    return {clock: _seconds(workload.column(LEVEL, name)) for clock, name in CLOCKS.items()}


def _told(seconds: dict[str, float]) -> str:
    return (
        f"CPU time of the thread that calls MPI {seconds['cpu']:.6g} s, CPU time of all threads "
        f"{seconds['process']:.6g} s, wall time {seconds['wall']:.6g} s"
    )


def _seconds(column: np.ndarray) -> float:
    return float(column.sum(dtype=np.float64)) / 1e12
