"""Where a function of a program begins, by its symbol (pyelftools, extra ``trace``)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from manyscale.runner.errors import UserError

_EXECUTABLE = 1  # flag of a segment


@dataclass(frozen=True)
class FunctionEntry:
    """``address`` in the program's file; ``code``: where its first segment of code begins; ``is_movable``: whether
    the program is loaded anywhere."""

    address: int
    code: int
    is_movable: bool


def find_program(name: str) -> Path:
    """The program that a command's first word names. Raises UserError if there is none."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"{name}: is no program that can be run; give its path")
    return Path(found)


def function_entry(program: Path, function: str) -> FunctionEntry:
    """The function's entry. Raises UserError for a program without it, naming what is alike."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.sections import SymbolTableSection
    except ImportError:
        raise UserError("--function needs pyelftools; pip install 'manyscale[trace]'") from None
    try:
        with program.open("rb") as file:
            elf = ELFFile(file)
            tables = [section for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
            functions = {
                symbol.name: int(symbol["st_value"])
                for table in tables
                for symbol in table.iter_symbols()
                if symbol["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC") and symbol["st_shndx"] != "SHN_UNDEF"
            }
            code = [int(each["p_vaddr"]) for each in elf.iter_segments("PT_LOAD") if each["p_flags"] & _EXECUTABLE]
            is_movable = elf.header["e_type"] == "ET_DYN"
    except OSError as error:
        raise UserError(f"{program}: cannot be read ({error.strerror or error})") from None
    except ELFError as error:
        raise UserError(f"{program}: is no program that a function could be found in ({error})") from None
    if function not in functions or not code:
        alike = sorted(name for name in functions if function in name)[:4]
        hint = f"; alike are {', '.join(alike)}" if alike else "; is it stripped, or was the function inlined?"
        raise UserError(f"{program}: has no function {function!r}{hint}")
    return FunctionEntry(functions[function], min(code), is_movable)
