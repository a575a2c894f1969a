"""Which slice of L2 a line of memory is in.

Where the number of slices is a power of two, as in Accel-Sim. Where it is not, it is ``odd`` times 2**bits: the
groups of 2**bits lines go round the ``odd`` parts of L2 (a stride that is a power of two has no factor in common with
``odd``, so it meets all of them in turn: Budnik and Kuck, "The organization and use of parallel memories", IEEE TC
20(12), 1971), and inside a part a line's low bits are changed by the remainder of its turn divided by a polynomial over
GF(2) (Rau, "Pseudo-randomly interleaved memory", ISCA 1991). How hardware spreads lines is not published.

- In the turns of a part, a stride of 2**k lines makes any aligned 2**bits steps meet each slice once. Of any
  ``slices x K`` lines in a row of that stride no slice gets more than K + 2: K - 1 or K whole such windows, two partial
  ones, and what a part is met more often than others.
- A line's number is (slice, line // slices) in another form: none are lost, none are double.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from manyscale.models.kernels import count_ones, inlined, merged

_HASHES: Final = {  # Rau: which higher bits change which bit of an index of 16, 32, 64 (polynomials 5, 37, 67;
    # equations as given by Khairy et al., IEEE TPDS 2017)
    16: ((0, 3, 4, 6, 8, 9, 10, 11), (0, 1, 3, 5, 6, 7, 8, 12), (1, 2, 4, 6, 7, 8, 9), (2, 3, 5, 7, 8, 9, 10)),
    32: (
        (0, 3, 5, 6, 9, 10, 11, 12, 13), (1, 4, 6, 7, 10, 11, 12, 13, 14), (0, 2, 3, 6, 7, 8, 9, 10, 14),
        (1, 3, 4, 7, 8, 9, 10, 11), (2, 4, 5, 8, 9, 10, 11, 12),
    ),
    64: (
        (0, 5, 6, 10, 12, 15, 16, 17, 18), (0, 1, 5, 7, 10, 11, 12, 13, 15), (1, 2, 6, 8, 11, 12, 13, 14, 16),
        (2, 3, 7, 9, 12, 13, 14, 15, 17), (3, 4, 8, 10, 13, 14, 15, 16, 18), (4, 5, 9, 11, 14, 15, 16, 17),
    ),
}  # fmt: skip
_PRIMITIVE: Final = (1, 3, 7, 11, 19, 37, 67, 131, 285, 529, 1033)  # polynomials over GF(2), by degree (Peterson and
# Weldon, "Error-Correcting Codes", 1972, appendix C)
_ADDRESS_BITS: Final = 57  # of lines: those of 64 bits without a line's own 7


@cache
def index_masks(size: int) -> np.ndarray:
    """int64[bits]: the bits of a number that change each bit of an index below ``size``, as Accel-Sim has them; empty:
    other bits are only added."""
    return np.array([sum(1 << bit for bit in bits) for bits in _HASHES.get(size, ())], np.int64)


@cache
def slice_masks(slices: int) -> np.ndarray:
    """int64[bits]: as ``index_masks``, for ``slice_of_line``; where ``slices`` is no power of two, one for each factor
    2 of it. Raises ValueError for a multiple of 2,048 that is none."""
    if slices & (slices - 1) == 0:
        return index_masks(slices)
    bits = (slices & -slices).bit_length() - 1
    if bits >= len(_PRIMITIVE):
        raise ValueError(f"l2.slices: {slices} is a multiple of {1 << len(_PRIMITIVE)} and no power of two")
    masks = [0] * bits
    power = 1  # of x, modulo the polynomial
    for at in range(_ADDRESS_BITS):
        for bit in range(bits):
            masks[bit] |= (power >> bit & 1) << at
        power <<= 1
        if power >> bits & 1:
            power ^= _PRIMITIVE[bits]
    return np.array(masks, np.int64)


@merged
def hashed(index, high, masks, size):  # type: ignore[no-untyped-def]
    """An index below ``size``, a power of two, changed by other bits."""
    if len(masks) == 0:
        return (index ^ high) & (size - 1)
    for bit in range(len(masks)):
        index ^= (count_ones(high & masks[bit]) & 1) << bit
    return index


@inlined
def slice_of_line(line, slices, high_shift, masks):  # type: ignore[no-untyped-def]
    """``high_shift``: of the line's bits that change its slice, where ``slices`` is a power of two; ``masks`` are
    ``slice_masks``."""
    if slices & (slices - 1) == 0:
        return hashed(line & (slices - 1), line >> high_shift, masks, slices)
    bits = len(masks)
    odd = slices >> bits
    group = line >> bits
    turn = group // odd
    return (group - turn * odd) << bits | hashed(line & ((1 << bits) - 1), turn, masks, 1 << bits)
