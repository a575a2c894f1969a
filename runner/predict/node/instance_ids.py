"""Numbers by which instances are known in a run: task instances, chunks of loops and initial tasks alike.

Within a rank the number of an instance is that of its row in the rank's NodeProgram, which is in the order of creation,
the initial task being 0; each time that iterations are repeated, all but the initial task get new numbers, behind those
before. Ranks follow each other. What was simulated from another trace of the program (``workload.detail``) has numbers
of its own, behind all others, since its instances need not be the same ones.

So they do not depend on the target, but for its number of cores where static loops are cut into as many chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyscale.models.node.program.node_program import NodeProgram
from manyscale.runner.predict.node.cells.plan import Cell
from manyscale.runner.predict.units import Arrays


def ids_in_rank(
    program: NodeProgram, row: np.ndarray, repetition: np.ndarray | int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """int64 per row of a NodeProgram: (its number in the rank, that of its creator, -1 for none)."""
    behind = program.num_instances * np.asarray(repetition, np.int64)
    creator = program.parent[row].astype(np.int64)
    return np.where(row > 0, row + behind, 0), np.where(creator > 0, creator + behind, creator)


def traced_ids(task_instance_id: np.ndarray, row: np.ndarray) -> np.ndarray:
    """int32: the task_instance_id of rows of a NodeProgram, which names none for the initial task: 0."""
    return np.where(row == 0, 0, task_instance_id).astype(np.int32)


def first_ids(schedules: Sequence[Arrays]) -> np.ndarray:
    """int64[ranks + 1]: the number of each rank's initial task, and the first that is free behind all."""
    return np.cumsum([0, *(int(result["num_ids"][0]) for result in schedules)])


def first_ids_of_detail(plan: Sequence[Cell], cells: Sequence[Arrays], free: int) -> dict[int, int]:
    """By rank: the number of the initial task of what was simulated from a trace of its own, from ``free`` on."""
    found: dict[int, int] = {}
    for cell, simulated in zip(plan, cells, strict=True):
        if cell.rank not in found:
            found[cell.rank] = free
            free += int(simulated["num_ids"][0])
    return found


def in_run(first: int | np.ndarray, number: np.ndarray) -> np.ndarray:
    """Numbers in a run of those in a rank; -1 stays."""
    return np.where(number >= 0, number + first, -1)
