"""How fast the tensor cores of a GPU are: ``node.gpu.matrix``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from manyscale.models.gpu.matrix.shapes import Element, parse
from manyscale.models.workload.parameters import Cycles, FlopRate, Strict

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_WARP_ROOTS: Final = "HMMA, IMMA, BMMA, DMMA, QMMA"


def _warp_instruction(name: str) -> str:
    found = parse(f"{name}.E4M3" if name.startswith("QMMA") else name)
    if found is None or found.is_group or found.name != name:
        raise ValueError(
            f"{name}: no name of a warp's matrix instruction; write {_WARP_ROOTS}, SP if it is sparse, its shape as in "
            "16816, and TF32 or S4 for these types, as in HMMA.SP.1688.TF32"
        )
    return name


Timings = dict[Annotated[str, AfterValidator(_warp_instruction)], Cycles]


class WarpMatrix(Strict):
    """What the instructions of single warps reach, where that is less than those of groups of four."""

    rates: dict[Element, Rate] = {}
    """The multiply-adds of an SM in a cycle, by the type of the factors."""
    sparse: Rate | None = None
    """How many times as many a sparse first factor allows."""


class Matrix(Strict):
    """Tensor cores, one for each scheduler. An instruction takes its own as long as its multiply-adds take at the rate
    of its type, unless ``intervals`` says otherwise; those of a group of four warps also as long as it takes to read
    their factors from shared memory. Sparse ones count what they leave out."""

    rates: dict[Element, Rate]
    """The multiply-adds of an SM in a cycle, by the type of the factors; dense, with sums of 32 bits where there are
    several."""
    peaks_flops: dict[Element, FlopRate] = Field(default={}, alias="peaks")
    """What the data sheet gives as the dense peak of the whole GPU, of types that `rates` has: utilisations (MFU) are
    shares of it, and times of kernels of frameworks follow from it. By default what `rates` give at the SMs' clock,
    which may be higher than the one that tensor cores are rated at."""
    sparse: Rate = 1
    """How many times as many a sparse first factor allows."""
    half_sums: Rate = 1
    """How many times as many sums of 16 bits allow."""
    warp: WarpMatrix = WarpMatrix()
    """What the instructions of single warps reach, where that is less than those of groups of four."""
    latencies: Timings = {}
    """From the issue of an instruction of a warp to that of one that needs its result. Those that are not listed take
    that of one with as many rows and as many bits in a row of the first factor."""
    intervals: Timings = {}
    """What an instruction of a warp takes of its tensor core, where that is not what the rates say."""
    group_least_cycles: Cycles = Field(default=0, alias="group_least")
    """What an instruction of a group takes at least."""
    shared_bytes: Rate | None = None
    """The bytes of shared memory that the instructions of groups read in a cycle; without it there are no such."""
