"""From instructions as ``cuobjdump -sass`` prints them to records that the interpreter executes, and to the static
instructions that GPU models read.

Each root has a rule in ``rules.py``: which op executes it, the bits of its modifiers, and its operands in one order,
with those filled in that the text leaves out. An instruction without a rule is decoded as ``UNKNOWN``: a program may
hold it, and is stopped where it would execute it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from manyscale.models.workload.asynchronous import (
    ARRIVES_ONLY,
    IN_WORDS,
    NAMED,
    NUMBER_MASK,
    PREFETCHING,
    THREADS_MASK,
    THREADS_SHIFT,
)
from manyscale.models.workload.launch_trace import (
    MAX_OPERANDS,
    NO_REGISTER,
    Access,
    Space,
    StaticInstructions,
    UnitClass,
)
from manyscale.runner.errors import UserError
from manyscale.runner.readers.accelsim.opcodes import classify, wide_registers
from manyscale.runner.tracers.cuda.sass import operands as ops
from manyscale.runner.tracers.cuda.sass.codes import MODIFIERS, OPS, SCALE_SHIFT
from manyscale.runner.tracers.cuda.sass.given import Decoded, UnknownInstructionError, moved
from manyscale.runner.tracers.cuda.sass.rules import rule_of

MOST: Final = 9  # operands of a record
OPERAND: Final = np.dtype([("kind", "u1"), ("flags", "u1"), ("number", "u1"), ("index", "u1"), ("value", "<u4")])
INSTRUCTION: Final = np.dtype(
    [
        ("op", "<u2"), ("guard", "u1"), ("guard_flags", "u1"), ("modifiers", "<u4"), ("row", "<u4"), ("target", "<i4"),
        ("num_operands", "u1"), ("size", "u1"), ("space", "u1"), ("access", "u1"), ("extra", "<u4"),
        ("operands", OPERAND, (MOST,)),
    ]
)  # fmt: skip
_GUARD: Final = re.compile(r"@(!?)(U?)P(\d|T)\s+")
_BYTES: Final = 16  # of an instruction
_SPACES: Final = (Space.shared, Space.local)  # of rows of a generic access, behind all others
_FIRST_WITH_CLUSTERS: Final = 90  # code that may access shared memory of other blocks
_MOST_ROWS: Final = 1 << 16  # an instruction's ``extra`` has 16 bits for the row of its accesses to other spaces
_ACCESSES: Final = frozenset(("LOAD", "STORE", "ATOMIC", "LDGSTS", "LDSM", "STSM"))  # whose addresses are recorded


@dataclass(frozen=True)
class Code:
    """``code`` INSTRUCTION[n]; ``static``: n rows, and behind them more for each generic access, for the windows of
    shared and of local memory; ``unknown``: texts that nothing executes, by their places; ``listed``: of each row the
    registers, opcode and width as Accel-Sim's traces have them; ``places``: which instruction each row is of."""

    code: np.ndarray
    static: StaticInstructions
    unknown: dict[int, str]
    listed: list[str]
    places: list[int]


@dataclass(frozen=True)
class Text:
    """An instruction taken apart: guard, root, modifiers, operands."""

    guard: int
    guard_flags: int
    opcode: str
    operands: tuple[ops.Operand, ...]


def taken_apart(text: str) -> Text:
    """Raises ``ops.UnknownOperandError``."""
    guard, flags = ops.TRUE, 0
    if match := _GUARD.match(text):
        guard = ops.TRUE if match[3] == "T" else int(match[3])
        flags = (ops.INVERTED if match[1] else 0) | (ops.INDEXED if match[2] else 0)
        text = text[match.end() :]
    opcode, _, rest = text.partition(" ")
    return Text(guard, flags, opcode, tuple(ops.parse(part) for part in ops.split(rest)))


