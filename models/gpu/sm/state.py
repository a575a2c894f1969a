"""State of the SMs of a group: arrays whose first dimension is the SM. Times are cycles of the SM's clock."""

from __future__ import annotations

from collections import namedtuple
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import NUM_UNITS
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.asynchronous.state import BARRIER, COPY_OF_BYTES, FOLLOWER, MOST_OF_CLUSTER, Room
from manyscale.models.gpu.sm.limits import QUEUED_MEMORY, SmLimits

NEVER: Final = 1 << 60
NO_ROOM: Final = Room()
MOST_WAITING: Final = 1 << 13  # requests of an SM that wait for misses
BANK_QUEUE: Final = 64  # a power of two above the depth of L1's pipeline
BEFORE_UNIT: Final = 0  # places of memory instructions: the register before the load/store unit,
COLLECTOR: Final = 1  # two collectors (COLLECTOR + 1 is the second),
IN_FRONT: Final = 3  # and the register in front of these
COPY_GROUPS: Final = 64  # of a warp that are not waited for yet
LOADS_PER_WARP: Final = 128  # memory instructions in flight

# Why a scheduler issued nothing in a cycle, or that it did: the parts of the CPI stack.
CAUSES: Final = (
    "issue", "dependency", "shared", "l1", "l2", "dram", "barrier", "unit", "load_store", "drain", "empty", "fetch",
)  # fmt: skip
(
    ISSUE, DEPENDENCY, FROM_SHARED, FROM_L1, FROM_L2, FROM_DRAM, AT_BARRIER, UNIT_BUSY, LOAD_STORE, DRAIN, EMPTY,
    FETCH,  # code or constants, with control bits
) = range(12)  # fmt: skip

# states of a warp's slot
FREE: Final = 0
RUNNING: Final = 1
WAITS_BARRIER: Final = 2
WAITS_MEMORY: Final = 3  # for its loads (MEMBAR), its atomics, or copies
EXITED: Final = 4
WAITS_FETCH: Final = 5  # for its next instructions
WAITS_PHASE: Final = 6  # for that of a barrier in shared memory to end
WAITS_COPIES: Final = 7  # for room to make one more
WAITS_CLUSTER: Final = 8  # for the blocks of its cluster
WAITS_NAMED: Final = 9  # at a barrier that not all warps of its block come to
WAITS_GROUP: Final = 10  # for the other warps of its group of four, to multiply

