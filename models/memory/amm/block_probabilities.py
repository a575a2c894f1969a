"""How often each basic block follows each other in a trace, and the probabilities of it.

Source: AMM (section 3.2, eq. 2): the probability pi_ij that block j follows an execution of block i. A run ends at a
block whose probabilities add up to less than 1; the rest is the probability that it ends there. Every segment is a run:
what other threads, tasks or operations did between two segments is no transition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, identity
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import spsolve

from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.detail_tables import DetailBatch


@dataclass(frozen=True)
class Transitions:
    """Counts of which block followed which. Rows are sorted by (``source``, ``target``) and each pair stands once.

    ``source``, ``target`` int32[n] blocks, ``count`` int64[n] > 0; ``entries``, ``exits`` int64[blocks]: how many runs
    began and ended at each block.
    """

    source: np.ndarray
    target: np.ndarray
    count: np.ndarray
    entries: np.ndarray
    exits: np.ndarray

    @property
    def executions(self) -> np.ndarray:
        """int64[blocks]: how often each block was executed."""
        left = np.bincount(self.source, self.count, len(self.exits)).astype(np.int64)
        return self.exits + left

    @property
    def probability(self) -> np.ndarray:
        """float64[n]: of each pair."""
        share: np.ndarray = self.count / np.maximum(self.executions, 1)[self.source]
        return share

    def probabilities(self) -> tuple[csr_array, np.ndarray]:
        """(pi, sparse float64[blocks, blocks]; float64[blocks]: that a run ends after the block). Blocks that were
        never executed have neither."""
        size = len(self.exits)
        pi = csr_array((self.probability, (self.source, self.target)), shape=(size, size))
        return pi, self.exits / np.maximum(self.executions, 1)


def executions(pi: csr_array, ends: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """float64[blocks]: how often each block is executed on average, where ``entries`` float64[blocks] runs begin at
    each (eq. 2: N_j is the sum of pi_ij N_i, and what enters). ``pi``, ``ends`` as of ``Transitions.probabilities``.
    Raises ValueError where runs that come to a block never end. O(a sparse solution)."""
    size = len(ends)
    reached = _reached(csr_array(pi), entries > 0)
    coming_to_an_end = _reached(csr_array(pi.T), ends > 0)
    stuck = np.flatnonzero(reached & ~coming_to_an_end)
    if len(stuck):
        raise ValueError(f"runs that come to block {stuck[0]} never end")
    inside = np.flatnonzero(reached)
    found = np.zeros(size)
    if len(inside):
        passed_on = csr_array(pi)[inside][:, inside].T
        found[inside] = np.atleast_1d(spsolve((identity(len(inside)) - passed_on).tocsc(), entries[inside]))
    return found


def _reached(pi: csr_array, begins: np.ndarray) -> np.ndarray:
    """bool[blocks]: what is reached from the blocks where bool[blocks] ``begins``, itself included. O(transitions)."""
    size = len(begins)
    from_all = csr_array((np.ones(begins.sum()), (np.full(begins.sum(), size), np.flatnonzero(begins))),
                         shape=(size + 1, size + 1))  # fmt: skip
    steps = csr_array((pi.data, pi.indices, np.append(pi.indptr, pi.indptr[-1])), shape=(size + 1, size + 1))
    order = breadth_first_order(from_all + steps, size, return_predecessors=False)
    found = np.zeros(size + 1, bool)
    found[order] = True
    return found[:-1]


def count_transitions(workload: Workload, is_counted: np.ndarray | None = None) -> Transitions:
    """Transitions of the detailed level, or of its segments where ``is_counted`` (bool[segments]). O(executions log
    executions of a part), a part of the stream at a time. Raises WorkloadError for a workload without a detailed
    level."""
    num_blocks = workload.tables["blocks"].num_rows
    entries, exits = np.zeros(num_blocks, np.int64), np.zeros(num_blocks, np.int64)
    pairs, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    sizes = workload.column("segments", "num_blocks")
    first_of_segment = (np.cumsum(sizes) - sizes)[sizes > 0]
    before, done = -1, 0  # the last block of the parts before, and their executions
    for batch in parts_of_stream(workload):
        blocks = batch.block_ids.astype(np.int64)
        if not len(blocks):
            continue
        starts = np.zeros(len(blocks), bool)
        low, high = np.searchsorted(first_of_segment, [done, done + len(blocks)])
        starts[first_of_segment[low:high] - done] = True
        done += len(blocks)
        if is_counted is not None:
            segments = is_counted[batch.first_segment : batch.first_segment + len(batch.block_offsets) - 1]
            kept = np.repeat(segments, np.diff(batch.block_offsets))
            blocks, starts = blocks[kept], starts[kept]
            if not len(blocks):
                continue
        source = np.concatenate(([before], blocks[:-1]))
        exits += np.bincount(source[starts & (source >= 0)], minlength=num_blocks)
        entries += np.bincount(blocks[starts], minlength=num_blocks)
        found, times = np.unique(source[~starts] * num_blocks + blocks[~starts], return_counts=True)
        pairs, place = np.unique(np.concatenate((pairs, found)), return_inverse=True)
        counts = np.bincount(place, np.concatenate((counts, times)), len(pairs)).astype(np.int64)
        before = int(blocks[-1])
    if before >= 0:
        exits[before] += 1
    source, target = np.divmod(pairs, max(num_blocks, 1))
    return Transitions(source.astype(np.int32), target.astype(np.int32), counts, entries, exits)


def parts_of_stream(workload: Workload) -> Iterator[DetailBatch]:
    """The detailed level's stream in order, in parts that memory holds. Raises WorkloadError where there is none."""
    if workload.detail is None:
        raise WorkloadError(f"{workload.name}: has no detailed level; trace it with one")
    for first, end in pairwise(workload.detail.execution_bounds().tolist()):
        yield workload.detail.read_executions(first, end)
