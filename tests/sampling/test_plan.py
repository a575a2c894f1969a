"""Plans: weights cover the population, whatever the sampler."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.runner.readers import simgrid_ti
from manyscale.runner.registry import lookup, names
from manyscale.runner.study import shipped
from manyscale.sampling.plan import PLAN_SCHEMA, Plan


@pytest.mark.contract
@pytest.mark.parametrize("name", names("sampling"))
def test_weights_cover_the_population(name):
    workload = simgrid_ti.read(shipped.folder() / "nas-is-A-8.tar.zst")
    first, second = (lookup("sampling", name)(workload, "burst") for _ in range(2))
    assert first.weight.sum() == pytest.approx(first.population)
    assert first.table().schema == PLAN_SCHEMA
    assert first.table().equals(second.table())


@pytest.mark.contract
def test_full_is_a_census_of_the_ranks():
    workload = simgrid_ti.read(shipped.folder() / "nas-is-A-8.tar.zst")
    plan = lookup("sampling", "full")(workload, "burst")
    assert plan.is_census
    assert plan.element_id.tolist() == list(range(8))


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
