"""The records of a drmemtrace as a workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import MAX_RANKS, PHASES_SCHEMA, PhaseKind, Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.readers.drmemtrace import files
from manyscale.runner.readers.drmemtrace.calls import Calls
from manyscale.runner.readers.drmemtrace.code import instructions_of, take_encodings
from manyscale.runner.readers.drmemtrace.findings import notes_of
from manyscale.runner.readers.drmemtrace.order import Order, Thread, order
from manyscale.runner.readers.drmemtrace.tables import place_of, tasks_of, time_ps
from manyscale.runner.readers.lackey.lines import INSTRUCTION, LOAD, STORE
from manyscale.runner.readers.lackey.reader import Code, Records, executions
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.detail_store import DetailStore
from manyscale.runner.readers.stores.traced_blocks import ScratchStream, TracedBlocks, block_table

NAME: Final = "drmemtrace"
_IS_INSTRUCTION: Final = np.isin(
    np.arange(files.INVALID + 1),
    (*range(files.INSTRUCTION, files.BUNDLE), files.NO_FETCH, files.MAYBE_FETCH, files.SYSENTER, files.TAKEN,
     files.UNTAKEN),
)  # fmt: skip
_MOST_BYTES: Final = 4096  # of an access
_MOST_THREADS: Final = 1 << 16


@dataclass
class _Thread:
    """One thread of a process: its file, what it was told of it, its code and the bytes of its instructions."""

    path: Path
    process: int
    thread: int
    kind: int = 0
    version: int = 0
    code: Code = field(default_factory=Code)
    calls: Calls = field(default_factory=Calls)
    is_ended: bool = False
    num_unsized: int = 0  # accesses of the file without a size

    def see(self, records: np.ndarray) -> None:
        """Take in records of the thread, in their order. Blocks end at system calls, where threads are cut."""
        cuts = self.calls.see(records, _is_instruction(records))
        kept = _is_kept(records)
        kinds, addresses, sizes = _accesses(records, kept)
        bounds = np.cumsum(kept)[cuts].tolist()
        for first, end in zip([0, *bounds], [*bounds, len(kinds)], strict=True):
            self.code.see(kinds[first:end], addresses[first:end], sizes[first:end])
            if end < len(kinds) or bounds[-1:] == [end]:
                self.code.interrupt()


class _Stream:
    """The records of one thread, taken once from front to back."""

    def __init__(self, thread: _Thread) -> None:
        self._parts = _records(thread.path, thread.thread)
        self._left: Records | None = None

    def take(self, num_instructions: int) -> Iterator[Records]:
        """So many instructions with what they access; all that are left if negative. To be used up before the next."""
        missing = num_instructions
        while missing:
            part = self._left or next(self._parts, None)
            self._left = None
            if part is None:
                return
            if missing > 0:
                places = np.flatnonzero(part[0] == INSTRUCTION)
                if len(places) > missing:
                    cut = int(places[missing])
                    self._left = part[0][cut:], part[1][cut:], part[2][cut:]
                    part = part[0][:cut], part[1][:cut], part[2][:cut]
                missing -= min(len(places), missing)
            yield part


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and record."""
    if path.is_dir() and files.is_raw(path):
        raise UserError(f"{path}: holds the raw files of the tracer; turn them into a trace: drraw2trace -indir {path}")
    paths = files.of_threads(path) if path.is_dir() else [path]
    if not paths and any(path.rglob("*.sz")):
        raise UserError(f"{path}: is packed by snappy (.sz), which is not read; trace it by a newer DynamoRIO")
    if not paths:
        raise UserError(f"{path}: holds no files .trace, .trace.gz or .trace.zip; name the folder that has them")
    threads: list[_Thread] = []
    encodings: dict[int, bytes] = {}
    vectors: set[int] = set()
    for each in paths:
        threads += _threads(each, encodings, vectors)
    if not any(thread.code.num_known for thread in threads):
        raise UserError(f"{path}: holds no instructions; record it by drrun -t drmemtrace -offline")
    threads = sorted((thread for thread in threads if thread.code.num_known), key=lambda one: (one.process, one.thread))
    processes = list(dict.fromkeys(thread.process for thread in threads))
    if len(processes) > MAX_RANKS or len(threads) > _MOST_THREADS:
        raise UserError(f"{path}: holds {len(processes)} processes and {len(threads)} threads; read fewer of its files")
    of_process = {one: [thread for thread in threads if thread.process == one] for one in processes}
    orders = [
        order([Thread(each.thread, each.calls, each.version, bool(each.kind & files.ARM_64)) for each in mine])
        for mine in of_process.values()
    ]
    notes = notes_of(threads, vectors, [each for each in orders if len(each.pieces) > 1], has_encodings=bool(encodings))
    blocks = TracedBlocks()
    segments, store = _stored(list(of_process.values()), orders, blocks, notes)
    computed = [
        {
            "rank": rank, "operation_id": 0, "kind": PhaseKind.compute, "region_id": -1,
            "duration_ps": sum(map(time_ps, found.pieces)),
        }
        for rank, found in enumerate(orders)
    ]  # fmt: skip
    tables: dict[str, pa.Table] = rank_tables(len(processes), {}) | {
        "blocks": block_table(blocks.keys, blocks.num_instructions),
        "instructions": instructions_of(
            blocks, encodings, {thread.kind for thread in threads}, max(vectors, default=0), notes
        ),
        "block_accesses": blocks.accesses(),
        "segments": segments,
        "phases": pa.Table.from_pylist(computed, PHASES_SCHEMA),
        **tasks_of([
            found.pieces if len(mine) > 1 else [] for mine, found in zip(of_process.values(), orders, strict=True)
        ]),
    }  # fmt: skip
    return Workload(path.name.split(".trace")[0], len(processes), tables, tuple(notes), NAME, store)


