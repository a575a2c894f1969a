"""The processes of a run as a workload."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.iterations import find_iterations
from manyscale.models.workload.notes import Errs, Note, changes, forbids, informs
from manyscale.models.workload.phase_times import notes_on_clocks
from manyscale.runner.errors import UserError
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.raw_trace import counts
from manyscale.runner.readers.raw_trace import operations as native_operations
from manyscale.runner.readers.raw_trace import tasks as native_tasks
from manyscale.runner.readers.raw_trace.calls import Calls
from manyscale.runner.readers.raw_trace.files import Process, read_processes
from manyscale.runner.readers.raw_trace.header import read_header
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES
from manyscale.runner.readers.raw_trace.trim import trim

NAME = "raw-trace"


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a raw trace, without its detailed level (``options`` play no part). Raises UserError for damaged
    files, for ranks that left none, and for several programs in one trace."""
    header = read_header(path)
    return of_processes(str(header["name"]), *choose_ranks(path, read_processes(path)))


def of_processes(name: str, processes: list[Process], notes: list[Note]) -> Workload:
    """The workload of these ranks. Raises UserError."""
    tables, operation_notes = native_operations.build(processes)
    task_tables, task_notes = native_tasks.build(processes)
    notes += [*operation_notes, *task_notes, *counts.unavailable(processes)]
    workload = Workload(name, len(processes), {**tables, **task_tables}, (), NAME)
    if not all(_ended_well(process) for process in processes):
        workload, cut = trim(workload)
        notes += cut
    found = {**workload.tables, "iterations": find_iterations(workload)}
    notes += notes_on_clocks(workload)
    return Workload(workload.name, workload.num_ranks, found, tuple(notes), NAME)


def choose_ranks(path: Path, processes: list[Process]) -> tuple[list[Process], list[Note]]:
    """One process per rank, and what is to be said about the others and about how they ended."""
    notes: list[Note] = []
    strangers: list[Process] = []
    if any(process.library for process in processes):
        strangers = [process for process in processes if not process.library]
        if strangers:
            text = f"{len(strangers)} processes never initialised MPI: left out"
            notes.append(informs("processes-without-mpi", text, count=len(strangers)))
        processes = [process for process in processes if process.library]
    elif len(processes) > 1:
        raise UserError(
            f"{path}: none of {len(processes)} processes initialised MPI: they ended before (they may say why), or "
            "are several programs without MPI, of which one at a time can be traced"
        )
    size = processes[0].size
    count = Counter(process.rank for process in processes)
    twice = next((rank for rank, number in count.items() if number > 1), None)
    if twice is not None:
        names = ", ".join(process.name for process in processes if process.rank == twice)
        raise UserError(f"{path}: several processes are rank {twice} ({names}); trace one program at a time")
    missing = next((rank for rank in range(size) if rank not in count), None)
    if missing is not None and strangers:
        aborted = _aborts(processes)
        raise UserError(
            f"{path}: rank {missing} of {size} ended before its MPI_Init returned"
            f"{f', when {aborted[0]}' if aborted else ''}: there is nothing to replay; see what the program printed"
        )
    if missing is not None or len(processes) != size:
        raise UserError(
            f"{path}: rank {missing} of {size} left no trace; did it start on a node that sees this folder?"
        )
    for process in processes:
        notes += _endings(process)
    return processes, [*notes, *_on_threads(processes)]


def _aborts(processes: list[Process]) -> list[str]:
    """Who called MPI_Abort: "rank 1 called MPI_Abort(3)"."""
    return [
        f"rank {process.rank} called MPI_Abort({each['abort']})"
        for process in processes
        for each in process.definitions
        if "abort" in each
    ]


def _ended_well(process: Process) -> bool:
    """Whether the process came to its end, and to MPI's if it used MPI."""
    ends = [NAMES.index(name) for name in ("MPI_Finalize", "MPI_Session_finalize")]
    finalized = not process.is_of_mpi or bool(np.isin(Calls(process).call, ends).any())
    return process.is_finished and finalized


def _endings(process: Process) -> list[Note]:
    notes = []
    rank = f"rank {process.rank}"
    if process.stopped:
        text = f"tracing stopped before the program did: {process.stopped}"
        notes.append(changes("recording-stopped", text, rank, errs=Errs.short))
    elif not process.is_finished:
        notes.append(changes("program-killed", "was killed or crashed; the trace holds what it did before", rank))
    elif not _ended_well(process):
        notes.append(changes("no-finalize", "ended without MPI_Finalize; the trace holds what it did before", rank))
    if forks := int(process.end.get("forks") or 0):
        text = f"started {forks} processes of its own, which are not traced"
        notes.append(changes("processes-left-out", text, rank, forks, Errs.short))
    if calls := int(process.end.get("other_threads") or 0):
        text = f"{calls} MPI calls of other threads are not recorded: it asked MPI for one thread (MPI_Init_thread)"
        notes.append(forbids("calls-lost", text, rank, calls, Errs.short))
    if process.num_thread_calls and not process.is_merged:
        text = f"{process.num_thread_calls} MPI calls of other threads do not stand beside tasks and marks: trace at "
        notes.append(
            forbids("calls-lost", text + "level mpi, without marks", rank, process.num_thread_calls, Errs.short)
        )
    return notes


def _on_threads(processes: list[Process]) -> list[Note]:
    """That the calls of several threads stand in one order."""
    merged = [process for process in processes if process.is_merged]
    if not merged:
        return []
    count = sum(process.num_thread_calls for process in merged)
    text = (
        f"{count} MPI calls of further threads of {len(merged)} ranks stand in the order in which they came in the "
        "traced run; what they compute between overlaps as on a CPU for each"
    )
    return [changes("threads-in-one-order", text, count=count)]
