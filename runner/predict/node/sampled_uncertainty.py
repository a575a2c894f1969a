"""How far the predicted time of a cell that TaskPoint sampled may be off."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import stdtrit

from manyscale.models.node.burst import run_phases
from manyscale.models.node.detailed import DetailedPhases, last_cache_of
from manyscale.models.node.program.node_program import Action
from manyscale.runner.predict.node.open_cell import OpenCell
from manyscale.sampling.taskpoint.decisions import TaskPoint
from manyscale.sampling.taskpoint.estimate import Estimate, estimate
from manyscale.sampling.taskpoint.state import FORWARDED, FORWARDED_BY_ALL

RESCHEDULED: Final = 4  # times, half of them first
SETTLED: Final = 0.002  # relative half-width that needs no more schedules
LEAST_JITTER: Final = 0.001
_SHARE: Final = 0.975  # two-sided 95 %


def relative_half_width(cell: OpenCell, result: DetailedPhases, point: TaskPoint) -> float:
    """Of the confidence interval of the cell's time: what samples leave open of the busy time
    (sampling/taskpoint/estimate.py) and the last instances of the cores of the makespan; beside it, independently, what
    schedules make of small differences. O(instances), and RESCHEDULED schedules."""
    found = estimate(point)
    of_times = found.relative_half_width + _granularity(cell, result, point)
    return float(np.hypot(of_times, _of_schedules(cell, result, found)))


def _granularity(cell: OpenCell, result: DetailedPhases, point: TaskPoint) -> float:
    """What the busy time leaves open of the makespan: a phase ends with its last instance, and which core has how many
    turns on those that time decides; so an instance's mean time for each phase, relative to all."""
    forwarded = (point.role == FORWARDED) | (point.role == FORWARDED_BY_ALL)
    if not forwarded.any():
        return 0.0
    assert cell.node.frequency_hz is not None
    mean_ps = float((point.instructions * point.cpi)[forwarded].mean()) / cell.node.frequency_hz * 1e12
    total_ps = float(result.makespan_ps.sum())
    return min(mean_ps * np.count_nonzero(result.makespan_ps) / total_ps, 1.0) if total_ps else 0.0


def _of_schedules(cell: OpenCell, result: DetailedPhases, found: Estimate) -> float:
    """What follows from task instances that take a little more or less than predicted, relative to the makespan: where
    they wait for each other or create each other, the order in which cores take them is another then, and the makespan
    may differ by far more than they do (Graham's anomalies: SIAM J. Appl. Math. 17, 1969).

    Of up to RESCHEDULED schedules of the predicted times without the initial task's, each instance's changed by a
    factor of as large a deviation as samples have. 0 for independent instances, and for those that the replay has to
    schedule.
    """
    program, cores, makespan_ps = cell.program, len(result.core_stack), int(result.makespan_ps.sum())
    mine = cell.instances
    depend = np.any(program.num_predecessors[mine]) or np.any(program.parent[mine])
    if not depend or not makespan_ps or np.any(program.step_action == Action.operation):
        return 0.0
    classes = found.classes
    known = np.isfinite(classes.deviation) & (classes.cycles > 0)
    variance = classes.deviation[known] ** 2 @ classes.cycles[known] / max(classes.cycles[known].sum(), 1.0)
    others_ps = np.where(program.piece_instance > 0, np.maximum(result.piece_ps, 0), 0)
    makespans = np.zeros(0)
    half_width = np.inf
    while half_width > SETTLED and len(makespans) < RESCHEDULED:
        more = run_phases(
            program, cores, cell.runtime, others_ps, cell.first, cell.end, first_repetition=len(makespans),
            repetitions=RESCHEDULED // 2, share_group=last_cache_of(cell.node, cores),
            jitter=max(float(np.sqrt(variance)), LEAST_JITTER),
        ).makespan_ps  # fmt: skip
        makespans = np.append(makespans, more.sum(axis=1))
        half_width = float(makespans.std(ddof=1) * stdtrit(len(makespans) - 1, _SHARE) / makespan_ps)
    return half_width
