"""Which requests each wait of a time-independent trace completes.

The trace names the request of a `wait` only by (source, destination, tag), gives a `waitall` or `waitAny` nothing but
the length of its array, and never says whether a test succeeded. Settled here, per rank, in one pass backwards and one
forwards, O(operations + listed candidates):

* a `wait` takes the earliest request of its key that is not taken by a later one (first in, first out);
* a `waitall` covers the outstanding requests that no later `wait` names, the oldest first, at most its array's length;
* a `waitAny` completes one of those, whichever is first in simulated time;
* a test is taken to have failed, unless nothing later completes its request: then the last test of its run is a wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.kernels.hash_table import find_or_add, new_table
from manyscale.models.workload import NO_REQUEST, OperationKind
from manyscale.runner.readers.simgrid_ti.actions import LineError, RankRows
from manyscale.runner.readers.simgrid_ti.verbs import (
    NOTHING,
    POST,
    TEST,
    TESTALL,
    TESTANY,
    WAIT,
    WAITALL,
    WAITANY,
)


@dataclass(frozen=True)
class Requests:
    """``request``: int32 per operation, opened by it, or NO_REQUEST. ``values[offsets[i]:offsets[i + 1]]``: requests
    that operation i completes. ``kind``: the operations' kinds, tests that must have succeeded turned into waits."""

    kind: np.ndarray
    request: np.ndarray
    offsets: np.ndarray
    values: np.ndarray
    tests_taken_as_waits: int


def resolve(rows: RankRows) -> Requests:
    """Requests of one rank. Raises LineError for a wait that no request fits."""
    role = rows.role
    is_post = role == POST
    request = np.where(is_post, np.cumsum(is_post) - 1, NO_REQUEST).astype(np.int32)
    if not np.any(role != NOTHING):
        return Requests(rows.kind, request, np.zeros(len(role) + 1, np.int64), np.empty(0, np.int32), 0)
    taken_by, orphan = _take_named(role, rows.key, *new_table(len(role)), _last_of(role, (WAITALL, WAITANY)))
    if orphan >= 0:
        raise LineError(_first_without_post(role, rows.key, orphan), "no outstanding isend or irecv fits this wait")
    counts = np.zeros(len(role), np.int64)
    nothing = np.empty(0, np.int32)
    final_role = role.copy()
    last = _last_of(role, (WAITALL, WAITANY))
    _cover(final_role, rows.array_length, request, taken_by, last, counts, np.zeros(1, np.int64), nothing)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    values = np.empty(offsets[-1], np.int32)
    final_role[:] = role
    _cover(final_role, rows.array_length, request, taken_by, last, counts, offsets, values)
    kind = rows.kind.copy()
    became = (role >= TEST) & (final_role < TEST)
    kind[became & (final_role == WAIT)] = OperationKind.wait
    kind[became & (final_role == WAITALL)] = OperationKind.waitall
    kind[became & (final_role == WAITANY)] = OperationKind.waitany
    return Requests(kind, request, offsets, values, int(np.count_nonzero(became)))


def _first_without_post(role: np.ndarray, key: np.ndarray, orphan: int) -> int:
    """The first wait for the key of ``orphan`` that more waits than posts stand before."""
    same = np.flatnonzero((key == key[orphan]).all(axis=1) & np.isin(role, (POST, WAIT)))
    open_posts = np.cumsum(np.where(role[same] == POST, 1, -1))
    return int(same[np.argmax(open_posts < 0)])


def _last_of(role: np.ndarray, roles: tuple[int, ...]) -> int:
    found = np.flatnonzero(np.isin(role, roles))
    return int(found[-1]) if len(found) else -1


