"""The printed form of GPUMech for a launch: the formulas of gpu/gpumech/multiwarp.py for the warp that stands for all.

Source: Huang, dissertation, Georgia Institute of Technology, 2015, ch. 4.

Cost: O(instructions of a warp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from manyscale.models.gpu.gpumech import functional_caches, multiwarp
from manyscale.models.gpu.gpumech.collector import TO_DRAM, TO_L2
from manyscale.models.gpu.gpumech.intervals import (
    REPRESENTATIVES,
    IntervalProfile,
    interval_profile,
    latencies,
    level_shares,
    representatives,
    warp_cycles,
)
from manyscale.models.gpu.gpumech.outline import Outline, ProfileError
from manyscale.models.gpu.gpumech.profiles import Profile
from manyscale.models.gpu.gpumech.replay_state import CAUSES, times_of
from manyscale.models.gpu.launch_program import MEMORY, STORE
from manyscale.models.gpu.parameters import Gpu


def load_cycles(gpu: Gpu) -> np.ndarray:
    """From the issue of a load to that of what needs it, by the level that answers."""
    times = times_of(gpu)
    return np.array([gpu.l1_hit_cycles, gpu.l2_hit_cycles, gpu.l2_hit_cycles + times.dram], np.float64)


def chosen_warps(own: Outline, met: np.ndarray, gpu: Gpu) -> np.ndarray:
    """int64[3]: the warps that may stand for all, in the order of REPRESENTATIVES."""
    latency = latencies(own.static, own.result, met, load_cycles(gpu))
    cycles = np.empty(len(own.warp_instructions) - 1)
    registers = int(own.operand.max(initial=0)) + 1
    warp_cycles(own.static, own.operand, latency, own.warp_instructions, own.instruction, registers, cycles)
    found = representatives(np.diff(own.warp_instructions), cycles)
    return np.array([found[name] for name in REPRESENTATIVES])


def printed(
    profile: Profile, gpu: Gpu, representative: str, parts: Collection[str], delays_of_one_warp: bool
) -> tuple[float, Mapping[str, float]]:
    """Cycles of a launch that has instructions, and parts of its cycles per instruction by CAUSES. Raises ProfileError
    where no warps were chosen."""
    warp, shares = _profile_of_warp(profile, gpu, representative)
    shared = _contended(profile, gpu)
    warps = shared.warps / gpu.schedulers
    threads = _threads_cpi(warp, gpu, warps, parts)
    in_memory = profile.outline.static["kind"] == MEMORY
    alone = multiwarp.stack_of_warp(warp, in_memory, shares)
    scale = threads / sum(alone.values())
    stack = dict.fromkeys(CAUSES, 0.0) | {name: each * scale for name, each in alone.items()}
    for part, name, delays in (
        ("mshr", "MSHR", multiwarp.mshr_cycles),
        ("bandwidth", "QUEUE", multiwarp.bandwidth_cycles),
    ):
        if part in parts:
            stack[name] = multiwarp.contention_cpi(warp, delays(warp, shared), warps, delays_of_one_warp)
    stack = {name: each / gpu.schedulers for name, each in stack.items()}
    return sum(stack.values()) * profile.num_instructions / shared.cores, stack


def _profile_of_warp(profile: Profile, gpu: Gpu, representative: str) -> tuple[IntervalProfile, np.ndarray]:
    """The intervals of a representative warp with the latencies of ``gpu``, and the shares of levels."""
    if not len(profile.chosen):
        raise ProfileError(f"launch {profile.launch_id}: the profile was collected without representative warps")
    own = profile.outline
    warp = profile.chosen[REPRESENTATIVES.index(representative)]
    rows = own.instruction[slice(*own.warp_instructions[warp : warp + 2])]
    latency = latencies(own.static, own.result, profile.met, load_cycles(gpu))
    registers = int(own.operand.max(initial=0)) + 1
    counts = profile.l2_counts
    written_back = counts[functional_caches.WRITTEN_BACK] / max(1, counts[functional_caches.WRITTEN])
    found = interval_profile(own.static, own.operand, rows, latency, profile.met, registers, float(written_back))
    return found, level_shares(profile.met)


def _contended(profile: Profile, gpu: Gpu) -> multiwarp.Contended:
    """The SMs that get a block, with the warps of the blocks that are resident on each."""
    sms, slots, _ = profile.shape.tolist()
    static, block_warps = profile.outline.static, int(profile.outline.shape[1])
    loads = (static["kind"] == MEMORY) & (static["access"] != STORE)
    answered = profile.met[loads][:, [TO_L2, TO_DRAM]].sum(axis=0)
    cycles = load_cycles(gpu)[[TO_L2, TO_DRAM]]
    return multiwarp.Contended(
        cores=sms,
        warps=min(slots, (profile.outline.num_blocks) / sms) * block_warps,
        mshrs=gpu.l1.mshrs,
        miss_cycles=float(answered @ cycles) / max(1, int(answered.sum())),
        service_cycles=times_of(gpu).burst,
    )


def _threads_cpi(warp: IntervalProfile, gpu: Gpu, warps: float, parts: Collection[str]) -> float:
    if "naive" in parts:
        return multiwarp.naive_cpi(warp, warps)
    if "markov" in parts:
        return multiwarp.markov_cpi(warp, warps)
    if times_of(gpu).oldest:
        not_hidden = multiwarp.greedy_instructions(warp, warps)
    else:
        not_hidden = multiwarp.in_turn_instructions(warp, warps)
    return multiwarp.multithreading_cpi(warp, not_hidden, warps)
