"""How far the predicted time of a cell that TaskPoint sampled may be off.

What samples leave open of the cycles of task instances is an interval of the busy time (sampling/taskpoint/estimate).
Where instances depend on each other or create each other, the makespan is not the busy time over the cores: what is not
on the way that decides it hardly counts, and the order in which cores take instances is another where they take a
little longer, so that the makespan may also move by far more than they do (Graham's anomalies: SIAM J. Appl. Math. 17,
1969). So the burst schedule of the predicted times is made again with times that err as samples say: all instances
that go by one mean together, up or down by its standard deviation, and each by its own spread. The interval of the busy
time times r is that of the makespan, where r is the ratio of what the draws move the makespan to what they move the
busy time, both as root mean squares of relative differences, which have the few draws in common. (Balanced halves, as
signs of each mean, give a sum its variance exactly: McCarthy, "Pseudo-replication", Rev. Int. Stat. Inst. 37, 1969.)
r counts as LEAST_SHARE at least: the graph is that of the run that was predicted. For independent instances, and those
that the replay has to schedule, r is 1.

Samples in stale caches do not show what these hide from them; HIDDEN times what lines tell of it (stale_caches.py) is
added to the interval of the busy time: once for what it is, and once for what the price of a line leaves out.

Beside, the last instances of the cores: see ``_granularity``. How often such intervals hold the truth:
tests/validation/taskpoint/RESULTS.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.node.burst import run_phases
from manyscale.models.node.detailed import DetailedPhases, last_cache_of
from manyscale.models.node.program.node_program import Action
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.sampling.taskpoint.decisions import TaskPoint
from manyscale.sampling.taskpoint.estimate import ForwardedErrors, estimate

DRAWS: Final = 8  # schedules, half of them first
SETTLED: Final = 0.002  # relative half-width that needs no more schedules
LEAST_DEVIATION: Final = 0.001  # of an instance about its mean
LEAST_SHARE: Final = 0.3
HIDDEN: Final = 2.0


def relative_half_width(cell: OpenCell, result: DetailedPhases, point: TaskPoint, hidden_cycles: float = 0.0) -> float:
    """Of the 95 % confidence interval of the cell's time; ``hidden_cycles`` as samples in stale caches do not show.
    O(instances log instances), and DRAWS schedules."""
    found = estimate(point)
    errors = found.errors
    if not len(errors.instance) or not found.busy_cycles:
        return 0.0
    if not np.isfinite(found.half_width_cycles):
        return float(np.inf)
    of_times = found.relative_half_width + HIDDEN * abs(hidden_cycles) / found.busy_cycles
    if _depends(cell):
        of_times *= max(_share_of_makespan(cell, result, errors, of_times), LEAST_SHARE)
    return of_times + _granularity(cell, result, errors)


def _depends(cell: OpenCell) -> bool:
    """Whether instances wait for each other or create each other, and can be scheduled without the replay."""
    program, mine = cell.program, cell.instances
    depend = np.any(program.num_predecessors[mine]) or np.any(program.parent[mine])
    return bool(depend) and not np.any(program.step_action == Action.operation)


def _granularity(cell: OpenCell, result: DetailedPhases, errors: ForwardedErrors) -> float:
    """What the busy time leaves open of the makespan: a phase ends with its last instance, and which core has how many
    turns on those that time decides; so an instance's mean time for each phase, relative to all."""
    assert cell.node.frequency_hz is not None
    mean_ps = float(errors.cycles.mean()) / cell.node.frequency_hz * 1e12
    total_ps = float(result.makespan_ps.sum())
    return min(mean_ps * np.count_nonzero(result.makespan_ps) / total_ps, 1.0) if total_ps else 0.0


def _share_of_makespan(
    cell: OpenCell, result: DetailedPhases, errors: ForwardedErrors, of_times: float
) -> float:  # fmt: skip
    """r of the module, for ``errors`` of pieces and an interval ``of_times`` of the busy time."""
    cores = len(result.core_stack)
    piece_ps = np.maximum(result.piece_ps, 0)
    own = np.maximum(errors.own_deviation, LEAST_DEVIATION)
    moved_ps = piece_ps[errors.instance].astype(np.float64)
    busy_ps, base_ps = float(piece_ps.sum()), _makespan(cell, cores, piece_ps)
    if not base_ps or not moved_ps.any():
        return 1.0
    random = np.random.default_rng(0)
    signs = _balanced(len(errors.mean_deviation))
    of_makespan = of_busy = 0.0
    for draw in range(DRAWS):
        factor = _lognormal(errors.mean_deviation, signs[draw])[errors.group]
        factor *= _lognormal(own, random.standard_normal(len(own)))
        changed = piece_ps.copy()
        changed[errors.instance] = np.rint(moved_ps * factor).astype(np.int64)
        of_makespan += (_makespan(cell, cores, changed) / base_ps - 1) ** 2
        of_busy += (float(changed.sum()) / busy_ps - 1) ** 2
        if draw + 1 == DRAWS // 2 and of_makespan * of_times**2 <= SETTLED**2 * of_busy:
            break
    return float(np.sqrt(of_makespan / of_busy)) if of_busy else 1.0


def _makespan(cell: OpenCell, cores: int, piece_ps: np.ndarray) -> float:
    found = run_phases(
        cell.program, cores, cell.runtime, piece_ps, cell.first, cell.end,
        share_group=last_cache_of(cell.node, cores),
    )  # fmt: skip
    return float(found.makespan_ps.sum())


def _lognormal(deviation: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Factors of mean about 1 and that relative standard deviation, for draws of mean 0 and deviation 1."""
    variance = np.log1p(deviation**2)
    factors: np.ndarray = np.exp(np.sqrt(variance) * drawn - variance / 2)
    return factors


def _balanced(count: int) -> np.ndarray:
    """float64[DRAWS, count] of -1 and 1: columns of Sylvester's matrix of Hadamard's, those of any two of DRAWS - 1
    orthogonal, then the same in another order of the draws."""
    matrix = np.ones((1, 1))
    while len(matrix) < DRAWS:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    random = np.random.default_rng(1)
    columns = [matrix[:, 1:]]
    while sum(each.shape[1] for each in columns) < count:
        columns.append(matrix[random.permutation(DRAWS), 1:] * random.choice((-1.0, 1.0), DRAWS - 1))
    return np.concatenate(columns, axis=1)[:, :count]
