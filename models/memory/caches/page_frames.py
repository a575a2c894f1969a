"""Which frame of memory a page lies in, for caches that are indexed by physical addresses: a hash of the page's number
and a seed (52 bits, so two pages hardly ever share one), the same as ``set_sampling`` draws. Nothing need be kept."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.memory.draws import mixed

Frames = Literal["virtual", "random"]
PAGE_BYTES: Final = 4096  # the smallest page of x86-64 and of most others
VIRTUAL: Final = np.array([0, 0, 0], np.uint64)  # ``pages`` where addresses are used as they are


def random_frames(seed: int, page_bytes: int, unit_bytes: int) -> np.ndarray:
    """``pages`` for units of ``unit_bytes``: whether to draw, log2 of the units in a page, the seed."""
    return np.array([1, (page_bytes // unit_bytes).bit_length() - 1, mixed(seed, 0, 4)], np.uint64)


@allocation_free
def framed_unit(unit, pages):  # type: ignore[no-untyped-def]
    """Where a line (or other unit) of an address space lies in memory. O(1)."""
    if pages[0] == 0:
        return unit
    page = np.uint64(unit) >> pages[1]
    frame = mixed(pages[2], page, 0) >> np.uint64(12)
    return np.int64((frame << pages[1]) | (np.uint64(unit) - (page << pages[1])))
