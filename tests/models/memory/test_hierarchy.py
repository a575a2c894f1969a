"""Caches against what theory and worked examples say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cache_traces import Trace, cache, fed, loads_of, mixed_trace, tlb, totals

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.access_stream import Sites
from manyscale.models.memory.caches.counts import Counter, Reference
from manyscale.models.memory.caches.hierarchy import CacheHierarchy
from manyscale.models.memory.distances.stack_distance import StackDistances

HITS, MISSES = Counter.load_hits, Counter.load_misses
both_kernels = pytest.mark.parametrize("plain", [True, False])
A, B, C, D, E = range(5)


def one(level: Cache, trace: Trace, **options: Any) -> CacheHierarchy:
    return fed(CacheHierarchy({"L1D": level}, **options), trace)


def full(num_lines: int, **others: object) -> Cache:
    """Fully associative."""
    return cache(64 * num_lines, num_lines, **others)


@pytest.mark.theory
@both_kernels
def test_a_sequential_stream_misses_once_per_line(plain: bool) -> None:
    address = np.arange(0, 1 << 18, 8, dtype=np.uint64)
    trace = Trace(address, np.full(len(address), 8, np.int32), np.zeros(len(address), bool))
    hierarchy = one(cache(32768, 8), trace, plain=plain)
    assert totals(hierarchy, "L1D", MISSES, HITS) == (4096, 32768 - 4096)
    assert totals(hierarchy, "memory", HITS) == (4096,)


@pytest.mark.theory
@both_kernels
def test_a_cyclic_sweep_under_lru(plain: bool) -> None:
    """Of as many lines as the cache holds: cold misses alone. Of one more: a miss each."""
    fits, exceeds = (loads_of(np.tile(np.arange(n), 10)) for n in (16, 17))
    assert totals(one(full(16), fits, plain=plain), "L1D", MISSES) == (16,)
    assert totals(one(full(16), exceeds, plain=plain), "L1D", MISSES) == (170,)


@pytest.mark.theory
@both_kernels
def test_fully_associative_lru_is_stack_distance(plain: bool) -> None:
    trace = mixed_trace(5000, 3)
    distance = StackDistances().feed((trace.address >> np.uint64(6)).astype(np.int64))
    for num_lines in (1, 7, 32):
        hierarchy = one(full(num_lines), trace, plain=plain)
        hits = ((distance >= 0) & (distance < num_lines)).sum()
        assert sum(totals(hierarchy, "L1D", HITS, Counter.store_hits)) == hits


@pytest.mark.theory
def test_exclusive_levels_hold_the_sum_of_both() -> None:
    """Under LRU: two fully associative levels of 8 and 24 lines miss what one of 32 misses."""
    trace = mixed_trace(5000, 4)
    distance = StackDistances().feed((trace.address >> np.uint64(6)).astype(np.int64))
    hierarchy = fed(CacheHierarchy({"L1D": full(8), "L2": full(24, inclusion="exclusive")}), trace)
    assert totals(hierarchy, "L2", MISSES) == (((distance < 0) | (distance >= 32)).sum(),)
    assert totals(hierarchy, "L2", HITS) == (((distance >= 8) & (distance < 32)).sum(),)
    dirty = one(full(32), trace)
    assert totals(hierarchy, "L2", Counter.write_backs) == totals(dirty, "L1D", Counter.write_backs)


@pytest.mark.contract
@pytest.mark.parametrize("second", [{}, {"inclusion": "inclusive"}])
@pytest.mark.parametrize("prefetcher", [{}, {"prefetcher": {}}])
def test_what_is_done_at_once_is_what_requests_do(second: dict, prefetcher: dict) -> None:
    """Beside a core that does nothing every request is made step by step, alone most come to an end at once."""
    levels = {
        "L1": cache(1024, 2, **prefetcher), "L2": cache(2048, 4, **second), "L3": cache(8192, 8, inclusion="exclusive"),
    }  # fmt: skip
    draws = np.random.default_rng(1)
    kind = draws.integers(0, 3, 20_000)
    lines = np.choose(
        kind, [draws.integers(0, 160, 20_000), np.arange(20_000) // 8 % 313, draws.zipf(1.3, 20_000) % 400]
    )
    stores = draws.random(20_000) < 0.3
    counted = []
    for num_cores in (1, 2):
        hierarchy = CacheHierarchy(levels, {}, num_cores=num_cores, num_sites=3)
        core = np.zeros(20_000, np.int32)
        hierarchy.feed(
            (lines * 64).astype(np.uint64), np.full(20_000, 8, np.int32), stores, kind.astype(np.int32), core
        )
        counted.append(hierarchy.counts().values[:, :, 0])
    assert np.array_equal(*counted)
    assert counted[0][1:, Counter.load_misses].sum() > 5000


@pytest.mark.theory
def test_exclusive_or_not_when_both_sweep() -> None:
    sweep = loads_of(np.tile(np.arange(32), 5))
    exclusive = fed(CacheHierarchy({"L1D": full(8), "L2": full(24, inclusion="exclusive")}), sweep)
    neither = fed(CacheHierarchy({"L1D": full(8), "L2": full(24)}), sweep)
    assert totals(exclusive, "memory", HITS) == (32,)
    assert totals(neither, "memory", HITS) == (160,)


@pytest.mark.golden
def test_inclusive_levels_take_lines_back() -> None:
    """A, B, A, C in two levels of two lines. The second sees A, B, C, so it evicts A, which the first uses most: an
    inclusive one takes it from the first, else the first evicts B."""
    trace = loads_of([A, B, A, C, A])
    trace.is_store[0] = True
    inclusive = fed(CacheHierarchy({"L1D": full(2), "L2": full(2, inclusion="inclusive")}), trace)
    neither = fed(CacheHierarchy({"L1D": full(2), "L2": full(2)}), trace)
    assert totals(inclusive, "L1D", HITS, MISSES, Counter.back_invalidations) == (1, 3, 2)  # A; then B, when A returns
    assert totals(inclusive, "L2", Counter.write_backs, Counter.evictions) == (1, 2)
    assert totals(neither, "L1D", HITS, MISSES, Counter.back_invalidations) == (2, 2, 0)
    assert totals(neither, "memory", Counter.victim_hits) == (0,)


@pytest.mark.theory
def test_what_an_inclusive_level_is_handed_it_holds() -> None:
    levels = {"L1D": cache(4096, 4), "L2": cache(8192, 2, inclusion="inclusive"), "L3": cache(16384, 4)}
    hierarchy = fed(CacheHierarchy(levels), mixed_trace(5000, 5))
    hits, misses, back = totals(hierarchy, "L2", Counter.victim_hits, Counter.victim_misses, Counter.evictions)
    assert hits > 100
    assert back > 100
    assert misses == 0
    assert totals(hierarchy, "L3", Counter.victim_misses) > (0,)


@pytest.mark.golden
def test_tree_plru() -> None:
    """A to D fill four ways. The last was on the right, so E goes left, and there away from B: over A. Then A comes
    over C, not over the oldest, B, which hits. LRU misses all."""
    trace = loads_of([A, B, C, D, E, A, B])
    assert totals(one(full(4, replacement="tree-plru"), trace), "L1D", MISSES, HITS) == (6, 1)
    assert totals(one(full(4), trace), "L1D", MISSES, HITS) == (7, 0)


@pytest.mark.theory
@pytest.mark.parametrize("num_lines", [2, 8])
def test_random_replacement_of_a_cyclic_sweep(num_lines: int) -> None:
    """Over N + 1 lines: 2 / (N + 1) miss. (How far ahead the line lies that is not there goes down by one with each
    hit, and is even over 0 to N - 1 after a miss.)"""
    sweep = loads_of(np.arange(90_000) % (num_lines + 1))
    (misses,) = totals(one(full(num_lines, replacement="random"), sweep), "L1D", MISSES)
    assert misses / 90_000 == pytest.approx(2 / (num_lines + 1), rel=0.02)
    (others,) = totals(one(full(num_lines, replacement="random"), sweep, seed=1), "L1D", MISSES)
    assert others != misses


@pytest.mark.theory
@both_kernels
def test_each_dirty_line_is_written_back_once(plain: bool) -> None:
    stores = loads_of(np.arange(100))
    stores.is_store[:] = True
    hierarchy = one(full(16), stores, plain=plain)
    assert totals(hierarchy, "L1D", Counter.evictions, Counter.write_backs) == (84, 84)
    assert totals(hierarchy, "L1D", Counter.fetched_bytes, Counter.written_bytes) == (6400, 84 * 64)
    assert totals(hierarchy, "memory", Counter.victim_hits, Counter.store_hits) == (84, 0)


@pytest.mark.golden
def test_write_through_without_allocation() -> None:
    """Store A (misses, stays out), load A, store A (hits): both stores reach memory, no line is dirty."""
    trace = loads_of([A, A, A])
    trace.is_store[:] = [True, False, True]
    hierarchy = one(full(2, write="write-through", write_allocate=False), trace)
    assert totals(hierarchy, "L1D", Counter.store_misses, MISSES, Counter.store_hits) == (1, 1, 1)
    assert totals(hierarchy, "memory", Counter.store_hits, HITS, Counter.victim_hits) == (2, 1, 0)
    assert totals(hierarchy, "L1D", Counter.written_bytes, Counter.fetched_bytes) == (16, 64)


@pytest.mark.golden
def test_sectors_miss_one_by_one() -> None:
    address = np.array([0, 8, 16, 56, 0], np.uint64)
    trace = Trace(address, np.full(5, 8, np.int32), np.array([False, False, True, False, False]))
    hierarchy = one(full(4, sector="16 B"), trace)
    assert totals(hierarchy, "L1D", MISSES, Counter.store_misses, HITS, Counter.sector_misses) == (2, 1, 2, 2)
    assert totals(hierarchy, "L1D", Counter.fetched_bytes) == (48,)


@pytest.mark.golden
@pytest.mark.parametrize("step", [1, -1])
def test_the_prefetcher_follows_streams(step: int) -> None:
    """Of the 64 lines of a page three miss: the first begins a stream, two confirm it. What is then fetched, two
    lines at a time, ends with the page."""
    prefetcher = {"streams": 4, "confirm": 2, "degree": 2, "distance": 16}
    sweep = loads_of((np.arange(64) + 64)[::step])
    hierarchy = one(cache(32768, 8, prefetcher=prefetcher), sweep)
    assert totals(hierarchy, "L1D", MISSES, Counter.prefetches, Counter.useful_prefetches) == (3, 61, 61)
    assert totals(hierarchy, "memory", Counter.prefetch_hits, HITS) == (61, 3)
    strided = one(cache(32768, 8, prefetcher=prefetcher), loads_of(2 * np.arange(64)))
    assert totals(strided, "L1D", MISSES, Counter.prefetches) == (64, 0)


@pytest.mark.golden
def test_the_prefetcher_keeps_its_distance_and_its_streams() -> None:
    prefetcher = {"streams": 1, "confirm": 1, "degree": 8, "distance": 3}
    near = one(cache(32768, 8, prefetcher=prefetcher), loads_of([0, 1]))
    assert totals(near, "L1D", Counter.prefetches, Counter.useful_prefetches) == (3, 0)  # 2, 3, 4
    apart = one(cache(32768, 8, prefetcher=prefetcher), loads_of([0, 64, 1, 65, 2, 66]))
    assert totals(apart, "L1D", Counter.prefetches) == (0,)
    two = one(cache(32768, 8, prefetcher={**prefetcher, "streams": 2}), loads_of([0, 64, 1, 65, 2, 66]))
    assert totals(two, "L1D", Counter.prefetches, Counter.useful_prefetches) == (8, 2)


@pytest.mark.theory
def test_each_level_has_its_own_streams() -> None:
    """The second hit of line 0 is the first level's alone: that begins its stream anew, so that 6 is no neighbour of 5,
    as it is to the second level, which sees 0, 5, 6."""
    prefetcher = {"streams": 1, "confirm": 1, "degree": 1, "distance": 1}
    levels = {"L1D": cache(4096, 8, prefetcher=prefetcher), "L2": cache(32768, 8, prefetcher=prefetcher)}
    hierarchy = fed(CacheHierarchy(levels), loads_of([0, 5, 0, 6]))
    assert [totals(hierarchy, level, Counter.prefetches) for level in levels] == [(0,), (1,)]


@pytest.mark.theory
@both_kernels
def test_any_number_of_sets(plain: bool) -> None:
    """Three sets of one way: 0 and 3 are in each other's way, 0, 1 and 2 are not."""
    level = cache(192, 1)
    assert totals(one(level, loads_of([0, 1, 2] * 4), plain=plain), "L1D", MISSES) == (3,)
    assert totals(one(level, loads_of([0, 3] * 4), plain=plain), "L1D", MISSES) == (8,)


