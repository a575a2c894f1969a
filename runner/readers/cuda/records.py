"""A launch's record, from the tracer's bytes (native/sass.h has their layout) to blocks, some million instructions at a
time: a file, or what a program sends while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np

from manyscale.models.workload.instruction_details import InstructionCounts
from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.layout import BLOCK_COLUMNS, DIVERGED
from manyscale.runner.readers.stores.launch_store import Blocks
from manyscale.runner.readers.stores.operation_words import WORDS

BATCH_INSTRUCTIONS: Final = 1 << 20
BATCH_BLOCKS: Final = 1 << 16
COUNTED, RECORDED, LAST, WITH_WORDS = range(4)  # kinds of heads
HEAD: Final = np.dtype(
    [("kind", "<u4"), ("warps", "<u4"), ("instructions", "<u4"), ("accesses", "<u4"), ("number", "<u8"),
     ("warp_instructions", "<u8"), ("thread_instructions", "<u8"), ("requests", "<u8")]
)  # fmt: skip
_ROW_COUNTS: Final = 24
_COLUMNS: Final = tuple(name for _, name, _ in BLOCK_COLUMNS)
_BYTES: Final = tuple(sum(kind.itemsize for of, _, kind in BLOCK_COLUMNS if of == each) for each in range(3))


@dataclass(frozen=True)
class BlockBatch:
    """Consecutive blocks: ``head`` HEAD[blocks] of all of them, and ``whole``, those that were recorded whole."""

    head: np.ndarray
    whole: Blocks


@dataclass
class LaunchRecord:
    """Reads the record of a launch whose kernel has ``rows`` static instructions; ``place`` for errors. When all
    batches were taken: ``is_ended``, whether the record has its end (a program that was killed leaves none);
    ``is_stopped``; ``cluster``, its blocks along each dimension; ``counts`` of rows, by blocks of which only
    counts are recorded."""

    stream: IO[bytes]
    place: str
    rows: int
    is_ended: bool = False
    is_stopped: bool = False
    warp_instructions: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    counts: InstructionCounts = field(init=False)
    _position: int = 0
    _start: int = 0  # of the block that is read

    def batches(self) -> Iterator[BlockBatch]:
        """At most so many instructions or one block. Raises UserError with the offset of a block that is cut or does
        not hold together."""
        heads: list[np.ndarray] = []
        columns: dict[str, list[np.ndarray]] = {name: [] for name in (*_COLUMNS, *WORDS)}
        warps: list[int] = []
        instructions = 0
        while (head := self._head()) is not None and head["kind"] != LAST:
            if heads and (instructions + int(head["instructions"]) > BATCH_INSTRUCTIONS or len(heads) == BATCH_BLOCKS):
                yield _batch(heads, warps, columns)
                heads, warps, instructions = [], [], 0
                columns = {name: [] for name in columns}
            heads.append(head)
            if head["kind"] in (RECORDED, WITH_WORDS):
                self._add_block(head, columns)
                self._add_words(head, columns)
                warps.append(int(head["warps"]))
                instructions += int(head["instructions"])
        if heads:
            yield _batch(heads, warps, columns)
        if head is not None:
            self._end(head)

    def _head(self) -> np.ndarray | None:
        """None where there is nothing more."""
        content = self.stream.read(HEAD.itemsize)
        self._start = self._position
        self._position += len(content)
        if not content:
            return None
        head: np.ndarray = np.frombuffer(content, HEAD)[0] if len(content) == HEAD.itemsize else np.zeros((), HEAD)
        if len(content) < HEAD.itemsize or head["kind"] > WITH_WORDS:
            raise self._damaged("is cut")
        return head

    def _add_block(self, head: np.ndarray, columns: dict[str, list[np.ndarray]]) -> None:
        counts = (int(head["warps"]), int(head["instructions"]), int(head["accesses"]))
        size = sum(count * each for count, each in zip(counts, _BYTES, strict=True))
        content = self._read(size)
        at = 0
        for of, name, kind in BLOCK_COLUMNS:
            end = at + counts[of] * kind.itemsize
            columns[name].append(np.frombuffer(content[at:end], kind))
            at = end
        self._check(head, counts, {name: columns[name][-1] for name in _COLUMNS})

    def _add_words(self, head: np.ndarray, columns: dict[str, list[np.ndarray]]) -> None:
        """Of asynchronous operations; a block without has none."""
        counts = np.zeros(int(head["warps"]), np.int32)
        words = np.zeros(0, np.int64)
        if head["kind"] == WITH_WORDS:
            counts = np.frombuffer(self._read(counts.nbytes), "<i4")
            if len(counts) and counts.min() < 0:
                raise self._damaged("does not hold together")
            words = np.frombuffer(self._read(8 * int(counts.sum(dtype=np.int64))), "<i8")
        columns["warp_words"].append(counts)
        columns["words"].append(words)

    def _read(self, size: int) -> memoryview:
        """Raises UserError where there is less."""
        parts = []
        left = size
        while left and (part := self.stream.read(min(left, 1 << 26))):
            parts.append(part)
            left -= len(part)
        self._position += size - left
        if left:
            raise self._damaged("is cut")
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def _check(self, head: np.ndarray, counts: tuple[int, int, int], block: dict[str, np.ndarray]) -> None:
        row = block["instruction"]
        is_whole = (
            int(block["warp_instructions"].sum(dtype=np.int64)) == counts[1]
            and int(block["warp_accesses"].sum(dtype=np.int64)) == counts[2]
            and (int(head["warp_instructions"]), int(head["requests"])) == counts[1:]
            and int((block["active"] & ~np.uint8(DIVERGED)).sum(dtype=np.int64)) == head["thread_instructions"]
            and (not len(row) or (int(row.min()) >= 0 and int(row.max()) < self.rows))
        )
        if not is_whole:
            raise self._damaged("does not hold together")

    def _end(self, head: np.ndarray) -> None:
        self.is_ended, self.is_stopped = True, bool(head["instructions"])
        shape = int(head["number"])
        self.cluster = (max(1, shape & 0xFFFF), max(1, shape >> 16 & 0xFFFF), max(1, shape >> 32 & 0xFFFF))
        self.warp_instructions = int(head["warp_instructions"])
        found = np.frombuffer(self._read(_ROW_COUNTS * int(head["accesses"])), "<u8").astype(np.int64)
        columns = found.reshape(-1, 3).T
        if columns[:, self.rows :].any():
            raise self._damaged("does not hold together")
        executed, threads, diverged = columns[:, : self.rows]
        self.counts = InstructionCounts.of_rows(self.rows, executed, threads, diverged)

    def _damaged(self, what: str) -> UserError:
        return UserError(f"{self.place}: byte {self._start}: the record of a block {what}; trace the program again")


def _batch(heads: list[np.ndarray], warps: list[int], columns: dict[str, list[np.ndarray]]) -> BlockBatch:
    kinds: dict[str, Any] = {name: kind for _, name, kind in BLOCK_COLUMNS} | WORDS
    joined: dict[str, Any] = {
        name: np.concatenate(columns[name]) if columns[name] else np.zeros(0, kind) for name, kind in kinds.items()
    }
    active = joined.pop("active")
    whole = Blocks(
        np.array(warps, np.int64), **joined, active=active & ~np.uint8(DIVERGED), diverged=active >= DIVERGED
    )
    return BlockBatch(np.array(heads, HEAD), whole)
