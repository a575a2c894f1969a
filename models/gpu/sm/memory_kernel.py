"""The way of memory instructions through an SM: load/store unit, banks of L1, replies (see gpu/sm/kernel.py)."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.gpu.launch_program import ATOMIC, COPY, NUM_UNITS, REDUCTION, SHARED, STORE
from manyscale.models.gpu.sm.asynchronous.barrier_kernel import arrive_behind
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import take_message
from manyscale.models.gpu.sm.asynchronous.copy_kernel import take_part
from manyscale.models.gpu.sm.control.queue_kernel import after_last, leave_queue
from manyscale.models.gpu.sm.l1_kernel import BLOCKED, FULL, HIT, bucket_of, read, send, write
from manyscale.models.gpu.sm.limits import SEND_QUEUE
from manyscale.models.gpu.sm.state import (
    BANK_QUEUE,
    BEFORE_UNIT,
    BYPASS,
    COLLECTOR,
    COPIES_IN_FLIGHT,
    COPIES_OUT,
    COPY_GROUPS,
    FROM_L1,
    FROM_SHARED,
    IN_FRONT,
    MESSAGE,
    NEVER,
    STORES,
)
from manyscale.models.gpu.sm.warp_kernel import after_memory, end_warp, write_registers
from manyscale.models.kernels import inner_inlined, merged, read_soon, separate

REPLY_CYCLES: Final = 2  # cycles from L2's output to L1
_WRITEBACK: Final = 2  # from there to a register


@inner_inlined
def _free_load(sm, number):  # type: ignore[no-untyped-def]
    core = sm.core[0]
    if core.free_loads == 0:  # schedulers may wait for one
        for k in range(sm.try_at.shape[0]):
            sm.try_at[k] = 0
    sm.load[number].count = core.freed_load
    core.freed_load = number + 1
    core.free_loads += 1


@separate
def _complete(sm, program, limits, number):  # type: ignore[no-untyped-def]
    """All requests of a memory instruction were answered (or it had none)."""
    load = sm.load[number]
    w = load.warp
    warp = sm.warp[w]
    access = load.access
    time, cause = load.time + program.static[load.row].result, np.int64(load.cause)
    write_registers(sm, program, w, load.row, time, cause)
    warp.loads -= 1
    if access == ATOMIC or access == REDUCTION:
        warp.atomics -= 1
    elif access == COPY:
        sm.copies[w, load.group % COPY_GROUPS] -= 1
        if warp.follower_head < warp.follower_tail:
            arrive_behind(sm, program, limits, w, time)
    _free_load(sm, number)
    warp.done = max(warp.done, time)
    after_memory(sm, program, limits, w, time, cause)


@inner_inlined
def _answer(sm, program, limits, number, time, cause):  # type: ignore[no-untyped-def]
    load = sm.load[number]
    load.time = max(load.time, time)
    load.cause = max(load.cause, cause)
    load.left -= 1
    if load.left == 0:
        _complete(sm, program, limits, number)


@merged
def expect_first_reply(group, s):  # type: ignore[no-untyped-def]
    """A reply was delivered where none was."""
    core = group.core[s]
    arrival = group.reply[s, core.in_head & (group.reply.shape[1] - 1)].time + REPLY_CYCLES
    core.next_reply = max(arrival, core.last_fill + 1)


@merged
def _expect_reply(sm):  # type: ignore[no-untyped-def]
    """When the next reply can come in."""
    core = sm.core[0]
    if core.in_head < core.in_tail:
        arrival = sm.reply[core.in_head & (sm.reply.shape[0] - 1)].time + REPLY_CYCLES
        core.next_reply = max(arrival, core.last_fill + 1)
    else:
        core.next_reply = NEVER


@merged
def _read_ahead(sm, limits):  # type: ignore[no-untyped-def]
    """Have the host bring what the next replies need into its caches: frames of the one after the next, and who waits
    for the next one."""
    core = sm.core[0]
    mask = sm.reply.shape[0] - 1
    if core.in_head + 1 < core.in_tail:
        frame = sm.reply[(core.in_head + 1) & mask].tag >> limits.sector_shift
        read_soon(sm.frame, frame)
        read_soon(sm.miss, frame)
    if core.in_head < core.in_tail:
        tag = sm.reply[core.in_head & mask].tag
        if tag < BYPASS:
            frame = tag >> limits.sector_shift
            read_soon(sm.load, np.int64(sm.miss[frame, tag - (frame << limits.sector_shift)].load))


@merged
def _write_back(core, limits, time):  # type: ignore[no-untyped-def]
    """When what arrives is in its register: as many sectors are written in a cycle as arrive."""
    core.last_writeback = max((time + _WRITEBACK) << limits.port_shift, core.last_writeback + 1)
    return core.last_writeback >> limits.port_shift


@separate
def take_reply(sm, program, limits, time, is_last):  # type: ignore[no-untyped-def]
    """The next reply arrives; ``is_last``: the port takes no further one in this cycle."""
    core = sm.core[0]
    reply = sm.reply[core.in_head & (sm.reply.shape[0] - 1)]
    tag = reply.tag
    cause = reply.level
    core.in_head += 1
    core.last_fill = time if is_last else time - 1
    _expect_reply(sm)
    _read_ahead(sm, limits)
    if tag >= STORES:
        if tag >= MESSAGE:
            take_message(sm, program, limits, tag, cause, time)
            return
        if tag >= COPIES_OUT:
            take_part(sm, program, limits, tag - COPIES_OUT, time, cause)
            return
        sm.warp[tag - STORES].stores -= 1
        end_warp(sm, tag - STORES, time)
        return
    if tag >= BYPASS:
        if tag >= COPIES_IN_FLIGHT:
            take_part(sm, program, limits, tag - COPIES_IN_FLIGHT, time, cause)
            return
        _answer(sm, program, limits, tag - BYPASS, _write_back(core, limits, time), cause)
        return
    at = tag >> limits.sector_shift
    sector = tag - (at << limits.sector_shift)
    frame = sm.frame[at]
    frame.pending &= ~(1 << sector)
    frame.valid |= 1 << sector
    core.misses -= 1
    miss = sm.miss[at, sector]
    number = np.int64(miss.load)
    waiting = np.int64(miss.first) if miss.count > 1 else np.int64(0)
    while True:
        core.free_nodes += 1
        _answer(sm, program, limits, number, _write_back(core, limits, time), cause)
        if waiting == 0:
            break
        node = sm.node[waiting]
        number = np.int64(node.load)
        following = np.int64(node.next)
        node.next = core.freed_node
        core.freed_node = waiting
        waiting = following
    for bank in range(limits.banks):
        head = sm.bank_head[bank]
        if head < sm.bank_tail[bank]:
            sm.bank_next[bank] = sm.bank[bank, head & (BANK_QUEUE - 1)].time


@separate
def look_up(sm, program, limits, bank, time):  # type: ignore[no-untyped-def]
    """The oldest request of a bank is looked up."""
    head = sm.bank_head[bank]
    entry = sm.bank[bank, head & (BANK_QUEUE - 1)]
    number = entry.load
    load = sm.load[number]
    is_store = load.access == STORE
    if is_store:
        outcome = write(sm, limits, entry.request, entry.written, load.warp, time)
    else:
        outcome = read(sm, limits, entry.request, number, time)
    if outcome == BLOCKED:
        sm.bank_next[bank] = NEVER
        return
    if outcome == FULL:
        entry.time = sm.bank_next[bank] = time + 1
        return
    sm.bank_head[bank] = head + 1
    if head + 1 < sm.bank_tail[bank]:
        following = sm.bank[bank, (head + 1) & (BANK_QUEUE - 1)]
        following.time = sm.bank_next[bank] = max(following.time, time + 1)
    else:
        sm.bank_next[bank] = NEVER
    if is_store:
        load.left -= 1
        if load.left == 0:
            _free_load(sm, number)
    elif outcome == HIT:
        _answer(sm, program, limits, number, time, FROM_L1)


@merged
def _send_requests(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """Requests of the current instruction into L1's pipeline, or past it."""
    core = sm.core[0]
    number = core.current
    load = sm.load[number]
    static = program.static[load.row]
    is_store = load.access == STORE
    if static.kind == SHARED:
        core.current = -1
        _free_load(sm, number)
    elif load.count == 0:  # all its threads are masked out
        core.current = -1
        load.time = time
        if is_store:
            _free_load(sm, number)
        else:
            _complete(sm, program, limits, number)
    elif static.passes_l1:
        tag = STORES + load.warp if is_store else BYPASS + number
        for i in range(min(limits.past_l1, load.count)):
            if i > 0 and core.last_sent - (time << limits.port_shift) >= SEND_QUEUE:
                break
            load.count -= 1
            at = load.first + load.count
            send(sm, limits, time, program.request[at], program.written[at], tag)
        if load.count == 0:
            core.current = -1
            if is_store:
                _free_load(sm, number)
    else:
        used = 0
        for _ in range(limits.banks):
            at = load.first + load.count - 1
            request = program.request[at]
            bank = request & limits.bank_mask
            tail = sm.bank_tail[bank]
            if used >> bank & 1 or tail - sm.bank_head[bank] >= limits.l1_latency:
                break
            used |= 1 << bank
            entry = sm.bank[bank, tail & (BANK_QUEUE - 1)]
            entry.time = time + limits.l1_latency
            entry.load = number
            entry.request = request
            if is_store:
                entry.written = program.written[at]
            read_soon(sm.frame, np.int64(sm.bucket[bucket_of(sm, request >> limits.sector_shift)]) - 1)
            if tail == sm.bank_head[bank]:
                sm.bank_next[bank] = entry.time
            sm.bank_tail[bank] = tail + 1
            load.count -= 1
            if load.count == 0:
                core.current = -1
                break


