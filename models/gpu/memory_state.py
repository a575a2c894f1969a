"""State of a group of memory channels: L2's slices, their queues, DRAM. Channels know nothing of each other."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm_limits import shift_of
from manyscale.models.gpu.sm_state import MISS, NEVER

(
    L2_READS, L2_READ_MISSES, L2_WRITES, L2_WRITE_MISSES, L2_PENDING_HITS, DRAM_READS, DRAM_WRITES, ROW_HITS,
    NUM_COUNTS,
) = range(9)  # fmt: skip
NUM_BANK_GROUPS: Final = 16
_HASHES: Final = {  # Rau, "Pseudo-randomly interleaved memory" (ISCA 1991): which higher bits change which bit of an
    # index of 16, 32, 64 (polynomials 5, 37, 67; equations as given by Khairy et al., IEEE TPDS 2017)
    16: ((0, 3, 4, 6, 8, 9, 10, 11), (0, 1, 3, 5, 6, 7, 8, 12), (1, 2, 4, 6, 7, 8, 9), (2, 3, 5, 7, 8, 9, 10)),
    32: (
        (0, 3, 5, 6, 9, 10, 11, 12, 13), (1, 4, 6, 7, 10, 11, 12, 13, 14), (0, 2, 3, 6, 7, 8, 9, 10, 14),
        (1, 3, 4, 7, 8, 9, 10, 11), (2, 4, 5, 8, 9, 10, 11, 12),
    ),
    64: (
        (0, 5, 6, 10, 12, 15, 16, 17, 18), (0, 1, 5, 7, 10, 11, 12, 13, 15), (1, 2, 6, 8, 11, 12, 13, 14, 16),
        (2, 3, 7, 9, 12, 13, 14, 15, 17), (3, 4, 8, 10, 13, 14, 15, 16, 18), (4, 5, 9, 11, 14, 15, 16, 17),
    ),
}  # fmt: skip


LINE: Final = np.dtype(  # of L2
    [
        ("used", "i8"),  # last use
        ("valid", "u1"),  # sectors that can be read
        ("pending", "u1"),
        ("dirty", "u1"),
    ],
    align=True,
)


class Memory(NamedTuple):
    """C channels, P slices each, X sets, Y ways, Z sectors of a line. Times are cycles of the SM's clock."""

    # requests in flight [nodes]
    node_time: np.ndarray  # int64: when it can be looked up
    node_request: np.ndarray  # int64
    node_written: np.ndarray  # uint32
    node_tag: np.ndarray  # int32
    node_sm: np.ndarray  # int32
    node_next: np.ndarray  # int32
    node_free: np.ndarray  # int32: a stack
    free: np.ndarray  # int64[2]: nodes in it, and DRAM's
    # crossbar: what each SM sent that has not passed, in its order [SMs]
    port_head: np.ndarray  # int32: -1: nothing
    port_tail: np.ndarray  # int32
    port_time: np.ndarray  # int64: when the first of them can pass; NEVER: nothing
    port_slice: np.ndarray  # int32: where that one goes
    passed_until: np.ndarray  # int64[1]: those that pass before this cycle have passed
    turn: np.ndarray  # int32[slices of the GPU]: SM whose turn it is
    chosen: np.ndarray  # int32[slices]: scratch, filled with -1
    # slices [C, P]
    head: np.ndarray  # int32: of the queue, -1: empty
    tail: np.ndarray  # int32
    last_access: np.ndarray  # int64
    last_reply: np.ndarray  # int64
    blocked: np.ndarray  # bool: until something is filled
    misses: np.ndarray  # int32: entries of outstanding misses
    dirty_lines: np.ndarray  # int32
    # L2
    tag: np.ndarray  # int64[C, P, X, Y]: line, -1: empty (by itself: all ways of a set are read for each lookup)
    line: np.ndarray  # LINE[C, P, X, Y]
    miss: np.ndarray  # MISS[C, P, X, Y, Z]
    clock: np.ndarray  # int64[C]: uses so far
    # DRAM's requests [nodes]
    dram_time: np.ndarray  # int64
    dram_request: np.ndarray  # int64
    dram_place: np.ndarray  # int64: slice, set, way and sector of a read, each in 16 bits; -1: a write
    dram_bank: np.ndarray  # int32
    dram_row: np.ndarray  # int64
    dram_next: np.ndarray  # int32
    dram_free: np.ndarray  # int32
    # channels [C]
    way_head: np.ndarray  # int32: on the way to DRAM
    way_tail: np.ndarray  # int32
    last_way: np.ndarray  # int64
    queue: np.ndarray  # int32[C, Q]: that DRAM chooses from, oldest first
    queued: np.ndarray  # int32
    fill_head: np.ndarray  # int32: data on the way back
    fill_tail: np.ndarray  # int32
    bus_free: np.ndarray  # float64: next column command
    write_end: np.ndarray  # float64: of the last write's data
    last_activate: np.ndarray  # float64
    row: np.ndarray  # int64[C, banks]: open, -1: none
    column_from: np.ndarray  # float64[C, banks]: column commands of the open row
    precharge_from: np.ndarray  # float64[C, banks]
    activated: np.ndarray  # float64[C, banks]
    group_from: np.ndarray  # float64[C, NUM_BANK_GROUPS]
    counts: np.ndarray  # int64[C, NUM_COUNTS]
    # replies of this exchange [replies]
    reply_time: np.ndarray  # int64
    reply_sm: np.ndarray  # int32
    reply_tag: np.ndarray  # int32
    reply_level: np.ndarray  # uint8
    replies: np.ndarray  # int64[1]


