"""What SMs and memory channels hand to each other between two windows, in the order of (time, SM), so that nothing
depends on how either are grouped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.gpu.memory_kernel import enter, pass_crossbar
from manyscale.models.gpu.sm_memory_kernel import expect_first_reply
from manyscale.models.kernels import allocation_free, inlined


class Requests(NamedTuple):
    """Requests that left SMs, in order of (time, SM): int64 ``time``, ``request``; uint32 ``written``; int32 ``tag``,
    ``sm``; ``rows`` int64[1], how many. ``first`` int32[cycles + 1] and ``following`` int32[requests]: scratch."""

    time: np.ndarray
    request: np.ndarray
    written: np.ndarray
    tag: np.ndarray
    sm: np.ndarray
    rows: np.ndarray


class Replies(NamedTuple):
    """Replies on their way to SMs: int64 ``time``, int32 ``sm`` and ``tag``, uint8 ``level``; ``rows`` int64[1]: how
    many there are."""

    time: np.ndarray
    sm: np.ndarray
    tag: np.ndarray
    level: np.ndarray
    rows: np.ndarray


def requests_for(num_sms: int, window: int) -> Requests:
    """Room for what ``num_sms`` SMs can send in a window."""
    most = num_sms * (window + 1)
    return Requests(
        time=np.zeros(most, np.int64), request=np.zeros(most, np.int64), written=np.zeros(most, np.uint32),
        tag=np.zeros(most, np.int32), sm=np.zeros(most, np.int32), rows=np.zeros(1, np.int64),
    )  # fmt: skip


def replies_for(size: int) -> Replies:
    """Room for ``size`` replies."""
    return Replies(
        time=np.zeros(size, np.int64), sm=np.zeros(size, np.int32), tag=np.zeros(size, np.int32),
        level=np.zeros(size, np.uint8), rows=np.zeros(1, np.int64),
    )  # fmt: skip


@inlined
def requests_of(of_all, g):  # type: ignore[no-untyped-def]
    """Those of a group, of Requests with a row for each."""
    return Requests(
        of_all.time[g], of_all.request[g], of_all.written[g], of_all.tag[g], of_all.sm[g], of_all.rows[g]
    )  # fmt: skip


@allocation_free
def collect(sm, first_sm, begin, until, requests):  # type: ignore[no-untyped-def]
    """Take what left the SMs before ``until``; the rest waits. Each SM sends at most one a cycle. O(SMs x cycles)."""
    done = 0
    num_sms = sm.core.shape[0]
    for s in range(num_sms):
        sm.core[s].collected = 0
    time = begin
    while time < until:
        following = until
        for s in range(num_sms):
            core = sm.core[s]
            if core.collected < core.out:
                sent = sm.sent[s, core.collected]
                if sent.time <= time:
                    requests.time[done] = sent.time
                    requests.request[done] = sent.request
                    requests.written[done] = sent.written
                    requests.tag[done] = sent.tag
                    requests.sm[done] = first_sm + s
                    done += 1
                    core.collected += 1
                if core.collected < core.out:
                    following = min(following, max(time + 1, sm.sent[s, core.collected].time))
        time = following
    for s in range(num_sms):
        core = sm.core[s]
        left = core.out - core.collected
        for i in range(left):
            old, new = sm.sent[s, core.collected + i], sm.sent[s, i]
            new.time = old.time
            new.request = old.request
            new.written = old.written
            new.tag = old.tag
        core.out = left
    requests.rows[0] = done


@allocation_free
def enter_all(mem, limits, groups, at, until):  # type: ignore[no-untyped-def]
    """Requests of all groups of SMs into the channels, merged by (time, SM): ``groups`` are Requests with a row for
    each group, each in order; ``at`` int64[groups] is scratch. O(requests x groups)."""
    at[:] = 0
    while True:
        best = -1
        for g in range(groups.rows.shape[0]):
            if at[g] == groups.rows[g, 0]:
                continue
            if best < 0 or groups.time[g, at[g]] < groups.time[best, at[best]]:
                best = g
        if best < 0:
            break
        i = at[best]
        enter(
            mem, limits, groups.time[best, i], groups.request[best, i], groups.written[best, i], groups.tag[best, i],
            groups.sm[best, i],
        )  # fmt: skip
        at[best] += 1
    pass_crossbar(mem, limits, until)


@allocation_free
def enter_requests(mem, limits, requests, until):  # type: ignore[no-untyped-def]
    """Requests, in order, into the channels."""
    for i in range(requests.rows[0]):
        enter(
            mem, limits, requests.time[i], requests.request[i], requests.written[i], requests.tag[i], requests.sm[i]
        )  # fmt: skip
    pass_crossbar(mem, limits, until)


@allocation_free
def deliver(  # type: ignore[no-untyped-def]
    sm, first_sm, replies, new_time, new_sm, new_tag, new_level, count, base, until, head, link,
):  # fmt: skip
    """Hand the SMs what arrives before ``until``, in order of time; the rest waits in ``replies``.

    Replies that wait come first among those of a cycle, then the ``count`` new ones, in their order. ``head``, filled
    with -1, has room for as many cycles as they can lie apart (those beyond it wait), ``link`` for all of them.
    """
    num_sms = sm.core.shape[0]
    waiting = replies.rows[0]
    cycles = head.shape[0] // 2
    for i in range(waiting + count):
        who = (replies.sm[i] if i < waiting else new_sm[i - waiting]) - first_sm
        link[i] = -1
        if who < 0 or who >= num_sms:
            link[i] = -2
            continue
        time = replies.time[i] if i < waiting else new_time[i - waiting]
        bucket = min(max(time - base, 0), cycles - 1)
        if head[bucket] < 0:
            head[bucket] = i
        else:
            link[head[cycles + bucket]] = i
        head[cycles + bucket] = i
    for bucket in range(min(cycles - 1, until - base)):
        i = head[bucket]
        head[bucket] = -1
        while i >= 0:
            old = i < waiting
            j = i if old else i - waiting
            s = (replies.sm[j] if old else new_sm[j]) - first_sm
            core = sm.core[s]
            reply = sm.reply[s, core.in_tail & (sm.reply.shape[1] - 1)]
            reply.time = replies.time[j] if old else new_time[j]
            reply.tag = replies.tag[j] if old else new_tag[j]
            reply.level = replies.level[j] if old else new_level[j]
            core.in_tail += 1
            if core.in_tail == core.in_head + 1:
                expect_first_reply(sm, s)
            i = link[i]
    # those that wait, in their order: what waited already stands before the place that it moves to
    left = 0
    for i in range(waiting + count):
        if link[i] == -2:
            continue
        old = i < waiting
        j = i if old else i - waiting
        time = replies.time[j] if old else new_time[j]
        if min(max(time - base, 0), cycles - 1) < min(cycles - 1, until - base):
            continue
        replies.sm[left] = replies.sm[j] if old else new_sm[j]
        replies.tag[left] = replies.tag[j] if old else new_tag[j]
        replies.level[left] = replies.level[j] if old else new_level[j]
        replies.time[left] = time
        left += 1
    for bucket in range(max(0, min(cycles - 1, until - base)), cycles):
        head[bucket] = -1
    replies.rows[0] = left
