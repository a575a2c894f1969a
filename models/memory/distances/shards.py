"""SHARDS: exact stack distances of a sample of the units.

Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015. Units whose hash lies
below a threshold are sampled, with all their accesses: a rate R of the units. A distance among sampled units alone
counts R times the distinct units, and is divided by R. With fixed rate, R is given; with fixed size, R falls whenever
more than so many units are sampled, and every sampled access keeps the weight 1 / R of its time.

SHARDS-adj: a few very hot units in the sample, or missing from it, change its number of accesses, nearly all of them at
small distances. The difference to the expected number is put right in the first bucket, here site by site, as the
accesses of each site are counted. (The source does so for the whole. Where a bucket holds too few to take away, the
next gives the rest.) Programs without hot units pay for it: some tenths of a point on a scan.

Assumption: many units. Hit ratios carry an error of about 1 / sqrt(sampled units); footprints of hundreds of lines
cannot be sampled at 1 % and are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.statstack import counted_sites
from manyscale.models.memory.draws import mixed
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile, merged

_RANGE: Final = 1 << 32  # of hashes that thresholds divide
_NOTHING: Final = ReuseProfile.of(1, *(np.empty(0, np.int64),) * 3)
LARGEST_ERROR: Final = 0.1  # expected relative error above which a profile is refused


@dataclass(frozen=True)
class _Sample:
    """Accesses to sampled units. ``unit`` int64[n], ``site`` int32[n], ``hash`` int64[n] in [0, _RANGE)."""

    unit: np.ndarray
    site: np.ndarray
    hash: np.ndarray

    def where(self, kept: np.ndarray | slice) -> _Sample:
        return _Sample(self.unit[kept], self.site[kept], self.hash[kept])

    def __len__(self) -> int:
        return len(self.unit)


class _Part:
    """Exact distances of the sampled units of one part of the hashes."""

    def __init__(self) -> None:
        self.distances = StackDistances()
        self._past = _NOTHING  # weighed, of higher rates
        self._present = [_NOTHING]  # counted, so that sums are exact in any order

    def feed(self, sample: _Sample) -> None:
        distance = self.distances.feed(sample.unit)
        self._present.append(ReuseProfile.of(1, sample.site, distance, np.ones(len(distance))))
        if len(self._present) > 64:
            self._present = [merged(self._present)]

    def drop_above(self, seed: np.uint64, threshold: int, rate: float) -> None:
        """Forget units with higher hashes; the accesses until now were sampled at ``rate``."""
        self._past, self._present = self.profile(rate), [_NOTHING]
        units = self.distances.stack()
        self.distances = StackDistances()
        self.distances.feed(units[hashes(units, seed) < threshold])

    def profile(self, rate: float) -> ReuseProfile:
        """Estimated counts and distances, if accesses since units were last dropped were sampled at ``rate``."""
        present = merged(self._present)
        self._present = [present]
        scaled = np.where(present.distance == COLD, COLD, np.rint(present.distance / rate).astype(np.int64))
        return merged([self._past, ReuseProfile.of(1, present.site, scaled, present.count / rate)])


class Shards:
    """A stream that is fed in pieces, however it is cut.

    ``rate``: share of the units that is sampled. ``max_units``: with fixed size, how many units are sampled at most;
    it is looked after every ``max_units`` / 2 sampled accesses, so that half as many more may be sampled between.
    ``num_parts``: parts of the hashes that are evaluated by themselves as well, for the standard error.
    """

    def __init__(self, rate: float = 0.01, seed: int = 0, max_units: int | None = None, num_parts: int = 8) -> None:
        if not 0 < rate <= 1:
            raise ValueError(f"a rate of {rate:g} of the units cannot be sampled")
        if max_units is not None and max_units < 2:
            raise ValueError(f"{max_units} units are too few to sample")
        if num_parts < 2:
            raise ValueError(f"{num_parts} parts have no standard error")
        self._seed = np.uint64(mixed(seed, 0, 2))
        self._threshold = max(round(rate * _RANGE), 1)
        self._max_units = max_units
        self._until_check = max_units // 2 if max_units else 0
        self._whole = _Part()
        self._parts = [_Part() for _ in range(num_parts)]
        self._site_counts = np.zeros(0, np.int64)

    @property
    def rate(self) -> float:
        """The share of the units that is sampled now."""
        return self._threshold / _RANGE

    @property
    def num_sampled_units(self) -> int:
        return self._whole.distances.num_distinct

    @property
    def expected_relative_error(self) -> float:
        """1 / sqrt(sampled units)."""
        return 1 / math.sqrt(max(self.num_sampled_units, 1))

    def feed(self, accesses: Accesses) -> None:
        """Consecutive accesses. O(accesses + sampled accesses log(sampled units))."""
        self._site_counts = counted_sites(accesses.site, self._site_counts)
        found = np.empty(len(accesses.unit), np.int64), np.empty(len(accesses.unit), np.int64)
        num_found = _filter(accesses.unit, self._seed, self._threshold, *found)
        place, hash_of = (column[:num_found] for column in found)
        sample = _Sample(accesses.unit[place], accesses.site[place], hash_of)
        if self._max_units is None:
            self._feed_sample(sample)
            return
        while len(sample):
            self._feed_sample(sample.where(slice(self._until_check)))
            if len(sample) < self._until_check:
                self._until_check -= len(sample)
                return
            sample = sample.where(slice(self._until_check, None))
            self._until_check = self._max_units // 2
            if self._lower_threshold():
                sample = sample.where(sample.hash < self._threshold)

    def _feed_sample(self, sample: _Sample) -> None:
        self._whole.feed(sample)
        part_of = sample.hash % len(self._parts)  # low bits: independent of the threshold on the whole
        for part, evaluated in enumerate(self._parts):
            evaluated.feed(sample.where(part_of == part))

    def _lower_threshold(self) -> bool:
        """Whether units were dropped, so that ``max_units`` remain."""
        assert self._max_units is not None
        if self.num_sampled_units <= self._max_units:
            return False
        held = np.sort(hashes(self._whole.distances.stack(), self._seed))
        rate, part_rate = self.rate, self.rate / len(self._parts)
        self._threshold = int(held[self._max_units])
        self._whole.drop_above(self._seed, self._threshold, rate)
        for part in self._parts:
            part.drop_above(self._seed, self._threshold, part_rate)
        return True

    def profile(self, granularity_bytes: int, largest_error: float = LARGEST_ERROR) -> ReuseProfile:
        """Estimated counts, corrected as SHARDS-adj. Raises ValueError where the expected relative error is larger than
        ``largest_error``."""
        if self.expected_relative_error > largest_error:
            wanted = self.rate * (self.expected_relative_error / largest_error) ** 2
            remedy = f"a rate of at least {wanted:.2g}" if wanted <= 1 else "StatStack, or measure all"
            raise ValueError(
                f"SHARDS sampled {self.num_sampled_units} distinct units of {granularity_bytes} B: expected relative "
                f"error {100 * self.expected_relative_error:.0f} %, more than {100 * largest_error:.0f} %; use {remedy}"
            )
        return _adjusted(self._whole.profile(self.rate), self._site_counts, granularity_bytes)

    def part_profiles(self, granularity_bytes: int) -> list[ReuseProfile]:
        """Estimates from each part of the hashes by itself: independent of each other, coarser than the whole."""
        rate = self.rate / len(self._parts)
        return [_adjusted(part.profile(rate), self._site_counts, granularity_bytes) for part in self._parts]

    def standard_error(self, hit_ratio_of_distance: np.ndarray | None = None, num_units: int = 0) -> float:
        """Of the program's hit ratio in a fully associative LRU cache of ``num_units``, from the parts' spread; or with
        ``hit_ratio_of_distance`` float64[n], the chance of a hit at distances 0 to n - 1, none beyond. NaN of no
        accesses."""
        if not self._site_counts.any():
            return math.nan
        chance = np.ones(num_units) if hit_ratio_of_distance is None else hit_ratio_of_distance
        ratios = []
        for profile in self.part_profiles(1):
            hits = (profile.distance >= 0) & (profile.distance < len(chance))
            ratios.append(float((profile.count[hits] * chance[profile.distance[hits]]).sum()) / profile.num_accesses)
        return float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))


def hashes(unit: np.ndarray, seed: np.uint64) -> np.ndarray:
    """int64[n] in [0, 2^32): as if drawn at random for each unit. O(n)."""
    result = np.empty(len(unit), np.int64)
    _hash_all(unit, seed, result)
    return result


def _adjusted(profile: ReuseProfile, site_counts: np.ndarray, granularity_bytes: int) -> ReuseProfile:
    """Each site's counts made to add up to its accesses, from the smallest distance on; first uses are touched last."""
    site, distance, count = profile.site, profile.distance, profile.count
    order = np.lexsort((np.where(distance == COLD, np.iinfo(np.int64).max, distance), site))
    site, distance, count = site[order], distance[order], count[order]
    surplus = np.bincount(site, count, len(site_counts)) - site_counts
    up_to = np.cumsum(count)
    before = (up_to - count)[np.searchsorted(site, site)]  # all that stands before a row's site
    remains = np.maximum(up_to - before - np.maximum(surplus[site], 0), 0)
    count = np.minimum(count, remains)
    missing = np.maximum(-surplus, 0)
    return ReuseProfile.of(
        granularity_bytes,
        np.append(site, np.arange(len(site_counts))),
        np.append(distance, np.zeros(len(site_counts), np.int64)),
        np.append(count, missing),
    )


@njit(cache=True, nogil=True)
def _hash(unit, seed):  # type: ignore[no-untyped-def]
    """int64 in [0, 2^32). O(1): half of ``draws.mixed``, as it is done for every access."""
    bits = (np.uint64(unit) ^ np.uint64(seed)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return np.int64(bits >> np.uint64(32))


@njit(cache=True, nogil=True)
def _hash_all(unit, seed, result):  # type: ignore[no-untyped-def]
    """O(units)."""
    for i in range(unit.shape[0]):
        result[i] = _hash(unit[i], seed)


@njit(cache=True, nogil=True)
def _filter(unit, seed, threshold, place, hash_of):  # type: ignore[no-untyped-def]
    """Number of sampled accesses; without a branch on the outcome. O(accesses)."""
    found = 0
    for i in range(unit.shape[0]):
        value = _hash(unit[i], seed)
        place[found] = i
        hash_of[found] = value
        found += value < threshold
    return found
