"""Blocks of a cluster: their barrier (UCGABAR), and what they do to each other's barriers in shared memory.

What a block does to another leaves its SM as a message, in turn with requests to L2, and arrives ``cluster_latency``
later; no window of SMs that run by themselves is longer than that. A multicast's data arrives at all its blocks at once
(gpu/l2/exchange_kernel.py).
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm.asynchronous.barrier_kernel import change_barrier
from manyscale.models.gpu.sm.asynchronous.state import GONE, MOST_OF_CLUSTER
from manyscale.models.gpu.sm.l1_kernel import send
from manyscale.models.gpu.sm.state import AT_BARRIER, MESSAGE, NEVER, WAITS_CLUSTER
from manyscale.models.gpu.sm.warp_kernel import release
from manyscale.models.kernels import inner, merged, seldom

BYTES: Final = 0  # kinds of messages: bytes have come to a barrier, or are expected
EXPECTED: Final = 1
ARRIVALS: Final = 2
MEETS: Final = 3  # all of a block have arrived at the cluster's barrier
LEAVES: Final = 4  # all of a block have ended
KIND_SHIFT: Final = 26  # of a message's tag; below, a barrier's place, and on arrival the slot of the block
SLOT_SHIFT: Final = 20
PLACE_MASK: Final = (1 << SLOT_SHIFT) - 1
_FIVE_BITS: Final = 31
_RANK_BITS: Final = 4  # below the block that is meant, in what MEETS and LEAVES say


@merged
def rank_of(sm, limits, block):  # type: ignore[no-untyped-def]
    """Of a block in its cluster."""
    return sm.cluster_index[block] % limits.cluster


@merged
def peer(sm, limits, block, rank):  # type: ignore[no-untyped-def]
    """The block of a rank in the cluster of a block."""
    index = sm.cluster_index[block]
    return sm.cluster_order[index - index % limits.cluster + rank]


@inner
def tell(sm, limits, slot, rank, kind, place, amount, time):  # type: ignore[no-untyped-def]
    """A message to another block of the cluster."""
    block = peer(sm, limits, sm.block[slot].number, rank)
    send(sm, limits, time, block, amount, MESSAGE + (kind << KIND_SHIFT) + place)


@merged
def change_remote(sm, limits, slot, rank, place, arrivals, num_bytes, time):  # type: ignore[no-untyped-def]
    """Bytes and arrivals for a barrier of another block; a phase does not end between the two."""
    if num_bytes > 0:
        tell(sm, limits, slot, rank, EXPECTED, place, num_bytes, time)
    if num_bytes < 0:
        tell(sm, limits, slot, rank, BYTES, place, -num_bytes, time)
    if arrivals > 0:
        tell(sm, limits, slot, rank, ARRIVALS, place, arrivals, time)


@inner
def _is_over(sm, limits, slot, phase):  # type: ignore[no-untyped-def]
    """Whether all blocks have arrived ``phase`` times."""
    least = phase
    for rank in range(limits.cluster):
        least = min(least, sm.peer[slot, rank])
    return least >= phase


@inner
def _look(sm, program, limits, slot, time):  # type: ignore[no-untyped-def]
    """Warps that wait for the cluster's barrier go on, if it is over."""
    block = sm.block[slot]
    for w in range(block.first_warp, block.end_warp):
        warp = sm.warp[w]
        if warp.state == WAITS_CLUSTER and _is_over(sm, limits, slot, warp.cluster_phase):
            release(sm, program, limits, w, time + 1, AT_BARRIER)


@inner
def _tell_all(sm, program, limits, slot, kind, time):  # type: ignore[no-untyped-def]
    own = rank_of(sm, limits, sm.block[slot].number)
    if kind == LEAVES:
        sm.peer[slot, own] = GONE
    else:
        sm.peer[slot, own] += 1
    for rank in range(limits.cluster):
        if rank != own:
            other = peer(sm, limits, sm.block[slot].number, rank)
            tell(sm, limits, slot, rank, kind, 0, (other << _RANK_BITS) + own, time)
    _look(sm, program, limits, slot, time)


@inner
def _complete(sm, program, limits, slot, time):  # type: ignore[no-untyped-def]
    """If all warps of a block that run have arrived at the cluster's barrier, the others are told."""
    block = sm.block[slot]
    if block.running > 0 and block.meeting >= block.running:
        block.meeting = 0
        block.meetings += 1
        _tell_all(sm, program, limits, slot, MEETS, time)


@inner
def meet(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """A warp arrives at the cluster's barrier."""
    warp = sm.warp[w]
    warp.cluster_phase += 1
    sm.block[warp.slot].meeting += 1
    _complete(sm, program, limits, warp.slot, time)


@merged
def await_cluster(sm, limits, w, time):  # type: ignore[no-untyped-def]
    """When a warp can go on that waits for the cluster's barrier; NEVER: when it is told."""
    warp = sm.warp[w]
    if _is_over(sm, limits, warp.slot, warp.cluster_phase):
        return time + 1
    warp.state = WAITS_CLUSTER
    sm.ready[w] = NEVER
    return NEVER


@seldom(gives="nothing")
def leave(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """A warp has exited: those that are left are all that the cluster's barrier expects."""
    warp = sm.warp[w]
    block = sm.block[warp.slot]
    if warp.cluster_phase > block.meetings:
        block.meeting -= 1
    if block.running == 0:
        _tell_all(sm, program, limits, warp.slot, LEAVES, time)
    else:
        _complete(sm, program, limits, warp.slot, time)


@merged
def begin_in_cluster(sm, slot):  # type: ignore[no-untyped-def]
    block = sm.block[slot]
    block.meeting = block.meetings = 0
    for rank in range(MOST_OF_CLUSTER):
        sm.peer[slot, rank] = 0


@seldom(gives="nothing")
def take_message(sm, program, limits, tag, amount, time):  # type: ignore[no-untyped-def]
    """What another block of the cluster did arrives."""
    kind = (tag - MESSAGE) >> KIND_SHIFT
    slot = tag >> SLOT_SHIFT & _FIVE_BITS
    place = tag & PLACE_MASK
    if kind == MEETS or kind == LEAVES:
        if sm.block[slot].number != amount >> _RANK_BITS:  # it has ended
            return
        rank = amount & (MOST_OF_CLUSTER - 1)
        sm.peer[slot, rank] = GONE if kind == LEAVES else sm.peer[slot, rank] + 1
        _look(sm, program, limits, slot, time)
    elif kind == ARRIVALS:
        change_barrier(sm, program, limits, slot, place, amount, 0, time, AT_BARRIER)
    else:
        change_barrier(sm, program, limits, slot, place, 0, amount if kind == EXPECTED else -amount, time, AT_BARRIER)
