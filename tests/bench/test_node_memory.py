"""Speed of the timed memory of a node in accesses a CPU second: cache-friendly and hostile streams of 1 to 64 cores.

Bounds are ratios to the hierarchy without time, plain LRU caches of one core, on the same stream in the same run.
Figures are printed with `pytest -m bench -s`. A core waits for its access ten turns before.
"""

from __future__ import annotations

import numpy as np
import pytest
from cpu_time import least_cpu
from node_memory import DRAM, caches, flow, node

from manyscale.models.memory.caches.hierarchy import CacheHierarchy
from manyscale.models.node.memory.system import new_memory_system

pytestmark = pytest.mark.bench

SIZES = {"L1D": (32 << 10, 8, 1), "L2": (256 << 10, 8, 1), "L3": (20 << 20, 20, 64)}
MEMORY = {"latency": "60 ns", "bandwidth": "inf B/s", "dram": DRAM | {"channels": 4, "banks": 16, "row": "8 KiB"}}
NUM_ACCESSES = 2_000_000


def friendly(num_cores: int) -> np.ndarray:
    """Lines of doubles of a vector in the first cache and of one that streams by, by turns; 6 % of them are new."""
    core, turn = np.arange(NUM_ACCESSES) % num_cores, np.arange(NUM_ACCESSES) // num_cores
    address = (core << 24) + np.where(turn % 2 == 0, turn // 2 % 512 * 8, (1 << 20) + turn // 2 * 8)
    return address >> 6


def hostile(num_cores: int) -> np.ndarray:
    """Random lines of 256 MiB: 93 % are in no cache."""
    return np.random.default_rng(num_cores).integers(0, 1 << 22, NUM_ACCESSES)


@pytest.mark.parametrize("num_cores", [1, 16, 64])
def test_accesses_per_second(num_cores: int) -> None:
    """A fifth of the speed without time and of one core on friendly streams, a fifteenth on hostile ones, for any
    number of cores."""
    levels = caches(SIZES, L1D={"latency": "4 cycles"}, L2={"latency": "11 cycles"}, L3={"latency": "28 cycles"})
    core = np.arange(NUM_ACCESSES) % num_cores
    for stream, ratio in ((friendly, 5), (hostile, 15)):
        line = stream(num_cores)
        memory = new_memory_system(node(64, levels, memory=MEMORY), num_cores)
        seconds = least_cpu(lambda line=line, memory=memory: flow(memory, core, line, False, 0.0, depth=10), 3)
        given = (line * 64).astype(np.uint64), np.full(len(line), 8, np.int32), np.zeros(len(line), bool)
        untimed = CacheHierarchy(levels)
        without_time = least_cpu(lambda given=given, untimed=untimed: untimed.feed(*given), 3)
        print(
            f"\n{num_cores} cores, {stream.__name__}: {len(line) / seconds / 1e6:.1f} M accesses/s, "
            f"without time {len(line) / without_time / 1e6:.1f}"
        )
        assert seconds <= ratio * without_time
