"""The crossbar from SMs to slices of L2.

It takes one request of each SM and gives each slice one a cycle; those of an SM pass in their order, so one that waits
for its slice holds up those behind it. Facts of it (cycles, slices by hashed address bits, whose turn it is) are
Accel-Sim's.

Cost: O(SMs + slices) for each cycle in which a request passes or waits.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import count_ones, inner_inlined, merged, read_soon, separate

CROSSBAR: Final = 2  # cycles from an SM to a slice's port
_LOOKUP: Final = 1  # from the end of the latency to the lookup


@merged
def _hashed(index, high, masks, size):  # type: ignore[no-untyped-def]
    if len(masks) == 0:
        return (index ^ high) & (size - 1)
    for bit in range(len(masks)):
        index ^= (count_ones(high & masks[bit]) & 1) << bit
    return index


@inner_inlined
def slice_of(request, limits):  # type: ignore[no-untyped-def]
    """The slice of a request among all of the GPU."""
    address = request << limits.request_shift
    if limits.slice_shift < 0:
        line = address >> limits.index_shift
        return (line ^ (line >> 7) ^ (line >> 13)) % limits.slices
    index = (address >> limits.index_shift) & (limits.slices - 1)
    return _hashed(index, address >> limits.hash_shift, limits.hash_masks, limits.slices)


@inner_inlined
def set_of(line, limits):  # type: ignore[no-untyped-def]
    rest = line // limits.slices if limits.slice_shift < 0 else line >> limits.slice_shift
    return _hashed(rest & limits.set_mask, rest >> limits.set_shift, limits.set_masks, limits.set_mask + 1)


@merged
def free_node(mem, number):  # type: ignore[no-untyped-def]
    mem.node[number].next = mem.freed[0]
    mem.freed[0] = number
    mem.free[0] += 1


@merged
def enter(mem, limits, time, request, written, tag, sm):  # type: ignore[no-untyped-def]
    """A request that left an SM at ``time`` waits at its port of the crossbar. Those of an SM come in their order."""
    mem.free[0] -= 1
    number = mem.freed[0]
    if number >= 0:
        mem.freed[0] = mem.node[number].next
        read_soon(mem.node, mem.freed[0])  # for the next request
    else:
        number = mem.used[0]
        mem.used[0] += 1
    node = mem.node[number]
    node.time = time + CROSSBAR
    node.request = request
    node.written = written
    node.tag = tag
    node.sm = sm
    node.next = -1
    if mem.port_head[sm] < 0:
        mem.port_head[sm] = number
        mem.port_time[sm] = time + CROSSBAR
        mem.port_slice[sm] = slice_of(request, limits)
    else:
        mem.node[mem.port_tail[sm]].next = number
    mem.port_tail[sm] = number


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
    at = mem.port_head[sm]
    following = mem.node[at].next
    mem.port_head[sm] = following
    if following >= 0:
        behind = mem.node[following]
        read_soon(mem.node, behind.next)
        mem.port_time[sm] = behind.time
        mem.port_slice[sm] = slice_of(behind.request, limits)
    else:
        mem.port_time[sm] = NEVER
    s = number - limits.first_slice
    if s < 0 or s >= mem.slice.shape[0]:
        free_node(mem, at)
    else:
        _arrive(mem, limits, s, at, time)


@merged
def _arrive(mem, limits, s, number, time):  # type: ignore[no-untyped-def]
    """A request at its slice."""
    node = mem.node[number]
    node.time = time + limits.latency + _LOOKUP
    node.next = -1
    own = mem.slice[s]
    if own.head < 0:
        own.head = number
    else:
        mem.node[own.tail].next = number
    own.tail = number
    index = set_of(node.request >> limits.sector_shift, limits)
    tags = mem.tag[s, index]
    read_soon(tags, 0)
    read_soon(tags, 8)
    read_soon(mem.line[s, index], 0)
