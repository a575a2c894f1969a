"""The records of a drmemtrace as a workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import MAX_RANKS, PHASES_SCHEMA, PhaseKind, Workload
from manyscale.models.workload.detail_tables import INSTRUCTIONS_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes, forbids
from manyscale.models.workload.task_tables import EVENTS_SCHEMA, TASK_TYPES_SCHEMA, TASKS_SCHEMA, EventKind, TaskFlag
from manyscale.runner.errors import UserError
from manyscale.runner.readers.drmemtrace import files
from manyscale.runner.readers.lackey.lines import INSTRUCTION, LOAD, STORE
from manyscale.runner.readers.lackey.reader import Code, Records, executions
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.qemu_trace.reader import instructions_table
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.traced_blocks import ScratchStream, TracedBlocks, block_table

NAME: Final = "drmemtrace"
_IS_INSTRUCTION: Final = np.isin(
    np.arange(files.INVALID + 1),
    (*range(files.INSTRUCTION, files.BUNDLE), files.NO_FETCH, files.MAYBE_FETCH, files.SYSENTER, files.TAKEN,
     files.UNTAKEN),
)  # fmt: skip
_MOST_BYTES: Final = 4096  # of an access
_MOST_THREADS: Final = 1 << 16
_PS_PER_US: Final = 1_000_000
_MOST_US: Final = 86_400 * 10**6


@dataclass
class _Thread:
    """One thread of a process: its file, what it was told of it, its code and the bytes of its instructions."""

    path: Path
    process: int
    thread: int
    kind: int = 0
    code: Code = field(default_factory=Code)
    is_ended: bool = False
    num_unsized: int = 0  # accesses of the file without a size
    first_us: int = -1  # what its clock showed first and last
    last_us: int = -1

    @property
    def time_ps(self) -> int:
        """Between the first and the last time that the tracer wrote down; up to a day."""
        return min(max(self.last_us - self.first_us, 0), _MOST_US) * _PS_PER_US

    def see(self, records: np.ndarray) -> None:
        """Take in records of the thread, in their order."""
        self.code.see(*_accesses(records))
        is_time = (records["type"] == files.MARKER) & (records["size"] == files.TIMESTAMP)
        times = records["value"][is_time]
        if len(times):
            self.first_us = int(times[0]) if self.first_us < 0 else self.first_us
            self.last_us = int(times[-1])


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and record."""
    if path.is_dir() and files.is_raw(path):
        raise UserError(f"{path}: holds the raw files of the tracer; turn them into a trace: drraw2trace -indir {path}")
    paths = files.of_threads(path) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path}: holds no files .trace, .trace.gz or .trace.zip; name the folder that has them")
    threads: list[_Thread] = []
    encodings: dict[int, bytes] = {}
    for each in paths:
        threads += _threads(each, encodings)
    if not any(thread.code.num_known for thread in threads):
        raise UserError(f"{path}: holds no instructions; record it by drrun -t drmemtrace -offline")
    threads = sorted((thread for thread in threads if thread.code.num_known), key=lambda one: (one.process, one.thread))
    processes = list(dict.fromkeys(thread.process for thread in threads))
    if len(processes) > MAX_RANKS or len(threads) > _MOST_THREADS:
        raise UserError(f"{path}: holds {len(processes)} processes and {len(threads)} threads; read fewer of its files")
    notes = _notes(threads, has_encodings=bool(encodings))
    blocks = TracedBlocks()
    of_process = {one: [thread for thread in threads if thread.process == one] for one in processes}
    with ScratchStream() as stream:
        for rank, process in enumerate(processes):
            mine = of_process[process]
            for number, thread in enumerate(mine):
                count = 0
                for part in executions(partial(_records, thread.path, thread.thread), thread.code, notes):
                    ids = blocks.number(part.starts, part.sizes, part.counts, part.attributes)
                    stream.writer.add(ids, part.counts, part.addresses)
                    count += int(part.sizes.sum(dtype=np.int64))
                task, event = (number + 1, len(mine) + 2 + 2 * number) if len(mine) > 1 else (-1, -1)
                stream.writer.end_segment(rank, number, 0, event, task, count)
        segments, store = stream.close()
    times = [[thread.time_ps for thread in of_process[process]] for process in processes]
    computed = [
        {"rank": rank, "operation_id": 0, "kind": PhaseKind.compute, "region_id": -1, "duration_ps": sum(each)}
        for rank, each in enumerate(times)
    ]
    tables: dict[str, pa.Table] = rank_tables(len(processes), {}) | {
        "blocks": block_table(blocks.keys, blocks.num_instructions),
        "instructions": _instructions(blocks, encodings, threads, notes),
        "block_accesses": blocks.accesses(),
        "segments": segments,
        "phases": pa.Table.from_pylist(computed, PHASES_SCHEMA),
        **_tasks(times),
    }
    return Workload(path.name.split(".trace")[0], len(processes), tables, tuple(notes), NAME, store)


