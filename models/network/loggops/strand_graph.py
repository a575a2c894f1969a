"""The operation graph of a replay program: its strands of steps as calculations, sends and receives.

A strand carries its *front*: the vertices, started or ended, that what comes next must wait for. Compute is a
calculation behind the front. A post is a send or a receive behind it; what follows waits until the post has started
(its CPU time is its rank's anyway), and for its end only after a wait. So an operation's end needs no vertex of its
own: it is read off the times of the vertices in a second walk over the steps.

Vertices of a rank are numbered in the order of its program, those of a non-blocking collective where it begins; every
edge but those of gates leads to a higher number. Cost: O(steps), in both walks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.network.loggops.kernel import ENDED, ISSUED
from manyscale.models.network.operation_graph import (
    ANY,
    CALCULATION,
    CANDIDATE,
    DELAY,
    JOIN,
    ON_END,
    ON_START,
    RECEIVE,
    SEND,
    OperationGraph,
    link,
)
from manyscale.models.network.program import Program
from manyscale.models.network.replay.steps import (
    ACTION,
    ENTER_GATE,
    FIRST,
    LAST,
    POST_OPEN_RECEIVE,
    POST_OPEN_SEND,
    POST_RECEIVE,
    POST_SEND,
    START_STRAND,
    WAIT_ANY,
    WAIT_GATE,
    WAIT_OPEN_RECEIVE,
    WAIT_RECEIVE,
    WAIT_SEND,
    WAIT_STRAND,
    Step,
)


@dataclass(frozen=True)
class StrandGraph:
    """The graph of a program, and where its parts went: ``duration_ps`` per vertex; the vertex per message's ``send``
    and ``receive``, per open receive (``opened``), per wait-any (``any_vertex``), per operation's compute
    (``calculation``, -1: none) and per strand the one from which another strand starts it (``start``, -1: none).
    ``candidates`` are the vertices of the program's candidates (-1: none). Gates are the first vertices. ``edges``:
    (before, after, when: Edge), in the order in which the vertices were made, where they were asked for."""

    graph: OperationGraph
    duration_ps: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    opened: np.ndarray
    any_vertex: np.ndarray
    calculation: np.ndarray
    start: np.ndarray
    candidates: np.ndarray
    edges: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


def lower(program: Program, compute_ps: np.ndarray, gate_ps: np.ndarray, *, keep_edges: bool = False) -> StrandGraph:
    """The graph of a program whose operation i is preceded by ``compute_ps[i]`` (int64), and whose gate g opens
    ``gate_ps[g]`` after the last has entered."""
    count = np.bincount(program.step & ACTION, minlength=len(Step))
    num_posts = int(count[[POST_SEND, POST_RECEIVE, POST_OPEN_SEND, POST_OPEN_RECEIVE]].sum())
    num_gates, num_strands = len(program.gate_size), len(program.strand_rank)
    num_children = num_strands - program.num_ranks
    num_child_steps = int(program.strand_steps[-1] - program.strand_steps[program.num_ranks])
    most = int(
        num_gates + np.count_nonzero(compute_ps) + num_posts + 2 * num_children + count[WAIT_ANY] + count[ENTER_GATE]
    )
    num_waits = int(count[[WAIT_SEND, WAIT_RECEIVE, WAIT_OPEN_RECEIVE, WAIT_GATE]].sum())
    most_edges = most + num_waits + 2 * num_child_steps + 4 * num_children + len(program.candidate_target)

    made = _Made(
        kind=np.empty(most, np.uint8),
        rank=_numbers(most),
        message=_numbers(most),
        duration_ps=np.zeros(most, np.int64),
        edge=np.empty(most_edges, _EDGE),
        send=_numbers(program.num_messages),
        receive=_numbers(program.num_messages),
        opened=_numbers(len(program.open_queue)),
        any_vertex=_numbers(len(program.candidate_offsets) - 1),
        calculation=_numbers(len(compute_ps)),
        start=_numbers(num_strands),
        candidates=_numbers(len(program.candidate_target)),
        front=np.empty(most_edges + 1, _FRONT),
        saved=np.empty(num_child_steps + num_children, _FRONT),
        strand=np.zeros(num_strands, _STRAND),
        counter=np.array([num_gates, 0, 0, 0, 0]),
    )
    made.kind[:num_gates], made.rank[:num_gates], made.duration_ps[:num_gates] = DELAY, 0, gate_ps
    made.strand["size"] = -1
    _walk(_script(program), compute_ps, made)
    num_vertices, num_edges = made.counter[[_VERTICES, _EDGES]].tolist()
    queue, source, tag = (_numbers(num_vertices) for _ in range(3))
    _queue_messages(program, made, queue, source, tag)
    kept, edge = slice(num_vertices), made.edge[:num_edges]
    before, after, when = edge["before"], edge["after"], edge["when"]
    graph = OperationGraph(
        made.kind[kept],
        made.rank[kept],
        made.message[kept],
        queue,
        source,
        tag,
        program.num_messages + program.num_queues,
        *link(num_vertices, before, after, when),
    )
    return StrandGraph(
        graph, made.duration_ps[kept], made.send, made.receive, made.opened, made.any_vertex, made.calculation,
        made.start, made.candidates, (before, after, when) if keep_edges else None,
    )  # fmt: skip


def _numbers(size: int) -> np.ndarray:
    return np.full(size, -1, np.int32)


class _Script(NamedTuple):
    """What is walked, see Program."""

    step: np.ndarray
    target: np.ndarray
    strand_steps: np.ndarray
    rank_offsets: np.ndarray
    candidate_offsets: np.ndarray
    candidate_action: np.ndarray
    candidate_target: np.ndarray


def _script(program: Program) -> _Script:
    return _Script(
        program.step, program.target, program.strand_steps, program.rank_offsets, program.candidate_offsets,
        program.candidate_action, program.candidate_target,
    )  # fmt: skip


_EDGE: Final = np.dtype([("before", "i4"), ("after", "i4"), ("when", "i4")])
_FRONT: Final = np.dtype([("vertex", "i4"), ("when", "i4")])  # when: the kind of the edge that leaves it
_STRAND: Final = np.dtype(
    [("first", "i8"), ("size", "i4"), ("is_joined", "i4")]
)  # its front in `saved`, -1: not walked
_VERTICES, _EDGES, _SIZE, _SAVED, _ROW = range(5)  # counters: vertices, edges, of the front, of `saved`; operation


class _Made(NamedTuple):
    """What the walk makes, see StrandGraph; ``front`` of the strand that is walked, and ``saved`` ones of others."""

    kind: np.ndarray
    rank: np.ndarray
    message: np.ndarray
    duration_ps: np.ndarray
    edge: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    opened: np.ndarray
    any_vertex: np.ndarray
    calculation: np.ndarray
    start: np.ndarray
    candidates: np.ndarray
    front: np.ndarray
    saved: np.ndarray
    strand: np.ndarray
    counter: np.ndarray


def _queue_messages(program: Program, made: _Made, queue: np.ndarray, source: np.ndarray, tag: np.ndarray) -> None:
    """Fill in the queue of each send and receive: a message that is matched already has one of its own."""
    send, receive, opened = made.send, made.receive, made.opened
    queue[send] = np.arange(program.num_messages)
    source[send] = program.source
    queue[receive[receive >= 0]] = np.flatnonzero(receive >= 0)
    if program.num_queues:
        is_open = np.flatnonzero(program.send_queue >= 0)
        queue[send[is_open]] = program.num_messages + program.send_queue[is_open]
        tag[send[is_open]] = program.send_tag[is_open]
        queue[opened] = program.num_messages + program.open_queue
        source[opened] = program.open_source
        tag[opened] = program.open_tag


@allocation_free
def _walk(script, compute_ps, made):  # type: ignore[no-untyped-def]
    """Make the vertices and edges. A strand that another starts is walked where it starts."""
    script, made = by_reference(script), by_reference(made)
    for rank in range(script.rank_offsets.shape[0] - 1):
        made.counter[_SIZE] = 0
        made.counter[_ROW] = script.rank_offsets[rank] - 1
        for at in range(script.strand_steps[rank], script.strand_steps[rank + 1]):
            if script.step[at] & FIRST:
                made.counter[_ROW] += 1
                row = made.counter[_ROW]
                if compute_ps[row] > 0:
                    made.calculation[row] = _new_vertex(made, CALCULATION, rank)
                    made.duration_ps[made.calculation[row]] = compute_ps[row]
            _take_step(script, made, at, rank)
            if script.step[at] & ACTION == START_STRAND:
                _walk_started(script, made, script.target[at], rank)


@merged
def _walk_started(script, made, strand, rank):  # type: ignore[no-untyped-def]
    """Walk a strand from where its rank, whose front is one vertex or none, starts it; its front is saved."""
    size = made.counter[_SIZE]
    vertex, when = made.front[0].vertex, made.front[0].when
    made.start[strand] = vertex if size > 0 else -1
    for at in range(script.strand_steps[strand], script.strand_steps[strand + 1]):
        _take_step(script, made, at, rank)
    me = made.strand[strand]
    me.first, me.size = made.counter[_SAVED], made.counter[_SIZE]
    for k in range(me.size):
        saved = made.saved[me.first + k]
        saved.vertex, saved.when = made.front[k].vertex, made.front[k].when
    made.counter[_SAVED] += me.size
    made.counter[_SIZE] = size
    made.front[0].vertex, made.front[0].when = vertex, when


@inner
def _take_step(script, made, at, rank):  # type: ignore[no-untyped-def]
    action, what = script.step[at] & ACTION, script.target[at]
    if action == POST_SEND or action == POST_OPEN_SEND:
        made.send[what] = _new_vertex(made, SEND, rank)
        made.message[made.send[what]] = what
    elif action == POST_RECEIVE:
        made.receive[what] = _new_vertex(made, RECEIVE, rank)
    elif action == POST_OPEN_RECEIVE:
        made.opened[what] = _new_vertex(made, RECEIVE, rank)
    elif action == WAIT_SEND or action == WAIT_RECEIVE or action == WAIT_OPEN_RECEIVE:
        vertex = _post_of(made, action, what)
        if made.counter[_SIZE] == 1 and made.front[0].vertex == vertex:
            made.front[0].when = ON_END
        else:
            _add_to_front(made, vertex, ON_END)
    elif action == START_STRAND:
        if made.counter[_SIZE] > 1:
            _new_vertex(made, CALCULATION, rank)
    elif action == WAIT_STRAND:
        other = made.strand[what]
        if not other.is_joined:
            for k in range(other.first, other.first + other.size):
                _add_to_front(made, made.saved[k].vertex, made.saved[k].when)
            other.is_joined = 1
    elif action == WAIT_ANY:
        _wait_for_any(script, made, what, rank)
    elif action == ENTER_GATE:
        _wait_for_front(made, what)
    elif action == WAIT_GATE:
        made.counter[_SIZE] = 0
        _add_to_front(made, what, ON_END)


@merged
def _post_of(made, action, what):  # type: ignore[no-untyped-def]
    """The vertex that a wait is for."""
    if action == WAIT_SEND:
        return made.send[what]
    return made.receive[what] if action == WAIT_RECEIVE else made.opened[what]


@merged
def _wait_for_any(script, made, number, rank):  # type: ignore[no-untyped-def]
    for k in range(script.candidate_offsets[number], script.candidate_offsets[number + 1]):
        action, what = script.candidate_action[k], script.candidate_target[k]
        if action == WAIT_STRAND:
            made.candidates[k] = _end_of_strand(made, what, rank)
        elif action == WAIT_SEND or action == WAIT_RECEIVE or action == WAIT_OPEN_RECEIVE:
            made.candidates[k] = _post_of(made, action, what)
    if made.counter[_SIZE] == 0:
        return
    for k in range(script.candidate_offsets[number], script.candidate_offsets[number + 1]):
        if made.candidates[k] >= 0:
            _add_edge(made, made.candidates[k], made.counter[_VERTICES], CANDIDATE)
    made.any_vertex[number] = _new_vertex(made, ANY, rank)


@merged
def _end_of_strand(made, strand, rank):  # type: ignore[no-untyped-def]
    """The vertex whose end is that of a strand: a join, which stands for the strand's front from now on, unless that is
    such a vertex."""
    me = made.strand[strand]
    if me.size != 1 or made.saved[me.first].when != ON_END:
        vertex = made.counter[_VERTICES]
        made.counter[_VERTICES] = vertex + 1
        made.kind[vertex] = JOIN
        made.rank[vertex] = rank
        for k in range(me.first, me.first + me.size):
            _add_edge(made, made.saved[k].vertex, vertex, made.saved[k].when)
        if me.size == 0:
            me.first = made.counter[_SAVED]
            made.counter[_SAVED] += 1
        me.size = 1
        made.saved[me.first].vertex, made.saved[me.first].when = vertex, ON_END
    return made.saved[me.first].vertex


@inner
def _new_vertex(made, kind, rank):  # type: ignore[no-untyped-def]
    """The number of a new vertex, which waits for the front and is the front from now on."""
    vertex = made.counter[_VERTICES]
    made.counter[_VERTICES] = vertex + 1
    made.kind[vertex] = kind
    made.rank[vertex] = rank
    _wait_for_front(made, vertex)
    made.counter[_SIZE] = 0
    _add_to_front(made, vertex, ON_START if kind == SEND or kind == RECEIVE else ON_END)
    return vertex


@merged
def _add_to_front(made, vertex, when):  # type: ignore[no-untyped-def]
    front = made.front[made.counter[_SIZE]]
    front.vertex, front.when = vertex, when
    made.counter[_SIZE] += 1


@inner
def _wait_for_front(made, vertex):  # type: ignore[no-untyped-def]
    for k in range(made.counter[_SIZE]):
        _add_edge(made, made.front[k].vertex, vertex, made.front[k].when)


@merged
def _add_edge(made, before, after, when):  # type: ignore[no-untyped-def]
    edge = made.edge[made.counter[_EDGES]]
    edge.before, edge.after, edge.when = before, after, when
    made.counter[_EDGES] += 1


class _Vertices(NamedTuple):
    """Where the parts of a program went, see StrandGraph, and the ``times`` of the vertices."""

    send: np.ndarray
    receive: np.ndarray
    opened: np.ndarray
    any_vertex: np.ndarray
    calculation: np.ndarray
    start: np.ndarray
    times: np.ndarray


def strand_times(
    program: Program, lowered: StrandGraph, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends of the operations from the ``times`` of the vertices (see loggops/kernel.py); and per strand the place of
    the step that it is stuck at, and whether it has finished. O(steps)."""
    num_strands = len(program.strand_rank)
    end_ps, place = np.zeros(int(program.rank_offsets[-1]), np.int64), program.strand_steps[:-1].copy()
    strand_end = np.full(num_strands, -1, np.int64)
    vertices = _Vertices(
        lowered.send, lowered.receive, lowered.opened, lowered.any_vertex, lowered.calculation, lowered.start, times
    )
    _time_strands(_script(program), vertices, end_ps, place, strand_end)
    return end_ps, place, strand_end >= 0


