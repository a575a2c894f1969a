"""Accesses that an SM's L1 does not answer, in GPUMech's extended form (see gpu/gpumech/replay.py).

They are looked up in their order. A request that must be fetched takes an entry for misses until it is answered; where
none is free, L1 does nothing (a bank whose first request cannot be looked up holds up all behind it, hits as well as
misses). One request a cycle leaves an SM; those of an SM pass the crossbar in their order, a slice of L2 takes one a
cycle, and where several SMs want the same slice, they pass in turn, a request each: so one that waits for its slice
holds up those of its SM that go elsewhere. What memory answers takes its channel of DRAM. All of these are what the
cycle-level model does (gpu/sm/l1_kernel.py, gpu/l2/crossbar_kernel.py).

Cost: O(lines) for each access, and O(requests) where slices or entries are contended for; O(log entries) for each line
that takes some; see gpu/gpumech/crossbar.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.collector import BEHIND_L1, BLOCKS_L1, FROM_DRAM, LED_L1, WAITS_L1
from manyscale.models.gpu.gpumech.crossbar import grant, pass_by_periods, pass_in_turn
from manyscale.models.gpu.gpumech.queues import PERIOD_CYCLES, served
from manyscale.models.gpu.gpumech.replay_state import DRAM, L1, L2, MSHR, QUEUE, SHARED, later, push
from manyscale.models.gpu.gpumech.residents import finish_segment
from manyscale.models.gpu.gpumech.segments import IN_SHARED, LOADS, PASSES_L1, STORES, STORES_PAST_L1
from manyscale.models.gpu.sm.limits import SEND_QUEUE
from manyscale.models.kernels import inlined, inner
from manyscale.models.kernels.event_heap import pop
from manyscale.models.kernels.event_heap import push as add

_ALL: Final = 1 << 20  # more requests than an access has: all of its lines are looked at


@inlined
def is_full(state, launch, limits, s, now):  # type: ignore[no-untyped-def]
    """Whether an SM's L1 has no room for a further access; in turn, where accesses are looked up no earlier than they
    are there, those that still are on their way to it take none."""
    unit = state.sm[s]
    requests = unit.requests
    if requests < limits.room:
        return False
    if not limits.in_turn or requests >= 2 * limits.room:
        return True
    mask = state.waiting.shape[1] - 1
    at = unit.tail - 1
    while requests >= limits.room and at >= unit.head and state.waiting[s, at & mask].ready > now + limits.stays:
        requests -= launch.access[state.waiting[s, at & mask].access].requests
        at -= 1
    return requests >= limits.room


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
def _next_line(own):  # type: ignore[no-untyped-def]
    own.line += 1
    own.lines -= 1
    own.sent = 0
    own.there = 0
    own.waited = 0
    own.followed = 0


@inlined
def _asked_for(state, launch, own):  # type: ignore[no-untyped-def]
    """The line whose requests are to be sent for the next line of an access: its own, or that which it waits for if
    nobody has asked for it yet; -1: none (any more). Of lines that wait for the same miss the first to come has it."""
    found = launch.found[own.line]
    if found.waits & WAITS_L1 and not own.followed:
        leader = np.int64(found.leader)
        if own.sent == 0 and state.there[leader]:
            own.time = max(own.time, state.there[leader])
        elif own.sent < launch.found[leader].sent:
            return leader
        else:
            state.there[leader] = own.there
            own.time = max(own.time, own.there)
        own.followed = 1
        own.sent = 0
        own.there = 0
    if found.waits & LED_L1 and own.sent == 0 and state.there[own.line]:
        own.time = max(own.time, state.there[own.line])
        own.left -= found.sent
        return np.int64(-1)
    if own.sent < found.sent:
        return np.int64(own.line)
    if found.waits & LED_L1:
        state.there[own.line] = own.there
    own.time = max(own.time, own.there)
    return np.int64(-1)


@inlined
def _room_from(state, launch, unit, own):  # type: ignore[no-untyped-def]
    """From when on L1 has room for a line for which it had none: where too many wait for the same miss, once that is
    answered; where all lines of its set are on their way, once the one whose place it gets is there."""
    found = launch.found[own.line]
    there = state.there[found.leader] if found.waits & (WAITS_L1 | BEHIND_L1) else np.int64(0)
    return there if there else unit.answered


@inlined
def _send(state, launch, limits, taken, s, own, time, now):  # type: ignore[no-untyped-def]
    """Requests of an access from ``time`` on: when L1 goes on, with the next one if no ``lines`` of this are left."""
    unit = state.sm[s]
    kind = launch.access[own.access].kind
    store = kind == STORES or kind == STORES_PAST_L1
    while own.lines > 0 and own.left > 0:
        if launch.found[own.line].waits & BLOCKS_L1 and not own.waited:
            own.waited = 1
            until = _room_from(state, launch, unit, own)
            if until > time:
                unit.looked = until
                own.misses += unit.looked - time
                return unit.looked
        line = _asked_for(state, launch, own)
        if line < 0:
            _next_line(own)
            continue
        count = np.int64(launch.found[line].sent) - own.sent
        if kind == LOADS:
            free = _entries(state, s, time, limits.mshrs)
            if free == 0:
                unit.looked = state.flight[s, 0].time
                own.misses += unit.looked - time
                return unit.looked
            count = min(count, free)
        if limits.in_turn:
            count, back, waits = pass_in_turn(state, launch, own, line, store, limits, taken, s, count, time, now)
            if count == 0:
                unit.clock = time
                return waits
        else:
            count, back, waits = pass_by_periods(state, launch, own, line, store, limits, taken, s, count, time)
        if kind == LOADS:
            unit.misses += count
            unit.answered = max(unit.answered, back)
            add(state.flight[s], state.flights[s], count, back)
        time = max(time, (unit.sent - SEND_QUEUE) >> limits.port_shift)
        if waits > time:
            return waits
    if own.lines > 0:
        _asked_for(state, launch, own)  # its last requests have been sent
    own.lines = 0
    return time


@inlined
def _answer(state, launch, limits, own, s, time, now):  # type: ignore[no-untyped-def]
    """All requests of an access have been sent: the warp that waits for it goes on when they are answered."""
    reached, answer = launch.access[own.access], launch.answer[own.access]
    unit = state.sm[s]
    store = reached.kind == STORES or reached.kind == STORES_PAST_L1
    from_dram = answer.level == FROM_DRAM and not store
    own.time = max(own.time, time)
    if answer.waited:
        unit.sent = max(unit.sent, time << limits.port_shift) + np.int64(answer.waited)
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
    time = now if unit.clock < 0 else unit.clock
    unit.clock = -1
    while unit.head < unit.tail:
        own = state.waiting[s, unit.head & mask]
        time = max(time, own.ready)
        if time > now + limits.ahead:
            break
        time = _send(state, launch, limits, taken, s, own, time, now)
        if unit.asks >= 0:
            return
        if own.lines > 0:
            break
        _answer(state, launch, limits, own, s, time, now)
        unit.head += 1
        unit.requests -= launch.access[own.access].requests
        if unit.stalled >= 0 and not is_full(state, launch, limits, s, now):
            _wake(state, unit, now)
    if unit.head < unit.tail:
        place = len(launch.first_segment) - 1 + len(state.block) + s
        state.warp[place].time = time
        push(state, place, now)
    else:
        while unit.stalled >= 0:
            _wake(state, unit, now)


@inner
def pass_crossbar(state, launch, limits, taken, place, now):  # type: ignore[no-untyped-def]
    """Requests that wait at the crossbar pass it in the cycle before ``now``, slice by slice."""
    for which in range(limits.slices):
        if state.asking[which] >= 0 and state.free[which] < now:
            s = grant(state, which, now)
            if s >= 0:
                work_off(state, launch, limits, taken, s, now)
    if state.waiting_sms[0] > 0:
        state.warp[place].time = now + 1
        push(state, place, now)
    else:
        state.waiting_sms[1] = 0


@inlined
def _followed(state, launch, first, lines, time):  # type: ignore[no-untyped-def]
    """When lines that others have missed are there, from ``time`` on; -1: one has not been asked for yet."""
    for i in range(first, first + lines):
        found = launch.found[i]
        if found.waits & WAITS_L1:
            there = state.there[found.leader]
            if there == 0:
                return np.int64(-1)
            time = max(time, there)
    return time


@inlined
def take_access(state, launch, limits, taken, number, s, issue, now):  # type: ignore[no-untyped-def]
    """The next access of a warp, issued at ``issue``: when the load/store unit begins with it."""
    mine = state.warp[number]
    reached, answer = launch.access[mine.access], launch.answer[mine.access]
    unit = state.sm[s]
    wanted = issue + limits.front
    cycles = np.int64(reached.passes)
    passed = served(taken.load_store, taken.load_store_full, s, wanted, cycles, PERIOD_CYCLES)
    queue = passed - 1 - wanted
    pending = state.pending[reached.wait]
    if reached.kind == IN_SHARED:
        later(pending, passed + limits.shared, 0, queue, SHARED)
        return passed - cycles
    if len(state.asked):
        for i in range(mine.line, mine.line + reached.lines):
            state.asked[i] = passed + limits.l1
    past = reached.kind == PASSES_L1 or reached.kind == STORES_PAST_L1 or reached.requests == 0
    ready = passed if past else passed + limits.l1
    if answer.sent == 0 and not answer.blocks:
        held = 0 if past else max(0, unit.looked - ready)
        there = _followed(state, launch, mine.line, reached.lines, ready + held) if answer.follows else ready + held
        if there >= 0:
            cause = L1 if there == ready + held else (DRAM if answer.level == FROM_DRAM else L2)
            later(pending, there, held, queue, cause)
            return passed - cycles
    own = state.waiting[s, unit.tail & (state.waiting.shape[1] - 1)]
    own.access = mine.access
    own.warp = number
    own.line = mine.line
    own.lines = reached.lines
    own.left = _ALL if answer.blocks or answer.follows else answer.sent
    own.sent = 0
    own.there = 0
    own.waited = 0
    own.followed = 0
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
