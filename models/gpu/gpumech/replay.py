"""The extended form of GPUMech: segments of all warps on a time axis, which wait for each other in queues.

Where the printed form takes one warp for all and adds expected delays, this one goes through the segments of every warp
(gpu/gpumech/segments.py) in the order of their begins. What a segment takes from a resource is taken at once, first
come first served: issue slots of the scheduler, cycles of the unit that limits the launch, cycles of the load/store
unit, requests through the one port of an SM, entries for outstanding misses, slices of L2, DRAM's bandwidth
(gpu/gpumech/queues.py). A warp goes on when its segment is issued and the loads that it waits for are there; those find
their data where the caches said (gpu/gpumech/collector.py). A block ends when its warps' stores are acknowledged, too,
and the next one begins in its place: blocks are list-scheduled over the SMs.

Not in the source (Huang, dissertation, Georgia Institute of Technology, 2015, ch. 4), whose formulas for one
representative warp miss kernels with few long warps. Against the detailed model what is left out: the order of accesses
inside a segment and of warps that want to issue (so the schedulers' policies do not differ), units other than the one
that limits the launch, banks and rows of DRAM; an access is taken to go to the slice of L2 that has most of it.

Cost: O(segments + accesses), and O(1) for each cycle of the launch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.collector import BLOCKS_L1, BLOCKS_L2, FROM_DRAM
from manyscale.models.gpu.gpumech.queues import (
    DRAM_PERIODS,
    PERIOD,
    PERIOD_CYCLES,
    PERIODS,
    SLICE_PERIODS,
    TRANSFER,
    Taken,
    served,
    transferred,
)
from manyscale.models.gpu.gpumech.segments import (
    EXITS,
    IN_SHARED,
    LOADS,
    MEETS,
    PASSES_L1,
    STORES,
    STORES_PAST_L1,
)
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.limits import QUEUED_MEMORY
from manyscale.models.kernels import allocation_free, by_reference, inlined, njit

CAUSES: Final = (
    "BASE", "DEP", "L1", "L2", "DRAM", "MSHR", "QUEUE", "SHARED", "ISSUE", "UNIT", "BARRIER", "DRAIN",
)  # fmt: skip
BASE, DEP, L1, L2, DRAM, MSHR, QUEUE, SHARED, ISSUE, UNIT, BARRIER, DRAIN = range(12)
_HORIZON: Final = 4096  # cycles, a power of two: of the wheel of events
_START: Final = 2  # cycles from a block's begin to its first instruction

WARP: Final = np.dtype(
    [
        ("time", "i8"),  # when it goes on
        ("segment", "i4"), ("end", "i4"), ("access", "i4"),
        ("block", "i4"),
        ("scheduler", "i4"),  # among all of the GPU
        ("next", "i4"),  # of the same cycle
    ],
    align=True,
)  # fmt: skip
BLOCK: Final = np.dtype(
    [
        ("begin", "i8"), ("end", "i8"),
        ("met", "i8"),  # the latest arrival at the barrier
        ("running", "i4"), ("arrived", "i4"),
        ("sm", "i4"), ("slot", "i4"),
        ("waiting", "i4"),  # warps at the barrier, linked by ``next``
    ],
    align=True,
)  # fmt: skip
SM: Final = np.dtype(
    [
        ("head", "i8"), ("tail", "i8"),  # of its misses in flight
        ("misses", "i8"),
    ],
    align=True,
)  # fmt: skip
ARRIVAL: Final = np.dtype([("time", "i8"), ("misses", "i4"), ("queue", "i4"), ("cause", "i4")], align=True)
FLIGHT: Final = np.dtype([("time", "i8"), ("count", "i8")], align=True)


class Launch(NamedTuple):
    """Segments of a launch (gpu/gpumech/segments.py), answers to accesses (gpu/gpumech/collector.py) and the warps of
    its blocks, as they are; ``most_warps`` of a block."""

    segment: np.ndarray
    access: np.ndarray
    answer: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    block_warps: np.ndarray
    most_warps: int


class State(NamedTuple):
    """WARP[warps + blocks] (blocks that end stand behind the warps), BLOCK[blocks], SM[SMs]; ``flight``
    FLIGHT[SMs, ring]; ``pending`` ARRIVAL[segments]: what accesses before a segment's end bring for it;
    ``last`` ARRIVAL[2]: scratch. ``scheduler``
    and ``unit`` int64[schedulers of all SMs]: free from. ``head`` and ``tail`` int32[_HORIZON]: of each cycle's list of
    warps. ``stack`` float64[causes]."""

    warp: np.ndarray
    block: np.ndarray
    sm: np.ndarray
    flight: np.ndarray
    pending: np.ndarray
    last: np.ndarray
    scheduler: np.ndarray
    unit: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    stack: np.ndarray


class Times(NamedTuple):
    """Of the GPU, in cycles: ``front`` from issue to the load/store unit, ``l1`` from there to a hit's result,
    ``l2`` and ``dram`` what a miss takes beyond, ``burst`` of DRAM for a request; ``shared`` as ``l1``. ``queued``:
    instructions of an SM that wait for the load/store unit before no more are issued."""

    front: int
    l1: int
    l2: int
    dram: int
    burst: float
    shared: int
    queued: int
    mshrs: int
    slices: int
    schedulers: int


def times(gpu: Gpu) -> Times:
    """Of a target."""
    timing = gpu.dram.timing
    row = (timing.rcd + timing.cl) * gpu.frequency_hz / timing.frequency_hz if timing else 0.0
    bytes_per_cycle = 1e12 / (gpu.dram.bandwidth_ps_per_byte * gpu.frequency_hz)
    return Times(
        front=gpu.front_cycles,
        l1=gpu.l1_hit_cycles - gpu.front_cycles - 1,
        l2=gpu.l2_hit_cycles - gpu.l1_hit_cycles,
        dram=round(gpu.dram.latency_cycles + row),
        burst=gpu.l2.sector_bytes / bytes_per_cycle,
        shared=round(gpu.shared_memory.latency_cycles) + 1,
        queued=QUEUED_MEMORY * gpu.schedulers,
        mshrs=gpu.l1.mshrs,
        slices=gpu.l2.slices,
        schedulers=gpu.schedulers,
    )


@inlined
def _push(state, number, now):  # type: ignore[no-untyped-def]
    """A warp (or, behind them, a block that ends) is looked at when its time comes, in the order of pushes."""
    warp = state.warp
    at = min(max(warp[number].time, now + 1), now + _HORIZON - 1) & (_HORIZON - 1)
    warp[number].next = -1
    if state.head[at] < 0:
        state.head[at] = number
    else:
        warp[state.tail[at]].next = number
    state.tail[at] = number


@inlined
def _end_block(state, number, now):  # type: ignore[no-untyped-def]
    place = number + len(state.warp) - len(state.block)
    state.warp[place].time = state.block[number].end
    _push(state, place, now)


@inlined
def _begin_block(state, launch, number, s, slot, schedulers, time, now):  # type: ignore[no-untyped-def]
    """A block begins in a slot of SM ``s`` at ``time``."""
    own = state.block[number]
    own.begin = time
    own.end = time + 1
    own.met = 0
    own.arrived = 0
    own.sm = s
    own.slot = slot
    own.waiting = -1
    own.running = 0
    first = launch.block_warps[number]
    for i in range(first, launch.block_warps[number + 1]):
        mine = state.warp[i]
        mine.segment = launch.first_segment[i]
        mine.end = launch.first_segment[i + 1]
        mine.access = launch.first_access[i]
        mine.block = number
        mine.time = time + _START
        mine.scheduler = s * schedulers + (slot * launch.most_warps + i - first) % schedulers
        if mine.segment < mine.end:
            own.running += 1
            _push(state, i, now)
    if own.running == 0:
        _end_block(state, number, now)


@inlined
def _miss(state, s, count, at, mshrs):  # type: ignore[no-untyped-def]
    """When entries for ``count`` misses are free, of those wanted at ``at``."""
    own = state.sm[s]
    mask = state.flight.shape[1] - 1
    count = min(count, mshrs)
    while own.head < own.tail:
        oldest = state.flight[s, own.head & mask]
        if oldest.time > at and own.misses + count <= mshrs:
            break
        at = max(at, oldest.time)
        own.misses -= oldest.count
        own.head += 1
    return at


@inlined
def _below_l1(answer, store, taken, s, done, limits, arrival):  # type: ignore[no-untyped-def]
    """Requests that L1 does not answer, looked up at ``done``: when the last is answered."""
    work = np.int64(answer.sent) + np.int64(answer.waited)
    sent = served(taken.port, taken.port_full, s, done, work)
    arrival.queue += sent - done - 1
    done = sent - 1
    arrival.cause = L2
    if answer.sent:
        begin = done
        cycles = np.int64(answer.together) + (limits.dram if answer.blocks & BLOCKS_L2 else 0)
        done = served(taken.slices, taken.slices_full, answer.slice, begin, cycles) - cycles
        if done - begin >= PERIOD_CYCLES:  # more than periods make uncertain: those behind it wait, too
            served(taken.port, taken.port_full, s, begin, done - begin)
        requests = np.int64(answer.fetched) + np.int64(answer.written_back)
        if requests:
            at = transferred(taken.dram, taken.dram_full, done, requests * limits.burst)
            if not store:
                done = np.int64(at)
        arrival.queue += done - begin
    return done + limits.l2


@inlined
def _access(own, answer, state, s, issue, limits, taken, arrival):  # type: ignore[no-untyped-def]
    """An access issued at ``issue``: fill in ``arrival``, what it is answered by and when. Returns when the load/store
    unit begins with it."""
    unit = state.sm[s]
    wanted = issue + limits.front
    cycles = np.int64(own.passes)
    if answer.blocks & BLOCKS_L1:
        cycles += limits.l2 + (limits.dram if answer.level == FROM_DRAM else 0)
    passed = served(taken.load_store, taken.load_store_full, s, wanted, cycles)
    passed -= cycles - np.int64(own.passes)
    arrival.misses = 0
    arrival.queue = passed - 1 - wanted
    if own.kind == IN_SHARED:
        arrival.cause = SHARED
        arrival.time = passed + limits.shared
        return passed - np.int64(own.passes)
    arrival.cause = L1
    store = own.kind == STORES or own.kind == STORES_PAST_L1
    passes_l1 = own.kind == PASSES_L1 or own.kind == STORES_PAST_L1
    done = passed if passes_l1 or own.requests == 0 else passed + limits.l1
    if answer.sent + answer.waited:
        takes_entries = own.kind == LOADS and answer.sent
        if takes_entries:
            looked_up = done
            done = _miss(state, s, np.int64(answer.sent), done, limits.mshrs)
            arrival.misses = done - looked_up
        done = _below_l1(answer, store, taken, s, done, limits, arrival)
        if answer.level == FROM_DRAM and not store:
            arrival.cause = DRAM
            done += limits.dram
        if takes_entries:
            entry = state.flight[s, unit.tail & (state.flight.shape[1] - 1)]
            entry.time = done
            entry.count = min(np.int64(answer.sent), limits.mshrs)
            unit.misses += entry.count
            unit.tail += 1
    arrival.time = done
    return passed - np.int64(own.passes)


@inlined
def _later(into, other):  # type: ignore[no-untyped-def]
    if other.time > into.time:
        into.time = other.time
        into.misses = other.misses
        into.queue = other.queue
        into.cause = other.cause


@inlined
def _blame(stack, arrival, stall):  # type: ignore[no-untyped-def]
    """What a warp waited for: queues first, then the level that answers."""
    misses = min(stall, np.int64(arrival.misses))
    queue = min(stall - misses, np.int64(arrival.queue))
    stack[MSHR] += misses
    stack[QUEUE] += queue
    stack[arrival.cause] += stall - misses - queue


@inlined
def _issue(own, now, k, state):  # type: ignore[no-untyped-def]
    """A segment is issued from ``now`` on: when the next one could begin."""
    scheduler, unit, stack = state.scheduler, state.unit, state.stack
    scheduler[k] = max(scheduler[k], now) + own.issued
    unit[k] = max(unit[k], now) + own.busy
    free = now + own.cycles
    issued = max(free, scheduler[k])
    done = max(issued, unit[k])
    stack[BASE] += own.issued
    stack[DEP] += own.cycles - own.issued
    stack[ISSUE] += issued - free
    stack[UNIT] += done - issued
    return done


@inlined
def _make_accesses(own, mine, state, launch, limits, taken, now, done):  # type: ignore[no-untyped-def]
    """The accesses of a segment that would be issued by ``done``: when it is. What it waits for: ``state.last[0]``."""
    latest, arrival = state.last[0], state.last[1]
    delay = done - now - own.cycles
    s = state.block[mine.block].sm
    for i in range(mine.access, mine.access + own.accesses):
        reached = launch.access[i]
        offset = np.int64(reached.offset)
        begin = _access(reached, launch.answer[i], state, s, now + delay + offset, limits, taken, arrival)
        _later(latest if reached.wait == mine.segment else state.pending[reached.wait], arrival)
        # instructions behind it wait for room in the unit's queue
        ahead = limits.queued * np.int64(reached.passes) + limits.front + offset
        held = begin - ahead + own.cycles
        if held > done:
            state.stack[QUEUE] += held - done
            done = held
    mine.access += own.accesses
    _later(latest, state.pending[mine.segment])
    return done


@inlined
def _release(state, room, now):  # type: ignore[no-untyped-def]
    """All warps of a block that run have met."""
    number = room.waiting
    room.waiting = -1
    room.arrived = 0
    while number >= 0:
        mine = state.warp[number]
        following = mine.next
        state.stack[BARRIER] += room.met - mine.time
        mine.time = room.met
        _push(state, number, now)
        number = following
    room.met = 0


@inlined
def _advance(state, launch, limits, taken, number, now):  # type: ignore[no-untyped-def]
    """A warp's next segment."""
    mine = state.warp[number]
    own = launch.segment[mine.segment]
    room = state.block[mine.block]
    latest = state.last[0]
    latest.time = 0
    done = _issue(own, now, mine.scheduler, state)
    done = _make_accesses(own, mine, state, launch, limits, taken, now, done)
    goes_on = max(done, latest.time)
    if own.end == EXITS:
        state.stack[DRAIN] += goes_on - done
        room.end = max(room.end, goes_on)
        room.running -= 1
        if room.running == 0:
            _end_block(state, mine.block, now)
    else:
        if goes_on > done:
            _blame(state.stack, latest, goes_on - done)
        mine.segment += 1
        mine.time = goes_on
        if own.end == MEETS:
            room.met = max(room.met, goes_on)
            room.arrived += 1
            mine.next = room.waiting
            room.waiting = number
        else:
            _push(state, number, now)
    if room.arrived > 0 and room.arrived >= room.running:
        _release(state, room, now)


