"""Vectors of parallel programs by hand, their clusters."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from told import told

from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.phases.parallel_phases import (
    PARTS,
    PhaseRules,
    counts_of,
    parts_of,
    points_of,
    sampled,
)
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors


def population(counters=None, *, cycles=None, rows=None, of_thread=None) -> IntervalPopulation:
    """Intervals of two threads; ``rows`` of counts of four columns, thread 0's two first."""
    of_thread = np.array([[30.0, 70.0], [50.0, 50.0], [100.0, 0.0]] if of_thread is None else of_thread)
    dense = np.array([[10, 20, 70, 0], [0, 50, 0, 50], [40, 60, 0, 0]] if rows is None else rows, float)
    row, column = np.nonzero(dense)
    vectors = Vectors(np.searchsorted(row, np.arange(len(dense) + 1)), column, dense[row, column])
    measured = {name: np.array(values, float) for name, values in (counters or {}).items()}
    sums = {} if cycles is None else {"cycles": np.array(cycles, float)}
    return IntervalPopulation(np.arange(len(dense)), of_thread.sum(axis=1), vectors, 2, sums, of_thread, measured)


NODE = {
    "coherence_answers": [[1, 3], [2, 2], [0, 0]],
    "llc_misses": [[5, 5], [0, 4], [8, 0]],
    "offcore_requests": [[10, 30], [20, 20], [9, 1]],
}


def test_every_part_sums_to_one():
    found = points_of(population(NODE), ("icv", "ccv", "mcv", "tcv"), PhaseRules(), 0)
    assert found.tolist() == [
        [0.3, 0.7, 0.25, 0.75, 0.5, 0.5, 0.25, 0.75],
        [0.5, 0.5, 0.5, 0.5, 0.0, 1.0, 0.5, 0.5],
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.9, 0.1],
    ]


def test_parts_weigh_what_the_rules_say():
    rules = PhaseRules.model_validate({"part_weights": {"ccv": 3}})
    found = points_of(population(NODE), ("ccv", "icv"), rules, 0)
    assert found[0].tolist() == pytest.approx([0.75, 2.25, 0.3, 0.7])


def test_joint_vectors_sum_to_one():
    """22 misses in 300 instructions: 100 instructions are expected to have 22 / 3. So of the first interval ICV has a
    mass of 1, MCV one of 10 * 3 / 22; a weight of 2 doubles the latter."""
    rules = PhaseRules.model_validate({"scale": "joint", "part_weights": {"mcv": 2}})
    found = points_of(population(NODE), ("icv", "mcv"), rules, 0)
    assert found.sum(axis=1) == pytest.approx(np.ones(3))
    assert found[0] == pytest.approx(np.array([0.3, 0.7, 30 / 22, 30 / 22]) / (1 + 60 / 22))


def test_joint_vectors_with_blocks_are_shrunk_by_their_mass():
    rules = PhaseRules(scale="joint", dimensions=3)
    alone = points_of(population(NODE), ("sbbv",), rules, 7)
    found = points_of(population(NODE), ("sbbv", "mcv"), rules, 7)
    assert found[:, :3] == pytest.approx(alone / (1 + np.array([10, 4, 8]) * 3 / 22)[:, None])


def test_counts_of_nothing_change_nothing():
    silent = population(NODE | {"llc_misses": [[0, 0]] * 3})
    for scale in ("interval", "joint"):
        rules = PhaseRules(scale=scale)
        with_them, without = (points_of(silent, parts, rules, 0) for parts in (("icv", "mcv"), ("icv",)))
        assert with_them.tolist() == without.tolist()
    assert points_of(silent, ("mcv",), PhaseRules(), 0).tolist() == [[0.0]] * 3


def test_only_sbbv_is_projected():
    rules = PhaseRules(dimensions=3)
    found = points_of(population(NODE), ("sbbv", "icv"), rules, 7)
    assert found.shape == (3, 5)
    assert found[:, :3] == pytest.approx(population().vectors.normalised().projected(7, 3))  # scaled by sqrt(3/3)
    assert found[:, 3:] == pytest.approx(population().thread_instructions / 100)


def test_projection_keeps_squared_distances_in_the_mean():
    """Rows (0.5, 0.5, 0, 0) and (0, 0, 0.5, 0.5) are at a squared distance of 1."""
    far = population(rows=[[1, 1, 0, 0], [0, 0, 1, 1]], of_thread=[[2, 0], [0, 2]])
    found = [points_of(far, ("sbbv",), PhaseRules(), seed) for seed in range(400)]
    assert np.mean([((a - b) ** 2).sum() for a, b in found]) == pytest.approx(1, abs=0.06)  # of 0.33 each: 4 errors


# ---- sampled blocks ----


def test_a_sample_falls_into_blocks_by_their_share():
    """100,000 samples: shares within 5 standard errors; one block of one row gets them all."""
    given = Vectors(np.array([0, 3, 4]), np.array([2, 5, 9, 5]), np.array([1e6, 3e6, 6e6, 1e7]))
    found = sampled(given, 100, 3)
    assert found.first.tolist() == [0, 3, 4]
    assert found.column.tolist() == [2, 5, 9, 5]
    assert found.value.sum() == 200_000
    assert found.value[3] == 100_000
    for value, share in zip(found.value, (0.1, 0.3, 0.6), strict=False):
        assert abs(value / 100_000 - share) < 5 * math.sqrt(share * (1 - share) / 100_000)


