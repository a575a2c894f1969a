"""Times of compute phases whose task instances are scheduled on several cores, in bursts or simulated in detail.

In stages, whose units are independent of each other and need the results of the stages before:

1. *profiles* of what was traced in detail, where a method needs them (profile_units.py);
2. *cells*: iterations of ranks whose cores are simulated in detail or by the interval model
(predict/node/cell_units.py); 3. *schedules*: all phases of each rank, in bursts: traced times of task instances, times
the ratios that the cells show
   (predict/node/type_ratios.py), on the rank's cores (predict/node/schedule_units.py). A phase that lies in a cell
   takes what the cell says.

Model ``burst`` has the last stage alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.machine.processor import data_caches
from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node import (
    cell_units,
    profile_units,
    result_tables,
    schedule_units,
    statistics,
)
from manyscale.runner.predict.node.cells import CellPlan, plan_cells
from manyscale.runner.predict.node.coupling import Coupling, coupling
from manyscale.runner.predict.node.rank_part import RankPart, rank_part
from manyscale.runner.predict.node.task_type_names import check_priorities, factors_of_types, same_types
from manyscale.runner.predict.node.type_ratios import TypeRatios
from manyscale.runner.predict.results import Statistic
from manyscale.runner.predict.stored_arrays import restored
from manyscale.runner.predict.units import Arrays, WorkUnit
from manyscale.runner.study import Study, WorkloadChoice
from manyscale.runner.study.repeat import RepeatedWorkload
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import full


@dataclass(frozen=True)
class PhaseTimes:
    """``duration_ps`` int64[phases]: predicted, of all phases of the workload."""

    duration_ps: np.ndarray


def of_workload(workload: Workload, study: Study) -> NodePhases:
    """The last one is kept, since every point of a sweep asks for it."""
    key = (workload.digest, study.workload.path, study.workload.detail)
    if key not in _kept:
        _kept.clear()
        _kept[key] = NodePhases(workload, study.workload)
    return _kept[key]


_kept: dict[tuple[str, str, str | None], NodePhases] = {}


class NodePhases:
    """What predicts the times of a workload's phases (registry: seam ``phase-times``)."""

    def __init__(self, workload: Workload, choice: WorkloadChoice) -> None:
        self._workload, self._choice = workload, choice
        self._base = workload.base if isinstance(workload, RepeatedWorkload) else workload
        self._inputs: dict[str, Any] = {}
        self._parts: dict[int, RankPart] = {}
        self._plans: dict[str, CellPlan] = {}

    @cached_property
    def _detail(self) -> Workload:
        """The workload with the detailed level. Raises UserError where there is none."""
        choice = self._choice
        found = self._base
        if choice.detail is not None:
            found = read_workload(WorkloadChoice(path=choice.detail))
            if found.num_ranks != self._base.num_ranks:
                raise UserError(
                    f"{choice.detail}: has {found.num_ranks} ranks, but {choice.path} has {self._base.num_ranks}; "
                    "workload.detail names a trace of the same run"
                )
        if found is not self._base and not _may_be_same(found, self._base):
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

    # ---- the seam ----

    def plan(self, study: Study) -> Plan:
        """Ranks that are simulated by the study's model, and what each stands for."""
        return full.plan(self._workload, "burst") if study.model.cpu == "burst" else self._cells(study).ranks

    def units(self, study: Study, machine: Machine, content: Mapping[str, Any]) -> list[WorkUnit]:
        """Units of the first stage. Raises UserError for what cannot be simulated."""
        check_priorities(self._base, study)
        return self._next(study, machine, content, [])

    def further_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], results: Sequence[Arrays]
    ) -> list[WorkUnit]:
        """Units of the stage after those that resulted in ``results``."""
        return self._next(study, machine, content, results)

    def shared(self, needed_names: set[str]) -> dict[str, Any]:
        """The inputs of units."""
        return {name: self._inputs[name] for name in needed_names if name in self._inputs}

    def phase_times(self, study: Study, results: Iterable[Arrays]) -> PhaseTimes:
        """Times of all phases from the results of all stages."""
        mine = list(results)[-self._workload.num_ranks :]
        duration = self._workload.column("phases", "duration_ps").copy()
        computing = self._workload.column("phases", "kind") == PhaseKind.compute
        offsets = self._workload.phase_offsets
        operation = self._workload.column("phases", "operation_id")
        for rank, result in enumerate(mine):
            if "compute_ps" not in result:  # the replay says when its instances run
                continue
            rows = np.arange(offsets[rank], offsets[rank + 1])[computing[offsets[rank] : offsets[rank + 1]]]
            duration[rows] = _spread(result["compute_ps"], operation[rows], duration[rows])
        return PhaseTimes(duration)

    def statistics(self, study: Study, results: Iterable[Arrays]) -> dict[str, Statistic]:
        """Figures of nodes, cores and samples."""
        return statistics.node_statistics(self, study, list(results))

    def with_intervals(
        self, study: Study, results: Sequence[Arrays], figures: dict[str, Statistic]
    ) -> dict[str, Statistic]:
        """``figures`` with confidence intervals of times that follow from samples."""
        return statistics.with_intervals(statistics.relative_half_width(self, study, results), figures)

    def coupling(self, study: Study, machine: Machine, results: Iterable[Arrays]) -> Coupling | None:
        """What the replay needs of ranks that communicate inside their phases, None if none does. Raises UserError for
        such ranks of a repeated workload."""
        _, _, schedules = self.by_stage(study, list(results))
        group = _share_group(machine, study.mapping.cores_per_rank)
        found = coupling(self._base, study, group, schedules)
        if found is not None and self._base is not self._workload:
            raise UserError(
                f"{self._choice.path}: calls MPI inside phases with tasks, which cannot be repeated; trace as many "
                "iterations as are wanted"
            )
        return found

    def tables(self, study: Study, results: Sequence[Arrays], compute_ps: np.ndarray, replay: Arrays) -> dict[str, Any]:
        """Tables of a Result: cores, task instances, CPI stacks. ``compute_ps`` int64[operations]; ``replay``: what the
        replay resulted in."""
        _, cells, schedules = self.by_stage(study, results)
        found = self._cells(study) if cells else None
        plan, detail = ((), None) if found is None else (found.cells, found.detail)
        return result_tables.tables(
            self._workload, self._base, plan, cells, schedules, compute_ps, replay, detail, study.timeline
        )

    # ---- stages ----

    def _stages(self, study: Study) -> Iterator[Any]:
        if study.model.cpu != "burst":
            if profile_units.are_needed(study):
                yield self._profile_units
            yield self._cell_units
        yield self._schedule_units

    def _next(
        self, study: Study, machine: Machine, content: Mapping[str, Any], results: Sequence[Arrays]
    ) -> list[WorkUnit]:
        left = iter(results)
        number = len(results)
        before: list[list[Arrays]] = []
        for stage in self._stages(study):
            units: list[WorkUnit] = stage(study, machine, content, before)
            if not number:
                return units
            before.append(list(islice(left, len(units))))
            number -= len(units)
        return []

    def by_stage(self, study: Study, results: Sequence[Arrays]) -> tuple[list[Arrays], list[Arrays], list[Arrays]]:
        """(profiles, cells, schedules) among the results of all units."""
        schedules = len(results) - self._workload.num_ranks
        cells = 0 if study.model.cpu == "burst" else len(self._cells(study).cells)
        first = schedules - cells
        return list(results[:first]), [restored(each) for each in results[first:schedules]], list(results[schedules:])

    def _cells(self, study: Study) -> CellPlan:
        key = f"{study.model.cpu} {study.sampling.model_dump_json()}"  # all that it reads of a study
        if key not in self._plans:
            place = self._choice.detail or self._choice.path
            self._plans[key] = plan_cells(self._base, self._detail, study, place)
        return self._plans[key]

    def _profile_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], before: list[list[Arrays]]
    ) -> list[WorkUnit]:
        return profile_units.units(self._cells(study), study, machine, self._add_input)

    def _cell_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], before: list[list[Arrays]]
    ) -> list[WorkUnit]:
        profiles = before[0] if before else None
        return cell_units.units(self._cells(study), study, machine, content, profiles, self._add_input)

    def _schedule_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], before: list[list[Arrays]]
    ) -> list[WorkUnit]:
        given = factors_of_types(self._base, study)
        results = [restored(each) for each in before[-1]] if before else None
        ratios = None if results is None else self.ratios(study, results)
        return schedule_units.units(
            self._workload, self._base, self._part, study, given, ratios, self._simulated(study, results),
            self._add_input,
        )  # fmt: skip

    def ratios(self, study: Study, results: Sequence[Arrays]) -> tuple[TypeRatios, np.ndarray]:
        """What cells show, and the stratum of each rank."""
        plan = self._cells(study)
        return cell_units.ratios(plan, results, self._base), plan.strata

    def _simulated(self, study: Study, results: Sequence[Arrays] | None) -> dict[int, schedule_units.Simulated]:
        """Of each rank with cells: the makespans of the phases that lie in them."""
        if results is None or isinstance(self._workload, RepeatedWorkload):
            return {}
        return cell_units.simulated_phases(self._cells(study), results)

    def _add_input(self, name: str, value: Any) -> None:
        self._inputs.setdefault(name, value)

    def _part(self, rank: int) -> RankPart:
        """A rank's part, kept: its digest is asked for at every point of a sweep."""
        if rank not in self._parts:
            self._parts[rank] = rank_part(self._base, rank)
        return self._parts[rank]


def _may_be_same(detail: Workload, traced: Workload) -> bool:
    """Whether two traces are of one program: they have a place of the source in common, or no tasks to tell by."""
    types = same_types(detail, traced)
    return not len(types) or not traced.tables["task_types"].num_rows or bool(np.any(types >= 0))


def _share_group(machine: Machine, num_cores: int) -> np.ndarray | None:
    """Which cores of a rank share their last cache; None where the machine names no caches."""
    caches = list(data_caches(machine.node.caches).values())
    return (np.arange(num_cores) // caches[-1].shared_by_cores).astype(np.int32) if caches else None


def _spread(compute_ps: np.ndarray, operation: np.ndarray, traced_ps: np.ndarray) -> np.ndarray:
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
