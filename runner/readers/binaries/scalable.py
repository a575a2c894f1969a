"""Instructions of SVE, AArch64's vectors of a length that the program does not know, by how they are written.

capstone says nothing of the registers that they read and write. By Arm's Architecture Reference Manual (DDI 0487, part
C8) the first operand is the destination, but of stores, prefetches and tests; it is read, too, where the predicate
merges (``/m``), by what adds to it, inserts into it or writes every other element of it, and by counts that step it.
Vectors share their registers with those
of Advanced SIMD. Predicates are no registers that models know: nothing waits for them but by the flags that they set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from manyscale.models.workload.detail_tables import InstructionClass as Kind

_SCALABLE: Final = re.compile(r"\b[zp]\d+\b")
_VECTOR: Final = re.compile(r"\bz\d+\b")
_PREDICATE: Final = re.compile(r"\bp\d+\b")
_WITHOUT_VECTORS: Final = re.compile(
    r"cnt[bhwd]|rdvl|addvl|addpl|rdffrs?|setffr|wrffr|cterm\w+|([su]q)?(inc|dec)[bhwd]"
)
# the first pattern that a name matches as a whole tells its class
_KINDS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"prf[bhwd]", Kind.nop),
        (r"ld\w+|st\w+|mov|movprfx|mov[sz]|dup|cpy|fmov|fdup|fcpy", Kind.move),
        (r"fn?m(la|ls|ad|sb)|fml[as]l[bt]|fcmla|fmmla|bf(ml[as]|dot|mmla)\w*", Kind.fp_fma),
        (r"fadd[apv]?|fsubr?|fabd|fcadd", Kind.fp_add),
        (r"fmulx?", Kind.fp_mul),
        (r"fdivr?", Kind.fp_div),
        (r"fsqrt", Kind.fp_sqrt),
        (r"f\w+|[su]cvtf|bfcvt\w*", Kind.fp_other),
        (r"[su]divr?", Kind.int_div),
    )
)
_ONLY_READ: Final = re.compile(r"st\w+|prf[bhwd]|ptest|cterm\w+|wrffr")
_STEPS: Final = re.compile(
    r"f?n?m(la|ls|ad|sb)|fml[as]l[bt]|bf(ml[as]|dot|mmla)\w*|[su]ml[as]l\w+|sqdml[as]l\w+|sqrdml[as]h|f?cmla|"
    r"sqrdcmlah|f?mmla|[su]{1,2}mmla|[su]{1,2}dot|[cf]dot|[su]aba\w*|[su]r?sra|(ad|sb)cl[bt]|"
    r"([su]q)?(inc|dec)[bhwdp]|insr|s[lr]i|tbx|eor(bt|tb)|\w+(h|xu?|ru?)nt|xar|eor3|bcax|bsl\w*"
)
_SETS_FLAGS: Final = re.compile(
    r"while\w+|ptrues|ptest|cterm\w+|cmp(eq|ne|g[et]|l[et]|h[is]|lo|ls)|(and|bic|eor|orr|orn|nor|nand|brk\w+|rdffr|"
    r"mov|not)s|pfirst|pnext|nmatch|match"
)
_BYTES: Final = {"b": 1, "h": 2, "s": 4, "d": 8, "q": 16}
_ELEMENT: Final = re.compile(r"\bz\d+\.([bhsdq])")
_REGISTER: Final = re.compile(r"\b(?:[zvqdshbxw]\d+|w?sp)\b")
_MOST_LANES: Final = 127  # that the table's column holds: a byte's worth


def is_scalable(name: str, operands: str) -> bool:
    """Whether an instruction is SVE's."""
    return bool(_SCALABLE.search(operands) or _WITHOUT_VECTORS.fullmatch(name))


def takes_predicate(operands: str) -> bool:
    """Whether it reads a predicate beside what it writes."""
    return bool(_PREDICATE.search(operands, operands.find(",") + 1))


def kind_of(name: str, operands: str) -> Kind:
    """What it asks of a core: without a vector among its operands it is done as general registers are."""
    found = next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), None)
    if _VECTOR.search(operands):
        return Kind.simd_int if found is None else found
    return found if found is not None and "[" in operands else Kind.int_alu


def lanes_of(operands: str, vector_bytes: int) -> int:
    """Elements of its first vector, of ``vector_bytes`` (0: not known, 1)."""
    found = _ELEMENT.search(operands)
    return max(min(vector_bytes // _BYTES[found[1]], _MOST_LANES), 1) if found else 1


def accessed(name: str, operands: str) -> tuple[set[str], set[str], bool]:
    """(names of registers read, of those written, whether it sets the flags). Vectors have the names v0 to v31."""
    place = operands.find("[")
    plain, address = (operands, "") if place < 0 else (operands[:place], operands[place:])
    first = plain[: plain.find("}") + 1] if plain.startswith("{") else plain.split(",")[0]
    sources = set(_REGISTER.findall(plain[len(first) :])) | set(_REGISTER.findall(address))
    destinations = set(_REGISTER.findall(first))
    if _ONLY_READ.fullmatch(name):
        sources, destinations = sources | destinations, set()
    elif "/m" in operands or _STEPS.fullmatch(name):
        sources |= destinations
    return _plain(sources), _plain(destinations), bool(_SETS_FLAGS.fullmatch(name))


def _plain(names: Iterable[str]) -> set[str]:
    return {f"v{name[1:]}" if name[0] == "z" else name for name in names}
