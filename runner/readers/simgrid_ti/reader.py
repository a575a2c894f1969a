"""The actions of a time-independent trace as a workload."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    KIND_NAMES,
    MAX_RANKS,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.models.workload.polls import marked, polling
from manyscale.runner.errors import UserError
from manyscale.runner.readers import null_receives
from manyscale.runner.readers.archive import CHUNK_BYTES, guarded, is_tar, open_stream, tar_members
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.simgrid_ti import (
    actions as ti_actions,
)
from manyscale.runner.readers.simgrid_ti import (
    groups as ti_groups,
)
from manyscale.runner.readers.simgrid_ti import (
    requests as ti_requests,
)
from manyscale.runner.readers.simgrid_ti.files import (
    action_files,
    first_rank,
    list_in_folder,
    listed_file,
    looks_like_actions,
)
from manyscale.runner.readers.simgrid_ti.tokens import BAD_RANK, UNKNOWN_VERB, Tokens, tokenise
from manyscale.runner.readers.simgrid_ti.verb_names import CODE, VERBS
from manyscale.runner.readers.simgrid_ti.verbs import VERB_TABLE

NAME = "simgrid-ti"
KEPT_ARCHIVE_BYTES = 1 << 28
COLLECTIVES_NOTE: Final = changes(
    "collectives-without-communicator",
    "communicators are not recorded: what all ranks call alike is replayed on all, even if it was called on some",
)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace whose ``compute`` amounts were taken at ``options.flop_rate``.

    Raises UserError, one line with file and line, for anything that cannot be read or replayed.
    """
    reader = _Reader(path, 1e12 / options.flop_rate, options.unequal_collectives)
    if path.is_dir():
        found = list_in_folder(path)
        if found is not None:
            reader.read_list(found)
        else:
            reader.read_files([(str(file), partial(open_stream, file)) for file in action_files(path)])
    elif is_tar(path):
        reader.read_archive()
    else:
        with guarded(path), open_stream(path) as stream:
            head = stream.read(4096)
        if looks_like_actions(head):
            reader.read_files([(str(path), partial(open_stream, path))])
        else:
            reader.read_list(path)
    return reader.workload()


@dataclass
class _Columns:
    """Finished columns of one rank."""

    operations: dict[str, np.ndarray]
    completes: tuple[np.ndarray, np.ndarray]
    send_counts: dict[int, np.ndarray]
    receive_counts: dict[int, np.ndarray]
    phases: dict[str, np.ndarray]
    file: str
    collective_lines: np.ndarray  # of the collectives
    ends: bool  # with a finalize

    def num_counts(self) -> np.ndarray:
        """int64 per collective: how many members it has a count for, 0 for none."""
        counts = np.zeros(len(self.operations["kind"]), np.int64)
        for counted in (self.send_counts, self.receive_counts):
            counts[list(counted)] = [len(values) for values in counted.values()]
        return counts[self.operations["kind"] >= OperationKind.barrier]


