"""A loop nest with all its numbers: exact counts, and its stream of block executions and addresses, whole or in
windows of outer iterations.

An *outer iteration* is one of an outermost loop; those of all outermost loops are numbered through in the order in
which they run. Blocks before an outermost loop belong to its first iteration, those after the last loop to its last. A
nest without loops is one outer iteration. Where outer iterations are few and long (time steps), ``unrolled`` makes
those of the loops inside the outer ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.memory.nests.kernel import NestTables, Place, run_nest
from manyscale.models.memory.nests.loop_nests import Nest

BATCH_ACCESSES: Final = 1 << 17  # fits the nearer caches and what the allocator keeps: twice as fast as 1 << 20


@dataclass(frozen=True)
class Window:
    """Outer iterations [``first``, ``end``) that stand for those in [``stratum_first``, ``stratum_end``); the strata of
    all windows divide the whole nest."""

    first: int
    end: int
    stratum_first: int
    stratum_end: int


@dataclass(frozen=True)
class NestInstance:
    """A nest at one input.

    ``trips`` int64[loops, 1 + depth]: the trip count of each loop, a constant and a coefficient per counter of a loop
    around it. ``first_reference`` int64[nodes + 1]: the references (accesses) of each node. ``references`` int64
    [references, 1 + depth]: the address of each, likewise. ``num_blocks``: blocks of the program.
    """

    nest: Nest
    trips: np.ndarray
    first_reference: np.ndarray
    references: np.ndarray
    num_blocks: int

    @cached_property
    def num_outer(self) -> int:
        """Outer iterations."""
        return max(1, int(self._outer_starts[-1]))

    @cached_property
    def _outer_nodes(self) -> np.ndarray:
        return np.flatnonzero(self.nest.depth == 0)

    @cached_property
    def _outer_starts(self) -> np.ndarray:
        """int64[outermost nodes + 1]: outer iterations before each."""
        loops = self.nest.loop[self._outer_nodes]
        iterations = np.where(loops >= 0, np.maximum(self.trips[loops, 0], 0) if len(self.trips) else 0, 0)
        return np.concatenate(([0], np.cumsum(iterations, dtype=np.int64)))

    def counts(self, first: int = 0, end: int | None = None) -> np.ndarray:
        """int64[blocks]: executions of every block in outer iterations [first, end).

        O(nodes), times the iterations of those loops whose counters are in others' trip counts.
        """
        executions = np.zeros(len(self.nest.block), np.int64)
        for node, after, first_iteration, end_iteration in self._segments(first, end).tolist():
            if self.nest.block[node] >= 0:
                executions[node] = 1
            else:
                iterations = np.arange(first_iteration, end_iteration)[:, np.newaxis]
                self._count_iterations(node, after, np.ones(len(iterations), np.int64), iterations, executions)
        is_block = self.nest.block >= 0
        result = np.zeros(self.num_blocks, np.int64)
        np.add.at(result, self.nest.block[is_block], executions[is_block])
        return result

    def num_accesses(self, first: int = 0, end: int | None = None) -> int:
        """Accesses in outer iterations [first, end). Cost: as ``counts``."""
        per_execution = np.zeros(self.num_blocks, np.int64)
        is_block = self.nest.block >= 0
        per_execution[self.nest.block[is_block]] = np.diff(self.first_reference)[is_block]
        return int(self.counts(first, end) @ per_execution)

    def generate(
        self, first: int = 0, end: int | None = None, max_accesses: int = BATCH_ACCESSES
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Outer iterations [first, end) as (block_ids int32[], addresses uint64[]), in batches.

        A batch holds whole executions of blocks: at most ``max_accesses`` accesses and as many executions (more only
        where one iteration of an innermost loop makes more). Memory: a batch. Raises ValueError unless 0 <= first <=
        end <= num_outer. O(accesses + executions).
        """
        segments = self._segments(first, end)
        nest = NestTables(self._node_table, self.first_reference, self.trips, self.references)
        room = max(max_accesses, self._largest_iteration)
        place = Place(np.array([-1, 0, 0], np.int64), *np.zeros((3, self.nest.max_depth + 1), np.int64))
        while True:
            block_ids, addresses = np.empty(room, np.int32), np.empty(room, np.int64)
            num_blocks, num_addresses = run_nest(segments, nest, place, block_ids, addresses)
            if num_blocks == 0:
                return
            yield block_ids[:num_blocks], addresses[:num_addresses].view(np.uint64)

    def windows(self, num_windows: int, num_iterations: int = 5, min_accesses: int = 0) -> list[Window]:
        """About ``num_windows`` windows, to be simulated instead of the whole.

        Each outermost loop has windows by its share of the accesses, at least one; its iterations are divided into as
        many strata of equal length, each with a window in its middle: of ``num_iterations``, or of as many as make
        about ``min_accesses`` (STREAM's outer iterations make two or three), or all. Caches want warming by some
        iterations before a window. Cost: as ``counts``.
        """
        if num_windows < 1 or num_iterations < 1:
            raise ValueError("at least one window of at least one outer iteration is needed")
        starts = np.unique(np.append(self._outer_starts[:-1], [0, self.num_outer])).tolist()
        total = self.num_accesses()
        result = []
        for begin, end in pairwise(starts):
            num_accesses = self.num_accesses(begin, end)
            strata = min(max(1, round(num_windows * num_accesses / max(total, 1))), end - begin)
            wanted = max(num_iterations, -(-min_accesses * (end - begin) // max(num_accesses, 1)))
            bounds = [begin + (end - begin) * k // strata for k in range(strata + 1)]
            for low, high in pairwise(bounds):
                length = min(wanted, high - low)
                first = low + (high - low - length) // 2
                result.append(Window(first, first + length, low, high))
        return result

    def unrolled(self, max_iterations: int) -> NestInstance:
        """The same executions and accesses, with every outermost loop of at most ``max_iterations`` iterations written
        out, once: its body becomes outermost. O(nodes + references, times the iterations written out)."""
        source, iteration = [], []
        for node in self._outer_nodes.tolist():
            loop, end = int(self.nest.loop[node]), int(self.nest.end[node])
            if loop < 0 or self.trips[loop, 0] > max_iterations:
                source.append(np.arange(node, end))
                iteration.append(np.full(end - node, -1))
            else:
                count = max(int(self.trips[loop, 0]), 0)
                source.append(np.tile(np.arange(node + 1, end), count))
                iteration.append(np.repeat(np.arange(count), end - node - 1))
        nodes, of_iteration = np.concatenate(source), np.concatenate(iteration)
        is_loop = self.nest.loop[nodes] >= 0
        nest = Nest(
            self.nest.block[nodes],
            (np.arange(len(nodes)) + self.nest.end[nodes] - nodes).astype(np.int32),
            (self.nest.depth[nodes] - (of_iteration >= 0)).astype(np.int32),
            np.where(is_loop, np.cumsum(is_loop) - 1, -1).astype(np.int32),
        )
        num_references = np.diff(self.first_reference)[nodes]
        first_reference = np.concatenate(([0], np.cumsum(num_references)))
        place = np.arange(first_reference[-1]) - np.repeat(first_reference[:-1], num_references)
        rows = np.repeat(self.first_reference[nodes], num_references) + place
        trips = _shifted(self.trips[self.nest.loop[nodes][is_loop]], of_iteration[is_loop])
        references = _shifted(self.references[rows], np.repeat(of_iteration, num_references))
        return NestInstance(nest, trips, first_reference, references, self.num_blocks)

    @cached_property
    def _node_table(self) -> np.ndarray:
        """int32[nodes, 4], as the kernel wants it."""
        nest = self.nest
        num_inner_loops = np.concatenate(([0], np.cumsum(nest.loop >= 0)))
        is_innermost = (nest.loop >= 0) & (num_inner_loops[nest.end] - num_inner_loops[:-1] == 1)
        return np.column_stack((nest.block, nest.end, nest.loop, is_innermost)).astype(np.int32)

    @cached_property
    def _largest_iteration(self) -> int:
        """What a batch must hold: executions or accesses of a block, or of a iteration of an innermost loop."""
        nodes = self._node_table
        is_whole = (nodes[:, 0] >= 0) | (nodes[:, 3] != 0)
        first, end = np.flatnonzero(is_whole), nodes[is_whole, 1]
        return int(max((end - first).max(initial=1), (self.first_reference[end] - self.first_reference[first]).max()))

    def _segments(self, first: int, end: int | None) -> np.ndarray:
        """int64[n, 4]: (node, node after it, first iteration, end of iterations) of the outermost nodes to run."""
        end = self.num_outer if end is None else end
        if not 0 <= first <= end <= self.num_outer:
            raise ValueError(f"outer iterations {first} to {end} are not within 0 to {self.num_outer}")
        nodes, starts = self._outer_nodes, self._outer_starts
        is_loop = self.nest.loop[nodes] >= 0
        low = np.clip(first, starts[:-1], starts[1:]) - starts[:-1]
        high = np.clip(end, starts[:-1], starts[1:]) - starts[:-1]
        place = np.minimum(starts[:-1], self.num_outer - 1)
        runs = np.where(is_loop, low < high, (first <= place) & (place < end))
        return np.column_stack((nodes, self.nest.end[nodes], low, high))[runs].astype(np.int64)

    def _count_iterations(
        self, loop: int, after: int, weight: np.ndarray, counters: np.ndarray, executions: np.ndarray
    ) -> None:
        """Adds the executions of a loop's nodes, given its iterations (``counters`` int64[iterations, depth]), of which
        each happens ``weight`` times."""
        depth = counters.shape[1]
        node = loop + 1
        while node < after:
            executions[node] += weight.sum()
            end = int(self.nest.end[node])
            if self.nest.loop[node] >= 0:
                inner = self.nest.loop[node:end]
                trip = self.trips[inner[0]]
                iterations = np.maximum(trip[0] + counters @ trip[1 : 1 + depth], 0)
                if self.trips[inner[inner >= 0], 1 + depth].any():
                    counter = np.arange(iterations.sum()) - np.repeat(np.cumsum(iterations) - iterations, iterations)
                    wider = np.column_stack((np.repeat(counters, iterations, axis=0), counter))
                    self._count_iterations(node, end, np.repeat(weight, iterations), wider, executions)
                else:
                    wider = np.column_stack((counters, np.zeros(len(iterations), np.int64)))
                    self._count_iterations(node, end, weight * iterations, wider, executions)
            node = end


def _shifted(coefficients: np.ndarray, iteration: np.ndarray) -> np.ndarray:
    """Coefficients in one iteration of the outermost loop, which is no counter any more; where ``iteration`` is -1, as
    they are."""
    result = coefficients.copy()
    inside = iteration >= 0
    moved = np.column_stack((coefficients[:, 2:], np.zeros(len(coefficients), np.int64)))[inside]
    result[inside, 1:] = moved
    result[inside, 0] += coefficients[inside, 1] * iteration[inside]
    return result
