"""Which ranks and iterations are chosen, and that what they stand for covers all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.runner.readers.options import DEFAULT_OPTIONS
from manyscale.runner.registry import lookup
from manyscale.runner.shipped import folder
from manyscale.runner.study.samplers import rules_of, sampler_named
from manyscale.sampling.plan import Plan
from manyscale.sampling.ranks.iteration_samplers import JOINED, WHOLE, IterationPopulation, given_iterations
from manyscale.sampling.ranks.rank_samplers import RankPopulation, given_ranks

NONE = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def jacobi():
    return lookup("reader", "workload").read(folder() / "jacobi-8.tar.zst", DEFAULT_OPTIONS)


def planned(level, method, population):
    if isinstance(method, list):
        return given_ranks(population, method) if level == "rank" else given_iterations(population, method)
    sampler = sampler_named(level, method)
    return sampler.choose(population, rules_of(sampler), 0)


def ranks(jacobi, method, traced=NONE) -> Plan:
    return planned("rank", method, RankPopulation(jacobi, traced))


def iterations(jacobi, method, number, traced=NONE) -> list[int]:
    return planned("iteration", method, IterationPopulation(jacobi, 0, number, np.array(traced))).element_id.tolist()


@pytest.mark.theory
@pytest.mark.parametrize(("text", "number"), [("one-in-4", 4), ("one-in-", 0), ("one-in-x", 0), ("one-in-N", 0),
                                              ("one-in-0", 0), ("full-4", 0)])  # fmt: skip
def test_one_in_n_is_read(text, number):
    for level in ("rank", "iteration"):
        found = sampler_named(level, text)
        assert (rules_of(found).number if found else 0) == number


@pytest.mark.contract
@pytest.mark.parametrize("method", ["full", "one-in-3", "clusters", [2, 5]])
def test_weights_cover_all_ranks_and_strata_name_the_chosen(jacobi, method):
    plan = ranks(jacobi, method)
    assert plan.weight.sum() == jacobi.num_ranks == 8
    assert np.bincount(plan.representative, minlength=len(plan.element_id)).tolist() == plan.weight.tolist()
    chosen = np.arange(len(plan.element_id))
    assert plan.representative[plan.element_id].tolist() == chosen.tolist()  # the chosen stand for themselves
    assert plan.stratum.tolist() == chosen.tolist()


@pytest.mark.theory
def test_one_in_three_of_eight_stand_for_three_three_and_two(jacobi):
    plan = ranks(jacobi, "one-in-3")
    assert plan.element_id.tolist() == [0, 3, 6]
    assert plan.weight.tolist() == [3, 3, 2]


@pytest.mark.theory
def test_traced_takes_what_has_a_detailed_level(jacobi):
    assert ranks(jacobi, "traced", np.array([1, 7])).element_id.tolist() == [1, 7]
    with pytest.raises(ValueError, match="no rank has a detailed level"):
        ranks(jacobi, "traced")


@pytest.mark.theory
def test_clusters_find_ranks_with_as_many_neighbours(jacobi):
    """A 2 x 4 grid of ranks: corners exchange with two neighbours, the others with three."""
    stratum = ranks(jacobi, "clusters").label
    edges = np.diff(jacobi.rank_offsets)
    assert len(np.unique(stratum)) < 8
    for each in np.unique(stratum):
        assert len(np.unique(edges[stratum == each])) == 1


@pytest.mark.theory
def test_a_rank_that_there_is_not(jacobi):
    with pytest.raises(ValueError, match="rank 8 is not one of the trace's 8"):
        ranks(jacobi, [8])


@pytest.mark.theory
@pytest.mark.parametrize(
    ("method", "chosen"),
    [
        ("full", [0, 1, 2, 3, 4]), ("second", [1]), ("one-in-2", [1, 3]), ("traced", [2]), ([4, 0], [0, 4]),
        ("joined", [JOINED]),
    ],
)  # fmt: skip
def test_iterations(jacobi, method, chosen):
    assert iterations(jacobi, method, 5, [2]) == chosen


@pytest.mark.theory
def test_what_lies_outside_the_main_loop(jacobi):
    """``full`` has it, where it was traced; ``traced`` if nothing else was; a rank without a loop is all that."""
    assert iterations(jacobi, "full", 2, [WHOLE, 1]) == [0, 1, WHOLE]
    assert iterations(jacobi, "traced", 2, [WHOLE, 1]) == [1]
    assert iterations(jacobi, "traced", 2, [WHOLE]) == [WHOLE]
    for method in ("full", "traced", "joined"):
        assert iterations(jacobi, method, 0) == [WHOLE]
    for method in ("second", "one-in-2", [0]):
        with pytest.raises(ValueError, match=r"no iterations of a main loop; leave sampling\.iterations out"):
            iterations(jacobi, method, 0)


@pytest.mark.theory
def test_of_a_single_iteration_the_second_is_the_first(jacobi):
    assert iterations(jacobi, "second", 1) == [0]
    with pytest.raises(ValueError, match="iteration 5 is not one of the trace's 5"):
        iterations(jacobi, [5], 5)
