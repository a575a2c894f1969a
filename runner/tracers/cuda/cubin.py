"""What stands in a cubin, the ELF file of device code that NVIDIA's assembler makes: kernels with what the compiler
says of each in its section ``.nv.info``, constant banks, variables and relocations. Attributes and relocations by the
numbers that ``cuobjdump -elf`` shows names for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.tracers.cuda.source_lines import SourceLines, source_lines

NUM_BANKS: Final = 8
_SMALL, _BYTE, _HALF, _SIZED = 1, 2, 3, 4  # how an attribute's value is stored
_UNKNOWN_STACK: Final = 0xFFFFFFFF  # of a kernel that calls itself: what cudaLimitStackSize says
_MAX_THREADS, _PARAM_CBANK, _REQUIRED_THREADS, _FRAME_SIZE, _MIN_STACK, _PARAMETER, _REGISTERS, _CLUSTER = (
    0x05, 0x0A, 0x10, 0x11, 0x12, 0x17, 0x2F, 0x3D,
)  # fmt: skip
_ABSOLUTE_64: Final = (2, 4)  # R_CUDA_64, R_CUDA_G64: an address in the generic space
_IN_CODE: Final = {56: "low", 57: "high", 58: "call", 75: "call"}  # R_CUDA_ABS32_LO_32, _HI_32, ABS47_34, ABS55_16_34
_MOST_THREADS: Final = 1024
_RESERVED_SHARED: Final = 1024  # bytes that the system takes of a block's shared memory, before it, since 9.0


@dataclass(frozen=True)
class Variable:
    """``section``: where it stands; ``offset`` in it."""

    name: str
    section: str
    offset: int
    size: int


@dataclass(frozen=True)
class Relocation:
    """The 8 bytes at ``offset`` of ``section`` are the address of ``symbol`` plus ``addend``."""

    section: str
    offset: int
    symbol: Variable
    addend: int


@dataclass(frozen=True)
class CodeRelocation:
    """The instruction at ``offset`` has the address of ``symbol`` plus ``addend``: its ``low`` or ``high`` word as an
    immediate, or as the place that it calls (``call``)."""

    offset: int
    part: str
    symbol: Variable
    addend: int


@dataclass
class CubinKernel:
    """A kernel, or a function in a section of its own that kernels call. ``parameters``: (offset, bytes) of each.
    ``banks``: constant banks of its own. ``shared``: static bytes of a block, with the ``reserved`` ones; ``stack``:
    bytes of a thread; ``code_bytes``: of its section; ``cluster``: blocks of a cluster that it is compiled for, zeros
    for any."""

    name: str
    registers: int = 0
    stack: int = 0
    shared: int = 0
    reserved: int = 0
    max_threads: int = _MOST_THREADS
    cluster: tuple[int, int, int] = (0, 0, 0)
    parameter_offset: int = 0
    parameter_bytes: int = 0
    parameters: dict[int, tuple[int, int]] = field(default_factory=dict)
    banks: dict[int, bytes] = field(default_factory=dict)
    code_bytes: int = 0
    code_relocations: list[CodeRelocation] = field(default_factory=list)


class Cubin:
    """``kernels`` and other ``functions`` by mangled name; ``banks``: constant banks that all kernels share;
    ``sections``: of variables, by name, with their content (None: zeros) and size. Raises UserError for a damaged
    file."""

    def __init__(self, path: Path, architecture: int) -> None:
        self.path, self.architecture = path, architecture
        try:
            from elftools.common.exceptions import ELFError
            from elftools.elf.elffile import ELFFile
        except ImportError:
            raise UserError("the level gpu needs pyelftools; pip install 'manyscale[cuda]'") from None
        try:
            with path.open("rb") as file:
                elf = ELFFile(file)
                self.is_linked = elf.header["e_type"] == "ET_EXEC"
                self._sections = [(section.name, section["sh_size"], section) for section in elf.iter_sections()]
                self._content = {
                    name: None if section["sh_type"] == "SHT_NOBITS" else section.data()
                    for name, _, section in self._sections
                }
                self._sizes = {name: size for name, size, _ in self._sections}
                self._read_symbols()
        except (OSError, ELFError, struct.error) as error:
            raise UserError(
                f"{path.name}: is no whole file of device code ({error}); build the program again"
            ) from None

    def _read_symbols(self) -> None:
        table: Any = next((section for name, _, section in self._sections if name == ".symtab"), None)
        self._symbols: list[Any] = [] if table is None else list(table.iter_symbols())
        self._places: list[str] = []
        names = [name for name, _, _ in self._sections]
        for symbol in self._symbols:
            index = symbol["st_shndx"]
            self._places.append(names[index] if isinstance(index, int) and index < len(names) else "")

    def _variable(self, index: int) -> Variable:
        symbol = self._symbols[index]
        return Variable(symbol.name, self._places[index], symbol["st_value"], symbol["st_size"])

    @cached_property
    def variables(self) -> list[Variable]:
        """Those that have names, in global and in constant memory."""
        found = [
            self._variable(index)
            for index, symbol in enumerate(self._symbols)
            if symbol["st_info"]["type"] == "STT_OBJECT"
        ]
        return [each for each in found if each.section in self.sections or each.section in _shared_banks()]

    @cached_property
    def sections(self) -> dict[str, tuple[bytes | None, int]]:
        names = (".nv.global.init", ".nv.global")
        return {name: (self._content[name], self._sizes[name]) for name in names if self._sizes.get(name)}

    @cached_property
    def banks(self) -> dict[int, bytes]:
        found = {number: self._content.get(name) for name, number in _shared_banks().items()}
        return {number: content for number, content in found.items() if content}

    @cached_property
    def relocations(self) -> list[Relocation]:
        """Of variables and constant banks. Raises UserError for a kind that is not known."""
        found = []
        for name, _, _ in self._sections:
            if not name.startswith((".rel.nv.", ".rela.nv.")):
                continue
            place = name.partition(".nv.")[2]
            for entry in _entries(self._content[name] or b"", name.startswith(".rela")):
                offset, kind, symbol, addend = entry
                if kind not in _ABSOLUTE_64:
                    raise UserError(f"{self.path.name}: {name}: a relocation of kind {kind} is not known; report it")
                found.append(Relocation(f".nv.{place}", offset, self._variable(symbol), addend))
        return found

    @cached_property
    def kernels(self) -> dict[str, CubinKernel]:
        return {name: each for name, each in self._all_functions.items() if f".nv.constant0.{name}" in self._content}

    @cached_property
    def functions(self) -> dict[str, CubinKernel]:
        """What is linked from several units has functions in sections of their own."""
        return {name: each for name, each in self._all_functions.items() if name not in self.kernels}

    @cached_property
    def _all_functions(self) -> dict[str, CubinKernel]:
        of_functions = {name.removeprefix(".nv.info."): name for name in self._content if name.startswith(".nv.info.")}
        found = {name: self._kernel(name, section) for name, section in of_functions.items()}
        for attribute, value in _attributes(self._content.get(".nv.info") or b""):
            if attribute not in (_REGISTERS, _MIN_STACK, _FRAME_SIZE):
                continue
            index, number = struct.unpack_from("<II", value)
            kernel = found.get(self._symbols[index].name)
            if kernel is not None and attribute == _REGISTERS:
                kernel.registers = number
            elif kernel is not None:
                kernel.stack = max(kernel.stack, number if number != _UNKNOWN_STACK else 1)
        return {name: kernel for name, kernel in found.items() if f".text.{name}" in self._content}

    @cached_property
    def lines(self) -> dict[str, SourceLines]:
        """Lines of source of each kernel that was compiled with them. Raises UserError for a damaged table."""
        content = self._content.get(".debug_line") or b""
        entries: list[tuple[int, int, int, int]] = []
        for name in (".rel.debug_line", ".rela.debug_line"):
            entries += _entries(self._content.get(name) or b"", name.startswith(".rela"))
        functions = [self._places[symbol].removeprefix(".text.") for _, _, symbol, _ in sorted(entries)]
        try:
            return source_lines(content, functions)
        except ValueError as error:
            raise UserError(f"{self.path.name}: .debug_line: is damaged ({error}); build without -lineinfo") from None

    def _kernel(self, name: str, section: str) -> CubinKernel:
        kernel = CubinKernel(name)
        for attribute, value in _attributes(self._content[section] or b""):
            if attribute == _PARAM_CBANK:
                _, kernel.parameter_offset, kernel.parameter_bytes = struct.unpack("<IHH", value)
            elif attribute == _PARAMETER:
                _, ordinal, offset, flags = struct.unpack("<IHHI", value)
                kernel.parameters[ordinal] = (offset, flags >> 18)
            elif attribute in (_MAX_THREADS, _REQUIRED_THREADS):
                x, y, z = struct.unpack("<III", value)
                kernel.max_threads = min(kernel.max_threads, x * y * z)
            elif attribute == _CLUSTER:
                x, y, z = struct.unpack("<III", value)
                kernel.cluster = (x, y, z)
        kernel.reserved = _RESERVED_SHARED if self.architecture >= 90 else 0
        kernel.shared = max(self._sizes.get(f".nv.shared.{name}", 0), kernel.reserved)
        for number in range(1, NUM_BANKS):
            if content := self._content.get(f".nv.constant{number}.{name}"):
                kernel.banks[number] = content
        kernel.code_bytes = self._sizes.get(f".text.{name}", 0)
        kernel.code_relocations = list(self._code_relocations(f".text.{name}"))
        return kernel

    def _code_relocations(self, section: str) -> Iterator[CodeRelocation]:
        """Of a kind that is not known, ``part`` is its number."""
        for prefix in (".rel", ".rela"):
            for offset, kind, symbol, addend in _entries(self._content.get(prefix + section) or b"", prefix == ".rela"):
                yield CodeRelocation(offset, _IN_CODE.get(kind, str(kind)), self._variable(symbol), addend)


def _shared_banks() -> dict[str, int]:
    return {f".nv.constant{number}": number for number in range(1, NUM_BANKS)}


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, value) of each."""
    place = 0
    while place + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, place)
        place += 4
        if form == _SIZED:
            yield attribute, content[place : place + size]
            place += size
        else:
            yield attribute, struct.pack("<H", size)


def _entries(content: bytes, with_addend: bool) -> Iterator[tuple[int, int, int, int]]:
    """(offset, kind, symbol, addend)."""
    kind = [("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4")] + ([("addend", "<i8")] if with_addend else [])
    for row in np.frombuffer(content, np.dtype(kind)).tolist():
        yield row[0], row[1], row[2], row[3] if with_addend else 0
