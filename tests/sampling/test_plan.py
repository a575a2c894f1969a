"""Plans: weights cover the population, whatever the sampler."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import names
from manyscale.runner.study.samplers import rules_of, sampler_named
from manyscale.sampling.plan import PLAN_SCHEMA, Plan
from manyscale.sampling.ranks import full
from manyscale.sampling.ranks.rank_samplers import RankPopulation


@pytest.fixture(scope="module")
def workload():
    return simgrid_ti.read(shipped.folder() / "nas-is-A-8.tar.zst")


@pytest.mark.contract
@pytest.mark.parametrize("method", [name.replace("-N", "-3") for name in names("rank-sampler")])
def test_weights_cover_the_population(method, workload):
    population = RankPopulation(workload, np.array([1, 6]))
    sampler = sampler_named("rank", method)
    first, second = (sampler.choose(population, rules_of(sampler), 5) for _ in range(2))
    assert first.weight.sum() == pytest.approx(first.population) == 8
    assert first.table().schema == PLAN_SCHEMA
    assert first.table().equals(second.table())


@pytest.mark.contract
def test_full_is_a_census_of_the_ranks(workload):
    plan = full.plan(workload, "burst")
    assert plan.is_census
    assert plan.element_id.tolist() == plan.representative.tolist() == list(range(8))


@pytest.mark.contract
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 1.5], "weights sum to 2.5"),
        ([2.0, 0.0], "not positive"),
        ([], "chooses no rank"),
        ([np.nan, 1.0], "not positive"),
    ],
)
def test_refuses_weights_that_do_not_cover(weight, message):
    count = len(weight)
    with pytest.raises(ValueError, match=message):
        Plan("rank", np.arange(count), np.zeros(count, np.int32), np.array(weight), "burst", 2)


def of_one_stratum(chosen, weight, population=8, **more):
    count = len(chosen)
    return Plan("rank", np.array(chosen), np.zeros(count, np.int32), np.array(weight, float), "", population, **more)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("chosen", "weight", "expected"),
    [
        ([3], [8], [0] * 8),
        ([0, 4], [4, 4], [0, 0, 1, 0, 1, 1, 0, 1]),  # 1, 2, 3, 5, 6, 7 are dealt out in turn
        ([0, 1], [1, 7], [0, 1, 1, 1, 1, 1, 1, 1]),
        ([0, 1], [3, 5], [0, 1, 1, 0, 1, 1, 0, 1]),  # due at 1/8, 1/4, 3/8, 5/8, 3/4, 7/8
        ([0, 1, 2], [8 / 3] * 3, [0, 1, 2, 0, 1, 2, 0, 1]),  # as nearly as whole ranks can
        ([5, 2], [4, 4], [0, 1, 1, 0, 1, 0, 0, 1]),  # in the order in which they were chosen
    ],
)
def test_each_stands_for_as_many_as_its_weight_says(chosen, weight, expected):
    assert of_one_stratum(chosen, weight).representative.tolist() == expected


@pytest.mark.property
def test_whole_weights_are_honoured_exactly():
    """In every stratum, whatever is chosen; a weighted sum is the sum over all."""
    random = np.random.default_rng(1)
    for _ in range(200):
        label = random.integers(0, 4, random.integers(4, 60))
        label = np.unique(label, return_inverse=True)[1]
        chosen = np.concatenate([
            random.permutation(np.flatnonzero(label == each))[: random.integers(1, 5)] for each in np.unique(label)
        ])  # fmt: skip
        weight = np.ones(len(chosen))
        for rank in np.setdiff1d(np.arange(len(label)), chosen):
            weight[random.choice(np.flatnonzero(label[chosen] == label[rank]))] += 1
        plan = Plan("rank", chosen, label[chosen], weight, "", len(label), label)
        found = plan.representative
        assert np.bincount(found, minlength=len(chosen)).tolist() == weight.tolist()
        assert np.array_equal(label[chosen[found]], label)
        assert np.array_equal(found[chosen], np.arange(len(chosen)))


@pytest.mark.contract
def test_strata_must_be_told_and_covered():
    label = np.array([0, 0, 1, 1])
    unlabelled = Plan("rank", np.array([0, 2]), np.array([0, 1]), np.array([2.0, 2.0]), "", 4)
    with pytest.raises(ValueError, match="several strata, and no label"):
        unlabelled.representative  # noqa: B018
    with pytest.raises(ValueError, match=r"weights of stratum 0 sum to 1\.0, it has 2 elements"):
        Plan("rank", np.array([0, 2]), np.array([0, 1]), np.array([1.0, 3.0]), "", 4, label)
    with pytest.raises(ValueError, match="different strata"):
        Plan("rank", np.array([0, 1]), np.array([0, 1]), np.array([2.0, 2.0]), "", 4, label)
    with pytest.raises(ValueError, match="of 4 elements, the population is 5"):
        Plan("rank", np.array([0, 2]), np.array([0, 1]), np.array([2.0, 3.0]), "", 5, label)
    with pytest.raises(ValueError, match="chooses a rank twice"):
        of_one_stratum([1, 1], [4, 4], label=np.zeros(8, np.int32))
    with pytest.raises(ValueError, match="the population is 4"):
        Plan.of_strata("rank", np.array([0]), label)
