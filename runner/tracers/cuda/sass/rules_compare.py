"""Rules of comparisons."""

from __future__ import annotations

from manyscale.runner.tracers.cuda.sass.codes import BOOLEANS, COMPARISONS
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError, compared
from manyscale.runner.tracers.cuda.sass.operands import TRUE_PREDICATE


def comparison(op: str, *known: str) -> Rule:
    """Of two predicates, those that are left out filled with PT; ``known``: modifiers beside the comparison's own."""

    def rule(given: Given) -> Decoded:
        given.left(*known, *COMPARISONS, *BOOLEANS)
        operands = list(given.operands)
        while len(operands) < 6:
            operands.append(TRUE_PREDICATE)
        bits = compared(given) | given.bits(UNSIGNED="U32 U64", CARRY="EX", FLUSHES="FTZ", BITS_64="U64 S64")
        return Decoded(op, operands, bits)

    return rule


def double_comparison(given: Given) -> Decoded:
    """MIN and MAX, of fmin and fmax: whether the first is to be taken, and whether both are no numbers."""
    if not given.has("MIN", "MAX"):
        return comparison("DSETP")(given)
    given.left("MIN", "MAX", *BOOLEANS)
    if len(given.operands) != 5:
        raise UnknownInstructionError("DSETP")
    booleans = next((BOOLEANS[each] for each in given.modifiers if each in BOOLEANS), 0)
    return Decoded("DSETP", given.operands, booleans, 1 if given.has("MIN") else 2)


def float_set(given: Given) -> Decoded:
    given.left("BF", "FTZ", *COMPARISONS, *BOOLEANS)
    return Decoded("FSET", given.operands, compared(given) | given.bits(FLUSHES="FTZ"), int(given.has("BF")))
