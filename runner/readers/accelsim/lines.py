"""Kernels: the instructions of an Accel-Sim trace's body as arrays, from bytes, in one pass.

A line is: PC, mask, what is the same whenever the PC is executed (registers, opcode, width), and addresses. The same
part is compared, eight bytes at a time, with the texts met at that PC before (first with that of the row which followed
the last one before), so that nothing else of it is parsed again. What is met first gets a row in ``rows``, with its
text in ``pool``; what opcodes that access memory do stands in ``kinds``, which the caller fills (``CLASSIFY``). Rows
differ in PC, text, immediate and, for generic addresses, space.

Text must end in a newline, where everything that scans stops, and hold eight bytes more.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, inner
from manyscale.models.workload.launch_trace import Access, Space
from manyscale.runner.readers.accelsim import codes
from manyscale.runner.readers.accelsim.accesses import (
    MOST_REQUESTS,
    WINDOW_BYTES,
    bank_words,
    global_requests,
    local_requests,
    strided_requests,
)
from manyscale.runner.readers.accelsim.keys import key_line, owner, skip_blanks
from manyscale.runner.readers.accelsim.rows import found_row, new_row, tail, variant, word_end
from manyscale.runner.readers.text_words import (
    address_at,
    bit_count,
    byte_at,
    decimal_word,
    first_bytes,
    hexadecimal_at,
    hexadecimal_word,
    length_in_word,
    number_at,
    same_bytes,
    word_at,
)

_SHARED, _LOCAL, _GLOBAL = int(Space.shared), int(Space.local), int(Space.global_)
_COPY, _STORE = int(Access.copy), int(Access.store)


@inner
def _resolved(address, form):  # type: ignore[no-untyped-def]
    """The space of a generic address, by the windows of the header."""
    if form[codes.SHARED_BASE] <= address < form[codes.SHARED_BASE] + form[codes.SHARED_BYTES]:
        return _SHARED
    if form[codes.LOCAL_BASE] <= address < form[codes.LOCAL_BASE] + WINDOW_BYTES:
        return _LOCAL
    return _GLOBAL


@inner
def _addresses(text, place, mode, count, addresses):  # type: ignore[no-untyped-def]
    """(where addresses end; -1 where they are wrong, stride of mode 1). Fills ``addresses``; of mode 1, the first."""
    stride = np.int64(0)
    if mode == 0:
        for k in range(count):
            addresses[k], place = address_at(text, skip_blanks(text, place))
            if place < 0:
                return place, stride
        return place, stride
    base, place = address_at(text, skip_blanks(text, place))
    if place < 0:
        return place, stride
    addresses[0] = base
    if mode == 1:
        stride, place = number_at(text, skip_blanks(text, place))
        return place, stride
    for k in range(1, count):
        if byte_at(text, place) != 32:
            return np.int64(-1), stride
        place += 1
        sign = np.int64(1)
        if byte_at(text, place) == 45:
            sign = np.int64(-1)
            place += 1
        word = word_at(text, place)
        length = length_in_word(word)
        if 0 < length < 8:
            delta = decimal_word(word, length)
            place += length
            if delta < 0:
                return np.int64(-1), stride
        else:
            delta, place = number_at(text, place)
            if place < 0:
                return place, stride
        base += sign * delta
        addresses[k] = base
    return place, stride


@inner
def _requests(  # type: ignore[no-untyped-def]
    rows, row, mode, stride, count, mask, warp, form, addresses, counts, words, sector, written, first
):
    """(requests to global and local memory, or words of a bank) of an instruction; writes requests from ``first``."""
    space = rows[row, codes.SPACE]
    access = rows[row, codes.ACCESS]
    size = rows[row, codes.SIZE]
    if space == _GLOBAL and mode == 1:
        end = strided_requests(addresses[0], stride, count, size, access, addresses, sector, written, first)
        return end - first, np.int64(0)
    if mode == 1:
        for k in range(1, count):
            addresses[k] = addresses[k - 1] + stride
    if space == _GLOBAL:
        end = global_requests(addresses, count, size, access, sector, written, first)
        return end - first, np.int64(0)
    if space == _LOCAL:
        odd = (form[codes.GRID_X] * form[codes.GRID_Y] * form[codes.GRID_Z] * form[codes.WARPS]) | 1
        end = local_requests(addresses, count, mask, size, access == _STORE, warp, odd, sector, written, first)
        return end - first, np.int64(0)
    if space == _SHARED:
        return np.int64(0), bank_words(addresses, min(count, rows[row, codes.LANES]), size, counts, words)
    return np.int64(0), np.int64(0)


@allocation_free
def read_lines(  # type: ignore[no-untyped-def]
    text, place, end, form, state, rows, kinds, pool, slots, halves, addresses, counts, words,
    instruction, active, accesses, owners, sector, written, warps,
):  # fmt: skip
    """The lines of ``text`` uint8[] from ``place`` to ``end``; O(bytes).

    ``halves`` uint8[warps], of a raw trace: 1 where the first line of an asynchronous copy was met, which holds its
    address in shared memory, and which its second follows. ``owners`` int64[instructions], of a raw trace: each
    instruction's warp. Returns (what the call ended with, where): to go on there, or the line that is wrong.
    """
    is_raw = form[codes.RAW] != 0
    has_more_fields = form[codes.HAS_OWNER] != 0 or form[codes.HAS_SOURCE_LINE] != 0
    while place < end:
        begin = place
        each = byte_at(text, place)
        if each <= 32:
            place += 1
            continue
        number = state[codes.NUM_INSTRUCTIONS]
        request = state[codes.NUM_REQUESTS]
        if (
            number >= instruction.shape[0]
            or request + MOST_REQUESTS > sector.shape[0]
            or state[codes.NUM_WARPS] >= warps.shape[0]
        ):
            return codes.ROOM, begin
        if state[codes.NUM_ROWS] + 2 > rows.shape[0]:
            return codes.MORE_ROWS, begin
        last = state[codes.LAST_ROW]
        row = rows[last, codes.FOLLOWER]
        pc = np.int64(0)
        pc_word = word_at(text, place)
        pc_bytes = rows[row, codes.PC_BYTES]
        at = place
        warp = state[codes.BLOCK] * form[codes.WARPS] + state[codes.WARP]
        if has_more_fields or pc_bytes == 0 or np.int64(pc_word & first_bytes(pc_bytes)) != rows[row, codes.PC_WORD]:
            row = np.int64(-1)
            if each == 35 or each > 102:  # "#", or a letter that is no digit
                at = np.int64(-1)
            else:
                if form[codes.HAS_OWNER]:
                    warp, at = owner(text, at, form)
                    if at == -2:
                        return codes.NOT_IN_GRID, begin
                if at >= 0 and form[codes.HAS_SOURCE_LINE]:
                    at = skip_blanks(text, word_end(text, at))
                if at >= 0:
                    pc_word = word_at(text, at)
                    pc_bytes = length_in_word(pc_word) + 1
                    pc_bytes = pc_bytes if pc_bytes <= 8 and not has_more_fields else 0
                    pc, at = hexadecimal_at(text, at)
            if at < 0 or byte_at(text, at) != 32:  # perhaps a key; some begin with a digit, too
                problem = key_line(text, place, form, state, warps)
                if problem:
                    if problem == codes.NOT_A_LINE and form[codes.HAS_OWNER] and 48 <= each <= 57:
                        problem = codes.BAD_OWNER
                    return problem, begin
                while byte_at(text, place) != 10:
                    place += 1
                place += 1
                continue
            at += 1
        else:
            at += pc_bytes
        if not is_raw:
            if state[codes.WARP] < 0:
                return codes.OUTSIDE_BLOCK if state[codes.INSIDE] == codes.OUTSIDE else codes.OUTSIDE_WARP, begin
            if state[codes.LINES] >= state[codes.EXPECTED]:
                return codes.NO_COUNT if state[codes.EXPECTED] < 0 else codes.TOO_MANY, begin
            if has_more_fields and warp != state[codes.BLOCK] * form[codes.WARPS] + state[codes.WARP]:
                return codes.OTHER_OWNER, begin
        word = word_at(text, at)
        length = length_in_word(word)
        if length == 0 or byte_at(text, at + length) != 32:
            return codes.BAD_MASK, begin
        mask = hexadecimal_word(word, length)
        if mask < 0:
            return codes.BAD_MASK, begin
        at = skip_blanks(text, at + length + 1)

        length = rows[row, codes.LENGTH]
        if row < 0 or at + length > end or not same_bytes(text, at, pool, rows[row, codes.TEXT], length):
            if row >= 0:
                pc = rows[row, codes.PC]
                pc_bytes = rows[row, codes.PC_BYTES]
            row = found_row(text, at, end, pc, rows, pool, slots)
            if row < 0:
                known = np.int64(pc_word & first_bytes(pc_bytes)) if pc_bytes else np.int64(0)
                row, problem = new_row(text, at, pc, known, pc_bytes, form, state, rows, kinds, pool, slots)
                if problem:
                    return problem, begin
                rows[row, codes.PLACE] = state[codes.BASE] + begin
            rows[last, codes.FOLLOWER] = row
        state[codes.LAST_ROW] = row

        count = bit_count(mask)
        requests = np.int64(0)
        result = np.int64(0)
        place = at + rows[row, codes.LENGTH]
        if rows[row, codes.HAS_TAIL]:
            place -= 1
            space = np.int64(codes.UNSET)
            mode = np.int64(0)
            stride = np.int64(0)
            if rows[row, codes.WIDTH] > 0:
                place = skip_blanks(text, place)
                mode = byte_at(text, place) - 48
                if mode < 0 or mode > 2 or byte_at(text, place + 1) > 32:
                    return codes.BAD_ADDRESS, begin
                place, stride = _addresses(text, place + 1, mode, count, addresses)
                if place < 0:
                    return codes.BAD_ADDRESS, begin
                if rows[row, codes.IS_GENERIC] and count:
                    space = _resolved(addresses[0], form)
            immediate, place, problem = tail(text, place, form)
            if problem:
                return problem, begin
            place += 1
            row = variant(state, rows, slots, row, immediate, space)
            if rows[row, codes.ACCESS] == _COPY:
                is_first = count > 0 and addresses[0] < WINDOW_BYTES
                if is_raw:
                    is_first = halves[warp] == 0
                    halves[warp] ^= 1
                if is_first:
                    state[codes.LINES] += 1
                    continue
            if rows[row, codes.ACCESS] and count:
                requests, result = _requests(
                    rows, row, mode, stride, count, mask, warp, form, addresses, counts, words, sector, written, request
                )
                if requests > 255:
                    return codes.TOO_WIDE, begin
                result += requests
        instruction[number] = row
        active[number] = count
        accesses[number] = result
        if is_raw:
            owners[number] = warp
        state[codes.NUM_INSTRUCTIONS] = number + 1
        state[codes.NUM_REQUESTS] = request + requests
        state[codes.INSTRUCTIONS] += 1
        state[codes.REQUESTS] += requests
        state[codes.LINES] += 1
    return codes.DONE, place
