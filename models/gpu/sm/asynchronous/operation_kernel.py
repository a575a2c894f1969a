"""What a warp does when it issues an asynchronous operation, and products of groups of four warps (wgmma).

A product of a group begins when all four warps have come to it and the tensor cores of their schedulers are free; the
warps then go on at once. Its sums are there for who waits for its group (WARPGROUP.DEPBAR): products of one accumulator
follow each other without a gap, and registers that they write hold nothing back, since a program may not touch them
before it waits. That a warp does not go on before the others have come is an assumption (PTX ISA, "wgmma.mma_async":
all warps of a group execute the same; not how far one may be ahead).
"""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.launch_program import (
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    NAMED_BARRIER,
    PRODUCT,
    PRODUCT_FENCE,
    PRODUCT_WAIT,
)
from manyscale.models.gpu.sm.asynchronous.barrier_kernel import (
    await_phase,
    begin_barrier,
    change_barrier,
    follow,
    meet_named,
)
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import await_cluster, change_remote, meet
from manyscale.models.gpu.sm.asynchronous.copy_kernel import start_copy
from manyscale.models.gpu.sm.asynchronous.state import BARRIER_BYTES, GROUP_WARPS, PRODUCT_GROUPS
from manyscale.models.gpu.sm.control.counters_kernel import let_go
from manyscale.models.gpu.sm.state import AT_BARRIER, DEPENDENCY, NEVER, RUNNING, WAITS_GROUP
from manyscale.models.gpu.sm.warp_kernel import release
from manyscale.models.kernels import merged, seldom
from manyscale.models.workload.asynchronous import (
    ARRIVES_ONLY,
    BARRIER_MASK,
    BARRIER_SHIFT,
    BEGINS,
    COPIES,
    DETAIL_MASK,
    DETAIL_SHIFT,
    DROPS,
    FOLLOWS,
    IN_WORDS,
    KIND_BITS,
    MEETS,
    MORE_MASK,
    MORE_SHIFT,
    NAMED_BARRIERS,
    NUMBER_MASK,
    RANK_MASK,
    RANK_SHIFT,
    REMOTE_SHIFT,
    THREADS_MASK,
    THREADS_SHIFT,
    TRIES,
    WAITS,
)


@merged
def _end_group(sm, w):  # type: ignore[no-untyped-def]
    """The products that a warp has issued since the last group are one."""
    warp = sm.warp[w]
    sm.product[w, warp.product_group % PRODUCT_GROUPS] = warp.product_done
    warp.product_group += 1
    warp.has_products = 0


@merged
def _let_go(sm, w, static, time):  # type: ignore[no-untyped-def]
    """What a product held up (control/issue_kernel.py)."""
    if static.sets >= 0:
        let_go(sm, w, static.sets, time, DEPENDENCY)
    if static.reads >= 0:
        let_go(sm, w, static.reads, time, DEPENDENCY)


@merged
def _multiply(sm, program, limits, w, row, time):  # type: ignore[no-untyped-def]
    """A product begins with the last of its warps; the tensor cores of all are then busy with it. When the warp can go
    on; NEVER: with the last one."""
    static = program.static[row]
    block = sm.block[sm.warp[w].slot]
    first = w - (w - block.first_warp) % GROUP_WARPS
    end = min(first + GROUP_WARPS, np.int64(block.end_warp))
    begins = time + limits.front
    sm.warp[w].state = WAITS_GROUP
    sm.ready[w] = NEVER
    for each in range(first, end):
        if sm.warp[each].state != WAITS_GROUP:
            return NEVER
        begins = max(begins, sm.unit[sm.warp[each].scheduler, static.front].free)
    for each in range(first, end):
        warp = sm.warp[each]
        sm.unit[warp.scheduler, static.front].free = begins + static.interval
        warp.product_done = begins + static.latency + limits.back
        warp.done = max(warp.done, warp.product_done)
        warp.has_products = 1
        if static.immediate:
            _end_group(sm, each)
        _let_go(sm, each, static, warp.product_done)
        if each != w:
            release(sm, program, limits, each, time + 1, AT_BARRIER)
    sm.warp[w].state = RUNNING
    return time + 1


