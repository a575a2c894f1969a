"""Writes the module file of a program: its kernels decoded, with constant banks and variables at the addresses that
they have when the program runs (``runtime/modules.h`` says how it is laid out), and, for the reader of what is
recorded, what stands at each address of the code (``kernels.json``, ``kernels.npz``).

Addresses are fixed when the file is written, so that nothing is left to relocate when the program starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.workload.instruction_details import KINDS, InstructionDetails
from manyscale.models.workload.launch_trace import StaticInstructions
from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.launches import CudaKernel
from manyscale.runner.readers.cuda.layout import KERNELS, STATIC_COLUMNS, STATICS
from manyscale.runner.tracers.cuda import linked_code
from manyscale.runner.tracers.cuda.compiler import Toolkit
from manyscale.runner.tracers.cuda.cubin import NUM_BANKS, Cubin, CubinKernel
from manyscale.runner.tracers.cuda.device_code import disassembled
from manyscale.runner.tracers.cuda.linked_code import LinkedCode
from manyscale.runner.tracers.cuda.sass.decode import decode
from manyscale.runner.tracers.cuda.sass.details import details
from manyscale.runner.tracers.cuda.sass.listing import Listing, functions

MODULES: Final = "modules"
_MAGIC: Final = b"MSCUDA02"
_IMAGE_ADDRESS: Final = 0x400000000000
_PAGE: Final = 4096
_SPACING: Final = 512  # of what stands in a module's memory
_STACK: Final = 1024  # bytes of a thread's stack, at least, where it has one: CUDA's default limit

_HEADER: Final = np.dtype(
    [("magic", "S8"), ("num_modules", "<u4"), ("num_kernels", "<u4"), ("num_variables", "<u4"),
     ("num_parameters", "<u4"), ("num_parts", "<u4"), ("padding", "<u4"), ("modules", "<u8"), ("kernels", "<u8"),
     ("variables", "<u8"), ("parameters", "<u8"), ("parts", "<u8"), ("image", "<u8"), ("image_bytes", "<u8"),
     ("image_address", "<u8")]
)  # fmt: skip
_MODULE: Final = np.dtype(
    [("architecture", "<u4"), ("first_kernel", "<u4"), ("num_kernels", "<u4"), ("first_variable", "<u4"),
     ("num_variables", "<u4"), ("padding", "<u4"), ("address", "<u8"), ("bytes", "<u8")]
)  # fmt: skip
_KERNEL: Final = np.dtype(
    [("name", "<u8"), ("code", "<u8"), ("problem", "<u8"), ("num_instructions", "<u4"), ("num_registers", "<u4"),
     ("shared_bytes", "<u4"), ("shared_reserved", "<u4"), ("local_bytes", "<u4"), ("parameter_offset", "<u4"),
     ("parameter_bytes", "<u4"), ("first_parameter", "<u4"), ("num_parameters", "<u4"), ("max_threads", "<u4"),
     ("first_part", "<u4"), ("num_parts", "<u4"), ("bank_address", "<u8", NUM_BANKS), ("bank_bytes", "<u4", NUM_BANKS),
     ("cluster", "<u4", 3), ("padding", "<u4")]
)  # fmt: skip
_VARIABLE: Final = np.dtype(
    [("name", "<u8"), ("address", "<u8"), ("bytes", "<u8"), ("is_constant", "<u4"), ("padding", "<u4")]
)  # fmt: skip
_PART: Final = np.dtype([("name", "<u8"), ("address", "<u8"), ("bytes", "<u4"), ("first", "<u4")])
_PARAMETER: Final = np.dtype([("offset", "<u4"), ("bytes", "<u4")])


@dataclass(frozen=True)
class _Piece:
    """A part of a module's memory: ``content`` None is zeros."""

    address: int
    size: int
    content: bytes | None


