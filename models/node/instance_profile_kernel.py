"""Kernels of instance_profile.py: one pass over the accesses for line numbers, and one by instance. Each stops where a
column is full, and goes on once its caller has made room."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner_inlined, separate

PAGE_BITS: Final = 6  # lines that are given their numbers together: 2^6


# ---- numbers of lines ----

_NUMBERED: Final = np.dtype([("accesses", "i8"), ("pages", "i8"), ("lines", "i8")])  # how many there are so far


class LineNumbers(NamedTuple):
    """``page_keys`` int64[slots] (open addressing, -1 free) with ``page_lines`` int32[slots, lines of a page] (-1: not
    met yet); ``line_number`` int64[]: what each number stands for; ``line_ids`` int32[accesses]: of each its number."""

    done: np.ndarray
    page_keys: np.ndarray
    page_lines: np.ndarray
    line_number: np.ndarray
    line_ids: np.ndarray


def no_line_numbers(num_accesses: int) -> LineNumbers:
    slots = 1 << 12
    return LineNumbers(
        np.zeros(1, _NUMBERED), np.full(slots, -1, np.int64), np.full((slots, 1 << PAGE_BITS), -1, np.int32),
        np.empty(1 << 14, np.int64), np.empty(num_accesses, np.int32),
    )  # fmt: skip


@inner_inlined
def page_place(page_keys, page):  # type: ignore[no-untyped-def]
    """Slot of a page, or the free one where it belongs."""
    mask = page_keys.shape[0] - 1
    mixed = np.uint64(page) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while page_keys[place] != page and page_keys[place] >= 0:
        place = (place + 1) & mask
    return place


@allocation_free
def number_lines(numbers, addresses, line_shift):  # type: ignore[no-untyped-def]
    """Numbers lines in the order of their first use, until a table is full. Expected O(accesses)."""
    numbers = by_reference(numbers)
    done, page_keys, page_lines = numbers.done[0], numbers.page_keys, numbers.page_lines
    last_page, last_place = np.int64(-2), np.int64(0)
    for i in range(done.accesses, addresses.shape[0]):
        line = np.int64(addresses[i] >> np.uint64(line_shift))
        page = line >> PAGE_BITS
        if page != last_page:
            last_page, last_place = page, page_place(page_keys, page)
            if page_keys[last_place] < 0:
                if 2 * done.pages >= page_keys.shape[0] - 1:
                    return
                page_keys[last_place] = page
                done.pages += 1
        number = page_lines[last_place, line & ((1 << PAGE_BITS) - 1)]
        if number < 0:
            if done.lines == numbers.line_number.shape[0]:
                return
            number = np.int32(done.lines)
            page_lines[last_place, line & ((1 << PAGE_BITS) - 1)] = number
            numbers.line_number[number] = line
            done.lines += 1
        numbers.line_ids[i] = number
        done.accesses = i + 1


@allocation_free
def move_pages(old_keys, old_lines, page_keys, page_lines):  # type: ignore[no-untyped-def]
    """The pages of ``number_lines`` into larger tables. O(pages)."""
    for k in range(old_keys.shape[0]):
        if old_keys[k] >= 0:
            place = page_place(page_keys, old_keys[k])
            page_keys[place] = old_keys[k]
            for line in range(old_lines.shape[1]):
                page_lines[place, line] = old_lines[k, line]


# ---- each instance by itself ----

PIECE: Final = np.dtype([("first_execution", "i8"), ("end_execution", "i8"), ("first_access", "i8")])
BLOCK: Final = np.dtype([("first_site", "i8"), ("instructions", "i8")])
_LINE: Final = np.dtype([("user", "i4"), ("writer", "i4"), ("listed", "i4")])  # the latest instance that was, or has it
# Of an instance, where its rows begin in columns by block and by line
FIRST: Final = np.dtype([("vector", "i8"), ("line", "i8")])
# ``instance``: the first that is not done; ``num_blocks`` and ``num_lines`` that it has used, if it ``is_read``
_CONTROL: Final = np.dtype([("instance", "i8"), ("is_read", "i8"), ("num_blocks", "i8"), ("num_lines", "i8")])


class OwnColumns(NamedTuple):
    """Rows of one instance after another: blocks and instructions in each; lines by last use, and whether it wrote
    them. Longer than needed."""

    vector_block: np.ndarray
    vector_instructions: np.ndarray
    line: np.ndarray
    line_written: np.ndarray


class OwnProfile(NamedTuple):
    """Pieces of instance i are those from ``first_piece[i]`` on."""

    block_ids: np.ndarray
    line_ids: np.ndarray
    piece: np.ndarray
    first_piece: np.ndarray
    block: np.ndarray
    is_store: np.ndarray
    num_instructions: np.ndarray
    first: np.ndarray
    columns: OwnColumns
    control: np.ndarray
    of_line: np.ndarray  # see _LINE
    in_block: np.ndarray
    end_access: np.ndarray
    met_block: np.ndarray  # of the instance that is read


def new_own_profile(
    block_ids: np.ndarray, line_ids: np.ndarray, num_lines: int, piece: np.ndarray, first_piece: np.ndarray,
    block: np.ndarray, is_store: np.ndarray,
) -> OwnProfile:  # fmt: skip
    """Before the first instance. Records ``piece`` and ``block`` (one more); ``is_store`` bool[sites]."""
    count = len(first_piece) - 1
    of_line = np.zeros(num_lines, _LINE)
    of_line["user"] = of_line["writer"] = of_line["listed"] = -1
    rows = 1 << 12
    columns = OwnColumns(
        np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int32), np.empty(rows, np.bool_)
    )
    return OwnProfile(
        block_ids, line_ids, piece, first_piece, block, is_store, np.zeros(count, np.int64), np.zeros(count + 1, FIRST),
        columns, np.zeros(1, _CONTROL), of_line, np.zeros(len(block), np.int64), np.zeros(len(piece), np.int64),
        np.empty(len(block), np.int32),
    )  # fmt: skip


@allocation_free
def profile_by_instance(own):  # type: ignore[no-untyped-def]
    """All that each instance shows by itself, its pieces one after the other: whether all are done; else columns have
    no room for the next one. O(executions + accesses)."""
    own = by_reference(own)
    control, columns = own.control[0], own.columns
    while control.instance < own.first_piece.shape[0] - 1:
        if not control.is_read:
            _read_instance(own, control.instance)
        first = own.first[control.instance]
        if (
            first.vector + control.num_blocks > columns.vector_block.shape[0]
            or first.line + control.num_lines > columns.line.shape[0]
        ):
            return False
        _write_instance(own, control.instance)
        control.instance += 1
    return True


@separate
def _read_instance(own, instance):  # type: ignore[no-untyped-def]
    """What it executes and accesses, from the first to the last."""
    control = own.control[0]
    control.is_read = 1
    control.num_blocks = 0
    control.num_lines = 0
    instructions = np.int64(0)
    for number in range(own.first_piece[instance], own.first_piece[instance + 1]):
        piece = own.piece[number]
        access = piece.first_access
        for execution in range(piece.first_execution, piece.end_execution):
            block = own.block_ids[execution]
            if own.in_block[block] == 0:
                own.met_block[control.num_blocks] = block
                control.num_blocks += 1
            own.in_block[block] += 1
            for site in range(own.block[block].first_site, own.block[block + 1].first_site):
                of_line = own.of_line[own.line_ids[access]]
                if of_line.user != instance:
                    of_line.user = instance
                    control.num_lines += 1
                if own.is_store[site]:
                    of_line.writer = instance
                access += 1
            instructions += own.block[block].instructions
        own.end_access[number] = access
    own.num_instructions[instance] = instructions


@separate
def _write_instance(own, instance):  # type: ignore[no-untyped-def]
    """What was read of it, as rows."""
    control, columns = own.control[0], own.columns
    control.is_read = 0
    first, end = own.first[instance], own.first[instance + 1]
    end.vector = first.vector + control.num_blocks
    for k in range(control.num_blocks):
        block = own.met_block[k]
        columns.vector_block[first.vector + k] = block
        columns.vector_instructions[first.vector + k] = own.in_block[block] * own.block[block].instructions
        own.in_block[block] = 0
    end.line = first.line + control.num_lines
    # from the last access back to the first: the latest line is the last row
    row = end.line
    for number in range(own.first_piece[instance + 1] - 1, own.first_piece[instance] - 1, -1):
        for access in range(own.end_access[number] - 1, own.piece[number].first_access - 1, -1):
            line = own.line_ids[access]
            of_line = own.of_line[line]
            if of_line.listed != instance:
                of_line.listed = instance
                row -= 1
                columns.line[row] = line
                columns.line_written[row] = of_line.writer == instance
