"""Classes of instructions whose rates NVIDIA publishes: the rows of the table "Throughput of Native Arithmetic
Instructions" of the CUDA C++ Programming Guide (5.4.1; since CUDA 13 in the CUDA C++ Best Practices Guide, 12.1.1).

Rows that are not here are those of a unit of the target: additions, shifts and logical operations of integers
(``units.int``), votes of a warp, FP32 and FP64 arithmetic, special functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, get_args

InstructionClass = Literal[
    "half", "bfloat16", "compare", "multiply", "bits", "convert", "convert64", "pack", "shuffle", "reduce"
]
CLASSES: Final[tuple[InstructionClass, ...]] = get_args(InstructionClass)
_OF_ROOT: Final[dict[str, InstructionClass]] = {
    **dict.fromkeys(("HADD2", "HADD2_32I", "HFMA2", "HFMA2_32I", "HMUL2", "HMUL2_32I"), "half"),
    **dict.fromkeys(
        ("FCMP", "FMNMX", "FMNMX3", "FSEL", "FSET", "FSETP", "HMNMX2", "HSET2", "HSETP2"), "compare"
    ),  # of integers: units.int
    **dict.fromkeys(("IDP", "IDP4A", "IMAD", "IMADSP", "IMUL", "IMUL32I", "XMAD"), "multiply"),
    **dict.fromkeys(("BREV", "FLO", "POPC"), "bits"),
    **dict.fromkeys(("F2F", "F2I", "FRND", "I2F"), "convert"),
    **dict.fromkeys(("F2FP", "F2IP", "I2FP", "I2I", "I2IP"), "pack"),  # with a latency that the compiler knows
    "SHFL": "shuffle",
    **dict.fromkeys(("CREDUX", "MATCH", "REDUX"), "reduce"),
}  # fmt: skip
_DOUBLE: Final = frozenset(("F64", "S64", "U64"))
_BFLOAT16: Final = frozenset(("BF16", "BF16_V2"))
PAIRS: Final = frozenset(("half", "bfloat16"))  # two results of a thread
UNLIKE_UNITS: Final = frozenset(  # roots whose published rates are not those of their units in Accel-Sim
    root for root, name in _OF_ROOT.items() if name in ("half", "bits", "convert", "shuffle", "reduce")
)


@lru_cache(maxsize=1 << 14)
def class_of(opcode: str) -> InstructionClass | None:
    """``F2F.F64.F32``: ``convert64``; None for what its unit times."""
    root, *modifiers = opcode.split(".")
    found = _OF_ROOT.get(root)
    if found == "convert" and not _DOUBLE.isdisjoint(modifiers):
        return "convert64"
    if found == "half" and not _BFLOAT16.isdisjoint(modifiers):
        return "bfloat16"
    return found