@merged
def _await_products(sm, w, groups, time):  # type: ignore[no-untyped-def]
    """When all but the last ``groups`` groups of a warp's products are there."""
    group = sm.warp[w].product_group - groups - 1
    if group < 0:
        return time + 1
    return max(time + 1, sm.product[w, group % PRODUCT_GROUPS])


@merged
def _arrive(sm, program, limits, w, what, word, amount, time):  # type: ignore[no-untyped-def]
    """When the warp can go on."""
    warp = sm.warp[w]
    place = NAMED_BARRIERS + (word >> BARRIER_SHIFT & BARRIER_MASK) // BARRIER_BYTES
    arrivals = amount & 0xFFFFFFFF
    num_bytes = amount >> 32
    if word >> REMOTE_SHIFT & 1:
        change_remote(sm, limits, warp.slot, word >> RANK_SHIFT & RANK_MASK, place, arrivals, num_bytes, time)
        return max(time + 1, sm.core[0].last_sent >> limits.port_shift)
    if what == BEGINS:
        begin_barrier(sm, warp.slot, place, arrivals)
    elif what == FOLLOWS:
        follow(sm, program, limits, w, place, arrivals, num_bytes, time)
    else:
        if what == DROPS:
            sm.barrier[warp.slot, place].expected -= arrivals
        change_barrier(sm, program, limits, warp.slot, place, arrivals, num_bytes, time, AT_BARRIER)
    return time + 1


@merged
def _operate(sm, program, limits, w, time):  # type: ignore[no-untyped-def]
    """The words of an instruction."""
    warp = sm.warp[w]
    words = program.words
    first = warp.next_word
    end = first + 1 + (words[first] >> MORE_SHIFT & MORE_MASK)
    warp.next_word = end
    earliest = time + 1
    if words[first] & KIND_BITS == COPIES:
        return start_copy(sm, program, limits, w, first, time)
    while first < end and earliest < NEVER:
        word = words[first]
        what = word & KIND_BITS
        place = NAMED_BARRIERS + (word >> BARRIER_SHIFT & BARRIER_MASK) // BARRIER_BYTES
        if what == WAITS:
            earliest = await_phase(sm, limits, w, place, word >> DETAIL_SHIFT & DETAIL_MASK, time)
            first += 1
        elif what == TRIES:
            earliest = time + limits.shared_latency
            first += 1
        elif what == MEETS:
            number = word >> BARRIER_SHIFT & NUMBER_MASK
            only_arrives = word >> DETAIL_SHIFT & DETAIL_MASK
            earliest = meet_named(sm, program, limits, w, number, words[first + 1], only_arrives, time)
            first += 2
        else:
            earliest = max(earliest, _arrive(sm, program, limits, w, what, word, words[first + 1], time))
            first += 2
    return earliest


@seldom(gives="int")
def operate(sm, program, limits, w, at, row, time):  # type: ignore[no-untyped-def]
    """A warp issues an asynchronous operation, or waits for products: from when on it can go on; NEVER: its state says
    what it waits for."""
    static = program.static[row]
    if program.active[at] == 0:
        if static.kind == PRODUCT:
            _let_go(sm, w, static, time + 1)
        return time + 1
    if static.kind == PRODUCT:
        return _multiply(sm, program, limits, w, row, time)
    if static.kind == NAMED_BARRIER:
        if static.immediate & IN_WORDS:
            return _operate(sm, program, limits, w, time)
        number = static.immediate & NUMBER_MASK
        threads = static.immediate >> THREADS_SHIFT & THREADS_MASK
        return meet_named(sm, program, limits, w, number, threads, static.immediate & ARRIVES_ONLY, time)
    if static.kind == PRODUCT_WAIT:
        if static.passes_l1 and sm.warp[w].has_products:
            _end_group(sm, w)
        return _await_products(sm, w, static.immediate, time)
    if static.kind == PRODUCT_FENCE:
        if static.passes_l1 and sm.warp[w].has_products:
            _end_group(sm, w)
        return time + 1
    if static.kind == CLUSTER_ARRIVE:
        meet(sm, program, limits, w, time)
        return time + 1
    if static.kind == CLUSTER_WAIT:
        return await_cluster(sm, limits, w, time)
    return _operate(sm, program, limits, w, time)
