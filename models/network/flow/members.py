"""The flows of a link, and those of them that nothing else can hinder.

A link's members stand one after another: at first ``NEAR`` places beside those of other links, so that the caches hold
the links of a large machine, and in a room of their own once they are more.

A flow that has each of its other links to itself is *sole* there. At a link of many flows (``Sharing.many``) whose
level is below what those links give (``f``, capacity / share), it drains by this link whatever else happens, until
another flow joins it on its way, or the level comes to f. So a solver need not look at it: the link has the sum of the
shares of such flows, and ``safe``, a level that none of them is hindered below. They stand before the other members, as
a heap by their targets. What many ranks send to one, thousands of flows, costs O(log flows) a start or end by that
instead of O(flows).

The sum is kept in two float64 whose rounding is exact (Knuth, The Art of Computer Programming 2, 4.2.2, theorem C), so
that it does not depend on who has come and gone. What goes over the other links of a sole flow (``load``) is not kept
while it is one.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner
from manyscale.models.network.flow.link_clocks import NEAR

_AMPLE = 4.0  # times its level a link must stay below what hinders a flow, for the flow to become sole


@inner
def put_member(sharing, number, flow, hop, share):  # type: ignore[no-untyped-def]
    """Add a flow at the end of a link's members; its ``hop_link`` are known. O(hops), and O(flows on the link) once."""
    link = sharing.link[number]
    place = link.count
    if place == 1:
        _disturb(sharing, sharing.member[link.begin].flow)
    if place == NEAR and link.begin != link.far:
        for k in range(place):
            _copy(sharing, link.begin + k, link.far + k)
        link.begin = link.far
    link.count = place + 1
    link.total += share
    at = link.begin + place
    sharing.hop[flow, hop].share = share
    sharing.hop[flow, hop].place = place
    _write(sharing, at, flow, hop, 0)


@inner
def take_member(sharing, number, flow, hop):  # type: ignore[no-untyped-def]
    """Strike a flow that is not sole off a link's members. O(hops)."""
    link = sharing.link[number]
    link.count -= 1
    _move(sharing, link.begin + link.count, link.begin + sharing.hop[flow, hop].place)


@inner
def _copy(sharing, source, place):  # type: ignore[no-untyped-def]
    sharing.member[place] = sharing.member[source]
    sharing.share[place] = sharing.share[source]
    sharing.drains[place] = sharing.drains[source]
    for other in range(sharing.others.shape[1]):
        sharing.others[place, other] = sharing.others[source, other]


@inner
def _write(sharing, place, flow, hop, drains):  # type: ignore[no-untyped-def]
    sharing.member[place].flow = flow
    sharing.member[place].hop = hop
    sharing.share[place] = sharing.hop[flow, hop].share
    sharing.drains[place] = drains
    for other in range(sharing.others.shape[1]):
        sharing.others[place, other] = sharing.hop_link[flow, other if other < hop else other + 1]


@inner
def _move(sharing, source, place):  # type: ignore[no-untyped-def]
    """Write a member at another place of its link."""
    if source != place:
        member = sharing.member[source]
        sharing.hop[member.flow, member.hop].place += place - source
        _copy(sharing, source, place)


@inner
def _exchange(sharing, first, second):  # type: ignore[no-untyped-def]
    """Let two members of a link change places."""
    if first == second:
        return
    flow, hop, drains = sharing.member[first].flow, sharing.member[first].hop, sharing.drains[first]
    _move(sharing, second, first)
    _write(sharing, second, flow, hop, drains)
    sharing.hop[flow, hop].place += second - first


@inner
def drain_by(sharing, flow, number):  # type: ignore[no-untyped-def]
    """Let a flow drain by the clock of a link. O(hops)."""
    sharing.bottleneck[flow] = number
    for hop in range(sharing.hop_link.shape[1]):
        other = sharing.hop_link[flow, hop]
        if other < sharing.level.shape[0] - 1:
            sharing.drains[sharing.link[other].begin + sharing.hop[flow, hop].place] = other == number


@inner
def hindered_at(sharing, flow, number):  # type: ignore[no-untyped-def]
    """The level at which another link would hinder a flow that has all of these to itself; 0 if it has not. O(hops)."""
    found = np.inf
    for hop in range(sharing.hop_link.shape[1]):
        other = sharing.hop_link[flow, hop]
        if other != number and other < sharing.level.shape[0] - 1:
            if sharing.link[other].count > 1:
                return 0.0
            found = min(found, sharing.link[other].capacity / sharing.hop[flow, hop].share)
    return found


