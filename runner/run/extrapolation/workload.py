"""A workload for another number of ranks, made from a trace: ranks take after traced ones of the same boundary class.

A new rank has the operations of one traced rank of its class (the most frequent sequence; of equally frequent ones
that of the lowest rank), with its partners moved along (run/extrapolation/neighbours.py), and the compute phases of the
traced rank at the same share of the way between the boundaries, so that differences between ranks stay. Rank 0 takes
after rank 0. Collectives of the world are those of all new ranks; sizes for each member are filled with the mean of the
traced ones. Sizes and durations are multiplied by the caller's ratios.

Assumptions: the number of operations of a rank follows from its class alone; the longest of many ranks is no longer
than the longest traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine.storage import accesses
from manyscale.models.workload import COLLECTIVES, NO_RANK, RECEIVES, SCHEMAS, SENDS, OperationKind, PhaseKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Note
from manyscale.runner.run.extrapolation.neighbours import Pattern, PatternError

MOST_COUNTS: Final = 2**27  # sizes for each member, of all collectives together: 1 GiB
_COUNTS: Final = ("send_counts", "receive_counts")
_SENDRECV: Final = int(OperationKind.sendrecv)
_REDUCE_SCATTER: Final = (int(OperationKind.reduce_scatter), int(OperationKind.ireduce_scatter))


@dataclass(frozen=True)
class Ratios:
    """What the template's rows are multiplied with: ``phases`` float64[phases], ``sent`` and ``received``
    float64[operations]."""

    phases: np.ndarray
    sent: np.ndarray
    received: np.ndarray

    @classmethod
    def ones(cls, workload: Workload) -> Ratios:
        """Everything as traced."""
        one = np.ones(workload.num_operations)
        return cls(np.ones(workload.tables["phases"].num_rows), one, one)


@dataclass(frozen=True)
class Extrapolated:
    """The workload; ``phase_rows``: the template's phase behind each of its phases; ``num_other``: ranks of the
    template whose operations differ from what their class was given."""

    workload: Workload
    phase_rows: np.ndarray
    num_other: int


def steps_of(workload: Workload, pattern: Pattern) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per operation: whether ``peer`` is a partner, its steps int64[n, 3]; the same for ``source``."""
    kind, rank, peer, source = (workload.column("operations", name) for name in ("kind", "rank", "peer", "source"))
    has_peer = np.isin(kind, SENDS + RECEIVES) & (peer >= 0)
    has_source = (kind == _SENDRECV) & (source >= 0)
    rank = rank.astype(np.int64)
    steps, source_steps = np.zeros((2, len(kind), 3), np.int64)
    steps[has_peer] = pattern.steps(rank[has_peer], peer[has_peer].astype(np.int64))
    source_steps[has_source] = pattern.steps(rank[has_source], source[has_source].astype(np.int64))
    return has_peer, steps, has_source, source_steps


def extrapolate_workload(
    template: Workload, pattern: Pattern, larger: Pattern, ratios: Ratios, name: str, notes: tuple[Note, ...] = ()
) -> Extrapolated:
    """The template's application on the ranks of ``larger``, which ``pattern.resized`` made.

    Raises PatternError for communicators or roots whose like on other ranks is not known, or sizes beyond MOST_COUNTS.
    O(operations of the template and of the result).
    """
    _refuse_communicators(template)
    moves = steps_of(template, pattern)
    models, operations_of, num_other = _models(template, pattern, larger, moves)
    rows, new_rank = _rows(template.rank_offsets, operations_of)
    operations = _operations(template, larger, ratios, rows, new_rank, moves)
    phase_rows, phase_rank = _rows(template.phase_offsets, models)
    phases = template.tables["phases"]
    duration, phase_kind = template.column("phases", "duration_ps"), template.column("phases", "kind")
    scaled = np.where(phase_kind == int(PhaseKind.compute), np.rint(duration * ratios.phases), duration).astype(
        np.int64
    )
    everyone = pa.array([np.arange(larger.num_ranks)], SCHEMAS["communicators"].field("members").type)
    tables = {
        "operations": operations,
        "phases": _table("phases", phases, {"rank": phase_rank, "duration_ps": scaled[phase_rows]}, phase_rows),
        "regions": template.tables["regions"],
        "communicators": pa.table(
            [pa.concat_arrays([everyone] * template.tables["communicators"].num_rows)], SCHEMAS["communicators"]
        ),
    }
    workload = Workload(name, larger.num_ranks, tables, (*notes, *template.notes), "extrapolated")
    return Extrapolated(workload, phase_rows, num_other)


