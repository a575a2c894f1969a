"""The files that manyscale's own tracer leaves, one pair per process (``runner/tracers/native/trace.c``).

``NAME.trace`` is a sequence of chunks, each of one stream, compressed by zstd or as it is. ``NAME.tail`` holds what the
process had not yet written when it ended; a process that ended as it should has none. ``trace.json`` says what was run.
A chunk that is cut short by a kill is left out; what is damaged in any other way is refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import zstandard

from manyscale.models.workload import MAX_RANKS
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import unpacked
from manyscale.runner.readers.raw_trace import threads
from manyscale.runner.readers.raw_trace.header import READABLE, VERSION

# the structures of trace.h
OPERATION: Final = np.dtype(
    [
        ("call", "<u2"), ("flags", "<u2"), ("communicator", "<i4"), ("peer", "<i4"), ("source", "<i4"), ("tag", "<i4"),
        ("receive_tag", "<i4"), ("request", "<i4"), ("num_lists", "<u4"), ("bytes", "<i8"), ("receive_bytes", "<i8"),
        ("start_ns", "<u8"), ("end_ns", "<u8"), ("cpu_ns", "<u8"), ("process_ns", "<u8"), ("longest_ns", "<u8"),
        ("elapsed_ns", "<u8"), ("num_events", "<u4"), ("region", "<i4"),
    ]
)  # fmt: skip
_NOT_IN_1: Final = ("process_ns", "longest_ns", "elapsed_ns")
_OPERATION_1: Final = np.dtype([(name, OPERATION[name]) for name in OPERATION.names or () if name not in _NOT_IN_1])
EVENT: Final = np.dtype(
    [("kind", "<u2"), ("flags", "<u2"), ("num_operations", "<u4"), ("task", "<u4"), ("extra", "<u4"), ("value", "<i8"),
     ("cpu_ns", "<u8")]
)  # fmt: skip

DEFINITIONS, OPERATIONS, LISTS, EVENTS, DETAIL, THREAD_OPERATIONS, THREAD_LISTS, COUNTS = range(8)
_CHUNK = struct.Struct("<IHHQQ")
_CHUNK_MAGIC = 0x4B43534D
_TAIL = struct.Struct("<8sIIQ8Q8Q")
_TAIL_MAGIC = b"MSTAIL1\0"
_MAX_CHUNK = 1 << 32
RUNNING, FINISHED, STOPPED = range(3)


@dataclass(frozen=True)
class Chunk:
    """Where a chunk's content stands in its file."""

    stream: int
    codec: int
    offset: int
    raw_bytes: int
    stored_bytes: int


_MOST_NS: Final = MOST_PS // 1000
_NUMBERS: Final = (  # of definitions, and their ranges
    ("rank", 0, MAX_RANKS - 1), ("size", 1, MAX_RANKS), ("clock_offset_ns", -bounds.MOST, bounds.MOST),
    ("end_ns", -bounds.MOST, bounds.MOST), ("level", 0, 255), ("other_threads", 0, bounds.MOST),
    ("forks", 0, bounds.MOST), ("rest_cpu_ns", 0, _MOST_NS), ("rest_process_ns", 0, _MOST_NS),
    ("rest_longest_ns", 0, _MOST_NS), ("rest_elapsed_ns", 0, _MOST_NS),
    ("rest_count", 0, bounds.MOST), ("error", 0, 4095),
)  # fmt: skip


