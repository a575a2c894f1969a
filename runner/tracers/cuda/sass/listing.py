"""What ``cuobjdump -sass`` prints: the functions of a cubin, instruction by instruction, with their 128-bit words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from manyscale.runner.errors import UserError

_FUNCTION: Final = re.compile(r"\s*Function : (\S+)\s*$")
_INSTRUCTION: Final = re.compile(r"\s*/\*([0-9a-f]{4,8})\*/\s+([^;]*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_REST: Final = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_TARGET: Final = re.compile(r"\s*code for sm_(\d+)")


@dataclass
class Listing:
    """Instructions of a function: byte addresses, texts without their semicolons, and words of 128 bits."""

    pcs: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    words: list[int] = field(default_factory=list)


def functions(text: str) -> dict[str, Listing]:
    """Functions by their mangled names. O(text). Raises UserError for a line of code that is none."""
    found: dict[str, Listing] = {}
    current: Listing | None = None
    low: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := _INSTRUCTION.match(line):
            if current is None or low is not None:
                raise UserError(f"cuobjdump -sass, line {number}: an instruction stands outside a function")
            current.pcs.append(int(match[1], 16))
            current.texts.append(match[2])
            low = int(match[3], 16)
        elif low is not None:
            rest = _REST.match(line)
            if rest is None or current is None:
                raise UserError(f"cuobjdump -sass, line {number}: the second word of an instruction is missing")
            current.words.append(int(rest[1], 16) << 64 | low)
            low = None
        elif match := _FUNCTION.match(line):
            current = found.setdefault(match[1], Listing())
    return found


def architectures(text: str) -> Sequence[int]:
    """SM versions of the code that is listed, such as 80."""
    return [int(match[1]) for line in text.splitlines() if (match := _TARGET.match(line))]
