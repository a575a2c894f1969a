"""Several cores: worked examples, and a protocol of sets and dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from cache_traces import cache, mixed_trace, totals
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.hierarchy import CacheHierarchy

LARGE = cache(65536, 16)
INVALIDATIONS, COHERENCE, DIRTY_READS = Counter.invalidations, Counter.coherence_misses, Counter.dirty_reads

Step = tuple[int, str, int]  # core, "r" or "w", line


def run(levels: dict[str, Cache], num_cores: int, steps: Sequence[Step]) -> CacheHierarchy:
    hierarchy = CacheHierarchy(levels, num_cores=num_cores)
    address = np.array([64 * line for _, _, line in steps], np.uint64)
    is_store = np.array([what == "w" for _, what, _ in steps])
    core = np.array([core for core, _, _ in steps], np.int32)
    hierarchy.feed(address, np.full(len(steps), 8, np.int32), is_store, core=core)
    return hierarchy


@pytest.mark.theory
def test_false_sharing() -> None:
    """Two cores store to a line in turns: each store misses and takes the line; alone each would miss once."""
    hierarchy = run({"L1D": LARGE}, 2, [(i % 2, "w", 0) for i in range(100)])
    assert totals(hierarchy, "L1D", Counter.store_misses, INVALIDATIONS, COHERENCE) == (100, 99, 98)
    assert totals(hierarchy, "L1D", Counter.write_backs) == (99,)
    apart = run({"L1D": LARGE}, 2, [(i % 2, "w", i % 2) for i in range(100)])
    assert totals(apart, "L1D", Counter.store_misses, INVALIDATIONS, COHERENCE) == (2, 0, 0)


@pytest.mark.golden
def test_a_line_through_its_states() -> None:
    """Core 0 loads (exclusive), stores (modified, nobody asked). Core 1 loads: 0 writes back, both share. Core 1
    stores: 0 loses its copy. Core 0 loads what 1 modified."""
    hierarchy = run({"L1D": LARGE}, 2, [(0, "r", 0), (0, "w", 0), (1, "r", 0), (1, "w", 0), (0, "r", 0)])
    assert totals(hierarchy, "L1D", INVALIDATIONS, COHERENCE, DIRTY_READS, Counter.write_backs) == (1, 1, 2, 2)
    counts = hierarchy.counts()
    assert counts.by_core("L1D", INVALIDATIONS).tolist() == [0, 1]  # who stored
    assert counts.by_core("L1D", COHERENCE).tolist() == [1, 0]
    assert counts.by_core("L1D", DIRTY_READS).tolist() == [1, 1]
    assert totals(hierarchy, "memory", Counter.victim_hits, Counter.load_hits) == (2, 3)


@pytest.mark.golden
def test_a_shared_level_takes_what_was_modified() -> None:
    """Private L1 and L2, shared L3: what core 0 modified goes to the L3, where core 1 finds it; memory sees one
    load."""
    levels = {"L1D": cache(4096, 4), "L2": cache(16384, 4), "L3": cache(65536, 16, shared_by_cores=2)}
    hierarchy = run(levels, 2, [(0, "w", 0), (1, "r", 0), (0, "r", 0)])
    assert totals(hierarchy, "L3", Counter.load_misses, Counter.load_hits, Counter.victim_hits) == (1, 1, 1)
    assert totals(hierarchy, "memory", Counter.load_hits, Counter.victim_hits) == (1, 0)
    assert totals(hierarchy, "L2", DIRTY_READS) == (1,)
    assert totals(hierarchy, "L1D", Counter.load_hits) == (1,)
    stored = run(levels, 2, [(0, "r", 0), (1, "r", 0), (1, "w", 0), (0, "r", 0)])
    assert [totals(stored, level, INVALIDATIONS, COHERENCE) for level in ("L1D", "L2")] == [(1, 1), (1, 1)]


@pytest.mark.golden
def test_cores_that_share_a_second_level() -> None:
    """Cores 0 and 1 share an L2, 2 and 3 another. A store of core 0 takes the line from 1's L1, and from L1 and L2 of
    2."""
    levels = {"L1D": cache(4096, 4), "L2": cache(16384, 4, shared_by_cores=2)}
    hierarchy = run(levels, 4, [(0, "r", 0), (1, "r", 0), (2, "r", 0), (0, "w", 0), (1, "r", 0)])
    assert totals(hierarchy, "L1D", INVALIDATIONS, DIRTY_READS, COHERENCE) == (2, 1, 1)
    assert totals(hierarchy, "L2", INVALIDATIONS, Counter.load_hits, Counter.load_misses) == (1, 2, 2)
    assert totals(hierarchy, "memory", Counter.load_hits, Counter.victim_hits) == (2, 0)


@pytest.mark.theory
def test_cores_that_share_nothing() -> None:
    """Each core counts what it counts alone."""
    levels = {"L1D": cache(4096, 4), "L2": cache(16384, 8)}
    traces = [mixed_trace(2000, seed) for seed in range(3)]
    together = CacheHierarchy(levels, num_cores=3)
    address = np.stack([trace.address + np.uint64(core << 30) for core, trace in enumerate(traces)], 1).reshape(-1)
    is_store = np.stack([trace.is_store for trace in traces], 1).reshape(-1)
    together.feed(address, np.full(6000, 8, np.int32), is_store, core=(np.arange(6000) % 3).astype(np.int32))
    for core, trace in enumerate(traces):
        alone = CacheHierarchy(levels)
        alone.feed(trace.address, trace.num_bytes, trace.is_store)
        np.testing.assert_array_equal(together.counts().values[:, :, core], alone.counts().values[:, :, 0])


def protocol(steps: Sequence[Step]) -> tuple[int, int, int, int]:
    """Invalidations, coherence misses, dirty reads and misses, of caches that never evict."""
    holders: dict[int, set[int]] = {}
    owner: dict[int, int] = {}  # who modified it last, while it alone holds it
    taken: set[tuple[int, int]] = set()
    invalidations = coherence = dirty_reads = misses = 0
    for core, what, line in steps:
        held = holders.setdefault(line, set())
        if core not in held:
            misses += 1
            coherence += (core, line) in taken
            taken.discard((core, line))
            if line in owner:
                dirty_reads += what == "r"
                del owner[line]
        if what == "w":
            invalidations += len(held - {core})
            taken |= {(other, line) for other in held - {core}}
            held.clear()
            owner[line] = core
        held.add(core)
    return invalidations, coherence, dirty_reads, misses


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("rw"), st.integers(0, 4)), max_size=60)
SHARED = cache(65536, 16, shared_by_cores=4)


@pytest.mark.property
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_protocol(steps: list[Step]) -> None:
    expected = protocol(steps)
    counters = (INVALIDATIONS, COHERENCE, DIRTY_READS)
    for levels in ({"L1D": LARGE}, {"L1D": LARGE, "L2": SHARED}, {"L1D": LARGE, "L2": LARGE, "L3": SHARED}):
        counted = run(levels, 4, steps)
        misses = sum(totals(counted, "L1D", Counter.load_misses, Counter.store_misses))
        last_private = list(levels)[-2] if "L2" in levels else "L1D"
        values = {level: totals(counted, level, *counters) for level in levels}
        assert (*values["L1D"][:2], values[last_private][2], misses) == expected


@pytest.mark.property
@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_what_is_modified_is_written_once(steps: list[Step]) -> None:
    """Memory is written as often as lines change from modified to shared or are taken from their owner."""
    hierarchy = run({"L1D": LARGE}, 4, steps)
    owner: dict[int, int] = {}
    writes = 0
    for core, what, line in steps:
        if owner.get(line, core) != core:
            writes += 1
            del owner[line]
        if what == "w":
            owner[line] = core
    assert totals(hierarchy, "memory", Counter.victim_hits) == (writes,)
