"""What a launch leaves in L2 that is not walked, but only touched: its accesses in the order of the trace.

Cost: O(requests).
"""

from __future__ import annotations

from typing import Final

from manyscale.models.gpu.gpumech.functional_caches import FULL, fill, read, write
from manyscale.models.gpu.l2.slices import slice_of_line
from manyscale.models.kernels import inlined, njit

_NOBODY: Final = -(1 << 40)  # of this launch


@inlined
def slice_of(l2, line):  # type: ignore[no-untyped-def]
    return slice_of_line(line, len(l2.turn), l2.slice_shift[0], l2.slice_masks)


@njit(cache=True, nogil=True)
def touch_in_order(request, written, l2, l2_rules):  # type: ignore[no-untyped-def]
    """L2 takes requests in the order of the trace."""
    shift = l2_rules.sector_shift
    l2.turn[:] += 1
    for i in range(len(request)):
        tag = request[i] >> shift
        bit = 1 << (request[i] - (tag << shift))
        if written[i]:
            write(l2, l2_rules, 0, tag, bit, bit if written[i] == FULL else 0)
        else:
            which = slice_of(l2, tag)
            at, missing, _, _, _ = read(l2, l2_rules, 0, tag, bit, which)
            if missing:
                fill(l2, 0, at, missing, which, missing, 1, _NOBODY)
