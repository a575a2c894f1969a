"""Time in which task instances are created and loops are entered: the runtime system's, which a detailed trace does not
show.

The piece before a creation is what the runtime system needed for the one before, and a few instructions of the program.
So is the piece before a loop's first chunk: a parallel region is forked, the loop's bounds are worked out.
Such a piece takes its traced time whatever the model of the cores, and is left out of what is compared. One of more
than LONG times the median of its kind holds work of the program, and counts as any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from manyscale.models.node.program.node_program import InstanceFlag, NodeProgram
from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind

LONG: Final = 10


def creation_pieces(program: NodeProgram, workload: Workload) -> np.ndarray:
    """bool[pieces]. ``workload``: the one that the program was built from. O(pieces)."""
    kind = workload.column("events", "kind")
    ended_by = np.full(program.num_pieces, -1, np.int64)
    by_event = program.piece_event >= 0
    ended_by[by_event] = kind[program.piece_event[by_event]]
    # from one chunk of a loop to the next is that chunk's work
    in_chunk = (program.instance_flags[program.piece_instance] & InstanceFlag.chunk) != 0
    found = np.zeros(program.num_pieces, np.bool_)
    enters = (ended_by == EventKind.loop_chunk) | (ended_by == EventKind.section)
    for ends in (ended_by == EventKind.task_create, enters & ~in_chunk):
        if ends.any():
            found |= ends & (program.piece_ps <= LONG * np.median(program.piece_ps[ends]))
    return found


def as_traced(
    program: NodeProgram, creates: np.ndarray, detailed: Workload,
    traced_program: NodeProgram, traced_creates: np.ndarray, traced: Workload,
) -> tuple[NodeProgram, np.ndarray]:  # fmt: skip
    """The program of a detailed trace and its creation pieces, both as another trace of the run has them: where blocks
    are recorded, creation takes up to twelve times as long. ``creates``, ``traced_creates``: of ``creation_pieces``.

    Events of the two correspond by their number; where they are not of the same kinds, all stays. O(events + pieces).
    """
    if not np.array_equal(detailed.column("events", "kind"), traced.column("events", "kind")):
        return program, creates
    of_event = np.full(traced.tables["events"].num_rows + 1, -1, np.int64)  # the last one: of pieces without an event
    of_event[traced_program.piece_event[traced_creates]] = traced_program.piece_ps[traced_creates]
    known = of_event[np.maximum(program.piece_event, -1)]
    return replace(program, piece_ps=np.where(known >= 0, known, program.piece_ps)), known >= 0
