"""In which order a rank's nodes are done, and which of their dependencies need an event or a signal.

Threads and streams are *lanes*: each does its nodes one after the other. A lane that has several nodes that could be
next takes the first (nodes are sorted by it). Nodes that threads launch stand in the order of their launches: a node is
launched when the nodes of threads that it depends on have ended and those of streams have been launched, and begins
when these have ended, too. Without nodes of threads a stream's node waits until all that it depends on has ended.

Durations decide nothing but this order; where they are not known, guesses do (``reader.py``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit

NOWHERE: Final = -1


@njit(cache=True, nogil=True)
def _push(heap: np.ndarray, first: int, size: int, key: int) -> None:
    """Into the heap of ``size`` keys from ``first`` on."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if heap[first + above] <= key:
            break
        heap[first + at] = heap[first + above]
        at = above
    heap[first + at] = key


@njit(cache=True, nogil=True)
def _pop(heap: np.ndarray, first: int, size: int) -> int:
    """The least of ``size`` keys, taken out."""
    least = heap[first]
    key = heap[first + size - 1]
    at, size = 0, size - 1
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and heap[first + below + 1] < heap[first + below]:
            below += 1
        if heap[first + below] >= key:
            break
        heap[first + at] = heap[first + below]
        at = below
    if size > 0:
        heap[first + at] = key
    return least


@njit(cache=True, nogil=True)
def dispatch(
    lane: np.ndarray, duration: np.ndarray, is_launched: np.ndarray, is_cpu: np.ndarray, first_parent: np.ndarray,
    parent: np.ndarray, order: np.ndarray,
) -> int:  # fmt: skip
    """Fills ``order`` int64[nodes] and returns how many nodes it holds: fewer than there are if some require each
    other. ``is_launched``: nodes of streams that threads launch. O(nodes log nodes + parents + nodes x lanes)."""
    count = len(lane)
    lanes = lane.max() + 1 if count else 0
    first, launches = np.zeros(lanes + 1, np.int64), np.zeros(lanes, np.bool_)
    for node in range(count):
        first[lane[node] + 1] += 1
        launches[lane[node]] = is_launched[node]
    for number in range(lanes):
        first[number + 1] += first[number]
    first_child = np.zeros(count + 1, np.int64)
    for each in parent:
        first_child[each + 1] += 1
    for node in range(count):
        first_child[node + 1] += first_child[node]
    child, filled = np.zeros(len(parent), np.int64), first_child[:-1].copy()
    waits, starts = np.zeros(count, np.int64), np.zeros(count, np.int64)  # parents left until it is queued, begins
    for node in range(count):
        for at in range(first_parent[node], first_parent[node + 1]):
            child[filled[parent[at]]] = node
            filled[parent[at]] += 1
            waits[node] += 1
            if is_launched[node] and not is_cpu[parent[at]]:
                starts[node] += 1
    queue, queued, busy = np.zeros(count, np.int64), np.zeros(lanes, np.int64), np.zeros(lanes, np.bool_)
    ends, running, num_running = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64), 0
    ready, num_ready = np.zeros(count, np.int64), 0
    now, done = 0, 0
    for node in range(count - 1, -1, -1):
        if waits[node] == 0:
            ready[num_ready] = node
            num_ready += 1
    while True:
        while num_ready > 0:
            num_ready -= 1
            node = ready[num_ready]
            key = node
            if is_launched[node]:
                order[done] = node
                key = done
                done += 1
            _push(queue, first[lane[node]], queued[lane[node]], key)
            queued[lane[node]] += 1
            if is_launched[node]:
                for at in range(first_child[node + 1] - 1, first_child[node] - 1, -1):
                    if is_launched[child[at]]:
                        waits[child[at]] -= 1
                        if waits[child[at]] == 0:
                            ready[num_ready] = child[at]
                            num_ready += 1
        for number in range(lanes):
            if busy[number] or queued[number] == 0:
                continue
            key = queue[first[number]]
            node = key
            if launches[number]:
                node = order[key]
            if starts[node] > 0:
                continue
            _pop(queue, first[number], queued[number])
            queued[number] -= 1
            if not is_launched[node]:
                order[done] = node
                done += 1
            busy[number] = True
            ends[num_running], running[num_running] = now + max(duration[node], 1), node
            num_running += 1
        if num_running == 0:
            return done
        next_one = 0
        for at in range(1, num_running):
            if ends[at] < ends[next_one] or (ends[at] == ends[next_one] and running[at] < running[next_one]):
                next_one = at
        now, node = ends[next_one], running[next_one]
        num_running -= 1
        ends[next_one], running[next_one] = ends[num_running], running[num_running]
        busy[lane[node]] = False
        for at in range(first_child[node + 1] - 1, first_child[node] - 1, -1):
            if is_launched[child[at]] and not is_cpu[node]:
                starts[child[at]] -= 1
                continue
            waits[child[at]] -= 1
            if waits[child[at]] == 0:
                ready[num_ready] = child[at]
                num_ready += 1


@njit(cache=True, nogil=True)
def needed(
    lane: np.ndarray, is_cpu: np.ndarray, first_parent: np.ndarray, parent: np.ndarray, order: np.ndarray,
    thread: np.ndarray, is_needed: np.ndarray,
) -> None:  # fmt: skip
    """Fills ``thread`` int64[nodes], the lane of the thread that does or launches each, and ``is_needed``
    uint8[parents]: whose end must be waited for, because neither the order of a lane nor a wait before it says so.
    O(parents)."""
    count = len(lane)
    lanes = lane.max() + 1 if count else 0
    place, seen = np.zeros(count, np.int64), np.full((lanes, lanes), NOWHERE, np.int64)
    for at in range(count):
        place[order[at]] = at
    last, touched = np.full(lanes, NOWHERE, np.int64), np.zeros(lanes, np.int64)
    for step in range(count):
        node = order[step]
        num_touched = 0
        thread[node] = lane[node] if is_cpu[node] else 0
        latest = NOWHERE
        for at in range(first_parent[node], first_parent[node + 1]):
            before = parent[at]
            if is_cpu[before] and not is_cpu[node] and place[before] > latest:
                latest = place[before]
                thread[node] = lane[before]
            if last[lane[before]] == NOWHERE:
                touched[num_touched] = lane[before]
                num_touched += 1
                last[lane[before]] = at
            elif place[parent[last[lane[before]]]] < place[before]:
                last[lane[before]] = at
        for number in range(num_touched):
            at = last[touched[number]]
            last[touched[number]] = NOWHERE
            before = parent[at]
            waiting = thread[node] if is_cpu[before] else lane[node]
            if waiting != lane[before] and seen[waiting, lane[before]] < place[before]:
                seen[waiting, lane[before]] = place[before]
                is_needed[at] = 1