def test_interrupts_go_on_counting_from_row_to_row():
    """Rows of 60 instructions, an interrupt after every 100: at 100, 200 and 300."""
    given = Vectors(np.arange(7), np.zeros(6, np.int64), np.full(6, 60.0))
    assert np.diff(sampled(given, 100, 0).first).tolist() == [0, 1, 0, 1, 1, 0]


def test_an_empty_interval_has_no_samples():
    given = Vectors(np.array([0, 1, 1, 2]), np.array([0, 1]), np.array([50.0, 50.0]))
    assert sampled(given, 10, 0).value.tolist() == [5, 5]
    assert sampled(given, 10, 0).first.tolist() == [0, 1, 1, 2]


def test_without_a_period_all_instructions_count():
    given = population().vectors
    assert sampled(given, 1, 0) is given


# ---- columns ----


def test_answers_of_a_core_are_reads_by_others_and_lines_taken_from_it():
    """Row 0: thread 0 reads 7 lines of core 2, thread 1 reads 4 of core 1 and 9 of its own."""
    table = {
        "readfrom1": [[2, 4], [0, 0], [0, math.nan]],
        "readfrom2": [[7, 9], [1, 0], [0, math.nan]],
        "readfrom3": [[5, 5], [0, 0], [0, math.nan]],  # there is no third core
        "invalidated_by_others": [[1, 0], [0, 2], [6, math.nan]],
    }
    assert counts_of(population(table), "ccv").tolist() == [[4 + 1, 7], [0, 1 + 2], [6, 0]]
    without = {name: values for name, values in table.items() if name != "invalidated_by_others"}
    assert counts_of(population(without), "ccv").tolist() == [[4, 7], [0, 1], [0, 0]]


@pytest.mark.parametrize(("names", "part", "expected"), [
    (("l1i_miss", "l1d_miss", "l2_miss"), "mcv", "l2_miss"),
    (("l1d_miss", "l2_miss", "l3_miss"), "mcv", "l3_miss"),
    (("l1d_miss", "l2_miss", "l3_miss"), "tcv", "l2_miss"),
    (("l1d_miss", "l2_miss"), "tcv", "l1d_miss"),
])  # fmt: skip
def test_which_columns_are_of_the_last_cache_and_before(names, part, expected):
    table = {name: np.full((3, 2), float(number)) for number, name in enumerate(names)}
    assert counts_of(population(table), part).tolist() == table[expected].tolist()


def test_requests_are_misses_of_both_first_caches():
    table = {"l1i_miss": [[1, 2]] * 3, "l1d_miss": [[10, 20]] * 3, "l2_miss": [[1, 1]] * 3}
    assert counts_of(population(table), "tcv")[0].tolist() == [11, 22]


@pytest.mark.parametrize("part", ["ccv", "mcv", "tcv"])
def test_a_missing_column_is_named(part):
    with pytest.raises(ValueError, match=f"^{part} needs a column '.*beside the profile; there are: loads$"):
        parallel_phases.choose(population({"loads": [[1, 1]] * 3}), (part,), PhaseRules(), 0)


def test_methods_are_any_parts_once():
    assert parts_of("sbbv+ccv+mcv") == ("sbbv", "ccv", "mcv")
    assert parts_of("tcv") == ("tcv",)
    assert [parts_of(name) for name in ("simpoint", "sbbv+", "", "ccv+ccv", "sbbv ccv")] == [None] * 5


# ---- clusters ----


def test_communication_tells_apart_what_executes_the_same():
    """Section 5.1: the same blocks, but in half of the intervals core 2 answers what core 1 did."""
    same = [[25, 25, 25, 25]] * 40
    answers = [[9, 1] if number < 20 else [1, 9] for number in range(40)]
    given = population({"coherence_answers": answers}, rows=same, of_thread=[[50, 50]] * 40)
    assert len(parallel_phases.choose(given, ("sbbv",), PhaseRules(), 0).element) == 1
    found = parallel_phases.choose(given, ("sbbv", "ccv"), PhaseRules(), 0)
    assert found.weight.tolist() == [0.5, 0.5]
    assert found.element[0] < 20 <= found.element[1]
    assert len(set(found.label[:20].tolist())) == len(set(found.label[20:].tolist())) == 1


def test_counts_of_nothing_are_told():
    found = parallel_phases.choose(population(NODE | {"llc_misses": [[0, 0]] * 3}), ("icv", "mcv"), PhaseRules(), 0)
    assert told(found.notes) == ("mcv: all of its counts are 0, so it tells no intervals apart",)


@pytest.mark.contract
@pytest.mark.parametrize("parts", [parts for n in (1, 2, 3, 5) for parts in combinations(PARTS, n)])
def test_weights_of_every_combination_sum_to_one(parts):
    found = parallel_phases.choose(population(NODE), parts, PhaseRules(), 0)
    assert found.weight.sum() == pytest.approx(1, abs=1e-12)
    assert len(found.label) == 3