@merged
def _is_older(sm, limits, k, other):  # type: ignore[no-untyped-def]
    """Whether the memory instruction before the load/store unit was issued before another scheduler's."""
    if limits.controlled:
        return after_last(sm, limits, k, other)
    issued = sm.queue[BEFORE_UNIT, k].issued
    if issued != sm.queue[BEFORE_UNIT, other].issued:
        return issued < sm.queue[BEFORE_UNIT, other].issued
    begin = 1 - issued  # each cycle another scheduler is the first
    return (k + begin) % limits.schedulers < (other + begin) % limits.schedulers


@separate
def load_store(sm, program, limits, time):  # type: ignore[no-untyped-def]
    """A cycle of the load/store unit: the current instruction, then the next one."""
    core = sm.core[0]
    if core.current >= 0 and time >= core.current_from:
        _send_requests(sm, program, limits, time)
    first = -1
    if core.current < 0 and core.queued > 0 and time >= core.accepts_from:
        for k in range(limits.schedulers):
            entry = sm.queue[BEFORE_UNIT, k]
            if entry.time <= time and (first < 0 or _is_older(sm, limits, k, first)):
                first = k
    if first >= 0:
        core.queued -= 1
        number = core.current = sm.queue[BEFORE_UNIT, first].load
        load = sm.load[number]
        shared = program.static[load.row].kind == SHARED
        core.current_from = time + (max(1, load.count) if shared else 1)
        remote = program.static[load.row].remote
        if remote:
            core.current_from = time + max(1, load.count) * limits.cluster_interval
        if limits.controlled:
            leave_queue(sm, program, limits, first, number, time)
        else:
            _move_up(sm, program, limits, first, time)
        sm.try_at[first] = min(sm.try_at[first], time)
        if shared:
            after = (limits.cluster_latency if remote else limits.shared_latency + program.static[load.row].result) + 1
            _read_shared(sm, program, limits, number, core.current_from + after)
    if core.current >= 0:
        core.next_load_store = max(time + 1, core.current_from)
    else:
        core.next_load_store = NEVER
        if core.queued > 0:
            for k in range(limits.schedulers):
                core.next_load_store = min(core.next_load_store, sm.queue[BEFORE_UNIT, k].time)
            core.next_load_store = max(core.next_load_store, core.accepts_from)


