"""The part of a workload that is one rank's: what a work unit on that rank needs, small enough to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload import SCHEMAS, Workload, table_digest

_BY_RANK = (
    "operations", "phases", "events", "tasks", "task_dependences", "loops", "loop_chunks", "iterations", "segments",
    "task_stacks", "page_faults",
)  # fmt: skip
_STATIC = ("communicators", "regions", "task_types")
_INSTRUCTIONS = ("blocks", "instructions", "block_accesses", "unseen_accesses")


@dataclass(frozen=True)
class RankPart:
    """``workload`` has the rows of ``rank`` alone and, where they were asked for, the static tables of the detailed
    level; it has no stream. ``first_segment``: which row of the whole workload its first row of ``segments`` is (rows
    of other ranks may lie between)."""

    rank: int
    workload: Workload
    first_segment: int

    @cached_property
    def digest(self) -> str:
        tables = self.workload.tables
        levels = (*_BY_RANK, "task_types", *_INSTRUCTIONS)
        digests = " ".join(table_digest(tables[level]) for level in levels if tables[level].num_rows)
        return f"{self.rank} {self.first_segment} {digests}"

    def __reduce__(self) -> Any:
        # a slice of an Arrow table would take all of the table's memory along
        sent = {level: _serialised(table) for level, table in self.workload.tables.items() if table.num_rows}
        return _received, (self.rank, self.first_segment, self.workload.name, self.workload.num_ranks, sent)


def rank_part(workload: Workload, rank: int, *, instructions: bool = False) -> RankPart:
    """The part of ``rank``, without copying. ``instructions``: with the static tables of the detailed level."""
    tables = {level: workload.tables[level] for level in (*_STATIC, *(_INSTRUCTIONS if instructions else ()))}
    first_segment = 0
    for level in _BY_RANK:
        if level == "segments":  # in the order in which the run executed them
            mine = np.flatnonzero(workload.column(level, "rank") == rank)
            first, end = (int(mine[0]), int(mine[-1]) + 1) if len(mine) else (0, 0)
            first_segment = first
        else:
            first, end = (int(row) for row in np.searchsorted(workload.column(level, "rank"), [rank, rank + 1]))
        tables[level] = workload.tables[level].slice(first, end - first)
    return RankPart(rank, Workload(workload.name, workload.num_ranks, tables, is_checked=True), first_segment)


def _serialised(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _received(rank: int, first_segment: int, name: str, num_ranks: int, sent: dict[str, bytes]) -> RankPart:
    tables = {level: SCHEMAS[level].empty_table() for level in ("operations", "phases", "regions", "communicators")}
    tables |= {level: pa.ipc.open_stream(stored).read_all() for level, stored in sent.items()}
    return RankPart(rank, Workload(name, num_ranks, tables, is_checked=True), first_segment)
