"""Times of a program of one thread from intervals that are simulated in detail.

Its stream is cut into intervals (program.py), a method behind ``manyscale plan --method`` chooses some, each is a work
unit (predict/intervals/interval_units.py), and the program takes its weighted CPI times its instructions. What the
detailed level does not hold takes no time. Phases share the time by the instructions that were recorded in them, or
where the trace does not say which those are, by their traced times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyscale.models.memory.access_stream import sites_of
from manyscale.models.workload import PhaseKind, Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import interval_units, sampled_tables, traced
from manyscale.runner.predict.intervals.methods import choose
from manyscale.runner.predict.intervals.options import IntervalsChoice
from manyscale.runner.predict.intervals.program import CutProgram, cut, program_of
from manyscale.runner.predict.intervals.sampled_tables import SampledProgram
from manyscale.runner.predict.phase_source import Case, Done, PhaseSource, Replayed, Stage
from manyscale.runner.predict.statistic import Statistic, with_half_width
from manyscale.runner.predict.stored_arrays import notes_of, restored
from manyscale.runner.predict.units import array_digest
from manyscale.runner.study import WorkloadChoice
from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.phases.traced_intervals import TracedIntervals
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice, IntervalPopulation


class OneThread:
    """The stream of a workload of one thread. Raises UserError for others."""

    def __init__(self, workload: Workload, choice: WorkloadChoice) -> None:
        if choice.detail is not None:
            raise UserError(
                f"{choice.path}: sampling.intervals samples a trace that holds its own detailed level; name "
                f"{choice.detail} as the workload, and leave workload.detail out"
            )
        self.program, self.stream = program_of(workload, choice.path)
        if choice.repeat is not None:
            raise UserError(f"{choice.path}: a program of one thread cannot be repeated; leave workload.repeat out")
        if not np.any(workload.column("phases", "kind") == PhaseKind.compute):
            raise UserError(f"{choice.path}: has no compute phase, whose time sampling.intervals would predict")


class IntervalSource(PhaseSource):
    """One stage of intervals; before it one of last uses, where caches are filled by them."""

    def __init__(self, case: Case) -> None:
        self._case, self._place = case, case.study.workload.path
        if case.study.mapping.cores_per_rank > 1:
            raise UserError(
                f"{self._place}: has no task instances, so it has one thread, on one core; leave "
                "mapping.cores_per_rank out"
            )
        method = case.study.sampling.intervals
        parts = set(parallel_phases.parts_of(method or "") or ()) - {"sbbv"}
        if parts or case.study.options(IntervalsChoice).counters != "traced":
            what = f"sampling.intervals: {method}" if parts else "intervals.counters"
            raise UserError(
                f"{self._place}: has one thread, and {what} chooses by what cores do to each other; choose simpoint or "
                "sbbv"
            )
        self._thread = case.shared.once("one thread", lambda: OneThread(case.traced, case.study.workload))

    def plans(self) -> list[Plan]:
        """Of the intervals."""
        choice = self._choice
        return [Plan("interval", choice.element, choice.stratum, choice.weight, self._case.study.model.cpu, 1)]

    def unit_keys(self, plan: Plan, done: Done) -> list[str]:
        units = done[interval_units.KIND].units
        return [unit.key for unit in units for _ in unit.parameters["intervals"]]

    def stages(self, done: Done) -> list[Stage]:
        chosen = self._choice.element
        if interval_units.KIND in done:
            return []
        if self._case.study.options(IntervalsChoice).caches == "last-uses" and interval_units.LINES not in done:
            return [interval_units.last_uses_stage(self._thread.program, self._cut, chosen, self._case)]
        used = done[interval_units.LINES].results[0] if interval_units.LINES in done else None
        return [interval_units.stage(self._thread.program, self._cut, chosen, self._case, used)]

    def content(self) -> list[str]:
        choice = self._choice
        return [array_digest(choice.element, choice.stratum, choice.weight, choice.label, self._cut.begin)]

    def phase_times(self, done: Done) -> np.ndarray:
        workload = self._case.workload
        computing = workload.column("phases", "kind") == PhaseKind.compute
        duration = np.where(computing, 0, workload.column("phases", "duration_ps"))
        end = np.rint(np.cumsum(self._shares(computing)) * self._sampled(done).seconds * 1e12).astype(np.int64)
        duration[computing] = np.diff(end, prepend=0)
        return duration

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        """Figures of the program and of what was simulated of it."""
        found = self._sampled(done)
        return with_half_width(found.relative_half_width, of_run | sampled_tables.statistics(found))

    def notes(self, done: Done) -> list[Note]:
        return [*self._choice.notes, *notes_of(done[interval_units.KIND].results)]

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Intervals, and the CPI stack of the whole."""
        return sampled_tables.tables(self._sampled(done))

    @property
    def _cut(self) -> CutProgram:
        """The program's intervals, cut once for all points that cut it so."""
        thread, every = self._thread, self._case.study.options(IntervalsChoice).instructions
        size = thread.program.program.column("blocks", "num_instructions")
        return self._case.shared.once(("cut", every), lambda: cut(thread.stream, size, every, self._place))

    def _population(self) -> IntervalPopulation:
        """What methods choose from. Raises ValueError for lines of no power of two."""
        found, asked, thread = self._cut, self._case.study.options(IntervalsChoice), self._thread
        if asked.vectors == "blocks":
            return found.population
        intervals = TracedIntervals(found.bounds, np.diff(found.begin), found.population.vectors)
        sites = sites_of(thread.program.program)
        vectors = traced.signatures(thread.stream, sites, intervals, asked.line_bytes, asked.distance_power)
        return replace(found.population, vectors=vectors)

    @property
    def _choice(self) -> Choice:
        study = self._case.study
        asked = study.options(IntervalsChoice)
        vectors = f"{asked.instructions} {asked.vectors} {asked.line_bytes} {asked.distance_power}"
        key = ("choice", study.sampling.intervals, study.seed, vectors, str(asked.rules))
        return self._case.shared.once(key, self._choose)

    def _choose(self) -> Choice:
        try:
            study = self._case.study
            return choose(self._population(), study, study.options(IntervalsChoice).rules)
        except ValueError as error:
            raise UserError(f"{self._place}: {error}") from None

    def _sampled(self, done: Done) -> SampledProgram:
        found = [restored(each) for each in done[interval_units.KIND].results]
        return SampledProgram(self._cut, self._choice, found)

    def _shares(self, computing: np.ndarray) -> np.ndarray:
        """float64[compute phases]: of the program's time, sum 1."""
        operation = self._case.workload.column("phases", "operation_id")[computing].astype(np.int64)
        traced = self._case.workload.column("phases", "duration_ps")[computing].astype(np.float64)
        traced = np.maximum(traced, 1e-9)
        of_segment = self._case.workload.column("segments", "operation_id").astype(np.int64)
        executed = self._case.workload.column("segments", "num_instructions").astype(np.float64)
        if np.all(np.isin(of_segment, operation)):
            size = int(operation.max()) + 1
            recorded = np.bincount(of_segment, executed, minlength=size)
            own = recorded[operation] * traced / np.bincount(operation, traced, minlength=size)[operation]
        else:
            own = traced
        return own / own.sum()
