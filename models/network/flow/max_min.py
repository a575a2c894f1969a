"""Weighted max-min fair sharing of links, kept up to date while flows come and go.

Law (Bertsekas and Gallager, Data Networks, 6.5.2; with weights as SimGrid's solver has it): a flow of weight w has the
rate w x level, where its level is the lowest among its links; the level of a link is the one at which the flows on it
fill its capacity, those held back elsewhere taking what they get there, and infinite if they cannot fill it. That link
of a flow which has the flow's level is its *bottleneck*. A flow may take more than its rate of a link, or less (traffic
back): its ``share`` there is weight x use.

Method: levels that agree with each other in this sense are unique, so any order of correcting them is right. Links
whose level may have changed wait in a heap by level, the lowest first, since a change at one level reaches only links
of higher ones; each is solved from the levels of the others by Newton's method on a concave function. Links that are
not full are left alone while the sum of their flows' rates stays below their capacity.

Flows drain by the clocks of their bottlenecks (network/flow/link_clocks.py).

Cost of `solve`: O(sum over links whose level changes, and their neighbours' checks, of flows on the link x links of a
flow), and O(log links) per such link. Levels within TIE of each other are one. Units are the caller's: capacity in
amount per time, amounts, times; weights are relative.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner
from manyscale.models.kernels.event_heap import pop, push
from manyscale.models.network.flow.link_clocks import (
    DUE,
    ENDED,
    FIRST_GONE,
    FREE,
    HIGH,
    MOVED,
    PENDING,
    QUEUED,
    STARTED,
    TOUCHED,
    advance,
    make_room,
    record_load,
    schedule,
    touch,
)

TIE: Final = 1e-13  # relative difference of levels that is rounding


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
    for hop in range(links.shape[0]):
        _join(sharing, flow, hop, links[hop], weight * uses[hop])
    end = links.shape[0]
    if private >= 0:
        _join(sharing, flow, end, private, weight)
        end += 1
    for hop in range(end, sharing.hop_link.shape[1]):
        sharing.hop_link[flow, hop] = none
    _note_moved(sharing, flow)
    return flow


@inner
def _join(sharing, flow, hop, number, share):  # type: ignore[no-untyped-def]
    link = sharing.link[number]
    position = link.begin + link.count
    link.count += 1
    link.total += share
    sharing.hop_link[flow, hop] = number
    sharing.hop[flow, hop].share = share
    sharing.hop[flow, hop].position = position
    member = sharing.member[position]
    member.share = share
    member.flow = flow
    member.hop = hop
    _mark(sharing, number, STARTED)


@inner
def _note_moved(sharing, flow):  # type: ignore[no-untyped-def]
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
    sharing.link[number].state |= why


@inner
def _remove_flow(sharing, flow):  # type: ignore[no-untyped-def]
    none = sharing.level.shape[0] - 1
    level = sharing.level[sharing.bottleneck[flow]]
    for hop in range(sharing.hop_link.shape[1]):
        number = sharing.hop_link[flow, hop]
        if number == none:
            break
        link = sharing.link[number]
        share = sharing.hop[flow, hop].share
        position = sharing.hop[flow, hop].position
        link.count -= 1
        last = sharing.member[link.begin + link.count]
        sharing.hop[last.flow, last.hop].position = position
        here = sharing.member[position]
        here.share = last.share
        here.flow = last.flow
        here.hop = last.hop
        if link.count == 0:
            link.total = 0.0
            link.load = 0.0
            sharing.level[number] = np.inf
            continue
        link.total -= share
        link.load -= share * level
        if sharing.level[number] < np.inf:  # one that is not full stays so
            _mark(sharing, number, ENDED)
    sharing.free[sharing.counter[FREE]] = flow
    sharing.counter[FREE] += 1


@inner
def next_end(sharing):  # type: ignore[no-untyped-def]
    """When the next flow will finish if nothing changes; infinite if none flows."""
    if sharing.counter[DUE] == 0:
        return np.inf
    return sharing.due[0].key


@inner
def end_flows(sharing, time, window, ended):  # type: ignore[no-untyped-def]
    """Remove the flows of the link that is due first which have finished by ``time`` + ``window``: their number; they
    stand in ``ended``. O(flows on the link)."""
    make_room(sharing, time)
    number = sharing.due[0].link
    link = sharing.link[number]
    advance(sharing, number, time)
    done = max(link.clock + sharing.level[number] * window, link.first)
    first = np.inf
    count = 0
    for place in range(link.begin, link.begin + link.count):
        flow = sharing.member[place].flow
        if sharing.bottleneck[flow] == number:
            target = sharing.target[flow]
            if target <= done:
                ended[count] = flow
                count += 1
            elif target < first:
                first = target
    link.first = first
    for k in range(count):
        record_load(sharing, ended[k], number, time, sharing.target[ended[k]])
        _remove_flow(sharing, ended[k])
    schedule(sharing, number)
    return count


@inner
def needs_solving(sharing):  # type: ignore[no-untyped-def]
    """Whether anything has changed: a flow that had its links to itself ends without a trace."""
    counter = sharing.counter
    return counter[PENDING] > 0 or counter[MOVED] > 0 or counter[TOUCHED] > 0


@inner
def solve(sharing, time):  # type: ignore[no-untyped-def]
    """Levels, bottlenecks and next ends after flows have been added or removed at ``time``."""
    make_room(sharing, time)
    counter = sharing.counter
    _start_lone_flows(sharing, time)
    for k in range(counter[PENDING]):
        number = sharing.pending[k]
        link = sharing.link[number]
        started = link.state & STARTED
        if link.state == 0 or link.count == 0:
            link.state = 0
        elif started:
            _push_dirty(sharing, number, link.capacity / link.total)
        else:
            _push_dirty(sharing, number, sharing.level[number])
    counter[PENDING] = 0
    while sharing.dirty_size[0] > 0:
        number = pop(sharing.dirty, sharing.dirty_size)
        sharing.link[number].state = 0
        _solve_link(sharing, number, time)
    for k in range(counter[MOVED]):
        flow = sharing.moved[k]
        sharing.is_moved[flow] = 0
        _find_bottleneck(sharing, flow, time)
    counter[MOVED] = 0
    for k in range(counter[TOUCHED]):
        number = sharing.touched[k]
        if sharing.link[number].touched == FIRST_GONE:
            _find_first(sharing, number)
        sharing.link[number].touched = 0
        schedule(sharing, number)
    counter[TOUCHED] = 0


@inner
def _start_lone_flows(sharing, time):  # type: ignore[no-untyped-def]
    """Give new flows that have all their links to themselves their rate, and strike them off what is to be solved.
    O(new flows x hops)."""
    none = sharing.level.shape[0] - 1
    kept = 0
    for k in range(sharing.counter[MOVED]):
        flow = sharing.moved[k]
        best = none
        lowest = np.inf
        for hop in range(sharing.hop_link.shape[1]):
            number = sharing.hop_link[flow, hop]
            if number == none:
                break
            link = sharing.link[number]
            if link.count > 1:
                best = none
                break
            level = link.capacity / link.total
            if level < lowest:
                lowest = level
                best = number
        if best == none:
            sharing.moved[kept] = flow
            kept += 1
            continue
        sharing.is_moved[flow] = 0
        for hop in range(sharing.hop_link.shape[1]):
            number = sharing.hop_link[flow, hop]
            if number == none:
                break
            sharing.link[number].state = 0
            sharing.link[number].load = lowest * sharing.link[number].total
        sharing.level[best] = lowest
        link = sharing.link[best]
        link.clock = 0.0
        link.since = time
        link.first = sharing.target[flow]
        sharing.bottleneck[flow] = best
        sharing.joined[flow, 0] = time
        sharing.joined[flow, 1] = 0.0
        schedule(sharing, best)
    sharing.counter[MOVED] = kept


@inner
def _solve_link(sharing, number, time):  # type: ignore[no-untyped-def]
    """Level of a link from those of the others, and what that means for them. O(flows on the link x hops)."""
    level, limit, link = sharing.level, sharing.limit, sharing.link[number]
    none = level.shape[0] - 1
    old = level[number]
    new = _level_of(sharing, number, old)
    level[number] = old
    if new == old or (new < np.inf and old < np.inf and abs(new - old) <= TIE * old):
        return
    touch(sharing, number, time)
    level[number] = new
    low = min(old, new)
    base = link.begin
    tie_low, tie_high = new * (1 - TIE), new * (1 + TIE)
    for k in range(link.count):
        elsewhere = limit[k]
        flow = sharing.member[base + k].flow
        here = sharing.bottleneck[flow] == number
        if (here and elsewhere < tie_low) or (not here and elsewhere > tie_high):
            _note_moved(sharing, flow)
        if elsewhere <= low:
            continue
        change = min(new, elsewhere) - min(old, elsewhere)
        for hop in range(sharing.hop_link.shape[1]):
            other = sharing.hop_link[flow, hop]
            its = level[other]
            if its <= low or other == number or other == none:
                continue
            neighbour = sharing.link[other]
            if neighbour.state != 0:
                continue
            if its == np.inf:
                if change > 0:
                    neighbour.load += sharing.hop[flow, hop].share * change
                if neighbour.load <= neighbour.capacity * (1 + TIE):
                    continue
                its = neighbour.capacity / neighbour.total
            _push_dirty(sharing, other, its)


@inner
def _level_of(sharing, number, old):  # type: ignore[no-untyped-def]
    """Level at which the flows of a link fill it: root of the concave sum of share x min(level, limit) = capacity.
    Leaves each member's limit in ``limit`` and the link's level infinite."""
    level, limit, link, hop_link = sharing.level, sharing.limit, sharing.link[number], sharing.hop_link
    level[number] = np.inf
    capacity, base, count = link.capacity, link.begin, link.count
    guess = old if old < np.inf else capacity / link.total
    fixed, free, everything, below, above = 0.0, 0.0, 0.0, 0.0, np.inf
    for k in range(count):
        member = sharing.member[base + k]
        elsewhere = np.inf
        for hop in range(hop_link.shape[1]):
            elsewhere = min(elsewhere, level[hop_link[member.flow, hop]])
        limit[k] = elsewhere
        everything += member.share * elsewhere
        if elsewhere < guess:
            fixed += member.share * elsewhere
            below = max(below, elsewhere)
        else:
            free += member.share
            above = min(above, elsewhere)
    link.load = everything
    if everything <= capacity * (1 + TIE):
        return np.inf
    for _ in range(2 * count + 4):  # from the second round on the guesses rise to the root
        if free > 0.0:
            found = (capacity - fixed) / free
            if below <= found * (1 + TIE) and above >= found * (1 - TIE):
                return found
            guess = found
        else:
            guess = below
        fixed, free, below, above = 0.0, 0.0, 0.0, np.inf
        for k in range(count):
            elsewhere = limit[k]
            share = sharing.member[base + k].share
            if elsewhere < guess:
                fixed += share * elsewhere
                below = max(below, elsewhere)
            else:
                free += share
                above = min(above, elsewhere)
    return guess


@inner
def _find_bottleneck(sharing, flow, time):  # type: ignore[no-untyped-def]
    """Let a flow drain by the clock of the lowest of its links. O(hops)."""
    level = sharing.level
    none = level.shape[0] - 1
    old = sharing.bottleneck[flow]
    best = sharing.hop_link[flow, 0]
    for hop in range(1, sharing.hop_link.shape[1]):
        other = sharing.hop_link[flow, hop]
        if level[other] < level[best]:
            best = other
    if old == best:
        return
    remaining = sharing.target[flow]
    if old != none:
        if level[old] <= level[best] * (1 + TIE):
            return
        touch(sharing, old, time)
        link = sharing.link[old]
        if remaining <= link.first:
            link.touched = FIRST_GONE
        remaining -= link.clock
    touch(sharing, best, time)
    sharing.bottleneck[flow] = best
    link = sharing.link[best]
    sharing.target[flow] = link.clock + remaining
    link.first = min(link.first, sharing.target[flow])
    sharing.joined[flow, 0] = time
    sharing.joined[flow, 1] = link.clock


@inner
def _find_first(sharing, number):  # type: ignore[no-untyped-def]
    """First target among the flows that drain by a link's clock. O(flows on the link)."""
    link = sharing.link[number]
    first = np.inf
    for place in range(link.begin, link.begin + link.count):
        flow = sharing.member[place].flow
        if sharing.bottleneck[flow] == number:
            first = min(first, sharing.target[flow])
    link.first = first


@inner
def _push_dirty(sharing, number, key):  # type: ignore[no-untyped-def]
    sharing.link[number].state = QUEUED
    push(sharing.dirty, sharing.dirty_size, number, key)
