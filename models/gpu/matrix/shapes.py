"""What a matrix instruction (of tensor cores) multiplies, from its opcode: rows, columns and depth, types, sparsity.

Names are those of NVIDIA's machine code: a root that tells the types (HMMA: 16 bits and TF32, IMMA: integers, BMMA:
bits, DMMA: double precision, QMMA: 8 bits; HGMMA, IGMMA, BGMMA, QGMMA: the same by a group of four warps) and
modifiers for shape and types. A shape counts elements (PTX ISA, "Matrix shape"); of sparse instructions (``SP``) its
depth counts those that are left out too, one of two in each pair (TF32) or two in each four.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Element = Literal["fp64", "tf32", "bf16", "fp16", "fp8", "int8", "int4", "binary"]
BITS: Final[Mapping[Element, int]] = {
    "fp64": 64, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "binary": 1,
}  # fmt: skip
GROUP_ROWS: Final = 64  # of a product of four warps
_OF_WARP: Final = re.compile(r"(16|8)x?8x?(\d+)")
_OF_GROUP: Final = re.compile(r"64x(\d+)x(\d+)")
_COLUMNS: Final = 8
_QUADS: Final = 4  # products of 8 x 8 x 4 that a warp's HMMA.884 makes, each by eight threads
_STEPS: Final = {"fp16": 2, "fp32": 4}  # into which Volta divides it
_EIGHT_BITS: Final = ("E4M3", "E5M2")
_ROOTS: Final = {
    "HMMA": False, "IMMA": False, "BMMA": False, "DMMA": False, "QMMA": False,
    "HGMMA": True, "IGMMA": True, "BGMMA": True, "QGMMA": True,
}  # fmt: skip


@dataclass(frozen=True)
class MatrixInstruction:
    """D = A x B + C with ``rows`` x ``columns`` of D and ``depth`` columns of A, of a warp, or of four if ``is_group``.
    ``element``: of A and B; ``is_half``: whether C and D are of 16 bits. ``parts``: instructions that
    together make ``products`` products of this shape."""

    root: str
    rows: int
    columns: int
    depth: int
    element: Element
    is_half: bool
    is_sparse: bool
    is_group: bool
    products: int = 1
    parts: int = 1

    @property
    def multiply_adds(self) -> float:
        """Those that a sparse A leaves out included, as data sheets count."""
        return self.rows * self.columns * self.depth * self.products / self.parts

    @property
    def stored_depth_bits(self) -> int:
        """Bits of a row of A, without the elements that a sparse one leaves out."""
        return self.depth * BITS[self.element] // (2 if self.is_sparse else 1)

    @property
    def name(self) -> str:
        """Root, sparsity, shape, and the type of A where shapes of several types have one name (TF32, S4): the key of
        a timing in ``node.gpu.matrix``."""
        shape = f"64x{self.columns}x{self.depth}" if self.is_group else f"{self.rows}{self.columns}{self.depth}"
        kind = {"tf32": ["TF32"], "int4": ["S4"]}.get(self.element, [])
        return ".".join([self.root, *(["SP"] if self.is_sparse else []), shape, *kind])


@lru_cache(maxsize=1 << 12)
def parse(opcode: str) -> MatrixInstruction | None:
    """What an opcode multiplies; None for one that is no matrix instruction, or whose shape or types its name does not
    tell (those of sm_100, UTC*MMA, have them in descriptors)."""
    root, *modifiers = opcode.split(".")
    is_group = _ROOTS.get(root)
    if is_group is None:
        return None
    element = _element(root, modifiers)
    shape = next(
        (found for each in modifiers if (found := (_OF_GROUP if is_group else _OF_WARP).fullmatch(each))), None
    )
    if element is None or shape is None:
        return None
    sides = [int(side) for side in shape.groups()]
    rows, columns, depth = (GROUP_ROWS, *sides) if is_group else (sides[0], _COLUMNS, sides[1])
    is_half = root in ("HMMA", "QMMA", "HGMMA", "QGMMA") and "F32" not in modifiers
    is_old = root == "HMMA" and (rows, depth) == (8, 4)
    has_steps = is_old and any(each.startswith("STEP") for each in modifiers)
    return MatrixInstruction(
        root, rows, columns, depth, element, is_half, "SP" in modifiers, is_group,
        products=_QUADS if is_old else 1, parts=_STEPS["fp16" if is_half else "fp32"] if has_steps else 1,
    )  # fmt: skip


def _element(root: str, modifiers: list[str]) -> Element | None:
    """The type of A and B."""
    if root in ("QMMA", "QGMMA"):
        kinds = [each for each in modifiers if re.fullmatch(r"E\dM\d", each)]
        return "fp8" if kinds and all(each in _EIGHT_BITS for each in kinds) else None
    if root in ("IMMA", "IGMMA"):
        return "int4" if any(each in ("S4", "U4") for each in modifiers) else "int8"
    if root in ("HMMA", "HGMMA"):
        return "tf32" if "TF32" in modifiers else "bf16" if "BF16" in modifiers else "fp16"
    return "fp64" if root == "DMMA" else "binary"