@allocation_free
def _run(state, launch, limits, taken, num_sms, slots):  # type: ignore[no-untyped-def]
    """Blocks begin in turn on the SMs, and then where one ends: the cycle in which the last one does."""
    state, launch, taken = by_reference(state), by_reference(launch), by_reference(taken)
    num_blocks = len(state.block)
    num_warps = len(state.warp) - num_blocks
    given = 0
    now = -1
    while given < min(num_blocks, num_sms * slots):
        turn = given // num_sms
        _begin_block(state, launch, given, given % num_sms, turn, limits.schedulers, turn, now)
        given += 1
    left = num_blocks
    while left > 0:
        now += 1
        at = now & (_HORIZON - 1)
        number = state.head[at]
        state.head[at] = -1
        while number >= 0:
            following = state.warp[number].next
            if state.warp[number].time > now:
                _push(state, number, now)
            elif number < num_warps:
                _advance(state, launch, limits, taken, number, now)
            else:
                left -= 1
                if given < num_blocks:
                    ended = state.block[number - num_warps]
                    _begin_block(state, launch, given, ended.sm, ended.slot, limits.schedulers, now, now)
                    given += 1
            number = following
    return now


@njit(cache=True, nogil=True)
def replay(launch, limits, num_sms, slots, stack, block):  # type: ignore[no-untyped-def]
    """Cycles of a launch. ``stack`` float64[causes]: cycles of warps by what they were spent on; ``block``
    BLOCK[blocks] is filled."""
    num_blocks = len(launch.block_warps) - 1
    ring = 1
    while ring <= limits.mshrs + 1:
        ring *= 2
    state = State(
        np.empty(len(launch.first_segment) - 1 + num_blocks, WARP), block, np.zeros(num_sms, SM),
        np.empty((num_sms, ring), FLIGHT), np.zeros(len(launch.segment), ARRIVAL), np.zeros(2, ARRIVAL),
        np.zeros(num_sms * limits.schedulers, np.int64), np.zeros(num_sms * limits.schedulers, np.int64),
        np.full(_HORIZON, -1, np.int32), np.empty(_HORIZON, np.int32), stack,
    )  # fmt: skip
    taken = Taken(
        np.zeros((num_sms, PERIODS), PERIOD), np.full((num_sms, 2), -1),
        np.zeros((num_sms, PERIODS), PERIOD), np.full((num_sms, 2), -1),
        np.zeros((limits.slices, SLICE_PERIODS), PERIOD), np.full((limits.slices, 2), -1),
        np.zeros((1, DRAM_PERIODS), TRANSFER), np.full((1, 2), -1),
    )  # fmt: skip
    return _run(state, launch, limits, taken, num_sms, slots) + 1
