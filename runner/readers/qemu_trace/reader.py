"""What the plugin recorded as a workload."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import PHASES_SCHEMA, PhaseKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.detail_tables import BLOCKS_SCHEMA, INSTRUCTIONS_SCHEMA
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.binaries import aarch64, symbols
from manyscale.runner.readers.binaries.instructions import Disassembler, Instruction
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.qemu_trace import chunks as qemu_chunks
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.detail_store import DetailWriter
from manyscale.runner.readers.stores.traced_blocks import ScratchStream, TracedBlocks

NAME: Final = "qemu-trace"
_UNTIMED: Final = {"rank": 0, "operation_id": 0, "kind": PhaseKind.compute, "region_id": -1, "duration_ps": 0}
_PT_LOAD: Final = 1
_EXECUTABLE: Final = 1


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError for a damaged file, and for a function that
    was never entered."""
    trace = Traced(path)
    code, blocks = KnownCode(), TracedBlocks()
    with ScratchStream() as stream:
        executed = Executions(trace, code, blocks, stream.writer)
        for _ in executed.segments():
            pass
        if not blocks.num_blocks:
            never = "its function was never entered" if trace.end.get("entries") == 0 else "it holds no executions"
            why = trace.end.get("stopped") or never
            raise UserError(f"{path}: {why}; check --function and the limit, and trace the program again")
        stream.writer.end_segment(0, 0, 0, -1, -1, executed.num_instructions)
        segments, store = stream.close()
    notes = [*executed.notes, *trace.endings()]
    tables: dict[str, pa.Table] = rank_tables(1, {}) | {
        **code.tables(blocks, executed.entries, notes),
        "segments": segments,
        "phases": pa.Table.from_pylist([_UNTIMED], PHASES_SCHEMA),
    }
    name = os.path.basename(str(trace.end.get("program") or "")) or path.name.split(".")[0]
    return Workload(name, 1, tables, tuple(notes), NAME, store)


class Traced:
    """A trace's file: ``code``, what it was told, and the definition that ends it (empty where it was killed)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.code = qemu_chunks.read_code(path)
        self.told = qemu_chunks.definitions(path)
        self.end: dict[str, Any] = self.told[-1] if self.told and self.told[-1].get("end") else {}

    @property
    def is_arm(self) -> bool:
        """Whether its code is AArch64's, else x86-64's."""
        return any(each.get("target") == "aarch64" for each in self.told)

    @property
    def is_region(self) -> bool:
        """Whether it is of a function that was entered."""
        return int(self.end.get("entries", 0)) > 0

    def endings(self) -> list[Note]:
        """What is to be said about how it ended."""
        return _endings(self.end)


class KnownCode:
    """Code of one or several processes, numbered across them: what lies at the same place of the same file, with the
    same bytes, is one block."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, bytes], int] = {}
        self._addresses: list[int] = []
        self._is_arm = False

    def number(self, trace: Traced) -> np.ndarray:
        """int64[blocks of the trace's code]: their numbers here. O(static code)."""
        code = trace.code
        self._is_arm |= trace.is_arm
        modules, offsets = _Mappings.of(trace.told, trace.end).locate(code.addresses)
        numbers = np.empty(len(code.codes), np.int64)
        for index, key in enumerate(zip(modules, offsets, code.codes, strict=True)):
            numbers[index] = self._known.setdefault(key, len(self._known))
            if numbers[index] == len(self._addresses):
                self._addresses.append(int(code.addresses[index]))
        return numbers

    def tables(self, blocks: TracedBlocks, entries: set[int], notes: list[Note]) -> dict[str, pa.Table]:
        """The static tables of ``blocks``, whose keys are numbers of code; ``entries``: numbers of code that calls led
        to. What is not known of it is added to ``notes``."""
        table, instructions = _static_tables(
            list(self._known), self._addresses, blocks, entries, notes, is_arm=self._is_arm
        )
        return {"blocks": table, "instructions": instructions, "block_accesses": blocks.accesses()}


