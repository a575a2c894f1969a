"""``workload.repeat``: an application with more iterations of its main loop than were traced.

The pattern: the first traced iteration comes first, as it does in the trace, and then the others in turn (the second,
the third, ..., the last, the second again) until there are as many as asked for; what was traced before and after the
main loop stays. Every repetition of an iteration has the same operations, and the same task instances, whose times
may be drawn anew (``jitter``). Operations and phases are written out; the levels below, of task instances and
instructions, stand once, so that a third of a billion instances need no more memory than the traced ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OPTIONAL_LEVELS, SCHEMAS, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Errs, Note, changes, informs, percent
from manyscale.runner.errors import UserError
from manyscale.runner.study.workload import Repeat

LEAST_OTHERS: Final = 3  # iterations that say what is usual
LEAST_SHARE_MOVED: Final = 0.01  # of the loop's time, that is worth a word
MAD_TO_DEVIATION: Final = 1.4826  # of normally distributed values


@dataclass(frozen=True)
class RepeatedWorkload(Workload):
    """A workload whose operations and phases were written out. ``base``: as traced. int32[operations]:
    ``base_operation``, the operation_id in ``base`` of each row, and ``repetition``, how often its iteration had been
    executed before."""

    base: Workload = field(kw_only=True)
    base_operation: np.ndarray = field(kw_only=True, compare=False)
    repetition: np.ndarray = field(kw_only=True, compare=False)
    jitter: float = field(kw_only=True)

    @cached_property
    def digest(self) -> str:
        text = f"repeated {self.base.digest} {self.num_operations} {self.jitter}"
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def repeat(workload: Workload, asked: Repeat, place: str) -> RepeatedWorkload:
    """The workload with ``asked.iterations`` iterations. O(operations and phases of the result).

    Raises UserError, naming ``place``, where the trace has no iterations, where ranks differ in their number, or where
    a request lives longer than an iteration.
    """
    table = {name: workload.column("iterations", name) for name in ("rank", "first_operation_id", "end_operation_id")}
    number = np.bincount(table["rank"], minlength=workload.num_ranks)
    if not len(table["rank"]):
        raise UserError(
            f"{place}: knows no iterations of a main loop to repeat; mark them in the source (manyscale.h), or let "
            "`manyscale iterations` find them"
        )
    if number.min() != number.max():
        raise UserError(f"{place}: ranks differ in their number of iterations ({number.min()} to {number.max()})")
    traced = int(number[0])
    first = table["first_operation_id"].reshape(workload.num_ranks, traced).astype(np.int64)
    end = table["end_operation_id"].reshape(workload.num_ranks, traced).astype(np.int64)
    sequence = _sequence(traced, asked.iterations)
    times = np.array([np.count_nonzero(sequence[:i] == each) for i, each in enumerate(sequence.tolist())])
    spans = [_spans(first[rank], end[rank], _length(workload, rank), sequence, times) for rank in range(len(first))]
    rows, base_operation, repetition, owner = _written_out(workload, spans)
    operations = _operations(workload, rows, repetition, place)
    phases = _phases(workload, owner, base_operation, np.diff([0, *np.cumsum([len(each[0]) for each in spans])]))
    tables = {level: workload.tables[level] for level in ("regions", "communicators")}
    tables |= {"operations": operations, "phases": phases, "iterations": _iterations(first, end, sequence, spans)}
    tables |= {level: pa.Table.from_batches([], SCHEMAS[level]) for level in OPTIONAL_LEVELS if level not in tables}
    text = f"{traced} traced iterations were repeated to {asked.iterations}: the first, then the others in turn" + (
        f", each task instance's time drawn anew with a deviation of {asked.jitter:g}" if asked.jitter else ""
    )
    notes = [informs("iterations-repeated", text), *_outliers(_compute_ps(workload, first, end), sequence)]
    return RepeatedWorkload(
        workload.name, workload.num_ranks, tables, (*workload.notes, *notes), workload.source_format, base=workload,
        base_operation=base_operation.astype(np.int32), repetition=repetition.astype(np.int32), jitter=asked.jitter,
    )  # fmt: skip


def _sequence(traced: int, wanted: int) -> np.ndarray:
    """int64[wanted]: the traced iteration that each iteration is."""
    after = np.arange(wanted - 1)
    return np.concatenate(([0], 1 + after % (traced - 1) if traced > 1 else np.zeros(wanted - 1, np.int64)))


def _compute_ps(workload: Workload, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64[ranks, traced iterations]: compute, as traced."""
    rank, operation = workload.column("phases", "rank"), workload.column("phases", "operation_id").astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(workload.column("phases", "duration_ps"))))
    span = int(np.diff(workload.rank_offsets).max(initial=0)) + 1
    keys = rank * span + operation
    begins = np.arange(len(first))[:, None] * span
    found: np.ndarray = offsets[np.searchsorted(keys, begins + end)] - offsets[np.searchsorted(keys, begins + first)]
    return found


