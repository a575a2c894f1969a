"""What page faults take in a cell: the trace's counts times what the target says of one.

A trace counts minor faults where events and operations end pieces (the table ``page_faults``), which is where the
program touched new pages first. Simulated instructions do not have them: what the operating system does for each, on
the core that touched the page, comes beside. A piece that is cut (a static loop's) gives each part its share.
Assumptions: the same pages are touched first on the target, and faults of several cores do not wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.predict.node.schedule_units import phase_of_pieces

_UNIT_PS = 1_000_000  # of a fault, where no cost is known: only to count them


@dataclass(frozen=True)
class PageFaults:
    """``piece_ps`` int64[pieces]; notes on a cell that has some."""

    piece_ps: np.ndarray
    notes: tuple[Note, ...] = ()


def page_faults_of(
    program: NodeProgram, workload: Workload, rank: int, cores: int, runtime: RuntimeSystem, cost_ps: int,
    cell: tuple[int, int],
) -> PageFaults:  # fmt: skip
    """Of the program's pieces, ``cost_ps`` a fault; notes on those in phases [cell[0], cell[1]). ``program``: as it was
    built from the ``workload``, on so many cores. O(events + pieces) where there are any."""
    none = np.zeros(program.num_pieces, np.int64)
    if not workload.tables["page_faults"].num_rows:
        return PageFaults(none)
    unit_ps = cost_ps or _UNIT_PS
    longer = build_program(with_faults(workload, unit_ps), rank, cores, runtime)
    piece_ps = longer.piece_ps - program.piece_ps
    phase = phase_of_pieces(program)
    count = round(float(piece_ps[(phase >= cell[0]) & (phase < cell[1])].sum()) / unit_ps)
    where = f"rank {rank}"
    if not count:
        return PageFaults(none)
    if not cost_ps:
        text = f"{count} page faults in what is simulated take no time: node.main_memory.page_fault is not given"
        return PageFaults(none, (changes("page-faults-free", text, where, count, Errs.short),))
    text = f"{count} page faults in what is simulated take {cost_ps / 1e6:g} us each (node.main_memory.page_fault)"
    return PageFaults(piece_ps, (informs("page-faults", text, where, count),))


def with_faults(workload: Workload, cost_ps: int) -> Workload:
    """The workload with times in which each fault takes ``cost_ps`` more."""
    table = {name: workload.column("page_faults", name) for name in ("rank", "operation_id", "event_id", "num_faults")}
    events, phases = workload.tables["events"], workload.tables["phases"]
    event_ps = workload.column("events", "cpu_ps").copy()
    at_event = table["event_id"] >= 0
    first_event = np.searchsorted(workload.column("events", "rank"), table["rank"][at_event])
    np.add.at(event_ps, first_event + table["event_id"][at_event], table["num_faults"][at_event] * cost_ps)
    phase_ps = workload.column("phases", "duration_ps").copy()
    computes = np.flatnonzero(workload.column("phases", "kind") == int(PhaseKind.compute))
    key = _place(workload.column("phases", "rank")[computes], workload.column("phases", "operation_id")[computes])
    wanted = _place(table["rank"], table["operation_id"])
    row = np.searchsorted(key, wanted, "right") - 1
    has_phase = (row >= 0) & (key[np.maximum(row, 0)] == wanted) if len(key) else np.zeros(len(row), bool)
    np.add.at(phase_ps, computes[row[has_phase]], table["num_faults"][has_phase] * cost_ps)
    tables = dict(workload.tables)
    tables["events"] = events.set_column(
        events.schema.get_field_index("cpu_ps"), events.schema.field("cpu_ps"), to_arrow(event_ps)
    )
    place = phases.schema.get_field_index("duration_ps")
    tables["phases"] = phases.set_column(place, phases.schema.field("duration_ps"), to_arrow(phase_ps))
    return Workload(workload.name, workload.num_ranks, tables, is_checked=True)


def _place(rank: np.ndarray, operation: np.ndarray) -> np.ndarray:
    return rank.astype(np.int64) << 32 | operation
