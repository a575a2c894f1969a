"""Times of compute phases whose task instances are scheduled on several cores, in bursts or simulated in detail.

In stages:

1. *profiles* of what was traced in detail, where a method needs them (profile_units.py);
2. what these take on the machine's *cores*, for the analytical model (cost_units.py);
3. *cells*: iterations of ranks whose cores are simulated in detail or by the interval model (cell_units.py);
4. *schedules*: all phases of each rank, in bursts: traced times of task instances, times the ratios that the cells show
   (type_ratios.py), on the rank's cores (schedule_units.py). A phase that lies in a cell takes what the cell says.

Model ``burst`` has the last stage alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import data_caches
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node import result_tables, schedule_units, statistics
from manyscale.runner.predict.node.cells import cell_units, cost_units, profile_units
from manyscale.runner.predict.node.cells.plan import CellPlan, plan_cells
from manyscale.runner.predict.node.options import TimelineChoice
from manyscale.runner.predict.node.rank_cores import core_speeds
from manyscale.runner.predict.node.rank_part import RankPart, rank_part
from manyscale.runner.predict.node.schedule_units import is_coupled
from manyscale.runner.predict.node.shown_iterations import KEPT_BY_DEFAULT
from manyscale.runner.predict.node.task_type_names import check_priorities, factors_of_types, same_types
from manyscale.runner.predict.node.type_ratios import TypeRatios
from manyscale.runner.predict.phase_source import Case, CoreUse, Coupling, Done, PhaseSource, Replayed, Stage
from manyscale.runner.predict.statistic import Statistic, with_half_width
from manyscale.runner.predict.stored_arrays import notes_of, restored
from manyscale.runner.predict.units import Arrays, array_digest
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import full

_NO_DATA: Final = informs(
    "data-of-tasks-not-known",
    "policy data-reuse goes by the cores on which predecessors ran where the data of task instances are not known: in "
    "iterations whose cores are not simulated from a detailed trace (model cpu: detailed, interval), in regions "
    "(sampling.intervals), and where MPI is called inside tasks",
    "runtime.policy",
)


class NodeSource(PhaseSource):
    """What predicts the times of phases with task instances on a machine."""

    def __init__(self, case: Case) -> None:
        self._case = case
        check_priorities(case.traced, case.study)

    def plans(self) -> list[Plan]:
        """Of ranks that are simulated by the study's model, and what each stands for."""
        burst = self._case.study.model.cpu == "burst"
        return [full.plan(self._case.workload, "burst") if burst else self._cells.ranks]

    def stages(self, done: Done) -> list[Stage]:
        case, study = self._case, self._case.study
        simulates = study.model.cpu != "burst"
        if simulates and profile_units.are_needed(study) and profile_units.KIND not in done:
            return [profile_units.stage(self._cells, study, case.machine)]
        if simulates and cell_units.KIND not in done:
            profiles = done.get(profile_units.KIND)
            if profiles is not None and profile_units.wanted(study)["analytical"] and cost_units.KIND not in done:
                return [cost_units.stage(self._cells, case, profiles)]
            return [cell_units.stage(self._cells, case, profiles, done.get(cost_units.KIND))]
        if schedule_units.KIND not in done:
            cells = self._cells_in(done)
            given = factors_of_types(case.traced, study)
            ratios = (self._ratios(cells), self._cells.strata) if cells else None
            return [schedule_units.stage(case, self._part, given, ratios, self._simulated(cells))]
        return []

    def phase_times(self, done: Done) -> np.ndarray:
        workload = self._case.workload
        duration = workload.column("phases", "duration_ps").copy()
        computing = workload.column("phases", "kind") == PhaseKind.compute
        offsets = workload.phase_offsets
        operation = workload.column("phases", "operation_id")
        for rank, result in enumerate(done[schedule_units.KIND].results):
            if is_coupled(result):  # the replay says when its instances run
                continue
            rows = np.arange(offsets[rank], offsets[rank + 1])[computing[offsets[rank] : offsets[rank + 1]]]
            duration[rows] = spread(result["compute_ps"], operation[rows], duration[rows])
        return duration

    def coupling(self, done: Done) -> Coupling | None:
        """Raises UserError for ranks that communicate inside phases of a repeated workload."""
        case = self._case
        group = _share_group(case.machine, case.study.mapping.cores_per_rank)
        found = _coupling(case, group, done[schedule_units.KIND].results)
        if found is not None and case.traced is not case.workload:
            raise UserError(
                f"{case.study.workload.path}: calls MPI inside phases with tasks, which cannot be repeated; trace as "
                "many iterations as are wanted"
            )
        return found

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """Figures of nodes, cores and samples."""
        cells, schedules = self._cells_in(done), done[schedule_units.KIND].results
        figures = of_run | statistics.of_schedules(self._case.study, schedules)
        if not cells:
            return figures
        ratios = self._ratios(cells)
        half_width = ratios.combined(np.sum([each["type_ps"] for each in schedules], axis=0))
        return with_half_width(half_width, figures | statistics.of_cells(ratios.overall, cells))

    def core_use(self, done: Done, replayed: Replayed) -> CoreUse:
        """Of ranks that the replay schedules, as on an ideal network."""
        arrays, cores = replayed.arrays, self._case.study.mapping.cores_per_rank
        rows = []
        for rank, result in enumerate(done[schedule_units.KIND].results):
            if is_coupled(result):
                mine = arrays["cores_core_rank"] == rank
                busy, overhead = (int(arrays[f"ideal_cores_{name}_ps"][mine].sum()) for name in ("busy", "overhead"))
                total = int(arrays["ideal_compute_ps"][rank]) * cores
                rows.append(schedule_units.core_use(busy, overhead, int(result["serial_ps"][0]), total, cores))
            else:
                rows.append(result["core_use_ps"])
        return CoreUse(*np.array(rows, np.int64).T)

    def notes(self, done: Done) -> list[Note]:
        """Of programs as they are scheduled, of code as it is simulated, and of a trace of its own that it is from."""
        kinds = (cell_units.KIND, schedule_units.KIND)
        found = [note for kind in kinds if kind in done for note in notes_of(done[kind].results)]
        own = cell_units.KIND in done and self._detail is not self._case.traced
        if self._schedules_any(done):
            found += self._without_data
        return [*found, *(self._detail.notes if own else ())]

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Cores, task instances, CPI stacks."""
        case, cells = self._case, self._cells_in(done)
        found = self._cells if cells else None
        plan, detail = ((), None) if found is None else (found.cells, found.detail)
        return result_tables.tables(
            case.workload, case.traced, plan, cells, done[schedule_units.KIND].results, replayed, detail,
            case.study.options(TimelineChoice),
        )  # fmt: skip

    @property
    def _cells(self) -> CellPlan:
        """What is simulated; made once for all points that choose the same. Raises UserError."""
        case, study = self._case, self._case.study
        place = study.workload.detail or study.workload.path
        key = ("cells", study.model.cpu, *study.choices("ranks", "iterations"))  # all that it reads of a study
        return case.shared.once(key, lambda: plan_cells(case.traced, self._detail, study, place))

    @property
    def _detail(self) -> Workload:
        case = self._case
        return case.shared.once("detail", lambda: _detailed(case.traced, case.study.workload))

    def _part(self, rank: int) -> RankPart:
        """A rank's part, kept: its digest is asked for at every point of a sweep."""
        return self._case.shared.once(("rank part", rank), lambda: rank_part(self._case.traced, rank))

    def _cells_in(self, done: Done) -> list[Arrays]:
        """The results of the cells, none where none is simulated."""
        return [restored(each) for each in done[cell_units.KIND].results] if cell_units.KIND in done else []

    @property
    def _without_data(self) -> list[Note]:
        """Of the policy, where something is scheduled whose data are not known."""
        return [_NO_DATA] if self._case.study.options(RuntimeSystem).policy == "data-reuse" else []

    def _schedules_any(self, done: Done) -> bool:
        """Whether phases are scheduled that are not simulated."""
        if cell_units.KIND not in done or self._case.traced is not self._case.workload or not self._cells.hold_all:
            return True
        return any(map(is_coupled, done[schedule_units.KIND].results))

    def _ratios(self, cells: Sequence[Arrays]) -> TypeRatios:
        case = self._case
        if case.traced is not case.workload and not case.traced.column("phases", "duration_ps").any():
            raise UserError(f"{case.study.workload.path}: has no times, and cannot be repeated (workload.repeat)")
        return cell_units.ratios(self._cells, cells, case.traced)

    def _simulated(self, cells: Sequence[Arrays]) -> dict[int, schedule_units.Simulated]:
        """Of each rank with cells: the makespans of the phases that lie in them."""
        if not cells or self._case.traced is not self._case.workload:
            return {}
        return cell_units.simulated_phases(self._cells, cells)


