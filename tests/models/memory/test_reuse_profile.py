"""Histograms of stack distances: rows in order, and what they add up to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, merged


def rows(profile: ReuseProfile) -> list[tuple[int, int, float]]:
    return list(zip(profile.site.tolist(), profile.distance.tolist(), profile.count.tolist(), strict=True))


@pytest.mark.theory
def test_equal_rows_are_added_up_in_order():
    profile = ReuseProfile.of(64, np.array([1, 0, 1, 1]), np.array([5, COLD, 5, 2]), np.array([1, 2, 3, 4]))
    assert rows(profile) == [(0, COLD, 2), (1, 2, 4), (1, 5, 4)]
    assert profile.num_accesses == 10


@pytest.mark.theory
def test_rows_that_count_nothing_are_left_out():
    profile = ReuseProfile.of(64, np.array([0, 1]), np.array([0, 0]), np.array([0.0, 1.0]))
    assert rows(profile) == [(1, 0, 1.0)]


@pytest.mark.golden
def test_blocks_recombine_when_weighed_by_accesses():
    """Blocks of 3 and 1 accesses, executed once each: weights 0.75 and 0.25, not one half each."""
    block_of_site = np.array([0, 0, 0, 1], np.int32)
    profile = ReuseProfile.of(64, np.array([0, 1, 2, 3]), np.array([1, 1, 7, 7]), np.ones(4))
    by_block = profile.relabelled(block_of_site)
    weight = [Fraction(3, 4), Fraction(1, 4)]
    conditional = [by_block.of_site(block).distribution() for block in (0, 1)]
    of_seven = sum(
        w * Fraction(float(p[d == 7].sum())).limit_denominator(100)
        for w, (d, p) in zip(weight, conditional, strict=True)
    )
    distances, probabilities = profile.distribution()
    assert Fraction(float(probabilities[distances == 7][0])) == of_seven == Fraction(1, 2)


@pytest.mark.theory
def test_first_uses_come_last_in_a_distribution():
    profile = ReuseProfile.of(64, np.array([0, 0, 1]), np.array([COLD, 3, 0]), np.array([2, 1, 1]))
    distances, probabilities = profile.distribution()
    assert distances.tolist() == [0, 3, COLD]
    assert probabilities.tolist() == [0.25, 0.25, 0.5]


@pytest.mark.theory
def test_profiles_add_up_and_whole_forgets_the_sites():
    one = ReuseProfile.of(64, np.array([0]), np.array([4]), np.array([1.0]))
    both = merged([one, ReuseProfile.of(64, np.array([0, 2]), np.array([4, 4]), np.array([2.0, 3.0]))])
    assert rows(both) == [(0, 4, 3), (2, 4, 3)]
    assert rows(both.whole()) == [(0, 4, 6)]


@pytest.mark.theory
def test_what_is_of_no_known_site_is_of_no_known_block():
    profile = ReuseProfile.of(64, np.array([-1, 0, 1]), np.array([2, 2, 2]), np.ones(3))
    assert rows(profile.relabelled(np.array([0, 5], np.int32))) == [(-1, 2, 1), (0, 2, 1), (5, 2, 1)]


@pytest.mark.property
@pytest.mark.parametrize("longest", [10, 2**62])
def test_rows_are_those_of_a_dictionary(longest):
    """However large the numbers: sites and distances that fit into one key and those that do not."""
    rng = np.random.default_rng(1)
    site = rng.integers(-1, 4, 500)
    distance = np.where(rng.random(500) < 0.5, rng.integers(-1, 5, 500), longest)
    count = rng.random(500)
    expected: dict[tuple[int, int], float] = {}
    for key, each in zip(zip(site.tolist(), distance.tolist(), strict=True), count.tolist(), strict=True):
        expected[key] = expected.get(key, 0.0) + each
    found = rows(ReuseProfile.of(64, site, distance, count))
    assert [row[:2] for row in found] == sorted(expected)
    assert [row[2] for row in found] == pytest.approx([expected[key] for key in sorted(expected)], rel=1e-12)


@pytest.mark.contract
def test_granularities_do_not_mix():
    one = ReuseProfile.of(64, np.array([0]), np.array([4]), np.array([1.0]))
    with pytest.raises(ValueError, match=r"\[8, 64\]"):
        merged([one, ReuseProfile.of(8, one.site, one.distance, one.count)])


@pytest.mark.contract
def test_an_empty_profile():
    empty = ReuseProfile.of(64, np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))
    assert empty.num_accesses == 0
    assert len(empty.distribution()[0]) == 0
