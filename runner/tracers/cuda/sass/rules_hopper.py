"""Rules of what came with compute capability 9.0: products of groups of warps, barriers in shared memory that count
transactions, copies of tensors and of blocks of bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import ATOMIC, ELEMENTS, TYPES
from manyscale.runner.tracers.cuda.sass.given import Decoded, Given, UnknownInstructionError
from manyscale.runner.tracers.cuda.sass.operands import NOTHING, TRUE_PREDICATE, Operand

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


def _group(given: Given) -> Decoded:
    """WARPGROUP.ARRIVE, WARPGROUP.DEPBAR: the warps of a group wait for each other."""
    given.left("ARRIVE", "DEPBAR", "LE")
    return Decoded("WARPGROUP")


def _metadata(operands: Sequence[Operand], is_sparse: bool) -> tuple[Operand, int]:
    """The register of a sparse matrix's metadata, and which lanes' are taken."""
    if not is_sparse and not operands:
        return NOTHING, 0
    selector = operands[1].value if len(operands) > 1 else 0
    kinds = [each.kind for each in operands]
    if not is_sparse or kinds not in ([ops.REGISTER], [ops.REGISTER, ops.IMMEDIATE]) or selector > 1:
        raise UnknownInstructionError("SP")
    return operands[0], selector


def _shape(given: Given, element: str) -> tuple[int, int]:
    """Columns and depth of a product of a group of warps."""
    shape = next((match for each in given.modifiers if (match := _SHAPE.fullmatch(each))), None)
    depth = _DEPTHS[element] << given.has("SP")
    if shape is None or int(shape[2]) != depth or int(shape[1]) % 8 or not 8 <= int(shape[1]) <= 256:
        raise UnknownInstructionError(given.root)
    if given.has("SP") and element == "B1":
        raise UnknownInstructionError("BGMMA.SP")
    return int(shape[1]), depth


def _group_product(given: Given) -> Decoded:
    """D, A, descriptors, C, whether C is added, the metadata of a sparse A."""
    given.left("F32", "F16", "BF16", "TF32", "S8", "U8", "E4M3", "E5M2", "SAT", "POPC", "AND", "SP",
               *(each for each in given.modifiers if _SHAPE.fullmatch(each)))  # fmt: skip
    left, right = _elements(given)
    columns, _ = _shape(given, left)
    operands = [each for each in given.operands if each.kind != ops.NONE]  # gsb0 names the group that it ends
    d = operands.pop(0)
    a = operands.pop(0) if operands[0].kind == ops.REGISTER else NOTHING
    descriptor, c, *rest = operands
    with_ = rest.pop(0) if rest and rest[0].is_predicate else TRUE_PREDICATE
    metadata, selector = _metadata(rest, given.has("SP"))
    words = descriptor.text.split(".")[1:]
    is_plain = c.kind == ops.REGISTER and not c.flags and not a.flags & ~ops.NEGATED
    if not descriptor.text.startswith("gdesc[") or not is_plain:
        raise UnknownInstructionError(given.root)
    is_half = given.root in ("HGMMA", "QGMMA") and not given.has("F32")
    negates = "negA" in words or bool(a.flags & ops.NEGATED)
    flags = (is_half, negates, "negB" in words, "tnspA" in words, "tnspB" in words, given.has("SP"))
    if (flags[3] or flags[4]) and _DEPTHS[left] != 16:
        raise UnknownInstructionError(f"{given.root}.{words[0]}")
    extra = ELEMENTS[left] | ELEMENTS[right] << 4 | columns // 8 << 8 | selector << 20
    extra |= sum(flag << 14 + place for place, flag in enumerate(flags))
    plain_a = Operand(a.kind, 0, a.number, text=a.text) if a.kind == ops.REGISTER else a
    return Decoded("WGMMA", [d, plain_a, descriptor, c, with_, metadata], given.bits(SATURATES="SAT"), extra)


_ARRIVALS: Final = {  # (arrivals, transactions) as barrier.c numbers them
    "": (1, 2), "A1TR": (1, 2), "A1T0": (1, 0), "ART0": (2, 0), "A0TR": (0, 2), "A0TX": (0, 3), "A0T1": (0, 1),
}  # fmt: skip


def _barrier(given: Given) -> Decoded:
    """SYNCS: barriers in shared memory that count transactions."""
    given.left("EXCH", "64", "ARRIVE", "TRANS64", "RED", "OPTOUT", "PHASECHK", "TRYWAIT", "CCTL", "IV", *_ARRIVALS)
    operands = list(given.operands)
    if given.modifiers == ("EXCH", "64") and len(operands) == 3 and operands[0].number in _ZEROS:
        return Decoded("BARRIER_SET", operands[1:])
    if given.modifiers == ("CCTL", "IV"):
        return Decoded("NOP")
    if given.modifiers[:2] == ("PHASECHK", "TRANS64") and len(operands) == 3:
        return Decoded("PHASECHK", operands)
    if given.modifiers[:2] == ("ARRIVE", "TRANS64") and len(operands) == 3:
        arrivals, transactions = _ARRIVALS[next((each for each in given.modifiers if each in _ARRIVALS), "")]
        return Decoded("BARRIER_ARRIVE", operands, 0, arrivals | transactions << 2 | given.has("OPTOUT") << 4)
    raise UnknownInstructionError(given.root)


_ZEROS: Final = (ops.ZERO_REGISTER, ops.ZERO_UNIFORM)


def _arrival_behind_copies(given: Given) -> Decoded:
    """ARRIVES.LDGSTSBAR: the form of sm_80, or that of sm_90, which counts a transaction or an arrival."""
    if given.modifiers == ("LDGSTSBAR", "64"):
        return Decoded("ARRIVE_WORDS_BEHIND", given.operands)
    if given.modifiers in (("LDGSTSBAR", "64", "TRANSCNT"), ("LDGSTSBAR", "64", "ARVCNT")):
        return Decoded("BARRIER_ARRIVE_BEHIND", given.operands, 0, int(given.has("TRANSCNT")))
    raise UnknownInstructionError(given.root)


_REDUCTIONS: Final = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")
_TYPES: Final = {"U32": "U32", "S32": "S32", "U64": "U64", "64": "U64", "S64": "S64", "F16": "F16", "BF16": "BF16",
                 "F32": "F32", "F64": "F64"}  # fmt: skip


def _reduced(given: Given) -> tuple[int, int]:
    """The operation and its type."""
    operation = next((each for each in given.modifiers if each in _REDUCTIONS), None)
    if operation is None:
        raise UnknownInstructionError(given.root)
    return ATOMIC[operation], TYPES[next((_TYPES[each] for each in given.modifiers if each in _TYPES), "U32")]


def _hinted(given: Given, count: int, addresses: int = 2) -> list[Operand]:
    """The operands without a hint to the caches, the descriptor behind them."""
    operands = [each for each in given.operands if each.kind != ops.NONE]
    are_plain = (
        each.kind == ops.ADDRESS and each.number == ops.ZERO_REGISTER and not each.value
        for each in operands[:addresses]
    )
    if len(operands) != count or not all(are_plain):
        raise UnknownInstructionError(given.root)
    return operands


def _block(given: Given) -> Decoded:
    """UBLKCP, UBLKRED [to], [from], size."""
    copies = given.root == "BLKCP"
    given.left("S", "G", *(("MULTICAST",) if copies else (*_REDUCTIONS, *_TYPES, "RN")))
    ways = given.modifiers[:2]
    if ways not in ((("S", "G"), ("S", "S"), ("G", "S")) if copies else (("S", "S"), ("G", "S"))):
        raise UnknownInstructionError(given.root)
    extra = 0
    if not copies:
        operation, type_ = _reduced(given)
        extra = operation | type_ << 8 | 1 << 16
    extra |= (ways[0] == "G") << 17 | (ways[1] == "G") << 18 | given.has("MULTICAST") << 19
    return Decoded("BULK_COPY", _hinted(given, 3), 0, extra)


def _prefetched_block(given: Given) -> Decoded:
    """UBLKPF [from], size."""
    given.left("L2")
    start, size = _hinted(given, 2, addresses=1)
    return Decoded("BULK_COPY", [start, start, size], 0, 1 << 20)


def _store_asynchronously(given: Given) -> Decoded:
    """STAS, REDAS [address], value."""
    reduces = given.root == "REDAS"
    given.left("64", "128", *((*_REDUCTIONS, *_TYPES) if reduces else ()))
    address = given.operands[0]
    if len(given.operands) != 2 or address.kind != ops.ADDRESS or address.index != ops.ZERO_UNIFORM:
        raise UnknownInstructionError(given.root)
    extra = 0
    if reduces:
        operation, type_ = _reduced(given)
        extra = operation | type_ << 8 | 1 << 16
    return Decoded("STORE_ASYNC", given.operands, 0, extra)


def _tensor(given: Given) -> Decoded:
    """UTMALDG, UTMASTG, UTMAREDG [shared], [map], ranks, and UTMAPF [coordinates], [map]; those for im2col are not
    executed."""
    loads, reduces, prefetches = (given.root == root for root in ("TMALDG", "TMAREDG", "TMAPF"))
    words = ("MULTICAST",) if loads else _REDUCTIONS if reduces else ("L2",) if prefetches else ()
    given.left(*(f"{k}D" for k in range(1, 6)), *words)
    rank = next((int(each[0]) for each in given.modifiers if each in ("1D", "2D", "3D", "4D", "5D")), None)
    if rank is None:
        raise UnknownInstructionError(given.root)
    extra = _reduced(given)[0] if reduces else 0
    extra |= rank << 8 | loads << 16 | reduces << 17 | given.has("MULTICAST") << 18 | prefetches << 19
    return Decoded("TENSOR_COPY", _hinted(given, 3 if given.has("MULTICAST") else 2), 0, extra)


def _registers_of_warps(given: Given) -> Decoded:
    """USETMAXREG: a warp has all registers here from its begin on; asking for more succeeds."""
    if given.modifiers == ("DEALLOC", "CTAPOOL"):
        return Decoded("SETMAXREG", [TRUE_PREDICATE])
    if given.modifiers == ("TRY_ALLOC", "CTAPOOL") and given.operands and given.operands[0].is_predicate:
        return Decoded("SETMAXREG", given.operands[:1])
    raise UnknownInstructionError("USETMAXREG")


HOPPER: Final = {
    **dict.fromkeys(("HGMMA", "IGMMA", "QGMMA", "BGMMA"), _group_product),
    "WARPGROUP": _group, "SYNCS": _barrier, "ARRIVES": _arrival_behind_copies, "STAS": _store_asynchronously,
    "REDAS": _store_asynchronously, "SETMAXREG": _registers_of_warps,
    **dict.fromkeys(("BLKCP", "BLKRED"), _block), "BLKPF": _prefetched_block,
    **dict.fromkeys(("TMALDG", "TMASTG", "TMAREDG", "TMAPF"), _tensor),
}  # fmt: skip
