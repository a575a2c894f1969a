"""The timed memory of a node: what is where as in the hierarchy without time, and times of closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node_memory import CORE, DRAM, caches, flow, node, run, run_touch

from manyscale.models.memory.hierarchy import CacheHierarchy
from manyscale.models.memory.hierarchy_counts import Counter
from manyscale.models.node.cache_rows import EMPTY, FLAG_BITS
from manyscale.models.node.directory import FREE, WORD_BITS
from manyscale.models.node.memory_system import INVALIDATED, MISSED, SERVED, WRITTEN_BACK, MemorySystem, new_memory_system
from manyscale.models.processor import Cache

PRIVATE = {"L1D": (1024, 2, 1), "L2": (4096, 4, 1)}
FETCHER = {"streams": 4, "confirm": 2, "degree": 2, "distance": 4, "page": "1 KiB"}


def streams(seed: int, num_cores: int, num_accesses: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cores, lines and stores: random lines, sequences up and down, and lines that all cores use."""
    rng = np.random.default_rng(seed)
    core = rng.integers(0, num_cores, num_accesses)
    walk = np.cumsum(rng.choice([-1, 1, 1, 1, 0], num_accesses)) % 700
    kind = rng.integers(0, 4, num_accesses)
    line = np.select(
        [kind == 0, kind == 1, kind == 2],
        [rng.integers(0, 1000, num_accesses), walk + 100 * core, rng.integers(0, 40, num_accesses)],
        (rng.integers(0, 4, num_accesses) << 10) + core,
    )
    return core, line.astype(np.int64), rng.random(num_accesses) < 0.3


def agrees(levels: dict[str, Cache], num_cores: int, seed: int, *, touched: bool = False) -> MemorySystem:
    """Run both, and compare all counts."""
    core, line, store = streams(seed, num_cores)
    memory = new_memory_system(node(num_cores, levels), num_cores)
    reference = CacheHierarchy(levels, num_cores=num_cores, plain=False)
    half = len(line) // 2
    for part in (slice(0, half), slice(half, None)):
        if touched and part.start == 0:
            run_touch(memory, core[part], line[part], store[part])
            assert not memory.counts[:num_cores].any()
        else:
            run(memory, core[part], line[part], store[part], np.arange(len(line[part]), dtype=float))
        given = (line[part] * 64).astype(np.uint64), np.full(len(line[part]), 8, np.int32), store[part]
        reference.feed(*given, core=core[part].astype(np.int32))
        if touched and part.start == 0:
            reference.reset_counts()
    counts = reference.counts()
    values = counts.values.sum(axis=3)  # [levels, counters, cores]
    ours = memory.counts[:num_cores]
    for k, name in enumerate(counts.levels):
        hits = values[k, Counter.load_hits] + values[k, Counter.store_hits]
        misses = values[k, Counter.load_misses] + values[k, Counter.store_misses]
        np.testing.assert_array_equal(ours[:, k, SERVED], hits, f"{name} served")
        np.testing.assert_array_equal(ours[:, k, MISSED], misses, f"{name} missed")
        np.testing.assert_array_equal(ours[:, k, WRITTEN_BACK], values[k, Counter.write_backs], f"{name} written back")
        assert ours[:, k, INVALIDATED].sum() == values[k, Counter.invalidations].sum(), name
    directory_is_exact(memory)
    return memory


def directory_is_exact(memory: MemorySystem) -> None:
    """Of private levels: the directory says what they hold, no more and no less."""
    first = memory.memory[0]
    if first["groups"] == 1:
        return
    held = set()
    for k in range(first["private"]):
        level = memory.level[k]
        for group in range(level["instances"]):
            begin = level["first"] + group * level["slots"]
            tags = memory.tag[begin : begin + level["slots"]]
            held |= {(tag >> FLAG_BITS, group) for tag in tags[tags != EMPTY].tolist()}
    said = set()
    for key, *words in memory.directory[memory.directory[:, 0] != FREE].tolist():
        for w, word in enumerate(words):
            said |= {(key >> 1, w * WORD_BITS + bit) for bit in range(WORD_BITS) if word >> bit & 1}
    assert said == held


@pytest.mark.theory
@pytest.mark.parametrize("last", ["neither", "inclusive", "exclusive"])
@pytest.mark.parametrize("second", ["neither", "inclusive"])
def test_counts_of_several_cores(last: str, second: str) -> None:
    """As the hierarchy without time: private levels and one that all share."""
    levels = caches(PRIVATE | {"L3": (16384, 4, 4)}, L2={"inclusion": second}, L3={"inclusion": last})
    agrees(levels, 4, 1)


@pytest.mark.theory
def test_counts_of_other_hierarchies() -> None:
    """One core and an exclusive private level; a number of sets that is no power of two; one level; no level shared;
    two last levels, of which each serves half of the cores; more than 63 cores."""
    three = PRIVATE | {"L3": (12288, 3, 4)}
    agrees(caches(three), 1, 2)
    agrees(caches(three, L2={"inclusion": "exclusive"}), 1, 3)
    agrees(caches({"L1D": (1024, 2, 1)}), 3, 4)
    agrees(caches(PRIVATE), 3, 5)
    agrees(caches(PRIVATE | {"L3": (12288, 3, 2)}), 4, 6)
    agrees(caches({"L1D": (1024, 2, 1), "L2": (8192, 4, 2), "L3": (16384, 4, 4)}), 4, 7)
    agrees(caches({"L1D": (1024, 2, 1), "L2": (65536, 4, 70)}), 70, 8)


@pytest.mark.theory
def test_counts_with_prefetchers() -> None:
    """Prefetched lines are where they are in the hierarchy without time."""
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L1D={"prefetcher": FETCHER}), 1, 9)
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L2={"prefetcher": FETCHER}, L3={"prefetcher": FETCHER}), 1, 10)


@pytest.mark.theory
def test_touch_leaves_what_accesses_leave() -> None:
    """Without counts; what is counted afterwards is as if they had been accesses."""
    agrees(caches(PRIVATE | {"L3": (16384, 4, 4)}, L3={"inclusion": "inclusive"}), 4, 11, touched=True)
