"""Arithmetic operations of a launch by type, from the instructions that it executes.

Counted are additions, multiplications and their fusion, which is two, of each thread that takes part, as NVIDIA's
profilers count them for their rooflines (Nsight Compute, "Kernel Profiling Guide": sass_thread_inst_executed_op_fadd,
fmul, ffma_pred_on and so on); and of a matrix instruction of M x N x K, which a warp executes as a whole, 2 M N K, with
the zeros of a sparse one, as specifications do. Compilers move constants by HFMA2, which counts, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import NUM_UNITS
from manyscale.models.gpu.matrix.shapes import parse
from manyscale.models.gpu.parameters import FRONTS
from manyscale.models.gpu.roofline.counts import RowCounts

OPERATIONS: Final = (
    "fp64", "fp32", "fp16", "tensor_fp64", "tensor_tf32", "tensor_bf16", "tensor_fp16", "tensor_fp8", "tensor_int8",
    "tensor_int4", "tensor_binary",
)  # fmt: skip
TENSOR: Final = tuple(name for name in OPERATIONS if name.startswith("tensor"))
RESOURCES: Final = (*OPERATIONS, *(f"{name}_unit" for name in FRONTS))
_PER_THREAD: Final = {  # the type, and operations of a thread
    **dict.fromkeys(("DADD", "DMUL"), ("fp64", 1)), "DFMA": ("fp64", 2),
    **dict.fromkeys(("FADD", "FADD32I", "FMUL", "FMUL32I", "FSWZADD"), ("fp32", 1)),
    **dict.fromkeys(("FFMA", "FFMA32I", "FADD2", "FMUL2"), ("fp32", 2)), "FFMA2": ("fp32", 4),
    **dict.fromkeys(("HADD2", "HADD2_32I", "HMUL2", "HMUL2_32I"), ("fp16", 2)),
    **dict.fromkeys(("HFMA2", "HFMA2_32I"), ("fp16", 4)),
}  # fmt: skip
_WARPS_OF_GROUP: Final = 4


class OperationsOf(NamedTuple):
    """Of an opcode: the type (place in OPERATIONS, -1: none) and its operations, of each thread or of the warp."""

    kind: int
    of_thread: int
    of_warp: int


class Work(NamedTuple):
    """Of a launch, by RESOURCES: ``amount`` float64, operations, and warp instructions of units; ``cycles`` float64,
    those that the units of one scheduler take for them at their rate."""

    amount: np.ndarray
    cycles: np.ndarray


@lru_cache(maxsize=1 << 12)
def operations_of(opcode: str) -> OperationsOf:
    """``HMMA.16816.F32``: 4096 of the warp, of 16-bit numbers."""
    root = opcode.partition(".")[0]
    if root in _PER_THREAD:
        name, of_thread = _PER_THREAD[root]
        return OperationsOf(OPERATIONS.index(name), of_thread, 0)
    product = parse(opcode)
    if product is None:
        return OperationsOf(-1, 0, 0)
    warps = _WARPS_OF_GROUP if product.is_group else 1  # all of which execute the instruction
    of_warp = round(2 * product.multiply_adds / warps)
    return OperationsOf(OPERATIONS.index(f"tensor_{product.element}"), 0, of_warp)


def work_of(opcodes: tuple[str, ...], opcode: np.ndarray, rows: np.ndarray, counts: RowCounts) -> Work:
    """Of static instructions: ``opcode`` int[rows] of ``opcodes``, ``rows`` STATIC[rows] on a GPU."""
    executed, threads = counts.executed, counts.threads
    found = np.array([operations_of(each) for each in opcodes], np.int64).reshape(-1, 3)
    kind, of_thread, of_warp = found[opcode].T
    cycles = executed * rows["interval"].astype(np.float64)
    amount_of, cycles_of = np.zeros(len(RESOURCES)), np.zeros(len(RESOURCES))
    known = kind >= 0
    np.add.at(amount_of, kind[known], (threads * of_thread + executed * of_warp)[known].astype(np.float64))
    np.add.at(cycles_of, kind[known], cycles[known])
    in_unit = rows["kind"] < NUM_UNITS
    unit = len(OPERATIONS) + rows["kind"][in_unit].astype(np.int64)
    np.add.at(amount_of, unit, executed[in_unit].astype(np.float64))
    np.add.at(cycles_of, unit, cycles[in_unit])
    return Work(amount_of, cycles_of)
