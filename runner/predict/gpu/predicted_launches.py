"""Launches of an instruction trace that a run needs, from which of them are simulated to what each takes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.runner.predict.gpu import checks, launch_units
from manyscale.runner.predict.gpu.partial import check_blocks
from manyscale.runner.predict.gpu.plan import LaunchPlan, plan_launches
from manyscale.runner.predict.gpu.predictions import Predictions, predictions
from manyscale.runner.predict.phase_source import Case, Done, Stage
from manyscale.runner.predict.units import array_digest
from manyscale.runner.registry import lookup
from manyscale.sampling.plan import Plan


class PredictedLaunches:
    """``rows`` int64[], ascending, of the table of launches of ``source``, which was read from ``place``; on the GPU of
    the case's machine, by the model that its study names. Raises UserError for a machine without a GPU."""

    def __init__(self, case: Case, source: Workload, rows: np.ndarray, place: str) -> None:
        self.source, self.rows, self.place = source, rows, place
        self.gpu: Gpu = checks.gpu_of(case.machine)
        self.name = launch_units.name_of(case.study)
        self._case = case
        self._model = lookup("gpu", self.name)

    @cached_property
    def plan(self) -> LaunchPlan:
        """Which launches are simulated, and what the others follow from."""
        study = self._case.study
        return self._case.shared.once(
            ("launch plan", self.place, array_digest(self.rows), *study.choices("launches")),
            lambda: plan_launches(self.source, self.rows, study, self.place),
        )

    def unit_keys(self, done: Done) -> list[str]:
        """Of the launches that are simulated."""
        units = done[self._last].units
        key_of = {row: unit.key for part, unit in zip(self._parts, units, strict=True) for row in part.simulated}
        return [key_of[row] for row in self.plan.chosen.tolist()]

    def table(self) -> Plan:
        """The plan as its table has it."""
        return self.plan.plan(self.name)

    def stages(self, done: Done) -> list[Stage]:
        """One, or three where the model has profiles. Raises UserError for launches that the machine cannot run."""
        study = self._case.study
        if not done:
            self._check()
            content = self._case.machine_content["node"]["gpu"]
            return [launch_units.first_stage(self.source, self._parts, self.gpu, content, study)]
        if self._last in done:
            return []
        outlines = done[launch_units.OUTLINE]
        if launch_units.PROFILE not in done:
            return [launch_units.profile_stage(self.source, self._parts, outlines, self.gpu, study)]
        return [launch_units.predict_stage(outlines, done[launch_units.PROFILE], self.gpu, study)]

    def predictions(self, done: Done) -> Predictions:
        """What each launch is taken to be."""
        return predictions(self.source, self.plan, self.gpu, done[self._last].results)

    def _check(self) -> None:
        machine, study = self._case.machine, self._case.study
        self._model.check(study)
        clusters = checks.runs_clusters(study, self.gpu)
        checks.check_fit(self.source, self.rows, machine, self.place, clusters=clusters)
        check_blocks(self.source, self.plan.chosen, self.gpu, self.name, study.sampling.blocks, self.place)

    @property
    def _last(self) -> str:
        """The stage that results in launches."""
        return launch_units.PREDICT if self._model.HAS_PROFILE else launch_units.SIMULATE

    @cached_property
    def _parts(self) -> list[launch_units.Part]:
        return launch_units.parts_of(self.source, self.plan, self.gpu, self._case.study)
