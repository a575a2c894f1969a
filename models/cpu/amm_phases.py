"""AMM inside a parallel application: compute phases from those of which blocks and accesses were traced.

A detailed trace holds chosen ranks and iterations. What they did is predicted on the target's core by a model of a
sequential program; all other compute time is the traced one, times the ratio of predicted to traced time of what is
most like it. So time that was traced in detail is predicted exactly as the model says, and then, in this order,

1. ``detailed``: its own blocks and accesses;
2. ``same_place``: detailed time at the same place of other iterations or ranks: of an iteration's operations in runs of
   one kind (seven isend, a waitall, ...), before the same member of the same run of the same kind, in the same of the
   phases before it, in the same region. So ranks with more neighbours than others have the same places;
3. ``same_region``: detailed time in the same marked region;
4. ``other``: all detailed time.

Source: the detailed mode of MUSA (Grass, UPC 2017, section 6.3.2), which replays bursts scaled by the ratios of the
simulated ones.

A *piece* is the time between two neighbours of a rank's sequence of operations and events, of a task or not, so a phase
may be detailed in part. Its traced CPU time is the event's; of the last piece before an operation, what the operation's
phases have left. Where segments name no events although the rank has some, their piece is all that precedes the
operation.

Assumptions: one thread per rank was traced (segments of several threads at one place add up). Code that the trace does
not see (libraries that were not instrumented, the system) takes time in the traced run only: none in a detailed piece,
and through the ratio none in those like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.workload import PhaseKind, Workload

NAME = "amm"
VERSION = 1
DOMAIN: Final = domains.AMM
BASES: Final = ("detailed", "same_place", "same_region", "other")
Form: TypeAlias = Literal["overlap", "corrected", "printed"]


@dataclass(frozen=True)
class Pieces:
    """Pieces of compute time with a detailed level. ``of_segment`` int64[segments]: the piece of each segment, -1 where
    no compute phase was traced. Of each piece: rows [``first_phase``, ``end_phase``) of the table ``phases`` that it
    lies in (one, unless no events are named), and ``traced_ps``; all int64[pieces]."""

    of_segment: np.ndarray
    first_phase: np.ndarray
    end_phase: np.ndarray
    traced_ps: np.ndarray


@dataclass(frozen=True)
class PhaseTimes:
    """``duration_ps`` int64[phases]: predicted. ``share_by_basis`` float64[4]: of all traced compute time, what each of
    BASES stands for. ``ratio``: predicted over traced time of all compute phases; None where no time was traced."""

    duration_ps: np.ndarray
    share_by_basis: np.ndarray
    ratio: float | None


def is_untimed(workload: Workload) -> bool:
    """Whether the trace knows no time of any compute phase, as an emulator's: all that is known of it is detailed."""
    computes = workload.column("phases", "kind") == PhaseKind.compute
    return bool(computes.any()) and not workload.column("phases", "duration_ps")[computes].any()


def pieces_of(workload: Workload) -> Pieces:
    """The pieces of a workload's segments. O(n log n) in segments, events and phases."""
    rank, operation = (workload.column("segments", name).astype(np.int64) for name in ("rank", "operation_id"))
    phase_ps = workload.column("phases", "duration_ps")
    phase_keys = _keys(workload.column("phases", "rank"), workload.column("phases", "operation_id"))
    until_phase = np.concatenate(([0], np.cumsum(phase_ps)))
    first = np.searchsorted(phase_keys, _keys(rank, operation), "left")
    end = np.searchsorted(phase_keys, _keys(rank, operation), "right")
    total = until_phase[end] - until_phase[first]

    event, begin, lap, before = _events_of(workload, rank, operation)
    is_event = event >= 0
    begin = np.minimum(np.where(is_event, begin, before), total)
    traced = np.where(is_event, np.minimum(lap, total - begin), total - begin)
    unnamed = ~is_event & _names_no_events(workload, rank)
    begin[unnamed], traced[unnamed] = 0, total[unnamed]
    # the phase that holds the middle of a piece holds all of it: phases are cut at events only
    middle = until_phase[first] + begin + traced // 2
    row = np.clip(np.searchsorted(until_phase, middle, "right") - 1, first, np.maximum(end - 1, first))
    first_phase, end_phase = np.where(unnamed, first, row), np.where(unnamed, end, row + 1)

    kept = end > first
    names = np.where(is_event, event, workload.tables["events"].num_rows + first)[kept]
    _, index, inverse = np.unique(names, return_index=True, return_inverse=True)
    of_segment = np.full(len(rank), -1, np.int64)
    of_segment[kept] = inverse
    return Pieces(of_segment, *(column[kept][index] for column in (first_phase, end_phase, traced)))


