"""Ranks that traces hold of a run of many: all states of 65,536 ranks are more than any viewer opens.

Of more than MOST_RANKS, those that the study's key ``timeline.ranks`` names, or MOST_CHOSEN: first those on which the
critical path spends most time, then those that compute longest, and the others in equal distances. What is left out
stands in the tables of ``timeline/``, and the page shows all ranks together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import COLLECTIVES, NO_RANK, Workload
from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.runner.predict.node.options import MOST_RANKS_IN_TRACES
from manyscale.runner.run.critical_path import time_by_rank
from manyscale.runner.run.results import Result, compute_of_ranks

MOST_RANKS: Final = MOST_RANKS_IN_TRACES
MOST_CHOSEN: Final = 256
_OF_PATH: Final = 64
_LONGEST: Final = 32
_OF_RANKS: Final = ("cores", "core_calls", "task_instances", "gpu_streams")  # tables by rank that traces draw
_KEPT: Final = ("regions", "communicators")


@dataclass(frozen=True)
class Chosen:
    """``ranks`` int64[], ascending, and ``words`` that say which of how many they are."""

    ranks: np.ndarray
    words: str


def chosen_ranks(result: Result) -> Chosen | None:
    """The ranks that traces hold; None: all. O(states)."""
    num_ranks = result.workload.num_ranks
    if num_ranks <= MOST_RANKS:
        return None
    wanted: Any = (result.resolved.get("timeline") or {}).get("ranks")
    if wanted:
        ranks = np.unique(wanted).astype(np.int64)
        return Chosen(ranks, f"{len(ranks):,} of {num_ranks:,} ranks: those of the study's key timeline.ranks")
    on_path = (
        np.zeros(num_ranks, np.int64) if result.critical_path is None else time_by_rank(result.critical_path, num_ranks)
    )
    path = _longest(on_path, _OF_PATH)
    slowest = _longest(compute_of_ranks(result.ranks, num_ranks), _LONGEST)
    first = np.union1d(path, slowest)
    others = np.setdiff1d(np.arange(num_ranks), first)
    count = MOST_CHOSEN - len(first)
    ranks = np.union1d(first, others[np.arange(count) * len(others) // count])
    words = (
        f"{len(ranks)} of {num_ranks:,} ranks: {len(path)} on which the critical path is longest, {len(slowest)} that "
        "compute longest, the others in equal distances; the study's key timeline.ranks names others"
    )
    return Chosen(ranks, words)


def _longest(time: np.ndarray, most: int) -> np.ndarray:
    """The ranks that have most time, those without any left out; of equal ones the lower."""
    order = np.argsort(-time, kind="stable")[:most]
    return order[time[order] > 0]


def of_ranks(result: Result, ranks: np.ndarray) -> Result:
    """A result with what these ranks do and what they send each other: rank numbers as they were, ranks that are left
    out without operations. Operations of messages from or to other ranks have no peer, and messages new numbers. Tables
    that traces do not draw are left out. O(operations of the ranks)."""
    workload = result.workload
    known = np.zeros(workload.num_ranks + 1, np.bool_)  # the last for what is no rank
    known[ranks] = True
    row_of, wanted = to_numpy(result.ranks.column("rank")), ranks.astype(np.int32)
    spans = np.stack([np.searchsorted(row_of, wanted, side) for side in ("left", "right")], axis=1)
    tables = {
        name: _rows(table, np.flatnonzero(known[to_numpy(table.column("rank"))]))
        for name in _OF_RANKS
        if (table := getattr(result, name)) is not None
    }
    return replace(
        result, workload=_workload_of(workload, ranks, known), ranks=_slices(result.ranks, spans),
        messages=_messages_of(result.messages, known), **tables,
    )  # fmt: skip


def _workload_of(workload: Workload, ranks: np.ndarray, known: np.ndarray) -> Workload:
    tables = {level: workload.tables[level] for level in _KEPT}
    for level, offsets in (("operations", workload.rank_offsets), ("phases", workload.phase_offsets)):
        tables[level] = _slices(workload.tables[level], np.stack((offsets[ranks], offsets[ranks + 1]), axis=1))
    operations = tables["operations"]
    is_collective = to_numpy(operations.column("kind")) >= COLLECTIVES.start  # whose peer is a root
    for name in ("peer", "source"):
        values = to_numpy(operations.column(name))
        inside = is_collective | (values < 0) | known[values]
        at = operations.schema.get_field_index(name)
        column = to_arrow(np.where(inside, values, np.int32(NO_RANK)))
        tables["operations"] = tables["operations"].set_column(at, operations.schema.field(at), column)
    return Workload(workload.name, workload.num_ranks, tables, workload.notes, workload.source_format, is_checked=True)


def _messages_of(messages: pa.Table, known: np.ndarray) -> pa.Table:
    """Those between known ranks, numbered anew."""
    found = _rows(messages, np.flatnonzero(_between(messages, known)))
    at = found.schema.get_field_index("message_id")
    return found.set_column(at, found.schema.field(at), to_arrow(np.arange(found.num_rows, dtype=np.int64)))


def _between(messages: pa.Table, known: np.ndarray) -> np.ndarray:
    """bool[messages]: whether both sides are known."""
    return np.asarray(known[to_numpy(messages.column("source"))] & known[to_numpy(messages.column("destination"))])


def _rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    return table.take(to_arrow(rows))


def _slices(table: pa.Table, spans: np.ndarray) -> pa.Table:
    """Spans of rows, behind one another, as one chunk."""
    return pa.concat_tables([table.slice(first, end - first) for first, end in spans.tolist()]).combine_chunks()
