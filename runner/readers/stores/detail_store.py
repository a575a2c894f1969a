"""The detailed level's stream on disk: one file of chunks, each decoded by itself, and a table of where segments lie.

A chunk holds whole executions of blocks, as many as fit in a million and in a million accesses, packed as
``detail_columns`` says and compressed by zstd with its checksum; the file ends with the table of chunks and segments,
compressed alike. A copy of the file is a copy of the stream. Memory is bounded by a chunk and by 16 bytes a segment.

The digest is of the packed columns, so that it does not depend on the version of zstd.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import zstandard

from manyscale.models.workload.detail_tables import SEGMENTS_SCHEMA, DetailBatch
from manyscale.runner import limits
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import unpacked
from manyscale.runner.readers.stores import detail_columns as columns
from manyscale.runner.readers.stores.elsewhere import Told

CHUNK_SIZE: Final = 1 << 20  # accesses, and executions of blocks
_LEVEL: Final = 3  # of zstd: higher ones gain a tenth and cost several times as much
_MAGIC: Final = b"MSDETAI1"
_TRAILER: Final = struct.Struct("<QQ8s")  # bytes of the table as stored and as it is
_COUNTS: Final = struct.Struct("<7I")  # of a chunk: blocks, executions, accesses, escapes, strides of 2, 4 and 8 bytes
_TABLE: Final = struct.Struct("<QQ20s")  # chunks, segments, digest
_CHUNK: Final = np.dtype(
    [("offset", "<u8"), ("stored", "<u8"), ("packed", "<u8"), ("executions", "<u4"), ("accesses", "<u4")]
)


class DetailStore(Told):
    """A stream of block executions and accesses in a file (a ``models.detail_tables.Detail``).

    Its methods raise UserError for a file that is damaged, cut short or missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                table = self._read_table(file)
        except OSError as error:
            limits.refuse(error, self.path, "read")
            raise UserError(
                f"{self.path}: cannot be read ({error.strerror or error}); trace the program again"
            ) from None
        num_chunks, num_segments, digest = _TABLE.unpack_from(table)
        if len(table) != _TABLE.size + num_chunks * _CHUNK.itemsize + 16 * num_segments:
            raise self._damaged("its table", "has a wrong length")
        self._digest = str(digest.hex())
        self._chunks = np.frombuffer(table, _CHUNK, num_chunks, _TABLE.size)
        sizes = np.frombuffer(table, "<i8", 2 * num_segments, _TABLE.size + num_chunks * _CHUNK.itemsize)
        self._block_offsets = _offsets(sizes[:num_segments])
        self._access_offsets = _offsets(sizes[num_segments:])
        self._first_execution = _offsets(self._chunks["executions"])
        self._first_access = _offsets(self._chunks["accesses"])
        if self._block_offsets[-1] != self._first_execution[-1] or self._access_offsets[-1] != self._first_access[-1]:
            raise self._damaged("its table", "holds segments that are not the chunks' sum")
        self._kept: tuple[int, np.ndarray, np.ndarray] | None = None  # the chunk decoded last

    def stored(self) -> tuple[Path, str]:
        return self.path, self._digest

    @property
    def digest(self) -> str:
        """Hexadecimal content hash: equal for equal streams."""
        return self._digest

    @property
    def num_segments(self) -> int:
        return len(self._block_offsets) - 1

    @property
    def num_accesses(self) -> int:
        return int(self._access_offsets[-1])

    def copy(self, path: Path) -> DetailStore:
        """The same stream in another file (into a folder: under the same name)."""
        return DetailStore(Path(shutil.copy(self.path, path)))

    def read(self, first_segment: int, end_segment: int) -> DetailBatch:
        """Segments [first_segment, end_segment); whole chunks are decoded."""
        if not 0 <= first_segment <= end_segment <= self.num_segments:
            raise ValueError(f"segments [{first_segment}, {end_segment}) of {self.num_segments}")
        block_offsets = self._block_offsets[first_segment : end_segment + 1]
        access_offsets = self._access_offsets[first_segment : end_segment + 1]
        block_ids = np.empty(block_offsets[-1] - block_offsets[0], np.int32)
        addresses = np.empty(access_offsets[-1] - access_offsets[0], np.uint64)
        if len(block_ids):
            first = int(np.searchsorted(self._first_execution, block_offsets[0], "right")) - 1
            end = int(np.searchsorted(self._first_execution, block_offsets[-1], "left"))
            with self._open() as file:
                for index in range(first, end):
                    content = self._chunk(file, index)
                    _overlap(block_ids, int(block_offsets[0]), content[0], int(self._first_execution[index]))
                    _overlap(addresses, int(access_offsets[0]), content[1], int(self._first_access[index]))
        starts = block_offsets - block_offsets[0], access_offsets - access_offsets[0]
        return DetailBatch(first_segment, *starts, block_ids, addresses)

    def execution_bounds(self) -> np.ndarray:
        """int64[chunks + 1]: the first block execution of every chunk, then the number of all executions."""
        return self._first_execution

    def read_executions(self, first: int, end: int) -> DetailBatch:
        """Block executions [first, end); segments that lie partly outside are cut. Whole chunks are decoded."""
        if not 0 <= first <= end <= self._first_execution[-1]:
            raise ValueError(f"block executions [{first}, {end}) of {self._first_execution[-1]}")
        blocks, addresses, first_access = [np.empty(0, np.int32)], [np.empty(0, np.uint64)], 0
        chunk = int(np.searchsorted(self._first_execution, first, "right")) - 1
        with self._open() as file:
            for index in range(chunk, int(np.searchsorted(self._first_execution, end, "left")) if first < end else 0):
                local, counts, ids, content = self._unpacked(file, index)
                start = int(self._first_execution[index])
                low, high = max(0, first - start), min(len(local), end - start)
                offsets = np.concatenate(([0], np.cumsum(counts[local[:high]], dtype=np.int64)))
                blocks.append(ids[local[low:high]])
                addresses.append(content[offsets[low] : offsets[high]])
                if index == chunk:
                    first_access = int(self._first_access[index] + offsets[low])
        block_ids, accessed = np.concatenate(blocks), np.concatenate(addresses)
        first_segment = max(0, int(np.searchsorted(self._block_offsets, first, "right")) - 1)
        end_segment = int(np.searchsorted(self._block_offsets, end, "left"))
        bounds = slice(first_segment, max(end_segment, first_segment) + 1)
        block_offsets = np.clip(self._block_offsets[bounds] - first, 0, len(block_ids))
        access_offsets = np.clip(self._access_offsets[bounds] - first_access, 0, len(accessed))
        return DetailBatch(first_segment, block_offsets, access_offsets, block_ids, accessed)

    def batches(self, max_accesses: int) -> Iterator[DetailBatch]:
        """The whole stream in order. A batch holds at most ``max_accesses`` accesses, or one segment."""
        first = 0
        while first < self.num_segments:
            limit = self._access_offsets[first] + max_accesses
            end = int(np.searchsorted(self._access_offsets, limit, "right")) - 1
            end = max(first + 1, end)
            yield self.read(first, end)
            first = end

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as error:
            limits.refuse(error, self.path, "read")
            raise UserError(f"{self.path}: cannot be read ({error.strerror or error})") from None

    def _read_table(self, file: IO[bytes]) -> bytes:
        length = file.seek(0, 2)
        if length < len(_MAGIC) + _TRAILER.size:
            raise self._damaged("the file", "is cut short")
        file.seek(0)
        if file.read(len(_MAGIC)) != _MAGIC:
            raise UserError(f"{self.path}: is no stream of a detailed level of this version; trace the program again")
        file.seek(length - _TRAILER.size)
        stored, packed, magic = _TRAILER.unpack(file.read(_TRAILER.size))
        if magic != _MAGIC or stored > length - len(_MAGIC) - _TRAILER.size:
            raise self._damaged("the file", "is cut short")
        file.seek(length - _TRAILER.size - stored)
        return self._decompress(file.read(stored), packed, "its table")

    def _decompress(self, stored: bytes, packed: int, what: str) -> bytes:
        try:
            content = unpacked(stored, packed)
        except zstandard.ZstdError as error:
            raise self._damaged(what, str(error)) from None
        if len(content) != packed:
            raise self._damaged(what, "has a wrong length")
        return content

    def _chunk(self, file: IO[bytes], index: int) -> tuple[np.ndarray, np.ndarray]:
        """Block ids and addresses of a chunk."""
        kept = self._kept
        if kept is not None and kept[0] == index:
            return kept[1], kept[2]
        local, _, ids, addresses = self._unpacked(file, index)
        self._kept = (index, ids[local], addresses)
        return self._kept[1:]

    def _unpacked(self, file: IO[bytes], index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(executions as places among the chunk's blocks, accesses of each of those, their ids, addresses)."""
        chunk, what = self._chunks[index], f"chunk {index}"
        file.seek(int(chunk["offset"]))
        content = self._decompress(file.read(int(chunk["stored"])), int(chunk["packed"]), what)
        taken = unpack_local(content)
        if taken is None or len(taken[2]) != chunk["executions"] or len(taken[3]) != chunk["accesses"]:
            raise self._damaged(what, "its columns do not fit together")
        dictionary, counts, local, addresses = taken
        return local, counts, dictionary.view(np.int32), addresses

    def _damaged(self, what: str, why: str) -> UserError:
        return UserError(f"{self.path}: {what} is damaged ({why}); copy the file or trace the program again")


class DetailWriter:
    """Writes a ``DetailStore``: executions are added to the current segment, which ``end_segment`` ends."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._unfinished = self.path.with_name(self.path.name + ".partial")
        self._file = self._unfinished.open("wb")
        self._file.write(_MAGIC)
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._state = hashlib.blake2b(digest_size=20)
        self._chunks: list[tuple[int, int, int, int, int]] = []
        self._segments: list[np.ndarray] = [np.empty((0, len(SEGMENTS_SCHEMA)), np.int64)]
        self._local = np.full(0, -1, np.int32)
        self._block_ids = np.empty(CHUNK_SIZE, np.int32)
        self._access_counts = np.empty(CHUNK_SIZE, np.int32)
        self._addresses = np.empty(CHUNK_SIZE, np.uint64)
        self._executions = self._accesses = 0  # in the chunk
        self._num_blocks = self._num_accesses = 0  # in the segment

    def add(self, block_ids: np.ndarray, access_counts: np.ndarray, addresses: np.ndarray) -> None:
        """Append executions to the current segment: int32[] blocks, int32[] accesses of each, uint64[] all addresses.

        Raises ValueError for lengths that do not fit, and where a block's number of accesses is not always the same.
        """
        if len(block_ids) != len(access_counts) or len(addresses) != int(access_counts.sum(dtype=np.int64)):
            raise ValueError("blocks, their numbers of accesses and the addresses do not fit together")
        if not len(block_ids):
            return
        if block_ids.min() < 0 or access_counts.min() < 0 or access_counts.max() > CHUNK_SIZE:
            raise ValueError("a negative block or number of accesses, or a block of more accesses than a chunk")
        if block_ids.max() >= len(self._local):
            grown = np.full(2 * int(block_ids.max()) + 1, -1, np.int32)
            grown[: len(self._local)] = self._local
            self._local = grown
        ends = np.cumsum(access_counts, dtype=np.int64)
        first = access = 0
        while first < len(block_ids):
            fits = int(np.searchsorted(ends, access + CHUNK_SIZE - self._accesses, "right"))
            end = min(fits, first + CHUNK_SIZE - self._executions)
            if end == first:
                self._write_chunk()
                continue
            end_access = int(ends[end - 1])
            self._block_ids[self._executions : self._executions + end - first] = block_ids[first:end]
            self._access_counts[self._executions : self._executions + end - first] = access_counts[first:end]
            self._addresses[self._accesses : self._accesses + end_access - access] = addresses[access:end_access]
            self._executions += end - first
            self._accesses += end_access - access
            first, access = end, end_access
        self._num_blocks += len(block_ids)
        self._num_accesses += len(addresses)

    def end_segment(
        self,
        rank: int,
        thread: int,
        operation_id: int,
        event_id: int,
        task_instance_id: int,
        num_instructions: int = -1,
    ) -> None:
        """End the current segment; the values are those of the table ``segments``."""
        values = [rank, thread, operation_id, event_id, task_instance_id, self._num_blocks, self._num_accesses]
        self._segments.append(np.array([[*values, num_instructions]], np.int64))
        self._num_blocks = self._num_accesses = 0

    def add_segments(
        self,
        block_ids: np.ndarray,
        access_counts: np.ndarray,
        addresses: np.ndarray,
        ends: np.ndarray,
        values: np.ndarray,
    ) -> None:
        """Append executions, and end segments before the executions ``ends`` int64[n] (ascending). ``values``
        int64[n, 6]: the arguments of ``end_segment``. Segments without any execution are left out."""
        self.add(block_ids, access_counts, addresses)
        if not len(ends):
            return
        offsets = np.concatenate(([0], np.cumsum(access_counts, dtype=np.int64)))
        rows = np.empty((len(ends), len(SEGMENTS_SCHEMA)), np.int64)
        rows[:, :5], rows[:, 7] = values[:, :5], values[:, 5]
        rows[:, 5] = np.diff(ends, prepend=0)
        rows[:, 6] = np.diff(offsets[ends], prepend=0)
        rows[0, 5] += self._num_blocks - len(block_ids)
        rows[0, 6] += self._num_accesses - len(addresses)
        self._segments.append(rows[rows[:, 5] > 0])
        self._num_blocks = len(block_ids) - int(ends[-1])
        self._num_accesses = len(addresses) - int(offsets[ends[-1]])

    def close(self) -> tuple[pa.Table, DetailStore]:
        """Write the rest; the table ``segments`` and the stream. Raises ValueError if a segment was not ended."""
        if self._num_blocks:
            raise ValueError("the last segment was not ended")
        self._write_chunk()
        values = np.concatenate(self._segments)
        sizes = values[:, 5:7].T.astype("<i8").tobytes()
        self._state.update(sizes)
        chunks = np.array(self._chunks, _CHUNK)
        head = _TABLE.pack(len(chunks), len(values), self._state.digest())
        table = head + chunks.tobytes() + sizes
        stored = self._compressor.compress(table)
        self._file.write(stored + _TRAILER.pack(len(stored), len(table), _MAGIC))
        self._file.close()
        self._unfinished.replace(self.path)
        arrays = [pa.array(values[:, i]).cast(field.type) for i, field in enumerate(SEGMENTS_SCHEMA)]
        return pa.table(arrays, schema=SEGMENTS_SCHEMA), DetailStore(self.path)

    def _write_chunk(self) -> None:
        if not self._executions:
            return
        block_ids, counts = self._block_ids[: self._executions], self._access_counts[: self._executions]
        content = pack(block_ids, counts, self._addresses[: self._accesses], self._local)
        self._state.update(content)
        stored = self._compressor.compress(content)
        self._chunks.append((self._file.tell(), len(stored), len(content), self._executions, self._accesses))
        self._file.write(stored)
        self._executions = self._accesses = 0


def pack(block_ids: np.ndarray, access_counts: np.ndarray, addresses: np.ndarray, local: np.ndarray) -> bytes:
    """A chunk's columns. ``local`` int32[greatest block + 1] is -1 before and after. O(executions + accesses)."""
    dictionary = np.empty(min(len(block_ids), len(local)), np.int32)
    num_blocks = columns.number_blocks(block_ids, local, dictionary, 0)
    dictionary = dictionary[:num_blocks]
    try:
        counts = np.full(num_blocks, -1, np.int32)
        wrong = columns.wrong_count(block_ids, access_counts, local, counts)
        if wrong >= 0:
            raise ValueError(f"block {block_ids[wrong]} has executions with different numbers of accesses")
        symbols = np.zeros((len(block_ids) + 3) // 4, np.uint8)
        escapes = np.empty(len(block_ids), np.uint32)
        num_escapes = columns.pack_blocks(block_ids, local, _no_successors(num_blocks), symbols, escapes)
        places, num_places = columns.places_of(counts)
        address_symbols = np.zeros((len(addresses) + 3) // 4, np.uint8)
        strides = [np.empty(len(addresses), dtype) for dtype in (np.int16, np.int32, np.int64)]
        last = np.zeros((num_places, 2), np.int64)
        used = columns.pack_addresses(block_ids, local, counts, places, last, addresses, address_symbols, *strides)
    finally:
        local[dictionary] = -1
    head = _COUNTS.pack(num_blocks, len(block_ids), len(addresses), num_escapes, *used)
    parts = [dictionary, counts, escapes[:num_escapes], *(each[:n] for each, n in zip(strides, used, strict=True))]
    return b"".join([head, symbols.tobytes(), address_symbols.tobytes(), *(columns.planes(part) for part in parts)])


def unpack(content: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """(int32[] block ids, uint64[] addresses) of a chunk's columns; None where they do not fit together."""
    taken = unpack_local(content)
    if taken is None:
        return None
    dictionary, _, local, addresses = taken
    return dictionary.view(np.int32)[local], addresses


def unpack_local(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """(dictionary uint32[], accesses of each of its blocks int32[], executions int32[] as places in the dictionary,
    addresses uint64[]) of a chunk's columns; None where they do not fit together. O(executions + accesses)."""
    if len(content) < _COUNTS.size:
        return None
    num_blocks, num_executions, num_accesses, num_escapes, *num_strides = _COUNTS.unpack_from(content)
    sizes = [(num_executions + 3) // 4, (num_accesses + 3) // 4, 4 * num_blocks, 4 * num_blocks, 4 * num_escapes]
    sizes += [width * number for width, number in zip(columns.WIDTHS, num_strides, strict=True)]
    if len(content) != _COUNTS.size + sum(sizes):
        return None
    view, parts, at = memoryview(content), [], _COUNTS.size
    for size in sizes:
        parts.append(view[at : at + size])
        at += size
    symbols, address_symbols = (np.frombuffer(part, np.uint8) for part in parts[:2])
    dictionary, counts, escapes = (
        columns.from_planes(part, kind) for part, kind in zip(parts[2:5], ("<u4", "<i4", "<u4"), strict=True)
    )
    strides = [columns.from_planes(part, f"<i{width}") for part, width in zip(parts[5:], columns.WIDTHS, strict=True)]
    executions = np.empty(num_executions, np.int32)
    used = columns.unpack_blocks(symbols, escapes, _no_successors(num_blocks), num_blocks, executions)
    if used != num_escapes or (counts < 0).any() or columns.total(executions, counts) != num_accesses:
        return None
    places, num_places = columns.places_of(counts)
    last = np.zeros((num_places, 2), np.int64)
    addresses = np.empty(num_accesses, np.uint64)
    if not columns.unpack_addresses(executions, counts, places, last, address_symbols, *strides, addresses):
        return None
    return dictionary, counts, executions, addresses


def _no_successors(num_blocks: int) -> np.ndarray:
    return np.full((num_blocks + 1, 2), -1, np.int64)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _overlap(target: np.ndarray, target_start: int, source: np.ndarray, source_start: int) -> None:
    """Copy what two pieces of one sequence have in common."""
    first = max(target_start, source_start)
    end = min(target_start + len(target), source_start + len(source))
    if first < end:
        target[first - target_start : end - target_start] = source[first - source_start : end - source_start]
