"""GOAL's labels resolved to operations, and the order of waits that a rank's dependencies amount to, if they do."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import njit
from manyscale.runner.readers.goal.tokens import CALCULATION


@njit(cache=True, nogil=True)
def resolve(  # type: ignore[no-untyped-def]
    bounds, label, dependency_bounds, dependent, required, after, before
):
    """Fill ``after`` and ``before`` (operations) of each dependency from its labels; operations of rank r stand in
    [bounds[r], bounds[r + 1]). Returns (operation, -1) for a label that is given twice, (-1, dependency) for one that
    is not defined, else (-1, -1). Expected O(operations + dependencies)."""
    most = 0
    for r in range(bounds.shape[0] - 1):
        most = max(most, bounds[r + 1] - bounds[r])
    capacity = 16
    while capacity < 2 * most:
        capacity *= 2
    mask = np.uint64(capacity - 1)
    keys = np.zeros(capacity, np.int64)
    owner = np.full(capacity, -1, np.int32)  # the rank that an entry is of
    values = np.zeros(capacity, np.int32)
    for r in range(bounds.shape[0] - 1):
        for row in range(bounds[r], bounds[r + 1]):
            if label[row] == 0:
                continue
            place = _place(keys, owner, mask, label[row], r)
            if owner[place] == r:
                return row, np.int64(-1)
            keys[place] = label[row]
            owner[place] = r
            values[place] = row
        for row in range(dependency_bounds[r], dependency_bounds[r + 1]):
            for side in range(2):
                name = dependent[row] if side == 0 else required[row]
                place = _place(keys, owner, mask, name, r)
                if owner[place] != r:
                    return np.int64(-1), row
                if side == 0:
                    after[row] = values[place]
                else:
                    before[row] = values[place]
    return np.int64(-1), np.int64(-1)


@njit(cache=True, nogil=True)
def _place(keys, owner, mask, key, r):  # type: ignore[no-untyped-def]
    """Where a label of rank ``r`` stands, or belongs."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    place = (mixed ^ (mixed >> np.uint64(32))) & mask
    while owner[place] == r and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@njit(cache=True, nogil=True)
def by_dependent(num_operations, after, before, on_start):  # type: ignore[no-untyped-def]
    """(offsets, before, on_start) of the dependencies of each operation, in the given order. O(n)."""
    offsets = np.zeros(num_operations + 1, np.int64)
    for edge in range(after.shape[0]):
        offsets[after[edge] + 1] += 1
    for row in range(num_operations):
        offsets[row + 1] += offsets[row]
    place = offsets.copy()
    sorted_before = np.empty_like(before)
    sorted_start = np.empty_like(on_start)
    for edge in range(after.shape[0]):
        at = place[after[edge]]
        place[after[edge]] += 1
        sorted_before[at] = before[edge]
        sorted_start[at] = on_start[edge]
    return offsets, sorted_before, sorted_start


@njit(cache=True, nogil=True)
def order(bounds, kind, offsets, before, on_start, waited_before):  # type: ignore[no-untyped-def]
    """Whether every rank may run its operations in the order of the file, each send and receive being waited for
    before the first operation that requires its end, and none starts later than its dependencies demand. Fills
    ``waited_before`` (int32, -1 at first): that operation.

    A rank's order passes through *stages*: a calculation begins one, and so does a wait. An operation must depend on
    all that the stage it stands in stands for: on an operation of that stage; or, if a wait began the stage, on all
    operations that were waited for and on one of the stage before. O(operations + dependencies).
    """
    stage = np.full(kind.shape[0], -1, np.int64)
    counted = np.full(kind.shape[0], -1, np.int64)  # the last operation for which a dependency on it was counted
    for r in range(bounds.shape[0] - 1):
        current = -1
        wait = -1  # the operation before which the wait stands that began the stage; -1: a calculation did
        num_waited = 0
        for row in range(bounds[r], bounds[r + 1]):
            latest = -1
            covered = 0
            waits_for = 0
            for edge in range(offsets[row], offsets[row + 1]):
                other = before[edge]
                if other >= row or (on_start[edge] and kind[other] == CALCULATION):
                    return False
                latest = max(latest, stage[other])
                if on_start[edge] or kind[other] == CALCULATION or counted[other] == row:
                    continue
                counted[other] = row
                if waited_before[other] < 0:
                    waited_before[other] = row
                    waits_for += 1
                elif waited_before[other] == wait:
                    covered += 1
            if latest < current and not (wait >= 0 and covered == num_waited and latest >= current - 1):
                return False
            if kind[row] == CALCULATION:
                current += 1
                wait = -1
            elif waits_for:
                current += 1
                wait = row
                num_waited = waits_for
            stage[row] = current
    return True
