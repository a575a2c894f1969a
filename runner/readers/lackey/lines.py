"""Lines of Valgrind lackey's ``--trace-mem=yes`` as arrays, and the kernels that cut instructions into basic blocks."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.kernels.hash_table import find, find_or_add

INSTRUCTION, LOAD, STORE, MODIFY = range(4)

# What may be wrong with a line
NOT_A_RECORD: Final = 1
BAD_ADDRESS: Final = 2
BAD_SIZE: Final = 3
PROBLEMS: Final = {
    NOT_A_RECORD: "is no record of lackey (I, L, S or M) and no message of Valgrind (==PROCESS==)",
    BAD_ADDRESS: "has no address of 1 to 16 hexadecimal digits before a comma",
    BAD_SIZE: "has no size from 1 to 32767 behind the comma",
}
STARTS: Final = 1  # flag of an instruction: control once arrived there from elsewhere
ENDS: Final = 2  # control once went on from there elsewhere


def parse_block(text: bytes | bytearray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int, int]:
    """The records of whole lines, the first ``size`` bytes of ``text``; O(bytes).

    Returns kinds (uint8[]), addresses (int64[], bits of an unsigned number) and sizes (int32[]), the number of messages
    of Valgrind, where parsing stopped (``size``, or the start of a line that is wrong) and what is wrong with it, or 0.
    """
    block = np.frombuffer(text, np.uint8, size)
    most = size // 5 + 1  # the shortest line is "I 0,1"
    kinds, addresses, sizes = np.empty(most, np.uint8), np.empty(most, np.int64), np.empty(most, np.int32)
    count, messages, stop, problem = _parse(block, kinds, addresses, sizes)
    return kinds[:count], addresses[:count], sizes[:count], messages, stop, problem


@njit(cache=True, nogil=True)
def _parse(text, kinds, addresses, sizes):  # type: ignore[no-untyped-def]
    """O(bytes). Returns (records, messages, place, problem)."""
    count = 0
    messages = 0
    place = 0
    end = text.shape[0]
    while place < end:
        begin = place
        if text[place] == 32:
            place += 1
        letter = text[place] if place < end else 10
        if letter == 73:  # I
            kind = INSTRUCTION
        elif letter == 76:  # L
            kind = LOAD
        elif letter == 83:  # S
            kind = STORE
        elif letter == 77:  # M
            kind = MODIFY
        elif letter == 10 or letter == 13:
            while place < end and text[place] != 10:
                place += 1
            place += 1
            continue
        else:
            if not _is_message(text, begin, end):
                return count, messages, begin, NOT_A_RECORD
            messages += 1
            while place < end and text[place] != 10:
                place += 1
            place += 1
            continue
        place += 1
        if place >= end or text[place] != 32:
            return count, messages, begin, NOT_A_RECORD
        while place < end and text[place] == 32:
            place += 1
        address = np.int64(0)
        digits = 0
        while place < end:
            each = text[place]
            if 48 <= each <= 57:
                digit = each - 48
            elif 97 <= each <= 102:
                digit = each - 87
            elif 65 <= each <= 70:
                digit = each - 55
            else:
                break
            address = address << 4 | np.int64(digit)
            digits += 1
            place += 1
        if digits == 0 or digits > 16 or place >= end or text[place] != 44:
            return count, messages, begin, BAD_ADDRESS
        place += 1
        bytes_ = 0
        while place < end and 48 <= text[place] <= 57 and bytes_ < 32768:
            bytes_ = bytes_ * 10 + text[place] - 48
            place += 1
        if place < end and text[place] == 13:
            place += 1
        if bytes_ == 0 or bytes_ > 32767 or (place < end and text[place] != 10):
            return count, messages, begin, BAD_SIZE
        kinds[count] = kind
        addresses[count] = address
        sizes[count] = bytes_
        count += 1
        place += 1
    return count, messages, end, 0


@njit(cache=True, nogil=True)
def _is_message(text, begin, end):  # type: ignore[no-untyped-def]
    """Whether a line is Valgrind's own: ==123==, --123--, **123**, or "### ..." of its reader of debug information."""
    mark = text[begin]
    if mark == 35:
        return begin + 3 < end and text[begin + 1] == 35 and text[begin + 2] == 35 and text[begin + 3] == 32
    if (mark != 61 and mark != 45 and mark != 42) or begin + 1 >= end or text[begin + 1] != mark:
        return False
    place = begin + 2
    while place < end and 48 <= text[place] <= 57:
        place += 1
    return place > begin + 2 and place + 1 < end and text[place] == mark and text[place + 1] == mark


