"""Which launches are simulated, and which of them each launch takes its cycles per instruction from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note, informs
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

    def notes(self, caches: str) -> list[Note]:
        """What intervals of launches do not have. ``caches``: where a launch begins (GpuChoice)."""
        if self.is_census or self.sample is None or not self.sample.is_drawn or caches == "cold":
            return []
        text = f"L2 is as accesses of {len(self.row) - len(self.chosen)} launches that are not simulated leave it"
        return [informs("left-out-in-caches", f"{text}: what that is off, intervals do not have", count=len(self.row))]

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
    counted = np.isin(launches.column("launches", "launch_id")[row], _counted(launches))
    if counted.any():
        return _partly_recorded(launches, row, counted, study, place)
    if method == "full":
        return LaunchPlan(row, np.arange(len(row), dtype=np.int32), row, row)
    if not isinstance(method, str):
        return _given(launches, row, method, place)
    from manyscale.runner.predict.gpu.launch_counts import counts_of, shapes_of  # these load what few studies need
    from manyscale.sampling.tbpoint.launch_samplers import LaunchChoice, LaunchPopulation

    sampler = chosen_sampler("launch", method)
    rules = rules_of(sampler, study)
    counts = counts_of(launches, row, getattr(rules, "bbv_scale", 0) > 0)
    profile = _profile(launches, row, getattr(rules, "times", None), method)
    population = LaunchPopulation(row, counts, None, *shapes_of(launches, row), profile)
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


def _profile(launches: Workload, row: np.ndarray, times: str | None, method: str) -> np.ndarray | None:
    """float64[n]: what each launch took by the table that a sampler's rules name. Raises UserError."""
    if times is None:
        if method == "stem":
            raise UserError(
                "sampling.launches: stem draws launches by their times; name a table of them (columns launch_id and "
                "cycles: CSV, or the timeline/launches.parquet of a run with model.gpu: gpumech) by stem.times"
            )
        return None
    from manyscale.runner.predict.gpu.cycles_table import cycles_of

    return cycles_of(Path(times), launches.column("launches", "launch_id")[row])


def _counted(launches: Workload) -> np.ndarray:
    """int[]: launches of which counts alone were recorded."""
    return np.array(launches.gpu.counted_ids if launches.gpu is not None else (), np.int64)


def _partly_recorded(launches: Workload, row: np.ndarray, counted: np.ndarray, study: Study, place: str) -> LaunchPlan:
    """Launches of which counts alone were recorded (``counted`` bool[n]) follow from those that are simulated: by
    TBPoint's clusters where it chose what was recorded, else by the recorded launch of the same kernel that is nearest
    in TBPoint's features."""
    from manyscale.runner.predict.gpu.launch_counts import counts_of  # these load what few studies need
    from manyscale.sampling.tbpoint.launches import choose
    from manyscale.sampling.tbpoint.options import TbpointChoice
    from manyscale.sampling.tbpoint.rules import LaunchSampling

    method, ids = study.sampling.launches, launches.column("launches", "launch_id")
    asked = study.options(TbpointChoice).launches
    rules = launches.gpu.rules if launches.gpu is not None else None
    is_own = method == "tbpoint" and asked != LaunchSampling()
    _check_kernels(launches, row, counted, place)
    if method == "full" or (method == "tbpoint" and not is_own):
        if rules is None:
            return _given(launches, row, ids[row[~counted]].tolist(), place)
        used = LaunchSampling.model_validate(rules)
    elif is_own:
        used = asked.model_copy(update={"seed": study.seed})
    elif isinstance(method, str):
        raise UserError(
            f"sampling.launches: {method} takes launches at random, and of some in {place} counts alone were recorded, "
            f"such as {int(ids[row[counted]][0])}; leave it out, or use tbpoint"
        )
    else:
        unknown = sorted(set(method) & set(_counted(launches).tolist()))
        if unknown:
            raise UserError(f"sampling.launches: of launch {unknown[0]} in {place} counts alone were recorded")
        return _given(launches, row, method, place)
    sample = choose(counts_of(launches, row, used.bbv_scale > 0), used)
    missing = sample.chosen[counted[sample.chosen]]
    if len(missing) and not is_own:  # of a part of the launches that were traced
        return _given(launches, row, ids[row[~counted]].tolist(), place)
    if len(missing):
        raise UserError(
            f"tbpoint.launches: would simulate launch {int(ids[row[missing[0]]])}, of which counts alone were recorded "
            f"in {place}; leave tbpoint.launches out"
        )
    return LaunchPlan(row, sample.cluster.astype(np.int32), row[sample.representative], row[sample.chosen], sample)


def _check_kernels(launches: Workload, row: np.ndarray, counted: np.ndarray, place: str) -> None:
    """Raises UserError for a kernel of which no launch was recorded."""
    kernel = np.array(launches.tables["launches"].column("kernel_name").to_pylist())[row]
    missing = sorted(set(kernel[counted]) - set(kernel[~counted]))
    if missing:
        first = int(launches.column("launches", "launch_id")[row[kernel == missing[0]]][0])
        raise UserError(
            f"{place}: no launch of kernel {missing[0]} was recorded, only counts; trace the program with launch "
            f"{first}, too (--launches)"
        )


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
