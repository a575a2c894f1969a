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

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.network.operation_graph import (
    ANY,
    CALCULATION,
    DELAY,
    JOIN,
    RECEIVE,
    SEND,
    OperationGraph,
)

# Times that are kept per vertex, -1 for never: when it started; when what waits for its start went on (for a send and a
# calculation once the CPU is done with it); when it ended; of a send, when its message was taken in by the receiving
# interface and CPU, and when its receive ended.
STARTED, ISSUED, ENDED, TAKEN_IN, RECEIVED = 0, 1, 2, 3, 4
NUM_TIMES: Final = 5
# Columns of a rank's clocks: when its CPU, and its interface for sends and for receives, are free. They name also the
# queues of what waits: calculations, sends, messages to be taken in.
_CPU, _OUT, _IN = 0, 1, 2
_UNITS: Final = 3
# Columns of a queue of what is not matched yet, first and last: receives, and messages that arrived
_POSTS, _ARRIVALS = 0, 2
# Counters: vertices in `released`, in `ended`, stamps given, messages without a receive; whether a rendezvous has
# released vertices of another rank
_RELEASED, _ENDED, _STAMP, _UNRECEIVED, _MIXED = range(5)

MESSAGE: Final = np.dtype(
    [
        ("flight", "i8"),  # from its start to its arrival
        ("send", "i8"), ("receive", "i8"),  # of CPU at the two sides
        ("gap", "i8"),  # of the interfaces
        ("destination", "i4"), ("is_eager", "i4"),
    ]
)  # fmt: skip
_VERTEX: Final = np.dtype(
    [
        ("duration", "i8"), ("ready", "i8"), ("stamp", "i8"),
        ("required", "i4"),  # edges that are not satisfied yet
        ("following", "i4"),  # in its queue of what is not matched
        ("left", "i4"), ("right", "i4"),  # in the skew heap of what waits behind a leader
        ("travels", "u1"),  # a send whose event is now its message's arrival
        ("taken", "u1"), ("armed", "u1"),  # by an any; an any that has become ready
        ("unused", "u1", 5),
    ]
)  # fmt: skip
_WAITING: Final = np.dtype([("leader", "i4"), ("root", "i4")])


class Graph(NamedTuple):
    """What does not change: see OperationGraph. Candidates of the any v stand in ``candidates`` from
    candidate_offsets[any_of[v]] on; ``message`` holds MESSAGE of each."""

    kind: np.ndarray
    rank: np.ndarray
    message_of: np.ndarray
    queue: np.ndarray
    source: np.ndarray
    tag: np.ndarray
    first: np.ndarray
    middle: np.ndarray
    target: np.ndarray
    any_of: np.ndarray
    candidate_offsets: np.ndarray
    candidates: np.ndarray
    message: np.ndarray


class Progress(NamedTuple):
    """How far the vertices are. ``times`` int64[NUM_TIMES, vertices] is the result."""

    times: np.ndarray
    vertex: np.ndarray
    clock: np.ndarray  # [ranks, units]
    waiting: np.ndarray  # [ranks x units]
    queue: np.ndarray
    vertex_of: np.ndarray  # by stamp
    released: np.ndarray  # vertices that have become ready
    ended: np.ndarray  # a stack of joins and anys whose edges are not satisfied yet
    heap: np.ndarray
    heap_size: np.ndarray
    counter: np.ndarray


def run_graph(
    graph: OperationGraph,
    duration_ps: np.ndarray,
    candidates: tuple[np.ndarray, np.ndarray, np.ndarray],
    message: np.ndarray,
    num_ranks: int,
) -> tuple[np.ndarray, int]:
    """Times of the vertices, int64[NUM_TIMES, vertices], -1 for never, and how many messages nobody receives.

    ``duration_ps`` per vertex; ``candidates``: (any_of, candidate_offsets, candidates) of Graph.
    """
    num_vertices = graph.num_vertices
    vertex = np.zeros(num_vertices, _VERTEX)
    vertex["duration"], vertex["required"] = duration_ps, graph.num_required
    for link in ("following", "left", "right"):
        vertex[link] = -1
    progress = Progress(
        times=np.full((NUM_TIMES, num_vertices), -1, np.int64),
        vertex=vertex,
        clock=np.zeros((num_ranks, _UNITS), np.int64),
        waiting=np.full(2 * _UNITS * num_ranks, -1, np.int32).view(_WAITING),
        queue=np.full((graph.num_queues, 4), -1, np.int32),
        vertex_of=np.empty(num_vertices + len(message), np.int32),
        released=np.empty(num_vertices, np.int32),
        ended=np.empty(num_vertices + 1, np.int32),
        heap=np.empty(num_vertices, event_record(np.dtype(np.int64))),
        heap_size=np.zeros(1, np.int64),
        counter=np.zeros(5, np.int64),
    )
    _run(
        Graph(
            graph.kind, graph.rank, graph.message, graph.queue, graph.source, graph.tag, graph.first, graph.middle,
            graph.target, *candidates, message,
        ),
        progress,
    )  # fmt: skip
    return progress.times, int(progress.counter[_UNRECEIVED])


