"""Steps of the replay whose outcome depends on the order of simulated time: posts that a wildcard receive is part of,
and waits for any of several requests. The method is said in network/replay/replay.py.

A strand that comes to such a step is parked in a heap by time. An entry names its strand and how often the strand had
left the heap before; an entry with an old count is void, for the strand has been parked again for an earlier time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.network.program import Program
from manyscale.models.network.replay.kernel import (
    ANY_AWAITED,
    BOTH_POSTED,
    ENDED,
    FRESH,
    NOT_CALLED,
    NOTHING_AWAITED,
    OF_OPEN,
    RECEIVE_POSTED,
    SEND_POSTED,
    meet,
    next_called,
    run_ready,
    set_ready,
)
from manyscale.models.network.replay.steps import (
    ACTION,
    LAST,
    POST_OPEN_SEND,
    WAIT_ANY,
    WAIT_OPEN_RECEIVE,
    WAIT_RECEIVE,
    WAIT_SEND,
    WAIT_STRAND,
)
from manyscale.models.workload import ANY_SOURCE, ANY_TAG

_COUNT_BITS: Final = 31
_COUNT_MASK: Final = (1 << _COUNT_BITS) - 1
_NONE_DONE: Final = -2  # of several requests: none is known to complete yet
_NONE_OPEN: Final = -1  # all of them have been taken

# An entry of a queue, a send or a receive: the next one, and what it carries or wants
_ENTRY: Final = np.dtype([("following", "i4"), ("source", "i4"), ("tag", "i4"), ("queue", "i4")])
_OPEN: Final = np.dtype([("post", "i8"), ("message", "i4"), ("waiter", "i4"), ("taken", "i4"), ("unused", "i4")])
# wild: receives with a wildcard that are not matched yet
_QUEUE: Final = np.dtype(
    [("send_first", "i4"), ("send_last", "i4"), ("open_first", "i4"), ("open_last", "i4"), ("wild", "i8")]
)
_TURN: Final = np.dtype([("wakes", "i8"), ("count", "i4"), ("taken", "i4")])  # wakes: -1 for never


class Order(NamedTuple):
    """Wildcard receives and the messages that they may take, in queues; waits for any of several; the heap."""

    send: np.ndarray
    open: np.ndarray
    open_state: np.ndarray
    queue: np.ndarray
    candidate_offsets: np.ndarray
    candidate_action: np.ndarray
    candidate_target: np.ndarray
    taken: np.ndarray  # per message, by waits for any of several: bit 0 as a send, bit 1 as a receive
    turn: np.ndarray  # per strand
    heap: np.ndarray
    heap_size: np.ndarray


def new_order(program: Program) -> Order:
    """Nothing posted, nothing parked."""
    num_strands, num_sends, num_open = len(program.strand_rank), len(program.send_queue), len(program.open_queue)
    num_candidates = len(program.candidate_target)
    send = np.zeros(num_sends, _ENTRY)
    send["source"], send["tag"], send["queue"] = program.source[:num_sends], program.send_tag, program.send_queue
    opens = np.zeros(num_open, _ENTRY)
    opens["source"], opens["tag"], opens["queue"] = program.open_source, program.open_tag, program.open_queue
    open_state = np.zeros(num_open, _OPEN)
    open_state["message"] = open_state["waiter"] = -1
    queue = np.full(program.num_queues, -1, np.int32).repeat(6).view(_QUEUE)
    wild = (program.open_source == ANY_SOURCE) | (program.open_tag == ANY_TAG)
    queue["wild"] = np.bincount(program.open_queue[wild], minlength=program.num_queues)
    turn = np.zeros(num_strands, _TURN)
    turn["wakes"] = -1
    return Order(
        send=send,
        open=opens,
        open_state=open_state,
        queue=queue,
        candidate_offsets=program.candidate_offsets,
        candidate_action=program.candidate_action,
        candidate_target=program.candidate_target,
        taken=np.zeros(program.num_messages if num_candidates else 0, np.uint8),
        turn=turn,
        heap=np.zeros(num_strands + num_candidates, event_record(np.dtype(np.int64))),
        heap_size=np.zeros(1, np.int64),
    )


@allocation_free
def run_in_order(script, stage, order):  # type: ignore[no-untyped-def]
    """Run all strands of any program, until none can go on."""
    script, stage, order = by_reference(script), by_reference(stage), by_reference(order)
    while True:
        strand = run_ready(script, stage)
        if strand >= 0:
            _take_step(script, stage, order, strand, -1)
            continue
        _park_called(stage, order)
        if order.heap_size[0] == 0:
            return
        now = order.heap[0].time
        entry = pop(order.heap, order.heap_size)
        strand = entry >> _COUNT_BITS
        turn = order.turn[strand]
        if entry & _COUNT_MASK == turn.count & _COUNT_MASK:
            turn.count += 1
            _take_step(script, stage, order, strand, now)


@inner
def _park(order, strand, time):  # type: ignore[no-untyped-def]
    number = strand << _COUNT_BITS | (order.turn[strand].count & _COUNT_MASK)
    push(order.heap, order.heap_size, number, time)


@inner
def _park_called(stage, order):  # type: ignore[no-untyped-def]
    """Park the strands of which one request is done until that is so, unless they wake earlier anyway."""
    strand = next_called(stage)
    while strand >= 0:
        me, turn = stage.strand[strand], order.turn[strand]
        resume = max(me.clock, me.called)
        me.called = NOT_CALLED
        if turn.wakes < 0 or turn.wakes > resume:
            turn.wakes = resume
            turn.count += 1
            _park(order, strand, resume)
        strand = next_called(stage)


@inner
def _take_step(script, stage, order, strand, now):  # type: ignore[no-untyped-def]
    """Take the step that a strand has come to, at ``now`` (its own time, if that is later); a strand whose turn it is
    not yet (``now`` is -1) may have to be parked until it is."""
    me = stage.strand[strand]
    what = script.target[me.place]
    action = script.step[me.place] & ACTION
    if action == WAIT_OPEN_RECEIVE:
        opened = order.open_state[what]
        if opened.message < 0:
            opened.waiter = strand
            me.awaits = OF_OPEN | what
            return
        me.clock = max(me.clock, stage.message[opened.message].received)
    elif now < 0 and not _is_free(order, action, what):
        _park(order, strand, me.clock)
        return
    elif action == WAIT_ANY:
        if not _wait_for_any(script, stage, order, strand, what, max(me.clock, now)):
            return
    elif action == POST_OPEN_SEND:
        _post_send(script, stage, order, what, me.clock)
    else:
        _post_receive(script, stage, order, what, me.clock)
    if script.step[me.place] & LAST:
        stage.end_ps[me.operation] = me.clock
        me.operation += 1
    me.place += 1
    me.phase = FRESH
    set_ready(stage, strand)


@inner
def _is_free(order, action, what):  # type: ignore[no-untyped-def]
    """Whether a step is a post to a queue whose wildcard receives are all matched."""
    if action == WAIT_ANY:
        return False
    queue = order.send[what].queue if action == POST_OPEN_SEND else order.open[what].queue
    return order.queue[queue].wild == 0


@inner
def _fits(order, receive, send):  # type: ignore[no-untyped-def]
    wanted, carried = order.open[receive], order.send[send]
    return (wanted.source == ANY_SOURCE or wanted.source == carried.source) and (
        wanted.tag == ANY_TAG or wanted.tag == carried.tag
    )


@inner
def _post_send(script, stage, order, number, time):  # type: ignore[no-untyped-def]
    """Give a send to the first receive of its queue that takes it, else queue it. O(queue)."""
    message = stage.message[number]
    message.sent = time
    message.posted |= SEND_POSTED
    queue = order.queue[order.send[number].queue]
    before = -1
    found = queue.open_first
    while found >= 0 and not _fits(order, found, number):
        before = found
        found = order.open[found].following
    if found < 0:
        order.send[number].following = -1
        if queue.send_first < 0:
            queue.send_first = number
        else:
            order.send[queue.send_last].following = number
        queue.send_last = number
        return
    if before < 0:
        queue.open_first = order.open[found].following
    else:
        order.open[before].following = order.open[found].following
    if queue.open_last == found:
        queue.open_last = before
    waiter = order.open_state[found].waiter
    if waiter >= 0 and stage.strand[waiter].awaits == OF_OPEN | found:
        stage.strand[waiter].awaits = number
    message.waiter = waiter
    _match(script, stage, order, found, number, order.open_state[found].post)


@inner
def _post_receive(script, stage, order, number, time):  # type: ignore[no-untyped-def]
    """Let a receive take the first send of its queue that fits, else queue it. O(queue)."""
    order.open_state[number].post = time
    queue = order.queue[order.open[number].queue]
    before = -1
    found = queue.send_first
    while found >= 0 and not _fits(order, number, found):
        before = found
        found = order.send[found].following
    if found < 0:
        order.open[number].following = -1
        if queue.open_first < 0:
            queue.open_first = number
        else:
            order.open[queue.open_last].following = number
        queue.open_last = number
        return
    if before < 0:
        queue.send_first = order.send[found].following
    else:
        order.send[before].following = order.send[found].following
    if queue.send_last == found:
        queue.send_last = before
    _match(script, stage, order, number, found, time)


@inner
def _match(script, stage, order, receive, send, time):  # type: ignore[no-untyped-def]
    """A receive, posted at ``time``, takes a message that has been sent."""
    wanted = order.open[receive]
    if wanted.source == ANY_SOURCE or wanted.tag == ANY_TAG:
        order.queue[wanted.queue].wild -= 1
    order.open_state[receive].message = send
    stage.message[send].received = time
    stage.message[send].posted |= RECEIVE_POSTED
    meet(script, stage, send)


@inner
def _wait_for_any(script, stage, order, strand, number, now):  # type: ignore[no-untyped-def]
    """Take the earliest completion of several requests, if one is there by ``now``, and let time pass until it was.
    Else the strand is parked until the earliest that is known, or waits to be called. True if it goes on."""
    me, turn = stage.strand[strand], order.turn[strand]
    best = _NONE_DONE
    best_at = -1
    num_open = 0
    for k in range(order.candidate_offsets[number], order.candidate_offsets[number + 1]):
        action, other = order.candidate_action[k], order.candidate_target[k]
        if _is_taken(order, action, other):
            continue
        num_open += 1
        done = _completion(script, stage, order, action, other, strand)
        if done >= 0 and (best < 0 or done < best):
            best = done
            best_at = k
    if num_open > 0:
        if best < 0 or best > now:
            me.awaits = ANY_AWAITED
            turn.wakes = max(best, -1)
            if best >= 0:
                _park(order, strand, best)
            return False
        _take(order, order.candidate_action[best_at], order.candidate_target[best_at])
        me.clock = max(me.clock, best)
    me.awaits = NOTHING_AWAITED
    return True


@inner
def _is_taken(order, action, other):  # type: ignore[no-untyped-def]
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        return order.taken[other] & (1 if action == WAIT_SEND else 2) != 0
    if action == WAIT_OPEN_RECEIVE:
        return order.open_state[other].taken != 0
    return action == WAIT_STRAND and order.turn[other].taken != 0


@inner
def _take(order, action, other):  # type: ignore[no-untyped-def]
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        order.taken[other] |= 1 if action == WAIT_SEND else 2
    elif action == WAIT_OPEN_RECEIVE:
        order.open_state[other].taken = 1
    elif action == WAIT_STRAND:
        order.turn[other].taken = 1


@inner
def _completion(script, stage, order, action, other, strand):  # type: ignore[no-untyped-def]
    """When a request completes, -1 if that is not known yet: then the strand will be called."""
    if action == WAIT_SEND or action == WAIT_RECEIVE:
        message = stage.message[other]
        if action == WAIT_SEND and script.is_eager[other]:
            return message.sent
        if message.posted == BOTH_POSTED:
            return message.received
        message.waiter = strand
        return -1
    if action == WAIT_OPEN_RECEIVE:
        opened = order.open_state[other]
        if opened.message >= 0:
            return stage.message[opened.message].received
        opened.waiter = strand
        return -1
    if action == WAIT_STRAND:
        awaited = stage.strand[other]
        if awaited.phase == ENDED:
            return awaited.clock
        awaited.waiter = strand
        return -1
    return 0  # a request of MPI_PROC_NULL
