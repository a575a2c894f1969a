"""Strands of a replay program in the order of simulated time, for network models whose transfers hinder each other.

A model's kernel owns the transfers; this file owns the strands. The kernel's loop is

    while True:
        strands_at = next_time(state)            # NEVER if no strand is parked
        ... which is earlier: strands_at, or the model's own next event?
        count = run_next(steps, state)           # the earliest parked strand runs until it blocks
        for k in range(count):                   # what it has posted, all at state.now[0]
            message = state.posted[k]
            if state.status[message] & SEND_POSTED ...
        complete(steps, state, message, time)    # when the model finds that a transfer has arrived

``state.posted`` names a message once for each side that was posted; ``state.status`` says which sides have been, this
one included. The model decides when a transfer starts and when it arrives. ``complete`` must be called in the order of
time, never earlier than ``state.now[0]``. A receiver goes on at the arrival, or at its own post if that is later; the
sender of an eager message goes on at once, that of another with the arrival.

Times are whatever the arrays of `new_state` hold: int64 picoseconds, or float64 picoseconds where a model must not
round between events. Equal times: strands in the order of their numbers. Wildcard receives are matched as their posts
come, a wait for any of several takes the earliest completion. Gates open a given time after the last strand entered.

Cost: O((steps + parks x log strands)); a strand parks for compute, for a delay before a send, and when it is woken.
Memory: 40 B a message, 8 B an operation, and what `posted` needs: 4 B for each step of the longest strand.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from manyscale.models.network.program import Program
from manyscale.models.network.steps import (
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

NEVER: Final = 1 << 62
SEND_POSTED: Final = 1  # bits of a message's status
RECEIVE_POSTED: Final = 2
BOTH_POSTED: Final = 3
ARRIVED: Final = 4

# Where in its step a strand goes on
_FRESH, _COMPUTED, _DELAYED = 0, 1, 2
# What a blocked strand waits for
_NOTHING, _ONE, _ANY = 0, 1, 2
_SENDER, _RECEIVER = 0, 1


class Steps(NamedTuple):
    """What strands run on; none of it changes. See Program; ``compute`` per operation, ``delay`` before each send."""

    step: np.ndarray
    target: np.ndarray
    strand_end: np.ndarray
    compute: np.ndarray
    is_eager: np.ndarray
    delay: np.ndarray
    send_queue: np.ndarray
    send_tag: np.ndarray
    source: np.ndarray
    open_queue: np.ndarray
    open_source: np.ndarray
    open_tag: np.ndarray
    candidate_offsets: np.ndarray
    candidate_action: np.ndarray
    candidate_target: np.ndarray
    gate_size: np.ndarray
    gate_cost: np.ndarray


class State(NamedTuple):
    """Where the strands are. Results: ``end`` per operation; ``sent`` and ``arrived`` per message; ``finished``."""

    now: np.ndarray  # [1]
    end: np.ndarray
    sent: np.ndarray
    received: np.ndarray  # when the receive was posted
    arrived: np.ndarray
    status: np.ndarray
    waiter: np.ndarray  # [messages, 2]: strand that waits as sender and as receiver
    posted: np.ndarray
    place: np.ndarray
    operation: np.ndarray
    phase: np.ndarray  # _FRESH, _COMPUTED, _DELAYED
    waiting: np.ndarray
    clock: np.ndarray  # of a finished strand: its end
    finished: np.ndarray
    strand_waiter: np.ndarray
    heap_time: np.ndarray
    heap_strand: np.ndarray
    heap_size: np.ndarray  # [1]
    open_message: np.ndarray
    open_waiter: np.ndarray
    send_first: np.ndarray  # queues of unmatched sends and of unmatched open receives, in order of posting
    send_last: np.ndarray
    send_next: np.ndarray
    open_first: np.ndarray
    open_last: np.ndarray
    open_next: np.ndarray
    consumed_message: np.ndarray
    consumed_open: np.ndarray
    consumed_strand: np.ndarray
    gate_entered: np.ndarray
    gate_opens: np.ndarray
    gate_waiter: np.ndarray  # first of the strands that wait, linked by strand_next
    strand_next: np.ndarray


def new_state(
    program: Program,
    compute: np.ndarray,
    is_eager: np.ndarray,
    delay: np.ndarray,
    gate_cost: np.ndarray,
) -> tuple[Steps, State]:
    """Strands before their first step: all ranks are parked at time 0.

    ``compute`` per operation, ``delay`` per message (the sender's time before its post) and ``gate_cost`` per gate have
    one dtype, int64 or float64, which all times take.
    """
    dtype = compute.dtype
    if not dtype == delay.dtype == gate_cost.dtype:
        raise TypeError("compute, delay and gate_cost differ in dtype")
    strands, messages, opens = len(program.strand_rank), program.num_messages, len(program.open_queue)
    steps = Steps(
        program.step, program.target, program.strand_steps[1:], _read_only(compute), _read_only(is_eager),
        _read_only(delay), program.send_queue, program.send_tag, program.source, program.open_queue,
        program.open_source, program.open_tag, program.candidate_offsets, program.candidate_action,
        program.candidate_target, program.gate_size, _read_only(gate_cost),
    )  # fmt: skip
    ranks = np.arange(strands) < program.num_ranks
    operation = np.zeros(strands, np.int64)
    operation[ranks] = program.rank_offsets[:-1]
    heap_strand = np.arange(strands, dtype=np.int32)
    tracked = messages if len(program.candidate_target) else 0
    state = State(
        now=np.zeros(1, dtype),
        end=np.zeros(int(program.rank_offsets[-1]), dtype),
        sent=np.full(messages, -1, dtype),
        received=np.full(messages, -1, dtype),
        arrived=np.full(messages, -1, dtype),
        status=np.zeros(messages, np.uint8),
        waiter=np.full((messages, 2), -1, np.int32),
        posted=np.zeros(int(np.diff(program.strand_steps).max(initial=0)), np.int32),
        place=program.strand_steps[:-1].copy(),
        operation=operation,
        phase=np.zeros(strands, np.uint8),
        waiting=np.zeros(strands, np.uint8),
        clock=np.zeros(strands, dtype),
        finished=np.zeros(strands, np.uint8),
        strand_waiter=np.full(strands, -1, np.int32),
        heap_time=np.zeros(strands, dtype),
        heap_strand=heap_strand,
        heap_size=np.array([program.num_ranks]),
        open_message=np.full(opens, -1, np.int32),
        open_waiter=np.full(opens, -1, np.int32),
        send_first=np.full(program.num_queues, -1, np.int32),
        send_last=np.full(program.num_queues, -1, np.int32),
        send_next=np.full(len(program.send_queue), -1, np.int32),
        open_first=np.full(program.num_queues, -1, np.int32),
        open_last=np.full(program.num_queues, -1, np.int32),
        open_next=np.full(opens, -1, np.int32),
        consumed_message=np.zeros(tracked, np.uint8),
        consumed_open=np.zeros(opens, np.uint8),
        consumed_strand=np.zeros(strands, np.uint8),
        gate_entered=np.zeros(len(program.gate_size), np.int32),
        gate_opens=np.full(len(program.gate_size), -1, dtype),
        gate_waiter=np.full(len(program.gate_size), -1, np.int32),
        strand_next=np.full(strands, -1, np.int32),
    )
    return steps, state


def _read_only(values: np.ndarray) -> np.ndarray:
    """A view that cannot be written, as Ray and Arrow hand arrays over: one compiled kernel for all."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def park(state, strand, time):  # type: ignore[no-untyped-def]
    """Let a strand go on at ``time``. O(log strands)."""
    times, strands = state.heap_time, state.heap_strand
    place = state.heap_size[0]
    state.heap_size[0] = place + 1
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] < time or (times[parent] == time and strands[parent] <= strand):
            break
        times[place] = times[parent]
        strands[place] = strands[parent]
        place = parent
    times[place] = time
    strands[place] = strand


