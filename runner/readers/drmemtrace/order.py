"""How the threads of a process wait for each other: pieces of threads, and which of them follow which.

A thread is cut where it wakes another one, where it went to sleep until another woke it, and where it created one. Who
woke whom follows from the arguments of the futexes, which DynamoRIO records: the kernel wakes the waiters of an address
in the order in which they came. A thread that waits at an address with the number of a thread as value waits for that
one's end (pthread_join; the kernel wakes it, by a futex that is shared). Of a program's own switches (markers of
DynamoRIO) the trace names the thread. Threads are created in the order of their numbers, each by the last clone before
its first time that is left.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from manyscale.runner.readers.drmemtrace.calls import CLONES, FUTEX, NEVER, Call, Calls

_WAIT, _WAKE, _REQUEUE, _CMP_REQUEUE, _WAKE_OP, _LOCK, _UNLOCK, _WAIT_BITS, _WAKE_BITS, _WAIT_REQUEUE, _LOCK_2 = (
    0, 1, 3, 4, 5, 6, 7, 9, 10, 11, 13,
)  # fmt: skip
_OPERATION: Final = 0x7F  # without whether it is private, and which clock counts
_PRIVATE: Final = 0x80
_WAITS: Final = (_WAIT, _WAIT_BITS, _LOCK, _LOCK_2, _WAIT_REQUEUE)
_WAKES: Final = (_WAKE, _WAKE_BITS, _WAKE_OP, _UNLOCK, _REQUEUE, _CMP_REQUEUE)
_AGAIN: Final = -11  # EAGAIN: the value had changed already
_OVER: Final = (-4, -110)  # EINTR, ETIMEDOUT: it slept, and no other thread woke it


@dataclass(frozen=True)
class Thread:
    """What is asked of one: its number for the system, what its markers said, its trace's version."""

    number: int
    calls: Calls
    version: int
    is_arm: bool


@dataclass(frozen=True)
class Piece:
    """Instructions [``first``, ``end``) of ``thread`` (index), that took ``time_us``; ``after``: pieces that it
    follows, as places in the list of pieces."""

    thread: int
    first: int
    end: int
    time_us: int
    after: tuple[int, ...]


@dataclass
class Order:
    """``pieces`` in an order in which one thread could run them. ``num_waits``: known ones; ``num_unknown``: waits for
    something that is not told, ``num_blocking``: other calls that may block; ``num_loose``: threads of which nobody is
    known to have created them."""

    pieces: list[Piece]
    num_waits: int = 0
    num_unknown: int = 0
    num_blocking: int = 0
    num_loose: int = 0


@dataclass(eq=False)
class _Wait:
    thread: int
    call: Call
    begins: int
    ends: int
    place: int | None  # an address, or a thread's number of the system, where it may be woken; None: nowhere
    joins: int = -1  # index of the thread whose end it waits for
    woken_by: tuple[int, int] | None = None  # thread, instructions up to which it ran


@dataclass
class _Wake:
    thread: int
    call: Call
    begins: int
    ends: int
    # (place, how many at most, place to which others are moved or None)
    steps: list[tuple[int, int, int | None]] = field(default_factory=list)


def order(threads: Sequence[Thread]) -> Order:
    """The pieces of a process's threads. O(calls log calls), and of one address the waiters times the wakes that are
    under way at a time."""
    found = Order([])
    waits, wakes = _futexes(threads, found)
    _match(waits, wakes)
    edges = [(each.woken_by, (each.thread, each.call.at)) for each in waits if each.woken_by is not None]
    edges += [
        ((each.joins, threads[each.joins].calls.num_instructions), (each.thread, each.call.at))
        for each in waits
        if each.joins >= 0
    ]
    found.num_waits = len(edges)
    found.num_unknown += sum(each.woken_by is None and each.joins < 0 for each in waits)
    edges += _created(threads, found)
    slept_until = {(each.thread, each.call.at): each.ends for each in waits if each.ends != NEVER}
    found.pieces = _pieces(threads, edges, slept_until, found)
    return found


def _futexes(threads: Sequence[Thread], found: Order) -> tuple[list[_Wait], list[_Wake]]:
    index_of = {thread.number: index for index, thread in enumerate(threads)}
    waits: list[_Wait] = []
    wakes: list[_Wake] = []
    for index, thread in enumerate(threads):
        for call in thread.calls.made:
            begins, ends = call.begins(thread.version), call.ends(thread.version)
            if call.target >= 0:
                wakes.append(_Wake(index, call, begins, ends, [(~call.target, 1, None)]))
            if call.switches:
                waits.append(_Wait(index, call, begins, ends, ~thread.number))
            if call.number != FUTEX[thread.is_arm]:
                found.num_blocking += int(call.may_block and not call.switches)
            elif len(call.values) < 3 or call.returned is None:
                found.num_unknown += int(call.may_block)
            else:
                _add_futex(index, call, (begins, ends), index_of, waits, wakes)
    return waits, wakes


def _add_futex(
    index: int, call: Call, span: tuple[int, int], index_of: dict[int, int], waits: list[_Wait], wakes: list[_Wake]
) -> None:
    address, operation, value = call.values[0], call.values[1] & _OPERATION, call.values[2] & 0xFFFFFFFF
    returned = call.returned or 0
    if operation in _WAITS:
        may_join = operation in (_WAIT, _WAIT_BITS) and not call.values[1] & _PRIVATE
        joined = index_of.get(value, -1) if may_join else -1
        if joined >= 0 and joined != index and returned in (0, _AGAIN):
            waits.append(_Wait(index, call, *span, None, joined))
        elif returned == 0 or returned in _OVER:
            waits.append(_Wait(index, call, *span, address if returned == 0 else None))
    elif operation in _WAKES and (returned > 0 or operation == _UNLOCK):
        other = call.values[4] if len(call.values) > 4 else address
        steps: list[tuple[int, int, int | None]] = [(address, returned, None)]
        if operation == _UNLOCK:
            steps = [(address, 1, None)]
        elif operation == _WAKE_OP:
            steps = [(address, min(returned, value), None), (other, max(returned - value, 0), None)]
        elif operation in (_REQUEUE, _CMP_REQUEUE):
            steps = [(address, min(returned, value), None), (address, max(returned - value, 0), other)]
        wakes.append(_Wake(index, call, *span, steps))


