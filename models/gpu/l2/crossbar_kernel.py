"""The crossbar from SMs to slices of L2.

It takes one request of each SM and gives each slice one a cycle (where ports are wider, as many of an SM for the same
slice together); those of an SM pass in their order, so one that waits for its slice holds up those behind it. Facts of
it (cycles, slices by hashed address bits, whose turn it is) are Accel-Sim's.

Cost: O(SMs + slices) for each cycle in which a request passes or waits.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.l2.slices import hashed, slice_of_line
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import inner_inlined, merged, separate

CROSSBAR: Final = 2  # cycles from an SM to a slice's port
_LOOKUP: Final = 1  # from the end of the latency to the lookup


@inner_inlined
def slice_of(request, limits):  # type: ignore[no-untyped-def]
    """The slice of a request among all of the GPU."""
    line = request >> limits.sector_shift
    return slice_of_line(line, limits.slices, limits.hash_shift, limits.hash_masks)


@inner_inlined
def set_of(line, limits):  # type: ignore[no-untyped-def]
    rest = line // limits.slices if limits.slice_shift < 0 else line >> limits.slice_shift
    return hashed(rest & limits.set_mask, rest >> limits.set_shift, limits.set_masks, limits.set_mask + 1)


@merged
def enter(mem, limits, time, request, written, tag, sm):  # type: ignore[no-untyped-def]
    """A request that left an SM at ``time`` waits at its port of the crossbar. Those of an SM come in their order."""
    mem.in_flight[0] += 1
    tail = mem.port_tail[sm]
    place = mem.port[sm, tail & (mem.port.shape[1] - 1)]
    place.time = time + CROSSBAR
    place.request = request
    place.written = written
    place.tag = tag
    if mem.port_head[sm] == tail:
        mem.port_time[sm] = time + CROSSBAR
        mem.port_slice[sm] = slice_of(request, limits)
    mem.port_tail[sm] = tail + 1


@separate
def pass_crossbar(mem, limits, until):  # type: ignore[no-untyped-def]
    """Requests pass the crossbar whose turn is before those that leave an SM at ``until``.

    The slices choose one after the other: of the SMs whose first request is for it, the one whose turn it is, or the
    next one; the turn then is that of the one behind it (Accel-Sim's iSLIP, in which an SM may pass several requests in
    a cycle, to slices of rising numbers).
    """
    num_sms = mem.port_time.shape[0]
    time = mem.passed_until[0]
    mem.passed_until[0] = until + CROSSBAR
    while time < until + CROSSBAR:
        first = mem.chosen.shape[0]
        last = -1
        waiting = 0
        following = NEVER
        for sm in range(num_sms):
            at = mem.port_time[sm]
            if at <= time:
                waiting += 1
                number = mem.port_slice[sm]
                _choose(mem, sm, number)
                first = min(first, number)
                last = max(last, number)
            else:
                following = min(following, at)
        number = first
        while number <= last:
            sm = mem.chosen[number]
            if sm >= 0:
                mem.chosen[number] = -1
                mem.turn[number] = sm + 1
                waiting -= 1
                for _ in range(limits.port):
                    if mem.port_time[sm] <= time and mem.port_slice[sm] == number:
                        _pass(mem, limits, sm, number, time)
                at = mem.port_time[sm]
                wanted = mem.port_slice[sm]
                if at <= time and wanted > number:
                    _choose(mem, sm, wanted)
                    last = max(last, wanted)
                    waiting += 1
                else:
                    following = min(following, at)
            number += 1
        time = time + 1 if waiting > 0 else max(time + 1, following)


@merged
def _choose(mem, sm, number):  # type: ignore[no-untyped-def]
    """An SM wants to pass to a slice: it will if its turn is before that of the one chosen so far."""
    other = mem.chosen[number]
    turn = mem.turn[number]
    if other < 0 or ((sm < other) if (sm < turn) == (other < turn) else sm >= turn):
        mem.chosen[number] = sm


@merged
def _pass(mem, limits, sm, number, time):  # type: ignore[no-untyped-def]
    """The first request of an SM passes to a slice."""
    mask = mem.port.shape[1] - 1
    head = mem.port_head[sm]
    s = number - limits.first_slice
    if s < 0 or s >= mem.slice.shape[0]:
        mem.in_flight[0] -= 1
    else:
        _arrive(mem, limits, s, mem.port[sm, head & mask], sm, time)
    head += 1
    if head < mem.port_tail[sm]:
        mem.port_head[sm] = head
        behind = mem.port[sm, head & mask]
        mem.port_time[sm] = behind.time
        mem.port_slice[sm] = slice_of(behind.request, limits)
    else:
        mem.port_head[sm] = mem.port_tail[sm] = 0
        mem.port_time[sm] = NEVER


@merged
def _arrive(mem, limits, s, sent, sm, time):  # type: ignore[no-untyped-def]
    """A request at its slice."""
    own = mem.slice[s]
    place = mem.arrived[s, own.tail & (mem.arrived.shape[1] - 1)]
    own.tail += 1
    place.time = time + limits.latency + _LOOKUP
    place.request = sent.request
    place.written = sent.written
    place.tag = sent.tag
    place.sm = sm
    place.index = set_of(sent.request >> limits.sector_shift, limits)
