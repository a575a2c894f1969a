"""Conditional reuse profiles from a sample of each block's executions.

Source: AMM, section 3.2. Algorithm 1: of every basic block some per cent of its executions are chosen at random, and
the distances of their accesses are its conditional profile. Algorithm 2 finds each distance by walking back through the
trace: exact, at a cost that grows with the distances, so that a sample of 1 % may take longer than measuring all.
``SampledBlocks`` reads the trace from its end to its begin instead and measures how many accesses lie between each
chosen access and its last use, which StatStack turns into distances: all the accesses that are not chosen cost nearly
nothing. ``ExactSampledBlocks`` has the exact engine tell the distances of what algorithm 1 chooses: as algorithm 2, and
faster, but at the engine's cost for every access.

A block's executions are divided into as many strata as are to be chosen, each as long as the others to within one, and
of each stratum one execution is chosen (``draws``). It stands for all of its stratum, so that every block's counts add
up to its executions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import SPLITS_FROM_BYTES, Accesses, Sites, access_sites, accesses
from manyscale.models.memory.distances.reuse_watch import ReuseWatch
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.statstack import ReuseCounts, expected_stack_distance
from manyscale.models.memory.draws import mixed, offset_in_stratum
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, merged

FORWARDS: Final = 1
BACKWARDS: Final = -1
_WEIGHT_BITS: Final = 32


@dataclass(frozen=True)
class SampledExecutions:
    """Of a batch of block executions, the chosen ones, in order.

    ``execution`` int64[n]: which of the batch; ``first_access``, ``end_access`` int64[n]: its accesses among the
    batch's; ``weight`` int64[n]: executions of its block that it stands for.
    """

    execution: np.ndarray
    first_access: np.ndarray
    end_access: np.ndarray
    weight: np.ndarray


class ExecutionSampler:
    """Chooses executions of a stream of blocks that is fed in pieces, forwards or backwards; both choose the same.

    ``num_executions`` int64[blocks]: of the whole stream (a first pass: ``np.bincount``). Chosen are ``share`` of each
    block's, ``at_least`` so many, or all that there are.
    """

    def __init__(
        self,
        num_executions: np.ndarray,
        sites: Sites,
        share: float = 0.01,
        at_least: int = 100,
        seed: int = 0,
        direction: int = FORWARDS,
    ) -> None:
        if not 0 < share <= 1 or at_least < 0:
            raise ValueError(f"{share:g} of the executions, at least {at_least}, cannot be sampled")
        self._direction = direction
        self._num_executions = num_executions.astype(np.int64)
        self._num_strata = np.clip(np.ceil(share * num_executions).astype(np.int64), at_least, None)
        self._num_strata = np.minimum(self._num_strata, self._num_executions)
        self._num_accesses = np.diff(sites.offsets)
        self._start = np.empty(len(num_executions), np.uint64)
        self._seen = np.zeros_like(self._num_executions) if direction == FORWARDS else self._num_executions.copy()
        self._stratum = np.zeros_like(self._seen) if direction == FORWARDS else self._num_strata - 1
        self._next = np.empty_like(self._seen)
        _begin(seed, self._start, self._num_executions, self._num_strata, self._stratum, self._next)

    def choose(self, block_ids: np.ndarray) -> SampledExecutions:
        """The chosen of a batch, int32[executions] in the order of the run; backwards, the last batch comes first.
        Raises ValueError where a block has more executions than were said. O(executions)."""
        columns = np.empty((4, min(len(block_ids), int(self._num_strata.sum()))), np.int64)
        blocks = (self._num_accesses, self._num_executions, self._num_strata, self._start)
        num_chosen = _choose(block_ids, self._direction, blocks, (self._seen, self._stratum, self._next), columns)
        if num_chosen < 0:
            raise ValueError("a block is executed more often than its count of executions says")
        chosen = columns[:, :num_chosen]
        if self._direction == BACKWARDS:
            total = int(self._num_accesses[block_ids].sum())
            chosen = chosen[:, ::-1].copy()
            chosen[1:3] = total - chosen[2:0:-1]
        return SampledExecutions(*chosen)


class SampledBlocks:
    """Algorithm 1 with StatStack's distances. The stream is fed backwards: its last batch first."""

    def __init__(
        self,
        num_executions: np.ndarray,
        sites: Sites,
        granularity_bytes: int,
        share: float = 0.01,
        at_least: int = 100,
        seed: int = 0,
    ) -> None:
        self._sampler = ExecutionSampler(num_executions, sites, share, at_least, seed, BACKWARDS)
        self._sites = sites
        self._granularity_bytes = granularity_bytes
        self._watch = ReuseWatch()
        self._reuses = ReuseCounts()

    def feed(self, block_ids: np.ndarray, addresses: np.ndarray) -> None:
        """Executions ``block_ids`` int32[] in the order of the run, and the ``addresses`` uint64[] of their accesses.
        O(executions + accesses) expected."""
        batch = accesses(block_ids, addresses, self._sites, self._granularity_bytes)
        chosen = self._sampler.choose(block_ids)
        first, end = _chosen_units(chosen, batch, block_ids, addresses, self._sites, self._granularity_bytes)
        self._feed_units(batch, first, end, chosen.weight)

    def feed_units(self, block_ids: np.ndarray, batch: Accesses) -> None:
        """The same, of accesses that are units already, one each. O(executions + accesses) expected."""
        chosen = self._sampler.choose(block_ids)
        self._feed_units(batch, chosen.first_access, chosen.end_access, chosen.weight)

    def _feed_units(self, batch: Accesses, first: np.ndarray, end: np.ndarray, weight: np.ndarray) -> None:
        position = ranges(first, end)
        # what is needed of a sample once its last use is found: its site, and what it stands for
        label = (batch.site[position].astype(np.int64) << _WEIGHT_BITS) | np.repeat(weight, end - first)
        backwards = np.ascontiguousarray(batch.unit[::-1])
        ended, _, distance = self._watch.feed(
            backwards, (len(backwards) - 1 - position)[::-1].copy(), label[::-1].copy()
        )
        self._reuses.add(ended, distance)

    def profile(self) -> ReuseProfile:
        """Estimated counts, rounded to whole distances. The sum of a block's is its number of accesses (at line
        granularity: estimated, where accesses straddle lines)."""
        label, distance, count = self._reuses.rows()
        cold, num_cold = np.unique(self._watch.pending(), return_counts=True)
        label = np.concatenate((label, cold))
        weight = np.concatenate((count, num_cold)) * (label & ((1 << _WEIGHT_BITS) - 1)).astype(np.float64)
        distance = np.concatenate((distance, np.full(len(cold), COLD)))
        if not len(label):
            return ReuseProfile.of(self._granularity_bytes, label, distance, weight)
        convert = expected_stack_distance(distance, weight)
        return ReuseProfile.of(
            self._granularity_bytes, label >> _WEIGHT_BITS, np.rint(convert(distance)).astype(np.int64), weight
        )


