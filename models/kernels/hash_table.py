"""An open-addressing hash table on arrays for keys of two int64, for use inside Numba kernels.

Numba's typed dictionaries cost several seconds of compilation and three times the lookup; these two functions compile
in a fraction of a second. A table is ``keys`` int64[capacity, 2] and ``slots`` int32[capacity], -1 where free;
capacity is a power of two at least twice the number of keys. Expected O(1) per lookup.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, merged


def new_table(num_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Empty (keys, slots) with room for ``num_keys`` distinct keys."""
    capacity = 1 << max(4, int(2 * num_keys).bit_length())
    return np.empty((capacity, 2), np.int64), np.full(capacity, -1, np.int32)


@merged
def find(keys, slots, first, second):  # type: ignore[no-untyped-def]
    """Position of the key, or of the free place where it belongs."""
    mask = slots.shape[0] - 1
    mixed = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(second) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    place = np.int64(mixed & np.uint64(mask))
    while slots[place] >= 0 and (keys[place, 0] != first or keys[place, 1] != second):
        place = (place + 1) & mask
    return place


@inner
def find_or_add(keys, slots, first, second, new_slot):  # type: ignore[no-untyped-def]
    """The slot number stored under the key; ``new_slot`` is stored (and returned) if the key is new."""
    place = find(keys, slots, first, second)
    if slots[place] < 0:
        keys[place, 0] = first
        keys[place, 1] = second
        slots[place] = new_slot
    return np.int64(slots[place])
