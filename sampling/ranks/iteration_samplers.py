"""Which iterations of the main loop of a rank are simulated by a model of the cores; the others follow from them.

Source: MUSA (Grass, UPC 2017, section 6.3.4): chosen iterations, of which the second is usual, since the first finds
cold hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.parameters import Strict
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks.rank_samplers import OneInRules
from manyscale.sampling.sampler import Sampler

WHOLE: Final = -1  # what lies outside the main loop; all that a rank without one does
JOINED: Final = -2  # all iterations one after the other, with what lies between


@dataclass(frozen=True)
class IterationPopulation:
    """The iterations of ``rank`` of ``workload``, ``number`` of them, counted from 0. ``traced`` int64[]: those that
    have a detailed level, ascending, WHOLE first if it has one; of a rank that has none at all, the last that any has.
    """

    workload: Workload
    rank: int
    number: int
    traced: np.ndarray


def every_iteration(population: IterationPopulation, rules: Strict, seed: int) -> Plan:
    """All, and what lies outside them, where it has a detailed level."""
    outside = [WHOLE] if population.number == 0 or WHOLE in population.traced else []
    return _alike([*range(population.number), *outside])


def traced_iterations(population: IterationPopulation, rules: Strict, seed: int) -> Plan:
    """Those that have a detailed level; if there are none, what lies outside them."""
    traced = population.traced[population.traced >= 0]
    return _alike(traced.tolist() if population.number and len(traced) else [WHOLE])


def joined(population: IterationPopulation, rules: Strict, seed: int) -> Plan:
    """All as one, so that task instances share their samples."""
    return _alike([JOINED if population.number else WHOLE])


def second(population: IterationPopulation, rules: Strict, seed: int) -> Plan:
    """The second, or the only one. Raises ValueError for a rank without a main loop."""
    return _alike([min(1, _number(population) - 1)])


def one_in(population: IterationPopulation, rules: OneInRules, seed: int) -> Plan:
    """From the second on, as the first is not representative. Raises ValueError for a rank without a main loop."""
    number = _number(population)
    return _alike(range(min(1, number - 1), number, rules.number))


def given_iterations(population: IterationPopulation, numbers: Sequence[int]) -> Plan:
    """These. Raises ValueError for one that there is not."""
    number, chosen = _number(population), sorted(numbers)
    if chosen[-1] >= number:
        raise ValueError(f"iteration {chosen[-1]} is not one of the trace's {number}")
    return _alike(chosen)


def _number(population: IterationPopulation) -> int:
    if not population.number:
        raise ValueError("knows no iterations of a main loop; leave sampling.iterations out")
    return population.number


def _alike(chosen: Sequence[int]) -> Plan:
    """Each counts for itself: what was not simulated follows from all together."""
    count = len(chosen)
    return Plan("iteration", np.array(chosen, np.int64), np.zeros(count, np.int32), np.ones(count), "", count)


TRACED: Final = Sampler(traced_iterations)
FULL: Final = Sampler(every_iteration)
SECOND: Final = Sampler(second)
JOINED_AS_ONE: Final = Sampler(joined)
ONE_IN: Final = Sampler(one_in, OneInRules)
