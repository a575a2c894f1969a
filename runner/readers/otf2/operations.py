"""From the events of one OTF2 rank to operations and compute phases.

An MPI region (named MPI_...) becomes one operation, or one for each request that it opens; what its events complete
belongs to it. A receive's request is filled with the sender that its completion names. MPI calls within MPI calls
belong to the outermost. Time outside MPI regions is compute, cut where functions of the user's begin and end; time in
which measurement was switched off is none.
Cost: O(events) in one kernel, as long as regions nest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload import NO_RANK, NO_REQUEST
from manyscale.runner.readers.otf2.events import (
    CANCELLED,
    COLLECTIVE_BEGIN,
    COLLECTIVE_COMPLETE,
    COLLECTIVE_END,
    COLLECTIVE_REQUEST,
    ENTER,
    IRECEIVE,
    IRECEIVE_REQUEST,
    ISEND,
    ISEND_COMPLETE,
    LEAVE,
    METRIC,
    RECEIVE,
    REQUEST_TEST,
    SEND,
    SWITCHED,
)

# what an operation is
(IS_OTHER, IS_SEND, IS_ISEND, IS_RECEIVE, IS_IRECEIVE, IS_SENDRECV, IS_COLLECTIVE, IS_ICOLLECTIVE, IS_COMPLETION,
 IS_TEST, IS_OPEN_RECEIVE, IS_OPEN_COLLECTIVE) = range(12)  # fmt: skip
DEEPEST: Final = 65536

# columns of an operation
(WHAT, REGION, START, END, PEER, SOURCE, COMMUNICATOR, TAG, SENT, RECEIVED, OPERATION, REQUEST) = range(12)
# columns of a phase
PHASE_OPERATION, PHASE_REGION, PHASE_START, PHASE_END = range(4)


@dataclass(frozen=True)
class RankRows:
    """``operations`` int64[n, 12] and ``phases`` int64[m, 4] with the columns above, times in ticks; ``completes``:
    (offsets, requests). ``metric_rows`` int64[m, classes, 2]: rows of the values at a phase's start and end, -1 for
    none. ``num_unknown``: completions of requests that nothing opened. ``num_unbalanced``: regions left that were not
    the innermost. ``is_off``: whether measurement was ever off. ``too_deep_at``: event that enters one region too many,
    -1 for none."""

    operations: np.ndarray
    phases: np.ndarray
    completes: tuple[np.ndarray, np.ndarray]
    metric_rows: np.ndarray
    num_unknown: int
    num_unbalanced: int
    is_off: bool
    too_deep_at: int


def operations_of(events: np.ndarray, is_mpi: np.ndarray, num_classes: int) -> RankRows:
    """Follow the events of a rank; ``is_mpi``: per region."""
    size = len(events)
    requests = np.where(events[:, 0] == COLLECTIVE_COMPLETE, events[:, 7], events[:, 6])
    _, request_of = np.unique(requests, return_inverse=True)
    operations = np.zeros((2 * size + 1, 12), np.int64)
    phases = np.zeros((size + 1, 4), np.int64)
    metric_rows = np.full((size + 1, num_classes, 2), -1, np.int64)
    counts = np.zeros(2 * size + 1, np.int64)
    values = np.empty(size, np.int32)
    num_operations, num_phases, num_values, num_unknown, num_unbalanced, is_off, too_deep_at = _follow(
        events, request_of.astype(np.int64), is_mpi, operations, phases, metric_rows, counts, values
    )
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[:num_operations])))
    return RankRows(
        operations=operations[:num_operations].copy(),
        phases=phases[:num_phases].copy(),
        completes=(offsets, values[:num_values].copy()),
        metric_rows=metric_rows[:num_phases].copy(),
        num_unknown=num_unknown,
        num_unbalanced=num_unbalanced,
        is_off=bool(is_off),
        too_deep_at=too_deep_at,
    )


@njit(cache=True, nogil=True)
def _new(operations, row, region, time):  # type: ignore[no-untyped-def]
    operations[row, :] = 0
    operations[row, REGION] = region
    operations[row, START] = time
    operations[row, END] = time
    operations[row, PEER] = NO_RANK
    operations[row, SOURCE] = NO_RANK
    operations[row, OPERATION] = -1
    operations[row, REQUEST] = NO_REQUEST


@njit(cache=True, nogil=True)
def _follow(events, request_of, is_mpi, operations, phases, metric_rows, counts, values):  # type: ignore[no-untyped-def]
    """One pass over the events of a rank. O(events x metric classes)."""
    num_operations = 0
    num_phases = 0
    num_values = 0
    num_requests = 0
    num_unknown = 0
    num_unbalanced = 0
    was_off = False
    stack = np.empty(DEEPEST, np.int64)
    depth = 0
    outermost = -1  # depth of the outermost MPI region, -1 outside
    first_row = -1  # of the MPI region that we are in
    opener_of = np.full(events.shape[0] + 1, -1, np.int64)  # per request: operation that opened it
    boundary = np.int64(-1)  # where the phase that runs now began; -1: none runs
    num_classes = metric_rows.shape[1]
    latest = np.full((num_classes, 2), -1, np.int64)  # per class: time and row of the latest values
    at_boundary = np.full(num_classes, -1, np.int64)
    for i in range(events.shape[0]):
        code = events[i, 0]
        time = events[i, 1]
        if code == METRIC:
            latest[events[i, 2], 0] = time
            latest[events[i, 2], 1] = events[i, 3]
            continue
        is_alone = False
        if outermost < 0:
            # A phase ends here, unless this event is inside an MPI region.
            region = stack[depth - 1] if depth > 0 else -1
            if boundary >= 0 and time > boundary:
                phases[num_phases, PHASE_OPERATION] = num_operations
                phases[num_phases, PHASE_REGION] = region
                phases[num_phases, PHASE_START] = boundary
                phases[num_phases, PHASE_END] = time
                for k in range(num_classes):
                    metric_rows[num_phases, k, 0] = at_boundary[k]
                    metric_rows[num_phases, k, 1] = latest[k, 1] if latest[k, 0] == time else -1
                num_phases += 1
            boundary = time
            for k in range(num_classes):
                at_boundary[k] = latest[k, 1] if latest[k, 0] == time else -1
        if code == SWITCHED:
            if events[i, 2] == 0:
                was_off = True
                boundary = np.int64(-1)
            elif outermost < 0:
                boundary = time
            continue
        if code == ENTER:
            if depth == DEEPEST:
                return num_operations, num_phases, num_values, num_unknown, num_unbalanced, was_off, i
            stack[depth] = events[i, 2]
            if outermost < 0 and is_mpi[events[i, 2]]:
                outermost = depth
                first_row = num_operations
                _new(operations, num_operations, events[i, 2], time)
                num_operations += 1
            depth += 1
            continue
        if code == LEAVE:
            found = depth - 1
            while found >= 0 and stack[found] != events[i, 2]:
                found -= 1
            if found < depth - 1:  # of regions inside it that are never left; or one that was never entered
                num_unbalanced += 1
            if found < 0:
                continue
            depth = found
            if outermost >= 0 and depth <= outermost:
                outermost = -1
                for row in range(first_row, num_operations):
                    operations[row, END] = time
                boundary = time
                for k in range(num_classes):
                    at_boundary[k] = latest[k, 1] if latest[k, 0] == time else -1
            continue
        if outermost < 0:  # an event outside any MPI region: an operation of its own
            is_alone = True
            _new(operations, num_operations, -1, time)
            first_row = num_operations
            num_operations += 1
        row = num_operations - 1
        what = operations[row, WHAT]
        name = request_of[i]
        if code == COLLECTIVE_BEGIN:
            if is_alone:
                num_operations -= 1  # its end makes the operation
            continue
        if code == ISEND_COMPLETE or code == IRECEIVE or code == COLLECTIVE_COMPLETE:
            opener = opener_of[name]
            opener_of[name] = -1
            if opener < 0:
                num_unknown += 1
                continue
            if code == IRECEIVE:
                operations[opener, WHAT] = IS_IRECEIVE
                operations[opener, PEER] = events[i, 2]
                operations[opener, COMMUNICATOR] = events[i, 3]
                operations[opener, TAG] = events[i, 4]
                operations[opener, RECEIVED] = events[i, 5]
            elif code == COLLECTIVE_COMPLETE:
                operations[opener, WHAT] = IS_ICOLLECTIVE
                operations[opener, OPERATION] = events[i, 2]
                operations[opener, COMMUNICATOR] = events[i, 3]
                operations[opener, PEER] = events[i, 4]
                operations[opener, SENT] = events[i, 5]
                operations[opener, RECEIVED] = events[i, 6]
            if what != IS_OTHER and what != IS_COMPLETION and what != IS_TEST:
                _new(operations, num_operations, operations[row, REGION], time)
                num_operations += 1
                row += 1
            operations[row, WHAT] = IS_COMPLETION
            values[num_values] = operations[opener, REQUEST]
            num_values += 1
            counts[row] += 1
            continue
        if code == REQUEST_TEST:
            if what == IS_OTHER:
                operations[row, WHAT] = IS_TEST
            continue
        if code == CANCELLED:
            if opener_of[name] >= 0:
                operations[opener_of[name], WHAT] = IS_OTHER
                operations[opener_of[name], REQUEST] = NO_REQUEST
                opener_of[name] = -1
            continue
        # What opens an operation: a further one in a region is a row of its own, but for the halves of a sendrecv.
        if (code == RECEIVE and what == IS_SEND) or (code == SEND and what == IS_RECEIVE):
            operations[row, WHAT] = IS_SENDRECV
            if code == RECEIVE:
                operations[row, SOURCE] = events[i, 2]
                operations[row, RECEIVED] = events[i, 5]
            else:
                operations[row, SOURCE] = operations[row, PEER]
                operations[row, PEER] = events[i, 2]
                operations[row, SENT] = events[i, 5]
            if operations[row, TAG] != events[i, 4] or operations[row, COMMUNICATOR] != events[i, 3]:
                operations[row, OPERATION] = i  # two tags: for the reader to refuse
            continue
        if what != IS_OTHER:
            region = operations[row, REGION]
            operations[row, END] = time
            _new(operations, num_operations, region, time)
            num_operations += 1
            row += 1
        if code == SEND or code == ISEND:
            operations[row, WHAT] = IS_SEND if code == SEND else IS_ISEND
            operations[row, SENT] = events[i, 5]
        elif code == RECEIVE:
            operations[row, WHAT] = IS_RECEIVE
            operations[row, RECEIVED] = events[i, 5]
        elif code == COLLECTIVE_END:
            operations[row, WHAT] = IS_COLLECTIVE
            operations[row, OPERATION] = events[i, 2]
            operations[row, COMMUNICATOR] = events[i, 3]
            operations[row, PEER] = events[i, 4]
            operations[row, SENT] = events[i, 5]
            operations[row, RECEIVED] = events[i, 6]
        elif code == IRECEIVE_REQUEST:
            operations[row, WHAT] = IS_OPEN_RECEIVE
        elif code == COLLECTIVE_REQUEST:
            operations[row, WHAT] = IS_OPEN_COLLECTIVE
        if code == SEND or code == ISEND or code == RECEIVE:
            operations[row, PEER] = events[i, 2]
            operations[row, COMMUNICATOR] = events[i, 3]
            operations[row, TAG] = events[i, 4]
        if code == ISEND or code == IRECEIVE_REQUEST or code == COLLECTIVE_REQUEST:
            operations[row, REQUEST] = num_requests
            opener_of[name] = row
            num_requests += 1
    return num_operations, num_phases, num_values, num_unknown, num_unbalanced, was_off, -1
