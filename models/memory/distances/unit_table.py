"""A hash table from int64 to a count or position, for streams of memory accesses, inside Numba kernels.

A table is int64[capacity, 2]: key and value, the value -1 where the place is free; capacity is a power of two, 8 at
least. Searches go on linearly from a key's *home*. Homes are scattered by multiplication (Knuth, vol. 3, section 6.4),
but four neighbouring keys have neighbouring homes, in one cache line: streams walk along memory. A kernel that computes
the homes of many accesses ahead and reads them without branches lets the core wait for many cache lines at once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import intrinsic

from manyscale.models.kernels import njit
from manyscale.models.memory.draws import GOLDEN

MAX_LOAD: Final = 0.625  # of a table; beyond it searches become long


def empty_table(capacity: int) -> np.ndarray:
    """Raises ValueError for a capacity that is no power of two or less than 8."""
    if capacity < 8 or capacity & (capacity - 1):
        raise ValueError(f"a capacity of {capacity} is not a power of two, 8 or more")
    return np.full((capacity, 2), -1, np.int64)


def max_keys(table: np.ndarray) -> int:
    """How many keys to put into the table before it is made larger."""
    return int(MAX_LOAD * len(table))


def doubled(table: np.ndarray) -> np.ndarray:
    """A table of twice the capacity with the same keys and values. O(capacity)."""
    larger = empty_table(2 * len(table))
    _copy(table, larger)
    return larger


@intrinsic
def popcount(typing_context, word):  # type: ignore[no-untyped-def]
    """Number of bits set in a 64-bit word: one machine instruction, which Numba has no name for."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(word), generate


@njit(cache=True, nogil=True, inline="always")
def group_shift(table):  # type: ignore[no-untyped-def]
    """By how much ``home`` shifts: 64 - log2(groups of four places)."""
    return 66 - popcount(table.shape[0] - 1)


@njit(cache=True, nogil=True, inline="always")
def home(key, shift):  # type: ignore[no-untyped-def]
    """The place where the search for a key begins. O(1)."""
    mixed = np.uint64(key >> 2) * np.uint64(GOLDEN)
    return np.int64((mixed >> np.uint64(shift)) << np.uint64(2)) + (key & 3)


@njit(cache=True, nogil=True, inline="always")
def find(table, key, place):  # type: ignore[no-untyped-def]
    """The key's place, or the free one where it belongs, from its home on. Expected O(1)."""
    while table[place, 1] >= 0 and table[place, 0] != key:
        place = (place + 1) & (table.shape[0] - 1)
    return place


@njit(cache=True, nogil=True)
def _copy(table, larger):  # type: ignore[no-untyped-def]
    """O(capacity)."""
    shift = group_shift(larger)
    for i in range(table.shape[0]):
        if table[i, 1] >= 0:
            place = find(larger, table[i, 0], home(table[i, 0], shift))
            larger[place, 0] = table[i, 0]
            larger[place, 1] = table[i, 1]
