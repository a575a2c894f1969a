"""A rule for each root of SASS, for compute capabilities 7.5 to 9.0: how its text becomes a record.

Sources: NVIDIA, "CUDA Binary Utilities" (tables of instructions), PTX ISA for what is computed, and results of
programs. Operands stand in the order that the interpreter's functions name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import (
    MUFU,
    PRMT,
    ROUNDINGS,
    TYPES,
)
from manyscale.runner.tracers.cuda.sass.given import (
    Decoded,
    Given,
    Rule,
    UnknownInstructionError,
    is_sign,
    is_single,
    plain,
)
from manyscale.runner.tracers.cuda.sass.operands import FALSE_PREDICATE, NOTHING, TRUE_PREDICATE, ZERO, Operand
from manyscale.runner.tracers.cuda.sass.rules_blackwell import BLACKWELL
from manyscale.runner.tracers.cuda.sass.rules_compare import comparison, double_comparison, float_set
from manyscale.runner.tracers.cuda.sass.rules_hopper import HOPPER
from manyscale.runner.tracers.cuda.sass.rules_matrix import MATRICES
from manyscale.runner.tracers.cuda.sass.rules_memory import MEMORY
from manyscale.runner.tracers.cuda.sass.rules_packed import PACKED, packed_minimum
from manyscale.runner.tracers.cuda.sass.rules_texture import TEXTURES
from manyscale.runner.tracers.cuda.sass.rules_warp import WARPS


def rules() -> Mapping[str, Rule]:
    """Of each root; a root that is not there and begins with U has that of the rest."""
    return _RULES


_MARKS: Final = {"HADD2": {"F32"}, "PLOP3": {"SIGN"}}  # of registers, where they mean something


def rule_of(opcode: str, operands: Sequence[Operand], pc: int, word: int) -> Decoded:
    """Raises UnknownInstructionError."""
    root, *modifiers = opcode.split(".")
    if root not in _RULES and root[:1] == "U" and root[1:] in _RULES:
        root = root[1:]
    rule = _RULES.get(root)
    marked = {"F32" if is_single(each) else "SIGN" for each in operands if is_single(each) or is_sign(each)}
    if rule is None or not marked <= _MARKS.get(root, set()):
        raise UnknownInstructionError(opcode)
    return rule(Given(root, tuple(modifiers), tuple(operands), pc, word))


def _with_predicates(operands: Sequence[Operand], first: int, most: int) -> tuple[list[Operand], list[Operand]]:
    """Predicates that are written, at ``first`` and behind, filled with PT up to ``most``; and what follows."""
    written: list[Operand] = []
    place = first
    while place < len(operands) and operands[place].is_predicate and len(written) < most:
        written.append(operands[place])
        place += 1
    return written + [TRUE_PREDICATE] * (most - len(written)), list(operands[place:])


def _nothing(given: Given) -> Decoded:
    """What takes effect on other threads' views of memory, or on time, alone."""
    return Decoded("NOP")


def _iadd3(given: Given) -> Decoded:
    given.left("X", "64")
    if given.has("64"):
        if given.has("X") or len(given.operands) != 4 or any(each.is_predicate for each in given.operands):
            raise UnknownInstructionError(given.root)
        return Decoded("IADD_PAIR", given.operands)
    predicates, rest = _with_predicates(given.operands, 1, 2)
    carries = rest[3:] + [FALSE_PREDICATE] * (5 - len(rest))
    if len(rest) < 3 or len(rest) > 5:
        raise UnknownInstructionError(given.root)
    return Decoded("IADD3", [given.operands[0], *predicates, *rest[:3], *carries], given.bits(CARRY="X"))


def _lea(given: Given) -> Decoded:
    given.left("HI", "X", "SX32")
    predicates, rest = _with_predicates(given.operands, 1, 1)
    carry = rest.pop() if given.has("X") else FALSE_PREDICATE
    if given.has("HI") and not given.has("SX32"):
        a, b, c, shift = rest
    else:
        a, b, shift = rest
        c = ZERO
    bits = given.bits(HIGH_WORD="HI", CARRY="X", SIGN_EXTENDED="SX32")
    return Decoded("LEA", [given.operands[0], *predicates, a, b, c, NOTHING, carry], bits, shift.value)