def phase_times(workload: Workload, pieces: Pieces, predicted_ps: np.ndarray) -> PhaseTimes:
    """Times of all phases from int64[pieces] predicted ones. Sleep stays as it was traced. In a trace without times
    phases take what was predicted of them.

    Raises ValueError where no detailed piece has any traced time. O(n log n) in phases and pieces.
    """
    duration = workload.column("phases", "duration_ps")
    computes = workload.column("phases", "kind") == PhaseKind.compute
    traced_detail, predicted_detail = (
        _spread(pieces, values, duration) for values in (pieces.traced_ps.astype(np.float64), predicted_ps)
    )
    traced_detail = np.where(computes, np.minimum(traced_detail, duration), 0)
    predicted_detail = np.where(computes, predicted_detail, 0)
    if is_untimed(workload):
        predicted = np.where(computes, np.rint(predicted_detail), duration).astype(np.int64)
        return PhaseTimes(predicted, np.array([1.0, 0, 0, 0]), None)
    if not traced_detail.sum() > 0:
        raise ValueError("none of the detailed level lies in a traced compute phase: there is no time to compare with")
    ratio, basis = np.full(len(duration), np.nan), np.zeros(len(duration), np.int64)
    groups = (_places(workload), workload.column("phases", "region_id").astype(np.int64), np.zeros_like(basis))
    for number, group in enumerate(groups, start=1):
        found = _ratio_by_group(group, traced_detail, predicted_detail)
        mine = np.isnan(ratio) & ~np.isnan(found)
        ratio[mine], basis[mine] = found[mine], number
    rest = duration - traced_detail
    with np.errstate(invalid="ignore"):
        predicted = np.where(computes, np.rint(predicted_detail + rest * ratio), duration).astype(np.int64)
    total = float(duration[computes].sum())
    shares = np.bincount(basis[computes], rest[computes], len(BASES)) / total
    shares[0] = traced_detail.sum() / total
    return PhaseTimes(predicted, shares, float(predicted[computes].sum()) / total)


def _keys(rank: np.ndarray, index: np.ndarray) -> np.ndarray:
    """int64: order of (rank, index)."""
    return (rank.astype(np.int64) << 32) + index