@dataclass(frozen=True)
class Process:
    """What one process recorded. ``rank`` is 0 and ``size`` 1 where it never initialised MPI (``library`` is empty).

    ``is_finished``: the process ended as it should. ``stopped``: why its tracer stopped before it did, or empty.
    """

    path: Path
    definitions: list[dict[str, Any]]
    is_finished: bool
    chunks: tuple[Chunk, ...]
    tail: dict[int, bytes] = field(repr=False)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return next((each for each in self.definitions if "rank" in each), {"rank": 0, "size": 1, "library": ""})

    @property
    def name(self) -> str:
        """File name without its ending."""
        return self.path.name.removesuffix(".trace")

    @property
    def rank(self) -> int:
        return int(self._identity["rank"])

    @property
    def size(self) -> int:
        return int(self._identity["size"])

    @property
    def library(self) -> str:
        return str(self._identity["library"])

    @property
    def is_of_mpi(self) -> bool:
        """Whether it initialised MPI; others may be ranks of NCCL alone."""
        return bool(self.library) and not self.library.startswith("NCCL")

    @property
    def stopped(self) -> str:
        return next((str(each["stopped"]) for each in self.definitions if "stopped" in each), "")

    @cached_property
    def start(self) -> dict[str, Any]:
        """The first definition: process, host, level, clock offset."""
        return self.definitions[0]

    @cached_property
    def end(self) -> dict[str, Any]:
        """The last definition of a process that ended as it should, else empty."""
        return next((each for each in self.definitions if "end" in each), {})

    @property
    def operations(self) -> np.ndarray:
        """Records of MPI calls (dtype OPERATION), in order."""
        return self._merged.operations

    @property
    def lists(self) -> np.ndarray:
        """int64[]: values of the operations' lists, in order."""
        return self._merged.lists

    @property
    def num_thread_calls(self) -> int:
        """MPI calls of other threads than the first: recorded, but in ``operations`` only if ``is_merged``."""
        return int(np.count_nonzero((self._thread_records.operations["flags"] & threads.UNFINISHED) == 0))

    @property
    def is_merged(self) -> bool:
        """Whether ``operations`` are those of several threads."""
        return self._merged is not self._own

    @cached_property
    def _merged(self) -> threads.Records:
        if not self.num_thread_calls or len(self.events):
            return self._own  # events are of the first thread, told by its operations
        calls = [name for each in self.definitions for name in each.get("calls", ())]
        return threads.merged(self._own, self._thread_records, calls)

    @cached_property
    def _own(self) -> threads.Records:
        return self._records(OPERATIONS, LISTS)

    @cached_property
    def _thread_records(self) -> threads.Records:
        return self._records(THREAD_OPERATIONS, THREAD_LISTS)

    def _records(self, operations: int, lists: int) -> threads.Records:
        dtype = OPERATION if self.has_times else _OPERATION_1
        records = np.frombuffer(self._stream(operations, dtype.itemsize), dtype)
        values = np.frombuffer(self._stream(lists, 8), np.dtype("<i8"))
        if self.has_times:
            return threads.Records(records, values)
        widened = np.zeros(len(records), OPERATION)
        for name in _OPERATION_1.names or ():
            widened[name] = records[name]
        for name in _NOT_IN_1:
            widened[name] = records["cpu_ns"]
        return threads.Records(widened, values)

    @property
    def has_times(self) -> bool:
        """Whether it knows what other threads did (those of version 1 do not)."""
        return int(self.start["trace"]) > 1

    @cached_property
    def events(self) -> np.ndarray:
        """Records of the runtime system's events (dtype EVENT), in order."""
        return np.frombuffer(self._stream(EVENTS, EVENT.itemsize), EVENT)

    @cached_property
    def counter_names(self) -> tuple[str, ...]:
        """Of what was read at MPI calls, and perhaps at events. Raises UserError for a damaged definition."""
        found = next((each["counters"] for each in self.definitions if "counters" in each), ())
        if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
            raise UserError(f"{self.path}: the definition of counters is no list of names; trace the program again")
        return tuple(found)

    @cached_property
    def event_counts(self) -> np.ndarray:
        """int64[events of the workload's table, counters]: increase before each since the event or call before it, -1
        where that is not known. No rows where counters were not read at events."""
        content = np.frombuffer(self._stream(COUNTS, 8), np.dtype("<i8"))
        if len(content) and (not self.counter_names or len(content) % len(self.counter_names)):
            raise UserError(f"{self.path}: stream {COUNTS} ends inside a record; the trace is damaged, trace again")
        return content.reshape(-1, max(len(self.counter_names), 1))

    def detail_chunks(self) -> Iterator[bytes]:
        """The detailed level's chunks one after the other, decompressed."""
        with self.path.open("rb") as file:
            for chunk in self.chunks:
                if chunk.stream == DETAIL:
                    yield _content(self.path, file, chunk)

    def _stream(self, stream: int, item_bytes: int) -> bytes:
        content = _stream(self.path, self.chunks, self.tail, stream)
        if len(content) % item_bytes:
            raise UserError(f"{self.path}: stream {stream} ends inside a record; the trace is damaged, trace again")
        return content


def read_processes(directory: Path) -> list[Process]:
    """All processes of a trace, by rank and then by name. Raises UserError for damaged files or none at all."""
    processes = [_read_process(path) for path in sorted(directory.glob("*.trace"))]
    if not processes:
        raise UserError(f"{directory}: no process was traced; is the program dynamically linked, and did it start?")
    return sorted(processes, key=lambda process: (process.rank, process.name))


