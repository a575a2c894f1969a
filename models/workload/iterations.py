"""Iterations of the application's main loop: from marks in its source, or found by what repeats in its calls.

Marks win. An iteration then ends where the next begins; the last one, whose end nothing marks, ends as many operations
(and events) after its beginning as the one before it has, or where the rank's records end: what a program does after
its loop (output, verification) is rarely as long as an iteration, and must not be counted as one.

Without marks each rank's calls are a sequence of symbols (kind, partner, tag, sizes, communicator). Left out is what
differs from run to run or says nothing new: tests, probes, waits. Its loops (``loop_search``) are a chain of nested
ones; the main loop is

* among those that hold LEAST_TIME of the rank's time, in rounds that are no shorter than SHORTEST_PS where the time
  of calls is known, too (three collectives of a set-up repeat as well, in no time),
* among those that hold at least half as many operations as the one that holds most (not a loop of the set-up),
* the outermost that repeats ``min_repeats`` times (3: two repeats are often a coincidence; with fewer there is no
  iteration to sample), since time steps hold solver iterations and not the other way round; ``level`` 1, 2, ... takes
  the loops inside it,
* but for an outer loop that is nothing but rounds of an inner one, some with something extra (under a quarter of a
  round), if every eighth has it or fewer, or they differ in how many have not: output every tenth step makes no
  iteration of ten steps. (Four equal stages and a reduction are a Runge-Kutta step.)

Iterations begin where the first round of the loop does (after its first calls if these are collectives, which rather
end a round: the reduction of a time step or residual) and wherever the same symbols stand again, so an iteration with
something extra inside is one, too; outside of whole rounds only what is half an iteration or more counts.
Where sizes (particles that move) or partners (rotating roots) differ from round to round, loops are looked for without
them, if that covers more of the operations.

All ranks have the same number of iterations. Ranks that disagree, since they have fewer neighbours or other calls
before the loop, are cut where the reference rank (the first of those with the most frequent number) is, counted in
collectives of all ranks; without such collectives, a multiple of the number is folded. Where that does not help either,
there are no iterations. Ranks that exchange no messages are searched by what their runtime system was asked to do, of
which a loop must hold half: its symbols are task types, few and often repeated by chance.

What real codes give: LULESH and CoMD time steps, NAS CG outer iterations (level 1: its solver's steps), HPCG and miniFE
iterations of the solver; an untimed first round of the same form (NAS CG, IS) is an iteration, too.

Cost: expected O(n log n) for n operations per rank and depth of nesting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import COLLECTIVES, OperationKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.loop_search import Loop, find_loops, occurrences
from manyscale.models.workload.task_tables import ITERATIONS_SCHEMA, EventKind

MIN_REPEATS: Final = 3
LEAST_HELD: Final = (0.25, 0.5, 0.75)  # of a rank's symbols, fine to coarse: what repeats less often is chance
LEAST_TIME: Final = 0.01  # of all time outside init and finalize: less is no main loop
SHORTEST_PS: Final = 1_000_000  # of the median iteration: the clock and the tracer cost a tenth of it at each call
LEAST_COVER: Final = 0.5  # of the loop that holds most operations
EXTRA: Final = 0.25  # of an iteration: less is no iteration's own work
RARELY: Final = 8  # iterations between extras
GOOD_COVER: Final = 0.9  # of the operations: no need to look further
MORE: Final = 1.1  # times the operations that finer symbols cover, in fewer iterations, speaks for coarser symbols
MUCH_MORE: Final = 2.0  # the same in more iterations

_SILENT: Final = (
    OperationKind.init, OperationKind.finalize, OperationKind.wait, OperationKind.waitall, OperationKind.waitany,
    OperationKind.test, OperationKind.other,
)  # fmt: skip
_DETAILS: Final = (  # columns of a call's symbol, the finest first
    ("kind", "tag", "communicator_id", "peer", "source", "bytes", "receive_bytes"),
    ("kind", "tag", "communicator_id", "peer", "source"),
    ("kind", "tag", "communicator_id"),
)
_TELLING_EVENTS: Final = (
    EventKind.parallel_begin, EventKind.task_create, EventKind.taskwait_begin, EventKind.taskgroup_begin,
    EventKind.loop_begin, EventKind.sections_begin, EventKind.taskloop_begin,
)  # fmt: skip


def find_iterations(workload: Workload, min_repeats: int = MIN_REPEATS, level: int = 0) -> pa.Table:
    """Table of ITERATIONS_SCHEMA, sorted by (rank, iteration); no rows where no loop is found.

    ``level``: 0 the main loop, 1 the loop inside it, and so on. Raises ValueError for ``min_repeats`` under 2 or a
    negative ``level``.
    """
    if min_repeats < 2 or level < 0:
        raise ValueError(f"min_repeats {min_repeats}, level {level}: a loop repeats twice or more, levels count from 0")
    events = _Events(workload)
    if np.any(events.kind == EventKind.iteration):
        return _table(_marked(workload, events))
    operations = _by_operations(workload, min_repeats, level)
    if operations is not None:
        return _table([_with_events(cut, rank, events) for rank, cut in enumerate(operations)])
    by_events = _by_events(workload, events, min_repeats, level)
    return _table(by_events if by_events is not None else [])


def windows(
    workload: Workload, repeats: np.ndarray, iterations: Sequence[int], ranks: Sequence[int]
) -> list[tuple[str, int, int, int]]:
    """The tracer's windows (unit, rank, first, end) that hold the iterations, numbered from 0 as in the workload's
    table, of the ranks: where another run of the program is at the same place.

    Units: "i" iteration marks by their value, "o" positions of operations that happen in every run, "e" events.
    ``repeats`` int[operations]: how many such positions each operation stands for (0 for tests and
    probes). Iterations that a rank does not have are left out. Raises ValueError for another number of ``repeats``.
    """
    if len(repeats) != workload.num_operations:
        raise ValueError(f"{len(repeats)} repeats for {workload.num_operations} operations; give one for each")
    rank_of, number, first, end, first_event, end_event = (
        workload.column("iterations", name) for name in ITERATIONS_SCHEMA.names[:6]
    )
    events = _Events(workload)
    found = []
    for rank in ranks:
        mine = np.flatnonzero(rank_of == rank)
        if not len(mine):
            continue
        begin, stop = workload.rank_offsets[rank : rank + 2]
        position = np.append(0, np.cumsum(repeats[begin:stop].astype(np.int64)))
        kind, value = events.of(rank, events.kind), events.of(rank, events.value)
        unique_marks = len(np.unique(value[kind == EventKind.iteration])) == np.count_nonzero(
            kind == EventKind.iteration
        )
        for row in mine[np.isin(number[mine], list(iterations))]:
            opens, closes = int(position[first[row]]), int(position[end[row]])
            is_marked = len(kind) > first_event[row] and kind[first_event[row]] == EventKind.iteration
            next_marked = len(kind) > end_event[row] and kind[end_event[row]] == EventKind.iteration
            if is_marked and unique_marks and (next_marked or opens == closes):
                mark = int(value[first_event[row]])
                found.append(("i", rank, mark, mark + 1))
            elif closes > opens:
                found.append(("o", rank, opens, closes))
            else:
                found.append(("e", rank, int(first_event[row]), int(end_event[row])))
    return found


@dataclass(frozen=True)
class _Spent:
    """Time of one rank: ``until_ps`` int64[places + 1], before each of its operations or events; ``total_ps`` of all.
    ``least_ps``: what the median round must take."""

    until_ps: np.ndarray
    total_ps: int
    least_ps: int

    def is_enough(self, loop: Loop, places: np.ndarray) -> bool:
        """Whether a loop may be the main one, also where no time is known. ``places``: of its symbols. What counts is
        the median round: the first and the last one hold what is before and behind the loop, too."""
        until = self.until_ps[places[loop.sequence.places]]
        rounds = (loop.end - loop.first) // loop.period
        within = np.arange(rounds.sum()) - np.repeat(np.cumsum(rounds) - rounds, rounds)
        starts = np.repeat(loop.first, rounds) + loop.period * within
        usual = float(np.median(until[starts + loop.period] - until[starts]))
        return not self.total_ps or (usual >= self.least_ps and usual * len(starts) >= LEAST_TIME * self.total_ps)


class _Times:
    """Time of all ranks: that of their phases, and of their calls (but init and finalize) where it was measured."""

    def __init__(self, workload: Workload) -> None:
        self._offsets = workload.rank_offsets
        spent = np.zeros(workload.num_operations, np.int64)
        rows = self._offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
        np.add.at(spent, rows, workload.column("phases", "duration_ps"))
        start, end = (workload.column("measured", name) for name in ("start_ps", "end_ps"))
        is_measured = len(start) == len(spent)
        if is_measured:
            kind = workload.column("operations", "kind")
            spent += np.where((kind == OperationKind.init) | (kind == OperationKind.finalize), 0, end - start)
        self._until = np.append(0, np.cumsum(spent))
        self._least = SHORTEST_PS if is_measured or workload.num_ranks == 1 else 0
        self._events_ps = workload.column("events", "cpu_ps")

    def of(self, rank: int) -> _Spent:
        """By operations."""
        begin, end = self._offsets[rank : rank + 2]
        until = self._until[begin : end + 1] - self._until[begin]
        return _Spent(until, int(until[-1]), self._least)

    def of_events(self, rank: int, events: _Events) -> _Spent:
        """By events, each with the compute before it."""
        until = np.append(0, np.cumsum(events.of(rank, self._events_ps)))
        return _Spent(until, max(int(until[-1]), self.of(rank).total_ps), self._least)


@dataclass(frozen=True)
class _Cuts:
    """Of one rank: where iterations begin, and where the last one ends, as operations and as events: int64[N + 1]."""

    operations: np.ndarray
    events: np.ndarray
    is_marked: bool = False


class _Events:
    """Columns of the events of all ranks."""

    def __init__(self, workload: Workload) -> None:
        self.kind, self.value, self.operation, self.task_type = (
            workload.column("events", name) for name in ("kind", "value", "operation_id", "task_type_id")
        )
        rank = workload.column("events", "rank")
        self.offsets = np.searchsorted(rank, np.arange(workload.num_ranks + 1)).astype(np.int64)

    def of(self, rank: int, column: np.ndarray) -> np.ndarray:
        """The part of a column that is the rank's."""
        return column[self.offsets[rank] : self.offsets[rank + 1]]


