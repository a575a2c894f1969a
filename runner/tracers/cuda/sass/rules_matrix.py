"""Rules of matrix instructions, and of those that load, store and turn their fragments."""

from __future__ import annotations

import re
from typing import Final

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ELEMENTS
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError, addressed

_SHAPE: Final = re.compile(r"(16|8)x?8x?(\d+)")
_BITS: Final = {"F64": 64, "TF32": 32, "F16": 16, "BF16": 16, "S4": 4, "U4": 4, "B1": 1}  # the others: 8
_SPARSE_DEPTHS: Final = {32: (8, 16), 16: (16, 32), 8: (32, 64), 4: (64, 128)}  # by bits of an element; 16 rows
_DEPTHS: Final = {  # by bits of an element and rows
    (64, 8): (4,), (64, 16): (4, 8, 16), (32, 16): (4, 8), (16, 16): (8, 16), (8, 8): (16,), (8, 16): (16, 32),
    (4, 8): (32,), (4, 16): (32, 64), (1, 8): (128,), (1, 16): (128, 256),
}  # fmt: skip


def _product(given: Given, left: str, right: str, *known: str, is_half: bool = False, meets: bool = False) -> Decoded:
    """D = A x B + C; ``meets``: of bits, AND, not XOR. Raises UnknownInstructionError for shapes and layouts that the
    PTX ISA does not list."""
    shape = next((match for each in given.modifiers if (match := _SHAPE.fullmatch(each))), None)
    if shape is None:
        raise UnknownInstructionError(given.root)
    given.left(shape[0], "SP", *known)
    rows, depth, bits = int(shape[1]), int(shape[2]), _BITS.get(left, 8)
    operands, is_sparse = given.operands, given.has("SP")
    selector = operands[-1].value if is_sparse and operands[-1].kind == ops.IMMEDIATE else 0
    if is_sparse and operands[-1].kind == ops.IMMEDIATE:
        operands = operands[:-1]
    plain = all(each.kind == ops.REGISTER and not each.flags for each in operands)
    turned = len(operands) != 4 + is_sparse or ".COL" in operands[1].text or ".ROW" in operands[2].text
    depths = (
        _SPARSE_DEPTHS[bits] if is_sparse and rows == 16 and bits in _SPARSE_DEPTHS else _DEPTHS.get((bits, rows), ())
    )
    if depth not in depths or not plain or turned or (is_sparse and rows != 16) or selector > 3:
        raise UnknownInstructionError(f"{given.root}.{shape[0]}")
    extra = ELEMENTS[left] | ELEMENTS[right] << 4 | depth << 8 | (rows == 16) << 17 | is_half << 18 | meets << 19
    op = "HMMA" if given.root == "QMMA" else given.root
    return Decoded(op, operands, given.bits(SATURATES="SAT"), extra | is_sparse << 20 | selector << 21)


def _hmma(given: Given) -> Decoded:
    element = next((each for each in given.modifiers if each in ("BF16", "TF32")), "F16")
    is_half = not given.has("F32")
    if is_half and element != "F16":
        raise UnknownInstructionError(f"HMMA.{element}")
    return _product(given, element, element, "F16", "F32", "BF16", "TF32", is_half=is_half)


def _qmma(given: Given) -> Decoded:
    kinds = [each for each in given.modifiers if each in ("E4M3", "E5M2")]
    if len(kinds) != 2:
        raise UnknownInstructionError("QMMA")
    return _product(given, kinds[0], kinds[1], "F16", "F32", "E4M3", "E5M2", is_half=not given.has("F32"))


def _imma(given: Given) -> Decoded:
    kinds = [each for each in given.modifiers if each in ("S8", "U8", "S4", "U4")]
    if len(kinds) != 2 or _BITS.get(kinds[0]) != _BITS.get(kinds[1]):
        raise UnknownInstructionError("IMMA")
    return _product(given, kinds[0], kinds[1], "S8", "U8", "S4", "U4", "SAT")


def _bmma(given: Given) -> Decoded:
    if not given.has("POPC") or given.has("AND") == given.has("XOR"):
        raise UnknownInstructionError("BMMA")
    return _product(given, "B1", "B1", "POPC", "AND", "XOR", meets=given.has("AND"))


def _dmma(given: Given) -> Decoded:
    return _product(given, "F64", "F64")


def _matrices(op: str, place: int) -> Rule:
    """LDSM, STSM, with the address at ``place``."""

    def rule(given: Given) -> Decoded:
        given.left("16", "M88", "MT88", "2", "4")
        if not given.has("16") or not given.has("M88", "MT88"):
            raise UnknownInstructionError(op)
        operands = list(given.operands)
        operands[place] = addressed(given, operands[place])
        matrices = next((int(each) for each in given.modifiers if each in ("2", "4")), 1)
        return Decoded(op, operands, 0, matrices | given.has("MT88") << 8)

    return rule


def _movm(given: Given) -> Decoded:
    given.left("16", "MT88")
    return Decoded("MOVM", given.operands)


MATRICES: Final[dict[str, Rule]] = {
    "HMMA": _hmma, "QMMA": _qmma, "IMMA": _imma, "BMMA": _bmma, "DMMA": _dmma, "LDSM": _matrices("LDSM", 1),
    "STSM": _matrices("STSM", 0), "MOVM": _movm,
}  # fmt: skip
