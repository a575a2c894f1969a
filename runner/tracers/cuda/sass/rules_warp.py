"""Rules of instructions by which lanes part, meet and wait, and of those by which they exchange values."""

from __future__ import annotations

from typing import Final

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ATOMIC, BAR, BRANCH, MATCH, MODIFIERS, SHFL, VOTE
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError, plain
from manyscale.runner.tracers.cuda.sass.operands import NOTHING, TRUE_PREDICATE, ZERO, Operand


def _branch(given: Given) -> Decoded:
    """DIV and CONV: taken where the lanes that an operand names, or all, are not together, or are; code in which they
    meet first (WARPSYNC) is elsewhere."""
    given.left("U", "DIV", "CONV", "ANY")
    *with_, target = given.operands
    kind = next((number for name, number in BRANCH.items() if given.has(name)), 0)
    return Decoded("BRA", with_, given.bits(ANY_LANE="ANY"), kind, target=target.value)


def _jump(given: Given) -> Decoded:
    """By a register: bytes from a label that the text gives (RET, CALL), or from the instruction behind (BRX); with ABS
    an address of code."""
    register, *offset = [each for each in given.operands if each.kind != ops.PREDICATE]
    signed = 0
    if offset:
        signed = offset[0].value - (1 << 32) if offset[0].value >> 31 else offset[0].value
    if given.root in ("BRX", "BRXU", "JMX"):
        signed += given.pc + 16
    return Decoded("JUMP", [register], 0, signed & 0xFFFFFFFF, counts_from_begin=not given.has("ABS"))


def _call(given: Given) -> Decoded:
    given.left("REL", "ABS", "NOINC")
    if len(given.operands) == 1 and given.operands[0].kind == ops.IMMEDIATE and given.has("ABS"):
        return Decoded("JUMP", given.operands)
    if len(given.operands) == 1 and given.operands[0].kind == ops.IMMEDIATE and given.has("REL"):
        return Decoded("CALL", (), 0, target=given.operands[0].value)
    if given.operands and given.operands[0].kind == ops.REGISTER:
        return _jump(given)
    raise UnknownInstructionError("CALL")


def _return(given: Given) -> Decoded:
    given.left("REL", "ABS", "NODEC")
    return _jump(given)


def _bmov(given: Given) -> Decoded:
    given.left("32", "CLEAR", "PQUAD")
    if given.operands[0].kind == ops.BARRIER:
        return Decoded("BMOV_WRITE", given.operands)
    return Decoded("BMOV_READ", given.operands, given.bits(BMOV_CLEAR="CLEAR"))


def _barrier(given: Given) -> Decoded:
    given.left("SYNC", "ARV", "RED", "DEFER_BLOCKING", "POPC", "AND", "OR", "SYNCALL")
    numbers = [each for each in given.operands if not each.is_predicate]
    with_ = [each for each in given.operands if each.is_predicate]
    number = numbers[0] if numbers else Operand(ops.IMMEDIATE)
    count = numbers[1] if len(numbers) > 1 else NOTHING
    kind = next((BAR[each] for each in given.modifiers if each in BAR), 0)
    bits = given.bits(BAR_RED="RED", BAR_ARV="ARV")
    return Decoded("BAR", [number, count, *(with_[:1] or [TRUE_PREDICATE])], bits, kind)


def _meeting(given: Given) -> Decoded:
    """WARPSYNC: lanes wait for those that each of them names. EXCLUSIVE stands before shuffles and reductions."""
    given.left("EXCLUSIVE", "COLLECTIVE", "ALL")  # COLLECTIVE tells where the code ends that needs them together
    named = [] if given.has("ALL") else given.operands[:1]
    return Decoded("WARPSYNC", named or [Operand(ops.IMMEDIATE, value=0xFFFFFFFF)])


def _shfl(given: Given) -> Decoded:
    given.left(*SHFL)
    return Decoded("SHFL", given.operands, 0, SHFL[given.modifiers[0]])


def _vote(given: Given) -> Decoded:
    """d, p, with."""
    given.left(*VOTE)
    operands = list(given.operands)
    if len(operands) == 2:
        operands = [ZERO, *operands] if operands[0].is_predicate else [operands[0], TRUE_PREDICATE, operands[1]]
    return Decoded("VOTE", operands, 0, VOTE[given.modifiers[0]])


def _match(given: Given) -> Decoded:
    given.left("ANY", "ALL", "U64")
    operands = list(given.operands)
    if not operands[0].is_predicate:
        operands.insert(0, TRUE_PREDICATE)
    return Decoded("MATCH", operands, given.bits(BITS_64="U64"), MATCH["ALL" if given.has("ALL") else "ANY"])


def _redux(given: Given) -> Decoded:
    given.left("S32", "U32", "SUM", *ATOMIC)
    operation = next((ATOMIC[each] for each in given.modifiers if each in ATOMIC), ATOMIC["AND"])
    if given.has("SUM"):
        operation = ATOMIC["ADD"]
    unsigned = 0 if given.has("S32") else MODIFIERS["UNSIGNED"]
    return Decoded("REDUX", given.operands, unsigned, operation)


def _special(given: Given) -> Decoded:
    given.left("32")
    bits = MODIFIERS["BITS_64"] if given.root == "CS2R" and not given.has("32") else 0
    return Decoded("S2R", given.operands, bits)


def _b2r(given: Given) -> Decoded:
    given.left("RESULT")
    operands = list(given.operands)
    return Decoded("B2R", operands + [TRUE_PREDICATE] * (2 - len(operands)))


def _r2ur(given: Given) -> Decoded:
    """d, a, and the predicate that tells lanes with another value; with OR, or where it held before."""
    given.left("FILL", "OR")
    operands = [each for each in given.operands if not each.is_predicate]
    others = [each for each in given.operands if each.is_predicate]
    return Decoded("R2UR", [*operands, *(others or [TRUE_PREDICATE])], given.bits(CARRY="OR"))


def _elect(given: Given) -> Decoded:
    given.left()
    operands = list(given.operands)
    if len(operands) not in (2, 3):
        raise UnknownInstructionError("ELECT")
    return Decoded("ELECT", operands + [TRUE_PREDICATE] * (3 - len(operands)))


WARPS: Final[dict[str, Rule]] = {
    "BRA": _branch, "BRX": _jump, "JMX": _jump, "CALL": _call, "RET": _return,
    "EXIT": lambda given: Decoded("EXIT"), "KILL": lambda given: Decoded("EXIT"),
    "BSSY": lambda given: Decoded("BSSY", given.operands[:1]), "BSYNC": plain("BSYNC", 1, "RECONVERGENT"),
    "BREAK": plain("BREAK", 1), "BMOV": _bmov, "WARPSYNC": _meeting, "BAR": _barrier,
    "UCGABAR_ARV": lambda given: Decoded("CLUSTER_ARRIVE"), "UCGABAR_WAIT": lambda given: Decoded("CLUSTER_WAIT"),
    "NANOSLEEP": lambda given: Decoded("NANOSLEEP"), "BPT": lambda given: Decoded("TRAP"),
    "SHFL": _shfl, "VOTE": _vote, "VOTEU": _vote, "MATCH": _match, "REDUX": _redux,
    "S2R": _special, "CS2R": _special, "S2UR": _special, "R2UR": _r2ur, "ELECT": _elect, "B2R": _b2r,
}  # fmt: skip
