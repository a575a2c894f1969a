"""Set-aware hit ratios against a plain simulation of whole caches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from access_patterns import LINE_BYTES, joined, matmul, simulated_hits, stream, unlabelled
from cache_traces import cache
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_programs import stream as traced_stream
from memory_programs import traced

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.access_stream import accesses as accesses_of
from manyscale.models.memory.caches.page_frames import PAGE_BYTES, framed_unit, random_frames
from manyscale.models.memory.caches.set_sampling import (
    SampledHits,
    SetSample,
)

L1 = cache(32 << 10, 8)
LEVELS = [L1, cache(1 << 20, 8), cache(32 << 20, 16)]


def sampled(accesses: Accesses, levels: list[Cache], share: float, **options: object) -> SampledHits:
    caches = SetSample(levels, share, **options)  # type: ignore[arg-type]
    for unit, site in zip(np.array_split(accesses.unit, 3), np.array_split(accesses.site, 3), strict=True):
        caches.feed(Accesses(unit, site))
    return caches.hits()


def framed(line: np.ndarray, line_bytes: int) -> np.ndarray:
    """``line`` int64[n] in random frames."""
    pages = random_frames(0, PAGE_BYTES, line_bytes)
    return np.array([framed_unit(each, pages) for each in line])


@pytest.mark.property
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1 << 20),
    sets=st.sampled_from([(1, 2), (2, 8), (4, 12), (3, 5)]),
    ways=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_all_sets_are_the_plain_simulation(seed: int, sets: tuple[int, int], ways: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    line, site = rng.integers(0, 60, 800), rng.integers(0, 3, 800).astype(np.int32)
    hits = simulated_hits(line, sets[0], ways[0])
    missed = np.flatnonzero(~hits)
    hits_second = simulated_hits(line[missed], sets[1], ways[1])
    levels = [cache(LINE_BYTES * sets[level] * ways[level], ways[level]) for level in range(2)]
    reached = sampled(Accesses(line, site), levels, 1.0).reached.sum(axis=0)
    assert reached[0].tolist() == np.bincount(site, minlength=3).tolist()
    assert reached[1].tolist() == np.bincount(site[missed], minlength=3).tolist()
    assert reached[2].tolist() == np.bincount(site[missed][~hits_second], minlength=3).tolist()


@pytest.mark.property
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1 << 20))
def test_sampled_sets_see_what_they_would_see_among_all(seed: int) -> None:
    line = np.random.default_rng(seed).integers(0, 300, 3000)
    levels = [cache(LINE_BYTES * 16 * 2, 2), cache(LINE_BYTES * 32 * 4, 4)]
    every, some = (sampled(unlabelled(line), levels, share, seed=seed).reached for share in (1.0, 0.25))
    assert some.shape[0] == 4
    assert all(any((group == one).all() for one in every) for group in some)


@pytest.mark.theory
def test_a_cycle_of_one_line_too_many_in_a_set() -> None:
    """Nine lines 4 KiB apart in turn never hit in 8 ways; eight always do. A formula that knows no sets sees 9 of
    512 lines."""
    for num_lines, ratio in ((9, 0.0), (8, 1 - 8 / 4000)):
        line = np.tile(64 * np.arange(num_lines), 4000 // num_lines + 1)[:4000]
        assert sampled(unlabelled(line), [L1], 1.0).hit_ratio(0) == ratio


def test_ratios_of_levels_and_sites() -> None:
    # one group; sites 0 and 1: 100 and 50 accesses, 40 and 10 miss level 0, 10 and 10 level 1
    hits = SampledHits(np.array([[[100, 50], [40, 10], [10, 10]]]), 1)
    assert hits.hit_ratio(0) == pytest.approx(100 / 150)
    assert hits.hit_ratio(1) == pytest.approx(130 / 150)
    assert hits.hit_ratio(0, np.array([1])) == pytest.approx(0.8)
    assert hits.standard_error(0) == 0
    assert math.isnan(SampledHits(hits.reached, 64).standard_error(0))
    assert math.isnan(hits.hit_ratio(0, np.empty(0, np.int64)))


@pytest.mark.theory
def test_standard_error_by_hand() -> None:
    # hits 80 and 60 of 100 each: ratio .7, deviations 10, s^2 = 200; sqrt((1 - 2/8) 200 / 2) / 100
    hits = SampledHits(np.array([[[100], [20]], [[100], [40]]]), 8)
    assert hits.standard_error(0) == pytest.approx(math.sqrt(0.75 * 200 / 2) / 100)


def test_the_standard_error_is_honest() -> None:
    """Sets that differ at random: over seeds, estimates spread as their standard errors say."""
    rng = np.random.default_rng(5)
    line = rng.choice(4000, 60_000, p=rng.dirichlet(np.full(4000, 0.3)))
    truth = sampled(unlabelled(line), [L1], 1.0).hit_ratio(0)
    samples = [sampled(unlabelled(line), [L1], 1 / 8, seed=seed) for seed in range(40)]
    off = np.array([sample.hit_ratio(0) - truth for sample in samples])
    stated = np.array([sample.standard_error(0) for sample in samples])
    assert 0.6 < np.sqrt((off**2).mean() / (stated**2).mean()) < 1.5


@pytest.mark.peer
@pytest.mark.parametrize(("n", "rows"), [(128, 64), (400, 32)])
def test_rows_of_matmul_that_crowd_into_few_sets(n: int, rows: int) -> None:
    """Within a point, where formulas that know no sets are 44 and 27 points off."""
    _, accesses = joined(matmul(n, rows))
    truth = sampled(accesses, LEVELS, 1.0).hit_ratio(0)
    if n == 128:
        assert truth == simulated_hits(accesses.unit, L1.num_sets, L1.ways).mean()
    for seed in range(2):
        for share in (1 / 64, 1 / 16):
            assert sampled(accesses, LEVELS, share, seed=seed).hit_ratio(0) == pytest.approx(truth, abs=0.01)


@pytest.mark.peer
def test_frames_change_large_caches() -> None:
    """STREAM on 40,000 doubles, 960 KB, in 1 MiB: by virtual addresses all fit, in random frames some sets overflow."""
    _, accesses = joined(stream(40_000))
    level = cache(1 << 20, 8)
    virtual = sampled(accesses, [L1, level], 1 / 16)
    assert virtual.hit_ratio(1) == pytest.approx(simulated_hits(accesses.unit, level.num_sets, 8).mean(), abs=0.002)
    random = sampled(accesses, [L1, level], 1 / 16, frames="random")
    exact = simulated_hits(framed(accesses.unit, LINE_BYTES), level.num_sets, 8).mean()
    assert random.hit_ratio(1) == pytest.approx(exact, abs=0.005)
    assert random.hit_ratio(1) < virtual.hit_ratio(1) - 0.02
    assert random.hit_ratio(0) == pytest.approx(virtual.hit_ratio(0), abs=0.001)  # L1 is indexed within a page
    other = sampled(accesses, [L1, level], 1 / 16, frames="random", frame_seed=1)
    assert other.hit_ratio(1) != random.hit_ratio(1)


def test_frames_keep_pages_whole_and_apart() -> None:
    line = np.arange(64 * 5000)
    placed = framed(line, LINE_BYTES)
    assert len(np.unique(placed)) == len(line)
    assert (placed % 64 == line % 64).all()
    assert (placed.reshape(-1, 64) // 64 == placed[::64, None] // 64).all()
    # 5000 frames over 32 colours: chi-square of 31 degrees of freedom
    colours = np.bincount(placed[::64] // 64 % 32, minlength=32)
    assert ((colours - 156.25) ** 2 / 156.25).sum() < 70


@pytest.mark.parametrize(("levels", "share"), [([L1], 0.0), ([L1], 1.5), ([], 0.5)])
def test_bad_shares_are_refused(levels: list[Cache], share: float) -> None:
    with pytest.raises(ValueError, match="cannot be sampled"):
        SetSample(levels, share)


@pytest.mark.parametrize(
    "levels",
    [
        [cache(4096, 2), cache(8192, 2, 128)],
        [cache(4096, 2, replacement="random")],
        [cache(4096, 2), cache(8192, 2, inclusion="inclusive")],
    ],
)
def test_caches_that_no_sample_stands_for_are_refused(levels: list[Cache]) -> None:
    with pytest.raises(ValueError, match="sets are sampled of LRU caches with lines of one size, neither"):
        SetSample(levels)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(("n", "expected"), [(128, 0.495), (400, 0.470)])
def test_a_real_trace_of_matmul(n: int, expected: float) -> None:
    """All of the trace as gcc -O1 makes it; ``expected``: simulated set by set in another program."""
    block_ids, addresses, sites = traced_stream(traced("matmul", 1, n))
    accesses = accesses_of(block_ids, addresses, sites, LINE_BYTES)
    truth = sampled(accesses, LEVELS, 1.0)
    assert truth.hit_ratio(0) == pytest.approx(expected, abs=0.002)
    for seed in range(3):
        sample = sampled(accesses, LEVELS, 1 / 64, seed=seed)
        for level in range(3):
            assert sample.hit_ratio(level) == pytest.approx(truth.hit_ratio(level), abs=0.01)
