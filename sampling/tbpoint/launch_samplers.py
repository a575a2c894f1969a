"""Samplers of a GPU's kernel launches (sampling/sampler.py), functions of (population, rules, seed) that return a
Choice: TBPoint (tbpoint/launches.py), and the baselines of intervals on launches.

A launch's weight is the share of all warp instructions that it stands for: its cluster's share, by its own instructions
among those of the cluster that were chosen. With one launch for each cluster the weighted sum of their CPIs is
TBPoint's estimate (Table IV). Where several are drawn, TBPoint counts launches instead (tbpoint/estimate.py);
``estimate`` does as each method does.

Launches drawn at random estimate CPI by the ratio of their cycles to their instructions (Cochran, "Sampling
Techniques", 3rd ed., eq. 6.13), whose interval is by Student's t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from manyscale.sampling import interval_samplers
from manyscale.sampling.estimate import CONFIDENCE, NOT_RANDOM, TOO_FEW, IntervalEstimate
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint import estimate as tbpoint_estimate
from manyscale.sampling.tbpoint.launches import LaunchCounts, LaunchSample, choose
from manyscale.sampling.tbpoint.rules import LaunchSampling
from manyscale.sampling.vectors import Vectors


@dataclass(frozen=True)
class LaunchPopulation:
    """``row`` int64[n]: of the table of launches, ascending; ``counts`` of each; ``cycles`` float64[n] where they are
    known. ``blocks`` and ``threads`` of a block [n], where they are known; ``profile`` float64[n]: times that were
    profiled, for samplers that read such. Raises ValueError for a launch without instructions."""

    row: np.ndarray
    counts: LaunchCounts
    cycles: np.ndarray | None = None
    blocks: np.ndarray | None = None
    threads: np.ndarray | None = None
    profile: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not np.all(self.instructions > 0):
            row = int(self.row[np.argmin(self.instructions > 0)])
            raise ValueError(f"the launch of row {row} has no instructions; leave it out with --launch")

    def __len__(self) -> int:
        return len(self.row)

    @property
    def instructions(self) -> np.ndarray:
        """float64[n]: warp instructions."""
        return np.asarray(self.counts.warp_instructions, np.float64)

    @property
    def cpi(self) -> np.ndarray | None:
        """float64[n]: cycles of the GPU per warp instruction, where cycles are known."""
        return None if self.cycles is None else self.cycles / self.instructions


@dataclass(frozen=True)
class LaunchChoice(Choice):
    """``sample``: TBPoint's."""

    sample: LaunchSample | None = None


def tbpoint(population: LaunchPopulation, rules: LaunchSampling, seed: int) -> LaunchChoice:
    """Clusters of launches, and one or several of each."""
    sample = choose(population.counts, rules.model_copy(update={"seed": seed}))
    parts = _parts(population, sample.chosen, sample.cluster)
    return LaunchChoice(*parts, is_random=sample.is_drawn, sample=sample)


