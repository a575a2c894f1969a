"""State of a group of memory channels: L2's slices, their queues, DRAM. Channels know nothing of each other."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.l2.slices import index_masks, slice_masks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.limits import shift_of
from manyscale.models.gpu.sm.state import NEVER, REQUEST, longer

(
    L2_READS, L2_READ_MISSES, L2_WRITES, L2_WRITE_MISSES, L2_PENDING_HITS, DRAM_READS, DRAM_WRITES, ROW_HITS,
    NUM_COUNTS,
) = range(9)  # fmt: skip
_PLACES: Final = 512  # of a queue, to begin with
PAST: Final = -1e18  # cycles

LINE: Final = np.dtype(  # of L2: sectors; those of a set fit into a line of the host's caches
    [
        ("valid", "u1"),  # that can be read
        ("pending", "u1"),
        ("dirty", "u1"), ("unused", "u1"),
    ]
)  # fmt: skip
MISS: Final = np.dtype(  # of a sector of L2: the requests that wait for it, the first + 1, 0: none
    [("first", "i4"), ("last", "i4"), ("count", "i4"), ("written", "u4")]  # and which bytes of it were written
)
ARRIVED: Final = np.dtype(  # a request in the queue of a slice
    [
        ("time", "i8"),  # of its lookup
        ("request", "i8"),
        ("written", "u4"), ("tag", "i4"),
        ("sm", "i4"),
        ("index", "i4"),  # of its set
    ]
)  # fmt: skip
NODE: Final = np.dtype(  # a request that waits for a sector
    [
        ("written", "u4"), ("tag", "i4"),
        ("sm", "i4"),
        ("next", "i4"),  # that waits for the same; of those that are free, the next one of these; -1: none
    ]
)  # fmt: skip
SLICE: Final = np.dtype(
    [
        ("next_access", "i8"), ("last_reply", "i8"),  # cycles times sectors of the port
        ("head", "i8"), ("tail", "i8"),  # of its queue
        ("misses", "i4"),  # entries of outstanding misses
        ("aside", "i4"),  # requests that wait for these beyond what each holds
        ("dirty_lines", "i4"),
        ("blocked", "i8"),  # 1: until something is filled
    ],
    align=True,
)  # fmt: skip
CHANNEL: Final = np.dtype(
    [
        ("way_head", "i4"), ("way_tail", "i4"),  # on the way to DRAM, -1: nothing
        ("last_way", "i8"),
        ("fill_head", "i4"), ("fill_tail", "i4"),  # data on the way back, -1: none
        ("queued", "i8"),  # requests that DRAM chooses from
        ("oldest", "i4"), ("newest", "i4"),  # places of the first and the last one that arrived
        ("free_place", "i8"),  # the first of those that are free
        ("arrived", "i8"),  # requests, so far
        ("bus_free", "f8"),  # next column command
        ("write_end", "f8"),  # of the last write's data
        ("last_read", "f8"),  # column command
        ("activate_from", "f8"),  # any bank
        ("activated_0", "f8"), ("activated_1", "f8"), ("activated_2", "f8"),  # the last ones, the newest first
        ("refresh_at", "f8"),  # the next one
        ("refresh_bank", "i8"),
        ("writes", "i8"),  # on their way or waiting
        ("uses", "i8"),  # of L2's lines, so far
    ],
    align=True,
)  # fmt: skip
BANK: Final = np.dtype(
    [
        ("row", "i8"),  # open, -1: none
        ("head", "i4"), ("tail", "i4"),  # places of those that wait for it, the first and the last that arrived
    ],
    align=True,
)  # fmt: skip
DRAM: Final = np.dtype(  # a request of DRAM
    [
        ("time", "i8"),
        ("place", "i8"),  # slice, set, way and sector of a read, each in 16 bits; -1: a write
        ("row", "i8"),
        ("bank", "i4"),
        ("next", "i4"),  # of those on the same way; of those that are free, the next one of these; -1: none
    ],
    align=True,
)  # fmt: skip
WAITING: Final = np.dtype(  # a request that DRAM chooses from: those of a channel stand together
    [
        ("time", "i8"), ("order", "i8"),  # when, and as which one of the channel, it arrived
        ("row", "i8"),
        ("node", "i4"),  # of DRAM
        ("before", "i2"), ("next", "i2"),  # places of those of its bank; of a free place, the next one
        ("older", "i2"), ("newer", "i2"),  # of the channel
        ("bank", "i2"), ("is_write", "i2"),
    ]
)  # fmt: skip
HITS: Final = 2  # kinds of what waits for a bank: reads and writes of the open row, then those of other rows
# rows of Memory.bank_from: cycles from which on a bank takes column commands of its open row, those of its group, a
# precharge; when it was activated; and what a precharge takes (nothing, far in the past, if no row is open)
COLUMN_FROM, GROUP_FROM, PRECHARGE_FROM, ACTIVATED, TO_PRECHARGE = range(5)
ARRIVAL: Final = 5  # when the first of each kind arrived; infinity: there is none
ORDER: Final = ARRIVAL + 2 * HITS  # and as which one of the channel
NUM_BANK_ROWS: Final = ORDER + 2 * HITS
BANK_LANES: Final = 16  # of which banks are a multiple: they are looked at together
REPLY_TO_SM: Final = np.dtype([("time", "i8"), ("sm", "i4"), ("tag", "i4"), ("level", "i8")], align=True)


class Memory(NamedTuple):
    """C channels, S slices (those of a channel stand together), X sets, Y ways, Z sectors of a line. Times are cycles
    of the SM's clock."""

    in_flight: np.ndarray  # int64[1]: requests in the queues of ports and slices
    node: np.ndarray  # NODE[nodes]
    dram: np.ndarray  # DRAM[nodes]
    free: np.ndarray  # int64[2]: how many of either are free,
    freed: np.ndarray  # int64[2]: the first of those that were given back, -1: none,
    used: np.ndarray  # int64[2]: and that from which on they were never used
    # crossbar: what each SM sent that has not passed, in its order [SMs]
    port: np.ndarray  # REQUEST[SMs, P]: a ring, P a power of two
    port_head: np.ndarray  # int64
    port_tail: np.ndarray  # int64
    port_time: np.ndarray  # int64: when the first of them can pass; NEVER: nothing
    port_slice: np.ndarray  # int32: where that one goes
    passed_until: np.ndarray  # int64[1]: those that pass before this cycle have passed
    turn: np.ndarray  # int32[slices of the GPU]: SM whose turn it is
    chosen: np.ndarray  # int32[slices]: scratch, filled with -1
    # L2
    slice: np.ndarray  # SLICE[S]
    arrived: np.ndarray  # ARRIVED[S, A]: a ring, A a power of two
    tag: np.ndarray  # int64[S, X, Y]: line, -1: empty (by itself: all ways of a set are read for each lookup)
    line: np.ndarray  # LINE[S, X, Y]
    last_use: np.ndarray  # int64[S, X, Y]
    miss: np.ndarray  # MISS[S, X, Y, Z]
    # DRAM
    channel: np.ndarray  # CHANNEL[C]
    waiting: np.ndarray  # WAITING[C, Q]: that DRAM chooses from
    bank: np.ndarray  # BANK[C, banks]
    bank_from: np.ndarray  # float64[C, NUM_BANK_ROWS, banks, round up]
    first: np.ndarray  # int64[C, 2 * HITS, banks]: place of the first of each kind
    earliest: np.ndarray  # float64[3, BANK_LANES]: scratch
    counts: np.ndarray  # int64[C, NUM_COUNTS]
    # replies of this exchange
    reply: np.ndarray  # REPLY_TO_SM[replies]
    replies: np.ndarray  # int64[1]