@dataclass
class _Reader:
    path: Path
    ps_per_flop: float
    unequal_collectives: str
    ranks: dict[int, _Columns] = field(default_factory=dict)
    regions: dict[str, int] = field(default_factory=dict)
    num_ranks: int = 0
    tests_taken_as_waits: int = 0
    never_completed: int = 0
    without_finalize: int = 0

    def read_archive(self) -> None:
        listed: list[tuple[int, str]] | None = None
        ranks: dict[str, int] = {}  # of its first action
        list_name = ""
        kept: dict[str, bytes] = {}  # contents, as long as they are few; else the archive is read twice
        room = KEPT_ARCHIVE_BYTES
        for name, stream in tar_members(self.path):
            with guarded(self.path):
                content = stream.read(max(room, 512))
                rank = first_rank(content[:512])
                if rank is not None:
                    ranks[name] = rank
                    if room > 0:
                        kept[name] = content
                        room -= len(content)
                elif listed is None and name.endswith(".txt"):
                    listed = _list_lines(content + stream.read())
                    list_name = name
        if not ranks:
            raise UserError(f"{self.path}: the archive holds no time-independent trace (lines '<rank> <verb> ...')")
        order = sorted(ranks, key=lambda name: (ranks[name], name))
        if listed is not None:
            order = self._listed_members(list(ranks), list_name, listed)
        self._expect(len(order))
        rank_of = {name: rank for rank, name in enumerate(order)}
        members = ((name, io.BytesIO(kept.pop(name))) for name in order) if room > 0 else tar_members(self.path)
        for name, stream in members:
            if name in rank_of:
                with guarded(self.path):
                    self._read_file(f"{self.path}:{name}", stream, rank_of[name] if len(order) > 1 else None)

    def _listed_members(self, names: list[str], list_name: str, listed: list[tuple[int, str]]) -> list[str]:
        """The archive's member behind each line of its list."""
        folder = posixpath.dirname(list_name)
        present = set(names)
        with_name: dict[str, list[str]] = {}
        for name in names:
            with_name.setdefault(posixpath.basename(name), []).append(name)
        members: list[str] = []
        for number, line in listed:
            exact = posixpath.normpath(posixpath.join(folder, line))
            # A list written by the tracer holds the paths of the traced run: fall back to the file's own name.
            same_name = with_name.get(posixpath.basename(line), [])
            if exact not in present and len(same_name) != 1:
                place = f"{self.path}:{list_name}:{number}: the list names {line[:200]!r}"
                raise UserError(f"{place}, which is not in the archive; add the file or mend the list")
            members.append(exact if exact in present else same_name[0])
        if not members:
            raise UserError(
                f"{self.path}:{list_name}: the list names no file; it needs one path a line, one for each rank"
            )
        if len(set(members)) == 1:  # one file of all ranks
            return members[:1]
        first: dict[str, int] = {}
        twice = [index for index, name in enumerate(members) if first.setdefault(name, index) != index]
        if twice:
            number, line = listed[twice[0]]
            raise UserError(
                f"{self.path}:{list_name}:{number}: the list names {line[:200]!r} twice; name one file for each rank"
            )
        return members

    def read_list(self, path: Path) -> None:
        with guarded(path), open_stream(path) as stream:
            listed = _list_lines(stream.read())
        if not listed:
            raise UserError(f"{path}: the list names no file; it needs one path a line, one for each rank")
        files = []
        for number, line in listed:
            found = listed_file(path.parent, line)
            if found is None:
                name = repr(line[:200])
                raise UserError(f"{path}:{number}: the rank file {name} does not exist; copy it there or mend the list")
            files.append(found)
        if len(set(files)) == 1:
            files = files[:1]
        self.read_files([(str(file), partial(open_stream, file)) for file in files])

    def read_files(self, files: list[tuple[str, Callable[[], IO[bytes]]]]) -> None:
        if not files:
            raise UserError(f"{self.path}: no file of a time-independent trace is there (lines '<rank> <verb> ...')")
        self._expect(len(files))
        for rank, (name, opened) in enumerate(files):
            with guarded(Path(name)), opened() as stream:
                self._read_file(name, stream, rank if len(files) > 1 else None)

    def _expect(self, num_files: int) -> None:
        self.num_ranks = num_files if num_files > 1 else 0  # one file: as many ranks as it names

    def _read_file(self, name: str, stream: IO[bytes], rank: int | None) -> None:
        """Read one file; ``rank`` is the one whose actions it must hold, None for a file of all ranks."""
        tokens = self._tokens(name, stream)
        if rank is not None:
            strangers = np.flatnonzero(tokens.rank != rank)
            if len(strangers):
                raise UserError(
                    f"{name}:{tokens.line[strangers[0]]}: an action of rank {tokens.rank[strangers[0]]} in the file of "
                    f"rank {rank}; mend the list's order, or take the file away (one file for each rank)"
                )
            if rank in self.ranks:
                raise UserError(f"{self.path}: the list names {name} twice; name one file for each rank")
            self._read_rank(name, rank, tokens)
            return
        if tokens.rank.max() >= MAX_RANKS:
            line = tokens.line[tokens.rank.argmax()]
            raise UserError(f"{name}:{line}: rank {tokens.rank.max()} is beyond {MAX_RANKS - 1}; mend the line")
        order = np.argsort(tokens.rank, kind="stable")
        present, starts = np.unique(tokens.rank[order], return_index=True)
        self.num_ranks = int(present[-1]) + 1
        missing = np.setdiff1d(np.arange(self.num_ranks), present)
        if len(missing):
            raise UserError(f"{name}: rank {missing[0]} has no action although rank {present[-1]} has; add its lines")
        for index, lines in enumerate(np.split(order, starts[1:])):
            self._read_rank(name, int(present[index]), tokens.select(lines))

    def _tokens(self, name: str, stream: IO[bytes]) -> Tokens:
        parts = []
        rest = b""
        line = 1
        while True:
            block = stream.read(CHUNK_BYTES)
            text = rest + (block or b"\n")
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if cut > 1 or (cut and block):
                chunk = np.frombuffer(text, np.uint8, cut)
                tokens = tokenise(chunk, VERB_TABLE, line)
                self._check(name, tokens, text)
                self._name_regions(name, tokens, text)
                line = tokens.next_line
                parts.append(tokens)
            if not block:
                break
        if not parts or not sum(len(part.verb) for part in parts):
            raise UserError(f"{name}: the file holds no action; a rank's file has lines '<rank> <verb> ...'")
        return Tokens.concatenate(parts)

    def _check(self, name: str, tokens: Tokens, text: bytes) -> None:
        wrong = np.flatnonzero(tokens.verb < 0)
        if not len(wrong):
            return
        line = text[tokens.line_start[wrong[0]] :].split(b"\n", 1)[0]
        place = f"{name}:{tokens.line[wrong[0]]}"
        if tokens.verb[wrong[0]] == BAD_RANK:
            raise UserError(f"{place}: {line[:60].decode(errors='replace')!r} does not start with a rank")
        assert tokens.verb[wrong[0]] == UNKNOWN_VERB
        words = _words(line)
        verb = words[1] if len(words) > 1 else ""
        raise UserError(f"{place}: unknown verb {verb[:60]!r}; known are {', '.join(VERBS)}")

    def _name_regions(self, name: str, tokens: Tokens, text: bytes) -> None:
        lines = np.flatnonzero(tokens.verb == CODE["location"])
        if not len(lines):
            return
        short = lines[tokens.num_fields[lines] < 2]
        if len(short):
            raise UserError(f"{name}:{tokens.line[short[0]]}: 'location' lacks fields; it names a file and a line")
        keys = _region_keys(tokens, lines)
        _, first = np.unique(keys, return_index=True)
        for index in np.sort(first):
            words = _words(text[tokens.line_start[lines[index]] :].split(b"\n", 1)[0])
            self.regions.setdefault(f"{words[2]}:{words[3]}", len(self.regions))
            self._region_of_key[int(keys[index])] = self.regions[f"{words[2]}:{words[3]}"]

    _region_of_key: dict[int, int] = field(default_factory=dict)

    def _read_rank(self, name: str, rank: int, tokens: Tokens) -> None:
        untagged = ti_actions.is_untagged(tokens)
        try:
            rows = ti_actions.RankReader(tokens, rank, self.num_ranks, self.ps_per_flop, untagged).read()
        except ti_actions.LineError as error:
            raise UserError(f"{name}:{tokens.line[error.index]}: {error.message}") from None
        try:
            requests = ti_requests.resolve(rows)
        except ti_actions.LineError as error:
            raise UserError(f"{name}:{rows.line[error.index]}: {error.message}") from None
        self.tests_taken_as_waits += requests.tests_taken_as_waits
        is_completed = np.zeros(int(requests.request.max(initial=-1)) + 1, np.bool_)
        is_completed[requests.values] = True
        self.never_completed += len(is_completed) - int(np.count_nonzero(is_completed))
        self.ranks[rank] = self._columns(name, tokens, rows, requests)

    def _columns(
        self, name: str, tokens: Tokens, rows: ti_actions.RankRows, requests: ti_requests.Requests
    ) -> _Columns:
        count = len(rows.kind)
        last_phase = rows.phase_operation[-1] if len(rows.phase_operation) else -1
        ends = count > 0 and rows.kind[-1] == OperationKind.finalize and last_phase < count
        self.without_finalize += not ends

        def padded(values: np.ndarray, fill: int) -> np.ndarray:
            return values if ends else np.append(values, values.dtype.type(fill))

        operations = {
            "kind": padded(requests.kind, OperationKind.finalize),
            "peer": padded(rows.peer, NO_RANK),
            "source": padded(rows.source, NO_RANK),
            "tag": padded(rows.tag, 0),
            "bytes": padded(rows.bytes, 0),
            "receive_bytes": padded(rows.receive_bytes, 0),
            "request": padded(requests.request, NO_REQUEST),
        }
        phases = {
            "operation_id": rows.phase_operation.astype(np.int32),
            "kind": marked(rows.phase_kind, polling(requests.polls, rows.phase_operation, rows.phase_ps)),
            "region_id": self._phase_regions(tokens, rows.phase_place),
            "duration_ps": rows.phase_ps,
        }
        return _Columns(
            operations,
            (padded(requests.offsets, requests.offsets[-1]), requests.values),
            rows.send_counts,
            rows.receive_counts,
            phases,
            name,
            rows.line[rows.kind >= OperationKind.barrier],
            ends,
        )

    def _phase_regions(self, tokens: Tokens, places: np.ndarray) -> np.ndarray:
        """Region of each phase: the latest location before it, -1 if none."""
        lines = np.flatnonzero(tokens.verb == CODE["location"])
        if not len(lines):
            return np.full(len(places), -1, np.int32)
        keys, inverse = np.unique(_region_keys(tokens, lines), return_inverse=True)
        ids = np.array([self._region_of_key[int(key)] for key in keys], np.int32)[inverse]
        latest = np.searchsorted(lines, places) - 1
        return np.where(latest >= 0, ids[latest], -1).astype(np.int32)

    def workload(self) -> Workload:
        """All ranks, once read."""
        missing = [rank for rank in range(self.num_ranks) if rank not in self.ranks]
        if missing:
            raise UserError(
                f"{self.path}: the file of rank {missing[0]} is missing from the archive; it may be cut short"
            )
        columns = [self.ranks[rank] for rank in range(self.num_ranks)]
        operations = _concatenated([part.operations for part in columns])
        operations["communicator_id"] = np.zeros(len(operations["rank"]), np.int32)
        notes = self._notes(operations)
        members, group_notes = self._groups(operations)
        notes += group_notes
        kind = pa.DictionaryArray.from_arrays(to_arrow(operations.pop("kind")), KIND_NAMES)
        arrays = {name: to_arrow(values) for name, values in operations.items()}
        arrays["kind"] = kind
        arrays["completes"] = _joined([part.completes for part in columns])
        for side in ("send_counts", "receive_counts"):
            if not any(getattr(part, side) for part in columns):
                arrays[side] = _no_lists(len(operations["rank"]))
                continue
            parts = [_ragged(getattr(part, side), len(part.operations["kind"])) for part in columns]
            arrays[side] = _joined(parts)
        phases = {name: to_arrow(values) for name, values in _concatenated([part.phases for part in columns]).items()}
        groups = _joined([(np.array([0, len(each)]), each.astype(np.int32)) for each in members])
        tables = {
            "operations": pa.Table.from_arrays(
                [arrays[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA
            ),
            "phases": pa.Table.from_arrays([phases[name] for name in PHASES_SCHEMA.names], schema=PHASES_SCHEMA),
            "regions": pa.Table.from_arrays([text_array(list(self.regions))], schema=REGIONS_SCHEMA),
            "communicators": pa.Table.from_arrays([groups], schema=COMMUNICATORS_SCHEMA),
        }
        return Workload(_trace_name(self.path), self.num_ranks, tables, tuple(notes), NAME)

    def _groups(self, operations: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[Note]]:
        """(members of all communicators, notes); sets the communicator of collectives."""
        rows = np.flatnonzero(operations["kind"] >= OperationKind.barrier)
        parts = [self.ranks[rank] for rank in range(self.num_ranks)]

        def place(row: int) -> str:
            rank = int(operations["rank"][row])
            number = np.searchsorted(rows, row) - np.searchsorted(operations["rank"][rows], rank)
            return f"{parts[rank].file}:{parts[rank].collective_lines[number]}"

        open_end = next((rank for rank, part in enumerate(parts) if not part.ends), -1)
        cut = f"rank {open_end} ends without finalize" if open_end >= 0 else ""
        counts = np.concatenate([part.num_counts() for part in parts])
        found = ti_groups.settle(operations, counts, self.num_ranks, self.unequal_collectives, place, cut)
        if found is None:
            return [np.arange(self.num_ranks)], []
        first = np.searchsorted(operations["rank"], np.arange(self.num_ranks))
        for row in rows[found.unlisted].tolist():
            rank = int(operations["rank"][row])
            for counted in (parts[rank].send_counts, parts[rank].receive_counts):
                counted.pop(row - int(first[rank]), None)
        operations["communicator_id"][rows] = found.communicator
        return found.members, found.notes

    def _notes(self, operations: dict[str, np.ndarray]) -> list[Note]:
        """Settle what only all ranks together can tell, and say what the format could not record."""
        kind = operations["kind"]
        notes: list[Note] = []
        if np.any(kind >= OperationKind.barrier):
            notes.append(COLLECTIVES_NOTE)
        found = null_receives.settle(operations, is_cut=self.without_finalize > 0)
        notes += found.notes
        if found.anybody:
            text = (
                f"{found.anybody} receives from any source: the real source is not recorded, the first message to "
                "arrive in simulated time is taken"
            )
            notes.append(changes("any-source-first-arrival", text, count=found.anybody))
        for what, which in (
            ("waitall operations do not record their requests: each covers those that no later wait names", kind == 12),
            ("waitany operations do not record their request: the first to complete is taken", kind == 13),
        ):
            number = int(np.count_nonzero(which))
            if number:
                notes.append(changes("waits-guessed", f"{number} {what}", count=number))
        if self.never_completed:
            text = (
                f"{self.never_completed} requests are completed by no recorded operation (MPI_Waitsome is not "
                "recorded): nobody waits for them"
            )
            notes.append(changes("waits-missing", text, count=self.never_completed, errs=Errs.short))
        if self.tests_taken_as_waits:
            text = f"{self.tests_taken_as_waits} tests must have completed their request: replayed as waits"
            notes.append(informs("tests-as-waits", text, count=self.tests_taken_as_waits))
        if self.without_finalize:
            text = f"{self.without_finalize} ranks end without finalize: the trace may be cut short"
            notes.append(changes("no-finalize", text, count=self.without_finalize))
        return notes


def _words(line: bytes) -> list[str]:
    """The words of a line as the tokeniser parts them: any byte up to the blank is one."""
    return [word.decode(errors="replace") for word in re.split(rb"[\x00-\x20]+", line) if word]


def _region_keys(tokens: Tokens, lines: np.ndarray) -> np.ndarray:
    first = tokens.field_offsets[:-1][lines]
    name, line = tokens.values[first].view(np.uint64), tokens.values[first + 1].view(np.uint64)
    return name ^ (line * np.uint64(0x9E3779B97F4A7C15))


def _list_lines(content: bytes) -> list[tuple[int, str]]:
    """The lines of a list that are not blank, with their numbers from 1."""
    lines = content.decode(errors="replace").split("\n")
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def _concatenated(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The columns of all ranks, one after another, and the rank of each row."""
    names = list(parts[0])
    sizes = [len(part[names[0]]) for part in parts]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return whole | {"rank": np.repeat(np.arange(len(parts), dtype=np.int32), sizes)}


def _no_lists(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(to_arrow(np.zeros(count + 1, np.int32)), to_arrow(np.empty(0, np.int64)))


def _ragged(rows: dict[int, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.zeros(count, np.int64)
    for row, values in rows.items():
        lengths[row] = len(values)
    ordered = [rows[row] for row in sorted(rows)]
    return np.concatenate(([0], np.cumsum(lengths))), np.concatenate(ordered) if ordered else np.empty(0, np.int64)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> pa.Array:
    """One list array from (offsets, values) of consecutive row groups."""
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in parts])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    if offsets[-1] > 2**31 - 1:
        raise UserError("the trace lists more than 2^31 requests or counts; split it")
    values = np.concatenate([values for _, values in parts])
    return pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32)), to_arrow(values))


def _trace_name(path: Path) -> str:
    name = path.name.split(".")[0]
    return path.resolve().parent.name if name in ("trace", "ti", "") else name
