"""Tokens of SimGrid's time-independent traces: one pass over the bytes, O(bytes), no Python per line.

A line is ``<rank> <verb> <fields...>``, blank-separated. The kernel gives, per line, the rank, the verb's code and
its numeric fields; what the fields mean is decided elsewhere, vectorised over lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyscale.models.kernels import njit

UNKNOWN_VERB = -1
EMPTY_LINE = -2
BAD_RANK = -3

_POWERS = np.array([10.0**k for k in range(23)])


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
    """Tokens of ``chunk`` (uint8[], whole lines) whose first line has the number ``first_line``."""
    num_newlines = int(np.count_nonzero(chunk == 10))
    num_lines = num_newlines + 1
    rank = np.empty(num_lines, np.int32)
    verb = np.empty(num_lines, np.int16)
    line = np.empty(num_lines, np.int64)
    field_offsets = np.empty(num_lines + 1, np.int64)
    line_start = np.empty(num_lines, np.int64)
    values = np.empty(len(chunk) // 2 + 2, np.float64)
    num_lines, num_values = _scan(
        chunk, table.hashes, table.codes, _POWERS, rank, verb, field_offsets, values, line_start, line, first_line
    )
    return Tokens(
        rank[:num_lines],
        verb[:num_lines],
        line[:num_lines],
        field_offsets[: num_lines + 1],
        values[:num_values],
        line_start[:num_lines],
        first_line + num_newlines,
    )


@njit(cache=True, nogil=True)
def _number(text, start, end, powers):  # type: ignore[no-untyped-def]
    """Decimal number in text[start:end], NaN if it is none. Exact up to 15 digits and exponents within +-22."""
    place = start
    negative = False
    if text[place] == 45 or text[place] == 43:  # - +
        negative = text[place] == 45
        place += 1
    mantissa = np.int64(0)
    exponent = 0
    digits = 0
    seen_point = False
    while place < end:
        byte = text[place]
        if 48 <= byte <= 57:
            if mantissa < 90071992547409920:
                mantissa = mantissa * 10 + (byte - 48)
                if seen_point:
                    exponent -= 1
            elif not seen_point:
                exponent += 1
            digits += 1
        elif byte == 46 and not seen_point:
            seen_point = True
        else:
            break
        place += 1
    if digits == 0:
        return np.nan
    if place < end:
        if text[place] != 101 and text[place] != 69:  # e E
            return np.nan
        place += 1
        power_negative = False
        if place < end and (text[place] == 45 or text[place] == 43):
            power_negative = text[place] == 45
            place += 1
        if place >= end or end - place > 3:
            return np.nan
        power = 0
        while place < end:
            if text[place] < 48 or text[place] > 57:
                return np.nan
            power = power * 10 + (text[place] - 48)
            place += 1
        exponent += -power if power_negative else power
    value = float(mantissa)
    while exponent > 22:
        value *= 1e22
        exponent -= 22
    while exponent < -22:
        value /= 1e22
        exponent += 22
    value = value * powers[exponent] if exponent >= 0 else value / powers[-exponent]
    return -value if negative else value


@njit(cache=True, nogil=True)
def _scan(  # type: ignore[no-untyped-def]
    text, hashes, codes, powers, rank, verb, field_offsets, values, line_start, line_number, number
):
    bits = values.view(np.uint64)
    size = text.shape[0]
    place = 0
    line = 0
    num_values = 0
    field_offsets[0] = 0
    while place < size:
        line_start[line] = place
        line_number[line] = number
        column = 0
        rank[line] = -1
        verb[line] = EMPTY_LINE
        while place < size and text[place] != 10:
            byte = text[place]
            if byte <= 32:
                place += 1
                continue
            if byte == 35 and column == 0:  # a comment runs to the end of its line
                while place < size and text[place] != 10:
                    place += 1
                break
            start = place
            whole = np.int64(0)  # fast path: most fields are short non-negative integers
            while place < size and 48 <= text[place] <= 57:
                whole = whole * 10 + (text[place] - 48)
                place += 1
            is_whole = place - start <= 15 and place > start and (place == size or text[place] <= 32)
            while place < size and text[place] > 32:
                place += 1
            if column == 0:
                if is_whole and whole < 2147483647:
                    rank[line] = np.int32(whole)
                    verb[line] = UNKNOWN_VERB
                else:
                    verb[line] = BAD_RANK
            elif column == 1:
                digest = np.uint64(0xCBF29CE484222325)
                for k in range(start, place):
                    letter = text[k]
                    if 65 <= letter <= 90:
                        letter = letter | 32
                    digest = (digest ^ np.uint64(letter)) * np.uint64(0x100000001B3)
                entry = np.int64(digest & np.uint64(511))
                while codes[entry] >= 0 and hashes[entry] != digest:
                    entry = (entry + 1) & 511
                if verb[line] != BAD_RANK:
                    verb[line] = codes[entry] if codes[entry] >= 0 else UNKNOWN_VERB
            else:
                values[num_values] = float(whole) if is_whole else _number(text, start, place, powers)
                if np.isnan(values[num_values]):
                    digest = np.uint64(0xCBF29CE484222325)
                    for k in range(start, place):
                        digest = (digest ^ np.uint64(text[k])) * np.uint64(0x100000001B3)
                    bits[num_values] = np.uint64(0x7FF8000000000000) | (digest >> np.uint64(13))
                num_values += 1
            column += 1
        place += 1
        number += 1
        if verb[line] != EMPTY_LINE:
            line += 1
            field_offsets[line] = num_values
        # an empty line leaves no trace
    return line, num_values
