"""The runtime system of a rank: its task instances on simulated cores.

`new_scheduler` makes the state, `begin_phase` and `advance` (node/scheduler/kernel.py, with the conventions) are called
from a loop that owns the time: `burst.run_phases` where the times of pieces are known, others where cores and memory or
the network say when something is over. Such a loop keeps the order of time, and at equal times that of core numbers:

    begin_phase(scheduler, phase, time_ps)
    code = advance(scheduler, 0, time_ps)
    while code != PHASE_END:
        # PIECE: this core again at start_ps plus what the piece takes; each woken core at time_ps
        # the earliest of these cores and times:
        code = advance(scheduler, core, time_ps)

If there is none, `why_stuck` says what is waited for. Source: the runtime-system model of MUSA (Grass, UPC 2017,
section 6.3.3); the policies are those of RuntimeSystem.

Memory: 80 B an instance and up to 32 B for its place in queues, of the largest phase, and 60 B a core.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import read_only
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.bottom_levels import find_bottom_levels
from manyscale.models.node.scheduler.codes import (
    CALLED,
    CREATED,
    DONE,
    IDLE,
    NOTHING,
    OPERATION,
    PHASE_END,
    PIECE,
)
from manyscale.models.node.scheduler.held_data import HeldData, no_data
from manyscale.models.node.scheduler.kernel import advance, begin_phase
from manyscale.models.node.scheduler.learning import Learning, new_learning
from manyscale.models.node.scheduler.ready_queues import ReadyQueues, new_queues
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem

__all__ = [
    "IDLE", "OPERATION", "PHASE_END", "PIECE", "Scheduler", "advance", "begin_phase", "new_scheduler", "why_stuck",
]  # fmt: skip


class ProgramArrays(NamedTuple):
    """What a phase begins with; see NodeProgram. ``level`` of each instance: 0 for those of the highest priority."""

    first_step: np.ndarray
    parent: np.ndarray
    level: np.ndarray
    instance_flags: np.ndarray
    num_predecessors: np.ndarray
    first_successor: np.ndarray
    phase_first_step: np.ndarray
    phase_first_instance: np.ndarray
    phase_first_loop: np.ndarray


class Scheduler(NamedTuple):
    """State. Of ``core`` callers read ``instance``, ``piece``, ``start_ps`` and ``operation`` (see `advance`),
    ``overhead_ps`` (so far, all phases) and ``row``: of its instance's record in ``instance``, in whose ``flags`` the
    bit CREATES says whether it creates others."""

    core: np.ndarray
    woken: np.ndarray  # int32[cores]
    num_woken: np.ndarray  # int64[1]
    program: ProgramArrays
    step_action: np.ndarray
    step_target: np.ndarray
    successor: np.ndarray
    first_chunk: np.ndarray
    predicted_ps: np.ndarray
    node: np.ndarray  # one record
    instance: np.ndarray  # records by row, and one more
    loop: np.ndarray
    group: np.ndarray
    lock: np.ndarray
    idle: np.ndarray  # uint64[words]: a bit per core
    sharers: np.ndarray  # uint64[groups, words]: the cores that share a last cache
    queues: ReadyQueues
    learning: Learning
    loop_flags: np.ndarray  # uint8[loops], see NodeProgram
    held: HeldData


# ``following``: next of a list of instances, of those that wait for a lock. ``core``: where an instance runs, ran last,
# or its last predecessor ran. ``waiter``: first instance that waits for it; of a chunk its loop. ``created_ps``:
# when it was created, of a chunk when its loop began; ``ready_ps``: when nothing that it depends on was left, too.
_INSTANCE: Final = np.dtype(
    [
        ("step", "i8"), ("end_step", "i8"), ("first_successor", "i8"), ("created_ps", "i8"), ("ready_ps", "i8"),
        ("predecessors", "i4"), ("parent", "i4"), ("children", "i4"), ("group", "i4"), ("open_group", "i4"),
        ("core", "i4"), ("level", "i4"), ("waiter", "i4"), ("following", "i4"), ("waiting", "u1"), ("flags", "u1"),
        ("unused", "u2"),
    ]
)  # fmt: skip
_CORE: Final = np.dtype(
    [
        ("start_ps", "i8"), ("overhead_ps", "i8"), ("instance", "i4"), ("piece", "i4"), ("operation", "i4"),
        ("row", "i4"), ("first_resumed", "i4"), ("last_resumed", "i4"), ("following", "i4"), ("group", "i4"),
        ("why", "u1"), ("is_idle", "u1"), ("is_counted", "u1"), ("unused", "u1", 5),
    ]
)  # fmt: skip
_NODE: Final = np.dtype(
    [
        ("create_ps", "i8"), ("schedule_ps", "i8"), ("complete_ps", "i8"), ("steal_ps", "i8"), ("chunk_ps", "i8"),
        ("fork_ps", "i8"), ("barrier_ps", "i8"), ("lock_ps", "i8"), ("base", "i8"), ("phase", "i8"),
        ("num_outstanding", "i8"), ("num_idle", "i8"), ("num_waking", "i8"), ("num_chunks", "i8"),
        ("first_loop", "i8"), ("open_loop", "i8"), ("last_open_loop", "i8"), ("num_groups", "i8"), ("waiter", "i8"),
        ("to_resume", "i8"), ("last_to_resume", "i8"),
    ]
)  # fmt: skip
_LOOP: Final = np.dtype(
    [
        ("begin_ps", "i8"), ("owner", "i4"), ("next_row", "i4"), ("end_row", "i4"), ("num_running", "i4"),
        ("following", "i4"), ("is_awaited", "i4"),
    ]
)  # fmt: skip
_GROUP: Final = np.dtype([("count", "i4"), ("outer", "i4"), ("waiter", "i4")])
_LOCK: Final = np.dtype([("holder", "i4"), ("first", "i4"), ("last", "i4"), ("before", "i4")])
_OF_SCHEDULE: Final = -1  # a chunk costs what taking an instance does


def new_scheduler(
    program: NodeProgram,
    num_cores: int,
    runtime: RuntimeSystem,
    seed: int = 0,
    *,
    share_group: np.ndarray | None = None,
    predicted_ps: np.ndarray | None = None,
    size: np.ndarray | None = None,
    speed: np.ndarray | None = None,
    held: HeldData | None = None,
    known_ps: np.ndarray | None = None,
    seen: np.ndarray | None = None,
) -> Scheduler:
    """A scheduler before its first phase.

    ``share_group`` int32[cores]: cores with the same number, from 0 on, share their last cache (all do by default).
    ``predicted_ps`` int64[pieces]: what the policy critical-path goes by, the traced times by default.
    ``size`` float64[instances]: what predicted-critical-path knows of an instance beforehand, by default nothing.
    ``speed`` float64[cores]: of cores that are not all alike. ``held``: what data-reuse knows of instances' data and of
    caches, which the schedule changes; by default nothing. ``known_ps`` and ``seen``: what predicted-critical-path has
    learned before a phase, see new_learning.

    Raises ValueError for no cores, or arrays that do not fit.
    """
    if num_cores < 1:
        raise ValueError(f"a rank cannot run on {num_cores} cores; give it 1 or more")
    group = np.zeros(num_cores, np.int32) if share_group is None else np.asarray(share_group, np.int32)
    if len(group) != num_cores or group.min() < 0:
        raise ValueError(f"share_group must give each of the {num_cores} cores the number of its last cache, from 0 on")
    predicted = program.piece_ps if predicted_ps is None else predicted_ps
    if len(predicted) != program.num_pieces:
        raise ValueError(f"{len(predicted)} predicted times for {program.num_pieces} pieces")
    level, num_levels = _levels(program.priority)
    rows, loops, groups = _largest(program)
    cores = np.zeros(num_cores, _CORE)
    cores["group"] = group
    node = np.zeros(1, _NODE)
    node["create_ps"] = round(runtime.create_ps / runtime.creator_speedup)
    node["schedule_ps"], node["complete_ps"] = runtime.schedule_ps, runtime.complete_ps
    node["steal_ps"], node["lock_ps"] = runtime.steal_ps, runtime.lock_ps
    node["chunk_ps"] = _OF_SCHEDULE if runtime.chunk_ps is None else runtime.chunk_ps
    doublings = (num_cores - 1).bit_length()
    node["fork_ps"], node["barrier_ps"] = doublings * runtime.fork_ps, doublings * runtime.barrier_ps
    num_groups = int(group.max()) + 1
    by_critical_path = runtime.policy in ("critical-path", "predicted-critical-path")
    if by_critical_path:
        find_bottom_levels.want()
    longest = 1 + int(predicted.sum()) + int(node["create_ps"][0]) * program.num_instances
    return Scheduler(
        core=cores,
        woken=np.zeros(num_cores, np.int32),
        num_woken=np.zeros(1, np.int64),
        program=ProgramArrays(
            first_step=read_only(program.first_step, np.int64),
            parent=read_only(program.parent, np.int32),
            level=read_only(level, np.int32),
            instance_flags=read_only(program.instance_flags, np.uint8),
            num_predecessors=read_only(program.num_predecessors, np.int32),
            first_successor=read_only(program.first_successor, np.int64),
            phase_first_step=read_only(program.phase_first_step, np.int64),
            phase_first_instance=read_only(program.phase_first_instance, np.int32),
            phase_first_loop=read_only(np.searchsorted(program.first_chunk, program.phase_first_instance), np.int64),
        ),
        step_action=read_only(program.step_action, np.uint8),
        step_target=read_only(program.step_target, np.int32),
        successor=read_only(program.successor, np.int32),
        first_chunk=read_only(program.first_chunk, np.int32),
        predicted_ps=np.array(predicted if by_critical_path else [], np.int64),
        node=node,
        instance=np.zeros(rows + 1, _INSTANCE),
        loop=np.zeros(loops, _LOOP),
        group=np.zeros(groups, _GROUP),
        lock=np.zeros(program.num_locks, _LOCK),
        idle=np.zeros((num_cores + 63) // 64, np.uint64),
        sharers=_sharers(group, num_groups),
        queues=new_queues(runtime.policy, rows, num_cores, num_groups, num_levels, seed, longest, speed),
        learning=new_learning(
            program, rows, size, learns=runtime.policy == "predicted-critical-path", known_ps=known_ps, speed=speed,
            seen=seen,
        ),
        loop_flags=read_only(_loop_flags(program), np.uint8),
        held=held if held is not None and runtime.policy == "data-reuse" else no_data(),
    )  # fmt: skip


def _loop_flags(program: NodeProgram) -> np.ndarray:
    if program.loop_flags is None:
        return np.zeros(len(program.first_chunk) - 1, np.uint8)
    return program.loop_flags


def _levels(priority: np.ndarray) -> tuple[np.ndarray, int]:
    """Of each instance how many higher priorities there are, and how many priorities. Most programs have one, which is
    found without sorting."""
    if int(priority.min()) == int(priority.max()):
        return np.zeros(len(priority), np.int32), 1
    levels, level = np.unique(-priority.astype(np.int64), return_inverse=True)
    return level, len(levels)


def _largest(program: NodeProgram) -> tuple[int, int, int]:
    """Instances, with the initial task, and bounds of loops and groups of the phase that has most."""
    first, steps = program.phase_first_instance.astype(np.int64), program.phase_first_step
    loop = np.searchsorted(program.first_chunk[:-1], first)
    before = np.concatenate([[0], np.cumsum(program.step_action == Action.begin_group, dtype=np.int32)])
    groups = np.diff(before[steps]) + np.diff(before[program.first_step[first]])
    most = [int(each.max(initial=0)) for each in (np.diff(first) + 1, np.diff(loop) + 1, groups)]
    return most[0], most[1], most[2]


def _sharers(group: np.ndarray, num_groups: int) -> np.ndarray:
    sharers = np.zeros((num_groups, (len(group) + 63) // 64), np.uint64)
    core = np.arange(len(group))
    np.bitwise_or.at(sharers, (group, core >> 6), np.uint64(1) << (core & 63).astype(np.uint64))
    return sharers


def why_stuck(program: NodeProgram, scheduler: Scheduler) -> str:
    """One line for a phase in which nothing runs although it is not over: rank, instance, what that waits for."""
    base = int(scheduler.node["base"][0])
    phase = int(scheduler.node["phase"][0])
    state = scheduler.instance[:-1]
    count = int(program.phase_first_instance[phase + 1]) - base
    place = f"rank {program.rank}, compute phase {phase}"

    def name(row: int) -> str:
        instance = row + base if row > 0 else 0
        traced = int(program.instance_id[instance])
        return f"task instance {traced}" if traced >= 0 else f"chunk {instance} of a loop"

    held = np.flatnonzero(scheduler.lock["first"] >= 0)
    if len(held):
        lock, holder, core = int(held[0]), *(int(scheduler.lock[side][held[0]]) for side in ("holder", "first"))
        rows = scheduler.core["row"]
        return (
            f"{place}: {name(int(rows[core]))} waits for ever for lock {lock}, which {name(int(rows[holder]))} on core "
            f"{holder} holds; a lock must be released before its holder waits for another or for itself"
        )
    rows = np.arange(count)
    begins = state["flags"][:count] & (CREATED | DONE)
    blocked = rows[(begins == CREATED) & (state["predecessors"][:count] > 0)]
    if len(blocked):
        row = int(blocked[0])
        return (
            f"{place}: {name(row)} waits for ever for {int(state['predecessors'][row])} of its predecessors; "
            "look for a cycle of dependences, or for a predecessor that is never created"
        )
    waiting = rows[state["waiting"][:count] != NOTHING]
    if not len(waiting):
        return f"{place}: nothing is left to do, but the initial task is not at its end"
    row = int(waiting[-1])
    step = int(state["step"][row]) - (state["waiting"][row] == CALLED)
    if row == 0 and step == state["end_step"][0]:
        asked = "the end of the phase"
    else:
        action, target = Action(int(scheduler.step_action[step])), int(scheduler.step_target[step])
        asked = action.name
        if action in (Action.wait_instance, Action.call):
            asked += f" of {name(target - base)}"
    return f"{place}: {name(row)} waits for ever at {asked}; what it waits for is never created or waits for it"
