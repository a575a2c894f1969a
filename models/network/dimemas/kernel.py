"""Transfers of the Dimemas model: links, buses and the queues before them, in the order in which Dimemas serves them.

A transfer needs an output link of its sender's side, an input link of its receiver's side and a bus; what is 0 is
without limit. The sides are nodes for transfers between nodes and ranks for those inside a node; the buses belong to
the network and to each node. Law (bsc-performance-tools/dimemas, Simulator/model: links.c, communic.c):

* the output link is taken first and kept while the transfer queues for the input link;
* a transfer that finds no free output link at its node, but an input link at its destination, takes the output link of
  one that waits for its input link; that one goes to the head of the queue for output links. This holds between nodes;
* with both links it queues for a bus;
* an end frees the output link, the input link and the bus, in this order, and each calls the first of its own queue;
* where one of the two numbers of links is 0, links serve either direction (half duplex): one pool, two queues.

Ties in time are served in the order of posting.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.network.replay.strand_state import BOTH_POSTED, NEVER, SEND_POSTED
from manyscale.models.network.replay.timed_strands import complete, cores_are_next, next_time, release_sender, run_next

INTER_NODE: Final = 0
INTRA_NODE: Final = 1
TO_SELF: Final = 2  # no links
FREE: Final = 3  # nothing at all

_NO_OWNER: Final = -1
_INPUT: Final = -2  # of a half-duplex link that serves as an input
_NONE: Final = -1
_COUNTED: Final = -2  # an input link of a full-duplex side: they are only counted
_MESSAGE_SHIFT: Final = 31
_MESSAGE_BITS: Final = 2**31 - 1


# Sides are numbered nodes first, then ranks; queues: for outputs of all sides, for inputs of all sides, for buses.
TRANSFER: Final = np.dtype(
    [
        ("duration", "i8"), ("leaves", "i4"), ("enters", "i4"),  # sides
        ("buses", "i4"), ("route", "i4"), ("output", "i4"), ("input", "i4"),  # links held
        ("following", "i4"), ("preceding", "i4"), ("started", "i4"), ("unused", "i4"),
    ]
)  # fmt: skip
LINK: Final = np.dtype([("owner", "i8"), ("since", "i8")])  # since: when it was taken from the pool, in order
QUEUE: Final = np.dtype([("first", "i4"), ("last", "i4")])
SIDE: Final = np.dtype([("first_link", "i8"), ("last_link", "i8"), ("free_inputs", "i8")])  # inputs of full duplex
BUSES: Final = np.dtype([("limit", "i8"), ("used", "i8")])
ROUTE: Final = np.dtype([("has_links", "i4"), ("half_duplex", "i4")])


class Traffic(NamedTuple):
    """Transfers and what they hold and wait for, as records; ``counter``: [order of links taken, order of events]."""

    transfer: np.ndarray
    link: np.ndarray
    side: np.ndarray
    queue: np.ndarray
    buses: np.ndarray
    route: np.ndarray
    counter: np.ndarray
    heap: np.ndarray
    heap_size: np.ndarray


@allocation_free
def run(steps, state, is_eager, traffic):  # type: ignore[no-untyped-def]
    """Run all strands and transfers until none can go on."""
    run_transfers(by_reference(steps), by_reference(state), is_eager, by_reference(traffic))


@merged
def run_transfers(steps, state, is_eager, traffic):  # type: ignore[no-untyped-def]
    """Run all strands and transfers to their end, or until a core is next: when the next transfer ends, NEVER for none.

    O((steps + messages) x log(strands + messages in flight)).
    """
    while True:
        strands_at = next_time(state)
        if traffic.heap_size[0] > 0 and traffic.heap[0].time <= strands_at:
            time = traffic.heap[0].time
            message = pop(traffic.heap, traffic.heap_size) & _MESSAGE_BITS
            _end(traffic, message, time)
            complete(steps, state, message, time)
            continue
        if strands_at == NEVER or cores_are_next(state):
            return traffic.heap[0].time if traffic.heap_size[0] > 0 else NEVER
        count = run_next(steps, state)
        now = state.now[0]
        for k in range(count):
            message = state.posted[k]
            if traffic.transfer[message].started:
                continue
            if state.message[message].status & BOTH_POSTED == BOTH_POSTED:
                if not is_eager[message]:
                    is_eager[message] = True  # from the meeting on its sender waits no more
                    release_sender(steps, state, message, now)
            elif not (is_eager[message] and state.message[message].status & SEND_POSTED):
                continue
            traffic.transfer[message].started = 1
            if traffic.transfer[message].route == FREE:
                complete(steps, state, message, now)
            else:
                _start(traffic, message, now)


@inner
def _start(traffic, message, now):  # type: ignore[no-untyped-def]
    """Start a transfer if its links and a bus are there, else queue it for the first that is not."""
    route = traffic.transfer[message].route
    if route <= INTRA_NODE and traffic.route[route].has_links:
        if route == INTER_NODE:
            if not _take_network_links(traffic, message):
                return
        elif not _take_memory_links(traffic, message):
            return
    buses = traffic.transfer[message].buses
    if traffic.buses[buses].limit > 0:
        if traffic.buses[buses].used >= traffic.buses[buses].limit:
            _push_back(traffic, 2 * traffic.side.shape[0] + buses, message)
            return
        traffic.buses[buses].used += 1
    order = traffic.counter[1]
    traffic.counter[1] = order + 1
    number = (order << _MESSAGE_SHIFT) | message  # equal times: in the order of starting
    push(traffic.heap, traffic.heap_size, number, now + traffic.transfer[message].duration)


@inner
def _end(traffic, message, now):  # type: ignore[no-untyped-def]
    """Free what a transfer held, and start those that waited for it."""
    route = traffic.transfer[message].route
    sides = traffic.side.shape[0]
    if route <= INTRA_NODE and traffic.route[route].has_links:
        leaves, enters = traffic.transfer[message].leaves, traffic.transfer[message].enters
        half = traffic.route[route].half_duplex
        traffic.link[traffic.transfer[message].output].owner = _NO_OWNER
        if half:
            _call_first(traffic, sides + leaves, now)
        _call_first(traffic, leaves, now)
        if half:
            traffic.link[traffic.transfer[message].input].owner = _NO_OWNER
            _call_first(traffic, enters, now)
        else:
            traffic.side[enters].free_inputs += 1
        _call_first(traffic, sides + enters, now)
    buses = traffic.transfer[message].buses
    if traffic.buses[buses].limit > 0:
        traffic.buses[buses].used -= 1
        _call_first(traffic, 2 * sides + buses, now)


@inner
def _call_first(traffic, queue, now):  # type: ignore[no-untyped-def]
    message = traffic.queue[queue].first
    if message >= 0:
        _remove(traffic, queue, message)
        _start(traffic, message, now)


@inner
def _take_network_links(traffic, message):  # type: ignore[no-untyped-def]
    """Take both links of a transfer between nodes, or queue it. O(links of a node)."""
    leaves, enters = traffic.transfer[message].leaves, traffic.transfer[message].enters
    sides = traffic.side.shape[0]
    stolen = -1
    if traffic.transfer[message].output == _NONE and not _take_output(traffic, message):
        stolen = _stealable(traffic, leaves)
        if stolen < 0:
            _push_back(traffic, leaves, message)
            return False
    if traffic.transfer[message].input != _NONE:
        return True
    link = _free_input(traffic, enters, traffic.route[INTER_NODE].half_duplex)
    stolen_input = -1
    if link == _NONE and traffic.route[INTER_NODE].half_duplex:
        stolen_input = _stealable(traffic, enters)
    if link == _NONE and stolen_input < 0:
        _push_back(traffic, leaves if stolen >= 0 else sides + enters, message)
        return False
    if stolen >= 0:
        _steal(traffic, stolen, leaves)
        traffic.link[stolen].owner = message
        traffic.transfer[message].output = stolen
    if stolen_input >= 0:
        _steal(traffic, stolen_input, enters)
        traffic.link[stolen_input].owner = _INPUT
        traffic.transfer[message].input = stolen_input
    else:
        _take_input(traffic, message, enters, link)
    return True


@inner
def _take_memory_links(traffic, message):  # type: ignore[no-untyped-def]
    """Take both links of a transfer inside a node, or queue it. Half-duplex links are taken in the order of ranks."""
    leaves, enters = traffic.transfer[message].leaves, traffic.transfer[message].enters
    half = traffic.route[INTRA_NODE].half_duplex
    input_first = half != 0 and leaves > enters
    for turn in range(2):
        if (turn == 0) == input_first:
            if traffic.transfer[message].input == _NONE:
                link = _free_input(traffic, enters, half)
                if link == _NONE:
                    _push_back(traffic, traffic.side.shape[0] + enters, message)
                    return False
                _take_input(traffic, message, enters, link)
        elif traffic.transfer[message].output == _NONE and not _take_output(traffic, message):
            _push_back(traffic, leaves, message)
            return False
    return True


@inner
def _take_output(traffic, message):  # type: ignore[no-untyped-def]
    link = _free_link(traffic, traffic.transfer[message].leaves)
    if link < 0:
        return False
    traffic.transfer[message].output = link
    _own(traffic, link, message)
    return True


@inner
def _free_input(traffic, side, half):  # type: ignore[no-untyped-def]
    """An input link of a side: _COUNTED of a full-duplex one, _NONE if none is free."""
    if half:
        return _free_link(traffic, side)
    return _COUNTED if traffic.side[side].free_inputs > 0 else _NONE


@inner
def _take_input(traffic, message, enters, link):  # type: ignore[no-untyped-def]
    traffic.transfer[message].input = link
    if link == _COUNTED:
        traffic.side[enters].free_inputs -= 1
    else:
        _own(traffic, link, _INPUT)


@inner
def _own(traffic, link, owner):  # type: ignore[no-untyped-def]
    traffic.link[link].owner = owner
    traffic.link[link].since = traffic.counter[0]
    traffic.counter[0] += 1


@inner
def _free_link(traffic, side):  # type: ignore[no-untyped-def]
    """A free link of a side, _NONE for none. O(links of a side)."""
    for link in range(traffic.side[side].first_link, traffic.side[side].last_link):
        if traffic.link[link].owner == _NO_OWNER:
            return link
    return _NONE


@inner
def _stealable(traffic, side):  # type: ignore[no-untyped-def]
    """The link, taken longest ago, whose transfer still waits for its input link; -1 for none. O(links of a side)."""
    best = -1
    for link in range(traffic.side[side].first_link, traffic.side[side].last_link):
        owner = traffic.link[link].owner
        waits = owner >= 0 and traffic.transfer[owner].input == _NONE
        if waits and (best < 0 or traffic.link[link].since < traffic.link[best].since):
            best = link
    return best


@inner
def _steal(traffic, link, side):  # type: ignore[no-untyped-def]
    """Send the owner of a link from its queue for an input link to the head of the queue for output links."""
    victim = traffic.link[link].owner
    _remove(traffic, traffic.side.shape[0] + traffic.transfer[victim].enters, victim)
    traffic.transfer[victim].output = _NONE
    _push_front(traffic, side, victim)


@inner
def _push_back(traffic, queue, message):  # type: ignore[no-untyped-def]
    end = traffic.queue[queue].last
    traffic.transfer[message].preceding = end
    traffic.transfer[message].following = -1
    if end < 0:
        traffic.queue[queue].first = message
    else:
        traffic.transfer[end].following = message
    traffic.queue[queue].last = message


@inner
def _push_front(traffic, queue, message):  # type: ignore[no-untyped-def]
    head = traffic.queue[queue].first
    traffic.transfer[message].following = head
    traffic.transfer[message].preceding = -1
    if head < 0:
        traffic.queue[queue].last = message
    else:
        traffic.transfer[head].preceding = message
    traffic.queue[queue].first = message


@inner
def _remove(traffic, queue, message):  # type: ignore[no-untyped-def]
    before, after = traffic.transfer[message].preceding, traffic.transfer[message].following
    if before < 0:
        traffic.queue[queue].first = after
    else:
        traffic.transfer[before].following = after
    if after < 0:
        traffic.queue[queue].last = before
    else:
        traffic.transfer[after].preceding = before
