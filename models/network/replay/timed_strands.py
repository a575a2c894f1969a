"""Strands of a replay program in the order of simulated time, for network models whose transfers hinder each other.

A model's kernel owns the transfers; this file owns the strands. The kernel's loop is

    while True:
        strands_at = next_time(state)            # NEVER if no strand is parked
        ... which is earlier: strands_at, or the model's own next event?
        count = run_next(steps, state)           # the earliest parked strand runs until it blocks
        for k in range(count):                   # what it has posted, all at state.now[0]
            message = state.posted[k]
            if state.message[message].status & SEND_POSTED ...
        complete(steps, state, message, time)    # when the model finds that a transfer has arrived

``state.posted`` names a message once for each side that was posted; ``status`` says which sides have been, this
one included. The model decides when a transfer starts and when it arrives. ``complete`` must be called in the order of
time, never earlier than ``state.now[0]``. A receiver goes on at the arrival, or at its own post if that is later; the
sender of an eager message goes on at once, that of another with the arrival.

Times are whatever the arrays of ``new_state`` (strand_state.py) hold: int64 picoseconds, or float64 where a model must
not round between events. Equal times: strands in the order of their numbers. Wildcard receives are matched as their
posts come, a wait for any of several takes the earliest completion. Gates open a given time after the last strand
entered.

Strands may share their heap with cores (network/coupled/kernel.py): these have the numbers after the strands, and a
model's loop returns when one of them is next.

A model's kernel has to be compiled as these are (kernels.allocation_free: it allocates nothing itself; its arrays are
made by the caller), for otherwise counting references costs more than the events. kernels/event_heap.py is there for
its own events.

Cost: O((steps + parks x log strands)); a strand parks for compute, for a delay before a send, and when it is woken.
Memory: 48 B a message, 8 B an operation, and what `posted` needs: 4 B for each step of the longest strand.
"""

from __future__ import annotations

from manyscale.models.kernels import inner
from manyscale.models.kernels.event_heap import pop, push
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
from manyscale.models.network.replay.strand_state import ARRIVED, NEVER, RECEIVE_POSTED, SEND_POSTED

# Where in its step a strand goes on
_FRESH, _COMPUTED, _DELAYED = 0, 1, 2
# What a blocked strand waits for
_NOTHING, _ONE, _ANY = 0, 1, 2
_SENDER, _RECEIVER = 0, 1


@inner
def next_time(state):  # type: ignore[no-untyped-def]
    """When the earliest parked strand goes on; NEVER if none is parked."""
    if state.heap_size[0] == 0:
        return state.now.dtype.type(NEVER)
    return state.heap[0].time


@inner
def cores_are_next(state):  # type: ignore[no-untyped-def]
    """Whether the earliest that is parked is no strand."""
    return state.heap_size[0] > 0 and state.heap[0].number >= state.strand.shape[0]


@inner
def complete(steps, state, message, time):  # type: ignore[no-untyped-def]
    """A transfer has arrived, and its receive is posted: whoever waits for it goes on at ``time``."""
    record = state.message[message]
    record.arrived = time
    record.status |= ARRIVED
    if record.sender >= 0:
        _wake(steps, state, record.sender, message, time)
    if record.receiver >= 0:
        _wake(steps, state, record.receiver, message, time)


@inner
def release_sender(steps, state, message, time):  # type: ignore[no-untyped-def]
    """Let whoever waits as the sender of a transfer go on at ``time``, although it has not arrived; the model then has
    to call the message eager, for that is how its sender goes on."""
    strand = state.message[message].sender
    state.message[message].sender = -1
    if strand >= 0:
        _wake(steps, state, strand, message, time)


@inner
def _wake(steps, state, number, message, time):  # type: ignore[no-untyped-def]
    """Park a strand if what it is blocked at waits for ``message``, not for another after a wait-any."""
    strand = state.strand[number]
    if strand.waiting == _NOTHING:
        return
    if strand.waiting == _ONE:
        action = steps.step[strand.place] & ACTION
        target = steps.target[strand.place]
        if action == WAIT_OPEN_RECEIVE:
            if state.open[target].message != message:
                return
        elif target != message or not (action == WAIT_SEND or action == WAIT_RECEIVE):
            return
    strand.waiting = _NOTHING
    push(state.heap, state.heap_size, number, time)


