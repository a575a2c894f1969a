"""The kernel of the LogGOPS model: an operation graph in simulated time. The law is said in network/loggops/model.py.

Events are taken by (time, stamp), the stamp being given when a vertex becomes ready or a message leaves, as in
LogGOPSim. An event whose CPU or network interface is busy waits for it: of those that wait at one rank for the same
(calculations; sends; messages to be received), only the one with the lowest stamp, their leader, has an event of its
own, the others stand in a skew heap by stamp behind it. So a queue of k messages costs k log k, where putting each back
whenever it is taken too early costs k^2.

Cost: O((vertices + edges) log vertices); receives with wildcards search their queue in order. Memory: some 60 B a
vertex.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, njit
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.network.operation_graph import ANY, CALCULATION, DELAY, JOIN, RECEIVE, SEND

# Times that are kept per vertex, -1 for never: when it started; when what waits for its start went on (for a send and a
# calculation once the CPU is done with it); when it ended; of a send, when its message was taken in by the receiving
# interface and CPU, and when its receive ended.
STARTED, ISSUED, ENDED, TAKEN_IN, RECEIVED = 0, 1, 2, 3, 4
NUM_TIMES: Final = 5
EVENT: Final = event_record(np.dtype(np.int64))
# Columns of a rank's clocks: when its CPU, and its interface for sends and for receives, are free. They name also the
# queues of what waits: calculations, sends, messages to be taken in.
_CPU, _OUT, _IN = 0, 1, 2


@allocation_free
def _merge(left, right, stamp_of, one, other):  # type: ignore[no-untyped-def]
    """Root of the skew heap of two (-1: empty). Amortised O(log n)."""
    root = np.int32(-1)
    above = np.int32(-1)
    while one >= 0 and other >= 0:
        if stamp_of[other] < stamp_of[one]:
            one, other = other, one
        following = right[one]
        right[one] = left[one]
        if above < 0:
            root = one
        else:
            left[above] = one
        above = one
        one = following
    rest = one if one >= 0 else other
    if above < 0:
        return rest
    left[above] = rest
    return root


@allocation_free
def _satisfy(  # type: ignore[no-untyped-def]
    begin, end, time, origin, kind, target, required, ready, ended, taken, armed, any_of, candidate_offsets, candidates,
    released, num_released, stack, num_ended,
):  # fmt: skip
    """Satisfy edges [begin, end) of vertex ``origin`` at ``time``. Vertices that become ready are appended to
    ``released``; those that have ended at once are put on ``stack``. Returns both sizes."""
    for edge in range(begin, end):
        vertex = target[edge]
        if vertex < 0:  # origin is a candidate of an any
            vertex = -1 - vertex
            if not armed[vertex] or ended[vertex] >= 0 or taken[origin]:
                continue
            taken[origin] = 1
            ended[vertex] = max(ready[vertex], time)
        else:
            ready[vertex] = max(ready[vertex], time)
            required[vertex] -= 1
            if required[vertex] > 0:
                continue
            if kind[vertex] == JOIN:
                ended[vertex] = ready[vertex]
            elif kind[vertex] == ANY:
                number = any_of[vertex]
                best = _first_candidate(
                    candidate_offsets[number], candidate_offsets[number + 1], candidates, ended, taken
                )
                armed[vertex] = 1
                if best == -1:
                    continue
                if best >= 0:
                    taken[best] = 1
                ended[vertex] = ready[vertex] if best < 0 else max(ready[vertex], ended[best])
            else:
                released[num_released] = vertex
                num_released += 1
                continue
        stack[num_ended] = vertex
        num_ended += 1
    return num_released, num_ended


@allocation_free
def _first_candidate(first, last, candidates, ended, taken):  # type: ignore[no-untyped-def]
    """Of an any's candidates the one that ended first, -1 if none has ended yet, -2 if all are taken."""
    best = -2
    for place in range(first, last):
        vertex = candidates[place]
        if taken[vertex]:
            continue
        if ended[vertex] < 0:
            best = max(best, -1)
        elif best < 0 or ended[vertex] < ended[best]:
            best = vertex
    return best


@allocation_free
def _enqueue(  # type: ignore[no-untyped-def]
    released, num_released, kind, rank, ready, clock, duration_ps, stamp_of, vertex_of, heap, heap_size,
    stamp,
):  # fmt: skip
    """Give events to the vertices in ``released``; of each run of one rank sends first, then receives, then others.
    Returns the next stamp."""
    begin = 0
    for last in range(num_released):
        if last + 1 < num_released and rank[released[last + 1]] == rank[released[last]]:
            continue
        for turn in range(CALCULATION + 1 if last > begin else 1):
            for place in range(begin, last + 1):
                vertex = released[place]
                what = kind[vertex]
                if last > begin and turn != min(what, CALCULATION):
                    continue
                if what == DELAY:
                    time = ready[vertex] + duration_ps[vertex]
                else:
                    time = max(ready[vertex], clock[rank[vertex], _CPU])
                if what == SEND:
                    time = max(time, clock[rank[vertex], _OUT])
                stamp_of[vertex] = stamp
                vertex_of[stamp] = vertex
                push(heap, heap_size, stamp, time)
                stamp += 1
        begin = last + 1
    return stamp


