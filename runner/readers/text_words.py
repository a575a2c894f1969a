"""Numbers in text, eight bytes at a time, for Numba kernels: what takes longest in reading long texts of short numbers.

Words are loaded from any place of a uint8 array, little-endian, without checks: the array must hold eight bytes more
than is read. Digits are summed in pairs by multiplication (D. Lemire, "Number parsing at a gigabyte per second",
Software: Practice and Experience 51 (2021), section 5).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from manyscale.models.kernels import inner, inner_inlined

WORD_BYTES: Final = 8
_U = np.uint64
_EIGHT = _U(8)
_HIGH = _U(0x8080808080808080)
_ABOVE_BLANK = _U(0x2121212121212121)
_ZEROS = _U(0x3030303030303030)  # "00000000"
_NIBBLES = _U(0x0F0F0F0F0F0F0F0F)
_ONES = _U(0x0101010101010101)
_TO_HIGH = _U(0x7676767676767676)  # brings ten, and more, to the highest bit
_ALL = _U(0xFFFFFFFFFFFFFFFF)


def _element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of an array's element, without regard to negative indices."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    place = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.gep(array.data, [place], inbounds=True)


@intrinsic
def byte_at(context, text, place):  # type: ignore[no-untyped-def]
    """``text[place]`` as int64, for a place that is not negative."""

    def load(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = builder.load(_element(context, builder, signature, arguments))
        return builder.zext(value, ir.IntType(64))

    return types.int64(text, place), load


@intrinsic
def word_at(context, text, place):  # type: ignore[no-untyped-def]
    """The eight bytes from ``text[place]`` on as uint64, the first one lowest."""

    def load(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start = builder.bitcast(_element(context, builder, signature, arguments), ir.IntType(64).as_pointer())
        return builder.load(start, align=1)

    return types.uint64(text, place), load


@intrinsic
def _trailing_zeros(context, word):  # type: ignore[no-untyped-def]
    """Zero bits below the lowest set one of a uint64, as int64; 64 if none is set."""

    def count(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(word), count


@intrinsic
def bit_count(context, word):  # type: ignore[no-untyped-def]
    """How many bits of an int64 are set."""

    def count(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), count


@inner_inlined
def length_in_word(word):  # type: ignore[no-untyped-def]
    """Bytes of a word before the first blank (a byte up to 32), 8 if there is none."""
    return _trailing_zeros((word - _ABOVE_BLANK) & ~word & _HIGH) >> 3


@inner_inlined
def first_bytes(length):  # type: ignore[no-untyped-def]
    """A mask of the first ``length`` bytes of a word, 1 to 8."""
    return _ALL >> (_U(64) - _U(length) * _EIGHT)


@inner_inlined
def decimal_word(word, length):  # type: ignore[no-untyped-def]
    """The number of the first ``length`` digits of a word, 1 to 8; -1 where one is none."""
    digits = (word ^ _ZEROS) << (_U(64) - _U(length) * _EIGHT)
    if ((digits + _TO_HIGH) | digits) & _HIGH:
        return np.int64(-1)
    digits = (digits * _U(2561)) >> _EIGHT & _U(0x00FF00FF00FF00FF)
    digits = (digits * _U(6553601)) >> _U(16) & _U(0x0000FFFF0000FFFF)
    return np.int64((digits * _U(42949672960001)) >> _U(32))


@inner_inlined
def hexadecimal_word(word, length):  # type: ignore[no-untyped-def]
    """The same of hexadecimal digits."""
    if length < 8:
        shift = _U(length) * _EIGHT
        word = word << (_U(64) - shift) | _ZEROS >> shift
    letters = word >> _U(6) & _ONES
    digits = (word & _NIBBLES) + letters * _U(9)
    written = digits + _ZEROS + ((digits + _TO_HIGH) >> _U(7) & _ONES) * _U(39)
    if (word | letters << _U(5)) != written or digits & ~_NIBBLES:
        return np.int64(-1)
    digits = (digits << _U(4) | digits >> _EIGHT) & _U(0x00FF00FF00FF00FF)
    digits = (digits << _EIGHT | digits >> _U(16)) & _U(0x0000FFFF0000FFFF)
    return np.int64((digits << _U(16) | digits >> _U(32)) & _U(0xFFFFFFFF))


@inner
def number_at(text, place):  # type: ignore[no-untyped-def]
    """(a decimal number of up to 18 digits, where the blank behind it stands; -1 where there is no such number)."""
    is_negative = byte_at(text, place) == 45
    if is_negative:
        place += 1
    word = word_at(text, place)
    length = length_in_word(word)
    if length == 0:
        return np.int64(0), np.int64(-1)
    value = decimal_word(word, length)
    place += length
    if length == 8:
        for _ in range(11):
            each = byte_at(text, place) - 48
            if each < 0 or each > 9:
                break
            value = value * 10 + each
            length += 1
            place += 1
        if byte_at(text, place) > 32 or length > 18:
            return value, np.int64(-1)
    if value < 0:
        return value, np.int64(-1)
    return (-value if is_negative else value), place


@inner
def hexadecimal_at(text, place):  # type: ignore[no-untyped-def]
    """(the 64 bits of a hexadecimal number, where the blank behind it stands; -1 where there is none)."""
    word = word_at(text, place)
    length = length_in_word(word)
    if length == 0:
        return np.int64(0), np.int64(-1)
    value = hexadecimal_word(word, length)
    place += length
    if length == 8 and byte_at(text, place) > 32:
        word = word_at(text, place)
        length = length_in_word(word)
        low = hexadecimal_word(word, length)
        place += length
        if low < 0 or value < 0 or byte_at(text, place) > 32:
            return value, np.int64(-1)
        return value << 4 * length | low, place
    return value, place if value >= 0 else np.int64(-1)


@inner
def address_at(text, place):  # type: ignore[no-untyped-def]
    """The same of a number behind 0x."""
    if byte_at(text, place) != 48 or byte_at(text, place + 1) | 32 != 120:
        return np.int64(0), np.int64(-1)
    return hexadecimal_at(text, place + 2)


@inner_inlined
def same_bytes(text, place, other, start, length):  # type: ignore[no-untyped-def]
    """Whether ``length`` bytes are equal; both arrays hold a word more."""
    whole = length & ~7
    for k in range(0, whole, 8):
        if word_at(text, place + k) != word_at(other, start + k):
            return False
    left = length - whole
    if left == 0:
        return True
    return (word_at(text, place + whole) ^ word_at(other, start + whole)) & first_bytes(left) == 0
