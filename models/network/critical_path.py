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

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.network.matching import Mode
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
) -> CriticalPath:
    """The critical path of a finished replay of ``program`` with ``compute_ps`` (int64 per operation) of compute.

    bool per message: ``is_eager``, its sender goes on at once; ``starts_at_send``, it travels before its receive is
    posted. Messages from number ``num_point_to_point`` on are those of collectives. Of several paths of equal length,
    one. Raises ValueError for a timeline that is not one of this program.
    """
    end_ps, sent, arrived = (_reader(array) for array in (timeline.end_ps, timeline.send_ps, timeline.receive_ps))
    compute_ps = _reader(compute_ps)
    if end_ps.shape != compute_ps.shape or sent.shape != (program.num_messages,):
        raise ValueError("the timeline is not of this program: their numbers of operations or messages differ")
    num_steps, num_strands = len(program.step), len(program.strand_rank)
    before = np.zeros(num_steps, np.int64)
    row_of = np.zeros(num_steps, np.int32)
    post = np.full((program.num_messages, 2), -1, np.int32)
    open_message = _match_open(program, sent)
    chosen = np.full(len(program.candidate_offsets), -1, np.int64)
    strand = np.zeros((num_strands, 3), np.int64)
    gate = np.full((len(program.gate_size), 2), -1, np.int64)
    waits_for_any = len(program.candidate_target) > 0
    num_takeable = max(program.num_messages, len(open_message), num_strands) if waits_for_any else 0
    _known_times(
        program.step, program.target, program.strand_steps, program.num_ranks, program.rank_offsets, compute_ps, end_ps,
        sent, arrived, is_eager, open_message, program.candidate_offsets, program.candidate_action,
        program.candidate_target, np.zeros((num_takeable, 4), np.uint8), before, row_of, post, chosen, strand, gate,
    )  # fmt: skip
    capacity = 1024
    while True:  # once more if there was not room for all
        times = np.empty((capacity, 2), np.int64)
        what = np.empty((capacity, 4), np.int64)
        count = _walk(
            program.step, program.target, program.strand_steps, program.strand_rank, program.num_ranks,
            program.rank_offsets, compute_ps, end_ps, arrived, is_eager, starts_at_send, open_message,
            program.candidate_action, program.candidate_target, before, row_of, post, chosen, strand, gate, times, what,
        )  # fmt: skip
        if count < 0:
            raise ValueError("the timeline is not of this program: its critical path leads nowhere")
        if count <= capacity:
            break
        capacity = int(count)
    times, what = times[:count][::-1], what[:count][::-1]
    kind = what[:, 0].astype(np.int8)
    kind[(kind == TRANSFER) & (what[:, 3] >= num_point_to_point)] = COLLECTIVE
    return CriticalPath(
        times[:, 0].copy(), times[:, 1].copy(), kind, what[:, 1].copy(),
        what[:, 2].astype(np.int32), what[:, 3].copy(),
    )  # fmt: skip


def _reader(array: np.ndarray) -> np.ndarray:
    """The array as int64 that nobody writes: one compiled kernel for all."""
    view = np.ascontiguousarray(array, np.int64).view()
    view.flags.writeable = False
    return view


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
        _take_first_fitting(
            program.open_queue, program.open_source, program.open_tag, sends, first, program.source, program.send_tag,
            np.arange(1, len(sends) + 1), first[:-1].copy(), found,
        )  # fmt: skip
    return found


@allocation_free
def _take_first_fitting(  # type: ignore[no-untyped-def]
    open_queue, open_source, open_tag, sends, first, source, tag, following, head, found
):
    """``following`` and ``head`` link what is left of each queue. O(receives x length of what is searched)."""
    for receive in range(open_queue.shape[0]):
        queue = open_queue[receive]
        end = first[queue + 1]
        previous = -1
        at = head[queue]
        while at < end:
            message = sends[at]
            if (open_source[receive] == -1 or open_source[receive] == source[message]) and (
                open_tag[receive] == -1 or open_tag[receive] == tag[message]
            ):
                break
            previous = at
            at = following[at]
        if at < end:
            found[receive] = sends[at]
            if previous < 0:
                head[queue] = following[at]
            else:
                following[previous] = following[at]


# Columns of a strand: position of the step that started it, time at which it is known to have gone on last, and 1 if
# only the operation that waits for it knows when it ended. Columns of a gate: when, and at which step, the last strand
# entered. Columns of a post: of the send, and of the receive.
_STARTED_AT, _FINISH, _UNCERTAIN = 0, 1, 2
_LAST_PS, _LAST_AT = 0, 1
_SEND, _RECEIVE = 0, 1