@both_kernels
def test_accesses_that_straddle_lines(plain: bool) -> None:
    trace = Trace(np.array([60, 0, 130], np.uint64), np.array([8, 64, 200], np.int32), np.zeros(3, bool))
    counts = one(full(16), trace, plain=plain).counts()
    assert counts.total("L1D", HITS) == 1
    assert counts.total("L1D", MISSES) == 6
    assert counts.references[:, 0, 0].tolist() == [2, 4, 4]
    assert counts.num_references == 3
    assert len(counts.references) == len(Reference)


@pytest.mark.property
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("frames", ["virtual", "random"])
def test_both_kernels_count_alike(seed: int, frames: Any) -> None:
    trace = mixed_trace(20_000, seed, straddles=True)
    site = (np.arange(20_000) % 3).astype(np.int32)
    levels = {"L1D": cache(4096, 8), "L2": cache(12288, 3), "L3": cache(65536, 16)}
    counts = []
    for plain in (True, False):
        hierarchy = CacheHierarchy(levels, num_sites=3, frames=frames, plain=plain)
        assert hierarchy.is_plain == plain
        hierarchy.feed(trace.address, trace.num_bytes, trace.is_store, site)
        counts.append(hierarchy.counts())
    np.testing.assert_array_equal(counts[0].values, counts[1].values)
    np.testing.assert_array_equal(counts[0].references, counts[1].references)
    assert counts[0].total("L3", Counter.victim_hits) > 100


