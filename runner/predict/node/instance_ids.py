"""Numbers by which instances are known in a run: task instances, chunks of loops and initial tasks alike.

Within a rank the number of an instance is that of its row in the rank's NodeProgram, which is in the order of creation,
the initial task being 0; each time that iterations are repeated, all but the initial task get new numbers, behind those
before. Ranks follow each other. What was simulated from another trace of the program (``workload.detail``) has the
numbers of the run's own instances where an iteration has as many in both traces, created alike and of the same types:
then it counts as the same ones, in their order. Else it has numbers of its own, behind all others.

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


def rows_as_traced(
    program: NodeProgram, phases: tuple[int, int], task_type: np.ndarray, traced: NodeProgram, own: tuple[int, int]
) -> np.ndarray | None:
    """int64[instances]: of those in ``phases`` of a detailed trace's program, the rows of the same ones in the
    ``traced`` program, whose phases ``own`` they are; -1 for others. None where they are not the same ones.
    ``task_type`` int[instances]: in the traced program's numbers. O(instances)."""
    firsts = [each.phase_first_instance[a : b + 1] for each, (a, b) in ((program, phases), (traced, own))]
    if len(firsts[0]) != len(firsts[1]) or np.any(np.diff(firsts[0]) != np.diff(firsts[1])):
        return None
    mine, other = (slice(int(each[0]), int(each[-1])) for each in firsts)
    parents = [np.where(each.parent[rows] > 0, each.parent[rows] - rows.start, -1 - (each.parent[rows] < 0))
               for each, rows in ((program, mine), (traced, other))]  # fmt: skip
    pairs = (parents, (program.instance_flags[mine], traced.instance_flags[other]))
    if any(np.any(a != b) for a, b in (*pairs, (task_type[mine], traced.task_type[other]))):
        return None
    found = np.full(program.num_instances, -1, np.int64)
    found[0] = 0
    found[mine] = np.arange(other.start, other.stop)
    return found


def traced_ids(task_instance_id: np.ndarray, row: np.ndarray) -> np.ndarray:
    """int32: the task_instance_id of rows of a NodeProgram, which names none for the initial task: 0."""
    return np.where(row == 0, 0, task_instance_id).astype(np.int32)


def first_ids(schedules: Sequence[Arrays]) -> np.ndarray:
    """int64[ranks + 1]: the number of each rank's initial task, and the first that is free behind all."""
    return np.cumsum([0, *(int(result["num_ids"][0]) for result in schedules)])


def first_ids_of_detail(plan: Sequence[Cell], cells: Sequence[Arrays], free: int) -> dict[int, int]:
    """By rank: the number of the initial task of what was simulated from a trace of its own and has no numbers in the
    run's, from ``free`` on."""
    found: dict[int, int] = {}
    for cell, simulated in zip(plan, cells, strict=True):
        if cell.rank not in found:
            found[cell.rank] = free
            free += int(simulated["num_ids"][0])
    return found


def in_run(first: int | np.ndarray, number: np.ndarray) -> np.ndarray:
    """Numbers in a run of those in a rank; -1 stays."""
    return np.where(number >= 0, number + first, -1)