def _events_of(
    workload: Workload, rank: np.ndarray, operation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each segment: (row of the event that ends it, -1 where the operation does; where after the operation before
    its piece begins, and the event's CPU time, both ps, of those with an event; CPU time of all events before the
    operation)."""
    event_rank, lap = workload.column("events", "rank").astype(np.int64), workload.column("events", "cpu_ps")
    keys = _keys(event_rank, workload.column("events", "operation_id"))
    until = np.concatenate(([0], np.cumsum(lap)))
    wanted = _keys(rank, operation)
    first, end = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
    number = workload.column("segments", "event_id").astype(np.int64)
    row = np.searchsorted(event_rank, rank) + number
    event = np.where((number >= 0) & (first <= row) & (row < end), row, -1)
    place = np.maximum(event, 0)
    laps = lap[place] if len(lap) else np.zeros(len(rank), np.int64)
    return event, until[place] - until[first], laps, until[end] - until[first]


def _names_no_events(workload: Workload, rank: np.ndarray) -> np.ndarray:
    """bool[segments]: whether the segment's rank has events, but none of its segments names one."""
    named = rank[workload.column("segments", "event_id") >= 0]
    return np.isin(rank, workload.column("events", "rank")) & ~np.isin(rank, named)


def _spread(pieces: Pieces, values: np.ndarray, duration_ps: np.ndarray) -> np.ndarray:
    """float64[phases]: sums of the pieces' values; what lies in several phases is shared out by their time."""
    until = np.concatenate(([0], np.cumsum(duration_ps)))
    sizes = pieces.end_phase - pieces.first_phase
    owner = np.repeat(np.arange(len(sizes)), sizes)
    row = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + pieces.first_phase[owner]
    whole = np.maximum(until[pieces.end_phase] - until[pieces.first_phase], 1)
    share = np.where(sizes[owner] == 1, 1.0, duration_ps[row] / whole[owner])
    return np.bincount(row, values[owner] * share, len(duration_ps))


def _places(workload: Workload) -> np.ndarray:
    """int64[phases]: the place of each phase in its iteration, equal where it is the same; -1 outside iterations.
    O(n log n) in operations and phases."""
    rank = workload.column("phases", "rank").astype(np.int64)
    row = workload.rank_offsets[rank] + workload.column("phases", "operation_id")
    iteration = _iterations(workload)
    kind = workload.column("operations", "kind").astype(np.int64)
    if not len(row) or (iteration < 0).all():
        return np.full(len(row), -1, np.int64)
    place = np.zeros(len(row), np.int64)
    among = np.arange(len(row)) - np.searchsorted(row, row, "left")
    region = workload.column("phases", "region_id").astype(np.int64)
    run, position = _runs(iteration, kind)
    for name in (kind[row], run[row], position[row], among, region):
        values, number = np.unique(name, return_inverse=True)
        place = np.unique(place * len(values) + number, return_inverse=True)[1]
    return np.where(iteration[row] >= 0, place, -1)


def _iterations(workload: Workload) -> np.ndarray:
    """int64[operations]: the row of the table ``iterations`` that holds each operation, -1 where none does."""
    first, end = (
        workload.rank_offsets[workload.column("iterations", "rank")]
        + workload.column("iterations", f"{name}_operation_id")
        for name in ("first", "end")
    )
    index = np.flatnonzero(end > first)
    index = index[np.argsort(first[index], kind="stable")]
    if not len(index):
        return np.full(workload.num_operations, -1, np.int64)
    at = np.searchsorted(first[index], np.arange(workload.num_operations), "right") - 1
    found = index[np.maximum(at, 0)]
    return np.where((at >= 0) & (np.arange(workload.num_operations) < end[found]), found, -1)


def _runs(iteration: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of operations in runs of one kind: (the how manieth run of its kind in the iteration; the place in the run)."""
    rows = np.arange(len(kind))
    is_first = np.ones(len(kind), bool)
    is_first[1:] = (np.diff(kind) != 0) | (np.diff(iteration) != 0)
    starts = np.flatnonzero(is_first)
    run = np.cumsum(is_first) - 1
    group = (iteration[starts] + 1) * (kind.max() + 1) + kind[starts]
    order = np.argsort(group, kind="stable")
    number = np.empty(len(starts), np.int64)
    number[order] = np.arange(len(starts)) - np.searchsorted(group[order], group[order], "left")
    return number[run], rows - starts[run]


def _ratio_by_group(group: np.ndarray, traced: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """float64[phases]: predicted over traced detailed time of the phase's group (0 or more; -1 is none), NaN where it
    has none."""
    sums = [np.bincount(group + 1, values) for values in (traced, predicted)]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(sums[0] > 0, sums[1] / sums[0], np.nan)
    return np.where(group < 0, np.nan, ratio[group + 1])
