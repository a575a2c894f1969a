"""Times of phases that are kernel launches of a GPU, beside what the CPU model predicts.

Launches are predicted in their own units (predict/gpu/launch_units.py), each once, wherever the run executes it. Then
the replay does what streams were given while the hosts go on (predict/gpu/streams/given.py); or, where it does not know
streams, a phase lasts as long as its launches, one after the other, launch latencies included. All other phases are
those of the CPU model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from manyscale.models.workload import PhaseKind
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu import checks, launch_units, statistics, tables
from manyscale.runner.predict.gpu.mapping import Launches
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.predicted_launches import PredictedLaunches
from manyscale.runner.predict.gpu.predictions import Predictions
from manyscale.runner.predict.gpu.streams.copies import Copies, copies_of, notes_of
from manyscale.runner.predict.gpu.streams.given import given_of
from manyscale.runner.predict.gpu.streams.joins import joins
from manyscale.runner.predict.gpu.streams.table import stream_table
from manyscale.runner.predict.phase_source import Case, Coupling, Done, PhaseSource, Replayed, Stage
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import array_digest
from manyscale.runner.registry import lookup
from manyscale.sampling.plan import Plan


class LaunchSource(PhaseSource):
    """What predicts the times of a run's phases on a machine where some are launches. ``cores``: what predicts the
    others. Raises UserError for a machine without a GPU."""

    def __init__(self, case: Case, cores: PhaseSource) -> None:
        study = case.study
        self._case, self._cores = case, cores
        place = (study.workload.path, study.workload.gpu_trace, study.mapping.launches)
        self._launches = case.shared.once(("launches", *place), lambda: Launches(case.workload, study))
        self.launches = self._launches.source
        self._gpu = checks.gpu_of(case.machine)
        self._model = lookup("gpu", launch_units.name_of(study))
        self._predicted = PredictedLaunches(case, self.launches, self._launches.rows, self._launches.place)
        self._joins = joins(case)

    def plans(self) -> list[Plan]:
        """Of launches, and if a CPU's time is predicted, too, those of it."""
        of_cores = self._cores.plans()
        own = self._predicted.table()
        return [own] if self._launches.is_whole_run else [*of_cores, own]

    def unit_keys(self, plan: Plan, done: Done) -> list[str]:
        if plan.element_kind != "launch":
            return self._cores.unit_keys(plan, done)
        return self._predicted.unit_keys(done)

    def stages(self, done: Done) -> list[Stage]:
        """Launches are one stage, or three where the model has profiles. Raises UserError for launches that the machine
        cannot run."""
        own = self._predicted.stages(done)
        return [*self._cores.stages(done), *own]

    def phase_times(self, done: Done) -> np.ndarray:
        """Those of launches are final: no CPU's speed changes them."""
        launches, ratio = self._launches, self._cores.cpu_ratio
        duration = self._cores.phase_times(done).copy()
        if ratio != 1:
            computing = launches.workload.column("phases", "kind") == PhaseKind.compute
            duration = np.where(computing, np.rint(duration * ratio).astype(np.int64), duration)
        found, executions = self._predictions(done), launches.executions
        duration[launches.is_launch] = 0
        if self._joins:  # streams take the times of launches
            return duration
        if self._copies is not None:
            np.add.at(duration, executions.phase, self._copies.before(len(executions.launch)))
        np.add.at(duration, executions.phase, found.duration_ps[np.searchsorted(found.plan.row, executions.launch)])
        return duration

    def content(self) -> list[str]:
        plan, executions = self._predicted.plan, self._launches.executions
        own = np.array([self._cores.cpu_ratio, self._gpu.frequency_hz, self._gpu.launch_latency_cycles, self._joins])
        digest = array_digest(executions.phase, executions.launch, plan.row, plan.representative, own)
        copied = [] if self._copies is None else [array_digest(self._copies.launch, self._copies.took_ps)]
        return [*self._cores.content(), digest, *copied]

    def fixed_phases(self) -> np.ndarray:
        return self._launches.is_launch

    def coupling(self, done: Done) -> Coupling | None:
        """Raises UserError for ranks that communicate inside their phases: launches do not."""
        if self._cores.coupling(done) is not None:
            raise UserError(
                f"{self._case.study.workload.path}: calls MPI inside phases with tasks, which mapping.launches cannot "
                "replace; leave it out"
            )
        if not self._joins:
            return None
        from manyscale.runner.predict.gpu.streams.source import StreamSource

        return StreamSource(self._case, self._launches.workload, self._predictions(done), self._gpu).coupling()

    def figures(self, of_run: dict[str, Statistic], done: Done) -> dict[str, Statistic]:
        predicted = self._predictions(done)
        figures = self._cores.figures(of_run, done)
        figures = figures | statistics.launch_statistics(self._launches, predicted, self._gpu)
        if self._copies is not None:
            figures |= self._copies.statistics()
        return statistics.with_intervals(self._launches, predicted, self._gpu, figures)

    def notes(self, done: Done) -> Sequence[Note]:
        own = [*self._cores.notes(done), *self._predicted.plan.notes(self._case.study.options(GpuChoice).caches)]
        if hasattr(self._model, "notes"):
            own += self._model.notes(self._predictions(done).result)
        if self._copies is not None:
            own += self._copies.notes()
        if not (self._joins and self._launches.is_whole_run):
            return own
        copied = int(np.count_nonzero(given_of(self._launches.workload).kind == GpuOperationKind.copy_to_device))
        text = "the trace tells streams, and not when the host gave them what: all launches are given at once"
        text += ", but for those behind copies, for which the host waits" if copied else ""
        linked = copied if self._gpu.host_link is not None else 0
        return [*own, *notes_of(linked), changes("streams-at-once", text, errs=Errs.short)]

    def tables(self, done: Done, replayed: Replayed) -> dict[str, Any]:
        """Those of the cores, and of launches, blocks, IPC and CPI stacks."""
        predicted = self._predictions(done)
        if replayed.has_devices:
            launch = given_of(self._launches.workload).launch
            start, end = (replayed.arrays[f"given_{name}_ps"][launch >= 0] for name in ("start", "end"))
        else:
            begin = tables.begin_of_phases(self._launches.workload, replayed.phase_ps, replayed.arrays["end_ps"])
            count = len(self._launches.executions.launch)
            copied = np.zeros(count, np.int64) if self._copies is None else self._copies.before(count)
            start, end = tables.times_of_executions(self._launches, predicted, begin, copied)
        own = tables.launch_tables(self._launches, predicted, start, end, self._predicted.name, self._gpu)
        if replayed.has_devices:
            own["gpu_streams"] = stream_table(self._launches.workload, launch, replayed.arrays)
        elif self._launches.is_whole_run and self._copies is not None and len(self._copies):
            given = self._copies.given(self._launches.workload, start, end)
            own["gpu_streams"] = stream_table(self._launches.workload, *given)
        return self._cores.tables(done, replayed) | own

    def _predictions(self, done: Done) -> Predictions:
        """What each launch is taken to be."""
        return self._predicted.predictions(done)

    @cached_property
    def _copies(self) -> Copies | None:
        """Those of a trace that tells launches in one stream alone, before each execution; None for others."""
        if self._joins or not (self._launches.is_whole_run or self._case.study.mapping.launches is not None):
            return None
        return copies_of(self._launches.source, self._gpu).of(self._launches.executions.launch)
