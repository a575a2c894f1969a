"""The MPI level of a native trace: from the records of all processes to operations, phases, regions, communicators and
the measured times.

What the calls become, and what their records hold: readers/raw_trace/calls.py and
``runner/readers/raw_trace/mpi_calls.py``. Waits and tests complete exactly what they completed in the traced run; a
test or probe that found nothing is a ``test``. Receives take the source, the tag and the size that their message had.
One-sided communication becomes messages (readers/raw_trace/one_sided.py); makers of communicators, collectives between
two groups and those on files become barriers. What is read from files and written to them stands in operations of kind
``other``. A call that had not returned when its process ended is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    ANY_SOURCE,
    COMMUNICATORS_SCHEMA,
    COUNTERS_SCHEMA,
    KIND_NAMES,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASE_TIMES_SCHEMA,
    PHASES_SCHEMA,
    RECEIVES,
    REGIONS_SCHEMA,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, forbids, informs
from manyscale.models.workload.polls import marked, polling
from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace import communicators as native_communicators
from manyscale.runner.readers.raw_trace import one_sided
from manyscale.runner.readers.raw_trace.calls import ACCESSES, FAILED, Calls
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.gpu_calls import GPU_NAMES
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES
from manyscale.runner.readers.raw_trace.mpi_standard import Role, role_of
from manyscale.runner.readers.raw_trace.phases import Phases, phases, region_numbers
from manyscale.runner.readers.raw_trace.rows import rows_of
from manyscale.runner.readers.unreplayed import calls_left_out, listed, notes_on_calls

_K = OperationKind


def build(processes: Sequence[Process]) -> tuple[dict[str, pa.Table], list[Note]]:
    """(tables, notes) of a run; ``processes``: one per rank, in their order. Raises UserError for what is damaged.

    Each rank ends with an operation ``other`` for what it computed last.
    """
    return _Builder(list(processes)).build()


class _Builder:
    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes
        self.calls = [Calls(process) for process in processes]
        self.communicators = native_communicators.resolve(processes)
        largest = max((int(calls.records["tag"].max(initial=0)) for calls in self.calls), default=0)
        one_sided.expand(self.calls, self.communicators.of_process)
        self.neighbour_tag = largest + 1 if largest < 2**31 - 1 else 0
        self.ranks = [
            rows_of(calls, of_process, self.neighbour_tag)
            for calls, of_process in zip(self.calls, self.communicators.of_process, strict=True)
        ]
        self.sizes = np.array([len(rank.kind) + 1 for rank in self.ranks], np.int64)

    def build(self) -> tuple[dict[str, pa.Table], list[Note]]:
        names, of_process = region_numbers(self.processes)
        cut = [phases(calls, region_of) for calls, region_of in zip(self.calls, of_process, strict=True)]
        tables = {
            "operations": self._operations(),
            "phases": _phases(cut, [rank.polls for rank in self.ranks]),
            **_phase_times(cut, self.processes),
            **_counters(cut),
            "regions": pa.Table.from_arrays([text_array(names)], schema=REGIONS_SCHEMA),
            "communicators": self._communicators(),
            "measured": self._measured(),
        }
        return tables, [*_on_waits(cut), *self._notes()]

    def _column(self, name: str, last: int, dtype: type) -> pa.Array:
        """A column of all ranks, with the row at each rank's end."""
        end: np.ndarray = np.array([last], dtype)
        parts = [part for rank in self.ranks for part in (getattr(rank, name), end)]
        return to_arrow(np.concatenate(parts).astype(dtype))

    def _operations(self) -> pa.Table:
        used = np.unique(np.concatenate([[0], *(rank.communicator for rank in self.ranks)]))
        self.used = used
        communicator = np.concatenate([np.append(rank.communicator, 0) for rank in self.ranks])
        kind = self._column("kind", _K.other, np.int8)
        arrays = {
            "rank": to_arrow(np.repeat(np.arange(len(self.ranks), dtype=np.int32), self.sizes)),
            "kind": pa.DictionaryArray.from_arrays(kind, KIND_NAMES),
            "peer": self._column("peer", NO_RANK, np.int32),
            "source": self._column("source", NO_RANK, np.int32),
            "tag": self._column("tag", 0, np.int32),
            "bytes": self._column("bytes", 0, np.int64),
            "receive_bytes": self._column("receive_bytes", 0, np.int64),
            "communicator_id": to_arrow(np.searchsorted(used, communicator).astype(np.int32)),
            "request": self._column("request", NO_REQUEST, np.int32),
            "completes": self._lists([rank.completes for rank in self.ranks], np.int32),
            "send_counts": self._lists([rank.send_counts for rank in self.ranks], np.int64),
            "receive_counts": self._lists([rank.receive_counts for rank in self.ranks], np.int64),
        }
        return pa.Table.from_arrays([arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA)

    def _lists(self, columns: list[tuple[np.ndarray, np.ndarray]], dtype: type) -> pa.Array:
        """Lists of all ranks, from the lengths and the values of each."""
        lengths = np.concatenate([np.append(lengths, 0) for lengths, _ in columns])
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        if offsets[-1] > 2**31 - 1:
            raise UserError(
                f"{self.processes[0].path.parent}: lists more than 2^31 requests or counts; trace fewer ranks"
            )
        flat = np.concatenate([np.empty(0, dtype), *(values.astype(dtype) for _, values in columns)])
        return pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32)), to_arrow(flat.astype(dtype)))

    def _communicators(self) -> pa.Table:
        every = [self.communicators.members[number] for number in self.used]
        members = [who[who >= 0] for who in every]  # those of other worlds have no part in what is replayed
        offsets = np.concatenate(([0], np.cumsum([len(who) for who in members]))).astype(np.int32)
        lists = pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(np.concatenate(members).astype(np.int32)))
        return pa.Table.from_arrays([lists], schema=COMMUNICATORS_SCHEMA)

    def _measured(self) -> pa.Table:
        """Times on one clock: the processes of a host share one, those of several are compared by the time of day."""
        offsets: dict[str, int] = {}
        starts, ends = [], []
        for process, rank in zip(self.processes, self.ranks, strict=True):
            offset = offsets.setdefault(str(process.start["host"]), int(process.start["clock_offset_ns"]))
            last = int(rank.end_ns[-1]) if len(rank.end_ns) else 0
            last = int(process.end.get("end_ns", last))
            starts.append(offset + np.append(rank.start_ns, last))
            ends.append(offset + np.append(rank.end_ns, last))
        start, end = np.concatenate(starts), np.concatenate(ends)
        begin = min((int(part[0]) for part in starts), default=0)
        columns = [to_arrow(np.maximum(part - begin, 0).astype(np.int64) * 1000) for part in (start, end)]
        return pa.Table.from_arrays(columns, schema=MEASURED_SCHEMA)

    def _notes(self) -> list[Note]:
        notes: list[Note] = []
        for process, calls in zip(self.processes, self.calls, strict=True):
            abort = next((each["abort"] for each in process.definitions if "abort" in each), None)
            if abort is not None:
                text = f"called MPI_Abort({abort}), which ended the program"
                notes.append(changes("program-aborted", text, f"rank {process.rank}"))
            elif calls.unfinished:
                text = f"{calls.unfinished} had not returned when the trace ended: it is left out"
                notes.append(changes("call-unfinished", text, f"rank {process.rank}", errs=Errs.short))
        notes += self._on_left_out()
        failed, lowered = self._counted("failed"), self._counted("lowered")
        wild = sum(
            int(np.count_nonzero((column == ANY_SOURCE) & np.isin(rank.kind, RECEIVES)))
            for rank in self.ranks
            for column in (rank.peer, rank.source)
        )
        as_traced = self._total("num_wildcards") - wild
        cancelled, open_ones = self._total("num_cancelled"), self._total("num_never_completed")
        found = (
            informs("calls-failed", f"calls that returned an error take no part: {listed(failed)}",
                    count=failed.total()),
            informs("calls-lowered", "calls that are replayed as the sends and receives they consist of: "
                    f"{listed(lowered)}", count=lowered.total()),
            informs("any-source-as-traced", f"{as_traced} receives from any source take the one they had in the traced "
                    "run", count=as_traced),
            changes("any-source-first-arrival", f"{wild} receives from any source never completed: the first message "
                    "in simulated time is taken", count=wild),
            informs("requests-cancelled", f"{cancelled} requests were cancelled: their operations take no part",
                    count=cancelled),
            informs("requests-never-completed", f"{open_ones} requests are never completed in the trace",
                    count=open_ones),
        )  # fmt: skip
        return notes + [note for note in found if note.count > 0]

    def _on_left_out(self) -> list[Note]:
        """What is to be said of calls that are not replayed, or only as what they wait for."""
        others = self._counted("others")
        refused = _only(others, lambda name: role_of(name) is Role.refused)
        rest = _only(others, lambda name: name not in refused and not _takes_no_part(name))
        notes = notes_on_calls(rest) if rest else []
        if strange := self._counted("with_strangers"):
            text = "communication with processes outside MPI_COMM_WORLD is not replayed"
            notes.append(calls_left_out(text, strange))
        if refused:
            text = f"what processes outside the trace do is not known, nor generalised requests: {listed(refused)}"
            notes.append(forbids("calls-refused", text, count=sum(refused.values()), errs=Errs.short))
        every = self._every_call()
        has_bytes = any(np.any(rank.bytes[rank.is_access] | rank.receive_bytes[rank.is_access]) for rank in self.ranks)
        alone = "MPI_File_i(read|write)(_at|_shared)?"  # their bytes are not recorded
        if storage := _only(every, re.compile(alone if has_bytes else f"MPI_{ACCESSES.pattern}").fullmatch):
            text = f"files are read and written in no time: {listed(storage)}"
            notes.append(changes("storage-free", text, count=sum(storage.values()), errs=Errs.short))
        if locks := _only(every, re.compile(r"MPI_Win_lock").fullmatch):
            text = f"locks of windows are got at once: {listed(locks)}"
            notes.append(changes("locks-free", text, count=sum(locks.values()), errs=Errs.short))
        if between := self._counted("between_groups"):
            text = f"collectives between two groups are replayed as barriers, without their data: {listed(between)}"
            notes.append(changes("data-left-out", text, count=between.total(), errs=Errs.short))
        if waiting := _only(
            every, lambda name: role_of(name) is Role.synchronising and name not in {**others, **strange}
        ):
            text = f"replayed as what ranks wait for in them: {listed(waiting)}"
            notes.append(informs("calls-as-barriers", text, count=sum(waiting.values())))
        return notes

    def _every_call(self) -> Counter[str]:
        """Calls of all ranks that returned without an error, by name."""
        total: Counter[str] = Counter()
        for calls in self.calls:
            done = calls.call[(calls.records["flags"] & FAILED) == 0]
            total.update({NAMES[call]: int(count) for call, count in enumerate(np.bincount(done)) if count})
        return total

    def _counted(self, reason: str) -> Counter[str]:
        """Calls of all ranks, by name."""
        total: Counter[str] = Counter()
        for rank in self.ranks:
            total.update(rank.reasons[reason])
        return total

    def _total(self, name: str) -> int:
        return sum(int(getattr(rank, name)) for rank in self.ranks)


