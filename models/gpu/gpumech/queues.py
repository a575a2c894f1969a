"""What resources are taken for: queues of GPUMech's extended form (gpu/gpumech/replay.py).

Requests are known in the order of the segments that make them, not of their own times, which can lie far ahead. So time
is cut into periods, and a request takes what is left of the first ones from its arrival on. Inside a period the order
of requests is left open; the work that came before is done first.

Cost: O(1) for each request, but for periods between full ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inlined

PERIOD: Final = np.dtype([("number", "i4"), ("used", "i4")], align=True)  # of a resource's time; taken cycles
TRANSFER: Final = np.dtype([("number", "i8"), ("used", "f8")], align=True)  # the same of DRAM's
_SHIFT: Final = 5  # cycles of a period, a power of two
_DRAM_SHIFT: Final = 6
PERIOD_CYCLES: Final = 1 << _SHIFT
PERIODS: Final = 128  # that are known at once, a power of two: of an SM's resources,
SLICE_PERIODS: Final = 256
DRAM_PERIODS: Final = 256


class Taken(NamedTuple):
    """What is taken of time, PERIOD[resources, ring] (of DRAM TRANSFER[channels, ring]), and the periods between which
    all of it is, int64[resources, 2]: of load/store units, slices of L2, channels of DRAM."""

    load_store: np.ndarray
    load_store_full: np.ndarray
    slices: np.ndarray
    slices_full: np.ndarray
    dram: np.ndarray
    dram_full: np.ndarray


@inlined
def served(periods, full, which, at, work, length):  # type: ignore[no-untyped-def]
    """When resource ``which``, which works ``length`` cycles in a period (PERIOD_CYCLES, but for one that stands for
    parts of others), has worked ``work`` for what arrives at ``at``, in the first of its time that is not taken:
    requests are known in the order of the segments that make them, not of their own times."""
    number = at >> _SHIFT
    end = at
    while True:
        if full[which, 0] <= number < full[which, 1]:
            number = full[which, 1]
        own = periods[which, number & (periods.shape[1] - 1)]
        if own.number != number:
            if own.number > number:  # too old to be known
                return end + work
            own.number = number
            own.used = 0
        part = min(work, length - own.used)
        own.used += part
        end = max(end + part, (number << _SHIFT) + own.used)
        if part == work:
            return end
        work -= part
        if full[which, 1] == number:
            full[which, 1] = number + 1
        elif number > full[which, 1]:
            full[which, 0] = number
            full[which, 1] = number + 1
        number += 1


@inlined
def transferred(periods, full, which, at, work):  # type: ignore[no-untyped-def]
    """The same of a channel of DRAM, whose times are no whole cycles."""
    length = np.float64(1 << _DRAM_SHIFT)
    number = at >> _DRAM_SHIFT
    end = np.float64(at)
    while True:
        if full[which, 0] <= number < full[which, 1]:
            number = full[which, 1]
        own = periods[which, number & (DRAM_PERIODS - 1)]
        if own.number != number:
            if own.number > number:  # too old to be known
                return end + work
            own.number = number
            own.used = 0.0
        part = min(work, length - own.used)
        own.used += part
        end = max(end + part, (number << _DRAM_SHIFT) + own.used)
        if part == work:
            return end
        work -= part
        if full[which, 1] == number:
            full[which, 1] = number + 1
        elif number > full[which, 1]:
            full[which, 0] = number
            full[which, 1] = number + 1
        number += 1
