"""GPUMech: kernel launches without simulating cycles, and where their cycles go.

Source: Huang, dissertation, Georgia Institute of Technology, 2015, ch. 4 (with Lee, Kim, Lee, MICRO 2014). Three steps,
each for more GPUs than the one after it:

``outline_of`` goes through a launch's instructions (gpu/gpumech/outline.py), once for all GPUs of the same pipeline,
units, lines and sectors.

``profile_of`` goes through its accesses: which level of the caches answers them (gpu/gpumech/collector.py), and which
warps are representative (gpu/gpumech/intervals.py). It depends on the caches' geometry and on which blocks are resident
together.

``predict`` then answers for any GPU that agrees in these: latencies of caches and DRAM, entries for misses, bandwidth,
the scheduler may differ (which only the printed form reads: greedy or oldest first, else in turn). Its forms:
``printed``, the source's formulas for one representative warp (gpu/gpumech/multiwarp.py), and ``extended``, all warps'
segments on a time axis (gpu/gpumech/replay.py).

Launch latency is left out. Cost: ``outline_of`` and ``profile_of`` O(instructions + requests), ``predict`` O(segments +
accesses), in the printed form O(instructions of a warp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from zlib import crc32

import numpy as np

from manyscale.models.gpu.gpumech import (
    functional_caches,
    part,
    printed_form,
    replay_state,
    waves,
)
from manyscale.models.gpu.gpumech import (
    replay as gpumech_replay,
)
from manyscale.models.gpu.gpumech.bystanders import bystanders
from manyscale.models.gpu.gpumech.collector import (
    ANSWER,
    FOUND,
    NUM_EVENTS,
    Walk,
    walk,
)
from manyscale.models.gpu.gpumech.functional_caches import CacheRules, Caches
from manyscale.models.gpu.gpumech.miss_events import count_events
from manyscale.models.gpu.gpumech.outline import Outline, ProfileError, of_last_gpu, outline_of, outline_reads
from manyscale.models.gpu.gpumech.profiles import Profile, from_arrays, to_arrays
from manyscale.models.gpu.gpumech.replay_state import CAUSES, followed_times, in_turn, times_of
from manyscale.models.gpu.gpumech.touching import touch_in_order
from manyscale.models.gpu.launch_program import COPY, MEMORY, NUM_UNITS, launch_program
from manyscale.models.gpu.memory_state import memory_limits
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace

VERSION: Final = 13  # raised when results change
PARTS: Final = ("naive", "markov", "mt", "mshr", "bandwidth")
ALL_PARTS: Final = ("mt", "mshr", "bandwidth")
_UNEVEN: Final = 2  # times the mean: requests of a slice that gets more than others
_OF_PREDICT: Final = {"latency_cycles", "mshrs"}  # of caches, that profiles do not depend on


@dataclass(frozen=True)
class L2State:
    """L2 as launches leave it to the next; ``room`` for the L1 of a launch's SMs, which is used again."""

    caches: Caches
    rules: CacheRules
    room: dict[tuple[int, int], Caches] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuMechEstimate:
    """A launch. ``cycles``: without launch latency; ``cpi``: cycles per warp instruction of an SM that gets blocks;
    ``stack``: its parts by CAUSES, which sum to it. Requests to L1 and L2 and their misses, those that wait for a miss
    of another counted as misses of neither. Of blocks, in the extended form, int64[blocks]: SM, begin and end, -1 of
    blocks that were skipped (gpu/gpumech/waves.py); ``half_width``: relative, of the cycles, had all skipped
    waves the shortest or the longest of the measured waves' (0: nothing was skipped)."""

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
    half_width: float = 0.0


def l2_of(gpu: Gpu) -> L2State:
    """An empty L2, for the first launch."""
    rules = functional_caches.cache_rules(gpu.l2)
    return L2State(functional_caches.caches(gpu.l2, rules, slice_masks=memory_limits(gpu).hash_masks), rules)