def _outliers(compute_ps: np.ndarray, sequence: np.ndarray) -> list[Note]:
    """A note on each traced iteration whose time is unlike that of the others and was repeated: a rare event of the
    traced run, such as a checkpoint or a disturbance of the system, that comes back each time. Times are those of the
    rank that computes longest. Outlier: more than three median absolute deviations, scaled to a standard deviation,
    from the median of the other iterations that are repeated (Leys et al., "Detecting outliers", Journal of
    Experimental Social Psychology 49(4), 2013)."""
    seconds = compute_ps.max(axis=0, initial=0) / 1e12
    whole = seconds[sequence].sum()
    repeated = np.arange(min(1, len(seconds) - 1), len(seconds))
    if len(repeated) <= LEAST_OTHERS:
        return []
    usual_of = _medians_of_others(seconds[repeated])
    times_more = np.bincount(sequence, minlength=len(seconds))[repeated] - 1
    moved_of = times_more * (seconds[repeated] - usual_of)
    notes = []
    for place in np.flatnonzero((times_more > 0) & (np.abs(moved_of) > LEAST_SHARE_MOVED * whole)).tolist():
        each, usual, moved, times = int(repeated[place]), usual_of[place], moved_of[place], times_more[place]
        spread = MAD_TO_DEVIATION * float(np.median(np.abs(np.delete(seconds[repeated], place) - usual)))
        if abs(seconds[each] - usual) <= 3 * spread:
            continue
        text = (
            f"traced iteration {each} computes {seconds[each]:.4g} s, the others {usual:.4g} s (median), and comes "
            f"{times + 1} times, not once: that makes the run about {abs(moved):.4g} s "
            f"({percent(abs(moved) / (whole - moved))}) {'longer' if moved > 0 else 'shorter'}"
        )
        notes.append(changes("outlier-repeated", text, errs=Errs.long if moved > 0 else Errs.short))
    return notes


def _medians_of_others(values: np.ndarray) -> np.ndarray:
    """float64[values]: the median of all but each. O(n log n)."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), np.int64)
    place[order] = np.arange(len(values))
    ranked, others = values[order], len(values) - 1
    low, high = (others - 1) // 2, others // 2  # behind its own place, the others stand one further
    found: np.ndarray = (ranked[low + (place <= low)] + ranked[high + (place <= high)]) / 2
    return found


def _length(workload: Workload, rank: int) -> int:
    return int(workload.rank_offsets[rank + 1] - workload.rank_offsets[rank])


def _spans(
    first: np.ndarray, end: np.ndarray, length: int, sequence: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(base operation_id, repetition) of every operation of a rank, int64 each."""
    parts = [np.arange(first[0])]
    parts += [np.arange(first[each], end[each]) for each in sequence]
    parts.append(np.arange(end[-1], length))
    counts = [len(part) for part in parts]
    return np.concatenate(parts), np.repeat([0, *times.tolist(), 0], counts)


def _written_out(
    workload: Workload, spans: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    base = np.concatenate([each[0] for each in spans])
    repetition = np.concatenate([each[1] for each in spans])
    owner = np.repeat(np.arange(len(spans)), [len(each[0]) for each in spans])
    return workload.rank_offsets[owner] + base, base, repetition, owner


def _operations(workload: Workload, rows: np.ndarray, repetition: np.ndarray, place: str) -> pa.Table:
    table = workload.tables["operations"].take(to_arrow(rows))
    request = workload.column("operations", "request").astype(np.int64)
    offsets, completed = workload.lists("operations", "completes")
    _check_requests(workload, request, offsets, completed, place)
    span = int(max(request.max(initial=0), completed.max(initial=0))) + 1
    if span * (int(repetition.max(initial=0)) + 1) > 2**31 - 1:
        raise UserError(f"{place}: so many iterations need more than 2^31 requests; repeat less often")
    opened = request[rows]
    shifted = np.where(opened >= 0, opened + repetition * span, opened).astype(np.int32)
    lengths = np.diff(offsets)[rows]
    starts = np.repeat(offsets[rows] - np.concatenate(([0], np.cumsum(lengths)))[:-1], lengths)
    values = completed[starts + np.arange(int(lengths.sum()))] + np.repeat(repetition * span, lengths)
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    lists = pa.ListArray.from_arrays(to_arrow(bounds), to_arrow(values.astype(np.int32)))
    for name, values_of in (("request", to_arrow(shifted)), ("completes", lists)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), values_of)
    return table


