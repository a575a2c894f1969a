"""The kernel of instance_lines.py. It stops where a column is full, and begins the instance again once its caller has
made room."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.node.instance_profile_kernel import PAGE_BITS, page_place

DONE: Final = 0
ROWS: Final = 1  # what is full
LINES: Final = 2
PAGES: Final = 3

PIECE: Final = np.dtype([("first_execution", "i8"), ("end_execution", "i8"), ("end_access", "i8")])
# ``listed``: the latest attempt at an instance that has it; ``row``: where
_LINE: Final = np.dtype([("number", "i8"), ("listed", "i8"), ("row", "i8")])
_DONE: Final = np.dtype([("instances", "i8"), ("attempts", "i8"), ("lines", "i8"), ("pages", "i8")])


class Work(NamedTuple):
    """Pieces of instance i are those from ``first_piece[i]`` on; ``page_keys`` and ``page_lines`` as in
    instance_profile_kernel.py; ``line``, ``written`` and ``first_line`` as in instance_lines.py."""

    block_ids: np.ndarray
    addresses: np.ndarray
    shift: np.ndarray  # [1]
    piece: np.ndarray
    first_piece: np.ndarray
    first_site: np.ndarray
    is_store: np.ndarray
    done: np.ndarray
    page_keys: np.ndarray
    page_lines: np.ndarray
    of_line: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    written: np.ndarray


def new_work(
    block_ids: np.ndarray, addresses: np.ndarray, shift: int, piece: np.ndarray, first_piece: np.ndarray,
    first_site: np.ndarray, is_store: np.ndarray,
) -> Work:  # fmt: skip
    """Before the first instance. Arrays of the stream and of sites are read-only."""
    slots, rows = 1 << 12, 1 << 14
    return Work(
        block_ids, addresses, np.array([shift]), piece, first_piece, first_site, is_store, np.zeros(1, _DONE),
        np.full(slots, -1, np.int64), np.full((slots, 1 << PAGE_BITS), -1, np.int32), np.zeros(rows, _LINE),
        np.zeros(len(first_piece), np.int64), np.zeros(rows, np.int32), np.zeros(rows, np.bool_),
    )  # fmt: skip


@allocation_free
def list_lines(work):  # type: ignore[no-untyped-def]
    """Goes on to list the lines of instances: DONE, or what is full. Expected O(executions + accesses)."""
    work = by_reference(work)
    done, of_line = work.done[0], work.of_line
    shift = np.uint64(work.shift[0])
    last_page, place = np.int64(-2), np.int64(0)
    for instance in range(done.instances, work.first_piece.shape[0] - 1):
        done.attempts += 1
        attempt = done.attempts
        first = work.first_line[instance]
        row = first
        for number in range(work.first_piece[instance + 1] - 1, work.first_piece[instance] - 1, -1):
            piece = work.piece[number]
            access = piece.end_access
            for execution in range(piece.end_execution - 1, piece.first_execution - 1, -1):
                block = work.block_ids[execution]
                for site in range(work.first_site[block + 1] - 1, work.first_site[block] - 1, -1):
                    access -= 1
                    line = np.int64(work.addresses[access] >> shift)
                    page = line >> PAGE_BITS
                    if page != last_page:
                        last_page, place = page, page_place(work.page_keys, page)
                        if work.page_keys[place] < 0:
                            if 2 * done.pages >= work.page_keys.shape[0] - 1:
                                return PAGES
                            work.page_keys[place] = page
                            done.pages += 1
                    known = work.page_lines[place, line & ((1 << PAGE_BITS) - 1)]
                    if known < 0:
                        if done.lines == of_line.shape[0]:
                            return LINES
                        known = np.int32(done.lines)
                        work.page_lines[place, line & ((1 << PAGE_BITS) - 1)] = known
                        of_line[known].number = line
                        done.lines += 1
                    mine = of_line[known]
                    if mine.listed != attempt:
                        if row == work.line.shape[0]:
                            return ROWS
                        mine.listed = attempt
                        mine.row = row
                        work.line[row] = known
                        work.written[row] = work.is_store[site]
                        row += 1
                    elif work.is_store[site]:
                        work.written[mine.row] = True
        low, high = first, row - 1
        while low < high:  # the oldest first
            work.line[low], work.line[high] = work.line[high], work.line[low]
            work.written[low], work.written[high] = work.written[high], work.written[low]
            low += 1
            high -= 1
        work.first_line[instance + 1] = row
        done.instances = instance + 1
    return DONE