def _stored(
    ranks: Sequence[Sequence[_Thread]], orders: Sequence[Order], blocks: TracedBlocks, notes: list[Note]
) -> tuple[pa.Table, DetailStore]:
    """The table ``segments`` and what was executed, piece by piece. O(records)."""
    with ScratchStream() as stream:
        for rank, (mine, found) in enumerate(zip(ranks, orders, strict=True)):
            streams = [_Stream(thread) for thread in mine]
            for place, piece in enumerate(found.pieces):
                thread, count = mine[piece.thread], 0
                taken = -1 if piece.end >= thread.calls.num_instructions else piece.end - piece.first
                for part in executions(partial(streams[piece.thread].take, taken), thread.code, notes):
                    ids = blocks.number(part.starts, part.sizes, part.counts, part.attributes)
                    stream.writer.add(ids, part.counts, part.addresses)
                    count += int(part.sizes.sum(dtype=np.int64))
                task, event = place_of(place, len(found.pieces)) if len(mine) > 1 else (-1, -1)
                stream.writer.end_segment(rank, piece.thread, 0, event, task, count)
        return stream.close()


def _threads(path: Path, encodings: dict[int, bytes], vectors: set[int]) -> list[_Thread]:
    """The threads of a file, whose code has been seen. O(records)."""
    found: dict[int, _Thread] = {}
    current = process = 0
    kind, version, at = 0, 0, 0
    pending = b""
    is_ended, num_unsized = False, 0
    for records in files.pieces(path):
        types, sizes, values = records["type"], records["size"], records["value"]
        _check(path, records, at)
        pending = take_encodings(records, _is_instruction(records), encodings, pending)
        version = version if at else int(values[0])
        vectors |= set(values[(types == files.MARKER) & (sizes == files.VECTOR_BYTES)].tolist())
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
        one.process, one.kind, one.version = process, kind, version
        one.is_ended, one.num_unsized = is_ended, num_unsized
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
                yield _accesses(part, _is_kept(part))


def _is_instruction(records: np.ndarray) -> np.ndarray:
    found: np.ndarray = _IS_INSTRUCTION[records["type"]]
    return found


def _is_kept(records: np.ndarray) -> np.ndarray:
    types = records["type"]
    found: np.ndarray = _is_instruction(records) | (types == files.READ) | (types == files.WRITE)
    return found & ~_is_unsized(records)


def _accesses(records: np.ndarray, kept: np.ndarray) -> Records:
    """Instructions, loads and stores as lackey's reader has them. ``kept``: bool[], which records are any."""
    types = records["type"]
    is_instruction = _is_instruction(records)
    kinds = np.where(is_instruction, INSTRUCTION, np.where(types == files.WRITE, STORE, LOAD)).astype(np.uint8)
    addresses = np.ascontiguousarray(records["value"][kept]).view(np.int64)
    return kinds[kept], addresses, records["size"][kept].astype(np.int32)