@pytest.mark.theory
def test_frames_do_not_matter_within_a_page() -> None:
    """Where a way is no larger than a page, the set is known before the frame."""
    trace = mixed_trace(5000, 6)
    small, large = cache(16384, 4), cache(65536, 4)
    misses = [[totals(one(c, trace, frames=f), "L1D", MISSES) for f in ("virtual", "random")] for c in (small, large)]
    assert misses[0][0] == misses[0][1]
    assert misses[1][0] != misses[1][1]
    assert misses[1][1] != totals(one(large, trace, frames="random", frame_seed=1), "L1D", MISSES)


@pytest.mark.property
@pytest.mark.parametrize("level", [cache(4096, 4), cache(4096, 4, replacement="random", prefetcher={})])
def test_pieces_and_sites(level: Cache) -> None:
    trace = mixed_trace(3000, 7)
    site = (np.arange(3000) % 4).astype(np.int32)
    whole, pieces = (CacheHierarchy({"L1D": level}, {"L1": tlb(8, 4)}, num_sites=4) for _ in range(2))
    whole.feed(trace.address, trace.num_bytes, trace.is_store, site)
    for part in np.split(np.arange(3000), [1, 700, 701, 2500]):
        pieces.feed(trace.address[part], trace.num_bytes[part], trace.is_store[part], site[part])
    for name in ("values", "references", "tlb_values"):
        np.testing.assert_array_equal(getattr(whole.counts(), name), getattr(pieces.counts(), name))
    counts = whole.counts()
    assert (counts.hits("L1D") + counts.misses("L1D")).tolist() == [750] * 4
    assert counts.by_core("L1D", HITS).shape == (1,)
    whole.reset_counts()
    assert not whole.counts().values.any()


