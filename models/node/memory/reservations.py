"""What several requests share (a cache's bandwidth, a channel, a bank, a link), reserved by windows of capacity.

Requests come out of order: one that waits for others asks for a time thousands of cycles ahead, and the next one asks
for now. A single time from which on a resource is free would make that one wait for the other. So time is cut into
windows, and of each stands how much of it is taken; a request takes what it needs from the first window on that has
room. What it takes is conserved; order inside a window is that in which requests come.

A resource is a ring of windows. Each holds the time up to which it is taken, as if from its beginning on without gaps;
of a full one, the time before which no window has room. A request is served from then on, or when it asks if that is
later: it may use what was left of its window before, so that bursts shorter than a window wait too little by a window
at most. One that begins in the rest of a window in front of others, which came before it, counts as one piece.

The ring knows windows within ``HORIZON`` cycles of each other. A request that comes when its window has been used for
another turn is served at once, and counted in the first place of the last row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inlined, separate

WINDOW: Final = 64.0  # cycles: some lines of main memory; less would cost more memory and gain little
NUM_WINDOWS: Final = 1024
HORIZON: Final = WINDOW * NUM_WINDOWS
_MASK: Final = NUM_WINDOWS - 1
_FURTHEST: Final = HORIZON / 2  # that a full window sends a request; beyond, it is of another turn
_PER_CYCLE: Final = 1.0 / WINDOW


def new_reservations(num_resources: int) -> np.ndarray:
    """float64[NUM_WINDOWS, num_resources + 1], nothing taken. (Windows of one time lie side by side: most requests are
    for about the same.)"""
    return np.zeros((NUM_WINDOWS, num_resources + 1))


@inlined
def reserve(taken, resource, cycle, amount):  # type: ignore[no-untyped-def]
    """Take ``amount`` cycles of a resource from ``cycle`` >= 0 on: when it serves. O(amount / WINDOW), and amortised
    almost O(1) for full windows."""
    window = np.int64(cycle * _PER_CYCLE)
    begin = window * WINDOW
    place = np.uint64(window & _MASK), np.uint64(resource)
    free = max(taken[place], begin)
    if free + amount > begin + WINDOW:  # not in this window alone
        return _reserve_later(taken, resource, cycle, amount)
    taken[place] = free + amount
    return max(cycle, free)


@separate
def _reserve_later(taken, resource, cycle, amount):  # type: ignore[no-untyped-def]
    """As ``reserve``, wherever there is room."""
    first = np.int64(cycle * _PER_CYCLE)
    window = first
    end = (window + 1) * WINDOW
    free = taken[window & _MASK, resource]
    while free >= end:
        if free - end > _FURTHEST:
            taken[0, taken.shape[1] - 1] += 1.0  # not -1: kernels take no negative indices
            return cycle
        window = np.int64(free * _PER_CYCLE)
        end = (window + 1) * WINDOW
        free = taken[window & _MASK, resource]
    if window != first:
        taken[first & _MASK, resource] = end - WINDOW
    free = max(free, end - WINDOW)
    start = max(cycle, free)
    free += amount
    while free > end:
        left = free - end
        taken[window & _MASK, resource] = end
        window += 1
        end += WINDOW
        free = taken[window & _MASK, resource]
        while end <= free <= end + _FURTHEST:
            window = np.int64(free * _PER_CYCLE)
            end = (window + 1) * WINDOW
            free = taken[window & _MASK, resource]
        free = left + (end - WINDOW if free >= end else max(free, end - WINDOW))
    taken[window & _MASK, resource] = free
    return start