def _check_requests(
    workload: Workload, request: np.ndarray, offsets: np.ndarray, completed: np.ndarray, place: str
) -> None:
    """Refuse requests that are completed in another iteration than the one that opened them."""
    rank = workload.column("operations", "rank").astype(np.int64)
    local = np.arange(len(rank)) - workload.rank_offsets[rank]
    iteration = np.full(len(rank), -1, np.int64)
    columns = ("rank", "iteration", "first_operation_id", "end_operation_id")
    for owner, number, first, end in zip(
        *(workload.column("iterations", name).tolist() for name in columns), strict=True
    ):
        base = int(workload.rank_offsets[owner])
        iteration[base + first : base + end] = number
    span = int(max(request.max(initial=0), completed.max(initial=0))) + 1
    opens = np.flatnonzero(request >= 0)
    keys = rank[opens] * span + request[opens]
    order = np.argsort(keys, kind="stable")
    owner = np.repeat(np.arange(len(rank)), np.diff(offsets))
    wanted = rank[owner] * span + completed
    found = np.searchsorted(keys[order], wanted, side="right") - 1
    known = (found >= 0) & (keys[order][np.maximum(found, 0)] == wanted) if len(order) else np.zeros(len(wanted), bool)
    where = iteration[opens[order][np.maximum(found, 0)]] if len(order) else np.full(len(wanted), -1)
    crossing = np.flatnonzero(known & (where != iteration[owner]))
    if len(crossing):
        row = int(owner[crossing[0]])
        raise UserError(
            f"{place}: rank {rank[row]}, operation {local[row]} completes a request of another iteration, which cannot "
            "be repeated; mark iterations so that requests end in them"
        )


def _phases(workload: Workload, owner: np.ndarray, base_operation: np.ndarray, lengths: np.ndarray) -> pa.Table:
    """Phases of every operation of the result; those behind a rank's last operation stay behind it."""
    rank = workload.column("phases", "rank").astype(np.int64)
    span = int(np.diff(workload.rank_offsets).max(initial=0)) + 1
    keys = rank * span + workload.column("phases", "operation_id")
    last = np.arange(workload.num_ranks)
    tail = workload.rank_offsets[1:] - workload.rank_offsets[:-1]
    owners, bases = np.concatenate((owner, last)), np.concatenate((base_operation, tail))
    starts_of = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    place = np.concatenate((np.arange(len(owner)) - starts_of[owner], lengths))
    order = np.lexsort((place, owners))
    owners, bases, place = owners[order], bases[order], place[order]
    wanted = owners * span + bases
    first, end = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
    counts = end - first
    rows = np.repeat(first - np.concatenate(([0], np.cumsum(counts)))[:-1], counts) + np.arange(int(counts.sum()))
    table = workload.tables["phases"].take(to_arrow(rows))
    at = table.schema.get_field_index("operation_id")
    return table.set_column(at, table.schema.field(at), to_arrow(np.repeat(place, counts).astype(np.int32)))


def _iterations(
    first: np.ndarray, end: np.ndarray, sequence: np.ndarray, spans: list[tuple[np.ndarray, np.ndarray]]
) -> pa.Table:
    ranks, wanted = len(first), len(sequence)
    lengths = (end - first)[:, sequence]
    begins = first[:, :1] + np.concatenate((np.zeros((ranks, 1), np.int64), np.cumsum(lengths, axis=1)[:, :-1]), axis=1)
    zero = to_arrow(np.zeros(ranks * wanted, np.int32))
    columns = [
        to_arrow(np.repeat(np.arange(ranks, dtype=np.int32), wanted)),
        to_arrow(np.tile(np.arange(wanted, dtype=np.int32), ranks)),
        to_arrow(begins.ravel().astype(np.int32)),
        to_arrow((begins + lengths).ravel().astype(np.int32)),
        zero,
        zero,
        pa.array(np.zeros(ranks * wanted, bool)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMAS["iterations"])
