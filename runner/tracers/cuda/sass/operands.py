"""Operands of an instruction's text, as records of the interpreter (``native/sass.h``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from manyscale.runner.tracers.cuda.sass.codes import SPECIAL

(
    NONE, REGISTER, UNIFORM, IMMEDIATE, CONSTANT, PREDICATE, UNIFORM_PREDICATE, SPECIAL_REGISTER, BARRIER, ADDRESS,
    PREDICATES, NAME,
) = range(12)  # fmt: skip
NEGATED, ABSOLUTE, INVERTED, WIDE, INDEXED, LOW, HIGH, SWAPPED = (1 << k for k in range(8))
ZERO_REGISTER: Final = 255
ZERO_UNIFORM: Final = 255
TRUE: Final = 7

_NAMES: Final = frozenset(  # of textures' dimensions, and of what is asked of them
    ("1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", "ARRAY_3D", "ARRAY_CUBE", "TEX_HEADER_DIMENSION")
)
_SCALES: Final = {"X4": 2, "X8": 3, "X16": 4}
_BYTES: Final = {"B1": 1, "B2": 2, "B3": 3, "H1": 2}
_HALVES: Final = {"H0_H0": LOW, "H1_H1": HIGH, "H1_H0": 0, "H0_H1": SWAPPED}
_WORD: Final = re.compile(r"(U?R\d+|U?RZ|U?P\d|U?PT|B\d+|PR|SR_?\w*(?:\.\w+)?|SRZ)((?:\.\w+)*)$")
_HEX: Final = re.compile(r"-?0x[0-9a-f]+$")
_FLOAT: Final = re.compile(r"[+-]?(INF|QNAN|SNAN|\d+(\.\d*)?(e[+-]?\d+)?|\.\d+)$", re.IGNORECASE)
_CONSTANT: Final = re.compile(r"c\[(0x[0-9a-f]+)\] ?\[(.*)\]((?:\.\w+)*)$")
_SCOREBOARD: Final = re.compile(r"SB\d|\{\d?|\d\}")  # what DEPBAR waits for: SB0, {4,3}
_GROUP: Final = re.compile(r"gsb\d$")  # of products of a group of warps
_MATRICES: Final = re.compile(r"gdesc\[UR(\d+)\]((?:\.(?:negA|negB|tnspA|tnspB))*)$")  # descriptors; words in ``text``
_HINT: Final = re.compile(r"desc\[UR\d+\]$")  # to the caches, of a copy of a block
_ADDRESS: Final = re.compile(r"(?:desc\[UR\d+\])?\[([^\]]*)\]((?:\.\w+)*)$")
_SPECIAL: Final = {
    **{f"SR_{name.replace('_', '.')}": number for name, number in SPECIAL.items() if name[-2:] in ("_X", "_Y", "_Z")},
    **{f"SR_{name}": SPECIAL[name] for name in ("TID", "NTID", "LANEID", "EQMASK", "LTMASK", "LEMASK", "GTMASK")},
    "SR_GEMASK": SPECIAL["GEMASK"],
    "SR_VIRTID": SPECIAL["SMID"],
    "SR_VIRTUALSMID": SPECIAL["SMID"],
    "SR_WARPID": SPECIAL["WARPID"],
    "SR_SMID": SPECIAL["SMID"],
    "SR_SWINHI": SPECIAL["SWINHI"],
    "SR_LWINHI": SPECIAL["LWINHI"],
    "SR_CLOCKLO": SPECIAL["CLOCK"],
    "SR_CLOCK": SPECIAL["CLOCK"],
    "SR_CLOCKHI": SPECIAL["CLOCK_HIGH"],
    "SR_GLOBALTIMERLO": SPECIAL["TIMER"],
    "SR_GLOBALTIMERHI": SPECIAL["TIMER_HIGH"],
    "SR_CgaCtaId": SPECIAL["RANK"],
    "SR_CgaSize": SPECIAL["ZERO"],  # code multiplies it for the place of a cluster's constants, which is one here
    "SRZ": SPECIAL["ZERO"],
    "SR_LMEMHIOFF": SPECIAL["ZERO"],  # the lowest offset that a stack may reach, which ptxas -O0 compares with
}


@dataclass(frozen=True)
class Operand:
    """As ``Operand`` of sass.h; ``scale``: of an address; ``is_floating``: an immediate that is written as a number
    with a point, whose bits stand in the instruction's word; ``text``: as it was written."""

    kind: int = NONE
    flags: int = 0
    number: int = 0
    index: int = 0
    value: int = 0
    scale: int = 0
    is_floating: bool = False
    text: str = ""

    @property
    def is_predicate(self) -> bool:
        return self.kind in (PREDICATE, UNIFORM_PREDICATE)


NOTHING: Final = Operand()
TRUE_PREDICATE: Final = Operand(PREDICATE, number=TRUE)
FALSE_PREDICATE: Final = Operand(PREDICATE, INVERTED, TRUE)
ZERO: Final = Operand(REGISTER, number=ZERO_REGISTER)


