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
    FIRST_GONE,
    MOVED,
    PENDING,
    QUEUED,
    STARTED,
    TOUCHED,
    make_room,
    record_load,
    schedule,
    touch,
)
from manyscale.models.network.flow.members import become_sole, drain_by, review_sole
from manyscale.models.network.flow.starts_and_ends import note_moved, settle, start_lone_flows

TIE: Final = 1e-13  # relative difference of levels that is rounding


@inner
def solve(sharing, time):  # type: ignore[no-untyped-def]
    """Levels, bottlenecks and next ends after flows have been added or removed at ``time``."""
    make_room(sharing, time)
    counter = sharing.counter
    start_lone_flows(sharing, time)
    for k in range(counter[PENDING]):
        number = sharing.pending[k]
        link = sharing.link[number]
        started = link.state & STARTED
        if link.state == 0 or link.count == 0:
            settle(sharing, number)
        elif started:
            _push_dirty(sharing, number, link.capacity / link.total)
        else:
            _push_dirty(sharing, number, sharing.level[number])
    counter[PENDING] = 0
    while sharing.dirty_size[0] > 0:
        number = pop(sharing.dirty, sharing.dirty_size)
        settle(sharing, number)
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
def _solve_link(sharing, number, time):  # type: ignore[no-untyped-def]
    """Level of a link from those of the others, and what that means for them. O(flows on the link that are not sole x
    hops)."""
    level, limit, link = sharing.level, sharing.limit, sharing.link[number]
    open_level = sharing.open_level
    old = level[number]
    new = _level_of(sharing, number, old)
    level[number] = old
    while link.sole > 0 and new >= link.safe:
        review_sole(sharing, number, new)
        new = _level_of(sharing, number, old)
        level[number] = old
    if new == old or (new < np.inf and old < np.inf and abs(new - old) <= TIE * old):
        return
    touch(sharing, number, time)
    level[number] = open_level[number] = new
    low = min(old, new)
    tie_low, tie_high = new * (1 - TIE), new * (1 + TIE)
    base, end = link.begin + link.sole, link.begin + link.count
    drains, others = sharing.drains[base:end], sharing.others[base:end]
    for k in range(drains.shape[0]):
        elsewhere = limit[k]
        here = drains[k]
        if (here & np.uint8(elsewhere < tie_low)) | ((1 ^ here) & np.uint8(elsewhere > tie_high)):
            note_moved(sharing, sharing.member[base + k].flow)
        for hop in range(others.shape[1]):
            other = others[k, hop]
            if min(elsewhere, open_level[other]) <= low:  # one test, for either would be a coin's throw
                continue
            its = level[other]
            neighbour = sharing.link[other]
            if its == np.inf:
                change = min(new, elsewhere) - min(old, elsewhere)
                if change > 0:
                    member = sharing.member[base + k]
                    neighbour.load += sharing.hop[member.flow, hop + (hop >= member.hop)].share * change
                if neighbour.load <= neighbour.capacity * (1 + TIE):
                    continue
                its = neighbour.capacity / neighbour.total
            _push_dirty(sharing, other, its)


@inner
def _level_of(sharing, number, old):  # type: ignore[no-untyped-def]
    """Level at which the flows of a link fill it: root of the concave sum of share x min(level, limit) = capacity.
    Leaves the limit of each member that is not sole in ``limit`` and the link's level infinite."""
    level, limit, link = sharing.level, sharing.limit, sharing.link[number]
    level[number] = np.inf
    capacity, base, end = link.capacity, link.begin + link.sole, link.begin + link.count
    shares, others = sharing.share[base:end], sharing.others[base:end]
    count = shares.shape[0]
    sole = link.sole_total + link.sole_rest if link.sole > 0 else 0.0
    guess = old if old < np.inf else capacity / link.total
    fixed, free, everything, below, above = 0.0, sole, 0.0, 0.0, np.inf
    for k in range(count):
        share = shares[k]
        elsewhere = level[others[k, 0]]
        for hop in range(1, others.shape[1]):
            elsewhere = min(elsewhere, level[others[k, hop]])
        limit[k] = elsewhere
        everything += share * elsewhere
        held = elsewhere < guess
        fixed += share * elsewhere if held else 0.0
        free += 0.0 if held else share
        below = max(below, elsewhere if held else 0.0)
        above = min(above, np.inf if held else elsewhere)
    link.load = everything
    if link.sole == 0 and everything <= capacity * (1 + TIE):
        return np.inf
    for _ in range(2 * count + 4):  # from the second round on the guesses rise to the root
        if free > 0.0:
            found = (capacity - fixed) / free
            if below <= found * (1 + TIE) and above >= found * (1 - TIE):
                return found
            guess = found
        else:
            guess = below
        fixed, free, below, above = 0.0, sole, 0.0, np.inf
        for k in range(count):
            elsewhere = limit[k]
            share = shares[k]
            held = elsewhere < guess
            fixed += share * elsewhere if held else 0.0
            free += 0.0 if held else share
            below = max(below, elsewhere if held else 0.0)
            above = min(above, np.inf if held else elsewhere)
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
        record_load(sharing, flow, old, time, link.clock)
        remaining -= link.clock
    touch(sharing, best, time)
    drain_by(sharing, flow, best)
    link = sharing.link[best]
    sharing.target[flow] = link.clock + remaining
    link.first = min(link.first, sharing.target[flow])
    sharing.joined[flow, 0] = time
    sharing.joined[flow, 1] = link.clock
    become_sole(sharing, flow)


@inner
def _find_first(sharing, number):  # type: ignore[no-untyped-def]
    """First target among the flows that drain by a link's clock. O(flows on the link that are not sole)."""
    link = sharing.link[number]
    first = sharing.target[sharing.member[link.begin].flow] if link.sole > 0 else np.inf
    for place in range(link.begin + link.sole, link.begin + link.count):
        if sharing.drains[place]:
            first = min(first, sharing.target[sharing.member[place].flow])
    link.first = first


@inner
def _push_dirty(sharing, number, key):  # type: ignore[no-untyped-def]
    sharing.link[number].state = QUEUED
    sharing.open_level[number] = -np.inf
    push(sharing.dirty, sharing.dirty_size, number, key)