def _table(level: str, table: pa.Table, replaced: Mapping[str, object], rows: np.ndarray) -> pa.Table:
    taken = to_arrow(rows)
    columns = []
    for field in SCHEMAS[level]:
        value = replaced.get(field.name)
        if isinstance(value, np.ndarray):
            columns.append(to_arrow(value.astype(field.type.to_pandas_dtype())))
        else:
            columns.append(value if value is not None else table.column(field.name).take(taken))
    return pa.table(columns, schema=SCHEMAS[level])


def _rows(offsets: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of these ranks, one after the other, and which of them (0, 1, ...) each belongs to."""
    lengths = (offsets[ranks + 1] - offsets[ranks]).astype(np.int64)
    place = np.repeat(np.arange(len(ranks)), lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return offsets[ranks][place] + within, place


def _models(
    template: Workload, pattern: Pattern, larger: Pattern, moves: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Per new rank: the traced ranks whose phases and whose operations it takes; and how many traced ranks were not
    as their class."""
    sequence = _sequences(template, moves)
    classes = pattern.classes(np.arange(template.num_ranks))
    of_class = {}
    for one in np.unique(classes):
        members = np.flatnonzero(classes == one)
        _, first, counts = np.unique(sequence[members], return_index=True, return_counts=True)
        of_class[int(one)] = int(members[min(first[counts == counts.max()])])
    usual = np.array([of_class[int(one)] for one in classes])
    models = pattern.models(larger)  # type: ignore[arg-type]
    operations_of = usual[models]
    models = np.where(sequence[models] == sequence[operations_of], models, operations_of)
    models[0] = operations_of[0] = 0
    return models, operations_of, int(np.count_nonzero(sequence != sequence[usual]))


def _sequences(template: Workload, moves: tuple[np.ndarray, ...]) -> np.ndarray:
    """int64[num_ranks]: a number for each rank that is equal for equal sequences of operations."""
    has_peer, steps, has_source, source_steps = moves
    columns = [template.column("operations", name) for name in ("kind", "tag", "communicator_id", "request")]
    columns += [has_peer, *steps.T, has_source, *source_steps.T]
    described = np.column_stack([column.astype(np.int32) for column in columns])
    known: dict[bytes, int] = {}
    bounds = template.rank_offsets
    return np.array(
        [known.setdefault(described[bounds[r] : bounds[r + 1]].tobytes(), r) for r in range(template.num_ranks)]
    )


def _operations(
    template: Workload,
    larger: Pattern,
    ratios: Ratios,
    rows: np.ndarray,
    rank: np.ndarray,
    moves: tuple[np.ndarray, ...],
) -> pa.Table:
    has_peer, steps, has_source, source_steps = moves
    kind, peer, source, sent, received = (
        template.column("operations", name) for name in ("kind", "peer", "source", "bytes", "receive_bytes")
    )
    peer, source = _roots(template, kind, peer, larger.num_ranks)[rows].copy(), source[rows].copy()
    partners, senders = has_peer[rows], has_source[rows]
    of_files = np.isin(rows, accesses(template).row)
    peer[of_files] = rank[of_files]
    peer[partners] = larger.peers(rank[partners], steps[rows[partners]])
    source[senders] = larger.peers(rank[senders], source_steps[rows[senders]])
    sent_ratio = np.where(np.isin(kind, _REDUCE_SCATTER), 1.0, ratios.sent)  # there it is the size of an element
    replaced: dict[str, object] = {
        "rank": rank,
        "peer": peer,
        "source": source,
        "bytes": np.rint(sent * sent_ratio)[rows],
        "receive_bytes": np.rint(received * ratios.received)[rows],
    }
    for side in _COUNTS:
        replaced[side] = _counts(template, side, ratios.sent, rows, larger.num_ranks)
    return _table("operations", template.tables["operations"], replaced, rows)


def _roots(template: Workload, kind: np.ndarray, peer: np.ndarray, num_ranks: int) -> np.ndarray:
    """``peer`` with the roots of collectives on the new ranks: the first stays, the last is the last."""
    rooted = np.isin(kind, COLLECTIVES) & (peer != NO_RANK)
    between = np.flatnonzero(rooted & (peer > 0) & (peer < template.num_ranks - 1))
    if len(between):
        raise PatternError(
            f"{_place(template, int(between[0]))} has root {peer[between[0]]}: which rank that is among {num_ranks} is "
            "not known (only the first and the last are)"
        )
    return np.where(rooted & (peer > 0), num_ranks - 1, peer)


def _counts(template: Workload, side: str, ratio: np.ndarray, rows: np.ndarray, num_ranks: int) -> pa.Array:
    """Sizes for each member: the mean of those that all ranks named in that call, times the ratio."""
    field = SCHEMAS["operations"].field(side)
    offsets, values = template.lists("operations", side)
    lengths = np.diff(offsets)
    if not len(values):
        nothing = to_arrow(np.zeros(len(rows) + 1, np.int32))
        return pa.ListArray.from_arrays(nothing, to_arrow(np.empty(0, np.int64)), type=field.type)
    call = calls_of(template)
    named = np.flatnonzero(lengths)
    total = np.add.reduceat(values, offsets[named])
    sums = np.bincount(call[named], weights=total, minlength=call.max() + 1)
    entries = np.bincount(call[named], weights=lengths[named], minlength=call.max() + 1)
    mean = np.divide(sums, entries, out=np.zeros_like(sums), where=entries > 0)[call] * ratio
    has = (lengths > 0)[rows]
    if np.count_nonzero(has) * num_ranks > MOST_COUNTS:
        raise PatternError(
            f"{np.count_nonzero(has)} operations name a size for each of {num_ranks} ranks; at most {MOST_COUNTS} "
            "sizes in all can be kept; choose fewer ranks"
        )
    filled = np.repeat(np.rint(mean[rows[has]]).astype(np.int64), num_ranks)
    bounds = np.concatenate(([0], np.cumsum(np.where(has, num_ranks, 0)))).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(bounds), to_arrow(filled), type=field.type)


