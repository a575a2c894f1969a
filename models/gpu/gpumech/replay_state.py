"""State of the extended form of GPUMech (gpu/gpumech/replay.py), and the numbers of a GPU that it reads.

Things happen in order of time, at warps, at blocks that end, at the L1 of SMs and at schedulers: each stands in the
list of its cycle, of a wheel of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.outline import of_last_gpu
from manyscale.models.gpu.gpumech.queues import PERIOD_CYCLES
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.limits import GREEDY, OLDEST, QUEUED_MEMORY, SCHEDULERS, shift_of
from manyscale.models.kernels import inlined
from manyscale.models.kernels.event_heap import event_record

CAUSES: Final = (
    "BASE", "DEP", "L1", "L2", "DRAM", "MSHR", "QUEUE", "SHARED", "ISSUE", "UNIT", "BARRIER", "DRAIN",
)  # fmt: skip
BASE, DEP, L1, L2, DRAM, MSHR, QUEUE, SHARED, ISSUE, UNIT, BARRIER, DRAIN = range(12)
_AHEAD: Final = 96  # cycles: what Times.ahead and Times.turn are, unless in order
_TURN: Final = 4
_WAKES: Final = 2  # cycles until a warp that waits for room has its next access on the way
HORIZON: Final = 4096  # cycles, a power of two: of the wheel of events

WARP: Final = np.dtype(  # or what else things happen at, of which only ``time`` and ``next`` are used
    [
        ("time", "i8"),  # when it goes on
        ("line", "i8"),  # next one
        ("segment", "i4"), ("end", "i4"), ("access", "i4"),
        ("block", "i4"),
        ("scheduler", "i4"),  # among all of the GPU
        ("next", "i4"),  # of the same list
        ("age", "i4"),
        ("piece", "i4"),  # of its segment,
        ("made", "i4"),  # accesses of that so far
        ("asleep", "i4"),  # 1: until an access is answered
    ],
    align=True,
)  # fmt: skip
BLOCK: Final = np.dtype(
    [
        ("begin", "i8"), ("end", "i8"),
        ("met", "i8"),  # the latest arrival at the barrier
        ("running", "i4"), ("arrived", "i4"),
        ("sm", "i4"), ("slot", "i4"),
        ("waiting", "i4"),  # warps at the barrier, linked by ``next``
    ],
    align=True,
)  # fmt: skip
SM: Final = np.dtype(
    [
        ("head", "i8"), ("tail", "i8"),  # of accesses before its L1
        ("requests", "i8"),  # of these
        ("misses", "i8"),  # entries that are taken
        ("looked", "i8"),  # until when L1 does nothing, for want of entries
        ("sent", "i8"),  # when a request can leave
        ("port", "i8"),  # when one can pass the crossbar, since those before it have
        ("answered", "i8"),  # when all that L1 has asked for so far is there
        ("clock", "i8"),  # of its L1, while its first request waits for a slice, -1: now;
        ("since", "i8"),  # from when on that request could pass,
        ("granted", "i8"),  # and when it may, -1: not yet
        ("stalled", "i4"), ("last_stalled", "i4"),  # warps that wait for room before L1, linked by ``next``; -1: none
        ("asks", "i4"),  # slice for which its first request waits, -1: none; of those for the same one, the
        ("next", "i4"),
        ("passed", "i4"),  # slice that the last one passed to, and how many more can in the same cycle
        ("width", "i4"),
    ],
    align=True,
)  # fmt: skip
ARRIVAL: Final = np.dtype(  # of the last access that a segment's end waits for; how many are ``open``
    [("time", "i8"), ("misses", "i4"), ("queue", "i4"), ("cause", "i4"), ("open", "i4")], align=True
)
QUEUED: Final = np.dtype(  # an access before L1
    [
        ("ready", "i8"),  # for its lookup
        ("line", "i8"), ("lines", "i8"),  # the next one, and how many are left
        ("sent", "i8"), ("left", "i8"),  # requests of that line so far, and of all that may be left
        ("there", "i8"),  # when those are
        ("waited", "i4"),  # 1: L1 has waited to look that line up
        ("followed", "i4"),  # 1: whom that line waits for has asked
        ("misses", "i8"), ("queue", "i8"),  # cycles that it waited for entries, and in queues
        ("time", "i8"),  # when what was sent is answered
        ("access", "i4"), ("warp", "i4"),
    ],
    align=True,
)  # fmt: skip
FLIGHT: Final = event_record(np.dtype("i8"))  # requests that are answered together: when, and how many


class Launch(NamedTuple):
    """Segments of a launch (gpu/gpumech/segments.py), answers to accesses and lines (gpu/gpumech/collector.py) and the
    warps of its blocks, as they are; ``most_warps`` of a block. ``unit_interval``: cycles for which an instruction
    takes the unit that limits the launch."""

    segment: np.ndarray
    access: np.ndarray
    answer: np.ndarray
    found: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    first_line: np.ndarray
    block_warps: np.ndarray
    most_warps: int
    unit_interval: int


class State(NamedTuple):
    """``warp`` WARP[warps + blocks + SMs + schedulers + 1]; BLOCK[blocks], SM[SMs]. Of slices of L2 ``blocked``
    int64[slices], until when they do nothing; ``free`` int64[slices], from when on they are, ``turn`` int32[slices],
    whose turn is next, and ``asking`` int32[slices], the first of the SMs that wait for it, -1: none;
    ``waiting_sms`` int64[2]: how many wait, and whether the crossbar will look at them. Of each SM ``waiting``
    QUEUED[SMs, ring] and ``flight`` FLIGHT[SMs, entries] (a heap of ``flights`` int64[SMs, 1]). Of lines ``there`` and
    ``fetched`` int64[lines]: when what was missed is in L1, and in L2, 0: not yet known; ``joined`` int32[lines]: how
    many more have waited for that in L2; ``asked`` int64[lines], where some SMs are followed: when each was accessed,
    0: not yet. ``pending`` ARRIVAL[segments]. ``scheduler`` and ``unit`` int64[schedulers of
    all SMs]: free from; ``ready`` int32[schedulers]: warps that wait for it, linked by ``next``, -1: none. ``head`` and
    ``tail`` int32[HORIZON]: of each cycle's list. ``ages`` int64[1]. ``stack`` float64[causes]."""

    warp: np.ndarray
    block: np.ndarray
    sm: np.ndarray
    blocked: np.ndarray
    free: np.ndarray
    turn: np.ndarray
    asking: np.ndarray
    waiting_sms: np.ndarray
    waiting: np.ndarray
    flight: np.ndarray
    flights: np.ndarray
    there: np.ndarray
    fetched: np.ndarray
    joined: np.ndarray
    asked: np.ndarray
    pending: np.ndarray
    scheduler: np.ndarray
    unit: np.ndarray
    ready: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    ages: np.ndarray
    stack: np.ndarray


