"""Numbers read eight bytes at a time are those that Python reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.kernels import njit
from manyscale.runner.readers import text_words

pytestmark = pytest.mark.property


@njit(cache=True)
def _decimal(text, place):  # type: ignore[no-untyped-def]
    return text_words.number_at(text, place)


@njit(cache=True)
def _address(text, place):  # type: ignore[no-untyped-def]
    return text_words.address_at(text, place)


@njit(cache=True)
def _same(text, place, other, start, length):  # type: ignore[no-untyped-def]
    return text_words.same_bytes(text, place, other, start, length)


def padded(text: bytes) -> np.ndarray:
    return np.frombuffer(text + bytes(16), np.uint8).copy()


@settings(deadline=None)  # the first example compiles
@given(st.integers(-(10**18) + 1, 10**18 - 1), st.binary(max_size=3), st.sampled_from([b" ", b"\n", b"\t"]))
def test_decimal_numbers(number: int, before: bytes, blank: bytes) -> None:
    text = b"%d" % number
    assert _decimal(padded(before + text + blank + b"7"), len(before)) == (number, len(before) + len(text))


@settings(deadline=None)  # the first example compiles
@given(st.text("0123456789-+abcxyz.,/:", min_size=1, max_size=20))
def test_what_is_no_decimal_number(text: str) -> None:
    digits = text.removeprefix("-")
    is_number = digits.isdigit() and len(digits) <= 18
    assert (_decimal(padded(text.encode() + b" 1 "), 0)[1] >= 0) == is_number


@settings(deadline=None)  # the first example compiles
@given(st.integers(0, 2**64 - 1), st.sampled_from(["0x{:x}", "0X{:x}", "0x{:X}", "0x{:016x}"]))
def test_addresses(number: int, form: str) -> None:
    text = form.format(number).encode()
    value, end = _address(padded(text + b"\n"), 0)
    assert (value % 2**64, end) == (number, len(text))


@settings(deadline=None)  # the first example compiles
@given(st.text("0123456789abcdefABCDEFgGx@`:/ -", min_size=1, max_size=20).map(lambda text: text.replace(" ", "")))
def test_what_is_no_address(text: str) -> None:
    is_number = 1 <= len(text) <= 16 and all(letter in "0123456789abcdefABCDEF" for letter in text)
    assert (_address(padded(b"0x" + text.encode() + b" 1 "), 0)[1] >= 0) == is_number
    assert _address(padded(text.encode() + b" 1 "), 0)[1] == -1 or text.lower().startswith("0x")


@settings(deadline=None)  # the first example compiles
@given(st.binary(max_size=40), st.integers(0, 40), st.binary(min_size=1, max_size=3))
def test_equal_bytes(text: bytes, place: int, before: bytes) -> None:
    other = before + text
    assert _same(padded(text), 0, padded(other), len(before), len(text))
    if place < len(text):
        changed = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        assert not _same(padded(changed), 0, padded(other), len(before), len(text))
        assert _same(padded(changed), 0, padded(other), len(before), place)
