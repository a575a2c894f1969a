"""Collectives in rounds: trees, rings, recursive doubling and halving, Bruck and pairwise exchange.

After Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in MPICH", IJHPCA
19(1), 2005, and MPICH's src/mpi/coll (3.4 and 4.x; file names below). SMPI 3.32 uses some of them with the
same messages: binomial broadcast, Bruck and pairwise all-to-all, recursive-doubling reduce_scatter.
Operations are taken as commutative, and communicators as flat (MPICH's node-aware variants are left out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.schedules import ScheduleBuilder

Ranks = NDArray[np.int64]
Sizes = NDArray[np.int64]

# MPIR_CVAR_ALLGATHERV_PIPELINE_MSG_SIZE: longer blocks of an irregular ring go in pieces of this size.
MPICH_PIPELINE_BYTES: Final = 32768


def barrier_dissemination(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """ceil(log2 n) rounds of an empty message to the one 1, 2, 4, ... further on."""
    n = call.num_participants
    rank = np.arange(n)
    for distance in _powers_of_two(n):
        builder.exchange(rank, (rank + distance) % n, 0)


def bcast_binomial(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Whole message down a binomial tree, farthest child first (SMPI bcast-binomial-tree.cpp is the same)."""
    n, root = call.num_participants, call.root
    for _, parent, child in reversed(list(_binomial_tree(n))):
        builder.send((parent + root) % n, (child + root) % n, call.send_bytes)


