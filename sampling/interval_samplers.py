"""Samplers of intervals (sampler.py): functions of (population, rules, seed) that return a Choice.

SimPoint stands in simpoint/__init__.py, phases of managed programs in simprof/__init__.py. Here are the baselines of
chapter 5 of Huang (Georgia Tech, 2015): SECOND, one contiguous stretch; SRS, simple random; CODE, one interval of each
cluster of code; and SMARTS (Wunderlich et al., ISCA 2003), every k-th.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from manyscale.models.workload.parameters import Count, Strict
from manyscale.sampling import simpoint
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.simpoint import SimPointRules


class SizeRules(Strict):
    """``intervals`` that are simulated."""

    intervals: Count = 20


class SystematicRules(Strict):
    """Every ``period``-th interval, from one that the seed decides."""

    period: Annotated[int, Field(ge=1)] = 20


def simpoints(population: IntervalPopulation, rules: SimPointRules, seed: int) -> Choice:
    """SimPoint (simpoint/__init__.py) on projected vectors."""
    points = population.projected(seed, rules.dimensions)
    found = simpoint.choose(points, population.instructions, rules, seed)
    return Choice(found.point, found.cluster, found.weight, found.label, is_random=rules.per_cluster > 1)


def first_of_code(population: IntervalPopulation, rules: SimPointRules, seed: int) -> Choice:
    """CODE: one interval of each cluster, drawn at random (or ``per_cluster``)."""
    if rules.per_cluster > 1:
        return simpoints(population, rules, seed)
    points = population.projected(seed, rules.dimensions)
    found = simpoint.choose(points, population.instructions, rules, seed)
    random = np.random.default_rng(seed)
    drawn = np.array([random.choice(np.flatnonzero(found.label == cluster)) for cluster in found.cluster])
    order = np.argsort(drawn, kind="stable")
    return Choice(drawn[order], found.cluster[order], found.weight[order], found.label)


def at_random(population: IntervalPopulation, rules: SizeRules, seed: int) -> Choice:
    """SRS: intervals drawn at random, each of which stands for as many instructions as it has."""
    count = min(rules.intervals, len(population))
    drawn = np.sort(np.random.default_rng(seed).choice(len(population), count, replace=False))
    return replace(_alike(population, drawn), is_random=True)


def in_turn(population: IntervalPopulation, rules: SystematicRules, seed: int) -> Choice:
    """SMARTS: every ``period``-th interval."""
    begin = int(np.random.default_rng(seed).integers(min(rules.period, len(population))))
    return _alike(population, np.arange(begin, len(population), rules.period))


def in_one_stretch(population: IntervalPopulation, rules: SizeRules, seed: int) -> Choice:
    """SECOND: intervals one after the other, from one that the seed decides."""
    count = min(rules.intervals, len(population))
    begin = int(np.random.default_rng(seed).integers(len(population) - count + 1))
    return _alike(population, np.arange(begin, begin + count))


def all_of_them(population: IntervalPopulation, rules: Strict, seed: int) -> Choice:
    """Nothing is left out."""
    return replace(_alike(population, np.arange(len(population))), is_random=True)


def _alike(population: IntervalPopulation, element: np.ndarray) -> Choice:
    own = population.instructions[element]
    weight = own / own.sum() if own.sum() > 0 else np.full(len(element), 1 / len(element))
    return Choice(element.astype(np.int64), np.zeros(len(element), np.int32), weight)


SIMPOINT: Final = Sampler(simpoints, SimPointRules)
CODE: Final = Sampler(first_of_code, SimPointRules)
RANDOM: Final = Sampler(at_random, SizeRules)
SYSTEMATIC: Final = Sampler(in_turn, SystematicRules)
SECOND: Final = Sampler(in_one_stretch, SizeRules)
FULL: Final = Sampler(all_of_them)
