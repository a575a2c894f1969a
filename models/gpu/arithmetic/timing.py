"""What the instructions of a class take: for how long their unit is busy, from the rate of the SM (NVIDIA's table of
native arithmetic instructions) and the schedulers that it is of, and when the result is there."""

from __future__ import annotations

import numpy as np

from manyscale.models.gpu.arithmetic.classes import PAIRS, InstructionClass, class_of
from manyscale.models.gpu.parameters import FRONTS, WARP_THREADS, Gpu
from manyscale.models.workload.launch_trace import StaticInstructions


def interval_cycles(name: InstructionClass, gpu: Gpu) -> int:
    """For which an instruction of a class that ``gpu`` times keeps the unit of its scheduler busy."""
    results = WARP_THREADS * (2 if name in PAIRS else 1)
    return max(1, round(gpu.schedulers * results / gpu.instructions[name].rate))


def time_instructions(static: StaticInstructions, gpu: Gpu, rows: np.ndarray) -> None:
    """Unit, interval and latency (STATIC[rows]) of the instructions whose class the target times. O(instructions)."""
    for number, opcode in enumerate(static.opcodes):
        if (name := class_of(opcode)) is None or name not in gpu.instructions:
            continue
        timing = gpu.instructions[name]
        own = (static.opcode == number) & (rows["kind"] < len(FRONTS))
        rows["kind"][own] = rows["front"][own] = FRONTS.index(timing.unit)
        rows["interval"][own] = interval_cycles(name, gpu)
        if timing.latency_cycles is None:
            rows["latency"][own] = round(gpu.units[timing.unit].latency_cycles)  # type: ignore[index]  # checked there
        else:
            rows["latency"][own] = max(1, round(timing.latency_cycles - gpu.pipeline_cycles))
