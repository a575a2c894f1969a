"""Quantities: exact values derived by hand, and everything that is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.models.workload.quantities import (
    _UNITS,
    parse_bytes,
    parse_flop_rate,
    parse_frequency_hz,
    parse_ps_per_byte,
    parse_quantity,
    parse_time_ps,
)

PARSERS = [parse_time_ps, parse_bytes, parse_ps_per_byte, parse_frequency_hz, parse_flop_rate]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 s", 10**12), ("1 ms", 10**9), ("1 us", 10**6), ("1 ns", 1000), ("1 ps", 1), ("0 s", 0),
        ("1 min", 60 * 10**12), ("2 h", 7200 * 10**12), ("1.5us", 1_500_000), (" 0.001  ns ", 1),
        ("1e3 ns", 10**6), ("+5 ps", 5), (".5 us", 500_000),
        ("0.1 us", 100_000), ("0.3 ns", 300),  # neither is exact in binary
        ("4611686.018427387904 s", 2**62),
    ],
)  # fmt: skip
def test_time(text, expected):
    value = parse_time_ps(text)
    assert value == expected
    assert type(value) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 B", 1), ("1 kB", 10**3), ("1 KB", 10**3), ("1 MB", 10**6), ("1 GB", 10**9), ("1 TB", 10**12),
        ("1 PB", 10**15),
        ("1 KiB", 2**10), ("1 MiB", 2**20), ("1 GiB", 2**30), ("1 TiB", 2**40), ("1.5 KiB", 1536), ("0 B", 0),
    ],
)  # fmt: skip
def test_size(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 GB/s", 1000.0), ("1.25 GB/s", 800.0), ("1 MB/s", 1e6), ("1 kB/s", 1e9),
        ("10 Gbit/s", 800.0), ("40 Gbit/s", 200.0), ("1 Tbit/s", 8.0),  # a byte has eight bits
        ("1 GiB/s", 10**12 / 2**30), ("inf B/s", 0.0), ("inf GB/s", 0.0),
    ],
)  # fmt: skip
def test_rate(text, expected):
    assert parse_ps_per_byte(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("2.6 GHz", 2.6e9), ("1 Hz", 1.0), ("100 MHz", 1e8), ("1 kHz", 1e3)])
def test_frequency(text, expected):
    assert parse_frequency_hz(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("1 Gflop/s", 1e9), ("2.5 Tflop/s", 2.5e12), ("1 flop/s", 1.0)])
def test_flop_rate(text, expected):
    assert parse_flop_rate(text) == expected


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value", [5, 2.5, 0, None, True, [], "5", "1e3", "", " ", "s", "fast", "1 2 s", "1,5 us", "nan s", "0x1 s"]
)
def test_what_has_no_number_or_no_unit_is_refused(parse, value):
    with pytest.raises(ValueError, match=r"no unit|not a number with a unit|is not a unit"):
        parse(value)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_time_ps, "1 GHz", "'GHz' is not a unit of time; .*known are s, ps"),
        (parse_time_ps, "1 S", "'S' is not a unit of time"),
        (parse_bytes, "1 Mb", "'Mb' is not a unit of size"),
        (parse_bytes, "1 GB/s", "not a unit of size"),
        (parse_ps_per_byte, "1 GB", "not a unit of rate"),
        (parse_flop_rate, "1 GHz", "not a unit of rate"),
        (parse_time_ps, "-1 us", "is negative"),
        (parse_bytes, "-1 B", "is negative"),
        (parse_ps_per_byte, "-1 GB/s", "is negative"),
        (parse_time_ps, "0.5 ps", "whole number of picoseconds"),
        (parse_bytes, "0.5 B", "whole number of bytes"),
        (parse_time_ps, "inf s", "must be finite"),
        (parse_bytes, "inf B", "must be finite"),
        (parse_frequency_hz, "inf Hz", "finite and greater than zero"),
        (parse_frequency_hz, "0 Hz", "finite and greater than zero"),
        (parse_frequency_hz, "1e400 Hz", "finite and greater than zero"),
        (parse_flop_rate, "0 flop/s", "finite and greater than zero"),
        (parse_ps_per_byte, "0 B/s", "at least 1000 B/s"),
        (parse_ps_per_byte, "1e-300 B/s", "at least 1000 B/s"),
        (parse_time_ps, "4611686.018427387905 s", "beyond 53 days"),
        (parse_bytes, "1e30 B", "beyond 4 EiB"),
        (parse_time_ps, "1e999999999 s", "not a number with a unit"),  # at once, not after a billion digits
    ],
)
def test_what_makes_no_sense_is_refused(parse, text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


@pytest.mark.property
@given(st.data(), st.sampled_from(sorted(_UNITS)), st.integers(0, 10**12), st.integers(-12, 12))
def test_every_unit_is_exact(data, dimension, mantissa, exponent):
    unit = data.draw(st.sampled_from(sorted(_UNITS[dimension])))
    expected = Fraction(mantissa) * Fraction(10) ** exponent * _UNITS[dimension][unit]
    assert parse_quantity(f"{mantissa}e{exponent} {unit}", dimension) == expected
