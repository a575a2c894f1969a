"""What launches ask of a GPU's resources, and how long these take for it at their peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.roofline.ceilings import MEMORIES, ceilings
from manyscale.models.gpu.roofline.operations import OPERATIONS, RESOURCES, TENSOR
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.statistic import Statistic

NAMES: Final = ("issue", *RESOURCES, *MEMORIES)


class Resources(NamedTuple):
    """float64[launches, NAMES]: ``amount``, 0 too where the model does not tell; ``cycles`` that it takes at the peak
    rate."""

    amount: np.ndarray
    cycles: np.ndarray


def resources_of(results: Sequence[LaunchResult], gpu: Gpu) -> Resources:
    """Of each launch."""
    most = ceilings(gpu)
    counts = np.array(
        [(each.warp_instructions, each.l1_accesses, each.l2_accesses, each.dram_reads + each.dram_writes,
          each.tells_dram) for each in results], np.float64,
    ).reshape(-1, 5)  # fmt: skip
    work, taken = (
        np.array([getattr(each, name) for each in results], np.float64).reshape(-1, len(RESOURCES))
        for name in ("work", "work_cycles")
    )
    sectors = counts[:, 1:4] * (gpu.l1.sector_bytes, gpu.l1.sector_bytes, gpu.l2.sector_bytes)
    sectors[:, 2] *= counts[:, 4]
    amount = np.concatenate((counts[:, :1], work, sectors), axis=1)
    cycles = amount * [1 / most[name] if name in most else 0.0 for name in NAMES]
    at_rate = [place for place, name in enumerate(RESOURCES) if name in TENSOR or name.endswith("_unit")]
    # at the rates of the shapes that are executed
    cycles[:, [NAMES.index(RESOURCES[place]) for place in at_rate]] = taken[:, at_rate] / (gpu.sms * gpu.schedulers)
    return Resources(amount, cycles)


def resource_statistics(
    results: Sequence[LaunchResult], scale: np.ndarray, cycles: int, gpu: Gpu
) -> dict[str, Statistic]:
    """Of executions of launches that come to so many ``cycles`` without latencies; ``scale`` float64[executions]: how
    much larger each is than its result."""
    found = resources_of(results, gpu)
    amount, at_peak = scale @ found.amount, scale @ found.cycles
    figures: dict[str, Statistic] = {}
    for name in OPERATIONS:
        if done := float(amount[NAMES.index(name)]):
            text = f"operations of type {name}, a fused multiplication and addition counted as two"
            figures[f"gpu.operations.{name}"] = Statistic(done, "1", "total", text)
    for name in MEMORIES:
        if moved := float(amount[NAMES.index(name)]):
            figures[f"gpu.bytes.{name}"] = Statistic(moved, "B", "total", f"asked of {name}, in whole sectors")
    tensor = float(sum(at_peak[NAMES.index(name)] for name in TENSOR))
    shares = {name: float(at_peak[NAMES.index(name)]) for name in ("issue", "fp64", "fp32", "fp16", *MEMORIES)}
    for name, used in (shares | {"tensor": tensor}).items():
        if used and cycles:
            text = f"achieved of the peak of {name}, over all cycles without launch latency"
            figures[f"gpu.of_peak.{name}"] = Statistic(used / cycles, "1", "ratio", text)
    return figures
