"""Time in which task instances are created: the runtime system's, which a detailed trace does not show.

The piece before a creation is what the runtime system needed for the one before, and a few instructions of the program.
It takes its traced time whatever the model of the cores, and is left out of what is compared. A piece of more than
LONG times the median of such pieces holds work of the program, and counts as any other.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.node.node_program import NodeProgram
from manyscale.models.task_tables import EventKind
from manyscale.models.workload import Workload

LONG: Final = 10


def creation_pieces(program: NodeProgram, workload: Workload) -> np.ndarray:
    """bool[pieces]. ``workload``: the one that the program was built from."""
    kind = workload.column("events", "kind")
    ends = program.piece_event >= 0
    ends[ends] = kind[program.piece_event[ends]] == EventKind.task_create
    if not ends.any():
        return ends
    return ends & (program.piece_ps <= LONG * np.median(program.piece_ps[ends]))
