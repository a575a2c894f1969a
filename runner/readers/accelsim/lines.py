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

from manyscale.models.kernels import entry, merged, separate
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
_COPY = int(Access.copy)


@merged
def _resolved(address, form):  # type: ignore[no-untyped-def]
    """The space of a generic address, by the windows of the header."""
    if form.shared_base <= address < form.shared_base + form.shared_bytes:
        return _SHARED
    if form.local_base <= address < form.local_base + WINDOW_BYTES:
        return _LOCAL
    return _GLOBAL


@separate
def _addresses(text, place, count, addresses):  # type: ignore[no-untyped-def]
    """(where the mode at ``place`` and its addresses end; -1 where they are wrong, stride of mode 1, else UNSET). Fills
    ``addresses``; of mode 1, the first."""
    mode = byte_at(text, place) - 48
    stride = np.int64(codes.UNSET)
    if mode < 0 or mode > 2 or byte_at(text, place + 1) > 32:
        return np.int64(-1), stride
    place += 1
    for k in range(count if mode == 0 else 1):
        addresses[k], place = address_at(text, skip_blanks(text, place))
        if place < 0:
            return place, stride
    if mode == 1:
        stride, place = number_at(text, skip_blanks(text, place))
        return place, stride
    base = addresses[0]
    for k in range(1, count if mode == 2 else 1):
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


@separate
def _requests(arrays, number, stride, count, mask, warp, first):  # type: ignore[no-untyped-def]
    """Requests to global and local memory, written from ``first`` on, or words of a bank of an instruction
    of row ``number``."""
    row = arrays.rows[number]
    if row.space == _GLOBAL and stride != codes.UNSET:
        return strided_requests(arrays, number, row, stride, count, first) - first
    if stride != codes.UNSET:
        for k in range(1, count):
            arrays.addresses[k] = arrays.addresses[k - 1] + stride
    if row.space == _GLOBAL:
        return global_requests(arrays, number, count, first) - first
    if row.space == _LOCAL:
        return local_requests(arrays, number, count, mask, warp, first) - first
    return bank_words(arrays, number, count, mask) if row.space == _SHARED else np.int64(0)


@entry
def read_lines(arrays, place, end):  # type: ignore[no-untyped-def]
    """The lines of the text from ``place`` to ``end``; O(bytes). Returns (what the call ended with, where): to go on
    there, or the line that is wrong."""
    form = arrays.form[0]
    state = arrays.state[0]
    text = arrays.text
    pool = arrays.pool
    rows = arrays.rows
    is_raw = form.raw != 0
    has_more_fields = form.has_owner != 0 or form.has_source_line != 0
    while place < end:
        begin = place
        first = byte_at(text, place)
        if first <= 32:
            place += 1
            continue
        number = state.num_instructions
        request = state.num_requests
        if (
            number >= arrays.instruction.shape[0]
            or request + MOST_REQUESTS > arrays.sector.shape[0]
            or state.num_warps >= arrays.warps.shape[0]
        ):
            return codes.ROOM, begin
        if state.num_rows + 2 > rows.shape[0]:
            return codes.MORE_ROWS, begin
        last = rows[state.last_row]
        at_row = last.follower
        row = rows[at_row]
        pc = row.pc
        pc_word = word_at(text, place)
        pc_bytes = row.pc_bytes
        at = place
        warp = state.block * form.warps + state.warp
        is_guess = not has_more_fields and pc_bytes != 0 and np.int64(pc_word & first_bytes(pc_bytes)) == row.pc_word
        if is_guess:
            at += pc_bytes
        else:
            if first == 35 or first > 102:  # "#", or a letter that is no digit
                at = np.int64(-1)
            else:
                if form.has_owner:
                    warp, at = owner(arrays, at)
                    if at == -2:
                        return codes.NOT_IN_GRID, begin
                if at >= 0 and form.has_source_line:
                    at = skip_blanks(text, word_end(text, at))
                if at >= 0:
                    pc_word = word_at(text, at)
                    pc_bytes = length_in_word(pc_word) + 1
                    pc_bytes = pc_bytes if pc_bytes <= 8 and not has_more_fields else 0
                    pc, at = hexadecimal_at(text, at)
            if at < 0 or byte_at(text, at) != 32:  # perhaps a key; some begin with a digit, too
                problem = key_line(arrays, place)
                if problem == codes.NOT_A_LINE and form.has_owner and 48 <= first <= 57:
                    problem = codes.BAD_OWNER
                if problem:
                    return problem, begin
                while byte_at(text, place) != 10:
                    place += 1
                place += 1
                continue
            at += 1
        if not is_raw:
            if state.warp < 0:
                return codes.OUTSIDE_BLOCK if state.inside == codes.OUTSIDE else codes.OUTSIDE_WARP, begin
            if state.lines >= state.expected:
                return codes.NO_COUNT if state.expected < 0 else codes.TOO_MANY, begin
            if has_more_fields and warp != state.block * form.warps + state.warp:
                return codes.OTHER_OWNER, begin
        word = word_at(text, at)
        length = length_in_word(word)
        mask = np.int64(-1)
        if length > 0 and byte_at(text, at + length) == 32:
            mask = hexadecimal_word(word, length)
        if mask < 0:
            return codes.BAD_MASK, begin
        at = skip_blanks(text, at + length + 1)

        length = row.length
        if not is_guess or at + length > end or not same_bytes(text, at, pool, row.text, length):
            at_row = found_row(arrays, at, end, pc)
            if at_row < 0:
                known = np.int64(pc_word & first_bytes(pc_bytes)) if pc_bytes else np.int64(0)
                at_row = new_row(arrays, at, pc, known, pc_bytes)
                if at_row < 0:
                    return -at_row, begin
                rows[at_row].place = state.base + begin
            row = rows[at_row]
            last.follower = at_row
        state.last_row = at_row

        count = bit_count(mask)
        requests = np.int64(0)
        place = at + row.length
        if row.has_tail:
            place -= 1
            space = np.int64(codes.UNSET)
            stride = np.int64(codes.UNSET)
            if row.width > 0:
                place, stride = _addresses(text, skip_blanks(text, place), count, arrays.addresses)
                if place < 0:
                    return codes.BAD_ADDRESS, begin
                if row.is_generic and count:
                    space = np.int64(_resolved(arrays.addresses[0], form))
            immediate, place = tail(text, place, form.num_immediates)
            if place < 0:
                return -place, begin
            place += 1
            at_row = variant(arrays, at_row, immediate, space)
            row = rows[at_row]
            if row.access == _COPY:
                is_first = count > 0 and arrays.addresses[0] < WINDOW_BYTES
                if is_raw:
                    is_first = arrays.halves[warp] == 0
                    arrays.halves[warp] ^= 1
                if is_first:
                    state.lines += 1
                    continue
            if row.access and count:
                requests = _requests(arrays, at_row, stride, count, mask, warp, request)
                if requests > 255:
                    return codes.TOO_WIDE, begin
        arrays.instruction[number] = at_row
        arrays.active[number] = count
        arrays.accesses[number] = requests
        if is_raw:
            arrays.owners[number] = warp
        state.num_instructions = number + 1
        state.instructions += 1
        state.lines += 1
        if row.space != _SHARED:
            state.num_requests = request + requests
            state.requests += requests
    return codes.DONE, place