def _threads(path: Path, encodings: dict[int, bytes]) -> list[_Thread]:
    """The threads of a file, whose code has been seen. O(records)."""
    found: dict[int, _Thread] = {}
    current = process = 0
    kind, at = 0, 0
    pending = b""
    is_ended, num_unsized = False, 0
    for records in files.pieces(path):
        types, sizes, values = records["type"], records["size"], records["value"]
        _check(path, records, at)
        pending = _take_encodings(records, encodings, pending)
        kinds = values[(types == files.MARKER) & (sizes == files.FILE_TYPE)]
        kind = int(kinds[0]) if len(kinds) and not kind else kind
        if kind & files.OF_32_BITS:
            raise UserError(f"{path}: is of a program of 32 bits; only those of 64 bits can be read")
        if kind & files.NOT_OF_THREADS:
            raise UserError(f"{path}: is of cores, a whole system or system calls; name the traces of threads")
        num_unsized += int(np.count_nonzero(_is_unsized(records)))
        is_ended |= bool(np.any(types == files.FOOTER))
        processes = values[types == files.PROCESS]
        process = int(processes[0]) if len(processes) and not process else process
        for owner, part in _by_thread(records, current):
            current = owner
            if current not in found:
                if len(found) >= _MOST_THREADS:
                    raise UserError(f"{path}: holds more than {_MOST_THREADS} threads; it is damaged, copy it again")
                found[current] = _Thread(path, process, current)
            found[current].see(part)
        at += len(records)
    for one in found.values():
        one.process, one.kind, one.is_ended, one.num_unsized = process, kind, is_ended, num_unsized
    return list(found.values())


def _check(path: Path, records: np.ndarray, at: int) -> None:
    types, sizes = records["type"], records["size"]
    unknown = (types >= files.INVALID) | (types == files.BUNDLE)
    wrong_size = ((types == files.READ) | (types == files.WRITE)) & (sizes > _MOST_BYTES)
    wrong_size |= (types < files.INVALID) & _IS_INSTRUCTION[np.minimum(types, files.INVALID)] & (sizes > 15)
    wrong = np.flatnonzero(unknown | wrong_size)
    if len(wrong):
        row = int(wrong[0])
        raise UserError(
            f"{path}: record {at + row}: type {types[row]} with size {sizes[row]} is none of an offline trace; copy it "
            "again"
        )


def _is_unsized(records: np.ndarray) -> np.ndarray:
    """bool[records]: loads and stores of which DynamoRIO does not know how much they access (as of xsave)."""
    found: np.ndarray = (records["type"] <= files.WRITE) & (records["size"] == 0)
    return found


def _by_thread(records: np.ndarray, current: int) -> Iterator[tuple[int, np.ndarray]]:
    """(thread, its records) of each stretch between switches, in order; ``current``: the thread of the first one."""
    switches = np.flatnonzero(records["type"] == files.THREAD)
    bounds = [0, *switches.tolist(), len(records)]
    owners = [current, *(int(each) for each in records["value"][switches])]
    for owner, first, end in zip(owners, bounds[:-1], bounds[1:], strict=True):
        if end > first:
            yield owner, records[first:end]


def _records(path: Path, thread: int) -> Iterator[Records]:
    """Those of one thread of the file."""
    current = 0
    for records in files.pieces(path):
        for owner, part in _by_thread(records, current):
            current = owner
            if current == thread:
                yield _accesses(part)


def _accesses(records: np.ndarray) -> Records:
    """Instructions, loads and stores as lackey's reader has them."""
    types = records["type"]
    is_instruction = _IS_INSTRUCTION[types]
    kept = is_instruction | (types == files.READ) | (types == files.WRITE)
    kept &= ~_is_unsized(records)
    kinds = np.where(is_instruction, INSTRUCTION, np.where(types == files.WRITE, STORE, LOAD)).astype(np.uint8)
    addresses = np.ascontiguousarray(records["value"][kept]).view(np.int64)
    return kinds[kept], addresses, records["size"][kept].astype(np.int32)


def _take_encodings(records: np.ndarray, encodings: dict[int, bytes], pending: bytes) -> bytes:
    """Keep the bytes of instructions that stand before them, and return those of one whose record is in the next
    piece. O(records with bytes)."""
    instruction = np.flatnonzero(_IS_INSTRUCTION[records["type"]])
    encoding = np.flatnonzero(records["type"] == files.ENCODING)
    owner = np.searchsorted(instruction, encoding).tolist()
    of = 0  # the instruction that ``pending`` is of
    for row, follows in zip([*encoding.tolist(), -1], [*owner, len(instruction)], strict=True):
        if pending and follows > of:
            one = records[instruction[of]]
            encodings[int(one["value"])], pending = pending[: int(one["size"])], b""
        of = follows
        if row >= 0:
            pending += int(records["value"][row]).to_bytes(8, "little")[: min(int(records["size"][row]), 8)]
    return pending


