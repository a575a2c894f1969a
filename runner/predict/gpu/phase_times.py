"""Times of phases that are kernel launches of a GPU (seam ``phase-times``), beside what the CPU model predicts.

Launches are predicted in their own units (predict/gpu/launch_units.py), each once, wherever the run executes it; then a
phase lasts as long as its launches, one after the other, launch latencies included. All other phases are those of the
CPU model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu import checks, launch_units, mapping, statistics, tables
from manyscale.runner.predict.gpu.launch_results import MARK
from manyscale.runner.predict.gpu.plan import LaunchPlan, plan_launches
from manyscale.runner.predict.gpu.predictions import Predictions, predictions
from manyscale.runner.predict.node.coupling import Coupling
from manyscale.runner.predict.results import Statistic
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest
from manyscale.runner.registry import lookup
from manyscale.runner.study import Study, WorkloadChoice
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import full

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PhaseTimes:
    """``duration_ps`` int64[phases]: predicted, of all phases of the workload."""

    duration_ps: np.ndarray


def of_workload(workload: Workload, study: Study, machine: Machine, inner: Any) -> GpuPhases:
    """The last one is kept, since every point of a sweep asks for it."""
    key = (workload.digest, study.workload.path, study.workload.gpu_trace, study.mapping.launches)
    if key not in _kept:
        _kept.clear()
        _kept[key] = Launches(workload, study)
    return GpuPhases(_kept[key], machine, inner)


_kept: dict[tuple[str, str, str | None, str | None], Launches] = {}


class Launches:
    """The launches of a run: where they are from, and which phases they are. Raises UserError."""

    def __init__(self, workload: Workload, study: Study) -> None:
        self.workload = workload
        self.inputs: dict[str, Any] = {}
        self._plans: dict[str, LaunchPlan] = {}
        self._told: set[str] = set()
        if study.mapping.launches is None:
            self.source, self.place = workload, study.workload.path
            self.executions = mapping.of_stream(workload)
        else:
            from manyscale.runner.study.traces import read_workload

            assert study.workload.gpu_trace is not None
            self.place = study.workload.gpu_trace
            chosen = WorkloadChoice(path=self.place, launches=study.workload.launches)
            self.source = read_workload(chosen)
            if not self.source.tables["launches"].num_rows:
                raise UserError(f"{self.place}: has no kernel launches; workload.gpu_trace names a GPU's trace")
            path = Path(study.mapping.launches).expanduser()
            self.executions = mapping.read_mapping(path, workload, self.source, self.place)

    @cached_property
    def rows(self) -> np.ndarray:
        """int64[]: rows of the table of launches that are executed, ascending."""
        return np.unique(self.executions.launch)

    @cached_property
    def is_launch(self) -> np.ndarray:
        """bool[phases of the run]."""
        found = np.zeros(self.workload.tables["phases"].num_rows, np.bool_)
        found[self.executions.phase] = True
        return found

    @property
    def is_whole_run(self) -> bool:
        """Whether the run is nothing but launches."""
        return self.source is self.workload

    def plan(self, study: Study) -> LaunchPlan:
        key = study.sampling.model_dump_json()
        if key not in self._plans:
            self._plans[key] = plan_launches(self.source, self.rows, study, self.place)
        return self._plans[key]

    def tell(self, note: str) -> None:
        """Log a note once."""
        if note not in self._told:
            self._told.add(note)
            _log.warning("%s: %s", self.place, note)


class GpuPhases:
    """What predicts the times of a run's phases on a machine where some are launches. ``inner``: what predicts the
    others, None where they take their traced times. Raises UserError for a machine without a GPU."""

    def __init__(self, launches: Launches, machine: Machine, inner: Any) -> None:
        self.launches, self._machine, self._inner = launches, machine, inner
        self._gpu = checks.gpu_of(machine)

    # ---- the seam ----

    def plan(self, study: Study) -> Plan:
        """Of the ranks."""
        return full.plan(self.launches.workload, "burst") if self._inner is None else self._inner.plan(study)

    def units(self, study: Study, machine: Machine, content: Mapping[str, Any]) -> list[WorkUnit]:
        """Units of the first stage. Raises UserError for launches that the machine cannot run."""
        lookup("gpu", launch_units.name_of(study)).check(study)
        checks.check_fit(self.launches.source, self.launches.rows, machine, self.launches.place)
        newer = checks.newer_launches(self.launches.source, self.launches.rows, self._gpu)
        if len(newer):
            self.launches.tell(checks.note_of_newer(newer.tolist(), machine, self._gpu))
        inner = [] if self._inner is None else self._inner.units(study, machine, content)
        return [*inner, *self._first_units(study, machine, content)]

    def further_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], results: Sequence[Arrays]
    ) -> list[WorkUnit]:
        """Units that need ``results``."""
        own, others = _split(results)
        found = [] if self._inner is None else self._inner.further_units(study, machine, content, others)
        outlines = [each for each in own if launch_units.is_outline(each)]
        profiles = [each for each in own if launch_units.is_profile(each)]
        if outlines and len(own) == len(outlines) + len(profiles):
            found += self._units_from(outlines, profiles, study, machine, content)
        return list(found)

    def shared(self, needed_names: set[str]) -> dict[str, Any]:
        """The inputs of units."""
        found = {} if self._inner is None else self._inner.shared(needed_names)
        own = self.launches.inputs
        return {**found, **{name: own[name] for name in needed_names if name in own}}

    def phase_times(self, study: Study, results: Iterable[Arrays]) -> PhaseTimes:
        """Times of all phases. Those of launches are final: no CPU's speed changes them."""
        own, others = _split(results)
        if self._inner is not None:
            duration = self._inner.phase_times(study, others).duration_ps.copy()
        else:
            duration = self.launches.workload.column("phases", "duration_ps").copy()
            if study.cpu_ratio != 1:
                computing = self.launches.workload.column("phases", "kind") == PhaseKind.compute
                duration = np.where(computing, np.rint(duration * study.cpu_ratio).astype(np.int64), duration)
        found = self.predictions(study, own)
        executions = self.launches.executions
        duration[self.launches.is_launch] = 0
        np.add.at(duration, executions.phase, found.duration_ps[np.searchsorted(found.plan.row, executions.launch)])
        return PhaseTimes(duration)

    def content(self, study: Study) -> str:
        """Digest of all that times of phases follow from, beside results of units and the traced times."""
        plan, executions = self.launches.plan(study), self.launches.executions
        ratio = study.cpu_ratio if self._inner is None else 1.0
        own = np.array([ratio, self._gpu.frequency_hz, self._gpu.launch_latency_cycles])
        return array_digest(executions.phase, executions.launch, plan.row, plan.representative, own)

    def fixed_phases(self) -> np.ndarray:
        """bool[phases]: whose times no speed of a CPU changes."""
        return self.launches.is_launch

    def plans(self, study: Study, ranks: Plan) -> list[Plan]:
        """Of ranks (``ranks``), if a CPU's time is predicted too, and of launches."""
        own = self.launches.plan(study).plan(launch_units.name_of(study))
        return [own] if self.launches.is_whole_run else [ranks, own]

    def unit_keys(self, study: Study, results: Sequence[Arrays], keys: Sequence[str]) -> list[str]:
        """The key of the unit that simulated each launch of the plan. ``keys``: of ``results``."""
        key_of: dict[int, str] = {}
        for arrays, key in zip(results, keys, strict=True):
            if launch_units.is_result(arrays):
                key_of |= dict.fromkeys(arrays[MARK].tolist(), key)
        chosen = self.launches.plan(study).chosen
        return [key_of[each] for each in self.launches.source.column("launches", "launch_id")[chosen].tolist()]

    def statistics(self, study: Study, results: Sequence[Arrays]) -> dict[str, Statistic]:
        """Figures of launches, and those of the CPU model."""
        own, others = _split(results)
        found = {} if self._inner is None else self._inner.statistics(study, others)
        return found | statistics.launch_statistics(self.launches, self.predictions(study, own), self._gpu)

    def with_intervals(
        self, study: Study, results: Sequence[Arrays], figures: dict[str, Statistic]
    ) -> dict[str, Statistic]:
        """``figures`` with confidence intervals of times that follow from samples."""
        own, others = _split(results)
        if self._inner is not None:
            figures = self._inner.with_intervals(study, others, figures)
        return statistics.with_intervals(self.launches, self.predictions(study, own), self._gpu, figures)

    def coupling(self, study: Study, machine: Machine, results: Iterable[Arrays]) -> Coupling | None:
        """What the replay needs of ranks that communicate inside their phases. Raises UserError: launches do not."""
        found = None if self._inner is None else self._inner.coupling(study, machine, _split(results)[1])
        if found is not None:
            raise UserError(
                f"{study.workload.path}: calls MPI inside phases with tasks, which mapping.launches cannot replace; "
                "leave it out"
            )
        return None

    def tables(self, study: Study, results: Sequence[Arrays], compute_ps: np.ndarray, replay: Arrays) -> dict[str, Any]:
        """Tables of a Result that the CPU model knows."""
        return {} if self._inner is None else self._inner.tables(study, _split(results)[1], compute_ps, replay)

    def launch_tables(
        self, study: Study, results: Sequence[Arrays], phase_ps: np.ndarray, end_ps: np.ndarray
    ) -> dict[str, Any]:
        """Tables of launches, blocks, IPC and CPI stacks. ``phase_ps`` int64[phases] as replayed, ``end_ps``
        int64[operations]."""
        begin = tables.begin_of_phases(self.launches.workload, phase_ps, end_ps)
        predicted = self.predictions(study, _split(results)[0])
        return tables.launch_tables(self.launches, predicted, begin, launch_units.name_of(study))

    # ---- parts ----

    def predictions(self, study: Study, own: Sequence[Arrays]) -> Predictions:
        """What each launch is taken to be."""
        results = [each for each in own if launch_units.is_result(each)]
        return predictions(self.launches.source, self.launches.plan(study), self._gpu, results)

    def _first_units(self, study: Study, machine: Machine, content: Mapping[str, Any]) -> list[WorkUnit]:
        return launch_units.first_units(
            self.launches.source, self._parts(study), self._gpu, content["node"]["gpu"], study,
            self.launches.inputs.__setitem__,
        )  # fmt: skip

    def _units_from(
        self, outlines: Sequence[Arrays], profiles: Sequence[Arrays], study: Study, machine: Machine,
        content: Mapping[str, Any],
    ) -> list[WorkUnit]:  # fmt: skip
        """Units that need the results of all outlines, and those that need all profiles, too."""
        first = self._first_units(study, machine, content)
        second = launch_units.profile_units(self.launches.source, self._parts(study), first, self._gpu, study)
        units, results = (second, profiles) if profiles else (first, outlines)
        self.launches.inputs.update({unit.key: arrays for unit, arrays in zip(units, results, strict=True)})
        return launch_units.predict_units(second, self._gpu, study) if profiles else second

    def _parts(self, study: Study) -> list[launch_units.Part]:
        return launch_units.parts_of(self.launches.source, self.launches.plan(study), self._gpu, study)


def _split(results: Iterable[Arrays]) -> tuple[list[Arrays], list[Arrays]]:
    """(results of units on launches, results of other units), each in their order."""
    found = list(results)
    kinds = (launch_units.is_result, launch_units.is_profile, launch_units.is_outline)
    is_own = [any(is_of(each) for is_of in kinds) for each in found]
    own = [each for each, mine in zip(found, is_own, strict=True) if mine]
    return own, [each for each, mine in zip(found, is_own, strict=True) if not mine]
