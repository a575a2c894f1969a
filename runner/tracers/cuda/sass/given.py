"""What a rule is given and what it gives: an instruction's text taken apart, and its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import BOOLEANS, COMPARISONS, MODIFIERS
from manyscale.runner.tracers.cuda.sass.operands import Operand


class UnknownInstructionError(ValueError):
    """An instruction, or a form of one, that the interpreter does not execute."""


@dataclass(frozen=True)
class Decoded:
    """``target``: byte address of a branch's target in the function; ``size``: bytes of a constant that is loaded;
    ``counts_from_begin``: whether ``extra`` of a jump, or the last operand, counts from where the function
    begins; ``access``: how it accesses global memory, where its opcode does not tell; ``registers``: all that it writes
    and reads, where its text does not say so."""

    op: str
    operands: Sequence[Operand] = ()
    modifiers: int = 0
    extra: int = 0
    target: int | None = None
    size: int = 0
    counts_from_begin: bool = False
    access: int = 0
    registers: tuple[Sequence[int], Sequence[int]] | None = None


def moved(decoded: Decoded, begin: int) -> Decoded:
    """The same where the function does not begin at 0, but at byte ``begin``."""
    if begin == 0:
        return decoded
    if decoded.target is not None:
        return replace(decoded, target=decoded.target + begin)
    if not decoded.counts_from_begin:
        return decoded
    if decoded.op == "JUMP":
        return replace(decoded, extra=(decoded.extra + begin) & 0xFFFFFFFF)
    *others, place = decoded.operands
    return replace(decoded, operands=[*others, replace(place, value=place.value + begin)])


@dataclass(frozen=True)
class Given:
    """What a rule is given: the root without a leading U of uniform ones, its modifiers, operands, place and word."""

    root: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    pc: int
    word: int

    def has(self, *names: str) -> bool:
        return any(name in self.modifiers for name in names)

    def bits(self, **named: str) -> int:
        """Bits of ``MODIFIERS`` whose names, as arguments, are set where one of the given words is a modifier."""
        return sum(MODIFIERS[name] for name, words in named.items() if self.has(*words.split()))

    def left(self, *known: str) -> None:
        """Raises UnknownInstructionError where a modifier is none of ``known``."""
        other = [each for each in self.modifiers if each not in known]
        if other:
            raise UnknownInstructionError(f"{self.root}.{other[0]}")


Rule = Callable[[Given], Decoded]


def is_single(operand: Operand) -> bool:
    """Written with F32: one single for both halves."""
    return operand.kind in (ops.REGISTER, ops.CONSTANT) and bool(operand.flags & ops.WIDE)


def is_sign(operand: Operand) -> bool:
    """Written with SIGN: a register's highest bit, as a predicate."""
    return operand.kind == ops.REGISTER and bool(operand.flags & ops.INDEXED)


def compared(given: Given) -> int:
    code = next((COMPARISONS[each] for each in given.modifiers if each in COMPARISONS), None)
    if code is None:
        raise UnknownInstructionError(given.root)
    return code | next((BOOLEANS[each] for each in given.modifiers if each in BOOLEANS), 0)


def plain(op: str, count: int, *known: str, **named: str) -> Rule:
    """As it stands: ``count`` operands, modifiers ``known``, of which ``named`` set bits."""

    def rule(given: Given) -> Decoded:
        given.left(*known)
        if len(given.operands) != count:
            raise UnknownInstructionError(given.root)
        return Decoded(op, given.operands, given.bits(**named))

    return rule


def addressed(given: Given, operand: Operand) -> Operand:
    """With E the register of an address is a pair, and so is a uniform one."""
    if operand.kind != ops.ADDRESS:
        raise UnknownInstructionError(given.root)
    flags = operand.flags & ~ops.LOW
    if given.has("E"):
        flags |= 0 if operand.flags & ops.LOW else ops.WIDE
        flags |= ops.HIGH
    return Operand(operand.kind, flags, operand.number, operand.index, operand.value, operand.scale, text=operand.text)