class ExactSampledBlocks:
    """Algorithm 1 with exact distances. The stream is fed forwards."""

    def __init__(
        self,
        num_executions: np.ndarray,
        sites: Sites,
        granularity_bytes: int,
        share: float = 0.01,
        at_least: int = 100,
        seed: int = 0,
    ) -> None:
        self._sampler = ExecutionSampler(num_executions, sites, share, at_least, seed)
        self._sites = sites
        self._granularity_bytes = granularity_bytes
        self._stack = StackDistances()
        self._parts = [ReuseProfile.of(granularity_bytes, *np.zeros((3, 0)))]

    def feed(self, block_ids: np.ndarray, addresses: np.ndarray) -> None:
        """As ``SampledBlocks.feed``. O(accesses log(distinct))."""
        batch = accesses(block_ids, addresses, self._sites, self._granularity_bytes)
        chosen = self._sampler.choose(block_ids)
        first, end = _chosen_units(chosen, batch, block_ids, addresses, self._sites, self._granularity_bytes)
        position, weight = ranges(first, end), np.repeat(chosen.weight, end - first)
        distance = self._stack.feed(batch.unit)[position]
        self._parts.append(ReuseProfile.of(self._granularity_bytes, batch.site[position], distance, weight))

    def profile(self) -> ReuseProfile:
        """Estimated counts; the sum of a block's is its number of accesses (as ``SampledBlocks.profile``)."""
        return merged(self._parts)


