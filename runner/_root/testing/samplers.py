"""What every sampler keeps: weights that cover the population, no error where all is chosen, the same choice again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from manyscale.runner.study.samplers import chosen_sampler, rules_of
from manyscale.sampling.estimate import CONFIDENCE, IntervalEstimate
from manyscale.sampling.estimate import estimate as of_intervals
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice, IntervalPopulation
from manyscale.sampling.ranks.iteration_samplers import JOINED, IterationPopulation
from manyscale.sampling.ranks.rank_samplers import RankPopulation
from manyscale.sampling.sampler import Sampler
from manyscale.sampling.tbpoint.launch_samplers import LaunchPopulation
from manyscale.sampling.tbpoint.launch_samplers import estimate as of_launches
from manyscale.sampling.tbpoint.launches import LaunchCounts
from manyscale.sampling.vectors import Vectors
from manyscale.testing.contract import ContractError, require, require_nowhere
from manyscale.testing.workloads import US, Operation, workload

Chosen: TypeAlias = Plan | Choice
_DRAWS: Final = 200  # choices that are made to see how random ones hold on average
_LEAST_COVERAGE: Final = CONFIDENCE - 0.05  # of intervals of so many choices


@dataclass(frozen=True)
class Population:
    """``content``: what a sampler is given; ``size`` elements, of which each has a ``share`` float64[size] of the
    whole (sum 1) and ``values`` per unit of it. ``estimate``: of their mean from a choice, None where there is none."""

    content: Any
    share: np.ndarray
    values: np.ndarray
    estimate: Callable[[Choice], IntervalEstimate] | None = None

    @property
    def size(self) -> int:
        return len(self.share)


def check_sampler(
    sampler: Sampler | Callable[[Any, Any, int], Any] | str, level: str = "rank", rules: Any = None
) -> None:
    """``sampler``: a Sampler, its function (population, rules, seed), or its name in a study. ``level``: what it
    chooses, ``rank``, ``iteration``, ``launch`` or ``interval``. ``rules``: its settings, the defaults if none are
    given.

    Checked, on populations of one element and of many: the answer is a Plan or a Choice, as the level has it; elements
    are distinct and of the population; weights are positive and cover it, in total and in each stratum; elements that
    all are chosen have weights that give the whole without error; a rank that is left out has a representative of its
    stratum; the same seed makes the same choice, another one no mistake; nothing that was handed in is changed. Of
    choices that say that they are random, over 200 seeds: the weighted sum is right on average, and intervals of 95 %
    hold in at least 90 %. Raises ContractError.
    """
    chosen = chosen_sampler(level, sampler) if isinstance(sampler, str) else sampler
    asked = chosen if isinstance(chosen, Sampler) else Sampler(chosen)
    name = sampler if isinstance(sampler, str) else getattr(asked.choose, "__name__", "sampler")
    settings = rules_of(asked) if rules is None else rules
    for population in _POPULATIONS[level]():

        def choose(seed: int, population: Population = population) -> Chosen:
            return _chosen(name, level, population, lambda: asked.choose(population.content, settings, seed))

        first = choose(1)
        _check_same(name, first, choose(1))
        _check_weights(name, level, population, first)
        if level != "iteration":
            _check_census(name, population, first)
        if first.is_random:
            _check_random(name, population, [choose(seed) for seed in range(_DRAWS)])


def _chosen(name: str, level: str, population: Population, choose: Callable[[], Any]) -> Chosen:
    state = repr(np.random.get_state())
    try:
        found = choose()
    except ValueError as error:
        what = "changes what it is given" if "read-only" in str(error) else f"refuses {population.size} elements"
        raise ContractError(f"{name}: {what} ({error})") from error
    require(
        repr(np.random.get_state()) == state,
        f"{name}: draws from NumPy's global generator; use numpy.random.default_rng(seed)",
    )
    wanted = Plan if level in ("rank", "iteration") else Choice
    require(isinstance(found, wanted), f"{name}: returns {type(found).__name__}, not a {wanted.__name__}")
    assert isinstance(found, wanted)
    return found


def _elements(found: Chosen) -> np.ndarray:
    return found.element_id if isinstance(found, Plan) else found.element


def _check_same(name: str, first: Chosen, again: Chosen) -> None:
    same = np.array_equal(_elements(first), _elements(again)) and np.array_equal(first.weight, again.weight)
    require(same, f"{name}: the same seed makes another choice")


def _check_weights(name: str, level: str, population: Population, found: Chosen) -> None:
    element = _elements(found)
    require(len(element), f"{name}: chooses nothing of {population.size} elements")
    require(len(np.unique(element)) == len(element), f"{name}: chooses an element twice")
    least = JOINED if level == "iteration" else 0  # what lies outside the main loop, all joined
    require(
        element.min() >= least and element.max() < population.size,
        f"{name}: chooses an element that is none of the {population.size}",
    )
    require(
        len(found.stratum) == len(found.weight) == len(element),
        f"{name}: strata, weights and elements differ in number",
    )
    require_nowhere(~(found.weight > 0), f"{name}: the weight of choice {{}} is not positive")
    if isinstance(found, Plan):
        if level == "rank":
            _check_ranks(name, population, found)
        return
    require(np.all(np.diff(element) > 0), f"{name}: elements of a Choice are not in ascending order")
    total = float(found.weight.sum())
    require(abs(total - 1) < 1e-9, f"{name}: weights sum to {total}, not to 1")
    if len(found.label):
        require(len(found.label) == population.size, f"{name}: label does not name the stratum of every element")
        require(np.array_equal(found.label[element], found.stratum), f"{name}: label and stratum contradict each other")
        most = int(found.label.max()) + 1
        share = np.bincount(found.label, population.share, most)
        weight = np.bincount(found.stratum, found.weight, most)
        require_nowhere(
            abs(share - weight) > 1e-9, f"{name}: weights of stratum {{}} do not sum to its share of the whole"
        )


def _check_ranks(name: str, population: Population, plan: Plan) -> None:
    require(plan.element_kind == "rank", f"{name}: a plan of {plan.element_kind}, not of ranks")
    require(plan.population == population.size, f"{name}: a plan of {plan.population} of {population.size} ranks")
    try:
        stands = plan.representative
    except ValueError as error:
        raise ContractError(f"{name}: {error}") from error
    if len(plan.label):
        wrong = plan.stratum[stands] != plan.label
        require_nowhere(wrong, f"{name}: the representative of rank {{}} is of another stratum")


def _check_census(name: str, population: Population, found: Chosen) -> None:
    """Where all is chosen, the weighted sum is the whole."""
    if len(_elements(found)) < population.size:
        return
    own = np.ones(population.size) if isinstance(found, Plan) else population.share[_elements(found)]
    wrong = abs(found.weight - own) > 1e-9
    require_nowhere(wrong, f"{name}: all is chosen, yet choice {{}} stands for another share than its own")


def _check_random(name: str, population: Population, choices: list[Chosen]) -> None:
    truth = float(population.share @ population.values)
    means, holds = [], []
    for found in choices:
        values = population.values[_elements(found)]
        share = found.weight / population.size if isinstance(found, Plan) else found.weight
        means.append(float(share @ values))
        if isinstance(found, Choice) and population.estimate is not None:
            estimate = population.estimate(found)
            if estimate.low is not None and estimate.high is not None:
                holds.append(estimate.low - 1e-9 <= truth <= estimate.high + 1e-9)
    error = float(np.std(means)) / np.sqrt(len(means))
    off = abs(float(np.mean(means)) - truth)
    # a ratio estimate is off by a little of its own; 5 standard errors are chance once in two million
    require(off <= 5 * error + 0.01 * truth, f"{name}: on average of {len(means)} seeds it is off by {off / truth:.1%}")
    require(
        not holds or np.mean(holds) >= _LEAST_COVERAGE,
        f"{name}: its intervals of {CONFIDENCE:.0%} hold in {np.mean(holds) if holds else 0:.0%}",
    )


def _read_only(*arrays: np.ndarray) -> None:
    for array in arrays:
        array.flags.writeable = False


def _ranks() -> list[Population]:
    """Ranks of three kinds, which compute for 1, 2 and 5 us."""
    found = []
    for count in (1, 12):
        ranks: list[list[Operation]] = [[(US * (1, 2, 5)[rank % 3], "barrier", {})] * 4 for rank in range(count)]
        traced = np.array([0, 5][:count], np.int64)
        _read_only(traced)
        values = np.array([(1.0, 2.0, 5.0)[rank % 3] for rank in range(count)])
        content = RankPopulation(workload("ranks", ranks), traced)
        found.append(Population(content, np.full(count, 1 / count), values))
    return found


def _iterations() -> list[Population]:
    found = []
    for count in (1, 6):
        traced = np.array([1, 4] if count > 1 else [0], np.int64)
        _read_only(traced)
        content = IterationPopulation(workload("iterations", [[(US, "barrier", {})] * count]), 0, count, traced)
        found.append(Population(content, np.full(count, 1 / count), np.ones(count)))
    return found


def _kinds(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(kind, size, value per unit of size) of elements of four kinds that differ in both."""
    random = np.random.default_rng(7)
    kind = random.integers(0, 4, count)
    size = np.array([1000.0, 1200.0, 3000.0, 5000.0])[kind] * random.uniform(0.95, 1.05, count)
    value = np.array([1.0, 1.5, 0.7, 2.0])[kind] * random.uniform(0.9, 1.1, count)
    return kind, size, value


