"""How long kernels of a transformer take on a GPU, and the host that gives it them: a roofline by class.

A product of matrices is cut into tiles, which the SMs compute in waves; the last one may be partly empty. A tile takes
its multiply-adds and as many as ``matrix_start`` more columns of depth would, at ``matrix_efficiency`` of the tensor
cores' peak; the best of a few tiles counts (those of cuBLAS and CUTLASS; NVIDIA, "Matrix Multiplication Background
User's Guide", tile and wave quantisation), and the traffic that DRAM needs at least. Other kernels move their bytes at
``memory_efficiency`` of DRAM's bandwidth, ``cache_speed`` times as fast as far as what one kernel moves fits into L2,
and take ``kernel_least`` more each.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from manyscale.models.gpu.matrix.shapes import Element
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine.blocks import Block
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.parameters import TimePs
from manyscale.models.workload.quantities import PS_PER_SECOND

# rows and columns of tiles, and their share of what the largest reach: each loads more for what it computes
TILES: Final = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (64, 64, 0.5))

# fields of Framework that a calibration fits to measured steps: the defaults are those of A100
FITTED: Final = frozenset(
    ("matrix_efficiency", "matrix_start", "memory_efficiency", "host_launch_ps", "host_collective_ps",
     "host_message_ps", "host_tensor_ps")
)  # fmt: skip

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Framework(Block):
    """What a framework for training reaches on the node's GPUs.

    The defaults are those of Megatron-DeepSpeed on A100: fitted to 240 rows of vTrain's (``manyscale calibrate
    training``; tests/validation/ai/megatron.py), but for three. ``optimiser_bytes`` is counted: a gradient of 16 bits
    read, its copy of 32 written and read, Adam's weight and two moments read and written, the new weight of 16 bits
    written. ``kernel_least`` is what small kernels take on A100, a round number; ``cache_speed`` is 5,400 GB/s of L2
    (github.com/te42kyfo/gpu-benches, gpu-l2-cache/a100_80.txt) over some 2,000 of the same GPU's DRAM, rounded."""

    key: ClassVar[str] = "node.framework"

    matrix_efficiency: Share = 0.9
    """The share of the tensor cores' peak that tiles of deep products reach."""
    matrix_start: Number = 467.6
    """What the begin and end of a tile take, as columns of depth."""
    memory_efficiency: Share = 0.95
    """The share of DRAM's bandwidth that kernels reach which move data."""
    cache_speed: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.5
    """How many times as fast they move what fits into L2."""
    kernel_least_ps: TimePs = Field(default=5_000_000, alias="kernel_least")
    """What each of them takes beside its bytes."""
    host_launch_ps: TimePs = Field(default=39_470_000, alias="host_launch")
    """What the host takes for each kernel or collective that it gives the GPU."""
    host_collective_ps: TimePs = Field(default=10_660_000, alias="host_collective")
    """What it takes more for a collective of tensor parallelism, for each further GPU of the group."""
    host_message_ps: TimePs = Field(default=1_167_000_000, alias="host_message")
    """What it takes to send or receive activations between stages."""
    host_tensor_ps: TimePs = Field(default=16_730_000, alias="host_tensor")
    """What it takes for each tensor of parameters in the optimiser."""
    optimiser_bytes: Number = 36
    """The bytes that the optimiser moves for each parameter."""


def peak_flops(gpu: Gpu, precision: Element) -> float:
    """Of the tensor cores, in flop/s, as the GPU's data sheet has it. Raises KeyError if the target does not say it."""
    found = gpu.matrix_flops(precision)
    if found is None:
        raise KeyError(precision)
    return found


def kernel_ps(kernels: np.ndarray, gpu: Gpu, peak: float, framework: Framework) -> np.ndarray:
    """float64[kernels] of KERNEL: what each takes, with its ``count``."""
    dram_ps = gpu.dram.bandwidth_ps_per_byte / framework.memory_efficiency
    each = kernels["bytes"] / np.maximum(kernels["count"], 1)
    # assumed: all of it is in L2 where it is as large as L2, nothing where it is three times as large
    hit = np.clip(1.5 * gpu.l2.size_bytes / np.maximum(each, 1) - 0.5, 0, 1)
    moves = kernels["bytes"] * dram_ps * (hit / framework.cache_speed + 1 - hit)
    moves += kernels["count"] * framework.kernel_least_ps
    sm_ps = PS_PER_SECOND / (peak / gpu.sms * framework.matrix_efficiency)
    best = np.full(len(kernels), np.inf)
    for rows, columns, share in TILES:
        tiles = np.ceil(kernels["m"] / rows) * np.ceil(kernels["n"] / columns) * kernels["batch"]
        depth = kernels["k"] + framework.matrix_start
        best = np.minimum(best, np.ceil(tiles / gpu.sms) * (2.0 * rows * columns * sm_ps / share) * depth)
    products = np.maximum(best, kernels["bytes"] * dram_ps)
    # one kernel of attention: at two thirds of the efficiency of large products, 60 % of the peak with the default
    # (Dao, "FlashAttention-2", 2023: 50 to 73 % of an A100's; of that 1.75 of 2 with a causal mask, section 3.1)
    fused = np.maximum(1.5 * kernels["flops"] / gpu.sms * sm_ps, moves)
    kind = kernels["kind"]
    return np.where(kind == KernelClass.matrix, products, np.where(kind == KernelClass.attention, fused, moves))
