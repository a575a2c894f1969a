"""Which line of source each instruction comes from, by the cubin's section ``.debug_line`` (``nvcc -lineinfo``).

The section holds a sequence of rows for each function, whose begin a relocation names. NVIDIA's compiler adds to the
standard's instructions one for inlined calls, which a reader of DWARF passes over: an instruction has the innermost
line, that in the inlined function.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_SET_ADDRESS: Final = 2  # DW_LNE_set_address


@dataclass(frozen=True)
class SourceLines:
    """Rows of a function in ascending order: from ``begins`` (bytes) on, up to the next, stands (file, line); file
    is a path. The last has no line."""

    begins: Sequence[int]
    places: Sequence[tuple[str, int]]

    def at(self, pc: int) -> tuple[str, int]:
        """(file, line), or ("", 0)."""
        place = bisect_right(self.begins, pc) - 1
        return self.places[place] if place >= 0 else ("", 0)


def source_lines(content: bytes, functions: Sequence[str]) -> dict[str, SourceLines]:
    """Of each function; ``functions``: whose begin each relocation of the section names, in the order of the section.
    None of them where the section holds something else."""
    found: dict[str, list[tuple[int, str, int]]] = {}
    place = used = 0
    while place < len(content):
        program, end = _program(content, place)
        names = _names(program)
        function: str | None = None
        for entry in program.get_entries():
            if entry.is_extended and entry.command == _SET_ADDRESS:
                function = functions[used] if used < len(functions) else None
                used += 1
            state = entry.state
            if state is None or function is None:
                continue
            known = state.file in names and not state.end_sequence
            row = (names[state.file], int(state.line)) if known else ("", 0)
            found.setdefault(function, []).append((int(state.address), *row))
        place = end
    if used != len(functions):
        return {}
    return {name: _sorted(rows) for name, rows in found.items()}


def _sorted(rows: list[tuple[int, str, int]]) -> SourceLines:
    last = {address: (file, line) for address, file, line in rows}  # of several at one address the last counts
    begins = sorted(last)
    return SourceLines(begins, [last[each] for each in begins])


def _program(content: bytes, place: int) -> tuple[Any, int]:
    """The line program at ``place``, and where the next one is."""
    from elftools.common.utils import struct_parse
    from elftools.dwarf.lineprogram import LineProgram
    from elftools.dwarf.structs import DWARFStructs

    stream = io.BytesIO(content)
    version = int.from_bytes(content[place + 4 : place + 6], "little")
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=version)
    header = struct_parse(structs.Dwarf_lineprog_header, stream, place)
    end = place + header["unit_length"] + structs.initial_length_field_size()
    return LineProgram(header, stream, structs, stream.tell(), end), end


def _names(program: Any) -> dict[int, str]:
    """Paths of files by their numbers."""
    header = program.header
    first = 0 if header["version"] >= 5 else 1
    folders = [each.decode(errors="replace") for each in header["include_directory"]]
    if first:
        folders.insert(0, "")
    found = {}
    for number, each in enumerate(header["file_entry"], first):
        name = each.name.decode(errors="replace")
        folder = folders[each.dir_index] if each.dir_index < len(folders) else ""
        found[number] = name if name.startswith("/") or not folder else f"{folder}/{name}"
    return found