class MemoryLimits(NamedTuple):
    """Numbers that the kernels read, all int64 but the times of DRAM (float64, cycles of the SM's clock).

    A request's slice follows from its line, by ``hash_shift`` and ``hash_masks`` (gpu/l2/slices.py), its channel from
    the slice. ``index_shift`` is that of a line in an address.
    """

    slices: int
    first_slice: int
    channels: int
    channel_slices: int
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
    side_pool: int
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
    port: int
    port_shift: int
    faw: float
    rtw: float
    refi: float
    rfc: float
    writes: int


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
        slices=slices,
        first_slice=first_channel * (slices // channels),
        channels=channels,
        channel_slices=slices // channels,
        set_mask=l2.num_sets - 1,
        set_shift=shift_of(l2.num_sets),
        ways=l2.ways,
        sector_shift=shift_of(l2.line_bytes // l2.sector_bytes),
        slice_shift=-1 if slices & (slices - 1) else shift_of(slices),
        request_shift=l2.sector_bytes.bit_length() - 1,
        index_shift=line_shift,
        hash_shift=(slices - 1).bit_length() + 1,
        latency=_latency(gpu),
        mshrs=l2.mshrs,
        merges=l2.merges,
        side_pool=l2.side_pool,
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
        hash_masks=slice_masks(slices),
        set_masks=index_masks(l2.num_sets),
        port=gpu.crossbar.sectors,
        port_shift=shift_of(gpu.crossbar.sectors),
        faw=cycles("faw"),
        rtw=cycles("rtw"),
        refi=cycles("refi") / (timing.banks if timing else 1),
        rfc=cycles("rfc"),
        writes=dram.writes or NEVER,
    )


def _latency(gpu: Gpu) -> int:
    return round(gpu.l2.latency_cycles) + 2 * round(gpu.interconnect_cycles)


def shortest_reply_cycles(gpu: Gpu) -> int:
    """From the cycle in which a request leaves an SM to the first in which its reply has an effect there."""
    return _latency(gpu) + 6


def memory_state(gpu: Gpu, num_channels: int, nodes: int) -> Memory:
    """Empty channels with room for ``nodes`` requests in flight."""
    channel_slices = gpu.l2.slices // gpu.dram.channels
    banks = gpu.dram.timing.banks if gpu.dram.timing else 1
    shape = (num_channels * channel_slices, gpu.l2.num_sets, gpu.l2.ways)
    memory = Memory(
        in_flight=np.zeros(1, np.int64),
        node=np.empty(nodes, NODE),
        dram=np.empty(nodes, DRAM),
        free=np.zeros(2, np.int64),
        freed=np.zeros(2, np.int64),
        used=np.zeros(2, np.int64),
        port=np.empty((gpu.sms, _PLACES), REQUEST),
        port_head=np.zeros(gpu.sms, np.int64),
        port_tail=np.zeros(gpu.sms, np.int64),
        port_time=np.full(gpu.sms, NEVER, np.int64),
        port_slice=np.zeros(gpu.sms, np.int32),
        passed_until=np.zeros(1, np.int64),
        turn=np.zeros(gpu.l2.slices, np.int32),
        chosen=np.full(gpu.l2.slices, -1, np.int32),
        slice=np.zeros(shape[0], SLICE),
        arrived=np.empty((shape[0], _PLACES), ARRIVED),
        tag=np.full(shape, -1, np.int64),
        line=np.zeros(shape, LINE),
        last_use=np.zeros(shape, np.int64),
        miss=np.zeros((*shape, gpu.l2.line_bytes // gpu.l2.sector_bytes), MISS),
        channel=np.zeros(num_channels, CHANNEL),
        waiting=np.zeros((num_channels, gpu.dram.queue), WAITING),
        bank=np.zeros((num_channels, banks), BANK),
        bank_from=np.zeros((num_channels, NUM_BANK_ROWS, -(-banks // BANK_LANES) * BANK_LANES)),
        first=np.zeros((num_channels, 2 * HITS, banks), np.int64),
        earliest=np.zeros((3, BANK_LANES)),
        counts=np.zeros((num_channels, NUM_COUNTS), np.int64),
        reply=np.empty(nodes, REPLY_TO_SM),
        replies=np.zeros(1, np.int64),
    )
    reset_clock(memory)
    return memory


def with_room(memory: Memory, requests: int, cycles: int) -> Memory:
    """The same state, with room for as many more requests in flight, and for what all may ask of DRAM: a sector is
    read, and a line's are written back; and for those that come in ``cycles`` in the queues."""
    size = len(memory.node)
    of_dram = (1 + memory.miss.shape[-1]) * (int(memory.in_flight[0]) + requests)
    enough = memory.free[0] >= requests and memory.free[1] >= of_dram
    return enlarged(memory, size if enough else size + max(size, of_dram), cycles)


def enlarged(memory: Memory, nodes: int, cycles: int) -> Memory:
    """The same state, with room for ``nodes`` requests in flight, and for those of ``cycles`` in the queues."""
    memory.free[:] += nodes - len(memory.node)
    return memory._replace(
        node=_enlarged(memory.node, nodes),
        dram=_enlarged(memory.dram, nodes),
        reply=_enlarged(memory.reply, nodes),
        port=longer(memory.port, memory.port_head, memory.port_tail, cycles),
        arrived=longer(memory.arrived, memory.slice["head"], memory.slice["tail"], cycles),
    )


def _enlarged(array: np.ndarray, size: int) -> np.ndarray:
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


def with_ports(memory: Memory, num_sms: int) -> Memory:
    """The same state, with ports of the crossbar for as many SMs as a launch uses; nothing is in flight."""
    return memory._replace(
        port=np.empty((num_sms, memory.port.shape[1]), REQUEST),
        port_head=np.zeros(num_sms, np.int64), port_tail=np.zeros(num_sms, np.int64),
        port_time=np.full(num_sms, NEVER, np.int64), port_slice=np.zeros(num_sms, np.int32),
    )  # fmt: skip


def reset_clock(memory: Memory) -> None:
    """Set times back for the next launch, whose cycles begin at 0 again; what L2 holds stays. Nothing is in flight, but
    for lines that were being written back, which have been."""
    memory.in_flight[:] = 0
    memory.free[:] = len(memory.node)
    memory.freed[:] = -1
    memory.used[:] = 0
    memory.passed_until[:] = 0
    memory.turn[:] = 0
    own, channel, bank = memory.slice, memory.channel, memory.bank
    for name in ("next_access", "last_reply"):
        own[name] = -NEVER
    for name in ("head", "tail", "aside"):
        own[name] = 0
    for name in ("way_head", "way_tail", "fill_head", "fill_tail"):
        channel[name] = -1
    for name in ("queued", "free_place", "arrived", "refresh_at", "writes"):
        channel[name] = 0
    channel["refresh_bank"] = np.arange(len(channel)) % bank.shape[1]
    memory.waiting["next"] = np.arange(1, memory.waiting.shape[1] + 1)
    channel["last_way"] = -NEVER
    for name in ("bus_free", "write_end", "last_read", "activate_from", "activated_0", "activated_1", "activated_2"):
        channel[name] = PAST
    for name in ("row", "head", "tail"):
        bank[name] = -1
    memory.bank_from[:] = PAST
    memory.bank_from[:, ARRIVAL:ORDER] = np.inf
    memory.counts[:] = 0


def forget_all(memory: Memory) -> None:
    """Empty L2."""
    memory.line[:] = 0
    memory.last_use[:] = 0
    memory.tag[:] = -1
    memory.slice["dirty_lines"] = 0
