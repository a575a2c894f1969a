"""Flows that start and end: on which links they are, and which links have to be solved for that.

A flow that has all its links to itself starts at the level of the narrowest of them, and ends without a trace. What
else starts or ends marks its links; `solve` (network/flow/max_min.py) then finds their levels. Cost: O(links of a flow)
each, and what network/flow/members.py says.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner
from manyscale.models.network.flow.link_clocks import (
    DUE,
    ENDED,
    FREE,
    HIGH,
    MOVED,
    PENDING,
    STARTED,
    TOUCHED,
    advance,
    make_room,
    record_load,
    schedule,
)
from manyscale.models.network.flow.members import become_sole, drain_by, leave_sole, put_member, take_member


@inner
def add_flow(sharing, links, uses, private, weight, amount):  # type: ignore[no-untyped-def]
    """Number of a new flow of ``amount`` over ``links`` (each once; ``uses`` times its rate) and one more, ``private``,
    if that is not -1. `solve` starts it. O(links)."""
    counter = sharing.counter
    if counter[FREE] > 0:
        counter[FREE] -= 1
        flow = sharing.free[counter[FREE]]
    else:
        flow = np.int32(counter[HIGH])
        counter[HIGH] += 1
    none = sharing.level.shape[0] - 1
    sharing.weight[flow] = weight
    sharing.target[flow] = amount / weight
    sharing.bottleneck[flow] = none
    end = links.shape[0]
    for hop in range(sharing.hop_link.shape[1]):
        sharing.hop_link[flow, hop] = links[hop] if hop < end else none
    if private >= 0:
        sharing.hop_link[flow, end] = private
    for hop in range(end):
        put_member(sharing, links[hop], flow, hop, weight * uses[hop])
        _mark(sharing, links[hop], STARTED)
    if private >= 0:
        put_member(sharing, private, flow, end, weight)
        _mark(sharing, private, STARTED)
    note_moved(sharing, flow)
    return flow


@inner
def start_at_once(sharing, flow, num_pending, time):  # type: ignore[no-untyped-def]
    """Start the flow that was added last, without `solve`, if it has all its links to itself. ``num_pending``: links
    that waited before it came. O(hops)."""
    if not _starts_alone(sharing, flow, time):
        return
    sharing.counter[MOVED] -= 1
    for k in range(num_pending, sharing.counter[PENDING]):
        settle(sharing, sharing.pending[k])
    sharing.counter[PENDING] = num_pending


@inner
def start_lone_flows(sharing, time):  # type: ignore[no-untyped-def]
    """Give new flows that have all their links to themselves their rate, and strike them off what is to be solved.
    O(new flows x hops)."""
    none = sharing.level.shape[0] - 1
    kept = 0
    for k in range(sharing.counter[MOVED]):
        flow = sharing.moved[k]
        if not _starts_alone(sharing, flow, time):
            sharing.moved[kept] = flow
            kept += 1
            continue
        for hop in range(sharing.hop_link.shape[1]):
            if sharing.hop_link[flow, hop] < none:
                settle(sharing, sharing.hop_link[flow, hop])
    sharing.counter[MOVED] = kept


@inner
def _starts_alone(sharing, flow, time):  # type: ignore[no-untyped-def]
    """Whether a new flow has all its links to itself: then it has its rate from ``time`` on. O(hops)."""
    none = sharing.level.shape[0] - 1
    best = none
    lowest = np.inf
    for hop in range(sharing.hop_link.shape[1]):
        number = sharing.hop_link[flow, hop]
        if number == none:
            break
        link = sharing.link[number]
        if link.count > 1:
            return False
        level = link.capacity / link.total
        if level < lowest:
            lowest = level
            best = number
    if best == none or sharing.bottleneck[flow] != none:
        return False
    for hop in range(sharing.hop_link.shape[1]):
        number = sharing.hop_link[flow, hop]
        if number == none:
            break
        sharing.link[number].load = lowest * sharing.link[number].total
        sharing.level[number] = np.inf  # others that ended while it waited may have filled it
    sharing.is_moved[flow] = 0
    sharing.level[best] = lowest
    link = sharing.link[best]
    link.clock = 0.0
    link.since = time
    link.first = sharing.target[flow]
    drain_by(sharing, flow, best)
    sharing.joined[flow, 0] = time
    sharing.joined[flow, 1] = 0.0
    schedule(sharing, best)
    return True


@inner
def next_end(sharing):  # type: ignore[no-untyped-def]
    """When the next flow will finish if nothing changes; infinite if none flows."""
    if sharing.counter[DUE] == 0:
        return np.inf
    return sharing.due[0].key


@inner
def end_flows(sharing, time, window, ended):  # type: ignore[no-untyped-def]
    """Remove the flows of the link that is due first which have finished by ``time`` + ``window``: their number; they
    stand in ``ended``. O(flows on the link), but for sole ones O(log flows) for each that ends."""
    make_room(sharing, time)
    number = sharing.due[0].link
    link = sharing.link[number]
    advance(sharing, number, time)
    done = max(link.clock + sharing.level[number] * window, link.first)
    first = np.inf
    count = 0
    for place in range(link.begin + link.sole, link.begin + link.count):
        if sharing.drains[place]:
            flow = sharing.member[place].flow
            target = sharing.target[flow]
            if target <= done:
                ended[count] = flow
                count += 1
            elif target < first:
                first = target
    for k in range(count):
        _end_flow(sharing, ended[k], number, time)
    while link.sole > 0:
        flow = sharing.member[link.begin].flow
        target = sharing.target[flow]
        if target > done:
            first = min(first, target)
            break
        ended[count] = flow
        count += 1
        _end_flow(sharing, flow, number, time)
    link.first = first
    schedule(sharing, number)
    return count


@inner
def _end_flow(sharing, flow, number, time):  # type: ignore[no-untyped-def]
    record_load(sharing, flow, number, time, sharing.target[flow])
    _remove_flow(sharing, flow)


@inner
def _remove_flow(sharing, flow):  # type: ignore[no-untyped-def]
    none = sharing.level.shape[0] - 1
    level = sharing.level[sharing.bottleneck[flow]]
    if sharing.is_sole[flow] != 0:
        leave_sole(sharing, flow)
    for hop in range(sharing.hop_link.shape[1]):
        number = sharing.hop_link[flow, hop]
        if number == none:
            break
        link = sharing.link[number]
        share = sharing.hop[flow, hop].share
        take_member(sharing, number, flow, hop)
        if link.count == 0:
            link.total = 0.0
            link.load = 0.0
            sharing.level[number] = np.inf
            if link.state == 0:
                settle(sharing, number)
            continue
        link.total -= share
        link.load -= share * level
        if sharing.level[number] < np.inf:  # one that is not full stays so
            _mark(sharing, number, ENDED)
        if link.count == 1:
            become_sole(sharing, sharing.member[link.begin].flow)
    sharing.free[sharing.counter[FREE]] = flow
    sharing.counter[FREE] += 1


@inner
def note_moved(sharing, flow):  # type: ignore[no-untyped-def]
    if sharing.is_moved[flow] == 0:
        sharing.is_moved[flow] = 1
        sharing.moved[sharing.counter[MOVED]] = flow
        sharing.counter[MOVED] += 1


@inner
def _mark(sharing, number, why):  # type: ignore[no-untyped-def]
    """Note that flows of a link have started or ended; solve pushes it with a key that knows all of them."""
    if sharing.link[number].state == 0:
        sharing.pending[sharing.counter[PENDING]] = number
        sharing.counter[PENDING] += 1
        sharing.open_level[number] = -np.inf
    sharing.link[number].state |= why


@inner
def settle(sharing, number):  # type: ignore[no-untyped-def]
    """A link does not wait to be solved any more."""
    sharing.link[number].state = 0
    sharing.open_level[number] = sharing.level[number]


@inner
def needs_solving(sharing):  # type: ignore[no-untyped-def]
    """Whether anything has changed: a flow that had its links to itself ends without a trace."""
    counter = sharing.counter
    return counter[PENDING] > 0 or counter[MOVED] > 0 or counter[TOUCHED] > 0