@allocation_free
def _arrival(action, what, arrived, is_eager, open_message, strand):  # type: ignore[no-untyped-def]
    """When that which a step waits for was there; -1 for a step that waits for nothing."""
    if action == WAIT_RECEIVE:
        return arrived[what]
    if action == WAIT_SEND:
        return np.int64(-1) if is_eager[what] else arrived[what]
    if action == WAIT_OPEN_RECEIVE:
        return arrived[open_message[what]]
    if action == WAIT_STRAND:
        return strand[what, _FINISH]
    return np.int64(-1)


@allocation_free
def _taken_column(action):  # type: ignore[no-untyped-def]
    """Column of ``taken`` for what a candidate waits for; -1 if it waits for nothing."""
    if action == WAIT_SEND:
        return 0
    if action == WAIT_RECEIVE:
        return 1
    if action == WAIT_OPEN_RECEIVE:
        return 2
    return 3 if action == WAIT_STRAND else -1


@allocation_free
def _choose(  # type: ignore[no-untyped-def]
    begin, end, action, target, sent, arrived, is_eager, open_message, strand, taken
):
    """The candidate that a wait for any of several took: the first to be there among those not taken before."""
    best = np.int64(-1)
    best_at = np.int64(-1)
    for k in range(begin, end):
        column = _taken_column(action[k])
        if column >= 0 and taken[target[k], column]:
            continue
        done = _arrival(action[k], target[k], arrived, is_eager, open_message, strand)
        if done < 0:
            done = sent[target[k]] if column == 0 else np.int64(0)
        if best_at < 0 or done < best:
            best = done
            best_at = np.int64(k)
    if best_at >= 0 and _taken_column(action[best_at]) >= 0:
        taken[target[best_at], _taken_column(action[best_at])] = 1
    return best_at


@allocation_free
def _post(action, what, at, time, sent, open_message, post, gate):  # type: ignore[no-untyped-def]
    """Note where a message was posted or a gate entered; the time, which for a send is known."""
    if action == POST_SEND or action == POST_OPEN_SEND:
        post[what, _SEND] = at
        return max(time, sent[what])
    if action == POST_RECEIVE:
        post[what, _RECEIVE] = at
    elif action == POST_OPEN_RECEIVE:
        if open_message[what] >= 0:
            post[open_message[what], _RECEIVE] = at
    elif action == ENTER_GATE and time > gate[what, _LAST_PS]:
        gate[what, _LAST_PS] = time
        gate[what, _LAST_AT] = at
    return time


@allocation_free
def _child_times(  # type: ignore[no-untyped-def]
    child, row, time, step, target, strand_steps, sent, arrived, is_eager, open_message, before, row_of, post, strand,
    gate,
):  # fmt: skip
    """As `_known_times`, for the strand of a non-blocking collective."""
    for at in range(strand_steps[child], strand_steps[child + 1]):
        action = step[at] & ACTION
        time = _post(action, target[at], at, time, sent, open_message, post, gate)
        before[at] = time
        row_of[at] = row
        if action == WAIT_GATE:
            strand[child, _UNCERTAIN] = 1
        time = max(time, _arrival(action, target[at], arrived, is_eager, open_message, strand))
    strand[child, _FINISH] = time


@allocation_free
def _known_times(  # type: ignore[no-untyped-def]
    step, target, strand_steps, num_ranks, rank_offsets, compute_ps, end_ps, sent, arrived, is_eager, open_message,
    candidate_offsets, candidate_action, candidate_target, taken, before, row_of, post, chosen, strand, gate,
):  # fmt: skip
    """``before``: when each step began, as far as posts, arrivals and the ends of operations tell; and where messages
    were posted. O(steps)."""
    for rank in range(num_ranks):
        row = rank_offsets[rank]
        time = np.int64(0)
        for at in range(strand_steps[rank], strand_steps[rank + 1]):
            code = step[at]
            what = target[at]
            action = code & ACTION
            if code & FIRST:
                time += compute_ps[row]
            time = _post(action, what, at, time, sent, open_message, post, gate)
            before[at] = time
            row_of[at] = row
            if action == START_STRAND:
                strand[what, _STARTED_AT] = at
                _child_times(
                    what, row, time, step, target, strand_steps, sent, arrived, is_eager, open_message, before, row_of,
                    post, strand, gate,
                )  # fmt: skip
            elif action == WAIT_ANY:
                best = _choose(
                    candidate_offsets[what], candidate_offsets[what + 1], candidate_action, candidate_target, sent,
                    arrived, is_eager, open_message, strand, taken,
                )  # fmt: skip
                chosen[what] = best
                if best >= 0:
                    action = candidate_action[best]
                    what = candidate_target[best]
            time = max(time, _arrival(action, what, arrived, is_eager, open_message, strand))
            if code & LAST:
                time = end_ps[row]
                row += 1