def _table(cuts: Sequence[_Cuts]) -> pa.Table:
    counts = [len(cut.operations) - 1 for cut in cuts]
    marked = np.repeat(np.array([cut.is_marked for cut in cuts], np.bool_), counts)

    def column(parts: list[np.ndarray]) -> pa.Array:
        return to_arrow(np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32))

    columns = [
        column([np.full(count, rank) for rank, count in enumerate(counts)]),
        column([np.arange(count) for count in counts]),
        column([cut.operations[:-1] for cut in cuts]),
        column([cut.operations[1:] for cut in cuts]),
        column([cut.events[:-1] for cut in cuts]),
        column([cut.events[1:] for cut in cuts]),
        pa.Array.from_buffers(pa.bool_(), len(marked), [None, pa.py_buffer(np.packbits(marked, bitorder="little"))]),
    ]
    return pa.Table.from_arrays(columns, schema=ITERATIONS_SCHEMA)


def _with_events(operations: np.ndarray, rank: int, events: _Events) -> _Cuts:
    """An operation's iteration holds the events that lead to it, as it holds its compute phases."""
    return _Cuts(operations, np.searchsorted(events.of(rank, events.operation), operations))


def _marked(workload: Workload, events: _Events) -> list[_Cuts]:
    cuts = []
    for rank in range(workload.num_ranks):
        operation = events.of(rank, events.operation).astype(np.int64)
        first = np.flatnonzero(events.of(rank, events.kind) == EventKind.iteration)
        operations = operation[first]
        if not len(first):
            cuts.append(_Cuts(np.zeros(1, np.int64), np.zeros(1, np.int64), True))
            continue
        last_operation, last_event = _loop_limit(workload, rank), len(operation)
        if len(first) > 1:
            last_operation = min(last_operation, int(2 * operations[-1] - operations[-2]))
            last_event = min(last_event, int(2 * first[-1] - first[-2]))
            # its events end where its operations do, or with what follows the last of these, at most a period
            last_event = min(last_event, int(np.searchsorted(operation, last_operation, side="right")))
        last_operation = max(last_operation, int(operations[-1]))
        last_event = max(last_event, int(first[-1]) + 1)
        cuts.append(_Cuts(np.append(operations, last_operation), np.append(first, last_event), True))
    return cuts


