"""The calls of a DUMPI trace as a workload."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    ANY_SOURCE,
    COLLECTIVES,
    COMMUNICATORS_SCHEMA,
    COUNTERS_SCHEMA,
    KIND_NAMES,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    RECEIVES,
    REGIONS_SCHEMA,
    SENDS,
    OperationKind,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.models.workload.polls import marked, polling
from manyscale.runner.errors import UserError
from manyscale.runner.readers import null_receives
from manyscale.runner.readers.dumpi import communicators as dumpi_communicators
from manyscale.runner.readers.dumpi import files as dumpi_files
from manyscale.runner.readers.dumpi.layouts import LAYOUTS
from manyscale.runner.readers.dumpi.operations import RankOperations, convert
from manyscale.runner.readers.dumpi.phases import RankPhases, phases
from manyscale.runner.readers.dumpi.records import RankFile, read_rank_file
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.unreplayed import calls_left_out, notes_on_calls

NAME = "dumpi"
LONGEST_NS: Final = 53 * 86400 * 10**9
_NOTED: Final = 0.05  # of what a rank computed: what is left out beyond this changes the number


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace; of ``options`` the ``time`` plays a part. Raises UserError, one line with file and byte,
    for anything that cannot be read or replayed. Memory: the calls of one rank at a time, and the finished columns."""
    found = dumpi_files.find(path)
    reader = _Reader(path, found, options.time)
    for rank, file in found.files:
        reader.add(rank, read_rank_file(file))
    return reader.workload()


@dataclass
class _Rank:
    """A rank, read; the file's calls are kept no longer than it is converted."""

    operations: RankOperations
    phases: RankPhases
    counter_names: tuple[str, ...]
    function_names: dict[int, str]


@dataclass
class _Reader:
    path: Path
    trace: dumpi_files.TraceFiles
    time: str
    ranks: list[_Rank] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    null_receives: null_receives.NullReceives = field(default_factory=null_receives.NullReceives)

    def add(self, rank: int, file: RankFile) -> None:
        """Convert a rank's calls."""
        calls = file.calls
        if not len(calls):
            raise UserError(f"{file.path}: holds no call; trace the program again")
        threads = np.flatnonzero(calls.thread != calls.thread[0])
        if len(threads):
            raise file.places(rank).error(
                int(threads[0]),
                f"is of thread {calls.thread[threads[0]]}, earlier ones of {calls.thread[0]}; a rank whose threads "
                "call MPI side by side cannot be replayed",
            )
        self._check_size(rank, file)
        operations = convert(file, rank)
        first_operation = np.searchsorted(operations.call, np.arange(len(calls)))
        cut = phases(file, first_operation, self.time)
        self.ranks.append(_Rank(operations, cut, file.counter_names, file.function_names))
        names = np.bincount(calls.function[operations.call[operations.kind == OperationKind.other]])
        self.others.update({LAYOUTS[number].name: int(names[number]) for number in np.flatnonzero(names)})
        self.ignored.update(file.num_ignored)

    def _check_size(self, rank: int, file: RankFile) -> None:
        """Refuse a file whose MPI_COMM_WORLD is not that of the ranks at hand."""
        rows = file.calls.rows("MPI_Comm_size")
        rows = rows[file.calls.column("MPI_Comm_size", "comm", rows) == 2]
        size = int(file.calls.column("MPI_Comm_size", "size", rows[:1])[0]) if len(rows) else 0
        have = len(self.trace.files)
        if size > have:
            whole = "give the folder with all ranks' files, or its .meta file"
            raise UserError(f"{file.path}: one rank of {size}; {have} cannot be replayed without the others: {whole}")

    def workload(self) -> Workload:
        """All ranks together. Raises UserError for communicators whose members are not recorded."""
        resolved = dumpi_communicators.resolve([rank.operations.local for rank in self.ranks])
        for number, rank in enumerate(self.ranks):
            _WorldRanks(rank, number, resolved).translate()
        self._settle_null_receives()
        return _Tables(self, resolved.members).workload()

    def _settle_null_receives(self) -> None:
        """Tell receives from nobody from those from anybody, unless the MPI that was traced writes them apart."""
        if any(rank.operations.has_own_null for rank in self.ranks):
            return
        sizes = [len(rank.operations.kind) for rank in self.ranks]
        names = {"kind": "kind", "peer": "peer", "source": "source", "tag": "tag", "communicator_id": "communicator"}
        columns = {
            name: np.concatenate([getattr(rank.operations, field) for rank in self.ranks])
            for name, field in names.items()
        }
        columns["rank"] = np.repeat(np.arange(len(self.ranks)), sizes)
        self.null_receives = null_receives.settle(columns, np.concatenate([_waited(rank) for rank in self.ranks]))
        for name in ("peer", "source"):
            parts = np.split(columns[name], np.cumsum(sizes)[:-1])
            for rank, part in zip(self.ranks, parts, strict=True):
                setattr(rank.operations, name, part)