def calls_of(workload: Workload) -> np.ndarray:
    """int64[operations]: of a collective, which one of its communicator it is, as a number equal on all members; for
    others a number that means nothing."""
    kind, rank, group = (workload.column("operations", name) for name in ("kind", "rank", "communicator_id"))
    collective = np.flatnonzero(np.isin(kind, COLLECTIVES))
    key = np.zeros(len(kind), np.int64)
    order = collective[np.lexsort((collective, rank[collective], group[collective]))]
    starts = np.flatnonzero(
        np.diff(rank[order], prepend=-1).astype(bool) | np.diff(group[order], prepend=-1).astype(bool)
    )
    lengths = np.diff(starts, append=len(order))
    nth = np.arange(len(order)) - np.repeat(starts, lengths)
    key[order] = nth * workload.tables["communicators"].num_rows + group[order]
    return key


def _refuse_communicators(template: Workload) -> None:
    """Raises PatternError if an operation's communicator is not the world or a copy of it."""
    offsets, members = template.lists("communicators", "members")
    group = template.column("operations", "communicator_id")
    world = np.arange(template.num_ranks)
    for number in np.unique(group[np.isin(template.column("operations", "kind"), (*COLLECTIVES, *SENDS, *RECEIVES))]):
        if not np.array_equal(members[offsets[number] : offsets[number + 1]], world):
            row = int(np.argmax(group == number))
            size = int(offsets[number + 1] - offsets[number])
            raise PatternError(
                f"{_place(template, row)} is on communicator {number} of {size} of the {template.num_ranks} ranks: its "
                "members on other ranks are not known (only the world and copies of it, in the same order, are)"
            )


def _place(workload: Workload, row: int) -> str:
    rank = int(workload.column("operations", "rank")[row])
    kind = OperationKind(int(workload.column("operations", "kind")[row])).name
    return f"rank {rank}, operation {row - int(workload.rank_offsets[rank])} ({kind})"
