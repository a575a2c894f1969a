"""Intervals of a traced stream of basic blocks, cut while it passes: what each executes, and where it begins.

As gem5 and Valgrind's exp-bbv cut a running program: an interval ends with the block execution by which the stream has
executed the next multiple of so many instructions, so what one interval has too much the next has too little, and
interval k lies at k times the length. The last one, which no multiple ends, is shorter and kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.kernels import njit
from manyscale.sampling.vectors import Vectors


@dataclass(frozen=True)
class TracedIntervals:
    """``bounds`` int64[n + 1]: interval i is block executions [bounds[i], bounds[i + 1]) of the stream.
    ``instructions`` int64[n]; ``vectors``: of each interval the executions of its blocks times their instructions,
    ascending by block."""

    bounds: np.ndarray
    instructions: np.ndarray
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.instructions)


class IntervalCutter:
    """Cuts a stream that is fed in pieces, into intervals of ``every`` instructions.

    ``block_instructions`` int[blocks]: of each block. Raises ValueError for blocks of no known size and a length below
    1. State and result follow the blocks and the pairs of interval and block, not the stream.
    """

    def __init__(self, block_instructions: np.ndarray, every: int) -> None:
        if every < 1:
            raise ValueError(f"intervals of {every} instructions: at least one is needed")
        self._size = np.ascontiguousarray(block_instructions, np.int64)
        if np.any(self._size < 0):
            raise ValueError(
                "the trace does not say how many instructions its blocks have; trace with --counting, or --route qemu"
            )
        self._every = every
        self._executions = np.zeros(len(self._size), np.int64)
        self._touched = np.zeros(len(self._size), np.int32)
        self._position = np.zeros(4, np.int64)
        self._ends = [np.zeros(1, np.int64)]
        self._totals = [np.zeros(1, np.int64)]
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self._sizes: list[np.ndarray] = []

    def feed(self, block_ids: np.ndarray) -> None:
        """The next executions, int32[]. O(executions)."""
        # the kernel would be compiled once more for what is read-only
        self._cut(np.require(block_ids, np.int32, ["C", "W"]), False)

    def intervals(self) -> TracedIntervals:
        """All of them; nothing more can be fed. O(pairs log(pairs of an interval))."""
        self._cut(np.zeros(0, np.int32), True)
        bounds, totals = np.concatenate(self._ends), np.concatenate(self._totals)
        block = np.concatenate([pair[0] for pair in self._pairs])
        count = np.concatenate([pair[1] for pair in self._pairs])
        first = np.append(0, np.cumsum(np.concatenate(self._sizes)))
        order = np.lexsort((block, np.repeat(np.arange(len(first) - 1), np.diff(first))))
        block, count = block[order].astype(np.int64), count[order].astype(np.float64)
        return TracedIntervals(bounds, np.diff(totals), Vectors(first, block, count))

    def _cut(self, block_ids: np.ndarray, is_last: bool) -> None:
        room = len(block_ids) + int(self._position[_TOUCHED])
        ends, totals, sizes = (np.empty(len(block_ids) + 1, np.int64) for _ in range(3))
        block, count = np.empty(room, np.int32), np.empty(room, np.int64)
        here = (self._executions, self._touched, self._position)
        num, pairs = _cut(block_ids, self._size, self._every, is_last, here, (ends, totals, sizes), (block, count))
        self._ends.append(ends[:num].copy())
        self._totals.append(totals[:num].copy())
        self._sizes.append(sizes[:num].copy())
        self._pairs.append((block[:pairs].copy(), count[:pairs].copy()))


_EXECUTED, _INSTRUCTIONS, _TOUCHED, _DONE = range(4)  # executions, instructions; blocks and executions of this interval


@njit(cache=True, nogil=True)
def _cut(block_ids, size, every, is_last, here, intervals, found):  # type: ignore[no-untyped-def]
    """Fills ends (in executions), totals (in instructions) and sizes (in pairs) of the ``intervals`` that end here, and
    their pairs, ``found``. ``here``: executions of each block in this interval, the blocks that were executed, and
    where the stream stands. Returns how many intervals and pairs. O(executions)."""
    executions, touched, position = here
    ends, totals, sizes = intervals
    block, count = found
    executed, instructions, num_touched, done = position
    num, pairs = 0, 0
    goal = (instructions // every + 1) * every
    for i in range(block_ids.shape[0] + 1):
        ends_here = False
        if i < block_ids.shape[0]:
            at = block_ids[i]
            if executions[at] == 0:
                touched[num_touched] = at
                num_touched += 1
            executions[at] += 1
            executed += 1
            done += 1
            instructions += size[at]
            ends_here = instructions >= goal
        elif is_last:
            ends_here = done > 0
        if ends_here:
            for k in range(num_touched):
                block[pairs] = touched[k]
                count[pairs] = executions[touched[k]] * size[touched[k]]
                executions[touched[k]] = 0
                pairs += 1
            ends[num], totals[num], sizes[num] = executed, instructions, num_touched
            num += 1
            num_touched = 0
            done = 0
            goal = (instructions // every + 1) * every
    position[0], position[1], position[2], position[3] = executed, instructions, num_touched, done
    return num, pairs
