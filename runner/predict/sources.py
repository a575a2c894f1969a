"""Which source predicts the times of phases of a study (registry: seam ``phase-times``), and the one that predicts
nothing. Those of nodes and GPUs take a second to load, so they are imported when a study needs them."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.gpu_step_tables import has_times
from manyscale.runner.errors import UserError
from manyscale.runner.predict.phase_source import Case, Done, PhaseSource
from manyscale.runner.predict.rank_plan import plan_ranks, sampled_ranks, times_of_representatives
from manyscale.runner.predict.statistic import Statistic, with_half_width
from manyscale.runner.predict.units import array_digest
from manyscale.runner.registry import lookup, names
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks import full

_OF_ONE_KIND: Final = ("interval", "amm")  # the models whose domain refuses unlike cores


def phase_source(case: Case) -> PhaseSource:
    """That of the study's CPU model, with one of launches before it where there are any. Raises UserError."""
    name = case.study.model.cpu
    if case.machine.node.core_kinds and name in _OF_ONE_KIND:
        raise UserError(
            f"model.cpu: {name} simulates cores of one kind, and target {case.machine.name} has several "
            "(node.core_kinds); leave these out, or use model.cpu: burst or detailed"
        )
    if case.machine.node.core_kinds and case.study.sampling.intervals is not None:
        raise UserError("sampling.intervals: simulates one kind of core; leave node.core_kinds out")
    source: PhaseSource = lookup("phase-times", name)(case) if name in names("phase-times") else TracedTimes(case)
    return _with_launches(case, source)


