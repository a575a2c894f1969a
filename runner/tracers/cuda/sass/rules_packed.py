"""Rules of instructions on several numbers in one register: halves, bfloat16s, bytes, numbers of 8 bits."""

from __future__ import annotations

from typing import Final

from manyscale.runner.tracers.cuda.sass.codes import BOOLEANS, COMPARISONS, MODIFIERS, SMALL_TYPES, TYPES
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError, compared, is_single
from manyscale.runner.tracers.cuda.sass.operands import NOTHING, ZERO, Operand


def _words(given: Given) -> list[Operand]:
    """The operands; two halves, written as numbers, are one word."""
    operands = list(given.operands)
    floating = [place for place, each in enumerate(operands) if each.is_floating]
    if floating:
        operands[floating[0] : floating[0] + 2] = [operands[floating[0]]]
    return operands


def _is_zero(operand: Operand) -> bool:
    return operand.kind == ZERO.kind and operand.number == ZERO.number


def _half(op: str) -> Rule:
    """HADD2 and HMUL2 with F32 give the first halves' sum or product as a single, which is not rounded to a half: ptxas
    makes one of ``add.f16`` and a conversion, and does not where the sum has to be rounded (``add.rn.f16``). A single
    that HADD2 adds to zero (``R0.F32``) is ``cvt.rz.f16.f32`` on compute capability 7.5."""

    def rule(given: Given) -> Decoded:
        singles = [is_single(each) for each in given.operands]
        if any(singles) and (
            op != "HADD2" or len(singles) != 3 or not _is_zero(given.operands[2 if singles[1] else 1])
        ):
            raise UnknownInstructionError(op)
        given.left("MMA", "BF16_V2", "SAT", "RELU", "FTZ", *(("F32",) if op in ("HADD2", "HMUL2") else ()))
        bits = given.bits(BFLOAT="BF16_V2", SATURATES="SAT", RELU="RELU", FLUSHES="FTZ")
        return Decoded(op, _words(given), bits, int(given.has("F32")))

    return rule


def _half_minimum(given: Given) -> Decoded:
    given.left("BF16_V2", "NAN", "FTZ", "RELU")
    bits = given.bits(BFLOAT="BF16_V2", KEEPS_NAN="NAN", FLUSHES="FTZ", RELU="RELU")
    return Decoded("HMNMX2", _words(given), bits)


def _half_comparison(op: str, *known: str) -> Rule:
    def rule(given: Given) -> Decoded:
        given.left("BF16_V2", "FTZ", *known, *COMPARISONS, *BOOLEANS)
        operands = _words(given)
        if len(operands) != (5 if op == "HSETP2" else 4):
            raise UnknownInstructionError(op)
        bits = compared(given) | given.bits(BFLOAT="BF16_V2", FLUSHES="FTZ")
        return Decoded(op, operands, bits, int(given.has("BF")))

    return rule


def _sum(given: Given) -> Decoded:
    """VIADD; with 16x2 of halves, each with its own sign."""
    given.left("16x2")
    if len(given.operands) != 3:
        raise UnknownInstructionError("VIADD")
    return Decoded("ADD_HALVES" if given.has("16x2") else "VIADD", given.operands)


def _dot(given: Given) -> Decoded:
    given.left("4A", "2A", "LO", "HI", "S8", "U8", "S16", "U16")
    kinds = [each for each in given.modifiers if each[0] in "SU"]
    if len(kinds) != 2 or len(given.operands) != 4:
        raise UnknownInstructionError("IDP")
    extra = (kinds[0][0] == "S") | (kinds[1][0] == "S") << 1 | given.has("2A") << 2 | given.has("HI") << 3
    return Decoded("IDP", given.operands, 0, extra)


def _difference(given: Given) -> Decoded:
    given.left("U32")
    return Decoded("VABSDIFF", given.operands, given.bits(UNSIGNED="U32"))


def _differences(given: Given) -> Decoded:
    """Of four bytes each; with ACC the third source and their sum. Without, PTX has the third source for bytes that a
    mask leaves out, and there is no mask."""
    given.left("U8", "S8", "ACC")
    if len(given.operands) != 4:
        raise UnknownInstructionError("VABSDIFF4")
    extra = 3 if given.has("ACC") else 1
    return Decoded("VABSDIFF", given.operands, 0 if given.has("S8") else MODIFIERS["UNSIGNED"], extra)