def _loop_limit(workload: Workload, rank: int) -> int:
    """The operation that no iteration of the rank holds any more: its finalize, or the number of its operations."""
    begin, end = workload.rank_offsets[rank : rank + 2]
    kind = workload.column("operations", "kind")[begin:end]
    return int(len(kind) - (len(kind) > 0 and kind[-1] == OperationKind.finalize))


def _by_operations(workload: Workload, min_repeats: int, level: int) -> list[np.ndarray] | None:
    """Cuts of each rank in operations: of the coarsest symbols that cover most, if finer ones do not cover enough."""
    best: tuple[float, list[np.ndarray]] | None = None
    times = _Times(workload)
    for detail, least in zip(_DETAILS, LEAST_HELD, strict=True):
        names = [workload.column("operations", name) for name in detail]
        kind = workload.column("operations", "kind")
        telling = ~np.isin(np.arange(len(OperationKind)), _SILENT)[kind]
        cuts = []
        for rank in range(workload.num_ranks):
            begin, end = workload.rank_offsets[rank : rank + 2]
            at = np.flatnonzero(telling[begin:end])
            places = np.append(at, _loop_limit(workload, rank))
            symbols = _symbols([column[begin:end][at] for column in names])
            is_collective = kind[begin:end][at] >= COLLECTIVES.start
            cuts.append(_rank_cuts(symbols, places, is_collective, least, min_repeats, level, times.of(rank)))
        agreed = _agree(cuts, _Collectives(workload))
        if agreed is None:
            continue
        held = sum(int(cut[-1] - cut[0]) for cut in agreed) / max(1, workload.num_operations)
        if best is None or held > best[0] * (MORE if len(agreed[0]) < len(best[1][0]) else MUCH_MORE):
            best = (held, agreed)
        if held >= GOOD_COVER:
            break
    return best[1] if best is not None else None