class Executions:
    """What a trace's words say: executions go to ``writer``, of whose segment there are ``num_instructions`` so far;
    ``entries``: numbers of the code to which a call led (of a function's trace the first one, too)."""

    def __init__(self, trace: Traced, known: KnownCode, blocks: TracedBlocks, writer: DetailWriter) -> None:
        self._trace, self._blocks, self._writer = trace, blocks, writer
        self._number = known.number(trace)
        code = trace.code
        self._code = replace(code, block=self._number[code.block] if len(code.block) else code.block)
        ends_in_call = _ends_in_branch_and_link if trace.is_arm else _ends_in_call
        calls = np.array([ends_in_call(each) for each in code.codes], np.bool_)
        self._calls = np.zeros(int(self._number.max(initial=-1)) + 1, np.bool_)
        self._calls[self._number] = calls
        self._last = np.zeros(int(code.first_instruction[-1]), np.uint64)
        self._previous = -1
        self.num_instructions = 0
        self.entries: set[int] = set()
        self.notes: list[Note] = []

    def segments(self) -> Iterator[None]:
        """Yields at the end of each segment but the last. Raises UserError for words that name what is not there."""
        at = 0  # of the words before
        for _, content in qemu_chunks.chunks(self._trace.path, (qemu_chunks.WORDS,), self.notes):
            words = np.frombuffer(content, "<u8")
            ends = np.flatnonzero(words == qemu_chunks.SEGMENT_ENDS).tolist()
            first = 0
            for end in [*ends, len(words)]:
                if end > first:
                    self._add(words[first:end], at + first)
                if end < len(words):
                    yield
                first = end + 1
            at += len(words)

    def _add(self, words: np.ndarray, place: int) -> None:
        """``place``: of the first of the words in the trace."""
        code, path = self._code, self._trace.path
        num_executions = int(qemu_chunks.count_parts(words, code.first_part))
        if num_executions < 0:
            raise UserError(f"{path}: word {place - 1 - num_executions} names no block; trace the program again")
        keys = np.empty(num_executions, np.int64)
        sizes, counts = np.empty(num_executions, np.int32), np.empty(num_executions, np.int32)
        attributes, addresses = np.empty(len(words), np.int64), np.empty(len(words), np.uint64)
        num_accesses = int(
            qemu_chunks.expand(
                words, code.first_instruction, code.first_part, code.part, code.place, code.block, code.size,
                self._last, keys, sizes, counts, attributes, addresses,
            )
        )  # fmt: skip
        if num_accesses < 0:
            raise UserError(f"{path}: word {place - 1 - num_accesses} is of no instruction of its block; trace again")
        self._writer.add(self._blocks.number(keys, sizes, counts, attributes), counts, addresses[:num_accesses])
        self.num_instructions += int(sizes.sum(dtype=np.int64))
        is_first_called = self._trace.is_region if self._previous < 0 else bool(self._calls[self._previous])
        is_called = np.append(is_first_called, self._calls[keys[:-1]])
        self.entries.update(np.unique(keys[is_called]).tolist())
        self._previous = int(keys[-1])


def _endings(end: dict[str, Any]) -> list[Note]:
    """What is to be said about how the trace ended."""
    if not end:
        text = "the program was killed or became another one (exec); the trace holds what it did before"
        return [changes("program-killed", text)]
    notes = []
    if end.get("stopped"):
        text = f"recording stopped before the program did: {end['stopped']}"
        notes.append(changes("recording-stopped", text, errs=Errs.short))
    if end.get("lost"):
        text = f"{end['lost']} accesses of blocks with too many of them are lost"
        notes.append(changes("accesses-missing", text, count=int(end["lost"]), errs=Errs.short))
    if end.get("other_threads"):
        text = f"other threads than the first executed {end['other_threads']} blocks, which are not recorded"
        notes.append(changes("threads-left-out", text, count=int(end["other_threads"])))
    return notes


def _ends_in_call(code: bytes) -> bool:
    """Whether code ends in a near call: relative, or through a register or memory (whose length varies)."""
    if len(code) >= 5 and code[-5] == 0xE8:
        return True
    for length in range(2, 8):  # ff /2
        if len(code) >= length and code[-length] == 0xFF and code[1 - length] >> 3 & 7 == 2:
            return True
    return False


def _ends_in_branch_and_link(code: bytes) -> bool:
    """Whether AArch64 code ends in a call: bl, or blr."""
    word = int.from_bytes(code[-4:], "little")
    return word & 0xFC000000 == 0x94000000 or word & 0xFFFFFC1F == 0xD63F0000


def _static_tables(
    known: list[tuple[str, int, bytes]], addresses: list[int], blocks: TracedBlocks, entries: set[int],
    notes: list[Note], *, is_arm: bool,
) -> tuple[pa.Table, pa.Table]:  # fmt: skip
    """The tables ``blocks`` and ``instructions``. ``known``: file, place in it and bytes by number of code."""
    numbers = blocks.keys
    modules, offsets = [known[each][0] for each in numbers.tolist()], [known[each][1] for each in numbers.tolist()]
    places: dict[tuple[str, int], symbols.Place] = {}
    for module in sorted(set(modules) - {""}):
        mine = sorted({offset for each, offset in zip(modules, offsets, strict=True) if each == module})
        found, missing = symbols.resolve(module, mine)
        places |= {(module, offset): place for offset, place in zip(mine, found, strict=True)}
        notes += missing
    nowhere = symbols.Place("", "", 0)
    shown = [places.get(key, nowhere) for key in zip(modules, offsets, strict=True)]
    columns = [
        text_array([place.function for place in shown]),
        text_array([place.file for place in shown]),
        to_arrow(np.array([place.line for place in shown], np.int32)),
        text_array([os.path.basename(module) for module in modules]),
        to_arrow(np.array(offsets, np.int64)),
        pa.array([number in entries for number in numbers.tolist()], pa.bool_()),
        to_arrow(blocks.num_instructions),
    ]
    table = pa.Table.from_arrays(columns, schema=BLOCKS_SCHEMA)
    at = np.array([addresses[number] for number in numbers.tolist()], np.int64)
    return table, instructions_table([known[number][2] for number in numbers.tolist()], at, notes, is_arm=is_arm)