def _chosen_units(
    chosen: SampledExecutions,
    batch: Accesses,
    block_ids: np.ndarray,
    addresses: np.ndarray,
    sites: Sites,
    granularity_bytes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(first, end) int64[n]: the chosen executions' accesses among the batch's units."""
    if len(batch.unit) == len(addresses):
        return chosen.first_access, chosen.end_access
    offsets = unit_offsets(block_ids, addresses, sites, granularity_bytes)
    return offsets[chosen.first_access], offsets[chosen.end_access]


def ranges(first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """int64[]: all of [first[0], end[0]), then all of [first[1], end[1]), ... O(result)."""
    length = end - first
    begin = np.cumsum(length) - length
    return np.repeat(first - begin, length) + np.arange(int(length.sum()))


def unit_offsets(block_ids: np.ndarray, addresses: np.ndarray, sites: Sites, granularity_bytes: int) -> np.ndarray:
    """int64[accesses + 1]: the first unit of every access among those that ``access_stream.accesses`` makes of it.
    O(accesses)."""
    if granularity_bytes < SPLITS_FROM_BYTES:
        return np.arange(len(addresses) + 1)
    num_bytes = np.maximum(sites.bytes[access_sites(block_ids, sites)], 1).astype(np.uint64)
    size = np.uint64(granularity_bytes)
    num_units = (addresses + num_bytes - np.uint64(1)) // size - addresses // size + np.uint64(1)
    return np.concatenate(([0], np.cumsum(num_units.astype(np.int64))))


@njit(cache=True, nogil=True)
def _chosen(stratum, start, num_executions, num_strata):  # type: ignore[no-untyped-def]
    """The execution chosen of a block's stratum, or -1 beyond the last. O(1)."""
    if stratum < 0 or stratum >= num_strata:
        return np.int64(-1)
    # quotient and remainder keep the products of counts below 2^63
    whole, rest = num_executions // num_strata, num_executions % num_strata
    low = stratum * whole + stratum * rest // num_strata
    high = (stratum + 1) * whole + (stratum + 1) * rest // num_strata
    return low + offset_in_stratum(start, stratum, high - low)


@njit(cache=True, nogil=True)
def _begin(seed, start, num_executions, num_strata, stratum, next_chosen):  # type: ignore[no-untyped-def]
    """O(blocks)."""
    for block in range(start.shape[0]):
        start[block] = mixed(seed, block, 1)
        next_chosen[block] = _chosen(stratum[block], start[block], num_executions[block], num_strata[block])


@njit(cache=True, nogil=True)
def _choose(block_ids, direction, blocks, walk, columns):  # type: ignore[no-untyped-def]
    """Number of chosen; accesses are counted from where the walk begins. ``blocks``: accesses, executions, strata and
    begin of each block; ``walk``: how often each was seen, its stratum, and the execution chosen next.
    O(executions)."""
    num_accesses, num_executions, num_strata, start = blocks
    seen, stratum, next_chosen = walk
    found = 0
    access = 0
    for step in range(block_ids.shape[0]):
        i = step if direction > 0 else block_ids.shape[0] - 1 - step
        block = block_ids[i]
        occurrence = seen[block] if direction > 0 else seen[block] - 1
        seen[block] += direction
        first = access
        access += num_accesses[block]
        if occurrence == next_chosen[block]:
            if found == columns.shape[1]:
                return -1
            columns[0, found] = i
            columns[1, found] = first
            columns[2, found] = access
            whole, rest = num_executions[block] // num_strata[block], num_executions[block] % num_strata[block]
            here = stratum[block]
            columns[3, found] = whole + (here + 1) * rest // num_strata[block] - here * rest // num_strata[block]
            found += 1
            stratum[block] += direction
            next_chosen[block] = _chosen(stratum[block], start[block], num_executions[block], num_strata[block])
        elif occurrence < 0 or occurrence >= num_executions[block]:
            return -1
    return found