def test_blocks_of_a_detailed_trace() -> None:
    """Block 0 loads 8 bytes and stores 4, block 1 loads 8."""
    sites = Sites(np.array([0, 0, 1]), np.array([0, 1, 0], bool), np.array([8, 4, 8], np.int32), np.array([0, 2, 3]))
    addresses = np.array([0, 64, 64, 0, 128], np.uint64)
    hierarchy = CacheHierarchy({"L1D": full(4)}, num_sites=3)
    hierarchy.feed_blocks(np.array([0, 1, 0], np.int32), addresses, sites)
    counts = hierarchy.counts()
    assert counts.misses("L1D").tolist() == [1, 2, 0]
    assert counts.hits("L1D").tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="blocks make 5 accesses, but 4 addresses are given"):
        hierarchy.feed_blocks(np.array([0, 1, 0], np.int32), addresses[1:], sites)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({}, "caches: a hierarchy needs at least one level"),
        ({"L1D": cache(512, 2, inclusion="exclusive")}, "L1D: the first level cannot be exclusive"),
        ({"L1D": cache(512, 2), "L2": cache(512, 2, 32)}, "L2: a line of 32 B, but 64 B in the level before"),
        ({"L1D": cache(512, 2), "L2": cache(2048, 2, 1024)}, "lines may grow up to 8 times"),
        ({"L1D": cache(512, 2), "L2": cache(512, 2, 128, inclusion="exclusive")}, "L2: an exclusive level has lines"),
        ({"L1D": cache(512, 2), "L2": cache(512, 2, inclusion="exclusive", prefetcher={})}, "cannot prefetch"),
        ({"L1D": cache(512, 2, shared_by_cores=2), "L2": cache(512, 2, shared_by_cores=3)}, "L2: shared by 3 cores"),
        ({"L1D": cache(4096, 64, replacement="tree-plru")}, "L1D: tree-plru of 64 ways is not simulated"),
        ({"L1D": cache(1024, 2, 512, sector="8 B")}, "L1D: 64 sectors in a line are more than 32"),
        ({"L1D": cache(1024, 2, prefetcher={"page": "32 B"})}, "L1D: the prefetcher's page is smaller than a line"),
        ({"L1D": cache(1024, 2, prefetcher={"page": "3000 B"})}, "L1D: the prefetcher's page of 3000 B is not a power"),
        ({"L1D": cache(1024, 2, prefetcher={"degree": 5000, "distance": 5000})}, "L1D: a prefetcher of degree 5000"),
        ({"L1D": Cache.model_validate({"size": "1 KiB", "line": "64 B"})}, "L1D: ways is not given"),
    ],
)
def test_what_cannot_be_is_refused(levels: dict[str, Cache], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CacheHierarchy(levels)


@pytest.mark.contract
@both_kernels
def test_a_program_that_accesses_nothing(plain: bool) -> None:
    hierarchy = one(full(2), loads_of([]), num_sites=0, plain=plain)
    assert hierarchy.counts().num_references == 0
    assert hierarchy.counts().hits("L1D").shape == (0,)


@pytest.mark.contract
def test_caches_of_instructions_are_no_levels() -> None:
    hierarchy = one(full(2), loads_of([A]))
    with_code = CacheHierarchy({"L1D": full(2), "L1I": full(4), "L2I": full(8)})
    assert fed(with_code, loads_of([A])).counts().levels == hierarchy.counts().levels == ("L1D", "memory")


def test_what_cannot_be_fed_is_refused() -> None:
    hierarchy = CacheHierarchy({"L1D": full(2)}, num_sites=2)
    address, num_bytes, is_store = np.zeros(2, np.uint64), np.full(2, 8, np.int32), np.zeros(2, bool)
    for given, message in [
        ((address, num_bytes[:1], is_store), "addresses, bytes, stores and sites have lengths 2, 1, 2, 2"),
        ((address, num_bytes, is_store, np.array([0, 2])), r"sites 0 to 2 are not all within \[0, 2\)"),
        ((address, num_bytes, is_store, None, np.array([0, 1])), r"cores 0 to 1 are not all within \[0, 1\)"),
        ((address, num_bytes, is_store, None, np.array([0])), "2 accesses, but 1 cores are given"),
    ]:
        with pytest.raises(ValueError, match=message):
            hierarchy.feed(*given)
    with pytest.raises(ValueError, match="no level is named 'L2'; there are L1D, memory"):
        hierarchy.counts().total("L2", HITS)
