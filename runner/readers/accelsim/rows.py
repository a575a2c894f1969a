"""Kernels: static instructions of an Accel-Sim trace, found by PC and text, or met first.

Columns of ``rows``: ``accelsim_codes``. Opcodes that access memory stand in ``kinds`` (of the same columns), with what
they do from column SPACE on, which the caller of the kernels fills.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, merged
from manyscale.runner.readers.accelsim import codes
from manyscale.runner.readers.accelsim.keys import decimal, skip_blanks
from manyscale.runner.readers.text_words import number_at, same_bytes


@merged
def word_end(text, place):  # type: ignore[no-untyped-def]
    while text[place] > 32:
        place += 1
    return place


@inner
def tail(text, place, form):  # type: ignore[no-untyped-def]
    """(immediate, where the line ends, what is wrong or 0) of what stands behind the width and the addresses."""
    immediate = np.int64(0)
    place = skip_blanks(text, place)
    for k in range(form[codes.NUM_IMMEDIATES]):
        value, end = number_at(text, place)
        if end < 0:
            return immediate, place, codes.NO_IMMEDIATE
        if k == 0:
            immediate = value
        place = skip_blanks(text, end)
    if form[codes.NUM_IMMEDIATES] == 2:  # what the registers held
        while text[place] != 10:
            place += 1
    elif text[place] != 10:
        return immediate, place, codes.LEFT_OVER
    return immediate, place, 0


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


@merged
def _kind_of(text, opcode, length, state, kinds, pool):  # type: ignore[no-untyped-def]
    """The row of ``kinds`` of an opcode that accesses memory; -1 where it was met first, and now is the last one."""
    number = state[codes.NUM_KINDS]
    for kind in range(number):
        if kinds[kind, codes.LENGTH] == length and same_bytes(text, opcode, pool, kinds[kind, codes.TEXT], length):
            return kind
    kinds[number, codes.TEXT] = state[codes.POOL]
    kinds[number, codes.LENGTH] = length
    _keep(text, opcode, length, state, pool)
    state[codes.NUM_KINDS] = number + 1
    return -1


@merged
def _keep(text, at, length, state, pool):  # type: ignore[no-untyped-def]
    for k in range(length):
        pool[state[codes.POOL] + k] = text[at + k]
    state[codes.POOL] += length


@inner
def new_row(text, at, pc, pc_word, pc_bytes, form, state, rows, kinds, pool, slots):  # type: ignore[no-untyped-def]
    """Make a row of the fields at ``at``: (row, what the call ends with or 0)."""
    row = state[codes.NUM_ROWS]
    width, after, opcode, opcode_end = _static_end(text, at)
    if after < 0:
        return row, codes.BAD_STATIC
    has_tail = width > 0 or form[codes.NUM_IMMEDIATES] == 2
    immediate = np.int64(codes.UNSET)
    if not has_tail:
        immediate, after, problem = tail(text, after, form)
        if problem:
            return row, problem
    length = after + 1 - at
    if state[codes.POOL] + 2 * length + 8 > pool.shape[0] or state[codes.NUM_KINDS] >= kinds.shape[0]:
        return row, codes.MORE_ROWS
    for column in range(codes.NUM_COLUMNS):
        rows[row, column] = 0
    if width > 0:
        kind = _kind_of(text, opcode, opcode_end - opcode, state, kinds, pool)
        if kind < 0:
            return row, codes.CLASSIFY
        for column in range(codes.SPACE, codes.SPACE + codes.NUM_OF_KIND):
            rows[row, column] = kinds[kind, column]
    rows[row, codes.PC] = pc
    rows[row, codes.TEXT] = state[codes.POOL]
    rows[row, codes.LENGTH] = length
    rows[row, codes.HAS_TAIL] = has_tail
    rows[row, codes.WIDTH] = width
    rows[row, codes.IMMEDIATE] = immediate
    rows[row, codes.PC_WORD] = pc_word
    rows[row, codes.PC_BYTES] = pc_bytes
    rows[row, codes.FOLLOWER] = row
    _keep(text, at, length, state, pool)
    _enter(state, rows, slots, row)
    return row, 0


@merged
def _enter(state, rows, slots, row):  # type: ignore[no-untyped-def]
    slot = (rows[row, codes.PC] >> 3) & (codes.SLOTS - 1)
    rows[row, codes.NEXT] = slots[slot]
    slots[slot] = row
    state[codes.NUM_ROWS] = row + 1


@inner
def found_row(text, at, end, pc, rows, pool, slots):  # type: ignore[no-untyped-def]
    """The row of a codes.PC and the fields at ``at``, or -1."""
    row = slots[(pc >> 3) & (codes.SLOTS - 1)]
    while row >= 0:
        length = rows[row, codes.LENGTH]
        if (
            rows[row, codes.PC] == pc
            and at + length <= end
            and same_bytes(text, at, pool, rows[row, codes.TEXT], length)
        ):
            return row
        row = rows[row, codes.NEXT]
    return row


@inner
def variant(state, rows, slots, row, immediate, space):  # type: ignore[no-untyped-def]
    """The row of the same text with this immediate and space, made if there is none."""
    if rows[row, codes.IMMEDIATE] == codes.UNSET:
        rows[row, codes.IMMEDIATE] = immediate
    if rows[row, codes.SPACE] == codes.UNSET:
        rows[row, codes.SPACE] = space
    if rows[row, codes.IMMEDIATE] == immediate and (space == codes.UNSET or rows[row, codes.SPACE] == space):
        return row
    each = slots[(rows[row, codes.PC] >> 3) & (codes.SLOTS - 1)]
    while each >= 0:
        is_same = rows[each, codes.TEXT] == rows[row, codes.TEXT] and rows[each, codes.IMMEDIATE] == immediate
        if is_same and (space == codes.UNSET or rows[each, codes.SPACE] == space):
            return each
        each = rows[each, codes.NEXT]
    new = state[codes.NUM_ROWS]
    for column in range(codes.NUM_COLUMNS):
        rows[new, column] = rows[row, column]
    rows[new, codes.IMMEDIATE] = immediate
    if space != codes.UNSET:
        rows[new, codes.SPACE] = space
    _enter(state, rows, slots, new)
    return new
