"""Which ranks and iterations are chosen, and that what they stand for covers all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.runner.readers.options import DEFAULT_OPTIONS
from manyscale.runner.registry import lookup
from manyscale.runner.study.shipped import folder
from manyscale.sampling.ranks.choice import choose_iterations, choose_ranks, one_in, strata


@pytest.fixture(scope="module")
def jacobi():
    return lookup("reader", "workload").read(folder() / "jacobi-8.tar.zst", DEFAULT_OPTIONS)


NONE = np.empty(0, np.int64)


@pytest.mark.theory
@pytest.mark.parametrize(("text", "number"), [("one-in-4", 4), ("one-in-", 0), ("one-in-x", 0), ("full", 0), ([3], 0)])
def test_one_in_n_is_read(text, number):
    assert one_in(text) == number


@pytest.mark.contract
@pytest.mark.parametrize("method", ["full", "one-in-3", "clusters", [2, 5]])
def test_weights_cover_all_ranks_and_strata_name_the_chosen(jacobi, method):
    plan = choose_ranks(jacobi, method, NONE, "detailed")
    stratum = strata(jacobi, method, NONE)
    assert plan.weight.sum() == jacobi.num_ranks == 8
    assert np.bincount(stratum, minlength=len(plan.element_id)).tolist() == plan.weight.tolist()
    assert stratum[plan.element_id].tolist() == list(range(len(plan.element_id)))  # the chosen stand for themselves


@pytest.mark.theory
def test_one_in_three_of_eight_stand_for_three_three_and_two(jacobi):
    plan = choose_ranks(jacobi, "one-in-3", NONE, "detailed")
    assert plan.element_id.tolist() == [0, 3, 6]
    assert plan.weight.tolist() == [3, 3, 2]


@pytest.mark.theory
def test_traced_takes_what_has_a_detailed_level(jacobi):
    assert choose_ranks(jacobi, "traced", np.array([7, 1]), "interval").element_id.tolist() == [1, 7]
    with pytest.raises(ValueError, match="no rank has a detailed level"):
        choose_ranks(jacobi, "traced", NONE, "interval")


@pytest.mark.theory
def test_clusters_find_ranks_with_as_many_neighbours(jacobi):
    """A 2 x 4 grid of ranks: corners exchange with two neighbours, the others with three."""
    stratum = strata(jacobi, "clusters", NONE)
    edges = np.diff(jacobi.rank_offsets)
    assert len(np.unique(stratum)) < 8
    for each in np.unique(stratum):
        assert len(np.unique(edges[stratum == each])) == 1


@pytest.mark.theory
def test_a_rank_that_there_is_not(jacobi):
    with pytest.raises(ValueError, match="rank 8 is not one of the trace's 8"):
        choose_ranks(jacobi, [8], NONE, "detailed")


@pytest.mark.theory
@pytest.mark.parametrize(
    ("method", "chosen"),
    [("full", [0, 1, 2, 3, 4]), ("second", [1]), ("one-in-2", [1, 3]), ("traced", [2]), ([4, 0], [0, 4])],
)
def test_iterations(method, chosen):
    assert choose_iterations(5, method, np.array([2])).tolist() == chosen


@pytest.mark.theory
def test_of_a_single_iteration_the_second_is_the_first():
    assert choose_iterations(1, "second", NONE).tolist() == [0]
    with pytest.raises(ValueError, match="iteration 5 is not one of the trace's 5"):
        choose_iterations(5, [5], NONE)
