"""How executions of blocks and their addresses are packed into columns: the kernels behind the detailed level's files.

A *chunk* stands by itself. Its blocks are numbered from 0 as they first appear. Two predictions are kept:

- of a block, its last two different successors, the last one first. An execution is the symbol 0 or 1 if it is one of
  them, else 2, and the block's number stands in ``escapes``. Loops are long runs of 0.
- of an access (block, k), k its place among the block's accesses (those from the 64th on share a place), its last
  address and its last stride. An access is the symbol 0 if the stride is the last one again; else 1, 2 or 3, and the
  new stride stands in two, four or eight bytes. Strides and last addresses begin as 0.

Symbols are packed four to a byte, the first in the lowest bits. Strides are split by bytes: a plane of all lowest
bytes, then one of the next, since neighbouring bytes of a number are less alike than the same byte of two numbers.

``runner/tracers/native/coverage.c`` packs the same columns, each memory access of the program a block with one access.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit

MAX_PLACES: Final = 64  # accesses of a block that have a prediction of their own
WIDTHS: Final = (2, 4, 8)  # bytes of a stride, by its symbol less one


@njit(cache=True, nogil=True)
def number_blocks(block_ids, local, dictionary, num_known):  # type: ignore[no-untyped-def]
    """Number blocks as they first appear: ``local`` (by block id, -1 where unknown) and ``dictionary`` are filled.
    Returns how many there are. O(executions)."""
    for i in range(len(block_ids)):
        block = block_ids[i]
        if local[block] < 0:
            local[block] = num_known
            dictionary[num_known] = block
            num_known += 1
    return num_known


@njit(cache=True, nogil=True)
def pack_blocks(block_ids, local, successors, symbols, escapes):  # type: ignore[no-untyped-def]
    """Fill ``symbols`` (zeroed, 4 to a byte) and ``escapes``. ``successors`` int32[blocks + 1, 2], its last row that of
    the beginning. Returns the number of escapes. O(executions)."""
    previous = len(successors) - 1
    num_escapes = 0
    for i in range(len(block_ids)):
        block = local[block_ids[i]]
        first = successors[previous, 0]
        if block != first:
            if block == successors[previous, 1]:
                symbols[i >> 2] |= np.uint8(1 << ((i & 3) << 1))
            else:
                symbols[i >> 2] |= np.uint8(2 << ((i & 3) << 1))
                escapes[num_escapes] = block
                num_escapes += 1
            successors[previous, 1] = first
            successors[previous, 0] = block
        previous = block
    return num_escapes


@njit(cache=True, nogil=True)
def unpack_blocks(symbols, escapes, successors, num_blocks, block_ids):  # type: ignore[no-untyped-def]
    """Fill ``block_ids`` with the numbers of the chunk's blocks. Returns how many escapes were used, or -1 - i where
    execution i is no block of the chunk. O(executions)."""
    previous = len(successors) - 1
    num_escapes = 0
    for i in range(len(block_ids)):
        symbol = (symbols[i >> 2] >> ((i & 3) << 1)) & 3
        block = successors[previous, 0]
        if symbol:
            first = block
            if symbol == 1:
                block = successors[previous, 1]
            else:
                if num_escapes >= len(escapes):
                    return -1 - i
                block = escapes[num_escapes]
                num_escapes += 1
            successors[previous, 1] = first
            successors[previous, 0] = block
        if block < 0 or block >= num_blocks:
            return -1 - i
        block_ids[i] = block
        previous = block
    return num_escapes


@njit(cache=True, nogil=True)
def wrong_count(block_ids, access_counts, local, counts):  # type: ignore[no-untyped-def]
    """Index of the first execution whose number of accesses is not its block's (``counts`` by number, -1 where not yet
    seen, is filled), or -1. O(executions)."""
    for i in range(len(block_ids)):
        block = local[block_ids[i]]
        if counts[block] != access_counts[i]:
            if counts[block] >= 0:
                return i
            counts[block] = access_counts[i]
    return -1


@njit(cache=True, nogil=True)
def total(block_ids, by_block):  # type: ignore[no-untyped-def]
    """Sum of a number per block over executions. O(executions)."""
    result = 0
    for i in range(len(block_ids)):
        result += by_block[block_ids[i]]
    return result


@njit(cache=True, nogil=True)
def pack_addresses(  # type: ignore[no-untyped-def]
    block_ids, local, counts, places, last, addresses, symbols, narrow, middle, wide
):
    """Fill ``symbols`` (zeroed, 4 to a byte) and the strides of each width. ``places`` int64[blocks]: where a block's
    predictions begin in ``last`` int64[, 2] (address, stride). Returns the number of strides per width. O(accesses)."""
    at = 0
    num_narrow = 0
    num_middle = 0
    num_wide = 0
    for i in range(len(block_ids)):
        block = local[block_ids[i]]
        place = places[block]
        for k in range(counts[block]):
            key = place + min(k, MAX_PLACES - 1)
            address = np.int64(addresses[at])
            stride = address - last[key, 0]
            last[key, 0] = address
            if stride != last[key, 1]:
                last[key, 1] = stride
                if -32768 <= stride < 32768:
                    symbol = 1
                    narrow[num_narrow] = stride
                    num_narrow += 1
                elif -2147483648 <= stride < 2147483648:
                    symbol = 2
                    middle[num_middle] = stride
                    num_middle += 1
                else:
                    symbol = 3
                    wide[num_wide] = stride
                    num_wide += 1
                symbols[at >> 2] |= np.uint8(symbol << ((at & 3) << 1))
            at += 1
    return num_narrow, num_middle, num_wide


@njit(cache=True, nogil=True)
def unpack_addresses(  # type: ignore[no-untyped-def]
    block_ids, counts, places, last, symbols, narrow, middle, wide, addresses
):
    """The reverse, with blocks' numbers. Returns whether the strides were as many as the symbols say. O(accesses)."""
    at = 0
    num_narrow = 0
    num_middle = 0
    num_wide = 0
    for i in range(len(block_ids)):
        block = block_ids[i]
        place = places[block]
        for k in range(counts[block]):
            key = place + min(k, MAX_PLACES - 1)
            symbol = (symbols[at >> 2] >> ((at & 3) << 1)) & 3
            if symbol:
                if symbol == 1:
                    if num_narrow >= len(narrow):
                        return False
                    last[key, 1] = narrow[num_narrow]
                    num_narrow += 1
                elif symbol == 2:
                    if num_middle >= len(middle):
                        return False
                    last[key, 1] = middle[num_middle]
                    num_middle += 1
                else:
                    if num_wide >= len(wide):
                        return False
                    last[key, 1] = wide[num_wide]
                    num_wide += 1
            last[key, 0] += last[key, 1]
            addresses[at] = last[key, 0]
            at += 1
    return num_narrow == len(narrow) and num_middle == len(middle) and num_wide == len(wide)


def planes(values: np.ndarray) -> bytes:
    """Numbers split by bytes, lowest first. O(bytes)."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def from_planes(content: bytes | memoryview, dtype: str) -> np.ndarray:
    """The reverse of ``planes``. O(bytes)."""
    size = np.dtype(dtype).itemsize
    flat = np.frombuffer(content, np.uint8).reshape(size, len(content) // size)
    return np.ascontiguousarray(flat.T).reshape(-1).view(dtype)


def places_of(counts: np.ndarray) -> tuple[np.ndarray, int]:
    """Where each block's predictions begin, and how many there are."""
    ends = np.cumsum(np.minimum(counts, MAX_PLACES))
    return ends - np.minimum(counts, MAX_PLACES), int(ends[-1]) if len(ends) else 0
