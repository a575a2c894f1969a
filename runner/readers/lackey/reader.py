"""The records of a lackey trace as a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.kernels.hash_table import new_table
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import CHUNK_BYTES, guarded, open_stream
from manyscale.runner.readers.lackey import lines as lackey_lines
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.traced_blocks import ScratchStream, TracedBlocks, block_table, insert

NAME: Final = "lackey"
_NOWHERE: Final = -1  # no address of an instruction


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, entry: int | None = None) -> Workload:
    """The workload of a trace (``options`` play no part), or of the function in it that begins at the address
    ``entry``, with all that it calls. Raises UserError with file and line."""
    notes: list[Note] = []
    code = Code()
    for records in _records(path, entry, notes):
        code.see(*records)
    if not code.num_known and entry is not None:
        raise UserError(f"{path}: the function at {entry:#x} was never entered; check --function")
    if not code.num_known:
        raise UserError(f"{path}: has no instructions (lines I); trace with valgrind --tool=lackey --trace-mem=yes")
    blocks = TracedBlocks()
    with ScratchStream() as stream:
        num_instructions = 0
        for each in executions(lambda: _records(path, entry), code, notes):
            ids = blocks.number(each.starts, each.sizes, each.counts, each.attributes)
            stream.writer.add(ids, each.counts, each.addresses)
            num_instructions += int(each.sizes.sum(dtype=np.int64))
        stream.writer.end_segment(0, 0, 0, -1, -1, num_instructions)
        segments, store = stream.close()
    tables: dict[str, pa.Table] = rank_tables(1, {}) | {
        "blocks": block_table(blocks.keys, blocks.num_instructions),
        "block_accesses": blocks.accesses(),
        "segments": segments,
    }
    return Workload(path.name.split(".")[0], 1, tables, tuple(notes), NAME, store)


Records = tuple[np.ndarray, np.ndarray, np.ndarray]  # kinds uint8[], addresses int64[], sizes int32[]


def _records(path: Path, entry: int | None, notes: list[Note] | None = None) -> Iterator[Records]:
    """The records of the file or of a function, in pieces."""
    if entry is None:
        yield from _all_records(path, notes)
        return
    state = np.zeros(5, np.int64)
    for kinds, addresses, sizes in _all_records(path, notes):
        keep = np.empty(len(kinds), np.bool_)
        lackey_lines.inside_function(kinds, addresses, sizes, entry, state, keep)
        yield kinds[keep], addresses[keep], sizes[keep]


def _all_records(path: Path, notes: list[Note] | None) -> Iterator[Records]:
    """The records of the file in pieces; what is odd is noted."""
    messages = 0
    with guarded(path), open_stream(path) as stream:
        text, base = b"", 0
        while block := stream.read(CHUNK_BYTES):
            text += block
            size = text.rfind(b"\n") + 1
            if not size and len(text) > CHUNK_BYTES:
                raise _line_error(path, base, lackey_lines.PROBLEMS[lackey_lines.NOT_A_RECORD])
            *records, found, stop, problem = lackey_lines.parse_block(text, size)
            if problem:
                raise _line_error(path, base + stop, lackey_lines.PROBLEMS[problem])
            messages += found
            text, base = text[size:], base + size
            yield records[0], records[1], records[2]
        *records, found, _, problem = lackey_lines.parse_block(text, len(text))
        yield records[0], records[1], records[2]
    if notes is not None and text:
        cut = "left out" if problem else "its size may lack digits"
        notes.append(changes("trace-cut", f"the last line has no newline, the trace may be cut short: {cut}"))
    if notes is not None and messages + found:
        number = messages + found
        notes.append(informs("lines-left-out", f"{number} lines are messages of Valgrind: left out", count=number))


def _line_error(path: Path, place: int, what: str) -> UserError:
    number, left = 1, place
    with open_stream(path) as stream:
        while left and (block := stream.read(min(left, CHUNK_BYTES))):
            number += block.count(b"\n")
            left -= len(block)
        shown = stream.readline(60).decode(errors="replace").rstrip()
    return UserError(f"{path}:{number}: {shown!r} {what}; write the trace to a file of its own (--log-file)")


class Code:
    """The instructions seen, by address, and where blocks begin and end among them."""

    def __init__(self) -> None:
        self._room = 1 << 14
        self.keys, self.slots = new_table(self._room)
        self.flags = np.zeros(self._room, np.uint8)
        self.num_known = 0
        self._last, self._next_address = -1, 0

    def see(self, kinds: np.ndarray, addresses: np.ndarray, sizes: np.ndarray) -> None:
        """Take in records, in their order."""
        done = 0
        while True:
            done, self._last, self._next_address, self.num_known = lackey_lines.mark_bounds(
                kinds, addresses, sizes, done, self._last, self._next_address, self.keys, self.slots, self.flags,
                self._room, self.num_known,
            )  # fmt: skip
            if done == len(kinds):
                return
            self._grow()

    def interrupt(self) -> None:
        """A block ends with the last instruction: what follows begins another, wherever it stands."""
        self._next_address = _NOWHERE

    def _grow(self) -> None:
        used = self.slots >= 0
        known = np.empty((self.num_known, 2), np.int64)
        known[self.slots[used]] = self.keys[used]
        self._room *= 2
        self.keys, self.slots = new_table(self._room)
        insert(known, self.keys, self.slots)
        self.flags = np.concatenate((self.flags, np.zeros(self._room - len(self.flags), np.uint8)))


@dataclass(frozen=True)
class Executions:
    """Executions of blocks: start addresses (int64[]), instructions and accesses of each (int32[]); of all accesses
    the attributes (int64[]) and addresses (uint64[])."""

    starts: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    attributes: np.ndarray
    addresses: np.ndarray


def executions(records_of: Callable[[], Iterator[Records]], code: Code, notes: list[Note]) -> Iterator[Executions]:
    """The executions in order. The last one of each piece of the file goes on in the next. ``records_of``: the records
    once more, all of which ``code`` has seen."""
    last, next_address = -1, 0
    left: Records = (np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))
    left_start = np.empty(0, np.int64)
    strays = 0
    for records in records_of():
        kinds, addresses, sizes = records
        starts, first = np.empty(len(kinds), np.int64), np.empty(len(kinds), np.int64)
        count, last, next_address = lackey_lines.cut_blocks(
            kinds, addresses, sizes, last, next_address, code.keys, code.slots, code.flags, starts, first
        )
        kinds, addresses, sizes = (np.concatenate((before, now)) for before, now in zip(left, records, strict=True))
        starts = np.concatenate((left_start, starts[:count]))
        first = np.concatenate((np.zeros(len(left_start), np.int64), first[:count] + len(left[0])))
        if not len(starts):  # accesses before the first instruction
            strays += len(kinds)
            continue
        strays += int(first[0])
        yield _gathered(kinds, addresses, sizes, starts[:-1], first)
        left = kinds[first[-1] :], addresses[first[-1] :], sizes[first[-1] :]
        left_start = starts[-1:]
    yield _gathered(*left, left_start, np.array([0, len(left[0])], np.int64))
    if strays:
        text = f"{strays} accesses stand before the first instruction: left out"
        notes.append(changes("accesses-missing", text, count=strays, errs=Errs.short))


def _gathered(
    kinds: np.ndarray, addresses: np.ndarray, sizes: np.ndarray, starts: np.ndarray, first: np.ndarray
) -> Executions:
    most = 2 * int(first[-1] - first[0])
    num_instructions, counts = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    attributes, accessed = np.empty(most, np.int64), np.empty(most, np.int64)
    count = lackey_lines.gather(kinds, addresses, sizes, first, num_instructions, counts, attributes, accessed)
    return Executions(starts, num_instructions, counts, attributes[:count], accessed[:count].view(np.uint64))
