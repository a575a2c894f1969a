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

import numpy as np

from manyscale.models.kernels import njit
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
    ``candidates`` are the vertices of the program's candidates (-1: none). Gates are the first vertices. ``before``,
    ``after`` and ``when`` (Edge) are the edges, in the order in which the vertices were made."""

    graph: OperationGraph
    duration_ps: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    opened: np.ndarray
    any_vertex: np.ndarray
    calculation: np.ndarray
    start: np.ndarray
    candidates: np.ndarray
    before: np.ndarray
    after: np.ndarray
    when: np.ndarray


def lower(program: Program, compute_ps: np.ndarray, gate_ps: np.ndarray) -> StrandGraph:
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

    def numbers(size: int) -> np.ndarray:
        return np.full(size, -1, np.int32)

    kind, rank, message, duration_ps = np.empty(most, np.uint8), numbers(most), numbers(most), np.zeros(most, np.int64)
    kind[:num_gates], rank[:num_gates], duration_ps[:num_gates] = DELAY, 0, gate_ps
    queue, source, tag = numbers(most), numbers(most), numbers(most)
    before, after, when = numbers(most_edges), numbers(most_edges), np.empty(most_edges, np.uint8)
    send, receive = numbers(program.num_messages), numbers(program.num_messages)
    opened, any_vertex = numbers(len(program.open_queue)), numbers(len(program.candidate_offsets) - 1)
    calculation, start, candidates = (
        numbers(len(compute_ps)),
        numbers(num_strands),
        numbers(len(program.candidate_target)),
    )
    num_vertices, num_edges = _walk(
        program.step, program.target, program.strand_steps, program.strand_rank, program.num_ranks,
        program.rank_offsets, compute_ps, program.candidate_offsets, program.candidate_action,
        program.candidate_target, num_gates, kind, rank, message, duration_ps, before, after, when, send, receive,
        opened, any_vertex, calculation, start, candidates, numbers(num_child_steps + num_children),
    )  # fmt: skip
    _queue_messages(program, send, receive, opened, queue, source, tag)
    kept, edges = slice(num_vertices), slice(num_edges)
    before, after, when = before[edges], after[edges], when[edges]
    graph = OperationGraph(
        kind[kept],
        rank[kept],
        message[kept],
        queue[kept],
        source[kept],
        tag[kept],
        program.num_messages + program.num_queues,
        *link(num_vertices, before, after, when),
    )
    return StrandGraph(
        graph, duration_ps[kept], send, receive, opened, any_vertex, calculation, start, candidates, before, after, when
    )


def _queue_messages(
    program: Program,
    send: np.ndarray,
    receive: np.ndarray,
    opened: np.ndarray,
    queue: np.ndarray,
    source: np.ndarray,
    tag: np.ndarray,
) -> None:
    """Fill in the queue of each send and receive: a message that is matched already has one of its own."""
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


@njit(cache=True, nogil=True)
def _walk(  # type: ignore[no-untyped-def]
    step, target, strand_steps, strand_rank, num_ranks, rank_offsets, compute_ps, candidate_offsets, candidate_action,
    candidate_target, num_gates, kind, rank, message, duration_ps, before, after, when, send, receive, opened,
    any_vertex, calculation, start, candidates, saved_vertex,
):  # fmt: skip
    """Make the vertices and edges; returns how many. A strand that another starts is walked where it starts."""
    num_strands = strand_rank.shape[0]
    front = np.empty(before.shape[0] + 1, np.int32)  # vertices, with the edge's kind beside them
    edge_of = np.empty(before.shape[0] + 1, np.uint8)
    saved_when = np.empty(saved_vertex.shape[0], np.uint8)
    saved_first = np.zeros(num_strands, np.int64)
    saved_size = np.full(num_strands, -1, np.int64)
    joined = np.zeros(num_strands, np.uint8)
    num_saved = 0
    vertices = num_gates
    edges = 0
    for owner in range(num_ranks):
        strand = owner
        size = 0
        at = strand_steps[owner]
        end = strand_steps[owner + 1]
        row = rank_offsets[owner] - 1
        back_at = np.int64(-1)  # where the rank itself goes on, while one of its other strands is walked
        back_vertex = np.int32(-1)
        back_when = np.uint8(ON_END)
        while True:
            if at == end:
                if strand == owner:
                    break
                saved_first[strand] = num_saved
                saved_size[strand] = size
                for k in range(size):
                    saved_vertex[num_saved] = front[k]
                    saved_when[num_saved] = edge_of[k]
                    num_saved += 1
                strand = owner
                at = back_at
                end = strand_steps[owner + 1]
                size = 0
                if back_vertex >= 0:
                    front[0] = back_vertex
                    edge_of[0] = back_when
                    size = 1
                continue
            code = step[at]
            what = target[at]
            action = code & ACTION
            at += 1
            if code & FIRST and strand == owner:
                row += 1
                if compute_ps[row] > 0:
                    calculation[row] = vertices
                    duration_ps[vertices] = compute_ps[row]
                    kind[vertices] = CALCULATION
                    rank[vertices] = owner
                    edges = _wait_for_front(front, edge_of, size, vertices, before, after, when, edges)
                    front[0] = vertices
                    edge_of[0] = ON_END
                    size = 1
                    vertices += 1
            new_kind = -1
            if action == POST_SEND or action == POST_OPEN_SEND:
                new_kind = SEND
                send[what] = vertices
                message[vertices] = what
            elif action == POST_RECEIVE:
                new_kind = RECEIVE
                receive[what] = vertices
            elif action == POST_OPEN_RECEIVE:
                new_kind = RECEIVE
                opened[what] = vertices
            elif action == WAIT_SEND or action == WAIT_RECEIVE or action == WAIT_OPEN_RECEIVE:
                other = send[what] if action == WAIT_SEND else receive[what] if action == WAIT_RECEIVE else opened[what]
                if size == 1 and front[0] == other:
                    edge_of[0] = ON_END
                else:
                    front[size] = other
                    edge_of[size] = ON_END
                    size += 1
            elif action == START_STRAND:
                if size > 1:
                    new_kind = CALCULATION
            elif action == WAIT_STRAND:
                if joined[what] == 0:
                    for k in range(saved_first[what], saved_first[what] + saved_size[what]):
                        front[size] = saved_vertex[k]
                        edge_of[size] = saved_when[k]
                        size += 1
                    joined[what] = 1
            elif action == WAIT_ANY:
                for k in range(candidate_offsets[what], candidate_offsets[what + 1]):
                    other = candidate_target[k]
                    if candidate_action[k] == WAIT_SEND:
                        candidates[k] = send[other]
                    elif candidate_action[k] == WAIT_RECEIVE:
                        candidates[k] = receive[other]
                    elif candidate_action[k] == WAIT_OPEN_RECEIVE:
                        candidates[k] = opened[other]
                    elif candidate_action[k] == WAIT_STRAND:
                        first = saved_first[other]
                        if saved_size[other] != 1 or saved_when[first] != ON_END:
                            kind[vertices] = JOIN  # from now on it stands for the strand's front
                            rank[vertices] = owner
                            for j in range(first, first + saved_size[other]):
                                before[edges] = saved_vertex[j]
                                after[edges] = vertices
                                when[edges] = saved_when[j]
                                edges += 1
                            if saved_size[other] == 0:
                                first = num_saved
                                num_saved += 1
                            saved_first[other] = first
                            saved_size[other] = 1
                            saved_vertex[first] = vertices
                            saved_when[first] = ON_END
                            vertices += 1
                        candidates[k] = saved_vertex[first]
                for k in range(candidate_offsets[what], candidate_offsets[what + 1]):
                    if candidates[k] >= 0 and size > 0:
                        before[edges] = candidates[k]
                        after[edges] = vertices
                        when[edges] = CANDIDATE
                        edges += 1
                if size > 0:
                    new_kind = ANY
                    any_vertex[what] = vertices
            elif action == ENTER_GATE:
                edges = _wait_for_front(front, edge_of, size, what, before, after, when, edges)
            elif action == WAIT_GATE:
                front[0] = what
                edge_of[0] = ON_END
                size = 1
            if new_kind >= 0:
                kind[vertices] = new_kind
                rank[vertices] = owner
                edges = _wait_for_front(front, edge_of, size, vertices, before, after, when, edges)
                front[0] = vertices
                edge_of[0] = ON_START if new_kind == SEND or new_kind == RECEIVE else ON_END
                size = 1
                vertices += 1
            if action == START_STRAND:
                back_at = at
                back_vertex = front[0] if size > 0 else np.int32(-1)
                back_when = edge_of[0]
                start[what] = back_vertex
                strand = what
                at = strand_steps[what]
                end = strand_steps[what + 1]
    return vertices, edges


@njit(cache=True, nogil=True)
def _wait_for_front(front, edge_of, size, vertex, before, after, when, edges):  # type: ignore[no-untyped-def]
    for k in range(size):
        before[edges] = front[k]
        after[edges] = vertex
        when[edges] = edge_of[k]
        edges += 1
    return edges


@njit(cache=True, nogil=True)
def strand_times(  # type: ignore[no-untyped-def]
    step, target, strand_steps, strand_rank, num_ranks, rank_offsets, times, send, receive, opened, any_vertex,
    calculation, start, end_ps, place, finished,
):  # fmt: skip
    """Ends of the operations from the times of the vertices (``times`` of loggops_kernel): fills ``end_ps`` and, per
    strand, ``finished`` and the ``place`` of the step that it is stuck at. O(steps)."""
    issued, ended = times[ISSUED], times[ENDED]
    strand_end = np.full(strand_rank.shape[0], -1, np.int64)
    for turn in range(
        2
    ):  # strands that ranks start, from the vertex where they do; then the ranks, which wait for them
        first, last = (num_ranks, strand_rank.shape[0]) if turn == 0 else (0, num_ranks)
        for strand in range(first, last):
            time = np.int64(0)
            if start[strand] >= 0:
                time = max(issued[start[strand]], ended[start[strand]])
            row = rank_offsets[strand] - 1 if strand < num_ranks else np.int64(-1)
            at = strand_steps[strand]
            while at < strand_steps[strand + 1]:
                code = step[at]
                what = target[at]
                action = code & ACTION
                happens = time
                if code & FIRST and strand < num_ranks:
                    row += 1
                    if calculation[row] >= 0:
                        happens = ended[calculation[row]]
                        if happens < 0:
                            break
                        time = max(time, happens)
                if action == POST_SEND or action == POST_OPEN_SEND:
                    happens = issued[send[what]]
                elif action == POST_RECEIVE:
                    happens = issued[receive[what]]
                elif action == POST_OPEN_RECEIVE:
                    happens = issued[opened[what]]
                elif action == WAIT_SEND:
                    happens = ended[send[what]]
                elif action == WAIT_RECEIVE:
                    happens = ended[receive[what]]
                elif action == WAIT_OPEN_RECEIVE:
                    happens = ended[opened[what]]
                elif action == WAIT_STRAND:
                    happens = strand_end[what]
                elif action == WAIT_ANY and any_vertex[what] >= 0:
                    happens = ended[any_vertex[what]]
                elif action == WAIT_GATE:
                    happens = ended[what]
                if happens < 0:
                    break
                time = max(time, happens)
                if code & LAST and strand < num_ranks:
                    end_ps[row] = time
                at += 1
            place[strand] = at
            if at == strand_steps[strand + 1]:
                strand_end[strand] = time
                finished[strand] = 1
