"""A hierarchy of caches and TLBs, exactly simulated access by access, without time.

Which of its parameters mean what stands in ``models.processor``. What they leave open is decided so:

- An access that straddles lines is one access of each (``Reference`` counts what is needed to undo that).
- A miss fetches from the next level, which keeps the line, too, unless it is exclusive; then what was replaced goes
  down.
- A dirty line that goes down becomes the latest of its set. If it is not there, it is put in, without a fetch unless
  sectors are written in part; so does not a level that does not allocate.
- A store fetches what it does not write; one that a level does not allocate, or writes through, goes on to the next.
- An exclusive level hands a line over as it is, dirty or not, and gets it back when the nearer level evicts it. Lines
  that several cores hold may be in their shared exclusive level, too.
- The first choice of a line to replace is an empty place. Tree-PLRU's bits point away from the way used last. Random
  replacement counts draws: a hash of the seed and the number of lines replaced.
- Cores' accesses take effect in the order in which they are fed. A level of ``shared_by_cores`` n serves cores
  [0, n), [n, 2n), ...; the protocol stands in ``coherence``, the prefetcher's rules in ``stream_prefetcher``.
- Each core has its own TLBs, LRU. Page tables are not read through the caches.

Lines go to sets by their number modulo sets, of any number. Two kernels count: ``lru_kernel`` for what most caches are,
``cache_kernel`` for all kinds; where both apply, their counts are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from manyscale.models.machine.processor import Cache, Prefetcher, Tlb, data_caches, needed
from manyscale.models.memory.access_stream import Sites, access_sites
from manyscale.models.memory.caches import lru_kernel
from manyscale.models.memory.caches import state as cache_state
from manyscale.models.memory.caches.all_kinds import run_all_kinds
from manyscale.models.memory.caches.counts import NUM_COUNTERS, Counter, HierarchyCounts, Reference
from manyscale.models.memory.caches.page_frames import PAGE_BYTES, VIRTUAL, Frames, random_frames
from manyscale.models.memory.caches.state import CacheState, Replacement

STACK_DEPTH: Final = 4096  # far above what requests of one access can ask for, within these limits
MOST_PREFETCHES: Final = 128
MOST_SECTORS: Final = 32
MOST_LINE_RATIO: Final = 8
NO_TLBS: Final[Mapping[str, Tlb]] = MappingProxyType({})


class CacheHierarchy:
    """Feed accesses; read counts. State stays from feed to feed, so a stream may come in pieces of any size.

    ``caches``: nearest first; those of instructions are left out (``data_caches``). ``num_sites``: accesses are counted
    by site, [0, num_sites). ``frames``: whether caches are indexed by virtual addresses, or each page of ``page_bytes``
    lies in a frame drawn by ``frame_seed``; TLBs see virtual addresses. ``seed``: of random replacement. ``plain``:
    whether the kernel for plain LRU caches may be used.

    Raises ValueError for caches that cannot be.
    """

    def __init__(
        self,
        caches: Mapping[str, Cache],
        tlbs: Mapping[str, Tlb] = NO_TLBS,
        *,
        num_cores: int = 1,
        num_sites: int = 1,
        frames: Frames = "virtual",
        frame_seed: int = 0,
        page_bytes: int = PAGE_BYTES,
        seed: int = 0,
        plain: bool = True,
    ) -> None:
        data = data_caches(caches)
        _check(data, num_cores, page_bytes)
        self._levels, self._tlbs = tuple(data), tuple(tlbs)
        self._num_cores, self._num_sites = num_cores, num_sites
        levels = list(data.values())
        labels = num_cores * num_sites
        self._counts = np.zeros((len(levels) + 1, NUM_COUNTERS, labels), np.int64)
        self._references = np.zeros((len(Reference), labels), np.int64)
        self._line_bytes = np.array([needed(level.line_bytes, "line") for level in levels])
        self.is_plain = plain and num_cores == 1 and _all_plain(levels)
        unit_bytes = int(min(_sector_bytes(level) for level in levels))
        if self.is_plain:
            unit_bytes = int(self._line_bytes[0])
            self._geometry, self._tag = lru_kernel.empty_sets(
                [(level.num_sets, needed(level.ways, "ways"), unit_bytes) for level in levels]
            )
        else:
            self._state = _state(levels, num_cores, unit_bytes, seed, self._counts)
        self._unit_shift = unit_bytes.bit_length() - 1
        self._pages = VIRTUAL if frames == "virtual" else random_frames(frame_seed, page_bytes, unit_bytes)
        if tlbs:
            rows = [(tlb.entries // tlb.ways, tlb.ways, tlb.page_bytes) for tlb in tlbs.values()]
            if any(row[2] < rows[0][2] for row in rows):
                raise ValueError("tlbs: pages get smaller from the first level to the others; give them as large")
            self._tlb_geometry, self._tlb_tag = lru_kernel.empty_sets(rows, num_cores)
        self._tlb_counts = np.zeros((len(tlbs), 2, labels), np.int64)

    def feed(
        self,
        address: np.ndarray,
        num_bytes: np.ndarray,
        is_store: np.ndarray,
        site: np.ndarray | None = None,
        core: np.ndarray | None = None,
    ) -> None:
        """Accesses in order: ``address`` uint64[n], ``num_bytes`` int32[n], ``is_store`` bool[n], ``site`` int32[n] (0
        if not given), ``core`` int32[n] (0 if not given). Raises ValueError for lengths that differ, and for sites and
        cores that are not there. Cost: see the kernels."""
        site = np.zeros(len(address), np.int32) if site is None else site
        if not len(address) == len(num_bytes) == len(is_store) == len(site):
            lengths = f"{len(address)}, {len(num_bytes)}, {len(is_store)}, {len(site)}"
            raise ValueError(f"addresses, bytes, stores and sites have lengths {lengths}; give one of each per access")
        self._run(address, site, num_bytes, is_store, False, core)

    def feed_blocks(
        self, block_ids: np.ndarray, addresses: np.ndarray, sites: Sites, core: np.ndarray | None = None
    ) -> None:
        """Consecutive block executions of a detailed trace, as ``access_stream.accesses`` takes them: ``block_ids``
        int32[executions], ``addresses`` uint64[n], ``core`` int32[n]. Raises ValueError as ``feed`` does."""
        site = access_sites(block_ids, sites)
        if len(site) != len(addresses):
            raise ValueError(f"blocks make {len(site)} accesses, but {len(addresses)} addresses are given")
        self._run(addresses, site, sites.bytes, sites.is_store, True, core)

    def counts(self) -> HierarchyCounts:
        """What was counted since the beginning, or the last ``reset_counts``. A copy."""
        values = self._counts.copy()
        if self.is_plain:
            misses = values[:-1, Counter.load_misses] + values[:-1, Counter.store_misses]
            values[:-1, Counter.fetched_bytes] = misses * self._line_bytes[:, None]
            values[:-1, Counter.written_bytes] = values[:-1, Counter.write_backs] * self._line_bytes[:, None]
        shape = (self._num_cores, self._num_sites)
        return HierarchyCounts(
            (*self._levels, "memory"),
            values.reshape(*values.shape[:2], *shape),
            self._references.reshape(len(Reference), *shape).copy(),
            self._tlbs,
            self._tlb_counts.reshape(len(self._tlbs), 2, *shape).copy(),
        )

    def reset_counts(self) -> None:
        """Count from zero; caches stay as they are. For warm runs: feed once, reset, feed again."""
        for counted in (self._counts, self._references, self._tlb_counts):
            counted[:] = 0

    def _run(
        self,
        address: np.ndarray,
        site: np.ndarray,
        num_bytes: np.ndarray,
        is_store: np.ndarray,
        by_site: bool,
        core: np.ndarray | None,
    ) -> None:
        if len(site) and not 0 <= int(site.min()) <= int(site.max()) < self._num_sites:
            raise ValueError(f"sites {site.min()} to {site.max()} are not all within [0, {self._num_sites})")
        if core is None:
            core = np.empty(0, np.int32)
        elif len(core) != len(address):
            raise ValueError(f"{len(address)} accesses, but {len(core)} cores are given")
        elif len(core) and not 0 <= int(core.min()) <= int(core.max()) < self._num_cores:
            raise ValueError(f"cores {core.min()} to {core.max()} are not all within [0, {self._num_cores})")
        address = np.ascontiguousarray(address, np.uint64)
        site, num_bytes, core = (np.ascontiguousarray(x, np.int32) for x in (site, num_bytes, core))
        is_store = np.ascontiguousarray(is_store, np.bool_)
        accesses = lru_kernel.Requests(address, site, num_bytes, is_store)
        if self._tlbs:
            tlbs = (self._tlb_geometry, self._tlb_tag, self._tlb_counts)
            lru_kernel.run_tlbs(accesses, by_site, core, self._num_sites, *tlbs)
        if self.is_plain:
            lru_kernel.run_caches(
                accesses, by_site, self._pages, self._geometry, self._tag, self._counts, self._references
            )
        else:
            run_all_kinds(accesses, by_site, core, self._pages, self._unit_shift, self._state, self._references)


def _sector_bytes(level: Cache) -> int:
    return level.sector_bytes or needed(level.line_bytes, "line")


def _all_plain(levels: list[Cache]) -> bool:
    """Whether ``lru_kernel`` serves."""
    return all(
        level.replacement == "lru"
        and level.inclusion == "neither"
        and level.write == "write-back"
        and level.write_allocate
        and level.prefetcher is None
        and level.line_bytes == levels[0].line_bytes == _sector_bytes(level)
        for level in levels
    )


def _check(caches: Mapping[str, Cache], num_cores: int, page_bytes: int) -> None:
    """Raises ValueError for what cannot be simulated."""
    if not caches:
        raise ValueError("caches: a hierarchy needs at least one level")
    nearer: Cache | None = None
    for name, cache in caches.items():
        line, ways = needed(cache.line_bytes, "line", f"{name}: "), needed(cache.ways, "ways", f"{name}: ")
        sector = _sector_bytes(cache)
        if line > page_bytes:
            raise ValueError(f"{name}: a line of {line} B is larger than a page of {page_bytes} B")
        if line // sector > MOST_SECTORS:
            raise ValueError(f"{name}: {line // sector} sectors in a line are more than {MOST_SECTORS}")
        if cache.replacement == "tree-plru" and ways > 32:
            raise ValueError(f"{name}: tree-plru of {ways} ways is not simulated; 32 at most")
        if cache.prefetcher is not None:
            _check_prefetcher(name, cache.prefetcher, line)
        if nearer is None:
            if cache.inclusion == "exclusive":
                raise ValueError(f"{name}: the first level cannot be exclusive: no nearer level hands it lines")
        else:
            _check_neighbours(name, nearer, cache)
        nearer = cache
    if num_cores < 1:
        raise ValueError(f"{num_cores} cores: a hierarchy needs at least one")


def _check_prefetcher(name: str, prefetcher: Prefetcher, line: int) -> None:
    page, degree = prefetcher.page_bytes, prefetcher.degree
    if page < line:
        raise ValueError(f"{name}: the prefetcher's page is smaller than a line")
    if page & (page - 1):
        raise ValueError(f"{name}: the prefetcher's page of {page} B is not a power of two")
    if degree > MOST_PREFETCHES:
        raise ValueError(f"{name}: a prefetcher of degree {degree} is not simulated; {MOST_PREFETCHES} at most")


def _check_neighbours(name: str, nearer: Cache, cache: Cache) -> None:
    line, nearer_line = needed(cache.line_bytes, "line"), needed(nearer.line_bytes, "line")
    if line < nearer_line or line // nearer_line > MOST_LINE_RATIO:
        raise ValueError(
            f"{name}: a line of {line} B, but {nearer_line} B in the level before; lines may grow up to "
            f"{MOST_LINE_RATIO} times from level to level, not shrink"
        )
    if cache.shared_by_cores % nearer.shared_by_cores:
        raise ValueError(
            f"{name}: shared by {cache.shared_by_cores} cores, the level before by {nearer.shared_by_cores}; the first "
            "must be a multiple of the second"
        )
    if cache.inclusion == "exclusive":
        if line != nearer_line or _sector_bytes(cache) != _sector_bytes(nearer):
            raise ValueError(f"{name}: an exclusive level has lines and sectors as large as those of the level before")
        if cache.prefetcher is not None:
            raise ValueError(f"{name}: an exclusive level cannot prefetch: only nearer levels hand it lines")


def _state(levels: list[Cache], num_cores: int, grain_bytes: int, seed: int, counts: np.ndarray) -> CacheState:
    """Empty caches of ``cache_kernel``."""
    geometry = np.zeros((len(levels), cache_state.COLUMNS), np.int64)
    slots = streams = 0
    for row, level in zip(geometry, levels, strict=True):
        sets, ways, line = level.num_sets, needed(level.ways, "ways"), needed(level.line_bytes, "line")
        instances = -(-num_cores // level.shared_by_cores)
        row[cache_state.SLOTS], row[cache_state.SETS], row[cache_state.WAYS] = slots, sets, ways
        row[cache_state.MASK] = sets - 1 if sets & (sets - 1) == 0 else -1
        row[cache_state.LINE_SHIFT] = (line // grain_bytes).bit_length() - 1
        row[cache_state.SECTOR_SHIFT] = (_sector_bytes(level) // grain_bytes).bit_length() - 1
        row[cache_state.REPLACEMENT] = Replacement[level.replacement.replace("-", "_")]
        row[cache_state.EXCLUSIVE] = level.inclusion == "exclusive"
        row[cache_state.INCLUSIVE] = level.inclusion == "inclusive"
        row[cache_state.WRITE_THROUGH] = level.write == "write-through"
        row[cache_state.ALLOCATE] = level.write_allocate
        row[cache_state.CORES] = level.shared_by_cores
        row[cache_state.STREAMS] = streams
        slots += instances * sets * ways
        if level.prefetcher is not None:
            fetcher = level.prefetcher
            row[cache_state.NUM_STREAMS], row[cache_state.CONFIRM] = fetcher.streams, fetcher.confirm
            row[cache_state.DEGREE], row[cache_state.DISTANCE] = fetcher.degree, fetcher.distance
            row[cache_state.PAGE_SHIFT] = (fetcher.page_bytes // line).bit_length() - 1
            streams += instances * fetcher.streams
    now = np.zeros(cache_state.NOW, np.int64)
    now[cache_state.NUM_CORES], now[cache_state.SEED] = num_cores, seed
    slot = np.zeros((cache_state.SLOT, slots), np.int64)
    slot[cache_state.TAG], slot[cache_state.USED] = -1, cache_state.NEVER
    first_sets = -(-num_cores // levels[0].shared_by_cores) * levels[0].num_sets
    latest = np.arange(first_sets) * needed(levels[0].ways, "ways")  # a slot of the set itself: of another core's none
    stream = np.zeros((streams, 5), np.int64)
    stream[:, 0] = -1
    return CacheState(geometry, slot, stream, np.zeros((STACK_DEPTH, 6), np.int64), now, counts, latest)
