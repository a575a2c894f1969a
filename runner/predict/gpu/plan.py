"""Which launches are simulated, and which of them each launch takes its cycles per instruction from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study
from manyscale.runner.study.samplers import chosen_sampler, rules_of
from manyscale.sampling.plan import Plan

if TYPE_CHECKING:
    from manyscale.sampling.tbpoint.launches import LaunchSample


@dataclass(frozen=True)
class LaunchPlan:
    """``row`` int64[n]: launches that are predicted, rows of the table of launches, ascending; ``stratum`` int32[n];
    ``representative`` int64[n]: the row, one of ``chosen``, that stands for it. ``chosen`` int64[m]: rows that are
    simulated, ascending. ``sample``: TBPoint's, whose launches are those of ``row``, in their order."""

    row: np.ndarray
    stratum: np.ndarray
    representative: np.ndarray
    chosen: np.ndarray
    sample: LaunchSample | None = None

    @property
    def is_census(self) -> bool:
        return len(self.chosen) == len(self.row)

    def plan(self, model: str) -> Plan:
        """As the table of the plan has it."""
        if self.sample is not None:
            of_sample = self.sample.plan(model)
            return replace(of_sample, element_id=self.row[of_sample.element_id])
        weight = np.bincount(np.searchsorted(self.chosen, self.representative), minlength=len(self.chosen))
        stratum = self.stratum[np.searchsorted(self.row, self.chosen)]
        return Plan("launch", self.chosen, stratum, weight.astype(np.float64), model, len(self.row))


def plan_launches(launches: Workload, row: np.ndarray, study: Study, place: str) -> LaunchPlan:
    """Of the launches of ``row`` (ascending). ``place``: their trace, for errors. Raises UserError. O(launches log
    launches), and with basic-block vectors O(instructions)."""
    method = study.sampling.launches
    if method == "full":
        return LaunchPlan(row, np.arange(len(row), dtype=np.int32), row, row)
    if not isinstance(method, str):
        return _given(launches, row, method, place)
    from manyscale.runner.predict.gpu.launch_counts import counts_of  # these load what few studies need
    from manyscale.sampling.tbpoint.launch_samplers import LaunchChoice, LaunchPopulation

    sampler = chosen_sampler("launch", method)
    rules = rules_of(sampler, study)
    population = LaunchPopulation(row, counts_of(launches, row, getattr(rules, "bbv_scale", 0) > 0))
    try:
        choice = sampler.choose(population, rules, study.seed)
        sample = choice.sample if isinstance(choice, LaunchChoice) else None
        if sample is not None:
            return LaunchPlan(
                row, sample.cluster.astype(np.int32), row[sample.representative], row[choice.element], sample
            )
        label = choice.label if len(choice.label) else np.zeros(len(row), np.int32)
        plan = Plan.of_strata("launch", choice.element, label)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    return LaunchPlan(row, label, row[choice.element][plan.representative], row[choice.element])


def _given(launches: Workload, row: np.ndarray, numbers: list[int], place: str) -> LaunchPlan:
    """Launches that the study names stand for those of the same kernel; of several, the one nearest in TBPoint's
    features (thread and warp instructions and memory requests, each over its mean)."""
    known = launches.column("launches", "launch_id")[row]
    unknown = sorted(set(numbers) - set(known.tolist()))
    if unknown:
        raise UserError(f"sampling.launches: {place} has no launch {unknown[0]} that is predicted")
    chosen = row[np.isin(known, numbers)]
    kernel = np.array(launches.tables["launches"].column("kernel_name").to_pylist())
    names = ("thread_instructions", "warp_instructions", "memory_requests")
    features = np.stack([launches.column("launches", name).astype(float) for name in names], axis=1)
    features /= np.maximum(features[row].mean(axis=0), 1e-300)
    representative = np.empty(len(row), np.int64)
    for name in np.unique(kernel[row]):
        mine, able = np.flatnonzero(kernel[row] == name), chosen[kernel[chosen] == name]
        if not len(able):
            raise UserError(
                f"sampling.launches: none is a launch of kernel {name}; name one, such as {int(known[mine[0]])}"
            )
        distance = np.linalg.norm(features[row[mine], None] - features[None, able], axis=2)
        representative[mine] = able[distance.argmin(axis=1)]
    representative[np.isin(row, chosen)] = chosen
    return LaunchPlan(row, np.searchsorted(chosen, representative).astype(np.int32), representative, chosen)
