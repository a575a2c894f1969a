"""Accesses that an SM's L1 does not answer, in GPUMech's extended form (see gpu/gpumech/replay.py).

They are looked up in their order. A request that must be fetched takes an entry for misses until it is answered; where
none is free, L1 does nothing (a bank whose first request cannot be looked up holds up all behind it, hits as well as
misses). One request a cycle leaves an SM; those of an SM pass the crossbar in their order, a slice of L2 takes one a
cycle, and where several SMs want the same slice, they pass in turn, a request each: so one that waits for its slice
holds up those of its SM that go elsewhere. What memory answers takes its channel of DRAM. All of these are what the
cycle-level model does (gpu/sm/l1_kernel.py, gpu/l2/crossbar_kernel.py).

Cost: O(lines) for each access, and O(requests) where slices or entries are contended for; O(log entries) for each line
that takes some.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.collector import BLOCKS_L1, BLOCKS_L2, FROM_DRAM, WAITS_L2
from manyscale.models.gpu.gpumech.queues import served, transferred
from manyscale.models.gpu.gpumech.replay_state import DRAM, L1, L2, MSHR, QUEUE, SHARED, later, push
from manyscale.models.gpu.gpumech.residents import finish_segment
from manyscale.models.gpu.gpumech.segments import IN_SHARED, LOADS, PASSES_L1, STORES, STORES_PAST_L1
from manyscale.models.gpu.sm.limits import SEND_QUEUE
from manyscale.models.kernels import inlined, inner
from manyscale.models.kernels.event_heap import pop
from manyscale.models.kernels.event_heap import push as add

_AHEAD: Final = 96  # cycles that an SM's accesses are looked up ahead of the others'
_TURN: Final = 4  # cycles that a request waits for its slice, from which on others' turns come between


@inlined
def is_full(state, limits, s):  # type: ignore[no-untyped-def]
    """Whether an SM's L1 has no room for a further access."""
    return state.sm[s].requests >= limits.room


@inlined
def stall(state, s, number):  # type: ignore[no-untyped-def]
    """A warp waits for room before L1."""
    unit = state.sm[s]
    state.warp[number].next = -1
    if unit.stalled < 0:
        unit.stalled = number
    else:
        state.warp[unit.last_stalled].next = number
    unit.last_stalled = number


@inlined
def _wake(state, unit, now):  # type: ignore[no-untyped-def]
    """The first of the warps that wait for room goes on."""
    number = unit.stalled
    mine = state.warp[number]
    unit.stalled = mine.next
    state.stack[MSHR if unit.looked >= now else QUEUE] += now + 1 - mine.time
    mine.time = now + 1
    push(state, number, now)


@inlined
def _entries(state, s, time, mshrs):  # type: ignore[no-untyped-def]
    """Entries for misses that are free at ``time``."""
    unit = state.sm[s]
    flight, size = state.flight[s], state.flights[s]
    while size[0] > 0 and flight[0].time <= time:
        unit.misses -= pop(flight, size)
    return mshrs - unit.misses


@inlined
def _at_slice(own_slice, waits, time, count):  # type: ignore[no-untyped-def]
    """When ``count`` requests that are at their slice by ``time`` are looked up."""
    if waits & BLOCKS_L2:
        own_slice.blocked = max(own_slice.blocked, own_slice.fetched)
    if own_slice.blocked > time:
        time = own_slice.blocked
        own_slice.blocked += count
    return time


@inlined
def _fetch(state, found, taken, limits, which, sent, count, time, store):  # type: ignore[no-untyped-def]
    """Requests are looked up in their slice of L2 at ``time``, of which ``sent`` of their line have been before: when
    it can answer."""
    fetched = min(count, max(0, np.int64(found.fetched) - sent))
    moved = fetched + (np.int64(found.written_back) if sent == 0 else 0)
    there = time
    if moved:
        channel = which // (limits.slices // limits.channels)
        ready = transferred(taken.dram, taken.dram_full, channel, time, moved * limits.channel_burst)
        if fetched and not store:
            there = np.int64(ready) + limits.dram
            state.slice[which].fetched = max(state.slice[which].fetched, there)
    if found.waits & WAITS_L2:
        there = max(there, min(time + limits.dram, state.slice[which].fetched))
    return there


@inlined
def _pass(state, found, own, store, limits, taken, s, count, time):  # type: ignore[no-untyped-def]
    """Up to ``count`` requests to a line leave at ``time`` and pass the crossbar: how many, when they are answered, and
    when the last of them has passed, if that had to wait."""
    unit = state.sm[s]
    which = np.int64(found.slice)
    begin = max(time, unit.sent)
    at = max(begin, unit.port)
    end = served(taken.slices, taken.slices_full, which, at, 1)
    waits = end - at - 1 > _TURN
    if waits:
        count = 1
    elif count > 1:
        end = max(end + count - 1, served(taken.slices, taken.slices_full, which, end, count - 1))
    unit.sent = begin + count
    unit.port = end
    looked = _at_slice(state.slice[which], found.waits, end - 1, count)
    there = _fetch(state, found, taken, limits, which, own.sent, count, looked, store)
    own.queue += looked - (time + count - 1)
    own.time = max(own.time, there + limits.l2)
    own.sent += count
    own.left -= count
    return count, there + limits.l2, end if waits else 0