def _read_process(path: Path) -> Process:
    tail, state, flushed = _read_tail(path.with_suffix(".tail"))
    chunks = tuple(_scan_chunks(path, flushed, tail))
    try:
        text = _stream(path, chunks, tail, DEFINITIONS).decode()
        definitions = [json.loads(line) for line in text.splitlines()]
        _hold_to_range(definitions, path)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: a definition is damaged ({error}); trace the program again") from None
    if not definitions or definitions[0].get("trace") not in READABLE:
        raise UserError(f"{path}: does not begin with a definition of version {VERSION}; trace the program again")
    sizes = definitions[0].get("operation_bytes"), definitions[0].get("event_bytes")
    if sizes != ((OPERATION if definitions[0]["trace"] > 1 else _OPERATION_1).itemsize, EVENT.itemsize):
        raise UserError(f"{path}: records of {sizes} bytes are not those of this version; trace the program again")
    return Process(path, definitions, state == FINISHED, chunks, tail)


def _hold_to_range(definitions: list[Any], path: Path) -> None:
    """Refuses definitions that lack what every process says of itself, or say it with numbers that cannot be."""
    if not all(isinstance(each, dict) for each in definitions):
        raise ValueError("it is no mapping of keys")
    for each in definitions:
        for key, least, most in _NUMBERS:
            if key in each:
                each[key] = bounds.whole(each[key], path, f"the definition of {key}", least, most)
        if "rank" in each and not {"size", "library"} <= set(each):
            raise ValueError("a rank without its size and its library")
    if definitions and not {"host", "clock_offset_ns"} <= set(definitions[0]):
        raise ValueError("the first one names no host and clock_offset_ns")


def _read_tail(path: Path) -> tuple[dict[int, bytes], int, int | None]:
    """Content per stream, state, and the length of the trace file that counts (None: all of it)."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, FINISHED, None
    if len(content) < _TAIL.size or content[:8] != _TAIL_MAGIC:
        raise UserError(f"{path}: is no tail of a trace; remove it or trace the program again")
    _, version, state, flushed, *numbers = _TAIL.unpack_from(content)
    if version not in READABLE:
        raise UserError(f"{path}: version {version} is not {VERSION}; trace the program again")
    used, offsets = numbers[:8], numbers[8:]
    streams = {}
    for stream in range(COUNTS + 1):
        if offsets[stream] + used[stream] > len(content):
            raise UserError(f"{path}: is cut short; trace the program again")
        streams[stream] = content[offsets[stream] : offsets[stream] + used[stream]]
    return streams, state, flushed


def _scan_chunks(path: Path, flushed: int | None, tail: dict[int, bytes]) -> Iterator[Chunk]:
    """Chunks of a file, their content unread. One beyond ``flushed`` was being written when the process was killed: it
    counts if it is whole and its buffer was given up."""
    length = path.stat().st_size
    offset = 0
    with path.open("rb") as file:
        while offset < length:
            beyond = flushed is not None and offset >= flushed
            file.seek(offset)
            head = file.read(_CHUNK.size)
            if len(head) == _CHUNK.size:
                magic, stream, codec, raw_bytes, stored_bytes = _CHUNK.unpack(head)
                if magic != _CHUNK_MAGIC or stream > COUNTS or codec > 1 or raw_bytes > _MAX_CHUNK:
                    raise UserError(f"{path}: byte {offset}: no chunk begins here; the file is damaged, trace again")
            if len(head) < _CHUNK.size or offset + _CHUNK.size + stored_bytes > length:
                if flushed is None:
                    raise UserError(f"{path}: byte {offset}: the file is cut short; trace the program again")
                return
            if not beyond or not tail.get(stream):
                yield Chunk(stream, codec, offset + _CHUNK.size, raw_bytes, stored_bytes)
            offset += _CHUNK.size + stored_bytes


def _stream(path: Path, chunks: tuple[Chunk, ...], tail: dict[int, bytes], stream: int) -> bytes:
    with path.open("rb") as file:
        parts = [_content(path, file, chunk) for chunk in chunks if chunk.stream == stream]
    return b"".join([*parts, tail.get(stream, b"")])


def _content(path: Path, file: Any, chunk: Chunk) -> bytes:
    file.seek(chunk.offset)
    stored = file.read(chunk.stored_bytes)
    if chunk.codec == 0:
        return bytes(stored)
    try:
        content = unpacked(stored, chunk.raw_bytes)
    except zstandard.ZstdError as error:
        raise UserError(f"{path}: byte {chunk.offset}: the chunk is damaged ({error}); trace again") from None
    if len(content) != chunk.raw_bytes:
        raise UserError(f"{path}: byte {chunk.offset}: the chunk has {len(content)} bytes, not {chunk.raw_bytes}")
    return content
