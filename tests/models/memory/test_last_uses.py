"""Last uses of lines, against the exact engine of stack distances and a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.memory.access_stream import Sites, accesses
from manyscale.models.memory.distances.last_uses import LastUses
from manyscale.models.memory.distances.stack_distance import StackDistances

# blocks of a load of 8 B, a store of 4 B, and both with 16 B
SITES = Sites(
    np.array([0, 1, 2, 2], np.int32), np.array([False, True, False, True]), np.array([8, 4, 16, 16], np.int32),
    np.array([0, 1, 2, 4]),
)  # fmt: skip


def stream(count: int, span: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    block_ids = random.integers(0, 3, count).astype(np.int32)
    number = int(np.diff(SITES.offsets)[block_ids].sum())
    return block_ids, random.integers(0, span, number).astype(np.uint64)


@pytest.mark.theory
@pytest.mark.parametrize("span", [4000, 40_000_000])  # of the second the table grows many times
@pytest.mark.parametrize("piece", [7, 5000, 60_000])
def test_lines_are_the_lru_stack(span: int, piece: int):
    block_ids, addresses = stream(60_000 if piece > 7 else 2000, span)
    ends = np.append(0, np.cumsum(np.diff(SITES.offsets)[block_ids]))
    uses, stack = LastUses(SITES, 64), StackDistances()
    for first in range(0, len(block_ids), piece):
        end = min(first + piece, len(block_ids))
        uses.feed(block_ids[first:end], addresses[ends[first] : ends[end]])
    found = accesses(block_ids, addresses, SITES, 64)
    stack.feed(found.unit)
    latest = uses.latest(1 << 40)
    assert np.array_equal(latest >> 1, stack.stack())
    written = set(found.unit[SITES.is_store[found.site]].tolist())
    assert (latest & 1).tolist() == [line in written for line in (latest >> 1).tolist()]
    assert np.array_equal(uses.latest(10), latest[-10:])


def test_nothing_was_used():
    assert LastUses(SITES, 64).latest(10).tolist() == []
