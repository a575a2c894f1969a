"""Collectives that pass blocks on to neighbours: rings, neighbour exchange, chains and shifted pairwise exchange.

After Open MPI's ompi/mca/coll/base (4.1; file names below). Participants are in rank order; reductions are split
between whole elements.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from manyscale.models.network.collectives import rounds
from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.schedules import ScheduleBuilder

Sizes = NDArray[np.int64]


def allgather_whole_ring(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n - 1 rounds, each passing on the block it got last, however long or empty (coll_base_allgather(v).c, ring)."""
    rank = np.arange(call.num_participants)
    for k in range(call.num_participants - 1):
        builder.exchange(rank, np.roll(rank, -1), call.block_bytes[rank - k])


def allgather_neighbor_exchange(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n / 2 rounds between neighbours, in turn on either side: first the own block, then always the pair of blocks that
    came last (coll_base_allgather(v).c, neighborexchange; for odd n a ring)."""
    n = call.num_participants
    if n % 2:
        allgather_whole_ring(builder, call)
        return
    rank, blocks = np.arange(n), call.block_bytes
    sign = 1 - 2 * (rank % 2)  # even ones begin with the neighbour above
    builder.exchange(rank, (rank + sign) % n, blocks)
    pair = rank - rank % 2  # first block of the pair that came last
    newest = [pair.copy(), pair.copy()]  # by the side from which they come
    for k in range(1, n // 2):
        side = k % 2
        builder.exchange(rank, (rank + (sign if side == 0 else -sign)) % n, blocks[pair] + blocks[pair + 1])
        newest[side] = (newest[side] + (2 * sign if side == 0 else -2 * sign)) % n
        pair = newest[side]


def allreduce_ring(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Partial sums of the n blocks round the ring, then the results (coll_base_allreduce.c, ring and ring_segmented).

    With segments, the sums go round in phases of about one segment per block. Fewer elements than participants:
    recursive doubling.
    """
    n, element = call.num_participants, call.element_bytes
    elements = -(-call.send_bytes // element)
    if elements < n:
        rounds.allreduce_recursive_doubling(builder, call)
        return
    counts = _shares(np.int64(elements), n)
    per_round = n * max(call.segment_bytes // element, 1) if call.segment_bytes else elements + 1
    num_phases, rest = (elements // per_round, elements % per_round) if elements >= per_round else (1, 0)
    num_phases += elements >= per_round and n <= rest > per_round // 2
    for phase in range(num_phases):
        _pass_sums(builder, (counts // num_phases + (phase < counts % num_phases)) * element, first=0)
    rank = np.arange(n)
    for k in range(n - 1):
        builder.exchange(rank, np.roll(rank, -1), counts[(rank + 1 - k) % n] * element)


def reduce_scatter_ring(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Partial sums of each block round the ring, ending where it belongs (coll_base_reduce_scatter.c, ring)."""
    _pass_sums(builder, call.block_bytes, first=1)


def scan_chain(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """From each participant to the next, one after another (coll_base_scan.c, coll_base_exscan.c, linear)."""
    rank = np.arange(call.num_participants - 1)
    messages = builder.messages(rank, rank + 1, call.send_bytes)
    builder.post_receives(messages)
    builder.wait_receives(messages)
    builder.post_sends(messages)
    builder.wait_sends(messages)


def alltoall_pairwise_shift(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n - 1 exchanges, to rank + 1, 2, ... and from rank - 1, 2, ... (coll_base_alltoall(v).c, pairwise)."""
    n = call.num_participants
    rank = np.arange(n)
    for distance in range(1, n):
        peer = (rank + distance) % n
        builder.exchange(rank, peer, call.pair_bytes[rank, peer])


def _pass_sums(builder: ScheduleBuilder, blocks: Sizes, first: int) -> None:
    """n - 1 rounds in which rank i sends the sum of block i - first, then i - first - 1, ... as it gets them, the
    receive of the next posted before."""
    rank = np.arange(len(blocks))
    previous = None
    for k in range(len(blocks) - 1):
        messages = builder.messages(rank, np.roll(rank, -1), blocks[rank - k - first])
        builder.post_receives(messages)
        if previous is not None:
            builder.wait_receives(previous)
        builder.post_sends(messages)
        builder.wait_sends(messages)
        previous = messages
    if previous is not None:
        builder.wait_receives(previous)


def _shares(count: np.int64, parts: int) -> Sizes:
    """``count`` in ``parts``, the first few larger by one."""
    return count // parts + (np.arange(parts) < count % parts)
