"""Broadcast and reduction along trees, in segments that follow one another down or up the tree.

After Open MPI's ompi/mca/coll/base (4.1): coll_base_topo.c for the trees, ompi_coll_base_bcast_intra_generic,
ompi_coll_base_reduce_generic and bcast_intra_split_bintree for the order of the posts. A message goes in segments of
``call.segment_bytes`` (rounded to whole elements), or as a whole where that is 0 or not less than the message.

Participants are counted from the root here: index 0 is the root, index i participant (root + i) mod n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.schedules import ScheduleBuilder

Ranks = NDArray[np.int64]
Sizes = NDArray[np.int64]

KNOMIAL_RADIX = 4  # coll_tuned_bcast_knomial_radix


@dataclass(frozen=True)
class Tree:
    """Edges from ``parent`` to ``child``, int64 (n - 1,); the children of one parent in the order in which it serves
    them. ``position``: how many children of the same parent come before."""

    parent: Ranks
    child: Ranks
    position: Ranks

    @classmethod
    def of(cls, parent: Ranks, child: Ranks) -> Tree:
        order = np.argsort(parent, kind="stable")
        ordered = parent[order]
        position = np.empty(len(parent), np.int64)
        position[order] = np.arange(len(parent)) - np.searchsorted(ordered, ordered)
        return cls(parent, child, position)

    @property
    def into_inner(self) -> NDArray[np.bool_]:
        """(n - 1,) whether the child of an edge has children itself."""
        return np.isin(self.child, self.parent)

    @property
    def is_last(self) -> NDArray[np.bool_]:
        """(n - 1,) whether the child of an edge is its parent's last."""
        num_children = np.bincount(self.parent, minlength=len(self.parent) + 1)
        return self.position == num_children[self.parent] - 1


def chain(n: int) -> Tree:
    """0, 1, 2, ... one after another (a chain of fan-out 1, Open MPI's pipeline)."""
    return Tree.of(np.arange(n - 1), np.arange(1, n))


def binary(n: int) -> Tree:
    """Index i on level k has the children i + 2**k and i + 2**(k + 1)."""
    child = np.arange(1, n)
    half_width = 1 << (_highest_bit(child + 1) - 1)  # of the child's level
    is_second = child >= 3 * half_width - 1
    return Tree.of(child - half_width * (1 + is_second), child)


def binomial_ascending(n: int) -> Tree:
    """The parent lacks the child's highest bit; children at distance 1, 2, 4, ... in this order."""
    child = np.arange(1, n)
    return Tree.of(child - (1 << _highest_bit(child)), child)


def binomial_in_order(n: int) -> Tree:
    """The parent lacks the child's lowest bit, so that subtrees are contiguous; the nearest child first."""
    child = np.arange(1, n)
    return Tree.of(child - (child & -child), child)


def knomial(n: int) -> Tree:
    """The parent lacks the child's lowest digit in base KNOMIAL_RADIX; the farthest group of children first."""
    child = np.arange(1, n)
    unit = np.ones(n - 1, np.int64)
    while (shifts := child % (unit * KNOMIAL_RADIX) == 0).any():
        unit[shifts] *= KNOMIAL_RADIX
    order = np.lexsort((child, -unit))
    child, unit = child[order], unit[order]
    return Tree.of(child - child % (unit * KNOMIAL_RADIX), child)


def binary_in_order(n: int) -> Tree:
    """Of a range of indices the last is the root, with the halves of the rest as subtrees (reductions that do not
    commute); the root of all is n - 1."""
    parent, child = [], []
    ranges = [(0, n)]
    while ranges:
        first, size = ranges.pop()
        root, right = first + size - 1, size // 2
        if size > 1:
            parent.append(root)
            child.append(root - 1)
        if size > 2:
            parent.append(root)
            child.append(first + right - 1)
            ranges += [(first, right), (first + right, size - right - 1)]
    return Tree.of(np.array(parent, np.int64), np.array(child, np.int64))


def bcast(tree: Callable[[int], Tree]) -> Callable[[ScheduleBuilder, CollectiveCall], None]:
    """The broadcast down a tree. Each posts the receive of the next segment, waits for the one before, and sends it to
    all children at once."""

    def algorithm(builder: ScheduleBuilder, call: CollectiveCall) -> None:
        edges = tree(call.num_participants)
        parent, child = _shifted(call, edges.parent), _shifted(call, edges.child)
        segments = [builder.messages(parent, child, size) for size in segment_sizes(call, call.send_bytes)]
        builder.post_receives(segments[0])
        for index, messages in enumerate(segments):
            if index + 1 < len(segments):
                builder.post_receives(segments[index + 1])
            builder.wait_receives(messages)
            builder.post_sends(messages)
            builder.wait_sends(messages)

    return algorithm