def decode(
    texts: Sequence[str], pcs: Sequence[int], words: Sequence[int], architecture: int, begins: Sequence[int] = ()
) -> Code:
    """Decode a kernel's instructions: texts, byte addresses (0, 16, 32, ...), 128-bit words; for an SM version (80).
    ``begins``: of each the address at which its function begins, from which its text counts; all 0 where none are
    given. O(instructions)."""
    code = np.zeros(len(texts), INSTRUCTION)
    unknown: dict[int, str] = {}
    rows = _Rows(architecture)
    generic: list[int] = []
    for place, (text, pc, word) in enumerate(zip(texts, pcs, words, strict=True)):
        record = code[place]
        record["row"], record["target"] = place, -1
        try:
            parts = taken_apart(text)
            begin = begins[place] if begins else 0
            decoded = moved(rule_of(parts.opcode, parts.operands, pc - begin, word), begin)
        except (ops.UnknownOperandError, UnknownInstructionError):
            unknown[place] = text
            record["op"], record["guard"] = OPS["UNKNOWN"], ops.TRUE
            rows.add(text.split(" ", 2)[1 if text[:1] == "@" else 0], (), pc)
            continue
        record["guard"], record["guard_flags"] = parts.guard, parts.guard_flags
        _fill(record, decoded, word)
        row = rows.add(parts.opcode, parts.operands, pc, decoded)
        record["space"], record["access"] = row.space, row.access
        record["size"] = row.thread_bytes
        if row.is_generic:
            record["modifiers"] |= MODIFIERS["GENERIC"]
            generic.append(place)
    spaces = _SPACES if architecture < _FIRST_WITH_CLUSTERS else (*_SPACES, Space.cluster)
    if generic and len(texts) + len(spaces) * len(generic) >= _MOST_ROWS:
        raise UserError(f"its code has {len(texts)} instructions, more than are executed together")
    places = list(range(len(texts)))
    for place in generic:
        places += [place] * len(spaces)
        first = rows.repeated(place, spaces)
        code[place]["extra"] = (int(code[place]["extra"]) & 0xFFFF) | first << 16
    return Code(code, rows.static(), unknown, rows.listed, places)


def _fill(record: np.void, decoded: Decoded, word: int) -> None:
    modifiers = decoded.modifiers
    for place, operand in enumerate(decoded.operands):
        value = operand.value
        if operand.is_floating:  # its bits, which the text rounds
            value = word >> 32 & 0xFFFFFFFF
        record["operands"][place] = (operand.kind, operand.flags, operand.number, operand.index, value)
        modifiers |= operand.scale << SCALE_SHIFT
    record["op"] = OPS[decoded.op]
    record["modifiers"] = modifiers
    record["num_operands"] = len(decoded.operands)
    record["extra"] = decoded.extra
    if decoded.target is not None:
        record["target"] = decoded.target // _BYTES


def _of_barrier(decoded: Decoded) -> int:
    """``immediate`` of a barrier of the block (models/workload/asynchronous.py); 0: it waits for all of the block."""
    number, count = decoded.operands[:2]
    if count.kind == ops.NONE:
        return 0
    only_arrives = ARRIVES_ONLY if decoded.modifiers & MODIFIERS["BAR_ARV"] else 0
    if number.kind != ops.IMMEDIATE or count.kind != ops.IMMEDIATE:
        return IN_WORDS | only_arrives
    return NAMED | only_arrives | (number.value & NUMBER_MASK) | (count.value & THREADS_MASK) << THREADS_SHIFT


@dataclass
class _Row:
    space: int
    access: int
    is_generic: bool
    thread_bytes: int


