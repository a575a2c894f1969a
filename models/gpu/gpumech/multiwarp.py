"""The printed form of GPUMech: cycles per instruction of a core with many warps, from the intervals of one.

Source: GPUMech (Huang, dissertation, Georgia Institute of Technology, 2015), ch. 4; the equations' numbers stand beside
them. ``warps`` issue one instruction a cycle together; a core of several schedulers is as many such cores, whose warps
share its entries for misses.

Two departures. Eq. 26 divides the delays by the instructions of one warp, eq. 16 by those of all; only all warps' give
a sum (eq. 12) that means something: so ``contention`` does, unless ``of_one_warp``. Eq. 30 has no meaning for a
utilisation of 1 and more, where its minimum would take a negative number: there its cap is taken.

The Markov chain that the source compares with is that of its sec. 2.4: a warp stalls with probability p after each
instruction, for M cycles, independent of the others.

Cost: O(intervals).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.intervals import IntervalProfile


class Contended(NamedTuple):
    """What the warps of ``cores`` cores share: ``warps`` of a core, its ``mshrs``, ``miss_cycles`` (mean latency of a
    miss), ``service_cycles`` of a request to DRAM."""

    cores: int
    warps: float
    mshrs: int
    miss_cycles: float
    service_cycles: float


def issue_probability(profile: IntervalProfile) -> float:
    """Eq. 18, and the performance of a warp alone (eq. 14)."""
    return float(profile.instructions.sum() / (profile.instructions + profile.stall_cycles).sum())


def naive_cpi(profile: IntervalProfile, warps: float) -> float:
    """Eq. 10."""
    return 1 / (issue_probability(profile) * warps)


def markov_cpi(profile: IntervalProfile, warps: float) -> float:
    """A warp is stalled for pM / (1 + pM) of the time; a cycle issues nothing if all are."""
    stalls = profile.stall_cycles[profile.stall_cycles > 0]
    stalled = float(stalls.sum()) / float(profile.instructions.sum())
    return 1 / (1 - (stalled / (1 + stalled)) ** warps)


def in_turn_instructions(profile: IntervalProfile, warps: float) -> np.ndarray:
    """Round robin, eq. 19 and 20: instructions of other warps that hide no stall of an interval."""
    return issue_probability(profile) * max(0.0, warps - 1) * (profile.instructions - 1)


def greedy_instructions(profile: IntervalProfile, warps: float) -> np.ndarray:
    """Greedy, then oldest, eq. 21 to 25."""
    average = float(profile.instructions.mean())
    probability = np.minimum(issue_probability(profile) * profile.stall_cycles, 1)
    issued = average * probability * max(0.0, warps - 1)
    return np.maximum(issued - profile.stall_cycles, 0)


def multithreading_cpi(profile: IntervalProfile, not_hidden: np.ndarray, warps: float) -> float:
    """Eq. 16 and 17."""
    cycles = float((profile.instructions + profile.stall_cycles).sum()) + float(not_hidden.sum())
    return cycles / (warps * float(profile.instructions.sum()))


def mshr_cycles(profile: IntervalProfile, shared: Contended) -> np.ndarray:
    """Eq. 27 to 29: what each interval waits for entries of outstanding misses. The number of requests is an expected
    one; of a part of a request, its part of a latency is counted."""
    requests = profile.miss_requests * shared.warps
    rounds = np.floor(requests / shared.mshrs)
    rest = requests - rounds * shared.mshrs
    summed = shared.mshrs * rounds * (rounds + 1) / 2 + rest * (rounds + 1)
    waits = requests > shared.mshrs
    expected = np.where(waits, summed / np.where(waits, requests, 1) - 1, 0) * shared.miss_cycles
    return expected * profile.memory_instructions


def bandwidth_cycles(profile: IntervalProfile, shared: Contended) -> np.ndarray:
    """Eq. 30 to 32: an M/D/1 queue before DRAM, capped at half of the requests that can be ahead."""
    requests = profile.dram_requests * shared.warps * shared.cores
    rate = requests / (profile.instructions + profile.stall_cycles)
    utilisation = rate * shared.service_cycles
    cap = shared.service_cycles * requests / 2
    open_queue = utilisation < 1
    delay = rate * shared.service_cycles**2 / (2 * np.where(open_queue, 1 - utilisation, 1))
    return np.where(open_queue, np.minimum(delay, cap), cap)


def contention_cpi(profile: IntervalProfile, delays: np.ndarray, warps: float, of_one_warp: bool = False) -> float:
    """Eq. 26."""
    return float(delays.sum()) / (float(profile.instructions.sum()) * (1 if of_one_warp else warps))


def stack_of_warp(profile: IntervalProfile, in_memory: np.ndarray, shares: np.ndarray) -> dict[str, float]:
    """Cycles of the warp alone by cause (sec. 4.7): BASE, DEP, L1, L2, DRAM. ``in_memory`` bool[static]: instructions
    that access global or local memory, which levels answer in ``shares`` [static, 3]."""
    cause = profile.cause
    memory = (cause >= 0) & in_memory[cause]
    levels = (shares[cause[memory]] * profile.stall_cycles[memory][:, None]).sum(axis=0)
    return {
        "BASE": float(profile.instructions.sum()),
        "DEP": float(profile.stall_cycles[~memory].sum()),
        **{name: float(cycles) for name, cycles in zip(("L1", "L2", "DRAM"), levels, strict=True)},
    }