class Times(NamedTuple):
    """Of the GPU, in cycles: ``front`` from issue to the load/store unit, ``l1`` from there to a hit's result,
    ``l2`` and ``dram`` what a miss takes beyond, ``burst`` of all of DRAM for a request and ``channel_burst`` of a
    channel; ``shared`` as ``l1``. ``queued``: instructions of an SM that wait for the load/store unit before no more
    are issued; ``room``: requests between that and L1, where
    each ``stays`` so long at least. ``oldest``: whether the oldest warp goes first. ``port_shift``:
    of the sectors that a port to L2 passes in a cycle. ``in_turn``: whether slices of L2 choose request by request
    whose turn it is; then ``ahead``, how far an SM's accesses are looked up before those of others, is 0. ``turn``: how
    long a request waits for its slice before others' turns come between, else; ``slice_period``: cycles that a slice
    works in a period then. ``in_part``: whether some SMs are followed (gpu/gpumech/part.py). Of thread blocks, when the
    ``first_block`` begins, ``block_interval`` from SM to SM, ``block_pace`` from one to the next of an SM,
    ``block_turnaround`` from the end of one to the next in its place."""

    front: int
    l1: int
    l2: int
    dram: int
    burst: float
    channel_burst: float
    shared: int
    queued: int
    room: int
    stays: int
    mshrs: int
    l2_merges: int
    slices: int
    channels: int
    schedulers: int
    oldest: int
    port_shift: int
    in_turn: int
    ahead: int
    turn: int
    slice_period: int
    in_part: int
    first_block: int
    block_interval: float
    block_pace: int
    block_turnaround: int


