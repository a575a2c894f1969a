"""Rules of instructions that read textures and access surfaces, by the objects' handles.

What they read stands in registers one behind the other: for TEX, TLD and TLD4 the layer of a layered texture and the
coordinates, then, where the instruction has them, the handle (``.B``) and the level of detail. With the modifier SCR
the first half of these registers (the larger one of an odd number) begins at the first source, and the second half at
the second; else the coordinates begin at the first and the others at the second. Textures have one level here, so that
levels and derivatives play no part. The compiler reads a texture of one dimension as one of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from manyscale.models.workload.launch_trace import Access
from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ATOMIC, TYPES
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, Rule, UnknownInstructionError
from manyscale.runner.tracers.cuda.sass.operands import NOTHING, Operand

_DIMENSIONS: Final = {"1D": 1, "2D": 2, "3D": 3, "ARRAY_1D": 1, "ARRAY_2D": 2, "1D_ARRAY": 1, "2D_ARRAY": 2}
_COMPONENTS: Final = {"R": 0, "G": 1, "B": 2, "A": 3}
_ALL: Final = 15  # components
_TRAPS, _IGNORES = 2, 1
_ORDERS: Final = ("STRONG", "WEAK", "CTA", "SM", "GPU", "SYS", "CONSTANT", "EF", "EL", "LU", "EU", "NA", "CI")


def _dimensions(given: Given, text: str) -> int:
    """The number of them; with 4 for layers."""
    if text not in _DIMENSIONS:
        raise UnknownInstructionError(f"{given.root} of {text}")
    return _DIMENSIONS[text] | 4 * ("ARRAY" in text)


def _register(first: Operand, place: int) -> Operand:
    if first.kind != ops.REGISTER:
        raise UnknownInstructionError(first.text)
    return first if first.number == ops.ZERO_REGISTER else replace(first, number=first.number + place)


def _handle(operands: list[Operand]) -> Operand | None:
    """That of the last two operands, which are taken away: a word of a constant bank, or a uniform register."""
    if len(operands) < 2 or operands[-1].kind != ops.IMMEDIATE or operands[-2].kind not in (ops.IMMEDIATE, ops.UNIFORM):
        return None
    low, high = operands[-2:]
    del operands[-2:]
    if low.kind == ops.UNIFORM:
        if high.value:
            raise UnknownInstructionError(low.text)
        return low
    return Operand(ops.CONSTANT, number=low.value, value=4 * high.value)


def _written(d: Sequence[Operand], mask: int) -> list[int]:
    """Registers of the components, the first two behind ``d[1]``, the others behind ``d[0]``."""
    count = mask.bit_count()
    pairs = [(d[1], min(count, 2)), (d[0], max(count - 2, 0))]
    return [each.number + k for each, number in pairs if each.number != ops.ZERO_REGISTER for k in range(number)]


def _read(given: Given) -> tuple[list[Operand], int, int]:
    """(operands without dimensions and mask, dimensions, mask)."""
    operands = list(given.operands)
    mask = _ALL
    if operands and operands[-1].kind == ops.IMMEDIATE and operands[-2].kind == ops.NAME:
        mask = operands.pop().value
    if not operands or operands[-1].kind != ops.NAME or not 0 < mask <= _ALL:
        raise UnknownInstructionError(given.root)
    return operands, _dimensions(given, operands.pop().text), mask


def _texture(op: str, *known: str) -> Rule:
    """d (the third and fourth component), d (the first two), handle, and four coordinates: layer, x, y, z."""

    def rule(given: Given) -> Decoded:
        given.left("SCR", "B", "LL", "LZ", *known)
        operands, dimensions, mask = _read(given)
        handle = _handle(operands)
        high, low, *sources = operands
        words = (dimensions & 3) + (dimensions >> 2)
        total = words + (handle is None) + given.has("LL")
        first = (total + 1) // 2 if given.has("SCR") else words
        if len(sources) != 1 + (total > first):
            raise UnknownInstructionError(given.root)
        places = [_register(sources[0], k) if k < first else _register(sources[-1], k - first) for k in range(total)]
        if handle is None:
            handle = places[words]
        coordinates = places[:words] if dimensions & 4 else [NOTHING, *places[:words]]
        coordinates += [NOTHING] * (4 - len(coordinates))
        component = next((_COMPONENTS[each] for each in given.modifiers if op == "TLD4" and each in _COMPONENTS), 0)
        read = [each.number for each in places if each.kind == ops.REGISTER]
        return Decoded(
            op, [high, low, handle, *coordinates], 0, dimensions | mask << 4 | component << 8,
            access=Access.load, registers=(_written((high, low), mask), read),
        )  # fmt: skip

    return rule


def _gradient(given: Given) -> Decoded:
    """TXD: the derivatives choose a level, and there is one."""
    given.left()
    operands, dimensions, mask = _read(given)
    handle = _handle(operands)
    if handle is None or len(operands) != 4 or dimensions & 4:
        raise UnknownInstructionError("TXD")
    high, low, first, slope = operands
    read = [_register(first, k) for k in range(dimensions)]
    slopes = [_register(slope, k) for k in range(2 * dimensions)]
    return Decoded(
        "TEX", [high, low, handle, NOTHING, *read, *[NOTHING] * (3 - len(read))], 0, dimensions | mask << 4,
        access=Access.load, registers=(_written((high, low), mask), [each.number for each in (*read, *slopes)]),
    )  # fmt: skip


def _query(given: Given) -> Decoded:
    """TXQ: width, height, and depth or layers. The level is not asked for."""
    given.left("B")
    operands = list(given.operands)
    mask = operands.pop().value if len(operands) in (5, 7) else _ALL  # with a handle of two operands, and without
    names = [each for each in operands if each.kind == ops.NAME]
    operands = [each for each in operands if each.kind != ops.NAME]
    if [each.text for each in names] != ["TEX_HEADER_DIMENSION"] or not 0 < mask <= 7:
        raise UnknownInstructionError("TXQ")
    handle = _handle(operands)
    high, low, source = operands
    return Decoded(
        "TXQ", [high, low, handle or source], 0, mask << 4,
        registers=(_written((high, low), mask), [source.number]),
    )  # fmt: skip


def _surface(op: str, access: Access) -> Rule:
    """Data (d of SULD), handle, x in bytes, y, z or layer."""

    def rule(given: Given) -> Decoded:
        sizes = ("U8", "S8", "U16", "S16", "64", "128")
        words = ("ADD", "MIN", "MAX", "AND", "OR", "XOR", "S32", "U32", "U64", "S64") if op == "SURED" else sizes
        given.left("D", "BA", "TRAP", "IGN", *words, *_DIMENSIONS, *_ORDERS)
        if not given.has("D") or not given.has("BA"):
            raise UnknownInstructionError(f"{op}.P")
        operands = list(given.operands)
        handle = _handle(operands)
        if handle is None:
            handle = operands.pop()
        address = next((each for each in operands if each.kind == ops.ADDRESS), NOTHING)
        data = [each for each in operands if each.kind != ops.ADDRESS]
        dimensions = next(_dimensions(given, each) for each in given.modifiers if each in _DIMENSIONS)
        if len(data) != 1 or address.kind != ops.ADDRESS or address.value or address.scale:
            raise UnknownInstructionError(op)
        first = Operand(ops.REGISTER, number=address.number)
        count = (dimensions & 3) + (dimensions >> 2)
        coordinates = [_register(first, k) for k in range(count)]
        boundary = _TRAPS if given.has("TRAP") else _IGNORES if given.has("IGN") else 0
        operation = next((ATOMIC[each] for each in given.modifiers if each in ATOMIC), 0)
        kind = next((TYPES[each] for each in given.modifiers if each in TYPES and op == "SURED"), TYPES["U32"])
        size = next((int(each.lstrip("US")) // 8 for each in given.modifiers if each.lstrip("US").isdigit()), 4)
        taken = [data[0].number + k for k in range(max(1, size // 4)) if data[0].number != ops.ZERO_REGISTER]
        read = [each.number for each in coordinates]
        signed = given.bits(IS_SIGNED="S8 S16")
        return Decoded(
            op, [data[0], handle, *coordinates, *[NOTHING] * (3 - count)], signed,
            dimensions | boundary << 4 | operation << 8 | kind << 16, size=size, access=access,
            registers=(taken, read) if op == "SULD" else ([], [*taken, *read]),
        )  # fmt: skip

    return rule


TEXTURES: Final[dict[str, Rule]] = {
    "TEX": _texture("TEX"), "TLD": _texture("TLD"), "TLD4": _texture("TLD4", "R", "G", "A"), "TXD": _gradient,
    "TXQ": _query, "SULD": _surface("SULD", Access.load), "SUST": _surface("SUST", Access.store),
    "SURED": _surface("SURED", Access.reduction),
}  # fmt: skip