@njit(cache=True, nogil=True)
def _pop(state):  # type: ignore[no-untyped-def]
    times, strands = state.heap_time, state.heap_strand
    first = strands[0]
    last = state.heap_size[0] - 1
    state.heap_size[0] = last
    time = times[last]
    strand = strands[last]
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
        place = child
    times[place] = time
    strands[place] = strand
    return first


@njit(cache=True, nogil=True)
def next_time(state):  # type: ignore[no-untyped-def]
    """When the earliest parked strand goes on; NEVER if none is parked."""
    if state.heap_size[0] == 0:
        return state.now.dtype.type(NEVER)
    return state.heap_time[0]


@njit(cache=True, nogil=True)
def complete(steps, state, message, time):  # type: ignore[no-untyped-def]
    """A transfer has arrived, and its receive is posted: whoever waits for it goes on at ``time``."""
    state.arrived[message] = time
    state.status[message] |= ARRIVED
    for side in range(2):
        strand = state.waiter[message, side]
        if strand < 0:
            continue
        waiting = state.waiting[strand]
        if waiting == _ANY or (waiting == _ONE and _awaits(steps, state, strand, message)):
            state.waiting[strand] = _NOTHING
            park(state, strand, time)


@njit(cache=True, nogil=True)
def _awaits(steps, state, strand, message):  # type: ignore[no-untyped-def]
    """Whether the step at which a strand is blocked waits for ``message``, not for another after a wait-any."""
    at = state.place[strand]
    action = steps.step[at] & ACTION
    if action == WAIT_OPEN_RECEIVE:
        return state.open_message[steps.target[at]] == message
    return (action == WAIT_SEND or action == WAIT_RECEIVE) and steps.target[at] == message


