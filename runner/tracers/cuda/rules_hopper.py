"""Rules of what came with compute capability 9.0: products of groups of warps, barriers in shared memory that count
transactions, copies of tensors and of blocks of bytes."""

from __future__ import annotations

import re
from typing import Final

from manyscale.runner.tracers.cuda import operands as ops
from manyscale.runner.tracers.cuda.codes import ELEMENTS
from manyscale.runner.tracers.cuda.given import Decoded, Given, UnknownInstructionError
from manyscale.runner.tracers.cuda.operands import NOTHING, TRUE_PREDICATE, Operand

_SHAPE: Final = re.compile(r"64x(\d+)x(\d+)")
_DEPTHS: Final = {  # of elements
    "F16": 16, "BF16": 16, "TF32": 8, "S8": 32, "U8": 32, "E4M3": 32, "E5M2": 32, "B1": 256,
}  # fmt: skip
_OF_DESCRIPTOR: Final = ("negA", "negB", "tnspA", "tnspB")


def _elements(given: Given) -> tuple[str, str]:
    """Kinds of A's and B's elements."""
    if given.root == "BGMMA":
        if not given.has("POPC") or not given.has("AND"):
            raise UnknownInstructionError("BGMMA")
        return "B1", "B1"
    if given.root == "HGMMA":
        kind = next((each for each in given.modifiers if each in ("BF16", "TF32")), "F16")
        if kind != "F16" and not given.has("F32"):
            raise UnknownInstructionError(f"HGMMA.{kind}")
        return kind, kind
    kinds = [each for each in given.modifiers if each in (("S8", "U8") if given.root == "IGMMA" else ("E4M3", "E5M2"))]
    if len(kinds) != 2:
        raise UnknownInstructionError(given.root)
    return kinds[0], kinds[1]


def _group_product(given: Given) -> Decoded:
    """D, A, descriptors, C, whether C is added. Sparse ones are not executed."""
    given.left("F32", "F16", "BF16", "TF32", "S8", "U8", "E4M3", "E5M2", "SAT", "POPC", "AND",
               *(each for each in given.modifiers if _SHAPE.fullmatch(each)))  # fmt: skip
    shape = next((match for each in given.modifiers if (match := _SHAPE.fullmatch(each))), None)
    left, right = _elements(given)
    if shape is None or int(shape[2]) != _DEPTHS[left] or int(shape[1]) % 8 or not 8 <= int(shape[1]) <= 256:
        raise UnknownInstructionError(given.root)
    operands = [each for each in given.operands if each.kind != ops.NONE]  # gsb0 names the group that it ends
    d = operands.pop(0)
    a = operands.pop(0) if operands[0].kind == ops.REGISTER else NOTHING
    descriptor, c, *with_ = operands
    words = descriptor.text.split(".")[1:]
    if (
        not descriptor.text.startswith("gdesc[")
        or len(with_) > 1
        or c.kind != ops.REGISTER
        or c.flags
        or a.flags & ~ops.NEGATED
    ):
        raise UnknownInstructionError(given.root)
    is_half = given.root in ("HGMMA", "QGMMA") and not given.has("F32")
    negates = "negA" in words or bool(a.flags & ops.NEGATED)
    flags = (is_half, negates, "negB" in words, "tnspA" in words, "tnspB" in words)
    if (flags[3] or flags[4]) and _DEPTHS[left] != 16:
        raise UnknownInstructionError(f"{given.root}.{shape[0]}")
    extra = ELEMENTS[left] | ELEMENTS[right] << 4 | int(shape[1]) // 8 << 8
    extra |= sum(flag << 14 + place for place, flag in enumerate(flags))
    plain_a = Operand(a.kind, 0, a.number, text=a.text) if a.kind == ops.REGISTER else a
    return Decoded(
        "WGMMA", [d, plain_a, descriptor, c, *(with_ or [TRUE_PREDICATE])], given.bits(SATURATES="SAT"), extra
    )


HOPPER: Final = {**dict.fromkeys(("HGMMA", "IGMMA", "QGMMA", "BGMMA"), _group_product)}
