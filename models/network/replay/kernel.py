"""The kernel of the replay: strands run on arrays. What it computes, and its cost, is said in
network/replay/replay.py."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.network.replay.steps import (
    ACTION,
    ENTER_GATE,
    FIRST,
    LAST,
    NOTHING,
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
from manyscale.models.workload import ANY_SOURCE, ANY_TAG

# Columns of the state of a message: time of the send's post; time of the receive's post, then of arrival; and
# status: bits 0 and 1 for the posts of send and receive, above them 1 + the strand that waits for it.
SENT, RECEIVED, STATUS = 0, 1, 2
BOTH_POSTED: Final = 3

# What a strand waits for, if it is not ready
_ONE, _ANY, _TURN = 1, 2, 3


@njit(cache=True, nogil=True)
def _heap_push(times, strands, stamps, size, time, strand, stamp):  # type: ignore[no-untyped-def]
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] < time or (times[parent] == time and strands[parent] <= strand):
            break
        times[place] = times[parent]
        strands[place] = strands[parent]
        stamps[place] = stamps[parent]
        place = parent
    times[place] = time
    strands[place] = strand
    stamps[place] = stamp


@njit(cache=True, nogil=True)
def _heap_pop(times, strands, stamps, size):  # type: ignore[no-untyped-def]
    """Remove the first entry of a heap of ``size`` entries; the caller has read it."""
    last = size - 1
    time = times[last]
    strand = strands[last]
    stamp = stamps[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        right = child + 1
        if right < last and (
            times[right] < times[child] or (times[right] == times[child] and strands[right] < strands[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and strands[child] >= strand):
            break
        times[place] = times[child]
        strands[place] = strands[child]
        stamps[place] = stamps[child]
        place = child
    times[place] = time
    strands[place] = strand
    stamps[place] = stamp


@njit(cache=True, nogil=True)
def _open_match(first, nodes, tags, source, tag, takes_any, previous_of):  # type: ignore[no-untyped-def]
    """First entry of a queue that fits ``source`` and ``tag``, and (in ``previous_of``) the one before it; -1 for none.

    An entry's node holds its source in the upper half and the next entry in the lower: one cache line per entry. Where
    ``takes_any`` the queue holds sends, and -1 as the wanted source or tag takes any; else it holds receives, and their
    own -1 do.
    """
    previous = -1
    entry = first
    while entry >= 0:
        node = nodes[entry]
        has = node >> 32
        if takes_any:
            fits = (source == -1 or has == source) and (tag == -1 or tags[entry] == tag)
        else:
            fits = (has == -1 or has == source) and (tags[entry] == -1 or tags[entry] == tag)
        if fits:
            break
        previous = entry
        entry = _next(node)
    previous_of[0] = previous
    return entry


@njit(cache=True, nogil=True)
def _next(node):  # type: ignore[no-untyped-def]
    return ((node & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000  # the lower half as a signed number


@njit(cache=True, nogil=True)
def _link(nodes, entry, following):  # type: ignore[no-untyped-def]
    nodes[entry] = (nodes[entry] >> 32) << 32 | (following & 0xFFFFFFFF)


@njit(cache=True, nogil=True)
def run_strands(  # type: ignore[no-untyped-def]
    step, target, place, strand_end, num_ranks, rank_offsets, compute_ps, end_ps, cost_ps, is_eager, eager_start,
    message, finished, send_queue, send_tag, source, open_queue, open_source, open_tag, open_message, wildcards,
    candidate_offsets, candidate_action, candidate_target, consumed_message, consumed_open, consumed_strand,
    gate_missing, gate_cost_ps,
):  # fmt: skip
    num_strands = place.shape[0]
    num_queues = wildcards.shape[0]  # of each: wildcard receives that are not matched yet
    clock = np.zeros(num_strands, np.int64)
    operation = np.zeros(num_strands, np.int64)
    resumes = np.zeros(num_strands, np.uint8)  # its step has begun: the compute before it is done
    waiting = np.zeros(num_strands, np.uint8)  # 1: for one thing, 2: for any of several
    permitted = np.zeros(num_strands, np.uint8)  # to take a step whose outcome depends on order
    stamp = np.zeros(num_strands, np.int64)  # of the strand's valid entry in the heap
    wake_time = np.full(num_strands, -1, np.int64)
    open_waiter = np.full(open_queue.shape[0], -1, np.int32)
    open_post = np.full(open_queue.shape[0], -1, np.int64)
    strand_waiter = np.full(num_strands, -1, np.int32)
    num_gates = gate_missing.shape[0]  # of each: strands that have not entered yet
    gate_time = np.zeros(num_gates, np.int64)  # when the last entered; once none is missing, when the gate opens
    gate_waiter = np.full(num_gates, -1, np.int32)  # the strands that wait, linked
    next_waiter = np.full(num_strands if num_gates else 0, -1, np.int32)
    # queues of unmatched sends and of unmatched open receives, linked in order of posting
    send_first = np.full(num_queues, -1, np.int64)
    send_last = np.full(num_queues, -1, np.int64)
    send_node = np.full(send_queue.shape[0], -1, np.int64)
    open_first = np.full(num_queues, -1, np.int64)
    open_last = np.full(num_queues, -1, np.int64)
    open_node = np.full(open_queue.shape[0], -1, np.int64)
    previous_of = np.zeros(1, np.int64)
    ready = np.empty(num_strands, np.int32)
    num_ready = num_ranks
    for strand in range(num_ranks):
        operation[strand] = rank_offsets[strand]
        ready[strand] = num_ranks - 1 - strand
    heap_size = num_strands + candidate_target.shape[0] if num_queues or candidate_target.shape[0] else 0
    times = np.zeros(heap_size, np.int64)
    parked = np.zeros(heap_size, np.int64)
    stamps = np.zeros(heap_size, np.int64)
    num_parked = 0
    while num_ready > 0 or num_parked > 0:
        now = np.int64(0)
        if num_ready > 0:
            num_ready -= 1
            strand = ready[num_ready]
        else:
            strand = parked[0]
            now = times[0]
            valid = stamps[0] == stamp[strand]
            _heap_pop(times, parked, stamps, num_parked)
            num_parked -= 1
            if not valid:
                continue
            stamp[strand] += 1
            permitted[strand] = 1
        waiting[strand] = 0
        time = clock[strand]
        at = place[strand]
        row = operation[strand]
        end = strand_end[strand]
        fresh = resumes[strand] == 0
        blocked = False
        while at < end:
            code = step[at]
            what = target[at]
            action = code & ACTION
            if fresh:
                if code & FIRST:
                    time += compute_ps[row]
            else:
                fresh = True
            posted = np.int64(-1)
            if action == POST_SEND:
                message[what, SENT] = time
                message[what, STATUS] |= 1
                posted = what
            elif action == POST_RECEIVE:
                message[what, RECEIVED] = time
                message[what, STATUS] |= 2
                posted = what
            elif action == WAIT_SEND or action == WAIT_RECEIVE:
                if action == WAIT_RECEIVE or not is_eager[what]:
                    if message[what, STATUS] & BOTH_POSTED == BOTH_POSTED:
                        time = max(time, message[what, RECEIVED])
                    else:
                        message[what, STATUS] |= (strand + 1) << 2
                        blocked = True
            elif action == WAIT_OPEN_RECEIVE:
                if open_message[what] >= 0:
                    time = max(time, message[open_message[what], RECEIVED])
                else:
                    open_waiter[what] = strand
                    blocked = True
            elif action == START_STRAND:
                clock[what] = time
                ready[num_ready] = what
                num_ready += 1
            elif action == WAIT_STRAND:
                if finished[what]:
                    time = max(time, clock[what])
                else:
                    strand_waiter[what] = strand
                    blocked = True
            elif action == ENTER_GATE:
                gate_time[what] = max(gate_time[what], time)
                gate_missing[what] -= 1
                if gate_missing[what] == 0:
                    gate_time[what] += gate_cost_ps[what]
                    woken = gate_waiter[what]
                    while woken >= 0:
                        waiting[woken] = 0
                        ready[num_ready] = woken
                        num_ready += 1
                        woken = next_waiter[woken]
            elif action == WAIT_GATE:
                if gate_missing[what] == 0:
                    time = max(time, gate_time[what])
                else:
                    next_waiter[strand] = gate_waiter[what]
                    gate_waiter[what] = strand
                    blocked = True
            elif action != NOTHING:
                if action == POST_OPEN_SEND:
                    free = wildcards[send_queue[what]] == 0
                else:
                    free = action == POST_OPEN_RECEIVE and wildcards[open_queue[what]] == 0
                if not free and permitted[strand] == 0:
                    _heap_push(times, parked, stamps, num_parked, time, strand, stamp[strand])
                    num_parked += 1
                    waiting[strand] = _TURN
                    blocked = True
                    break
                permitted[strand] = 0  # a permit is for one step: the next may be later than another strand's
                if action == WAIT_ANY:
                    best = _first_done(
                        candidate_offsets[what], candidate_offsets[what + 1], candidate_action, candidate_target,
                        consumed_message, consumed_open, consumed_strand, is_eager, message, open_message, finished,
                        clock, open_waiter, strand_waiter, strand, max(time, now), previous_of,
                    )  # fmt: skip
                    if best == -2:  # nothing is known to complete yet
                        blocked = True
                        waiting[strand] = _ANY
                        wake_time[strand] = -1
                    elif best > max(time, now):
                        _heap_push(times, parked, stamps, num_parked, best, strand, stamp[strand])
                        num_parked += 1
                        blocked = True
                        waiting[strand] = _ANY
                        wake_time[strand] = best
                    else:
                        time = max(time, best)
                elif action == POST_OPEN_SEND:
                    queue = send_queue[what]
                    message[what, SENT] = time
                    found = _open_match(
                        open_first[queue], open_node, open_tag, source[what], send_tag[what], False, previous_of
                    )
                    if found >= 0:
                        _unlink(open_first, open_last, open_node, queue, found, previous_of[0])
                        if open_source[found] == ANY_SOURCE or open_tag[found] == ANY_TAG:
                            wildcards[queue] -= 1
                        open_message[found] = what
                        message[what, RECEIVED] = open_post[found]
                        message[what, STATUS] = BOTH_POSTED | (np.int64(open_waiter[found]) + 1) << 2
                        posted = what
                    else:
                        message[what, STATUS] = 1
                        _append(send_first, send_last, send_node, queue, what, source[what])
                else:
                    queue = open_queue[what]
                    open_post[what] = time
                    found = _open_match(
                        send_first[queue], send_node, send_tag, open_source[what], open_tag[what], True, previous_of
                    )
                    if found >= 0:
                        _unlink(send_first, send_last, send_node, queue, found, previous_of[0])
                        if open_source[what] == ANY_SOURCE or open_tag[what] == ANY_TAG:
                            wildcards[queue] -= 1
                        open_message[what] = found
                        message[found, RECEIVED] = time
                        message[found, STATUS] |= 2
                        posted = found
                    else:
                        _append(open_first, open_last, open_node, queue, what, open_source[what])
            if blocked:
                if waiting[strand] == 0:
                    waiting[strand] = _ONE
                break
            if posted >= 0 and message[posted, STATUS] & BOTH_POSTED == BOTH_POSTED:
                sent = message[posted, SENT]
                if eager_start and is_eager[posted]:
                    done = max(message[posted, RECEIVED], sent + cost_ps[posted])
                else:
                    done = max(message[posted, RECEIVED], sent) + cost_ps[posted]
                message[posted, RECEIVED] = done
                woken = (message[posted, STATUS] >> 2) - 1
                if woken >= 0:
                    if waiting[woken] == _ONE and _awaits(step, target, place[woken], open_message, posted):
                        waiting[woken] = 0
                        ready[num_ready] = woken
                        num_ready += 1
                    elif waiting[woken] == _ANY:
                        num_parked = _wake_any(woken, done, clock, stamp, wake_time, times, parked, stamps, num_parked)
            if code & LAST:
                end_ps[row] = time
                row += 1
            at += 1
        clock[strand] = time
        place[strand] = at
        operation[strand] = row
        resumes[strand] = 1
        if not blocked:
            finished[strand] = 1
            woken = strand_waiter[strand]
            if woken >= 0:
                if (
                    waiting[woken] == _ONE
                    and step[place[woken]] & ACTION == WAIT_STRAND
                    and target[place[woken]] == strand
                ):
                    waiting[woken] = 0
                    ready[num_ready] = woken
                    num_ready += 1
                elif waiting[woken] == _ANY:
                    num_parked = _wake_any(woken, time, clock, stamp, wake_time, times, parked, stamps, num_parked)


@njit(cache=True, nogil=True)
def _awaits(step, target, at, open_message, message):  # type: ignore[no-untyped-def]
    """Whether the step at which a strand is blocked waits for ``message``: it may have been left to wait for another
    after a wait-any."""
    action = step[at] & ACTION
    if action == WAIT_OPEN_RECEIVE:
        return open_message[target[at]] == message
    return (action == WAIT_SEND or action == WAIT_RECEIVE) and target[at] == message


@njit(cache=True, nogil=True)
def _wake_any(strand, done, clock, stamp, wake_time, times, parked, stamps, num_parked):  # type: ignore[no-untyped-def]
    """Park a strand that waits for any of several until ``done``, unless it wakes earlier anyway."""
    resume = max(clock[strand], done)
    if wake_time[strand] >= 0 and wake_time[strand] <= resume:
        return num_parked
    wake_time[strand] = resume
    stamp[strand] += 1
    _heap_push(times, parked, stamps, num_parked, resume, strand, stamp[strand])
    return num_parked + 1


@njit(cache=True, nogil=True)
def _append(first, last, nodes, queue, entry, source):  # type: ignore[no-untyped-def]
    nodes[entry] = np.int64(source) << 32 | 0xFFFFFFFF
    if first[queue] < 0:
        first[queue] = entry
    else:
        _link(nodes, last[queue], entry)
    last[queue] = entry


@njit(cache=True, nogil=True)
def _unlink(first, last, nodes, queue, entry, before):  # type: ignore[no-untyped-def]
    following = _next(nodes[entry])
    if before < 0:
        first[queue] = following
    else:
        _link(nodes, before, following)
    if last[queue] == entry:
        last[queue] = before


@njit(cache=True, nogil=True)
def _first_done(  # type: ignore[no-untyped-def]
    begin, end, candidate_action, candidate_target, consumed_message, consumed_open, consumed_strand, is_eager, message,
    open_message, finished, clock, open_waiter, strand_waiter, strand, now, scratch,
):  # fmt: skip
    """Earliest known completion among the open candidates of a wait-any: its time, -2 if none is known to complete,
    -1 if there is no open candidate. One that is done by ``now`` is consumed; otherwise the strand is registered with
    all that are not complete."""
    best = np.int64(-2)
    best_at = -1
    num_open = 0
    for k in range(begin, end):
        action = candidate_action[k]
        other = candidate_target[k]
        done = np.int64(-1)
        if action == WAIT_SEND or action == WAIT_RECEIVE:
            side = 1 if action == WAIT_SEND else 2
            if consumed_message[other] & side:
                continue
            if action == WAIT_SEND and is_eager[other]:
                done = message[other, SENT]
            elif message[other, STATUS] & BOTH_POSTED == BOTH_POSTED:
                done = message[other, RECEIVED]
            else:
                message[other, STATUS] = (message[other, STATUS] & BOTH_POSTED) | (strand + 1) << 2
        elif action == WAIT_OPEN_RECEIVE:
            if consumed_open[other]:
                continue
            if open_message[other] >= 0:
                done = message[open_message[other], RECEIVED]
            else:
                open_waiter[other] = strand
        elif action == WAIT_STRAND:
            if consumed_strand[other]:
                continue
            if finished[other]:
                done = clock[other]
            else:
                strand_waiter[other] = strand
        else:  # a request of MPI_PROC_NULL
            done = np.int64(0)
        num_open += 1
        if done >= 0 and (best < 0 or done < best):
            best = done
            best_at = k
    if num_open == 0:
        return np.int64(-1)
    if best >= 0 and best <= now:
        action = candidate_action[best_at]
        other = candidate_target[best_at]
        if action == WAIT_SEND or action == WAIT_RECEIVE:
            consumed_message[other] |= 1 if action == WAIT_SEND else 2
        elif action == WAIT_OPEN_RECEIVE:
            consumed_open[other] = 1
        elif action == WAIT_STRAND:
            consumed_strand[other] = 1
    return best