def _takes_no_part(name: str) -> bool:
    """Whether it is as it should be that a call of this name becomes no operation."""
    is_of_window = name.startswith("MPI_Win_") or name.removeprefix("MPI_") in one_sided.ONE_SIDED
    return name in GPU_NAMES or role_of(name) is Role.local or (role_of(name) is Role.replayed and not is_of_window)


def _only(counts: Mapping[str, int], chosen: Callable[[str], object]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if chosen(name)}


def _phases(ranks: list[Phases], polls: list[np.ndarray]) -> pa.Table:
    sizes = [len(rank.operation) for rank in ranks]
    is_polling = [polling(role, rank.operation, rank.duration_ns) for rank, role in zip(ranks, polls, strict=True)]
    columns: dict[str, np.ndarray] = {
        "rank": np.repeat(np.arange(len(ranks), dtype=np.int32), sizes),
        "operation_id": np.concatenate([rank.operation for rank in ranks]).astype(np.int32),
        "kind": marked(np.full(sum(sizes), PhaseKind.compute, np.int8), np.concatenate(is_polling)),
        "region_id": np.concatenate([rank.region for rank in ranks]).astype(np.int32),
        "duration_ps": np.concatenate([rank.duration_ns for rank in ranks]) * 1000,
    }
    return pa.Table.from_arrays([to_arrow(columns[name]) for name in PHASES_SCHEMA.names], schema=PHASES_SCHEMA)