def _waited(rank: _Rank) -> np.ndarray:
    """int64 ns per operation: how long the traced run was in the call that it completed in; 0 where no wall-clock
    times are."""
    operations, phases = rank.operations, rank.phases
    if not len(phases.start_ns):
        return np.zeros(len(operations.kind), np.int64)
    waited = (phases.end_ns - phases.start_ns)[operations.call]
    offsets, requests = operations.completes
    by = np.repeat(np.arange(len(operations.kind)), np.diff(offsets))
    of_request = np.zeros(int(max(operations.request.max(initial=0), requests.max(initial=0))) + 1, np.int64)
    of_request[requests] = waited[by]
    opens = operations.request != NO_REQUEST
    waited[opens] = of_request[operations.request[opens]]
    return waited


class _WorldRanks:
    """Turns a rank's own numbers of communicators, and ranks within them, into the workload's."""

    def __init__(self, rank: _Rank, number: int, resolved: dumpi_communicators.Communicators) -> None:
        self.number = number
        self.operations = rank.operations
        self.members = resolved.members
        self.of_local = resolved.of_rank[number]

    def translate(self) -> None:
        operations = self.operations
        local = operations.communicator
        takes_part = np.isin(operations.kind, (*SENDS, *RECEIVES, *COLLECTIVES))
        communicator = np.where(local >= 0, self.of_local[np.maximum(local, 0)], dumpi_communicators.UNKNOWN)
        wrong = np.flatnonzero(takes_part & (communicator < 0))
        if len(wrong):
            made = operations.local.made[local[wrong[0]]] if local[wrong[0]] >= 0 else "no recorded call"
            raise self._error(
                int(wrong[0]),
                f"is on a communicator made by {made}, whose members cannot be told from the trace; it cannot be "
                "replayed",
            )
        operations.communicator = np.where(takes_part, communicator, 0)
        self._check_ranks()
        sizes = np.array([len(members) for members in self.members])
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        flat: np.ndarray = np.concatenate(self.members)
        is_point = np.isin(operations.kind, (*SENDS, *RECEIVES))
        for column, from_status in (
            (operations.peer, operations.peer_from_status),
            (operations.source, operations.source_from_status),
        ):
            chosen = np.flatnonzero(is_point & (column >= 0))
            at = operations.communicator[chosen]
            beyond = column[chosen] >= sizes[at]
            column[chosen[beyond & from_status[chosen]]] = ANY_SOURCE  # a status that was not set
            wrong = chosen[beyond & ~from_status[chosen]]
            if len(wrong):
                raise self._error(
                    int(wrong[0]),
                    f"names rank {column[wrong[0]]} of a communicator of {sizes[operations.communicator[wrong[0]]]}; "
                    "one rank's file alone cannot be replayed: give the folder with all ranks' files",
                )
            good = chosen[~beyond]
            column[good] = flat[offsets[operations.communicator[good]] + column[good]]

    def _check_ranks(self) -> None:
        """Compare what MPI_Comm_rank said with where the rank stands among the members."""
        told = self.operations.comm_ranks
        told = told[told[:, 1] >= 0]
        for local in np.unique(told[:, 1]):
            communicator = self.of_local[local]
            if communicator < 0:
                continue
            expected = int(np.flatnonzero(self.members[communicator] == self.number)[0])
            mine = told[told[:, 1] == local]
            wrong = np.flatnonzero(mine[:, 2] != expected)
            if len(wrong):
                made = self.operations.local.made[local]
                raise self.operations.places.error(
                    int(mine[wrong[0], 0]),
                    f"says rank {mine[wrong[0], 2]} in the communicator made by {made}, where rank {expected} was "
                    "expected; an order of ranks that is not recorded cannot be replayed",
                )

    def _error(self, row: int, message: str) -> UserError:
        return self.operations.places.error(int(self.operations.call[row]), message)