CORE: Final = np.dtype(  # an SM
    [
        ("number", "i8"),  # of the SM among all of the GPU
        ("time", "i8"),  # next cycle
        ("next_end", "i8"),  # of a block
        ("next_reply", "i8"),  # that can come in; NEVER: none has been delivered
        ("next_load_store", "i8"),  # cycle in which the load/store unit has something to do
        ("last_fill", "i8"), ("last_writeback", "i8"), ("last_sent", "i8"),  # the latter two in sectors of the port
        ("out", "i8"),  # requests that left
        ("in_head", "i8"), ("in_tail", "i8"),  # of the ring of replies
        ("queued", "i8"),  # memory instructions that the load/store unit has not taken
        ("current", "i8"),  # memory instruction in the load/store unit, -1: none
        ("current_from", "i8"),
        ("free_loads", "i8"), ("free_nodes", "i8"),  # how many
        ("used_loads", "i8"), ("used_nodes", "i8"),  # those from here on were never used
        ("freed_load", "i8"), ("freed_node", "i8"),  # the first of those that were given back; a load's number + 1
        ("misses", "i8"),  # outstanding
        ("dirty_lines", "i8"),
        ("next_age", "i8"),
        ("last_fetched", "i8"),  # warp
        ("to_fetch", "i8"),  # warps that wait for their next instructions
        ("used_up", "i8"),  # those that issued in this cycle what had been fetched for them
        ("used_up_last", "i8"),  # the one of them whose turn is last
        ("last_frame", "i8"),  # of L1 that was found, or taken; -1: L1 is empty
        ("blocks", "i8"),  # resident
        ("resident_since", "i8"),
        ("l1_reads", "i8"), ("l1_read_misses", "i8"), ("l1_writes", "i8"), ("l1_write_misses", "i8"),
        ("l1_pending_hits", "i8"),
        ("instructions", "i8"), ("thread_instructions", "i8"),
        ("warp_cycles", "i8"),  # of resident warps
        ("active_cycles", "i8"),  # with a block
        ("next_copy", "i8"),  # when the unit that copies has something to do
        ("copy_first", "i8"), ("copy_next", "i8"), ("copy_end", "i8"),  # the oldest, the one that is sent, the end
        ("accepts_from", "i8"), ("last_taken", "i8"),  # with control bits: a memory instruction, and of which scheduler
        ("first_warp", "i8"), ("end_warp", "i8"),  # slots of the next block, where launches share the SM
    ],
    align=True,
)  # fmt: skip
WARP: Final = np.dtype(
    [
        ("at", "i8"), ("last", "i8"),  # next instruction, and the end of them
        ("next_request", "i8"),
        ("age", "i8"),  # order in which warps were dispatched
        ("done", "i8"),  # when all that it issued to units is done
        ("stores", "i4"),  # requests that were not acknowledged
        ("loads", "i4"),  # memory instructions in flight but for stores to L1
        ("atomics", "i4"),
        ("copy_group", "i4"),  # the open group
        ("copy_limit", "i4"),  # groups below this one are waited for
        ("slot", "i4"),  # of its block
        ("scheduler", "u1"),
        ("front", "u1"),  # its next instruction's unit; NUM_UNITS: the load/store unit
        ("state", "u1"),
        ("cause", "u1"),  # what its next instruction waits for
        ("fence", "u1"),  # it waits for all its loads
        ("of_pair", "u1"),  # instructions that it has issued of those that were fetched last
        ("parity", "u1"),  # of the phase that it waits for
        ("has_products", "u1"),  # that are in no group yet
        ("bulk", "i4"),  # copies that it has made and that are not over
        ("product_group", "i4"),  # the open group of products
        ("cluster_phase", "i4"),  # times that it has arrived at the cluster's barrier
        ("follower_head", "i4"), ("follower_tail", "i4"),  # arrivals behind copies
        ("barrier", "i8"),  # that it waits at
        ("next_word", "i8"),  # of its asynchronous operations
        ("product_done", "i8"),  # when all its products are there
        # with control bits:
        ("limited", "u1"),  # 1 + the dependence counter that it waits for
        ("counter_limit", "i4"),  # until that is no larger
        ("earliest", "i8"),  # issue of the next instruction, whatever its operands
        ("line_at", "i8"),  # when the next line of code is there
    ],
    align=True,
)  # fmt: skip
BLOCK: Final = np.dtype(
    [
        ("number", "i8"),  # -1: the slot is free
        ("begin", "i8"),
        ("latest", "i8"),  # end of a warp that ended
        ("end", "i8"),  # NEVER: not known
        ("warps", "i4"),  # that have not ended
        ("running", "i4"),  # that have not exited
        ("arrived", "i4"),  # at the barrier
        ("meeting", "i4"),  # at the cluster's
        ("meetings", "i4"),  # times that all of them have been there
        ("first_warp", "i4"), ("end_warp", "i4"),  # slots of its warps
    ],
    align=True,
)  # fmt: skip
SCHEDULER: Final = np.dtype(
    [
        ("active_until", "i8"),  # cycles accounted for
        ("collector_0", "i8"), ("collector_1", "i8"),  # operand collectors: free from; NEVER: not known
        ("second_warp", "i4"), ("second_row", "i4"),  # what is in collector_1, its static instruction
        ("second_unit", "i4"),  # NUM_UNITS: the load/store unit
        ("last_issued", "i4"),  # warp's slot, -1: none
        ("queued", "i4"),  # memory instructions that the load/store unit has not taken
        # with control bits:
        ("cached_warp", "i4"),  # whose operands the operand cache holds
        ("gate", "i8"),  # next issue, of any warp
        ("allocated", "i8"),  # when the last instruction left Allocate
        ("busy_even", "i8"), ("busy_odd", "i8"),  # ports of both banks: bit k for the cycle k + 1 behind that
        ("memory_from", "i8"),  # the place of the memory instruction that left last can be taken
        ("leaves_from", "i8"),  # the next memory instruction
        ("stream_end", "i8"),  # the last line of code that is fetched ahead
    ],
    align=True,
)  # fmt: skip
UNIT: Final = np.dtype(
    [
        ("in_front", "i8"),  # the register before the operand collectors is free from
        ("before", "i8"),  # that between collectors and unit
        ("free", "i8"),
    ]
)
LOAD: Final = np.dtype(  # a memory instruction in flight
    [
        ("first", "i8"),  # its first request
        ("time", "i8"),  # the latest answer so far
        ("row", "i4"),  # static instruction
        ("left", "i4"),  # requests that are not answered
        ("count", "i4"),  # requests that were not sent yet
        ("group", "i4"),  # of copies
        ("warp", "i2"),
        ("access", "u1"),  # Access
        ("cause", "u1"),  # the farthest level that answered
    ],
    align=True,
)  # fmt: skip
LOOKUP: Final = np.dtype(  # not before ``time``
    [("time", "i8"), ("request", "i8"), ("load", "i4"), ("written", "u4")], align=True
)
QUEUED: Final = np.dtype(  # a memory instruction that the load/store unit has not taken
    [("time", "i8"), ("issued", "i8"), ("load", "i8")]  # not before ``time``, NEVER: none
)
FRAME: Final = np.dtype(  # of L1; four stand in a line of the host's caches
    [
        ("tag", "i8"),  # line
        ("last_use", "u2"),  # where that stands among those of its set
        ("chain", "u2"),  # the next frame whose line has this hash, + 1
        ("valid", "u1"),  # sectors that can be read
        ("pending", "u1"),  # sectors on their way
        ("dirty", "u1"), ("unused", "u1"),  # sectors that were written
    ]
)  # fmt: skip
CACHED_LINE: Final = np.dtype(  # of code or constants
    [("at", "i8"), ("used", "i8")]  # when it arrives, NEVER: it does not; its last use, 0: none
)
USES_PER_WAY: Final = 4
MOST_FRAMES: Final = (1 << 16) // USES_PER_WAY - 1  # of an L1: their numbers and uses are held in 16 bits
MISS: Final = np.dtype(  # of a sector of a frame on its way: who waits for it
    [
        ("load", "u2"),  # the first one: most often the only one
        ("count", "u2"),
        ("first", "u2"), ("last", "u2"),  # nodes of the others
    ]
)  # fmt: skip
NODE: Final = np.dtype([("load", "i4"), ("next", "i4")])
REQUEST: Final = np.dtype(
    [("time", "i8"), ("request", "i8"), ("written", "u4"), ("tag", "i4")]  # 0 for a load; who asks (below)
)
REPLY: Final = np.dtype([("time", "i8"), ("tag", "i4"), ("level", "i4")])  # FROM_L2, FROM_DRAM

