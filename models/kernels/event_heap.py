"""A heap of events by (time, number) in arrays that a kernel's caller provides."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner


def event_record(time: np.dtype) -> np.dtype:
    """Record of one event. A heap is an array of them, as long as it may grow, and ``heap_size``, int64[1]."""
    return np.dtype([("time", time), ("number", "i8")])


@inner
def push(heap, heap_size, number, time):  # type: ignore[no-untyped-def]
    """Add an event. O(log heap_size)."""
    place = heap_size[0]
    heap_size[0] = place + 1
    while place > 0:
        parent = (place - 1) >> 1
        above = heap[parent].time
        if above < time or (above == time and heap[parent].number <= number):
            break
        heap[place].time = above
        heap[place].number = heap[parent].number
        place = parent
    heap[place].time = time
    heap[place].number = number


@inner
def pop(heap, heap_size):  # type: ignore[no-untyped-def]
    """Take the earliest event out, ``heap[0]`` before: its number. O(log heap_size)."""
    first = heap[0].number
    last = heap_size[0] - 1
    heap_size[0] = last
    time = heap[last].time
    number = heap[last].number
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        right = child + 1
        if right < last:
            left, other = heap[child].time, heap[right].time
            if other < left or (other == left and heap[right].number < heap[child].number):
                child = right
        below = heap[child].time
        if below > time or (below == time and heap[child].number >= number):
            break
        heap[place].time = below
        heap[place].number = heap[child].number
        place = child
    heap[place].time = time
    heap[place].number = number
    return first
