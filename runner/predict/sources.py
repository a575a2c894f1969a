"""Which source predicts the times of phases of a study (registry: seam ``phase-times``), and the one that predicts
nothing. Those of nodes and GPUs take a second to load, so they are imported when a study needs them."""

from __future__ import annotations

import numpy as np

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import Case, Done, PhaseSource
from manyscale.runner.registry import lookup, names
from manyscale.sampling.plan import Plan


def phase_source(case: Case) -> PhaseSource:
    """That of the study's CPU model, with one of launches before it where there are any. Raises UserError."""
    name = case.study.model.cpu
    source: PhaseSource = lookup("phase-times", name)(case) if name in names("phase-times") else TracedTimes(case)
    return _with_launches(case, source)


class TracedTimes(PhaseSource):
    """Phases take their traced times, by the study's ``cpu_ratio``."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.cpu_ratio = case.study.cpu_ratio

    def plans(self) -> list[Plan]:
        """All ranks. Raises UserError for a sampler that leaves some out."""
        study = self._case.study
        name = "full" if study.sampling.ranks == "auto" else str(study.sampling.ranks)
        plan: Plan = lookup("sampling", name)(self._case.workload, study.model.cpu)
        if not plan.is_census:
            raise UserError(f"sampling.ranks: {name!r} leaves ranks out, which the replay cannot stand in for")
        return [plan]

    def phase_times(self, done: Done) -> np.ndarray:
        return self._case.workload.column("phases", "duration_ps")


def burst(case: Case) -> PhaseSource:
    """Model burst: one core executes a rank's phases as traced, or several its task instances. Raises UserError where
    the trace has no tasks to schedule."""
    study = case.study
    jitter = 0.0 if study.workload.repeat is None else study.workload.repeat.jitter
    wide = study.mapping.cores_per_rank > 1
    if not (wide or jitter or study.options(RuntimeSystem) != RuntimeSystem() or study.ipc_correction.task_types):
        return TracedTimes(case)
    if not case.traced.tables["events"].num_rows:
        what = f"{study.mapping.cores_per_rank} cores a rank" if wide else "its runtime system"
        raise UserError(
            f"{study.workload.path}: has no task level, so nothing is known to schedule on {what}; trace the program "
            "with `manyscale trace --level tasks`, or leave mapping.cores_per_rank and runtime out"
        )
    return simulated(case)


def simulated(case: Case) -> PhaseSource:
    """Models detailed and interval. Raises UserError where there is nothing to simulate."""
    if case.study.sampling.intervals is not None:
        from manyscale.runner.predict.intervals.interval_source import IntervalSource

        return IntervalSource(case)
    from manyscale.runner.predict.node.node_source import NodeSource

    return NodeSource(case)


def _with_launches(case: Case, cores: PhaseSource) -> PhaseSource:
    """``cores`` where there are no launches, else one that adds them to it. Raises UserError for a study of launches
    whose workload has none."""
    study = case.study
    if study.mapping.launches is None and not case.traced.tables["launches"].num_rows:
        if study.model.gpu is not None or study.sampling.launches != "full" or study.sampling.blocks != "full":
            raise UserError(
                f"{study.workload.path}: has no kernel launches, which model.gpu and sampling.launches are about; name "
                "a folder with a kernelslist.g, or leave these keys out"
            )
        return cores
    if case.traced is not case.workload:
        raise UserError(f"{study.workload.path}: a workload with kernel launches cannot be repeated")
    from manyscale.runner.predict.gpu.launch_source import LaunchSource

    return LaunchSource(case, cores)