# ``tag``: of a load in L1: its frame * sectors + sector; of one past L1: BYPASS + slot of the instruction; of a store:
# STORES + warp
BYPASS: Final = 1 << 28
STORES: Final = 1 << 29
COPIES_IN_FLIGHT: Final = 3 << 27  # + number of a copy of blocks or boxes that reads, or adds to what it reads
COPIES_OUT: Final = 1 << 30  # + number of one that writes
MESSAGE: Final = 3 << 29  # + what it says (gpu/sm/asynchronous/cluster_kernel.py)


class Sm(NamedTuple):
    """W warps, S schedulers, U units, B slots of blocks, F frames of L1, Z sectors of a line."""

    core: np.ndarray  # CORE[SM]
    warp: np.ndarray  # WARP[SM, W]
    ready: np.ndarray  # int64[SM, W]: earliest issue as far as operands go; NEVER: not known, or it does not run
    copies: np.ndarray  # int32[SM, W, COPY_GROUPS]
    register: np.ndarray  # int64[SM, W, registers]: when it can be read; NEVER: a load is on its way
    register_cause: np.ndarray  # uint8
    block: np.ndarray  # BLOCK[SM, B]
    scheduler: np.ndarray  # SCHEDULER[SM, S]
    try_at: np.ndarray  # int64[SM, S]: earliest issue of any warp
    unit: np.ndarray  # UNIT[SM, S, U + 1]: the last one for memory instructions
    order: np.ndarray  # int32[SM, S, W / S]: of a two-level scheduler, the active warps first
    queue: np.ndarray  # QUEUED[SM, QUEUED_MEMORY or more, S]
    load: np.ndarray  # LOAD[SM, M]
    bank: np.ndarray  # LOOKUP[SM, banks, BANK_QUEUE]: L1's pipeline
    bank_head: np.ndarray  # int64[SM, banks]
    bank_tail: np.ndarray  # int64[SM, banks]
    bank_next: np.ndarray  # int64[SM, banks]: next lookup; NEVER: none, or not before something is filled
    frame: np.ndarray  # FRAME[SM, F]
    miss: np.ndarray  # MISS[SM, F, Z]
    written: np.ndarray  # uint32[SM, F, Z]: bytes of a dirty sector that cannot be read that were written
    use: np.ndarray  # uint16[SM, sets, uses]: frames in the order of their use; only the last of each has a meaning
    use_begin: np.ndarray  # int32[SM, sets]
    use_end: np.ndarray  # int32[SM, sets]
    filled: np.ndarray  # int32[SM, sets]: frames that were used since L1 was empty
    bucket: np.ndarray  # uint16[SM, buckets]: first frame of a hash, + 1
    node: np.ndarray  # NODE[SM, nodes + 1]: from 1 on
    sent: np.ndarray  # REQUEST[SM, R]: what left for L2 and was not collected
    reply: np.ndarray  # REPLY[SM, I]: a ring
    stack: np.ndarray  # int64[SM, causes]
    issued: np.ndarray  # int64[buckets of time]: warp instructions of all of them
    record_sm: np.ndarray  # int32[blocks of the launch]: where each ran; -1: not here
    record_begin: np.ndarray  # int64
    record_end: np.ndarray  # int64
    ended: np.ndarray  # int64[blocks + 1]: those that ended, SM by SM, behind their number
    barrier: np.ndarray  # BARRIER[SM, B, places in shared memory]
    copy: np.ndarray  # COPY[SM, C]: a ring
    product: np.ndarray  # int64[SM, W, groups]: when the products of a group are there
    follower: np.ndarray  # FOLLOWER[SM, W, F]: a ring
    peer: np.ndarray  # int32[SM, B, ranks]: times that each block of a cluster is known to have met the others
    place_sm: np.ndarray  # int32[blocks of the launch]: where each block of a cluster runs
    place_slot: np.ndarray  # int32
    cluster_order: np.ndarray  # int32[blocks]: cluster by cluster, in each by their ranks
    cluster_index: np.ndarray  # int32[blocks]: where each stands there
    reuse: np.ndarray  # int32[SM, S, 6]: the operand cache, three places of each bank; -1: none
    code: np.ndarray  # CACHED_LINE[SM, S + 1, lines]: caches of schedulers and of the SM
    constant: np.ndarray  # CACHED_LINE[SM, 2 S + 1, lines]: of schedulers for two kinds of instructions, and of the SM


