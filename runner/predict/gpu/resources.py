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
    """float64[NAMES]: ``amount``, 0 too where the model does not tell; ``cycles`` that it takes at the peak rate."""

    amount: np.ndarray
    cycles: np.ndarray


def resources_of(result: LaunchResult, gpu: Gpu) -> Resources:
    """Of one launch."""
    most = ceilings(gpu)
    bytes_of = {
        "l1": result.l1_accesses * gpu.l1.sector_bytes,
        "l2": result.l2_accesses * gpu.l1.sector_bytes,
        "dram": (result.dram_reads + result.dram_writes) * gpu.l2.sector_bytes if result.tells_dram else 0,
    }
    amount = np.array([result.warp_instructions, *result.work.tolist(), *(bytes_of[name] for name in MEMORIES)])
    cycles = np.array([amount[place] / most[name] if name in most else 0.0 for place, name in enumerate(NAMES)])
    for place, name in enumerate(RESOURCES):
        if name in TENSOR or name.endswith("_unit"):  # at the rates of the shapes that are executed
            cycles[NAMES.index(name)] = result.work_cycles[place] / (gpu.sms * gpu.schedulers)
    return Resources(amount, cycles)


def resource_statistics(
    results: Sequence[LaunchResult], scale: np.ndarray, cycles: int, gpu: Gpu
) -> dict[str, Statistic]:
    """Of executions of launches that come to so many ``cycles`` without latencies; ``scale`` float64[executions]: how
    much larger each is than its result."""
    each = {id(one): resources_of(one, gpu) for one in results}
    found = [each[id(one)] for one in results]
    factor = scale[:, None]
    amount = (np.array([one.amount for one in found]) * factor).sum(axis=0)
    at_peak = (np.array([one.cycles for one in found]) * factor).sum(axis=0)
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