def _launches() -> list[Population]:
    found = []
    for count in (1, 120):
        kind, size, value = _kinds(count)
        cycles = value * size
        counts = LaunchCounts(kind, size * 32, size, size / 10)
        _read_only(kind, size, cycles, counts.thread_instructions, counts.memory_requests)
        content = LaunchPopulation(np.arange(count), counts, cycles, profile=cycles)
        estimate = partial(of_launches, population=content)
        found.append(Population(content, size / size.sum(), value, estimate))
    return found


def _intervals() -> list[Population]:
    """Of nearly equal length, as profilers cut them."""
    found = []
    for count in (1, 200):
        kind, _, value = _kinds(count)
        size = np.random.default_rng(8).uniform(950, 1050, count)
        vectors = Vectors(np.arange(count + 1), kind.astype(np.int64), size.copy())
        _read_only(kind, size, value, vectors.first)
        content = IntervalPopulation(np.arange(count), size, vectors, 1)

        def estimate(choice: Choice, size: np.ndarray = size, value: np.ndarray = value) -> IntervalEstimate:
            return of_intervals(choice, size, value[choice.element])

        found.append(Population(content, size / size.sum(), value, estimate))
    return found


_POPULATIONS: Final[dict[str, Callable[[], list[Population]]]] = {
    "rank": _ranks,
    "iteration": _iterations,
    "launch": _launches,
    "interval": _intervals,
}
