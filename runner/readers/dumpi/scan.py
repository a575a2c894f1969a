"""The stream of calls of a DUMPI file as arrays: the kernels behind readers/dumpi/records.py.

Cost: O(bytes), once to count and once to store.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.runner.readers.dumpi.layouts import (
    ALL_FUNCTIONS,
    END_OF_STREAM,
    LAYOUTS,
    NEVER_WRITTEN,
    ONLY_AT_ROOT,
    STATUSES,
    TEXT,
    Layout,
)

CUT_SHORT, NO_SUCH_FUNCTION, BAD_LENGTH = 1, 2, 3  # what may be wrong with a record

# bits of a record's mask
HAS_STATUS, HAS_CPU_TIME, HAS_WALL_TIME, HAS_THREAD, HAS_COUNTERS = 3, 4, 8, 64, 128
STATUS_VALUES: Final = 5
STATUS_BYTES: Final = 14


def _tables(layouts: tuple[Layout, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes of all fields, bounds of each function's, places of rank and root) as arrays."""
    bounds = np.concatenate(([0], np.cumsum([len(layout.codes) for layout in layouts])))
    codes = np.array([code & ~TEXT for layout in layouts for code in layout.codes], np.int64)
    return codes, bounds.astype(np.int64), np.array([layout.decides for layout in layouts], np.int64)


TABLES: Final = _tables(LAYOUTS)


@njit(cache=True, nogil=True)
def _number(data, at, width):  # type: ignore[no-untyped-def]
    """The big-endian number of ``width`` bytes at ``at``: signed, but for single bytes."""
    value = np.int64(data[at])
    if width > 1 and value > 127:
        value -= 256
    for k in range(1, width):
        value = (value << 8) | np.int64(data[at + k])
    return value


@njit(cache=True, nogil=True)
def _time_ns(data, at, last_seconds, epoch):  # type: ignore[no-untyped-def]
    """A time in ns, its seconds as stored, and the number of times they have wrapped so far."""
    seconds = (np.int64(data[at]) << 8) | np.int64(data[at + 1])
    if seconds < last_seconds - 32768:
        epoch += 1
    elif seconds > last_seconds + 32768 and epoch > 0:
        epoch -= 1
    nanoseconds = _number(data, at + 2, 4)
    return (seconds + 65536 * epoch) * 1000000000 + nanoseconds, seconds, epoch


