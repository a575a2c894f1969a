"""What a table of launches says of each launch, as samplers of launches take it."""

from __future__ import annotations

import numpy as np

from manyscale.models.workload import Workload
from manyscale.sampling.tbpoint.launches import LaunchCounts


def counts_of(launches: Workload, row: np.ndarray, with_blocks: bool) -> LaunchCounts:
    """Of the launches ``row``; ``with_blocks``: with basic-block vectors, from their instructions."""
    names = ("thread_instructions", "warp_instructions", "memory_requests", "block_size_cov")
    columns = {name: launches.column("launches", name)[row] for name in names}
    kernels = np.array(launches.tables["launches"].column("kernel_name").to_pylist())[row]
    kernel = np.unique(kernels, return_inverse=True)[1]
    return LaunchCounts(kernel, **columns, block_counts=_block_counts(launches, row) if with_blocks else None)


def shapes_of(launches: Workload, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, threads of a block) of the launches ``row``, int64[] each."""
    threads = np.prod([launches.column("launches", f"block_{axis}")[row] for axis in "xyz"], axis=0, dtype=np.int64)
    return np.asarray(launches.column("launches", "blocks")[row], np.int64), threads


def _block_counts(launches: Workload, row: np.ndarray) -> np.ndarray:
    """float64[launches, addresses]: instructions executed at each address of a kernel. Those of one basic block are
    executed equally often, so that this is its vector with each block as often as it has instructions."""
    streams = launches.gpu
    assert streams is not None
    found = []
    for launch_id in launches.column("launches", "launch_id")[row].tolist():
        static, own = streams.instruction_counts(launch_id)
        found.append((static.pc, own.executed))
    addresses = np.unique(np.concatenate([pc for pc, _ in found]))
    counts = np.zeros((len(row), len(addresses)))
    for index, (pc, executed) in enumerate(found):
        np.add.at(counts[index], np.searchsorted(addresses, pc), executed)
    return counts
