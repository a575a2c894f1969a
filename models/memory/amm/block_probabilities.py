"""How often each basic block is executed: counted in a trace, or from the probabilities of what follows a block.

Source: AMM (section 3.2, eq. 2 and 3). With the probability pi_ij that block j follows an execution of block i,
N_j = e_j + sum of pi_ij N_i, where e_j says how often a run begins at block j: 1 for the entry. Probabilities that
depend on the input (a loop of n iterations goes on with (n - 1)/n) give the counts at inputs that were not traced.

A run ends at a block whose probabilities add up to less than 1; the rest is the probability that it ends there. In a
trace, every segment is a run: what other threads, tasks or operations did between two segments is no transition.

Eq. 3 weighs blocks by executions. Reuse profiles of blocks add up to that of the program only when each is weighed by
its accesses (a block of 3 accesses and one of 1, executed once each: 0.75 and 0.25), so ``access_weights`` is what
recombines them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from manyscale.models.memory.access_stream import executions_per_block
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.detail_tables import DetailBatch

_ROUNDING: Final = 1e-9  # by which the probabilities of a block may add up to something else than 1
_LEAST: Final = 1e-100  # probability with which loops must end, all those inside each other together


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

    def probabilities(self) -> tuple[csr_array, np.ndarray]:
        """(pi, sparse float64[blocks, blocks]; float64[blocks]: that a run ends after the block). Blocks that were
        never executed have neither."""
        executions = np.maximum(self.executions, 1)
        values = self.count / executions[self.source]
        size = len(self.exits)
        return csr_array((values, (self.source, self.target)), shape=(size, size)), self.exits / executions


def count_executions(workload: Workload) -> np.ndarray:
    """int64[blocks]: how often the detailed level executes each block. O(executions), a part of the stream at a
    time. Raises WorkloadError for a workload without a detailed level."""
    return executions_per_block(
        (batch.block_ids for batch in parts_of_stream(workload)), workload.tables["blocks"].num_rows
    )


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


def expected_executions(
    probabilities: np.ndarray | csr_array, entries: np.ndarray, exit_probability: np.ndarray | None = None
) -> np.ndarray:
    """float64[blocks]: eq. 2, how often each block is executed.

    ``probabilities`` pi_ij, [blocks, blocks] (an array or a sparse one). ``entries`` [blocks]: how often a run begins
    at each block; several may. ``exit_probability`` [blocks]: that a run ends after the block, by default what pi
    leaves of 1 (give it where it is known better: for a loop of a million iterations the difference has six digits
    fewer). Raises ValueError for probabilities below 0, for those of a block that do not add up to 1 with its end, and
    for a run that never ends. Of the digits of the probabilities none is lost, however deep loops are nested.
    """
    pi = csr_array(probabilities, dtype=np.float64)
    entries = np.asarray(entries, np.float64)
    num_blocks = len(entries)
    if pi.shape != (num_blocks, num_blocks):
        raise ValueError(f"{num_blocks} blocks need {num_blocks} x {num_blocks} probabilities, not {pi.shape}")
    total = np.asarray(pi.sum(axis=1)).ravel()
    ends = np.clip(1 - total, 0, 1) if exit_probability is None else np.asarray(exit_probability, np.float64)
    reached = _reachable(pi, entries > 0)
    _check_probabilities(pi, np.where(reached, total, 1), np.where(reached, ends, 0), entries)
    ending = _reachable(csr_array(pi.T), ends > 0)
    if not ending[reached].all():
        block = int(np.flatnonzero(reached & ~ending)[0])
        raise ValueError(
            f"block {block} is executed without end: every way from it leads back with probability 1; "
            "give its loop a probability below 1, or the run an end"
        )
    return _eliminated(pi, reached, ends, entries)


def execution_probabilities(executions: np.ndarray) -> np.ndarray:
    """float64[blocks]: eq. 3, P(BB) by executions, as the paper prints it. Raises ValueError without any."""
    return _shares(np.asarray(executions, np.float64), "executed")


def access_weights(executions: np.ndarray, accesses_per_execution: np.ndarray) -> np.ndarray:
    """float64[blocks]: the share of all accesses that each block makes, the weights with which the reuse profiles of
    blocks add up to that of the program. Raises ValueError where no block accesses memory."""
    return _shares(np.asarray(executions, np.float64) * accesses_per_execution, "executed that accesses memory")


def parts_of_stream(workload: Workload) -> Iterator[DetailBatch]:
    """The detailed level's stream in order, in parts that memory holds. Raises WorkloadError where there is none."""
    if workload.detail is None:
        raise WorkloadError(f"{workload.name}: has no detailed level; trace it with one")
    for first, end in pairwise(workload.detail.execution_bounds().tolist()):
        yield workload.detail.read_executions(first, end)


