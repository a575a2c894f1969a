"""Streams of line accesses of two kernels, computed instead of traced, and what tests compare profiles by."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
from scipy.stats import binom

from manyscale.models.memory.access_stream import Accesses, Sites
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.reuse_profile import ReuseProfile

LINE_BYTES = 64
ARRAY_BYTES = 1 << 30  # far apart: arrays begin at the same set of every cache
GEOMETRIES = [(32 << 10, 8), (256 << 10, 8), (1 << 20, 16)]  # bytes, ways


def sites_with(accesses_of_block: list[int]) -> Sites:
    """Sites of blocks with so many accesses each."""
    offsets = np.concatenate(([0], np.cumsum(accesses_of_block)))
    num_sites = int(offsets[-1])
    block = np.repeat(np.arange(len(accesses_of_block), dtype=np.int32), accesses_of_block)
    return Sites(block, np.zeros(num_sites, bool), np.full(num_sites, 8, np.int32), offsets)


MATMUL_SITES = sites_with([2, 1])  # p[i, k] and q[k, j]; r[i, j]
STREAM_SITES = sites_with([2, 2, 3, 3])


def matmul(n: int, rows: int | None = None) -> Iterator[tuple[np.ndarray, Accesses]]:
    """Blocks executed and lines accessed by r = p q of n x n doubles, row by row of r (the first ``rows``)."""
    k, j = np.arange(n), np.arange(n)
    q = (ARRAY_BYTES + 8 * (k[None, :] * n + j[:, None])) // LINE_BYTES
    block_ids = np.tile(np.append(np.zeros(n, np.int32), np.int32(1)), n)
    site = np.tile(np.append(np.tile(np.array([0, 1], np.int32), n), np.int32(2)), n)
    for i in range(n if rows is None else rows):
        unit = np.empty((n, 2 * n + 1), np.int64)
        unit[:, 0 : 2 * n : 2] = 8 * (i * n + k) // LINE_BYTES
        unit[:, 1 : 2 * n : 2] = q
        unit[:, 2 * n] = (2 * ARRAY_BYTES + 8 * (i * n + j)) // LINE_BYTES
        yield block_ids, Accesses(unit.reshape(-1), site)


def stream(n: int) -> Iterator[tuple[np.ndarray, Accesses]]:
    """The four kernels of STREAM on n doubles."""
    a, b, c = ((8 * np.arange(n) + array * (ARRAY_BYTES + 8 * n)) // LINE_BYTES for array in range(3))
    first = 0
    for block, arrays in enumerate([(a, c), (c, b), (a, b, c), (b, c, a)]):
        site = np.arange(first, first + len(arrays), dtype=np.int32)
        first += len(arrays)
        yield np.full(n, block, np.int32), Accesses(np.stack(arrays, 1).reshape(-1), np.tile(site, n))


def joined(pieces: Iterator[tuple[np.ndarray, Accesses]]) -> tuple[np.ndarray, Accesses]:
    """All of a stream."""
    blocks, accesses = zip(*pieces, strict=True)
    return np.concatenate(blocks), Accesses(
        *(np.concatenate([getattr(a, x) for a in accesses]) for x in ("unit", "site"))
    )


def unlabelled(unit: np.ndarray) -> Accesses:
    """All by one site."""
    return Accesses(unit, np.zeros(len(unit), np.int32))


def exact_profile(accesses: Accesses) -> ReuseProfile:
    distance = StackDistances().feed(accesses.unit)
    return ReuseProfile.of(LINE_BYTES, accesses.site, distance, np.ones(len(distance)))


def hit_ratio(profile: ReuseProfile, size_bytes: int, ways: int) -> float:
    """AMM, eq. 5 and 6: a distance D hits with P[Bin(D, A / B) <= A - 1]."""
    distance, probability = profile.distribution()
    hit = np.where(distance < 0, 0.0, binom.cdf(ways - 1, np.maximum(distance, 0), ways * LINE_BYTES / size_bytes))
    return float((probability * hit).sum())


def kolmogorov(one: ReuseProfile, other: ReuseProfile, slack: float = 0.0) -> float:
    """Largest difference of the two distributions of distances, first uses at infinity. With ``slack``, distances that
    differ by up to that ratio and one unit count as equal."""

    def below(profile: ReuseProfile, limit: np.ndarray) -> np.ndarray:
        distance, probability = profile.distribution()
        distance = np.where(distance < 0, np.iinfo(np.int64).max, distance)
        return np.append(0.0, np.cumsum(probability))[np.searchsorted(distance, limit, side="right")]

    at = np.unique(np.concatenate([p.distance[p.distance >= 0] for p in (one, other)]))
    more = np.ceil(slack * at) + 1 if slack else np.zeros(len(at))
    above = below(one, at) - below(other, at + more)
    under = below(other, at - more) - below(one, at)
    return float(max(above.max(), under.max(), 0.0))


def errors(estimate: ReuseProfile, truth: ReuseProfile, slack: float = 0.0) -> tuple[float, float]:
    """(Kolmogorov distance, worst hit ratio error over the geometries)."""
    worst = max(abs(hit_ratio(estimate, *g) - hit_ratio(truth, *g)) for g in GEOMETRIES)
    return kolmogorov(estimate, truth, slack), worst


def simulated_hits(line: np.ndarray, num_sets: int, ways: int) -> np.ndarray:
    """bool[n]: what hits in a cache under LRU, simulated as plainly as possible."""
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(num_sets)]
    hits = np.zeros(len(line), bool)
    for i, (tag, index) in enumerate(zip(line.tolist(), (line % num_sets).tolist(), strict=True)):
        lines = sets[index]
        if tag in lines:
            hits[i] = True
            lines.move_to_end(tag)
        else:
            if len(lines) == ways:
                lines.popitem(last=False)
            lines[tag] = None
    return hits
