"""What the detailed level takes from a program's ELF file: code, functions, calls through the PLT, and the table of
basic blocks that clang's SanitizerCoverage leaves (section ``__sancov_pcs``: address and flags of each block, the
function's entry first). Addresses are the file's own. Read by pyelftools (extra ``trace``)."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers.binaries.instructions import Disassembler, Flow, Instruction

_RELATIVE, _GLOB_DAT, _JUMP_SLOT, _ABSOLUTE = 8, 6, 7, 1  # types of relocations
_RELA: Final = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
ENTRY: Final = 1  # flag of a block in the table


@dataclass(frozen=True)
class _Section:
    name: str
    address: int
    content: bytes


class Elf:
    """``blocks`` uint64[], ``flags`` uint64[]: the table of basic blocks; ``counters``: addresses of the counters that
    a counting build has. Raises UserError for a file that is no x86-64 ELF file, and for one without the table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with refuse_special(path).open("rb") as file:
                self._read(file)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}); is it where it was traced?") from None
        self.disassembler = Disassembler()

    def _read(self, file: Any) -> None:
        try:
            from elftools.common.exceptions import ELFError
            from elftools.elf.elffile import ELFFile
        except ImportError:
            raise UserError(
                "the detailed level needs capstone and pyelftools; pip install 'manyscale[trace]'"
            ) from None
        try:
            elf = ELFFile(file)
            if elf.header["e_machine"] != "EM_X86_64":
                raise UserError(f"{self.path}: is for {elf.header['e_machine']}; the detailed level knows x86-64 only")
            sections = list(elf.iter_sections())
            self._code = [
                _Section(each.name, each["sh_addr"], each.data())
                for each in sections
                if each["sh_flags"] & 4 and each["sh_type"] == "SHT_PROGBITS"
            ]
            relocations = [each.data() for each in sections if each["sh_type"] == "SHT_RELA" and each["sh_flags"] & 2]
            self._relocations = np.frombuffer(b"".join(relocations), _RELA)
            table = next((each for each in sections if each.name == "__sancov_pcs"), None)
            if table is None:
                raise UserError(
                    f"{self.path}: has no table of basic blocks; compile and link it with what `manyscale trace "
                    "--flags detailed` prints, and do not strip the section __sancov_pcs"
                )
            counters = next((each for each in sections if each.name == "__sancov_cntrs"), None)
            begin = 0 if counters is None else int(counters["sh_addr"])
            self.counters = range(begin, begin if counters is None else begin + int(counters["sh_size"]))
            self._table_address = int(table["sh_addr"])
            self._read_symbols(sections)
            self._read_blocks(table.data())
        except ELFError as error:
            raise UserError(f"{self.path}: is no whole ELF file ({error}); build the program again") from None

    def _read_blocks(self, content: bytes) -> None:
        """Of a file that is loaded anywhere the addresses stand in relocations; those of a library's exported functions
        name the symbol."""
        words = np.frombuffer(content, "<u8").copy()
        offsets = self._relocations["offset"].astype(np.int64) - self._table_address
        inside = (offsets >= 0) & (offsets < len(content))
        kind = self._relocations["info"] & np.uint64(0xFFFFFFFF)
        values = self._relocations["addend"].astype(np.uint64)
        named = inside & (kind == _ABSOLUTE)
        values[named] += self._symbol_values[self._relocations["info"][named] >> np.uint64(32)]
        known = inside & ((kind == _RELATIVE) | (kind == _ABSOLUTE))
        words[offsets[known] // 8] = values[known]
        self.blocks, self.flags = words[0::2], words[1::2]
        if len(self.flags) and not self.flags[0] & ENTRY:
            raise UserError(f"{self.path}: its table of basic blocks does not begin with a function; build it again")

    def _read_symbols(self, sections: Sequence[Any]) -> None:
        self.functions: dict[int, tuple[str, int]] = {}  # by address: name, bytes
        self.exported: dict[str, int] = {}
        dynamic: list[str] = []
        values: list[int] = []
        for section in sections:
            if section["sh_type"] not in ("SHT_SYMTAB", "SHT_DYNSYM"):
                continue
            for symbol in section.iter_symbols():
                if section["sh_type"] == "SHT_DYNSYM":
                    dynamic.append(symbol.name)
                    values.append(symbol["st_value"])
                if symbol["st_info"]["type"] != "STT_FUNC" or symbol["st_shndx"] == "SHN_UNDEF":
                    continue
                known = self.functions.get(symbol["st_value"], ("", 0))
                size = max(known[1], symbol["st_size"])
                self.functions[symbol["st_value"]] = (known[0] or symbol.name, size)
                if section["sh_type"] == "SHT_DYNSYM":
                    self.exported[symbol.name] = symbol["st_value"]
        self._symbol_values = np.array(values, np.uint64)
        kind = self._relocations["info"] & np.uint64(0xFFFFFFFF)
        named = self._relocations[(kind == _GLOB_DAT) | (kind == _JUMP_SLOT) | (kind == _ABSOLUTE)]
        numbers = (named["info"] >> np.uint64(32)).tolist()
        self._slots = {
            slot: dynamic[number] for slot, number in zip(named["offset"].tolist(), numbers, strict=True) if number
        }

    @cached_property
    def entries(self) -> np.ndarray:
        """int64[]: index in the table of each function's first block."""
        return np.flatnonzero(self.flags & ENTRY)

    @cached_property
    def function_addresses(self) -> dict[int, int]:
        """Index among ``entries`` by address."""
        return {address: index for index, address in enumerate(self.blocks[self.entries].tolist())}

    @cached_property
    def _plt(self) -> dict[int, str]:
        """Name of the function that each entry of a PLT jumps to, by the entry's address."""
        names = {}
        for section in self._code:
            if not section.name.startswith(".plt"):
                continue
            begin = section.address
            for each in self.disassembler.disassemble(section.content, section.address):
                if each.address % 16 == 0 or (section.name == ".plt.got" and each.address % 8 == 0):
                    begin = each.address
                if each.flow == Flow.jump and each.slot in self._slots:
                    names[begin] = self._slots[each.slot]
        return names

    @cached_property
    def _bounds(self) -> list[int]:
        """Where a function's code ends at the latest: the next function's begin or the section's end."""
        ends = [section.address + len(section.content) for section in self._code]
        return sorted({*self.functions, *self.blocks[self.entries].tolist(), *ends})

    def callee(self, instruction: Instruction) -> str | int | None:
        """What a call or a jump goes to: the name of a function elsewhere, an address in this file, or None where the
        instruction does not say."""
        if instruction.target is not None:
            return self._plt.get(instruction.target, instruction.target)
        if instruction.slot is not None:
            return self._slots.get(instruction.slot)
        return None

    def function_code(self, function: int) -> list[Instruction]:
        """Instructions of the function whose entry is the index ``function`` among ``entries``. O(its bytes)."""
        address = int(self.blocks[self.entries[function]])
        size = self.functions.get(address, ("", 0))[1]
        end = address + size if size else self._bounds[bisect.bisect_right(self._bounds, address)]
        for section in self._code:
            if section.address <= address < section.address + len(section.content):
                code = section.content[address - section.address : end - section.address]
                return list(self.disassembler.disassemble(code, address))
        raise UserError(f"{self.path}: block at {address:#x}: stands in no section of code; build the program again")

    def function_blocks(self, function: int) -> np.ndarray:
        """int64[]: indices in the table of a function's blocks, the entry first."""
        end = self.entries[function + 1] if function + 1 < len(self.entries) else len(self.blocks)
        return np.arange(self.entries[function], end)
