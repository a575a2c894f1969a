"""The loops of a graph of basic blocks.

Loops are the strongly connected parts, each split again without the edges to its header (the block that ran first), as
compilers find them: Havlak, "Nesting of reducible and irreducible loops" (TOPLAS 1997).

Several ways back to one header may be ways through one loop (``continue``) or loops inside each other, of which the
inner begins at once (``do do ... while while``); the graph does not say which. Asked for the latter, the way back
through the fewest blocks makes the innermost loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True)
class Loop:
    """A loop of the graph of blocks. ``blocks`` int64[]: its own and those of ``children``, the loops inside. Where
    ``shares_header``, the first child has the same header: each iteration begins with that child."""

    header: int
    blocks: np.ndarray
    children: list[Loop]
    shares_header: bool = False


def loop_forest(token: np.ndarray, separator: int, shared_headers: bool) -> list[Loop]:
    """The loops of a sequence of blocks (``separator`` stands between traces). O(executions log + blocks^2)."""
    pairs = np.column_stack((token[:-1], token[1:]))
    edges = np.unique(pairs[(pairs != separator).all(axis=1)], axis=0)
    blocks, first = np.unique(token, return_index=True)
    first_run = np.full(separator + 1, len(token))
    first_run[blocks] = first
    return _loops_among(edges, first_run, shared_headers)


def _loops_among(edges: np.ndarray, first_run: np.ndarray, shared_headers: bool) -> list[Loop]:
    """Loops of a graph, by recursion into each without the edges to its header."""
    result = []
    for blocks, inside in _strong_parts(edges, len(first_run)):
        header = int(blocks[np.argmin(first_run[blocks])])
        inner = inside[inside[:, 1] != header]
        levels = _bodies(inside, header) if shared_headers else [blocks]
        loop: Loop | None = None
        for body in levels:
            new = body if loop is None else np.setdiff1d(body, loop.blocks)
            children = _loops_among(inner[np.isin(inner, new).all(axis=1)], first_run, shared_headers)
            loop = Loop(header, body, children if loop is None else [loop, *children], loop is not None)
        assert loop is not None
        result.append(loop)
    return result


def _strong_parts(edges: np.ndarray, num_nodes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The strongly connected parts that have edges: (nodes, edges) of each."""
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(num_nodes, num_nodes))
    _, part = connected_components(graph, connection="strong")
    is_inside = part[edges[:, 0]] == part[edges[:, 1]]
    labels = np.unique(part[edges[is_inside, 0]])
    return [(np.flatnonzero(part == k), edges[is_inside & (part[edges[:, 0]] == k)]) for k in labels]


def _bodies(edges: np.ndarray, header: int) -> list[np.ndarray]:
    """The blocks of the loops of one header, each with all of the loop before: one per way back to the header."""
    forward = edges[edges[:, 1] != header]
    bodies: list[set[int]] = []
    for latch in edges[edges[:, 1] == header, 0].tolist():
        body = {header, latch}
        waiting = [latch] if latch != header else []
        while waiting:
            found = set(forward[forward[:, 1] == waiting.pop(), 0].tolist()) - body
            body |= found
            waiting += found
        bodies.append(body)
    result: list[np.ndarray] = []
    whole: set[int] = set()
    for body in sorted(bodies, key=lambda one: (len(one), sorted(one))):
        if not body <= whole:
            whole = whole | body
            result.append(np.array(sorted(whole)))
    return result
