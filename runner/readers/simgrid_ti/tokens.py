"""Tokens of SimGrid's time-independent traces: one pass over the bytes, O(bytes), no Python per line.

A line is ``<rank> <verb> <fields...>``, blank-separated. The kernel gives, per line, the rank, the verb's code and
its numeric fields; what the fields mean is decided elsewhere, vectorised over lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyscale.models.kernels import allocation_free, inner, inner_inlined

UNKNOWN_VERB = -1
BAD_RANK = -2

_FULL = 90071992547409920  # a mantissa that takes no further digit
_POWERS = np.array([10.0**k for k in range(23)])
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of the hash FNV-1a
_NAN, _PAYLOAD_SHIFT = np.uint64(0x7FF8000000000000), np.uint64(13)


@dataclass(frozen=True)
class Tokens:
    """Lines that are neither empty nor comments: int32 ``rank``, int16 ``verb``, int64 ``line`` number (from 1);
    line i's fields are float64 ``values[field_offsets[i]:field_offsets[i + 1]]``. A field that is not a number is a
    NaN whose payload is the hash of its text. ``line_start`` is the byte offset of each line in its chunk,
    ``next_line`` the number of the line behind it."""

    rank: np.ndarray
    verb: np.ndarray
    line: np.ndarray
    field_offsets: np.ndarray
    values: np.ndarray
    line_start: np.ndarray
    next_line: int

    @cached_property
    def num_fields(self) -> np.ndarray:
        return np.diff(self.field_offsets)

    def select(self, lines: np.ndarray) -> Tokens:
        """The tokens of some lines (int64[] indices), in that order. O(fields of those lines)."""
        counts = self.num_fields[lines]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.field_offsets[:-1][lines] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Tokens(
            self.rank[lines],
            self.verb[lines],
            self.line[lines],
            offsets,
            self.values[places],
            self.line_start[lines],
            self.next_line,
        )

    @staticmethod
    def concatenate(parts: list[Tokens]) -> Tokens:
        if len(parts) == 1:
            return parts[0]
        bases = np.cumsum([0] + [len(part.values) for part in parts])
        offsets = [part.field_offsets[1:] + base for part, base in zip(parts, bases[:-1], strict=True)]
        return Tokens(
            np.concatenate([part.rank for part in parts]),
            np.concatenate([part.verb for part in parts]),
            np.concatenate([part.line for part in parts]),
            np.concatenate([np.zeros(1, np.int64), *offsets]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.line_start for part in parts]),
            parts[-1].next_line,
        )


class VerbTable:
    """Hash table from verb (case-insensitive) to a code."""

    def __init__(self, verbs: list[str]) -> None:
        self.names = verbs
        self.hashes = np.zeros(512, np.uint64)
        self.codes = np.full(512, -1, np.int16)
        for code, verb in enumerate(verbs):
            digest = _hash_text(verb.lower())
            place = digest & 511
            while self.codes[place] >= 0:
                place = (place + 1) & 511
            self.hashes[place] = digest
            self.codes[place] = code


def _hash_text(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def tokenise(chunk: np.ndarray, table: VerbTable, first_line: int = 1) -> Tokens:
    """Tokens of ``chunk`` (uint8[], whole lines, each with its newline) whose first line has the number
    ``first_line``."""
    num_newlines = int(np.count_nonzero(chunk == 10))
    rank = np.empty(num_newlines, np.int32)
    verb = np.empty(num_newlines, np.int16)
    places = np.empty((3, num_newlines + 1), np.int64)
    places[2, 0] = first_line
    values = np.empty(len(chunk) // 2 + 2, np.float64)
    num_lines, num_values = _scan(chunk, table.hashes, table.codes, rank, verb, places, values, values.view(np.uint64))
    return Tokens(
        rank[:num_lines],
        verb[:num_lines],
        places[2, :num_lines],
        places[0, : num_lines + 1],
        values[:num_values],
        places[1, :num_lines],
        first_line + num_newlines,
    )


@inner_inlined
def _whole(text, place):  # type: ignore[no-untyped-def]
    """(the number of 1 to 15 decimal digits that a blank follows, -1 where there are none; where the digits end)."""
    begin = place
    value = np.int64(0)
    while 48 <= text[place] <= 57:
        value = value * 10 + (text[place] - 48)
        place += 1
    return value if text[place] <= 32 and 0 < place - begin <= 15 else np.int64(-1), place


@inner
def _digits(text, place, value):  # type: ignore[no-untyped-def]
    """(``value`` with the decimal digits at ``place`` behind it, how many of them it had no room for, their end)."""
    left = 0
    while 48 <= text[place] <= 57:
        if value < _FULL:
            value = value * 10 + (text[place] - 48)
        else:
            left += 1
        place += 1
    return value, left, place


@inner
def _number(text, start):  # type: ignore[no-untyped-def]
    """The decimal number of the word at ``start``, NaN if it is none. Exact up to 15 digits and exponents within
    +-22."""
    sign = text[start]
    place = start + 1 if sign == 45 or sign == 43 else start  # - +
    begin = place
    mantissa, exponent, place = _digits(text, place, np.int64(0))
    num_digits = place - begin
    if text[place] == 46:
        begin = place + 1
        mantissa, left, place = _digits(text, begin, mantissa)
        num_digits += place - begin
        exponent -= place - begin - left
    is_number = num_digits > 0
    if text[place] | 32 == 101:  # e E
        power_sign = text[place + 1]
        begin = place + 2 if power_sign == 45 or power_sign == 43 else place + 1
        power, _, place = _digits(text, begin, np.int64(0))
        is_number = is_number and 0 < place - begin <= 3
        exponent += -power if power_sign == 45 else power
    if not is_number or text[place] > 32:
        return np.nan
    value = float(mantissa)
    while exponent > 22:
        value *= 1e22
        exponent -= 22
    while exponent < -22:
        value /= 1e22
        exponent += 22
    value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
    return -value if sign == 45 else value


@inner_inlined
def _blanks_end(text, place):  # type: ignore[no-untyped-def]
    """Where the next word or the line's end stands."""
    while text[place] <= 32 and text[place] != 10:
        place += 1
    return place


