"""The kernels of critical_path.py: what posts and arrivals tell, and the walk back through them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
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
    WAIT_ANY,
    WAIT_GATE,
    WAIT_OPEN_RECEIVE,
    WAIT_RECEIVE,
    WAIT_SEND,
    WAIT_STRAND,
)

# What a segment is
KINDS: Final = ("compute", "transfer", "collective", "overhead")
COMPUTE, TRANSFER, COLLECTIVE, OVERHEAD = 0, 1, 2, 3


class Replayed(NamedTuple):
    """What has been replayed, and its times; see Program and critical_path.py."""

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


class Known(NamedTuple):
    """What posts, arrivals and the ends of operations tell."""

    before: np.ndarray  # per step: when it began
    row_of: np.ndarray  # per step: operation
    post: np.ndarray  # per message: steps that posted its ``send`` and its ``receive``
    chosen: np.ndarray  # per wait for any of several: candidate that it took, -1 for none
    taken: np.ndarray  # [message, open receive or strand; column]: whether a wait for any took it; see _taken_column
    strand: np.ndarray
    gate: np.ndarray


CANDIDATE: Final = np.dtype([("action", "i8"), ("target", "i8")])
POST: Final = np.dtype([("send", "i4"), ("receive", "i4")])
STRAND: Final = np.dtype(
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
GATE: Final = np.dtype([("last_ps", "i8"), ("last_at", "i8")])  # when, and at which step, the last strand entered
SEGMENT: Final = np.dtype(
    [
        ("start_ps", "i8"), ("end_ps", "i8"), ("operation", "i8"), ("message", "i8"), ("source", "i4"), ("kind", "i4"),
    ]
)  # fmt: skip
WALK: Final = np.dtype(  # the step ``at`` of a strand was done at ``time``
    [("at", "i8"), ("time", "i8"), ("steps_left", "i8"), ("count", "i8"), ("strand", "i4"), ("state", "i4")]
)
AT_END, UNDER_WAY, ENDED, LOST, AT_CALL = 0, 1, 2, 3, 4


@allocation_free
def go_back(replayed, known, segments, walk):  # type: ignore[no-untyped-def]
    """Go on with the walk until ``segments``, last first, are full: how many there are."""
    replayed, known, me = by_reference(replayed), by_reference(known), walk[0]
    if me.state == AT_END:
        num_ranks, num_strands = replayed.rank_offsets.shape[0] - 1, known.strand.shape[0]
        for turn in range(num_strands):  # ranks last: the ends of their non-blocking collectives count in their waits
            _know_strand(replayed, known, (num_ranks + turn) % num_strands)
        me.state = UNDER_WAY
    me.count = 0
    while me.state == UNDER_WAY and me.count + 2 <= segments.shape[0]:
        if me.steps_left == 0:
            me.state = LOST
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
        me.state = AT_CALL
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
            me.state = ENDED
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


@allocation_free
def take_first_fitting(wanted, source, tag, sends, first, following, head, found):  # type: ignore[no-untyped-def]
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