def bcast_scatter_recursive_doubling_allgather(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Van de Geijn's broadcast, medium sizes: binomial scatter of n pieces, recursive-doubling allgather."""
    pieces = _scatter_pieces(builder, call)
    label = (np.arange(call.num_participants) + call.root) % call.num_participants
    _recursive_doubling_allgather(builder, label, pieces)


def bcast_scatter_ring_allgather(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Van de Geijn's broadcast, long messages: binomial scatter of n pieces, ring allgather."""
    pieces = _scatter_pieces(builder, call)
    label = (np.arange(call.num_participants) + call.root) % call.num_participants
    _ring(builder, label, pieces, piece_limit=max(int(pieces.max()), 1), skip_empty=False)


def reduce_binomial(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Whole messages up a binomial tree, nearest child first."""
    n, root = call.num_participants, call.root
    for _, parent, child in _binomial_tree(n):
        builder.send((child + root) % n, (parent + root) % n, call.send_bytes)


def reduce_rabenseifner(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Recursive halving, then a binomial gather to the root (reduce_intra_reduce_scatter_gather.c).

    Beyond a power of two, the odd ones of the first few hand their data to the neighbour below. If the root
    is one of those, it takes the place of participant 0 after the halving.
    """
    root = call.root
    excess, core = _core(call.num_participants, keep_odd=False)
    pairs = np.arange(0, 2 * excess, 2)
    builder.send(pairs + 1, pairs, call.send_bytes)
    offsets = _offsets(_even_split(call, len(core)))
    masks = list(_powers_of_two(len(core)))
    first = _recursive_halving(builder, core, offsets, masks)

    core_root = root // 2 if root < 2 * excess else root - excess
    if root < 2 * excess and root % 2:
        builder.send(core[0], root, offsets[1])
        core[0], core_root = root, 0
    index, holder = np.arange(len(core)), np.ones(len(core), bool)
    for width, mask in zip(masks, reversed(masks), strict=True):
        leaving = index[holder & (((index ^ core_root) & mask) != 0)]
        size = offsets[first[leaving] + width] - offsets[first[leaving]]
        _send_filled(builder.send, core[leaving], core[leaving ^ mask], size)
        holder[leaving] = False
        first = np.minimum(first, first[index ^ mask])


def allreduce_recursive_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Exchange of whole messages over distances 1, 2, 4, ...; the excess over a power of two is folded."""
    excess, core = _core(call.num_participants, keep_odd=True)
    pairs = np.arange(0, 2 * excess, 2)
    builder.send(pairs, pairs + 1, call.send_bytes)
    index = np.arange(len(core))
    for mask in _powers_of_two(len(core)):
        builder.exchange(core, core[index ^ mask], call.send_bytes)
    builder.send(pairs + 1, pairs, call.send_bytes)


def allreduce_rabenseifner(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Recursive halving, then doubling of the results (allreduce_intra_reduce_scatter_allgather.c)."""
    excess, core = _core(call.num_participants, keep_odd=True)
    pairs = np.arange(0, 2 * excess, 2)
    builder.send(pairs, pairs + 1, call.send_bytes)
    offsets = _offsets(_even_split(call, len(core)))
    masks = list(_powers_of_two(len(core)))
    first = _recursive_halving(builder, core, offsets, masks)
    index = np.arange(len(core))
    for width, mask in zip(masks, reversed(masks), strict=True):
        _send_filled(builder.exchange, core, core[index ^ mask], offsets[first + width] - offsets[first])
        first = np.minimum(first, first[index ^ mask])
    builder.send(pairs + 1, pairs, call.send_bytes)


def reduce_scatter_recursive_halving(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Halves from the farthest partner on; the odd of a folded pair computes and returns the even's block."""
    blocks = call.block_bytes
    excess, core = _core(call.num_participants, keep_odd=True)
    pairs = np.arange(0, 2 * excess, 2)
    builder.send(pairs, pairs + 1, blocks.sum())
    core_blocks = blocks[core]
    core_blocks[:excess] += blocks[pairs]
    _recursive_halving(builder, core, _offsets(core_blocks), list(_powers_of_two(len(core)))[::-1])
    _send_filled(builder.send, pairs + 1, pairs, blocks[pairs])


def reduce_scatter_pairwise(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n - 1 exchanges, each participant sending the block of the one 1, 2, ... further on."""
    n = call.num_participants
    rank = np.arange(n)
    for distance in range(1, n):
        peer = (rank + distance) % n
        builder.exchange(rank, peer, call.block_bytes[peer])


def reduce_scatter_recursive_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """In each round all blocks but those of the own subtree (SMPI reduce_scatter-mpich.cpp, mpich_rdb)."""
    n = call.num_participants
    offsets = _offsets(call.block_bytes)

    def without(first: Ranks, width: int) -> Sizes:
        within: Sizes = offsets[np.minimum(first + width, n)] - offsets[np.minimum(first, n)]
        return offsets[-1:] - within

    _recursive_doubling(builder, np.arange(n), without, lambda first, width: without(first + width, width))


def scan_recursive_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Whole messages between partners at distance 1, 2, 4, ... as far as they exist (scan and exscan)."""
    rank = np.arange(call.num_participants)
    for mask in _powers_of_two(len(rank)):
        present = rank[(rank ^ mask) < len(rank)]
        builder.exchange(present, present ^ mask, call.send_bytes)


def gather_binomial(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Up a binomial tree; each passes on the blocks of its whole subtree."""
    n, root = call.num_participants, call.root
    for mask, parent, child in _binomial_tree(n):
        subtree = np.minimum(mask, n - child)
        builder.send((child + root) % n, (parent + root) % n, subtree * call.send_bytes)


def scatter_binomial(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Down a binomial tree; each gets the blocks of its whole subtree."""
    n, root = call.num_participants, call.root
    for mask, parent, child in reversed(list(_binomial_tree(n))):
        subtree = np.minimum(mask, n - child)
        builder.send((parent + root) % n, (child + root) % n, subtree * call.send_bytes)


def allgather_recursive_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """ceil(log2 n) exchanges of all that is known; more for those whose partner does not exist."""
    _recursive_doubling_allgather(builder, np.arange(call.num_participants), call.block_bytes)


def allgather_bruck(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """ceil(log2 n) rounds: all that is known (at last, what is missing) to the one 1, 2, 4, ... below."""
    n = call.num_participants
    rank = np.arange(n)
    offsets = _offsets(np.tile(call.block_bytes, 2))
    for distance in _powers_of_two(n):
        width = min(distance, n - distance)
        builder.exchange(rank, (rank - distance) % n, offsets[rank + width] - offsets[rank])


def allgather_ring(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n - 1 rounds, each passing on the block it got last (allgatherv_intra_ring.c).

    Blocks longer than both 32 KiB and the shortest block go in pieces.
    """
    blocks, element = call.block_bytes, call.element_bytes
    limit = max(int(blocks.min()), MPICH_PIPELINE_BYTES // element * element, element)
    _ring(builder, np.arange(call.num_participants), blocks, limit, skip_empty=True)


def alltoall_bruck(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Round of bit k: all blocks whose distance has that bit, to the one 2**k further on.

    MPICH alltoall_intra_brucks.c; SMPI alltoall-bruck.cpp, whose other sendrecv calls are local copies.
    """
    n = call.num_participants
    rank = np.arange(n)
    for bit in _powers_of_two(n):
        num_blocks = int(np.count_nonzero(rank & bit))
        builder.exchange(rank, (rank + bit) % n, num_blocks * call.send_bytes)


def alltoall_pairwise(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """n - 1 exchanges: partner rank XOR i for a power of two, else to rank + i and from rank - i.

    MPICH alltoall_intra_pairwise.c, SMPI alltoall-pair.cpp (which refuses other than powers of two).
    """
    n = call.num_participants
    rank = np.arange(n)
    for i in range(1, n):
        peer = rank ^ i if n & (n - 1) == 0 else (rank + i) % n
        builder.exchange(rank, peer, call.pair_bytes[rank, peer])


def _powers_of_two(n: int) -> Iterator[int]:
    """1, 2, 4, ... below n."""
    power = 1
    while power < n:
        yield power
        power *= 2


def _offsets(sizes: Sizes) -> Sizes:
    """(len + 1,) running sum of sizes, from 0."""
    return np.concatenate([[0], np.cumsum(sizes)])


def _send_filled(
    operation: Callable[[Ranks, Ranks, Sizes], object], source: Ranks, destination: Ranks, size: Sizes
) -> None:
    """Apply `builder.send` or `builder.exchange` to the messages that are not empty."""
    filled = size > 0
    operation(source[filled], destination[filled], size[filled])


def _binomial_tree(n: int) -> Iterator[tuple[int, Ranks, Ranks]]:
    """Levels (mask, parents, children), leaves first; a child's subtree is [child, min(child + mask, n))."""
    for mask in _powers_of_two(n):
        parent = np.arange(0, n - mask, 2 * mask)
        yield mask, parent, parent + mask


def _core(n: int, keep_odd: bool) -> tuple[int, Ranks]:
    """Excess over a power of two; the participants left when the first 2 x excess fold in pairs."""
    size = 1 << (n.bit_length() - 1)
    excess = n - size
    index = np.arange(size)
    return excess, np.where(index < excess, 2 * index + keep_odd, index + excess)


def _even_split(call: CollectiveCall, parts: int) -> Sizes:
    """Sizes of `parts` blocks of whole elements that make up the message; the first few get the remainder."""
    elements = -(-call.send_bytes // call.element_bytes)
    return (elements // parts + (np.arange(parts) < elements % parts)) * call.element_bytes


def _recursive_halving(builder: ScheduleBuilder, core: Ranks, offsets: Sizes, masks: list[int]) -> Ranks:
    """In the round of each mask, partners split their common range; returns the block that each ends with.

    Who has the mask's bit keeps the upper half and sends the lower one. offsets (len(core) + 1,) in bytes.
    """
    index = np.arange(len(core))
    first, width = np.zeros(len(core), np.int64), len(core)
    for mask in masks:
        width //= 2
        upper = (index & mask) != 0
        given = first + np.where(upper, 0, width)
        _send_filled(builder.exchange, core, core[index ^ mask], offsets[given + width] - offsets[given])
        first = first + np.where(upper, width, 0)
    return first


def _recursive_doubling(
    builder: ScheduleBuilder,
    label: Ranks,
    own: Callable[[Ranks, int], Sizes],
    missing: Callable[[Ranks, int], Sizes],
) -> None:
    """Partners over distance 1, 2, 4, ... exchange own(first of the subtree, its width) bytes.

    Where the partner subtree is incomplete, those who found a partner pass what they got, missing(...) bytes,
    down their own subtree to those who did not (allgather_intra_recursive_doubling.c). label (n,): the
    participant of each index.
    """
    n = len(label)
    index = np.arange(n)
    for mask in _powers_of_two(n):
        tree = index & -mask
        here = index[(index ^ mask) < n]
        builder.exchange(label[here], label[here ^ mask], own(tree[here], mask))
        num_served = n - tree - mask  # of the lower subtree, how many found a partner
        for half in reversed(list(_powers_of_two(mask))):
            branch = index & -(2 * half)
            sends = (tree & mask == 0) & (index & half == 0) & (num_served > 0)
            sends &= (index < branch + num_served) & (index + half >= branch + num_served)
            sender = index[sends]
            builder.send(label[sender], label[sender + half], missing(tree[sender], mask))


def _recursive_doubling_allgather(builder: ScheduleBuilder, label: Ranks, blocks: Sizes) -> None:
    """Blocks (n,) in bytes of the participants in `label`, known to all at the end."""
    n = len(label)
    offsets = _offsets(blocks)

    def within(first: Ranks, width: int) -> Sizes:
        return offsets[np.minimum(first + width, n)] - offsets[np.minimum(first, n)]

    _recursive_doubling(builder, label, within, lambda first, width: within(first + width, width))


def _scatter_pieces(builder: ScheduleBuilder, call: CollectiveCall) -> Sizes:
    """Binomial scatter of a broadcast's message; returns the piece (n,) of each, counted from the root.

    Pieces are rounded up, so the last may be short or empty; empty subtrees get no message (bcast_utils.c).
    """
    n, root = call.num_participants, call.root
    piece = -(-call.send_bytes // n)
    pieces = np.clip(call.send_bytes - piece * np.arange(n), 0, piece)
    offsets = _offsets(pieces)
    for mask, parent, child in reversed(list(_binomial_tree(n))):
        size = offsets[np.minimum(child + mask, n)] - offsets[child]
        _send_filled(builder.send, (parent + root) % n, (child + root) % n, size)
    return pieces


def _ring(builder: ScheduleBuilder, label: Ranks, blocks: Sizes, piece_limit: int, skip_empty: bool) -> None:
    """Index i passes on blocks i, i - 1, ... (all but its successor's), in pieces up to piece_limit bytes.

    A round sends one piece and receives one. All walk one cyclic list of pieces, each from its own block on.
    """
    n = len(label)
    successor = np.roll(np.arange(n), -1)
    descending = blocks[::-1]
    num_pieces = np.maximum(-(-descending // piece_limit), 1)
    ends = np.cumsum(num_pieces)
    pieces = np.full(ends[-1], piece_limit, np.int64)
    pieces[ends - 1] = descending - (num_pieces - 1) * piece_limit
    start = (ends - num_pieces)[::-1]
    num_rounds = len(pieces) - num_pieces[::-1][successor]
    for i in range(int(num_rounds.max())):
        size = pieces[(start + i) % len(pieces)]
        active = (i < num_rounds) & ((size > 0) | (not skip_empty))
        builder.exchange(label[active], label[successor[active]], size[active])
