"""Links that flows share: their state, the clocks by which flows drain, and the load that is recorded of them.

All flows of a bottleneck (network/flow/max_min.py) drain at one rate per weight, so a link has a *clock* that runs at
its level: a flow is finished when the clock shows its ``target``, whatever happened to the level meanwhile, and a new
level costs O(1) per link instead of O(1) per flow. The next flow to finish is the first in a heap of links by the time
of their first target.

Load: what a flow sent in an interval is its weight x what its bottleneck's clock went on, so clocks are noted at the
borders of intervals, and a flow charges its links when it ends or leaves a bottleneck. Intervals double in width when
time passes their end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner
from manyscale.models.kernels.event_heap import event_record

# Counters: lengths of `touched`, `moved`, `due`, flow numbers in use, lengths of `free` and `pending`
TOUCHED, MOVED, DUE, HIGH, FREE, PENDING = range(6)
ENDED, STARTED, QUEUED = 1, 2, 4  # why a link waits to be solved
TOUCHED_ONCE, FIRST_GONE = 1, 2  # FIRST_GONE: the flow of its first target left it

NEAR: Final = 8  # members of a link that stand beside those of others
MANY: Final = 64  # members from which on it pays to tell apart those that nothing else hinders

_LINK: Final = np.dtype(
    [
        ("capacity", "f8"), ("clock", "f8"), ("since", "f8"), ("first", "f8"), ("total", "f8"), ("load", "f8"),
        ("safe", "f8"), ("sole_total", "f8"), ("sole_rest", "f8"), ("begin", "i8"), ("far", "i8"), ("count", "i4"),
        ("sole", "i4"), ("place", "i4"), ("state", "u2"), ("touched", "u2"),
    ]
)  # fmt: skip
_MEMBER: Final = np.dtype([("flow", "i4"), ("hop", "i4")])
_HOP: Final = np.dtype([("share", "f8"), ("place", "i8")])
_DUE: Final = np.dtype([("key", "f8"), ("link", "i8")])


class Sharing(NamedTuple):
    """Links and the flows on them. ``level`` float64[links + 1] (the last, infinite, stands for no link); per flow
    ``weight``, ``target`` and ``bottleneck``."""

    level: np.ndarray
    open_level: np.ndarray  # the same, of a link that waits to be solved anyway, and of no link, -infinite
    link: np.ndarray  # clock at time ``since``; ``first`` target; ``total`` of shares; ``load`` if it is not full;
    # ``safe`` to ``sole``: see network/flow/members.py
    hop_link: np.ndarray  # [flows, hops]: links of a flow
    hop: np.ndarray  # [flows, hops]: share of the link, and place among its members, from 0
    weight: np.ndarray
    target: np.ndarray
    bottleneck: np.ndarray
    member: np.ndarray  # flows of a link, from its ``begin`` on; the three below are of them, too
    share: np.ndarray  # of the link
    drains: np.ndarray  # uint8: by this link's clock
    others: np.ndarray  # [members, hops - 1] uint32: the other links
    limit: np.ndarray  # scratch: level of each member on its other links
    dirty: np.ndarray  # heap of links to be solved, by level
    dirty_size: np.ndarray
    pending: np.ndarray  # links that will be
    touched: np.ndarray  # links whose next end has to be found again
    moved: np.ndarray  # flows whose bottleneck has to be
    is_moved: np.ndarray
    due: np.ndarray  # heap of links by the time of their next end
    free: np.ndarray  # unused flow numbers below the highest
    counter: np.ndarray
    joined: np.ndarray  # [flows, 2]: time and clock when a flow came to its bottleneck
    border: np.ndarray  # [intervals, links]: clocks at the beginnings of intervals of ``width``
    load: np.ndarray  # [intervals, links]: what went over each link; links of one interval lie beside each other
    width: np.ndarray  # [1]
    is_sole: np.ndarray  # flows that nothing but their bottleneck hinders
    many: np.ndarray  # [1]: members of a link from which on these are told apart


def new_sharing(
    capacity: np.ndarray,
    most_on_link: np.ndarray,
    most_flows: int,
    most_hops: int,
    num_recorded: int = 0,
    num_intervals: int = 2,
    width: float = 1.0,
    many: int = MANY,
) -> Sharing:
    """Idle links of ``capacity`` float64, with room for ``most_on_link`` int64 flows each and ``most_flows`` in all.

    The load of the first ``num_recorded`` links is recorded in ``num_intervals`` (even) intervals, at first of
    ``width``; they double whenever time passes their end. Room that is not used takes address space, but no memory.
    Raises ValueError for a capacity that is not positive and finite.
    """
    if not np.all((capacity > 0) & np.isfinite(capacity)):
        raise ValueError("capacities must be positive and finite")
    num_links, most_hops = len(capacity), max(2, most_hops)
    link = np.zeros(num_links + 1, _LINK)
    link["capacity"][:-1] = capacity
    link["capacity"][-1] = np.inf
    link["begin"][:-1] = NEAR * np.arange(num_links)
    needs_room = np.where(most_on_link > NEAR, most_on_link, 0)
    link["far"][1:] = np.cumsum(needs_room)
    link["far"] += NEAR * num_links
    num_members = NEAR * num_links + int(needs_room.sum())
    link["first"] = np.inf
    link["place"] = -1
    return Sharing(
        level=np.full(num_links + 1, np.inf),
        open_level=np.append(np.full(num_links, np.inf), -np.inf),
        link=link,
        hop_link=np.empty((most_flows, most_hops), np.int32),
        hop=np.empty((most_flows, most_hops), _HOP),
        weight=np.empty(most_flows),
        target=np.empty(most_flows),
        bottleneck=np.empty(most_flows, np.int32),
        member=np.empty(num_members, _MEMBER),
        share=np.empty(num_members),
        drains=np.empty(num_members, np.uint8),
        others=np.empty((num_members, most_hops - 1), np.uint32),
        limit=np.empty(int(most_on_link.max(initial=0))),
        dirty=np.empty(num_links + 1, event_record(np.dtype(np.float64))),
        dirty_size=np.zeros(1, np.int64),
        pending=np.empty(num_links + 1, np.int32),
        touched=np.empty(num_links + 1, np.int32),
        moved=np.empty(most_flows, np.int32),
        is_moved=np.zeros(most_flows, np.uint8),
        due=np.empty(num_links + 1, _DUE),
        free=np.empty(most_flows, np.int32),
        counter=np.zeros(6, np.int64),
        joined=np.empty((most_flows, 2)),
        border=np.zeros((num_intervals, num_recorded)),
        load=np.zeros((num_intervals, num_recorded)),
        width=np.array([width]),
        is_sole=np.zeros(most_flows, np.uint8),
        many=np.array([many]),
    )


@inner
def touch(sharing, number, time):  # type: ignore[no-untyped-def]
    """Bring a link's clock to ``time``, and remember to find its next end anew."""
    advance(sharing, number, time)
    link = sharing.link[number]
    if link.touched == 0:
        link.touched = TOUCHED_ONCE
        sharing.touched[sharing.counter[TOUCHED]] = number
        sharing.counter[TOUCHED] += 1


