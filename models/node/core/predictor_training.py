"""Branch predictors learn what their cores executed before, without simulating it."""

from __future__ import annotations

from manyscale.models.cpu.branch_predictor import mispredicts
from manyscale.models.kernels import allocation_free, by_reference


@allocation_free
def train(cores, first, end, core):  # type: ignore[no-untyped-def]
    """Of each k, the predictor of ``core[k]`` sees executions [``first[k]``, ``end[k]``) of the stream, int64[n]; no
    time passes. O(executions x tables), see branch_predictor.py."""
    cores = by_reference(cores)
    block_ids = cores.stream.block_ids
    for k in range(first.shape[0]):
        if cores.limits[core[k]].misprediction <= 0:
            continue
        first_block = cores.core[core[k]].first_block
        for execution in range(first[k], end[k] - 1):
            block, follower = first_block + block_ids[execution], first_block + block_ids[execution + 1]
            mispredicts(cores.predictor, core[k], block, follower, cores.code.ends_in_branch[block])
