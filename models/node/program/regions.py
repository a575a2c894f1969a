"""A node program whose phases are cut further, into *regions*: where the initial task has waited for all others.

Such points are the ends of loops that are waited for (and so of the parallel regions around them), taskwaits, groups
and barriers, behind which certainly no instance is left, as for Amdahl's part (serial_parts.py). Regions follow each
other in time on any number of cores, so each can be simulated by itself. Source: Carlson, Heirman, Van Craeynest,
Eeckhout, "BarrierPoint: sampled simulation of multi-threaded applications" (ISPASS 2014), whose regions lie between
barriers of all threads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyscale.models.node.program.node_program import OF_INSTANCES, OF_PIECES, Action, NodeProgram
from manyscale.models.node.program.serial_parts import may_be_left

_WAITS = (Action.loop, Action.barrier, Action.wait_children, Action.end_group)
_NO_OPERATION = -1


def cut_at_waits(
    program: NodeProgram, num_instructions: np.ndarray, at_least: int = 1, may_end: np.ndarray | None = None
) -> NodeProgram:
    """The program with a phase for each region: one ends at the first wait for all by which it has executed
    ``at_least`` instructions, or with its phase. ``num_instructions`` int64[pieces]; ``may_end`` bool[pieces]: pieces
    of the initial task that one may end behind, too.

    Not cut are places inside a group or a lock of the initial task. Phases keep their iterations; the last region of
    one ends with its operation, the others with none. O(steps of the initial task + instances + pieces).
    """
    first, end = int(program.first_step[0]), int(program.first_step[1])
    action, target = program.step_action[first:end], program.step_target[first:end].astype(np.int64)
    ends = np.isin(action, _WAITS)
    if may_end is not None:
        computes = action == Action.compute
        ends[computes] = may_end[target[computes]]
    ends &= may_cut(program)
    phase_end = program.phase_first_step[1:] - first
    ends[phase_end[phase_end > 0] - 1] = False  # is cut there anyway
    place = np.flatnonzero(ends) + 1  # the step that a region would begin with
    row = np.minimum(_next_row(program, action, target)[place], _last_row(program, place + first))
    kept = _long_enough(program, action, target, np.asarray(num_instructions, np.int64), place, row, at_least)
    return _cut(program, place[kept] + first, row[kept])


def may_cut(program: NodeProgram) -> np.ndarray:
    """bool[steps of the initial task]: nothing is left to do behind it, and it stands in no group and no lock."""
    first, end = int(program.first_step[0]), int(program.first_step[1])
    action = program.step_action[first:end]
    left, in_group = may_be_left(program)
    held = np.cumsum(action == Action.acquire) - np.cumsum(action == Action.release) > 0
    return np.asarray(~left & ~in_group & ~held)


def program_of_phases(program: NodeProgram, first: int, end: int) -> tuple[NodeProgram, np.ndarray, np.ndarray]:
    """(phases [``first``, ``end``) as a program, rows int64[its pieces] and int64[its instances] of the whole one's).
    No dependence may cross phases, as behind ``cut_at_waits``. O(log program + what the phases have). Raises ValueError
    where one waits for an instance of an earlier one."""
    first_row, end_row = program.phase_first_instance[[first, end]].tolist()
    own_steps = np.arange(*program.phase_first_step[[first, end]])
    step_bounds = program.first_step[first_row : end_row + 1]
    step = np.concatenate((own_steps, np.arange(step_bounds[0], step_bounds[-1])))
    action, target = program.step_action[step], program.step_target[step].astype(np.int64)
    computes, of_loops = action == Action.compute, np.isin(action, (Action.loop, Action.loop_nowait))
    of_rows = np.isin(action, (Action.create, Action.call, Action.wait_instance))
    if np.any(target[of_rows] < first_row):
        raise ValueError(f"phases {first} to {end} of rank {program.rank} wait for instances of earlier ones")
    first_loop = int(np.searchsorted(program.first_chunk, first_row))
    end_loop = int(np.searchsorted(program.first_chunk[:-1], end_row, "right"))  # one without chunks may be the last
    chunk = np.clip(program.first_chunk[first_loop : max(end_loop, first_loop) + 1], first_row, end_row)
    piece = np.unique(target[computes])
    target[computes] = np.searchsorted(piece, target[computes])
    target[of_rows] -= first_row - 1
    target[of_loops] -= first_loop
    row = np.concatenate(([0], np.arange(first_row, end_row)))
    behind = first_row - 1  # rows that move by as many, the initial task stays
    owner, parent = program.piece_instance[piece], program.parent[row]
    edges, flags = program.first_successor[first_row : end_row + 1], program.loop_flags
    part = replace(
        program,
        **{name: getattr(program, name)[row] for name in OF_INSTANCES},
        **{name: getattr(program, name)[piece] for name in ("piece_ps", *OF_PIECES)},
        step_action=action,
        step_target=target.astype(np.int32),
        first_step=np.concatenate(([0], step_bounds - step_bounds[0] + len(own_steps))),
        parent=np.where(parent > 0, parent - behind, parent).astype(np.int32),
        first_successor=np.concatenate(([0], edges - edges[0])),
        successor=program.successor[edges[0] : edges[-1]] - np.int32(behind),
        first_chunk=(chunk - behind).astype(np.int32),
        loop_flags=None if flags is None else flags[first_loop : first_loop + len(chunk) - 1],
        piece_instance=np.where(owner > 0, owner - behind, 0).astype(np.int32),
        phase_first_step=program.phase_first_step[first : end + 1] - program.phase_first_step[first],
        phase_first_instance=(program.phase_first_instance[first : end + 1] - behind).astype(np.int32),
        phase_operation=program.phase_operation[first:end],
        phase_iteration=program.phase_iteration[first:end],
    )
    return part, piece, row


def _next_row(program: NodeProgram, action: np.ndarray, target: np.ndarray) -> np.ndarray:
    """int64[steps + 1]: the first instance that a step, or one behind it, of the initial task creates."""
    row = np.full(len(action) + 1, program.num_instances)
    single = np.isin(action, (Action.create, Action.call))
    row[:-1][single] = target[single]
    loops = np.isin(action, (Action.loop, Action.loop_nowait))
    row[:-1][loops] = program.first_chunk[target[loops]]
    return np.minimum.accumulate(row[::-1])[::-1]


def _last_row(program: NodeProgram, step: np.ndarray) -> np.ndarray:
    """Behind the last instance of the phase that each step lies in."""
    phase = np.searchsorted(program.phase_first_step, step, "right") - 1
    return program.phase_first_instance[phase + 1].astype(np.int64)


def _long_enough(
    program: NodeProgram, action: np.ndarray, target: np.ndarray, num_instructions: np.ndarray, place: np.ndarray,
    row: np.ndarray, at_least: int,
) -> np.ndarray:  # fmt: skip
    """int64[]: which of the places end a region of so many instructions."""
    own = np.zeros(len(action) + 1, np.int64)
    computes = action == Action.compute
    own[1:][computes] = num_instructions[target[computes]]
    others = np.bincount(program.piece_instance, num_instructions, program.num_instances).astype(np.int64)
    others[0] = 0
    before = np.cumsum(own)[place] + np.concatenate(([0], np.cumsum(others)))[row]
    starts = program.phase_first_step[:-1] - program.first_step[0]
    of_start = np.cumsum(own)[starts] + np.concatenate(([0], np.cumsum(others)))[program.phase_first_instance[:-1]]
    kept, since, phase = [], 0, -1
    phase_of = np.searchsorted(starts, place - 1, "right") - 1
    for index, (instructions, lies_in) in enumerate(zip(before.tolist(), phase_of.tolist(), strict=True)):
        if lies_in != phase:
            phase, since = lies_in, int(of_start[lies_in])
        if instructions - since >= at_least:
            kept.append(index)
            since = instructions
    return np.array(kept, np.int64)


def _cut(program: NodeProgram, step: np.ndarray, row: np.ndarray) -> NodeProgram:
    """Phases that also begin with these steps and instances."""
    phase = np.searchsorted(program.phase_first_step, step, "right") - 1
    first_instance = np.insert(program.phase_first_instance, phase + 1, row.astype(np.int32))
    before = np.repeat(np.arange(program.num_instances), np.diff(program.first_successor))
    after = program.successor.astype(np.int64)
    kept = before >= first_instance[np.searchsorted(first_instance, after, "right") - 1]  # others have completed
    first_successor = np.concatenate(([0], np.cumsum(np.bincount(before[kept], minlength=program.num_instances))))
    return replace(
        program,
        num_predecessors=np.bincount(after[kept], minlength=program.num_instances).astype(np.int32),
        first_successor=first_successor.astype(np.int64),
        successor=program.successor[kept],
        phase_first_step=np.insert(program.phase_first_step, phase + 1, step),
        phase_first_instance=first_instance,
        phase_operation=np.insert(program.phase_operation, phase, np.int32(_NO_OPERATION)),
        phase_iteration=np.insert(program.phase_iteration, phase, program.phase_iteration[phase]),
    )
