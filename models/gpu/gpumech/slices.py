"""Which slice of L2 a line is in."""

from __future__ import annotations

from manyscale.models.gpu.l2.slices import slice_of_line
from manyscale.models.kernels import inlined


@inlined
def slice_of(l2, line):  # type: ignore[no-untyped-def]
    """Of Caches, as the cycle-level model has it."""
    return slice_of_line(line, len(l2.turn), l2.slice_shift[0], l2.slice_masks)
