"""Addresses of which each core has its own: frames of task instances on the stack of the only traced thread.

A program is traced on one thread (Grass, UPC 2017, section 6.3.2), so all its tasks and chunks of loops have their
local variables in the same few lines; on a machine each thread has a stack of its own. What lies below the frame in
which an instance began is moved to a range of its core's, far off: the low bits of the address, which choose sets and
banks, stay. A chunk of a loop has those of its parallel region, which each thread enters in a frame of its own.

Core 0 goes on with the traced stack, as the thread does that executes the initial task. That task's own frames are not
moved, as others read them by pointers, and nor are those of instances that create others, for the same reason. So what
such an instance shares with those it created stays in common, and what would be private to it does, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.workload import Workload

CORE_SHIFT: Final = 48  # no program has addresses beyond


def private_stacks(program: NodeProgram, workload: Workload, first_segment: int = 0) -> np.ndarray | None:
    """int64[pieces, 2]: first address and end, both 0 where nothing is moved; None where the trace tells no stacks.

    ``first_segment``: which segment of the program the first row of ``workload`` is. O(pieces x log instances).
    """
    mine = workload.column("task_stacks", "rank") == program.rank
    if not mine.any():
        return None
    task, first, end = (
        workload.column("task_stacks", name)[mine] for name in ("task_instance_id", "first_address", "end_address")
    )
    is_parent = np.zeros(program.num_instances, bool)
    is_parent[program.parent[1:]] = True
    is_parent[0] = True
    moves = ~is_parent[program.piece_instance] & (program.first_segment < program.end_segment)
    row = np.where(moves, program.first_segment - first_segment, 0)
    of_piece = workload.column("segments", "task_instance_id")[row]
    place = np.minimum(np.searchsorted(task, of_piece), len(task) - 1)
    moves &= task[place] == of_piece
    return np.where(moves[:, None], np.stack([first[place], end[place]], axis=1), 0)


def private_lines(stack: np.ndarray | None, line_number: np.ndarray, line_bytes: int) -> np.ndarray:
    """bool[lines]: of which cores may have their own. O(pieces + lines)."""
    if stack is None or not stack[:, 1].any():
        return np.zeros(len(line_number), bool)
    moved = stack[stack[:, 1] > 0]
    first, end = int(moved[:, 0].min()), int(moved[:, 1].max())
    return (line_number >= first // line_bytes) & (line_number * line_bytes < end)