@njit(cache=True, nogil=True)
def run_next(steps, state):  # type: ignore[no-untyped-def]
    """Run the earliest parked strand until it blocks or computes: number of entries of ``state.posted``."""
    time = state.heap_time[0]
    strand = _pop(state)
    state.now[0] = time
    at = state.place[strand]
    row = state.operation[strand]
    end = steps.strand_end[strand]
    phase = state.phase[strand]
    num_posted = 0
    blocked = False
    while at < end:
        code = steps.step[at]
        what = steps.target[at]
        action = code & ACTION
        if phase == _FRESH and code & FIRST and steps.compute[row] > 0:
            phase = _COMPUTED
            park(state, strand, time + steps.compute[row])
            blocked = True
            break
        if action == POST_SEND or action == POST_OPEN_SEND:
            if phase != _DELAYED and steps.delay[what] > 0:
                phase = _DELAYED
                park(state, strand, time + steps.delay[what])
                blocked = True
                break
            state.sent[what] = time
            state.status[what] |= SEND_POSTED
            if action == POST_OPEN_SEND:
                _post_open_send(steps, state, what, time)
            state.posted[num_posted] = what
            num_posted += 1
        elif action == POST_RECEIVE:
            state.received[what] = time
            state.status[what] |= RECEIVE_POSTED
            state.posted[num_posted] = what
            num_posted += 1
        elif action == POST_OPEN_RECEIVE:
            message = _post_open_receive(steps, state, what, time)
            if message >= 0:
                state.posted[num_posted] = message
                num_posted += 1
        elif action == WAIT_SEND or action == WAIT_RECEIVE:
            side = _SENDER if action == WAIT_SEND else _RECEIVER
            if not (state.status[what] & ARRIVED or (side == _SENDER and steps.is_eager[what])):
                state.waiter[what, side] = strand
                blocked = True
        elif action == WAIT_OPEN_RECEIVE:
            message = state.open_message[what]
            if message < 0:
                state.open_waiter[what] = strand
                blocked = True
            elif not state.status[message] & ARRIVED:
                state.waiter[message, _RECEIVER] = strand
                blocked = True
        elif action == WAIT_ANY:
            if not _take_any(steps, state, what, strand):
                state.waiting[strand] = _ANY
                phase = _COMPUTED
                blocked = True
                break
        elif action == START_STRAND:
            park(state, what, time)
        elif action == WAIT_STRAND:
            if not state.finished[what]:
                state.strand_waiter[what] = strand
                blocked = True
        elif action == ENTER_GATE:
            _enter_gate(steps, state, what, time)
        elif action == WAIT_GATE:
            opens = state.gate_opens[what]
            if opens < 0:
                state.strand_next[strand] = state.gate_waiter[what]
                state.gate_waiter[what] = strand
                blocked = True
            elif opens > time:
                phase = _COMPUTED
                park(state, strand, opens)
                blocked = True
                break
        if blocked:
            state.waiting[strand] = _ONE
            phase = _COMPUTED
            break
        phase = _FRESH
        if code & LAST:
            state.end[row] = time
            row += 1
        at += 1
    state.place[strand] = at
    state.operation[strand] = row
    state.phase[strand] = phase
    if not blocked:
        _finish(steps, state, strand, time)
    return num_posted


@njit(cache=True, nogil=True)
def _finish(steps, state, strand, time):  # type: ignore[no-untyped-def]
    state.finished[strand] = 1
    state.clock[strand] = time
    woken = state.strand_waiter[strand]
    if woken < 0:
        return
    at = state.place[woken]
    waiting = state.waiting[woken]
    if waiting == _ANY or (waiting == _ONE and steps.step[at] & ACTION == WAIT_STRAND and steps.target[at] == strand):
        state.waiting[woken] = _NOTHING
        park(state, woken, time)


@njit(cache=True, nogil=True)
def _enter_gate(steps, state, gate, time):  # type: ignore[no-untyped-def]
    state.gate_entered[gate] += 1
    if state.gate_entered[gate] < steps.gate_size[gate]:
        return
    opens = time + steps.gate_cost[gate]
    state.gate_opens[gate] = opens
    strand = state.gate_waiter[gate]
    while strand >= 0:
        state.waiting[strand] = _NOTHING
        park(state, strand, opens)
        strand = state.strand_next[strand]


