"""GPUMech: kernel launches without simulating cycles, and where their cycles go.

Source: Huang, dissertation, Georgia Institute of Technology, 2015, ch. 4 (with Lee, Kim, Lee, MICRO 2014). Two steps:

``collect`` goes through a launch once: caches (gpumech_collector.py), segments of warps (gpumech_segments.py),
representative warps (gpumech_intervals.py). It depends on which blocks are resident together, the geometry of caches,
pipeline and units.

``predict`` then answers for any GPU that agrees in these: latencies of caches and DRAM, entries for misses, bandwidth,
the scheduler may differ (which only the printed form reads: greedy or oldest first, else in turn). Its forms:
``printed``, the source's formulas for one representative warp (gpumech_multiwarp.py), and ``extended``, all warps'
segments on a time axis (gpumech_replay.py).

Where the GPU differs in more, ``collect`` anew; given the profile ``known`` of the same launch on a GPU of the same
pipeline and units, only the caches are gone through again.

Launch latency is left out. Cost: ``collect`` O(instructions + requests), ``predict`` O(segments + accesses), in the
printed form O(instructions of a warp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

import numpy as np

from manyscale.models.gpu import functional_caches, gpumech_multiwarp, gpumech_replay, sm_limits
from manyscale.models.gpu.functional_caches import CacheRules, Caches
from manyscale.models.gpu.gpumech_collector import NUM_EVENTS, TO_DRAM, TO_L2, touch_in_order, walk
from manyscale.models.gpu.gpumech_intervals import (
    REPRESENTATIVES,
    IntervalProfile,
    interval_profile,
    latencies,
    level_shares,
    representatives,
    warp_cycles,
)
from manyscale.models.gpu.gpumech_segments import ACCESS, SEGMENT, Segments, segments
from manyscale.models.gpu.launch_program import MEMORY, STATIC, STORE, launch_program
from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import UNITS, Gpu

VERSION: Final = 1  # raised when results change
CAUSES: Final = gpumech_replay.CAUSES
PARTS: Final = ("naive", "markov", "mt", "mshr", "bandwidth")
ALL_PARTS: Final = ("mt", "mshr", "bandwidth")


class ProfileError(ValueError):
    """A profile that was collected for a GPU that differs in what profiles depend on."""


@dataclass(frozen=True)
class L2State:
    """L2 as launches leave it to the next; ``room`` for the L1 of a launch's SMs, which is used again."""

    caches: Caches
    rules: CacheRules
    room: dict[tuple[int, int], Caches] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """What ``collect`` learned of a launch.

    ``reads`` and ``segments_read`` int64[]: what of the GPU it depends on. ``shape`` int64[8]: launch id, SMs that get
    a block, the most blocks on each at once, bytes of L1; of a block: warps, threads, registers of a thread, bytes of
    shared memory. Segments as in gpumech_segments.Segments, accesses with what the caches say; ``block_warps``
    int64[blocks + 1]. ``met`` int64[static, NUM_EVENTS] (gpumech_collector.py); ``l1_counts`` and ``l2_counts``
    int64[6] (functional_caches.py). ``static`` STATIC[], ``operand`` int16[]; ``executed`` and ``result`` int64[static]
    as in Segments. Of the representative warps, in the order of REPRESENTATIVES (none, if they were not asked for):
    ``chosen`` int64[3], and the static instructions that they execute: ``chosen_row`` int32[], ``chosen_first``
    int64[4].
    """

    reads: np.ndarray
    segments_read: np.ndarray
    shape: np.ndarray
    segment: np.ndarray
    access: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    block_warps: np.ndarray
    executed: np.ndarray
    met: np.ndarray
    l1_counts: np.ndarray
    l2_counts: np.ndarray
    static: np.ndarray
    operand: np.ndarray
    result: np.ndarray
    chosen: np.ndarray
    chosen_row: np.ndarray
    chosen_first: np.ndarray

    @property
    def launch_id(self) -> int:
        return int(self.shape[0])

    @property
    def num_instructions(self) -> int:
        """Warp instructions."""
        return int(self.executed.sum())


@dataclass(frozen=True)
class GpuMechEstimate:
    """A launch. ``cycles``: without launch latency; ``cpi``: cycles per warp instruction of an SM that gets blocks;
    ``stack``: its parts by CAUSES, which sum to it. Requests to L1 and L2 and their misses, those that wait for a miss
    of another counted as misses of neither. Of blocks, in the extended form, int64[blocks]: SM, begin and end."""

    launch_id: int
    cycles: float
    cpi: float
    stack: Mapping[str, float]
    warp_instructions: int
    l1_accesses: int
    l1_misses: int
    l2_accesses: int
    l2_misses: int
    block_sm: np.ndarray
    block_begin: np.ndarray
    block_end: np.ndarray


