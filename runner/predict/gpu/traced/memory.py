"""What steps keep in the memory of the target's GPUs, as far as the workload says."""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.capacity import exceeded
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.statistic import Statistic

_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimiser": "what the optimiser keeps",
    "activations": "activations of the micro batches under way",
}


def memory_statistics(workload: Workload, gpu: Gpu) -> dict[str, Statistic]:
    """Of the fullest GPU."""
    needed = _needed(workload)
    if not len(needed):
        return {}
    fullest = int(needed.argmax())
    most = float(needed[fullest])
    figures = {"step.memory": Statistic(most, "B", "total", "memory that a step needs of the fullest GPU")}
    for name, text in _PARTS.items():
        value = float(workload.column("gpu_memory", f"{name}_bytes")[fullest])
        figures[f"step.memory.{name}"] = Statistic(value, "B", "total", f"memory of the fullest GPU: {text}")
    if gpu.dram.size_bytes is not None:
        text = "memory that a step needs of the fullest GPU, over what it has"
        figures["step.memory_share"] = Statistic(most / gpu.dram.size_bytes, "1", "ratio", text)
    return figures


def memory_notes(workload: Workload, gpu: Gpu) -> tuple[Note, ...]:
    needed = _needed(workload)
    if not len(needed) or gpu.dram.size_bytes is None:
        return ()
    rank = int(workload.column("gpu_memory", "rank")[needed.argmax()])
    count = int(np.count_nonzero(needed > gpu.dram.size_bytes))
    return exceeded(float(needed.max()), f"rank {rank}", count, gpu)


def _needed(workload: Workload) -> np.ndarray:
    """float64[rows of gpu_memory], bytes."""
    parts = [workload.column("gpu_memory", f"{name}_bytes") for name in _PARTS]
    return np.asarray(np.sum(parts, axis=0))
