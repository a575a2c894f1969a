"""The streams of a detailed trace: what one thread of one rank executed and accessed, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from manyscale.models.memory.access_stream import Sites, executions_per_block, sites_of
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import Detail, DetailBatch
from manyscale.runner.errors import UserError

CHUNKS_PER_PIECE = 8  # some millions of accesses: about a second of work


@dataclass(frozen=True)
class Stream:
    """What a thread of a rank executed: of ``detail``, the segments where ``is_mine`` (bool[segments])."""

    rank: int
    thread: int
    detail: Detail
    is_mine: np.ndarray
    num_accesses: int
    num_blocks: int

    @property
    def name(self) -> str:
        return f"rank {self.rank} thread {self.thread}"

    def pieces(self, chunks_per_piece: int = CHUNKS_PER_PIECE) -> list[tuple[int, int]]:
        """Ranges of block executions, in order, that together hold the stream."""
        bounds = self.detail.execution_bounds()
        if len(bounds) < 2:
            return []
        cuts = np.append(bounds[:-1:chunks_per_piece], bounds[-1]).tolist()
        return [(first, end) for first, end in pairwise(cuts) if first < end]

    def read(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """(block ids int32[], addresses uint64[]) of the stream's part of block executions [first, end)."""
        return _part(self.detail.read_executions(first, end), self.is_mine)

    def batches(self, chunks_per_piece: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The whole stream in order, some million accesses at a time."""
        for first, end in self.pieces(chunks_per_piece):
            yield self.read(first, end)

    def executions(self, num_blocks: int) -> np.ndarray:
        """int64[blocks]: how often each block was executed. O(executions)."""
        return executions_per_block((block_ids for block_ids, _ in self.batches()), num_blocks)


def _part(batch: DetailBatch, is_mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    num_segments = len(batch.block_offsets) - 1
    mine = is_mine[batch.first_segment : batch.first_segment + num_segments]
    if mine.all():
        return batch.block_ids, batch.addresses
    blocks = np.repeat(mine, np.diff(batch.block_offsets))
    accesses = np.repeat(mine, np.diff(batch.access_offsets))
    return batch.block_ids[blocks], batch.addresses[accesses]


def streams_of(workload: Workload, place: str) -> tuple[list[Stream], Sites]:
    """All streams of a workload by (rank, thread), and its sites. Raises UserError where it has no detailed level, or
    one without any access."""
    if workload.detail is None:
        raise UserError(
            f"{place}: has no detailed level, which tells what was accessed; record it with manyscale trace --level "
            "detailed -o DIR -- PROGRAM, or give a memory trace (lackey, qemu-trace, drmemtrace, sancov-npz)"
        )
    rank, thread = workload.column("segments", "rank"), workload.column("segments", "thread")
    num_accesses, num_blocks = workload.column("segments", "num_accesses"), workload.column("segments", "num_blocks")
    if not num_accesses.sum():
        raise UserError(f"{place}: its detailed level holds no access; trace a region that reads memory")
    found = []
    for mine in sorted(set(zip(rank.tolist(), thread.tolist(), strict=True))):
        is_mine = (rank == mine[0]) & (thread == mine[1])
        counts = int(num_accesses[is_mine].sum()), int(num_blocks[is_mine].sum())
        found.append(Stream(*mine, workload.detail, is_mine, *counts))
    return found, sites_of(workload)