def _imad(given: Given) -> Decoded:
    given.left("MOV", "U32", "SHL", "IADD", "WIDE", "HI", "X", "S32")
    predicates, rest = _with_predicates(given.operands, 1, 1)
    carry = rest[3] if len(rest) > 3 else FALSE_PREDICATE
    bits = given.bits(UNSIGNED="U32", WIDE="WIDE", HIGH_WORD="HI", CARRY="X")
    return Decoded("IMAD", [given.operands[0], *predicates, *rest[:3], carry], bits)


def _lop3(given: Given) -> Decoded:
    given.left("LUT", "PAND")
    predicates, rest = _with_predicates(given.operands, 0, 1)
    d, a, b, c, table, *with_ = rest
    return Decoded("LOP3", [*predicates, d, a, b, c, *(with_ or [FALSE_PREDICATE])], 0, table.value & 0xFF)


def _plop3(given: Given) -> Decoded:
    given.left("LUT")
    p, q, a, b, c, one, two = given.operands
    return Decoded("PLOP3", [p, q, a, b, c], 0, (one.value & 0xFF) | (two.value & 0xFF) << 8)


def _shf(given: Given) -> Decoded:
    given.left("L", "R", "U32", "S32", "U64", "S64", "HI", "W")
    bits = given.bits(RIGHT="R", HIGH_WORD="HI", WRAPS="W", BITS_64="U64 S64", IS_SIGNED="S32 S64")
    return Decoded("SHF", given.operands, bits)


def _prmt(given: Given) -> Decoded:
    mode = next((PRMT[each] for each in given.modifiers if each in PRMT), 0)
    return Decoded("PRMT", given.operands, 0, mode)


def _select(op: str) -> Rule:
    def rule(given: Given) -> Decoded:
        given.left("U32", "FTZ", "NAN", "S32")
        return Decoded(op, given.operands, given.bits(UNSIGNED="U32", FLUSHES="FTZ", KEEPS_NAN="NAN"))

    return rule


def _minimum(root: str) -> Rule:
    """VIMNMX, VIADDMNMX, VIMNMX3; with halves, or where nothing below zero is left, as packed integers."""

    def rule(given: Given) -> Decoded:
        if given.has("S16x2", "U16x2", "RELU"):
            return packed_minimum(given)
        given.left("U32", "S32")
        return Decoded("IMNMX" if root == "VIMNMX" else root, given.operands, given.bits(UNSIGNED="U32"))

    return rule


def _p2r(given: Given) -> Decoded:
    given.left("B1", "B2", "B3")
    d, predicates, a, mask = given.operands
    shift = _byte(given)
    if a.index:  # R0.B1 of the text: where the bits go
        shift = 8 * a.index
    return Decoded("P2R", [d, predicates, _without_byte(a), mask], 0, shift)


def _r2p(given: Given) -> Decoded:
    given.left("B1", "B2", "B3")
    predicates, a, mask = given.operands
    shift = 8 * a.index if a.index else _byte(given)
    return Decoded("R2P", [predicates, _without_byte(a), mask], 0, shift)


def _byte(given: Given) -> int:
    return next((8 * int(each[1]) for each in given.modifiers if each in ("B1", "B2", "B3")), 0)


def _without_byte(operand: Operand) -> Operand:
    return Operand(operand.kind, operand.flags, operand.number, 0, operand.value, text=operand.text)


_POWERS: Final = {"D2": -1, "D4": -2, "D8": -3, "M2": 1, "M4": 2, "M8": 3}  # FMUL's product is scaled before it rounds


def _float(op: str) -> Rule:
    def rule(given: Given) -> Decoded:
        given.left("FTZ", "SAT", *ROUNDINGS, *(_POWERS if op == "FMUL" else ()))
        rounding = next((ROUNDINGS[each] for each in given.modifiers if each in ROUNDINGS), 0)
        power = next((_POWERS[each] for each in given.modifiers if each in _POWERS), 0)
        bits = given.bits(FLUSHES="FTZ", SATURATES="SAT") | rounding
        return Decoded(op, given.operands, bits, power & 0xFFFFFFFF)

    return rule


def _mufu(given: Given) -> Decoded:
    given.left(*MUFU)
    return Decoded("MUFU", given.operands, 0, MUFU[given.modifiers[0]])


_ROUNDS: Final = {"FLOOR": 1, "CEIL": 2, "TRUNC": 3, "RM": 1, "RP": 2, "RZ": 3, "ROUND": 0, "RN": 0}