class Counted(NamedTuple):
    """What of a launch's SMs its result comes from: members of Sm."""

    core: np.ndarray
    scheduler: np.ndarray
    stack: np.ndarray
    issued: np.ndarray
    record_sm: np.ndarray
    record_begin: np.ndarray
    record_end: np.ndarray


def counted(sm: Sm) -> Counted:
    return Counted(*(getattr(sm, name) for name in Counted._fields))


class OneSm(namedtuple("OneSm", Sm._fields)):  # type: ignore[misc]
    """The rows of one SM, and what all of them share."""

    SHARED: Final = (
        "issued", "record_sm", "record_begin", "record_end", "ended", "place_sm", "place_slot", "cluster_order",
        "cluster_index",
    )  # fmt: skip


def most_replies(gpu: Gpu, limits: SmLimits, num_sms: int, window: int) -> int:
    """The most that an SM is given between two windows, to places of its ring: slices answer as many a cycle as their
    ports are wide, an answer may be for each block of a cluster, and the others' SMs send as many messages."""
    sources = gpu.l2.slices * min(limits.cluster, limits.slots) + (num_sms if limits.cluster > 1 else 0)
    return sources * limits.port * (window + 2)


def sm_state(
    gpu: Gpu, num_sms: int, l1_bytes: int, limits: SmLimits, window: int, ipc_buckets: int, num_blocks: int,
    registers: int, room: Room = NO_ROOM, lines: tuple[int, int] = (0, 0),
) -> Sm:  # fmt: skip
    """Empty SMs. What is written before it is read is not filled, since that would take as long as a short launch.

    ``window``: the most cycles between two exchanges; ``num_blocks`` of the launch; ``registers`` that its instructions
    name. ``lines`` of code and of constants, of a launch with control bits.
    """
    n, warps, schedulers, banks = num_sms, limits.warps, gpu.schedulers, gpu.l1.banks
    sets = gpu.l1.num_sets
    frames = l1_bytes // gpu.l1.line_bytes
    if frames > MOST_FRAMES:
        raise ValueError(f"node.gpu.l1: {frames} lines of an SM; the detailed model holds {MOST_FRAMES}")
    sectors = gpu.l1.line_bytes // gpu.l1.sector_bytes
    ways = frames // sets
    loads = warps * LOADS_PER_WARP
    nodes = min(gpu.l1.mshrs * gpu.l1.merges, MOST_WAITING)
    inbox = 1 << most_replies(gpu, limits, n, window).bit_length()

    core = np.zeros(n, CORE)
    for name in ("last_fill", "last_writeback", "last_sent", "current", "last_frame"):
        core[name] = -1
    for name in ("next_end", "next_reply", "next_load_store", "next_copy"):
        core[name] = NEVER
    core["number"] = limits.first_sm + np.arange(n)
    core["free_loads"], core["free_nodes"] = loads, nodes
    block = np.zeros((n, limits.slots), BLOCK)
    block["number"], block["end"] = -1, NEVER
    scheduler = np.zeros((n, schedulers), SCHEDULER)
    scheduler["last_issued"] = scheduler["cached_warp"] = scheduler["stream_end"] = -1
    queue = np.zeros((n, max(QUEUED_MEMORY, limits.memory_queue), schedulers), QUEUED)
    queue["time"] = NEVER
    cached = [
        np.zeros((n, many, count), CACHED_LINE)
        for many, count in ((schedulers + 1, lines[0]), (2 * schedulers + 1, lines[1]))
    ]
    for each in cached:
        each["at"] = NEVER
    cached[0]["at"][:, schedulers, : limits.l1_code_sets * limits.l1_code_ways] = 0  # fetched when the launch begins
    order = np.arange(-(-warps // schedulers) * schedulers, dtype=np.int32).reshape(-1, schedulers).T
    return Sm(
        core=core,
        warp=np.zeros((n, warps), WARP),
        ready=np.full((n, warps), NEVER, np.int64),
        copies=np.empty((n, warps, COPY_GROUPS), np.int32),
        register=np.empty((n, warps, registers), np.int64),
        register_cause=np.zeros((n, warps, registers), np.uint8),
        block=block,
        scheduler=scheduler,
        try_at=np.full((n, schedulers), NEVER, np.int64),
        unit=np.zeros((n, schedulers, NUM_UNITS + 1), UNIT),
        order=np.ascontiguousarray(np.tile(order, (n, 1, 1))),  # (of one SM it is not, else)
        queue=queue,
        load=np.empty((n, loads), LOAD),
        bank=np.empty((n, banks, BANK_QUEUE), LOOKUP),
        bank_head=np.zeros((n, banks), np.int64),
        bank_tail=np.zeros((n, banks), np.int64),
        bank_next=np.full((n, banks), NEVER, np.int64),
        frame=np.empty((n, frames), FRAME),
        miss=np.empty((n, frames, sectors), MISS),
        written=np.empty((n, frames, sectors), np.uint32),
        use=np.empty((n, sets, USES_PER_WAY * ways), np.uint16),
        use_begin=np.zeros((n, sets), np.int32),
        use_end=np.zeros((n, sets), np.int32),
        filled=np.zeros((n, sets), np.int32),
        bucket=np.zeros((n, 1 << frames.bit_length()), np.uint16),
        node=np.empty((n, nodes + 1), NODE),
        sent=np.empty((n, 2 * window * limits.port + 64 + room.messages), REQUEST),
        reply=np.empty((n, inbox), REPLY),
        stack=np.zeros((n, len(CAUSES)), np.int64),
        issued=np.zeros(ipc_buckets, np.int64),
        record_sm=np.full(num_blocks, -1, np.int32),
        record_begin=np.zeros(num_blocks, np.int64),
        record_end=np.zeros(num_blocks, np.int64),
        ended=np.zeros(num_blocks + 1, np.int64),
        barrier=np.zeros((n, limits.slots, room.barriers), BARRIER),
        copy=np.empty((n, room.copies), COPY_OF_BYTES),
        product=np.empty((n, warps, room.products), np.int64),
        follower=np.empty((n, warps, room.followers), FOLLOWER),
        peer=np.zeros((n, limits.slots, MOST_OF_CLUSTER), np.int32),
        place_sm=np.zeros(room.blocks, np.int32),
        place_slot=np.zeros(room.blocks, np.int32),
        cluster_order=np.zeros(room.blocks, np.int32),
        cluster_index=np.zeros(room.blocks, np.int32),
        reuse=np.full((n, schedulers, 6), -1, np.int32),
        code=cached[0],
        constant=cached[1],
    )


def with_replies(sm: Sm, more: int) -> Sm:
    """The same state, with room for ``more`` replies beside those that SMs have not taken."""
    return sm._replace(reply=longer(sm.reply, sm.core["in_head"], sm.core["in_tail"], more))


def longer(ring: np.ndarray, head: np.ndarray, tail: np.ndarray, more: int) -> np.ndarray:
    """Rings with room for twice what they hold and ``more``."""
    old = new = ring.shape[1]
    while new < 2 * (int((tail - head).max(initial=0)) + more):
        new *= 2
    longer = np.empty((len(ring), new), ring.dtype)
    for row in range(len(ring)):
        places = np.arange(head[row], tail[row])
        longer[row, places % new] = ring[row, places % old]
    return longer
