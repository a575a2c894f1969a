"""What matrix instructions take: how long their tensor core is busy, and when the result is there.

*Interval*: multiply-adds over the rate of the SM for their type, a quarter of which each scheduler's tensor core gives
(public specifications; of a group of four warps all four work on one product). Products of groups also read their
factors from shared memory, B always and A unless it is in registers: with 128 bytes a cycle and 13 cycles at least
this gives all that is published of wgmma, whose latency is its interval: m64nNk16 with A in shared memory 128, 64, 32,
24, 20, 18 cycles for N = 256, 128, 64, 32, 16, 8, with A in registers 128, 64, 32, 16, 13, 13, and sparse m64n256k32
144 and 128 (Luo, Fan, Li, Du, Liu, Wang, Chu, "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking and
Multiple Level Analysis", 2025, tables 8 and 9).

*Latency* of a warp's instructions: from the target's table of microbenchmarks; for shapes that it lacks that of an
instruction of as many rows whose rows of A hold as many bits: on Ampere m16n8k8 and m16n8k16 of FP16 take what
m16n8k16 and m16n8k32 of INT8 take, and so on (Sun, Li, Geng, Stuijk, Corporaal, "Dissecting Tensor Cores via
Microbenchmarks", IEEE TPDS 34(1), 2023).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.gpu.matrix.parameters import Matrix
from manyscale.models.gpu.matrix.shapes import BITS, GROUP_ROWS, MatrixInstruction, parse
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import NO_REGISTER, StaticInstructions

_FIRST_UNIFORM = 256  # registers of a warp as a whole
_WARPS_OF_GROUP = 4


class Timing(NamedTuple):
    """Cycles: ``interval`` that the tensor core is busy, ``latency`` from dispatch to the result, as of a Unit."""

    interval: int
    latency: int


def timing(opcode: str, gpu: Gpu, a_in_registers: bool = False) -> Timing | None:
    """Of a matrix instruction on ``gpu``; None if the target does not say. ``a_in_registers``: of a group's product,
    where A is."""
    instruction = parse(opcode)
    if instruction is None or gpu.matrix is None:
        return None
    interval = _interval(instruction, gpu.matrix, gpu.schedulers, a_in_registers)
    if interval is None:
        return None
    latency = interval if instruction.is_group else _latency(instruction, gpu.matrix)
    if latency is None:
        return None
    return Timing(max(1, round(interval)), max(1, round(latency - gpu.pipeline_cycles)))


def row_timing(static: StaticInstructions, row: int, gpu: Gpu) -> Timing | None:
    """Of a static instruction."""
    opcode = static.opcodes[static.opcode[row]]
    instruction = parse(opcode)
    is_group = instruction is not None and instruction.is_group
    return timing(opcode, gpu, is_group and _is_a_in_registers(static, row, "SP" in opcode.split(".")))


def untimed(opcode: str, gpu: Gpu) -> bool:
    """Whether a target with ``node.gpu.matrix`` does not say what a matrix instruction takes."""
    return gpu.matrix is not None and timing(opcode, gpu) is None


def _is_a_in_registers(static: StaticInstructions, row: int, is_sparse: bool) -> bool:
    """Whether general registers are read beside the sums, and the metadata of a sparse A, which is one."""
    read = static.sources[row]
    general = read[(read != NO_REGISTER) & (read < _FIRST_UNIFORM)]
    return int(np.count_nonzero(~np.isin(general, static.destinations[row]))) > is_sparse


def _interval(instruction: MatrixInstruction, matrix: Matrix, schedulers: int, a_in_registers: bool) -> float | None:
    if (known := matrix.intervals.get(instruction.name)) is not None:
        return known
    rate, sparse = matrix.rates.get(instruction.element), matrix.sparse
    if not instruction.is_group:
        rate = matrix.warp.rates.get(instruction.element, rate)
        sparse = sparse if matrix.warp.sparse is None else matrix.warp.sparse
    if rate is None or (instruction.is_sparse and sparse == 1):
        return None
    rate *= (sparse if instruction.is_sparse else 1) * (matrix.half_sums if instruction.is_half else 1)
    if not instruction.is_group:
        return instruction.multiply_adds * schedulers / rate
    if matrix.shared_bytes is None:
        return None
    multiplying = instruction.multiply_adds * schedulers / _WARPS_OF_GROUP / rate
    reading = _shared_bytes(instruction, a_in_registers) / matrix.shared_bytes
    return max(multiplying, reading, matrix.group_least_cycles)


def _shared_bytes(instruction: MatrixInstruction, a_in_registers: bool) -> float:
    """Of a group's factors, which all four warps share."""
    of_a = 0 if a_in_registers else GROUP_ROWS * instruction.stored_depth_bits / 8
    return of_a + instruction.columns * instruction.depth * BITS[instruction.element] / 8


def _latency(instruction: MatrixInstruction, matrix: Matrix) -> float | None:
    if (known := matrix.latencies.get(instruction.name)) is not None:
        return known
    if instruction.element == "fp64":  # its passes are longer
        return None
    for name, cycles in matrix.latencies.items():
        other = parse(name)
        if (
            other is not None
            and other.element != "fp64"
            and (other.rows, other.stored_depth_bits) == (instruction.rows, instruction.stored_depth_bits)
        ):
            return cycles
    return None