def _instructions(
    blocks: TracedBlocks, encodings: dict[int, bytes], threads: list[_Thread], notes: list[Note]
) -> pa.Table:
    """The table ``instructions``, of code whose bytes are known."""
    kinds = {thread.kind for thread in threads}
    if not encodings or not _is_decoded(kinds):
        return INSTRUCTIONS_SCHEMA.empty_table()
    is_arm = any(kind & files.ARM_64 for kind in kinds)
    codes, missing = [], 0
    starts = blocks.keys
    for start, count in zip(starts.tolist(), blocks.num_instructions.tolist(), strict=True):
        parts, at = [], start
        for _ in range(count):
            code = encodings.get(at & (1 << 64) - 1, b"")
            if not code:
                missing += 1
                break
            parts.append(code)
            at += len(code)
        codes.append(b"".join(parts))
    if missing:
        text = f"the bytes of instructions of {missing} blocks are not in the trace"
        notes.append(changes("instructions-unknown", text, count=missing, errs=Errs.short))
    return instructions_table(codes, starts, notes, is_arm=is_arm)


def _is_decoded(kinds: set[int]) -> bool:
    """Whether all code is x86-64's, or all AArch64's."""
    return not any(kind & files.SYNTHETIC for kind in kinds) and any(
        all(kind & machine for kind in kinds) for machine in (files.X86_64, files.ARM_64)
    )


def _tasks(times_ps: list[list[int]]) -> dict[str, pa.Table]:
    """A task instance for each thread of a process that has several. ``times_ps`` of the threads of each."""
    if max(map(len, times_ps)) < 2:
        return {}
    events: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for rank, times in enumerate(times_ps):
        count = len(times) if len(times) > 1 else 0
        wait = EventKind.taskwait_begin, EventKind.taskwait_end
        rows = [(EventKind.task_create, 0, each, 0) for each in range(1, count + 1)]
        rows += [(wait[0], 0, -1, -1)] if count else []
        for each in range(1, count + 1):
            rows += [(EventKind.task_begin, 0, each, 0), (EventKind.task_end, each, 0, 0)]
        rows += [(wait[1], 0, -1, -1)] if count else []
        events += [
            {
                "rank": rank, "operation_id": 0, "kind": int(kind), "task_instance_id": running, "task_type_id": of,
                "value": value, "cpu_ps": times[running - 1] if running else 0,
            }
            for kind, running, value, of in rows
        ]  # fmt: skip
        tasks += [
            {
                "rank": rank, "task_instance_id": each, "parent_id": 0 if each else -1,
                "task_type_id": 0 if each else -1, "operation_id": 0,
                "flags": 0 if each else int(TaskFlag.initial), "cpu_ps": times[each - 1] if each else 0,
            }
            for each in range(count + 1)
        ]  # fmt: skip
    kind = {"construct": "task", "function": "thread", "file": "", "line": 0, "module": "", "offset": -1}
    return {
        "task_types": pa.Table.from_pylist([kind], TASK_TYPES_SCHEMA),
        "events": pa.Table.from_pylist(events, EVENTS_SCHEMA),
        "tasks": pa.Table.from_pylist(tasks, TASKS_SCHEMA),
    }


def _notes(threads: list[_Thread], *, has_encodings: bool) -> list[Note]:
    text = "times are of the run that recorded accesses, many times slower than the program by itself, waits and all"
    notes = [changes("times-of-instrumented-run", text, errs=Errs.long)]
    kinds = {thread.kind for thread in threads}
    if any(kind & files.FILTERED for kind in kinds):
        text = "what hits a small cache was left out when it was recorded (filtered)"
        notes.append(forbids("trace-filtered", text, errs=Errs.short))
    if any(kind & files.INSTRUCTIONS_ONLY for kind in kinds):
        notes.append(changes("accesses-missing", "loads and stores were not recorded", errs=Errs.short))
    unsized = sum({thread.path: thread.num_unsized for thread in threads}.values())
    if unsized:
        text = f"{unsized} accesses without a size (xsave and its kin) are left out"
        notes.append(changes("accesses-missing", text, count=unsized, errs=Errs.short))
    cut = [thread for thread in threads if not thread.is_ended]
    if cut:
        text = f"{len(cut)} files have no end: the trace was cut short"
        notes.append(changes("trace-cut", text, cut[0].path.name, len(cut), Errs.short))
    if not has_encodings or not _is_decoded(kinds):
        text = "the trace has no bytes of its code (version 4 or later has): classes and registers are not known"
        notes.append(changes("instructions-unknown", text, errs=Errs.short))
    processes = [thread.process for thread in threads]
    several = len(threads) - len(set(processes))
    if several:
        text = "threads do not wait for each other: the trace does not say where they do"
        notes.append(changes("thread-waits-unknown", text, count=len(threads), errs=Errs.short))
    return notes
