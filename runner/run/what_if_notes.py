"""What-ifs that a run cannot answer, or answers in part: what is refused, and what is told with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_step_tables import has_times
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.predict.features import why_unused
from manyscale.runner.predict.phase_source import Case
from manyscale.runner.study import what_if

_OF_STEPS: Final = {
    "no-skew": "ranks enter it as the network and their compute let them; perfect-balance makes their compute equal",
    "free-collectives": "its collectives are MPI's; ideal-network frees them",
    "no-launch-latency": "it gives no streams kernels whose times are known",
}
_OF_NETWORK: Final = ("zero-latency", "infinite-bandwidth")


def refuse(asked: str, workload: Workload, path: str) -> None:
    """Raises UserError for a what-if about training steps of a run that is none."""
    if asked in _OF_STEPS and not has_times(workload.tables):
        raise UserError(
            f"what-if {asked}: {path} is no step of GPUs with times of kernels, so that it would change nothing: "
            f"{_OF_STEPS[asked]}"
        )


def of_point(case: Case, asked: str, found: Mapping[str, int], *, has_launches: bool) -> list[Note]:
    """Of a what-if that changes nothing of a run, or less than it says."""
    keys = [".".join(map(str, change.keys)) for change in what_if.changes(asked)]
    where, notes = f"what-if {asked}", []
    if why := why_unused(case, keys, found, has_launches=has_launches):
        notes.append(informs("what-if-without-effect", f"changes nothing: {why}", where))
    if asked in _OF_NETWORK and (count := _of_nccl(case)):
        text = (
            f"{count:,} calls of collectives and messages between GPUs take what they took: it follows from the trace "
            "or from network.nccl, and not from the network's latency and bandwidth (free-collectives frees them)"
        )
        notes.append(changes("what-if-without-nccl", text, where, count))
    if asked.startswith("slower:") and "launches" in found:
        notes.append(
            changes("what-if-without-kernels", "kernels of GPUs, which are simulated, stay as they are", where)
        )
    return notes


def _of_nccl(case: Case) -> int:
    """How many calls of ranks take what NCCL does."""
    workload = case.traced
    if not has_times(workload.tables):
        return 0
    of_nccl = workload.column("gpu_operations", "kind") == GpuOperationKind.communication
    if not case.machine.network.has_block("nccl"):
        of_nccl = of_nccl & (workload.column("gpu_operations", "duration_ps") >= 0)
    return int(np.count_nonzero(of_nccl))