class _Rows:
    """Static instructions while they are collected."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture
        self._opcodes: dict[str, int] = {}
        self._columns: dict[str, list[int]] = {
            name: [] for name in ("pc", "opcode", "unit", "space", "access", "immediate", "bypasses_l1")
        }
        self._registers: dict[str, list[list[int]]] = {"destinations": [], "sources": []}
        self.listed: list[str] = []

    def add(self, opcode: str, operands: Sequence[ops.Operand], pc: int, decoded: Decoded | None = None) -> _Row:
        found = classify(opcode, False, self._architecture)
        destinations, sources = _registers(opcode, operands)
        wide = wide_registers(opcode, destinations, sources)
        if decoded and decoded.registers:
            wide = (list(dict.fromkeys(decoded.registers[0])), list(dict.fromkeys(decoded.registers[1])))
        if decoded and decoded.access:
            found = replace(found, unit=UnitClass.load_store, space=Space.global_, access=Access(decoded.access))
        values = {
            "pc": pc,
            "opcode": self._opcodes.setdefault(opcode, len(self._opcodes)),
            "unit": int(found.unit),
            "space": int(found.space),
            "access": int(found.access),
            "immediate": next((each.value for each in operands if each.kind == ops.IMMEDIATE), 0),
            "bypasses_l1": int(found.bypasses_l1),
        }
        if decoded and decoded.op == "BAR":
            values["immediate"] = _of_barrier(decoded)
        if decoded and opcode.split(".")[0] in PREFETCHING:
            values["immediate"] = IN_WORDS
        if decoded and decoded.op == "WGMMA":  # whether it ends a group of products
            values["immediate"] = int(any(each.text.startswith("gsb") for each in operands))
        for name, value in values.items():
            self._columns[name].append(value)
        for name, registers in zip(self._registers, wide, strict=True):
            self._registers[name].append(registers[:MAX_OPERANDS])
        thread_bytes = (decoded.size if decoded else 0) or found.thread_bytes
        width = thread_bytes if decoded and decoded.op in _ACCESSES else 0
        self.listed.append(f"{_counted(destinations)} {opcode} {_counted(sources)} {width}")
        return _Row(int(found.space), int(found.access), found.is_generic, thread_bytes)

    def repeated(self, row: int, spaces: Sequence[Space]) -> int:
        """The row again, of other spaces; the number of the first."""
        first = len(self._columns["pc"])
        for space in spaces:
            for name, column in self._columns.items():
                column.append(int(space) if name == "space" else column[row])
            for registers in self._registers.values():
                registers.append(registers[row])
            self.listed.append(self.listed[row])
        return first

    def static(self) -> StaticInstructions:
        number = len(self._columns["pc"])
        registers: dict[str, Any] = {}
        for name, lists in self._registers.items():
            table = np.full((number, MAX_OPERANDS), NO_REGISTER, np.int16)
            for row, values in enumerate(lists):
                table[row, : len(values)] = values
            registers[name] = table
        kinds = {"pc": np.int64, "opcode": np.int32, "immediate": np.int32, "bypasses_l1": np.bool_}
        columns: dict[str, Any] = {
            name: np.array(values, np.int64).astype(kinds.get(name, np.uint8)) for name, values in self._columns.items()
        }
        return StaticInstructions(tuple(self._opcodes), **columns, **registers)


def _counted(registers: Sequence[int]) -> str:
    return " ".join((str(len(registers)), *(f"R{number}" for number in registers)))


def _registers(opcode: str, operands: Sequence[ops.Operand]) -> tuple[list[int], list[int]]:
    """General registers that an instruction lists as written and as read, in the order of its text (as NVBit's tracer
    lists them: no predicates, uniform registers and constants)."""
    root = opcode.split(".")[0]
    access = classify(opcode, False, 0).access
    writes = access not in (Access.store, Access.reduction, Access.copy) and root not in _WRITE_NOTHING
    destinations: list[int] = []
    sources: list[int] = []
    for operand in operands:
        if operand.kind == ops.REGISTER:
            is_first = writes and not destinations and not sources
            (destinations if is_first else sources).append(operand.number)
        elif operand.kind == ops.ADDRESS and (operand.number != ops.ZERO_REGISTER or operand.index == ops.ZERO_UNIFORM):
            sources.append(operand.number)
        elif operand.kind == ops.CONSTANT and operand.flags & ops.INDEXED and not operand.flags & ops.HIGH:
            sources.append(operand.index)
    return destinations, sources


_WRITE_NOTHING: Final = frozenset(
    (
        "ISETP",
        "FSETP",
        "DSETP",
        "HSETP2",
        "R2P",
        "R2UR",
        "FCHK",
        "BRX",
        "JMX",
        "RET",
        "CALL",
        "BRA",
        "WARPSYNC",
        "BAR",
        "NANOSLEEP",
        "PLOP3",
    )
)
