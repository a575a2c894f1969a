"""State of the SMs of a group: arrays whose first dimension is the SM. Times are cycles of the SM's clock."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import NUM_UNITS
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm_limits import SmLimits

NEVER: Final = 1 << 60
MOST_WAITING: Final = 1 << 13  # requests of an SM that wait for misses
BANK_QUEUE: Final = 64  # a power of two above the depth of L1's pipeline
COPY_GROUPS: Final = 64  # of a warp that are not waited for yet
LOADS_PER_WARP: Final = 64  # memory instructions in flight

# Why a scheduler issued nothing in a cycle, or that it did: the parts of the CPI stack.
CAUSES: Final = (
    "issue", "dependency", "shared", "l1", "l2", "dram", "barrier", "unit", "load_store", "drain", "empty",
)  # fmt: skip
ISSUE, DEPENDENCY, FROM_SHARED, FROM_L1, FROM_L2, FROM_DRAM, AT_BARRIER, UNIT_BUSY, LOAD_STORE, DRAIN, EMPTY = range(11)

# states of a warp's slot
FREE: Final = 0
RUNNING: Final = 1
WAITS_BARRIER: Final = 2
WAITS_MEMORY: Final = 3  # for its loads (MEMBAR), its atomics, or copies
EXITED: Final = 4


class Sm(NamedTuple):
    """One row an SM; see the comments. W warps, S schedulers, U units, B blocks' slots, F frames of L1."""

    # warps [SM, W]
    state: np.ndarray  # uint8
    at: np.ndarray  # int64: next instruction
    last: np.ndarray  # int64: end of its instructions
    next_request: np.ndarray  # int64
    ready: np.ndarray  # int64: earliest issue of its next instruction, as far as operands go; NEVER: not known
    cause: np.ndarray  # uint8: what that waits for
    block_slot: np.ndarray  # int16
    age: np.ndarray  # int64: order in which warps were dispatched
    done: np.ndarray  # int64: when all that it issued to units is done
    stores: np.ndarray  # int32: requests that were not acknowledged
    loads: np.ndarray  # int32: memory instructions in flight that write registers, or are atomics
    atomics: np.ndarray  # int32
    copy_group: np.ndarray  # int32: number of the open group
    copy_limit: np.ndarray  # int32: groups below this one are waited for
    copies: np.ndarray  # int32[SM, W, COPY_GROUPS]
    fence: np.ndarray  # bool: it waits for all its loads
    # registers [SM, W, registers]
    register: np.ndarray  # int64: when it can be read; NEVER: a load is on its way
    register_cause: np.ndarray  # uint8
    # blocks' slots [SM, B]
    block: np.ndarray  # int64: number of the block, -1: free
    block_begin: np.ndarray  # int64
    block_warps: np.ndarray  # int32: warps that have not ended
    block_running: np.ndarray  # int32: warps that have not exited
    block_arrived: np.ndarray  # int32: at the barrier
    block_latest: np.ndarray  # int64: latest end of a warp that ended
    block_end: np.ndarray  # int64: of the block; NEVER: not known
    # schedulers [SM, S]
    last_issued: np.ndarray  # int32: warp's slot
    order: np.ndarray  # int32[SM, S, W / S]: of a two-level scheduler, the active warps first
    active_until: np.ndarray  # int64: cycles accounted for
    try_at: np.ndarray  # int64: earliest issue of any warp
    collector: np.ndarray  # int64[SM, S, 2]: operand collectors free from
    in_front: np.ndarray  # int64[SM, S, U + 1]: the register before the collectors is free from
    before_unit: np.ndarray  # int64[SM, S, U]: the one between collectors and unit
    unit: np.ndarray  # int64[SM, S, U]
    queued: np.ndarray  # int32[SM, S]: memory instructions that the load/store unit has not taken
    # load/store unit: instructions that were issued, in order [SM, Q]
    queue: np.ndarray  # int32: slot of the instruction
    queue_time: np.ndarray  # int64
    # memory instructions in flight [SM, M]
    load_warp: np.ndarray  # int16
    load_row: np.ndarray  # int32: static instruction
    load_left: np.ndarray  # int32: requests that are not answered
    load_time: np.ndarray  # int64: the latest answer so far
    load_cause: np.ndarray  # uint8: the farthest level that answered
    load_first: np.ndarray  # int64: its first request
    load_count: np.ndarray  # int32: its requests that were not sent yet
    load_group: np.ndarray  # int32: copy group
    load_scheduler: np.ndarray  # int8
    load_free: np.ndarray  # int32: stack of free slots
    # L1's pipeline [SM, banks, BANK_QUEUE]
    bank_time: np.ndarray  # int64: lookup not before
    bank_load: np.ndarray  # int32
    bank_request: np.ndarray  # int64
    bank_head: np.ndarray  # int64[SM, banks]
    bank_tail: np.ndarray  # int64[SM, banks]
    bank_blocked: np.ndarray  # bool[SM, banks]: until something is filled
    # L1 [SM, F]
    tag: np.ndarray  # int64: line, -1: empty
    valid: np.ndarray  # uint8: sectors that can be read
    pending: np.ndarray  # uint8: sectors on their way
    dirty: np.ndarray  # uint8: sectors that were written
    bytes_written: np.ndarray  # uint32[SM, F, sectors]
    newer: np.ndarray  # int32: neighbours in order of use
    older: np.ndarray  # int32
    newest: np.ndarray  # int32[SM, sets]
    oldest: np.ndarray  # int32[SM, sets]
    bucket: np.ndarray  # int32[SM, buckets]: first frame whose line has this hash
    chain: np.ndarray  # int32[SM, F]: the next one
    # outstanding misses [SM, F, sectors] and those who wait [SM, nodes]
    waiting: np.ndarray  # int32: first node, -1: none
    waiting_last: np.ndarray  # int32
    waiting_count: np.ndarray  # int16
    node_load: np.ndarray  # int32
    node_next: np.ndarray  # int32
    node_free: np.ndarray  # int32: stack
    # requests to L2 that left, of this window [SM, R]
    out_time: np.ndarray  # int64
    out_request: np.ndarray  # int64
    out_written: np.ndarray  # uint32: 0 for a load
    out_tag: np.ndarray  # int32: who asks (below)
    # replies [SM, I]: a ring
    in_time: np.ndarray  # int64
    in_tag: np.ndarray  # int32
    in_level: np.ndarray  # uint8: FROM_L2, FROM_DRAM
    # figures
    stack: np.ndarray  # int64[SM, causes]
    number: np.ndarray  # int64[SM, NUM_NUMBERS]
    issued: np.ndarray  # int64[buckets of time]: warp instructions of all of them
    # blocks [blocks of the launch]: what became of those that ran here
    record_sm: np.ndarray  # int32; -1: not here
    record_begin: np.ndarray  # int64
    record_end: np.ndarray  # int64


