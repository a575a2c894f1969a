"""AMM's algorithm 2 as printed (section 3.2): distances by walking back through the trace."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.block_sampling import ExecutionSampler, ranges
from manyscale.models.memory.draws import GOLDEN
from manyscale.models.memory.reuse_profile import ReuseProfile


def walked_back_profile(
    block_ids: np.ndarray, batch: Accesses, sampler: ExecutionSampler, granularity_bytes: int
) -> ReuseProfile:
    """Algorithms 1 and 2 as printed, of a whole trace in memory whose accesses are units, one each; ``sampler`` chooses
    forwards. O(executions + sum of the reuse distances)."""
    chosen = sampler.choose(block_ids)
    position = ranges(chosen.first_access, chosen.end_access)
    weight = np.repeat(chosen.weight, chosen.end_access - chosen.first_access)
    return ReuseProfile.of(granularity_bytes, batch.site[position], walked_back(batch.unit, position), weight)


def walked_back(unit: np.ndarray, position: np.ndarray) -> np.ndarray:
    """int64[k]: exact stack distances of the accesses at ``position`` int64[k], each found by walking back through
    ``unit`` int64[n] to the last use (algorithm 2). O(sum of the reuse distances)."""
    distance = np.empty(len(position), np.int64)
    _walk_back(unit, position, distance)
    return distance


@njit(cache=True, nogil=True)
def _walk_back(unit, position, distance):  # type: ignore[no-untyped-def]
    """``seen`` holds the units met on a walk; a place counts as free if its stamp is of another walk."""
    seen, stamp = np.empty(1 << 12, np.int64), np.full(1 << 12, -1, np.int64)
    for k in range(position.shape[0]):
        wanted = unit[position[k]]
        distinct = 0
        result = -1
        for i in range(position[k] - 1, -1, -1):
            if unit[i] == wanted:
                result = distinct
                break
            if _add(seen, stamp, unit[i], k):
                distinct += 1
                if 2 * distinct > seen.shape[0]:
                    larger, larger_stamp = (
                        np.empty(4 * seen.shape[0], np.int64),
                        np.full(4 * seen.shape[0], -1, np.int64),
                    )
                    for place in range(seen.shape[0]):
                        if stamp[place] == k:
                            _add(larger, larger_stamp, seen[place], k)
                    seen, stamp = larger, larger_stamp
        distance[k] = result


@njit(cache=True, nogil=True)
def _add(seen, stamp, unit, walk):  # type: ignore[no-untyped-def]
    """Whether the unit is new to the walk. O(1) expected."""
    mask = seen.shape[0] - 1
    mixed_bits = np.uint64(unit) * np.uint64(GOLDEN)
    place = np.int64(mixed_bits >> np.uint64(32)) & mask
    while stamp[place] == walk:
        if seen[place] == unit:
            return False
        place = (place + 1) & mask
    seen[place] = unit
    stamp[place] = walk
    return True
