"""Rules of instructions that access memory."""

from __future__ import annotations

from typing import Final

from manyscale.models.workload.launch_trace import Space
from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ATOMIC, PAIRS, TYPES
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError, addressed
from manyscale.runner.tracers.cuda.sass.operands import NOTHING, ZERO, Operand

_MEMORY_WORDS: Final = (
    "E", "64", "128", "U8", "S8", "U16", "S16", "U", "SYS", "CONSTANT", "STRONG", "WEAK", "GPU", "CTA", "SM",
    "EF", "EL", "LU", "EU", "NA", "LTC64B", "LTC128B", "LTC256B", "MMIO", "PRIVATE", "CI", "PF1", "PF2",
)  # fmt: skip


def _signed(given: Given) -> int:
    return given.bits(IS_SIGNED="S8 S16")


def _load(given: Given) -> Decoded:
    given.left(*_MEMORY_WORDS)
    operands = [each for each in given.operands if not each.is_predicate]
    if len(operands) != 2:
        raise UnknownInstructionError(given.root)
    bits = _signed(given) | given.bits(STRONG="STRONG MMIO")
    return Decoded("LOAD", [operands[0], addressed(given, operands[1])], bits)


def _store(given: Given) -> Decoded:
    given.left(*_MEMORY_WORDS)
    return Decoded("STORE", [addressed(given, given.operands[0]), given.operands[1]])


def _ldc(given: Given) -> Decoded:
    given.left("64", "128", "U8", "S8", "U16", "S16", "IL", "IS")
    if given.has("IL", "IS"):
        raise UnknownInstructionError("LDC.IL")
    size = next((int(each.lstrip("US")) // 8 for each in given.modifiers), 4)
    return Decoded("LDC", given.operands, _signed(given), size=size)


_TYPES_OF_ATOMICS: Final = {
    "64": "U64", "S32": "S32", "S64": "S64", "F32": "F32", "F64": "F64", "U32": "U32", "U64": "U64",
    **{name: name for name in PAIRS},
}  # fmt: skip


def _operation(given: Given) -> tuple[int, int]:
    names = [each for each in given.modifiers if each in ATOMIC]
    type_ = next((_TYPES_OF_ATOMICS[each] for each in given.modifiers if each in _TYPES_OF_ATOMICS), "U32")
    operation = names[0] if names else "ADD"
    if given.root == "ATOMS" and given.has("POPC") and given.has("INC"):
        operation = "POPC_INC"
    if given.has("CAST", "SPIN"):
        operation = "CAST"
    known = {*ATOMIC, *_TYPES_OF_ATOMICS, *_MEMORY_WORDS, "FTZ", "RN", "POPC", "CAST", "SPIN", "32"}
    given.left(*known)
    return ATOMIC[operation], (TYPES | PAIRS)[type_]


def _atomic(given: Given) -> Decoded:
    """d, address, value, other; and a predicate that is heeded: whether the address is global (else not done)."""
    if given.modifiers == ("ARRIVE", "64"):  # of a barrier in shared memory
        return Decoded("ARRIVE_WORDS", given.operands)
    operation, type_ = _operation(given)
    operands = [each for each in given.operands if not each.is_predicate]
    d, address, *values = operands
    if not values:  # ATOMS.POPC.INC adds one
        values = [Operand(ops.IMMEDIATE, value=1)]
    values += [ZERO] * (2 - len(values))
    first = given.operands[0]
    is_heeded = first.is_predicate and (type_ in PAIRS.values() or first.number != ops.TRUE)
    done = [first] if is_heeded else []
    return Decoded("ATOMIC", [d, addressed(given, address), *values, *done], 0, operation | type_ << 8)


def _reduction(given: Given) -> Decoded:
    operation, type_ = _operation(given)
    address, value = (each for each in given.operands if not each.is_predicate)
    return Decoded("ATOMIC", [NOTHING, addressed(given, address), value, ZERO], 0, operation | type_ << 8)


_SPACES: Final = {"S": int(Space.shared), "L": int(Space.local), "G": int(Space.global_)}


def _space(given: Given) -> Decoded:
    """QSPC: whether a generic address lies in shared, local or global memory."""
    given.left("E", *_SPACES)
    held, d, address = given.operands
    space = next((_SPACES[each] for each in given.modifiers if each in _SPACES), None)
    if space is None or d.number != ops.ZERO_REGISTER:
        raise UnknownInstructionError("QSPC")
    return Decoded("QSPC", [held, addressed(given, address)], 0, space)


def _ldgsts(given: Given) -> Decoded:
    given.left(*_MEMORY_WORDS, "BYPASS", "ACCESS", "ZFILL")
    to, source, *with_ = given.operands
    narrow = Operand(to.kind, to.flags & ~ops.LOW, to.number, to.index, to.value, to.scale, text=to.text)
    return Decoded("LDGSTS", [narrow, addressed(given, source), *with_])


MEMORY: Final[dict[str, Rule]] = {
    **dict.fromkeys(("LD", "LDG", "LDS", "LDL"), _load),
    **dict.fromkeys(("ST", "STG", "STS", "STL"), _store),
    "LDC": _ldc, "LDCU": _ldc, **dict.fromkeys(("ATOM", "ATOMG", "ATOMS"), _atomic),
    **dict.fromkeys(("RED", "REDG"), _reduction), "LDGSTS": _ldgsts, "QSPC": _space,
}  # fmt: skip