def _parts(
    population: LaunchPopulation, element: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(element, stratum, weight, label) of a choice; ``label`` int[n]: the cluster of each launch."""
    instructions, of_chosen = population.instructions, label[element]
    share = np.bincount(label, instructions) / instructions.sum()
    weight = share[of_chosen] * instructions[element] / np.bincount(of_chosen, instructions[element])[of_chosen]
    return np.asarray(element, np.int64), of_chosen.astype(np.int32), weight, label.astype(np.int32)


def by_instructions(population: LaunchPopulation, element: np.ndarray, label: np.ndarray) -> Choice:
    """One launch for each cluster of ``label`` int[n], whose instructions all have its cycles per instruction."""
    element = np.sort(np.asarray(element, np.int64))
    share = np.bincount(label, population.instructions) / population.instructions.sum()
    return Choice(element, label[element].astype(np.int32), share[label[element]], label.astype(np.int32))


@dataclass(frozen=True)
class CountedChoice(Choice):
    """Launches that stand for as many launches, not instructions, as their cluster has for each of them. ``weight`` is
    that of their instructions all the same."""


def by_launches(
    population: LaunchPopulation, element: np.ndarray, label: np.ndarray, is_random: bool = False
) -> CountedChoice:
    """``element`` int64[] ascending, at least one for each cluster of ``label`` int[n]."""
    return CountedChoice(*_parts(population, element, label), is_random=is_random)


def of_intervals(
    sampler: Callable[[IntervalPopulation, Any, int], Choice],
) -> Callable[[LaunchPopulation, Any, int], Choice]:
    """A sampler of intervals that looks at nothing but how many instructions they have, for launches."""

    def drawn(population: LaunchPopulation, rules: Any, seed: int) -> Choice:
        none = Vectors(np.zeros(len(population) + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))
        return sampler(IntervalPopulation(population.row, population.instructions, none, 1), rules, seed)

    return drawn


TBPOINT: Final = Sampler(tbpoint, LaunchSampling, options="tbpoint.launches")
RANDOM, SYSTEMATIC, SECOND, FULL = (
    replace(sampler, choose=of_intervals(sampler.choose))
    for sampler in (
        interval_samplers.RANDOM,
        interval_samplers.SYSTEMATIC,
        interval_samplers.SECOND,
        interval_samplers.FULL,
    )
)


def estimate(choice: Choice, population: LaunchPopulation) -> IntervalEstimate:
    """CPI of all launches by the cycles of those chosen. Raises ValueError where cycles are not known."""
    if population.cycles is None:
        raise ValueError("the cycles of its launches are not known")
    cycles, instructions = population.cycles[choice.element], population.instructions
    if isinstance(choice, LaunchChoice) and choice.sample is not None:
        found = tbpoint_estimate.estimate(choice.sample, instructions, cycles, confidence=CONFIDENCE)
        value, half = (each / instructions.sum() for each in (found.total_cycles, found.half_width_cycles))
        why = "" if np.isfinite(half) else TOO_FEW if choice.is_random else NOT_RANDOM
    elif isinstance(choice, CountedChoice):
        value, half = _counted(choice, cycles, instructions)
        why = "" if np.isfinite(half) else TOO_FEW if choice.is_random else NOT_RANDOM
    elif choice.is_random:
        value, half = _ratio(cycles, instructions[choice.element], instructions)
        why = "" if np.isfinite(half) else TOO_FEW
    else:
        value, half, why = float(choice.weight @ (cycles / instructions[choice.element])), np.nan, NOT_RANDOM
    return IntervalEstimate(value, None, None, why) if why else IntervalEstimate(value, value - half, value + half)


def _counted(choice: CountedChoice, cycles: np.ndarray, instructions: np.ndarray) -> tuple[float, float]:
    """(cycles per instruction, half-width of its interval: Cochran eq. 5.8; NaN if the launches do not tell)."""
    from scipy.special import stdtrit

    size = np.bincount(choice.label)
    number = np.bincount(choice.stratum, minlength=len(size))
    mean = np.bincount(choice.stratum, cycles, len(size)) / number
    squares = np.bincount(choice.stratum, (cycles - mean[choice.stratum]) ** 2, len(size))
    value, half = float(size @ mean) / float(instructions.sum()), np.nan
    is_open = number < size
    if not np.any(is_open):
        half = 0.0
    elif choice.is_random and np.all(number[is_open] > 1):
        parts = (size**2 * (1 - number / size) * squares / np.maximum(number - 1, 1) / number)[is_open]
        total = float(parts.sum())
        freedom = total**2 / float((parts**2 / (number[is_open] - 1)).sum()) if total else np.inf
        half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(total)) if total else 0.0
        half /= float(instructions.sum())
    return value, half


def expecting(choice: Choice, population: LaunchPopulation) -> Choice:
    """``choice`` with its expected error, where cycles are known and the sample tells."""
    if population.cycles is None:
        return choice
    found = estimate(choice, population)
    return choice if found.high is None else replace(choice, expected_error=found.high / found.value - 1)


def _ratio(cycles: np.ndarray, drawn: np.ndarray, instructions: np.ndarray) -> tuple[float, float]:
    """(cycles per instruction, half-width of its interval)."""
    from scipy.special import stdtrit

    ratio, number = float(cycles.sum() / drawn.sum()), len(cycles)
    if number == len(instructions):
        return ratio, 0.0
    if number < 2:
        return ratio, np.nan
    squares = float(((cycles - ratio * drawn) ** 2).sum()) / (number - 1)
    error = np.sqrt((1 - number / len(instructions)) * squares / number) / instructions.mean()
    return ratio, float(stdtrit(number - 1, (1 + CONFIDENCE) / 2) * error)
