"""The most that a GPU can do in a cycle: the ceilings of its roofline.

Sources: Williams, Waterman, Patterson, "Roofline" (CACM 2009); Ding, Williams, "An Instruction Roofline Model for GPUs"
(PMBS 2019), whose ceiling is what the schedulers issue, and whose traffic that of L1, L2 and DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from manyscale.models.gpu.arithmetic.parameters import OWN_UNITS
from manyscale.models.gpu.arithmetic.timing import interval_cycles
from manyscale.models.gpu.parameters import UNITS, WARP_THREADS, Gpu
from manyscale.models.gpu.roofline.operations import OPERATIONS
from manyscale.models.workload.quantities import PS_PER_SECOND

MEMORIES: Final = ("l1", "l2", "dram")
_OF_THREAD: Final = {"fp64": 2, "fp32": 2, "fp16": 4}  # operations of a fused instruction
_UNIT_OF: Final = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp32"}


def ceilings(gpu: Gpu) -> Mapping[str, float]:
    """In each cycle of all SMs: ``issue``, warp instructions; of each unit, such as ``int_unit``, the same;
    ``fp64``, ``fp32`` and ``fp16``, operations; ``l1``, ``l2`` and ``dram``, bytes; where the target has rates of
    matrix instructions (``node.gpu.matrix``), ``tensor_fp16`` and so on, operations of dense ones. What their shapes
    reach of this follows from the launches (``Work.cycles``).

    ``fp16``: at the rate of the target's class ``half``; without it, pairs at the rate of the FP32 unit, on which the
    models time HFMA2 and the like then.
    """
    schedulers = gpu.sms * gpu.schedulers
    rate: dict[str, float] = {name: schedulers / max(1, round(gpu.units[name].interval_cycles)) for name in UNITS}
    found = {"issue": float(schedulers)}
    found |= {name: WARP_THREADS * _OF_THREAD[name] * rate[_UNIT_OF[name]] for name in OPERATIONS if name in _UNIT_OF}
    if (half := gpu.instructions.get("half")) is not None:
        found["fp16"] = 2 * gpu.sms * half.rate
    for name, timing in gpu.instructions.items():
        if timing.unit in OWN_UNITS:
            rate[timing.unit] = max(rate.get(timing.unit, 0.0), schedulers / interval_cycles(name, gpu))
    found |= {f"{name}_unit": each for name, each in rate.items()}
    if gpu.matrix is not None:
        found |= {f"tensor_{name}": 2 * gpu.sms * each for name, each in gpu.matrix.rates.items()}
    found["l1"] = float(gpu.sms * gpu.l1.banks * gpu.l1.sector_bytes)
    found["l2"] = float(gpu.l2.slices * gpu.l2.sector_bytes * gpu.crossbar.sectors)
    found["dram"] = PS_PER_SECOND / gpu.dram.bandwidth_ps_per_byte / gpu.frequency_hz
    return found
