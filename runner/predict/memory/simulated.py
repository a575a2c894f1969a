"""Hit rates of the caches with their real sets: a machine's hierarchy simulated on streams of accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache, Tlb, data_caches
from manyscale.models.memory.access_stream import Sites, accesses
from manyscale.models.memory.amm.sdcm import HitRates
from manyscale.models.memory.caches.counts import Counter, HierarchyCounts
from manyscale.models.memory.caches.hierarchy import NO_TLBS, CacheHierarchy
from manyscale.models.memory.caches.set_sampling import SetSample
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.streams import Stream
from manyscale.runner.predict.memory.together import merged_lines

Batches = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]  # (block ids, addresses), from the beginning each time


@dataclass(frozen=True)
class Simulated:
    """``rates``: of all accesses. ``by_block`` float64[levels, blocks]: hits within the level, of all of the block's
    accesses; NaN where it makes none. Where all sets were simulated, ``counters`` int64[levels + 1, Counter, blocks],
    main memory last; where some were, ``errors``: the standard error of each level's rate."""

    rates: HitRates
    by_block: np.ndarray
    counters: np.ndarray | None = None
    errors: tuple[float, ...] | None = None


def simulate(
    batches: Batches,
    sites: Sites,
    caches: Mapping[str, Cache],
    *,
    before: Batches | None,
    frames: Literal["virtual", "random"] = "virtual",
    prefetches: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """int64[levels + 1, Counter, sites]: what is counted of one stream, main memory last. ``before``: what ran before
    (None: caches are empty). Raises UserError for caches that cannot be."""
    hierarchy = _hierarchy(caches, 1, sites, frames, seed, prefetches=prefetches)
    _feed(hierarchy, batches, sites, before)
    return hierarchy.counts().values.sum(axis=2)


def _feed(hierarchy: CacheHierarchy, batches: Batches, sites: Sites, before: Batches | None) -> None:
    """Counts are those of ``batches`` alone."""
    for part in (before, batches):
        hierarchy.reset_counts()
        for block_ids, addresses in part() if part is not None else ():
            hierarchy.feed_blocks(block_ids, addresses, sites)


def reached(counters: np.ndarray) -> np.ndarray:
    """int64[levels + 1, n]: loads and stores that reach each level, main memory last, from counters
    int64[levels + 1, Counter, n]: all, then those that missed the level before."""
    hits, misses = (
        counters[:-1, [Counter.load_hits, Counter.store_hits]].sum(axis=1),
        counters[:-1, [Counter.load_misses, Counter.store_misses]].sum(axis=1),
    )
    return np.concatenate((hits[:1] + misses[:1], misses))


def of_streams(
    streams: Sequence[Stream],
    sites: Sites,
    caches: Mapping[str, Cache],
    *,
    share: float,
    together: bool,
    steady: bool,
    frames: Literal["virtual", "random"],
    prefetches: bool,
    seed: int,
) -> Simulated:
    """All streams, each with caches of its own or ``together`` on as many cores of one node. ``share``: of the sets
    that is simulated; 1 is all. Raises UserError."""
    if share < 1:
        if together or prefetches:
            raise UserError("--simulate takes no share with --together or --prefetch; simulate all sets")
        sampled, errors = _sampled(streams, sites, caches, share, steady, frames, seed)
        return Simulated(hit_rates(sampled, caches), _by_block(sampled, sites), errors=errors)
    if together:
        counted = [_together(streams, sites, caches, steady, frames, prefetches, seed)]
    else:
        counted = [
            simulate(
                stream.batches,
                sites,
                caches,
                before=stream.batches if steady else None,
                frames=frames,
                prefetches=prefetches,
                seed=seed,
            )
            for stream in streams
        ]
    counters = sum(counted[1:], counted[0])
    served = reached(counters)
    rows = [np.bincount(sites.block, row, sites.num_blocks) for row in counters.reshape(-1, len(sites))]
    block_counters = np.array(rows).astype(np.int64).reshape(*counters.shape[:2], sites.num_blocks)
    return Simulated(hit_rates(served, caches), _by_block(served, sites), block_counters)


@dataclass(frozen=True)
class Beyond:
    """What AMM takes beyond caches. ``page_rates``: of the TLBs, None where the machine lists none. ``stream_ratio``:
    of the accesses that miss the first cache with a prefetcher, the share whose line that prefetcher brings; 0 without
    one."""

    page_rates: HitRates | None
    stream_ratio: float


def translated(
    batches: Batches, sites: Sites, node: Node, *, before: Batches | None
) -> tuple[HierarchyCounts, HierarchyCounts | None]:
    """(As ``simulate``, with address translation beside; the same where ``beyond`` counts it, too, without prefetches,
    up to the prefetcher: where no level further out took a line from a nearer one). Raises UserError for caches that
    cannot be."""
    caches = data_caches(node.caches)
    hierarchy = _hierarchy(caches, 1, sites, "virtual", 0, tlbs=node.tlbs)
    taken = 0
    for part in (before, batches):
        hierarchy.reset_counts()
        for block_ids, addresses in part() if part is not None else ():
            hierarchy.feed_blocks(block_ids, addresses, sites)
        nearer = hierarchy.counts().values[: _first_prefetching(caches) + 1]
        taken += int(nearer[:, Counter.back_invalidations].sum())
    counts = hierarchy.counts()
    return counts, None if taken else counts


def _first_prefetching(caches: Mapping[str, Cache]) -> int:
    """The number of the first cache with a prefetcher; of the nearest where there is none."""
    return next((level for level, cache in enumerate(caches.values()) if cache.prefetcher is not None), 0)


def beyond(
    batches: Batches, sites: Sites, node: Node, *, before: Batches | None, known: HierarchyCounts | None = None
) -> Beyond:
    """Address translation and prefetching, simulated on one stream (``before`` as for ``simulate``). ``known``: what
    ``translated`` counted of it for this, if anything. Raises UserError for caches that cannot be."""
    caches = data_caches(node.caches)
    number = _first_prefetching(caches)
    level = list(caches)[number]
    fetches = caches[level].prefetcher is not None
    if not fetches and not node.tlbs:
        return Beyond(None, 0.0)
    up_to = dict(list(caches.items())[: number + 1])

    def counts_of(tlbs: Mapping[str, Tlb], *, prefetches: bool) -> HierarchyCounts:
        hierarchy = _hierarchy(up_to, 1, sites, "virtual", 0, tlbs=tlbs, prefetches=prefetches)
        _feed(hierarchy, batches, sites, before)
        return hierarchy.counts()

    plain = known or counts_of(node.tlbs, prefetches=False)
    page_rates = None
    if node.tlbs:
        looked_up = max(int(plain.tlb_values[0].sum()), 1)
        missed = plain.tlb_values[:, 1].sum(axis=(1, 2))
        page_rates = HitRates(plain.tlbs, tuple(float(1 - each / looked_up) for each in missed))
    misses = int(plain.misses(level).sum())
    left = int(counts_of({}, prefetches=True).misses(level).sum()) if fetches else misses
    return Beyond(page_rates, max(0, misses - left) / misses if misses else 0.0)


def hit_rates(served: np.ndarray, caches: Mapping[str, Cache]) -> HitRates:
    """From the accesses that reach each level."""
    totals = served.sum(axis=1)
    return HitRates(tuple(caches), tuple(float(1 - missed / max(totals[0], 1)) for missed in totals[1:]))


def _by_block(served: np.ndarray, sites: Sites) -> np.ndarray:
    counted = np.array([np.bincount(sites.block, row, sites.num_blocks) for row in served])
    with np.errstate(invalid="ignore"):
        return 1 - counted[1:] / np.where(counted[0] > 0, counted[0], np.nan)


def _hierarchy(
    caches: Mapping[str, Cache],
    num_cores: int,
    sites: Sites,
    frames: str,
    seed: int,
    *,
    tlbs: Mapping[str, Tlb] = NO_TLBS,
    prefetches: bool = False,
) -> CacheHierarchy:
    """Without their prefetchers, if not told otherwise: hit rates are of what the program itself asked for."""
    if not prefetches:
        caches = {name: cache.model_copy(update={"prefetcher": None}) for name, cache in caches.items()}
    try:
        return CacheHierarchy(
            caches,
            tlbs,
            num_cores=num_cores,
            num_sites=len(sites),
            frames="random" if frames == "random" else "virtual",
            frame_seed=seed,
            seed=seed,
        )
    except ValueError as error:
        raise UserError(f"the caches cannot be simulated: {error}") from None


def _together(
    streams: Sequence[Stream],
    sites: Sites,
    caches: Mapping[str, Cache],
    steady: bool,
    frames: str,
    prefetches: bool,
    seed: int,
) -> np.ndarray:
    """As ``simulate``, each stream on a core of one node."""
    line = _line_bytes(caches)
    hierarchy = _hierarchy(caches, len(streams), sites, frames, seed, prefetches=prefetches)
    for _ in range(2 if steady else 1):
        hierarchy.reset_counts()
        for batch in merged_lines(streams, sites, line):
            address = batch.unit.astype(np.uint64) * np.uint64(line)
            one_line = np.ones(len(address), np.int32)  # units are split by lines already
            hierarchy.feed(address, one_line, sites.is_store[batch.site], batch.site, batch.thread)
    return hierarchy.counts().values.sum(axis=2)


def _sampled(
    streams: Sequence[Stream],
    sites: Sites,
    caches: Mapping[str, Cache],
    share: float,
    steady: bool,
    frames: Literal["virtual", "random"],
    seed: int,
) -> tuple[np.ndarray, tuple[float, ...]]:
    line = _line_bytes(caches)
    plain = [cache for cache in caches.values() if cache.replacement != "lru" or cache.inclusion != "neither"]
    if plain:
        raise UserError("--simulate with a share takes caches with LRU that are neither inclusive nor exclusive")
    total = np.zeros((len(caches) + 1, len(sites)), np.int64)
    variance = np.zeros(len(caches))
    for stream in streams:
        sample = SetSample(list(caches.values()), share, seed, frames, seed)
        for _ in range(2 if steady else 1):
            sample.forget_counts()
            for block_ids, addresses in stream.batches():
                sample.feed(accesses(block_ids, addresses, sites, line))
        hits = sample.hits()
        served = hits.reached.sum(axis=0)
        total[:, : served.shape[1]] += served
        variance += np.array([(hits.standard_error(i) * served[0].sum()) ** 2 for i in range(len(caches))])
    return total, tuple(np.sqrt(variance) / max(total[0].sum(), 1))


def _line_bytes(caches: Mapping[str, Cache]) -> int:
    line = next(iter(caches.values())).line_bytes
    assert line is not None  # hit_rates.caches_of refuses others
    return line