@inner
def advance(sharing, number, time):  # type: ignore[no-untyped-def]
    link = sharing.link[number]
    if link.first < np.inf and time > link.since:
        if number < sharing.border.shape[1]:
            _note_borders(sharing, number, time)
        link.clock += sharing.level[number] * (time - link.since)
    link.since = time


@inner
def schedule(sharing, number):  # type: ignore[no-untyped-def]
    """Put a link where it belongs among those that are due."""
    link = sharing.link[number]
    if link.first == np.inf:
        if link.place >= 0:
            _remove_due(sharing, link.place)
            link.place = -1
        link.clock = 0.0
        return
    _place_due(sharing, number, link.since + (link.first - link.clock) / sharing.level[number])


@inner
def _place_due(sharing, number, key):  # type: ignore[no-untyped-def]
    """Insert a link, or give it another key. O(log links)."""
    heap, links = sharing.due, sharing.link
    place = links[number].place
    if place < 0:
        place = sharing.counter[DUE]
        sharing.counter[DUE] = place + 1
    _sift_due(heap, links, place, sharing.counter[DUE], number, key)


@inner
def _remove_due(sharing, place):  # type: ignore[no-untyped-def]
    size = sharing.counter[DUE] - 1
    sharing.counter[DUE] = size
    if place < size:
        _sift_due(sharing.due, sharing.link, place, size, sharing.due[size].link, sharing.due[size].key)


@inner
def _sift_due(heap, links, place, size, number, key):  # type: ignore[no-untyped-def]
    """Write an entry at the hole ``place``, or above or below it where it belongs."""
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent].key <= key:
            break
        heap[place].key = heap[parent].key
        heap[place].link = heap[parent].link
        links[heap[place].link].place = place
        place = parent
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1].key < heap[child].key:
            child += 1
        if heap[child].key >= key:
            break
        heap[place].key = heap[child].key
        heap[place].link = heap[child].link
        links[heap[place].link].place = place
        place = child
    heap[place].key = key
    heap[place].link = number
    links[number].place = place


@inner
def _note_borders(sharing, number, time):  # type: ignore[no-untyped-def]
    """What a link's clock shows at the beginnings of the intervals from ``since`` to ``time``."""
    link, level, width = sharing.link[number], sharing.level[number], sharing.width[0]
    for interval in range(int(link.since / width) + 1, int(time / width) + 1):
        sharing.border[interval, number] = link.clock + level * (interval * width - link.since)


@inner
def record_load(sharing, flow, bottleneck, time, clock):  # type: ignore[no-untyped-def]
    """Charge the links of a flow with what it sent by the clock of its bottleneck, up to ``clock``.
    O(intervals x hops)."""
    num_recorded = sharing.load.shape[1]
    if num_recorded == 0:
        return
    width = sharing.width[0]
    since, before = sharing.joined[flow, 0], sharing.joined[flow, 1]
    begin = before
    last = int(time / width)
    for interval in range(int(since / width), last + 1):
        after = clock
        if interval < last:
            if bottleneck < num_recorded:
                after = sharing.border[interval + 1, bottleneck]
            else:  # a private link: its level never changes
                after = begin + sharing.level[bottleneck] * ((interval + 1) * width - since)
        for hop in range(sharing.hop_link.shape[1]):
            number = sharing.hop_link[flow, hop]
            if number < num_recorded:
                sharing.load[interval, number] += sharing.hop[flow, hop].share * (after - before)
        before = after


@inner
def make_room(sharing, time):  # type: ignore[no-untyped-def]
    """Double the intervals until ``time`` is inside. O(links x intervals) each time."""
    load, border = sharing.load, sharing.border
    half = load.shape[0] // 2
    while load.shape[1] > 0 and time >= sharing.width[0] * load.shape[0]:
        sharing.width[0] *= 2
        for k in range(half):
            for number in range(load.shape[1]):
                load[k, number] = load[2 * k, number] + load[2 * k + 1, number]
                border[k, number] = border[2 * k, number]
        load[half:] = 0.0