def _pack_integers(given: Given) -> Decoded:
    given.left("S8", "U8", "S16", "U16", "S32", "U32", "SAT")
    if len(given.modifiers) != 3 or not given.has("SAT") or len(given.operands) != 4:
        raise UnknownInstructionError("I2IP")
    to, source, _ = given.modifiers
    extra = int(to[1:]) | (to[0] == "S") << 8
    return Decoded("PACK_INTEGERS", given.operands, MODIFIERS["UNSIGNED"] if source == "U32" else 0, extra)


def _pack_rounded(given: Given) -> Decoded:
    given.left("S8", "U8", "F32", "NTZ", "TRUNC")
    to = given.modifiers[0]
    if to not in ("S8", "U8") or len(given.operands) != 4:
        raise UnknownInstructionError("F2IP")
    extra = int(to[1:]) | (to[0] == "S") << 8 | 1 << 9 | given.has("TRUNC") << 10
    return Decoded("PACK_INTEGERS", given.operands, 0, extra)


def packed_minimum(given: Given) -> Decoded:
    """VIMNMX, VIADDMNMX and VIMNMX3 of halves, or with what is below zero as zero."""
    given.left("S16x2", "U16x2", "U32", "S32", "RELU")
    sources = list(given.operands[1:-1])
    if len(sources) != (2 if given.root == "VIMNMX" else 3) or not given.operands[-1].is_predicate:
        raise UnknownInstructionError(given.root)
    sources += [ZERO] * (3 - len(sources))
    form = {"VIMNMX": 0, "VIADDMNMX": 1, "VIMNMX3": 2}[given.root]
    bits = given.bits(UNSIGNED="U32 U16x2", RELU="RELU")
    operands = [given.operands[0], *sources, given.operands[-1]]
    return Decoded("VMNMX", operands, bits, form | given.has("S16x2", "U16x2") << 2)


def _f2fp(given: Given) -> Decoded:
    """d, a, b, c: to halves or numbers of 8 bits, two at a time."""
    given.left("PACK_AB", "PACK_AB_MERGE_C", "UNPACK_B", "UNPACK_B_MERGE_C", "BF16", "F16", "F32", "E4M3", "E5M2",
               "SATFINITE", "RELU", "RZ")  # fmt: skip
    types = [each for each in given.modifiers if each in ("BF16", "F16", "F32", "E4M3", "E5M2")]
    unpacks = given.has("UNPACK_B", "UNPACK_B_MERGE_C")
    to = types[0] if types and types[0] != "F32" else "F16"  # on sm_80 the types are left out
    source = types[1] if len(types) > 1 else "F32"
    merges = given.has("PACK_AB_MERGE_C", "UNPACK_B_MERGE_C")
    if merges != (to in SMALL_TYPES) or (unpacks == (source == "F32")):
        raise UnknownInstructionError("F2FP")
    operands = list(given.operands)
    if unpacks:
        operands.insert(1, NOTHING)
    if len(operands) != 3 + merges:
        raise UnknownInstructionError("F2FP")
    if not merges:
        operands.append(ZERO)
    codes = TYPES | SMALL_TYPES
    extra = codes[to] | codes[source] << 8 | (3 if given.has("RZ") else 0) << 16 | unpacks << 18
    return Decoded("F2FP", operands, given.bits(RELU="RELU", SATURATES="SATFINITE"), extra)


PACKED: Final[dict[str, Rule]] = {
    **{root: _half(root) for root in ("HADD2", "HMUL2", "HFMA2")},
    "HMNMX2": _half_minimum, "HSETP2": _half_comparison("HSETP2"), "HSET2": _half_comparison("HSET2", "BF"),
    "VIADD": _sum, "IDP": _dot, "VABSDIFF": _difference, "VABSDIFF4": _differences, "I2IP": _pack_integers,
    "F2IP": _pack_rounded, "F2FP": _f2fp,
}  # fmt: skip
