"""Loop nests recognised in real traces of small inputs, run at inputs that never were: the streams are those of real
traces, and windows of them give the hit rates of the whole, cache sets and all.

Reference: traces of the same programs at the target inputs, and exact simulations of them. SDCM, which knows no sets,
is off by 44 and 27 points on matrix multiply at n = 128 and 400 in 32 KiB, 8 ways (exact: 49.5 and 47.0 %).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache as remembered

import numpy as np
import pytest
from cache_traces import cache
from memory_programs import traced

from manyscale.models.memory.access_stream import Sites, access_sites
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.hierarchy import CacheHierarchy
from manyscale.models.memory.nests.extrapolation import NestProgram, recognise, traces_of
from manyscale.models.memory.nests.loop_nests import NotAffineError

pytestmark = pytest.mark.peer

SMALL = tuple(range(10, 21))
# memcpy, which STREAM's first loop becomes at -O3, goes another way for less than 64 and for more than 1,024 doubles or
# so, by eights of lines; above, by the string instructions of the processor.
INPUTS = {("stream", 3): tuple(range(2048, 2560, 64))}
CASES = [(name, level) for name in ("matmul", "stream", "stencil5", "lu") for level in (0, 1, 3)]


def targets_of(name: str, level: int) -> tuple[int, ...]:
    """At -O0, where every local variable is in memory, traces are eight times as long."""
    if (name, level) in INPUTS:
        return 4096, 10000
    return (25, 50, 96) if level == 0 else (25, 50, 128)


@remembered
def recorded(
    name: str, level: int, inputs: tuple[int, ...], targets: tuple[int, ...]
) -> tuple[dict[int, tuple[int, np.ndarray, np.ndarray]], Sites]:
    """Traces by input, their blocks numbered alike."""
    traces, sites = traces_of({x: traced(name, level, x) for x in (*inputs, *targets)})
    return {trace[0]: trace for trace in traces}, sites


def assert_same_stream(program: NestProgram, sites: Sites, trace: tuple[int, np.ndarray, np.ndarray]) -> None:
    """Equal blocks; equal addresses but for where arrays lie: each site is moved as a whole, sites whose ranges overlap
    by the same distance."""
    x, block_ids, addresses = trace
    blocks, made = (np.concatenate(part) for part in zip(*program.generate(x), strict=True))
    np.testing.assert_array_equal(blocks, block_ids)
    np.testing.assert_array_equal(program.counts(x), np.bincount(block_ids, minlength=program.num_blocks))
    assert program.num_accesses(x) == len(addresses)
    site = access_sites(block_ids, sites)
    order = np.argsort(site, kind="stable")
    first = np.flatnonzero(np.diff(site[order], prepend=-1))
    true, moved = addresses.astype(np.int64)[order], (made - addresses).astype(np.int64)[order]
    np.testing.assert_array_equal(moved, np.repeat(moved[first], np.diff(first, append=len(site))))
    low, high, shift = np.minimum.reduceat(true, first), np.maximum.reduceat(true, first), moved[first]
    overlap = (low[:, np.newaxis] <= high) & (low <= high[:, np.newaxis])
    assert (shift[:, np.newaxis] == shift)[overlap].all()


Batches = Iterable[tuple[np.ndarray, np.ndarray]]  # block ids and addresses


def hit_rate(counted: Batches, warming: Batches = ()) -> float:
    """Of 32 KiB, 8 ways, exactly; an access is of the line of its first byte."""
    hierarchy = CacheHierarchy({"L1D": cache(32 << 10, 8)})
    for batches in (warming, counted):
        hierarchy.reset_counts()
        for _, addresses in batches:
            hierarchy.feed(addresses, np.ones(len(addresses), np.int32), np.zeros(len(addresses), bool))
    counts = hierarchy.counts()
    return counts.total("L1D", Counter.load_hits) / counts.num_references


def window_hit_rate(program: NestProgram, x: int, num_windows: int) -> float:
    """Of windows of five outer iterations, after two to warm the cache."""
    instance = program.at(x)
    rates, weights = [], []
    for window in instance.windows(num_windows):
        warming = instance.generate(max(window.first - 2, 0), window.first)
        rates.append(hit_rate(instance.generate(window.first, window.end), warming))
        weights.append(instance.num_accesses(window.stratum_first, window.stratum_end))
    return float(np.average(rates, weights=weights))


def test_matrix_multiply_at_an_input_that_never_ran() -> None:
    inputs = (10, 12, 14, 17, 20)
    traces, sites = recorded("matmul", 1, inputs, (25,))
    program = recognise([traces[x] for x in inputs], sites)
    for trace in traces.values():
        assert_same_stream(program, sites, trace)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level"), CASES)
def test_streams_at_inputs_that_never_ran(name: str, level: int) -> None:
    inputs = INPUTS.get((name, level), SMALL)
    traces, sites = recorded(name, level, inputs, targets_of(name, level))
    program = recognise([traces[x] for x in inputs], sites)
    for trace in traces.values():
        assert_same_stream(program, sites, trace)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"), [("gather", "of the accesses are not affine"), ("black_scholes", "input 10 runs")]
)
def test_programs_that_are_no_nests_are_refused(name: str, reason: str) -> None:
    traces, sites = recorded(name, 1, SMALL, ())
    with pytest.raises(NotAffineError, match=reason):
        recognise(list(traces.values()), sites)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level"), [case for case in CASES if case[0] != "stream"])
def test_windows_have_the_hit_rate_of_the_whole_trace(name: str, level: int) -> None:
    targets = targets_of(name, level)
    traces, sites = recorded(name, level, SMALL, targets)
    program = recognise([traces[x] for x in SMALL], sites)
    exact = hit_rate([traces[targets[-1]][1:]])
    assert window_hit_rate(program, targets[-1], 5) == pytest.approx(exact, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(("x", "exact"), [(128, 0.495), (400, 0.470)])
def test_matrix_multiply_out_of_sets(x: int, exact: float) -> None:
    """``exact``: of whole traces, simulated by another program."""
    traces, sites = recorded("matmul", 1, SMALL, (25, 50, 128))
    program = recognise([traces[n] for n in SMALL], sites)
    assert window_hit_rate(program, x, 1) == pytest.approx(exact, abs=0.001)