@merged
def _move_up(sm, program, limits, k, time):  # type: ignore[no-untyped-def]
    """The load/store unit has taken an instruction of a scheduler: those behind it move, the first collector first."""
    scheduler = sm.scheduler[k]
    queue = sm.queue
    queue[BEFORE_UNIT, k].time = NEVER
    scheduler.queued -= 1
    if scheduler.queued == 0:
        return
    after = limits.front - 2
    place = COLLECTOR
    if max(queue[COLLECTOR + 1, k].time, time + after) < max(queue[COLLECTOR, k].time, time + after):
        place += 1
    moved = queue[place, k]
    before = queue[BEFORE_UNIT, k]
    before.time = max(moved.time, time + after)
    before.issued = moved.issued
    before.load = moved.load
    moved.time = NEVER
    free = before.time - after
    waiting = queue[IN_FRONT, k]
    if waiting.time < NEVER:
        moved.time = free + waiting.time
        moved.issued = waiting.issued
        moved.load = waiting.load
        waiting.time = NEVER
        sm.unit[k, NUM_UNITS].in_front = free
    elif place == COLLECTOR and free < queue[COLLECTOR + 1, k].time - after < NEVER - after:
        # what enters a collector just now takes this one, not the second
        second = queue[COLLECTOR + 1, k]
        moved.time = second.time
        moved.issued = second.issued
        moved.load = second.load
        second.time = NEVER
        scheduler.collector_1 = free
    elif place == COLLECTOR:
        scheduler.collector_0 = free
    else:
        scheduler.collector_1 = free


@merged
def _read_shared(sm, program, limits, number, time):  # type: ignore[no-untyped-def]
    """When the result of an access to shared memory is there is known when its turn comes."""
    load = sm.load[number]
    w = load.warp
    warp = sm.warp[w]
    write_registers(sm, program, w, load.row, time, FROM_SHARED)
    if load.access == STORE:  # it is over with its turn
        time = sm.core[0].current_from
    warp.done = max(warp.done, time)
    warp.loads -= 1
    after_memory(sm, program, limits, w, time, FROM_SHARED)