def _detailed(traced: Workload, choice: WorkloadChoice) -> Workload:
    """The workload with the detailed level of ``traced``. Raises UserError where there is none."""
    found = traced
    if choice.detail is not None:
        found = read_workload(WorkloadChoice(path=choice.detail))
        if found.num_ranks != traced.num_ranks:
            raise UserError(
                f"{choice.detail}: has {found.num_ranks} ranks, but {choice.path} has {traced.num_ranks}; "
                "workload.detail names a trace of the same run"
            )
        if not _may_be_same(found, traced):
            raise UserError(
                f"{choice.detail}: has no task type of {choice.path}; workload.detail names a trace of the same program"
            )
    if found.detail is None:
        raise UserError(
            f"{choice.detail or choice.path}: has no detailed level, from which cores are simulated; trace some "
            "ranks and iterations with `manyscale trace --level detailed` and name them by workload.detail, or "
            "choose model cpu: burst"
        )
    return found


def _coupling(case: Case, share_group: np.ndarray | None, schedules: Sequence[Arrays]) -> Coupling | None:
    """What the replay needs to schedule the task instances of ranks that call MPI inside their phases; None where no
    rank does. ``schedules``: results of schedule_units, by rank."""
    workload, study = case.traced, case.study
    coupled = [rank for rank, result in enumerate(schedules) if is_coupled(result)]
    if not coupled:
        return None
    times = [schedules[rank]["piece_ps"] for rank in coupled]
    kept = study.options(TimelineChoice).ranks
    if kept is None:
        kept = coupled if workload.tables["tasks"].num_rows <= KEPT_BY_DEFAULT else coupled[:1]
    parameters = {
        "runtime": study.options(RuntimeSystem).model_dump(mode="json", by_alias=True),
        "num_cores": study.mapping.cores_per_rank,
        "seed": study.seed,
        "share_group": None if share_group is None else share_group.tolist(),
        "keep_ranks": [rank for rank in kept if rank in coupled],
    }
    speeds = core_speeds(case)
    if speeds is not None:
        parameters["speeds"] = speeds.tolist()
    content = f"{schedule_units.VERSION} {workload.digest} {array_digest(np.array(coupled), *times)}"

    def make() -> tuple[list[Any], list[Any]]:
        from manyscale.models.node.program.build import build_program  # loads Numba

        programs: list[Any] = [None] * workload.num_ranks
        pieces: list[Any] = [None] * workload.num_ranks
        for rank, piece_ps in zip(coupled, times, strict=True):
            part = rank_part(workload, rank).workload
            programs[rank] = build_program(part, rank, study.mapping.cores_per_rank, study.options(RuntimeSystem))
            pieces[rank] = piece_ps
        return programs, pieces

    return Coupling(f"node programs {content}", parameters, content, make)


