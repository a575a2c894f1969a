"""Hit ratios of set-associative caches that see which set each line falls into.

A formula on stack distances assumes that lines fall into sets at random. Where rows of a power of two of bytes crowd
into few sets that is off by up to 44 points. Three ways here know the sets, at the cost of a sample:

- ``SetSample`` simulates LRU exactly in some of the sets. Sets do not influence each other, so the sample's only error
  is that sets differ; its standard error follows from their spread. Lines are sampled by their number modulo a power of
  two that divides the number of sets of every level, so that a sampled set of one level receives from, and passes
  on to, sampled sets alone. Source: set sampling, Puzak, "Analysis of cache replacement algorithms", PhD thesis,
  University of Massachusetts, 1985; Kessler, Hill, Wood, "A comparison of trace-sampling techniques for multi-megabyte
  caches", IEEE Trans. Computers 43(6), 1994.
- ``same_set_distance`` counts, for sampled accesses, the distinct lines of the same set since the last use.
- ``warmed_windows``: short windows of a stream, each simulated whole after a warm-up.

Caches are looked up level after level: what misses in one is looked up in the next and fills both (neither inclusive
nor exclusive), loads and stores alike (write-allocate); write-backs, prefetches and translations are no accesses here.

``frames``: "virtual" places a line by its virtual address; "random" gives every 4 KiB page a random frame, a hash of
its number and ``frame_seed``, as an operating system with fragmented memory does: caches larger than a page times their
ways then see another mapping. Which frames a run gets changes its hit ratios (by a point where the data just fit):
that is no error of the sample, and no standard error shows it; compare several ``frame_seed``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.machine.processor import Cache, needed
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.caches.lru_kernel import HIT, empty_sets, use
from manyscale.models.memory.caches.page_frames import (
    PAGE_BYTES,
    VIRTUAL,
    Frames,
    framed_unit,
    random_frames,
)
from manyscale.models.memory.draws import mixed, offset_in_stratum

_MOST_CLASSES: Final = 64  # of lines, by their number: with random frames those of a page


@dataclass(frozen=True)
class SampledHits:
    """What a sample of sets, or of windows, saw.

    ``reached`` int64[groups, levels + 1, sites]: accesses that reached each level, memory last; a group is a class of
    sets, or a window. ``population``: groups that the sample was drawn from.
    """

    reached: np.ndarray
    population: float

    def hit_ratio(self, level: int, sites: np.ndarray | slice = slice(None)) -> float:
        """Share of all accesses (of ``sites``) served by levels 0 to ``level``; NaN where none was sampled."""
        return self._ratio(level, 0, sites)[0]

    def local_hit_ratio(self, level: int, sites: np.ndarray | slice = slice(None)) -> float:
        """Share of the accesses that reached ``level`` that hit there; NaN where none did."""
        return self._ratio(level, level, sites)[0]

    def standard_error(self, level: int, sites: np.ndarray | slice = slice(None)) -> float:
        """Of ``hit_ratio``, from the spread over the groups; NaN where only one of several was sampled."""
        return self._ratio(level, 0, sites)[1]

    def _ratio(self, level: int, of_level: int, sites: np.ndarray | slice) -> tuple[float, float]:
        """A ratio estimate and its standard error (Cochran, Sampling Techniques, 3rd ed., section 6.4)."""
        accesses = self.reached[:, of_level, sites].sum(axis=1).astype(np.float64)
        hits = accesses - self.reached[:, level + 1, sites].sum(axis=1)
        total, num_groups = float(accesses.sum()), len(accesses)
        if total == 0:
            return math.nan, math.nan
        ratio = float(hits.sum()) / total
        if num_groups == self.population:
            return ratio, 0.0
        if num_groups < 2:
            return ratio, math.nan
        spread = float(((hits - ratio * accesses) ** 2).sum()) / (num_groups - 1)
        unseen = 1 - num_groups / self.population
        return ratio, math.sqrt(unseen * spread / num_groups) / (total / num_groups)


class SetSample:
    """LRU caches of which a share of the sets is simulated; a stream of lines is fed in pieces, however it is cut.

    ``caches``: the nearest to the core first. ``share``: of the sets; rounded to whole classes of lines, at least one.
    One class gives no standard error. Raises ValueError for another share, for caches that are not of LRU and lines of
    one size, or that promise what they share.
    """

    def __init__(
        self,
        caches: Sequence[Cache],
        share: float = 1 / 16,
        seed: int = 0,
        frames: Frames = "virtual",
        frame_seed: int = 0,
    ) -> None:
        if not caches or not 0 < share <= 1:
            raise ValueError(f"{share:g} of the sets of {len(caches)} levels cannot be sampled")
        line_bytes = needed(caches[0].line_bytes, "line")
        if any((c.replacement, c.inclusion, c.line_bytes) != ("lru", "neither", line_bytes) for c in caches):
            raise ValueError("sets are sampled of LRU caches with lines of one size, neither inclusive nor exclusive")
        self._pages = VIRTUAL if frames == "virtual" else random_frames(frame_seed, PAGE_BYTES, line_bytes)
        num_classes = math.gcd(_MOST_CLASSES, *(cache.num_sets for cache in caches))
        if frames == "random":
            num_classes = math.gcd(num_classes, PAGE_BYTES // line_bytes)
        self._num_chosen = max(round(share * num_classes), 1)
        self._num_classes = num_classes
        draws = np.array([mixed(seed, number, 3) for number in range(num_classes)], np.uint64)
        self._group = np.full(num_classes, -1, np.int64)  # of each class of lines, -1: not sampled
        self._group[np.sort(np.argsort(draws)[: self._num_chosen])] = np.arange(self._num_chosen)
        self._geometry, self._tag = empty_sets([(c.num_sets, needed(c.ways, "ways"), line_bytes) for c in caches])
        self._reached = np.zeros((self._num_chosen, len(caches) + 1, 0), np.int64)

    @property
    def share(self) -> float:
        """The share of the sets that is simulated."""
        return self._num_chosen / self._num_classes

    def feed(self, accesses: Accesses) -> None:
        """Consecutive accesses, units being lines. O(accesses + sampled accesses x (ways + levels))."""
        place = np.empty(len(accesses.unit), np.int64)
        num_found = _filter(accesses.unit, self._group, place)
        place = place[:num_found]
        line, site = accesses.unit[place], accesses.site[place]
        group = self._group[line & (self._num_classes - 1)]
        _move_to_frames(line, self._pages)
        num_sites = int(site.max()) + 1 if len(site) else 0
        if num_sites > self._reached.shape[2]:
            more = np.zeros((*self._reached.shape[:2], num_sites - self._reached.shape[2]), np.int64)
            self._reached = np.concatenate((self._reached, more), axis=2)
        _simulate(line, site, group, self._geometry, self._tag, self._reached)

    def hits(self) -> SampledHits:
        """Counts so far."""
        return SampledHits(self._reached.copy(), self._num_classes)

    def forget_counts(self) -> None:
        """What was fed warmed the caches only."""
        self._reached[:] = 0


def framed(line: np.ndarray, line_bytes: int, frame_seed: int = 0) -> np.ndarray:
    """int64[n]: ``line`` int64[n] in random frames, as ``SetSample`` places them. O(n)."""
    result = line.copy()
    _move_to_frames(result, random_frames(frame_seed, PAGE_BYTES, line_bytes))
    return result


def same_set_distance(line: np.ndarray, position: np.ndarray, cache: Cache) -> np.ndarray:
    """int64[k]: distinct lines of the same set since the last use of each line at ``position`` int64[k] of ``line``
    int64[n], but the cache's ways for as many or more, and for a first use: what is below hits. O(accesses walked back,
    until the last use or until that many lines of the set have been met)."""
    distance = np.empty(len(position), np.int64)
    _walk_back_in_set(line, position, cache.num_sets, needed(cache.ways, "ways"), distance)
    return distance


@dataclass(frozen=True)
class Window:
    """Accesses [``first``, ``end``) of a stream, warmed by those from ``warm_first`` on."""

    warm_first: int
    first: int
    end: int


def windows_of(
    num_accesses: int, warm_accesses: int, num_windows: int = 10, share: float = 0.001, seed: int = 0
) -> list[Window]:
    """Windows of ``share`` of a stream each, one in every stratum of equal length. Raises ValueError where they do not
    fit."""
    length = max(int(share * num_accesses), 1)
    if num_windows < 1 or num_windows * length > num_accesses:
        raise ValueError(f"{num_windows} windows of {length} accesses do not fit into {num_accesses}")
    bounds = [number * num_accesses // num_windows for number in range(num_windows + 1)]
    start = np.uint64(mixed(seed, 0, 5))
    result = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        first = low + offset_in_stratum(start, number, high - low - length + 1)
        result.append(Window(max(first - warm_accesses, 0), first, first + length))
    return result


def warmed_windows(
    read: Callable[[int, int], Accesses],
    windows: Sequence[Window],
    num_accesses: int,
    caches: Sequence[Cache],
    frames: Frames = "virtual",
    frame_seed: int = 0,
) -> SampledHits:
    """Simulates each window in caches that its warm-up filled; ``read(first, end)`` gives accesses of the stream.
    O(accesses of windows and warm-ups x (ways + levels))."""
    reached = []
    for window in windows:
        sample = SetSample(caches, 1.0, 0, frames, frame_seed)
        sample.feed(read(window.warm_first, window.first))
        sample.forget_counts()
        sample.feed(read(window.first, window.end))
        reached.append(sample.hits().reached.sum(axis=0))
    num_sites = max(counts.shape[1] for counts in reached)
    padded = [np.pad(counts, ((0, 0), (0, num_sites - counts.shape[1]))) for counts in reached]
    length = sum(window.end - window.first for window in windows) / len(windows)
    return SampledHits(np.stack(padded), num_accesses / length)


@njit(cache=True, nogil=True)
def _filter(line, group, place):  # type: ignore[no-untyped-def]
    """Number of accesses to sampled classes; without a branch on the outcome. O(accesses)."""
    mask = group.shape[0] - 1
    found = 0
    for i in range(line.shape[0]):
        place[found] = i
        found += group[line[i] & mask] >= 0
    return found


@njit(cache=True, nogil=True)
def _move_to_frames(line, pages):  # type: ignore[no-untyped-def]
    """In place. O(lines)."""
    for i in range(line.shape[0]):
        line[i] = framed_unit(line[i], pages)


@njit(cache=True, nogil=True)
def _simulate(line, site, group, geometry, tag, reached):  # type: ignore[no-untyped-def]
    """O(accesses x (ways + levels))."""
    for i in range(line.shape[0]):
        reached[group[i], 0, site[i]] += 1
        for level in range(geometry.shape[0]):
            if use(geometry, tag, level, line[i], 0) == HIT:
                break
            reached[group[i], level + 1, site[i]] += 1


@njit(cache=True, nogil=True)
def _walk_back_in_set(line, position, num_sets, ways, distance):  # type: ignore[no-untyped-def]
    """``met``: the distinct lines of a walk, fewer than ``ways``."""
    met = np.empty(ways, np.int64)
    for k in range(position.shape[0]):
        wanted = line[position[k]]
        index = wanted % num_sets
        distinct = 0
        result = ways
        for i in range(position[k] - 1, -1, -1):
            if line[i] == wanted:
                result = distinct
                break
            if line[i] % num_sets == index:
                known = 0
                while known < distinct and met[known] != line[i]:
                    known += 1
                if known == distinct:
                    met[distinct] = line[i]
                    distinct += 1
                    if distinct == ways:
                        break
        distance[k] = result