@inlined
def _send(state, launch, limits, taken, s, own, time):  # type: ignore[no-untyped-def]
    """Requests of an access from ``time`` on: when L1 goes on, with the next one if no ``lines`` of this are left."""
    unit = state.sm[s]
    kind = launch.access[own.access].kind
    store = kind == STORES or kind == STORES_PAST_L1
    while own.lines > 0 and own.left > 0:
        found = launch.found[own.line]
        if found.waits & BLOCKS_L1 and not own.waited:
            own.waited = 1
            if unit.answered > time:
                unit.looked = unit.answered
                own.misses += unit.looked - time
                return unit.looked
        count = np.int64(found.sent) - own.sent
        if count <= 0:
            own.line += 1
            own.lines -= 1
            own.sent = 0
            own.waited = 0
            continue
        if kind == LOADS:
            free = _entries(state, s, time, limits.mshrs)
            if free == 0:
                unit.looked = state.flight[s, 0].time
                own.misses += unit.looked - time
                return unit.looked
            count = min(count, free)
        count, back, waits = _pass(state, found, own, store, limits, taken, s, count, time)
        if kind == LOADS:
            unit.misses += count
            unit.answered = max(unit.answered, back)
            add(state.flight[s], state.flights[s], count, back)
        time = max(time, unit.sent - SEND_QUEUE)
        if waits > time:
            return waits
    own.lines = 0
    return time


@inlined
def _answer(state, launch, limits, own, s, time, now):  # type: ignore[no-untyped-def]
    """All requests of an access have been sent: the warp that waits for it goes on when they are answered."""
    reached, answer = launch.access[own.access], launch.answer[own.access]
    unit = state.sm[s]
    store = reached.kind == STORES or reached.kind == STORES_PAST_L1
    from_dram = answer.level == FROM_DRAM and not store
    if answer.waited:  # for what this SM has asked for before
        unit.sent = max(unit.sent, time) + np.int64(answer.waited)
        longest = unit.sent + limits.l2 + (limits.dram if from_dram else 0)
        own.time = max(own.time, min(longest, max(unit.sent, unit.answered)))
    pending = state.pending[reached.wait]
    later(pending, own.time, own.misses, own.queue, DRAM if from_dram else L2)
    pending.open -= 1
    if pending.open == 0:
        mine = state.warp[own.warp]
        if mine.asleep and mine.segment == reached.wait:
            mine.asleep = 0
            finish_segment(state, launch, own.warp, mine.time, max(mine.time, pending.time), now)


@inner
def work_off(state, launch, limits, taken, s, now):  # type: ignore[no-untyped-def]
    """L1 of an SM goes through the accesses that wait for it, as far as ``now`` allows."""
    unit = state.sm[s]
    mask = state.waiting.shape[1] - 1
    time = now
    while unit.head < unit.tail:
        own = state.waiting[s, unit.head & mask]
        time = max(time, own.ready)
        if time > now + _AHEAD:
            break
        time = _send(state, launch, limits, taken, s, own, time)
        if own.lines > 0:
            break
        _answer(state, launch, limits, own, s, time, now)
        unit.head += 1
        unit.requests -= launch.access[own.access].requests
        if unit.stalled >= 0 and unit.requests < limits.room:
            _wake(state, unit, now)
    if unit.head < unit.tail:
        place = len(launch.first_segment) - 1 + len(state.block) + s
        state.warp[place].time = time
        push(state, place, now)
    else:
        while unit.stalled >= 0:
            _wake(state, unit, now)


@inlined
def take_access(state, launch, limits, taken, number, s, issue, now):  # type: ignore[no-untyped-def]
    """The next access of a warp, issued at ``issue``: when the load/store unit begins with it."""
    mine = state.warp[number]
    reached, answer = launch.access[mine.access], launch.answer[mine.access]
    unit = state.sm[s]
    wanted = issue + limits.front
    cycles = np.int64(reached.passes)
    passed = served(taken.load_store, taken.load_store_full, s, wanted, cycles)
    queue = passed - 1 - wanted
    pending = state.pending[reached.wait]
    if reached.kind == IN_SHARED:
        later(pending, passed + limits.shared, 0, queue, SHARED)
        return passed - cycles
    past = reached.kind == PASSES_L1 or reached.kind == STORES_PAST_L1 or reached.requests == 0
    ready = passed if past else passed + limits.l1
    if answer.sent + answer.waited == 0:
        held = 0 if past else max(0, unit.looked - ready)
        later(pending, ready + held, held, queue, L1)
        return passed - cycles
    own = state.waiting[s, unit.tail & (state.waiting.shape[1] - 1)]
    own.access = mine.access
    own.warp = number
    own.line = mine.line
    own.lines = reached.lines
    own.left = 256 if answer.blocks else answer.sent
    own.sent = 0
    own.waited = 0
    own.ready = ready
    own.misses = 0
    own.queue = queue
    own.time = 0
    unit.tail += 1
    unit.requests += reached.requests
    pending.open += 1
    if unit.tail - unit.head == 1:
        work_off(state, launch, limits, taken, s, now)
    return passed - cycles
