"""Lines of basic-block vectors (SimPoint's .bb) as arrays, from blocks of bytes.

A line ``T:DIM:COUNT   :DIM:COUNT ...`` is an interval. Lines of other kinds are comments (``#``), blank, or what
PinPlay writes beside the vectors.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit

# What may be wrong with a line
NO_VECTOR: Final = 1
BAD_PAIR: Final = 2
BAD_DIMENSION: Final = 3
BAD_COUNT: Final = 4
PROBLEMS: Final = {
    NO_VECTOR: "is no interval (T:DIM:COUNT ...), comment or line of PinPlay",
    BAD_PAIR: "does not go on as pairs :DIM:COUNT",
    BAD_DIMENSION: "has a dimension that is no number from 1 to 2147483647",
    BAD_COUNT: "has a count that is no number of 0 or more",
}
EMPTY_ROWS, OTHER_LINES, CARRIAGE_RETURNS, FRACTIONS = range(4)  # indices of ``seen``
NUM_SEEN: Final = 4
_POWERS: Final = np.array([10.0**power for power in range(23)])  # exact


def parse_block(
    text: bytes | bytearray, size: int, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """The intervals of whole lines, the first ``size`` bytes of ``text``; O(bytes).

    Returns the number of pairs of each interval (int64[]), dimensions (int32[]) and counts (float64[]) of all pairs,
    where parsing stopped (``size``, or the start of a line that is wrong) and what is wrong with that line, or 0.
    ``seen`` int64[NUM_SEEN] is counted up: rows without pairs, lines of PinPlay, lines that end in a carriage return,
    counts that are no integers.
    """
    block = np.frombuffer(text, np.uint8, size)
    num_lines, num_pairs = _bounds(block)
    sizes = np.empty(num_lines, np.int64)
    dimensions = np.empty(num_pairs, np.int32)
    counts = np.empty(num_pairs, np.float64)
    rows, pairs, stop, problem = _parse(block, _POWERS, sizes, dimensions, counts, seen)
    return sizes[:rows].copy(), dimensions[:pairs].copy(), counts[:pairs].copy(), stop, problem


@njit(cache=True, nogil=True)
def _bounds(text):  # type: ignore[no-untyped-def]
    """At most how many lines and pairs there are. O(bytes)."""
    lines = 1
    colons = 0
    for i in range(text.shape[0]):
        if text[i] == 10:
            lines += 1
        elif text[i] == 58:
            colons += 1
    return lines, colons // 2 + 1


@njit(cache=True, nogil=True)
def _parse(text, powers, sizes, dimensions, counts, seen):  # type: ignore[no-untyped-def]
    """O(bytes). Returns (rows, pairs, place, problem)."""
    rows = 0
    pairs = 0
    place = 0
    end = text.shape[0]
    while place < end:
        begin = place
        stop = place
        while stop < end and text[stop] != 10:
            stop += 1
        next_line = stop + 1
        if stop > begin and text[stop - 1] == 13:
            seen[CARRIAGE_RETURNS] += 1
            stop -= 1
        while stop > place and (text[stop - 1] == 32 or text[stop - 1] == 9):
            stop -= 1
        while place < stop and (text[place] == 32 or text[place] == 9):
            place += 1
        if place == stop or text[place] == 35:
            place = next_line
            continue
        first = text[place]
        place += 1
        if first != 84 or (place < stop and text[place] != 58 and text[place] != 32 and text[place] != 9):  # T
            if not _is_other(text, begin, stop):
                return rows, pairs, begin, NO_VECTOR
            seen[OTHER_LINES] += 1
            place = next_line
            continue
        row_begin = pairs
        while place < stop:
            if text[place] == 32 or text[place] == 9:
                place += 1
                continue
            if text[place] != 58:
                return rows, pairs, begin, BAD_PAIR
            place += 1
            dimension = 0
            digits = 0
            while place < stop and 48 <= text[place] <= 57 and digits < 11:
                dimension = dimension * 10 + text[place] - 48
                place += 1
                digits += 1
            if digits == 0 or dimension < 1 or dimension > 2147483647:
                return rows, pairs, begin, BAD_DIMENSION
            if place >= stop or text[place] != 58:
                return rows, pairs, begin, BAD_PAIR
            value, place, is_fraction = _number(text, powers, place + 1, stop)
            if place < 0:
                return rows, pairs, begin, BAD_COUNT
            seen[FRACTIONS] += is_fraction
            dimensions[pairs] = dimension
            counts[pairs] = value
            pairs += 1
        if pairs == row_begin:
            seen[EMPTY_ROWS] += 1
        sizes[rows] = pairs - row_begin
        rows += 1
        place = next_line
    return rows, pairs, end, 0


@njit(cache=True, nogil=True)
def _is_other(text, begin, stop):  # type: ignore[no-untyped-def]
    """Whether a line is one of PinPlay's: a capital letter and a colon or equal sign, or of its tables of blocks."""
    if stop - begin >= 2 and 65 <= text[begin] <= 90 and text[begin] != 84:
        if text[begin + 1] == 58 or text[begin + 1] == 61:
            return True
        for i in range(begin + 1, min(stop, begin + 40)):  # a word or two, then a number or a colon
            each = text[i]
            if each == 58:
                return True
            if not (65 <= each <= 90 or 97 <= each <= 122 or each == 32):
                return 48 <= each <= 57 and text[i - 1] == 32
    return False


@njit(cache=True, nogil=True)
def _number(text, powers, place, stop):  # type: ignore[no-untyped-def]
    """(value, end, whether it has a fraction or an exponent); end -1 where it is no number. Exact up to 15 digits."""
    mantissa = np.int64(0)
    digits = 0
    exponent = 0
    is_fraction = 0
    while place < stop and 48 <= text[place] <= 57:
        if mantissa < 100000000000000000:
            mantissa = mantissa * 10 + text[place] - 48
        else:
            exponent += 1
        digits += 1
        place += 1
    if place < stop and text[place] == 46:
        is_fraction = 1
        place += 1
        while place < stop and 48 <= text[place] <= 57:
            if mantissa < 100000000000000000:
                mantissa = mantissa * 10 + text[place] - 48
                exponent -= 1
            digits += 1
            place += 1
    if digits == 0:
        return 0.0, -1, 0
    if place < stop and (text[place] == 101 or text[place] == 69):
        is_fraction = 1
        place += 1
        sign = 1
        if place < stop and (text[place] == 43 or text[place] == 45):
            sign = 1 if text[place] == 43 else -1
            place += 1
        power = 0
        digits = 0
        while place < stop and 48 <= text[place] <= 57 and digits < 4:
            power = power * 10 + text[place] - 48
            digits += 1
            place += 1
        if digits == 0:
            return 0.0, -1, 0
        exponent += sign * power
    value = np.float64(mantissa)
    while exponent > 0 and value != 0.0:
        step = min(exponent, 22)
        value *= powers[step]
        exponent -= step
        if value == np.inf:
            return 0.0, -1, 0
    while exponent < 0 and value != 0.0:
        step = min(-exponent, 22)
        value /= powers[step]
        exponent += step
    return value, place, is_fraction
