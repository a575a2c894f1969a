"""Rules of what came with compute capabilities 10.0 and 12.0, as far as ordinary kernels have it."""

from __future__ import annotations

from typing import Final

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ATOMIC, MODIFIERS
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError


def _sum(given: Given) -> Decoded:
    """IADD d, a, b, of 32 or 64 bits."""
    given.left("64")
    if len(given.operands) != 3 or any(each.is_predicate for each in given.operands):
        raise UnknownInstructionError(given.root)
    return Decoded("IADD_PAIR" if given.has("64") else "VIADD", given.operands)


def _reduction(given: Given) -> Decoded:
    """CREDUX d, a: as REDUX, into a uniform register."""
    given.left("MIN", "MAX", "S32")
    operation = next((each for each in given.modifiers if each in ("MIN", "MAX")), None)
    if operation is None or len(given.operands) != 2:
        raise UnknownInstructionError("CREDUX")
    return Decoded("REDUX", given.operands, 0 if given.has("S32") else MODIFIERS["UNSIGNED"], ATOMIC[operation])


def _pairs(operation: int) -> Rule:
    def rule(given: Given) -> Decoded:
        given.left("FTZ")
        known = (ops.REGISTER, ops.UNIFORM)
        if len(given.operands) != (4 if operation == 2 else 3) or any(
            each.kind not in known for each in given.operands
        ):
            raise UnknownInstructionError(given.root)
        for each in given.operands[1:]:
            if each.number not in (ops.ZERO_REGISTER,) and not each.text.endswith(".F32x2.HI_LO"):
                raise UnknownInstructionError(given.root)
        return Decoded("PAIR_FLOAT", given.operands, given.bits(FLUSHES="FTZ"), operation)

    return rule


def _of_three(given: Given) -> Decoded:
    given.left("FTZ")
    if len(given.operands) != 5 or given.operands[4].number != ops.TRUE:
        raise UnknownInstructionError(given.root)
    return Decoded("FMNMX3", given.operands, given.bits(FLUSHES="FTZ"))


BLACKWELL: Final[dict[str, Rule]] = {
    "IADD": _sum, "CREDUX": _reduction, "FADD2": _pairs(0), "FMUL2": _pairs(1), "FFMA2": _pairs(2), "FMNMX3": _of_three,
}  # fmt: skip