@allocation_free
def _time_strands(script, vertices, end_ps, place, strand_end):  # type: ignore[no-untyped-def]
    script, vertices = by_reference(script), by_reference(vertices)
    num_ranks, num_strands = script.rank_offsets.shape[0] - 1, place.shape[0]
    for turn in range(num_strands):  # ranks last, for they wait for the strands that they start
        _time_strand(script, vertices, (num_ranks + turn) % num_strands, end_ps, place, strand_end)


@merged
def _time_strand(script, vertices, strand, end_ps, place, strand_end):  # type: ignore[no-untyped-def]
    start = vertices.start[strand]
    time = max(0, vertices.times[ISSUED, start], vertices.times[ENDED, start]) if start >= 0 else 0
    row = script.rank_offsets[strand] - 1 if strand < script.rank_offsets.shape[0] - 1 else -1
    at, end = script.strand_steps[strand], script.strand_steps[strand + 1]
    while at < end:
        code = script.step[at]
        if code & FIRST:
            row += 1
            if vertices.calculation[row] >= 0:
                happens = vertices.times[ENDED, vertices.calculation[row]]
                if happens < 0:
                    break
                time = max(time, happens)
        happens = _when(vertices, strand_end, code & ACTION, script.target[at], time)
        if happens < 0:
            break
        time = max(time, happens)
        if code & LAST:
            end_ps[row] = time
        at += 1
    place[strand] = at
    if at == end:
        strand_end[strand] = time


@merged
def _when(vertices, strand_end, action, what, time):  # type: ignore[no-untyped-def]
    """When a step was done, ``time`` if it waits for nothing; -1 for never."""
    times = vertices.times
    if action == POST_SEND or action == POST_OPEN_SEND:
        return times[ISSUED, vertices.send[what]]
    if action == POST_RECEIVE:
        return times[ISSUED, vertices.receive[what]]
    if action == POST_OPEN_RECEIVE:
        return times[ISSUED, vertices.opened[what]]
    if action == WAIT_SEND:
        return times[ENDED, vertices.send[what]]
    if action == WAIT_RECEIVE:
        return times[ENDED, vertices.receive[what]]
    if action == WAIT_OPEN_RECEIVE:
        return times[ENDED, vertices.opened[what]]
    if action == WAIT_STRAND:
        return strand_end[what]
    if action == WAIT_ANY and vertices.any_vertex[what] >= 0:
        return times[ENDED, vertices.any_vertex[what]]
    return times[ENDED, what] if action == WAIT_GATE else time
