"""What a cache hierarchy counts, and the counts as a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Counter(IntEnum):
    """What is counted at each level of cache, of requests that reach it; beyond the last level stands main memory,
    where all requests hit.

    A *load* is a request that reads: at the first level a core's load, at others a fetch by the nearer level, which may
    be for a store. A *store* is a core's store at the first level, at others one that the nearer level passed on (it
    writes through, or does not allocate). A *victim* is a line, or a run of sectors, that the nearer level handed down:
    what it wrote back and, to an exclusive level, all that it evicted. All counts but these belong to the site whose
    access caused them.
    """

    load_hits = 0
    load_misses = 1
    store_hits = 2
    store_misses = 3
    victim_hits = 4
    victim_misses = 5
    prefetch_hits = 6  # requests of a prefetcher of a nearer level
    prefetch_misses = 7
    sector_misses = 8  # of load and store misses: the line was there, the sector not
    evictions = 9  # lines that had to leave for another
    write_backs = 10  # of dirty lines, when they left or another core read them
    prefetches = 11  # lines that this level's prefetcher fetched
    useful_prefetches = 12  # of these, lines that a load or store used
    back_invalidations = 13  # lines that left because an inclusive level further out evicted them
    invalidations = 14  # lines that left because a core elsewhere stored, by that core
    coherence_misses = 15  # of load and store misses: another core's store had taken the line
    dirty_reads = 16  # load misses of lines that another core had modified, at the last level that it does not share
    fetched_bytes = 17  # from the level further out
    written_bytes = 18  # to the level further out


NUM_COUNTERS = len(Counter)


class Reference(IntEnum):
    """What is counted of references, as accesses are called where one that straddles lines is one."""

    straddling = 0  # references to several lines of the first level
    extra_lines = 1  # lines beyond the first of each reference
    extra_misses = 2  # first-level misses beyond the first of each reference


@dataclass(frozen=True)
class HierarchyCounts:
    """Counts of a hierarchy so far.

    ``levels``: names of the caches, nearest first, then "memory"; ``values`` int64[levels, Counter, cores, sites].
    ``references`` int64[Reference, cores, sites]. ``tlbs``: names, nearest first; ``tlb_values`` int64[tlbs, 2, cores,
    sites]: hits and misses, once per page of each reference. Those that miss the last one are the page walks.
    """

    levels: tuple[str, ...]
    values: np.ndarray
    references: np.ndarray
    tlbs: tuple[str, ...]
    tlb_values: np.ndarray

    def total(self, level: str, counter: Counter) -> int:
        """Sum over cores and sites. Raises ValueError for an unknown level."""
        return int(self.values[self._level(level), counter].sum())

    def by_site(self, level: str, counter: Counter) -> np.ndarray:
        """int64[sites]: sum over cores."""
        return np.asarray(self.values[self._level(level), counter].sum(axis=0))

    def by_core(self, level: str, counter: Counter) -> np.ndarray:
        """int64[cores]: sum over sites."""
        return np.asarray(self.values[self._level(level), counter].sum(axis=1))

    def hits(self, level: str) -> np.ndarray:
        """int64[sites]: loads and stores that hit."""
        return self.by_site(level, Counter.load_hits) + self.by_site(level, Counter.store_hits)

    def misses(self, level: str) -> np.ndarray:
        """int64[sites]: loads and stores that miss."""
        return self.by_site(level, Counter.load_misses) + self.by_site(level, Counter.store_misses)

    @property
    def num_references(self) -> int:
        """Accesses fed; one that straddles lines is one."""
        lines = int(self.values[0, : Counter.store_misses + 1].sum())
        return lines - int(self.references[Reference.extra_lines].sum())

    @property
    def page_walks(self) -> np.ndarray:
        """int64[sites]. Zeros without a TLB."""
        if not self.tlbs:
            return np.zeros(self.values.shape[3], np.int64)
        return np.asarray(self.tlb_values[-1, 1].sum(axis=0))

    def _level(self, name: str) -> int:
        if name not in self.levels:
            raise ValueError(f"no level is named {name!r}; there are {', '.join(self.levels)}")
        return self.levels.index(name)