@inner
def become_sole(sharing, flow):  # type: ignore[no-untyped-def]
    """Note that nothing hinders a flow but its bottleneck, if that is so and worth it. O(hops + log flows)."""
    number = sharing.bottleneck[flow]
    if number == sharing.level.shape[0] - 1:
        return
    link = sharing.link[number]
    if sharing.is_sole[flow] != 0 or link.count < sharing.many[0]:
        return
    above = hindered_at(sharing, flow, number)
    if above <= _AMPLE * sharing.level[number]:
        return
    place = _place_at(sharing, flow, number)
    share = sharing.share[place]
    _exchange(sharing, place, link.begin + link.sole)
    if link.sole == 0:
        link.safe = np.inf
        link.sole_total = link.sole_rest = 0.0
    link.sole += 1
    link.safe = min(link.safe, above)
    _add_to_sole(link, share)
    sharing.is_sole[flow] = 1
    _rise(sharing, link.begin, link.sole - 1)


@inner
def leave_sole(sharing, flow):  # type: ignore[no-untyped-def]
    """Make a sole flow a member like others: what goes over its other links is known again. O(hops + log flows)."""
    number = sharing.bottleneck[flow]
    link = sharing.link[number]
    place = _place_at(sharing, flow, number) - link.begin
    _add_to_sole(link, -sharing.share[link.begin + place])
    _load_others(sharing, flow, number)
    last = link.sole - 1
    _exchange(sharing, link.begin + place, link.begin + last)
    link.sole = last
    if place < last:
        _rise(sharing, link.begin, place)
        _sink(sharing, link.begin, place, last)


@inner
def review_sole(sharing, number, new):  # type: ignore[no-untyped-def]
    """Keep those flows of a link sole that are so at ``new``, its level to be, too. O(sole flows)."""
    link = sharing.link[number]
    link.safe = np.inf
    link.sole_total = link.sole_rest = 0.0
    kept = 0
    for k in range(link.sole):
        flow = sharing.member[link.begin + k].flow
        above = hindered_at(sharing, flow, number)
        if above <= 2.0 * new:
            _load_others(sharing, flow, number)
            continue
        link.safe = min(link.safe, above)
        _add_to_sole(link, sharing.share[link.begin + k])
        _exchange(sharing, link.begin + k, link.begin + kept)
        kept += 1
    link.sole = kept
    for place in range(kept // 2 - 1, -1, -1):
        _sink(sharing, link.begin, place, kept)


@inner
def _disturb(sharing, flow):  # type: ignore[no-untyped-def]
    """Another flow comes to a link that a flow had to itself."""
    if sharing.is_sole[flow] != 0:
        leave_sole(sharing, flow)


@inner
def _load_others(sharing, flow, number):  # type: ignore[no-untyped-def]
    sharing.is_sole[flow] = 0
    for hop in range(sharing.hop_link.shape[1]):
        other = sharing.hop_link[flow, hop]
        if other != number and other < sharing.level.shape[0] - 1:
            sharing.link[other].load = sharing.hop[flow, hop].share * sharing.level[number]


@inner
def _place_at(sharing, flow, number):  # type: ignore[no-untyped-def]
    """Place in ``member`` of a flow at one of its links. O(hops)."""
    hop = 0
    while sharing.hop_link[flow, hop] != number:
        hop += 1
    return sharing.link[number].begin + sharing.hop[flow, hop].place


@inner
def _add_to_sole(link, share):  # type: ignore[no-untyped-def]
    total = link.sole_total + share
    part = total - link.sole_total
    link.sole_rest += (link.sole_total - (total - part)) + (share - part)
    link.sole_total = total


@inner
def _rise(sharing, begin, place):  # type: ignore[no-untyped-def]
    """Put a sole flow where it belongs among those above it in the heap by targets."""
    target = sharing.target[sharing.member[begin + place].flow]
    while place > 0:
        parent = (place - 1) >> 1
        if sharing.target[sharing.member[begin + parent].flow] <= target:
            break
        _exchange(sharing, begin + place, begin + parent)
        place = parent


@inner
def _sink(sharing, begin, place, size):  # type: ignore[no-untyped-def]
    """The same among those below it."""
    target = sharing.target[sharing.member[begin + place].flow]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        below = sharing.target[sharing.member[begin + child].flow]
        if child + 1 < size:
            second = sharing.target[sharing.member[begin + child + 1].flow]
            if second < below:
                child += 1
                below = second
        if below >= target:
            break
        _exchange(sharing, begin + place, begin + child)
        place = child