@inner
def run_next(steps, state):  # type: ignore[no-untyped-def]
    """Run the earliest parked strand until it blocks or computes: number of entries of ``state.posted``."""
    time = state.heap[0].time
    number = pop(state.heap, state.heap_size)
    state.now[0] = time
    strand = state.strand[number]
    at, row, phase = strand.place, strand.operation, strand.phase
    end = steps.strand_end[number]
    num_posted = 0
    while at < end:
        code = steps.step[at]
        what = steps.target[at]
        action = code & ACTION
        if phase == _FRESH and code & FIRST and steps.compute[row] > 0:
            phase = _COMPUTED
            push(state.heap, state.heap_size, number, time + steps.compute[row])
            break
        if action <= POST_RECEIVE or action == POST_OPEN_SEND or action == POST_OPEN_RECEIVE:
            is_send = action == POST_SEND or action == POST_OPEN_SEND
            if is_send and phase != _DELAYED and steps.delay[what] > 0:
                phase = _DELAYED
                push(state.heap, state.heap_size, number, time + steps.delay[what])
                break
            message = _post(steps, state, action, what, time)
            if message >= 0:
                state.posted[num_posted] = message
                num_posted += 1
        elif action != NOTHING and not _pass(steps, state, number, action, what, time):
            phase = _COMPUTED
            break
        phase = _FRESH
        if code & LAST:
            state.end[row] = time
            row += 1
        at += 1
    strand.place, strand.operation, strand.phase = at, row, phase
    if at == end:
        _finish(steps, state, number, time)
    return num_posted


@inner
def _post(steps, state, action, what, time):  # type: ignore[no-untyped-def]
    """Post a send or a receive: its message, -1 for a receive that takes none yet."""
    if action == POST_OPEN_RECEIVE:
        return _post_open_receive(steps, state, what, time)
    if action == POST_RECEIVE:
        state.message[what].received = time
        state.message[what].status |= RECEIVE_POSTED
        return what
    state.message[what].sent = time
    state.message[what].status |= SEND_POSTED
    if action == POST_OPEN_SEND:
        _post_open_send(steps, state, what, time)
    return what


@inner
def _pass(steps, state, number, action, what, time):  # type: ignore[no-untyped-def]
    """Take a step that posts nothing: False if the strand has to wait."""
    strand = state.strand[number]
    waits = False
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        waits = not (state.message[what].status & ARRIVED or (action == WAIT_SEND and steps.is_eager[what]))
        if waits:
            if action == WAIT_SEND:
                state.message[what].sender = number
            else:
                state.message[what].receiver = number
    elif action == WAIT_OPEN_RECEIVE:
        message = state.open[what].message
        if message < 0:
            state.open[what].waiter = number
            waits = True
        elif not state.message[message].status & ARRIVED:
            state.message[message].receiver = number
            waits = True
    elif action == WAIT_ANY:
        if not _take_any(steps, state, what, number):
            strand.waiting = _ANY
            return False
    elif action == START_STRAND:
        push(state.heap, state.heap_size, what, time)
    elif action == WAIT_STRAND:
        if not state.finished[what]:
            state.strand[what].waiter = number
            waits = True
    elif action == ENTER_GATE:
        _enter_gate(steps, state, what, time)
    elif action == WAIT_GATE:
        opens = state.gate[what].opens
        if opens < 0:
            strand.following = state.gate[what].waiter
            state.gate[what].waiter = number
            waits = True
        elif opens > time:
            push(state.heap, state.heap_size, number, opens)
            return False
    if waits:
        strand.waiting = _ONE
    return not waits


@inner
def _finish(steps, state, strand, time):  # type: ignore[no-untyped-def]
    state.finished[strand] = 1
    state.strand[strand].clock = time
    woken = state.strand[strand].waiter
    if woken < 0:
        return
    if woken >= state.strand.shape[0]:  # a core
        push(state.heap, state.heap_size, woken, time)
        return
    at = state.strand[woken].place
    waiting = state.strand[woken].waiting
    if waiting == _ANY or (waiting == _ONE and steps.step[at] & ACTION == WAIT_STRAND and steps.target[at] == strand):
        state.strand[woken].waiting = _NOTHING
        push(state.heap, state.heap_size, woken, time)


@inner
def _enter_gate(steps, state, gate, time):  # type: ignore[no-untyped-def]
    state.gate[gate].entered += 1
    if state.gate[gate].entered < steps.gate[gate].size:
        return
    opens = time + steps.gate[gate].cost
    state.gate[gate].opens = opens
    strand = state.gate[gate].waiter
    while strand >= 0:
        state.strand[strand].waiting = _NOTHING
        push(state.heap, state.heap_size, strand, opens)
        strand = state.strand[strand].following