def touch(trace: LaunchTrace, gpu: Gpu, l2: L2State) -> None:
    """Change ``l2`` as the accesses of a launch would, one block after the other, L1 hiding nothing."""
    _begin(gpu, l2)
    program = launch_program(trace, gpu)
    touch_in_order(program.request, program.written, l2.caches, l2.rules)


@of_last_gpu
def collect_reads(gpu: Gpu) -> tuple[int, ...]:
    """What of a GPU profiles depend on, but for how many SMs get blocks of a launch, and how many."""
    geometry = (crc32(each.model_dump_json(exclude=_OF_PREDICT).encode()) for each in (gpu.l1, gpu.l2))
    return (*geometry, *outline_reads(gpu))


def profile_reads(gpu: Gpu, representative: bool = True) -> dict[str, Any]:
    """All of a GPU that the profile of any launch can depend on, also what only the choice of representative warps
    does: GPUs that agree in it have equal profiles."""
    names = {"sms", "warps", "threads", "blocks", "registers", "register_unit", "shared_memory"}
    found = gpu.model_dump(mode="json", include=names) | {"geometry": list(collect_reads(gpu))}
    return found | ({"load_cycles": printed_form.load_cycles(gpu).tolist()} if representative else {})


def _begin(gpu: Gpu, l2: L2State) -> None:
    l2.caches.counts[:] = 0
    if not gpu.l2.kept_between_launches:
        functional_caches.forget_all(l2.caches)