def times(gpu: Gpu) -> Times:
    """Of a target."""
    timing = gpu.dram.timing
    row = (timing.rcd + timing.cl) * gpu.frequency_hz / timing.frequency_hz if timing else 0.0
    bytes_per_cycle = 1e12 / (gpu.dram.bandwidth_ps_per_byte * gpu.frequency_hz)
    burst = gpu.l2.sector_bytes / bytes_per_cycle
    return Times(
        front=gpu.front_cycles,
        l1=gpu.l1_hit_cycles - gpu.front_cycles - 1,
        l2=gpu.l2_hit_cycles - gpu.l1_hit_cycles,
        dram=round(gpu.dram.latency_cycles + row),
        burst=burst,
        channel_burst=burst * gpu.dram.channels,
        shared=round(gpu.shared_memory.latency_cycles) + 1,
        queued=QUEUED_MEMORY * gpu.schedulers,
        room=gpu.l1.banks * max(1, round(gpu.l1.latency_cycles)),
        stays=max(1, round(gpu.l1.latency_cycles)) - _WAKES,
        mshrs=gpu.l1.mshrs,
        l2_merges=gpu.l2.merges + gpu.l2.side_pool,
        slices=gpu.l2.slices,
        channels=gpu.dram.channels,
        schedulers=gpu.schedulers,
        oldest=int(SCHEDULERS.index(gpu.scheduler) in (GREEDY, OLDEST)),
        port_shift=shift_of(gpu.crossbar.sectors),
        in_turn=0,
        ahead=_AHEAD,
        turn=_TURN,
        first_block=0 if gpu.core is None else round(gpu.core.cold_start_cycles),
        block_interval=float(gpu.dispatch.interval_cycles),
        block_pace=max(1, round(gpu.dispatch.interval_cycles * gpu.sms)),
        block_turnaround=round(gpu.dispatch.turnaround_cycles),
        slice_period=PERIOD_CYCLES,
        in_part=0,
    )


times_of: Final = of_last_gpu(times)


def in_turn(times: Times) -> Times:
    """Where slices choose request by request: SMs that ask for the same lines in the same order hold each other up at
    one slice after the other."""
    return times._replace(in_turn=1, ahead=0)


def followed_times(times: Times, channels: int, share: float) -> Times:
    """For the SMs that are followed (gpu/gpumech/part.py), which ask for a ``share`` of all that is asked for, and
    have so many ``channels``."""
    slices = times.slices // times.channels * channels
    own = share * times.channels / channels  # of what a channel gives, and a slice
    return times._replace(
        slices=slices,
        channels=channels,
        channel_burst=times.channel_burst / own,
        slice_period=max(1, round(PERIOD_CYCLES * own)),
        in_part=1,
    )


@inlined
def push(state, number, now):  # type: ignore[no-untyped-def]
    """A warp, or another of these, is looked at when its time comes, in the order of pushes."""
    warp = state.warp
    at = min(max(warp[number].time, now + 1), now + HORIZON - 1) & (HORIZON - 1)
    warp[number].next = -1
    if state.head[at] < 0:
        state.head[at] = number
    else:
        warp[state.tail[at]].next = number
    state.tail[at] = number


@inlined
def later(into, time, misses, queue, cause):  # type: ignore[no-untyped-def]
    """The last access that a segment's end waits for."""
    if time > into.time:
        into.time = time
        into.misses = misses
        into.queue = queue
        into.cause = cause
