"""Every sampler keeps its contract; those that do not are found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyscale.models.workload.parameters import Strict
from manyscale.runner.registry import names
from manyscale.sampling.interval_samplers import SizeRules, all_of_them, at_random
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice
from manyscale.sampling.ranks.rank_samplers import every_rank
from manyscale.sampling.simpoint import SimPointRules
from manyscale.sampling.tbpoint.rules import LaunchSampling
from manyscale.testing import ContractError, check_sampler

pytestmark = pytest.mark.contract
LEVELS = ("rank", "iteration", "launch", "interval")


@pytest.mark.parametrize(("level", "name"), [(level, name) for level in LEVELS for name in names(f"{level}-sampler")])
def test_built_in(level, name):
    check_sampler(name.replace("-N", "-3"), level)


@pytest.mark.parametrize(
    ("level", "name", "rules"),
    [("interval", "simpoint", SimPointRules(per_cluster=4)), ("launch", "tbpoint", LaunchSampling(representatives=6))],
)
def test_several_of_each_cluster(level, name, rules):
    check_sampler(name, level, rules)


def first_half(population, rules, seed):
    """Ranks that stand for themselves alone."""
    count = (population.workload.num_ranks + 1) // 2
    return Plan("rank", np.arange(count), np.zeros(count, np.int32), np.ones(count), "", count)


def of_others(population, rules, seed):
    right = every_rank(population, rules, seed)
    return replace(right, element_kind="interval")


def untold(population, rules, seed):
    """Strata without a label of what is left out."""
    count = population.workload.num_ranks
    chosen = np.arange(min(2, count))
    weight = np.full(len(chosen), count / len(chosen))
    return Plan("rank", chosen, chosen.astype(np.int32), weight, "", count)


def writes(population, rules, seed):
    population.traced[0] = 1
    return every_rank(population, rules, seed)


def by_global_state(population, rules, seed):
    np.random.random()
    return every_rank(population, rules, seed)


def refuses(population, rules, seed):
    raise ValueError("I do not like it")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (first_half, "a plan of 6 of 12 ranks"),
        (of_others, "a plan of interval, not of ranks"),
        (untold, "has several strata, and no label"),
        (writes, "changes what it is given"),
        (by_global_state, "draws from NumPy's global generator"),
        (refuses, "refuses 1 elements"),
        (lambda population, rules, seed: None, "returns NoneType, not a Plan"),
    ],
)
def test_broken_of_ranks(broken, reason):
    with pytest.raises(ContractError, match=reason):
        check_sampler(broken, "rank")


def changed(**columns):
    def choose(population, rules, seed):
        right = all_of_them(population, rules, seed)
        return replace(right, **{name: change(getattr(right, name)) for name, change in columns.items()})

    return choose


def another_each_time(population, rules, seed):
    return at_random(population, SizeRules(intervals=20), int(np.random.default_rng().integers(10**9)))


def by_size(population, rules, seed):
    """Large intervals alone, said to be random."""
    element = np.sort(np.argsort(population.instructions)[-max(2, len(population) // 10) :])
    element = np.unique(np.maximum(0, element - seed % 3))
    own = population.instructions[element]
    return Choice(element, np.zeros(len(element), np.int32), own / own.sum(), is_random=True)


def too_sure(population, rules, seed):
    """Every interval is a stratum of a few that are alike by chance alone."""
    right = at_random(population, SizeRules(intervals=20), seed)
    count = len(population)
    if count < 100:
        return right
    label = np.repeat(np.arange(10), count // 10).astype(np.int32)
    drawn = np.random.default_rng(seed).integers(0, count // 10 - 1, 10) + np.arange(10) * (count // 10)
    element = np.sort(np.concatenate((drawn, drawn + 1)))
    share = np.bincount(label, population.instructions) / population.instructions.sum()
    return Choice(element, label[element], (share / 2)[label[element]], label, is_random=True)


def wrong_strata(population, rules, seed):
    right = all_of_them(population, rules, seed)
    label = (np.arange(len(population)) % 2).astype(np.int32)
    weight = np.full(len(population), 1 / len(population))
    return replace(right, label=label, stratum=label, weight=weight)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (changed(weight=lambda each: each * 0.9), "weights sum to 0.9"),
        (changed(weight=lambda each: each - each.min()), "weight of choice 0 is not positive"),
        (changed(weight=lambda each: np.full(len(each), 1 / len(each))), "stands for another share than its own"),
        (changed(element=lambda each: np.zeros_like(each)), "chooses an element twice"),
        (changed(element=lambda each: each + 1), "none of the 1"),
        (changed(element=lambda each: each[::-1]), "not in ascending order"),
        (changed(stratum=lambda each: each[:0]), "differ in number"),
        (wrong_strata, "weights of stratum . do not sum to its share"),
        (another_each_time, "the same seed makes another choice"),
        (by_size, "off by|hold in"),
        (lambda *_: Choice(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)), "chooses nothing"),
    ],
)
def test_broken_of_intervals(broken, reason):
    with pytest.raises(ContractError, match=reason):
        check_sampler(broken, "interval", Strict())