def _by_events(workload: Workload, events: _Events, min_repeats: int, level: int) -> list[_Cuts] | None:
    cuts, times = [], _Times(workload)
    for rank in range(workload.num_ranks):
        kind = events.of(rank, events.kind)
        at = np.flatnonzero(np.isin(np.arange(len(EventKind)), _TELLING_EVENTS)[kind])
        symbols = _symbols([kind[at], events.of(rank, events.task_type)[at]])
        no_collective = np.zeros(len(at), np.bool_)
        places, spent = np.append(at, len(kind)), times.of_events(rank, events)
        cuts.append(_rank_cuts(symbols, places, no_collective, LEAST_HELD[1], min_repeats, level, spent))
    agreed = _agree(cuts, None)
    if agreed is None:
        return None
    found = []
    for rank, cut in enumerate(agreed):
        following = np.append(events.of(rank, events.operation).astype(np.int64), _loop_limit(workload, rank))
        found.append(_Cuts(following[cut], cut))
    return found


def _symbols(columns: list[np.ndarray]) -> np.ndarray:
    """uint64[]: a number for each combination of values, as if drawn at random (the finaliser of splitmix64)."""
    symbols = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        symbols += column.astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        symbols = (symbols ^ (symbols >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        symbols = (symbols ^ (symbols >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        symbols ^= symbols >> np.uint64(31)
    return symbols


# ---- of one rank ----


def _rank_cuts(
    symbols: np.ndarray,
    places: np.ndarray,
    is_collective: np.ndarray,
    least: float,
    min_repeats: int,
    level: int,
    spent: _Spent,
) -> list[np.ndarray]:
    """Where the rounds of the loops begin and the last one ends, the main loop's first, then those of the others.
    ``places`` int64[n + 1]: of the symbols in the rank's records, and where these end."""
    found = []
    loops = [loop for loop in find_loops(symbols, min_repeats) if spent.is_enough(loop, places)]
    for loop in _chain(loops, int(least * len(symbols)))[level:]:
        cuts = places[loop.sequence.places[_rounds(loop, is_collective)]]
        if len(cuts) > min_repeats:
            found.append(cuts)
    return found


def _chain(loops: list[Loop], least: int) -> list[Loop]:
    """Main loop first, then those inside it; none that holds fewer than ``least`` symbols."""
    held = {id(loop): int((loop.sequence.places[loop.end] - loop.sequence.places[loop.first]).sum()) for loop in loops}
    most = max(held.values(), default=0)
    chain = [loop for loop in loops if held[id(loop)] >= max(least, LEAST_COVER * most)]
    chain.sort(key=lambda loop: held[id(loop)] / loop.num_repeats, reverse=True)

    while len(chain) > 1 and _is_variation(chain[0], chain[1]):
        del chain[0]
    return chain


def _is_variation(outer: Loop, inner: Loop) -> bool:
    """Whether a loop is nothing but rounds of the other one, some of which have something extra."""
    starts = occurrences(inner, inside=outer)
    if not len(starts):
        return False
    spans = np.diff(np.append(starts, starts[0] + outer.period))
    if spans.min() < inner.period or spans.max() >= (1 + EXTRA) * inner.period:
        return False
    rounds = (inner.end - inner.first) // inner.period
    differ = len(rounds) > 2 and np.any(rounds[1:-1] != rounds[1])
    return bool(inner.num_repeats >= RARELY * outer.num_repeats or (len(starts) > 1 and differ))


def _rounds(loop: Loop, is_collective: np.ndarray) -> np.ndarray:
    """int64[N + 1]: beginnings of the loop's rounds and the end of the last one, in its sequence."""
    period, length = loop.period, len(loop.sequence.symbols)
    body = loop.sequence.places[loop.first[0] : loop.first[0] + period]
    shift = int(np.argmin(is_collective[body]))  # 0 if all are collectives
    starts = occurrences(loop, shift)
    low, high = int(loop.first[0]), int(loop.end[-1])
    places = loop.sequence.places
    run = np.searchsorted(loop.first, starts, side="right") - 1
    is_whole = (run >= 0) & (starts + period <= loop.end[run])
    usual = float(np.median(places[starts[is_whole] + period] - places[starts[is_whole]]))
    apart = np.diff(places[starts], prepend=-np.inf, append=np.inf)  # of the start before, and after the next
    starts = starts[is_whole | (2 * np.minimum(apart[:-1], apart[1:]) >= usual)]
    # rounds right before the first run or after the last one, slightly different
    while (start := int(starts[max(0, np.searchsorted(starts, low) - 1)])) < low:
        if not (1 - EXTRA) * period <= low - start <= (1 + EXTRA) * period:
            break
        low = start
    while (following := np.searchsorted(starts, high)) < len(starts):
        if starts[following] - high > EXTRA * period:
            break
        high = min(int(starts[following]) + period, length)
    starts = starts[(starts >= low) & (starts < high)]
    last, end = int(starts[-1]), min(int(starts[-1]) + period, high)
    if last + period > loop.end[-1] and (2 * (end - last) < period or 2 * (places[end] - places[last]) < usual):
        return starts  # the loop's first symbols once more, after it
    return np.append(starts, end)


# ---- of all ranks ----


class _Collectives:
    """Where each rank calls collectives of all ranks."""

    def __init__(self, workload: Workload) -> None:
        bounds, _ = workload.lists("communicators", "members")
        is_whole = np.append(np.diff(bounds) == workload.num_ranks, False)
        communicator = workload.column("operations", "communicator_id")
        rows = np.flatnonzero((workload.column("operations", "kind") >= COLLECTIVES.start) & is_whole[communicator])
        self._rows = rows
        self._bounds = np.searchsorted(rows, workload.rank_offsets)
        self._first = workload.rank_offsets

    def of(self, rank: int) -> np.ndarray:
        """int64[]: operation ids."""
        return self._rows[self._bounds[rank] : self._bounds[rank + 1]] - self._first[rank]


def _agree(cuts: list[list[np.ndarray]], collectives: _Collectives | None) -> list[np.ndarray] | None:
    """Cuts of every rank, equally many, or None. ``cuts``: per rank those of its loops, the main one's first."""
    number = Counter(len(found[0]) for found in cuts if found)
    if not number:
        return None
    most = max(number.values())
    length = max(each for each, count in number.items() if count == most)
    own = [_of_length(found, length) for found in cuts]
    reference = next(rank for rank, found in enumerate(cuts) if found and len(found[0]) == length)
    if collectives is not None and (wanted := own[reference]) is not None:
        passed = np.searchsorted(collectives.of(reference), wanted)
        own = [_aligned(mine, passed, collectives.of(rank)) for rank, mine in enumerate(own)]
    agreed = [mine for mine in own if mine is not None]
    return agreed if len(agreed) == len(own) else None


def _of_length(found: list[np.ndarray], length: int) -> np.ndarray | None:
    for cut in found:
        if len(cut) == length:
            return cut
    for cut in found:
        if length > 1 and (len(cut) - 1) % (length - 1) == 0:
            return cut[:: (len(cut) - 1) // (length - 1)]
    return None


def _aligned(mine: np.ndarray | None, passed: np.ndarray, collectives: np.ndarray) -> np.ndarray | None:
    """A rank's cuts with ``passed`` collectives before each: its own where they have, else right after the last."""
    if passed[-1] > len(collectives):
        return None
    after = np.append(-1, collectives)[passed] + 1
    if mine is not None:
        after = np.where(np.searchsorted(collectives, mine) == passed, mine, after)
    return after if np.all(np.diff(after) > 0) else mine
