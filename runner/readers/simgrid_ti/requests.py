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

from manyscale.models.kernels import allocation_free
from manyscale.models.workload import NO_REQUEST, OperationKind
from manyscale.models.workload.columns import to_arrow, to_numpy
from manyscale.models.workload.polls import Poll
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
    that operation i completes. ``kind``: the operations' kinds, tests that must have succeeded turned into waits.
    ``polls``: what each is to a run of polls (``models/workload/polls.py``)."""

    kind: np.ndarray
    request: np.ndarray
    offsets: np.ndarray
    values: np.ndarray
    polls: np.ndarray
    tests_taken_as_waits: int


def resolve(rows: RankRows) -> Requests:
    """Requests of one rank. Raises LineError for a wait that no request fits."""
    role = rows.role
    is_post = role == POST
    request = np.where(is_post, np.cumsum(is_post) - 1, NO_REQUEST).astype(np.int32)
    if not np.any(role != NOTHING):
        offsets, values = np.zeros(len(role) + 1, np.int64), np.empty(0, np.int32)
        return Requests(rows.kind, request, offsets, values, np.full(len(role), Poll.ends, np.int8), 0)
    covering = np.flatnonzero((role == WAITALL) | (role == WAITANY))
    last = int(covering[-1]) if len(covering) else -1
    taken_by, orphan = _named_by(role, rows.key, last)
    if orphan >= 0:
        raise LineError(_first_without_post(role, rows.key, orphan), "no outstanding isend or irecv fits this wait")
    counts = np.zeros(len(role), np.int64)
    nothing = np.empty(0, np.int32)
    outstanding = np.empty(len(role), np.int64)
    final_role = role.copy()
    _cover(final_role, rows.array_length, taken_by, last, counts, outstanding, np.zeros(1, np.int64), nothing)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    values = np.empty(offsets[-1], np.int32)
    final_role[:] = role
    counts[:] = 0
    _cover(final_role, rows.array_length, taken_by, last, counts, outstanding, offsets, values)
    values = request[values]
    kind = rows.kind.copy()
    became = (role >= TEST) & (final_role < TEST)
    kind[became & (final_role == WAIT)] = OperationKind.wait
    kind[became & (final_role == WAITALL)] = OperationKind.waitall
    kind[became & (final_role == WAITANY)] = OperationKind.waitany
    polls = np.where(became, Poll.found, np.where(role >= TEST, Poll.failed, Poll.ends)).astype(np.int8)
    return Requests(kind, request, offsets, values, polls, int(np.count_nonzero(became)))


def _first_without_post(role: np.ndarray, key: np.ndarray, orphan: int) -> int:
    """The first wait for the key of ``orphan`` that more waits than posts stand before."""
    same = np.flatnonzero((key == key[:, [orphan]]).all(axis=0) & np.isin(role, (POST, WAIT)))
    open_posts = np.cumsum(np.where(role[same] == POST, 1, -1))
    return int(same[np.argmax(open_posts < 0)])


def _named_by(role: np.ndarray, key: np.ndarray, last_waitall: int) -> tuple[np.ndarray, int]:
    """For every post the operation that names it, or -1; and the first wait without a post, or -1."""
    slot, num_slots = _slots(role, key)
    taken_by, taken_post, following = np.full((3, len(role)), -1, np.int32)
    head, tail, last_test = np.full((3, num_slots), -1, np.int32)
    _take_named(role, slot, last_waitall, taken_by, head, tail, last_test, following)
    orphans = head[head >= 0]
    head[:] = -1
    following[:] = -1
    posts = np.flatnonzero((role == POST) & (taken_by >= 0))
    taken_post[taken_by[posts]] = posts
    _first_in_first_out(role, slot, taken_by, taken_post, head, tail, following)
    return taken_by, int(orphans.min(initial=len(role))) if len(orphans) else -1


def _slots(role: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, int]:
    """(for each operation that posts or names a request the number of its key, how many keys there are)."""
    rows = np.flatnonzero((role == POST) | (role == WAIT) | (role == TEST))
    pair, number = key[:, rows]
    number = number - number.min(initial=0)
    bits = int(number.max(initial=0)).bit_length()
    if bits > 18:  # no room beside a pair of ranks
        pair = _numbered(pair)[0].astype(np.int64)
    found, count = _numbered(pair << bits | number)
    slot = np.full(len(role), -1, np.int32)
    slot[rows] = found
    return slot, count


def _numbered(values: np.ndarray) -> tuple[np.ndarray, int]:
    """(for each value its number in the order of their first appearance, how many different ones there are)."""
    encoded = to_arrow(values).dictionary_encode()
    return to_numpy(encoded), len(encoded.dictionary)


@allocation_free
def _take_named(role, slots, last_waitall, taken_by, head, tail, last_test, following):  # type: ignore[no-untyped-def]
    """Going backwards, give each post to the latest wait of its key that is left. Of each key: ``head`` and ``tail`` of
    the queue of later waits, the latest first, and the last test of the run that follows."""
    for i in range(role.shape[0] - 1, -1, -1):
        slot = slots[i]
        what = role[i]
        if slot < 0:
            continue
        first = head[slot]
        if what == WAIT:
            if first < 0:
                head[slot] = i
            else:
                following[tail[slot]] = i
            tail[slot] = i
        elif what == TEST:
            if last_test[slot] < 0:
                last_test[slot] = i
        else:
            if first >= 0:
                taken_by[i] = first
                head[slot] = following[first]
            elif i > last_waitall:
                taken_by[i] = last_test[slot]
            last_test[slot] = -1


@allocation_free
def _first_in_first_out(role, slots, taken_by, taken_post, head, tail, following):  # type: ignore[no-untyped-def]
    """Let each wait take the earliest open request of its key rather than a later one, where the earlier is left to a
    waitall that comes after this wait: the two exchange. ``head`` and ``tail``, of each key: queue of open requests."""
    last_waitall = -1
    for i in range(role.shape[0]):
        slot = slots[i]
        what = role[i]
        if what == POST:
            if head[slot] < 0:
                head[slot] = i
            else:
                following[tail[slot]] = i
            tail[slot] = i
        elif what == WAIT:
            post = taken_post[i]
            first = head[slot]
            # those that are gone: taken by an earlier wait or test, or covered by a waitall
            while first >= 0 and first != post:
                owner = taken_by[first]
                if owner >= i or (owner < 0 and first > last_waitall):
                    break
                first = following[first]
            if first >= 0 and first < post and taken_by[first] < 0:
                taken_by[first] = i
                taken_by[post] = -1
                first = following[first]
            head[slot] = first
        elif what == WAITALL or what == WAITANY:
            last_waitall = i


@allocation_free
def _cover(role, array_length, taken_by, last_waitall, counts, outstanding, offsets, values):  # type: ignore[no-untyped-def]
    """Count (``values`` empty) or list what each completion completes, by the operations that opened it; tests that
    complete change their role. ``counts`` begin at 0, ``outstanding`` is scratch."""
    is_listing = offsets.shape[0] > 1
    num_outstanding = 0
    consumed = 0  # by waitAny, among the outstanding
    for i in range(role.shape[0]):
        action = role[i]
        if action == POST:
            owner = taken_by[i]
            if owner < 0:
                outstanding[num_outstanding] = i
                num_outstanding += 1
                continue
            if role[owner] == TEST:
                role[owner] = WAIT
            if is_listing:
                values[offsets[owner] + counts[owner]] = i
            counts[owner] += 1
            continue
        if (action == TESTALL or action == TESTANY) and i > last_waitall and num_outstanding > 0:
            following = role[min(i + 1, role.shape[0] - 1)]
            if i + 1 == role.shape[0] or (following != TESTALL and following != TESTANY):  # the last of its run
                action = WAITALL if action == TESTALL else WAITANY
                role[i] = action
        if action != WAITALL and action != WAITANY:
            continue
        length = array_length[i]
        covered = min(num_outstanding, length) if length > 0 else num_outstanding
        if is_listing:
            for k in range(covered):
                values[offsets[i] + k] = outstanding[k]
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
