"""Loops in a sequence of symbols: what repeats, with which period, nested how.

Method: tandem repeats are collapsed, shortest first, until none is left: in "x a b a b a b y a b a b" the loop "a b"
is found and "x a b y a b" goes on, in which longer loops show, whatever the number of rounds of the inner ones (the
idea of loop compression of MPI traces: Noeth et al., "ScalaTrace", JPDC 2009; Ketterlin and Clauss, "Prediction and
trace compression of data access addresses through nested loop recognition", CGO 2008, which count the rounds, too).

Squares of period p, k <= p < 2 k, are found by comparing windows of k symbols: where no shorter square is left, a
window of more than p / 2 symbols stands only once in a period, so its next occurrence is exactly p further. k doubles.
No collapse makes a shorter square: one of period q < p would have to hold all of the body that is left, whose first
p - q symbols were then its last ones, too, a square of that period where two rounds met. Windows are compared by hashes
of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.kernels.hash_table import find_or_add, new_table

MOST_ROUNDS: Final = 200
_BASE: Final = np.uint64(0x9E3779B97F4A7C15 | 1)


@dataclass(frozen=True)
class Sequence:
    """Symbols uint64[n] that are left, the place of each in the first sequence (int64[n + 1], the last its length), and
    hashes of all beginnings (uint64[n + 1])."""

    symbols: np.ndarray
    places: np.ndarray
    prefix: np.ndarray


@dataclass(frozen=True)
class Loop:
    """A body that repeats: its runs [first, end) in ``sequence`` and its ``period``, counted in symbols left."""

    sequence: Sequence
    period: int
    first: np.ndarray
    end: np.ndarray

    @property
    def num_repeats(self) -> int:
        return int(((self.end - self.first) // self.period).sum())


def find_loops(symbols: np.ndarray, min_repeats: int) -> list[Loop]:
    """Every loop of a sequence (uint64[n], at random for different symbols) that repeats ``min_repeats`` times or more
    in all its runs together, inner ones first. Expected O(n log n) for each depth of nesting."""
    places = np.arange(len(symbols) + 1, dtype=np.int64)
    sequence = _sequence(np.ascontiguousarray(symbols, np.uint64), places)
    found: dict[int, Loop] = {}
    window = 1
    for _ in range(MOST_ROUNDS):
        length = len(sequence.symbols)
        if 2 * window > length:
            break
        distance = _distances(sequence.prefix, window, *new_table(length))
        period = _least_period(sequence.prefix, distance, window)
        if not period:
            window *= 2
            continue
        runs, kept = _collapse(sequence.symbols, sequence.prefix, distance, period)
        for body in np.unique(runs[:, 2]):
            mine = runs[runs[:, 2] == body]
            loop = Loop(sequence, period, mine[:, 0], mine[:, 1])
            if int(body) not in found or loop.num_repeats > found[int(body)].num_repeats:
                found[int(body)] = loop
        sequence = _sequence(sequence.symbols[kept], np.append(sequence.places[:-1][kept], sequence.places[-1]))
    return [loop for loop in found.values() if loop.num_repeats >= min_repeats]


def occurrences(loop: Loop, shift: int = 0, inside: Loop | None = None) -> np.ndarray:
    """int64[]: where in its sequence the loop's body begins, also outside of runs: the first symbols of its first run,
    but for ``shift`` ones, as few as stand only once in the body. O(n log period).

    ``inside``: where in the sequence of that loop instead, from the beginning of its first round to the next.
    """
    prefix, first, period = loop.sequence.prefix, int(loop.first[0]) + shift, loop.period
    window = 1
    while window < period and _count(prefix, first, period, window) > 1:
        window *= 2
    window = min(window, period, len(prefix) - 1 - first)
    wanted = _hash(prefix, first, window)
    if inside is None:
        return _equal_windows(prefix, wanted, window)
    begin = int(inside.first[0])
    return begin + _equal_windows(inside.sequence.prefix[begin : begin + inside.period + window], wanted, window)


def _sequence(symbols: np.ndarray, places: np.ndarray) -> Sequence:
    return Sequence(symbols, places, _prefix_hashes(symbols))


@njit(cache=True, nogil=True)
def _prefix_hashes(symbols):  # type: ignore[no-untyped-def]
    """Polynomial hash of each beginning. O(n)."""
    prefix = np.zeros(symbols.shape[0] + 1, np.uint64)
    for i in range(symbols.shape[0]):
        prefix[i + 1] = prefix[i] * _BASE + symbols[i]
    return prefix


@njit(cache=True, nogil=True)
def _power(exponent):  # type: ignore[no-untyped-def]
    """_BASE to the power. O(log exponent)."""
    result, factor = np.uint64(1), _BASE
    while exponent > 0:
        if exponent & 1:
            result *= factor
        factor *= factor
        exponent >>= 1
    return result


@njit(cache=True, nogil=True)
def _hash(prefix, first, window):  # type: ignore[no-untyped-def]
    """Hash of the window at a place. O(log window)."""
    return np.int64(prefix[first + window] - prefix[first] * _power(window))


@njit(cache=True, nogil=True)
def _distances(prefix, window, keys, slots):  # type: ignore[no-untyped-def]
    """int32[n - window + 1]: how far the window at each place is from the next equal one, 0 for none. Expected O(n)."""
    num_windows = prefix.shape[0] - window
    distance = np.zeros(num_windows, np.int32)
    last = np.empty(num_windows, np.int32)
    power = _power(window)
    for i in range(num_windows):
        value = np.int64(prefix[i + window] - prefix[i] * power)
        slot = find_or_add(keys, slots, value, np.int64(0), np.int32(i))
        if slot != i:
            distance[last[slot]] = i - last[slot]
        last[slot] = i
    return distance


@njit(cache=True, nogil=True)
def _is_square(prefix, first, period, power):  # type: ignore[no-untyped-def]
    """Whether the ``period`` symbols at ``first`` stand there twice. O(1)."""
    middle, end = first + period, first + 2 * period
    if end >= prefix.shape[0]:
        return False
    return prefix[middle] - prefix[first] * power == prefix[end] - prefix[middle] * power


@njit(cache=True, nogil=True)
def _least_period(prefix, distance, window):  # type: ignore[no-untyped-def]
    """Least period of a square, from ``window`` to 2 ``window`` - 1; 0 for none. O(n log n)."""
    least = np.int64(2 * window)
    for i in range(distance.shape[0]):
        period = np.int64(distance[i])
        if window <= period < least and _is_square(prefix, i, period, _power(period)):
            least = period
    return least if least < 2 * window else np.int64(0)


@njit(cache=True, nogil=True)
def _collapse(symbols, prefix, distance, period):  # type: ignore[no-untyped-def]
    """Squares of a period, from left to right.

    Returns int64[m, 3] (first, end, hash of the body whatever its rotation) of each maximal run, and bool[n]: the
    symbols that are left, those of the first round and of a last, unfinished one. O(n).
    """
    length = symbols.shape[0]
    kept = np.ones(length, np.bool_)
    runs = np.empty((length // (2 * period) + 1, 3), np.int64)
    num_runs = 0
    power = _power(period)
    i = 0
    while i < distance.shape[0]:
        if distance[i] != period or not _is_square(prefix, i, period, power):
            i += 1
            continue
        end = i + 2 * period
        while end < length and symbols[end] == symbols[end - period]:
            end += 1
        body = np.uint64(0)
        for k in range(i, i + period):
            pair = (symbols[k] * _BASE) ^ symbols[k + 1]
            pair ^= pair >> np.uint64(31)
            body += pair * np.uint64(0xBF58476D1CE4E5B9)
        runs[num_runs] = i, end, np.int64(body)
        num_runs += 1
        rounds = (end - i) // period
        kept[i + period : i + rounds * period] = False
        i = end
    return runs[:num_runs], kept


@njit(cache=True, nogil=True)
def _count(prefix, first, period, window):  # type: ignore[no-untyped-def]
    """How often the window at ``first`` begins within the period that begins there. O(period)."""
    power = _power(window)
    wanted = prefix[first + window] - prefix[first] * power
    count = 0
    for i in range(first, min(first + period, prefix.shape[0] - window)):
        count += prefix[i + window] - prefix[i] * power == wanted
    return count


@njit(cache=True, nogil=True)
def _equal_windows(prefix, wanted, window):  # type: ignore[no-untyped-def]
    """Places of all windows with the hash ``wanted``. O(n)."""
    power = _power(window)
    found = np.empty(prefix.shape[0], np.int64)
    count = 0
    for i in range(prefix.shape[0] - window):
        if np.int64(prefix[i + window] - prefix[i] * power) == wanted:
            found[count] = i
            count += 1
    return found[:count]