@allocation_free
def _scan(text, hashes, codes, rank, verb, places, values, bits):  # type: ignore[no-untyped-def]
    """Fill in the tokens; ``places`` are each line's first value, first byte and number (of the first line: given).
    Returns (number of lines, number of values)."""
    number = places[2, 0]
    line = 0
    count = 0
    place = np.int64(0)
    while place < text.shape[0]:
        start = place
        place = _blanks_end(text, place)
        if text[place] == 10 or text[place] == 35:  # an empty line or a comment
            while text[place] != 10:
                place += 1
            place += 1
            number += 1
            continue
        places[0, line] = count
        places[1, line] = start
        places[2, line] = number
        whole, place = _whole(text, place)
        is_rank = 0 <= whole < 2147483647
        rank[line] = whole if is_rank else -1
        verb[line] = UNKNOWN_VERB if is_rank else BAD_RANK
        while text[place] > 32:
            place += 1
        column = 0
        while True:
            place = _blanks_end(text, place)
            if text[place] == 10:
                break
            begin = place
            if column > 0:
                whole, place = _whole(text, place)  # as most fields are
                values[count] = float(whole) if whole >= 0 else _number(text, begin)
                count += 1
                if values[count - 1] == values[count - 1]:
                    while text[place] > 32:
                        place += 1
                    continue
            digest = _OFFSET
            place = begin
            while text[place] > 32:
                letter = text[place]
                if column == 0 and 65 <= letter <= 90:
                    letter |= 32
                digest = (digest ^ np.uint64(letter)) * _PRIME
                place += 1
            if column > 0:
                bits[count - 1] = _NAN | (digest >> _PAYLOAD_SHIFT)
                continue
            column = 1
            entry = np.int64(digest) & 511
            while codes[entry] >= 0 and hashes[entry] != digest:
                entry = (entry + 1) & 511
            if is_rank and codes[entry] >= 0:
                verb[line] = codes[entry]
        place += 1
        number += 1
        line += 1
    places[0, line] = count
    return line, count
