"""Tokens of time-independent traces: numbers as Python reads them, lines as they were written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.readers.simgrid_ti.tokens import tokenise
from manyscale.runner.readers.simgrid_ti.verb_names import CODE, VERBS
from manyscale.runner.readers.simgrid_ti.verbs import VERB_TABLE

NOT_NUMBERS = [
    "",
    "e5",
    "1e",
    "1e+",
    "1.2.3",
    "0x10",
    "nan",
    "inf",
    "1_000",
    "1e5x",
    "--1",
    "1-",
    ".",
    "+",
    "-",
    "1e5.0",
    "\u0661",
]
NUMBERS = [
    "0", "-0", "+5", "5.", ".5", "-.5", "00012", "1e5", "1E+05", "1e-5", "1.23457e+06", "9.99999e-05", "123456.789",
    "4503599627370496", "999999999999999", "2147483648", "1e22", "1e-22", "123456789012345e7", "0.000001", "7e0",
]  # fmt: skip


def parsed(*texts: str) -> np.ndarray:
    lines = "".join(f"0 compute {text}\n" for text in texts)
    return tokenise(np.frombuffer(lines.encode(), np.uint8), VERB_TABLE).values


@pytest.mark.parametrize("text", NUMBERS)
def test_number_is_that_of_python(text):
    assert parsed(text).tolist() == [float(text)]


@pytest.mark.parametrize(
    "text", ["123456789012345678901234567890", "99999999999999999999.5", f"0.{'0' * 30}12345678901234567"]
)
def test_many_digits_are_close(text):
    assert math.isclose(parsed(text)[0], float(text), rel_tol=1e-14)


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_text_is_not_a_number(text):
    assert np.isnan(parsed(text)).all()


@pytest.mark.property
@given(st.lists(st.tuples(st.integers(-(10**15) + 1, 10**15 - 1), st.integers(-22, 22)), min_size=1, max_size=50))
def test_up_to_fifteen_digits_are_exact(numbers):
    texts = [f"{mantissa}e{exponent}" for mantissa, exponent in numbers]
    assert parsed(*texts).tolist() == [float(text) for text in texts]


@pytest.mark.property
@given(st.lists(st.floats(1e-9, 1e18, allow_nan=False), min_size=1, max_size=50))
def test_compute_amounts_as_the_tracer_prints_them_are_exact(numbers):
    texts = [f"{number:g}" for number in numbers]
    assert parsed(*texts).tolist() == [float(text) for text in texts]


@pytest.mark.property
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-200, max_value=1e200), min_size=1))
def test_seventeen_digits_are_close(numbers):
    for value, expected in zip(parsed(*map(repr, numbers)), numbers, strict=True):
        assert math.isclose(value, expected, rel_tol=1e-14)


BLANKS = st.text(" \t\r", min_size=1, max_size=3)
TOKEN_LINES = st.tuples(
    st.integers(0, 2**31 - 2),
    st.sampled_from(VERBS),
    st.lists(st.integers(-999, 10**9), max_size=9),
    BLANKS,
    st.booleans(),
)


@pytest.mark.property
@settings(max_examples=60)
@given(st.lists(TOKEN_LINES, max_size=30), st.integers(1, 1000))
def test_tokens_survive_writing_and_reading(lines, first_line):
    text = ""
    number = first_line
    expected = []
    for rank, verb, fields, blank, skips in lines:
        expected.append((rank, CODE[verb], number, [float(value) for value in fields]))
        text += blank.join([str(rank), verb, *map(str, fields)]) + ("\n\n" if skips else "\n")
        number += 1 + skips
    tokens = tokenise(np.frombuffer(text.encode(), np.uint8), VERB_TABLE, first_line)
    bounds = tokens.field_offsets
    found = [
        (int(rank), int(verb), int(line), tokens.values[bounds[i] : bounds[i + 1]].tolist())
        for i, (rank, verb, line) in enumerate(zip(tokens.rank, tokens.verb, tokens.line, strict=True))
    ]
    assert found == expected


def test_verbs_differ_in_their_hash():
    assert len(set(VERB_TABLE.hashes[VERB_TABLE.codes >= 0].tolist())) == len(VERBS) == len(set(VERBS))