@allocation_free
def _run(graph, progress):  # type: ignore[no-untyped-def]
    graph, progress = by_reference(graph), by_reference(progress)
    for vertex in range(graph.kind.shape[0]):
        if progress.vertex[vertex].required == 0:
            if graph.kind[vertex] == JOIN:
                _note_end(progress, vertex, 0)
            else:
                _release(progress, vertex)
    _settle(graph, progress)
    _sort_by_rank(graph, progress)
    _enqueue(graph, progress)
    while progress.heap_size[0] > 0:
        now = progress.heap[0].time
        vertex = progress.vertex_of[pop(progress.heap, progress.heap_size)]
        kind = graph.kind[vertex]
        if kind == RECEIVE:
            _post_receive(graph, progress, vertex, now)
        elif kind == DELAY:
            _start(graph, progress, vertex, -1, -1)
            _end(graph, progress, vertex, now)
        elif not _use_unit(graph, progress, vertex, now):
            continue
        _settle(graph, progress)
        if progress.counter[_MIXED]:
            _sort_by_rank(graph, progress)
        _enqueue(graph, progress)


@merged
def _post_receive(graph, progress, vertex, now):  # type: ignore[no-untyped-def]
    """A receive is posted: it ends if its message has been taken in, else it is queued."""
    _start(graph, progress, vertex, now, now)
    send = _take_matching(graph, progress, vertex, _ARRIVALS)
    if send < 0:
        _append(graph, progress, vertex, _POSTS)
        return
    progress.counter[_UNRECEIVED] -= 1
    time = max(now, progress.times[TAKEN_IN, send])
    progress.times[RECEIVED, send] = time
    _end_rendezvous(graph, progress, send, now, graph.rank[vertex])
    _end(graph, progress, vertex, time)


@inner
def _use_unit(graph, progress, vertex, now):  # type: ignore[no-untyped-def]
    """A calculation, a send or an arriving message takes the CPU, and its interface: False if it has to wait."""
    rank = graph.rank[vertex]
    column = _CPU
    if graph.kind[vertex] == SEND:
        column = _OUT
        if progress.vertex[vertex].travels:
            rank = graph.message[graph.message_of[vertex]].destination
            column = _IN
    clock = progress.clock[rank]
    free = max(clock[_CPU], clock[column])
    unit = _UNITS * rank + column
    if free > now:
        _wait(progress, vertex, unit, free)
        return False
    if column == _CPU:
        end = now + progress.vertex[vertex].duration
        clock[_CPU] = end
        _start(graph, progress, vertex, now, end)
        _end(graph, progress, vertex, end)
    elif column == _OUT:
        _send(graph, progress, vertex, now)
    else:
        _take_in(graph, progress, vertex, now, rank)
    if progress.waiting[unit].leader == vertex:
        _follow(progress, unit, max(clock[_CPU], clock[column]))
    return True


@merged
def _send(graph, progress, vertex, now):  # type: ignore[no-untyped-def]
    """A message leaves: the next event of its send is its arrival."""
    message = graph.message[graph.message_of[vertex]]
    clock = progress.clock[graph.rank[vertex]]
    clock[_CPU] = now + message.send
    clock[_OUT] = now + message.gap
    progress.vertex[vertex].travels = 1
    _start(graph, progress, vertex, now, now + message.send)
    if message.is_eager:
        _end(graph, progress, vertex, now + message.send)
    _give_event(progress, vertex, now + message.flight)


@merged
def _take_in(graph, progress, vertex, now, rank):  # type: ignore[no-untyped-def]
    """A message is taken in at ``rank``; its receive ends if it has been posted, else the message is queued."""
    message = graph.message[graph.message_of[vertex]]
    end = now + message.receive
    progress.clock[rank, _CPU] = end
    progress.clock[rank, _IN] = now + message.gap
    progress.times[TAKEN_IN, vertex] = end
    receive = _take_matching(graph, progress, vertex, _POSTS)
    if receive < 0:
        progress.counter[_UNRECEIVED] += 1
        _append(graph, progress, vertex, _ARRIVALS)
        return
    progress.times[RECEIVED, vertex] = end
    _end_rendezvous(graph, progress, vertex, now, rank)
    _end(graph, progress, receive, end)