class _Memory:
    """The memory of all modules."""

    def __init__(self, start: int) -> None:
        self.pieces: list[_Piece] = []
        self.start = self.end = start

    def add(self, content: bytes | None, size: int) -> int:
        """Its address."""
        address = self.end
        self.pieces.append(_Piece(address, size, content))
        self.end += -(-size // _SPACING) * _SPACING
        return address

    def align(self) -> None:
        self.end = -(-self.end // _PAGE) * _PAGE


class _Text:
    """Everything of the file that is referred to by its offset."""

    def __init__(self, offset: int) -> None:
        self._parts: list[bytes] = []
        self.end = offset

    def add(self, content: bytes) -> int:
        offset = self.end
        padded = content + bytes(-len(content) % 8)
        self._parts.append(padded)
        self.end += len(padded)
        return offset

    def name(self, text: str) -> int:
        return self.add(text.encode() + b"\0")

    def content(self) -> bytes:
        return b"".join(self._parts)


def write(cubins: Sequence[Cubin], kit: Toolkit, folder: Path) -> None:
    """The files of a program's cubins, in ``folder``. Raises UserError."""
    files = ModuleFiles(folder)
    files.add([(each, functions(disassembled(each, kit)) if each.kernels else {}) for each in cubins])
    files.close()


class ModuleFiles:
    """Module files of one program, one for each time that it brings device code. Their kernels are numbered through,
    and their memories lie one behind the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end, self._code_end = _IMAGE_ADDRESS, linked_code.CODE_ADDRESS
        self._statics: list[StaticInstructions] = []
        self._details: list[InstructionDetails] = []
        self._described: list[dict[str, object]] = []

    def add(self, cubins: Sequence[tuple[Cubin, Mapping[str, Listing]]], name: str = MODULES) -> int:
        """Write the module file ``name`` of cubins, each with its listing; the number of its first kernel. Raises
        UserError, and then nothing has changed."""
        tables = _Tables(self._end, self._code_end)
        for cubin, listings in cubins:
            tables.add(cubin, listings)
        first, self._end = len(self._described), tables.write(self._folder / name)
        self._code_end = tables.code_end
        self._statics += tables.statics
        self._details += tables.details
        self._described += tables.described
        return first

    def kernel(self, number: int) -> CudaKernel:
        """As the reader of the files has it. Raises UserError where there is none."""
        if not 0 <= number < len(self._described):
            raise UserError(f"{self._folder}: a kernel is launched that no module has; trace the program again")
        static = self._statics[number]
        columns: dict[str, Any] = {name: getattr(static, name).astype(kind) for name, kind in STATIC_COLUMNS.items()}
        return CudaKernel(self._described[number], replace(static, **columns, details=self._details[number]))

    def close(self) -> None:
        """Write what stands at the addresses of all kernels' code."""
        _write_statics(self._folder, self._described, self._statics, self._details)


class _Tables:
    """What a module file holds, while it is collected."""

    def __init__(self, start: int, code_start: int) -> None:
        self._memory = _Memory(start)
        self._text = _Text(_HEADER.itemsize)
        self._modules: list[np.ndarray] = []
        self._kernels: list[np.ndarray] = []
        self._variables: list[np.ndarray] = []
        self._parameters: list[tuple[int, int]] = []
        self._parts: list[tuple[int, int, int, int]] = []
        self.code_end = code_start
        self.statics: list[StaticInstructions] = []
        self.details: list[InstructionDetails] = []
        self.described: list[dict[str, object]] = []

    def add(self, cubin: Cubin, listings: Mapping[str, Listing]) -> None:
        module = np.zeros((), _MODULE)
        module["architecture"], module["address"] = cubin.architecture, self._memory.end
        module["first_kernel"], module["num_kernels"] = len(self._kernels), len(cubin.kernels)
        module["first_variable"], module["num_variables"] = len(self._variables), len(cubin.variables)
        code_places, self.code_end = linked_code.addresses(cubin, self.code_end)
        if self.code_end - linked_code.CODE_ADDRESS > linked_code.MOST_CODE:
            raise UserError(f"the program has more than {linked_code.MOST_CODE >> 20} MiB of device code")
        places = _placed(cubin, self._memory, code_places)
        module["bytes"] = self._memory.end - int(module["address"])
        self._memory.align()
        self._modules.append(module)
        for kernel in cubin.kernels.values():
            self._add_kernel(cubin, kernel, listings, places)
        for each in cubin.variables:
            row = np.zeros((), _VARIABLE)
            row["name"], row["bytes"] = self._text.name(each.name), each.size
            row["address"] = linked_code.address_of(each, places)
            row["is_constant"] = each.section.startswith(".nv.constant")
            self._variables.append(row)

    def _add_kernel(
        self, cubin: Cubin, kernel: CubinKernel, listings: Mapping[str, Listing], places: dict[str, tuple[int, int]]
    ) -> None:
        linked, problem = _linked(cubin, kernel, listings, places)
        decoded = linked.code
        code, static = decoded.code, decoded.static
        row = _kernel_row(kernel, places, len(self._parameters))
        row["name"], row["code"] = self._text.name(kernel.name), self._text.add(code.tobytes())
        row["problem"], row["num_instructions"] = self._text.name(problem) if problem else 0, len(code)
        row["num_registers"], row["local_bytes"] = linked.registers, _stack(linked.stack)
        row["first_part"], row["num_parts"] = len(self._parts), len(linked.parts)
        self._parts += [(self._text.name(each.name), each.address, each.size, each.first) for each in linked.parts]
        self._kernels.append(row)
        self._parameters += [kernel.parameters[index] for index in sorted(kernel.parameters)]
        self.statics.append(static)
        self.details.append(linked.details)
        self.described.append(
            {
                "name": kernel.name,
                "registers": linked.registers,
                "shared_bytes": kernel.shared - kernel.reserved,
                "architecture": cubin.architecture,
                "opcodes": list(static.opcodes),
                "rows": len(static.pc),
                "listed": decoded.listed,
                "texts": list(linked.details.text),
                "files": list(linked.details.files),
            }
        )

    def write(self, path: Path) -> int:
        """The first address behind the memory of its modules."""
        header = np.zeros((), _HEADER)
        header["magic"] = _MAGIC
        tables = {
            "modules": np.array(self._modules, _MODULE),
            "kernels": np.array(self._kernels, _KERNEL),
            "variables": np.array(self._variables, _VARIABLE),
            "parameters": np.array(self._parameters, _PARAMETER),
            "parts": np.array(self._parts, _PART),
        }
        for name, rows in tables.items():
            header[f"num_{name}"], header[name] = len(rows), self._text.add(rows.tobytes())
        header["image"] = -(-self._text.end // _PAGE) * _PAGE
        header["image_bytes"], header["image_address"] = self._memory.end - self._memory.start, self._memory.start
        _write_file(path, header, self._text, self._memory)
        return self._memory.end


def _write_file(path: Path, header: np.ndarray, text: _Text, memory: _Memory) -> None:
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(text.content())
        for piece in memory.pieces:
            if piece.content is not None:
                file.seek(int(header["image"]) + piece.address - memory.start)
                file.write(piece.content)
        file.truncate(int(header["image"]) + int(header["image_bytes"]))


def _write_statics(
    folder: Path,
    described: Sequence[dict[str, object]],
    statics: Sequence[StaticInstructions],
    known: Sequence[InstructionDetails],
) -> None:
    columns: dict[str, Any] = {}
    for kinds, rows in ((STATIC_COLUMNS, statics), (KINDS, known)):
        for name, kind in kinds.items():
            parts = [getattr(each, name) for each in rows]
            columns[name] = np.concatenate(parts) if parts else np.zeros(0, kind)
    np.savez(folder / STATICS, **columns)
    (folder / KERNELS).write_text(json.dumps(described) + "\n")


def _placed(cubin: Cubin, memory: _Memory, places: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """(address, bytes) of each section with variables and of each constant bank, relocated, beside those of code."""
    contents: dict[str, tuple[bytes | None, int]] = dict(cubin.sections)
    contents |= {f".nv.constant{number}": (content, len(content)) for number, content in cubin.banks.items()}
    for kernel in cubin.kernels.values():
        contents |= {
            f".nv.constant{number}.{kernel.name}": (content, len(content)) for number, content in kernel.banks.items()
        }
    address = memory.end
    places = dict(places)
    for name, (_, size) in contents.items():
        places[name] = (address, size)
        address += -(-size // _SPACING) * _SPACING
    changed: dict[str, bytearray] = {}
    for each in cubin.relocations:
        content, size = contents.get(each.section, (None, 0))
        if not size:
            continue  # of a section that nothing reads
        target = changed.setdefault(each.section, bytearray(content or bytes(size)))
        value = linked_code.address_of(each.symbol, places) + each.addend
        target[each.offset : each.offset + 8] = value.to_bytes(8, "little")
    for name, (content, size) in contents.items():
        memory.add(bytes(changed[name]) if name in changed else content, size)
    return places


def _kernel_row(kernel: CubinKernel, places: dict[str, tuple[int, int]], first_parameter: int) -> np.ndarray:
    row = np.zeros((), _KERNEL)
    row["shared_bytes"], row["shared_reserved"] = kernel.shared, kernel.reserved
    row["parameter_offset"], row["parameter_bytes"] = kernel.parameter_offset, kernel.parameter_bytes
    row["first_parameter"], row["num_parameters"] = first_parameter, len(kernel.parameters)
    row["max_threads"], row["cluster"] = kernel.max_threads, kernel.cluster
    for number in range(NUM_BANKS):
        own, shared = f".nv.constant{number}.{kernel.name}", f".nv.constant{number}"
        place = places.get(own) or places.get(shared)
        if place is not None:
            row["bank_address"][number], row["bank_bytes"][number] = place
    return row


def _stack(size: int) -> int:
    return -(-max(size, _STACK) // 16) * 16 if size else 0


def _linked(
    cubin: Cubin, kernel: CubinKernel, listings: Mapping[str, Listing], places: dict[str, tuple[int, int]]
) -> tuple[LinkedCode, str | None]:
    """Code, and why it cannot be run: that is told when it is launched, and only then."""
    try:
        return linked_code.linked(cubin, kernel, listings, places), None
    except UserError as error:
        nothing = decode([], [], [], cubin.architecture)
        return LinkedCode(
            nothing, (), kernel.registers, kernel.stack, details([], [], [], [])
        ), f"kernel {kernel.name}: {error}"
