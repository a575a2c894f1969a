"""The records of a Dimemas trace as a workload."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    MAX_RANKS,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import CHUNK_BYTES
from manyscale.runner.readers.dimemas import (
    lines as dim_lines,
)
from manyscale.runner.readers.dimemas import (
    operations as dim_operations,
)
from manyscale.runner.readers.dimemas import (
    tables as dim_tables,
)
from manyscale.runner.readers.dimemas.content import OLD_MARK, content
from manyscale.runner.readers.dimemas.lines import BURST, EVENT, GLOBAL, GPU_BURST, RECEIVE, SEND, Records
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions

NAME: Final = "dimemas"
_HEADER: Final = re.compile(
    r'#DIMEMAS:"(?P<name>[^"]*)":(?P<flag>[01])(?:,(?P<offset>\d+))?:(?P<tasks>\d+)\((?P<threads>[\d,]+)\),'
    r"(?P<communicators>\d+)(?:,.*)?"
)
_MOST_THREADS: Final = 1 << 24  # of a task
_NO_RECORDS: Final = "the file holds no records; convert the Paraver trace again"


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part: it says all). Raises UserError, one line with file and
    line."""
    with content(path) as stream:
        reader = _Reader(path)
        reader.read(stream)
    return reader.workload()


@dataclass
class _Reader:
    path: Path
    name: str = ""
    offset_of_table: int | None = None
    num_threads: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    communicators: dict[int, np.ndarray] = field(default_factory=dict)
    records: Records | None = None
    offsets: dict[int, tuple[int, list[int]]] = field(default_factory=dict)  # per task: line, offsets of its threads
    notes: list[Note] = field(default_factory=list)

    @property
    def num_tasks(self) -> int:
        return len(self.num_threads)

    def read(self, stream: IO[bytes]) -> None:
        """Read header, definitions, records and offsets."""
        text = stream.read(CHUNK_BYTES)
        base = self._header(text)
        text = text[base:]
        parts: list[Records] = []
        in_table, ended = False, False
        while not ended:
            block = stream.read(CHUNK_BYTES)
            ended = not block
            text += block
            size = len(text) if ended else text.rfind(b"\n") + 1
            if in_table or not size:
                continue
            if not any(len(part.kind) for part in parts):
                skipped = self._definitions(text[:size], base)
                text, base, size = text[skipped:], base + skipped, size - skipped
            records, stop, problem = dim_lines.parse_block(text, size, base)
            parts.append(records)
            if problem:
                raise self._error(base + stop, dim_lines.PROBLEMS[problem], text[stop:])
            in_table = stop < size
            text, base = text[stop:], base + stop
        if in_table:
            self._table(text, base)
        self.records = Records.concatenate(parts) if parts else None
        if self.records is None or not len(self.records.kind):
            raise UserError(f"{self.path}: {_NO_RECORDS}")

    def _header(self, text: bytes) -> int:
        """Read the first line; its length."""
        if text.startswith(OLD_MARK):
            raise UserError(
                f"{self.path}:1: is a trace of the old Dimemas format (SDDF, .trf), which rounds times to microseconds;"
                " convert it with trf2dim of Dimemas 5.3.0, or the original Paraver trace with prv2dim"
            )
        line, _, _ = text.partition(b"\n")
        match = _HEADER.fullmatch(line.decode(errors="replace").rstrip("\r"))
        if match is None:
            raise UserError(
                f'{self.path}:1: the header is not #DIMEMAS:"name":1,OFFSET:TASKS(THREADS,...),COMMUNICATORS, the only '
                "version that is known; convert the Paraver trace with prv2dim of Dimemas 5.4 or later"
            )
        place = f"{self.path}:1"
        words = [word for word in match["threads"].split(",") if word]
        threads = [bounds.whole(word, place, "a number of threads", 0, _MOST_THREADS) for word in words]
        if (
            len(threads) != bounds.whole(match["tasks"], place, "the number of tasks")
            or not 1 <= len(threads) <= MAX_RANKS
            or min(threads) < 1
        ):
            raise UserError(
                f"{self.path}:1: {match['tasks']} tasks, but {len(threads)} numbers of threads (each at least 1, at "
                f"most {MAX_RANKS} tasks); mend the header"
            )
        self.name, self.num_threads = match["name"], np.array(threads)
        if match["flag"] == "1":
            if match["offset"] is None:
                raise UserError(f"{self.path}:1: flag 1 is not followed by the offset of the table; mend the header")
            self.offset_of_table = bounds.whole(match["offset"], place, "the offset of the table")
        return len(line) + 1

    def _definitions(self, text: bytes, base: int) -> int:
        """Read the lines d: in front; their length."""
        place = 0
        while text[place : place + 1] in (b"d", b"\r", b"\n"):
            end = text.find(b"\n", place)
            end = len(text) if end < 0 else end
            line = text[place:end].decode(errors="replace").strip()
            if line.startswith("d:1:"):
                self._communicator(line, base + place)
            place = end + 1
        return min(place, len(text))

    def _communicator(self, line: str, start: int) -> None:
        words = line.split(":")
        try:
            _, number, size, *tasks = (bounds.whole(word, self.path, "a number") for word in words[1:])
        except (UserError, ValueError):
            raise self._error(start, "is no communicator d:1:ID:SIZE:TASK:...", line.encode()) from None
        if len(tasks) != size:
            raise self._error(start, "is no communicator d:1:ID:SIZE:TASK:...", line.encode())
        members = np.array(tasks, np.int64)
        if not len(members) or members.max() >= self.num_tasks or len(np.unique(members)) < len(members):
            raise self._error(
                start, f"has members that are not different tasks from 0 to {self.num_tasks - 1}", line.encode()
            )
        if number in self.communicators:
            raise self._error(start, f"defines communicator {number} for the second time", line.encode())
        self.communicators[number] = members.astype(np.int32)

    def _table(self, text: bytes, base: int) -> None:
        for line in text.splitlines(keepends=True):
            words = line.strip().split(b":")
            if line.strip():
                if words[0] != b"s" or len(words) < 3:
                    raise self._error(base, "is no line s:TASK:OFFSET:... of the table of offsets", line)
                try:
                    task, *offsets = (bounds.whole(word, self.path, "a number") for word in words[1:])
                except UserError:
                    raise self._error(base, "is no line s:TASK:OFFSET:... of the table of offsets", line) from None
                self.offsets[task] = (base, offsets)
            base += len(line)

    def _error(self, start: int, what: str, line: bytes = b"") -> UserError:
        """The error for the line that starts at byte ``start``; its number is counted now."""
        number = 1
        with content(self.path) as stream:
            left = start
            while left and (block := stream.read(min(left, CHUNK_BYTES))):
                number += block.count(b"\n")
                left -= len(block)
        shown = line.split(b"\n", 1)[0][:60].decode(errors="replace").rstrip()
        return UserError(f"{self.path}:{number}: {shown!r} {what}" if line else f"{self.path}:{number}: {what}")

    def workload(self) -> Workload:
        """What was read as a workload."""
        chosen = self._thread_zero()
        assert self.records is not None
        records = self.records
        kind, rank, start = records.kind[chosen], records.task[chosen], records.start[chosen]
        value = records.value[chosen]
        is_pseudo = np.zeros(len(kind), np.bool_)
        globals_ = np.flatnonzero(kind == GLOBAL)
        is_pseudo[globals_] = records.fields[value[globals_], 1] <= 0  # between the threads of a task
        is_operation = ((kind == SEND) | (kind == RECEIVE) | (kind == GLOBAL)) & ~is_pseudo
        is_phase = (kind == BURST) | (kind == GPU_BURST)
        if np.any(kind == GPU_BURST):
            number = int(np.count_nonzero(kind == GPU_BURST))
            text = f"{number} bursts on a GPU keep their duration on any target"
            self.notes.append(changes("gpu-bursts-as-traced", text, count=number))
        fields = records.fields[value[is_operation]]
        members = self._place_communicators(fields, kind[is_operation], start[is_operation])
        self._check_partners(fields, kind[is_operation], start[is_operation])
        try:
            columns = dim_operations.operations(kind[is_operation], rank[is_operation], fields, members)
        except dim_operations.RecordError as error:
            raise self._error(int(start[is_operation][error.row]), error.message) from None
        # How many operations of its rank stand before each record; bursts behind the last one get an operation.
        bounds = np.searchsorted(rank, np.arange(self.num_tasks + 1))
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_operation)))
        position = before[:-1] - np.repeat(before[bounds[:-1]], np.diff(bounds))
        per_rank = before[bounds[1:]] - before[bounds[:-1]]
        latest = np.full(self.num_tasks, -1, np.int64)
        np.maximum.at(latest, rank[is_phase], position[is_phase])
        extra = (latest == per_rank) | (per_rank == 0)
        events = np.flatnonzero(kind == EVENT)
        regions, names = dim_tables.regions(kind, rank, events, records.fields[value[events]])
        phase_kind = np.where(kind == GPU_BURST, PhaseKind.sleep, PhaseKind.compute).astype(np.int8)[is_phase]
        phases = [rank[is_phase], position[is_phase].astype(np.int32), phase_kind, regions[is_phase], value[is_phase]]
        tables = {
            "operations": dim_tables.operations(columns, per_rank, extra),
            "phases": pa.Table.from_arrays([to_arrow(values) for values in phases], schema=PHASES_SCHEMA),
            "regions": pa.Table.from_arrays([text_array(names)], schema=REGIONS_SCHEMA),
            "communicators": pa.Table.from_arrays([dim_tables.lists(members)], schema=COMMUNICATORS_SCHEMA),
        }
        self._note_operations(columns)
        name = self.name or self.path.name.split(".")[0]
        return Workload(name, self.num_tasks, tables, tuple(self.notes), NAME)

    def _thread_zero(self) -> np.ndarray:
        """Indices of the records of the threads 0, in the order of tasks; offsets and order of the file are checked."""
        records = self.records
        assert records is not None
        task, thread = records.task, records.thread
        wrong = np.flatnonzero((task >= self.num_tasks) | (task < 0))
        if len(wrong):
            raise self._error(
                int(records.start[wrong[0]]), f"is of task {task[wrong[0]]}; the header has {self.num_tasks}"
            )
        wrong = np.flatnonzero((thread >= self.num_threads[task]) | (thread < 0))
        if len(wrong):
            at = wrong[0]
            raise self._error(
                int(records.start[at]),
                f"is of thread {thread[at]} of task {task[at]}; the header has {self.num_threads[task[at]]} there",
            )
        bounds = np.flatnonzero((np.diff(task) != 0) | (np.diff(thread) != 0)) + 1
        begins = np.concatenate((np.zeros(1, np.int64), bounds))
        ends = np.append(bounds, len(task))
        first_of_task = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.num_threads)))
        who = first_of_task[task[begins]] + thread[begins]
        _, first, count = np.unique(who, return_index=True, return_counts=True)
        if np.any(count > 1):
            again = np.setdiff1d(np.arange(len(who)), first)[0]
            raise self._error(
                int(records.start[begins[again]]),
                f"continues task {task[begins[again]]}, thread {thread[begins[again]]}, whose records do not stand "
                "together; Dimemas would stop before it: sort the file by task and thread",
            )
        self._check_offsets(task[begins], thread[begins], records.start[begins])
        zero = np.flatnonzero(thread[begins] == 0)
        self._note_threads(thread)
        missing = np.setdiff1d(np.arange(self.num_tasks), task[begins[zero]])
        if len(missing):
            raise UserError(f"{self.path}: task {missing[0]} has no records; convert the Paraver trace again")
        zero = zero[np.argsort(task[begins[zero]], kind="stable")]
        if len(zero) == len(begins) and np.all(np.diff(begins[zero]) > 0):
            return np.arange(len(task))
        return np.concatenate([np.arange(begins[one], ends[one]) for one in zero])

    def _check_offsets(self, task: np.ndarray, thread: np.ndarray, start: np.ndarray) -> None:
        if self.offset_of_table is None:
            text = "the trace has no table of offsets (Dimemas itself cannot read it): read in order"
            self.notes.append(informs("no-offsets", text))
            return
        if not self.offsets:
            raise UserError(f"{self.path}: the table of offsets (lines s:) is missing; the file may be cut short")
        first = min(place for place, _ in self.offsets.values())
        if first != self.offset_of_table:
            raise UserError(
                f"{self.path}:1: the header puts the table of offsets at byte {self.offset_of_table}, it is at {first};"
                " the file was changed: convert the Paraver trace again"
            )
        for one, other, place in zip(task.tolist(), thread.tolist(), start.tolist(), strict=True):
            line, offsets = self.offsets.get(one, (first, []))
            if other >= len(offsets):
                raise self._error(line, f"the table of offsets lacks task {one}, thread {other}")
            if offsets[other] != place:
                raise self._error(
                    line,
                    f"the table puts task {one}, thread {other} at byte {offsets[other]}, its records begin at {place};"
                    " the file was changed: convert the Paraver trace again",
                )

    def _note_threads(self, thread: np.ndarray) -> None:
        left_out = int(np.count_nonzero(thread))
        if left_out:
            text = (
                f"{left_out} records of threads other than the first of their task are left out: what they compute "
                "takes no time"
            )
            self.notes.append(changes("threads-left-out", text, count=left_out))

    def _place_communicators(self, fields: np.ndarray, kind: np.ndarray, start: np.ndarray) -> list[np.ndarray]:
        """Replace the ids of communicators in the operations' fields by rows; members by row, the world first."""
        world = np.arange(self.num_tasks, dtype=np.int32)
        ids = sorted(self.communicators)
        first = next((one for one in ids if np.array_equal(self.communicators[one], world)), None)
        members = [world, *(self.communicators[one] for one in ids if one != first)]
        known = np.array(ids, np.int64)
        rows = np.zeros(len(ids), np.int64)
        rows[[index for index, one in enumerate(ids) if one != first]] = np.arange(1, len(members))
        column = np.where(kind == GLOBAL, 1, 4)
        named = fields[np.arange(len(fields)), column]
        place = np.searchsorted(known, named)
        place[place == len(known)] = 0
        unknown = np.flatnonzero(known[place] != named) if len(known) else np.arange(len(named))
        if len(unknown):
            at = unknown[0]
            raise self._error(int(start[at]), f"names communicator {named[at]}, which no line d:1: defines")
        if len(named):
            fields[np.arange(len(fields)), column] = rows[place]
        return members

    def _check_partners(self, fields: np.ndarray, kind: np.ndarray, start: np.ndarray) -> None:
        messages = np.flatnonzero(kind != GLOBAL)
        partner, thread, size = (fields[messages, column] for column in (0, 1, 2))
        for wrong, what in (
            (
                thread > 0,
                "is for a thread other than the first of its task; only messages between tasks can be replayed",
            ),
            (
                (thread == 0) & (partner != -1),
                "is a synchronisation of threads; only messages between tasks (thread -1) can be replayed",
            ),
            (partner >= self.num_tasks, f"names a task beyond the last, {self.num_tasks - 1}"),
            ((partner < -1) | ((partner == -1) & (kind[messages] == SEND)), "names no task"),
            (size < 0, "has a negative size"),
        ):
            found = np.flatnonzero(wrong)
            if len(found):
                raise self._error(int(start[messages[found[0]]]), what)

    def _note_operations(self, columns: dim_operations.Columns) -> None:
        if columns.num_uncompleted:
            text = f"{columns.num_uncompleted} non-blocking receives and collectives are never waited for: nobody does"
            self.notes.append(changes("waits-missing", text, count=columns.num_uncompleted, errs=Errs.short))
        if columns.num_spread:
            text = (
                f"{columns.num_spread} irregular all-to-alls record totals only: each rank's bytes are spread over the "
                "others in proportion to what these receive"
            )
            self.notes.append(changes("sizes-spread", text, count=columns.num_spread))
