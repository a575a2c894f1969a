"""The exact engine against worked examples, closed forms, a plain LRU stack and simulated caches."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from access_patterns import simulated_hits
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_stack import naive_distances, traced_stream, whole_stream

from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.stack_kernel import COARSE, FINE, MIDDLE
from manyscale.models.memory.reuse_profile import COLD
from manyscale.runner.readers import sancov_npz

A, B, C = 10, 20, 30
SMALLEST = 8  # places of a table: everything grows and is numbered anew at once

shared_data = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mem"
needs_data = pytest.mark.skipif(
    not shared_data.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"
)


def distances(units: list[int] | np.ndarray) -> list[int]:
    return StackDistances(SMALLEST).feed(np.asarray(units, np.int64)).tolist()


@pytest.mark.golden
@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([], []),
        ([A], [COLD]),
        ([A, A], [COLD, 0]),
        ([A, B, A], [COLD, COLD, 1]),
        ([A, B, B, B, A], [COLD, COLD, 0, 0, 1]),  # distinct units between, not accesses
        ([A, B, C, A, A, B], [COLD, COLD, COLD, 2, 0, 2]),
        ([A, B, C, B, A, C, C, A], [COLD, COLD, COLD, 1, 2, 2, 0, 1]),
    ],
)
def test_amm_algorithm_2_by_hand(units: list[int], expected: list[int]):
    """The number of distinct addresses on the way back to the last use of the same one, which is not counted."""
    assert distances(units) == expected


@pytest.mark.theory
@pytest.mark.parametrize("num_units", [1, 63, 64, 65, 2047, 2048, 2049, 65_537])
def test_scan_and_scan_back(num_units: int):
    """A scan again and again finds all others between; on the way back, those behind."""
    up = np.arange(num_units)
    stack = StackDistances(SMALLEST)
    assert np.all(stack.feed(up) == COLD)
    for _ in range(3):
        assert np.all(stack.feed(up) == num_units - 1)
    assert np.array_equal(stack.feed(up[::-1]), num_units - 1 - up[::-1])
    assert np.array_equal(stack.stack(), up[::-1])


@pytest.mark.theory
def test_distances_over_every_level_of_counts():
    """A scan of so many units that its slots fill several of the coarsest counts, cut into uneven batches."""
    num_units = (1 << COARSE) + (1 << MIDDLE) + (1 << FINE) + 77
    up = np.arange(num_units) * 3 - num_units
    stack = StackDistances()
    assert np.all(stack.feed(up) == COLD)
    for _ in range(2):
        for batch in np.split(up, [1, 4095, 1_000_001]):
            assert np.all(stack.feed(batch) == num_units - 1)
    last = num_units - 1
    picked = [last, 0, last - 5000, last - 100_000, 7]
    # those behind it in the scan, and unit 0, once that was picked
    behind = [0, last, 5000 + 1, 100_000 + 1, last - 7 + 1]
    assert stack.feed(up[picked]).tolist() == behind


@pytest.mark.property
@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=300),
    st.lists(st.integers(0, 300), max_size=4),
    st.sampled_from([1, 4, 64, 1 << 40]),
)
def test_equals_an_lru_stack_fed_in_any_pieces(units: list[int], cuts: list[int], factor: int):
    units = [unit * factor if abs(unit) <= 40 else unit for unit in units]
    stack = StackDistances(SMALLEST)
    found = [stack.feed(piece) for piece in np.split(np.array(units, np.int64), sorted(cuts))]
    assert np.concatenate(found).tolist() == naive_distances(units)
    assert stack.stack().tolist() == list(dict.fromkeys(reversed(units)))[::-1]
    assert stack.num_distinct == len(set(units))


@pytest.mark.property
@pytest.mark.parametrize("num_units", [2, 90, 3000])
def test_equals_an_lru_stack_on_long_random_streams(num_units: int):
    units = np.random.default_rng(num_units).geometric(2 / num_units, 30_000)
    assert distances(units) == naive_distances(units.tolist())


@pytest.mark.property
@pytest.mark.parametrize("name", ["bs16_O1.lk.xz", "matmul25_O1.lk.xz"])
@pytest.mark.parametrize("granularity_bytes", [1, 8, 64])
def test_equals_an_lru_stack_and_caches_on_traces(name: str, granularity_bytes: int):
    units = traced_stream(name, granularity_bytes).unit
    found = np.array(distances(units))
    assert found.tolist() == naive_distances(units.tolist())
    for num_lines in (1, 2, 8, 64, 300):
        assert np.array_equal((found >= 0) & (found < num_lines), simulated_hits(units, 1, num_lines))


@pytest.mark.property
@needs_data
@pytest.mark.parametrize("num_lines", [16, 512])
def test_misses_of_a_whole_program_in_fully_associative_caches(num_lines: int):
    units = whole_stream(sancov_npz.read(shared_data / "mm100_full_lackey.npz"), 64).unit
    found = StackDistances().feed(units)
    assert len(units) >= 2_058_016  # the trace's accesses, some of which straddle lines
    assert np.array_equal((found >= 0) & (found < num_lines), simulated_hits(units, 1, num_lines))


@pytest.mark.peer
def test_equals_parda_on_a_multiplication_of_matrices():
    """The histogram that PARDA printed (github.com/zixuanhe/parda, commit 60ad81c, sequential) of the lines of 60 x 60
    doubles p[i, k], q[k, j] in the order i, j, k. No tolerance."""
    i, j, k = np.ogrid[:60, :60, :60]
    lines = np.stack(np.broadcast_arrays(8 * (60 * i + k), 8 * (3600 + 60 * k + j)), -1).reshape(-1) // 64
    found = dict(zip(*np.unique(StackDistances().feed(lines), return_counts=True), strict=True))
    distances = [COLD, 1, 60, 64, 67, 68, 69, *range(457, 466)]
    counts = [900, 187_230, 24_780, 3540, 187_200, 886, 884, 1979, *[472] * 6, 11_242, 10_527]
    assert found == dict(zip(distances, counts, strict=True))


@pytest.mark.theory
def test_the_state_follows_the_distinct_units_not_the_stream():
    random = np.random.default_rng(0)
    for num_units in (20_000, 60_000, 300_000):
        stack = StackDistances()
        stack.feed(random.permutation(num_units))
        num_bytes = stack.num_bytes
        for _ in range(2_000_000 // num_units):
            stack.feed(random.integers(0, num_units, 2 * num_units))
        assert stack.num_bytes == num_bytes < 54 * num_units
        assert stack.num_distinct == num_units


@pytest.mark.theory
def test_a_first_use_that_fills_the_table_is_fed_once():
    """What the kernel leaves when units run out is neither lost nor fed twice."""
    stack = StackDistances(SMALLEST)
    for unit in range(200):
        assert stack.feed(np.array([unit, unit])).tolist() == [COLD, 0]
    assert stack.num_distinct == 200


@pytest.mark.contract
@pytest.mark.parametrize("capacity", [0, 4, 12, -8])
def test_capacities_that_are_no_table_are_refused(capacity: int):
    with pytest.raises(ValueError, match="power of two"):
        StackDistances(capacity)
