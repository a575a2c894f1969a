"""Rings on a mesh of NVLinks: directed Hamiltonian cycles of a group of GPUs, none of which shares a link with another.

Each NVLink is a lane in each direction; a ring takes a lane of each hop. As many rings as fit are found by search with
a bound on its steps (NCCL's search is bounded, too: src/graph/search.cc). Where the links give no cycle, a hop may go
over a third GPU (NCCL's PATH_NVB), and takes a lane of both links; where that gives none, the group has no ring here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

_MOST_STEPS: Final = 20_000  # of each search
Ring = tuple[tuple[int, ...], ...]  # hops in turn, each its GPUs from one member to the next


def find_rings(lanes: np.ndarray, members: tuple[int, ...]) -> tuple[Ring, ...]:
    """As many rings as are found over ``members`` (at least two) of a mesh with int64[GPUs, GPUs] ``lanes``.

    O(search steps x members); no ring where NVLinks do not join the members.
    """
    if len(members) < 2:
        return ()
    inside = np.zeros_like(lanes)
    inside[np.ix_(members, members)] = lanes[np.ix_(members, members)]
    for most_hops in (1, 2):
        rings = _most_rings(inside, members, most_hops)
        if rings:
            return rings
    return ()


def lanes_used(rings: tuple[Ring, ...], num_gpus: int) -> np.ndarray:
    """int64[GPUs, GPUs]: how many rings go from each GPU to each other."""
    used = np.zeros((num_gpus, num_gpus), np.int64)
    for ring in rings:
        for hop in ring:
            for one, other in pairwise(hop):
                used[one, other] += 1
    return used


def _most_rings(lanes: np.ndarray, members: tuple[int, ...], most_hops: int) -> tuple[Ring, ...]:
    """The largest set of rings that a depth-first search finds: ring by ring on what the others leave."""
    free = lanes.copy()
    bound = int(min(free[list(members)].sum(axis=1).min(), free[:, list(members)].sum(axis=0).min()))
    best: list[Ring] = []
    steps = [_MOST_STEPS]

    def extend(taken: list[Ring]) -> bool:
        nonlocal best
        if len(taken) > len(best):
            best = list(taken)
        if len(best) == bound:
            return True
        for ring in _cycles(free, members, most_hops, steps):
            _take(free, ring, 1)
            taken.append(ring)
            if extend(taken):
                return True
            taken.pop()
            _take(free, ring, -1)
            if steps[0] <= 0:
                return True
        return False

    if bound:
        extend([])
    return tuple(best)


def _take(free: np.ndarray, ring: Ring, count: int) -> None:
    for hop in ring:
        for one, other in pairwise(hop):
            free[one, other] -= count


def _cycles(free: np.ndarray, members: tuple[int, ...], most_hops: int, steps: list[int]) -> Iterator[Ring]:
    """Hamiltonian cycles from the first member over lanes that are free, those over the widest links first."""
    start, count = members[0], len(members)
    hops: list[tuple[int, ...]] = []
    left = set(members) - {start}

    def ways(one: int, other: int) -> list[tuple[int, ...]]:
        if free[one, other] > 0:
            return [(one, other)]
        if most_hops == 1:
            return []
        between = [by for by in members if by not in (one, other) and free[one, by] > 0 and free[by, other] > 0]
        return [(one, by, other) for by in sorted(between, key=lambda by: -min(free[one, by], free[by, other]))]

    def walk(last: int) -> Iterator[Ring]:
        steps[0] -= 1
        if steps[0] <= 0:
            return
        if len(hops) == count - 1:
            for way in ways(last, start):
                yield (*hops, way)
            return
        for other in sorted(left, key=lambda other: (-int(free[last, other]), other)):
            for way in ways(last, other):
                _take(free, (way,), 1)
                hops.append(way)
                left.discard(other)
                yield from walk(other)
                left.add(other)
                hops.pop()
                _take(free, (way,), -1)

    for ring in walk(start):
        # the walk holds the lanes of all hops but the last while it waits; who takes the ring takes them itself
        _take(free, ring[:-1], -1)
        yield ring
        _take(free, ring[:-1], 1)
