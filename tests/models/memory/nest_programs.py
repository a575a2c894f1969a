"""Loop nests run as plainly as possible, to be recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from manyscale.models.memory.access_stream import Sites

Affine = Callable[[int, list[int]], int]  # of the input and the counters of the loops around, outermost first


@dataclass
class Block:
    """``addresses``: one function per access."""

    block: int
    addresses: list[Affine] = field(default_factory=list)


@dataclass
class Loop:
    trip: Affine
    body: list[Block | Loop]


def run(body: list[Block | Loop], x: int) -> tuple[int, np.ndarray, np.ndarray]:
    """(x, block ids, addresses): the trace at input x."""
    block_ids: list[int] = []
    addresses: list[int] = []

    def visit(nodes: list[Block | Loop], counters: list[int]) -> None:
        for node in nodes:
            if isinstance(node, Block):
                block_ids.append(node.block)
                addresses.extend(address(x, counters) for address in node.addresses)
            else:
                for counter in range(node.trip(x, counters)):
                    visit(node.body, [*counters, counter])

    visit(body, [])
    return x, np.array(block_ids, np.int32), np.array(addresses, np.uint64)


def sites_of(body: list[Block | Loop]) -> Sites:
    """All accesses are loads of 8 B. Blocks are numbered from 0 without gaps."""
    counts: dict[int, int] = {}

    def visit(nodes: list[Block | Loop]) -> None:
        for node in nodes:
            if isinstance(node, Block):
                counts[node.block] = len(node.addresses)
            else:
                visit(node.body)

    visit(body)
    sizes = [counts[block] for block in range(len(counts))]
    block = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    return Sites(block, np.zeros(len(block), bool), np.full(len(block), 8, np.int32), bounds)


P, Q, R = 0x10000000, 0x20000000, 0x30000040


def matrix_multiply() -> list[Block | Loop]:
    """R += P Q of x by x doubles, rows x doubles apart; R begins 64 B into a page. 2 x^3 + x^2 accesses."""
    inner = Block(2, [lambda x, c: P + 8 * (x * c[0] + c[2]), lambda x, c: Q + 8 * (x * c[2] + c[1])])
    after = Block(3, [lambda x, c: R + 8 * (x * c[0] + c[1])])
    columns = Loop(lambda x, c: x, [Block(1), Loop(lambda x, c: x, [inner]), after])
    return [Block(0), Loop(lambda x, c: x, [Block(4), columns]), Block(5)]


def factorisation() -> list[Block | Loop]:
    """Triangular loops, as LU: for k < x - 1, for i < x - 1 - k, for j < x - 1 - k."""

    def at(row: int, column: int) -> Affine:
        """Element (k or k + 1 + i, k or k + 1 + j)."""
        return lambda x, c: P + 8 * (x * (c[0] + (row and 1 + c[1])) + c[0] + (column and 1 + c[2]))

    inner = Block(2, [at(1, 1), at(0, 1), at(1, 1)])
    rows = Loop(lambda x, c: x - 1 - c[0], [Block(1, [at(1, 0), at(0, 0)]), Loop(lambda x, c: x - 1 - c[0], [inner])])
    return [Loop(lambda x, c: x - 1, [Block(0), rows]), Block(3)]
