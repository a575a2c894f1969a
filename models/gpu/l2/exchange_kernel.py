"""What SMs and memory channels hand to each other between two windows, in an order that does not depend on how either
are grouped: requests of an SM in its order, replies in the order of time, those of a cycle by channel."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.l2.crossbar_kernel import enter, pass_crossbar
from manyscale.models.gpu.memory_state import REPLY_TO_SM
from manyscale.models.gpu.sm.asynchronous.cluster_kernel import BYTES, KIND_SHIFT, SLOT_SHIFT
from manyscale.models.gpu.sm.memory_kernel import REPLY_CYCLES, expect_first_reply
from manyscale.models.gpu.sm.state import COPIES_IN_FLIGHT, MESSAGE, STORES
from manyscale.models.kernels import inner, merged, separate
from manyscale.models.workload.asynchronous import LOADS

_FAR: Final = 512  # places


class Replies(NamedTuple):
    """Replies on their way to SMs: ``reply`` REPLY_TO_SM[]; ``rows`` int64[1]: how many there are. Scratch, to put
    them in the order of time: ``head`` int32[], filled with -1, for two of each cycle; ``link`` int32[] for all, those
    that are new included."""

    reply: np.ndarray
    rows: np.ndarray
    head: np.ndarray
    link: np.ndarray


def replies_for(size: int, new: int, cycles: int) -> Replies:
    """Room for ``size`` replies, of which ``new`` come at once, in exchanges of up to ``cycles``."""
    return Replies(
        np.empty(size, REPLY_TO_SM), np.zeros(1, np.int64), np.full(2 * cycles, -1, np.int32),
        np.empty(size + new, np.int32),
    )  # fmt: skip


def enlarged(replies: Replies, size: int, new: int) -> Replies:
    """The same, with room for ``size``, of which ``new`` come at once."""
    larger = replies_for(size, new, len(replies.head) // 2)
    larger.reply[: len(replies.reply)] = replies.reply
    larger.rows[:] = replies.rows
    return larger


@separate
def _keep(sm, s, taken):  # type: ignore[no-untyped-def]
    """Of what an SM has sent, only what has not been taken."""
    core = sm.core[s]
    for i in range(taken, core.out):
        old, new = sm.sent[s, i], sm.sent[s, i - taken]
        new.time = old.time
        new.request = old.request
        new.written = old.written
        new.tag = old.tag
    core.out -= taken


@inner
def collect(sm, limits, until, shared, me):  # type: ignore[no-untyped-def]
    """Show what left the SMs of shard ``me`` before ``until`` in its row of ``shared`` (gpu/groups_kernel.py), each
    SM's in its order; the rest waits. Each SM sends at most as many a cycle as its port is wide. O(requests)."""
    request = shared.request[me]
    done = 0
    for s in range(sm.core.shape[0]):
        taken = 0
        while taken < sm.core[s].out and sm.sent[s, taken].time < until:
            old, new = sm.sent[s, taken], request[done]
            new.time = old.time
            new.request = old.request
            new.written = old.written
            new.tag = old.tag
            shared.sender[me, done] = limits.first_sm + s
            done += 1
            taken += 1
        _keep(sm, s, taken)
    shared.requests[me, 0] = done


@merged
def enter_all(mem, limits, shared, until):  # type: ignore[no-untyped-def]
    """What all shards ``collect``ed into the channels. O(requests)."""
    for g in range(shared.requests.shape[0]):
        for i in range(shared.requests[g, 0]):
            sent = shared.request[g, i]
            enter(mem, limits, sent.time, sent.request, sent.written, sent.tag, shared.sender[g, i])
    pass_crossbar(mem, limits, until)


@separate
def send_all(sm, sm_limits, mem, limits, replies, until):  # type: ignore[no-untyped-def]
    """What left the SMs before ``until`` into the channels, and messages of a block to another of its cluster to the
    replies; the rest waits. O(requests)."""
    for s in range(sm.core.shape[0]):
        taken = 0
        while taken < sm.core[s].out and sm.sent[s, taken].time < until:
            sent = sm.sent[s, taken]
            taken += 1
            if sm_limits.cluster > 1 and sent.tag >= MESSAGE:
                _pass_message(sm, sm_limits, replies, sent)
                continue
            enter(mem, limits, sent.time, sent.request, sent.written, sent.tag, s)
        _keep(sm, s, taken)
    pass_crossbar(mem, limits, until)


@merged
def _pass_message(sm, limits, replies, sent):  # type: ignore[no-untyped-def]
    """A message to a block, on its way to the SM that it runs on."""
    reply = replies.reply[replies.rows[0]]
    reply.time = sent.time + limits.cluster_latency - REPLY_CYCLES
    reply.sm = sm.place_sm[sent.request]
    reply.tag = sent.tag + (sm.place_slot[sent.request] << SLOT_SHIFT)
    reply.level = sent.written
    replies.rows[0] += 1


