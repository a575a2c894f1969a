"""The critical path of a replay: the chain of compute and messages that the end of the run waited for.

Method: from the last operation to end, walk backwards; at every step ask what it waited for, and go on there. A wait
that a message ended leads to the message's sender, or to its receiver where the transfer began only when the receive
was posted; a wait that changed nothing leads to the step before it; the begin of an operation leads through the compute
before it to the operation before. This is the backward replay of Boehme, Geimer, Wolf et al., "Scalable critical-path
based performance analysis" (IPDPS 2012), on simulated time, where it is exact: the segments tile the run.

Only the program and the timeline are read, so that every network model has a path. What happens inside an operation is
known by when messages were posted and when they arrived; time that neither explains (CPU time of sends and receives in
models that charge it) is *overhead*. A transfer includes what other transfers cost it. Where a message and the rank's
own work end at the same instant, the path stays on the rank. Wildcard receives are matched anew, from the times of the
sends; sends of one instant are taken in the order of ranks.

Cost: O(steps + messages log(wildcard messages)). Memory: 12 B a step, 16 B a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.network.matching import Mode
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import ends_of_compute, read_only
from manyscale.models.network.replay.steps import (
    ACTION,
    CALL,
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
)
from manyscale.models.network.replay.timeline import Timeline

VERSION: Final = 2

# What a segment is
KINDS: Final = ("compute", "transfer", "collective", "overhead")
COMPUTE, TRANSFER, COLLECTIVE, OVERHEAD = 0, 1, 2, 3


@dataclass(frozen=True)
class CriticalPath:
    """Segments in the order of time; each begins where the one before it ends, the first at 0, the last ends with the
    run. Arrays of equal length: ``start_ps`` and ``end_ps`` int64; ``kind`` int8 (index into KINDS); ``operation``
    int64, row of the operation that waits, or that the compute precedes; ``source`` int32, rank on which the segment
    begins (another than the operation's only for messages and gates); ``message`` int64, of the program, or -1."""

    start_ps: np.ndarray
    end_ps: np.ndarray
    kind: np.ndarray
    operation: np.ndarray
    source: np.ndarray
    message: np.ndarray


def eager_messages(program: Program, eager_threshold_bytes: int) -> np.ndarray:
    """bool per message: its sender goes on at once."""
    small = (program.mode == Mode.standard) & (program.bytes < eager_threshold_bytes)
    return small | (program.mode == Mode.buffered) | (program.mode == Mode.free)


def starting_at_send(is_eager: np.ndarray, transfer_start: str) -> np.ndarray:
    """bool per message, for transfers that start with "match" (both sides are posted), "eager" (eager ones with the
    send) or "send" (all with the send)."""
    return is_eager if transfer_start == "eager" else np.full(len(is_eager), transfer_start == "send")


def critical_path(
    program: Program,
    compute_ps: np.ndarray,
    timeline: Timeline,
    is_eager: np.ndarray,
    starts_at_send: np.ndarray,
    num_point_to_point: int,
    through_call: ThroughCall | None = None,
) -> CriticalPath:
    """The critical path of a finished replay of ``program`` with ``compute_ps`` (int64 per operation) of compute.

    bool per message: ``is_eager``, its sender goes on at once; ``starts_at_send``, it travels before its receive is
    posted. Messages from number ``num_point_to_point`` on are those of collectives. ``through_call`` knows the way
    through collectives that are called, where ``program`` has such. Of several paths of equal length, one. Raises
    ValueError for a timeline that is not one of this program.
    """
    end_ps = _reader(timeline.end_ps)
    if end_ps.shape != compute_ps.shape or timeline.send_ps.shape != (program.num_messages,):
        raise ValueError("the timeline is not of this program: their numbers of operations or messages differ")
    walk = _at_end(program, end_ps)
    if walk is None:
        return _path(np.empty(0, _SEGMENT), num_point_to_point)
    if program.only_computes and np.array_equal(end_ps, ends_of_compute(program, compute_ps)):
        return _path(_of_compute(program, compute_ps, end_ps, int(walk["strand"][0])), num_point_to_point)
    replayed, known = _before_walk(program, compute_ps, timeline, is_eager, starts_at_send)
    found = []
    while walk["state"] != _ENDED:
        found += _walked(replayed, known, walk)
        if walk["state"] == _AT_CALL:
            found.append(_inside_call(program, known, walk, through_call))
    return _path(np.concatenate(found)[::-1], num_point_to_point)


def _walked(replayed: _Replayed, known: _Known, walk: np.ndarray) -> list[np.ndarray]:
    """Segments, last first, until the walk ends or is at a call. Raises ValueError where it leads nowhere."""
    segments = np.empty(_CHUNK, _SEGMENT)
    found = []
    while True:
        count = _go_back(replayed, known, segments, walk)
        if walk["state"] == _LOST:
            raise ValueError("the timeline is not of this program: its critical path leads nowhere")
        found.append(segments[:count].copy())
        if walk["state"] != _UNDER_WAY:
            return found


# (instance, when each of its participants enters, the participant from whose end to go back): segments as arrays by
# name, and the participant with whose entry the path goes on
ThroughCall: TypeAlias = Callable[[int, np.ndarray, int], tuple[CriticalPath, int]]


def _inside_call(program: Program, known: _Known, walk: np.ndarray, through_call: ThroughCall | None) -> np.ndarray:
    """The segments of the collective at whose call the walk is, last first. It then is before that of another rank."""
    if program.calls is None or through_call is None:
        raise ValueError("the program calls collectives, and nobody knows the way through them")
    instance = int(program.target[walk["at"][0]])
    rows, members = program.calls.rows[instance], program.calls.members[program.calls.kind[instance]]
    at = np.searchsorted(known.row_of[: program.strand_steps[program.num_ranks]], rows)
    last = int(np.flatnonzero(members == walk["strand"][0])[0])
    path, first = through_call(instance, known.before[at], last)
    inside = np.flatnonzero(path.kind != COMPUTE)[::-1]  # a participant computes until it enters
    segments = np.empty(len(inside), _SEGMENT)
    segments["start_ps"], segments["end_ps"], segments["kind"] = (
        path.start_ps[inside], path.end_ps[inside], path.kind[inside],
    )  # fmt: skip
    segments["operation"], segments["source"] = rows[path.operation[inside]], members[path.source[inside]]
    segments["message"] = np.where(path.message[inside] < 0, -1, program.num_messages + path.message[inside])
    walk["at"], walk["strand"], walk["time"] = at[first], members[first], known.before[at[first]]
    walk["state"] = _UNDER_WAY
    return segments


def path_from(
    program: Program,
    compute_ps: np.ndarray,
    timeline: Timeline,
    is_eager: np.ndarray,
    starts_at_send: np.ndarray,
    rank: int,
) -> tuple[CriticalPath, int]:
    """What the end of ``rank`` waited for, as critical_path has it of the end of a run, its messages those of
    collectives; and the rank on which it begins. For programs without calls."""
    walk = np.zeros(1, _WALK)
    walk["strand"], walk["at"] = rank, program.strand_steps[rank + 1] - 1
    walk["time"] = timeline.end_ps[program.rank_offsets[rank + 1] - 1]
    walk["steps_left"] = 2 * len(program.step) + 2
    replayed, known = _before_walk(program, compute_ps, timeline, is_eager, starts_at_send)
    return _path(np.concatenate(_walked(replayed, known, walk))[::-1], 0), int(walk["strand"][0])


def _before_walk(
    program: Program, compute_ps: np.ndarray, timeline: Timeline, is_eager: np.ndarray, starts_at_send: np.ndarray
) -> tuple[_Replayed, _Known]:
    end_ps, sent, arrived = (_reader(array) for array in (timeline.end_ps, timeline.send_ps, timeline.receive_ps))
    replayed = _Replayed(
        program.step, program.target, program.rank_offsets, _reader(compute_ps), end_ps, sent, arrived,
        read_only(is_eager), read_only(starts_at_send),
        _match_open(program, sent), program.candidate_offsets, _candidates(program),
    )  # fmt: skip
    return replayed, _new_known(program, replayed.compute_ps, end_ps)


def _of_compute(program: Program, compute_ps: np.ndarray, end_ps: np.ndarray, rank: int) -> np.ndarray:
    """Segments of a rank that only computes."""
    row = np.arange(program.rank_offsets[rank], program.rank_offsets[rank + 1])
    row = row[compute_ps[row] > 0]
    segments = np.empty(len(row), _SEGMENT)
    segments["start_ps"], segments["end_ps"] = end_ps[row] - compute_ps[row], end_ps[row]
    segments["operation"], segments["message"] = row, -1
    segments["source"], segments["kind"] = rank, COMPUTE
    return segments


def _path(segments: np.ndarray, num_point_to_point: int) -> CriticalPath:
    kind = segments["kind"].astype(np.int8)
    kind[(kind == TRANSFER) & (segments["message"] >= num_point_to_point)] = COLLECTIVE
    return CriticalPath(
        segments["start_ps"].copy(), segments["end_ps"].copy(), kind, segments["operation"].copy(),
        segments["source"].copy(), segments["message"].copy(),
    )  # fmt: skip


def _at_end(program: Program, end_ps: np.ndarray) -> np.ndarray | None:
    """The walk at the end of the rank that ends last, the lowest of several; None if there is no operation."""
    busy = np.flatnonzero(np.diff(program.rank_offsets))
    if not len(busy):
        return None
    ends = end_ps[program.rank_offsets[busy + 1] - 1]
    rank = busy[np.argmax(ends)]
    walk = np.zeros(1, _WALK)
    walk["strand"], walk["at"], walk["time"] = rank, program.strand_steps[rank + 1] - 1, ends.max()
    walk["steps_left"] = 2 * len(program.step) + 2
    return walk


def _reader(times_ps: np.ndarray) -> np.ndarray:
    return read_only(np.asarray(times_ps, np.int64))


_WANTED: Final = np.dtype([("queue", "i4"), ("source", "i4"), ("tag", "i4")])


def _match_open(program: Program, sent: np.ndarray) -> np.ndarray:
    """int64 per open receive: the message it took.

    Receives of a queue are one rank's and numbered in its order; each takes the first fitting send that is left,
    whenever it is posted: neither a later receive nor a later send can come before it.
    """
    found = np.full(len(program.open_queue), -1, np.int64)
    if len(found):
        candidates = np.flatnonzero(program.send_queue >= 0)
        order = np.lexsort((candidates, program.source[candidates], sent[candidates], program.send_queue[candidates]))
        sends = candidates[order]
        first = np.searchsorted(program.send_queue[sends], np.arange(program.num_queues + 1)).astype(np.int64)
        wanted = np.empty(len(found), _WANTED)
        wanted["queue"], wanted["source"], wanted["tag"] = program.open_queue, program.open_source, program.open_tag
        _take_first_fitting(
            wanted, program.source, program.send_tag, sends, first, np.arange(1, len(sends) + 1), first[:-1].copy(),
            found,
        )  # fmt: skip
    return found


@allocation_free
def _take_first_fitting(wanted, source, tag, sends, first, following, head, found):  # type: ignore[no-untyped-def]
    """``following`` and ``head`` link what is left of each queue. O(receives x length of what is searched)."""
    for receive in range(wanted.shape[0]):
        want = wanted[receive]
        end = first[want.queue + 1]
        previous = -1
        at = head[want.queue]
        while at < end:
            message = sends[at]
            if (want.source == -1 or want.source == source[message]) and (want.tag == -1 or want.tag == tag[message]):
                break
            previous = at
            at = following[at]
        if at < end:
            found[receive] = sends[at]
            if previous < 0:
                head[want.queue] = following[at]
            else:
                following[previous] = following[at]


class _Replayed(NamedTuple):
    """What has been replayed, and its times; see Program and `critical_path`."""

    step: np.ndarray
    target: np.ndarray
    rank_offsets: np.ndarray
    compute_ps: np.ndarray
    end_ps: np.ndarray
    sent: np.ndarray
    arrived: np.ndarray
    is_eager: np.ndarray
    starts_at_send: np.ndarray
    open_message: np.ndarray  # message that each open receive took
    candidate_offsets: np.ndarray
    candidate: np.ndarray


class _Known(NamedTuple):
    """What posts, arrivals and the ends of operations tell."""

    before: np.ndarray  # per step: when it began
    row_of: np.ndarray  # per step: operation
    post: np.ndarray  # per message: steps that posted its ``send`` and its ``receive``
    chosen: np.ndarray  # per wait for any of several: candidate that it took, -1 for none
    taken: np.ndarray  # [message, open receive or strand; column]: whether a wait for any took it; see _taken_column
    strand: np.ndarray
    gate: np.ndarray


_CANDIDATE: Final = np.dtype([("action", "i8"), ("target", "i8")])
_POST: Final = np.dtype([("send", "i4"), ("receive", "i4")])
_STRAND: Final = np.dtype(
    [
        ("begun", "i8"),  # when it began
        ("finish", "i8"),  # when it is known to have gone on last
        ("first", "i8"), ("last", "i8"),  # steps
        ("started_at", "i8"),  # the step that started it
        ("rank", "i4"),
        ("row", "i4"),  # the operation to which its first step belongs
        ("is_uncertain", "i4"),  # only the operation that waits for it knows when it ended
        ("unused", "i4"),
    ]
)  # fmt: skip
_GATE: Final = np.dtype([("last_ps", "i8"), ("last_at", "i8")])  # when, and at which step, the last strand entered
_SEGMENT: Final = np.dtype(
    [
        ("start_ps", "i8"), ("end_ps", "i8"), ("operation", "i8"), ("message", "i8"), ("source", "i4"), ("kind", "i4"),
    ]
)  # fmt: skip
_WALK: Final = np.dtype(  # the step ``at`` of a strand was done at ``time``
    [("at", "i8"), ("time", "i8"), ("steps_left", "i8"), ("count", "i8"), ("strand", "i4"), ("state", "i4")]
)
_CHUNK: Final = 8192  # segments that are found at a time
_AT_END, _UNDER_WAY, _ENDED, _LOST, _AT_CALL = 0, 1, 2, 3, 4


def _candidates(program: Program) -> np.ndarray:
    candidate = np.empty(len(program.candidate_target), _CANDIDATE)
    candidate["action"], candidate["target"] = program.candidate_action, program.candidate_target
    return candidate


def _new_known(program: Program, compute_ps: np.ndarray, end_ps: np.ndarray) -> _Known:
    """Nothing is known but where and when strands began."""
    num_steps, num_strands, num_ranks = len(program.step), len(program.strand_rank), program.num_ranks
    strand = np.zeros(num_strands, _STRAND)
    strand["first"], strand["last"] = program.strand_steps[:-1], program.strand_steps[1:] - 1
    strand["rank"], strand["row"][:num_ranks] = program.strand_rank, program.rank_offsets[:-1]
    if num_strands > num_ranks:  # an operation that starts a strand is this one step
        starts = np.flatnonzero(program.step & ACTION == START_STRAND)
        child = program.target[starts]
        row = np.searchsorted(np.flatnonzero(program.step & FIRST), starts)
        is_first = np.isin(row, program.rank_offsets)
        strand["started_at"][child], strand["row"][child] = starts, row
        strand["begun"][child] = np.where(is_first, 0, end_ps[row - 1]) + compute_ps[row]
    waits_for_any = len(program.candidate_target) > 0
    num_takeable = max(program.num_messages, len(program.open_queue), num_strands) if waits_for_any else 0
    return _Known(
        before=np.zeros(num_steps, np.int64),
        row_of=np.zeros(num_steps, np.int32),
        post=np.full(2 * program.num_messages, -1, np.int32).view(_POST),
        chosen=np.full(len(program.candidate_offsets), -1, np.int64),
        taken=np.zeros((num_takeable, 4), np.uint8),
        strand=strand,
        gate=np.full(2 * len(program.gate_size), -1, np.int64).view(_GATE),
    )


@allocation_free
def _go_back(replayed, known, segments, walk):  # type: ignore[no-untyped-def]
    """Go on with the walk until ``segments``, last first, are full: how many there are."""
    replayed, known, me = by_reference(replayed), by_reference(known), walk[0]
    if me.state == _AT_END:
        num_ranks, num_strands = replayed.rank_offsets.shape[0] - 1, known.strand.shape[0]
        for turn in range(num_strands):  # ranks last: the ends of their non-blocking collectives count in their waits
            _know_strand(replayed, known, (num_ranks + turn) % num_strands)
        me.state = _UNDER_WAY
    me.count = 0
    while me.state == _UNDER_WAY and me.count + 2 <= segments.shape[0]:
        if me.steps_left == 0:
            me.state = _LOST
        else:
            me.steps_left -= 1
            _step_back(replayed, known, segments, me)
    return me.count


@inner
def _know_strand(replayed, known, strand):  # type: ignore[no-untyped-def]
    """When the steps of a strand began, and what they posted. O(steps)."""
    step, target, before, row_of, post = replayed.step, replayed.target, known.before, known.row_of, known.post
    me = known.strand[strand]
    row, time = me.row, me.begun
    for at in range(me.first, me.last + 1):
        code = step[at]
        what = target[at]
        action = code & ACTION
        if code & FIRST:
            time += replayed.compute_ps[row]
        if action == POST_SEND or action == POST_OPEN_SEND:
            post[what].send = at
            time = max(time, replayed.sent[what])
        elif action == POST_RECEIVE:
            post[what].receive = at
        elif action == POST_OPEN_RECEIVE:
            if replayed.open_message[what] >= 0:
                post[replayed.open_message[what]].receive = at
        elif action == ENTER_GATE:
            if time > known.gate[what].last_ps:
                known.gate[what].last_ps = time
                known.gate[what].last_at = at
        elif action == WAIT_GATE:
            me.is_uncertain = 1
        before[at] = time
        row_of[at] = row
        if action == WAIT_ANY:
            best = _choose(replayed, known, what)
            known.chosen[what] = best
            if best >= 0:
                action = replayed.candidate[best].action
                what = replayed.candidate[best].target
        time = max(time, _arrival(replayed, known, action, what))
        if code & LAST:
            time = replayed.end_ps[row]
            row += 1
    me.finish = time


@inner
def _arrival(replayed, known, action, what):  # type: ignore[no-untyped-def]
    """When that which a step waits for was there; -1 for a step that waits for nothing."""
    if action == WAIT_RECEIVE:
        return replayed.arrived[what]
    if action == WAIT_SEND:
        return -1 if replayed.is_eager[what] else replayed.arrived[what]
    if action == WAIT_OPEN_RECEIVE:
        return replayed.arrived[replayed.open_message[what]]
    if action == WAIT_STRAND:
        return known.strand[what].finish
    return -1


@merged
def _taken_column(action):  # type: ignore[no-untyped-def]
    """Column of ``taken`` for what a candidate waits for; -1 if it waits for nothing."""
    if action == WAIT_SEND:
        return 0
    if action == WAIT_RECEIVE:
        return 1
    if action == WAIT_OPEN_RECEIVE:
        return 2
    return 3 if action == WAIT_STRAND else -1


@inner
def _choose(replayed, known, number):  # type: ignore[no-untyped-def]
    """The candidate that a wait for any of several took: the first to be there among those not taken before."""
    best = -1
    best_at = -1
    for k in range(replayed.candidate_offsets[number], replayed.candidate_offsets[number + 1]):
        action, what = replayed.candidate[k].action, replayed.candidate[k].target
        column = _taken_column(action)
        if column >= 0 and known.taken[what, column]:
            continue
        done = _arrival(replayed, known, action, what)
        if done < 0:
            done = replayed.sent[what] if column == 0 else 0
        if best_at < 0 or done < best:
            best = done
            best_at = k
    if best_at >= 0:
        column = _taken_column(replayed.candidate[best_at].action)
        if column >= 0:
            known.taken[replayed.candidate[best_at].target, column] = 1
    return best_at


@inner
def _step_back(replayed, known, segments, me):  # type: ignore[no-untyped-def]
    """Go from a step to what it waited for. No step is visited twice."""
    at = me.at
    row = known.row_of[at]
    action = replayed.step[at] & ACTION
    what = replayed.target[at]
    if action == WAIT_GATE:
        _jump(known, me, known.gate[what].last_at)
        _add(known, segments, me, known.gate[what].last_ps, COLLECTIVE, row, -1)
        return
    if action == CALL and me.time > known.before[at]:
        me.state = _AT_CALL
        return
    if action == WAIT_ANY and known.chosen[what] >= 0:
        action = replayed.candidate[known.chosen[what]].action
        what = replayed.candidate[known.chosen[what]].target
    there = _arrival(replayed, known, action, what)
    if action == WAIT_STRAND and known.strand[what].is_uncertain and me.time > known.before[at]:
        there = me.time
    if there <= known.before[at]:
        _before_step(replayed, known, segments, me)
        return
    _add(known, segments, me, there, OVERHEAD, row, -1)
    if action == WAIT_STRAND:
        me.strand = what
        me.at = known.strand[what].last
        return
    message = replayed.open_message[what] if action == WAIT_OPEN_RECEIVE else what
    post = known.post[message]
    begin = post.send
    if not replayed.starts_at_send[message] and known.before[begin] < known.before[post.receive] <= me.time:
        begin = post.receive
    _jump(known, me, begin)
    _add(known, segments, me, known.before[begin], TRANSFER, row, message)


@merged
def _before_step(replayed, known, segments, me):  # type: ignore[no-untyped-def]
    """Go on before a step that waited for nothing: through compute, to the step before it, or to what started its
    strand."""
    row = known.row_of[me.at]
    strand = known.strand[me.strand]
    if me.strand < replayed.rank_offsets.shape[0] - 1 and replayed.step[me.at] & FIRST:
        is_first = row == replayed.rank_offsets[strand.rank]
        earlier = 0 if is_first else min(replayed.end_ps[row - 1], me.time)
        _add(known, segments, me, earlier + replayed.compute_ps[row], OVERHEAD, row, -1)
        _add(known, segments, me, earlier, COMPUTE, row, -1)
        if is_first:
            me.state = _ENDED
            return
    if me.at > strand.first:
        me.at -= 1
    else:
        _jump(known, me, strand.started_at)
        _add(known, segments, me, known.before[me.at], OVERHEAD, row, -1)


@inner
def _jump(known, me, at):  # type: ignore[no-untyped-def]
    """Go to a step, and to its strand: the last one that begins there or before."""
    low = 0
    high = known.strand.shape[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if known.strand[middle].first <= at:
            low = middle
        else:
            high = middle
    me.strand = low
    me.at = at


@inner
def _add(known, segments, me, start, kind, row, message):  # type: ignore[no-untyped-def]
    """Go back to ``start``, if that is earlier, by a segment that begins on the rank where the walk is."""
    if start >= me.time:
        return
    segment = segments[me.count]
    segment.start_ps, segment.end_ps, segment.operation, segment.message = start, me.time, row, message
    segment.source, segment.kind = known.strand[me.strand].rank, kind
    me.count += 1
    me.time = start