class TracedTimes(PhaseSource):
    """Phases take their traced times, by the study's ``cpu_ratio``; those of ranks that a sampler leaves out, the
    traced times of the rank that stands for theirs. Raises UserError for ranks that none can stand for."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.cpu_ratio = case.study.cpu_ratio
        duration = case.workload.column("phases", "duration_ps")
        try:
            self._plan = plan_ranks(case.workload, case.study, np.zeros(0, np.int64), "full")
            self._duration_ps = times_of_representatives(case.workload, self._plan, duration)
        except ValueError as error:
            raise UserError(f"{case.study.workload.path}: {error}") from None

    def plans(self) -> list[Plan]:
        return [full.plan(self._case.workload, self._plan.model) if self._plan.is_census else self._plan]

    def phase_times(self, done: Done) -> np.ndarray:
        return self._duration_ps

    def content(self) -> list[str]:
        return [] if self._plan.is_census else [array_digest(self._plan.element_id[self._plan.representative])]

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """With how many ranks the others were estimated from, and intervals where these were drawn at random."""
        if self._plan.is_census:
            return of_run
        half_width, why = sampled_ranks(self._case.workload, self._plan, self._duration_ps)
        text = "MPI processes whose traced times were taken; each other one takes those of one of these"
        figures = of_run | {
            "sampling.ranks": Statistic(len(self._plan.element_id), "1", "count", f"{text}; {why}" if why else text)
        }
        return with_half_width(half_width, figures)


def burst(case: Case) -> PhaseSource:
    """Model burst: one core executes a rank's phases as traced, or several its task instances. Raises UserError where
    the trace has no tasks to schedule."""
    study = case.study
    jitter = 0.0 if study.workload.repeat is None else study.workload.repeat.jitter
    wide = study.mapping.cores_per_rank > 1
    # where an iteration ends is known of task instances alone, and its repetitions have to follow each other
    repeats = case.traced is not case.workload and bool(case.traced.tables["events"].num_rows)
    repeats = repeats and study.sampling.ranks in ("auto", "full")
    kinds = bool(case.machine.node.core_kinds)
    if kinds and not case.traced.tables["events"].num_rows:
        raise UserError(
            f"target {case.machine.name}: has several kinds of cores (node.core_kinds), on which task instances are "
            f"scheduled, and {study.workload.path} has none; record them with manyscale trace --level tasks "
            "-o DIR -- PROGRAM (with OpenMP), or leave node.core_kinds out"
        )
    chosen = study.options(RuntimeSystem) != RuntimeSystem() or study.ipc_correction.task_types
    if not (wide or jitter or repeats or kinds or chosen):
        return TracedTimes(case)
    if study.sampling.ranks not in ("auto", "full"):
        raise UserError(
            f"{study.workload.path}: sampling.ranks chooses among traced times of whole phases, not where their task "
            "instances are scheduled; leave it out, or mapping.cores_per_rank and runtime"
        )
    if not case.traced.tables["events"].num_rows:
        what = f"{study.mapping.cores_per_rank} cores a rank" if wide else "its runtime system"
        raise UserError(
            f"{study.workload.path}: has no task level, so nothing is known to schedule on {what}; record it "
            "with manyscale trace --level tasks -o DIR -- PROGRAM (with OpenMP), or leave mapping.cores_per_rank and "
            "runtime out"
        )
    return simulated(case)


def simulated(case: Case) -> PhaseSource:
    """Models detailed and interval. Raises UserError where there is nothing to simulate."""
    if case.study.sampling.intervals is not None:
        tables = case.traced.tables
        if tables["tasks"].num_rows > case.traced.num_ranks or tables["loop_chunks"].num_rows:
            from manyscale.runner.predict.intervals.region_source import RegionSource

            return RegionSource(case)
        from manyscale.runner.predict.intervals.interval_source import IntervalSource

        return IntervalSource(case)
    from manyscale.runner.predict.node.node_source import NodeSource

    return NodeSource(case)


def _with_launches(case: Case, cores: PhaseSource) -> PhaseSource:
    """``cores`` where there are no launches, else one that adds them to it. Raises UserError for a study of launches
    whose workload has none."""
    study, tables = case.study, case.traced.tables
    has_launches = study.mapping.launches is not None or tables["launches"].num_rows > 0
    if has_times(tables) and (study.model.gpu == "traced" or not has_launches):
        return _traced(case, cores)
    if study.model.gpu == "traced":
        raise UserError(
            f"{study.workload.path}: has no times of kernels, which model.gpu: traced takes; leave model.gpu out"
        )
    if study.workload.gpu_trace is not None and study.mapping.launches is None:
        raise UserError(
            f"{study.workload.path}: has no kernels that workload.gpu_trace could say the instructions of; name which "
            "phases take the times of which of its launches (mapping.launches), or leave it out"
        )
    if not has_launches:
        if study.model.gpu is not None or study.sampling.launches != "full" or study.sampling.blocks != "full":
            raise UserError(
                f"{study.workload.path}: has no kernel launches, which model.gpu and sampling.launches are about; "
                "record them with manyscale trace --level gpu -o DIR -- PROGRAM, or leave these keys out"
            )
        return cores
    if case.traced is not case.workload:
        raise UserError(f"{study.workload.path}: a workload with kernel launches cannot be repeated")
    from manyscale.runner.predict.gpu.launch_source import LaunchSource

    return LaunchSource(case, cores)


def _traced(case: Case, cores: PhaseSource) -> PhaseSource:
    """Kernels take the times of the trace, or what a model says of the instructions that workload.gpu_trace has. Raises
    UserError for a study of launches' instructions without these."""
    study = case.study
    samples = not (study.sampling.launches == study.sampling.blocks == "full")
    of_instructions = samples or study.model.gpu not in (None, "traced")
    if of_instructions and study.workload.gpu_trace is None:
        raise UserError(
            f"{study.workload.path}: has times of kernels and not their instructions, which model.gpu and "
            "sampling.launches are about; name a trace of these (workload.gpu_trace), or leave the keys out"
        )
    if study.model.gpu == "traced" and study.workload.gpu_trace is not None:
        raise UserError("workload.gpu_trace: model.gpu: traced takes no instructions; leave one of the two out")
    from manyscale.runner.predict.gpu.traced.source import TracedSource

    return TracedSource(case, cores)
