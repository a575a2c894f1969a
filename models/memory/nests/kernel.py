"""Runs a loop nest: block executions and addresses, piece by piece.

An interpreter over the nodes of a nest (``loop_nests.Nest``). Innermost loops, which hold blocks only, are not
interpreted: each of their references is written with one addition per access.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import njit

CHUNK_ACCESSES: Final = 2048  # of an innermost loop, written reference by reference: they stay in the nearest cache

# Places in ``state``.
SEGMENT, NODE, DEPTH = range(3)


class NestTables(NamedTuple):
    """``nodes`` int32[nodes, 4]: block or -1, node after it, loop number or -1, whether it is an innermost loop.
    ``first_reference`` int64[nodes + 1]. ``trips`` int64[loops, 1 + depth] and ``references`` int64[references, 1 +
    depth]: a constant, then a coefficient per loop around it."""

    nodes: np.ndarray
    first_reference: np.ndarray
    trips: np.ndarray
    references: np.ndarray


class Place(NamedTuple):
    """Where a run stands: ``state`` int64[3], at the beginning (-1, 0, 0); of each loop that it is in, its node
    (``stack``), iteration (``counter``) and the iterations that it ends with (``limit``), int64[depth]."""

    state: np.ndarray
    stack: np.ndarray
    counter: np.ndarray
    limit: np.ndarray


@njit(cache=True, nogil=True)
def run_nest(segments, nest, place, block_ids, addresses):  # type: ignore[no-untyped-def]
    """Fills ``block_ids`` int32[] and ``addresses`` int64[] as far as they reach; returns how many of each were filled,
    both 0 at the end (provided that an execution of any block, or an iteration of any innermost loop, fits in).

    ``segments`` int64[s, 4]: outermost nodes in order: node, node after it, and, of a loop, the iterations [first, end)
    to run. O(accesses + executions + iterations, times depth).
    """
    nodes, first_reference, trips, references = nest
    state, stack, counter, limit = place
    num_blocks, num_addresses = 0, 0
    segment, node, depth = state[SEGMENT], state[NODE], state[DEPTH]
    while True:
        if depth == 0:
            if segment < 0 or node == segments[segment, 1]:
                if segment + 1 >= segments.shape[0]:
                    break
                segment += 1
                node = segments[segment, 0]
                if nodes[node, 0] < 0:
                    if segments[segment, 2] < segments[segment, 3]:
                        stack[0], counter[0], limit[0] = node, segments[segment, 2], segments[segment, 3]
                        depth = 1
                        node += 1
                    else:
                        node = nodes[node, 1]
                continue
        elif node == nodes[stack[depth - 1], 1]:
            counter[depth - 1] += 1
            if counter[depth - 1] < limit[depth - 1]:
                node = stack[depth - 1] + 1
            else:
                depth -= 1
            continue
        elif nodes[stack[depth - 1], 3] and node == stack[depth - 1] + 1:
            iterations = _run_innermost(nest, place, depth, block_ids[num_blocks:], addresses[num_addresses:])
            if iterations == 0:
                break
            after = nodes[stack[depth - 1], 1]
            num_blocks += iterations * (after - node)
            num_addresses += iterations * (first_reference[after] - first_reference[node])
            counter[depth - 1] += iterations
            if counter[depth - 1] == limit[depth - 1]:
                depth -= 1
                node = after
            continue
        if nodes[node, 0] >= 0:
            first, end = first_reference[node], first_reference[node + 1]
            if num_blocks == block_ids.shape[0] or num_addresses + end - first > addresses.shape[0]:
                break
            block_ids[num_blocks] = nodes[node, 0]
            num_blocks += 1
            for reference in range(first, end):
                addresses[num_addresses] = _affine(references[reference], counter, depth)
                num_addresses += 1
            node += 1
            continue
        trip = _affine(trips[nodes[node, 2]], counter, depth)
        if trip > 0:
            stack[depth], counter[depth], limit[depth] = node, 0, trip
            depth += 1
            node += 1
        else:
            node = nodes[node, 1]
    state[SEGMENT], state[NODE], state[DEPTH] = segment, node, depth
    return num_blocks, num_addresses


@njit(cache=True, nogil=True)
def _affine(coefficients, counter, depth):  # type: ignore[no-untyped-def]
    """O(depth)."""
    value = coefficients[0]
    for k in range(depth):
        value += coefficients[1 + k] * counter[k]
    return value


@njit(cache=True, nogil=True)
def _run_innermost(nest, place, depth, block_ids, addresses):  # type: ignore[no-untyped-def]
    """Runs iterations of a loop of blocks, as many as there is room for, at most a chunk; returns how many.
    O(accesses)."""
    nodes, first_reference, references, counter = nest.nodes, nest.first_reference, nest.references, place.counter
    loop, limit = place.stack[depth - 1], place.limit[depth - 1]
    first_node, end_node = loop + 1, nodes[loop, 1]
    first, end = first_reference[first_node], first_reference[end_node]
    num_nodes, num_references = end_node - first_node, end - first
    iterations = min(limit - counter[depth - 1], block_ids.shape[0] // num_nodes)
    iterations = min(iterations, max(1, CHUNK_ACCESSES // max(num_nodes, num_references)))
    if num_references:
        iterations = min(iterations, addresses.shape[0] // num_references)
    for k in range(num_nodes):
        for iteration in range(iterations):
            block_ids[iteration * num_nodes + k] = nodes[first_node + k, 0]
    for k in range(num_references):
        address = _affine(references[first + k], counter, depth)
        step = references[first + k, depth]
        for iteration in range(iterations):
            addresses[iteration * num_references + k] = address
            address += step
    return iterations