@merged
def is_ring_short(sm, more):  # type: ignore[no-untyped-def]
    """Whether the ring of an SM can be too small for ``more`` replies beside those that it has not taken (of which
    there can be any number: it takes them more slowly than all slices give them). O(SMs)."""
    most = 0
    for s in range(sm.core.shape[0]):
        most = max(most, sm.core[s].in_tail - sm.core[s].in_head)
    return most + more > sm.reply.shape[1]


@merged
def _move_to_front(sm, s):  # type: ignore[no-untyped-def]
    """The replies of an SM that it has not taken stand at the front of its ring, which is written over and over, not
    walked through: so that it stays in the host's caches."""
    core = sm.core[s]
    head = core.in_head
    left = core.in_tail - head
    if left > 0 and (head < max(left, _FAR) or core.in_tail > sm.reply.shape[1]):
        return
    for i in range(left):
        old, new = sm.reply[s, head + i], sm.reply[s, i]
        new.time = old.time
        new.tag = old.tag
        new.level = old.level
    core.in_head = 0
    core.in_tail = left


@merged
def _give(sm, s, reply):  # type: ignore[no-untyped-def]
    core = sm.core[s]
    place = sm.reply[s, core.in_tail & (sm.reply.shape[1] - 1)]
    place.time = reply.time
    place.tag = reply.tag
    place.level = reply.level
    core.in_tail += 1
    if core.in_tail == core.in_head + 1:
        expect_first_reply(sm, s)


@separate
def _share(sm, limits, s, reply):  # type: ignore[no-untyped-def]
    """With the last answer to a copy that serves several blocks, the others have their data, too."""
    copy = sm.copy[s, reply.tag - COPIES_IN_FLIGHT]
    copy.due -= 1
    if copy.due > 0 or copy.is_sent == 0 or copy.way != LOADS:
        return
    copy.is_told = 1
    index = sm.cluster_index[sm.block[s, copy.slot].number]
    own = index % limits.cluster
    for rank in range(limits.cluster):
        if rank == own or copy.ranks >> rank & 1 == 0:
            continue
        block = sm.cluster_order[index - own + rank]
        to = sm.place_sm[block]
        core = sm.core[to]
        place = sm.reply[to, core.in_tail & (sm.reply.shape[1] - 1)]
        place.time = reply.time
        place.tag = MESSAGE + (BYTES << KIND_SHIFT) + (sm.place_slot[block] << SLOT_SHIFT) + copy.barrier
        place.level = copy.bytes
        core.in_tail += 1
        if core.in_tail == core.in_head + 1:
            expect_first_reply(sm, to)


@separate
def deliver(sm, limits, replies, new, count, base, until):  # type: ignore[no-untyped-def]
    """Hand the SMs what arrives before ``until``, in order of time; the rest waits in ``replies``.

    Replies that wait come first among those of a cycle, then the ``count`` new ones, in their order.
    O(replies + cycles).
    """
    for s in range(sm.core.shape[0]):
        _move_to_front(sm, s)
    head, link = replies.head, replies.link
    first_sm = limits.first_sm
    num_sms = sm.core.shape[0]
    waiting = replies.rows[0]
    cycles = until - base
    for i in range(waiting + count):
        reply = replies.reply[i] if i < waiting else new[i - waiting]
        bucket = max(reply.time - base, 0)
        if bucket < cycles and reply.sm >= first_sm and reply.sm < first_sm + num_sms:
            link[i] = -1
            if head[2 * bucket] < 0:
                head[2 * bucket] = i
            else:
                link[head[2 * bucket + 1]] = i
            head[2 * bucket + 1] = i
    for bucket in range(cycles):
        i = head[2 * bucket]
        head[2 * bucket] = -1
        while i >= 0:
            reply = replies.reply[i] if i < waiting else new[i - waiting]
            _give(sm, reply.sm - first_sm, reply)
            if limits.cluster > 1 and reply.tag >= COPIES_IN_FLIGHT and reply.tag < STORES:
                _share(sm, limits, reply.sm, reply)
            i = link[i]
    left = 0  # those that wait, in their order: what waited already stands before the place that it moves to
    for i in range(waiting + count):
        reply = replies.reply[i] if i < waiting else new[i - waiting]
        if max(reply.time - base, 0) >= cycles and reply.sm >= first_sm and reply.sm < first_sm + num_sms:
            place = replies.reply[left]
            place.time = reply.time
            place.sm = reply.sm
            place.tag = reply.tag
            place.level = reply.level
            left += 1
    replies.rows[0] = left