@inner
def _post_open_send(steps, state, message, time):  # type: ignore[no-untyped-def]
    """Give a send to the first receive of its queue that takes it, else queue it. O(queue)."""
    queue = state.queue[steps.send[message].queue]
    before = -1
    entry = queue.open_first
    while entry >= 0 and not _fits(steps, entry, message):
        before = entry
        entry = state.open[entry].following
    if entry < 0:
        if queue.send_first < 0:
            queue.send_first = message
        else:
            state.send_following[queue.send_last] = message
        queue.send_last = message
        return
    following = state.open[entry].following
    if before < 0:
        queue.open_first = following
    else:
        state.open[before].following = following
    if following < 0:
        queue.open_last = before
    _match(state, entry, message, time)
    strand = state.open[entry].waiter
    if strand >= 0:
        state.message[message].receiver = strand


@inner
def _post_open_receive(steps, state, entry, time):  # type: ignore[no-untyped-def]
    """The first queued send that a receive takes, -1 if it has to wait for one. O(queue)."""
    queue = state.queue[steps.open[entry].queue]
    before = -1
    message = queue.send_first
    while message >= 0 and not _fits(steps, entry, message):
        before = message
        message = state.send_following[message]
    if message < 0:
        if queue.open_first < 0:
            queue.open_first = entry
        else:
            state.open[queue.open_last].following = entry
        queue.open_last = entry
        return -1
    following = state.send_following[message]
    if before < 0:
        queue.send_first = following
    else:
        state.send_following[before] = following
    if following < 0:
        queue.send_last = before
    _match(state, entry, message, time)
    return message


@inner
def _match(state, entry, message, time):  # type: ignore[no-untyped-def]
    state.open[entry].message = message
    state.message[message].status |= RECEIVE_POSTED
    state.message[message].received = time


@inner
def _fits(steps, entry, message):  # type: ignore[no-untyped-def]
    """Whether an open receive takes a send; -1 stands for any source and any tag."""
    source, tag = steps.open[entry].source, steps.open[entry].tag
    return (source == -1 or source == steps.send[message].source) and (tag == -1 or tag == steps.send[message].tag)


@inner
def _take_any(steps, state, number, strand):  # type: ignore[no-untyped-def]
    """Consume the earliest completed candidate of a wait-any, or be called by all that are open. True if the strand may
    go on: one was consumed, or none is open. O(candidates)."""
    best = state.now.dtype.type(NEVER)
    best_at = -1
    num_open = 0
    for k in range(steps.candidate_offsets[number], steps.candidate_offsets[number + 1]):
        action, other = steps.candidate[k].action, steps.candidate[k].target
        done = _completion(steps, state, action, other, strand)
        if done == -2:  # consumed by an earlier wait
            continue
        num_open += 1
        if done >= 0 and done < best:
            best = done
            best_at = k
    if best_at < 0:
        return num_open == 0
    action, other = steps.candidate[best_at].action, steps.candidate[best_at].target
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        state.consumed[other] |= 1 if action == WAIT_SEND else 2
    elif action == WAIT_OPEN_RECEIVE:
        state.open[other].consumed = 1
    elif action == WAIT_STRAND:
        state.strand[other].consumed = 1
    return True


@inner
def _completion(steps, state, action, other, strand):  # type: ignore[no-untyped-def]
    """When a candidate completed, -1 if it has not (the strand is then called when it does), -2 if it was consumed."""
    gone = state.now.dtype.type(-2)
    open_yet = state.now.dtype.type(-1)
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        side = _SENDER if action == WAIT_SEND else _RECEIVER
        if state.consumed[other] & (1 + side):
            return gone
        if side == _SENDER and steps.is_eager[other]:
            return state.message[other].sent
        if state.message[other].status & ARRIVED:
            return state.message[other].arrived
        if side == _SENDER:
            state.message[other].sender = strand
        else:
            state.message[other].receiver = strand
        return open_yet
    if action == WAIT_OPEN_RECEIVE:
        if state.open[other].consumed:
            return gone
        message = state.open[other].message
        if message >= 0:
            if state.message[message].status & ARRIVED:
                return state.message[message].arrived
            state.message[message].receiver = strand
        state.open[other].waiter = strand
        return open_yet
    if action == WAIT_STRAND:
        if state.strand[other].consumed:
            return gone
        if state.finished[other]:
            return state.strand[other].clock
        state.strand[other].waiter = strand
        return open_yet
    return state.now.dtype.type(0)  # a request of MPI_PROC_NULL
