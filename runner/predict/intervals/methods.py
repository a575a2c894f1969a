"""Methods that choose intervals by basic blocks: samplers by their names, SBBV, and points that a file names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyscale.models.workload.notes import changes, informs
from manyscale.runner.readers.simpoint_bb import points as simpoint_points
from manyscale.runner.study.samplers import sampler_named
from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.sampler import Sampler

if TYPE_CHECKING:
    from manyscale.runner.study import Study


def of_one_thread(name: str) -> Sampler | None:
    """One that needs no more than the basic blocks of a run, or points that a file names."""
    if (known := sampler_named("interval", name)) is not None:
        return known
    if simpoint_points.is_points(Path(name)):
        return Sampler(lambda population, rules, seed: _given(Path(name), population))
    return of_regions(name) if name == "sbbv" else None


def of_regions(name: str) -> Sampler | None:
    """One of ``of_one_thread``, or one that also needs what cores do to each other, such as ``sbbv+ccv``."""
    if (parts := parallel_phases.parts_of(name)) is None:
        return of_one_thread(name)
    return Sampler(
        lambda population, rules, seed: parallel_phases.choose(population, parts, rules, seed),
        parallel_phases.PhaseRules,
    )


def choose(population: IntervalPopulation, study: Study, rules: Mapping[str, Any]) -> Choice:
    """What a study's method chooses, by its rules. Raises ValueError where the population lacks what it needs."""
    assert study.sampling.intervals is not None
    method = of_regions(study.sampling.intervals)
    assert method is not None  # studies are checked
    found: Choice = method.choose(population, method.rules.model_validate(rules), study.seed)
    return found


def _given(path: Path, population: IntervalPopulation) -> Choice:
    points = simpoint_points.read(path)
    row = np.minimum(np.searchsorted(population.number, points.interval), len(population) - 1)
    if not np.array_equal(population.number[row], points.interval):
        strange = int(points.interval[population.number[row] != points.interval][0])
        known = f"{population.number[0]} to {population.number[-1]}"
        raise ValueError(f"has no interval {strange}, which {path} names, but {known}; cut it as that profile was")
    label = points.label if len(points.label) == len(population) else np.zeros(0, np.int32)
    notes = []
    if len(label) < len(points.label):
        text = f"labels are of {len(points.label)} intervals, not {len(population)}, and left out"
        notes.append(informs("labels-left-out", text, str(path)))
    total = float(points.weight.sum())
    if abs(total - 1) > 1e-3:
        text = f"weights sum to {total:.4g} and were scaled to 1"
        notes.append(changes("weights-scaled", text, str(path)))
    return Choice(row, points.cluster, points.weight / total, label, notes=tuple(notes))