def reduce(tree: Callable[[int], Tree]) -> Callable[[ScheduleBuilder, CollectiveCall], None]:
    """The reduction up a tree: of two receives under way at any time, and the sends blocking."""

    def algorithm(builder: ScheduleBuilder, call: CollectiveCall) -> None:
        _reduce(builder, call, tree(call.num_participants), call.root)

    return algorithm


def reduce_in_order_binary(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """The reduction to the last participant up a tree that keeps the order of the operands, then on to the root."""
    n, last = call.num_participants, call.num_participants - 1
    _reduce(builder, call, binary_in_order(n), 0)
    if call.root != last:
        builder.send(last, call.root, call.send_bytes)


def _reduce(builder: ScheduleBuilder, call: CollectiveCall, tree: Tree, shift: int) -> None:
    """Reduce to index 0 or, for a tree with another root, to that; ``shift`` is the participant of index 0."""
    n = call.num_participants
    parent, child = (tree.parent + shift) % n, (tree.child + shift) % n
    inner, is_last = tree.into_inner, tree.is_last
    segments = [builder.messages(child, parent, size) for size in segment_sizes(call, call.send_bytes)]
    for messages in segments:
        _send_blocking(builder, messages[~inner])
    previous = None
    for messages in segments:
        builder.post_receives(messages[tree.position == 0])
        if previous is not None:
            builder.wait_receives(previous[is_last])
            _send_blocking(builder, previous[inner])
        for position in range(1, int(tree.position.max()) + 1):
            builder.post_receives(messages[tree.position == position])
            builder.wait_receives(messages[(tree.position == position - 1) & ~is_last])
        previous = messages
    builder.wait_receives(segments[-1][is_last])
    _send_blocking(builder, segments[-1][inner])


def bcast_split_binary(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Half of the message down each side of a binary tree, then pairs of the two sides exchange their halves.

    A message too short for two halves of a segment goes down a chain.
    """
    n = call.num_participants
    elements = -(-call.send_bytes // call.element_bytes)
    halves = [(elements - elements // 2) * call.element_bytes, elements // 2 * call.element_bytes]
    if halves[1] == 0 or call.segment_bytes > halves[1]:
        bcast(chain)(builder, call)
        return
    step = max(call.segment_bytes // call.element_bytes, 1) * call.element_bytes if call.segment_bytes else halves[0]
    tree = binary(n)
    parent, child = _shifted(call, tree.parent), _shifted(call, tree.child)
    side = (tree.child + 1) % 2  # 0: the root's first child is above
    counts = np.array(halves)[side]
    sizes = [np.clip(counts - start, 0, step) for start in range(0, halves[0], step)]
    segments = [builder.messages(parent, child, size)[size > 0] for size in sizes]
    inner = [tree.into_inner[size > 0] for size in sizes]
    position = [tree.position[size > 0] for size in sizes]
    builder.post_receives(segments[0][inner[0]])
    for index, messages in enumerate(segments):
        if index + 1 < len(segments):
            builder.post_receives(segments[index + 1][inner[index + 1]])
        builder.wait_receives(messages[inner[index]])
        builder.post_receives(messages[~inner[index]])
        builder.wait_receives(messages[~inner[index]])
        _send_blocking(builder, messages[position[index] == 0])
        _send_blocking(builder, messages[position[index] == 1])
    left = np.arange(1, n - 1, 2)
    pair = np.stack([left, left + 1], axis=1)
    builder.exchange(_shifted(call, pair), _shifted(call, pair[:, ::-1]), np.array(halves))
    if n % 2 == 0:
        builder.send(call.root, (call.root + n - 1) % n, halves[1])


def segment_sizes(call: CollectiveCall, size: int) -> list[int]:
    """Bytes of each segment of a message of ``size`` bytes (COLL_BASE_COMPUTED_SEGCOUNT); at least one segment."""
    segment, element = call.segment_bytes, call.element_bytes
    if not element <= segment < size:
        return [size]
    count = segment // element
    if segment - count * element > element // 2:
        count += 1
    step = count * element
    return [min(step, size - start) for start in range(0, size, step)]


def _send_blocking(builder: ScheduleBuilder, messages: NDArray[np.int32]) -> None:
    """Blocking sends, at most one per participant."""
    builder.post_sends(messages)
    builder.wait_sends(messages)


def _shifted(call: CollectiveCall, index: Ranks) -> Ranks:
    return (index + call.root) % call.num_participants


def _highest_bit(values: Ranks) -> Ranks:
    return np.array([int(value).bit_length() - 1 for value in values], np.int64)
