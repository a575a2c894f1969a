"""The detailed level of a trace: what ``runner/tracers/native/coverage.c`` recorded, as tables and a stream on disk.

The chunks of each process are read one after the other; memory is bounded by a chunk. What a callback meant comes from
the program's files (``runner/readers/binaries/blocks.py``), which must be where they were, and as they were, when it
ran.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.detail_tables import TASK_STACKS_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.binaries.blocks import Blocks
from manyscale.runner.readers.binaries.regions import Ends
from manyscale.runner.readers.raw_trace import frames
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.task_events import FRAMES
from manyscale.runner.readers.stores.detail_store import DetailStore, DetailWriter, unpack_local

_HEAD: Final = struct.Struct("<II")  # marks, sites
_MARK: Final = np.dtype(
    [("position", "<u4"), ("kind", "<u4"), ("num_operations", "<u4"), ("num_events", "<u4"), ("task", "<u4")]
)
_IS_SITE: Final = 0x80000000
_ADDRESS: Final = (1 << 56) - 1


def build(
    processes: Sequence[Process], store: Path, counting: Path | None = None
) -> tuple[dict[str, pa.Table], DetailStore, list[Note]]:
    """(tables ``blocks``, ``instructions``, ``block_accesses``, ``segments``, ``task_stacks``; the stream, written to
    ``store``; notes).

    ``operation_id`` and ``event_id`` of the segments count the process's own records of calls and events.
    ``counting``: the program built for counting instructions, or a folder of such programs and libraries. Raises
    UserError where nothing was recorded, where the program's files are missing or were changed, and for damaged chunks.
    """
    blocks = Blocks(counting)
    writer = DetailWriter(store)
    programs = [_Program(process, blocks) for process in processes]
    if not any(program.ranges for program in programs):
        raise UserError(
            f"{processes[0].path.parent}: the program has no coverage; compile and link it by clang with what "
            "`manyscale trace --flags detailed` prints"
        )
    blocks.check_counting()
    notes: list[Note] = []
    for program in programs:
        _Stream(program, blocks, writer).read()
        if not program.process.is_finished and program.process.stopped == "":
            text = "its last blocks and accesses, up to half a million, are lost"
            notes.append(changes("accesses-missing", text, f"rank {program.process.rank}", errs=Errs.short))
    tables, static_notes = blocks.tables()
    segments, detail = writer.close()
    return (
        {**tables, "segments": segments, "task_stacks": task_stacks(processes, segments)},
        detail,
        [*notes, *static_notes],
    )


def task_stacks(processes: Sequence[Process], segments: pa.Table) -> pa.Table:
    """The table ``task_stacks``, of task instances that have segments. O(records of events)."""
    rank_of, task_of = (segments.column(name).to_numpy() for name in ("rank", "task_instance_id"))
    rows = []
    for process in sorted(processes, key=lambda each: each.rank):
        low = next((int(each["stack"]) for each in process.definitions if "stack" in each), None)
        if low is None:
            continue
        records = process.events[process.events["kind"] == FRAMES]
        records = records[np.isin(records["extra"], task_of[rank_of == process.rank])]
        records = records[np.argsort(records["extra"], kind="stable")]
        below = records["value"].astype(np.int64)
        rows.append(np.stack([np.full(len(below), process.rank), records["extra"], np.full(len(below), low), below]))
    columns = np.concatenate(rows, axis=1) if rows else np.zeros((4, 0), np.int64)
    arrays = [
        to_arrow(column.astype(kind.type.to_pandas_dtype()))
        for column, kind in zip(columns, TASK_STACKS_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=TASK_STACKS_SCHEMA)


@dataclass(frozen=True)
class _Range:
    """Blocks [first, first + number), counted from 1 in the process, are those of a module."""

    first: int
    number: int
    module: int


class _Program:
    """Where a process had its modules. ``ranges``: blocks by number; ``places``: (first address, end, module or -1,
    what to take off an address)."""

    def __init__(self, process: Process, blocks: Blocks) -> None:
        self.process = process
        loaded = {}
        for each in process.definitions:
            if "module" in each:
                loaded[str(each["module"])] = int(each["base"]), int(each["low"]), int(each["high"])
        guards = [each for each in process.definitions if "guards" in each]
        self.ranges: list[_Range] = []
        self.places: list[tuple[int, int, int, int]] = []
        for each in guards:
            path = _holding(loaded, int(each["guards"]))
            if path is None:
                raise UserError(
                    f"{process.path}: coverage at {each['guards']:#x} is in no module; trace the program again"
                )
            module = blocks.add_module(Path(path))
            number = len(blocks.modules[module].elf.blocks)
            if number != int(each["number"]):
                raise UserError(
                    f"{path}: has {number} basic blocks, but had {each['number']} when it was traced; trace it again"
                )
            self.ranges.append(_Range(int(each["first"]), number, module))
            base, low, high = loaded[path]
            self.places.append((base + low, base + high, module, base))


def _holding(loaded: dict[str, tuple[int, int, int]], address: int) -> str | None:
    return next((path for path, (base, low, high) in loaded.items() if base + low <= address < base + high), None)


@dataclass
class _State:
    """What one chunk leaves to the next: the stack of frames, the open execution and what it accessed."""

    stack: np.ndarray = field(default_factory=lambda: np.zeros((1024, 2), np.int64))
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(frames.NUM_STATE, np.int64))
    hashes: np.ndarray = field(default_factory=lambda: np.full(1, frames.HASH_START, np.uint64))
    addresses: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    sites: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    num_instructions: int = 0  # of the segment so far

    def __post_init__(self) -> None:
        self.numbers[frames.OPEN] = -1


class _Stream:
    """One process's chunks, turned into segments."""

    def __init__(self, program: _Program, blocks: Blocks, writer: DetailWriter) -> None:
        self._program, self._blocks, self._writer = program, blocks, writer
        self._state = _State()
        self._sites: dict[int, tuple[int, int]] = {}  # (site, part) by what the chunk says of it
        self._parts = np.empty((0, frames.NUM_COLUMNS), np.int64)
        self._part_hash = np.empty(0, np.uint64)
        self._max_parts = 1
        self._last = np.zeros(1, _MARK)[0]

    def read(self) -> None:
        for number, content in enumerate(self._program.process.detail_chunks()):
            self._read_chunk(content, number)
        end = np.zeros(1, _MARK)  # what was recorded when the process was killed or tracing was stopped
        end["num_operations"], end["num_events"] = self._last["num_operations"], self._last["num_events"]
        end["task"] = self._last["task"]
        nothing = np.empty(0, np.int32)
        self._follow(nothing, nothing, nothing, nothing, end, np.empty(0, np.uint64))

    def _read_chunk(self, content: bytes, number: int) -> None:
        path = self._program.process.path
        if len(content) < _HEAD.size:
            raise UserError(f"{path}: chunk {number} of the detailed level is damaged; trace the program again")
        num_marks, num_sites = _HEAD.unpack_from(content)
        at = _HEAD.size + num_marks * _MARK.itemsize
        unpacked = unpack_local(content[at + 8 * num_sites :]) if len(content) >= at + 8 * num_sites else None
        if unpacked is None:
            raise UserError(f"{path}: chunk {number} of the detailed level is damaged; trace the program again")
        marks = np.frombuffer(content, _MARK, num_marks, _HEAD.size)
        sites = np.frombuffer(content, "<u8", num_sites, at)
        dictionary, _, events, addresses = unpacked
        self._follow(events, *self._meanings(dictionary, sites), marks, addresses)
        if num_marks:
            self._last = marks[-1]

    def _meanings(self, dictionary: np.ndarray, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(kind, part, site) of each word of a chunk's dictionary."""
        kinds = np.full(len(dictionary), frames.NOTHING, np.int32)
        part = np.full(len(dictionary), -1, np.int32)
        site = np.full(len(dictionary), -1, np.int32)
        is_site = dictionary >= _IS_SITE
        for each in self._program.ranges:
            inside = ~is_site & (dictionary >= each.first) & (dictionary < each.first + each.number)
            index = dictionary[inside].astype(np.int64) - each.first
            module = self._blocks.modules[each.module]
            self._blocks.require(each.module, index)
            part[inside] = module.first_part[index]
            entry = (module.elf.flags[index] & 1) == 1
            kinds[inside] = np.where(entry, frames.ENTERS, frames.BEGINS)
        for word in np.flatnonzero(is_site).tolist():
            value = int(sites[int(dictionary[word]) - _IS_SITE])
            found = self._sites.get(value)
            if found is None:
                found = self._sites[value] = self._site(value & _ADDRESS, value >> 56)
            kinds[word] = frames.ACCESSES_MEMORY
            site[word], part[word] = found
        self._take_parts()
        return kinds, part, site

    def _site(self, address: int, kind: int) -> tuple[int, int]:
        for first, end, module, base in self._program.places:
            if first <= address < end:
                self._blocks.require_address(module, address - base)
                return self._blocks.site(module, address - base, bool(kind & 1), 1 << (kind >> 1))
        raise UserError(
            f"{self._program.process.path}: an access at {address:#x} is in no module with coverage; trace it again"
        )

    def _take_parts(self) -> None:
        """Rows for the parts that have been added since."""
        known, parts = len(self._parts), self._blocks.parts
        if len(parts) == known:
            return
        rows = np.zeros((len(parts) - known, frames.NUM_COLUMNS), np.int64)
        hashes = np.zeros(len(rows), np.uint64)
        for row, (block, function, part) in enumerate(parts[known:]):
            callee = part.callee if isinstance(part.callee, int) else -1
            is_last = known + row + 1 == len(parts) or parts[known + row + 1][0] != block
            goes_on = is_last and part.ends == Ends.jumps
            rows[row] = len(part.accesses), int(part.ends), callee, function, block, is_last, goes_on
            hashes[row] = frames.hash_of(self._blocks.part_sites[known + row])
        self._parts = np.concatenate([self._parts, rows])
        self._part_hash = np.concatenate([self._part_hash, hashes])
        self._max_parts = int(np.bincount(self._parts[:, frames.BLOCK]).max())

    def _follow(
        self,
        events: np.ndarray,
        kinds: np.ndarray,
        event_part: np.ndarray,
        event_site: np.ndarray,
        marks: np.ndarray,
        addresses: np.ndarray,
    ) -> None:
        """Execute a chunk's events and hand the executions on."""
        state, numbers = self._state, self._state.numbers
        numbers[frames.OUT] = numbers[frames.MARK] = 0
        room = len(events) + 1024
        out: list[np.ndarray] = [np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.uint64)]
        mark_out = np.zeros(len(marks), np.int64)
        position, kind = marks["position"].astype(np.int64), marks["kind"].astype(np.int64)
        at = 0
        while True:
            at = frames.execute(
                at, events, kinds, event_part, event_site, position, kind, self._parts, self._max_parts, state.stack,
                numbers, state.hashes, *out, mark_out,
            )  # fmt: skip
            if at == len(events):
                break
            if numbers[frames.DEPTH] + 1 >= len(state.stack):
                state.stack = np.concatenate([state.stack, np.zeros_like(state.stack)])
            need = numbers[frames.OUT] + (numbers[frames.DEPTH] + 4) * self._max_parts
            out = [np.concatenate([each, np.empty(max(need, len(each)), each.dtype)]) for each in out]
        num_out = int(numbers[frames.OUT])
        part, counts, hashes = (each[:num_out] for each in out)
        if len(marks) and numbers[frames.MARK] != len(marks):
            raise UserError(f"{self._program.process.path}: a mark of the detailed level is damaged; trace it again")
        addresses = np.concatenate([state.addresses, addresses])
        num_closed = int(counts.sum(dtype=np.int64))
        rows = np.array(self._blocks.part_row, np.int32)[part]
        irregular = np.flatnonzero(hashes != self._part_hash[part])
        if len(irregular):
            made = event_site[events][kinds[events] == frames.ACCESSES_MEMORY]
            rows[irregular] = self._variants(irregular, part, counts, hashes, np.concatenate([state.sites, made]))
        open_sites = np.empty(len(addresses) - num_closed, np.int32)
        missing = frames.last_sites(events, kinds, event_site, open_sites)
        open_sites[:missing] = state.sites[:missing]  # an execution that was open before, and still is
        state.addresses, state.sites = addresses[num_closed:].copy(), open_sites
        self._write(rows, counts, addresses[:num_closed], marks, mark_out)

    def _variants(
        self, irregular: np.ndarray, part: np.ndarray, counts: np.ndarray, hashes: np.ndarray, sites: np.ndarray
    ) -> np.ndarray:
        """Rows of the table of blocks for executions whose accesses are not those of their part."""
        ends = np.cumsum(counts, dtype=np.int64)
        keys = np.empty(len(irregular), [("part", "i8"), ("hash", "u8")])
        keys["part"], keys["hash"] = part[irregular], hashes[irregular]
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        rows = []
        for index in irregular[first].tolist():
            made = sites[ends[index] - counts[index] : ends[index]]
            rows.append(self._blocks.variant(int(part[index]), tuple(made.tolist())))
        return np.array(rows, np.int32)[group.reshape(-1)]

    def _write(
        self, block_ids: np.ndarray, counts: np.ndarray, addresses: np.ndarray, marks: np.ndarray, ends: np.ndarray
    ) -> None:
        """Hand executions to the writer; at each mark a segment ends, unless nothing was executed in it."""
        rank = self._program.process.rank
        instructions = np.concatenate(([0], np.cumsum(self._blocks.num_instructions[block_ids])))
        before = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        total = instructions[ends] - instructions[before]
        if len(total):
            total[0] += self._state.num_instructions
            self._state.num_instructions = 0
        self._state.num_instructions += int(instructions[-1] - instructions[ends[-1] if len(ends) else 0])
        values = np.zeros((len(marks), 6), np.int64)
        values[:, 0], values[:, 5] = rank, total
        for column, name in ((2, "num_operations"), (3, "num_events"), (4, "task")):
            values[:, column] = marks[name]
        self._writer.add_segments(block_ids, counts, addresses, ends, values)
