"""Thread block clusters on a target: how many blocks run as one, and in which order they are given out."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from manyscale.models.gpu.occupancy import DoesNotFitError
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.sm.asynchronous.state import MOST_OF_CLUSTER
from manyscale.models.workload.launch_trace import LaunchTrace

MOST_SLOTS: Final = 32  # of blocks on an SM: messages between blocks have five bits of them (cluster_kernel.py)


def cluster_blocks(trace: LaunchTrace, gpu: Gpu) -> int:
    """Blocks that run as one; 1: the launch has no clusters, or the target does not say what they take."""
    return 1 if gpu.clusters is None else math.prod(trace.cluster)


def cluster_order(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> np.ndarray:
    """int32[blocks]: numbers of blocks in the grid, cluster by cluster, in each by their ranks (x fastest in both)."""
    numbers = np.arange(math.prod(grid), dtype=np.int32).reshape(grid[::-1])
    (gz, gy, gx), (cx, cy, cz) = numbers.shape, cluster
    split = numbers.reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 1, 3, 5)).reshape(-1)


def check_room(gpu: Gpu, cluster: int, slots: int) -> None:
    """Raises DoesNotFitError where the SMs of a GPC do not hold a cluster, or the model not its blocks."""
    assert gpu.clusters is not None
    if cluster > MOST_OF_CLUSTER:
        raise DoesNotFitError(f"a cluster of {cluster} blocks: no GPU runs more than {MOST_OF_CLUSTER} as one")
    if slots > MOST_SLOTS:
        raise DoesNotFitError(f"node.gpu.blocks: {slots} blocks of clusters on an SM; the model holds {MOST_SLOTS}")
    tpcs = -(-gpu.sms // gpu.clusters.tpc_sms)
    most = min(gpu.sms, -(-tpcs // gpu.clusters.gpcs) * gpu.clusters.tpc_sms) * slots
    if cluster > most:
        raise DoesNotFitError(f"a cluster of {cluster} blocks needs more SMs than a GPC has (room for {most} blocks)")
