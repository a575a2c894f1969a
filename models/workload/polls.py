"""Polls: calls that ask whether something is complete (MPI_Test*, MPI_Iprobe, ...), and the work that only polling did.

What a program computes while it polls depends on how long the traced machine let it wait, and is no work of its own:
on another machine it is more or less. The rule by which such work is found, rank by rank:

* a *run* is a sequence of polls with nothing but computation between;
* a program polls *for* something if the run ends with a poll that found it: then what it computed between a poll that
  failed and the next poll is polling's. What it computed before the first poll and after a poll that found something
  (what it does with that) is its own;
* a run that goes on, with work, after its last success, or that ends without any (by a blocking wait, say), drives
  communication beside work that has to be done: all of it stays.

Polls that had nothing to ask for (all requests null) neither fail nor succeed. Readers mark the phases; they are left
out (``without_polls``) before anything is predicted, so that the poll that found something waits for it, in simulated
time, after one piece of polling's work: that differs from a program that goes on polling by less than a piece a run.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import POLLED, PhaseKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.models.workload.task_tables import EventKind

TESTS: Final = ("MPI_Test", "MPI_Testall", "MPI_Testany", "MPI_Testsome")
PROBES: Final = ("MPI_Iprobe", "MPI_Improbe", "MPI_Request_get_status")
# local calls that a loop of polls may make, too
LOCAL: Final = (
    "MPI_Wtime", "MPI_Wtick", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Get_count", "MPI_Get_elements", "MPI_Initialized",
    "MPI_Finalized", "MPI_Test_cancelled", "MPI_Get_processor_name",
)  # fmt: skip
_MARKS: Final = (EventKind.mark_begin, EventKind.mark_end, EventKind.iteration)  # events that say where, not what
_NOTED: Final = 0.01  # of a rank's compute: what is left out beyond this changes the number


class Poll(IntEnum):
    """What an operation is to its run. ``ends``: not a poll, and ends it; ``beside``: not a poll, and takes no part;
    ``unknown``: whether it found anything is not recorded (it did if no further poll follows)."""

    ends = 0
    beside = 1
    failed = 2
    found = 3
    idle = 4
    unknown = 5


def polling(role: np.ndarray, operation: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """bool[phases]: those of one rank that only polling did. ``role``: Poll of each operation; ``operation``: the
    operation that each phase precedes, ascending; ``duration`` of each. O(operations + phases)."""
    marked = np.zeros(len(operation), np.bool_)
    if not np.any((role == Poll.failed) | (role == Poll.unknown)):
        return marked
    rows = np.flatnonzero(role != Poll.beside)
    role = role[rows].astype(np.int64)
    follows = np.append(role[1:] >= Poll.failed, False)
    role[role == Poll.unknown] = np.where(follows, Poll.failed, Poll.found)[role == Poll.unknown]
    before = np.searchsorted(rows, operation)  # the row that a phase precedes
    inside = before < len(rows)
    work = np.bincount(before[inside], duration[inside], len(rows))
    place = np.arange(len(rows))
    speaks = np.maximum.accumulate(np.where(role != Poll.idle, place, 0))
    after_failure = np.append(False, role[speaks[:-1]] == Poll.failed) & (role >= Poll.failed)
    run = np.cumsum(role == Poll.ends)
    last_found = np.full(int(run[-1]) + 1, -1, np.int64)
    found = np.flatnonzero(role == Poll.found)
    last_found[run[found]] = found  # ascending: the last one stays
    is_within = after_failure & (place <= last_found[run])
    longest, beyond = np.zeros((2, len(last_found)))
    np.maximum.at(longest, run[is_within], work[is_within])
    is_beyond = (role >= Poll.failed) & (place > last_found[run])
    np.maximum.at(beyond, run[is_beyond], work[is_beyond])
    is_polling = is_within & (beyond <= longest / 2)[run]
    marked[inside] = is_polling[before[inside]]
    return marked


def marked(kind: np.ndarray, is_polling: np.ndarray) -> np.ndarray:
    """``kind`` of phases, those of polling marked."""
    return np.where(is_polling, kind | POLLED, kind).astype(np.int8)


def without_polls(workload: Workload, keep: bool) -> tuple[Workload, tuple[Note, ...]]:
    """``workload`` without what only polling did, or, to ``keep`` it, with that as work like any other; and what is to
    be said of it. Phases whose tasks or instructions are recorded stay in any case. O(phases)."""
    kind = workload.column("phases", "kind")
    is_polling = (kind & POLLED) != 0
    if not np.any(is_polling):
        return workload, ()
    duration = workload.column("phases", "duration_ps")
    total = int(duration[is_polling].sum())
    is_recorded = is_polling & _has_inside(workload)
    stays = ~is_polling | keep | is_recorded
    phases = workload.tables["phases"]
    plain = to_arrow((kind & ~POLLED).astype(np.int8))
    phases = phases.set_column(phases.schema.get_field_index("kind"), phases.schema.field("kind"), plain)
    tables = {**workload.tables, "phases": phases.filter(pa.array(stays))}
    counters = workload.tables["counters"]
    if counters.num_rows:
        of_phase = workload.column("counters", "phase_id")
        new_id = to_arrow((np.cumsum(stays) - 1)[of_phase])
        place = counters.schema.get_field_index("phase_id")
        counters = counters.set_column(place, counters.schema.field("phase_id"), new_id)
        tables["counters"] = counters.filter(pa.array(stays[of_phase]))
    number = int(np.count_nonzero(is_polling))
    what = f"{number} times the traced run computed between a poll that failed and the next one, {total * 1e-12:.4g} s"
    if keep:
        note = informs("polls-kept", f"{what} in all: replayed as it was (workload.polls: keep)", count=number)
        return replace(workload, tables=tables, is_checked=True), (note,)
    notes = []
    gone = ~stays
    if np.any(gone):
        dropped = np.bincount(workload.column("phases", "rank")[gone], duration[gone], workload.num_ranks)
        own = np.bincount(workload.column("phases", "rank")[stays], duration[stays], workload.num_ranks)
        say = changes if np.any(dropped > _NOTED * own) else informs
        text = f"{what} in all: left out, since it lasts as long as a machine lets wait (workload.polls: keep has it)"
        notes.append(say("polls-left-out", text, count=number))
    if np.any(is_recorded):
        count = int(np.count_nonzero(is_recorded))
        text = f"{count} pieces of work between polls stay, since their tasks or instructions are recorded"
        notes.append(changes("polls-recorded", text, count=count))
    return replace(workload, tables=tables, is_checked=True), tuple(notes)


def _has_inside(workload: Workload) -> np.ndarray:
    """bool[phases]: whether tasks or instructions of the phase's operation are recorded."""
    base = workload.rank_offsets
    has = np.zeros(workload.num_operations + 1, np.bool_)
    is_work = ~np.isin(workload.column("events", "kind"), _MARKS)
    segment_operation = workload.column("segments", "operation_id")
    for level, chosen in (("events", is_work), ("segments", segment_operation >= 0)):
        rank, operation = (workload.column(level, name)[chosen] for name in ("rank", "operation_id"))
        has[base[rank] + operation] = True
    return has[base[workload.column("phases", "rank")] + workload.column("phases", "operation_id")]


assert (PhaseKind.compute | POLLED, PhaseKind.sleep | POLLED) == (PhaseKind.polled_compute, PhaseKind.polled_sleep)
