"""Who goes on: instances that wait no longer, and idle cores that are woken for what is ready."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, separate
from manyscale.models.node.program.node_program import InstanceFlag
from manyscale.models.node.scheduler.codes import NOTHING
from manyscale.models.node.scheduler.ready_queues import DATA_REUSE, lowest_bit, put

_UNTIED = int(InstanceFlag.untied)


@inner_inlined
def let_resume(sch, row):  # type: ignore[no-untyped-def]
    """An instance may go on, or begin, once `resume_all` is called."""
    node = sch.node[0]
    sch.instance[row].following = -1
    if node.to_resume < 0:
        node.to_resume = row
    else:
        sch.instance[node.last_to_resume].following = row
    node.last_to_resume = row


@separate
def resume_all(sch, core):  # type: ignore[no-untyped-def]
    """What may go on does so when its core is free, or, if it was suspended and is untied, is ready for any."""
    node = sch.node[0]
    row = np.int64(node.to_resume)
    node.to_resume = -1
    while row >= 0:
        state = sch.instance[row]
        following = np.int64(state.following)
        me = sch.core[state.core]
        if state.flags & _UNTIED and state.waiting != NOTHING:
            place = state.core if sch.queues.control[0].policy == DATA_REUSE else core
            put(sch.queues, row, state.level, place, me.group)
        else:
            state.following = -1
            if me.first_resumed < 0:
                me.first_resumed = row
            else:
                sch.instance[me.last_resumed].following = row
            me.last_resumed = row
            if me.is_idle:
                leave_idle(sch, state.core)
                sch.woken[sch.num_woken[0]] = state.core
                sch.num_woken[0] += 1
        state.waiting = NOTHING
        row = following


@inner_inlined
def become_idle(sch, core):  # type: ignore[no-untyped-def]
    sch.core[core].is_idle = 1
    sch.idle[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    sch.node[0].num_idle += 1


@inner_inlined
def leave_idle(sch, core):  # type: ignore[no-untyped-def]
    sch.core[core].is_idle = 0
    sch.idle[core >> 6] &= ~(np.uint64(1) << np.uint64(core & 63))
    sch.node[0].num_idle -= 1


@inner_inlined
def many_ready(sch):  # type: ignore[no-untyped-def]
    """Whether a core is idle although more is ready than those that were woken will take."""
    node = sch.node[0]
    return node.num_idle > 0 and sch.queues.control[0].length + node.num_chunks > node.num_waking


@separate
def wake(sch, near):  # type: ignore[no-untyped-def]
    """Wake idle cores until there is one for each ready instance: by data reuse ``near`` itself or one that shares its
    last cache, else the lowest."""
    while many_ready(sch):
        core = np.int64(-1)
        if sch.queues.control[0].policy == DATA_REUSE:
            core = _idle_near(sch, near)
        if core < 0:
            at = 0
            while sch.idle[at] == 0:
                at += 1
            core = (at << 6) + lowest_bit(sch.idle[at])
        leave_idle(sch, core)
        sch.core[core].is_counted = 1
        sch.node[0].num_waking += 1
        sch.woken[sch.num_woken[0]] = core
        sch.num_woken[0] += 1


@inner
def _idle_near(sch, near):  # type: ignore[no-untyped-def]
    """An idle core that shares the last cache of another, itself first; -1 if there is none. O(cores / 64)."""
    if sch.core[near].is_idle:
        return near
    group = sch.core[near].group
    for at in range(sch.idle.shape[0]):
        word = sch.idle[at] & sch.sharers[group, at]
        if word != 0:
            return (at << 6) + lowest_bit(word)
    return np.int64(-1)