class _Tables:
    """The workload's tables, from all ranks."""

    def __init__(self, reader: _Reader, members: list[np.ndarray]) -> None:
        self.reader = reader
        self.ranks = reader.ranks
        self.members = members
        self.region_of: dict[str, int] = {}
        self.has_end = [
            bool(len(rank.operations.kind)) and rank.operations.kind[-1] == OperationKind.finalize
            for rank in self.ranks
        ]

    def workload(self) -> Workload:
        measured, clock_notes = self._measured()
        tables = {
            "operations": self._operations(),
            **self._phases(),
            "regions": pa.Table.from_arrays([text_array(list(self.region_of))], schema=REGIONS_SCHEMA),
            "communicators": self._communicators(),
        }
        if measured is not None:
            tables["measured"] = measured
        notes = (*self._notes(), *clock_notes)
        return Workload(self.reader.trace.name, len(self.ranks), tables, notes, NAME)

    def _column(self, name: str, fill: int) -> np.ndarray:
        """A column of all ranks, with a row for the end of those that have none."""
        parts = []
        for rank, has_end in zip(self.ranks, self.has_end, strict=True):
            values = getattr(rank.operations, name)
            parts.append(values if has_end else np.append(values, np.array(fill, values.dtype)))
        return np.concatenate(parts)

    def _sizes(self) -> np.ndarray:
        return np.array(
            [len(r.operations.kind) + (not end) for r, end in zip(self.ranks, self.has_end, strict=True)], np.int64
        )

    def _operations(self) -> pa.Table:
        used = np.unique(np.concatenate([[0], *(rank.operations.communicator for rank in self.ranks)]))
        self.used = used
        count = int(self._sizes().sum())
        arrays = {
            "rank": to_arrow(np.repeat(np.arange(len(self.ranks), dtype=np.int32), self._sizes())),
            "kind": pa.DictionaryArray.from_arrays(to_arrow(self._column("kind", OperationKind.finalize)), KIND_NAMES),
            "peer": to_arrow(self._column("peer", NO_RANK)),
            "source": to_arrow(self._column("source", NO_RANK)),
            "communicator_id": to_arrow(np.searchsorted(used, self._column("communicator", 0)).astype(np.int32)),
            "request": to_arrow(self._column("request", NO_REQUEST)),
            **{name: to_arrow(self._column(name, 0)) for name in ("tag", "bytes", "receive_bytes")},
            "completes": self._lists([rank.operations.completes for rank in self.ranks], np.int32),
        }
        for side in ("send_counts", "receive_counts"):
            columns = [getattr(rank.operations, side).column(len(rank.operations.kind)) for rank in self.ranks]
            arrays[side] = self._lists(columns, np.int64)
        assert all(len(array) == count for array in arrays.values())
        return pa.Table.from_arrays([arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA)

    def _lists(self, columns: list[tuple[np.ndarray, np.ndarray]], dtype: type) -> pa.Array:
        lengths = [
            np.append(np.diff(offsets), [0] * (not end))
            for (offsets, _), end in zip(columns, self.has_end, strict=True)
        ]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))))
        if offsets[-1] > 2**31 - 1:
            raise UserError(f"{self.reader.path}: lists more than 2^31 requests or counts; trace fewer ranks")
        flat: np.ndarray = np.concatenate([values for _, values in columns]).astype(dtype)
        return pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32)), to_arrow(flat))

    def _communicators(self) -> pa.Table:
        members = [self.members[number] for number in self.used]
        offsets = np.concatenate(([0], np.cumsum([len(m) for m in members]))).astype(np.int32)
        lists = pa.ListArray.from_arrays(to_arrow(offsets), to_arrow(np.concatenate(members).astype(np.int32)))
        return pa.Table.from_arrays([lists], schema=COMMUNICATORS_SCHEMA)

    def _phases(self) -> dict[str, pa.Table]:
        sizes = [len(rank.phases.operation) for rank in self.ranks]
        count = sum(sizes)
        polled = [polling(r.operations.polls, r.phases.operation, r.phases.duration_ns) for r in self.ranks]
        columns: dict[str, np.ndarray] = {
            "rank": np.repeat(np.arange(len(self.ranks), dtype=np.int32), sizes),
            "operation_id": np.concatenate([rank.phases.operation for rank in self.ranks]).astype(np.int32),
            "kind": marked(np.full(count, PhaseKind.compute, np.int8), np.concatenate(polled)),
            "region_id": np.concatenate([self._regions(rank) for rank in self.ranks]),
            "duration_ps": np.concatenate([rank.phases.duration_ns for rank in self.ranks]) * 1000,
        }
        arrays = [to_arrow(columns[name]) for name in PHASES_SCHEMA.names]
        return {"phases": pa.Table.from_arrays(arrays, schema=PHASES_SCHEMA), **self._counters(sizes)}

    def _regions(self, rank: _Rank) -> np.ndarray:
        """Region of each phase of a rank, from its function's address."""
        addresses, which = np.unique(rank.phases.region, return_inverse=True)
        ids = np.full(len(addresses), -1, np.int32)
        for place, address in enumerate(addresses.tolist()):
            if address:
                name = rank.function_names.get(address, hex(address))
                ids[place] = self.region_of.setdefault(name, len(self.region_of))
        return ids[which].astype(np.int32)

    def _counters(self, sizes: list[int]) -> dict[str, pa.Table]:
        names = list(dict.fromkeys(name for rank in self.ranks for name in rank.counter_names))
        if not names:
            return {}
        parts, first = [], 0
        for rank, size in zip(self.ranks, sizes, strict=True):
            increase = rank.phases.counters[:, : len(rank.counter_names)]
            phase, which = np.nonzero(increase >= 0)
            code = np.array([names.index(name) for name in rank.counter_names], np.int16)
            parts.append((first + phase, code[which], increase[phase, which]))
            first += size
        phase_id, codes, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        named = pa.DictionaryArray.from_arrays(to_arrow(codes.astype(np.int16)), text_array(names))
        arrays = [to_arrow(phase_id.astype(np.int64)), named, to_arrow(value.astype(np.int64))]
        return {"counters": pa.Table.from_arrays(arrays, schema=COUNTERS_SCHEMA)}

    def _measured(self) -> tuple[pa.Table | None, list[Note]]:
        if not all(len(rank.phases.start_ns) for rank in self.ranks):
            text = "no wall-clock times: phases are those of the CPU clock, and nothing was measured"
            return None, [informs("no-measured-times", text)]
        origin = min(int(rank.phases.start_ns.min()) for rank in self.ranks)
        end = max(int(rank.phases.end_ns.max()) for rank in self.ranks)
        if end - origin > LONGEST_NS:
            text = "the wall clocks of the ranks lie more than 53 days apart: their times are left out"
            return None, [informs("no-measured-times", text)]
        starts, ends = [], []
        for rank, has_end in zip(self.ranks, self.has_end, strict=True):
            call = rank.operations.call
            start, stop = rank.phases.start_ns[call] - origin, rank.phases.end_ns[call] - origin
            start[1:] = np.where(call[1:] == call[:-1], stop[1:], start[1:])  # further requests of a MPI_Startall
            last = [] if has_end else [rank.phases.end_ns[-1] - origin]
            starts.append(np.append(start, last))
            ends.append(np.append(stop, last))
        columns = [to_arrow((np.concatenate(parts) * 1000).astype(np.int64)) for parts in (starts, ends)]
        return pa.Table.from_arrays(columns, schema=MEASURED_SCHEMA), []

    def _notes(self) -> list[Note]:
        notes = [*self.reader.null_receives.notes, *notes_on_calls(self.reader.others)]
        idle, number = max((rank.phases.idle_ns, number) for number, rank in enumerate(self.ranks))
        if idle > _NOTED * int(self.ranks[number].phases.duration_ns.sum()):
            text = (
                f"between calls, rank {number} did not run for {idle * 1e-9:.4g} s of wall-clock time (others had its "
                "core, or it slept), other ranks less: left out (workload.time: wall has it)"
            )
            notes.append(changes("time-not-run", text, errs=Errs.short))
        if self.reader.ignored:
            notes.append(calls_left_out("calls that were made but not recorded (dumpi.conf)", self.reader.ignored))
        sums = {
            name: sum(getattr(rank.operations, name) for rank in self.ranks)
            for name in ("num_unknown_requests", "num_never_completed", "num_cancelled")
        }
        wild = sum(
            int(np.count_nonzero((column == ANY_SOURCE) & np.isin(rank.operations.kind, RECEIVES)))
            for rank in self.ranks
            for column in (rank.operations.peer, rank.operations.source)
        )
        cancelled, open_ones, unknown = sums["num_cancelled"], sums["num_never_completed"], sums["num_unknown_requests"]
        unfinished = self.has_end.count(False)
        found = (
            changes("any-source-first-arrival", f"{wild} receives from any source whose status names none: the first "
                    "message in simulated time is taken", count=wild),
            informs("requests-cancelled", f"{cancelled} requests were cancelled: their operations take no part",
                    count=cancelled),
            informs("requests-never-completed", f"{open_ones} requests are never completed in the trace",
                    count=open_ones),
            changes("requests-unknown", f"{unknown} completed requests were opened by no recorded call (MPI 3 has no "
                    "records in DUMPI)", count=unknown),
            changes("no-finalize", f"{unfinished} ranks have no MPI_Finalize last: one is added", count=unfinished),
        )  # fmt: skip
        return notes + [note for note in found if note.count]