def _on_waits(ranks: list[Phases]) -> list[Note]:
    """What is to be said of time outside MPI in which tasks did not run."""
    waited = sum(rank.waited_ns for rank in ranks)
    total = waited + sum(int(rank.duration_ns.sum()) for rank in ranks)
    if waited <= 0.05 * total:
        return []
    text = f"{waited * 1e-9:.6g} s in which the thread whose tasks are recorded waited outside MPI are left out"
    return [changes("waits-left-out", text, errs=Errs.short)]


def _phase_times(ranks: list[Phases], processes: list[Process]) -> dict[str, pa.Table]:
    """What each clock shows, if the trace knows several."""
    if not all(process.has_times for process in processes):
        return {}
    clocks = np.concatenate([rank.clocks for rank in ranks]) * 1000
    columns = [to_arrow(column.astype(np.int64)) for column in clocks.T]
    return {"phase_times": pa.Table.from_arrays(columns, schema=PHASE_TIMES_SCHEMA)}


def _counters(ranks: list[Phases]) -> dict[str, pa.Table]:
    names = list(dict.fromkeys(name for rank in ranks for name in rank.counter_names))
    if not names:
        return {}
    parts, first = [], 0
    for rank in ranks:
        phase, which = np.nonzero(rank.counters >= 0)
        code = np.array([names.index(name) for name in rank.counter_names], np.int64)
        parts.append((first + phase, code[which], rank.counters[phase, which]))
        first += len(rank.operation)
    phase_id, codes, value = (np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True))
    named = pa.DictionaryArray.from_arrays(to_arrow(codes.astype(np.int16)), text_array(names))
    arrays = [to_arrow(phase_id), named, to_arrow(value)]
    return {"counters": pa.Table.from_arrays(arrays, schema=COUNTERS_SCHEMA)}