class MemoryLimits(NamedTuple):
    """Numbers that the kernels read, all int64 but the times of DRAM (float64, cycles of the SM's clock).

    A request's channel and slice follow from the bits of its address above ``index_shift``: as many as there are
    slices, changed by those above ``hash_shift`` through the masks ``hash_masks`` (an array int64; empty: modulo).
    """

    channels: int
    channel_slices: int
    first_channel: int
    set_mask: int
    set_shift: int
    ways: int
    sector_shift: int
    slice_shift: int
    request_shift: int
    index_shift: int
    hash_shift: int
    latency: int
    mshrs: int
    merges: int
    write_allocate: int
    dirty_limit: int
    full: int
    dram_latency: int
    queue: int
    burst: float
    banks: int
    bank_groups: int
    row_shift: int
    rcd: float
    cl: float
    wl: float
    rp: float
    ras: float
    rc: float
    rrd: float
    ccdl: float
    cdlr: float
    wr: float
    simple: int
    hash_masks: np.ndarray
    set_masks: np.ndarray


def memory_limits(gpu: Gpu, first_channel: int = 0) -> MemoryLimits:
    """``first_channel``: of the group that is simulated together."""
    slices, channels, l2, dram = gpu.l2.slices, gpu.dram.channels, gpu.l2, gpu.dram
    bytes_per_cycle = 1e12 / (dram.bandwidth_ps_per_byte * gpu.frequency_hz * channels)
    timing = dram.timing
    ratio = gpu.frequency_hz / timing.frequency_hz if timing else 0.0

    def cycles(name: str) -> float:
        return getattr(timing, name) * ratio if timing else 0.0

    line_shift = l2.line_bytes.bit_length() - 1
    return MemoryLimits(
        channels=channels,
        channel_slices=slices // channels,
        first_channel=first_channel,
        set_mask=l2.num_sets - 1,
        set_shift=shift_of(l2.num_sets),
        ways=l2.ways,
        sector_shift=shift_of(l2.line_bytes // l2.sector_bytes),
        slice_shift=-1 if slices & (slices - 1) else shift_of(slices),
        request_shift=l2.sector_bytes.bit_length() - 1,
        index_shift=line_shift,
        hash_shift=line_shift + (slices - 1).bit_length() + 1,
        latency=round(l2.latency_cycles) + 2 * round(gpu.interconnect_cycles),
        mshrs=l2.mshrs,
        merges=l2.merges,
        write_allocate=int(l2.write_allocate),
        dirty_limit=round(l2.dirty_share * l2.num_sets * l2.ways),
        full=0xFFFFFFFF,
        dram_latency=round(dram.latency_cycles),
        queue=dram.queue,
        burst=l2.sector_bytes / bytes_per_cycle,
        banks=timing.banks if timing else 1,
        bank_groups=timing.bank_groups if timing else 1,
        row_shift=(timing.row_bytes if timing else 2048).bit_length() - 1,
        rcd=cycles("rcd"),
        cl=cycles("cl"),
        wl=cycles("wl"),
        rp=cycles("rp"),
        ras=cycles("ras"),
        rc=cycles("rc"),
        rrd=cycles("rrd"),
        ccdl=cycles("ccdl"),
        cdlr=cycles("cdlr"),
        wr=cycles("wr"),
        simple=int(timing is None),
        hash_masks=_masks(slices),
        set_masks=_masks(l2.num_sets),
    )


def _masks(size: int) -> np.ndarray:
    return np.array([sum(1 << bit for bit in bits) for bits in _HASHES.get(size, ())], np.int64)


def shortest_reply_cycles(gpu: Gpu) -> int:
    """From the cycle in which a request leaves an SM to the first in which its reply has an effect there."""
    return memory_limits(gpu).latency + 6


def memory_state(gpu: Gpu, num_channels: int, nodes: int) -> Memory:
    """Empty channels with room for ``nodes`` requests in flight."""
    c, p, l2 = num_channels, gpu.l2.slices // gpu.dram.channels, gpu.l2
    shape = (c, p, l2.num_sets, l2.ways)
    sectors = (*shape, l2.line_bytes // l2.sector_bytes)
    banks = gpu.dram.timing.banks if gpu.dram.timing else 1
    past = -1e18

    def whole(*shape: int, value: int = 0) -> np.ndarray:
        return np.full(shape, value, np.int32)

    def times(*shape: int, value: int = 0) -> np.ndarray:
        return np.full(shape, value, np.int64)

    return Memory(
        node_time=times(nodes), node_request=times(nodes), node_written=np.zeros(nodes, np.uint32),
        node_tag=whole(nodes), node_sm=whole(nodes), node_next=whole(nodes),
        node_free=np.arange(nodes - 1, -1, -1, dtype=np.int32), free=np.array([nodes, nodes]),
        port_head=whole(gpu.sms, value=-1), port_tail=whole(gpu.sms, value=-1),
        port_time=times(gpu.sms, value=NEVER), port_slice=whole(gpu.sms), passed_until=times(1),
        turn=whole(l2.slices), chosen=whole(l2.slices, value=-1),
        head=whole(c, p, value=-1), tail=whole(c, p, value=-1),
        last_access=times(c, p, value=-NEVER), last_reply=times(c, p, value=-NEVER), blocked=np.zeros((c, p), np.bool_),
        misses=whole(c, p), dirty_lines=whole(c, p),
        tag=times(*shape, value=-1), line=np.zeros(shape, LINE), miss=np.zeros(sectors, MISS), clock=times(c),
        dram_time=times(nodes), dram_request=times(nodes), dram_place=times(nodes), dram_bank=whole(nodes),
        dram_row=times(nodes), dram_next=whole(nodes),
        dram_free=np.arange(nodes - 1, -1, -1, dtype=np.int32),
        way_head=whole(c, value=-1), way_tail=whole(c, value=-1), last_way=times(c, value=-NEVER),
        queue=whole(c, gpu.dram.queue), queued=whole(c), fill_head=whole(c, value=-1), fill_tail=whole(c, value=-1),
        bus_free=np.full(c, past), write_end=np.full(c, past), last_activate=np.full(c, past),
        row=times(c, banks, value=-1), column_from=np.full((c, banks), past), precharge_from=np.full((c, banks), past),
        activated=np.full((c, banks), past), group_from=np.full((c, NUM_BANK_GROUPS), past),
        counts=times(c, NUM_COUNTS),
        reply_time=times(nodes), reply_sm=whole(nodes), reply_tag=whole(nodes),
        reply_level=np.zeros(nodes, np.uint8), replies=np.zeros(1, np.int64),
    )  # fmt: skip


_REQUEST: Final = ("node_time", "node_request", "node_written", "node_tag", "node_sm", "node_next", "node_free")
_DRAM: Final = ("dram_time", "dram_request", "dram_place", "dram_bank", "dram_row", "dram_next", "dram_free")
_REPLY: Final = ("reply_time", "reply_sm", "reply_tag", "reply_level")


def with_room(memory: Memory, requests: int) -> Memory:
    """The same state, with room for as many more requests in flight, and for what all may ask of DRAM: a sector is
    read, and a line's are written back."""
    size = len(memory.node_time)
    of_dram = (1 + memory.miss.shape[-1]) * (size - int(memory.free[0]) + requests)
    if memory.free[0] >= requests and memory.free[1] >= of_dram:
        return memory
    return enlarged(memory, size + max(size, of_dram))


def enlarged(memory: Memory, nodes: int) -> Memory:
    """The same state, with room for ``nodes`` requests in flight."""
    size = len(memory.node_time)
    changed = {name: _enlarged(getattr(memory, name), nodes) for name in (*_REQUEST, *_DRAM, *_REPLY)}
    for stack, which in (("node_free", 0), ("dram_free", 1)):
        free = int(memory.free[which])
        changed[stack][free : free + nodes - size] = np.arange(size, nodes)
        memory.free[which] += nodes - size
    return memory._replace(**changed)


def _enlarged(array: np.ndarray, size: int) -> np.ndarray:
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger


def with_ports(memory: Memory, num_sms: int) -> Memory:
    """The same state, with ports of the crossbar for as many SMs as a launch uses; nothing is in flight."""
    return memory._replace(
        port_head=np.full(num_sms, -1, np.int32), port_tail=np.full(num_sms, -1, np.int32),
        port_time=np.full(num_sms, NEVER, np.int64), port_slice=np.zeros(num_sms, np.int32),
    )  # fmt: skip


def reset_clock(memory: Memory) -> None:
    """Set times back for the next launch, whose cycles begin at 0 again; what L2 holds stays. Nothing is in flight."""
    memory.passed_until[:] = 0
    for array in (memory.last_access, memory.last_reply, memory.last_way):
        array[:] = -NEVER
    for array in (memory.bus_free, memory.write_end, memory.last_activate, memory.column_from, memory.precharge_from,
                  memory.activated, memory.group_from):  # fmt: skip
        array[:] = -1e18
    memory.row[:] = -1
    memory.turn[:] = 0
    # lines that were being written back have been; all nodes are free
    for array in (memory.head, memory.tail, memory.way_head, memory.way_tail, memory.fill_head, memory.fill_tail):
        array[:] = -1
    memory.queued[:] = 0
    size = len(memory.node_time)
    memory.node_free[:] = memory.dram_free[:] = np.arange(size - 1, -1, -1)
    memory.free[:] = size
    memory.counts[:] = 0


def forget_all(memory: Memory) -> None:
    """Empty L2."""
    memory.line[:] = 0
    memory.tag[:] = -1
    memory.dirty_lines[:] = 0