def _match(waits: list[_Wait], wakes: list[_Wake]) -> None:
    """Tell waits who woke them. A wake takes those that came first among who came before it was over and left after
    it began."""
    waiting: dict[int, list[_Wait]] = defaultdict(list)
    for each in sorted((one for one in waits if one.place is not None), key=lambda one: one.begins):
        assert each.place is not None
        waiting[each.place].append(each)
    for wake in sorted(wakes, key=lambda one: one.begins):
        for place, most, moved_to in wake.steps:
            queue = waiting.get(place, [])
            gone = [one for one in queue if one.ends < wake.begins]
            here = [one for one in queue if one.ends >= wake.begins]
            taken = [one for one in here if one.begins <= wake.ends and one.thread != wake.thread][:most]
            for one in taken:
                if moved_to is None:
                    one.woken_by = (wake.thread, wake.call.at)
                else:
                    waiting[moved_to].append(one)
            if taken or gone:
                waiting[place] = [one for one in here if one not in taken]


def _created(threads: Sequence[Thread], found: Order) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Edges from the clones to the beginnings of threads, latest first: numbers of threads ascend as they are made."""
    clones = sorted(
        (call.begins(thread.version), index, call.at)
        for index, thread in enumerate(threads)
        for call in thread.calls.made
        if call.number in CLONES[thread.is_arm]
    )
    edges = []
    made = sorted(range(len(threads)), key=lambda one: threads[one].number)[1:]
    for child in reversed(made):
        while clones and (clones[-1][0] > threads[child].calls.first_us or clones[-1][1] == child):
            clones.pop()
        if clones:
            _, creator, at = clones.pop()
            edges.append(((creator, at), (child, 0)))
        else:
            found.num_loose += 1
    return edges


def _pieces(
    threads: Sequence[Thread],
    edges: list[tuple[tuple[int, int], tuple[int, int]]],
    slept_until: dict[tuple[int, int], int],
    found: Order,
) -> list[Piece]:
    """The threads cut at the ends of ``edges``, ordered by time where the edges leave it open. An edge that would close
    a circle (times of one microsecond) is unknown instead."""
    cuts: list[set[int]] = [{0} for _ in threads]
    for (waker, end), (waiter, first) in edges:
        cuts[waker].add(end)
        cuts[waiter].add(first)
    bounds = [
        sorted(at for at in mine if at < max(thread.calls.num_instructions, 1))
        for mine, thread in zip(cuts, threads, strict=True)
    ]
    place_of = {(index, at): number for number, (index, at) in enumerate(
        (index, at) for index, mine in enumerate(bounds) for at in mine)}  # fmt: skip
    ended_at = {}  # (thread, instructions up to which a piece ran) -> the piece
    spans: list[tuple[int, int, int, int, int]] = []
    for index, mine in enumerate(bounds):
        calls = threads[index].calls
        times = {call.at: call.begins(threads[index].version) for call in calls.made}
        for at, end in zip(mine, [*mine[1:], calls.num_instructions], strict=True):
            ended_at[index, end] = len(spans)
            begins = slept_until.get((index, at), times.get(at, calls.first_us)) if at else calls.first_us
            ends = calls.last_us if end == calls.num_instructions else times.get(end, calls.last_us)
            spans.append((index, at, end, begins, ends))
    after: list[set[int]] = [
        {number - 1} if number and spans[number - 1][0] == span[0] else set() for number, span in enumerate(spans)
    ]
    for cause, effect in edges:
        if effect in place_of and cause in ended_at:
            after[place_of[effect]].add(ended_at[cause])
    return _sorted(spans, after, found)


def _sorted(spans: list[tuple[int, int, int, int, int]], after: list[set[int]], found: Order) -> list[Piece]:
    follows: list[list[int]] = [[] for _ in spans]
    for number, mine in enumerate(after):
        for each in mine:
            follows[each].append(number)
    missing = [len(mine) for mine in after]
    ready = [(spans[number][3], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    new_place: dict[int, int] = {}
    pieces: list[Piece] = []
    while len(pieces) < len(spans):
        if not ready:  # a circle: the first in time that waits for other threads alone does not
            left = [number for number in range(len(spans)) if number not in new_place and missing[number]]
            number = min(
                (one for one in left if one - 1 not in after[one] or one - 1 in new_place),
                key=lambda one: (spans[one][3], one),
            )
            lost = {one for one in after[number] if one not in new_place}
            after[number] -= lost
            found.num_waits, found.num_unknown = found.num_waits - len(lost), found.num_unknown + len(lost)
            for one in lost:
                follows[one].remove(number)
            missing[number] = 0
            heapq.heappush(ready, (spans[number][3], number))
        _, number = heapq.heappop(ready)
        index, first, end, begins, ends = spans[number]
        new_place[number] = len(pieces)
        pieces.append(
            Piece(index, first, end, max(ends - begins, 0), tuple(sorted(new_place[one] for one in after[number])))
        )
        for one in follows[number]:
            missing[one] -= 1
            if not missing[one]:
                heapq.heappush(ready, (spans[one][3], one))
    return pieces
