"""What the task graph of a rank allows: work, critical path, depth and width of each of its compute phases.

Method: the burst mode of the node (models/node/burst.py) on as many cores as find something to do, with a runtime
system that costs nothing. With the traced times the makespan of a phase is its critical path: what the creating task
does before each creation, dependences, waits, groups and barriers included. With a time of one for each instance and
none for all else it is the number of instances on the longest chain (depth), and the most that run in one unit of time
are the width of its levels. (Brent's work and span; Graham, "Bounds on multiprocessing timing anomalies", 1969.)

Cost: that of three schedules, O(pieces log instances). Memory: that of the rank's program, some 60 B an event, and 40 B
a stretch of an instance on a core; a rank with more than a bound of events is followed in its first part alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.build import build_program
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind

MOST_EVENTS: Final = 4_000_000
MOST_CORES: Final = 1 << 16
MOST_PARTS: Final = 256  # of a static loop
_MOST_CHUNKS: Final = 1 << 21  # of all static loops of a rank
_FREE: Final = RuntimeSystem()


@dataclass(frozen=True)
class GraphOfRank:
    """int64[phases]: ``operation`` before which the phase stands (-1: none), ``iteration`` (-1: none), ``instances``
    (chunks of loops included), ``work_ps``, ``span_ps``: the critical path, ``depth`` and ``width`` in instances.
    ``parts``: into how many static loops are cut at most; ``operations_inside``: MPI calls inside phases, which take
    no time; ``is_part``: the rank has more events than are followed; ``is_narrow``: more was ready at once than
    ``most_cores``."""

    operation: np.ndarray
    iteration: np.ndarray
    instances: np.ndarray
    work_ps: np.ndarray
    span_ps: np.ndarray
    depth: np.ndarray
    width: np.ndarray
    edges: int
    parts: int
    operations_inside: int
    is_part: bool
    is_narrow: bool
    most_cores: int = MOST_CORES


def graph_of_rank(workload: Workload, rank: int) -> GraphOfRank | None:
    """See the module; None where no part of the rank is small enough. Raises WorkloadError for a trace that contradicts
    itself, such as one whose dependences are a cycle."""
    end = _followed(workload, rank)
    if end == 0:
        return None
    static = int(np.count_nonzero(workload.column("loops", "rank") == rank))
    parts = max(1, min(MOST_PARTS, _MOST_CHUNKS // max(1, static)))
    program = build_program(workload, rank, parts, _FREE, 0, end)
    program, inside = _without_operations(program)
    first = program.phase_first_instance.astype(np.int64)
    instances = np.diff(first)
    cores = int(min(MOST_CORES, max(1, instances.max(initial=0) + 1)))
    timed = run_phases(program, cores, _FREE, program.piece_ps)
    levels = run_phases(program, cores, _FREE, _units(program), keep=True)
    width = _width(levels.stretches, program.num_phases)
    return GraphOfRank(
        operation=program.phase_operation.astype(np.int64),
        iteration=program.phase_iteration.astype(np.int64),
        instances=instances,
        work_ps=_work(program),
        span_ps=timed.makespan_ps[0],
        depth=levels.makespan_ps[0],
        width=width,
        edges=len(program.successor),
        parts=parts,
        operations_inside=inside,
        is_part=end is not None,
        is_narrow=bool(width.max(initial=0) >= MOST_CORES),
    )


def _followed(workload: Workload, rank: int) -> int | None:
    """How many operations of a rank are followed; None: all."""
    owner = workload.column("events", "rank")
    first, end = (int(each) for each in np.searchsorted(owner, [rank, rank + 1]))
    if end - first <= MOST_EVENTS:
        return None
    operation, kind = (
        workload.column("events", name)[first : first + MOST_EVENTS] for name in ("operation_id", "kind")
    )
    # what is open at an operation has to be closed before it: parallel regions are what holds tasks
    depth = np.cumsum((kind == EventKind.parallel_begin).astype(np.int64) - (kind == EventKind.parallel_end))
    closed = np.flatnonzero((depth[:-1] == 0) & (operation[1:] > operation[:-1]))
    return int(operation[closed[-1] + 1]) if len(closed) else 0


def _without_operations(program: NodeProgram) -> tuple[NodeProgram, int]:
    """The program with a piece of no time in place of each MPI operation inside a phase, and how many there were."""
    inside = program.step_action == Action.operation
    count = int(np.count_nonzero(inside))
    if not count:
        return program, 0
    action, target = program.step_action.copy(), program.step_target.copy()
    action[inside], target[inside] = Action.compute, program.num_pieces
    last = {"piece_event": -1, "num_parts": 1}  # of the new piece; all else is 0
    names = (
        "piece_ps", "piece_instance", "piece_event", "first_segment", "end_segment", "part", "num_parts",
    )  # fmt: skip
    pieces: dict[str, Any] = {}
    for name in names:
        column = getattr(program, name)
        pieces[name] = np.append(column, column.dtype.type(last.get(name, 0)))
    return replace(program, step_action=action, step_target=target, **pieces), count


def _units(program: NodeProgram) -> np.ndarray:
    """int64[pieces]: 1 for the first piece of each instance but the initial task, else 0."""
    owner = program.piece_instance
    found = np.zeros(program.num_pieces, np.int64)
    instance, first = np.unique(owner, return_index=True)
    found[first[instance > 0]] = 1
    return found


def _work(program: NodeProgram) -> np.ndarray:
    """int64[phases]: time of all pieces of the phase's instances, and of the initial task's steps there."""
    of_instance = np.zeros(program.num_instances, np.int64)
    np.add.at(of_instance, program.piece_instance, program.piece_ps)
    of_instance[0] = 0
    first = program.phase_first_instance.astype(np.int64)
    before = np.append(0, np.cumsum(of_instance))
    work = before[first[1:]] - before[first[:-1]]
    computes = np.flatnonzero(program.step_action[: program.first_step[1]] == Action.compute)
    phase = np.searchsorted(program.phase_first_step, computes, "right") - 1
    np.add.at(work, phase, program.piece_ps[program.step_target[computes]])
    return work


def _width(stretches: np.ndarray, num_phases: int) -> np.ndarray:
    """int64[phases]: most instances that run in one unit of time."""
    width = np.zeros(num_phases, np.int64)
    if len(stretches):
        span = int(stretches["start_ps"].max()) + 1
        key, count = np.unique(stretches["phase"].astype(np.int64) * span + stretches["start_ps"], return_counts=True)
        np.maximum.at(width, key // span, count)
    return width
