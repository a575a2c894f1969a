"""The runtime-system level of a native trace: its processes' events joined into the tables of ``models/task_tables``.

A task type is a place in the source that creates tasks (or begins another construct), the same in all processes of one
program: its module and the address there. The address is that of the call, one byte before where it returns to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import task_tables
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note, changes
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.readers.binaries import symbols
from manyscale.runner.readers.raw_trace import counts
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.phases import region_numbers
from manyscale.runner.readers.raw_trace.task_events import SCHEDULES, RankEvents, event_ids, rank_events

__all__ = ["build", "event_ids"]

_LEVEL_TASKS: Final = 2
_PS_PER_NS: Final = 1000
_Type = tuple[str, int, str]  # module's path (empty where unknown), address in its file, construct


def build(processes: Sequence[Process]) -> tuple[dict[str, pa.Table], list[Note]]:
    """(tables, notes) of a run; ``processes``: one per rank, in their order. No tables for a trace of the MPI level
    without marks. Raises UserError for what is damaged."""
    processes = list(processes)
    if not any(len(process.events) or process.start.get("level", 0) >= _LEVEL_TASKS for process in processes):
        return {}, []
    ranks = [rank_events(process) for process in processes]
    types = _Types()
    of_site = [types.add(process) for process in processes]
    table, notes = types.table()
    _, region_of = region_numbers(processes)
    tables = {
        "task_types": table,
        "events": _events(ranks, of_site, region_of),
        **_tasks(ranks, of_site),
        **_loops(ranks, of_site),
        "page_faults": _page_faults(ranks),
    }
    counted, missing = counts.build(ranks)
    return {**tables, **counted}, [*_notes(processes, ranks), *notes, *missing]


class _Types:
    """The constructs of all processes, in order of appearance."""

    def __init__(self) -> None:
        self.rows: dict[_Type, int] = {}

    def add(self, process: Process) -> np.ndarray:
        """int64[sites of the process + 1]: rows of its sites, by number; -1 for number 0, an unknown one."""
        modules = {
            (each["base"], each["low"], each["high"]): each["module"]
            for each in process.definitions
            if "module" in each
        }
        sites = {int(each["site"]): each for each in process.definitions if "site" in each}
        rows = np.full(max(sites, default=0) + 1, -1, np.int64)
        for number, site in sites.items():
            address = int(site["address"]) - 1
            module, base = next(
                ((path, base) for (base, low, high), path in modules.items() if low <= address - base < high), ("", 0)
            )
            rows[number] = self.rows.setdefault((module, address - base, str(site["construct"])), len(self.rows))
        return rows

    def table(self) -> tuple[pa.Table, list[Note]]:
        """The table, and what is missing in it."""
        places: dict[tuple[str, int], symbols.Place] = {}
        notes: list[Note] = []
        for module in dict.fromkeys(module for module, _, _ in self.rows):
            addresses = sorted({address for path, address, _ in self.rows if path == module})
            found, missing = symbols.resolve(module, addresses)
            places |= {(module, address): place for address, place in zip(addresses, found, strict=True)}
            notes += missing
        shown = [places[module, address] for module, address, _ in self.rows]
        arrays = [
            text_array([construct for _, _, construct in self.rows]),
            text_array([place.function for place in shown]),
            text_array([place.file for place in shown]),
            to_arrow(np.array([place.line for place in shown], np.int32)),
            text_array([os.path.basename(module) for module, _, _ in self.rows]),
            to_arrow(np.array([address for _, address, _ in self.rows], np.int64)),
        ]
        return pa.Table.from_arrays(arrays, schema=task_tables.TASK_TYPES_SCHEMA), notes


def _events(ranks: list[RankEvents], of_site: list[np.ndarray], region_of: list[np.ndarray]) -> pa.Table:
    def values(rank: RankEvents, regions: np.ndarray) -> np.ndarray:
        is_mark = (rank.kind == EventKind.mark_begin) | (rank.kind == EventKind.mark_end)
        region = np.where(is_mark & (rank.value >= 0) & (rank.value < len(regions) - 1), rank.value, -1)
        return np.where(is_mark, regions[region], rank.value)

    return _table(
        task_tables.EVENTS_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.kind),
            "operation_id": [rank.operation for rank in ranks],
            "kind": [rank.kind for rank in ranks],
            "task_instance_id": [rank.task for rank in ranks],
            "task_type_id": _type_column(ranks, of_site, lambda rank: rank.type),
            "value": [values(rank, regions) for rank, regions in zip(ranks, region_of, strict=True)],
            "cpu_ps": [rank.cpu_ns * _PS_PER_NS for rank in ranks],
        },
    )


def _tasks(ranks: list[RankEvents], of_site: list[np.ndarray]) -> dict[str, pa.Table]:
    tasks = _table(
        task_tables.TASKS_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.parent),
            "task_instance_id": [np.arange(len(rank.parent)) for rank in ranks],
            "parent_id": [rank.parent for rank in ranks],
            "task_type_id": _type_column(ranks, of_site, lambda rank: rank.task_type),
            "operation_id": [rank.task_operation for rank in ranks],
            "flags": [rank.flags for rank in ranks],
            "cpu_ps": [rank.task_cpu_ns * _PS_PER_NS for rank in ranks],
        },
    )
    dependences = _table(
        task_tables.TASK_DEPENDENCES_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.dependent),
            "task_instance_id": [rank.dependent for rank in ranks],
            "kind": [rank.dependence_kind for rank in ranks],
            "address": [rank.address for rank in ranks],
        },
    )
    return {"tasks": tasks, "task_dependences": dependences}


def _loops(ranks: list[RankEvents], of_site: list[np.ndarray]) -> dict[str, pa.Table]:
    schedule = [SCHEDULES[number] for rank in ranks for number in rank.schedule]
    loops = _table(
        task_tables.LOOPS_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.loop_type),
            "loop_id": [np.arange(len(rank.loop_type)) for rank in ranks],
            "task_type_id": _type_column(ranks, of_site, lambda rank: rank.loop_type),
            "schedule": text_array(schedule),
            "num_iterations": [rank.loop_iterations for rank in ranks],
            "chunk_iterations": [rank.chunk_iterations for rank in ranks],
        },
    )
    chunks = _table(
        task_tables.LOOP_CHUNKS_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.chunk_loop),
            "loop_id": [rank.chunk_loop for rank in ranks],
            "first_iteration": [rank.first_iteration for rank in ranks],
            "num_iterations": [rank.num_iterations for rank in ranks],
            "cpu_ps": [rank.chunk_cpu_ns * _PS_PER_NS for rank in ranks],
        },
    )
    return {"loops": loops, "loop_chunks": chunks}


def _page_faults(ranks: list[RankEvents]) -> pa.Table:
    return _table(
        task_tables.PAGE_FAULTS_SCHEMA,
        {
            "rank": _rank_column(ranks, lambda rank: rank.num_faults),
            "operation_id": [rank.fault_operation for rank in ranks],
            "event_id": [rank.fault_event for rank in ranks],
            "num_faults": [rank.num_faults for rank in ranks],
        },
    )


def _rank_column(ranks: list[RankEvents], column: Callable[[RankEvents], np.ndarray]) -> list[np.ndarray]:
    return [np.full(len(column(rank)), number) for number, rank in enumerate(ranks)]


def _type_column(
    ranks: list[RankEvents], of_site: list[np.ndarray], column: Callable[[RankEvents], np.ndarray]
) -> list[np.ndarray]:
    """Rows of task_types for numbers of sites; a number that no definition names is unknown."""
    return [
        rows[np.where(column(rank) < len(rows), column(rank), 0)] for rank, rows in zip(ranks, of_site, strict=True)
    ]


def _table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    arrays = [
        columns[field.name]
        if isinstance(columns[field.name], pa.Array)
        else to_arrow(np.concatenate(columns[field.name]).astype(field.type.to_pandas_dtype()))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _notes(processes: list[Process], ranks: list[RankEvents]) -> list[Note]:
    notes = []
    for process, rank in zip(processes, ranks, strict=True):
        told = {key: value for each in process.definitions for key, value in each.items()}
        unreported = sorted({str(each["unreported"]) for each in process.definitions if "unreported" in each})
        where = f"rank {process.rank}"
        if unreported:
            text = f"the OpenMP runtime does not report {', '.join(unreported)}"
            notes.append(changes("events-unreported", text, where, len(unreported)))
        if "team" in told:
            text = (
                f"the program insists on {told['team']} threads, of which only the first one's events are recorded; "
                "have it ask for no number of threads"
            )
            notes.append(changes("threads-left-out", text, where))
        if "foreign_events" in told:
            text = f"{told['foreign_events']} OpenMP events of other threads than the first are not recorded"
            notes.append(changes("threads-left-out", text, where, int(told["foreign_events"])))
        if rank.num_unknown:
            text = f"{rank.num_unknown} dependences are of unknown kinds: taken for inout"
            notes.append(changes("dependences-guessed", text, where, int(rank.num_unknown)))
    if any("invoker" in each for process in processes for each in process.definitions):
        text = (
            "a program built by GCC does not tell its runtime of loops with a static schedule, of the end of single, "
            "nor of master; its explicit barriers look like those that end constructs"
        )
        notes.append(changes("events-unreported", text))
    return notes
