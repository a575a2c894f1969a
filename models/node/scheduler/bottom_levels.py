"""Bottom levels for the policies by critical path: the longest predicted way from an instance's start to the end."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, seldom
from manyscale.models.node.program.node_program import Action
from manyscale.models.node.scheduler.codes import CREATES

_COMPUTE, _CREATE, _CALL = int(Action.compute), int(Action.create), int(Action.call)
_BEGIN_GROUP, _BARRIER = int(Action.begin_group), int(Action.barrier)


@inner_inlined
def first_step_of(sch, row):  # type: ignore[no-untyped-def]
    """The first step of an instance in this phase, wherever it is by now."""
    if row == 0:
        return sch.program.phase_first_step[sch.node[0].phase]
    return sch.program.first_step[row + sch.node[0].base]


@seldom(gives="nothing")
def find_bottom_levels(sch, num_rows):  # type: ignore[no-untyped-def]
    """Of each instance its own predicted work and the longest way to the end after it: over its successors, or what its
    parent does after it has waited for it. Children are created later than their parents and successors later than
    predecessors, so each parent's children are done backwards, and parents forwards. O(steps + edges)."""
    create_ps = sch.node[0].create_ps
    base = sch.node[0].base
    bottom_level = sch.queues.bottom_level
    for row in range(num_rows):
        bottom_level[row] = _work(sch, row)
    for row in range(num_rows):
        state = sch.instance[row]
        if not state.flags & CREATES:
            continue
        # After the instance, then after a step of it
        rest_ps = bottom_level[row] - _work(sch, row)
        waited_ps = np.int64(0)
        for step in range(state.end_step - 1, first_step_of(sch, row) - 1, -1):
            action = sch.step_action[step]
            target = sch.step_target[step]
            if action == _COMPUTE:
                rest_ps += sch.predicted_ps[target]
            elif action == _CREATE or action == _CALL:
                child = target - base
                longest = waited_ps if action == _CREATE else rest_ps
                for edge in range(sch.instance[child].first_successor, sch.instance[child + 1].first_successor):
                    longest = max(longest, bottom_level[sch.successor[edge] - base])
                bottom_level[child] += longest
                rest_ps += create_ps
            elif action <= _BARRIER and action != _BEGIN_GROUP:
                waited_ps = rest_ps


@inner
def _work(sch, row):  # type: ignore[no-untyped-def]
    """Predicted time of an instance's own steps."""
    work_ps = np.int64(0)
    for step in range(first_step_of(sch, row), sch.instance[row].end_step):
        if sch.step_action[step] == _COMPUTE:
            work_ps += sch.predicted_ps[sch.step_target[step]]
        elif sch.step_action[step] <= _CALL:
            work_ps += sch.node[0].create_ps
    return work_ps
