"""Control bits, operands and lines of instructions (``InstructionDetails``), from their texts and 128-bit words.

Which bits of a word control the schedule: Jia, Maggioni, Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", 2018, section 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from manyscale.models.workload.instruction_details import (
    COLUMNS,
    LISTS,
    MAX_CONSTANTS,
    MAX_UNIFORM,
    NO_BARRIER,
    NONE,
    UNIFORM_PREDICATE,
    InstructionDetails,
)

_CONTROL_SHIFT: Final = 105  # of a word's 128 bits
_NO_BARRIER: Final = 7
_GUARD: Final = re.compile(r"@!?(U?)P(\d|T)\s+")
_PREDICATE: Final = re.compile(r"!?(U?)P(\d|T)$")
_UNIFORM: Final = re.compile(r"\bUR(\d+)\b")
_CONSTANT: Final = re.compile(r"\bcx?\[(0x[0-9a-f]+|UR\d+)\]\[([^\]]*)\]")
_NUMBER: Final = re.compile(r"(?<![\w.])(-?)(0x[0-9a-f]+)")
_WRITES_TWO: Final = frozenset((
    "ISETP", "FSETP", "DSETP", "HSETP2", "CSETP", "PSETP", "UISETP", "UPSETP", "PLOP3", "UPLOP3", "IADD3", "UIADD3",
    "IADD",
))  # fmt: skip
_WRITES_NONE: Final = frozenset((
    "BRA", "BRX", "BRXU", "JMX", "JMP", "EXIT", "CALL", "RET", "BREAK", "BSYNC", "BSSY", "WARPSYNC", "YIELD", "BAR",
    "NANOSLEEP", "KILL", "BPT", "SEL", "FSEL", "USEL", "STG", "ST", "STS", "STL", "RED", "REDG", "LDGSTS", "P2R",
    "UP2UR", "R2P", "MEMBAR", "DEPBAR", "NOP",
))  # fmt: skip
"""Roots that write up to two predicates, and those whose leading predicates are read; any other writes one at most."""


def details(
    texts: Sequence[str],
    words: Sequence[int],
    listed: Sequence[str],
    places: Sequence[int],
    lines: Sequence[tuple[str, int]] = (),
) -> InstructionDetails:
    """Of rows, which ``listed`` and ``places`` describe: how an instruction is listed, and which one it is; ``lines``:
    (file, line) of each instruction, if they are known. O(rows)."""
    number = len(texts)
    columns: dict[str, np.ndarray] = {name: np.zeros(number, kind) for name, kind in COLUMNS.items()}
    columns |= {name: np.full((number, most), NONE, kind) for name, (kind, most) in LISTS.items()}
    columns["source_file"][:] = NONE
    files: dict[str, int] = {}
    for row, (text, word) in enumerate(zip(texts, words, strict=True)):
        for name, value in _control(word).items():
            columns[name][row] = value
        _fill_operands(columns, row, text)
        file, line = lines[row] if lines else ("", 0)
        if file:
            columns["source_file"][row], columns["source_line"][row] = files.setdefault(file, len(files)), line
    at = np.array(places, np.int64)
    rows: dict[str, Any] = {name: values[at] for name, values in columns.items()}
    return InstructionDetails(tuple(texts[k] for k in places), tuple(listed), tuple(files), **rows)


def _control(word: int) -> dict[str, int]:
    bits = word >> _CONTROL_SHIFT
    barriers = (bits >> 5 & 7, bits >> 8 & 7)
    write, read = (NO_BARRIER if each == _NO_BARRIER else each for each in barriers)
    return {
        "stall": bits & 15,
        "yields": 1 - (bits >> 4 & 1),
        "write_barrier": write,
        "read_barrier": read,
        "waits": bits >> 11 & 63,
        "reuse": bits >> 17 & 15,
    }


def _fill_operands(columns: dict[str, np.ndarray], row: int, text: str) -> None:
    read = 0
    if match := _GUARD.match(text):
        read |= _bit(match[1], match[2])
        text = text[match.end() :]
    opcode, _, rest = text.partition(" ")
    operands = [each.strip() for each in _split(rest)]
    root = opcode.split(".")[0]
    written, others = _predicates(root, operands)
    columns["predicates_written"][row], columns["predicates_read"][row] = written, read | others
    first = next((place for place, each in enumerate(operands) if not _PREDICATE.match(each)), len(operands))
    destination = operands[first : first + _writes_uniform(root)]
    destination = [each for each in destination if re.fullmatch(r"UR\d+(\.\w+)*", each)]
    sources = operands[first + len(destination) :]
    uniform = [[int(each) for each in _UNIFORM.findall(" ".join(some))] for some in (destination, sources)]
    for name, numbers in zip(("uniform_written", "uniform_read"), uniform, strict=True):
        numbers = list(dict.fromkeys(numbers))[:MAX_UNIFORM]
        columns[name][row, : len(numbers)] = numbers
    for k, (bank, inside) in enumerate(_CONSTANT.findall(rest)[:MAX_CONSTANTS]):
        columns["constant_bank"][row, k] = int(bank, 16) if bank[:2] == "0x" else NONE
        offsets = [int(number, 16) * (-1 if sign else 1) for sign, number in _NUMBER.findall(inside)]
        columns["constant_offset"][row, k] = sum(offsets)


def _writes_uniform(root: str) -> bool:
    """Whether its first operand that is no predicate is written, if that is a uniform register."""
    if root.endswith("SETP"):
        return False
    return root[:1] == "U" or root in ("R2UR", "S2UR", "CS2UR", "VOTEU", "REDUX", "CREDUX", "LDCU", "ELECT")


def _split(text: str) -> list[str]:
    return [each for each in re.split(r",(?![^\[]*\])", text) if each.strip()]


def _predicates(root: str, operands: Sequence[str]) -> tuple[int, int]:
    """Bits of those written and of those read. Written ones lead the operands, or follow the first register."""
    most = 0 if root in _WRITES_NONE else 2 if root in _WRITES_TWO else 1
    start = 0 if operands and _PREDICATE.match(operands[0]) else 1
    if root in ("VOTE", "VOTEU") and start and len(operands) == 2:
        most = 0  # a register, and what is asked
    written = read = 0
    for place, operand in enumerate(operands):
        match = _PREDICATE.match(operand)
        if match is None:
            continue
        is_written = start <= place < start + most and all(_PREDICATE.match(each) for each in operands[start:place])
        if is_written and "!" not in operand:
            written |= _bit(match[1], match[2])
        else:
            read |= _bit(match[1], match[2])
    return written, read


def _bit(uniform: str, number: str) -> int:
    """None of PT and UPT, which always hold."""
    return 0 if number == "T" else 1 << int(number) + (UNIFORM_PREDICATE if uniform else 0)