# columns of ``number``
(
    LAST_FILL, LAST_WRITEBACK, LAST_SENT, SEND_COUNT, OUT, IN_HEAD, IN_TAIL, QUEUE_HEAD, QUEUE_TAIL, CURRENT,
    CURRENT_FROM, FREE_LOADS, FREE_NODES, MISSES, DIRTY_LINES, NEXT_AGE, NUM_WARPS, L1_READS, L1_READ_MISSES,
    L1_WRITES, L1_WRITE_MISSES, L1_PENDING_HITS, INSTRUCTIONS, THREAD_INSTRUCTIONS, WARP_CYCLES, RESIDENT_SINCE,
    NUM_BLOCKS, TIME, NEXT_END, ACTIVE_CYCLES, COLLECTED, NUM_NUMBERS,
) = range(32)  # fmt: skip

# ``out_tag``: of a load in L1: its frame * sectors + sector; of one past L1: BYPASS + slot of the instruction; of a
# store: STORES + warp
BYPASS: Final = 1 << 28
STORES: Final = 1 << 29


def sm_state(
    gpu: Gpu, num_sms: int, l1_bytes: int, limits: SmLimits, window: int, ipc_buckets: int, num_blocks: int,
    registers: int,
) -> Sm:  # fmt: skip
    """Empty SMs. ``window``: the most cycles between two exchanges; ``num_blocks`` of the launch; ``registers`` that
    its instructions name."""
    warps, slots, schedulers, banks = limits.warps, limits.slots, gpu.schedulers, gpu.l1.banks
    sectors = gpu.l1.line_bytes // gpu.l1.sector_bytes
    sets = gpu.l1.num_sets
    frames = l1_bytes // gpu.l1.line_bytes
    loads = warps * LOADS_PER_WARP
    nodes = min(gpu.l1.mshrs * gpu.l1.merges, MOST_WAITING)
    queue = 1 << (8 * schedulers).bit_length()
    out = 2 * window + 64
    inbox = 1 << (4 * window * max(4, gpu.l2.slices // 4)).bit_length()
    buckets = 1 << (2 * frames).bit_length()
    n = num_sms

    def times(*shape: int, value: int = 0) -> np.ndarray:
        return np.full((n, *shape), value, np.int64) if value else np.zeros((n, *shape), np.int64)

    def whole(*shape: int, value: int = 0) -> np.ndarray:
        return np.full((n, *shape), value, np.int32) if value else np.zeros((n, *shape), np.int32)

    def small(*shape: int) -> np.ndarray:
        return np.zeros((n, *shape), np.uint8)

    number = times(NUM_NUMBERS)
    number[:, CURRENT] = -1
    number[:, NEXT_END] = NEVER
    number[:, FREE_LOADS] = loads
    number[:, FREE_NODES] = nodes
    number[:, LAST_FILL] = number[:, LAST_WRITEBACK] = number[:, LAST_SENT] = -1
    frame = np.arange(frames, dtype=np.int32)
    ways = frames // sets
    older, newer = frame + 1, frame - 1  # in each set from the newest to the oldest
    older[ways - 1 :: ways] = -1
    newer[::ways] = -1
    state = Sm(
        state=small(warps), at=times(warps), last=times(warps), next_request=times(warps),
        ready=times(warps, value=NEVER), cause=small(warps), block_slot=np.zeros((n, warps), np.int16),
        age=times(warps), done=times(warps), stores=whole(warps), loads=whole(warps), atomics=whole(warps),
        copy_group=whole(warps), copy_limit=whole(warps), copies=whole(warps, COPY_GROUPS),
        fence=np.zeros((n, warps), np.bool_),
        register=times(warps, registers), register_cause=small(warps, registers),
        block=times(slots, value=-1), block_begin=times(slots), block_warps=whole(slots), block_running=whole(slots),
        block_arrived=whole(slots), block_latest=times(slots), block_end=times(slots, value=NEVER),
        last_issued=whole(schedulers, value=-1),
        order=np.tile(np.arange(-(-warps // schedulers) * schedulers, dtype=np.int32).reshape(-1, schedulers).T, (n, 1, 1)),
        active_until=times(schedulers), try_at=times(schedulers, value=NEVER),
        collector=times(schedulers, 2), in_front=times(schedulers, NUM_UNITS + 1),
        before_unit=times(schedulers, NUM_UNITS), unit=times(schedulers, NUM_UNITS), queued=whole(schedulers),
        queue=whole(queue), queue_time=times(queue),
        load_warp=np.zeros((n, loads), np.int16), load_row=whole(loads), load_left=whole(loads), load_time=times(loads),
        load_cause=small(loads), load_first=times(loads), load_count=whole(loads), load_group=whole(loads),
        load_scheduler=np.zeros((n, loads), np.int8),
        load_free=np.tile(np.arange(loads - 1, -1, -1, dtype=np.int32), (n, 1)),
        bank_time=times(banks, BANK_QUEUE), bank_load=whole(banks, BANK_QUEUE), bank_request=times(banks, BANK_QUEUE),
        bank_head=times(banks), bank_tail=times(banks), bank_blocked=np.zeros((n, banks), np.bool_),
        tag=times(frames, value=-1), valid=small(frames), pending=small(frames), dirty=small(frames),
        bytes_written=np.zeros((n, frames, sectors), np.uint32), newer=np.tile(newer, (n, 1)),
        older=np.tile(older, (n, 1)), newest=np.tile(frame[::ways], (n, 1)),
        oldest=np.tile(frame[ways - 1 :: ways], (n, 1)), bucket=whole(buckets, value=-1), chain=whole(frames, value=-1),
        waiting=whole(frames, sectors, value=-1), waiting_last=whole(frames, sectors, value=-1),
        waiting_count=np.zeros((n, frames, sectors), np.int16),
        node_load=whole(nodes), node_next=whole(nodes), node_free=np.tile(np.arange(nodes, dtype=np.int32), (n, 1)),
        out_time=times(out), out_request=times(out), out_written=np.zeros((n, out), np.uint32), out_tag=whole(out),
        in_time=times(inbox), in_tag=whole(inbox), in_level=small(inbox),
        stack=times(len(CAUSES)), number=number, issued=np.zeros(ipc_buckets, np.int64),
        record_sm=np.full(num_blocks, -1, np.int32), record_begin=np.zeros(num_blocks, np.int64),
        record_end=np.zeros(num_blocks, np.int64),
    )  # fmt: skip
    return state