def _may_be_same(detail: Workload, traced: Workload) -> bool:
    """Whether two traces are of one program: they have a place of the source in common, or no tasks to tell by."""
    types = same_types(detail, traced)
    return not len(types) or not traced.tables["task_types"].num_rows or bool(np.any(types >= 0))


def _share_group(machine: Machine, num_cores: int) -> np.ndarray | None:
    """Which cores of a rank share their last cache; None where the machine names no caches."""
    caches = list(data_caches(machine.node.caches).values())
    return (np.arange(num_cores) // caches[-1].shared_by_cores).astype(np.int32) if caches else None


def spread(compute_ps: np.ndarray, operation: np.ndarray, traced_ps: np.ndarray) -> np.ndarray:
    """Of each phase before an operation its share of ``compute_ps`` (int64[operations + 1]), by traced time, to the
    ps."""
    until = np.cumsum(traced_ps)
    first = np.searchsorted(operation, operation, "left")
    before = until[first] - traced_ps[first]
    total = np.bincount(operation, traced_ps, minlength=len(compute_ps))[operation]
    wanted = compute_ps[operation]
    scale = np.divide(wanted, total, out=np.zeros(len(wanted)), where=total > 0)
    end = np.rint((until - before) * scale).astype(np.int64)
    last = np.searchsorted(operation, operation, "right") - 1
    end = np.where(np.arange(len(end)) == last, wanted, end)
    begin = np.where(np.arange(len(end)) == first, 0, np.roll(end, 1))
    return end - begin