@allocation_free
def _sort_by_rank(released, num_released, rank):  # type: ignore[no-untyped-def]
    """Stable, in place; for the few runs of one rank that a rendezvous leaves."""
    for place in range(1, num_released):
        vertex = released[place]
        at = place
        while at > 0 and rank[released[at - 1]] > rank[vertex]:
            released[at] = released[at - 1]
            at -= 1
        released[at] = vertex


@allocation_free
def _take_matching(queues, following, queue, source, tag, sources, tags, takes_any):  # type: ignore[no-untyped-def]
    """Remove and return the first entry of a queue that fits, -1 for none. Where ``takes_any`` the queue holds messages
    and -1 as the wanted source or tag takes any; else it holds receives, and their own -1 do."""
    before = np.int32(-1)
    entry = queues[queue, 0]
    while entry >= 0:
        if takes_any:
            fits = (source < 0 or sources[entry] == source) and (tag < 0 or tags[entry] == tag)
        else:
            fits = (sources[entry] < 0 or sources[entry] == source) and (tags[entry] < 0 or tags[entry] == tag)
        if fits:
            break
        before = entry
        entry = following[entry]
    if entry >= 0:
        if before < 0:
            queues[queue, 0] = following[entry]
        else:
            following[before] = following[entry]
        if queues[queue, 1] == entry:
            queues[queue, 1] = before
        following[entry] = -1
    return entry


@allocation_free
def _append(queues, following, queue, entry):  # type: ignore[no-untyped-def]
    """Append an entry to a queue: (first, last) of each in ``queues``, linked by ``following``."""
    if queues[queue, 0] < 0:
        queues[queue, 0] = entry
    else:
        following[queues[queue, 1]] = entry
    queues[queue, 1] = entry