_STRUCTURED: Final = {"segment": SEGMENT, "access": ACCESS, "static": STATIC}


def to_arrays(profile: Profile) -> dict[str, np.ndarray]:
    """Arrays of plain types that hold a profile."""
    arrays = {each.name: getattr(profile, each.name) for each in fields(profile)}
    return {name: array.view(np.uint8) if name in _STRUCTURED else array for name, array in arrays.items()}


def from_arrays(arrays: Mapping[str, np.ndarray]) -> Profile:
    """What ``to_arrays`` was given."""
    found = {each.name: arrays[each.name] for each in fields(Profile)}
    for name, dtype in _STRUCTURED.items():
        found[name] = np.ascontiguousarray(found[name]).view(dtype)
    return Profile(**found)


def l2_of(gpu: Gpu) -> L2State:
    """An empty L2, for the first launch."""
    rules = functional_caches.cache_rules(gpu.l2)
    return L2State(functional_caches.caches(gpu.l2, rules), rules)


def touch(trace: LaunchTrace, gpu: Gpu, l2: L2State) -> None:
    """Change ``l2`` as the accesses of a launch would, one block after the other, L1 hiding nothing."""
    _begin(gpu, l2)
    program = launch_program(trace, gpu)
    touch_in_order(program.request, program.written, l2.caches, l2.rules)


def collect_reads(gpu: Gpu) -> tuple[int, ...]:
    """What of a GPU profiles depend on, but for how many SMs get blocks of a launch, and how many."""
    geometry: list[int] = []
    for cache in (gpu.l1, gpu.l2):
        geometry += [
            cache.size_bytes, cache.ways, cache.line_bytes, cache.sector_bytes, cache.banks, cache.slices, cache.merges,
            sm_limits.WRITES.index(cache.write), cache.write_allocate, cache.kept_between_launches,
        ]  # fmt: skip
    return (*geometry, *_segments_read(gpu))


def profile_reads(gpu: Gpu) -> dict[str, Any]:
    """All of a GPU that the profile of any launch can depend on, also what only the choice of representative warps
    does: GPUs that agree in it have equal profiles."""
    names = {"sms", "warps", "threads", "blocks", "registers", "register_unit", "shared_memory"}
    residency = gpu.model_dump(mode="json", include=names)
    return residency | {"geometry": list(collect_reads(gpu)), "load_cycles": _load_cycles(gpu).tolist()}


def _segments_read(gpu: Gpu) -> tuple[int, ...]:
    units = [round(value) for name in UNITS for value in vars(gpu.units[name]).values()]
    shared = gpu.shared_memory.latency_cycles
    return (gpu.l1.sector_bytes, round(gpu.pipeline_cycles), round(shared), *units)


def _begin(gpu: Gpu, l2: L2State) -> None:
    l2.caches.counts[:] = 0
    if not gpu.l2.kept_between_launches:
        functional_caches.forget_all(l2.caches)


def _needs(trace: LaunchTrace) -> tuple[int, int, int]:
    """What a block needs: threads, registers of each, bytes of shared memory."""
    return trace.block[0] * trace.block[1] * trace.block[2], trace.registers, trace.shared_bytes