def _conversion(op: str, default_to: str, default_from: str, first_is: str) -> Rule:
    """``first_is``: which of the two types a single one names: ``to``, ``from`` or ``both``; ``kind``: by its kind."""

    def rule(given: Given) -> Decoded:
        given.left("FTZ", "NTZ", "SAT", "PACK", *_ROUNDS, *TYPES)
        types = [each for each in given.modifiers if each in TYPES]
        to, source = default_to, default_from
        if len(types) == 2:
            to, source = types
        elif len(types) == 1:
            is_float = types[0] in ("F16", "F32", "F64", "BF16")
            is_to = first_is == "to" or (first_is == "kind" and is_float == (default_to == "F32"))
            to, source = (types[0], source) if is_to else (to, types[0])
            if first_is == "both":
                to = source = types[0]
        rounding = next((_ROUNDS[each] for each in given.modifiers if each in _ROUNDS), 0)
        bits = given.bits(FLUSHES="FTZ", SATURATES="SAT")
        return Decoded(op, given.operands, bits, TYPES[to] | TYPES[source] << 8 | rounding << 16)

    return rule


def _i2fp(given: Given) -> Decoded:
    given.left("F32", "U32", "S32", *ROUNDINGS)
    rounding = next((_ROUNDS[each] for each in given.modifiers if each in _ROUNDS), 0)
    source = "U32" if given.has("U32") else "S32"
    return Decoded("I2F", given.operands, 0, TYPES["F32"] | TYPES[source] << 8 | rounding << 16)


def _count(op: str) -> Rule:
    """POPC, FLO, IABS, BREV: d, a; a predicate that FLO may write is left out."""

    def rule(given: Given) -> Decoded:
        given.left("U32", "SH")
        operands = [each for each in given.operands if not each.is_predicate]
        return Decoded(op, operands, given.bits(UNSIGNED="U32", SHIFTED="SH"))

    return rule


def _mov(given: Given) -> Decoded:
    given.left("64")
    if given.has("64"):
        return Decoded("MOV_PAIR", given.operands[:2])
    return Decoded("MOV", given.operands[:2])


def _own_address(given: Given) -> Decoded:
    """LEPC: the instruction's address from the function's begin, or that of a label."""
    given.left()
    place = given.operands[1].value if len(given.operands) > 1 else given.pc
    return Decoded("MOV_PAIR", [given.operands[0], Operand(ops.IMMEDIATE, value=place)], counts_from_begin=True)


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(
        ("NOP", "MEMBAR", "ERRBAR", "CCTL", "CCTLL", "DEPBAR", "LDGDEPBAR", "YIELD", "FENCE", "PREEXIT",
         "ACQBULK", "PMTRIG", "ENDCOLLECTIVE", "CGAERRBAR", "UTMACCTL", "UTMACMDFLUSH"),
        _nothing
    ),
    "MOV": _mov, "MOV32I": _mov,
    "IADD3": _iadd3, "LEA": _lea, "IMAD": _imad, "LOP3": _lop3, "SHF": _shf, "PRMT": _prmt,
    "ISETP": comparison("ISETP", "U32", "EX", "S32", "U64", "S64"), "SEL": _select("SEL"), "IMNMX": _select("IMNMX"),
    **{root: _minimum(root) for root in ("VIMNMX", "VIADDMNMX", "VIMNMX3")},
    "IABS": _count("IABS"), "POPC": _count("POPC"), "FLO": _count("FLO"), "BREV": _count("BREV"),
    "BMSK": plain("BMSK", 3, "W", "C", WRAPS="W"), "SGXT": plain("SGXT", 3, "U32", "W", UNSIGNED="U32"),
    "PLOP3": _plop3, "P2R": _p2r, "R2P": _r2p,
    **{root: _float(root) for root in ("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA")},
    **MEMORY, **WARPS, **MATRICES, **PACKED, **TEXTURES, **HOPPER, **BLACKWELL,
    "FSETP": comparison("FSETP", "FTZ"), "FSET": float_set, "DSETP": double_comparison,
    "FSEL": _select("FSEL"), "FMNMX": _select("FMNMX"),
    "MUFU": _mufu, "FCHK": plain("FCHK", 3, "DIVIDE"),
    "F2I": _conversion("F2I", "S32", "F32", "kind"), "I2F": _conversion("I2F", "F32", "S32", "kind"),
    "F2F": _conversion("F2F", "F32", "F32", "to"), "FRND": _conversion("FRND", "F32", "F32", "both"),
    "I2I": _conversion("I2I", "S32", "S32", "to"), "I2FP": _i2fp,
    "LEPC": _own_address,
}  # fmt: skip
