"""Draws that depend on what is drawn for, never on how a stream was cut into batches.

``mixed`` is the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014) over a seed and two numbers.

Elements of a population are chosen in *strata*: of each ``length`` consecutive elements one. Where in its stratum is
not drawn anew for each, but follows a Weyl sequence: a random start, then steps by the golden ratio. Each element has
the same chance as under independent draws, so estimates are as unbiased, but the chosen elements spread evenly over
every remainder of the elements' numbers: one access in eight crosses a line, and 1 % of 100,000 accesses then hold
that eighth to a tenth of a point instead of a point. Source: Weyl, "Über die Gleichverteilung von Zahlen mod. Eins",
Math. Ann. 77 (1916); golden ratio: Knuth, The Art of Computer Programming 3, section 6.4, theorem S.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit

GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 / golden ratio


@njit(cache=True, nogil=True)
def mixed(seed, first, second):  # type: ignore[no-untyped-def]
    """uint64, as if drawn at random for (seed, first, second). O(1)."""
    state = np.uint64(seed)
    for part in (np.uint64(first), np.uint64(second)):
        state = (state ^ part) + np.uint64(GOLDEN)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def uniform(seed: int, first: int, number: int) -> np.ndarray:
    """float64[number] in [0, 1), of ``first`` and those that follow, by ``mixed`` without compiling it. O(number)."""
    numbers = np.arange(first, first + number, dtype=np.uint64)
    drawn: np.ndarray = mixed.py_func(seed, numbers, 0) >> np.uint64(11)
    return drawn * 2.0**-53


@njit(cache=True, nogil=True)
def offset_in_stratum(start, stratum, length):  # type: ignore[no-untyped-def]
    """Which of ``length`` (below 2^32) elements stands for a stratum; ``start`` uint64: the population's draw. O(1)."""
    place = np.uint64(start) + np.uint64(stratum) * np.uint64(GOLDEN)
    return np.int64(((place >> np.uint64(32)) * np.uint64(length)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def chosen_between(start, period, first, end):  # type: ignore[no-untyped-def]
    """int64[]: the chosen of the elements [first, end), one of each ``period``. O(chosen)."""
    strata = (end - 1) // period - first // period + 1 if end > first else 0
    result = np.empty(max(strata, 0), np.int64)
    found = 0
    for stratum in range(first // period, first // period + strata):
        element = stratum * period + offset_in_stratum(start, stratum, period)
        if first <= element < end:
            result[found] = element
            found += 1
    return result[:found]