@njit(cache=True, nogil=True)
def inside_function(kinds, addresses, sizes, entry, state, keep):  # type: ignore[no-untyped-def]
    """Which records are of executions of the function at ``entry``, from its first instruction to its return.

    ``state`` int64[5] (zeros before the first call): whether inside, whether the return address was just loaded, where
    it lies on the stack, the last store of 8 bytes, and the address behind the last instruction. A call stores the
    return address just before the function's first instruction; a return loads it and goes elsewhere. ``keep`` bool[]
    is filled. Returns how often the function was entered. O(records).
    """
    entries = 0
    for i in range(kinds.shape[0]):
        if kinds[i] == INSTRUCTION:
            if state[0] and state[1] and addresses[i] != state[4]:
                state[0] = 0
            state[1] = 0
            if not state[0] and addresses[i] == entry:
                state[0] = 1
                state[2] = state[3]
                entries += 1
            state[4] = addresses[i] + sizes[i]
        elif sizes[i] == 8:
            if kinds[i] != LOAD:
                state[3] = addresses[i]
            elif addresses[i] == state[2]:
                state[1] = 1
        keep[i] = state[0] != 0
    return entries


@njit(cache=True, nogil=True)
def mark_bounds(kinds, addresses, sizes, start, last, next_address, keys, slots, flags, room, num_known):  # type: ignore[no-untyped-def]
    """Where blocks begin and end, for the records from ``start`` on.

    ``last``: instruction before them (-1: none), behind which stands ``next_address``. Stops before the table has more
    than ``room`` instructions. Returns (record reached, last, next_address, num_known). O(records).
    """
    for i in range(start, kinds.shape[0]):
        if kinds[i] != INSTRUCTION:
            continue
        if num_known >= room:
            return i, last, next_address, num_known
        address = addresses[i]
        each = find_or_add(keys, slots, address, 0, num_known)
        if each == num_known:
            flags[each] = 0
            num_known += 1
        if last < 0:
            flags[each] |= STARTS
        elif address != next_address:
            flags[each] |= STARTS
            flags[last] |= ENDS
        last = each
        next_address = address + sizes[i]
    return kinds.shape[0], last, next_address, num_known


@njit(cache=True, nogil=True)
def cut_blocks(  # type: ignore[no-untyped-def]
    kinds, addresses, sizes, last, next_address, keys, slots, flags, starts, first_record
):
    """Where executions of blocks begin: ``starts`` (addresses) and ``first_record`` are filled. ``last``,
    ``next_address``: as in ``mark_bounds``. Returns (executions, last, next_address). O(records)."""
    count = 0
    for i in range(kinds.shape[0]):
        if kinds[i] != INSTRUCTION:
            continue
        address = addresses[i]
        each = slots[find(keys, slots, address, 0)]
        if last < 0 or address != next_address or flags[each] & STARTS or flags[last] & ENDS:
            starts[count] = address
            first_record[count] = i
            count += 1
        last = each
        next_address = address + sizes[i]
    return count, last, next_address


@njit(cache=True, nogil=True)
def gather(  # type: ignore[no-untyped-def]
    kinds, addresses, sizes, first_record, num_instructions, access_counts, attributes, accessed
):
    """Instructions and accesses of each execution; ``first_record`` int64[executions + 1]. What an instruction modifies
    it loads, then stores; lanes of a vector (pieces of 4 or 8 bytes that continue one another) are one access. Returns
    the number of accesses. O(records)."""
    num_accesses = 0
    for execution in range(first_record.shape[0] - 1):
        instruction = -1
        before = num_accesses
        lane = -1  # the record that a lane would continue
        for i in range(first_record[execution], first_record[execution + 1]):
            kind = kinds[i]
            if kind == INSTRUCTION:
                instruction += 1
                lane = -1
                continue
            size = sizes[i]
            if (
                lane >= 0
                and kind == kinds[lane]
                and size == sizes[lane]
                and addresses[i] == addresses[lane] + size
                and kind != MODIFY
                and (size == 4 or size == 8)
            ):
                attributes[num_accesses - 1] += np.int64(size) << 1
                lane = i
                continue
            lane = i
            place = np.int64(instruction) << 17 | np.int64(size) << 1
            if kind != STORE:
                attributes[num_accesses] = place
                accessed[num_accesses] = addresses[i]
                num_accesses += 1
            if kind != LOAD:
                attributes[num_accesses] = place | 1
                accessed[num_accesses] = addresses[i]
                num_accesses += 1
        num_instructions[execution] = instruction + 1
        access_counts[execution] = num_accesses - before
    return num_accesses
