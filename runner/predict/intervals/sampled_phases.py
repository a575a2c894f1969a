"""Times of a program of one thread from intervals that are simulated in detail (seam ``phase-times``).

Its stream is cut into intervals (program.py), a method behind ``manyscale plan --method`` chooses some, each is a work
unit (predict/intervals/interval_units.py), and the program takes its weighted CPI times its instructions. What the
detailed level does not hold takes no time. Phases share the time by the instructions that were recorded in them, or
where the trace does not say which those are, by their traced times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.memory.access_stream import sites_of
from manyscale.models.workload import PhaseKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.intervals import interval_units, sampled_tables, traced
from manyscale.runner.predict.intervals.program import CutProgram, cut, program_of
from manyscale.runner.predict.intervals.sampled_tables import SampledProgram
from manyscale.runner.predict.node.phase_times import PhaseTimes
from manyscale.runner.predict.node.statistics import with_intervals
from manyscale.runner.predict.results import Statistic
from manyscale.runner.predict.stored_arrays import restored
from manyscale.runner.predict.units import Arrays, WorkUnit, array_digest
from manyscale.runner.run.plans.intervals import of_one_thread
from manyscale.runner.study import Study, WorkloadChoice
from manyscale.sampling.phases.traced_intervals import TracedIntervals
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.ranks import full


def of_workload(workload: Workload, study: Study) -> SampledPhases:
    """The last one is kept, since every point of a sweep asks for it. Raises UserError for a workload without the
    stream of one thread."""
    key = (workload.digest, study.workload.model_dump_json())
    if key not in _kept:
        _kept.clear()
        _kept[key] = SampledPhases(workload, study.workload)
    return _kept[key]


_kept: dict[tuple[str, str], SampledPhases] = {}


class SampledPhases:
    """What predicts the times of a workload's phases."""

    def __init__(self, workload: Workload, choice: WorkloadChoice) -> None:
        if choice.detail is not None:
            raise UserError(
                f"{choice.path}: sampling.intervals samples a trace that holds its own detailed level; name "
                f"{choice.detail} as the workload, and leave workload.detail out"
            )
        self._workload, self._place = workload, choice.path
        self._program, self._stream = program_of(getattr(workload, "base", workload), choice.path)
        if choice.repeat is not None:
            raise UserError(f"{choice.path}: a program of one thread cannot be repeated; leave workload.repeat out")
        if not np.any(workload.column("phases", "kind") == PhaseKind.compute):
            raise UserError(f"{choice.path}: has no compute phase, whose time sampling.intervals would predict")
        self._inputs: dict[str, Any] = {}
        self._cuts: dict[int, CutProgram] = {}
        self._choices: dict[str, Choice] = {}

    # ---- the seam ----

    def plan(self, study: Study) -> Plan:
        """Of the ranks."""
        return full.plan(self._workload, "burst")

    def plans(self, study: Study, ranks: Plan) -> list[Plan]:
        """Of the intervals."""
        choice = self._choice(study)
        return [Plan("interval", choice.element, choice.stratum, choice.weight, study.model.cpu, 1)]

    def unit_keys(self, study: Study, results: Sequence[Arrays], keys: Sequence[str]) -> list[str]:
        """The key of the unit that simulated each interval of the plan. ``keys``: of ``results``."""
        counts = [len(each["cycles"]) if interval_units.is_result(each) else 0 for each in results]
        return [key for key, count in zip(keys, counts, strict=True) for _ in range(count)]

    def units(self, study: Study, machine: Machine, content: Mapping[str, Any]) -> list[WorkUnit]:
        """Raises UserError for what cannot be simulated."""
        chosen = self._choice(study).element
        return interval_units.first_units(
            self._program, self._cut(study), chosen, study, machine, content, self._inputs.__setitem__
        )

    def further_units(
        self, study: Study, machine: Machine, content: Mapping[str, Any], results: Sequence[Arrays]
    ) -> list[WorkUnit]:
        """Those that simulate intervals, where caches are filled by last uses."""
        if any(map(interval_units.is_result, results)):
            return []
        chosen = self._choice(study).element
        return interval_units.units(
            self._program, self._cut(study), chosen, study, machine, content, results[0], self._inputs.__setitem__
        )

    def shared(self, needed_names: set[str]) -> dict[str, Any]:
        """The inputs of units."""
        return {name: self._inputs[name] for name in needed_names if name in self._inputs}

    def content(self, study: Study) -> str:
        """Digest of all that times of phases follow from, beside results of units and the workload."""
        choice, cut_program = self._choice(study), self._cut(study)
        return array_digest(choice.element, choice.stratum, choice.weight, choice.label, cut_program.begin)

    def phase_times(self, study: Study, results: Iterable[Arrays]) -> PhaseTimes:
        """Times of all phases."""
        found = self._sampled(study, results)
        computing = self._workload.column("phases", "kind") == PhaseKind.compute
        duration = np.where(computing, 0, self._workload.column("phases", "duration_ps"))
        end = np.rint(np.cumsum(self._shares(computing)) * found.seconds * 1e12).astype(np.int64)
        duration[computing] = np.diff(end, prepend=0)
        return PhaseTimes(duration)

    def statistics(self, study: Study, results: Iterable[Arrays]) -> dict[str, Statistic]:
        """Figures of the program and of what was simulated of it."""
        return sampled_tables.statistics(self._sampled(study, results))

    def with_intervals(
        self, study: Study, results: Sequence[Arrays], figures: dict[str, Statistic]
    ) -> dict[str, Statistic]:
        """``figures`` with confidence intervals of times, where the sample tells them."""
        return with_intervals(self._sampled(study, results).relative_half_width, figures)

    def coupling(self, study: Study, machine: Machine, results: Iterable[Arrays]) -> None:
        """Nothing communicates inside phases."""

    def tables(self, study: Study, results: Sequence[Arrays], compute_ps: np.ndarray, replay: Arrays) -> dict[str, Any]:
        """Tables of a Result: intervals, and the CPI stack of the whole."""
        return sampled_tables.tables(self._sampled(study, results))

    # ---- parts ----

    def _cut(self, study: Study) -> CutProgram:
        every = study.intervals.instructions
        if every not in self._cuts:
            size = self._program.program.column("blocks", "num_instructions")
            self._cuts[every] = cut(self._stream, size, every, self._place)
        return self._cuts[every]

    def _population(self, study: Study) -> IntervalPopulation:
        """What methods choose from. Raises ValueError for lines of no power of two."""
        found, asked = self._cut(study), study.intervals
        if asked.vectors == "blocks":
            return found.population
        intervals = TracedIntervals(found.bounds, np.diff(found.begin), found.population.vectors)
        sites = sites_of(self._program.program)
        vectors = traced.signatures(self._stream, sites, intervals, asked.line_bytes, asked.distance_power)
        return replace(found.population, vectors=vectors)

    def _choice(self, study: Study) -> Choice:
        method = study.sampling.intervals
        assert method is not None
        asked = study.intervals
        vectors = f"{asked.instructions} {asked.vectors} {asked.line_bytes} {asked.distance_power}"
        key = f"{method} {study.seed} {vectors} {asked.rules}"
        if key not in self._choices:
            chosen = of_one_thread(method)
            assert chosen is not None  # studies are checked
            rules = chosen.rules.model_validate(study.intervals.rules)
            try:
                self._choices[key] = chosen.choose(self._population(study), rules, study.seed)
            except ValueError as error:
                raise UserError(f"{self._place}: {error}") from None
        return self._choices[key]

    def _sampled(self, study: Study, results: Iterable[Arrays]) -> SampledProgram:
        found = [restored(each) for each in results if interval_units.is_result(each)]
        return SampledProgram(self._cut(study), self._choice(study), found)

    def _shares(self, computing: np.ndarray) -> np.ndarray:
        """float64[compute phases]: of the program's time, sum 1."""
        operation = self._workload.column("phases", "operation_id")[computing].astype(np.int64)
        traced = self._workload.column("phases", "duration_ps")[computing].astype(np.float64)
        traced = np.maximum(traced, 1e-9)
        of_segment = self._workload.column("segments", "operation_id").astype(np.int64)
        executed = self._workload.column("segments", "num_instructions").astype(np.float64)
        if np.all(np.isin(of_segment, operation)):
            size = int(operation.max()) + 1
            recorded = np.bincount(of_segment, executed, minlength=size)
            own = recorded[operation] * traced / np.bincount(operation, traced, minlength=size)[operation]
        else:
            own = traced
        return own / own.sum()
