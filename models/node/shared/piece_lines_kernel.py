"""The pass of piece_lines.py over executions and accesses. It stops where the table of pages is full, and goes on with
the same piece once its caller has made room."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner_inlined

LOADED: Final = 1  # its first use is a load
STORED: Final = 2
VISIT: Final = 32
MOST_VISITS: Final = 255
_PAGE_BITS: Final = 6  # lines that are given their places together: 2^6
_FIRST_SLOTS: Final = 1 << 12

_DONE: Final = np.dtype([("piece", "i8"), ("rows", "i8"), ("lines", "i8"), ("pages", "i8"), ("stamp", "i8")])
_LINE: Final = np.dtype([("stamp", "i4"), ("row", "i4"), ("access", "i4"), ("pad", "i4")])


class State(NamedTuple):
    """``page_keys`` int64[slots], page + 1 (0: free), open addressing; ``page_lines`` int32[slots, lines of a page]:
    number + 1 of a line. ``of_line``: in which pass over a piece each was met last, its row there, and at which
    access."""

    done: np.ndarray
    page_keys: np.ndarray
    page_lines: np.ndarray
    of_line: np.ndarray
    line_number: np.ndarray
    first: np.ndarray
    end: np.ndarray
    line: np.ndarray
    use: np.ndarray
    visits: np.ndarray


def new_state(num_accesses: int, num_pieces: int) -> State:
    """Before the first piece. Memory that is never written takes none."""
    room = 2 * num_accesses
    return State(
        np.zeros(1, _DONE), np.zeros(_FIRST_SLOTS, np.int64), np.zeros((_FIRST_SLOTS, 1 << _PAGE_BITS), np.int32),
        np.zeros(room, _LINE), np.empty(room, np.int64), np.zeros(num_pieces, np.int64),
        np.zeros(num_pieces, np.int64), np.empty(room, np.int32), np.empty(room, np.uint8),
        np.empty(room, np.uint8),
    )  # fmt: skip


def with_more_pages(state: State) -> State:
    """With four times the room for pages."""
    slots = 4 * len(state.page_keys)
    more = state._replace(page_keys=np.zeros(slots, np.int64), page_lines=np.zeros((slots, 1 << _PAGE_BITS), np.int32))
    _move_pages(state.page_keys, state.page_lines, more.page_keys, more.page_lines)
    return more


@inner_inlined
def _page_place(page_keys, page):  # type: ignore[no-untyped-def]
    """Slot of a page, or the free one where it belongs."""
    mask = page_keys.shape[0] - 1
    mixed = np.uint64(page) * np.uint64(0x9E3779B97F4A7C15)
    place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while page_keys[place] != page + 1 and page_keys[place] > 0:
        place = (place + 1) & mask
    return place


@allocation_free
def _move_pages(old_keys, old_lines, page_keys, page_lines):  # type: ignore[no-untyped-def]
    for k in range(old_keys.shape[0]):
        if old_keys[k] > 0:
            place = _page_place(page_keys, old_keys[k] - 1)
            page_keys[place] = old_keys[k]
            for line in range(old_lines.shape[1]):
                page_lines[place, line] = old_lines[k, line]


@allocation_free
def collect(  # type: ignore[no-untyped-def]
    state, block_ids, addresses, first_site, is_store, reach, piece, stack, line_shift
):
    """Whether all pieces are done; else ``with_more_pages`` has to make room. Expected O(executions + accesses).
    ``reach`` int64[sites]: bytes of each access but the first; ``piece`` int64[pieces, 3]: first and end execution,
    first access."""
    state = by_reference(state)
    done, page_keys, page_lines = state.done[0], state.page_keys, state.page_lines
    page_mask = (np.int64(1) << _PAGE_BITS) - 1
    last_page, place = np.int64(-2), np.int64(0)
    while done.piece < piece.shape[0]:
        p = done.piece
        done.stamp += 1
        row = np.int64(done.rows)
        state.first[p] = row
        access = piece[p, 2]
        stack_begin, stack_bytes = np.uint64(stack[p, 0]), np.uint64(stack[p, 1] - stack[p, 0])
        last_line, last_row = np.int64(-1), np.int64(0)
        for execution in range(piece[p, 0], piece[p, 1]):
            block = block_ids[execution]
            for site in range(first_site[block], first_site[block + 1]):
                address = addresses[access]
                access += 1
                line = np.int64(address >> np.uint64(line_shift))
                last = np.int64((address + np.uint64(reach[site])) >> np.uint64(line_shift))
                if line == last and line == last_line:
                    if is_store[site]:
                        state.use[last_row] |= STORED
                    continue
                if address - stack_begin < stack_bytes:
                    continue
                while line <= last:
                    page = line >> _PAGE_BITS
                    if page != last_page:
                        last_page, place = page, _page_place(page_keys, page)
                        if page_keys[place] == 0:
                            if 2 * done.pages >= page_keys.shape[0]:
                                return False
                            page_keys[place] = page + 1
                            done.pages += 1
                    number = np.int64(page_lines[place, line & page_mask]) - 1
                    if number < 0:
                        number = done.lines
                        page_lines[place, line & page_mask] = number + 1
                        state.line_number[number] = line
                        done.lines += 1
                    of_line = state.of_line[number]
                    if of_line.stamp != done.stamp:
                        of_line.stamp = done.stamp
                        of_line.row = row
                        state.line[row] = number
                        state.use[row] = 0 if is_store[site] else LOADED
                        state.visits[row] = 1
                        row += 1
                    elif access - of_line.access >= VISIT and state.visits[of_line.row] < MOST_VISITS:
                        state.visits[of_line.row] += 1
                    of_line.access = access
                    last_line, last_row = line, np.int64(of_line.row)
                    if is_store[site]:
                        state.use[last_row] |= STORED
                    line += 1
        done.rows = row
        state.end[p] = row
        done.piece += 1
    return True
