"""Barriers in shared memory (mbarrier), as the PTX ISA has them: a phase is over when all arrivals and all bytes that
it expects have come. Those who wait for it go on when they have read that from shared memory. Barriers of a block that
wait for a number of threads (BAR with a count): each warp counts whole."""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.sm.asynchronous.state import FOLLOWERS
from manyscale.models.gpu.sm.state import AT_BARRIER, COPY_GROUPS, NEVER, WAITS_NAMED, WAITS_PHASE
from manyscale.models.gpu.sm.warp_kernel import release
from manyscale.models.kernels import inner, merged, seldom

_THREADS: Final = 32  # of a warp


@merged
def begin_barrier(sm, slot, place, arrivals):  # type: ignore[no-untyped-def]
    barrier = sm.barrier[slot, place]
    barrier.expected = arrivals
    barrier.pending = arrivals
    barrier.bytes = 0
    barrier.phase = 0
    barrier.waiting = 0


@inner
def change_barrier(sm, program, limits, slot, place, arrivals, num_bytes, time, cause):  # type: ignore[no-untyped-def]
    """Arrivals and bytes come to a barrier of a block; with the last of them its phase is over."""
    barrier = sm.barrier[slot, place]
    barrier.pending -= arrivals
    barrier.bytes += num_bytes
    if barrier.pending != 0 or barrier.bytes != 0:
        return
    barrier.pending = barrier.expected
    barrier.phase ^= 1
    if barrier.waiting == 0:
        return
    block = sm.block[slot]
    for w in range(block.first_warp, block.end_warp):
        warp = sm.warp[w]
        if warp.state == WAITS_PHASE and warp.barrier == place and warp.parity != barrier.phase:
            barrier.waiting -= 1
            release(sm, program, limits, w, time + limits.shared_latency, cause)


@merged
def await_phase(sm, limits, w, place, parity, time):  # type: ignore[no-untyped-def]
    """When a warp that waits for the end of the phase of a parity can go on; NEVER: when it is told."""
    warp = sm.warp[w]
    barrier = sm.barrier[warp.slot, place]
    if barrier.phase != parity:
        return time + limits.shared_latency
    warp.state = WAITS_PHASE
    warp.barrier = place
    warp.parity = parity
    barrier.waiting += 1
    sm.ready[w] = NEVER
    return NEVER


@merged
def meet_named(sm, program, limits, w, number, threads, only_arrives, time):  # type: ignore[no-untyped-def]
    """A warp comes to barrier ``number`` of its block, which waits for ``threads``; with the last of them all go on.
    When one that only arrives goes on; NEVER: it does so with the others."""
    warp = sm.warp[w]
    barrier = sm.barrier[warp.slot, number]
    barrier.pending += _THREADS
    if only_arrives == 0:
        warp.state = WAITS_NAMED
        warp.barrier = number
        sm.ready[w] = NEVER
    if barrier.pending >= threads:
        barrier.pending = 0
        block = sm.block[warp.slot]
        for each in range(block.first_warp, block.end_warp):
            if sm.warp[each].state == WAITS_NAMED and sm.warp[each].barrier == number:
                release(sm, program, limits, each, time + limits.barrier, AT_BARRIER)
    return time + 1 if only_arrives else NEVER


@merged
def _are_there(sm, w, group):  # type: ignore[no-untyped-def]
    """Whether the copies of all groups of a warp below ``group`` are."""
    for each in range(max(0, sm.warp[w].copy_group - COPY_GROUPS + 1), group):
        if sm.copies[w, each % COPY_GROUPS] > 0:
            return False
    return True


@seldom(gives="nothing")
def arrive_behind(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """Arrivals of a warp whose turn it is, since the copies before them are there."""
    warp = sm.warp[w]
    while warp.follower_head < warp.follower_tail:
        follower = sm.follower[w, warp.follower_head % FOLLOWERS]
        if not _are_there(sm, w, follower.group):
            return
        warp.follower_head += 1
        change_barrier(
            sm, program, limits, warp.slot, follower.barrier, follower.arrivals, follower.bytes, time, AT_BARRIER
        )


@merged
def follow(sm, program, limits, w, place, arrivals, num_bytes, time):  # type: ignore[no-untyped-def]
    """An arrival when the copies (LDGSTS) that a warp has started are there: they are a group. (There is room: what is
    behind COPY_GROUPS or more groups is taken to have arrived.)"""
    warp = sm.warp[w]
    warp.copy_group += 1
    follower = sm.follower[w, warp.follower_tail % FOLLOWERS]
    follower.group = warp.copy_group
    follower.barrier = place
    follower.arrivals = arrivals
    follower.bytes = num_bytes
    warp.follower_tail += 1
    arrive_behind(sm, program, limits, w, time)