@njit(cache=True, nogil=True)
def _post_open_send(steps, state, message, time):  # type: ignore[no-untyped-def]
    """Give a send to the first receive of its queue that takes it, else queue it. O(queue)."""
    queue = steps.send_queue[message]
    before = -1
    entry = state.open_first[queue]
    while entry >= 0 and not _fits(steps, entry, message):
        before = entry
        entry = state.open_next[entry]
    if entry < 0:
        _append(state.send_first, state.send_last, state.send_next, queue, message)
        return
    _unlink(state.open_first, state.open_last, state.open_next, queue, entry, before)
    state.open_message[entry] = message
    state.status[message] |= RECEIVE_POSTED
    state.received[message] = time
    strand = state.open_waiter[entry]
    if strand >= 0:
        state.waiter[message, _RECEIVER] = strand


@njit(cache=True, nogil=True)
def _post_open_receive(steps, state, entry, time):  # type: ignore[no-untyped-def]
    """The first queued send that a receive takes, -1 if it has to wait for one. O(queue)."""
    queue = steps.open_queue[entry]
    before = -1
    message = state.send_first[queue]
    while message >= 0 and not _fits(steps, entry, message):
        before = message
        message = state.send_next[message]
    if message < 0:
        _append(state.open_first, state.open_last, state.open_next, queue, entry)
        return -1
    _unlink(state.send_first, state.send_last, state.send_next, queue, message, before)
    state.open_message[entry] = message
    state.status[message] |= RECEIVE_POSTED
    state.received[message] = time
    return message


@njit(cache=True, nogil=True)
def _fits(steps, entry, message):  # type: ignore[no-untyped-def]
    """Whether an open receive takes a send; -1 stands for any source and any tag."""
    source, tag = steps.open_source[entry], steps.open_tag[entry]
    return (source == -1 or source == steps.source[message]) and (tag == -1 or tag == steps.send_tag[message])


@njit(cache=True, nogil=True)
def _append(first, last, following, queue, entry):  # type: ignore[no-untyped-def]
    if first[queue] < 0:
        first[queue] = entry
    else:
        following[last[queue]] = entry
    last[queue] = entry
    following[entry] = -1


@njit(cache=True, nogil=True)
def _unlink(first, last, following, queue, entry, before):  # type: ignore[no-untyped-def]
    if before < 0:
        first[queue] = following[entry]
    else:
        following[before] = following[entry]
    if last[queue] == entry:
        last[queue] = before


@njit(cache=True, nogil=True)
def _take_any(steps, state, number, strand):  # type: ignore[no-untyped-def]
    """Consume the earliest completed candidate of a wait-any, or be called by all that are open. True if the strand may
    go on: one was consumed, or none is open. O(candidates)."""
    best = state.now.dtype.type(NEVER)
    best_at = -1
    num_open = 0
    for k in range(steps.candidate_offsets[number], steps.candidate_offsets[number + 1]):
        action, other = steps.candidate_action[k], steps.candidate_target[k]
        done = _completion(steps, state, action, other, strand)
        if done == -2:  # consumed by an earlier wait
            continue
        num_open += 1
        if done >= 0 and done < best:
            best = done
            best_at = k
    if best_at < 0:
        return num_open == 0
    action, other = steps.candidate_action[best_at], steps.candidate_target[best_at]
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        state.consumed_message[other] |= 1 if action == WAIT_SEND else 2
    elif action == WAIT_OPEN_RECEIVE:
        state.consumed_open[other] = 1
    elif action == WAIT_STRAND:
        state.consumed_strand[other] = 1
    return True


@njit(cache=True, nogil=True)
def _completion(steps, state, action, other, strand):  # type: ignore[no-untyped-def]
    """When a candidate completed, -1 if it has not (the strand is then called when it does), -2 if it was consumed."""
    gone = state.now.dtype.type(-2)
    open_yet = state.now.dtype.type(-1)
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        side = _SENDER if action == WAIT_SEND else _RECEIVER
        if state.consumed_message[other] & (1 + side):
            return gone
        if side == _SENDER and steps.is_eager[other]:
            return state.sent[other]
        if state.status[other] & ARRIVED:
            return state.arrived[other]
        state.waiter[other, side] = strand
        return open_yet
    if action == WAIT_OPEN_RECEIVE:
        if state.consumed_open[other]:
            return gone
        message = state.open_message[other]
        if message >= 0:
            if state.status[message] & ARRIVED:
                return state.arrived[message]
            state.waiter[message, _RECEIVER] = strand
        state.open_waiter[other] = strand
        return open_yet
    if action == WAIT_STRAND:
        if state.consumed_strand[other]:
            return gone
        if state.finished[other]:
            return state.clock[other]
        state.strand_waiter[other] = strand
        return open_yet
    return state.now.dtype.type(0)  # a request of MPI_PROC_NULL