class UnknownOperandError(ValueError):
    """An operand that the interpreter has no record for."""


def split(text: str) -> list[str]:
    """Operands between commas; a blank inside one (``R6 0x0``) parts two, too."""
    parts: list[str] = []
    for part in text.split(","):
        words = part.split()
        parts += words if len(words) > 1 and "[" not in part else [part.strip()]
    return [part for part in parts if part]


def parse(text: str) -> Operand:
    """One operand. Raises UnknownOperandError."""
    flags = 0
    word = text
    while word[:1] in ("-", "~", "!") and not _HEX.match(word) and not _FLOAT.match(word):
        flags |= NEGATED if word[0] == "-" else INVERTED
        word = word[1:]
    if word.startswith("|"):
        inside, _, after = word[1:].partition("|")
        flags |= ABSOLUTE
        word = inside + after
    elif _HEX.match(word):
        return Operand(IMMEDIATE, flags, value=int(word, 16) & 0xFFFFFFFF, text=text)
    elif _FLOAT.match(word):
        return Operand(IMMEDIATE, flags, is_floating=True, text=text)
    if word in _NAMES:
        return Operand(NAME, text=text)
    if _SCOREBOARD.match(word) or _GROUP.match(word) or _HINT.match(word):
        return Operand(text=text)
    if match := _MATRICES.match(word):
        return Operand(UNIFORM, flags, int(match[1]), text=text)
    if match := _CONSTANT.match(word):
        return _with_suffixes(_constant(int(match[1], 16), match[2], flags, text), match[3])
    if match := _ADDRESS.match(word):
        return _address(match[1], text)
    if match := _WORD.match(word):
        return _with_suffixes(_named(match[1], flags, text), match[2] if not match[1].startswith("SR") else "")
    raise UnknownOperandError(text)


def _with_suffixes(operand: Operand, suffixes: str) -> Operand:
    for suffix in filter(None, suffixes.split(".")):
        if suffix in _BYTES:
            operand = replace(operand, index=_BYTES[suffix], flags=operand.flags | (HIGH if suffix == "H1" else 0))
        elif suffix == "SIGN":  # whether a register's highest bit is set
            operand = replace(operand, flags=operand.flags | INDEXED)
        elif suffix == "F32":  # a single for both halves
            operand = replace(operand, flags=operand.flags | WIDE)
        elif suffix in _HALVES:
            operand = replace(operand, flags=operand.flags | _HALVES[suffix])
        elif suffix not in ("reuse", "64", "B0", "H0", "ROW", "COL", "F32x2", "HI_LO"):  # of matrices: in ``text``
            raise UnknownOperandError(operand.text)
    return operand


def _named(word: str, flags: int, text: str) -> Operand:
    if word == "PR":
        return Operand(PREDICATES, flags, text=text)
    if word.startswith("SR"):
        if word not in _SPECIAL:
            raise UnknownOperandError(text)
        return Operand(SPECIAL_REGISTER, flags, value=_SPECIAL[word], text=text)
    kinds = (("UR", UNIFORM, ZERO_UNIFORM), ("UP", UNIFORM_PREDICATE, TRUE), ("R", REGISTER, ZERO_REGISTER),
             ("P", PREDICATE, TRUE), ("B", BARRIER, 0))  # fmt: skip
    for prefix, kind, special in kinds:
        if word.startswith(prefix):
            rest = word[len(prefix) :]
            return Operand(kind, flags, special if rest in ("Z", "T") else int(rest), text=text)
    raise UnknownOperandError(text)


def _constant(bank: int, inside: str, flags: int, text: str) -> Operand:
    offset, index, is_indexed = 0, 0, False
    for part in _sum(inside):
        if _HEX.match(part):
            offset += int(part, 16)
        elif part != "RZ":
            register = _named(part.split(".")[0], 0, text)
            index, is_indexed = register.number, True
            flags |= HIGH if register.kind == UNIFORM else 0
    return Operand(CONSTANT, flags | (INDEXED if is_indexed else 0), bank, index, offset & 0xFFFFFFFF, text=text)


def _address(inside: str, text: str) -> Operand:
    found = Operand(ADDRESS, 0, ZERO_REGISTER, ZERO_UNIFORM, 0, text=text)
    offset = 0
    for part in _sum(inside):
        if _HEX.match(part):
            offset += int(part, 16)
            continue
        name, *suffixes = part.split(".")
        register = _named(name, 0, text)
        if register.kind == UNIFORM:
            found = replace(found, index=register.number)
        else:
            found = replace(found, number=register.number)
        for suffix in suffixes:
            if suffix in _SCALES:
                found = replace(found, scale=_SCALES[suffix])
            elif suffix == "64":
                found = replace(found, flags=found.flags | WIDE)
            elif suffix == "U32":
                found = replace(found, flags=found.flags | LOW)  # the register has 32 bits, whatever E says
            elif suffix != "reuse":
                raise UnknownOperandError(text)
    return replace(found, value=offset & 0xFFFFFFFF)


def _sum(inside: str) -> list[str]:
    return [part for part in re.split(r"\+", inside) if part]