@merged
def _end_rendezvous(graph, progress, send, now, rank):  # type: ignore[no-untyped-def]
    """A message that was not eager meets its receive at ``rank``."""
    if not graph.message[graph.message_of[send]].is_eager:
        progress.counter[_MIXED] = graph.rank[send] != rank
        _end(graph, progress, send, now)


@merged
def _start(graph, progress, vertex, time, issued):  # type: ignore[no-untyped-def]
    """A vertex starts, and what waits for that goes on when it has been issued."""
    progress.times[STARTED, vertex] = time
    progress.times[ISSUED, vertex] = issued
    _satisfy(graph, progress, vertex, graph.first[vertex], graph.middle[vertex], issued)


@inner
def _end(graph, progress, vertex, time):  # type: ignore[no-untyped-def]
    progress.times[ENDED, vertex] = time
    _satisfy(graph, progress, vertex, graph.middle[vertex], graph.first[vertex + 1], time)


@inner
def _settle(graph, progress):  # type: ignore[no-untyped-def]
    """Satisfy the edges of all joins and anys that have ended."""
    while progress.counter[_ENDED] > 0:
        progress.counter[_ENDED] -= 1
        vertex = progress.ended[progress.counter[_ENDED]]
        _end(graph, progress, vertex, progress.times[ENDED, vertex])


@inner
def _satisfy(graph, progress, origin, begin, end, time):  # type: ignore[no-untyped-def]
    """Satisfy edges [begin, end) of vertex ``origin`` at ``time``."""
    for edge in range(begin, end):
        vertex = graph.target[edge]
        if vertex < 0:  # origin is a candidate of an any
            _offer(progress, origin, -1 - vertex, time)
            continue
        me = progress.vertex[vertex]
        me.ready = max(me.ready, time)
        me.required -= 1
        if me.required > 0:
            continue
        kind = graph.kind[vertex]
        if kind == JOIN:
            _note_end(progress, vertex, me.ready)
        elif kind == ANY:
            _arm(graph, progress, vertex)
        else:
            _release(progress, vertex)


@merged
def _offer(progress, origin, vertex, time):  # type: ignore[no-untyped-def]
    """A candidate has ended: an any that is ready takes it."""
    me, candidate = progress.vertex[vertex], progress.vertex[origin]
    if me.armed and progress.times[ENDED, vertex] < 0 and not candidate.taken:
        candidate.taken = 1
        _note_end(progress, vertex, max(me.ready, time))


@merged
def _arm(graph, progress, vertex):  # type: ignore[no-untyped-def]
    """An any is ready: it takes the candidate that ended first, and ends at once if all are taken."""
    me = progress.vertex[vertex]
    me.armed = 1
    number = graph.any_of[vertex]
    best = -2  # all are taken
    for place in range(graph.candidate_offsets[number], graph.candidate_offsets[number + 1]):
        candidate = graph.candidates[place]
        if progress.vertex[candidate].taken:
            continue
        if progress.times[ENDED, candidate] < 0:
            best = max(best, -1)
        elif best < 0 or progress.times[ENDED, candidate] < progress.times[ENDED, best]:
            best = candidate
    if best >= 0:
        progress.vertex[best].taken = 1
        _note_end(progress, vertex, max(me.ready, progress.times[ENDED, best]))
    elif best == -2:
        _note_end(progress, vertex, me.ready)


@merged
def _note_end(progress, vertex, time):  # type: ignore[no-untyped-def]
    """A join or an any ends."""
    progress.times[ENDED, vertex] = time
    progress.ended[progress.counter[_ENDED]] = vertex
    progress.counter[_ENDED] += 1


@merged
def _release(progress, vertex):  # type: ignore[no-untyped-def]
    progress.released[progress.counter[_RELEASED]] = vertex
    progress.counter[_RELEASED] += 1


@inner
def _enqueue(graph, progress):  # type: ignore[no-untyped-def]
    """Give events to the released vertices; of each run of one rank sends first, then receives, then others."""
    released, num_released = progress.released, progress.counter[_RELEASED]
    begin = 0
    for last in range(num_released):
        if last + 1 < num_released and graph.rank[released[last + 1]] == graph.rank[released[last]]:
            continue
        for turn in range(CALCULATION + 1 if last > begin else 1):
            for place in range(begin, last + 1):
                vertex = released[place]
                if last == begin or turn == min(graph.kind[vertex], CALCULATION):
                    _give_event(progress, vertex, _earliest(graph, progress, vertex))
        begin = last + 1
    progress.counter[_RELEASED] = 0
    progress.counter[_MIXED] = 0