def _placed(gpu: Gpu, blocks: int, threads: int, registers: int, shared_bytes: int) -> tuple[int, int, int]:
    """SMs that get a block, the most on each at once, and bytes of L1 beside them."""
    resident = min(resident_blocks(gpu, threads, registers, shared_bytes), blocks)
    sms = min(gpu.sms, blocks)
    return sms, min(resident, -(-blocks // max(1, sms))), l1_bytes(gpu, resident, shared_bytes)


def collect(
    trace: LaunchTrace,
    gpu: Gpu,
    l2: L2State | None = None,
    known: Profile | None = None,
    pending_hits: bool = True,
    representative: bool = True,
) -> Profile:
    """The profile of a launch whose L2 is ``l2`` (None: empty), which is left as the launch leaves it.

    ``known``: a profile of the launch on another GPU. ``pending_hits``: requests that meet a miss of the same turn wait
    for it, else they are hits. ``representative``: choose warps for the printed form. Raises DoesNotFitError where no
    block fits on an SM.
    """
    l2 = l2_of(gpu) if l2 is None else l2
    _begin(gpu, l2)
    sms, slots, l1_size = _placed(gpu, trace.num_blocks, *_needs(trace))
    program = launch_program(trace, gpu)
    read = np.array(_segments_read(gpu), np.int64)
    if known is not None and np.array_equal(known.segments_read, read):
        cut = Segments(
            known.segment, known.access.copy(), known.first_segment, known.first_access, known.executed, known.result
        )
    else:
        cut = segments(program, gpu)
    met = np.zeros((len(program.static), NUM_EVENTS), np.int64)
    l1_counts = np.zeros(6, np.int64)
    if len(cut.access):
        l1, l1_rules = _empty_l1(gpu, sms, l1_size, l2)
        walk(
            *cut[:4], program.block_warps, program.warp_requests, program.request, program.written, l1, l1_rules,
            l2.caches, l2.rules, gpu.l1.banks - 1, sms, slots, pending_hits, met,
        )  # fmt: skip
        l1_counts = l1.counts.copy()
    chosen, rows, bounds = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64)
    if representative:
        chosen = _chosen(program, cut.result, met, gpu)
        own = [program.instruction[slice(*program.warp_instructions[warp : warp + 2])] for warp in chosen]
        rows = np.concatenate(own)
        bounds = np.concatenate(([0], np.cumsum([len(each) for each in own])))
    return Profile(
        reads=np.array(collect_reads(gpu), np.int64),
        segments_read=read,
        shape=np.array([trace.launch_id, sms, slots, l1_size, trace.warps_per_block, *_needs(trace)]),
        segment=cut.segment,
        access=cut.access,
        first_segment=cut.first_segment,
        first_access=cut.first_access,
        block_warps=program.block_warps,
        executed=cut.executed,
        met=met,
        l1_counts=l1_counts,
        l2_counts=l2.caches.counts.copy(),
        static=program.static,
        operand=program.operand,
        result=cut.result,
        chosen=chosen,
        chosen_row=rows,
        chosen_first=bounds,
    )


def _empty_l1(gpu: Gpu, sms: int, size_bytes: int, l2: L2State) -> tuple[Caches, CacheRules]:
    rules = functional_caches.cache_rules(gpu.l1, size_bytes)
    key = (sms, size_bytes)
    if key not in l2.room:
        l2.room.clear()
        l2.room[key] = functional_caches.caches(gpu.l1, rules, sms)
    l1 = l2.room[key]
    functional_caches.forget_all(l1)
    return l1, rules


def _load_cycles(gpu: Gpu) -> np.ndarray:
    """From the issue of a load to that of what needs it, by the level that answers."""
    times = gpumech_replay.times(gpu)
    return np.array([gpu.l1_hit_cycles, gpu.l2_hit_cycles, gpu.l2_hit_cycles + times.dram], np.float64)


def _chosen(program, result, met, gpu: Gpu) -> np.ndarray:  # type: ignore[no-untyped-def]
    latency = latencies(program.static, result, met, _load_cycles(gpu))
    cycles = np.empty(len(program.warp_instructions) - 1)
    registers = int(program.operand.max(initial=0)) + 1
    warp_cycles(
        program.static, program.operand, latency, program.warp_instructions, program.instruction, registers, cycles
    )
    found = representatives(np.diff(program.warp_instructions), cycles)
    return np.array([found[name] for name in REPRESENTATIVES])


def predict(
    profile: Profile,
    gpu: Gpu,
    form: Literal["printed", "extended"] = "extended",
    representative: str = "clustering",
    parts: Collection[str] = ALL_PARTS,
    delays_of_one_warp: bool = False,
) -> GpuMechEstimate:
    """A launch from its profile, on a GPU that agrees in what ``collect_reads`` returns and on which as many blocks are
    resident; else raises ProfileError.

    Of the printed form: ``representative``, one of REPRESENTATIVES; ``parts``, of PARTS: what is counted (``naive`` or
    ``markov`` in the place of ``mt``: the models that the source compares with); ``delays_of_one_warp``: eq. 26 as
    printed.
    """
    placed = _placed(gpu, len(profile.block_warps) - 1, *profile.shape[5:].tolist())
    if profile.reads.tolist() != list(collect_reads(gpu)) or tuple(profile.shape[1:4].tolist()) != placed:
        raise ProfileError(f"launch {profile.launch_id}: the profile was collected for a GPU of another shape")
    if form == "extended":
        return _extended(profile, gpu)
    return _printed(profile, gpu, representative, parts, delays_of_one_warp)


def _estimate(profile: Profile, cycles: float, stack: Mapping[str, float], blocks: np.ndarray) -> GpuMechEstimate:
    sms = int(profile.shape[1])
    l1, l2 = profile.l1_counts.tolist(), profile.l2_counts.tolist()
    reads, misses = functional_caches.READS, functional_caches.READ_MISSES
    written, write_misses = functional_caches.WRITTEN, functional_caches.WRITE_MISSES
    return GpuMechEstimate(
        launch_id=profile.launch_id,
        cycles=cycles,
        cpi=cycles * sms / max(1, profile.num_instructions),
        stack=stack,
        warp_instructions=profile.num_instructions,
        l1_accesses=l1[reads] + l1[written],
        l1_misses=l1[misses] + l1[write_misses],
        l2_accesses=l2[reads] + l2[written],
        l2_misses=l2[misses] + l2[write_misses],
        block_sm=blocks["sm"],
        block_begin=blocks["begin"],
        block_end=blocks["end"],
    )


def _extended(profile: Profile, gpu: Gpu) -> GpuMechEstimate:
    blocks = np.zeros(len(profile.block_warps) - 1, gpumech_replay.BLOCK)
    spent = np.zeros(len(CAUSES))
    sms, slots = profile.shape[1:3].tolist()
    cycles = gpumech_replay.replay(
        profile.segment, profile.access, profile.first_segment, profile.first_access, profile.block_warps, sms, slots,
        gpumech_replay.times(gpu), spent, blocks,
    )  # fmt: skip
    cpi = cycles * sms / max(1, profile.num_instructions)
    total = float(spent.sum())
    stack = {name: cpi * each / total if total else 0.0 for name, each in zip(CAUSES, spent.tolist(), strict=True)}
    return _estimate(profile, float(cycles), stack, blocks)


def _printed(
    profile: Profile, gpu: Gpu, representative: str, parts: Collection[str], delays_of_one_warp: bool
) -> GpuMechEstimate:
    warp, shares = _profile_of_warp(profile, gpu, representative)
    blocks = np.zeros(len(profile.block_warps) - 1, gpumech_replay.BLOCK)
    if not len(warp.instructions):
        return _estimate(profile, 0.0, dict.fromkeys(CAUSES, 0.0), blocks)
    shared = _contended(profile, gpu)
    warps = shared.warps / gpu.schedulers
    threads = _threads_cpi(warp, gpu, warps, parts)
    in_memory = profile.static["kind"] == MEMORY
    alone = gpumech_multiwarp.stack_of_warp(warp, in_memory, shares)
    scale = threads / sum(alone.values())
    stack = dict.fromkeys(CAUSES, 0.0) | {name: each * scale for name, each in alone.items()}
    for part, name, delays in (
        ("mshr", "MSHR", gpumech_multiwarp.mshr_cycles),
        ("bandwidth", "QUEUE", gpumech_multiwarp.bandwidth_cycles),
    ):
        if part in parts:
            stack[name] = gpumech_multiwarp.contention_cpi(warp, delays(warp, shared), warps, delays_of_one_warp)
    stack = {name: each / gpu.schedulers for name, each in stack.items()}
    cycles = sum(stack.values()) * profile.num_instructions / shared.cores
    return _estimate(profile, cycles, stack, blocks)


def _profile_of_warp(profile: Profile, gpu: Gpu, representative: str) -> tuple[IntervalProfile, np.ndarray]:
    """The intervals of a representative warp with the latencies of ``gpu``, and the shares of levels."""
    if not len(profile.chosen):
        raise ProfileError(f"launch {profile.launch_id}: the profile was collected without representative warps")
    which = REPRESENTATIVES.index(representative)
    rows = profile.chosen_row[slice(*profile.chosen_first[which : which + 2])]
    latency = latencies(profile.static, profile.result, profile.met, _load_cycles(gpu))
    registers = int(profile.operand.max(initial=0)) + 1
    counts = profile.l2_counts
    written_back = counts[functional_caches.WRITTEN_BACK] / max(1, counts[functional_caches.WRITTEN])
    found = interval_profile(
        profile.static, profile.operand, rows, latency, profile.met, registers, float(written_back)
    )
    return found, level_shares(profile.met)


def _contended(profile: Profile, gpu: Gpu) -> gpumech_multiwarp.Contended:
    """The SMs that get a block, with the warps of the blocks that are resident on each."""
    sms, slots, _, block_warps = profile.shape[1:5].tolist()
    loads = (profile.static["kind"] == MEMORY) & (profile.static["access"] != STORE)
    answered = profile.met[loads][:, [TO_L2, TO_DRAM]].sum(axis=0)
    cycles = _load_cycles(gpu)[[TO_L2, TO_DRAM]]
    return gpumech_multiwarp.Contended(
        cores=sms,
        warps=min(slots, (len(profile.block_warps) - 1) / sms) * block_warps,
        mshrs=gpu.l1.mshrs,
        miss_cycles=float(answered @ cycles) / max(1, int(answered.sum())),
        service_cycles=gpumech_replay.times(gpu).burst,
    )


def _threads_cpi(warp: IntervalProfile, gpu: Gpu, warps: float, parts: Collection[str]) -> float:
    if "naive" in parts:
        return gpumech_multiwarp.naive_cpi(warp, warps)
    if "markov" in parts:
        return gpumech_multiwarp.markov_cpi(warp, warps)
    if gpu.scheduler in ("greedy-then-oldest", "oldest-first"):
        not_hidden = gpumech_multiwarp.greedy_instructions(warp, warps)
    else:
        not_hidden = gpumech_multiwarp.in_turn_instructions(warp, warps)
    return gpumech_multiwarp.multithreading_cpi(warp, not_hidden, warps)
