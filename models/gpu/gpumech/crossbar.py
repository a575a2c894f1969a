"""The way of requests from SMs to L2 and DRAM in GPUMech's extended form (see gpu/gpumech/l1_queue.py).

Whose turn it is at a slice is decided request by request (``Times.in_turn``), or left open, which is cheaper: time of
slices is then taken in periods (gpu/gpumech/queues.py), in which requests find what is left. SMs that ask for the same
lines in the same order show the difference: in turn they move from slice to slice together, one slice busy at a time.

Cost: O(1) for requests to a line that pass together; in turn O(requests), and O(slices + SMs that wait) for each cycle
in which one waits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.gpumech.collector import COMES, LED_L2, WAITS_L2
from manyscale.models.gpu.gpumech.queues import served, transferred
from manyscale.models.gpu.gpumech.replay_state import push
from manyscale.models.kernels import inlined

_SOON: Final = 6  # lines before another, when which is accessed that one soon will be


@inlined
def _at_slice(state, which, time, count):  # type: ignore[no-untyped-def]
    """When ``count`` requests that are at their slice by ``time`` are looked up."""
    if state.blocked[which] > time:
        time = state.blocked[which]
        state.blocked[which] += count
    return time


@inlined
def _fetch(state, launch, taken, limits, line, sent, count, time, store):  # type: ignore[no-untyped-def]
    """Requests are looked up in their slice of L2 at ``time``, of which ``sent`` of their line have been before: when
    it can answer. Of lines that wait for the same fetch the first to come has it made."""
    found = launch.found[line]
    which = np.int64(found.slice)
    channel = which // (limits.slices // limits.channels)
    fetched = 0 if store else min(count, max(0, np.int64(found.fetched) - sent))
    moved = np.int64(found.written_back) if sent == 0 else np.int64(0)
    there = time
    if fetched and found.waits & LED_L2:
        there = max(there, state.fetched[line])
        fetched = np.int64(0) if state.fetched[line] else np.int64(found.fetched)
    moved += fetched
    if moved:
        ready = transferred(taken.dram, taken.dram_full, channel, time, moved * limits.channel_burst)
        if fetched:
            there = np.int64(ready) + limits.dram
            if found.waits & LED_L2:
                state.fetched[line] = there
    if found.waits & WAITS_L2:
        leader = found.leader
        if state.fetched[leader] == 0:
            moved = np.int64(launch.found[leader].fetched)
            ready = transferred(taken.dram, taken.dram_full, channel, time, moved * limits.channel_burst)
            state.fetched[leader] = np.int64(ready) + limits.dram
        elif state.fetched[leader] > time:
            state.joined[leader] += 1 if sent == 0 else 0
            if state.joined[leader] >= limits.l2_merges:  # the slice does nothing until that is there
                state.blocked[which] = max(state.blocked[which], state.fetched[leader])
        there = max(there, state.fetched[leader])
    elif found.waits & COMES:
        asked = state.asked[found.leader]
        if asked == 0 and state.asked[max(0, found.leader - _SOON)]:
            asked = time  # it would not have come much later
        if asked:
            there = max(there, asked + limits.dram)
    return there


@inlined
def pass_by_periods(state, launch, own, line, store, limits, taken, s, count, time):  # type: ignore[no-untyped-def]
    """Up to ``count`` requests to a line leave at ``time`` and pass the crossbar: how many, when they are answered, and
    when the last of them has passed, if that had to wait. Ports' times count what passes a port in a cycle."""
    unit = state.sm[s]
    found = launch.found[line]
    which = np.int64(found.slice)
    shift = limits.port_shift
    begin = max(time << shift, unit.sent)
    at = max(begin, unit.port)
    end = served(taken.slices, taken.slices_full, which, at, 1, limits.slice_period)
    waits = end - at - 1 > limits.turn << shift
    if waits:
        count = 1
    elif count > 1:
        end = max(end + count - 1, served(taken.slices, taken.slices_full, which, end, count - 1, limits.slice_period))
    unit.sent = begin + count
    unit.port = end
    looked = _at_slice(state, which, (end - 1) >> shift, -(-count >> shift))
    there = _fetch(state, launch, taken, limits, line, own.sent, count, looked, store)
    own.queue += looked - (time + ((count - 1) >> shift))
    own.there = max(own.there, there + limits.l2)
    own.sent += count
    own.left -= count
    return count, there + limits.l2, end >> shift if waits else 0


@inlined
def _ask(state, launch, unit, which, s, at, now):  # type: ignore[no-untyped-def]
    """The first request of an SM wants to pass to a slice from ``at`` on: when it may, -1: that is open."""
    if unit.granted >= 0:
        granted = unit.granted
        unit.granted = -1
        return granted
    if at <= now and state.free[which] <= at and state.asking[which] < 0:
        return at
    unit.asks = which
    unit.next = state.asking[which]
    unit.since = at
    state.asking[which] = s
    state.waiting_sms[0] += 1
    if not state.waiting_sms[1]:
        state.waiting_sms[1] = 1
        place = len(launch.first_segment) - 1 + len(state.block) + len(state.sm) + len(state.scheduler)
        state.warp[place].time = at + 1
        push(state, place, now)
    return np.int64(-1)


@inlined
def pass_in_turn(state, launch, own, line, store, limits, taken, s, count, time, now):  # type: ignore[no-untyped-def]
    """As ``pass_by_periods``, where slices choose request by request whose turn it is; of none, if it is not this
    SM's yet."""
    unit = state.sm[s]
    found = launch.found[line]
    which = np.int64(found.slice)
    begin = max(time << limits.port_shift, unit.sent)
    at = begin >> limits.port_shift
    passes = unit.port - 1
    if which != unit.passed or unit.width == 0 or at > passes:
        # (in a cycle an SM may pass several requests, to slices of rising numbers)
        at = max(at, unit.port - (1 if which > unit.passed else 0))
        if at > now + 1:
            return np.int64(0), np.int64(0), at
        passes = _ask(state, launch, unit, which, s, at, now)
        if passes < 0:
            return np.int64(0), np.int64(0), np.int64(0)
        state.free[which] = passes + 1
        state.turn[which] = s + 1
        unit.width = 1 << limits.port_shift
    count = min(count, np.int64(unit.width))
    unit.width -= count
    unit.sent = begin + count
    unit.port = passes + 1
    unit.passed = which
    looked = _at_slice(state, which, passes, 1)
    there = _fetch(state, launch, taken, limits, line, own.sent, count, looked, store)
    own.queue += looked - time
    own.there = max(own.there, there + limits.l2)
    own.sent += count
    own.left -= count
    return count, there + limits.l2, np.int64(0)


@inlined
def grant(state, which, now):  # type: ignore[no-untyped-def]
    """A slice chooses among the SMs whose first request waits for it: the one whose turn it is, or the next one; -1:
    none of them is there yet."""
    chosen, before_chosen, before = np.int64(-1), np.int64(-1), np.int64(-1)
    turn = state.turn[which]
    s = np.int64(state.asking[which])
    while s >= 0:
        unit = state.sm[s]
        if unit.since < now and (chosen < 0 or (s < chosen if (s < turn) == (chosen < turn) else s >= turn)):
            chosen, before_chosen = s, before
        before = s
        s = np.int64(unit.next)
    if chosen >= 0:
        unit = state.sm[chosen]
        if before_chosen < 0:
            state.asking[which] = unit.next
        else:
            state.sm[before_chosen].next = unit.next
        unit.asks = -1
        unit.granted = now - 1
        state.waiting_sms[0] -= 1
    return chosen
