"""Warps of a trace in the order of the grid: arrays in, arrays out.

``warps`` int64[warps, 4] are block, warp in it, instructions, and requests to global and local memory, in the order of
``Columns``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyscale.runner.readers.stores.launch_store import Blocks
from manyscale.runner.readers.stores.operation_words import offsets


@dataclass(frozen=True)
class Columns:
    """What ``models.gpu.launch_trace.LaunchTrace`` has of instructions (the first three) and of requests."""

    instruction: np.ndarray
    active: np.ndarray
    accesses: np.ndarray
    sector: np.ndarray
    written: np.ndarray

    def taken(self, instructions: np.ndarray, requests: np.ndarray) -> Columns:
        """Those instructions and requests, in that order."""
        return Columns(
            self.instruction[instructions],
            self.active[instructions],
            self.accesses[instructions],
            self.sector[requests],
            self.written[requests],
        )


def gathered(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64[sum of lengths]: start, start + 1 and so on of each part, one after another."""
    ends = offsets(lengths)
    return np.repeat(starts - ends[:-1], lengths) + np.arange(ends[-1])


def by_warps(
    columns: Columns, owners: np.ndarray, requests: np.ndarray, warps_per_block: int
) -> tuple[Columns, np.ndarray]:
    """Instructions that stand in the order of their arrival, warp by warp: (columns, warps).

    ``owners`` int64[instructions]: the launch's warp that each is of; ``requests`` int64[instructions] of each.
    O(n log n).
    """
    order = np.argsort(owners, kind="stable")
    keys, first, sizes = np.unique(owners[order], return_index=True, return_counts=True)
    of_warps = offsets(requests[order])
    warps = np.empty((len(keys), 4), np.int64)
    warps[:, 0], warps[:, 1] = np.divmod(keys, warps_per_block)
    warps[:, 2] = sizes
    warps[:, 3] = of_warps[first + sizes] - of_warps[first]
    return columns.taken(order, gathered(offsets(requests)[order], requests[order])), warps


def sorted_warps(columns: Columns, warps: np.ndarray) -> tuple[Columns, np.ndarray]:
    """The same, in the order of the grid. O(n log n)."""
    order = np.lexsort((warps[:, 1], warps[:, 0]))
    instructions = gathered(offsets(warps[:, 2])[order], warps[order, 2])
    requests = gathered(offsets(warps[:, 3])[order], warps[order, 3])
    return columns.taken(instructions, requests), warps[order]


def in_batches(columns: Columns, warps: np.ndarray, max_instructions: int) -> Iterator[Blocks]:
    """Warps in the order of the grid as blocks, in batches of about so many instructions."""
    edges = np.flatnonzero(np.diff(warps[:, 0], prepend=-1, append=-1))
    of_instructions, of_requests = offsets(warps[:, 2]), offsets(warps[:, 3])
    ends = of_instructions[edges]
    first = 0
    while first < len(edges) - 1:
        end = max(first + 1, int(np.searchsorted(ends, ends[first] + max_instructions, "right")) - 1)
        low, high = int(edges[first]), int(edges[end])
        part = slice(int(of_instructions[low]), int(of_instructions[high]))
        requests = slice(int(of_requests[low]), int(of_requests[high]))
        yield Blocks(
            np.diff(edges[first : end + 1]),
            warps[low:high, 2],
            warps[low:high, 3],
            columns.instruction[part],
            columns.active[part],
            columns.accesses[part],
            columns.sector[requests],
            columns.written[requests],
        )
        first = end


class Progress:
    """Which blocks of the grid came, as long as they come in order."""

    def __init__(self, warps_per_block: int) -> None:
        self._warps_per_block = warps_per_block
        self.num_blocks = 0
        self.next_block = 0  # behind those that came
        self._first_gap = -1

    def continues(self, warps: np.ndarray) -> bool:
        """Whether warps stand in the order of the grid, behind those that came."""
        keys = warps[:, 0] * self._warps_per_block + warps[:, 1]
        is_behind = not len(keys) or int(warps[0, 0]) >= self.next_block
        return is_behind and bool(np.all(keys[1:] > keys[:-1]))

    def add(self, warps: np.ndarray) -> None:
        """Take in the blocks of warps that continue."""
        if not len(warps):
            return
        blocks = warps[np.flatnonzero(np.diff(warps[:, 0], prepend=-1)), 0]
        gaps = np.flatnonzero(np.diff(blocks, prepend=self.next_block - 1) > 1)
        if len(gaps) and self._first_gap < 0:
            self._first_gap = int(blocks[gaps[0] - 1]) + 1 if gaps[0] else self.next_block
        self.num_blocks += len(blocks)
        self.next_block = int(blocks[-1]) + 1

    @property
    def first_missing(self) -> int:
        """The first block that did not come."""
        return self._first_gap if self._first_gap >= 0 else self.next_block


def twice(warps: np.ndarray, warps_per_block: int) -> tuple[int, int] | None:
    """(block, warp) that stands there twice, or None. O(n log n)."""
    keys = np.sort(warps[:, 0] * warps_per_block + warps[:, 1])
    found = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(found):
        return None
    block, warp = divmod(int(keys[found[0]]), warps_per_block)
    return block, warp
