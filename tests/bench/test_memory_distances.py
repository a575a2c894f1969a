"""Speed of the exact stack distances, in accesses a CPU second, on streams made with NumPy.

Bounds are ratios to work measured in the same run, so that they move with the machine: an LRU stack kept as a list, on
the start of the stream, and reading as much memory at random. Goals, printed with `pytest -m bench -s`: 24 million
accesses a CPU second on a multiplication of matrices, 10 million on random lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cpu_time import median_cpu

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.histogram import PIECE, reuse_profile
from manyscale.models.memory.distances.segments import merge, segment_result
from manyscale.models.memory.distances.stack_distance import StackDistances

sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "memory"))
from naive_stack import naive_distances

pytestmark = pytest.mark.bench

LINE_BYTES = 64


def matmul_lines(n: int) -> np.ndarray:
    """Lines of p[i, k] and q[k, j], of doubles, in the order i, j, k: 2 n^3 accesses."""
    i, j, k = np.ogrid[:n, :n, :n]
    addresses = np.empty((n, n, n, 2), np.int64)
    addresses[..., 0] = 8 * (i * n + k)
    addresses[..., 1] = 8 * (n * n + k * n + j)
    return addresses.reshape(-1) // LINE_BYTES


def random_lines(num_accesses: int, num_lines: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, num_lines, num_accesses)


def feed_in_pieces(line: np.ndarray) -> None:
    stack = StackDistances()
    for begin in range(0, len(line), PIECE):
        stack.feed(line[begin : begin + PIECE])


@pytest.mark.parametrize(
    ("name", "line", "times_faster"),
    [
        # below what was measured, on two kinds of processors: 204 to 540, and 745 to 960 times
        ("matrix multiply, n = 200", lambda: matmul_lines(200), 160),
        ("random over 10^6 lines", lambda: random_lines(8_000_000, 10**6), 480),
    ],
)
def test_against_a_list(name: str, line: Callable[[], np.ndarray], times_faster: float) -> None:
    stream = line()
    start = stream[:20_000].tolist()
    engine = median_cpu(lambda: feed_in_pieces(stream)) / len(stream)
    plain = median_cpu(lambda: naive_distances(start), runs=1) / len(start)
    told = f"{1e-6 / engine:.1f} million accesses a CPU s, a list {1e-6 / plain:.3f} ({plain / engine:.0f} times)"
    print(f"\n{name}: {told}")
    assert engine * times_faster < plain


def test_random_lines_against_reading_memory_at_random() -> None:
    """Each access has to find its line among 10^7: the bound is so many random reads of as much memory."""
    stream = random_lines(10_000_000, 10**7)
    memory = np.ones((1 << 24, 2), np.int64)
    place = np.random.default_rng(2).integers(0, len(memory), len(stream))
    engine = median_cpu(lambda: feed_in_pieces(stream))
    reads = median_cpu(lambda: int(memory[place, 1].sum()))
    print(f"\n{len(stream) / engine / 1e6:.1f} million accesses a CPU s, {engine / reads:.1f} times the random reads")
    assert engine < 12 * reads  # measured: 5.6


def test_profiles_and_segments_against_distances_alone() -> None:
    """Counting costs little more than the distances; merging segments next to nothing where units are few."""
    line = matmul_lines(160)
    site = np.tile(np.arange(2, dtype=np.int32), len(line) // 2)
    at = [len(line) * part // 8 for part in range(9)]
    segments = [Accesses(line[a:b], site[a:b]) for a, b in pairwise(at)]
    results = [segment_result(segment, LINE_BYTES) for segment in segments]
    alone = median_cpu(lambda: feed_in_pieces(line))
    profile = median_cpu(lambda: reuse_profile([Accesses(line, site)], LINE_BYTES, steady=True))
    parts = median_cpu(lambda: [segment_result(segment, LINE_BYTES) for segment in segments])
    merging = median_cpu(lambda: merge(results, LINE_BYTES, steady=True))
    print(
        f"\nprofile {len(line) / profile / 1e6:.1f} million accesses a CPU s, eight segments "
        f"{len(line) / parts / 1e6:.1f}; {profile / alone:.2f} and {parts / alone:.2f} times the distances alone; "
        f"merging {merging * 1e3:.1f} ms, {merging / parts:.3f} of the segments"
    )
    # measured: 1.3, 1.3 and 0.01
    assert profile < 2 * alone
    assert parts < 2 * alone
    assert merging < 0.03 * parts