@njit(cache=True, nogil=True)
def _take_named(role, key, table_keys, table_slots, last_waitall):  # type: ignore[no-untyped-def]
    """For every post the operation that names it, or -1; and the first wait without a post, or -1."""
    size = role.shape[0]
    taken_by = np.full(size, -1, np.int64)
    head = np.full(size + 1, -1, np.int32)  # per key: queue of later waits, the latest first
    tail = np.full(size + 1, -1, np.int32)
    last_test = np.full(size + 1, -1, np.int32)  # per key: last test of the run that follows
    following = np.full(size, -1, np.int32)
    slot_of = np.full(size, -1, np.int32)
    for i in range(size - 1, -1, -1):
        if role[i] != POST and role[i] != WAIT and role[i] != TEST:
            continue
        slot = find_or_add(table_keys, table_slots, key[i, 0], key[i, 1], i)
        slot_of[i] = slot
        if role[i] == WAIT:
            if head[slot] < 0:
                head[slot] = i
            else:
                following[tail[slot]] = i
            tail[slot] = i
        elif role[i] == TEST:
            if last_test[slot] < 0:
                last_test[slot] = i
        else:
            if head[slot] >= 0:
                taken_by[i] = head[slot]
                head[slot] = following[head[slot]]
            elif last_test[slot] >= 0 and i > last_waitall:
                taken_by[i] = last_test[slot]
            last_test[slot] = -1
    orphan = -1
    for slot in range(size):
        if head[slot] >= 0 and (orphan < 0 or head[slot] < orphan):
            orphan = head[slot]
    _first_in_first_out(role, slot_of, taken_by, head, tail, following)
    return taken_by, orphan


@njit(cache=True, nogil=True)
def _first_in_first_out(role, slot_of, taken_by, head, tail, following):  # type: ignore[no-untyped-def]
    """Let each wait take the earliest open request of its key rather than a later one, where the earlier is left to a
    waitall that comes after this wait: the two exchange. The arrays per key are scratch."""
    size = role.shape[0]
    head[:] = -1  # per key: queue of open requests
    following[:] = -1
    taken_post = np.full(size, -1, np.int32)
    for i in range(size):
        if role[i] == POST and taken_by[i] >= 0:
            taken_post[taken_by[i]] = i
    last_waitall = -1
    for i in range(size):
        slot = slot_of[i]
        if role[i] == POST:
            if head[slot] < 0:
                head[slot] = i
            else:
                following[tail[slot]] = i
            tail[slot] = i
        elif role[i] == WAIT:
            post = taken_post[i]
            first = head[slot]
            # those that are gone: taken by an earlier wait or test, or covered by a waitall
            while first >= 0 and first != post:
                if taken_by[first] >= i or (taken_by[first] < 0 and first > last_waitall):
                    break
                first = following[first]
            if first >= 0 and post >= 0 and first < post and taken_by[first] < 0:
                taken_by[first] = i
                taken_by[post] = -1
                first = following[first]
            head[slot] = first
        elif role[i] == WAITALL or role[i] == WAITANY:
            last_waitall = i


@njit(cache=True, nogil=True)
def _cover(role, array_length, request, taken_by, last_waitall, counts, offsets, values):  # type: ignore[no-untyped-def]
    """Count (``values`` empty) or list what each completion completes; tests that complete change their role."""
    size = role.shape[0]
    fill = offsets.shape[0] > 1
    counts[:] = 0
    outstanding = np.empty(size, np.int64)
    num_outstanding = 0
    consumed = 0  # by waitAny, among the outstanding
    for i in range(size):
        if role[i] == POST:
            owner = taken_by[i]
            if owner >= 0:
                if role[owner] == TEST:
                    role[owner] = WAIT
                if fill:
                    values[offsets[owner] + counts[owner]] = request[i]
                counts[owner] += 1
            else:
                outstanding[num_outstanding] = i
                num_outstanding += 1
            continue
        action = role[i]
        if (action == TESTALL or action == TESTANY) and i > last_waitall and num_outstanding > 0:
            ends_run = i + 1 == size or (role[i + 1] != TESTALL and role[i + 1] != TESTANY)
            if ends_run:
                action = WAITALL if action == TESTALL else WAITANY
                role[i] = action
        if action != WAITALL and action != WAITANY:
            continue
        covered = min(num_outstanding, array_length[i]) if array_length[i] > 0 else num_outstanding
        if fill:
            for k in range(covered):
                values[offsets[i] + k] = request[outstanding[k]]
        counts[i] = covered
        if action == WAITANY:
            consumed += 1
            if consumed < num_outstanding:
                continue
            covered = num_outstanding
        for k in range(covered, num_outstanding):
            outstanding[k - covered] = outstanding[k]
        num_outstanding -= covered
        consumed = 0
    return 0
