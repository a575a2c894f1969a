"""Which iterations of which ranks are simulated by a model of the cores: the *cells* of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.errors import UserError
from manyscale.runner.predict.rank_plan import plan_ranks
from manyscale.runner.study import Study
from manyscale.runner.study.samplers import chosen_sampler, rules_of
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import iteration_samplers
from manyscale.sampling.ranks.iteration_samplers import IterationPopulation, given_iterations

WHOLE: Final = iteration_samplers.WHOLE
JOINED: Final = iteration_samplers.JOINED


@dataclass(frozen=True)
class Cell:
    """``stratum``: index of the rank among the simulated ones. [``first_segment``, ``end_segment``): rows of the
    detailed workload's ``segments`` that hold all that the cell executes (and may hold some of others). ``weight``: how
    many iterations it counts for in what follows from the rank's cells."""

    rank: int
    iteration: int
    stratum: int
    first_segment: int
    end_segment: int
    weight: float = 1.0


@dataclass(frozen=True)
class CellPlan:
    """``traced``: the workload whose times are scaled; ``detail``: the one that has the detailed level, maybe the same.
    ``strata`` int64[ranks]: index, among the simulated ranks, of the one that stands for each rank."""

    traced: Workload
    detail: Workload
    ranks: Plan
    cells: tuple[Cell, ...]
    strata: np.ndarray

    @property
    def hold_all(self) -> bool:
        """Whether all that every rank does lies in a cell."""
        return {cell.rank for cell in self.cells if cell.iteration == WHOLE} == set(range(self.traced.num_ranks))


def plan_cells(traced: Workload, detail: Workload, study: Study, place: str) -> CellPlan:
    """The cells of a study. Raises UserError, naming ``place``, for one that was not traced in detail."""
    of_rank, of_iteration = detailed_segments(detail)
    try:
        known = np.unique(of_rank[of_rank >= 0])
        if not len(known) and len(of_rank):
            raise ValueError(
                "what it has in detail has no place between operations, such as a function that was traced alone; "
                "add --sampling intervals=full, or trace the whole program"
            )
        ranks = plan_ranks(traced, study, known, "traced")
        cells = []
        for stratum, rank in enumerate(ranks.element_id.tolist()):
            mine = of_rank == rank
            seen = np.unique(of_iteration[mine]) if np.any(mine) else np.array([of_iteration.max(initial=WHOLE)])
            plan = _plan_iterations(detail, study, rank, seen)
            for iteration, weight in zip(plan.element_id.tolist(), plan.weight.tolist(), strict=True):
                rows = np.flatnonzero(mine & (of_iteration >= 0 if iteration == JOINED else of_iteration == iteration))
                if not len(rows):
                    raise ValueError(_missing(rank, iteration, known, np.unique(of_iteration)))
                cells.append(Cell(rank, iteration, stratum, int(rows[0]), int(rows[-1]) + 1, weight))
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    return CellPlan(traced, detail, ranks, tuple(cells), ranks.representative)


def _plan_iterations(detail: Workload, study: Study, rank: int, seen: np.ndarray) -> Plan:
    """Iterations of a rank that are simulated."""
    method = study.sampling.iterations
    number = int(np.count_nonzero(detail.column("iterations", "rank") == rank))
    population = IterationPopulation(detail, rank, number, seen)
    if not isinstance(method, str):
        return given_iterations(population, method)
    sampler = chosen_sampler("iteration", "traced" if method == "auto" else method)
    plan: Plan = sampler.choose(population, rules_of(sampler, study), study.seed)
    return plan


def _missing(rank: int, iteration: int, ranks: np.ndarray, iterations: np.ndarray) -> str:
    what = f"rank {rank}" + (f", iteration {iteration}," if iteration != WHOLE else "")
    known = f"ranks {_listed(ranks)}" + (
        f", iterations {_listed(iterations[iterations >= 0])}" if len(iterations) else ""
    )
    return (
        f"{what} is to be simulated, but has no detailed level, which {known} have; trace it with `manyscale trace "
        "--level detailed`, or choose others by sampling.ranks and sampling.iterations"
    )


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:6].tolist()))
    return f"{shown}, ..." if len(numbers) > 6 else shown


def detailed_segments(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """(rank, iteration) int64[segments] of a workload's segments; iteration WHOLE outside the main loop, and rank -1
    for segments that belong to no place of a rank's sequence. O(segments x iterations of a rank)."""
    rank = workload.column("segments", "rank").astype(np.int64)
    operation = workload.column("segments", "operation_id").astype(np.int64)
    event = workload.column("segments", "event_id").astype(np.int64)
    iteration = np.full(len(rank), WHOLE, np.int64)
    names = ("rank", "iteration", "first_operation_id", "end_operation_id", "first_event_id", "end_event_id")
    columns = [workload.column("iterations", name).tolist() for name in names]
    by_rank = [np.flatnonzero(rank == each) for each in range(workload.num_ranks)]
    first_row = np.searchsorted(workload.column("events", "rank"), np.arange(workload.num_ranks + 1)).tolist()
    before = workload.column("events", "operation_id")
    kind = workload.column("events", "kind")

    def is_behind(owner: int, at_operation: int, at_event: int) -> np.ndarray:
        """Which segments of a rank follow the place where an iteration begins or ends."""
        mine, row = by_rank[owner], first_row[owner] + at_event
        is_event = row < first_row[owner + 1] and kind[row] == EventKind.iteration
        # otherwise it is the operation before, unless other events stand between them
        is_event |= at_event > 0 and before[row - 1] >= at_operation
        by_operation: np.ndarray = operation[mine] >= at_operation
        return np.where(event[mine] >= 0, event[mine] > at_event, by_operation) if is_event else by_operation

    for owner, number, first_operation, end_operation, first_event, end_event in zip(*columns, strict=True):
        inside = is_behind(owner, first_operation, first_event) & ~is_behind(owner, end_operation, end_event)
        iteration[by_rank[owner][inside]] = number
    return np.where(operation >= 0, rank, -1), iteration
