"""Reductions by recursive halving as Open MPI has them: halves folded between pairs, butterflies, barriers in pairs.

After Open MPI's ompi/mca/coll/base (4.1; file names below). They differ from MPICH's (network/collectives/rounds.py) in
how participants beyond a power of two are folded, and in how odd numbers of elements are halved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyscale.models.network.collectives import linear
from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.schedules import ScheduleBuilder

Ranks = NDArray[np.int64]
Sizes = NDArray[np.int64]


@dataclass(frozen=True)
class _Halved:
    """Who takes part (``core``, a power of two of them), and per round what each sent and received, in bytes."""

    core: Ranks
    excess: int
    sent: list[Sizes]
    received: list[Sizes]

    def partner(self, step: int) -> Ranks:
        return np.arange(len(self.core)) ^ (1 << step)


def barrier_recursive_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Empty exchanges over distance 1, 2, 4, ...; the upper ones beyond a power of two report to one of the lower
    first, and are released last (coll_base_barrier.c)."""
    n = call.num_participants
    size = 1 << (n.bit_length() - 1)
    upper = np.arange(size, n)
    arrive, release = builder.messages(upper, upper - size, 0), builder.messages(upper - size, upper, 0)
    builder.post_receives(release)
    builder.post_sends(arrive)
    builder.wait_sends(arrive)
    builder.post_receives(arrive)
    builder.wait_receives(arrive)
    lower = np.arange(size)
    for step in range(size.bit_length() - 1):
        builder.exchange(lower, lower ^ (1 << step), 0)
    builder.post_sends(release)
    builder.wait_sends(release)
    builder.wait_receives(release)


def allreduce_halves(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Rabenseifner's: halving, then doubling (coll_base_allreduce.c, redscat_allgather). With fewer elements than
    participants of the core: to participant 0 and back, one by one."""
    if _too_few(call):
        at_first = CollectiveCall("allreduce", call.num_participants, send_bytes=call.send_bytes)
        linear.reduce_ordered(builder, at_first)
        linear.bcast(builder, at_first)
        return
    halved = _halve(builder, call)
    for step in reversed(range(len(halved.sent))):
        builder.exchange(halved.core, halved.core[halved.partner(step)], halved.received[step])
    pairs = np.arange(0, 2 * halved.excess, 2)
    builder.send(pairs, pairs + 1, call.send_bytes)


def reduce_halves(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Rabenseifner's: halving, then a binomial gather to the root (coll_base_reduce.c, redscat_gather). With fewer
    elements than participants of the core: one by one."""
    if _too_few(call):
        linear.reduce_ordered(builder, call)
        return
    halved, root = _halve(builder, call), call.root
    core = halved.core.copy()
    core_root = root // 2 if root < 2 * halved.excess else root - halved.excess
    if root < 2 * halved.excess and root % 2:
        builder.send(core[0], root, halved.received[-1][0])
        core[0], core_root = root, 0
    index, holder = np.arange(len(core)), np.ones(len(core), bool)
    for step in reversed(range(len(halved.sent))):
        leaving = index[holder & (((index ^ core_root) >> step & 1) != 0)]
        builder.send(core[leaving], core[halved.partner(step)[leaving]], halved.received[step][leaving])
        holder[leaving] = False


def reduce_scatter_butterfly(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Halving from the nearest partner on, after which each block goes from whom the bits' order gave it to where it
    belongs (coll_base_reduce_scatter.c, butterfly)."""
    n, blocks = call.num_participants, call.block_bytes
    size = 1 << (n.bit_length() - 1)
    excess = n - size
    pairs = np.arange(0, 2 * excess, 2)
    builder.send(pairs, pairs + 1, blocks.sum())
    index = np.arange(size)
    core = np.where(index < excess, 2 * index + 1, index + excess)
    core_blocks = blocks[core]
    core_blocks[:excess] += blocks[pairs]
    offsets = np.concatenate([[0], np.cumsum(core_blocks)])
    first, width = np.zeros(size, np.int64), size
    for step in range(size.bit_length() - 1):
        width //= 2
        upper = (index >> step & 1) != 0
        given = first + np.where(upper, 0, width)
        builder.exchange(core, core[index ^ (1 << step)], offsets[given + width] - offsets[given])
        first = first + np.where(upper, width, 0)
    to_even = index[first < excess]
    builder.send(core[to_even], 2 * first[to_even], blocks[2 * first[to_even]])
    moving = index[first != index]
    builder.exchange(core[moving], core[first[moving]], blocks[core[first[moving]]])


def _too_few(call: CollectiveCall) -> bool:
    return -(-call.send_bytes // call.element_bytes) < 1 << (call.num_participants.bit_length() - 1)


def _halve(builder: ScheduleBuilder, call: CollectiveCall) -> _Halved:
    """Fold pairs beyond a power of two by exchanged halves onto the even ones, then halve over distance 1, 2, 4, ...;
    the lower of two partners keeps the smaller, first half."""
    n, element = call.num_participants, call.element_bytes
    size = 1 << (n.bit_length() - 1)
    excess = n - size
    elements = -(-call.send_bytes // element)
    even = np.arange(0, 2 * excess, 2)
    low, high = elements // 2 * element, (elements - elements // 2) * element
    pair, other = np.concatenate([even, even + 1]), np.concatenate([even + 1, even])
    builder.exchange(pair, other, np.where(pair % 2, low, high))
    builder.send(even + 1, even, high)
    index = np.arange(size)
    core = np.where(index < excess, 2 * index, index + excess)
    held = np.full(size, elements)
    sent, received = [], []
    for step in range(size.bit_length() - 1):
        upper = (index >> step & 1) != 0
        sent.append(np.where(upper, held // 2, held - held // 2) * element)
        received.append(held * element - sent[-1])
        builder.exchange(core, core[index ^ (1 << step)], sent[-1])
        held = received[-1] // element
    return _Halved(core, excess, sent, received)
