"""Hit ratios of set-associative caches that see which set each line falls into.

A formula on stack distances assumes that lines fall into sets at random. Where rows of a power of two of bytes crowd
into few sets that is off by up to 44 points. ``SetSample`` simulates LRU exactly in some of the sets. Sets do not
influence each other, so the sample's only error is that sets differ; its standard error follows from their spread.
Lines are sampled by their number modulo a power of two that divides the number of sets of every level, so that a
sampled set of one level receives from, and passes on to, sampled sets alone. Source: set sampling, Puzak, "Analysis of
cache replacement algorithms", PhD thesis, University of Massachusetts, 1985; Kessler, Hill, Wood, "A comparison of
trace-sampling techniques for multi-megabyte caches", IEEE Trans. Computers 43(6), 1994.

Caches are looked up level after level: what misses in one is looked up in the next and fills both (neither inclusive
nor exclusive), loads and stores alike (write-allocate); write-backs, prefetches and translations are no accesses here.

``frames``: "virtual" places a line by its virtual address; "random" gives every 4 KiB page a random frame, a hash of
its number and ``frame_seed``, as an operating system with fragmented memory does: caches larger than a page times their
ways then see another mapping. Which frames a run gets changes its hit ratios (by a point where the data just fit):
that is no error of the sample, and no standard error shows it; compare several ``frame_seed``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from manyscale.models.memory.draws import mixed

_MOST_CLASSES: Final = 64  # of lines, by their number: with random frames those of a page


@dataclass(frozen=True)
class SampledHits:
    """What a sample of sets saw.

    ``reached`` int64[groups, levels + 1, sites]: accesses that reached each level, memory last; a group is a class of
    sets. ``population``: groups that the sample was drawn from.
    """

    reached: np.ndarray
    population: float

    def hit_ratio(self, level: int, sites: np.ndarray | slice = slice(None)) -> float:
        """Share of all accesses (of ``sites``) served by levels 0 to ``level``; NaN where none was sampled."""
        return self._ratio(level, 0, sites)[0]

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
