"""TBPoint between launches, for a study: counts of launches from the table of launches."""

from __future__ import annotations

import numpy as np

from manyscale.models.workload import Workload
from manyscale.runner.predict.gpu.plan import LaunchPlan
from manyscale.runner.study import Study
from manyscale.sampling.tbpoint.launches import LaunchCounts, choose
from manyscale.sampling.tbpoint.options import TbpointChoice
from manyscale.sampling.tbpoint.rules import LaunchSampling


def plan_launches(launches: Workload, row: np.ndarray, study: Study) -> LaunchPlan:
    """Clusters of the launches ``row`` (ascending), and those that are simulated. O(launches log launches), and with
    basic-block vectors O(instructions)."""
    asked = LaunchSampling.model_validate(study.options(TbpointChoice).launches.model_dump() | {"seed": study.seed})
    sample = choose(counts_of(launches, row, asked.bbv_scale > 0), asked)
    representative = row[sample.representative]
    return LaunchPlan(row, sample.cluster.astype(np.int32), representative, row[sample.chosen], sample)


def counts_of(launches: Workload, row: np.ndarray, with_blocks: bool) -> LaunchCounts:
    """Of the launches ``row``; ``with_blocks``: with basic-block vectors, from their instructions."""
    names = ("thread_instructions", "warp_instructions", "memory_requests", "block_size_cov")
    columns = {name: launches.column("launches", name)[row] for name in names}
    kernels = np.array(launches.tables["launches"].column("kernel_name").to_pylist())[row]
    kernel = np.unique(kernels, return_inverse=True)[1]
    return LaunchCounts(kernel, **columns, block_counts=_block_counts(launches, row) if with_blocks else None)


def _block_counts(launches: Workload, row: np.ndarray) -> np.ndarray:
    """float64[launches, addresses]: instructions executed at each address of a kernel. Those of one basic block are
    executed equally often, so that this is its vector with each block as often as it has instructions."""
    streams = launches.gpu
    assert streams is not None
    found = []
    for launch_id in launches.column("launches", "launch_id")[row].tolist():
        trace = streams.trace(launch_id)
        executed = np.bincount(trace.instruction, minlength=len(trace.static.pc))
        found.append((trace.static.pc, executed))
    addresses = np.unique(np.concatenate([pc for pc, _ in found]))
    counts = np.zeros((len(row), len(addresses)))
    for index, (pc, executed) in enumerate(found):
        np.add.at(counts[index], np.searchsorted(addresses, pc), executed)
    return counts
