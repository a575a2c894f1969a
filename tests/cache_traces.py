"""A trace that needs no file, and caches from a few words, for the tests of cache simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.machine.processor import Cache, Tlb
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.hierarchy import CacheHierarchy


@dataclass(frozen=True)
class Trace:
    address: np.ndarray
    num_bytes: np.ndarray
    is_store: np.ndarray


def mixed_trace(num_accesses: int, seed: int, straddles: bool = False) -> Trace:
    """Of 8 bytes each: half of them in 8 KiB, half in 128 KiB, and among them sweeps of 4 KiB; three in ten stores.
    From a generator of its own (x -> 6364136223846793005 x + 1442695040888963407 modulo 2^64; Knuth, MMIX), so that
    other tools' counts of it stay right."""
    multiplier, increment, mask = 6364136223846793005, 1442695040888963407, 2**64 - 1
    state, drawn = seed, np.empty(3 * num_accesses, np.int64)
    for i in range(len(drawn)):
        state = (multiplier * state + increment) & mask
        drawn[i] = state >> 33
    where, which, what = drawn.reshape(3, -1)
    place = np.where(which % 2 == 0, where % 1024, where % 16384)
    i = np.arange(num_accesses)
    place = np.where(i // 512 % 4 == 3, 20000 + i % 512, place)
    address = (place * 8 + (4 * (where // 16384 % 2) if straddles else 0)).astype(np.uint64)
    return Trace(address, np.full(num_accesses, 8, np.int32), what % 10 < 3)


def cache(size_bytes: int, ways: int, line_bytes: int = 64, **others: object) -> Cache:
    given = {"size": f"{size_bytes} B", "ways": ways, "line": f"{line_bytes} B", **others}
    return Cache.model_validate(given)


def tlb(entries: int, ways: int, page_bytes: int = 4096) -> Tlb:
    return Tlb.model_validate({"entries": entries, "ways": ways, "page": f"{page_bytes} B"})


def fed(hierarchy: CacheHierarchy, trace: Trace) -> CacheHierarchy:
    hierarchy.feed(trace.address, trace.num_bytes, trace.is_store)
    return hierarchy


def loads_of(lines: list[int] | np.ndarray, line_bytes: int = 64) -> Trace:
    address = (np.asarray(lines) * line_bytes).astype(np.uint64)
    return Trace(address, np.full(len(address), 8, np.int32), np.zeros(len(address), bool))


def totals(hierarchy: CacheHierarchy, level: str, *counters: Counter) -> tuple[int, ...]:
    counts = hierarchy.counts()
    return tuple(counts.total(level, counter) for counter in counters)
