"""Which iterations of which ranks are simulated by a model of the cores: the *cells* of a study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.errors import UserError
from manyscale.runner.registry import lookup, names
from manyscale.runner.study import Study
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks.choice import choose_iterations, choose_ranks, strata

WHOLE = -1  # the iteration of ranks without a main loop: all that they do
JOINED = -2  # all iterations one after the other, with what lies between


@dataclass(frozen=True)
class Cell:
    """``stratum``: index of the rank among the simulated ones. [``first_segment``, ``end_segment``): rows of the
    detailed workload's ``segments`` that hold all that the cell executes (and may hold some of others)."""

    rank: int
    iteration: int
    stratum: int
    first_segment: int
    end_segment: int


@dataclass(frozen=True)
class CellPlan:
    """``traced``: the workload whose times are scaled; ``detail``: the one that has the detailed level, maybe the same.
    ``strata`` int64[ranks]: the stratum of every rank."""

    traced: Workload
    detail: Workload
    ranks: Plan
    cells: tuple[Cell, ...]
    strata: np.ndarray


def plan_cells(traced: Workload, detail: Workload, study: Study, place: str) -> CellPlan:
    """The cells of a study. Raises UserError, naming ``place``, for one that was not traced in detail."""
    of_rank, of_iteration = detailed_segments(detail)
    chosen = study.sampling
    try:
        method = "traced" if chosen.ranks == "auto" else chosen.ranks
        if isinstance(method, str) and method != "full" and method in names("sampling"):  # somebody's own
            method = lookup("sampling", method)(traced, study.model.cpu).element_id.tolist()
        known = np.unique(of_rank[of_rank >= 0])
        if not len(known) and len(of_rank):
            raise ValueError(
                "what it has in detail has no place between operations, such as a function that was traced alone; "
                "add --sampling intervals=full, or trace the whole program"
            )
        ranks = choose_ranks(traced, method, known, study.model.cpu)
        stratum_of_rank = strata(traced, method, known)
        cells = []
        for stratum, rank in enumerate(ranks.element_id.tolist()):
            mine = of_rank == rank
            seen = np.unique(of_iteration[mine])
            chosen_here = _iterations(traced, detail, study, rank, seen)
            if not chosen_here:
                raise ValueError(_missing(rank, int(of_iteration.max(initial=WHOLE)), known, np.unique(of_iteration)))
            for iteration in chosen_here:
                rows = np.flatnonzero(mine & (of_iteration >= 0 if iteration == JOINED else of_iteration == iteration))
                if not len(rows):
                    raise ValueError(_missing(rank, iteration, known, np.unique(of_iteration)))
                cells.append(Cell(rank, iteration, stratum, int(rows[0]), int(rows[-1]) + 1))
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    return CellPlan(traced, detail, ranks, tuple(cells), stratum_of_rank)


def _iterations(traced: Workload, detail: Workload, study: Study, rank: int, seen: np.ndarray) -> list[int]:
    """Iterations of a rank that are simulated."""
    number = int(np.count_nonzero(detail.column("iterations", "rank") == rank))
    method = "traced" if study.sampling.iterations == "auto" else study.sampling.iterations
    if not number:
        if method not in ("traced", "full", "joined"):
            raise ValueError("knows no iterations of a main loop; leave sampling.iterations out")
        return [WHOLE]
    if method == "joined":
        return [JOINED]
    chosen = choose_iterations(number, method, seen[seen >= 0]).tolist()
    if method == "full" or (method == "traced" and not chosen):
        chosen += [WHOLE] if WHOLE in seen else []
    return [int(each) for each in chosen]


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
