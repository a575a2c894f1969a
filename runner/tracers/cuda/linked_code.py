"""The code of a kernel with that of the functions in other sections of its cubin that it may call (``nvcc -rdc=true``).

A kernel's code holds the kernel itself and, behind it, each function that it reaches: those that its code names, and
where it calls by a pointer those whose addresses the program's variables hold or its code takes. All functions of a
program have addresses of their own, so that pointers to them, and tables of virtual functions, mean the same in each
kernel; an address becomes a place in the kernel's code where it is jumped to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from manyscale.models.workload.instruction_details import InstructionDetails
from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.cubin import CodeRelocation, Cubin, CubinKernel, Variable
from manyscale.runner.tracers.cuda.sass.decode import Code, decode
from manyscale.runner.tracers.cuda.sass.details import details
from manyscale.runner.tracers.cuda.sass.listing import Listing

CODE_ADDRESS: Final = 0x1FFFC0000000
MOST_CODE: Final = 1 << 28  # bytes
SECTION: Final = ".text."
_SPACING: Final = 128
_INSTRUCTION_BYTES: Final = 16
_NO_TARGET: Final = "CALL.ABS.NOINC 0x0"
_BY_POINTER: Final = re.compile(r"CALL\.ABS\.\w+ R\d")
_WORD: Final = 0xFFFFFFFF

Places = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Part:
    """A function in a kernel's code: its address and size, and the index of its first instruction."""

    name: str
    address: int
    size: int
    first: int


@dataclass(frozen=True)
class LinkedCode:
    """``registers``, ``stack``: what a thread needs in any of the functions. ``parts`` are none where a kernel's code
    names no address."""

    code: Code
    parts: tuple[Part, ...]
    registers: int
    stack: int
    details: InstructionDetails


def addresses(cubin: Cubin, end: int) -> tuple[dict[str, tuple[int, int]], int]:
    """(address, size) of each function's section, from the address ``end`` on; and the next free address."""
    found = {}
    for each in (*cubin.kernels.values(), *cubin.functions.values()):
        found[SECTION + each.name] = (end, each.code_bytes)
        end += -(-each.code_bytes // _SPACING) * _SPACING
    return found, end


def linked(cubin: Cubin, kernel: CubinKernel, listings: Mapping[str, Listing], places: Places) -> LinkedCode:
    """Raises UserError, which says why the kernel cannot be run."""
    reached = _reached(cubin, kernel, listings)
    texts: list[str] = []
    words: list[int] = []
    begins: list[int] = []
    parts = []
    lines: list[tuple[str, int]] = []
    for each in reached:
        listing = listings.get(each.name)
        if listing is None:
            raise UserError(f"cuobjdump shows no code of {each.name}")
        if each is not kernel and each.banks:
            raise UserError(f"it calls {each.name}, which has constants of its own; this is not supported")
        address, size = places[SECTION + each.name]
        parts.append(Part(each.name, address, size, len(texts)))
        begins += [len(texts) * _INSTRUCTION_BYTES] * len(listing.texts)
        texts += _relocated(each, listing, places)
        words += listing.words
        known = cubin.lines.get(each.name)
        lines += [known.at(pc) if known else ("", 0) for pc in listing.pcs]
    pcs = [place * _INSTRUCTION_BYTES for place in range(len(texts))]
    code = decode(texts, pcs, words, cubin.architecture, begins)
    stack = max(kernel.stack, sum(each.stack for each in reached)) if len(reached) > 1 else kernel.stack
    return LinkedCode(
        code,
        tuple(parts) if kernel.code_relocations else (),
        max(each.registers for each in reached),
        stack,
        details(texts, words, code.listed, code.places, lines),
    )


def _reached(cubin: Cubin, kernel: CubinKernel, listings: Mapping[str, Listing]) -> list[CubinKernel]:
    """The kernel, and what it may call, in the order in which it is found."""
    taken = _named(cubin, [each.symbol for each in cubin.relocations])
    for each in (*cubin.kernels.values(), *cubin.functions.values()):
        taken += _named(cubin, [one.symbol for one in each.code_relocations if one.part in ("low", "high")])
    found, left = [kernel], [kernel]
    while left:
        each = left.pop()
        callees = _named(cubin, [one.symbol for one in each.code_relocations])
        listing = listings.get(each.name)
        if listing and any(_BY_POINTER.search(text) for text in listing.texts):
            callees += taken
        for callee in callees:
            if callee not in found:
                found.append(callee)
                left.append(callee)
    return found


def _named(cubin: Cubin, symbols: list[Variable]) -> list[CubinKernel]:
    """The functions, other than kernels, among them."""
    names = dict.fromkeys(each.section.removeprefix(SECTION) for each in symbols if each.section.startswith(SECTION))
    return [cubin.functions[name] for name in names if name in cubin.functions]


def _relocated(function: CubinKernel, listing: Listing, places: Places) -> list[str]:
    """The texts, with addresses where the linker leaves them open."""
    texts = list(listing.texts)
    for each in function.code_relocations:
        place = each.offset // _INSTRUCTION_BYTES
        address = address_of(each.symbol, places) + each.addend
        if each.part == "call":
            known, wanted = _NO_TARGET, _NO_TARGET.replace("0x0", f"0x{address & _WORD:x}")
        else:
            value = listing.words[place] >> 32 & _WORD
            known, wanted = f"0x{value:x}", f"0x{_immediate(each, address, value):x}"
        head, found, tail = texts[place].rpartition(known)
        if not found or each.part not in ("call", "low", "high"):
            raise UserError(f"{function.name}+0x{each.offset:x}: an address in {texts[place]!r} is not understood")
        texts[place] = head + wanted + tail
    return texts


def _immediate(relocation: CodeRelocation, address: int, value: int) -> int:
    return (address + value if relocation.part == "low" else (address >> 32) + value) & _WORD


_SYSTEM_FUNCTIONS: Final = 0x1FFFD0000000
_SYSTEM_NAMES: Final = ("vprintf", "malloc", "free", "__assertfail")


def address_of(symbol: Variable, places: Places) -> int:
    """Of a variable, a function or a function of the system; 0 of what is not there."""
    if symbol.section in places:
        return places[symbol.section][0] + symbol.offset
    if symbol.name in _SYSTEM_NAMES:
        return _SYSTEM_FUNCTIONS + 16 * (1 + _SYSTEM_NAMES.index(symbol.name))
    return 0