@njit(cache=True, nogil=True)
def scan(  # type: ignore[no-untyped-def]
    data, begin, end, codes, bounds, deciders, fill, function, mask, thread, cpu_ns, wall_ns, position, first_value,
    values, counters,
):  # fmt: skip
    """Count (or, with ``fill``, store) the calls, values and counters of a stream. Returns these three numbers, the
    byte where it stopped, and what was wrong there (0: nothing). O(bytes)."""
    num_calls = 0
    num_values = 0
    num_counters = 0
    at = begin
    clocks = np.zeros((2, 2), np.int64)  # of CPU and wall clock: seconds last seen, times they wrapped
    kept = np.zeros(16, np.int64)  # first values of the call: rank and root are among them
    while True:
        record = at
        if at + 2 > end:
            return num_calls, num_values, num_counters, record, CUT_SHORT
        number = _number(data, at, 2)
        if number == END_OF_STREAM:
            return num_calls, num_values, num_counters, record, 0
        if number < 0 or number > END_OF_STREAM or number == NEVER_WRITTEN or number == ALL_FUNCTIONS:
            return num_calls, num_values, num_counters, record, NO_SUCH_FUNCTION
        if at + 3 > end:
            return num_calls, num_values, num_counters, record, CUT_SHORT
        bits = data[at + 2]
        at += 3
        if fill:
            function[num_calls] = number
            mask[num_calls] = bits
            position[num_calls] = record
            first_value[num_calls] = num_values
            thread[num_calls] = 0
        if bits & HAS_THREAD:
            if at + 2 > end:
                return num_calls, num_values, num_counters, record, CUT_SHORT
            if fill:
                thread[num_calls] = _number(data, at, 2)
            at += 2
        for clock in range(2):
            if not bits & (HAS_CPU_TIME if clock == 0 else HAS_WALL_TIME):
                if fill:
                    times = cpu_ns if clock == 0 else wall_ns
                    times[num_calls, 0] = 0
                    times[num_calls, 1] = 0
                continue
            if at + 12 > end:
                return num_calls, num_values, num_counters, record, CUT_SHORT
            if fill:
                times = cpu_ns if clock == 0 else wall_ns
                for side in range(2):
                    time, seconds, epoch = _time_ns(data, at + 6 * side, clocks[clock, 0], clocks[clock, 1])
                    times[num_calls, side] = time
                    clocks[clock, 0] = seconds
                    clocks[clock, 1] = epoch
            at += 12
        if bits & HAS_COUNTERS:
            if at >= end:
                return num_calls, num_values, num_counters, record, CUT_SHORT
            count = np.int64(data[at])
            at += 1
            if at + 16 * count > end:
                return num_calls, num_values, num_counters, record, CUT_SHORT
            if fill:
                for k in range(2 * count):
                    counters[num_calls, k] = _number(data, at + 8 * k, 8)
            if count > num_counters:
                num_counters = int(count)
            at += 16 * count
        rank_field = deciders[number, 0]
        root_field = deciders[number, 1]
        for field in range(bounds[number], bounds[number + 1]):
            code = codes[field]
            if code & ONLY_AT_ROOT:
                if kept[rank_field] != kept[root_field]:
                    continue
                code &= ~ONLY_AT_ROOT
            if code == STATUSES:
                count = np.int64(-1)
                if bits & HAS_STATUS:
                    if at + 4 > end:
                        return num_calls, num_values, num_counters, record, CUT_SHORT
                    count = _number(data, at, 4)
                    at += 4
                    if count < 0:
                        return num_calls, num_values, num_counters, record, BAD_LENGTH
                    if at + STATUS_BYTES * count > end:
                        return num_calls, num_values, num_counters, record, CUT_SHORT
                if fill:
                    values[num_values] = count
                num_values += 1
                for _ in range(count):
                    if fill:
                        values[num_values] = _number(data, at, 4)
                        values[num_values + 1] = _number(data, at + 4, 4)
                        values[num_values + 2] = data[at + 8]
                        values[num_values + 3] = data[at + 9]
                        values[num_values + 4] = _number(data, at + 10, 4)
                    num_values += STATUS_VALUES
                    at += STATUS_BYTES
                continue
            width = code & 15
            dimensions = code >> 4
            if dimensions == 0:
                if at + width > end:
                    return num_calls, num_values, num_counters, record, CUT_SHORT
                value = _number(data, at, width)
                at += width
                place = field - bounds[number]
                if place < kept.shape[0]:
                    kept[place] = value
                if fill:
                    values[num_values] = value
                num_values += 1
                continue
            at, num_values, problem = _copy_lists(data, at, end, width, dimensions, fill, values, num_values)
            if problem:
                return num_calls, num_values, num_counters, record, problem
        num_calls += 1
        if fill:
            first_value[num_calls] = num_values


@njit(cache=True, nogil=True)
def _copy_lists(data, at, end, width, dimensions, fill, values, num_values):  # type: ignore[no-untyped-def]
    """Store or count a list of numbers, of lists, or of lists of lists: each its length, then its elements. Returns
    the byte behind it, the number of values, and what was wrong. O(bytes)."""
    left = np.ones(4, np.int64)  # lists still to come at each depth
    depth = 1
    left[depth] = 1
    while depth > 0:
        if left[depth] == 0:
            depth -= 1
            continue
        left[depth] -= 1
        if at + 4 > end:
            return at, num_values, CUT_SHORT
        count = _number(data, at, 4)
        at += 4
        if count < 0:
            return at, num_values, BAD_LENGTH
        if fill:
            values[num_values] = count
        num_values += 1
        if depth < dimensions:
            depth += 1
            left[depth] = count
            continue
        if at + width * count > end:
            return at, num_values, CUT_SHORT
        if fill:
            for k in range(count):
                values[num_values + k] = _number(data, at + width * k, width)
        num_values += count
        at += width * count
    return at, num_values, 0
