"""Kernels of windows.py."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.cpu.branch_predictor import mispredicts
from manyscale.models.kernels import allocation_free, by_reference, inner_inlined

_RECENT: Final = 64  # lines, of which a use is none of a new line
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

SEEN: Final = np.dtype([("line", "i8"), ("piece", "i4"), ("window", "i4"), ("row", "i8"), ("clock", "i8")])


class Windows(NamedTuple):
    """Columns of PieceWindows, longer than needed; ``begin`` int64[windows]: the first execution in the stream.
    ``seen``: records of a table of lines of the piece that is followed; ``recent`` int64[_RECENT]."""

    begin: np.ndarray
    first_execution: np.ndarray
    first_measured: np.ndarray
    block_ids: np.ndarray
    first_access: np.ndarray
    addresses: np.ndarray
    instructions: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    row: np.ndarray
    since: np.ndarray
    seen: np.ndarray
    recent: np.ndarray


def new_windows(count: int, longest: int, total: int, most_lines: int, largest_block: int) -> Windows:
    """``longest``: instructions of the longest piece; ``total``: of all windows; ``most_lines``: rows of a piece."""
    room = 4 * (total + count * (largest_block + 1)) + 64
    slots = 1 << int(2 * (most_lines + 4096)).bit_length()
    return Windows(
        np.zeros(count, np.int64), np.zeros(count + 1, np.int64), np.zeros(count, np.int64), np.empty(room, np.int32),
        np.zeros(count + 1, np.int64), np.empty(room, np.uint64), np.zeros(count, np.int64),
        np.zeros(count + 1, np.int64), np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64),
        np.zeros(slots, SEEN), np.zeros(_RECENT, np.int64),
    )  # fmt: skip


@inner_inlined
def _slot(seen, line, piece):  # type: ignore[no-untyped-def]
    """Where a line of the piece stands, or the free place where it belongs."""
    mask = seen.shape[0] - 1
    mixed = np.uint64(line) * _FACTOR
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while seen[place].piece == piece and seen[place].line != line:
        place = (place + 1) & mask
    return place


@allocation_free
def follow(  # type: ignore[no-untyped-def]
    found, block_ids, addresses, first_site, reach, size, piece, first_row, first_window, bounds, stack, line_shift
):
    """Sampled pieces, from their begin to the end of their last window. ``reach`` int64[sites]: bytes of each access
    but the first; ``piece`` int64[samples, 3]: first and end
    execution, first access; ``bounds`` float64[windows, 3]; ``stack`` int64[samples, 2]. Expected O(executions +
    accesses)."""
    found = by_reference(found)
    executions, accesses, lines = np.int64(0), np.int64(0), np.int64(0)
    for s in range(piece.shape[0]):
        access, row = piece[s, 2], np.int64(first_row[s])
        stack_begin, stack_bytes = np.uint64(stack[s, 0]), np.uint64(stack[s, 1] - stack[s, 0])
        w, end_window = first_window[s], first_window[s + 1]
        position, clock = np.int64(0), np.int64(0)
        is_open, counts = False, False
        for k in range(found.recent.shape[0]):
            found.recent[k] = -1
        for execution in range(piece[s, 0], piece[s, 1]):
            block = block_ids[execution]
            after = position + size[block]
            if not is_open and after > bounds[w, 0]:
                is_open, counts = True, False
                found.begin[w] = execution
                found.first_execution[w], found.first_access[w], found.first_line[w] = executions, accesses, lines
            if is_open:
                if not counts and (after > bounds[w, 1] or execution + 1 == piece[s, 1]):
                    counts = True
                    found.first_measured[w] = executions
                found.block_ids[executions] = block
                executions += 1
                if counts:
                    found.instructions[w] += size[block]
            for site in range(first_site[block], first_site[block + 1]):
                address = addresses[access]
                access += 1
                if is_open:
                    found.addresses[accesses] = address
                    accesses += 1
                line = np.int64(address >> np.uint64(line_shift))
                last = np.int64((address + np.uint64(reach[site])) >> np.uint64(line_shift))
                is_stack = address - stack_begin < stack_bytes
                while line <= last:
                    seen = found.seen[_slot(found.seen, line, s + 1)]
                    is_new = seen.piece != s + 1
                    if is_new:
                        seen.line, seen.piece, seen.window, seen.row = line, s + 1, 0, -1
                        if not is_stack:
                            seen.row = row
                            row += 1
                    if is_open and seen.window != w + 1:
                        seen.window = w + 1
                        found.line[lines], found.row[lines] = line, seen.row
                        found.since[lines] = -1 if is_new else clock - seen.clock
                        lines += 1
                    recent = line & (found.recent.shape[0] - 1)
                    if found.recent[recent] != line:
                        found.recent[recent] = line
                        clock += 1
                    seen.clock = clock
                    line += 1
            position = after
            if is_open and (position >= bounds[w, 2] or execution + 1 == piece[s, 1]):
                is_open = False
                w += 1
                if w == end_window:
                    break
        # windows that blocks have swallowed
        while w < end_window:
            found.begin[w] = piece[s, 1] - 1
            found.first_execution[w] = found.first_measured[w] = executions
            found.first_access[w], found.first_line[w] = accesses, lines
            w += 1
    count = found.begin.shape[0]
    found.first_execution[count], found.first_access[count], found.first_line[count] = executions, accesses, lines


@allocation_free
def predict(  # type: ignore[no-untyped-def]
    predictor, block_ids, ends_in_branch, order, begin, first_execution, end_of_piece, before, wrong
):
    """``wrong`` bool[executions of windows]: where the predictor is wrong, which has seen ``before`` executions before
    each window. O(executions)."""
    predictor = by_reference(predictor)
    done = np.int64(0)
    for w in order:
        length = first_execution[w + 1] - first_execution[w]
        start = max(begin[w] - before, min(done, begin[w]), 0)
        for at in range(start, begin[w] + length):
            follower = np.int64(-1)
            if at + 1 < block_ids.shape[0] and at + 1 != end_of_piece[w]:
                follower = np.int64(block_ids[at + 1])
            block = np.int64(block_ids[at])
            is_wrong = mispredicts(predictor, 0, block, follower, ends_in_branch[block])
            if at >= begin[w]:
                wrong[first_execution[w] + at - begin[w]] = is_wrong
        done = max(done, begin[w] + length)


@allocation_free
def mark_executed(block_ids, executed):  # type: ignore[no-untyped-def]
    """``executed`` bool[blocks]: set for those in ``block_ids``. O(executions)."""
    for i in range(block_ids.shape[0]):
        executed[block_ids[i]] = True
