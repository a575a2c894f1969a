"""The unit of an SM that copies blocks of bytes and boxes of tensors (TMA).

It takes one copy after the other, ``copy_latency`` after the instruction, and asks L2 (past L1) for one sector each
``copy_interval`` (or as many as the port to L2 is wide), row by row, without waiting for answers: those of several
copies are on their way together. A copy into shared memory is over with its last answer, which the barrier is told; one
out of it when L2 has acknowledged all. A prefetch into L2 asks for its sectors likewise, and nobody waits for them
(that their data come to the SM all the same is an approximation).
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.parameters import SECTOR_BYTES
from manyscale.models.gpu.sm.asynchronous.barrier_kernel import change_barrier
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import BYTES, rank_of, tell
from manyscale.models.gpu.sm.asynchronous.state import BARRIER_BYTES
from manyscale.models.gpu.sm.l1_kernel import send
from manyscale.models.gpu.sm.limits import SEND_QUEUE
from manyscale.models.gpu.sm.state import (
    COPIES_IN_FLIGHT,
    COPIES_OUT,
    COPY_GROUPS,
    FROM_L2,
    LOAD_STORE,
    NEVER,
    WAITS_COPIES,
)
from manyscale.models.gpu.sm.warp_kernel import after_memory, release
from manyscale.models.kernels import inner, merged, seldom
from manyscale.models.workload.asynchronous import (
    ADDRESS_MASK,
    BARRIER_MASK,
    BARRIER_SHIFT,
    DETAIL_MASK,
    DETAIL_SHIFT,
    FROM_SHARED,
    LOADS,
    MORE_MASK,
    MORE_SHIFT,
    NAMED_BARRIERS,
    PREFETCHES,
    RANK_MASK,
    RANK_SHIFT,
    REDUCES,
    ROW_BYTES_MASK,
    ROWS_MASK,
    ROWS_SHIFT,
    STRIDE_MASK,
    STRIDE_SHIFT,
    WITHIN,
)

SECTOR_SHIFT: Final = SECTOR_BYTES.bit_length() - 1
_WRITTEN: Final = 2  # cycles from an answer to shared memory, as to a register
_BANK_BYTES: Final = 128  # a word of each of 32 banks
_BYTES_MASK: Final = 0xFFFFFFFF


@inner
def start_copy(sm, program, limits, w, first, time):  # type: ignore[no-untyped-def]
    """The copy of the words from ``first`` on, of warp ``w``. When the warp can go on; NEVER: once there is room."""
    core = sm.core[0]
    warp = sm.warp[w]
    room = sm.copy.shape[0]
    if core.copy_end - core.copy_first == room:
        warp.state = WAITS_COPIES
        warp.next_word = first
        sm.ready[w] = NEVER
        return NEVER
    word = program.words[first]
    amount = program.words[first + 1]
    copy = sm.copy[core.copy_end % room]
    copy.way = word >> DETAIL_SHIFT & DETAIL_MASK
    copy.barrier = NAMED_BARRIERS + (word >> BARRIER_SHIFT & BARRIER_MASK) // BARRIER_BYTES
    copy.bytes = amount & _BYTES_MASK
    copy.ranks = amount >> 32 & 0xFFFF
    if copy.ranks == 0:
        copy.ranks = 1 << (word >> RANK_SHIFT & RANK_MASK)
    copy.run = first + 2
    copy.runs = ((word >> MORE_SHIFT & MORE_MASK) - 1) // 2
    copy.rows = 0
    copy.left = 0
    copy.is_sent = 0
    copy.is_over = 0
    copy.is_told = 0
    copy.due = 0
    copy.cause = FROM_L2
    copy.warp = w
    copy.slot = warp.slot
    copy.group = warp.copy_group
    copy.begins = time + limits.copy_latency
    if copy.way == FROM_SHARED or copy.way == REDUCES:
        sm.copies[w, warp.copy_group % COPY_GROUPS] += 1
    if copy.way != PREFETCHES:  # which nobody waits for
        warp.bulk += 1
    if core.copy_next == core.copy_end:
        core.next_copy = copy.begins
    core.copy_end += 1
    return time + 1


@merged
def _next_run(program, copy):  # type: ignore[no-untyped-def]
    rows = program.words[copy.run]
    shape = program.words[copy.run + 1]
    copy.run += 2
    copy.runs -= 1
    copy.offset = 0
    copy.address = rows & ADDRESS_MASK
    copy.rows = rows >> ROWS_SHIFT & ROWS_MASK
    copy.row_bytes = shape & ROW_BYTES_MASK
    copy.stride = shape >> STRIDE_SHIFT & STRIDE_MASK
    if copy.stride == copy.row_bytes:  # nothing lies between them
        copy.row_bytes *= copy.rows
        copy.rows = 1


@merged
def _send_next(sm, limits, copy, number, time):  # type: ignore[no-untyped-def]
    """The next request of a row."""
    start = copy.address + copy.offset
    row_end = copy.address + copy.row_bytes
    request = start >> limits.request_shift
    end = min((request + 1) << limits.request_shift, row_end)
    written = 0
    tag = COPIES_IN_FLIGHT + number
    if copy.way == REDUCES:
        written = limits.full
    elif copy.way == FROM_SHARED:
        tag = COPIES_OUT + number
        written = limits.full
        if limits.request_shift == SECTOR_SHIFT:
            written = ((1 << (end - start)) - 1) << (start & (SECTOR_BYTES - 1))
    send(sm, limits, time, request, written, tag)
    copy.left += 1
    copy.due += 1
    copy.offset = end - copy.address
    if end == row_end:
        copy.address += copy.stride
        copy.offset = 0
        copy.rows -= 1


@seldom(gives="nothing")
def move_copies(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """The unit's next requests, at ``time``: as many as the port to L2 is wide."""
    core = sm.core[0]
    room = sm.copy.shape[0]
    core.next_copy = NEVER
    sent = 0
    while core.copy_next < core.copy_end:
        soonest = time + (1 if sent == 0 else limits.copy_interval)
        number = core.copy_next % room
        copy = sm.copy[number]
        if copy.begins > time:
            core.next_copy = max(copy.begins, soonest)
            return
        if copy.rows == 0 and copy.runs == 0:  # it moves nothing
            copy.is_sent = 1
            core.copy_next += 1
            _end_copy(sm, program, limits, number, time)
        elif copy.rows == 0:
            _next_run(program, copy)
        elif core.last_sent - (time << limits.port_shift) >= SEND_QUEUE:
            core.next_copy = soonest
            return
        else:
            _send_next(sm, limits, copy, number, time)
            if copy.rows == 0 and copy.runs == 0:
                copy.is_sent = 1
                core.copy_next += 1
            sent += 1
            if sent == limits.port:
                if core.copy_next < core.copy_end:
                    core.next_copy = time + limits.copy_interval
                return


