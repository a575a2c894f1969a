"""Profiles counted while a stream passes, in steady state, in bins, and merged from segments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_stack import naive_distances, traced_stream

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.histogram import (
    MAX_DISTANCE,
    PIECE,
    DistanceHistogram,
    reuse_profile,
)
from manyscale.models.memory.distances.segments import merge, segment_result
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, merged

BYTES = 64
A, B, C = 10, 20, 30

streams = st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 3)), max_size=150).map(
    lambda rows: Accesses(np.array([r[0] for r in rows], np.int64), np.array([r[1] for r in rows], np.int32))
)


def stream(units: list[int]) -> Accesses:
    return Accesses(np.array(units, np.int64), np.zeros(len(units), np.int32))


def rows(profile: ReuseProfile) -> list[tuple[int, int, float]]:
    return list(zip(profile.site.tolist(), profile.distance.tolist(), profile.count.tolist(), strict=True))


def naive(accesses: Accesses, passes: int = 1) -> ReuseProfile:
    """The profile of the last of so many passes of a stream."""
    distance = naive_distances(np.tile(accesses.unit, passes).tolist())[(passes - 1) * len(accesses.unit) :]
    return ReuseProfile.of(BYTES, accesses.site, np.array(distance, np.int64), np.ones(len(distance)))


def cut(accesses: Accesses, places: list[int]) -> list[Accesses]:
    at = sorted(min(place, len(accesses.unit)) for place in places)
    return [Accesses(*pair) for pair in zip(np.split(accesses.unit, at), np.split(accesses.site, at), strict=True)]


def assert_same_bytes(one: ReuseProfile, other: ReuseProfile) -> None:
    assert one.granularity_bytes == other.granularity_bytes
    for name in ("site", "distance", "count"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes(), name


def merged_segments(segments: list[Accesses], steady: bool = False, max_relative_error: float = 0.0) -> ReuseProfile:
    results = [segment_result(segment, BYTES, max_relative_error=max_relative_error) for segment in segments]
    return merge(results, BYTES, steady=steady, max_relative_error=max_relative_error)


@pytest.mark.theory
def test_a_segment_by_hand():
    """A B B A C: only the second B (0) and A (1) are uses again; A is used after B, and C last."""
    result = segment_result(Accesses(np.array([A, B, B, A, C]), np.arange(5, dtype=np.int32)), BYTES)
    assert {name: column.tolist() for name, column in result.items()} == {
        "site": [2, 3],
        "distance": [0, 1],
        "count": [1.0, 1.0],
        "first_unit": [A, B, C],
        "first_site": [0, 1, 4],
        "last_unit": [B, A, C],
    }


@pytest.mark.theory
def test_two_segments_by_hand():
    """A B A | B C A: behind the last B lies A; behind the last A lie B and C, which the segment used first."""
    profile = merged_segments([stream([A, B, A]), stream([B, C, A])])
    assert rows(profile) == [(0, COLD, 3), (0, 1, 2), (0, 2, 1)]


@pytest.mark.theory
def test_steady_state_by_hand():
    """A B A C, after the same: behind the last A lies C; behind B lie A, C; behind C lie A and B."""
    assert rows(reuse_profile([stream([A, B, A, C])], BYTES, steady=True)) == [(0, 1, 2), (0, 2, 2)]


@pytest.mark.property
@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 150), max_size=6))
def test_segments_cut_anywhere_and_batches_equal_an_lru_stack(accesses: Accesses, places: list[int]):
    expected = naive(accesses)
    assert_same_bytes(merged_segments(cut(accesses, places)), expected)
    assert_same_bytes(reuse_profile(cut(accesses, places), BYTES), expected)


@pytest.mark.property
@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 150), max_size=4))
def test_steady_state_equals_the_second_of_two_passes(accesses: Accesses, places: list[int]):
    expected = naive(accesses, passes=2)
    assert COLD not in expected.distance
    assert_same_bytes(expected, naive(accesses, passes=3))
    assert_same_bytes(reuse_profile(cut(accesses, places), BYTES, steady=True), expected)
    assert_same_bytes(merged_segments(cut(accesses, places), steady=True), expected)


@pytest.mark.property
@pytest.mark.parametrize("granularity_bytes", [1, 8, 64])
@pytest.mark.parametrize("steady", [False, True])
def test_segments_of_a_trace(granularity_bytes: int, steady: bool):
    accesses = traced_stream("matmul25_O1.lk.xz", granularity_bytes)
    whole = reuse_profile([accesses], BYTES, steady=steady)
    assert whole.num_accesses == len(accesses.unit)
    assert_same_bytes(merged_segments(cut(accesses, [1, 500, 501, 20_000]), steady), whole)
    if not steady:
        assert_same_bytes(whole, naive(accesses))


@pytest.mark.property
def test_many_accesses_pairs_and_units():
    """Beyond one piece and the first tables."""
    random = np.random.default_rng(3)
    accesses = Accesses(
        random.integers(0, 20_000, 3 * PIECE + 5), random.integers(0, 50, 3 * PIECE + 5).astype(np.int32)
    )
    whole = reuse_profile([accesses], BYTES)
    assert len(whole.count) > 100_000
    assert whole.count[whole.distance == COLD].sum() == len(np.unique(accesses.unit))
    assert np.all(np.diff(whole.site.astype(np.int64) << 40 | (whole.distance + 1)) > 0)
    assert_same_bytes(merged_segments(cut(accesses, [PIECE + 1, 2 * PIECE])), whole)


@pytest.mark.golden
def test_blocks_recombine_exactly_when_weighed_by_accesses():
    """Blocks of 3 and 1 accesses, executed once each: P(D) is 0.75 of one and 0.25 of the other."""
    accesses = Accesses(np.array([A, B, A, B]), np.arange(4, dtype=np.int32))
    by_block = reuse_profile([accesses], BYTES).relabelled(np.array([0, 0, 0, 1], np.int32))
    first, second = by_block.of_site(0), by_block.of_site(1)
    assert rows(first) == [(0, COLD, 2), (0, 1, 1)]
    assert rows(second) == [(1, 1, 1)]
    distances, whole = by_block.distribution()
    assert distances.tolist() == [1, COLD]
    assert whole.tolist() == [0.75 * (1 / 3) + 0.25 * 1, 0.75 * (2 / 3) + 0.25 * 0] == [0.5, 0.5]


@pytest.mark.property
def test_blocks_of_a_trace_recombine_to_the_whole():
    accesses = traced_stream("bs16_O1.lk.xz", 64)
    profile = reuse_profile([accesses], BYTES)
    parts = [profile.of_site(site) for site in np.unique(profile.site)]
    assert_same_bytes(merged(parts), profile)
    total = {}
    for part in parts:
        for distance, probability in zip(*part.distribution(), strict=True):
            weight = part.num_accesses / profile.num_accesses
            total[int(distance)] = total.get(int(distance), 0.0) + weight * probability
    distances, whole = profile.distribution()
    np.testing.assert_allclose([total[int(d)] for d in distances], whole, rtol=1e-12)


@pytest.mark.theory
@pytest.mark.parametrize("bound", [0.5, 0.3, 0.1, 1 / 64, 1e-3])
def test_bins_keep_their_bound_and_are_few(bound: float):
    histogram = DistanceHistogram(bound)
    # one distance per site, so that each row tells what became of its own
    distance = np.unique(np.geomspace(1, MAX_DISTANCE, 20_000).astype(np.int64))
    distance = np.concatenate(([COLD, 0], distance))
    histogram.add(np.arange(len(distance), dtype=np.int32), distance)
    told = histogram.profile(BYTES).distance
    assert np.all(np.abs(told - distance) <= bound * np.maximum(distance, 0))
    is_small = distance * bound < 1
    assert np.array_equal(told[is_small], distance[is_small])
    # between two powers of two stand at most 2 / bound bins
    num_bins = len(np.unique(told))
    assert num_bins <= 2 + 32 * 2 / bound
    assert bound < 0.01 or num_bins < len(distance) / 4


@pytest.mark.property
def test_segments_counted_in_bins_equal_the_whole_in_bins():
    random = np.random.default_rng(5)
    accesses = Accesses(random.integers(0, 3000, 30_000), np.zeros(30_000, np.int32))
    binned = reuse_profile([accesses], BYTES, max_relative_error=0.05)
    exact = reuse_profile([accesses], BYTES)
    assert len(binned.count) < len(exact.count) / 10
    assert binned.num_accesses == exact.num_accesses
    assert_same_bytes(merged_segments(cut(accesses, [7, 10_000]), max_relative_error=0.05), binned)


@pytest.mark.contract
def test_bad_bounds_and_distances_are_refused():
    for bound in (-0.1, 0.6):
        with pytest.raises(ValueError, match="relative error"):
            DistanceHistogram(bound)
    for distance in (-2, MAX_DISTANCE + 1):
        with pytest.raises(ValueError, match="are not in -1 to"):
            DistanceHistogram().add(np.array([0], np.int32), np.array([distance]))


@pytest.mark.theory
def test_empty_streams():
    empty = stream([])
    assert rows(reuse_profile([], BYTES)) == rows(reuse_profile([empty], BYTES, steady=True)) == []
    assert rows(merged_segments([empty, stream([A]), empty, stream([A])])) == [(0, COLD, 1), (0, 0, 1)]
