"""Extrapolated executions and profiles, against profiles whose law in the input is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from told import told

from manyscale.models.memory.amm.profile_extrapolation import (
    AMM_RECIPE,
    SITE_RECIPE,
    TrainingRun,
    extrapolate,
)
from manyscale.models.memory.amm.profile_parts import parts_of_site
from manyscale.models.memory.amm.sdcm import Geometry, hit_rate
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile

SITE_BLOCK = np.array([0, 1, 1], np.int32)
SIZES = (8, 16, 24, 32, 40)
L1 = Geometry(8, 512, 64)


def run_of(x: int, *, rows: list[tuple[int, int, float]] | None = None, granularity: int = 64) -> TrainingRun:
    """Two blocks, executed x and x^3 times; site 0 once per unit, sites 1 and 2 at distances of which one stays, one
    grows as 2 x + 1 and one as x^2."""
    table = rows or [
        (0, COLD, x),
        (1, 1, 7 * x**3 // 8),
        (1, 2 * x + 1, x**3 // 8),
        (2, 0, 3 * x**3 // 4),
        (2, x**2, x**3 // 4 - x**2),
        (2, COLD, x**2),
    ]
    site, distance, count = np.array(table).T
    return TrainingRun(x, np.array([x, x**3]), ReuseProfile.of(granularity, site, distance, count))


def assert_equal(found: ReuseProfile, expected: ReuseProfile) -> None:
    assert found.site.tolist() == expected.site.tolist()
    assert found.distance.tolist() == expected.distance.tolist()
    assert found.count == pytest.approx(expected.count, rel=1e-9)


@pytest.mark.theory
@pytest.mark.parametrize("target", [12, 48, 80, 400])
def test_exact_laws_are_found(target):
    found = extrapolate([run_of(x) for x in SIZES], SITE_BLOCK, target)
    assert found.executions.tolist() == [target, target**3]
    assert found.fewest_executions.tolist() == found.most_executions.tolist() == found.executions.tolist()
    for profile in (found.profile, found.shortest, found.longest):
        assert_equal(profile, run_of(target).profile)
    rate = found.hit_rate(L1)
    assert rate.value == pytest.approx(hit_rate(run_of(target).profile, L1), abs=1e-12)
    assert rate.low == pytest.approx(rate.high, abs=1e-12)


@pytest.mark.theory
def test_the_amm_recipe_is_per_block():
    """Eq. 9: the first distances stay. The two that grow are one group of five bins of equal shares."""
    found = extrapolate([run_of(x) for x in SIZES], SITE_BLOCK, 48, AMM_RECIPE)
    assert set(found.profile.site.tolist()) == {0, 1}
    of_block = found.profile.of_site(1)
    assert of_block.distance.tolist()[:3] == [COLD, 0, 1]
    assert len(of_block.distance) <= 3 + 5
    assert found.profile.num_accesses == pytest.approx(run_of(48).profile.num_accesses)


@pytest.mark.property
@settings(deadline=None)
@given(
    st.lists(st.integers(2, 60), min_size=3, max_size=8, unique=True),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
    st.sampled_from([SITE_RECIPE, AMM_RECIPE]),
)
def test_predictions_are_profiles(sizes, target, seed, recipe):
    """Whatever the runs show: the accesses are those of the sites, distances are at least 0, rates within [0, 1] and
    their band, and the order of runs does not matter."""
    generator = np.random.default_rng(seed)
    runs = []
    for size in sizes:
        num_rows = 12
        site = np.concatenate(([0, 1, 2], generator.integers(0, 3, num_rows)))
        distance = np.concatenate(([0, 0, 0], generator.integers(-1, 3 * size, num_rows)))
        count = generator.integers(1, 1 + size**2, num_rows + 3)
        runs.append(TrainingRun(size, generator.integers(1, 100, 2), ReuseProfile.of(64, site, distance, count)))
    try:
        found = extrapolate(runs, SITE_BLOCK, target, recipe)
    except ValueError:
        assume(False)  # all counts fall to 0: refused
    of_site = [np.bincount(each.site, each.count, 3) for each in (found.profile, found.shortest, found.longest)]
    assert of_site[1] == pytest.approx(of_site[0])
    assert of_site[2] == pytest.approx(of_site[0])
    for profile in (found.profile, found.shortest, found.longest):
        assert (profile.distance >= COLD).all()
        assert (profile.count > 0).all()
    assert (found.fewest_executions <= found.executions).all()
    assert (found.executions <= found.most_executions).all()
    assert (found.fewest_executions >= 0).all()
    for geometry in (L1, Geometry(1, 16, 64)):
        rate = found.hit_rate(geometry)
        assert 0 <= rate.low <= rate.value <= rate.high <= 1
    again = extrapolate(runs[::-1], SITE_BLOCK, target, recipe)
    assert_equal(again.profile, found.profile)


@pytest.mark.theory
def test_no_distance_exceeds_the_units():
    """x units that are touched in turn, again and again, at distances that noise bends upwards."""
    noise = {8: 0, 16: -3, 24: 0, 32: 1, 40: 0}
    runs = [
        run_of(x, rows=[(0, COLD, x), (0, x - 1 + noise[x] - (3 if x == 40 else 1), 9 * x), (1, 0, 1), (2, 0, 1)])
        for x in SIZES
    ]
    found = extrapolate(runs, SITE_BLOCK, 400)
    assert found.profile.distance.max() <= 399
    assert found.longest.distance.max() <= 399


@pytest.mark.theory
def test_overlapping_ranges_are_no_distances_that_stay():
    """Runs near each other: distances 1000..1999 and 1300..2599 have most in common, but all of them grow."""
    runs = [
        run_of(x, rows=[(0, 3, 400 * x), *((0, d, 1) for d in range(100 * x, 200 * x)), (1, 0, 1), (2, 0, 1)])
        for x in (10, 11, 12, 13)
    ]
    found = extrapolate(runs, SITE_BLOCK, 100).profile.of_site(0)
    assert found.distance[0] == 3
    assert found.count[0] == pytest.approx(40_000)
    assert found.distance[1] == pytest.approx(10_000, rel=0.02)
    assert found.distance[-1] == pytest.approx(20_000, rel=0.02)
    assert found.distance[1:] @ found.count[1:] == pytest.approx(14_999.5 * 10_000, rel=0.01)


@pytest.mark.theory
def test_parts_of_a_profile():
    def of(x):
        return run_of(x, rows=[(0, COLD, x), (0, 1, 700), (0, 4 * x, 200), (0, 4 * x + 2, 50), (0, 9 * x, 50)]).profile

    parts = parts_of_site(0, [of(x) for x in SIZES], np.arange(5), 4, 2, True)
    assert [part.is_cold for part in parts] == [True, False, False, False]
    assert [part.counts.tolist() for part in parts] == [list(map(float, SIZES)), [700] * 5, [250] * 5, [50] * 5]
    assert parts[1].distances.tolist() == [[1]] * 5
    # two bins of 125: one at 4 x, the other 75 at 4 x and 50 at 4 x + 2
    assert parts[2].distances == pytest.approx(np.array([[4 * x, 4 * x + 2 * 50 / 125] for x in SIZES]))
    one_group = parts_of_site(0, [of(x) for x in SIZES], np.arange(5), 4, 2, False)
    assert [part.counts[0] for part in one_group] == [8, 700, 300]


@pytest.mark.theory
def test_groups_are_told_from_the_runs_that_have_as_many():
    """At 8 both distances are too near each other to be two groups."""
    runs = [run_of(x, rows=[(0, x, 100), (0, x**2 // 8, 100), (1, 0, 1), (2, 0, 1)]) for x in (10, 16, 24, 32, 40)]
    found = extrapolate(runs, SITE_BLOCK, 80).profile.of_site(0)
    assert found.distance.tolist() == [80, 800]
    assert found.count == pytest.approx([100, 100])


@pytest.mark.theory
def test_a_path_that_only_large_inputs_take():
    """Block 1 is executed from 24 on; up to 16 block 0 does its work."""

    def run(x):
        rows = [(0, 2, 10 * x), (2, 0, 1)] if x < 24 else [(0, 2, 1), (1, 5, 10 * x), (2, 0, 1)]
        return TrainingRun(x, np.array([x, x if x >= 24 else 0]), run_of(x, rows=rows).profile)

    runs = [run(x) for x in (8, 16, 24, 32, 40)]
    large = extrapolate(runs, SITE_BLOCK, 100)
    assert large.executions.tolist() == [100, 100]
    assert large.profile.of_site(1).count == pytest.approx([1000])
    assert any("some of the runs do not execute" in note for note in told(large.notes))
    small = extrapolate(runs, SITE_BLOCK, 10)
    assert small.executions.tolist() == [10, 0]
    assert not len(small.profile.of_site(1).count)


@pytest.mark.theory
def test_a_path_of_one_run_grows_as_the_others():
    runs = [run_of(x, rows=[(0, 2, 10 * x), *([(1, 3, 40)] if x == 40 else []), (2, 0, 1)]) for x in SIZES]
    found = extrapolate(runs, SITE_BLOCK, 80)
    assert found.profile.of_site(1).count == pytest.approx([80], abs=1)
    assert found.hit_rate(Geometry(4, 4, 64)).low < found.hit_rate(Geometry(4, 4, 64)).value


@pytest.mark.theory
def test_profiles_without_growth_stay():
    runs = [run_of(x, rows=[(0, COLD, 5), (1, 3, 100), (2, 7, 20)]) for x in SIZES]
    assert_equal(extrapolate(runs, SITE_BLOCK, 500).profile, runs[0].profile)


@pytest.mark.theory
def test_what_does_not_matter_is_scaled():
    """A site of one access in a thousand million keeps the profile of the largest run."""
    runs = [run_of(x, rows=[(0, 1, 10**9), (1, x * x % 7, x), (2, 1, 10**9)]) for x in SIZES]
    found = extrapolate(runs, SITE_BLOCK, 80).profile.of_site(1)
    assert (found.distance.tolist(), found.count.tolist()) == ([40 * 40 % 7], [80])


@pytest.mark.theory
@pytest.mark.parametrize("taken", [{8: 2, 12: 4, 16: 4, 20: 7, 24: 7}, {8: 3, 16: 5, 24: 6}])
def test_branches_that_data_decide_are_a_share_of_their_loop(taken):
    """Counts of about 30 % of x: neither a constant, nor a parabola through them."""
    runs = [
        TrainingRun(x, np.array([x, n]), run_of(x, rows=[(0, 1, x), (1, 1, n), (2, 1, n)]).profile)
        for x, n in taken.items()
    ]
    found = extrapolate(runs, SITE_BLOCK, 240)
    assert found.executions[1] == pytest.approx(72, rel=0.25)
    assert found.fewest_executions[1] < 72 < found.most_executions[1]


@pytest.mark.theory
def test_branches_of_divide_and_conquer_grow_as_their_own_loop():
    """A transform's swaps (as many as bits of an index differ when reversed) are a share of its n - 1 turns, not of its
    n/2 log2 n butterflies, which are most of what is executed."""
    sizes = 2 ** np.arange(6, 12)

    def run(n):
        m = int(np.log2(n))
        swaps = (n - 2 ** ((m + 1) // 2)) // 2
        counts = np.array([n - 1, swaps, n // 2 * m])
        rows = [(site, 1, count) for site, count in enumerate(counts)]
        return TrainingRun(n, counts, run_of(n, rows=rows).profile)

    found = extrapolate([run(n) for n in sizes.tolist()], np.array([0, 1, 2], np.int32), 65536)
    assert found.executions[[0, 2]].tolist() == [65535, 524288]
    assert found.executions[1] == pytest.approx((65536 - 256) / 2, rel=0.05)
    assert found.profile.num_accesses == pytest.approx(65535 + 32640 + 524288, rel=0.003)


@pytest.mark.theory
def test_exact_counts_stay_exact():
    """Five accesses in x^3: no parabola in 1/x."""
    runs = [run_of(x, rows=[(0, 1, x**3 - 5), (0, 10 * x, 5), (1, 0, 1)]) for x in SIZES]
    found = extrapolate(runs, SITE_BLOCK, 400).profile.of_site(0)
    assert found.distance.tolist() == [1, 4000]
    assert found.count == pytest.approx([400**3 - 5, 5], rel=1e-6)


@pytest.mark.theory
def test_first_uses_need_not_grow_with_the_accesses():
    """A table of some ten units, looked up 12 x times."""
    cold = {8: 9, 16: 11, 24: 10, 32: 10, 40: 11}
    runs = [run_of(x, rows=[(0, COLD, n), (0, 5, 12 * x - n), (1, 0, 1)]) for x, n in cold.items()]
    found = extrapolate(runs, SITE_BLOCK, 4000).profile.of_site(0)
    assert found.count[0] == pytest.approx(10, abs=2)


@pytest.mark.theory
def test_the_ends_of_the_band_are_on_both_sides():
    """Half of the accesses, give or take some, are at distance 1, the others at 1000 and more, or first uses."""
    near = {8: 0.5, 16: 0.45, 24: 0.55, 32: 0.5, 40: 0.48}
    runs = [
        run_of(
            x, rows=[(0, 1, round(100 * x * n)), (0, 130 * x + 2 ** (x // 8), 100 * x - round(100 * x * n)), (1, 0, 1)]
        )
        for x, n in near.items()
    ]
    found = extrapolate(runs, SITE_BLOCK, 80)
    shares = [each.of_site(0).count[0] / 8000 for each in (found.longest, found.profile, found.shortest)]
    assert shares[0] + 0.01 < shares[1] < shares[2] - 0.01
    assert shares[1] == pytest.approx(0.5, abs=0.06)
    distances = [each.of_site(0).distance[-1] for each in (found.shortest, found.profile, found.longest)]
    assert distances[0] < distances[1] < distances[2]
    rate = found.hit_rate(L1)
    assert rate.low + 0.01 < rate.value < rate.high - 0.01


@pytest.mark.contract
def test_notes_tell_doubts():
    def notes(sizes, target, **options):
        return " ".join(told(extrapolate([run_of(x, **options) for x in sizes], SITE_BLOCK, target).notes))

    assert notes(SIZES, 80) == ""
    assert "inputs 12, 20 are not congruent to 80 modulo the 8 elements of a unit" in notes((8, 12, 16, 20, 24), 80)
    assert "congruent" not in notes((8, 12, 16, 20, 24), 80, granularity=8)
    assert "times the largest" not in notes(SIZES, 640)
    assert "16.2 times the largest" in notes(SIZES, 648)
    few = extrapolate([run_of(x) for x in SIZES[1:]], SITE_BLOCK, 80)
    assert any("have counts whose polynomial is of the highest degree tried" in note for note in told(few.notes))
    assert few.executions[0] == 80
    assert few.executions[1] != 80**3
    assert few.fewest_executions[1] < 80**3 < few.most_executions[1]
    assert any("leave open whether there are" in note for note in told(few.notes))
    steep = {x: [(0, 1, x), (1, 3 * x, x), (2, x**3 // 8, 100 * x)] for x in SIZES}
    found = extrapolate([run_of(x, rows=rows) for x, rows in steep.items()], SITE_BLOCK, 80)
    assert any("have distances whose polynomial is of the highest degree" in note for note in told(found.notes))


@pytest.mark.contract
@pytest.mark.parametrize(
    ("runs", "target", "message"),
    [
        ([run_of(8)], 80, "need at least 3"),
        ([run_of(8), run_of(16)], 80, "need at least 3"),
        ([run_of(8), run_of(16), run_of(16)], 80, "2 runs of an input of 16"),
        ([run_of(8), run_of(16), run_of(24)], 0, "not all positive"),
        ([run_of(8), run_of(16), run_of(24, granularity=8)], 80, "different granularities"),
        ([run_of(8), run_of(16), TrainingRun(24, np.array([24, -1]), run_of(24).profile)], 80, "negative"),
        ([run_of(8), run_of(16), TrainingRun(24, np.array([24]), run_of(24).profile)], 80, "numbers of blocks"),
        ([run_of(8), run_of(16), run_of(24, rows=[(3, 0, 1)])], 80, "sites outside"),
        (
            [run_of(8), run_of(16), TrainingRun(24, np.array([0, 0]), run_of(24).profile.of_site(7))],
            80,
            "empty",
        ),
    ],
)
def test_bad_runs_are_refused(runs, target, message):
    with pytest.raises(ValueError, match=message):
        extrapolate(runs, SITE_BLOCK, target)


@pytest.mark.contract
def test_a_site_of_no_block_is_refused():
    with pytest.raises(ValueError, match="blocks outside"):
        extrapolate([run_of(x) for x in SIZES], np.array([0, 1, 2]), 80)
