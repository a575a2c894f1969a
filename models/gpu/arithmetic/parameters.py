"""How fast an SM executes the instructions of a class: ``node.gpu.instructions``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from manyscale.models.workload.parameters import Cycles, Strict

OfTarget = Literal["int", "fp32", "fp64", "sfu", "tensor", "branch", "uniform", "texture"]
OfInstructions = Literal["multiply", "exchange"]
OWN_UNITS: Final[tuple[OfInstructions, ...]] = get_args(OfInstructions)  # that only classes of instructions have


class InstructionTiming(Strict):
    """Of the instructions of one class."""

    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The results of an SM in a cycle, as NVIDIA's table of native arithmetic instructions counts them; two for each
    thread of an instruction on pairs of 16 bits."""
    unit: OfTarget | OfInstructions
    """The unit of a scheduler that they keep busy: one of `units`; or `multiply`, of integers, beside `fp32`, and
    `exchange`, of values between threads."""
    latency_cycles: Cycles | None = Field(default=None, alias="latency")
    """From the issue of an instruction to that of one that needs its result. By default that of the unit."""