def _placed(gpu: Gpu, outlined: Outline) -> tuple[int, int, int]:
    """SMs that get a block, the most on each at once, and bytes of L1 beside them."""
    blocks = int(outlined.launch[0])
    threads, registers, shared_bytes = outlined.shape[2:].tolist()
    resident = min(resident_blocks(gpu, threads, registers, shared_bytes), blocks)
    sms = min(gpu.sms, blocks)
    return sms, min(resident, -(-blocks // max(1, sms))), l1_bytes(gpu, resident, shared_bytes)


def profile_of(outlined: Outline, gpu: Gpu, l2: L2State | None = None, pending_hits: bool = True) -> Profile:
    """The profile of a launch whose L2 is ``l2`` (None: empty), which is left as the launch leaves it.

    ``pending_hits``: requests that meet a miss of the same turn wait for it, else they are hits. Raises
    DoesNotFitError where no block fits on an SM, ProfileError for the outline on another GPU.
    """
    if tuple(outlined.reads.tolist()) != outline_reads(gpu):
        raise ProfileError(f"launch {outlined.launch_id}: the outline is of a GPU of another pipeline, or other units")
    l2 = l2_of(gpu) if l2 is None else l2
    _begin(gpu, l2)
    sms, slots, l1_size = _placed(gpu, outlined)
    if len(outlined.sms) and outlined.launch[2:].tolist() != [sms, gpu.dram.channels]:
        raise ProfileError(f"launch {outlined.launch_id}: the outline is of other SMs, or another number of channels")
    answer = np.empty(len(outlined.access), ANSWER)
    lines = np.zeros(len(outlined.line), FOUND)
    l1_counts = np.zeros(6, np.int64)
    followed = len(outlined.sms) or sms
    l2_counts, of_part = l2.caches.counts, np.zeros(0, np.int64)
    if len(answer):
        l1, l1_rules = _empty_l1(gpu, followed, l1_size, l2)
        launch = Walk(
            outlined.segment, outlined.access, outlined.first_segment, outlined.first_access, outlined.block_warps,
            outlined.first_line, outlined.line, answer, lines,
        )  # fmt: skip
        all_of = outlined.all_block_warps, outlined.all_warp_accesses, outlined.all_sector, outlined.all_written
        others = bystanders(outlined.blocks, sms, all_of, l1_size // gpu.l1.line_bytes, l1_rules.sector_shift)
        walk(launch, l1, l1_rules, l2.caches, l2.rules, followed, slots, pending_hits, others)
        l1_counts = l1.counts.copy()
    busiest = _busiest(lines, gpu.l2.slices)
    if len(outlined.sms):
        of_part = _in_part(outlined, lines, gpu, sms)
        whole = of_part[2] / max(1, of_part[1])
        l1_counts = np.rint(l1_counts * whole).astype(np.int64)
        l2_counts[functional_caches.READS] = round(l2_counts[functional_caches.READS] * whole)
    met, chosen = np.zeros((0, NUM_EVENTS), np.int64), np.zeros(0, np.int64)
    if len(outlined.instruction):
        met = np.zeros((len(outlined.static), NUM_EVENTS), np.int64)
        count_events(outlined.access, answer, met)
        chosen = printed_form.chosen_warps(outlined, met, gpu)
    return Profile(
        outline=outlined,
        reads=np.array(collect_reads(gpu), np.int64),
        shape=np.array([sms, slots, l1_size]),
        answer=answer,
        found=lines,
        met=met,
        l1_counts=l1_counts,
        l2_counts=l2_counts.copy(),
        chosen=chosen,
        busiest=busiest,
        waves=waves.may_skip(
            waves.measures(outlined, lines, followed * slots, gpu.l2.slices), outlined.num_blocks, followed * slots
        ),
        part=of_part,
    )


def _in_part(outlined: Outline, lines: np.ndarray, gpu: Gpu, sms: int) -> np.ndarray:
    """What ``Profile.part`` is; slices of ``lines`` are from now on those that stand for all."""
    channels = gpu.dram.channels
    parts = max(1, round(len(outlined.sms) * channels / sms))
    parts = max(each for each in range(1, parts + 1) if channels % each == 0)
    load = np.bincount(lines["slice"], lines["sent"], gpu.l2.slices)
    lines["slice"] = part.together(load, channels, parts)[lines["slice"]]
    of_block = np.diff(outlined.all_warp_accesses[outlined.all_block_warps])
    requests, instructions = int(of_block[outlined.blocks].sum()), int(outlined.executed.sum())
    asked = (requests, int(of_block.sum())) if requests else (instructions, int(outlined.launch[1]))
    return np.array([parts, *asked])


def _busiest(lines: np.ndarray, slices: int) -> np.ndarray:
    sent = np.bincount(lines["slice"], lines["sent"], slices)
    return np.array([sent.max(), sent.sum(), slices], np.int64)


def collect(
    trace: LaunchTrace, gpu: Gpu, l2: L2State | None = None, pending_hits: bool = True, representative: bool = True
) -> Profile:
    """The profile of a launch, its outline included. ``representative``: choose warps for the printed form."""
    return profile_of(outline_of(trace, gpu, representative), gpu, l2, pending_hits)


def _empty_l1(gpu: Gpu, sms: int, size_bytes: int, l2: L2State) -> tuple[Caches, CacheRules]:
    rules = functional_caches.cache_rules(gpu.l1, size_bytes)
    key = (sms, size_bytes)
    if key not in l2.room:
        l2.room.clear()
        l2.room[key] = functional_caches.caches(gpu.l1, rules, sms)
    l1 = l2.room[key]
    functional_caches.forget_all(l1)
    return l1, rules


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
    placed = _placed(gpu, profile.outline)
    if tuple(profile.reads.tolist()) != collect_reads(gpu) or tuple(profile.shape.tolist()) != placed:
        raise ProfileError(f"launch {profile.launch_id}: the profile was collected for a GPU of another shape")
    if form == "extended":
        return _extended(profile, gpu)
    if profile.num_instructions:
        cycles, stack = printed_form.printed(profile, gpu, representative, parts, delays_of_one_warp)
    else:
        cycles, stack = 0.0, dict.fromkeys(CAUSES, 0.0)
    return _estimate(profile, cycles, stack, np.zeros(profile.outline.num_blocks, replay_state.BLOCK))


def _estimate(profile: Profile, cycles: float, stack: Mapping[str, float], blocks: np.ndarray) -> GpuMechEstimate:
    sms = int(profile.shape[0])
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
    """Of a large launch of like blocks its first and last waves are replayed, else all of it; the stack is that of what
    was replayed."""
    blocks = np.zeros(profile.outline.num_blocks, replay_state.BLOCK)
    spent, skip = np.zeros(len(CAUSES)), np.zeros(2, np.int64)
    sms, slots, _ = profile.shape.tolist()
    own = profile.outline
    followed = len(own.sms) or sms
    limits = in_turn(times_of(gpu)) if _takes_turns(profile) else times_of(gpu)
    if len(own.sms):
        limits = followed_times(limits, int(profile.part[0]), float(profile.part[1] / profile.part[2]))
    cycles = gpumech_replay.replay(
        replay_state.Launch(
            own.segment, own.access, profile.answer, profile.found, own.first_segment, own.first_access,
            own.first_line, own.block_warps, int(np.diff(own.block_warps).max(initial=0)),
            _interval(own),
        ),
        limits, followed, slots, spent, blocks, profile.waves, skip,
    )  # fmt: skip
    first, end = skip.tolist()
    half_width = 0.0
    if end:
        of_wave, off = waves.skip_cycles(blocks["begin"], first, followed * slots)
        number = (end - first) // (followed * slots)
        skipped = round(number * of_wave)
        waves.placed(blocks, first, end, skipped)
        cycles += skipped
        half_width = number * off / cycles
    if len(own.sms):
        ends = np.zeros(followed)
        np.maximum.at(ends, blocks["sm"][blocks["sm"] >= 0], blocks["end"][blocks["sm"] >= 0])
        later, off = part.last_end(ends, sms)
        cycles += round(later)
        half_width = max(half_width, part.LEAST_OFF, off / cycles)
    cpi = cycles * sms / max(1, profile.num_instructions)
    total = float(spent.sum())
    stack = {name: cpi * each / total if total else 0.0 for name, each in zip(CAUSES, spent.tolist(), strict=True)}
    return replace(_estimate(profile, float(cycles), stack, _of_all(own, blocks)), half_width=half_width)


def _of_all(own: Outline, blocks: np.ndarray) -> np.ndarray:
    """Rows for all blocks, from those of the blocks that are followed; others are on SM -1, and begin and end at -1."""
    if not len(own.sms):
        return blocks
    found = np.zeros(own.launch[0], replay_state.BLOCK)
    for name in ("sm", "begin", "end"):
        found[name] = -1
    found[own.blocks] = blocks
    found["sm"][own.blocks] = np.where(blocks["sm"] < 0, -1, own.sms[blocks["sm"]])
    return found


def _takes_turns(profile: Profile) -> bool:
    """Whether slices of L2 choose request by request: in launches so small that it costs little, and where it is known
    to matter: operands of products of matrices are copied past L1, whose blocks read the same lines in step; or few
    slices get most requests."""
    own = profile.outline
    if profile.num_instructions < waves.LEAST_INSTRUCTIONS:
        return True
    busiest, in_all, slices = profile.busiest.tolist()
    if busiest * slices > _UNEVEN * in_all:
        return True
    copies = (own.static["kind"] == MEMORY) & (own.static["access"] == COPY) & (own.static["passes_l1"] != 0)
    return bool((copies & (own.executed > 0)).any())


def _interval(own: Outline) -> int:
    """Cycles for which an instruction takes the unit that the launch takes for the most, in the mean."""
    front, executed = own.static["front"], own.executed
    units = front < NUM_UNITS
    taken = np.bincount(front[units], (executed * own.static["interval"])[units], NUM_UNITS)
    count = np.bincount(front[units], executed[units], NUM_UNITS)
    most = int(taken.argmax())
    return round(taken[most] / max(1, count[most]))


__all__ = [
    "CAUSES", "VERSION", "GpuMechEstimate", "L2State", "Profile", "ProfileError", "collect", "from_arrays", "l2_of",
    "predict", "profile_of", "profile_reads", "to_arrays", "touch",
]  # fmt: skip
