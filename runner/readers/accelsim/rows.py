"""Kernels: static instructions of an Accel-Sim trace (``codes.ROW``), found by PC and text, or met first.

Opcodes that access memory stand in ``kinds``, where the caller of the kernels fills in what they do.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import apart, inner, merged, separate
from manyscale.runner.readers.accelsim import codes
from manyscale.runner.readers.accelsim.keys import decimal, skip_blanks
from manyscale.runner.readers.text_words import number_at, same_bytes


@merged
def word_end(text, place):  # type: ignore[no-untyped-def]
    while text[place] > 32:
        place += 1
    return place


@separate
def tail(text, place, num_immediates):  # type: ignore[no-untyped-def]
    """(immediate, where the line ends) of what stands behind the width and the addresses; what is wrong instead, less
    than 0."""
    immediate = np.int64(0)
    place = skip_blanks(text, place)
    for k in range(num_immediates):
        value, end = number_at(text, place)
        if end < 0:
            return immediate, -codes.NO_IMMEDIATE
        if k == 0:
            immediate = value
        place = skip_blanks(text, end)
    if num_immediates == 2:  # what the registers held
        while text[place] != 10:
            place += 1
    elif text[place] != 10:
        return immediate, -codes.LEFT_OVER
    return immediate, place


@merged
def _static_end(text, place):  # type: ignore[no-untyped-def]
    """(width, where its word ends, where the opcode begins and ends) of the fields "count registers opcode count
    registers width"; ends at -1 where they are none."""
    opcode = place
    opcode_end = place
    for part in range(2):
        count, end = decimal(text, place)
        if end < 0:
            return count, -1, opcode, opcode_end
        place = skip_blanks(text, end)
        for _ in range(count):
            if text[place] == 10:
                return count, -1, opcode, opcode_end
            place = skip_blanks(text, word_end(text, place))
        if part == 0:
            if not 65 <= text[place] <= 90:
                return count, -1, opcode, opcode_end
            opcode = place
            opcode_end = word_end(text, place)
            place = skip_blanks(text, opcode_end)
    width, end = decimal(text, place)
    if end < 0 or text[end] > 32:
        return width, -1, opcode, opcode_end
    return width, end, opcode, opcode_end


@separate
def _keep(arrays, at, length):  # type: ignore[no-untyped-def]
    """Copy text to the pool; returns where it stands there."""
    pool = arrays.pool
    text = arrays.text
    start = arrays.state[0].pool
    for k in range(length):
        pool[start + k] = text[at + k]
    arrays.state[0].pool = start + length
    return start


@merged
def _kind_of(arrays, opcode, length):  # type: ignore[no-untyped-def]
    """The kind of an opcode that accesses memory; -1 where it was met first, and now is the last one."""
    kinds = arrays.kinds
    state = arrays.state[0]
    number = state.num_kinds
    for k in range(number):
        kind = kinds[k]
        if kind.length == length and same_bytes(arrays.text, opcode, arrays.pool, kind.text, length):
            return k
    kinds[number].text = _keep(arrays, opcode, length)
    kinds[number].length = length
    state.num_kinds = number + 1
    return -1


@separate
def new_row(arrays, at, pc, pc_word, pc_bytes):  # type: ignore[no-untyped-def]
    """Make a row of the fields at ``at``: its number, or what the call ends with, less than 0."""
    apart()
    text = arrays.text
    state = arrays.state[0]
    num_immediates = arrays.form[0].num_immediates
    number = state.num_rows
    width, after, opcode, opcode_end = _static_end(text, at)
    if after < 0:
        return -codes.BAD_STATIC
    has_tail = width > 0 or num_immediates == 2
    immediate = np.int64(codes.UNSET)
    if not has_tail:
        immediate, after = tail(text, after, num_immediates)
        if after < 0:
            return after
    length = after + 1 - at
    if state.pool + 2 * length + 8 > arrays.pool.shape[0] or state.num_kinds >= arrays.kinds.shape[0]:
        return -codes.MORE_ROWS
    row = arrays.rows[number]
    row.space = 0
    row.access = 0
    row.is_generic = 0
    row.size = 0
    row.lanes = 0
    if width > 0:
        k = _kind_of(arrays, opcode, opcode_end - opcode)
        if k < 0:
            return -codes.CLASSIFY
        kind = arrays.kinds[k]
        row.space = kind.space
        row.access = kind.access
        row.is_generic = kind.is_generic
        row.size = kind.size
        row.lanes = kind.lanes
    row.pc = pc
    row.text = _keep(arrays, at, length)
    row.length = length
    row.has_tail = has_tail
    row.width = width
    row.immediate = immediate
    row.pc_word = pc_word
    row.pc_bytes = pc_bytes
    row.follower = number
    _enter(arrays, number)
    return number


@inner
def _enter(arrays, number):  # type: ignore[no-untyped-def]
    row = arrays.rows[number]
    slot = (row.pc >> 3) & (codes.SLOTS - 1)
    row.next = arrays.slots[slot]
    arrays.slots[slot] = number
    arrays.state[0].num_rows = number + 1


@separate
def found_row(arrays, at, end, pc):  # type: ignore[no-untyped-def]
    """The row of a PC and the fields at ``at``, or -1."""
    number = arrays.slots[(pc >> 3) & (codes.SLOTS - 1)]
    while number >= 0:
        row = arrays.rows[number]
        length = row.length
        if row.pc == pc and at + length <= end and same_bytes(arrays.text, at, arrays.pool, row.text, length):
            return number
        number = row.next
    return number


@separate
def variant(arrays, number, immediate, space):  # type: ignore[no-untyped-def]
    """The row of the same text with this immediate and space, made if there is none."""
    rows = arrays.rows
    row = rows[number]
    if row.immediate == codes.UNSET:
        row.immediate = immediate
    if row.space == codes.UNSET:
        row.space = space
    if row.immediate == immediate and (space == codes.UNSET or row.space == space):
        return number
    k = arrays.slots[(row.pc >> 3) & (codes.SLOTS - 1)]
    while k >= 0:
        each = rows[k]
        is_same = each.text == row.text and each.immediate == immediate
        if is_same and (space == codes.UNSET or each.space == space):
            return k
        k = each.next
    new = arrays.state[0].num_rows
    rows[new] = row
    rows[new].immediate = immediate
    if space != codes.UNSET:
        rows[new].space = space
    _enter(arrays, new)
    return new
