"""What one thread of a rank executed in the phases that were traced in detail, as the input of work units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import REQUIRED_LEVELS, SCHEMAS, Workload, table_digest
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.detail_tables import Detail
from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import array_digest
from manyscale.runner.readers.stores import elsewhere
from manyscale.runner.readers.stores.detail_store import DetailStore

UNTIMED: Final = -1  # executed, but in no traced phase
NOT_MINE: Final = -2
_STATIC: Final = ("blocks", "instructions", "block_accesses")
Stretch = tuple[int, np.ndarray, np.ndarray, int]  # piece, block ids int32[], addresses uint64[], block that follows


@dataclass(frozen=True)
class PhaseStream:
    """A stream cut into pieces. ``program``: the static tables alone. ``detail``: the stream, or the file that it is
    in, which workers open themselves. ``chunks`` int64[n, 2]: ranges of block executions in order that hold all of
    this thread's. ``piece`` int32[n]: of the segments from ``first_segment`` on, the number of each one's piece, from
    0, or UNTIMED, or NOT_MINE; later segments are of others."""

    name: str
    program: Workload
    detail: Detail | Path
    detail_digest: str
    chunks: np.ndarray
    first_segment: int
    piece: np.ndarray

    @property
    def num_pieces(self) -> int:
        return int(self.piece.max(initial=-1)) + 1

    @cached_property
    def content(self) -> list[str]:
        """Digests of all that decides what its units result in."""
        static = [table_digest(self.program.tables[level]) for level in _STATIC]
        mine = array_digest(self.chunks, np.array([self.first_segment]), self.piece)
        return [self.detail_digest, *static, mine]

    def open(self) -> Detail:
        """The stream. Raises ValueError, saying what to do, where its file cannot be read here or is another."""
        return opened(self.detail, self.detail_digest)

    def stretches(self, detail: Detail, chunks: Sequence[int]) -> Iterator[Stretch]:
        """What this thread executed in these chunks, in order, cut where the piece changes. The block that
        follows is -1 where the chunk ends. O(executions + accesses)."""
        num_accesses = np.bincount(
            self.program.column("block_accesses", "block_id"), minlength=self.program.tables["blocks"].num_rows
        )
        for chunk in chunks:
            try:
                batch = detail.read_executions(*self.chunks[chunk].tolist())
            except UserError as error:
                raise ValueError(str(error)) from None
            place = batch.first_segment - self.first_segment + np.arange(len(batch.block_offsets) - 1)
            inside = (place >= 0) & (place < len(self.piece))
            piece = np.where(inside, self.piece[np.clip(place, 0, len(self.piece) - 1)], NOT_MINE)
            of_block = np.repeat(piece, np.diff(batch.block_offsets))
            of_access = np.repeat(piece, np.diff(batch.access_offsets))
            block_ids, addresses = batch.block_ids[of_block != NOT_MINE], batch.addresses[of_access != NOT_MINE]
            of_block = of_block[of_block != NOT_MINE]
            if not len(block_ids):
                continue
            ends = np.concatenate(([0], np.cumsum(num_accesses[block_ids])))
            cuts = [0, *(np.flatnonzero(np.diff(of_block)) + 1).tolist(), len(block_ids)]
            for first, end in pairwise(cuts):
                following = int(block_ids[end]) if end < len(block_ids) else -1
                yield int(of_block[first]), block_ids[first:end], addresses[ends[first] : ends[end]], following


def opened(detail: Detail | Path, digest: str) -> Detail:
    """A stream that a work unit was told of, from its file where it is one. Raises ValueError, saying what to do, where
    the file cannot be read here or is another."""
    if not isinstance(detail, Path):
        return detail
    try:
        return elsewhere.opened(DetailStore, detail, digest)
    except UserError as error:
        raise ValueError(str(error)) from None


def streams_by_phase(workload: Workload, of_segment: np.ndarray) -> tuple[list[PhaseStream], list[np.ndarray]]:
    """The streams of all ranks and threads that executed anything in a traced phase, and of each, which piece of the
    workload each of its own is. ``of_segment`` as in ``amm_phases.Pieces``."""
    detail = workload.detail
    if detail is None:
        return [], []
    program = static_program(workload)
    rank, thread = (workload.column("segments", name).astype(np.int64) for name in ("rank", "thread"))
    offsets = np.concatenate(([0], np.cumsum(workload.column("segments", "num_blocks"))))
    stored = detail.path.resolve() if isinstance(detail, DetailStore) else detail
    order = np.lexsort((thread, rank))  # stable: the segments of a thread stay in order
    changes = np.flatnonzero((np.diff(rank[order]) != 0) | (np.diff(thread[order]) != 0)) + 1
    streams, pieces = [], []
    for mine in np.split(order, changes):
        known = np.unique(of_segment[mine][of_segment[mine] >= 0])
        if not len(known):
            continue
        first = int(mine[0])
        piece = np.full(int(mine[-1]) + 1 - first, NOT_MINE, np.int32)
        piece[mine - first] = np.where(of_segment[mine] >= 0, np.searchsorted(known, of_segment[mine]), UNTIMED)
        chunks = _chunks(detail.execution_bounds(), offsets[mine], offsets[mine + 1])
        name = f"phases of rank {rank[first]} thread {thread[first]}"
        streams.append(PhaseStream(name, program, stored, detail.digest, chunks, first, piece))
        pieces.append(known)
    return streams, pieces


def _chunks(bounds: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64[n, 2]: the ranges between neighbours of ``bounds`` that hold anything of [first, end)."""
    first, end = first[first < end], end[first < end]
    opens = np.zeros(len(bounds), np.int64)
    np.add.at(opens, np.searchsorted(bounds, first, "right") - 1, 1)
    np.add.at(opens, np.searchsorted(bounds, end, "left"), -1)
    held = np.cumsum(opens)[:-1] > 0
    return np.stack([bounds[:-1][held], bounds[1:][held]], axis=1)


def static_program(workload: Workload) -> Workload:
    """A workload with the static tables of the detailed level alone: small enough to be sent to every worker.

    Accesses that the trace could ascribe to no instruction of their block are ascribed to its first.
    """
    tables = {level: pa.Table.from_batches([], SCHEMAS[level]) for level in REQUIRED_LEVELS}
    tables |= {level: workload.tables[level] for level in _STATIC}
    accesses = tables["block_accesses"]
    instruction = workload.column("block_accesses", "instruction")
    if (instruction < 0).any():
        place = accesses.schema.get_field_index("instruction")
        values = to_arrow(np.maximum(instruction, 0))
        tables["block_accesses"] = accesses.set_column(place, accesses.schema.field(place), values)
    return replace(workload, num_ranks=1, tables=tables, notes=(), detail=None)
