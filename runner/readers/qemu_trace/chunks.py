"""The file of the QEMU plugin: chunks, blocks and words, as ``runner/tracers/native/qemu_plugin.c`` describes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import zstandard

from manyscale.models.kernels import njit
from manyscale.models.workload.notes import Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import parse_json, refuse_special
from manyscale.runner.readers.archive import unpacked
from manyscale.runner.readers.qemu_trace.head import MAGIC

DEFINITIONS, BLOCKS, WORDS, END = range(4)
_CHUNK_MAGIC: Final = 0x4B51534D
_HEADER: Final = struct.Struct("<IHHQQ")
_BLOCK: Final = struct.Struct("<QII")
_MOST_BYTES: Final = 1 << 28  # of a chunk
SEGMENT_ENDS: Final = np.uint64(2**64 - 1)  # a word


@dataclass(frozen=True)
class Code:
    """Translation blocks cut into basic blocks: before every instruction at which any translation block begins.

    Per translation block ``first_instruction`` and ``first_part``, int64[blocks + 1]; per instruction ``part`` (the
    part it stands in) and ``place`` in it, int64[]; per part ``block`` (parts with the same code at the same address
    have the same number), ``size`` (instructions), int32[]. ``addresses`` int64[] and ``codes`` by block number.
    """

    first_instruction: np.ndarray
    first_part: np.ndarray
    part: np.ndarray
    place: np.ndarray
    block: np.ndarray
    size: np.ndarray
    addresses: np.ndarray
    codes: list[bytes]


def chunks(path: Path, kinds: tuple[int, ...], notes: list[Note] | None = None) -> Iterator[tuple[int, bytes]]:
    """(kind, content) of the file's chunks of these kinds, in order. One that is cut short ends the file, and is noted.

    Raises UserError, naming the byte, for one that is damaged."""
    if not refuse_special(path).is_file():
        raise UserError(f"{path}: is no file; name the trace in it")
    with path.open("rb") as file:
        length = file.seek(0, 2)
        file.seek(0)
        if file.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{path}: is no trace of the QEMU plugin; trace the program again")
        place = len(MAGIC)
        while place < length:
            header = file.read(_HEADER.size)
            if len(header) == _HEADER.size:
                magic, kind, codec, raw, stored = _HEADER.unpack(header)
                if magic != _CHUNK_MAGIC or kind > END or codec > 1 or raw > _MOST_BYTES:
                    raise UserError(f"{path}: the chunk at byte {place} is damaged; trace the program again")
            if len(header) < _HEADER.size or place + _HEADER.size + stored > length:
                if notes is not None:
                    notes.append(changes("trace-cut", f"the last chunk, at byte {place}, is cut short: left out"))
                return
            place += _HEADER.size + stored
            if kind not in kinds:
                file.seek(stored, 1)
                continue
            content = file.read(stored)
            if codec:
                try:
                    content = unpacked(content, raw)
                except zstandard.ZstdError as error:
                    raise UserError(
                        f"{path}: the chunk before byte {place} is damaged ({error}); trace again"
                    ) from None
            if len(content) != raw:
                raise UserError(f"{path}: the chunk before byte {place} has a wrong length; trace the program again")
            yield kind, content


def definitions(path: Path) -> list[dict[str, Any]]:
    """The lines of JSON, the one that ends the trace last."""
    try:
        return [parse_json(line) for _, text in chunks(path, (DEFINITIONS, END)) for line in text.splitlines()]
    except ValueError as error:
        raise UserError(f"{path}: its definitions are damaged ({error}); trace the program again") from None


def read_code(path: Path) -> Code:
    """All translation blocks, cut, without instructions that QEMU began to read at the end of a page and left to the
    next block. O(static code)."""
    starts: list[int] = []
    sizes: list[bytes] = []
    texts: list[bytes] = []
    for _, content in chunks(path, (BLOCKS,)):
        place = 0
        while place < len(content):
            try:
                address, number, num_bytes = _BLOCK.unpack_from(content, place)
            except struct.error:
                raise UserError(f"{path}: a block is cut short; trace the program again") from None
            place += _BLOCK.size
            text = content[place + number : place + number + num_bytes]
            lengths = content[place : place + number]
            if not number or len(text) != num_bytes or sum(lengths) != num_bytes:
                raise UserError(f"{path}: the block at {address:#x} contradicts itself; trace the program again")
            place += number + num_bytes
            starts.append(address)
            sizes.append(lengths)
            texts.append(text)
    _drop_unfinished(starts, sizes, texts)
    numbers = np.array([len(each) for each in sizes], np.int64)
    return _cut(np.array(starts, np.uint64).view(np.int64), numbers, b"".join(sizes), b"".join(texts))


def _drop_unfinished(starts: list[int], sizes: list[bytes], texts: list[bytes]) -> None:
    """Take away the last instruction of blocks where it is the beginning of the one that another block begins with: an
    instruction that crosses a page ends the block before it, which QEMU's plugins are shown with what was read of it
    (accel/tcg: the number of instructions is not set back)."""
    longest: dict[int, bytes] = {}
    for address, lengths, text in zip(starts, sizes, texts, strict=True):
        longest[address] = max(longest.get(address, b""), text[: lengths[0]], key=len)
    for index, (address, lengths, text) in enumerate(zip(starts, sizes, texts, strict=True)):
        size = lengths[-1]
        whole = longest.get(address + len(text) - size, b"")
        if len(lengths) > 1 and len(whole) > size and whole.startswith(text[len(text) - size :]):
            sizes[index], texts[index] = lengths[:-1], text[: len(text) - size]


def _cut(starts: np.ndarray, numbers: np.ndarray, sizes: bytes, text: bytes) -> Code:
    length = np.frombuffer(sizes, np.uint8).astype(np.int64)
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(numbers)))
    ends = np.cumsum(length)
    offset = ends - length  # of each instruction in ``text``
    owner = np.repeat(np.arange(len(numbers)), numbers)
    address = starts[owner] + offset - offset[first[:-1]][owner] if len(owner) else np.empty(0, np.int64)
    begins = np.isin(address, starts)
    begins[first[:-1]] = True
    part = np.cumsum(begins) - 1
    part_first = np.flatnonzero(begins)
    place = np.arange(len(length)) - part_first[part] if len(part) else np.empty(0, np.int64)
    size = np.diff(np.append(part_first, len(length))).astype(np.int32)
    bounds = np.append(offset[part_first], len(text)).tolist()
    known: dict[tuple[int, bytes], int] = {}
    block = np.empty(len(size), np.int64)
    for index, each in enumerate(address[part_first].tolist()):  # static code, not executions
        block[index] = known.setdefault((each, text[bounds[index] : bounds[index + 1]]), len(known))
    first_part = np.concatenate((part[first[:-1]], [len(size)])) if len(part) else np.zeros(1, np.int64)
    addresses = np.array([each for each, _ in known], np.int64)
    return Code(first, first_part, part, place, block, size, addresses, [code for _, code in known])


@njit(cache=True, nogil=True)
def count_parts(words, first_part):  # type: ignore[no-untyped-def]
    """How many executions of basic blocks the words stand for; -1 - i where word i names no block. O(words)."""
    count = 0
    for i in range(words.shape[0]):
        if words[i] >> np.uint64(63):
            block = np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))
            if block >= first_part.shape[0] - 1:
                return -1 - i
            count += first_part[block + 1] - first_part[block]
        elif i == 0:
            return -1
    return count


@njit(cache=True, nogil=True)
def expand(  # type: ignore[no-untyped-def]
    words, first_instruction, first_part, part, place, block, size, last, keys, sizes, counts, attributes, addresses
):
    """Executions of basic blocks and their accesses. ``last`` uint64[instructions] (zeros before the first call) keeps
    each instruction's last address. Pieces of 8 bytes that continue one another are one access of a vector. Returns
    the number of accesses, or -1 - i where word i is of no instruction of its block. O(words + executions)."""
    mask = np.uint64((1 << 48) - 1)
    num_executions = 0
    num_accesses = 0
    base = 0
    first = 0
    end = 0
    previous = np.int64(-1)
    previous_is_store = np.uint64(0)
    next_address = np.uint64(0)
    is_whole = np.bool_(False)  # the access before was a piece of 8 bytes
    for i in range(words.shape[0]):
        word = words[i]
        if word >> np.uint64(63):
            translated = np.int64(word & np.uint64(0x7FFFFFFFFFFFFFFF))
            base = num_executions
            for each in range(first_part[translated], first_part[translated + 1]):
                keys[num_executions] = block[each]
                sizes[num_executions] = size[each]
                counts[num_executions] = 0
                num_executions += 1
            first = first_instruction[translated]
            end = first_instruction[translated + 1]
            previous = np.int64(-1)
            continue
        instruction = first + np.int64((word >> np.uint64(52)) & np.uint64(511))
        if instruction >= end:
            return -1 - i
        address = (last[instruction] + word) & mask
        last[instruction] = address
        num_bytes = np.int64(1) << np.int64((word >> np.uint64(48)) & np.uint64(7))
        is_store = (word >> np.uint64(51)) & np.uint64(1)
        if (
            instruction == previous
            and is_store == previous_is_store
            and is_whole
            and address == next_address
            and (num_bytes == 8 or num_bytes == 2)
        ):
            attributes[num_accesses - 1] += num_bytes << 1
        else:
            execution = base + part[instruction] - part[first]
            counts[execution] += 1
            attributes[num_accesses] = place[instruction] << 17 | num_bytes << 1 | np.int64(is_store)
            addresses[num_accesses] = address
            num_accesses += 1
        previous = instruction
        previous_is_store = is_store
        next_address = address + np.uint64(num_bytes)
        is_whole = num_bytes == 8
    return num_accesses
