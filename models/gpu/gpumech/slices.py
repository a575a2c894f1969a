"""Which slice of L2 a line is in, for GPUMech."""

from __future__ import annotations

from manyscale.models.kernels import count_ones, inlined


@inlined
def slice_of(l2, line):  # type: ignore[no-untyped-def]
    """As gpu/l2/crossbar_kernel.py has it."""
    slices = len(l2.turn)
    if slices & (slices - 1):
        return (line ^ (line >> 7) ^ (line >> 13)) % slices
    masks = l2.slice_masks
    index = line & (slices - 1)
    high = line >> l2.slice_shift[0]
    if len(masks) == 0:
        return (index ^ high) & (slices - 1)
    for bit in range(len(masks)):
        index ^= (count_ones(high & masks[bit]) & 1) << bit
    return index
