"""Sieve: strata of launches by kernel and number of instructions.

Method: Naderan-Tahan, SeyyedAghaei, Eeckhout, "Sieve: Stratified GPU-Compute Workload Sampling" (ISPASS 2023). Launches
of a kernel whose instructions do not vary (tier 1) or vary little, by a coefficient of variation below ``variation``
(tier 2), are one stratum; those of other kernels (tier 3) are cut where a kernel density estimate of their numbers of
instructions is least, so that strata vary less than that. The first launch in time stands for a stratum; in tier 2 the
first with the number of threads that most of its launches have. A stratum weighs as many instructions as it has, at the
representative's cycles per instruction.

Choices where the source is silent: the bandwidth of the estimate is Silverman's rule, of the logarithm of the numbers;
a part that still varies more is cut again, down to launches of one size.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from pydantic import Field

from manyscale.models.workload.parameters import Strict
from manyscale.sampling.population import Choice
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation, by_instructions

_GRID: Final = 512


class SieveRules(Strict):
    """``variation``: coefficient of variation from which on a kernel's launches are cut."""

    variation: Annotated[float, Field(gt=0)] = 0.4


def first_of_strata(population: LaunchPopulation, rules: SieveRules, seed: int) -> Choice:
    """O(launches log launches)."""
    instructions = population.instructions
    threads = population.threads if population.threads is not None else np.zeros(len(population))
    label = np.empty(len(population), np.int64)
    chosen: list[int] = []
    for kernel in np.unique(population.counts.kernel):
        rows = np.flatnonzero(population.counts.kernel == kernel)
        is_even = _variation(instructions[rows]) < rules.variation
        for part in [rows] if is_even else strata(rows, instructions, rules.variation):
            label[part] = len(chosen)
            own = part
            if is_even and _variation(instructions[rows]) > 0:
                value, count = np.unique(threads[part], return_counts=True)
                own = part[threads[part] == value[np.argmax(count)]]
            chosen.append(int(own[0]))
    return by_instructions(population, np.array(chosen), label)


def strata(rows: np.ndarray, instructions: np.ndarray, variation: float) -> list[np.ndarray]:
    """``rows`` in parts that vary less, each ascending."""
    own = instructions[rows]
    if _variation(own) < variation:
        return [np.sort(rows)]
    cuts = _valleys(own)
    if not len(cuts):  # one hill that is too wide: in the middle of the largest gap
        value = np.unique(own)
        place = int(np.argmax(np.diff(np.log(value))))
        cuts = np.sqrt(value[place : place + 1] * value[place + 1 : place + 2])
    part = np.searchsorted(cuts, own)
    return [each for number in np.unique(part) for each in strata(rows[part == number], instructions, variation)]


def _valleys(values: np.ndarray) -> np.ndarray:
    """float64[]: where the density of the values is least between its hills; values lie on both sides of each."""
    logarithm = np.log(values)
    deviation = float(logarithm.std())
    width = 0.9 * deviation * len(values) ** -0.2  # Silverman, "Density Estimation" (1986), eq. 3.31
    grid = np.linspace(logarithm.min(), logarithm.max(), _GRID)
    value, count = np.unique(logarithm, return_counts=True)
    density = np.zeros(_GRID)
    for one, weight in zip(value.tolist(), count.tolist(), strict=True):
        density += weight * np.exp(-0.5 * ((grid - one) / width) ** 2)
    falls = (density[1:-1] <= density[:-2]) & (density[1:-1] < density[2:])
    cuts = np.exp(grid[1:-1][falls])
    return cuts[np.append(np.diff(np.searchsorted(np.sort(values), cuts)) > 0, True)] if len(cuts) else cuts


def _variation(values: np.ndarray) -> float:
    mean = float(values.mean())
    return float(values.std()) / mean if mean > 0 else 0.0


SIEVE: Final = Sampler(first_of_strata, SieveRules)