def _eliminated(pi: csr_array, reached: np.ndarray, ends: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """float64[blocks]: the solution of eq. 2 for the blocks reached.

    Blocks are taken out one by one, those with few neighbours first, and their ways joined: elimination as Grassmann,
    Taksar and Heyman have it ("Regenerative analysis and steady state distributions for Markov chains", Operations
    Research 33, 1985). It takes 1 - pi_kk as the sum of all other ways out of k and so subtracts nowhere. A library's
    factorisation does, and loses a digit for every ten iterations: all sixteen in three nested loops of 10^5 each.
    O(blocks x neighbours^2), neighbours as they are when the block is taken out: a few in a program's loops.
    """
    blocks = np.flatnonzero(reached).tolist()
    after: dict[int, dict[int, float]] = {block: {} for block in blocks}  # without staying where one is
    before: dict[int, set[int]] = {block: set() for block in blocks}
    edges = pi.tocoo()
    for i, j, value in zip(edges.row.tolist(), edges.col.tolist(), edges.data.tolist(), strict=True):
        if i in after and i != j and value > 0:
            after[i][j] = after[i].get(j, 0.0) + value
            before[j].add(i)
    end, inflow = ends.tolist(), entries.tolist()
    waiting = [(len(before[block]) * len(after[block]), block) for block in blocks]
    heapify(waiting)
    taken: list[tuple[int, float, dict[int, float]]] = []
    while waiting:
        effort, block = heappop(waiting)
        now = len(before[block]) * len(after[block])
        if now > effort:
            heappush(waiting, (now, block))
            continue
        ways = after.pop(block)
        leaving = sum(ways.values()) + end[block]
        if leaving < _LEAST:
            raise ValueError(f"block {block} is executed more than {1 / _LEAST:.0e} times; correct its probabilities")
        sources = {i: after[i].pop(block) for i in sorted(before.pop(block))}
        for j, value in ways.items():
            before[j].discard(block)
            inflow[j] += inflow[block] * value / leaving
        for i, arriving in sources.items():
            end[i] += arriving * end[block] / leaving
            for j, value in ways.items():
                if i != j:
                    after[i][j] = after[i].get(j, 0.0) + arriving * value / leaving
                    before[j].add(i)
        taken.append((block, leaving, sources))
    result = np.zeros(len(ends))
    for block, leaving, sources in reversed(taken):
        result[block] = (inflow[block] + sum(result[i] * value for i, value in sources.items())) / leaving
    return result


def _shares(weight: np.ndarray, what: str) -> np.ndarray:
    total = weight.sum()
    if not total > 0:
        raise ValueError(f"no block is {what}: there are no probabilities")
    return np.asarray(weight / total)


def _check_probabilities(pi: csr_array, total: np.ndarray, ends: np.ndarray, entries: np.ndarray) -> None:
    if not (np.isfinite(pi.data).all() and (pi.data >= 0).all() and (ends >= 0).all() and (entries >= 0).all()):
        raise ValueError("a probability or a number of entries is negative or no number")
    total = total + ends
    wrong = np.flatnonzero(np.abs(total - 1) > _ROUNDING)
    if len(wrong):
        block = wrong[0]
        raise ValueError(
            f"block {block}: what follows and its end have probabilities of {total[block]:.6g} in all, not 1"
        )


def _reachable(graph: csr_array, starts: np.ndarray) -> np.ndarray:
    """bool[nodes]: those that some start leads to. O(nodes + edges)."""
    size = len(starts)
    first = np.flatnonzero(starts)
    edges = graph.tocoo()
    positive = edges.data > 0
    rows = np.concatenate((edges.row[positive], np.full(len(first), size)))
    columns = np.concatenate((edges.col[positive], first))
    joined = csr_array((np.ones(len(rows)), (rows, columns)), shape=(size + 1, size + 1))
    result = np.zeros(size + 1, bool)
    result[breadth_first_order(joined, size, return_predecessors=False)] = True
    return result[:size]
