"""The stack-distance-based cache model: from a reuse profile to the hit rates of set-associative LRU caches.

Source: AMM (section 3.3, eq. 5, 6 and 8), after Brehob and Enbody, "An analytical model of locality and caching"
(Michigan State University, 1999). D distinct lines between two uses of a line, each in the line's own set with
probability A/B (A ways, B lines), leave it in the cache if fewer than A of them are in that set:
P(h | D) = P[Bin(D, A/B) <= A - 1]. Up to 64 ways its terms are added up, each from the one before; beyond, where the
first term underflows, it is SciPy's regularised incomplete beta function (Boost's). Both are right to 13 digits; the
sum is at least 30 times faster, and SciPy's binomial functions lose up to eight digits for small A/B.

Assumptions: LRU replacement; every line in a random set. Programs that walk memory in strides of a power of two use few
of the sets, and then the model is far off (too many hits): count such programs set by set instead.

Distances count lines of a cache (pages of a TLB): a profile's granularity has to be the line's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import betaincc

from manyscale.models.machine.processor import Cache, Tlb, needed
from manyscale.models.memory.reuse_profile import ReuseProfile

_MOST_TERMS: Final = 64


@dataclass(frozen=True)
class Geometry:
    """What the model reads of a cache or TLB: ``ways`` (the paper's A) and ``num_lines`` (B, a share of a cache need
    not be whole), of ``line_bytes`` each. With as many ways as lines it is fully associative."""

    ways: int
    num_lines: float
    line_bytes: int

    def __post_init__(self) -> None:
        if self.ways < 1 or not self.num_lines > 0 or self.line_bytes < 1:
            raise ValueError(f"no cache: {self.ways} ways, {self.num_lines} lines of {self.line_bytes} B")


@dataclass(frozen=True)
class HitRates:
    """Hit rates of the levels ``names``, the nearest first.

    ``whole``: share of *all* accesses that the level holds (eq. 6, with the profile of all accesses).
    """

    names: tuple[str, ...]
    whole: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.whole) or not all(0 <= rate <= 1 for rate in self.whole):
            raise ValueError(f"levels {self.names} have rates {self.whole}; one from 0 to 1 each is needed")

    @property
    def conditional(self) -> tuple[float, ...]:
        """Of the accesses that no nearer level holds, the share that the level holds: what eq. 8 multiplies. 0 where
        none is left, and for a level that holds less than a nearer one."""
        before, result = 0.0, []
        for rate in self.whole:
            result.append(max(0.0, (rate - before) / (1 - before)) if before < 1 else 0.0)
            before = max(before, rate)
        return tuple(result)


def geometry_of(level: Cache | Tlb, place: str, share: float = 1.0) -> Geometry:
    """The geometry of a cache's ``share`` (0 to 1] of its lines, or of a TLB.

    Ways stay: a thread that owns half of a cache competes in each set for as many ways, with half as many sets.
    Raises ValueError, naming ``place``, where a cache's line size or ways are not given.
    """
    if not 0 < share <= 1:
        raise ValueError(f"{place}: a share of {share} of the lines is not above 0 and at most 1")
    if isinstance(level, Tlb):
        return Geometry(level.ways, share * level.entries, level.page_bytes)
    line_bytes = needed(level.line_bytes, "line", f"{place}.")
    ways = needed(level.ways, "ways", f"{place}.")
    return Geometry(ways, share * level.size_bytes / line_bytes, line_bytes)


def hit_probability(distance: np.ndarray, ways: int, num_lines: float) -> np.ndarray:
    """float64[n]: eq. 5, the probability that an access at stack distance int64[n] hits. O(n x ways) to 64 ways.

    0 for COLD. Fewer than ``ways`` lines between are a certain hit; with as many ways as lines, or more, the cache is
    fully associative, and hits where fewer than ``num_lines`` are between.
    """
    if ways >= num_lines:
        return ((distance >= 0) & (distance < num_lines)).astype(np.float64)
    result = ((distance >= 0) & (distance < ways)).astype(np.float64)
    open_case = distance >= ways
    between, chance = distance[open_case].astype(np.float64), ways / num_lines
    tail = (
        betaincc(ways, between - (ways - 1.0), chance) if ways > _MOST_TERMS else _sum_of_terms(between, ways, chance)
    )
    result[open_case] = tail
    return result


def hit_rate(profile: ReuseProfile, geometry: Geometry) -> float:
    """Eq. 6: the share of a profile's accesses that hit; 0 for a profile without accesses.

    Raises ValueError for distances that are counted in something else than lines of the cache. O(rows log rows).
    """
    distances, probabilities = profile.distribution()
    return _whole_rate(profile, distances, probabilities, geometry)


def hit_rate_by_label(profile: ReuseProfile, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """(labels int32[n] ascending, float64[n] the hit rate of each): eq. 6 for each site of a profile, or, after
    ``relabelled``, for each block. Raises ValueError as ``hit_rate``. O(rows log rows)."""
    _check_granularity(profile, geometry)
    distances, place = np.unique(profile.distance, return_inverse=True)
    hits = profile.count * hit_probability(distances, geometry.ways, geometry.num_lines)[place]
    labels, first = np.unique(profile.site, return_index=True)
    if not len(labels):
        return labels, np.empty(0)
    return labels, np.minimum(np.add.reduceat(hits, first) / np.add.reduceat(profile.count, first), 1.0)


def hit_rates(
    profile: ReuseProfile, levels: Mapping[str, Cache] | Mapping[str, Tlb], shares: Mapping[str, float] | None = None
) -> HitRates:
    """Hit rates of all levels, in their order, each from the profile of all accesses.

    ``shares``: of a cache that several threads share, the part that this one has, by name; 1 where nothing is said (a
    profile of the interleaved accesses of all threads needs no shares). Raises ValueError as ``hit_rate``, for a level
    without line size or ways, and for a share of an unknown level.
    """
    shares = shares or {}
    unknown = sorted(set(shares) - set(levels))
    if unknown:
        raise ValueError(f"a share of {unknown[0]!r} is given; the levels are {', '.join(levels)}")
    distances, probabilities = profile.distribution()
    rates = []
    for name, level in levels.items():
        geometry = geometry_of(level, name, shares.get(name, 1.0))
        rates.append(_whole_rate(profile, distances, probabilities, geometry))
    return HitRates(tuple(levels), tuple(rates))


def _sum_of_terms(between: np.ndarray, ways: int, chance: float) -> np.ndarray:
    """P[Bin(between, chance) <= ways - 1]. A first term that underflows leaves 0: with at most 64 terms, the sum is
    below 1e-100 then."""
    term = np.exp(between * np.log1p(-chance))
    total = term.copy()
    for a in range(1, ways):
        term *= between - (a - 1)
        term *= chance / (1 - chance) / a
        total += term
    return np.minimum(total, 1.0)


def _whole_rate(profile: ReuseProfile, distances: np.ndarray, probabilities: np.ndarray, geometry: Geometry) -> float:
    _check_granularity(profile, geometry)
    hits = probabilities * hit_probability(distances, geometry.ways, geometry.num_lines)
    return min(1.0, float(hits.sum()))


def _check_granularity(profile: ReuseProfile, geometry: Geometry) -> None:
    if profile.granularity_bytes != geometry.line_bytes:
        raise ValueError(
            f"the profile counts units of {profile.granularity_bytes} B, the cache holds lines of "
            f"{geometry.line_bytes} B; profile at a granularity of {geometry.line_bytes} B"
        )
