"""Speed of sampled distances and hit ratios, as ratios of CPU time to the exact engine on the same stream in the same
run; at 1 % and each at its accuracy, which is printed, so that `pytest -m bench -s` is a report."""

from __future__ import annotations

from functools import cache as remembered

import numpy as np
import pytest
from access_patterns import (
    LINE_BYTES,
    MATMUL_SITES,
    STREAM_SITES,
    errors,
    exact_profile,
    joined,
    matmul,
    stream,
)
from cache_traces import cache
from cpu_time import least_cpu
from walking_back import walked_back_profile

from manyscale.models.memory.access_stream import Accesses, Sites, executions_per_block
from manyscale.models.memory.caches.set_sampling import SetSample
from manyscale.models.memory.distances.block_sampling import (
    ExecutionSampler,
    SampledBlocks,
)
from manyscale.models.memory.distances.interleave import interleaved
from manyscale.models.memory.distances.shards import Shards
from manyscale.models.memory.distances.stack_distance import StackDistances
from manyscale.models.memory.distances.statstack import StatStack
from manyscale.models.memory.reuse_profile import ReuseProfile

pytestmark = pytest.mark.bench

LEVELS = [cache(size, ways) for size, ways in ((32 << 10, 8), (1 << 20, 8), (32 << 20, 16))]
SLACK = 0.02
STREAMS = ["matmul 128", "stream 400000"]


@remembered
def accessed(name: str) -> tuple[np.ndarray, Accesses, Sites]:
    """About four million accesses."""
    kernel, size = name.split()
    pieces, sites = (matmul, MATMUL_SITES) if kernel == "matmul" else (stream, STREAM_SITES)
    return (*joined(pieces(int(size))), sites)


@remembered
def exact(name: str) -> tuple[float, ReuseProfile]:
    """CPU seconds of the exact engine's distances, and the profile."""
    _, accesses, _ = accessed(name)
    return least_cpu(lambda: StackDistances().feed(accesses.unit)), exact_profile(accesses)


def check(what: str, name: str, taken: float, ratio: float, estimate: ReuseProfile | None = None) -> None:
    """``ratio`` times as fast as the exact engine."""
    exact_seconds, truth = exact(name)
    num_accesses = len(accessed(name)[1].unit)
    speeds = f"{num_accesses / taken / 1e6:.1f} M accesses/s, exact {num_accesses / exact_seconds / 1e6:.1f}"
    print(f"\n{what}, {name}: {speeds}, ratio {exact_seconds / taken:.2f}", end="")
    if estimate is not None:
        distance, hits = errors(estimate, truth, SLACK)
        print(f", Kolmogorov {distance:.4f} with slack, {100 * hits:.2f} points", end="")
    assert exact_seconds >= ratio * taken


@pytest.mark.parametrize("name", STREAMS)
def test_statstack(name: str) -> None:
    _, accesses, _ = accessed(name)

    def run() -> StatStack:
        model = StatStack(100)
        model.feed(accesses)
        return model

    check("StatStack", name, least_cpu(run), 3, run().profile(LINE_BYTES))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("max_units", [None, 2048])
def test_shards(name: str, max_units: int | None) -> None:
    _, accesses, _ = accessed(name)

    def run() -> Shards:
        model = Shards(0.01, max_units=max_units)
        model.feed(accesses)
        return model

    size = "fixed rate" if max_units is None else f"at most {max_units} units"
    check(f"SHARDS, {size}", name, least_cpu(run), 2, run().profile(LINE_BYTES, largest_error=1))


@pytest.mark.parametrize("name", STREAMS)
def test_blocks(name: str) -> None:
    block_ids, accesses, sites = accessed(name)
    counts = executions_per_block([block_ids], sites.num_blocks)

    def run() -> SampledBlocks:
        model = SampledBlocks(counts, sites, LINE_BYTES)
        model.feed_units(block_ids, accesses)
        return model

    check("algorithm 1, StatStack", name, least_cpu(run), 2, run().profile())


def test_blocks_by_walking_back() -> None:
    """As printed, a sample of 1 % takes longer than all distances by the exact engine."""
    name = "matmul 128"
    block_ids, accesses, sites = accessed(name)
    counts = executions_per_block([block_ids], sites.num_blocks)
    found = []

    def run() -> None:
        found.append(walked_back_profile(block_ids, accesses, ExecutionSampler(counts, sites), LINE_BYTES))

    taken = least_cpu(run, 1)
    check("algorithms 1 and 2", name, taken, 0.001, found[-1])
    assert taken > exact(name)[0]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("share", "ratio"), [(1 / 64, 5), (1 / 16, 4)])
def test_sets(name: str, share: float, ratio: float) -> None:
    _, accesses, _ = accessed(name)

    def run() -> SetSample:
        caches = SetSample(LEVELS, share)
        caches.feed(accesses)
        return caches

    check(f"1/{1 / share:.0f} of the sets of three levels", name, least_cpu(run), ratio)
    hits, all_sets = run().hits(), SetSample(LEVELS, 1.0)
    all_sets.feed(accesses)
    off = [100 * (hits.hit_ratio(level) - all_sets.hits().hit_ratio(level)) for level in range(3)]
    print(f", off by {', '.join(f'{points:.2f}' for points in off)} points", end="")


@pytest.mark.parametrize("quantum", [1, 100])
def test_interleaving(quantum: int) -> None:
    _, accesses, _ = accessed("matmul 128")
    taken = least_cpu(lambda: sum(len(b.unit) for b in interleaved([[accesses], [accesses]], quantum=quantum)))
    check(f"two streams in turns of {quantum}", "matmul 128", taken / 2, 0.2)
