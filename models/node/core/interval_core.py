"""A core with its caches that simulates intervals of one thread's stream: in detail, or functionally to warm up.

The detailed model of a node (detailed.py) for one core without a runtime system. Between intervals caches, prefetchers,
DRAM and branch predictor stay as they are; the reorder buffer is empty at the begin of each part that does not follow
the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import needed
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.node.core.code import kept_core_code
from manyscale.models.node.core.interval_kernel import BlockAccesses, fill, follow, run_to_marks, warm
from manyscale.models.node.core.kernel import Request, begin_piece, new_cores, part_names, stream_of
from manyscale.models.node.memory.system import new_memory_system
from manyscale.models.workload import Workload


@dataclass(frozen=True)
class Measured:
    """What a core did between two marks. ``cycles``; ``stack`` float64[parts] in cycles, which sum to them; ``counts``
    int64[levels + 2, 4] as in node/memory/system.py."""

    cycles: float
    stack: np.ndarray
    counts: np.ndarray


class IntervalCore:
    """Core 0 of ``node``, alone on it, with empty caches. ``workload``: the static tables of the detailed level.
    Raises ValueError where the node lacks a parameter."""

    def __init__(self, workload: Workload, node: Node, request: Request = "insertion") -> None:
        code, self.notes = kept_core_code(workload, needed(node.core, "node.core"))
        self._memory = new_memory_system(node, 1)
        nothing = stream_of(np.zeros(0, np.int32), np.zeros(0, np.uint64))
        self._cores = new_cores(node, 1, code, nothing, request)
        sites = sites_of(workload)
        self._accesses = BlockAccesses(sites.offsets, sites.bytes, sites.is_store)
        self.parts = part_names(node)
        self._cycle = 0.0
        self._position = -1  # execution of the stream that follows what was executed last
        self._block_before = -1
        self._goes_on = False  # whether the reorder buffer holds what was executed last

    def fill(self, used: np.ndarray) -> None:
        """Caches see lines in the order of their last use, as memory/distances/last_uses.py has them; prefetchers do
        not."""
        streams = self._memory.level["streams"].copy()
        self._memory.level["streams"] = 0
        fill(self._memory, used)
        self._memory.level["streams"] = streams

    def warm(self, position: int, block_ids: np.ndarray, addresses: np.ndarray) -> None:
        """Caches, prefetchers and branch predictor see what the stream executes from ``position`` on."""
        before = self._block_before if position == self._position else -1
        cores = self._cores._replace(stream=stream_of(block_ids, addresses))
        warm(cores, self._memory, self._accesses, before)
        self._ends_with(position, block_ids, goes_on=False)

    def run(self, position: int, block_ids: np.ndarray, addresses: np.ndarray, marks: np.ndarray) -> list[Measured]:
        """Executes what the stream has from ``position`` up to ``marks[-1]``, and what was measured between each two of
        ``marks`` (int64[], executions of the stream, ascending). ``block_ids`` may hold what follows, which the branch
        predictor is right or wrong about. O(executions + accesses)."""
        core = self._cores.core[0]
        if position == self._position and self._goes_on:
            core["execution"], core["end_execution"], core["access"] = 0, len(block_ids), 0
        else:
            if position == self._position and self._block_before >= 0:
                follow(self._cores, self._block_before, int(block_ids[0]))
            begin_piece(self._cores, 0, 0, len(block_ids), 0, 0, 0, np.float64(np.ceil(self._cycle)))
        parts = len(self.parts)
        cycle, stack = np.zeros(len(marks)), np.zeros((len(marks), parts))
        counts = np.zeros((len(marks), *self._memory.counts.shape[1:]), np.int64)
        cores = self._cores._replace(stream=stream_of(block_ids, addresses))
        run_to_marks(cores, self._memory, marks - position, cycle, stack, counts)
        self._cycle = float(cycle[-1])
        self._ends_with(position, block_ids[: int(marks[-1]) - position], goes_on=True)
        stack[:, 0] = cycle - stack[:, 1:].sum(axis=1)
        return [
            Measured(float(cycle[k + 1] - cycle[k]), stack[k + 1] - stack[k], counts[k + 1] - counts[k])
            for k in range(len(marks) - 1)
        ]

    def _ends_with(self, position: int, block_ids: np.ndarray, *, goes_on: bool) -> None:
        self._position, self._goes_on = position + len(block_ids), goes_on
        if len(block_ids):
            self._block_before = int(block_ids[-1])