@seldom(gives="nothing")
def take_part(sm, program, limits, number, time, cause):  # type: ignore[no-untyped-def]
    """An answer to a request of copy ``number``."""
    copy = sm.copy[number]
    copy.left -= 1
    copy.cause = max(copy.cause, cause)
    if copy.left == 0 and copy.is_sent:
        _end_copy(sm, program, limits, number, time)


@merged
def _tell_barriers(sm, program, limits, copy, time, cause):  # type: ignore[no-untyped-def]
    """The bytes of a copy have come: to its own block, and, unless they were told already, to others of its cluster."""
    own = rank_of(sm, limits, sm.block[copy.slot].number) if limits.cluster > 1 else 0
    if limits.cluster == 1 or copy.ranks >> own & 1:
        change_barrier(sm, program, limits, copy.slot, copy.barrier, 0, -copy.bytes, time + _WRITTEN, cause)
    if limits.cluster > 1 and copy.is_told == 0:
        for rank in range(limits.cluster):
            if rank != own and copy.ranks >> rank & 1:
                tell(sm, limits, copy.slot, rank, BYTES, copy.barrier, copy.bytes, time + _transfer(limits, copy))


@merged
def _transfer(limits, copy):  # type: ignore[no-untyped-def]
    """Cycles that a copy between blocks takes, 128 bytes as a word of each bank does."""
    return copy.bytes * limits.cluster_interval // _BANK_BYTES if copy.way == WITHIN else 0


@inner
def _end_copy(sm, program, limits, number, time):  # type: ignore[no-untyped-def]
    core = sm.core[0]
    room = sm.copy.shape[0]
    copy = sm.copy[number]
    w = copy.warp
    warp = sm.warp[w]
    cause = copy.cause
    copy.is_over = 1
    if copy.way != PREFETCHES:
        warp.bulk -= 1
        if copy.way == LOADS or copy.way == WITHIN:
            _tell_barriers(sm, program, limits, copy, time, cause)
        else:
            sm.copies[w, copy.group % COPY_GROUPS] -= 1
        warp.done = max(warp.done, time + _WRITTEN)
        after_memory(sm, program, limits, w, time + _WRITTEN, cause)
    was_full = core.copy_end - core.copy_first == room
    while core.copy_first < core.copy_next and sm.copy[core.copy_first % room].is_over:
        core.copy_first += 1
    if was_full and core.copy_end - core.copy_first < room:
        for other in range(limits.warps):
            if sm.warp[other].state == WAITS_COPIES:
                first = sm.warp[other].next_word
                if start_copy(sm, program, limits, other, first, time) < NEVER:
                    sm.warp[other].next_word = first + 1 + (program.words[first] >> MORE_SHIFT & MORE_MASK)
                    release(sm, program, limits, other, time + 1, LOAD_STORE)
