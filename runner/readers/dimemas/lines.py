"""The records of a Dimemas .dim trace as arrays, from blocks of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit

NOOP: Final = 0
BURST: Final = 1
SEND: Final = 2
RECEIVE: Final = 3
GLOBAL: Final = 10
GPU_BURST: Final = 11
EVENT: Final = 20
NUM_FIELDS: Final = 7  # of the longest record

# What may be wrong with a line
NOT_A_RECORD: Final = 1
UNKNOWN_RECORD: Final = 2
WRONG_FIELDS: Final = 3
BAD_NUMBER: Final = 4
BAD_TIME: Final = 5
PROBLEMS: Final = {
    NOT_A_RECORD: "is no record (they are RECORD:TASK:THREAD:...)",
    UNKNOWN_RECORD: "has an unknown record type (known are 0, 1, 2, 3, 10, 11, 20)",
    WRONG_FIELDS: "has a wrong number of fields for its record type",
    BAD_NUMBER: "has a field that is no number",
    BAD_TIME: "has a duration that is no number of seconds between 0 and 10^6",
}


@dataclass
class Records:
    """Per record: type, task, thread, byte offset of its line, and ``value``: picoseconds of a burst, else the row of
    ``fields`` (int64[n, 7], as they stand in the line from the fourth on)."""

    kind: np.ndarray
    task: np.ndarray
    thread: np.ndarray
    start: np.ndarray
    value: np.ndarray
    fields: np.ndarray

    @classmethod
    def concatenate(cls, parts: list[Records]) -> Records:
        first_field = np.cumsum([0] + [len(part.fields) for part in parts])
        for part, first in zip(parts, first_field, strict=False):
            part.value[(part.kind != BURST) & (part.kind != GPU_BURST)] += first
        names = ("kind", "task", "thread", "start", "value", "fields")
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def parse_block(text: bytes | bytearray, size: int, base: int) -> tuple[Records, int, int]:
    """Records of whole lines, the first ``size`` bytes of ``text``, which stand at ``base`` of the file.

    Returns them, the place in ``text`` where parsing stopped (``size``, or the start of a line that is no record) and
    the problem of that line, 0 for a line of offsets or none. O(bytes).
    """
    block = np.frombuffer(text, np.uint8, size)
    most = int(np.count_nonzero(block == 10)) + 1
    kind, task, thread = np.empty(most, np.uint8), np.empty(most, np.int32), np.empty(most, np.int32)
    start, value = np.empty(most, np.int64), np.empty(most, np.int64)
    fields = np.zeros((most, NUM_FIELDS), np.int64)
    count, num_fields, stop, problem = _parse(block, base, kind, task, thread, start, value, fields)
    records = Records(
        kind[:count].copy(), task[:count].copy(), thread[:count].copy(), start[:count].copy(), value[:count].copy(),
        fields[:num_fields].copy(),
    )  # fmt: skip
    return records, stop, problem


@njit(cache=True, nogil=True)
def _parse(text, base, kind, task, thread, start, value, fields):  # type: ignore[no-untyped-def]
    count = 0
    num_fields = 0
    place = 0
    size = text.shape[0]
    numbers = np.empty(3 + NUM_FIELDS, np.int64)
    while place < size:
        begin = place
        first = text[place]
        if first == 10 or first == 13:
            place += 1
            continue
        if first == 115:  # s: the table of offsets
            return count, num_fields, begin, 0
        if first < 48 or first > 57:
            return count, num_fields, begin, NOT_A_RECORD
        found = 0
        while place < size and text[place] != 10:
            if found == 3 and (numbers[0] == BURST or numbers[0] == GPU_BURST):
                picoseconds, place = _seconds(text, place)
                if picoseconds < 0:
                    return count, num_fields, begin, BAD_TIME
                numbers[found] = picoseconds
            else:
                if found == 3 + NUM_FIELDS:
                    return count, num_fields, begin, WRONG_FIELDS
                number, end = _integer(text, place)
                if end < 0:
                    return count, num_fields, begin, BAD_NUMBER
                numbers[found] = number
                place = end
            found += 1
            if place < size and text[place] != 10:  # a colon or a carriage return
                place += 1
        place += 1
        what = numbers[0]
        extra = found - 3
        if extra < 0:
            return count, num_fields, begin, NOT_A_RECORD
        if what == SEND or what == RECEIVE:
            if extra == 5:  # without the thread of the partner
                for k in range(7, 3, -1):
                    numbers[k + 1] = numbers[k]
                numbers[4] = -1
                extra = 6
            fits = extra == 6
        elif what == GLOBAL:
            if extra == 6:  # of before the last field: waits at once
                numbers[9] = 1
                extra = 7
            fits = extra == 7
        elif what == BURST or what == GPU_BURST:
            fits = extra == 1
        elif what == EVENT:
            fits = extra == 2
        elif what == NOOP:
            fits = extra == 0
        else:
            return count, num_fields, begin, UNKNOWN_RECORD
        if not fits or numbers[1] > 2147483647 or numbers[2] > 2147483647:
            return count, num_fields, begin, WRONG_FIELDS
        kind[count] = what
        task[count] = numbers[1]
        thread[count] = numbers[2]
        start[count] = base + begin
        if what == BURST or what == GPU_BURST:
            value[count] = numbers[3]
        else:
            value[count] = num_fields
            if extra > 0:
                for k in range(extra):
                    fields[num_fields, k] = numbers[3 + k]
                num_fields += 1
        count += 1
    return count, num_fields, size, 0


@njit(cache=True, nogil=True)
def _integer(text, place):  # type: ignore[no-untyped-def]
    """A whole number from ``place`` on and the place behind it, -1 for none. Beyond 64 bits it wraps around."""
    size = text.shape[0]
    negative = place < size and text[place] == 45
    if negative:
        place += 1
    begin = place
    number = np.int64(0)
    while place < size and 48 <= text[place] <= 57:
        number = number * 10 + (text[place] - 48)
        place += 1
    if place == begin or (place < size and text[place] != 58 and text[place] != 10 and text[place] != 13):
        return np.int64(0), -1
    return -number if negative else number, place


@njit(cache=True, nogil=True)
def _seconds(text, place):  # type: ignore[no-untyped-def]
    """Seconds from ``place`` on as whole picoseconds (-1 for none) and the place behind them."""
    size = text.shape[0]
    begin = place
    whole = np.int64(0)
    while place < size and 48 <= text[place] <= 57:
        whole = whole * 10 + (text[place] - 48)
        if whole > 1000000:
            return np.int64(-1), place
        place += 1
    digits = place - begin
    part = np.int64(0)
    scale = 1000000000000
    if place < size and text[place] == 46:
        place += 1
        while place < size and 48 <= text[place] <= 57:
            if scale > 1:
                scale //= 10
                part += (text[place] - 48) * scale
            elif scale == 1:  # the digit behind the last picosecond
                part += 1 if text[place] >= 53 else 0
                scale = 0
            place += 1
            digits += 1
    picoseconds = whole * 1000000000000 + part
    if place < size and (text[place] == 101 or text[place] == 69):  # 1e-06
        place += 1
        sign = 1
        if place < size and (text[place] == 45 or text[place] == 43):
            sign = -1 if text[place] == 45 else 1
            place += 1
        exponent = np.int64(0)
        while place < size and 48 <= text[place] <= 57 and exponent < 100:
            exponent = exponent * 10 + (text[place] - 48)
            place += 1
        scaled = picoseconds * 10.0 ** (sign * exponent)
        if scaled > 1e18:
            return np.int64(-1), place
        picoseconds = np.int64(np.rint(scaled))
    if digits == 0 or (place < size and text[place] != 10 and text[place] != 13 and text[place] != 58):
        return np.int64(-1), place
    return picoseconds, place