@merged
def _earliest(graph, progress, vertex):  # type: ignore[no-untyped-def]
    """When a vertex that is ready can start, as far as is known."""
    me, clock = progress.vertex[vertex], progress.clock[graph.rank[vertex]]
    if graph.kind[vertex] == DELAY:
        return me.ready + me.duration
    time = max(me.ready, clock[_CPU])
    return max(time, clock[_OUT]) if graph.kind[vertex] == SEND else time


@inner
def _give_event(progress, vertex, time):  # type: ignore[no-untyped-def]
    stamp = progress.counter[_STAMP]
    progress.counter[_STAMP] = stamp + 1
    progress.vertex[vertex].stamp = stamp
    progress.vertex_of[stamp] = vertex
    push(progress.heap, progress.heap_size, stamp, time)


@inner
def _sort_by_rank(graph, progress):  # type: ignore[no-untyped-def]
    """Stable, in place; for the few runs of one rank that a rendezvous leaves."""
    released = progress.released
    for place in range(1, progress.counter[_RELEASED]):
        vertex = released[place]
        at = place
        while at > 0 and graph.rank[released[at - 1]] > graph.rank[vertex]:
            released[at] = released[at - 1]
            at -= 1
        released[at] = vertex


@merged
def _wait(progress, vertex, unit, free):  # type: ignore[no-untyped-def]
    """Lead those that wait for a unit until it is free, or stand behind their leader."""
    me, waiting = progress.vertex[vertex], progress.waiting[unit]
    if waiting.leader < 0 or me.stamp <= progress.vertex[waiting.leader].stamp:
        waiting.leader = vertex
        push(progress.heap, progress.heap_size, me.stamp, free)
    else:
        me.left = -1
        me.right = -1
        waiting.root = _merge(progress, waiting.root, vertex)


@merged
def _follow(progress, unit, free):  # type: ignore[no-untyped-def]
    """The leader has its turn, and the next in line leads."""
    waiting = progress.waiting[unit]
    leader = waiting.root
    waiting.leader = leader
    if leader >= 0:
        me = progress.vertex[leader]
        waiting.root = _merge(progress, me.left, me.right)
        push(progress.heap, progress.heap_size, me.stamp, free)


@inner
def _merge(progress, one, other):  # type: ignore[no-untyped-def]
    """Root of the skew heap of two (-1: empty). Amortised O(log n)."""
    root = -1
    above = -1
    while one >= 0 and other >= 0:
        if progress.vertex[other].stamp < progress.vertex[one].stamp:
            one, other = other, one
        me = progress.vertex[one]
        following = me.right
        me.right = me.left
        if above < 0:
            root = one
        else:
            progress.vertex[above].left = one
        above = one
        one = following
    rest = one if one >= 0 else other
    if above < 0:
        return rest
    progress.vertex[above].left = rest
    return root


@inner
def _take_matching(graph, progress, vertex, column):  # type: ignore[no-untyped-def]
    """Remove and return the first entry of a send's or receive's queue that fits it, -1 for none."""
    number = graph.queue[vertex]
    before = -1
    entry = progress.queue[number, column]
    while entry >= 0 and not (_fits(graph, entry, vertex) if column == _POSTS else _fits(graph, vertex, entry)):
        before = entry
        entry = progress.vertex[entry].following
    if entry >= 0:
        me = progress.vertex[entry]
        if before < 0:
            progress.queue[number, column] = me.following
        else:
            progress.vertex[before].following = me.following
        if progress.queue[number, column + 1] == entry:
            progress.queue[number, column + 1] = before
        me.following = -1
    return entry


@merged
def _fits(graph, receive, send):  # type: ignore[no-untyped-def]
    """Whether a receive takes a send; its own -1 take any source and any tag."""
    source, tag = graph.source[receive], graph.tag[receive]
    return (source < 0 or source == graph.source[send]) and (tag < 0 or tag == graph.tag[send])


@inner
def _append(graph, progress, vertex, column):  # type: ignore[no-untyped-def]
    """Queue a receive, or a message that has arrived."""
    number = graph.queue[vertex]
    if progress.queue[number, column] < 0:
        progress.queue[number, column] = vertex
    else:
        progress.vertex[progress.queue[number, column + 1]].following = vertex
    progress.queue[number, column + 1] = vertex
