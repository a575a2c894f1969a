"""Speed of cache simulation in accesses a CPU second: three levels of LRU caches, and what else the general kernel
does.

Bounds are ratios to pycachesim and to cachegrind, measured in the same run (cachegrind: a whole process under Valgrind,
which also counts instructions, less the same process without accesses), and of our kernel on random lines to a sort.
Figures are printed with `pytest -m bench -s`. Goals: 80 million accesses on a multiplication of matrices, 15 million on
random lines.
"""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest
from cache_traces import Trace, cache
from cpu_time import cpu_of, least_cpu
from memory_programs import program

from manyscale.models.machine.processor import Cache
from manyscale.models.memory.caches.hierarchy import CacheHierarchy

pytestmark = pytest.mark.bench

LEVELS = {"L1D": cache(32 << 10, 8), "L2": cache(1 << 20, 8), "L3": cache(32 << 20, 16)}
NUM_SORTED = 1_000_000


def trace_of(address: np.ndarray, is_store: np.ndarray | None = None) -> Trace:
    stores = np.zeros(len(address), bool) if is_store is None else is_store
    return Trace(address.astype(np.uint64), np.full(len(address), 8, np.int32), stores)


def matmul(n: int, rows: int) -> Trace:
    """p[i, k] and q[k, j] of doubles, for i, j and k, of some rows i."""
    i, j, k = np.ogrid[:rows, :n, :n]
    address = np.empty((rows, n, n, 2), np.int64)
    address[..., 0] = 8 * (i * n + k)
    address[..., 1] = (1 << 30) + 8 * (k * n + j)
    return trace_of(address.reshape(-1))


def scattered(num_accesses: int) -> Trace:
    """Random doubles of 256 MiB."""
    return trace_of(8 * np.random.default_rng(1).integers(0, 1 << 25, num_accesses))


def million_accesses_per_second(trace: Trace, levels: dict[str, Cache] = LEVELS, **options: bool) -> float:
    def run() -> None:
        CacheHierarchy(levels, **options).feed(trace.address, trace.num_bytes, trace.is_store)

    return len(trace.address) / least_cpu(run) / 1e6


def test_against_pycachesim() -> None:
    """At least as fast on a multiplication of matrices, 1.6 times on random loads; its addresses are a list already."""
    cachesim = pytest.importorskip("cachesim", reason="pycachesim is not installed")
    for name, trace, ratio in (("matmul", matmul(100, 100), 1.0), ("random", scattered(2_000_000), 1.6)):
        ours = million_accesses_per_second(trace)
        memory, further = cachesim.MainMemory(), None
        for key, level in reversed(LEVELS.items()):
            nearer = cachesim.Cache(key, level.num_sets, level.ways, 64, "LRU", store_to=further, load_from=further)
            if further is None:
                memory.load_to(nearer)
                memory.store_from(nearer)
            further = nearer
        simulator = cachesim.CacheSimulator(further, memory)
        addresses = trace.address.tolist()
        begin = time.process_time()
        simulator.load(addresses, length=8)
        theirs = len(addresses) / (time.process_time() - begin) / 1e6
        print(f"\n{name}: {ours:.1f} M accesses/s, pycachesim {theirs:.2f}, ratio {ours / theirs:.1f}")
        assert ours >= ratio * theirs


def test_against_cachegrind() -> None:
    """At least 0.6 times as many accesses a CPU second on a multiplication of 200 x 200 matrices."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    n = 200
    geometry = ["--D1=32768,8,64", "--LL=33554432,16,64", "--cache-sim=yes", f"--cachegrind-out-file={os.devnull}"]
    command = ["valgrind", "--tool=cachegrind", *geometry, str(program("matmul", 1))]
    large, small = (min(cpu_of([*command, str(size)]) for _ in range(3)) for size in (n, 1))
    theirs = 2 * n**3 / (large - small) / 1e6
    ours = million_accesses_per_second(matmul(n, 100))
    print(f"\nmatmul {n}: {ours:.1f} M accesses/s, cachegrind {theirs:.1f}, ratio {ours / theirs:.1f}")
    assert ours >= 0.6 * theirs


def test_random_lines() -> None:
    """At least as many accesses a CPU second as a sort sorts numbers."""
    values = np.random.default_rng(1).random(NUM_SORTED)
    sorted_per_second = NUM_SORTED / least_cpu(lambda: np.sort(values, kind="stable")) / 1e6
    trace = scattered(3_000_000)
    stores = Trace(trace.address, trace.num_bytes, np.random.default_rng(2).random(len(trace.address)) < 0.3)
    loads, mixed = million_accesses_per_second(trace), million_accesses_per_second(stores)
    print(f"\nrandom loads {loads:.1f}, with 30 % stores {mixed:.1f} M accesses/s; a sort {sorted_per_second:.1f} M/s")
    assert loads >= sorted_per_second


def test_all_kinds() -> None:
    """The general kernel: at least a tenth of the plain one's speed where most accesses hit, a thirtieth on random
    ones."""
    prefetching = cache(1 << 20, 8, replacement="tree-plru", prefetcher={})
    levels = {"L1D": cache(32 << 10, 8), "L2": prefetching, "L3": cache(32 << 20, 16, inclusion="exclusive")}
    for name, trace, ratio in (("matmul", matmul(100, 100), 10), ("random", scattered(1_000_000), 30)):
        plain, general = million_accesses_per_second(trace), million_accesses_per_second(trace, plain=False)
        others = million_accesses_per_second(trace, levels)
        print(f"\n{name}: plain {plain:.1f}, general {general:.1f}, of other kinds {others:.1f} M accesses/s")
        assert plain <= ratio * general