@njit(cache=True, nogil=True)
def run_graph(  # type: ignore[no-untyped-def]
    kind, rank, message, queue, source, tag, num_queues, num_ranks, num_required, first_edge, middle_edge, target,
    duration_ps, any_of, candidate_offsets, candidates, destination, flight_ps, send_ps, receive_ps, gap_ps, is_eager,
    heap, times,
):  # fmt: skip
    """Fill ``times`` int64[NUM_TIMES, vertices] (all -1 at first). Per message: its ``destination``, ``flight_ps`` from
    its start to its arrival, ``send_ps`` and ``receive_ps`` of CPU at the two sides, ``gap_ps`` of their interfaces.
    Candidates of the any v stand in ``candidates`` from candidate_offsets[any_of[v]] on. Returns the number of messages
    that nobody received."""
    num_vertices = kind.shape[0]
    started, issued, ended, received = times[STARTED], times[ISSUED], times[ENDED], times[RECEIVED]
    taken_in = times[TAKEN_IN]
    clock = np.zeros((num_ranks, 3), np.int64)
    required = num_required.copy()
    ready = np.zeros(num_vertices, np.int64)
    stamp_of = np.zeros(num_vertices, np.int64)
    travels = np.zeros(num_vertices, np.uint8)  # a send whose event is now its message's arrival
    taken = np.zeros(max(1, any_of.shape[0]), np.uint8)
    armed = np.zeros(max(1, any_of.shape[0]), np.uint8)
    # receives, and messages that arrived, that are not matched yet
    posts = np.full((num_queues, 2), -1, np.int32)
    arrivals = np.full((num_queues, 2), -1, np.int32)
    following = np.full(num_vertices, -1, np.int32)
    leader = np.full(3 * num_ranks, -1, np.int32)
    root = np.full(3 * num_ranks, -1, np.int32)
    children = np.full((2, num_vertices), -1, np.int32)
    left, right = children[0], children[1]
    heap_size = np.zeros(1, np.int64)
    vertex_of = np.empty(num_vertices + destination.shape[0], np.int32)  # by stamp
    released = np.empty(num_vertices, np.int32)
    stack = np.empty(num_vertices + 1, np.int32)
    stamp = 0
    num_unreceived = 0
    num_released = 0
    num_ended = 0
    for vertex in range(num_vertices):
        if num_required[vertex] == 0:
            if kind[vertex] == JOIN:
                ended[vertex] = 0
                stack[num_ended] = vertex
                num_ended += 1
            else:
                released[num_released] = vertex
                num_released += 1
    while num_ended > 0:
        num_ended -= 1
        done = stack[num_ended]
        num_released, num_ended = _satisfy(
            middle_edge[done], first_edge[done + 1], ended[done], done, kind, target, required, ready, ended, taken,
            armed, any_of, candidate_offsets, candidates, released, num_released, stack, num_ended,
        )  # fmt: skip
    _sort_by_rank(released, num_released, rank)
    stamp = _enqueue(
        released, num_released, kind, rank, ready, clock, duration_ps, stamp_of, vertex_of, heap, heap_size, stamp
    )
    while heap_size[0] > 0:
        now = heap[0].time
        vertex = vertex_of[pop(heap, heap_size)]
        what = kind[vertex]
        host = rank[vertex]
        waits = -1
        starts = True  # this event starts the vertex
        ends = vertex  # the vertex that it ends, -1 for none
        end_time = now
        partner = np.int32(-1)  # the rendezvous send that it ends, at ``now``
        if what == RECEIVE:
            started[vertex] = now
            issued[vertex] = now
            found = _take_matching(arrivals, following, queue[vertex], source[vertex], tag[vertex], source, tag, True)
            if found >= 0:
                num_unreceived -= 1
                end_time = max(now, taken_in[found])
                received[found] = end_time
                if not is_eager[message[found]]:
                    partner = found
            else:
                ends = np.int32(-1)
                _append(posts, following, queue[vertex], vertex)
        elif what != DELAY:
            number = message[vertex]
            free = clock[host, _CPU]
            if what == CALCULATION:
                waits = 3 * host
            elif travels[vertex]:
                host = destination[number]
                waits = 3 * host + _IN
                free = max(clock[host, _CPU], clock[host, _IN])
            else:
                waits = 3 * host + _OUT
                free = max(free, clock[host, _OUT])
            if free > now:
                ahead = leader[waits]
                if ahead < 0 or stamp_of[vertex] <= stamp_of[ahead]:
                    leader[waits] = vertex
                    push(heap, heap_size, stamp_of[vertex], free)
                else:
                    left[vertex] = -1
                    right[vertex] = -1
                    root[waits] = _merge(left, right, stamp_of, root[waits], vertex)
                continue
            if what == CALCULATION:
                end_time = now + duration_ps[vertex]
                clock[host, _CPU] = end_time
                started[vertex] = now
                issued[vertex] = end_time
                free = end_time
            elif travels[vertex]:
                starts = False
                end_time = now + receive_ps[number]
                clock[host, _CPU] = end_time
                clock[host, _IN] = now + gap_ps[number]
                free = max(clock[host, _CPU], clock[host, _IN])
                taken_in[vertex] = end_time
                ends = _take_matching(posts, following, queue[vertex], source[vertex], tag[vertex], source, tag, False)
                if ends < 0:
                    num_unreceived += 1
                    _append(arrivals, following, queue[vertex], vertex)
                else:
                    received[vertex] = end_time
                    if not is_eager[number]:
                        partner = vertex
            else:
                end_time = now + send_ps[number]
                clock[host, _CPU] = end_time
                clock[host, _OUT] = now + gap_ps[number]
                free = max(clock[host, _CPU], clock[host, _OUT])
                started[vertex] = now
                issued[vertex] = end_time
                if not is_eager[number]:
                    ends = np.int32(-1)
            if leader[waits] == vertex:
                ahead = root[waits]
                leader[waits] = ahead
                if ahead >= 0:
                    root[waits] = _merge(left, right, stamp_of, left[ahead], right[ahead])
                    push(heap, heap_size, stamp_of[ahead], free)
            if what == SEND and not travels[vertex]:
                travels[vertex] = 1
                stamp_of[vertex] = stamp
                vertex_of[stamp] = vertex
                push(heap, heap_size, stamp, now + flight_ps[number])
                stamp += 1
        num_released = 0
        num_ended = 0
        if starts:
            num_released, num_ended = _satisfy(
                first_edge[vertex], middle_edge[vertex], issued[vertex], vertex, kind, target, required, ready, ended,
                taken, armed, any_of, candidate_offsets, candidates, released, num_released, stack, num_ended,
            )  # fmt: skip
        if partner >= 0:
            ended[partner] = now
            num_released, num_ended = _satisfy(
                middle_edge[partner], first_edge[partner + 1], now, partner, kind, target, required, ready, ended,
                taken, armed, any_of, candidate_offsets, candidates, released, num_released, stack, num_ended,
            )  # fmt: skip
        if ends >= 0:
            ended[ends] = end_time
            num_released, num_ended = _satisfy(
                middle_edge[ends], first_edge[ends + 1], end_time, ends, kind, target, required, ready, ended, taken,
                armed, any_of, candidate_offsets, candidates, released, num_released, stack, num_ended,
            )  # fmt: skip
        while num_ended > 0:
            num_ended -= 1
            done = stack[num_ended]
            num_released, num_ended = _satisfy(
                middle_edge[done], first_edge[done + 1], ended[done], done, kind, target, required, ready, ended, taken,
                armed, any_of, candidate_offsets, candidates, released, num_released, stack, num_ended,
            )  # fmt: skip
        if partner >= 0 and rank[partner] != host:
            _sort_by_rank(released, num_released, rank)
        stamp = _enqueue(
            released, num_released, kind, rank, ready, clock, duration_ps, stamp_of, vertex_of, heap, heap_size, stamp
        )
    return num_unreceived