def instructions_table(
    codes: list[bytes], addresses: np.ndarray, notes: list[Note], *, is_arm: bool = False, vector_bytes: int = 0
) -> pa.Table:
    """The table ``instructions`` of blocks, of x86-64 code (or AArch64's, with SVE's vectors of ``vector_bytes``) that
    stands at ``addresses``; empty, with a note, where capstone is not installed."""
    try:
        disassembler = aarch64.Disassembler(vector_bytes) if is_arm else Disassembler()
    except UserError as error:
        notes.append(changes("instructions-unknown", f"instructions are not known: {error}", errs=Errs.short))
        return INSTRUCTIONS_SCHEMA.empty_table()
    decoded: dict[tuple[bytes, int], list[Instruction]] = {}
    rows: list[tuple[int, Instruction]] = []
    for block, (each, address) in enumerate(zip(codes, addresses.tolist(), strict=True)):
        key = each, address
        if key not in decoded:
            decoded[key] = list(disassembler.disassemble(each, address))
        rows += [(block, instruction) for instruction in decoded[key]]
    if isinstance(disassembler, aarch64.Disassembler) and disassembler.num_unknown:
        count = disassembler.num_unknown
        text = f"{count} instructions are not known: they have no class, and nothing waits for their registers"
        notes.append(changes("instructions-unknown", text, count=count))
    if isinstance(disassembler, aarch64.Disassembler) and disassembler.num_scalable:
        count = disassembler.num_scalable
        length = f"of {8 * vector_bytes} bits" if vector_bytes else "of a length that it does not say"
        text = f"the trace has SVE's vectors {length}: with others the program executes other numbers of instructions"
        notes.append(informs("vector-length", text, count=count))
        if count := disassembler.num_predicated:
            text = f"{count} instructions of SVE do not wait for the predicates that they take"
            notes.append(changes("predicates-free", text, count=count, errs=Errs.short))
    columns = [
        to_arrow(np.array([block for block, _ in rows], np.int32)),
        to_arrow(np.array([int(one.kind) for _, one in rows], np.int8)),
        to_arrow(np.array([one.lanes for _, one in rows], np.int8)),
        _lists([one.sources for _, one in rows]),
        _lists([one.destinations for _, one in rows]),
    ]
    return pa.Table.from_arrays(columns, schema=INSTRUCTIONS_SCHEMA)


def _lists(rows: list[tuple[int, ...]]) -> pa.ListArray:
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum([len(row) for row in rows], dtype=np.int32)))
    values = np.array([value for row in rows for value in row], np.int16)
    return pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32)), to_arrow(values))


@dataclass(frozen=True)
class _Mappings:
    """The emulator's mappings of files, (start, end, offset in the file, path) in order, and where the guest's address
    0 lies in it."""

    rows: list[tuple[int, int, int, str]]
    guest_base: int

    @classmethod
    def of(cls, told: list[dict[str, Any]], end: dict[str, Any]) -> _Mappings:
        rows = sorted(
            (int(each["start"]), int(each["end"]), int(each["offset"]), str(each["mapped"]))
            for each in told
            if "mapped" in each
        )
        program = os.path.realpath(str(end.get("program") or ""))
        segment = next((each for each in _segments(program) if each[3] & _EXECUTABLE), None)
        for start, stop, offset, path in rows:
            if segment is not None and path == program and offset <= segment[1] < offset + stop - start:
                return cls(rows, start + segment[1] - offset - int(end["code"]))
        return cls([], 0)

    def locate(self, addresses: np.ndarray) -> tuple[list[str], list[int]]:
        """Files of the guest's addresses, empty where unknown, and the addresses in them (else as they are)."""
        starts = np.array([row[0] for row in self.rows], np.int64)
        index = np.searchsorted(starts, addresses + self.guest_base, side="right") - 1
        segments = {path: _segments(path) for _, _, _, path in self.rows}
        modules, offsets = [], []
        for address, at in zip(addresses.tolist(), index.tolist(), strict=True):
            start, stop, offset, path = self.rows[at] if at >= 0 else (0, 0, 0, "")
            place = address + self.guest_base - start + offset
            inside = address + self.guest_base < stop
            found = next((each for each in segments.get(path, ()) if each[1] <= place < each[1] + each[2]), None)
            modules.append(path if inside and found else "")
            offsets.append(found[0] + place - found[1] if inside and found else address)
        return modules, offsets


def _segments(path: str) -> list[tuple[int, int, int, int]]:
    """(address, offset, bytes, flags) of an ELF file's loaded segments; none of a file that is none."""
    try:
        with open(path, "rb") as file:
            header = file.read(64)
            if header[:5] != b"\x7fELF\x02" or len(header) < 64:
                return []
            table, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
            file.seek(table)
            rows = file.read(size * count)
    except OSError:
        return []
    found = []
    for at in range(0, len(rows) - size + 1, size):
        kind, flags, offset, address, _, stored = struct.unpack_from("<IIQQQQ", rows, at)
        if kind == _PT_LOAD:
            found.append((address, offset, stored, flags))
    return found