@allocation_free
def _add(times, what, count, start, end, kind, row, source, message):  # type: ignore[no-untyped-def]
    if start >= end:
        return count
    if count < times.shape[0]:
        times[count, 0] = start
        times[count, 1] = end
        what[count, 0] = kind
        what[count, 1] = row
        what[count, 2] = source
        what[count, 3] = message
    return count + 1


@allocation_free
def _last(num_ranks, rank_offsets, end_ps):  # type: ignore[no-untyped-def]
    """Rank that ends last, the lowest of several; -1 if there is no operation."""
    last = -1
    for rank in range(num_ranks):
        if rank_offsets[rank + 1] > rank_offsets[rank] and (
            last < 0 or end_ps[rank_offsets[rank + 1] - 1] > end_ps[rank_offsets[last + 1] - 1]
        ):
            last = rank
    return last


@allocation_free
def _strand_at(at, strand_steps):  # type: ignore[no-untyped-def]
    """The strand of a step: the last one that begins there or before."""
    low = np.int64(0)
    high = np.int64(strand_steps.shape[0] - 1)
    while high - low > 1:
        middle = (low + high) >> 1
        if strand_steps[middle] <= at:
            low = middle
        else:
            high = middle
    return low


@allocation_free
def _walk(  # type: ignore[no-untyped-def]
    step, target, strand_steps, strand_rank, num_ranks, rank_offsets, compute_ps, end_ps, arrived, is_eager,
    starts_at_send, open_message, candidate_action, candidate_target, before, row_of, post, chosen, strand, gate, times,
    what,
):  # fmt: skip
    """Write the segments, last first, as far as there is room; how many there are, or -1 if the walk does not end.

    ``at`` is the step that was done at ``time``. O(steps), for no step is visited twice.
    """
    count = 0
    here = _last(num_ranks, rank_offsets, end_ps)
    if here < 0:
        return count
    time = end_ps[rank_offsets[here + 1] - 1]
    at = strand_steps[here + 1] - 1
    for _ in range(2 * step.shape[0] + 2):
        action = step[at] & ACTION
        of = np.int64(target[at])
        row = row_of[at]
        rank = strand_rank[here]
        if action == WAIT_GATE:
            entered = min(gate[of, _LAST_PS], time)
            at = gate[of, _LAST_AT]
            here = _strand_at(at, strand_steps)
            count = _add(times, what, count, entered, time, COLLECTIVE, row, strand_rank[here], -1)
            time = entered
            continue
        if action == WAIT_ANY and chosen[of] >= 0:
            action = candidate_action[chosen[of]]
            of = np.int64(candidate_target[chosen[of]])
        there = _arrival(action, of, arrived, is_eager, open_message, strand)
        if action == WAIT_STRAND and strand[of, _UNCERTAIN] and time > before[at]:
            there = time
        if there > before[at]:
            there = min(there, time)
            count = _add(times, what, count, there, time, OVERHEAD, row, rank, -1)
            time = there
            if action == WAIT_STRAND:
                here = of
                at = strand_steps[of + 1] - 1
                continue
            message = open_message[of] if action == WAIT_OPEN_RECEIVE else of
            begin = post[message, _SEND]
            late = post[message, _RECEIVE]
            if not starts_at_send[message] and before[begin] < before[late] <= time:
                begin = late
            at = begin
            here = _strand_at(at, strand_steps)
            start = min(before[at], time)
            count = _add(times, what, count, start, time, TRANSFER, row, strand_rank[here], message)
            time = start
            continue
        if here < num_ranks and step[at] & FIRST:
            earlier = np.int64(0) if row == rank_offsets[rank] else min(end_ps[row - 1], time)
            begun = min(earlier + compute_ps[row], time)
            count = _add(times, what, count, begun, time, OVERHEAD, row, rank, -1)
            count = _add(times, what, count, earlier, begun, COMPUTE, row, rank, -1)
            time = earlier
            if row == rank_offsets[rank]:
                return count
        if at > strand_steps[here]:
            at -= 1
        else:
            at = strand[here, _STARTED_AT]
            here = _strand_at(at, strand_steps)
            start = min(before[at], time)
            count = _add(times, what, count, start, time, OVERHEAD, row, rank, -1)
            time = start
    return -1
