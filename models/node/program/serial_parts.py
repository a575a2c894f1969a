"""What of a rank's work no other core could help with: Amdahl's part of its node program.

Serial is what the initial task executes while no other instance is left to do: between parallel regions, and inside one
before the first task is created or after all were waited for. Undeferred instances that it calls there are part of it.
(POP's Serial Region Efficiency counts what lies outside OpenMP regions; a trace of one thread tells more.) Where it is
not certain that nothing is left, nothing counts as serial: instances that create others may leave some behind after all
waits but a barrier.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.node.program.node_program import Action, InstanceFlag, NodeProgram


def serial_parts(program: NodeProgram, piece_ps: np.ndarray, creator_speedup: float = 1.0) -> np.ndarray:
    """float64[phases]: time of the pieces of each phase that are serial. ``piece_ps`` int64[pieces], those of instances
    that create others still to be divided by ``creator_speedup``, as run_phases does. O(steps of the initial task +
    pieces)."""
    first, end = int(program.first_step[0]), int(program.first_step[1])
    action, target = program.step_action[first:end], program.step_target[first:end].astype(np.int64)
    bounds = program.phase_first_step - first
    place = np.arange(len(action))
    left, _ = may_be_left(program)
    alone = ~left & (action == Action.compute)
    called = ~left & (action == Action.call)
    found = np.zeros(len(action))
    found[alone] = piece_ps[target[alone]]
    found[called] = np.bincount(program.piece_instance, piece_ps, program.num_instances)[target[called]]
    result = np.bincount(np.searchsorted(bounds, place, "right") - 1, found, minlength=program.num_phases)
    result = result[: program.num_phases]
    return np.where(_creates(program), result / creator_speedup, result)


def may_be_left(program: NodeProgram) -> tuple[np.ndarray, np.ndarray]:
    """bool[steps of the initial task], each: whether other instances may be left to do behind the step; whether a group
    of the initial task is open there. O(steps)."""
    first, end = int(program.first_step[0]), int(program.first_step[1])
    action = program.step_action[first:end]
    bounds = program.phase_first_step - first
    begins = np.repeat(bounds[:-1], np.diff(bounds))  # of each step: where its phase begins
    place = np.arange(len(action))
    nested = bool(np.any(program.parent > 0))
    opens = np.isin(action, (Action.create, Action.loop_nowait, *((Action.loop, Action.call) if nested else ())))
    closes = np.isin(action, (Action.barrier, *(() if nested else (Action.wait_children,))))
    in_group = np.cumsum(action == Action.begin_group) - np.cumsum(action == Action.end_group) > 0
    opened = _last(place, opens)
    closed = np.maximum(_last(place, closes), begins - 1)
    # a group that ended waited for all that was created in it
    return np.where(in_group, opened, _last(place, opens & ~in_group)) > closed, in_group


def _last(place: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of each step the last chosen one up to it, -1 for none."""
    return np.maximum.accumulate(np.where(chosen, place, -1)) if len(place) else place


def _creates(program: NodeProgram) -> np.ndarray:
    """bool[phases]: the initial task creates instances there that are no chunks of loops."""
    first = program.phase_first_instance.astype(np.int64)
    own = ((program.instance_flags & InstanceFlag.chunk) == 0) & (program.parent == 0)
    counts = np.concatenate(([0], np.cumsum(own)))
    return (counts[first[1:]] - counts[first[:-1]]) > 0
