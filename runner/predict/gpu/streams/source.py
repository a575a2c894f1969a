"""What the replay of streams is given of launches, and given again once it has told which of them overlap."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import LaunchKind
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.runner.predict.gpu.launch_units import name_of
from manyscale.runner.predict.gpu.options import GpuChoice
from manyscale.runner.predict.gpu.predictions import Predictions
from manyscale.runner.predict.gpu.streams.given import device_rows, given_of, launch_kinds
from manyscale.runner.predict.gpu.streams.overlaps import NOTHING, ROUNDS, Overlaps, overlaps_of
from manyscale.runner.predict.gpu.streams.units import together_stage
from manyscale.runner.predict.phase_source import Case, Coupling, Finished, Refinement
from manyscale.runner.predict.units import Arrays, array_digest
from manyscale.runner.registry import lookup


class StreamSource:
    """Of a run whose replay does what streams were given. ``workload``: with the launches; ``predicted`` of each
    alone."""

    def __init__(self, case: Case, workload: Workload, predicted: Predictions, gpu: Gpu) -> None:
        self._case, self._workload, self._predicted, self._gpu = case, workload, predicted, gpu

    def coupling(self, overlaps: Overlaps | None = None) -> Coupling:
        """``overlaps``: what earlier replays of it have told."""
        plan = self._predicted.plan
        known = NOTHING if overlaps is None else overlaps.known
        content = array_digest(
            plan.row, plan.representative, self._predicted.duration_ps, self._predicted.cycles,
            np.array([str(self._gpu)]), *map(np.asarray, vars(known).values()),
        )  # fmt: skip

        def make() -> tuple[Any, ...]:
            given, kinds = self._given
            return given, kinds, device_rows(self._workload, given), known, None

        refine = partial(self._refined, overlaps) if self._can_simulate_together else None
        return Coupling(f"devices {content}", self._parameters, content, make, "replay-devices", refine)

    @property
    def _parameters(self) -> Mapping[str, Any]:
        return {
            "gpu": self._content,
            "num_gpus": self._case.machine.node.num_gpus,
            "ranks_share": self._case.study.options(GpuChoice).mps,
        }

    @property
    def _content(self) -> Any:
        return self._case.machine_content["node"]["gpu"]

    @property
    def _can_simulate_together(self) -> bool:
        study = self._case.study
        model = lookup("gpu", name_of(study))
        if not hasattr(model, "runs_together"):
            return False
        return bool(model.runs_together({**model.options(study), "sampler": study.sampling.blocks}))

    @cached_property
    def _given(self) -> tuple[Given, list[LaunchKind]]:
        kinds, given = launch_kinds(self._workload, given_of(self._workload), self._predicted, self._gpu)
        return given, kinds

    def _refined(self, overlaps: Overlaps | None, arrays: Arrays) -> Refinement | None:
        """What is still to be simulated after a replay; None where it is as good as it gets."""
        if not arrays["gpu_overlapped_ps"].any() and (overlaps is None or not len(overlaps.known.given)):
            return None
        overlaps = overlaps or self._overlaps
        unknown, known = overlaps.asks(arrays)
        if overlaps.rounds == ROUNDS or (not unknown and known.is_same(overlaps.known)):
            return None
        plan, study = self._predicted.plan, self._case.study
        stage = together_stage(self._workload, plan, unknown, overlaps, self._gpu, self._content, study)

        def then(finished: Finished) -> Coupling:
            return self.coupling(overlaps.after(unknown, finished.results, arrays))

        return Refinement(stage, then)

    @property
    def _overlaps(self) -> Overlaps:
        given, kinds = self._given
        first = given_of(self._workload).launch
        row = np.unique(first[first >= 0])
        plan = self._predicted.plan
        stands = plan.representative[np.searchsorted(plan.row, row)]
        return overlaps_of(self._workload, given, kinds, row, stands, self._gpu)
